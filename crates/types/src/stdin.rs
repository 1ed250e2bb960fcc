//! Standard input of a command, as far as it is known before the command runs.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{ByteString, hex};

/// Standard input of a command. An approval is bound to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum StandardInput {
    /// Nothing to read.
    #[default]
    None,
    /// Completely known.
    Bytes {
        sha256: String,
        bytes: u64,
        /// The first bytes. Redacted and shortened in a record.
        head: ByteString,
    },
    /// The terminal of the user who started the command.
    Terminal,
    /// A pipe or terminal of the caller, whose content is not known yet.
    Stream,
}

impl StandardInput {
    /// Bytes of known input that are kept for display.
    pub const HEAD: usize = 64 << 10;

    pub fn of_bytes(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::None;
        }
        let head = bytes.get(..Self::HEAD).unwrap_or(bytes);
        Self::Bytes {
            sha256: hex(Sha256::digest(bytes)),
            bytes: bytes.len() as u64,
            head: ByteString::from(head),
        }
    }

    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// The text for it in a grant; `None`: unknown input, which no grant covers.
    pub fn word(&self) -> Option<String> {
        match self {
            Self::None => Some(NONE.to_owned()),
            Self::Terminal => Some(TERMINAL.to_owned()),
            Self::Bytes { sha256, .. } => Some(format!("{SHA256}{sha256}")),
            Self::Stream => None,
        }
    }

    /// Whether a grant for `word` covers this input. A command without input reads less than at a terminal.
    pub fn is_covered_by(&self, word: &str) -> bool {
        match self {
            Self::None => word == NONE || word == TERMINAL,
            Self::Terminal | Self::Bytes { .. } | Self::Stream => self.word().as_deref() == Some(word),
        }
    }

    /// Whether a rule can contain this word.
    pub fn is_word(word: &str) -> bool {
        let is_digest = |hex: &str| {
            hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        word == NONE || word == TERMINAL || word.strip_prefix(SHA256).is_some_and(is_digest)
    }
}

const NONE: &str = "none";
const TERMINAL: &str = "terminal";
const SHA256: &str = "sha256:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_covers_the_same_input_and_no_input_at_all() {
        let (some, other) = (StandardInput::of_bytes(b"x"), StandardInput::of_bytes(b"y"));
        let word = some.word().unwrap();
        assert!(StandardInput::is_word(&word));
        assert!(some.is_covered_by(&word) && !other.is_covered_by(&word));
        assert!(!StandardInput::None.is_covered_by(&word), "a patch is not nothing");
        assert!(StandardInput::None.is_covered_by("terminal") && StandardInput::None.is_covered_by("none"));
        assert!(!StandardInput::Terminal.is_covered_by("none"));
        assert!(StandardInput::Stream.word().is_none() && !StandardInput::Stream.is_covered_by("none"));
        assert_eq!(StandardInput::of_bytes(b""), StandardInput::None);
        assert!(!StandardInput::is_word("sha256:XYZ") && !StandardInput::is_word("stream"));
    }
}
