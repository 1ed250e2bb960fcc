//! Unified diffs, read strictly and applied to the letter: what is not understood is an error, what does not match is an
//! error, nothing is searched for, nothing is skipped. [ADR 16](../../../../docs/adr/0016-own-diff-reader.md) says why.

mod read;
mod write;

use ringfence_types::Bytes;

pub(crate) use read::{fault, read};
pub(crate) use write::write;

/// What a diff does to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileDiff<'d> {
    /// Relative, of plain components.
    pub(crate) path: Bytes,
    pub(crate) kind: Kind,
    hunks: Vec<Hunk<'d>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    Modify,
    Delete,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hunk<'d> {
    /// Lines of the base before it.
    before: usize,
    lines: Vec<Line<'d>>,
    /// In the diff, from 1.
    at: usize,
}

/// With its end of line, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line<'d> {
    sign: Sign,
    text: &'d [u8],
    /// `\ No newline at end of file` follows.
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Kept,
    Removed,
    Added,
}

/// The base is not what the diff was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Mismatch {
    #[error("line {line} of the file is not what line {at} of the diff says")]
    Line { line: usize, at: usize },
    #[error("the file ends before line {line}, which line {at} of the diff is about")]
    Short { line: usize, at: usize },
    #[error("something is left of the file that the diff deletes")]
    NotEmpty,
    #[error("the diff changes nothing in the file")]
    Nothing,
}

impl FileDiff<'_> {
    /// What `base` becomes.
    pub(crate) fn apply(&self, base: &[u8]) -> Result<Vec<u8>, Mismatch> {
        let mut result = Vec::with_capacity(base.len());
        let mut lines = base.split_inclusive(|byte| *byte == b'\n');
        let mut passed = 0;
        for hunk in &self.hunks {
            while passed < hunk.before {
                let line = lines.next().ok_or(Mismatch::Short { line: hunk.before, at: hunk.at })?;
                result.extend_from_slice(line);
                passed += 1;
            }
            for (index, line) in hunk.lines.iter().enumerate() {
                let at = hunk.at + 1 + index;
                if line.sign != Sign::Added {
                    passed += 1;
                    let found = lines.next().ok_or(Mismatch::Short { line: passed, at })?;
                    if found != line.whole() {
                        return Err(Mismatch::Line { line: passed, at });
                    }
                }
                if line.sign != Sign::Removed {
                    result.extend_from_slice(line.whole());
                }
            }
        }
        lines.for_each(|line| result.extend_from_slice(line));
        match self.kind {
            Kind::Delete if !result.is_empty() => Err(Mismatch::NotEmpty),
            Kind::Modify if result == base => Err(Mismatch::Nothing),
            _ => Ok(result),
        }
    }
}

impl<'d> Line<'d> {
    fn whole(&self) -> &'d [u8] {
        if self.open { self.text.strip_suffix(b"\n").unwrap_or(self.text) } else { self.text }
    }
}

#[cfg(test)]
mod tests;
