//! Rules by program and first word.

use std::collections::HashMap;

use super::{CommandLine, CommandPattern};
use crate::command::arg::Arg;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandRuleIndex {
    programs: HashMap<Vec<u8>, ProgramRules>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ProgramRules {
    /// Without a word besides the program.
    bare: Vec<usize>,
    words: HashMap<Vec<u8>, Vec<usize>>,
    exact: HashMap<Vec<u8>, Vec<usize>>,
}

impl CommandRuleIndex {
    pub(super) fn add(&mut self, pattern: &CommandPattern, at: usize) {
        let Some(program) = pattern.program() else { return };
        let name = program.rsplit('/').next().unwrap_or(program).as_bytes();
        let program = self.programs.entry(name.to_vec()).or_default();
        let slot = match pattern {
            CommandPattern::Exact(_) => {
                let arguments = pattern.arguments().iter().map(|word| Some(word.as_bytes()));
                program.exact.entry(key(arguments).unwrap_or_default()).or_default()
            }
            CommandPattern::Words(_) => match pattern.positional().next() {
                Some(word) => program.words.entry(word.as_bytes().to_vec()).or_default(),
                None => &mut program.bare,
            },
        };
        slot.push(at);
    }

    /// Every rule that could speak about a command line, once.
    pub(super) fn candidates(&self, line: &CommandLine<'_>) -> Vec<usize> {
        let mut found = Vec::new();
        for program in line.names().into_iter().filter_map(|name| self.programs.get(name)) {
            program.collect(line.args, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl ProgramRules {
    fn collect(&self, args: &[Arg<'_>], found: &mut Vec<usize>) {
        found.extend(&self.bare);
        if !self.words.is_empty() {
            let words = args.iter().filter_map(|arg| arg.text()).filter_map(|word| self.words.get(word));
            found.extend(words.flatten());
        }
        if !self.exact.is_empty()
            && let Some(key) = key(args.iter().map(|arg| arg.text()))
        {
            found.extend(self.exact.get(&key).into_iter().flatten());
        }
    }
}

/// Arguments as one key; `None` where one is not known.
fn key<'a>(args: impl Iterator<Item = Option<&'a [u8]>>) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    for arg in args {
        key.extend_from_slice(arg?);
        key.push(0);
    }
    Some(key)
}
