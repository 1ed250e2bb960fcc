//! Hex digits with separators, as tools print bytes: `73 6b 2d`, `73:6b:2d`, `0x73, 0x6b`, `736b 2d61`.

use std::ops::Range;

use super::{DecodeBudget, DecodedPiece, PieceOrigin, hex, is_textual};
use crate::finding::Encoding;

/// Fewer bytes hold no credential.
const FEWEST_BYTES: usize = 12;
/// The shortest text of so many: two digits each and one byte in between.
const SHORTEST: usize = FEWEST_BYTES * 3 - 1;
const PAIR: usize = 2;
/// Group sizes of digits between separators.
const GROUPS: [usize; 3] = [2, 4, 8];
/// Maximum length of a separator.
const WIDEST_GAP: usize = 4;

/// What is long enough fills one of these, wherever it begins.
const BLOCK: usize = 16;
const _: () = assert!(SHORTEST >= 2 * BLOCK - 1);

pub(super) fn pieces(bytes: &[u8], pieces: &mut Vec<DecodedPiece>, allowance: &mut DecodeBudget) {
    let mut from = 0;
    for (block, at) in bytes.as_chunks::<BLOCK>().0.iter().zip((0..).step_by(BLOCK)) {
        if at < from || has_other_letter(block) || !block.iter().all(|byte| is_part(*byte)) {
            continue;
        }
        let before = bytes.get(from..at).unwrap_or_default().iter().rev();
        let start = at - before.take_while(|byte| is_part(**byte)).count();
        let rest = bytes.get(at..).unwrap_or_default();
        let end = at + rest.iter().position(|byte| !is_part(*byte)).unwrap_or(rest.len());
        from = end;
        if end - start >= SHORTEST && allowance.take(end - start) {
            read(bytes, start..end, pieces);
        }
    }
}

/// Whether the block has a letter that is no hex digit. Approximate, but sufficient for nearly all text, and vectorised.
fn has_other_letter(block: &[u8; BLOCK]) -> bool {
    let is_other = |byte: u8| (b'g'..=b'w').contains(&(byte | 0x20));
    block.iter().fold(false, |any, byte| any | is_other(*byte))
}

/// Digits, what stands between them, and the `0x` before them.
fn is_part(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte == b'x' || byte == b'X' || is_gap(byte)
}

fn is_gap(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' | b';' | b'-' | b'_' | b'.' | b'|' | b'"' | b'\''
    )
}

fn read(bytes: &[u8], run: Range<usize>, pieces: &mut Vec<DecodedPiece>) {
    let mut text = SpacedText::default();
    let mut at = run.start;
    while at < run.end {
        let rest = bytes.get(at..run.end).unwrap_or_default();
        let gap = gap(rest);
        let digits = rest.iter().skip(gap).take_while(|byte| byte.is_ascii_hexdigit()).count();
        if gap > WIDEST_GAP || !GROUPS.contains(&digits) {
            text.flush(pieces);
        }
        if GROUPS.contains(&digits) {
            for (pair, at) in rest
                .get(gap..gap + digits)
                .unwrap_or_default()
                .chunks_exact(PAIR)
                .zip((at + gap..).step_by(PAIR))
            {
                text.push(pair, at, pieces);
            }
        }
        at += (gap + digits).max(1);
    }
    text.flush(pieces);
}

/// Everything before the next digits.
fn gap(rest: &[u8]) -> usize {
    let between = rest.iter().take_while(|byte| is_gap(**byte)).count();
    let prefix = rest.get(between..).is_some_and(|rest| rest.starts_with(b"0x") || rest.starts_with(b"0X"));
    let prefix = if prefix { 2 } else { 0 };
    between + prefix
}

/// Bytes of text in a row, and where they came from.
#[derive(Default)]
struct SpacedText {
    bytes: Vec<u8>,
    places: Vec<(u32, u32)>,
}

impl SpacedText {
    fn push(&mut self, pair: &[u8], at: usize, pieces: &mut Vec<DecodedPiece>) {
        match hex::byte(pair).filter(|byte| is_textual(*byte)) {
            Some(byte) => {
                self.bytes.push(byte);
                self.places.push((at as u32, (at + PAIR) as u32));
            }
            None => self.flush(pieces),
        }
    }

    fn flush(&mut self, pieces: &mut Vec<DecodedPiece>) {
        let Self { bytes, places } = std::mem::take(self);
        // Runs of digits are more likely numbers than hex of punctuation.
        let letters = bytes.iter().filter(|byte| byte.is_ascii_alphanumeric()).count();
        if bytes.len() >= FEWEST_BYTES && letters * 3 > bytes.len() {
            pieces.push(DecodedPiece {
                bytes,
                places: PieceOrigin::Each(places),
                encodings: &[Encoding::Hex],
            });
        }
    }
}
