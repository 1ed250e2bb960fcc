mod bounds;
mod gaps;
mod listed;
mod words;

use super::{Redirection, RedirectionMode, RedirectionTarget, Script, ShellWord, SimpleCommand, parse};

fn word(word: &ShellWord) -> String {
    match word {
        ShellWord::Literal(bytes) if bytes.is_empty() => "''".to_owned(),
        ShellWord::Literal(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        ShellWord::Glob { prefix, pattern } => {
            format!("glob:{}:{}", String::from_utf8_lossy(prefix), String::from_utf8_lossy(pattern))
        }
        ShellWord::Home(rest) => format!("home:{}", String::from_utf8_lossy(rest)),
        ShellWord::Dynamic { why } => format!("<{why}>"),
    }
}

fn redirection(redirection: &Redirection) -> String {
    let sign = match redirection.direction {
        RedirectionMode::Read => "<",
        RedirectionMode::Write => ">",
        RedirectionMode::ReadWrite => "<>",
    };
    match &redirection.target {
        RedirectionTarget::File(target) => format!("{sign}{}", word(target)),
        RedirectionTarget::Descriptor => format!("{sign}&"),
        RedirectionTarget::Text => format!("{sign}text"),
    }
}

/// A command in one line, words separated by `|`.
fn line(simple: &SimpleCommand) -> String {
    let assignments = simple.assignments.iter().map(|assignment| {
        format!("{}={}", String::from_utf8_lossy(&assignment.name), word(&assignment.value))
    });
    let words = simple.words.iter().map(word);
    let redirections = simple.redirections.iter().map(redirection);
    assignments.chain(words).chain(redirections).collect::<Vec<_>>().join("|")
}

fn lines(script: &Script) -> Vec<String> {
    script.commands.iter().map(line).collect()
}

/// The commands of a text that must not have a gap.
fn commands(text: &str) -> Vec<String> {
    let script = parse(text.as_bytes());
    assert!(script.gaps.is_empty(), "{text:?}: {:?}", script.gaps);
    lines(&script)
}

fn assert_commands(table: &[(&str, &[&str])]) {
    for (text, expected) in table {
        assert_eq!(commands(text), *expected, "{text:?}");
    }
}

fn gaps(text: &str) -> Vec<&'static str> {
    parse(text.as_bytes()).gaps.iter().map(|gap| gap.why).collect()
}

fn assert_gaps(texts: &[&str]) {
    for text in texts {
        assert!(!gaps(text).is_empty(), "{text:?} has no gap: {:?}", lines(&parse(text.as_bytes())));
    }
}

/// Gaps, and still the command is there for rules about it.
fn assert_gap_lists(table: &[(&str, &str)]) {
    for (text, expected) in table {
        let script = parse(text.as_bytes());
        assert!(!script.gaps.is_empty(), "{text:?} has no gap");
        assert!(lines(&script).iter().any(|line| line == expected), "{text:?}: {:?}", lines(&script));
    }
}
