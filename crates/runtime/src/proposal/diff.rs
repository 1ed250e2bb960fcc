//! Unified diffs, parsed strictly and applied exactly. Unknown syntax and mismatches are errors; there is no
//! fuzzy search and no skipping. [ADR 16](../../../../docs/adr/0016-own-diff-reader.md) says why.

mod read;
mod write;

use ringfence_types::ByteString;

pub(crate) use read::{fault, read};
pub(crate) use write::{hunks, quoted_name, write};

/// The changes of a diff to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileDiff<'d> {
    /// Relative, of plain components.
    pub(crate) path: ByteString,
    pub(crate) kind: DiffKind,
    hunks: Vec<Hunk<'d>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiffKind {
    Create,
    Modify,
    Delete,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hunk<'d> {
    /// Number of base lines before it.
    before: usize,
    lines: Vec<DiffLine<'d>>,
    /// Line number in the diff, from 1.
    at: usize,
}

/// A line with its end of line, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DiffLine<'d> {
    sign: DiffSign,
    text: &'d [u8],
    /// `\ No newline at end of file` follows.
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiffSign {
    Kept,
    Removed,
    Added,
}

/// The base differs from the one the diff was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BaseMismatch {
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
    /// The result of applying the diff to `base`.
    pub(crate) fn apply(&self, base: &[u8]) -> Result<Vec<u8>, BaseMismatch> {
        let mut result = Vec::with_capacity(base.len());
        let mut lines = base.split_inclusive(|byte| *byte == b'\n');
        let mut passed = 0;
        for hunk in &self.hunks {
            while passed < hunk.before {
                let line = lines.next().ok_or(BaseMismatch::Short { line: hunk.before, at: hunk.at })?;
                result.extend_from_slice(line);
                passed += 1;
            }
            for (index, line) in hunk.lines.iter().enumerate() {
                let at = hunk.at + 1 + index;
                if line.sign != DiffSign::Added {
                    passed += 1;
                    let found = lines.next().ok_or(BaseMismatch::Short { line: passed, at })?;
                    if found != line.whole() {
                        return Err(BaseMismatch::Line { line: passed, at });
                    }
                }
                if line.sign != DiffSign::Removed {
                    result.extend_from_slice(line.whole());
                }
            }
        }
        lines.for_each(|line| result.extend_from_slice(line));
        match self.kind {
            DiffKind::Delete if !result.is_empty() => Err(BaseMismatch::NotEmpty),
            DiffKind::Modify if result == base => Err(BaseMismatch::Nothing),
            _ => Ok(result),
        }
    }
}

impl<'d> DiffLine<'d> {
    fn whole(&self) -> &'d [u8] {
        if self.open { self.text.strip_suffix(b"\n").unwrap_or(self.text) } else { self.text }
    }
}

#[cfg(test)]
mod tests;
