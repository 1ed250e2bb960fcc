//! Maps a position in the scanned bytes to a line and the text before the secret.

use memchr::{memchr_iter, memrchr};

/// Bytes kept behind: a finding is reported later than its bytes were read, by less than this.
const KEPT: usize = 2 << 20;
/// Characters shown before a secret.
const SHOWN: usize = 48;

/// The bytes that findings may still refer to, and their first line.
#[derive(Debug)]
pub(super) struct LineBuffer {
    bytes: Vec<u8>,
    base: usize,
    /// A position with a known line; findings arrive in order.
    at: usize,
    line: u64,
    /// The end of the last finding: text before it is not shown again.
    shown: usize,
}

/// The place of a finding, for people.
#[derive(Debug)]
pub(super) struct FindingLocation {
    pub(super) line: u64,
    /// In bytes, from 1.
    pub(super) column: u64,
    /// The text before the secret in its line.
    pub(super) before: Vec<u8>,
}

impl LineBuffer {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), base: 0, at: 0, line: 1, shown: 0 }
    }

    pub(super) fn follow(&mut self, chunk: &[u8]) {
        if self.bytes.len() > 2 * KEPT {
            let cut = self.bytes.len() - KEPT;
            self.count_to(self.base + cut);
            self.bytes.drain(..cut);
            self.base += cut;
        }
        self.bytes.extend_from_slice(chunk);
    }

    pub(super) fn place(&mut self, start: usize, end: usize) -> FindingLocation {
        self.count_to(start);
        let before = self.bytes.get(..start.saturating_sub(self.base)).unwrap_or_default();
        let line_start = memrchr(b'\n', before).map_or(self.base, |at| self.base + at + 1);
        let from = line_start.max(self.shown).max(start.saturating_sub(SHOWN)).saturating_sub(self.base);
        let place = FindingLocation {
            line: self.line,
            column: (start - line_start.min(start)) as u64 + 1,
            before: before.get(from..).unwrap_or_default().to_vec(),
        };
        self.shown = end;
        place
    }

    fn count_to(&mut self, position: usize) {
        if position <= self.at {
            return;
        }
        let range = self.at.saturating_sub(self.base)..position.saturating_sub(self.base);
        self.line += memchr_iter(b'\n', self.bytes.get(range).unwrap_or_default()).count() as u64;
        self.at = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_over_what_was_dropped() {
        let mut trail = LineBuffer::new();
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        for _ in 0..100_000 {
            trail.follow(&line);
        }
        let place = trail.place(9_999_910, 9_999_920);
        assert_eq!((place.line, place.column), (100_000, 11));
        assert_eq!(place.before, b"x".repeat(10));
    }

    #[test]
    fn what_belongs_to_an_earlier_finding_is_not_shown() {
        let mut trail = LineBuffer::new();
        trail.follow(b"a=SECRET b=OTHER");
        assert_eq!(trail.place(2, 8).before, b"a=");
        assert_eq!(trail.place(11, 16).before, b" b=");
    }
}
