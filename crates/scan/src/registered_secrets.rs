//! Registered secrets in every form: plain, encoded at any phase, reversed.

use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;
use zeroize::Zeroizing;

use crate::finding::{Confidence, Encoding, EncodingLayers, Finding, FingerprintSalt};
use crate::stream::PauseLength;

/// Shorter values would match in ordinary words.
pub const SHORTEST_SECRET: usize = 6;
/// Forms shorter than this come about by chance.
const SHORTEST_FORM: usize = 6;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum RegisteredSecretError {
    #[error("secret `{}` is shorter than {SHORTEST_SECRET} bytes", name.escape_debug())]
    Short { name: String },
}

/// What stands between the digits of bytes where programs show them.
const BETWEEN: &[&str] = &[" ", ":", "-", "\\x", ",0x", ", 0x"];
/// Of digits with something in between; see `decode`.
const SHORTEST_DECODED: usize = 12;

/// So much of a form is searched for; the rest is compared.
const PREFIX: usize = 12;
/// Minimum prefix of a registered secret that is held back for a short pause, and for a long one. Single letters are too frequent
/// to delay output for them.
const FEWEST_BRIEFLY: usize = 2;
const FEWEST: usize = 4;
/// A prefix of this length, or half of a short secret, counts as the whole when nothing follows: chance rarely produces it.
const ENOUGH: usize = 8;

/// One way in which one secret may appear.
#[derive(Clone)]
pub(crate) struct SecretForm {
    pub(crate) rule: Arc<str>,
    pub(crate) bytes: Zeroizing<Vec<u8>>,
    pub(crate) encoding: Option<Encoding>,
    case: LetterCase,
    /// What the fingerprint is of.
    pub(crate) value: Arc<Zeroizing<Vec<u8>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LetterCase {
    Matters,
    /// Hex digits.
    Free,
}

impl SecretForm {
    /// What is searched for, in small letters.
    pub(crate) fn announcement(&self) -> Vec<u8> {
        self.bytes.get(..PREFIX).unwrap_or(&self.bytes).to_ascii_lowercase()
    }

    /// The length of the longest beginning of it that `bytes` end with, if that is worth holding back.
    pub(crate) fn started(&self, bytes: &[u8], pause: PauseLength) -> usize {
        let least = match pause {
            PauseLength::Short => FEWEST_BRIEFLY,
            PauseLength::Long => FEWEST,
            PauseLength::TooLong => self.bytes.len().div_ceil(2).clamp(FEWEST, ENOUGH),
        };
        let longest = self.bytes.len().saturating_sub(1).min(bytes.len());
        let is_end = |length: &usize| {
            let tail = bytes.get(bytes.len() - length..).unwrap_or_default();
            self.bytes.get(..*length).is_some_and(|start| self.same(tail, start))
        };
        (least..=longest).rev().find(is_end).unwrap_or_default()
    }

    /// It, or its beginning, at a place.
    pub(crate) fn found(&self, place: Range<usize>, salt: Option<&FingerprintSalt>) -> Finding {
        Finding {
            rule: self.rule.clone(),
            start: place.start,
            end: place.end,
            layers: self
                .encoding
                .map_or_else(EncodingLayers::default, |encoding| EncodingLayers::default().inside(encoding)),
            confidence: Confidence::Exact,
            fingerprint: salt.map(|salt| salt.fingerprint(&self.value)),
        }
    }

    fn same(&self, there: &[u8], own: &[u8]) -> bool {
        match self.case {
            LetterCase::Matters => there == own,
            LetterCase::Free => there.eq_ignore_ascii_case(own),
        }
    }

    pub(crate) fn is_at(&self, bytes: &[u8], start: usize) -> bool {
        let Some(there) = bytes.get(start..start + self.bytes.len()) else { return false };
        self.same(there, &self.bytes)
    }
}

pub(crate) fn forms(name: &str, value: &[u8]) -> Result<Vec<SecretForm>, RegisteredSecretError> {
    if value.len() < SHORTEST_SECRET {
        return Err(RegisteredSecretError::Short { name: name.to_owned() });
    }
    let rule: Arc<str> = Arc::from(format!("secret/{name}"));
    let shared = Arc::new(Zeroizing::new(value.to_vec()));
    let mut forms: Vec<SecretForm> = Vec::new();
    let mut add = |bytes: Vec<u8>, encoding: Option<Encoding>, case: LetterCase| {
        let bytes = Zeroizing::new(bytes);
        let known = forms.iter().any(|form| *form.bytes == *bytes);
        if bytes.len() >= SHORTEST_FORM && !known {
            forms.push(SecretForm { rule: rule.clone(), bytes, encoding, case, value: shared.clone() });
        }
    };
    add(value.to_vec(), None, LetterCase::Matters);
    add(value.iter().rev().copied().collect(), Some(Encoding::Reversed), LetterCase::Matters);
    add(percent(value), Some(Encoding::Url), LetterCase::Free);
    add(json(value), Some(Encoding::Escaped), LetterCase::Matters);
    add(hex(value, "").into_bytes(), Some(Encoding::Hex), LetterCase::Free);
    // Longer ones are decoded.
    for between in BETWEEN.iter().filter(|_| value.len() < SHORTEST_DECODED) {
        add(hex(value, between).into_bytes(), Some(Encoding::Hex), LetterCase::Free);
    }
    for phase in 0..3 {
        let standard = base64_at(value, phase);
        let url_safe = standard.iter().map(|byte| match byte {
            b'+' => b'-',
            b'/' => b'_',
            other => *other,
        });
        add(url_safe.collect(), Some(Encoding::Base64), LetterCase::Matters);
        add(standard, Some(Encoding::Base64), LetterCase::Matters);
    }
    Ok(forms)
}

fn percent(value: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let encoded = |byte: &u8| if is_plain(byte) { vec![*byte] } else { format!("%{byte:02X}").into_bytes() };
    value.iter().flat_map(encoded).collect()
}

fn json(value: &[u8]) -> Vec<u8> {
    let escaped = |byte: &u8| match byte {
        b'"' | b'\\' => vec![b'\\', *byte],
        b'\n' => b"\\n".to_vec(),
        b'\r' => b"\\r".to_vec(),
        b'\t' => b"\\t".to_vec(),
        control @ 0..0x20 => format!("\\u{control:04x}").into_bytes(),
        other => vec![*other],
    };
    value.iter().flat_map(escaped).collect()
}

fn hex(value: &[u8], between: &str) -> String {
    value.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between)
}

/// The letters that do not depend on what stands before and behind, when `phase` bytes stand before.
fn base64_at(value: &[u8], phase: usize) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let padded: Vec<u8> = std::iter::repeat_n(0, phase).chain(value.iter().copied()).collect();
    let bits = padded.len() * 8;
    let bit = |at: usize| padded.get(at / 8).map_or(0, |byte| usize::from(byte >> (7 - at % 8) & 1));
    let first = (phase * 8).div_ceil(6);
    let letter = |at: usize| (0..6).fold(0, |value, offset| value << 1 | bit(at * 6 + offset));
    (first..bits / 6).filter_map(|at| LETTERS.get(letter(at)).copied()).collect()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn base64_of_any_surroundings_contains_a_form() {
        let value = b"hunter2-hunter3!";
        for before in 0..6 {
            for after in 0..6 {
                let text = [vec![0xa5; before], value.to_vec(), vec![0x5a; after]].concat();
                let encoded = STANDARD.encode(&text);
                let form = base64_at(value, before % 3);
                assert!(encoded.contains(std::str::from_utf8(&form).unwrap()), "{before} {after}");
            }
        }
    }

    #[test]
    fn short_values_are_refused() {
        assert_eq!(forms("x", b"12345").err(), Some(RegisteredSecretError::Short { name: "x".into() }));
        assert!(forms("x", b"123456").is_ok());
    }
}
