//! Whether what a shell did was foretold.

use ringfence_shell::{RedirectionMode, RedirectionTarget, Script, ShellWord, SimpleCommand};

use crate::machine::Record;

/// What a shell did that the script does not list.
#[derive(Debug)]
#[expect(dead_code, reason = "a failing test prints it")]
pub(crate) enum Hole {
    Call(Vec<Vec<u8>>),
    File(Vec<u8>),
}

/// Whether a command is not known before it runs, or takes code as an argument: it is listed, and others judge it.
pub(crate) fn runs_more(script: &Script) -> bool {
    let first = script.commands.iter().filter_map(|simple| simple.words.first());
    first.into_iter().any(|word| match word {
        ShellWord::Literal(name) => matches!(name.as_slice(), b"." | b"source" | b"eval" | b"trap"),
        _ => true,
    })
}

/// The first thing in a record that is not in the script.
pub(crate) fn hole(script: &Script, record: &Record) -> Option<Hole> {
    let call = record.calls.iter().find(|call| !script.commands.iter().any(|simple| runs(simple, call)));
    let file = record.files.iter().find(|file| !script.commands.iter().any(|simple| writes(simple, file)));
    call.cloned().map(Hole::Call).or_else(|| file.cloned().map(Hole::File))
}

fn runs(simple: &SimpleCommand, call: &[Vec<u8>]) -> bool {
    let direct = simple.words.iter().position(|word| !is_carrier(word)).unwrap_or_default();
    matches(&simple.words, call) || matches(&simple.words[direct..], call)
}

/// A builtin that runs the command behind it.
fn is_carrier(word: &ShellWord) -> bool {
    matches!(word, ShellWord::Literal(name) if matches!(name.as_slice(), b"builtin" | b"command" | b"exec"))
}

/// A literal is one word, a pattern is at least one, what is dynamic is any number of them.
fn matches(words: &[ShellWord], call: &[Vec<u8>]) -> bool {
    let Some((word, words)) = words.split_first() else { return call.is_empty() };
    match word {
        ShellWord::Dynamic { .. } => (0..=call.len()).any(|taken| matches(words, &call[taken..])),
        ShellWord::Glob { .. } => {
            let fits = call.iter().take_while(|actual| fits(word, actual)).count();
            (1..=fits).any(|taken| matches(words, &call[taken..]))
        }
        _ => call.first().is_some_and(|actual| fits(word, actual)) && matches(words, &call[1..]),
    }
}

fn fits(word: &ShellWord, actual: &[u8]) -> bool {
    match word {
        ShellWord::Literal(bytes) => bytes == actual,
        ShellWord::Glob { prefix, .. } => actual.starts_with(prefix),
        ShellWord::Home(rest) => actual.ends_with(rest),
        ShellWord::Dynamic { .. } => true,
    }
}

fn writes(simple: &SimpleCommand, file: &[u8]) -> bool {
    simple.redirections.iter().any(|redirection| match &redirection.target {
        RedirectionTarget::File(word) => redirection.direction != RedirectionMode::Read && fits(word, file),
        RedirectionTarget::Descriptor | RedirectionTarget::Text => false,
    })
}
