//! Decoders: turn encoded bytes into pieces. Each decoder finds candidates by a cheap check, and returns decoded bytes with their
//! origin.

mod base64;
mod escape;
mod gzip;
mod hex;
mod lines;
mod region;
mod runs;
mod spaced_hex;
mod utf16;

use std::ops::Range;

pub(crate) use escape::readings;
use runs::Runs;

use crate::finding::Encoding;

/// Decoded bytes to scan.
pub(crate) struct DecodedPiece {
    pub(crate) bytes: Vec<u8>,
    pub(crate) places: PieceOrigin,
    /// Encodings, outermost first.
    pub(crate) encodings: &'static [Encoding],
}

impl DecodedPiece {
    pub(crate) fn joined(&self) -> StripState {
        match self.encodings {
            [Encoding::Ansi] => StripState::Codes,
            [Encoding::Lines] => StripState::Lines,
            _ => StripState::No,
        }
    }

    /// Not an encoding: the same text with separators removed.
    pub(crate) fn is_joint(&self) -> bool {
        self.joined() != StripState::No
    }
}

/// Origin of the bytes of a piece.
pub(crate) enum PieceOrigin {
    /// Groups of `from` bytes became groups of `to` bytes.
    Groups { base: usize, from: usize, to: usize, end: usize },
    /// Start and end of the source of each byte.
    Each(Vec<(u32, u32)>),
    /// Unchanged parts: start in the piece, and start in the source.
    Parts(Vec<(usize, usize)>),
    /// The whole source became the whole piece.
    Whole(Range<usize>),
}

impl PieceOrigin {
    /// Source range of `range` of the piece.
    pub(crate) fn source(&self, range: Range<usize>) -> Option<Range<usize>> {
        match self {
            Self::Whole(all) => Some(all.clone()),
            Self::Groups { base, from, to, end } => {
                let start = base + range.start / to * from;
                let last = base + (range.end.checked_sub(1)? / to + 1) * from;
                Some(start..last.min(*end))
            }
            Self::Parts(parts) => {
                let source = |at: usize| {
                    let (begin, from) =
                        parts.get(parts.partition_point(|(begin, _)| *begin <= at).checked_sub(1)?)?;
                    Some(from + (at - begin))
                };
                Some(source(range.start)?..source(range.end.checked_sub(1)?)? + 1)
            }
            Self::Each(places) => {
                let start = places.get(range.start)?.0;
                let end = places.get(range.end.checked_sub(1)?)?.1;
                Some(start as usize..end as usize)
            }
        }
    }
}

/// Limit of decoded bytes per window: encoded input must not cost more than a constant times its size.
#[derive(Debug)]
pub(crate) struct DecodeBudget {
    left: usize,
    /// Candidates that were skipped because the budget was exhausted.
    pub(crate) refused: u64,
}

impl DecodeBudget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { left: bytes, refused: 0 }
    }

    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        if let Some(left) = self.left.checked_sub(bytes) {
            self.left = left;
            return true;
        }
        self.refused += 1;
        false
    }

    /// Charges work that was already done. May exhaust the budget.
    pub(crate) fn spend(&mut self, bytes: usize) {
        if !self.take(bytes) {
            self.left = 0;
        }
    }

    pub(crate) fn left(&self) -> usize {
        self.left
    }
}

/// All decodings of `bytes`, one step deep.
pub(crate) fn pieces(bytes: &[u8], joined: StripState, allowance: &mut DecodeBudget) -> Vec<DecodedPiece> {
    let mut pieces = Vec::new();
    escape::pieces(bytes, joined, &mut pieces, allowance);
    utf16::pieces(bytes, &mut pieces, allowance);
    gzip::raw(bytes, &mut pieces, allowance);
    spaced_hex::pieces(bytes, &mut pieces, allowance);
    for run in Runs::new(bytes) {
        hex::pieces(bytes, run.clone(), &mut pieces, allowance);
        base64::pieces(bytes, run, &mut pieces, allowance);
    }
    if joined < StripState::Lines {
        lines::pieces(bytes, &mut pieces, allowance);
    }
    pieces
}

/// Whether any decoder has a candidate. A cheap check for short inputs.
pub(crate) fn has_candidates(bytes: &[u8]) -> bool {
    let mut allowance = DecodeBudget::new(bytes.len().saturating_mul(16));
    !pieces(bytes, StripState::No, &mut allowance).is_empty() || allowance.refused > 0
}

/// Separators removed since the last encoding. Terminal codes come first, line breaks second, and neither twice; otherwise removal
/// would not terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StripState {
    No,
    Codes,
    Lines,
}

/// A letter of base64, which includes hex.
pub(crate) fn is_encoded_letter(byte: u8) -> bool {
    runs::sextet(byte) != runs::NOT_A_LETTER
}

/// Bytes of ASCII text, including the zeros of UTF-16 and terminal escapes.
pub(crate) fn is_textual(byte: u8) -> bool {
    matches!(byte, 0 | b'\t' | b'\n' | b'\r' | 0x1b | 0x20..=0x7e)
}

/// Decodes plain base64 letters.
pub(crate) fn base64_letters(letters: &[u8]) -> Vec<u8> {
    base64::decode(letters)
}

#[cfg(test)]
mod tests;
