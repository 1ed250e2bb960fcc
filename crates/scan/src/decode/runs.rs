//! Long runs of the letters of base64, which hold those of hex as well.

use std::ops::Range;

/// Shorter ones hold no credential.
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

/// Probes one byte in twenty-four and goes back from those that are letters: ordinary words cost a few looks.
pub(crate) struct Runs<'a> {
    bytes: &'a [u8],
    /// Before this everything is known.
    from: usize,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, from: 0 }
    }
}

impl Iterator for Runs<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let window = self.bytes.get(self.from..self.from + SHORTEST)?;
            match window.iter().rposition(|byte| !is_letter(*byte)) {
                Some(gap) => self.from += gap + 1,
                None => break,
            }
        }
        let start = self.from;
        let rest = self.bytes.get(start + SHORTEST..)?;
        let more = rest.iter().position(|byte| !is_letter(*byte)).unwrap_or(rest.len());
        let end = start + SHORTEST + more;
        self.from = end;
        Some(start..end)
    }
}
