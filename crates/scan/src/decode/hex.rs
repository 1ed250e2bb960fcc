//! Hex digits, in pairs from either of two phases.

use std::ops::Range;

use super::{Allowance, Piece, Places};
use crate::finding::Encoding;

/// A shorter one holds no credential; git hashes are longer, and are not text.
const FEWEST_DIGITS: usize = 32;
const FEWEST_BYTES: usize = 12;
const PAIR: usize = 2;

pub(super) fn pieces(bytes: &[u8], run: Range<usize>, pieces: &mut Vec<Piece>, allowance: &mut Allowance) {
    let mut start = run.start;
    for part in bytes.get(run).unwrap_or_default().split(|byte| !byte.is_ascii_hexdigit()) {
        if part.len() >= FEWEST_DIGITS && allowance.take(part.len()) {
            for phase in 0..PAIR {
                stretches(part, start, phase, pieces);
            }
        }
        start += part.len() + 1;
    }
}

/// Pairs that are text, as long as they are.
fn stretches(digits: &[u8], start: usize, phase: usize, pieces: &mut Vec<Piece>) {
    let mut text = Vec::new();
    let mut base = start + phase;
    for (at, pair) in digits.get(phase..).unwrap_or_default().chunks_exact(PAIR).enumerate() {
        match byte(pair).filter(|byte| super::is_textual(*byte)) {
            Some(byte) => text.push(byte),
            None => {
                keep(std::mem::take(&mut text), base, pieces);
                base = start + phase + (at + 1) * PAIR;
            }
        }
    }
    keep(text, base, pieces);
}

fn keep(bytes: Vec<u8>, base: usize, pieces: &mut Vec<Piece>) {
    // Numbers in a row are rather digits than hex of control characters and punctuation.
    let letters = bytes.iter().filter(|byte| byte.is_ascii_alphanumeric()).count();
    if bytes.len() >= FEWEST_BYTES && letters * 3 > bytes.len() {
        let end = base + bytes.len() * PAIR;
        let places = Places::Groups { base, from: PAIR, to: 1, end };
        pieces.push(Piece { bytes, places, encodings: &[Encoding::Hex] });
    }
}

pub(super) fn byte(pair: &[u8]) -> Option<u8> {
    let [high, low] = pair else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}
