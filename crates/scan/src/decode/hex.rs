//! Hex digits, in pairs from either of two phases.

use std::ops::Range;

use super::{DecodeBudget, DecodedPiece, PieceOrigin};
use crate::finding::Encoding;

/// Shorter runs hold no credential. Git hashes are longer, but do not decode to text.
const FEWEST_DIGITS: usize = 32;
const FEWEST_BYTES: usize = 12;
const PAIR: usize = 2;

pub(super) fn pieces(
    bytes: &[u8],
    run: Range<usize>,
    pieces: &mut Vec<DecodedPiece>,
    allowance: &mut DecodeBudget,
) {
    let text = bytes.get(run.clone()).unwrap_or_default();
    let mut from = 0;
    while let Some(window) = text.get(from..from + FEWEST_DIGITS) {
        // Backwards: words and base64 are excluded after a few checks.
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

/// Pairs that decode to text, as long as possible.
fn stretches(digits: &[u8], start: usize, phase: usize, pieces: &mut Vec<DecodedPiece>) {
    let digits = digits.get(phase..).unwrap_or_default();
    let mut since = 0;
    let mut count = 0;
    for (at, pair) in digits.chunks_exact(PAIR).enumerate() {
        count = at + 1;
        // Text is 0x20 to 0x7e, tab and line breaks. Most hashes end at the third pair.
        if !byte(pair).is_some_and(super::is_textual) {
            keep(digits, since..at, start + phase, pieces);
            since = at + 1;
        }
    }
    keep(digits, since..count, start + phase, pieces);
}

fn keep(digits: &[u8], pairs: Range<usize>, start: usize, pieces: &mut Vec<DecodedPiece>) {
    if pairs.len() < FEWEST_BYTES {
        return;
    }
    let text = digits.get(pairs.start * PAIR..pairs.end * PAIR).unwrap_or_default();
    let bytes: Vec<u8> = text.chunks_exact(PAIR).filter_map(byte).collect();
    // Runs of digits are more likely numbers than hex of punctuation.
    let letters = bytes.iter().filter(|byte| byte.is_ascii_alphanumeric()).count();
    if letters * 3 > bytes.len() {
        let base = start + pairs.start * PAIR;
        let places = PieceOrigin::Groups { base, from: PAIR, to: 1, end: base + text.len() };
        pieces.push(DecodedPiece { bytes, places, encodings: &[Encoding::Hex] });
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
