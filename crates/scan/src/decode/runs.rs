//! Long runs of base64 letters, which include hex.

use std::ops::Range;

/// Shorter runs hold no credential.
pub(crate) const SHORTEST: usize = 24;

/// The value of each letter in base64, both alphabets at once; the high bit marks everything else.
pub(crate) const SEXTETS: [u8; 256] = sextets();
pub(crate) const NOT_A_LETTER: u8 = 0x80;

#[expect(clippy::indexing_slicing, reason = "computed by the compiler, which refuses what is out of bounds")]
const fn sextets() -> [u8; 256] {
    let mut table = [NOT_A_LETTER; 256];
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut at = 0;
    while at < alphabet.len() {
        table[alphabet[at] as usize] = at as u8;
        at += 1;
    }
    table[b'+' as usize] = 62;
    table[b'-' as usize] = 62;
    table[b'/' as usize] = 63;
    table[b'_' as usize] = 63;
    table
}

pub(crate) fn sextet(byte: u8) -> u8 {
    SEXTETS.get(usize::from(byte)).copied().unwrap_or(NOT_A_LETTER)
}

fn is_letter(byte: u8) -> bool {
    sextet(byte) != NOT_A_LETTER
}

/// Unit of the fast check. A long run fills two of these, wherever it begins.
const BLOCK: usize = 8;
const _: () = assert!(SHORTEST >= 3 * BLOCK - 1);

pub(crate) struct Runs<'a> {
    bytes: &'a [u8],
    /// Everything before this is processed.
    from: usize,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, from: 0 }
    }

    /// The first of two blocks in which a long run may be.
    fn block(&self) -> Option<usize> {
        let blocks = self.bytes.get(self.from..)?.as_chunks::<BLOCK>().0;
        let mut had_other = true;
        let second = blocks.iter().position(|block| {
            let has_other = has_other(block);
            !has_other & !std::mem::replace(&mut had_other, has_other)
        });
        Some(self.from + second?.checked_sub(1)? * BLOCK)
    }
}

/// Whether the block has a byte that is no letter. Approximate, but sufficient for nearly all text, and vectorised.
fn has_other(block: &[u8; BLOCK]) -> bool {
    let is_other = |byte: u8| !(b'+'..=b'z').contains(&byte) | (byte == b'.') | (b':'..=b'@').contains(&byte);
    block.iter().fold(false, |any, byte| any | is_other(*byte))
}

impl Iterator for Runs<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let block = self.block()?;
            let before = self.bytes.get(self.from..block)?.iter().rev();
            let start = block - before.take_while(|byte| is_letter(**byte)).count();
            let rest = self.bytes.get(start..)?;
            let length = rest.iter().position(|byte| !is_letter(*byte)).unwrap_or(rest.len());
            self.from = (start + length).max(block + 1);
            if length >= SHORTEST {
                return Some(start..start + length);
            }
        }
    }
}
