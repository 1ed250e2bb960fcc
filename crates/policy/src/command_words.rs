//! Text of a policy file as the words of one command.

use ringfence_shell::{self as shell, ShellWord, SimpleCommand};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WordSplitError {
    #[error("this is not one command: {0}")]
    Unreadable(&'static str),
    #[error("these are {0} commands")]
    Several(usize),
    #[error("a rule is about a command, not about its {0}")]
    Extra(&'static str),
    #[error("a rule is literal, and this has {0} in it")]
    Dynamic(&'static str),
}

impl WordSplitError {
    pub(super) fn fix(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "write it as one would type it, and close every quote",
            Self::Several(_) => "write one entry for each",
            Self::Extra(_) => "write the program and its arguments alone",
            Self::Dynamic(_) => "put what is meant literally in single quotes, and leave the rest out",
        }
    }
}

/// The words of one simple, literal command, as a shell would split them.
pub(super) fn split(text: &str) -> Result<Vec<String>, WordSplitError> {
    if is_plain(text) {
        return Ok(text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect());
    }
    let script = shell::parse(text.as_bytes());
    if let Some(gap) = script.gaps.first() {
        return Err(WordSplitError::Unreadable(gap.why));
    }
    match script.commands.as_slice() {
        [] => Err(WordSplitError::Unreadable("there is no program in it")),
        [command] => literal(command),
        commands => Err(WordSplitError::Several(commands.len())),
    }
}

/// Nothing in it means anything to any shell. A leading `=` is left out because zsh replaces it.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" _-./:,@%+=".contains(&byte);
    let first = text.split(' ').find(|word| !word.is_empty());
    text.bytes().all(plain) && first.is_some_and(|word| !word.contains('=')) && !text.contains(" =")
}

fn literal(command: &SimpleCommand) -> Result<Vec<String>, WordSplitError> {
    if !command.redirections.is_empty() {
        return Err(WordSplitError::Extra("redirections"));
    }
    if !command.assignments.is_empty() {
        return Err(WordSplitError::Extra("variables"));
    }
    if command.words.is_empty() {
        return Err(WordSplitError::Unreadable("there is no program in it"));
    }
    command.words.iter().map(literal_word).collect()
}

fn literal_word(word: &ShellWord) -> Result<String, WordSplitError> {
    match word {
        ShellWord::Literal(bytes) => String::from_utf8(bytes.clone())
            .map_err(|_not_text| WordSplitError::Dynamic("bytes that are not UTF-8")),
        ShellWord::Glob { .. } => Err(WordSplitError::Dynamic("a file name pattern")),
        ShellWord::Home(_) => Err(WordSplitError::Dynamic("`~`")),
        ShellWord::Dynamic { why } => Err(WordSplitError::Dynamic(why)),
    }
}
