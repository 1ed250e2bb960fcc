//! The text of one policy file, and places in it.

use std::path::{Path, PathBuf};

use ringfence_authz::RuleLocation;
use ringfence_types::ByteString;
use sha2::{Digest as _, Sha256};

use super::problem::{PolicyError, PolicyProblem};

/// The most a policy file may have. A file of this size is a mistake or an attack, and it would be read at every start.
pub const MAX_BYTES: usize = 1 << 20;

/// A part of a text, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TextSpan {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl From<std::ops::Range<usize>> for TextSpan {
    fn from(range: std::ops::Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// A value with the place it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WithSpan<T> {
    pub(crate) value: T,
    pub(crate) span: TextSpan,
}

/// A file as it was read, kept to say where things are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicySourceText {
    path: PathBuf,
    text: String,
    line_starts: Vec<usize>,
    sha256: String,
}

impl PolicySourceText {
    pub(crate) fn new(path: &Path, bytes: &[u8]) -> Result<Self, PolicyError> {
        if bytes.len() > MAX_BYTES {
            let message = format!("the file has {} bytes; the most is {MAX_BYTES}", bytes.len());
            return Err(whole_file(path, 1, message, "split it, and name the parts in `extends`"));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
            whole_file(path, line, "the file is not UTF-8", "save it as UTF-8")
        })?;
        let after_newline = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Ok(Self {
            path: path.to_owned(),
            text: text.to_owned(),
            line_starts: std::iter::once(0).chain(after_newline).collect(),
            sha256: sha256(bytes),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// `sha256:…`, as it is approved.
    pub(crate) fn sha256(&self) -> &str {
        &self.sha256
    }

    pub(crate) fn origin(&self, span: TextSpan) -> RuleLocation {
        let (line, start) = self.line(span.start);
        let before = self.text.get(start..span.start).unwrap_or_default();
        RuleLocation {
            file: self.path.clone(),
            line: number(line),
            column: number(before.chars().count() + 1),
        }
    }

    /// The line around the start of `span`, made safe to show, with the columns to mark.
    pub(crate) fn excerpt(&self, span: TextSpan) -> Excerpt {
        let (_, start) = self.line(span.start);
        let line = self.text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let shown =
            |from: usize, to: usize| ByteString::from(self.text.get(from..to).unwrap_or_default()).display();
        let end = start + line.len();
        let (before, marked) =
            (shown(start, span.start.min(end)), shown(span.start.min(end), span.end.min(end)));
        let after = shown(span.end.clamp(start, end), end);
        Excerpt::cut(&before, &marked, &after)
    }

    /// Its number from 1, and where it begins.
    fn line(&self, at: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|start| *start <= at);
        (line, self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(0))
    }
}

/// One line of a file with a part of it marked, in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    pub text: String,
    pub mark_start: usize,
    pub mark_len: usize,
}

impl Excerpt {
    /// A very long line is cut around the mark.
    fn cut(before: &str, marked: &str, after: &str) -> Self {
        const AROUND: usize = 60;
        let skipped = before.chars().count().saturating_sub(AROUND);
        let (lead, before) = if skipped > 0 {
            ("…", before.chars().skip(skipped).collect())
        } else {
            ("", before.to_owned())
        };
        let marked: String = marked.chars().take(2 * AROUND).collect();
        let shown: String = after.chars().take(AROUND).collect();
        let tail = if shown.len() < after.len() { "…" } else { "" };
        Self {
            mark_start: lead.chars().count() + before.chars().count(),
            mark_len: marked.chars().count().max(1),
            text: format!("{lead}{before}{marked}{shown}{tail}"),
        }
    }
}

/// `sha256:` and the digest in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    format!("sha256:{}", ringfence_types::hex(digest))
}

fn whole_file(path: &Path, line: usize, message: impl Into<String>, fix: &str) -> PolicyError {
    let origin = RuleLocation { file: path.to_owned(), line: number(line), column: 1 };
    PolicyError::from(PolicyProblem::new(message).at(origin).fix(fix))
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
