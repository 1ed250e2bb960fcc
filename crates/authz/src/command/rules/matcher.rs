//! One pattern against one command line.

use std::path::Path;

use ringfence_types::Decision;

use super::{CommandLine, CommandPattern, CommandRule};
use crate::command::arg::Arg;
use crate::command::catalogue::{GIT, git_subcommand};
use crate::command::options::{OptionValue, ProgramSpec, read};
use crate::command::program_class::{ProgramClass, class_of};
use crate::command::program_origin::is_file;

/// Options that mean the same in most programs.
const COMMON: &[(&str, &[&str])] = &[
    ("--force", &["-f"]),
    ("--recursive", &["-r", "-R"]),
    ("--delete", &["-d", "-D"]),
    ("--yes", &["-y"]),
    ("--global", &["-g"]),
    ("--all", &["-a"]),
    ("--output", &["-o"]),
    ("--interactive", &["-i"]),
    ("--privileged", &[]),
];

/// Other options that do what one does.
const WIDER: &[(&str, &[&str])] = &[("--force", &["--force-with-lease", "--force-if-includes", "--mirror"])];

/// Letters that mean the same in one program; in others, such as `ls`, they do not.
const SAME: &[(&str, &[&str])] = &[("rm", &["-r", "-R"]), ("cp", &["-r", "-R"])];

/// Whether a rule speaks about a command line, wherever it runs.
pub(super) fn speaks(rule: &CommandRule, line: &CommandLine<'_>, workspace: &Path) -> bool {
    let Some(program) = rule.pattern.program() else { return false };
    if program.contains('/') && !is_file(&line.identity, workspace, program) {
        return false;
    }
    let called = line.identity.name == program.rsplit('/').next().unwrap_or(program).as_bytes();
    match rule.decision {
        // A rule about `python` does not open `python3.11`, nor what only links to it.
        Decision::Allow => called && strictly(&rule.pattern, line),
        Decision::Ask | Decision::Deny => generously(&rule.pattern, line),
    }
}

/// For rules that allow: subcommands where they belong, options as they are written.
pub(super) fn strictly(pattern: &CommandPattern, line: &CommandLine<'_>) -> bool {
    if let CommandPattern::Exact(_) = pattern {
        return exactly(pattern, line.args);
    }
    let operands = operands(line);
    let positional =
        pattern.positional().enumerate().all(|(at, word)| operands.get(at) == Some(&word.as_bytes()));
    let present = |option: &str| {
        let glued =
            |text: &[u8]| text.strip_prefix(option.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
        line.args.iter().filter_map(|arg| arg.text()).any(|text| text == option.as_bytes() || glued(text))
    };
    positional && pattern.options().all(present)
}

/// For rules that narrow: wherever and however it could mean the same.
pub(super) fn generously(pattern: &CommandPattern, line: &CommandLine<'_>) -> bool {
    if let CommandPattern::Exact(_) = pattern {
        return exactly(pattern, line.args);
    }
    let words: Vec<&str> = pattern.positional().collect();
    let program = by_name(line.identity.name);
    reaches(&words, line.args, program) && pattern.options().all(|option| has_in_any_form(line, option))
}

/// `-rf` is also `-r` and `-f`, wherever each of them stands and however it is written.
fn has_in_any_form(line: &CommandLine<'_>, option: &str) -> bool {
    let apart = || letters(option).is_some_and(|all| all.iter().all(|letter| has_letter(line, *letter)));
    has_pattern_option(line.args, option) || apart()
}

fn has_letter(line: &CommandLine<'_>, letter: u8) -> bool {
    let option = format!("-{}", char::from(letter));
    let of_program = SAME.iter().filter(|(program, _)| program.as_bytes() == line.identity.name);
    let same = of_program.map(|(_, same)| *same).filter(|same| same.contains(&option.as_str())).flatten();
    has_pattern_option(line.args, &option)
        || same.into_iter().any(|other| has_pattern_option(line.args, other))
}

fn exactly(pattern: &CommandPattern, args: &[Arg<'_>]) -> bool {
    let wanted = pattern.arguments();
    wanted.len() == args.len() && wanted.iter().zip(args).all(|(word, arg)| arg.is(word))
}

/// The operands as the program would take them; only those that are known.
fn operands<'a>(line: &CommandLine<'a>) -> Vec<&'a [u8]> {
    let text = |arg: &Arg<'a>| arg.text();
    match class_of(line.identity.name) {
        ProgramClass::Git => {
            let rest = line.args.get(read(&GIT, line.args).rest..).unwrap_or_default();
            let Some((Arg::Text(name), args)) = rest.split_first() else { return Vec::new() };
            let reading = read(git_subcommand(name), args);
            let operands = reading.certain_operands().iter().map_while(|operand| operand.arg.text());
            std::iter::once(*name).chain(operands).collect()
        }
        ProgramClass::Catalogued(program) => {
            let reading = read(program, line.args);
            reading.certain_operands().iter().map_while(|operand| operand.arg.text()).collect()
        }
        ProgramClass::Wrapper(wrapper) => {
            let rest = read(&wrapper.program, line.args).rest;
            line.args.get(rest..).unwrap_or_default().iter().map_while(text).collect()
        }
        _ => line.args.iter().map_while(text).take_while(|text| !text.starts_with(b"-")).collect(),
    }
}

/// Whether the words can be the first operands, in order, when a word after an option may or may not be its value.
fn reaches(words: &[&str], args: &[Arg<'_>], program: Option<&'static ProgramSpec>) -> bool {
    let mut program = program;
    let mut reached = vec![false; words.len() + 1];
    if let Some(start) = reached.first_mut() {
        *start = true;
    }
    let mut maybe_value = false;
    for arg in args {
        let Some(text) = arg.text() else {
            // Any number of words, none included: nothing is certain after it.
            maybe_value = true;
            continue;
        };
        if text.len() > 1 && text.starts_with(b"-") {
            maybe_value = takes_value(program, text);
            continue;
        }
        let mut next = vec![false; reached.len()];
        for (at, _) in reached.iter().enumerate().filter(|(_, reached)| **reached) {
            let done = at == words.len();
            let matched = words.get(at).is_some_and(|word| word.as_bytes() == text);
            for (to, holds) in [(at, done || maybe_value), (at + 1, matched)] {
                if let Some(slot) = next.get_mut(to).filter(|_| holds) {
                    *slot = true;
                }
            }
        }
        reached = next;
        if !maybe_value && program.is_some_and(|program| program.name == "git") {
            program = Some(git_subcommand(text));
        }
        maybe_value = false;
    }
    reached.last().copied().unwrap_or(false)
}

/// Whether the word after an option could be its value.
pub(in crate::command) fn takes_value(program: Option<&ProgramSpec>, text: &[u8]) -> bool {
    let Some(program) = program else { return !text.contains(&b'=') };
    match text {
        [b'-', b'-', name @ ..] => {
            let known = |group: &&crate::command::options::OptionGroup| {
                group.long.split(' ').any(|long| long.as_bytes() == name)
            };
            let group = program.all_groups().find(known);
            !name.contains(&b'=')
                && !name.is_empty()
                && group.is_none_or(|group| group.value == OptionValue::Required)
        }
        [b'-', .., letter] => {
            let group = program.all_groups().find(|group| group.short.as_bytes().contains(letter));
            group.is_none_or(|group| group.value == OptionValue::Required)
        }
        _ => false,
    }
}

fn by_name(name: &[u8]) -> Option<&'static ProgramSpec> {
    match class_of(name) {
        ProgramClass::Git => Some(&GIT),
        ProgramClass::Catalogued(program) => Some(program),
        ProgramClass::Wrapper(wrapper) => Some(&wrapper.program),
        _ => None,
    }
}

/// An option of a pattern among the arguments, in any spelling, with what means the same.
fn has_pattern_option(args: &[Arg<'_>], option: &str) -> bool {
    let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    if value.is_some() {
        return args.iter().any(|arg| arg.is(option)) || follows(args, name, value);
    }
    let short: &[&str] = COMMON.iter().find(|(long, _)| *long == name).map_or(&[], |(_, short)| short);
    let long = COMMON.iter().filter(|(_, short)| short.contains(&name)).map(|(long, _)| *long);
    let names = || std::iter::once(name).chain(long.clone());
    let wider = names()
        .flat_map(|name| WIDER.iter().filter(move |(option, _)| *option == name))
        .flat_map(|(_, more)| *more);
    names().any(|name| has_option(args, name, short))
        || wider.into_iter().any(|name| has_option(args, name, &[]))
        || names().any(|name| name == "--force") && has_plus_refspec(args)
}

/// `--name value` for `--name=value`.
fn follows(args: &[Arg<'_>], name: &str, value: Option<&str>) -> bool {
    args.windows(2).any(|pair| match pair {
        [option, next] => option.is(name) && value.is_some_and(|value| next.is(value)),
        _ => false,
    })
}

/// Whether an option is among the arguments: `--force`, `--forc`, `--force=x`; and for single letters in any cluster. Errs
/// on the side of yes.
pub(in crate::command) fn has_option(args: &[Arg<'_>], option: &str, short: &[&str]) -> bool {
    let before_dashes = args.iter().map(|arg| arg.known_start()).take_while(|text| *text != b"--");
    before_dashes.filter(|text| text.len() > 1 && text.starts_with(b"-")).any(|text| {
        let single = |name: &str| {
            is_cluster(text) && letters(name).is_some_and(|all| all.iter().all(|l| text.contains(l)))
        };
        text == option.as_bytes()
            || is_long(text, option)
            || single(option)
            || short.iter().any(|name| single(name))
    }) || spread(args, option)
}

/// `-f -d` for `-fd`.
fn spread(args: &[Arg<'_>], option: &str) -> bool {
    let Some(letters) = letters(option).filter(|letters| letters.len() > 1) else { return false };
    let clusters: Vec<&[u8]> = args
        .iter()
        .map(|arg| arg.known_start())
        .take_while(|text| *text != b"--")
        .filter(|text| is_cluster(text))
        .collect();
    letters.iter().all(|letter| clusters.iter().any(|text| text.contains(letter)))
}

/// A refspec with `+` forces like `--force`.
pub(in crate::command) fn has_plus_refspec(args: &[Arg<'_>]) -> bool {
    args.iter().any(|arg| arg.known_start().starts_with(b"+"))
}

fn is_long(text: &[u8], option: &str) -> bool {
    let Some(name) = text.strip_prefix(b"--") else { return false };
    let name = name.split(|byte| *byte == b'=').next().unwrap_or(name);
    let wanted = option.strip_prefix("--").unwrap_or_default().as_bytes();
    !name.is_empty() && wanted.starts_with(name)
}

fn is_cluster(text: &[u8]) -> bool {
    text.len() > 1 && text.starts_with(b"-") && !text.starts_with(b"--")
}

/// The letters of `-f` or `-fd`.
fn letters(option: &str) -> Option<&[u8]> {
    let letters = option.as_bytes().strip_prefix(b"-")?;
    (!letters.starts_with(b"-") && !letters.is_empty()).then_some(letters)
}
