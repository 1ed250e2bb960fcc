//! Values that a line break splits, because a terminal or encoder wrapped them.

use memchr::memchr_iter;

use super::{DecodeBudget, DecodedPiece, PieceOrigin};
use crate::finding::Encoding;

/// Minimum letters on both sides of a break together; fewer are two words of prose.
const FEWEST: usize = 16;
/// Part of a line that is considered.
const REACH: usize = 512;
/// Context before a wrapped value.
const CONTEXT: usize = 64;

pub(super) fn pieces(bytes: &[u8], pieces: &mut Vec<DecodedPiece>, allowance: &mut DecodeBudget) {
    let mut joint = JoinedLines::default();
    for at in memchr_iter(b'\n', bytes) {
        let Some((left, right)) = sides(bytes, at) else { continue };
        if left > joint.end {
            joint.flush(bytes, pieces, allowance);
            joint.start = left.saturating_sub(CONTEXT);
        }
        joint.breaks.push(at);
        joint.end = right;
    }
    joint.flush(bytes, pieces, allowance);
}

/// Lines that belong together.
#[derive(Default)]
struct JoinedLines {
    start: usize,
    end: usize,
    breaks: Vec<usize>,
}

impl JoinedLines {
    fn flush(&mut self, bytes: &[u8], pieces: &mut Vec<DecodedPiece>, allowance: &mut DecodeBudget) {
        let breaks = std::mem::take(&mut self.breaks);
        if breaks.is_empty() || !allowance.take(self.end - self.start) {
            return;
        }
        let mut joined = Vec::with_capacity(self.end - self.start);
        let mut parts = Vec::with_capacity(breaks.len() + 1);
        let mut from = self.start;
        for at in breaks.into_iter().chain([self.end]) {
            parts.push((joined.len(), from));
            joined.extend_from_slice(trimmed(bytes.get(from..at).unwrap_or_default()));
            from = at + 1;
        }
        pieces.push(DecodedPiece {
            bytes: joined,
            places: PieceOrigin::Parts(parts),
            encodings: &[Encoding::Lines],
        });
    }
}

/// Removes a carriage return or a continuation backslash.
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.strip_suffix(b"\\").unwrap_or(line)
}

/// Start of the letters before the break and end of those after it.
fn sides(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let next = *bytes.get(at + 1)?;
    if !is_letter(next) {
        return None;
    }
    let before = trimmed(bytes.get(at.saturating_sub(REACH)..at)?);
    let left = before.iter().rev().take_while(|byte| is_letter(**byte)).count();
    if left == 0 {
        return None;
    }
    let right = bytes.get(at + 1..)?.iter().take(REACH).take_while(|byte| is_letter(**byte)).count();
    let start = at - (at.min(REACH) - before.len()) - left;
    if left + right < FEWEST {
        return None;
    }
    // Words meet at the end of every other line of prose. Sixteen random letters contain a digit.
    let letters = bytes.get(start..at + 1 + right)?;
    letters.iter().any(u8::is_ascii_digit).then_some((start, at + 1 + right))
}

fn is_letter(byte: u8) -> bool {
    LETTERS.get(usize::from(byte)).copied().unwrap_or_default()
}

/// Letters of credentials.
const LETTERS: [bool; 256] = letters();

#[expect(clippy::indexing_slicing, reason = "computed by the compiler, which refuses what is out of bounds")]
const fn letters() -> [bool; 256] {
    let mut table = [false; 256];
    let mut at = 0;
    while at < table.len() {
        let byte = at as u8;
        table[at] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'_' | b'-' | b'.' | b'+' | b'/' | b'=' | b':' | b'%' | b'~');
        at += 1;
    }
    table
}
