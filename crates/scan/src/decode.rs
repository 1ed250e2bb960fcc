//! From bytes to what they may stand for. Every decoder finds its candidates by a cheap look at the bytes and gives
//! pieces: decoded bytes, and where each of them came from.

mod base64;
mod escape;
mod gzip;
mod hex;
mod lines;
mod region;
mod runs;
mod spaced;
mod utf16;

use std::ops::Range;

pub(crate) use escape::readings;
use runs::Runs;

use crate::finding::Encoding;

/// Decoded bytes that are worth a look.
pub(crate) struct Piece {
    pub(crate) bytes: Vec<u8>,
    pub(crate) places: Places,
    /// The steps that were taken, outermost first.
    pub(crate) encodings: &'static [Encoding],
}

impl Piece {
    pub(crate) fn joined(&self) -> Joined {
        match self.encodings {
            [Encoding::Ansi] => Joined::Codes,
            [Encoding::Lines] => Joined::Lines,
            _ => Joined::No,
        }
    }

    /// Not an encoding: the same letters with something in between taken out.
    pub(crate) fn is_joint(&self) -> bool {
        self.joined() != Joined::No
    }
}

/// Where the bytes of a piece came from.
pub(crate) enum Places {
    /// Groups of `from` bytes became groups of `to` bytes.
    Groups { base: usize, from: usize, to: usize, end: usize },
    /// Start and end of what became each byte.
    Each(Vec<(u32, u32)>),
    /// Parts as they are: where each begins in the piece, and where it came from.
    Parts(Vec<(usize, usize)>),
    /// All of it became all of it.
    Whole(Range<usize>),
}

impl Places {
    /// What became `range` of the piece.
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

/// How much may be made out of one window: what an attacker encodes must not cost more than a constant times its size.
#[derive(Debug)]
pub(crate) struct Allowance {
    left: usize,
    /// How often something was not looked at because too much had been.
    pub(crate) refused: u64,
}

impl Allowance {
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

    /// For what is done already: too much of it leaves nothing.
    pub(crate) fn spend(&mut self, bytes: usize) {
        if !self.take(bytes) {
            self.left = 0;
        }
    }

    pub(crate) fn left(&self) -> usize {
        self.left
    }
}

/// Everything that `bytes` may stand for, one step further.
pub(crate) fn pieces(bytes: &[u8], joined: Joined, allowance: &mut Allowance) -> Vec<Piece> {
    let mut pieces = Vec::new();
    escape::pieces(bytes, joined, &mut pieces, allowance);
    utf16::pieces(bytes, &mut pieces, allowance);
    gzip::raw(bytes, &mut pieces, allowance);
    spaced::pieces(bytes, &mut pieces, allowance);
    for run in Runs::new(bytes) {
        hex::pieces(bytes, run.clone(), &mut pieces, allowance);
        base64::pieces(bytes, run, &mut pieces, allowance);
    }
    if joined < Joined::Lines {
        lines::pieces(bytes, &mut pieces, allowance);
    }
    pieces
}

/// Whether any decoder would have something to say: for short inputs, before anything is built.
pub(crate) fn has_candidates(bytes: &[u8]) -> bool {
    let mut allowance = Allowance::new(bytes.len().saturating_mul(16));
    !pieces(bytes, Joined::No, &mut allowance).is_empty() || allowance.refused > 0
}

/// What has been taken out of a layer since the last encoding. Terminal codes come first, line breaks second, neither twice:
/// what is left of either would be taken out for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Joined {
    No,
    Codes,
    Lines,
}

/// A letter of base64, and so of hex.
pub(crate) fn is_encoded_letter(byte: u8) -> bool {
    runs::sextet(byte) != runs::NOT_A_LETTER
}

/// Bytes of text, as far as seven bits tell, with the zeros of UTF-16 and the escapes of terminals.
pub(crate) fn is_textual(byte: u8) -> bool {
    matches!(byte, 0 | b'\t' | b'\n' | b'\r' | 0x1b | 0x20..=0x7e)
}

/// What plain letters of Base64 stand for.
pub(crate) fn base64_letters(letters: &[u8]) -> Vec<u8> {
    base64::decode(letters)
}

#[cfg(test)]
mod tests;
