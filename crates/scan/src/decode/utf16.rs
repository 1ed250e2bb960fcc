//! Text in UTF-16 of either byte order: every other byte is zero.

use memchr::memchr;

use super::{Allowance, Piece, Places};
use crate::finding::Encoding;

const UNIT: usize = 2;
/// Fewer characters hold no credential.
const FEWEST: usize = 12;

pub(super) fn pieces(bytes: &[u8], pieces: &mut Vec<Piece>, allowance: &mut Allowance) {
    let mut from = 0;
    while let Some(zero) = memchr(0, bytes.get(from..).unwrap_or_default()) {
        let zero = from + zero;
        // The zero is the second byte of a unit or its first; what is longer is right.
        let little =
            zero.checked_sub(1).filter(|start| *start >= from).map_or(0..0, |start| stretch(bytes, start, 0));
        let big = stretch(bytes, zero, 1);
        let (range, letter) = if little.len() >= big.len() { (little, 0) } else { (big, 1) };
        from = (zero + 1).max(range.end);
        if range.len() < FEWEST * UNIT || !allowance.take(range.len()) {
            continue;
        }
        let units = bytes.get(range.clone()).unwrap_or_default().chunks_exact(UNIT);
        let text = units.filter_map(|unit| unit.get(letter).copied()).collect();
        let places = Places::Groups { base: range.start, from: UNIT, to: 1, end: range.end };
        pieces.push(Piece { bytes: text, places, encodings: &[Encoding::Utf16] });
    }
}

/// Units from `start` on whose byte `letter` is text and whose other byte is zero.
fn stretch(bytes: &[u8], start: usize, letter: usize) -> std::ops::Range<usize> {
    let is_text = |unit: &[u8]| {
        let text = unit.get(letter).is_some_and(|byte| *byte != 0 && super::is_textual(*byte));
        text && unit.get(1 - letter) == Some(&0)
    };
    let units = bytes.get(start..).unwrap_or_default().chunks_exact(UNIT).take_while(|unit| is_text(unit));
    start..start + units.count() * UNIT
}
