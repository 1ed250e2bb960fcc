//! Base64 in both alphabets, padded or not, at any phase: a run of letters need not begin where the encoding does.

use std::ops::Range;

use super::runs::{NOT_A_LETTER, sextet};
use super::{Allowance, Piece, Places, gzip, is_textual};
use crate::finding::Encoding;

const QUAD: usize = 4;
const TRIPLE: usize = 3;
/// Twelve bytes of text; chance makes that many out of noise once in some thousand quads.
const FEWEST_QUADS: usize = 4;

pub(super) fn pieces(bytes: &[u8], run: Range<usize>, pieces: &mut Vec<Piece>, allowance: &mut Allowance) {
    let Some(letters) = bytes.get(run.clone()) else { return };
    for phase in 0..QUAD {
        for quads in stretches(letters.get(phase..).unwrap_or_default()) {
            let start = run.start + phase + quads.start * QUAD;
            let end = (run.start + phase + quads.end * QUAD).min(run.end);
            pieces.extend(text(bytes, start..end, allowance));
        }
    }
    if let Some(at) = memchr::memmem::find(letters, gzip::IN_BASE64) {
        let start = run.start + at;
        let padded = start..padding_end(bytes, run.end);
        pieces.extend(compressed(bytes, start..run.end, padded, allowance));
    }
}

/// Stretches of quads that decode to seven-bit bytes, in quads, each with one more at both sides: a secret may begin
/// and end in the middle of a quad.
fn stretches(letters: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut since = 0;
    let mut count = 0;
    for (at, quad) in letters.chunks(QUAD).enumerate() {
        count = at + 1;
        if !is_seven_bit(quad) {
            keep(since..at, &mut found);
            since = at + 1;
        }
    }
    keep(since..count, &mut found);
    found
}

fn keep(quads: Range<usize>, found: &mut Vec<Range<usize>>) {
    if quads.len() >= FEWEST_QUADS {
        found.push(quads.start.saturating_sub(1)..quads.end + 1);
    }
}

/// Whether the three bytes of a quad are below 128: their high bits are bit 5 of the first letter, bit 3 of the second and bit
/// 1 of the third.
fn is_seven_bit(quad: &[u8]) -> bool {
    let bit = |at: usize, mask: u8| quad.get(at).is_none_or(|letter| sextet(*letter) & mask == 0);
    bit(0, 32) && bit(1, 8) && bit(2, 2)
}

fn text(bytes: &[u8], range: Range<usize>, allowance: &mut Allowance) -> Option<Piece> {
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
    let places = Places::Groups { base: range.start, from: QUAD, to: TRIPLE, end };
    Some(Piece { bytes: decoded, places, encodings: &[Encoding::Base64] })
}

fn compressed(
    bytes: &[u8],
    letters: Range<usize>,
    whole: Range<usize>,
    allowance: &mut Allowance,
) -> Option<Piece> {
    let letters = bytes.get(letters)?;
    let decoded = if allowance.take(letters.len()) { decode(letters) } else { return None };
    // Inflated here and not one layer further down: what is compressed is no text, and text is what layers are made of.
    let inflated = gzip::inflate(&decoded, allowance)?;
    Some(Piece {
        bytes: inflated.bytes,
        places: Places::Whole(whole),
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
