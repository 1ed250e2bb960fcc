//! One argument as far as it is known before the command runs.

use ringfence_types::ByteString;

use ringfence_shell::ShellWord;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arg<'a> {
    Text(&'a [u8]),
    /// The shell replaces it by names of files, all of which begin with `prefix`.
    Glob {
        prefix: &'a [u8],
        pattern: &'a [u8],
    },
    /// The home directory, then these bytes.
    Home(&'a [u8]),
    /// Any number of words, none included, that are known only when it runs.
    Unknown(&'static str),
}

impl<'a> Arg<'a> {
    pub(super) fn text(self) -> Option<&'a [u8]> {
        match self {
            Self::Text(text) => Some(text),
            Self::Glob { .. } | Self::Home(_) | Self::Unknown(_) => None,
        }
    }

    pub(super) fn is(self, word: &str) -> bool {
        self.text() == Some(word.as_bytes())
    }

    /// What it begins with, whatever it becomes.
    pub(super) fn known_start(self) -> &'a [u8] {
        match self {
            Self::Text(text) => text,
            Self::Glob { prefix, .. } => prefix,
            Self::Home(_) | Self::Unknown(_) => b"",
        }
    }
}

impl<'a> From<&'a ShellWord> for Arg<'a> {
    fn from(word: &'a ShellWord) -> Self {
        match word {
            ShellWord::Literal(text) => Self::Text(text),
            ShellWord::Glob { prefix, pattern } => Self::Glob { prefix, pattern },
            ShellWord::Home(rest) => Self::Home(rest),
            ShellWord::Dynamic { why } => Self::Unknown(why),
        }
    }
}

impl<'a> From<&'a ByteString> for Arg<'a> {
    fn from(bytes: &'a ByteString) -> Self {
        Self::Text(bytes.as_slice())
    }
}

/// The most that is shown of a command.
const SHOWN: usize = 240;

/// A command line for people: words with blanks are quoted, what would deceive a terminal is escaped.
pub(super) fn shown(args: &[Arg<'_>]) -> String {
    let mut line = Vec::new();
    for arg in args {
        if line.len() > SHOWN {
            break;
        }
        if !line.is_empty() {
            line.push(b' ');
        }
        push(&mut line, *arg);
    }
    shorten(&line)
}

/// The start of a text, safe to show.
pub(super) fn shorten(text: &[u8]) -> String {
    let start = text.get(..SHOWN).unwrap_or(text);
    let plain = start.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let shown =
        if plain { String::from_utf8_lossy(start).into_owned() } else { ByteString::from(start).display() };
    if text.len() > SHOWN { format!("{shown}…") } else { shown }
}

/// Every argument, where every one of them is known.
pub(super) fn literal(args: &[Arg<'_>]) -> Vec<ByteString> {
    args.iter().map(|arg| arg.text().map(ByteString::from)).collect::<Option<Vec<_>>>().unwrap_or_default()
}

fn push(line: &mut Vec<u8>, arg: Arg<'_>) {
    match arg {
        Arg::Text(text) => push_quoted(line, text.get(..SHOWN + 1).unwrap_or(text)),
        Arg::Glob { pattern, .. } => line.extend_from_slice(pattern),
        Arg::Home(rest) => {
            line.push(b'~');
            line.extend_from_slice(rest);
        }
        Arg::Unknown(_) => line.extend_from_slice("…".as_bytes()),
    }
}

fn push_quoted(line: &mut Vec<u8>, text: &[u8]) {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"'\"\\$`;&|<>()*?[]{}#~!".contains(byte);
    if !text.is_empty() && text.iter().all(|byte| plain(byte) || *byte >= 0x80) {
        line.extend_from_slice(text);
        return;
    }
    line.push(b'\'');
    for byte in text {
        match byte {
            b'\'' => line.extend_from_slice(b"'\\''"),
            _ => line.push(*byte),
        }
    }
    line.push(b'\'');
}
