//! What a command reads, as far as it is known before the command runs.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{Bytes, hex};

/// Standard input of a command. What is approved is approved with this input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum StandardInput {
    /// Nothing to read.
    #[default]
    None,
    /// All of it is known.
    Bytes {
        sha256: String,
        bytes: u64,
        /// How it begins. In a record without secrets, and no more than a person reads.
        head: Bytes,
    },
    /// The terminal at which the person sits who started the command.
    Terminal,
    /// A pipe or a terminal of whoever makes the call: what comes is not known yet.
    Stream,
}

impl StandardInput {
    /// Of known input, so much is kept to be shown.
    pub const HEAD: usize = 64 << 10;

    pub fn of_bytes(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::None;
        }
        let head = bytes.get(..Self::HEAD).unwrap_or(bytes);
        Self::Bytes { sha256: hex(Sha256::digest(bytes)), bytes: bytes.len() as u64, head: Bytes::from(head) }
    }

    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// The word that a stored answer has for it; `None`: it is not known, so that no stored answer covers it.
    pub fn word(&self) -> Option<String> {
        match self {
            Self::None => Some(NONE.to_owned()),
            Self::Terminal => Some(TERMINAL.to_owned()),
            Self::Bytes { sha256, .. } => Some(format!("{SHA256}{sha256}")),
            Self::Stream => None,
        }
    }

    /// Whether an answer for input of this kind is one for `other`. Without input a command reads less than at a terminal.
    pub fn is_covered_by(&self, word: &str) -> bool {
        match self {
            Self::None => word == NONE || word == TERMINAL,
            Self::Terminal | Self::Bytes { .. } | Self::Stream => self.word().as_deref() == Some(word),
        }
    }

    /// Whether a rule can have this word.
    pub fn is_word(word: &str) -> bool {
        let is_digest = |hex: &str| {
            hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        word == NONE || word == TERMINAL || word.strip_prefix(SHA256).is_some_and(is_digest)
    }

    pub(crate) fn fields(&self, field: &mut dyn FnMut(&[u8])) {
        match self {
            // As before there was standard input in a fingerprint.
            Self::None => {}
            Self::Terminal => field(b"stdin terminal"),
            Self::Stream => field(b"stdin stream"),
            Self::Bytes { sha256, .. } => {
                field(b"stdin sha256");
                field(sha256.as_bytes());
            }
        }
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
