//! Base64 in both alphabets, padded or not, at any phase: a run of letters need not begin where the encoding does.

use std::ops::Range;

use super::runs::{NOT_A_LETTER, sextet};
use super::{DecodeBudget, DecodedPiece, PieceOrigin, gzip, is_textual};
use crate::finding::Encoding;

const QUAD: usize = 4;
const TRIPLE: usize = 3;
/// Twelve bytes of text. In random data such a stretch occurs once in some thousand quads.
const FEWEST_QUADS: usize = 4;
/// Of the first three letters of a quad, one byte each: the bits that become the highest of a byte.
const HIGH_BITS: u32 = 32 << 16 | 8 << 8 | 2;

pub(super) fn pieces(
    bytes: &[u8],
    run: Range<usize>,
    pieces: &mut Vec<DecodedPiece>,
    allowance: &mut DecodeBudget,
) {
    let Some(letters) = bytes.get(run.clone()) else { return };
    stretches(letters, |stretch| {
        pieces.extend(text(bytes, run.start + stretch.start..run.start + stretch.end, allowance));
    });
    let magic = memchr::memchr_iter(b'H', letters)
        .find(|at| letters.get(*at..).is_some_and(|rest| rest.starts_with(gzip::IN_BASE64)));
    if let Some(at) = magic {
        let start = run.start + at;
        pieces.extend(compressed(bytes, start..run.end, allowance));
    }
}

/// Stretches of quads, at any of the four phases, that decode to seven-bit bytes, each with one more quad at both sides: a
/// secret may begin and end in the middle of a quad.
///
/// The three bytes of a quad are below 128 if none of [`HIGH_BITS`] is set. All phases are looked at in one pass.
fn stretches(letters: &[u8], mut found: impl FnMut(Range<usize>)) {
    let mut since = [0, 1, 2, 3];
    let mut close = |since: &mut usize, at: usize| {
        if at >= *since + FEWEST_QUADS * QUAD {
            found(since.saturating_sub(QUAD)..(at + QUAD).min(letters.len()));
        }
        *since = at + QUAD;
    };
    let mut last = 0;
    // The third letter of a quad decides about it; the last letters have no fourth after them.
    let letters_of_quads = letters.get(..letters.len().saturating_sub(1)).unwrap_or_default();
    for (third, letter) in letters_of_quads.iter().enumerate() {
        last = last << 8 | u32::from(sextet(*letter));
        if last & HIGH_BITS != 0
            && let Some(at) = third.checked_sub(2)
            && let Some(since) = since.get_mut(at % QUAD)
        {
            close(since, at);
        }
    }
    // The rest is shorter than a quad and belongs to the previous stretch.
    for since in &mut since {
        let whole = letters.len().saturating_sub(*since) / QUAD * QUAD;
        close(since, *since + whole);
    }
}

fn text(bytes: &[u8], range: Range<usize>, allowance: &mut DecodeBudget) -> Option<DecodedPiece> {
    let letters = bytes.get(range.clone())?;
    if !allowance.take(letters.len()) {
        return None;
    }
    let decoded = decode(letters);
    let textual = decoded.iter().filter(|byte| **byte != 0 && is_textual(**byte)).count();
    // UTF-16 is half zeros.
    if textual * 5 < decoded.len() * 2 {
        return None;
    }
    let end = padding_end(bytes, range.end);
    let places = PieceOrigin::Groups { base: range.start, from: QUAD, to: TRIPLE, end };
    Some(DecodedPiece { bytes: decoded, places, encodings: &[Encoding::Base64] })
}

fn compressed(bytes: &[u8], run: Range<usize>, allowance: &mut DecodeBudget) -> Option<DecodedPiece> {
    let letters = bytes.get(run.clone())?;
    let decoded = if allowance.take(letters.len()) { decode(letters) } else { return None };
    // Inflated here and not one layer deeper: compressed data is not text, and layers consist of text.
    let inflated = gzip::inflate(&decoded, allowance)?;
    let last = run.start + (inflated.consumed * QUAD).div_ceil(TRIPLE);
    let whole = run.start..padding_end(bytes, last.min(run.end));
    Some(DecodedPiece {
        bytes: inflated.bytes,
        places: PieceOrigin::Whole(whole),
        encodings: &[Encoding::Base64, Encoding::Gzip],
    })
}

pub(super) fn decode(letters: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(letters.len() / QUAD * TRIPLE + TRIPLE);
    for quad in letters.chunks(QUAD) {
        let value =
            quad.iter().fold(0_u32, |value, letter| value << 6 | u32::from(sextet(*letter) & !NOT_A_LETTER));
        let value = value << (6 * (QUAD - quad.len()));
        let [_, all @ ..] = value.to_be_bytes();
        decoded.extend(all.iter().take((quad.len() * 6) / 8));
    }
    decoded
}

fn padding_end(bytes: &[u8], end: usize) -> usize {
    let padding =
        bytes.get(end..).unwrap_or_default().iter().take(2).take_while(|byte| **byte == b'=').count();
    end + padding
}
