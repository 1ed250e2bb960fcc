//! Partial secrets: bytes at the end of the input that a pause must not release, because the next bytes may complete a secret.

use crate::registered_secrets::SecretForm;
use crate::scanner::ScanEngine;
use crate::stream::PauseLength;

/// A longer word at the end is released, so that nothing is held back forever.
const LONGEST_WORD: usize = 4096;
/// A keyword so far before the word may belong to it.
const CONTEXT: usize = 64;
/// Letters of an encoding, so many in a row, may hold anything.
const ENCODED: usize = 16;

/// Number of bytes at the end of `bytes` to hold back.
pub(crate) fn undecided(engine: &ScanEngine, bytes: &[u8], pause: PauseLength) -> usize {
    let form = started_form(engine, bytes, pause).map_or(0, |started| started.length);
    let begun = form.max(started_key(bytes));
    let word = word_length(bytes);
    let by_shape = pause == PauseLength::Short && word > 0 && is_suspicious(engine, bytes, word);
    if by_shape { begun.max(word) } else { begun }
}

/// A registered secret that has begun.
pub(crate) struct PartialSecret<'e> {
    pub(crate) form: &'e SecretForm,
    /// So many bytes at the end are it.
    pub(crate) length: usize,
}

fn word_length(bytes: &[u8]) -> usize {
    bytes.iter().rev().take(LONGEST_WORD).take_while(|byte| !byte.is_ascii_whitespace()).count()
}

fn is_suspicious(engine: &ScanEngine, bytes: &[u8], word: usize) -> bool {
    let start = bytes.len() - word;
    let tail = bytes.get(start..).unwrap_or_default();
    let letters = tail.iter().rev().take_while(|byte| crate::decode::is_encoded_letter(**byte)).count();
    let before = bytes.get(start.saturating_sub(CONTEXT)..).unwrap_or_default();
    let line = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1).min(before.len() - word);
    let announced = before.get(line..).unwrap_or_default();
    letters >= ENCODED || engine.keywords.is_in(announced)
}

/// Whether `bytes` end inside a possible encoding.
pub(crate) fn is_encoded(bytes: &[u8]) -> bool {
    let letters = bytes.iter().rev().take(ENCODED);
    letters.take_while(|byte| crate::decode::is_encoded_letter(**byte)).count() == ENCODED
}

/// The longest prefix of a form of a registered secret at the end of `bytes`, also with escapes or terminal codes in between.
pub(crate) fn started_form<'e>(
    engine: &'e ScanEngine,
    bytes: &[u8],
    pause: PauseLength,
) -> Option<PartialSecret<'e>> {
    if engine.forms.is_empty() {
        return None;
    }
    let tail = bytes.get(bytes.len().saturating_sub(LONGEST_WORD)..).unwrap_or_default();
    // The last letter of UTF-16 is half there.
    let is_half = memchr::memchr(0, tail).is_some() && tail.last() != Some(&0);
    let readings = crate::decode::readings(tail);
    let started = engine.forms.iter().map(|form| {
        let behind_escapes = readings.iter().map(|(text, places)| {
            let whole = if is_half && text.ends_with(&form.bytes) { form.bytes.len() } else { 0 };
            let first = text.len() - form.started(text, pause).max(whole);
            places.get(first).map_or(0, |place| tail.len() - place)
        });
        let length = behind_escapes.chain([form.started(bytes, pause)]).max().unwrap_or_default();
        PartialSecret { form, length }
    });
    started.filter(|started| started.length > 0).max_by_key(|started| started.length)
}

/// From the first dash of a private key that has not ended.
fn started_key(bytes: &[u8]) -> usize {
    let begin = memchr::memmem::rfind(bytes, b"-----BEGIN ");
    let Some(at) = begin else { return 0 };
    let rest = bytes.get(at..).unwrap_or_default();
    let is_private = memchr::memmem::find(rest, b"PRIVATE KEY").is_some() || rest.len() < 64;
    let has_ended = memchr::memmem::find(rest, b"-----END ").is_some_and(|end| {
        rest.get(end + 9..).is_some_and(|line| memchr::memmem::find(line, b"-----").is_some())
    });
    if is_private && !has_ended && rest.len() < LONGEST_WORD * 16 { rest.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scanner;

    #[test]
    fn the_beginning_of_a_secret_is_known_between_zeros() {
        let scanner = Scanner::builder().secret("KEY", b"Zq8-hunter2/stapleX91").unwrap().build();
        for (text, held) in [
            (&b"so: Z\0q\08\0-\0h"[..], 9),
            (b"so: Z\0q\08\0-\0h\0", 10),
            (b"so: Zq\x1b[1m8-h\x1b[0", 12),
            (b"so: %5a%71%38%2d%6", 14),
        ] {
            assert_eq!(
                undecided(&scanner.0, text, PauseLength::Long),
                held,
                "{}",
                String::from_utf8_lossy(text)
            );
        }
    }
}
