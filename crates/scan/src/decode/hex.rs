//! Hex digits, in pairs from either of two phases.

use std::ops::Range;

use super::{Allowance, Piece, Places};
use crate::finding::Encoding;

/// A shorter one holds no credential; git hashes are longer, and are not text.
const FEWEST_DIGITS: usize = 32;
const FEWEST_BYTES: usize = 12;
const PAIR: usize = 2;

pub(super) fn pieces(bytes: &[u8], run: Range<usize>, pieces: &mut Vec<Piece>, allowance: &mut Allowance) {
    let text = bytes.get(run.clone()).unwrap_or_default();
    let mut from = 0;
    while let Some(window) = text.get(from..from + FEWEST_DIGITS) {
        // From behind: words and base64 are left after a few looks.
        if let Some(other) = window.iter().rposition(|byte| !byte.is_ascii_hexdigit()) {
            from += other + 1;
            continue;
        }
        let rest = text.get(from..).unwrap_or_default();
        let length = rest.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(rest.len());
        let digits = rest.get(..length).unwrap_or_default();
        if allowance.take(length) {
            for phase in 0..PAIR {
                stretches(digits, run.start + from, phase, pieces);
            }
        }
        from += length;
    }
}

/// Pairs that are text, as long as they are.
fn stretches(digits: &[u8], start: usize, phase: usize, pieces: &mut Vec<Piece>) {
    let digits = digits.get(phase..).unwrap_or_default();
    let mut since = 0;
    let mut count = 0;
    for (at, pair) in digits.chunks_exact(PAIR).enumerate() {
        count = at + 1;
        // Text is between 0x20 and 0x7e, tab and line breaks; most hashes end here at the third pair.
        if !byte(pair).is_some_and(super::is_textual) {
            keep(digits, since..at, start + phase, pieces);
            since = at + 1;
        }
    }
    keep(digits, since..count, start + phase, pieces);
}

fn keep(digits: &[u8], pairs: Range<usize>, start: usize, pieces: &mut Vec<Piece>) {
    if pairs.len() < FEWEST_BYTES {
        return;
    }
    let text = digits.get(pairs.start * PAIR..pairs.end * PAIR).unwrap_or_default();
    let bytes: Vec<u8> = text.chunks_exact(PAIR).filter_map(byte).collect();
    // Numbers in a row are rather digits than hex of control characters and punctuation.
    let letters = bytes.iter().filter(|byte| byte.is_ascii_alphanumeric()).count();
    if letters * 3 > bytes.len() {
        let base = start + pairs.start * PAIR;
        let places = Places::Groups { base, from: PAIR, to: 1, end: base + text.len() };
        pieces.push(Piece { bytes, places, encodings: &[Encoding::Hex] });
    }
}

pub(super) fn byte(pair: &[u8]) -> Option<u8> {
    let [high, low] = pair else { return None };
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    Some(digit(*high)? << 4 | digit(*low)?)
}
