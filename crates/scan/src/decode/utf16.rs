//! Text in UTF-16 of either byte order: every other byte is zero.

use std::ops::Range;

use memchr::memchr;

use super::{DecodeBudget, DecodedPiece, PieceOrigin};
use crate::finding::Encoding;

const UNIT: usize = 2;
/// Fewer characters hold no credential.
const FEWEST: usize = 12;

pub(super) fn pieces(bytes: &[u8], pieces: &mut Vec<DecodedPiece>, allowance: &mut DecodeBudget) {
    let mut from = 0;
    while let Some(zero) = memchr(0, bytes.get(from..).unwrap_or_default()) {
        let zero = from + zero;
        // The zero is the second byte of a unit or its first. Where a letter stands before the text or behind it both can
        // be read, and only one of them is whole.
        let little =
            zero.checked_sub(1).filter(|start| *start >= from).map_or(0..0, |start| stretch(bytes, start, 0));
        let big = stretch(bytes, zero, 1);
        from = (zero + 1).max(little.end).max(big.end);
        for (range, letter) in [(little, 0), (big, 1)] {
            if range.len() >= FEWEST * UNIT && allowance.take(range.len()) {
                pieces.push(piece(bytes, range, letter));
            }
        }
    }
}

fn piece(bytes: &[u8], range: Range<usize>, letter: usize) -> DecodedPiece {
    let units = bytes.get(range.clone()).unwrap_or_default().chunks_exact(UNIT);
    let text = units.filter_map(|unit| unit.get(letter).copied()).collect();
    let places = PieceOrigin::Groups { base: range.start, from: UNIT, to: 1, end: range.end };
    DecodedPiece { bytes: text, places, encodings: &[Encoding::Utf16] }
}

/// Units from `start` on whose byte `letter` is text and whose other byte is zero.
fn stretch(bytes: &[u8], start: usize, letter: usize) -> Range<usize> {
    let is_text = |unit: &[u8]| {
        let text = unit.get(letter).is_some_and(|byte| *byte != 0 && super::is_textual(*byte));
        text && unit.get(1 - letter) == Some(&0)
    };
    let units = bytes.get(start..).unwrap_or_default().chunks_exact(UNIT).take_while(|unit| is_text(unit));
    start..start + units.count() * UNIT
}
