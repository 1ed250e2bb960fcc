//! Match filter: distinguishes a secret from a word, a reference or an example of the same shape.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// What a match must have besides its shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchFilter {
    /// Bits per byte.
    pub(crate) entropy: f32,
    pub(crate) mixed: bool,
    pub(crate) random: bool,
}

impl MatchFilter {
    pub(crate) fn admits(self, value: &[u8]) -> bool {
        let mixed = !self.mixed
            || (value.iter().any(u8::is_ascii_digit) && value.iter().any(u8::is_ascii_alphabetic));
        let random = !self.random || looks_random(value);
        mixed && random && !is_placeholder(value) && !is_own_id(value) && entropy(value) >= self.entropy
    }
}

/// Shannon's, over the bytes of the value itself.
pub(crate) fn entropy(value: &[u8]) -> f32 {
    let mut counts = [0_u32; 256];
    for byte in value {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    let length = value.len() as f32;
    let bits = |count: &u32| {
        let share = *count as f32 / length;
        -share * share.log2()
    };
    counts.iter().filter(|count| **count > 0).map(bits).sum()
}

/// An id of a Ringfence session, transaction, grant or chain. It is as random as a key but no credential, and logs need it.
fn is_own_id(value: &[u8]) -> bool {
    let digits =
        [b"ses_".as_slice(), b"tx_", b"gr_", b"ch_"].iter().find_map(|kind| value.strip_prefix(*kind));
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    digits.is_some_and(|digits| digits.len() == 24 && digits.iter().all(is_digit))
}

/// A value that stands for a secret, without being one.
pub(crate) fn is_reference(value: &[u8]) -> bool {
    let marks = |start: &[u8]| value.starts_with(start);
    value.is_empty()
        || marks(b"$")
        || marks(b"<")
        || marks(b"{")
        || marks(b"%")
        || marks(b"[redacted:")
        || value.iter().all(|byte| matches!(byte, b'*' | b'x' | b'X' | b'.' | b'-' | b'_'))
}

/// Words that do not occur in random letters, in lower case.
const EXAMPLE_WORDS: &[&[u8]] = &[
    b"example",
    b"placeholder",
    b"changeme",
    b"change_me",
    b"change-me",
    b"redacted",
    b"your-",
    b"your_",
    b"yourapi",
    b"yourtoken",
    b"yourpass",
    b"yoursecret",
    b"dummy",
    b"insert",
    b"sample",
    b"notreal",
    b"xxxxxx",
    b"000000",
    b"111111",
    b"aaaaaa",
    b"1234567890ab",
    b"0123456789ab",
    b"12345678901234567890",
    b"abcdefgh",
    b"deadbeef",
    b"****",
    b"....",
    b"foobar",
];

/// Placeholders in documentation.
pub(crate) fn is_placeholder(value: &[u8]) -> bool {
    static WORDS: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let words = WORDS.get_or_init(|| {
        AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(EXAMPLE_WORDS)
            .ok()
    });
    words.as_ref().is_some_and(|words| words.is_match(value)) || is_repetition(value)
}

/// A few letters over and over.
fn is_repetition(value: &[u8]) -> bool {
    let repeats =
        |period: usize| value.iter().zip(value.iter().skip(period)).all(|(a, b)| a.eq_ignore_ascii_case(b));
    value.len() >= 12 && (1..=4).any(repeats)
}

/// Letters and digits mixed as by chance: no word, identifier, version or UUID.
pub(crate) fn looks_random(value: &[u8]) -> bool {
    if is_uuid(value) || is_placeholder(value) || entropy(value) < 3.0 {
        return false;
    }
    let pieces = value.split(|byte| !byte.is_ascii_alphanumeric());
    let (digits, capitals) = pieces.map(turns).fold((0, 0), |sum, turns| (sum.0 + turns.0, sum.1 + turns.1));
    let is_wild = digits >= 2 || is_cased_by_chance(value);
    is_wild && digits + capitals >= needed_turns(value.len())
}

/// How often digits and letters take turns, and how often a capital follows a small letter. A word with a number behind it
/// is a word.
fn turns(piece: &[u8]) -> (usize, usize) {
    let count = |is_turn: fn(&u8, &u8) -> bool| {
        piece.iter().zip(piece.iter().skip(1)).filter(|(a, b)| is_turn(a, b)).count()
    };
    let digits = count(|a, b| a.is_ascii_digit() != b.is_ascii_digit());
    let capitals = count(|a, b| a.is_ascii_lowercase() && b.is_ascii_uppercase());
    (if digits == 1 { 0 } else { digits }, capitals)
}

/// One letter in three is a capital; in the names of programs it is one in five or all of them.
fn is_cased_by_chance(value: &[u8]) -> bool {
    let capitals = value.iter().filter(|byte| byte.is_ascii_uppercase()).count();
    let small = value.iter().filter(|byte| byte.is_ascii_lowercase()).count();
    capitals * 5 >= small * 2 && small * 5 >= capitals * 2
}

fn needed_turns(length: usize) -> usize {
    (length / 7).clamp(3, 8)
}

pub(crate) fn is_uuid(value: &[u8]) -> bool {
    let lengths = value.split(|byte| *byte == b'-').map(<[u8]>::len);
    lengths.eq([8, 4, 4, 4, 12]) && value.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_is_that_of_shannon() {
        assert!(entropy(b"aaaa").abs() < 1e-6);
        assert!((entropy(b"abcd") - 2.0).abs() < 1e-6);
        assert!(entropy(b"") == 0.0);
    }

    #[test]
    fn words_are_not_random_and_noise_is() {
        for word in [
            "internationalization",
            "aws-sdk-v3-client",
            "getElementById2",
            "550e8400-e29b-41d4-a716-446655440000",
            "src/main/java/App1",
            "version-1.2.3-beta4",
        ] {
            assert!(!looks_random(word.as_bytes()), "{word}");
        }
        for noise in ["a1B2c3D4e5F6", "9f8e7d6c5b4a39281", "Zk3vQ9xT1mB7"] {
            assert!(looks_random(noise.as_bytes()), "{noise}");
        }
    }
}
