//! What is known about programs, as data: options that execute, write, delete, read other files or reach the network,
//! and every option that is harmless.
//!
//! Kept by hand against the manuals of coreutils 9, grep 3, ripgrep 15, findutils 4, git 2.50 and util-linux 2.41. An option
//! that a newer version adds is unknown here, and unknown is a question: a table that is behind is noisy, not open.

mod files;
mod git;
mod guarded_list;
mod project;
mod text;
mod wrappers;

use super::options::ProgramSpec;
use super::wrappers::Wrapper;

pub(super) use git::{GLOBAL as GIT, subcommand as git_subcommand};
pub(super) use project::steered;
pub(super) use wrappers::LOADER;

pub(super) fn programs() -> impl Iterator<Item = &'static ProgramSpec> {
    [guarded_list::PROGRAMS, text::PROGRAMS, files::PROGRAMS].into_iter().flatten()
}

pub(super) fn wrappers() -> &'static [Wrapper] {
    wrappers::WRAPPERS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::command::options::{OptionEffect, OptionGroup, OptionValue};

    fn every_program() -> impl Iterator<Item = &'static ProgramSpec> {
        programs()
            .chain(git::SUBCOMMANDS)
            .chain([&GIT])
            .chain(wrappers::WRAPPERS.iter().map(|wrapper| &wrapper.program))
    }

    fn names(group: &OptionGroup) -> impl Iterator<Item = String> {
        let short = group.short.chars().map(|letter| format!("-{letter}"));
        short.chain(group.long.split(' ').filter(|name| !name.is_empty()).map(|name| format!("--{name}")))
    }

    #[test]
    fn no_program_has_two_entries_and_no_option_two_meanings() {
        let mut programs = BTreeSet::new();
        for program in every_program() {
            assert!(program.name.is_empty() || programs.insert(program.name), "{}", program.name);
            let mut options = BTreeSet::new();
            for option in program.all_groups().flat_map(names) {
                assert!(options.insert(option.clone()), "{}: {option}", program.name);
            }
        }
    }

    #[test]
    fn options_are_spelt_without_dashes_and_blanks_are_single() {
        for program in every_program() {
            for group in program.groups {
                assert!(!group.short.contains([' ', '-']), "{}: {}", program.name, group.short);
                for name in group.long.split(' ').filter(|_| !group.long.is_empty()) {
                    assert!(!name.is_empty() && !name.starts_with('-'), "{}: {}", program.name, group.long);
                }
            }
        }
    }

    #[test]
    fn what_reads_or_writes_a_file_takes_its_name() {
        for program in every_program() {
            for group in program.groups {
                let names_a_file = matches!(
                    group.effect,
                    OptionEffect::Read | OptionEffect::PatternFile | OptionEffect::Enter
                );
                assert!(
                    !names_a_file || group.value != OptionValue::None,
                    "{}: {}",
                    program.name,
                    group.long
                );
            }
        }
    }
}
