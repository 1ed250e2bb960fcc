//! Parses untrusted bytes as a unified diff.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::slice::SplitInclusive;

use ringfence_types::ByteString;

use super::{DiffKind, DiffLine, DiffSign, FileDiff, Hunk};

/// Limit of files in a diff.
const FILES: usize = 2_000;

/// Why the diff is rejected, and at which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the diff: {why}")]
pub(crate) struct DiffReadError {
    pub(crate) line: usize,
    pub(crate) why: DiffProblem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DiffProblem {
    #[error("the diff is empty")]
    Empty,
    #[error("it is not part of a unified diff")]
    NotADiff,
    #[error("the last line has no end: the diff was cut off")]
    CutOff,
    #[error("binary changes cannot be proposed as a diff")]
    Binary,
    #[error("a mode change cannot be proposed")]
    Mode,
    #[error("a new file with mode {0} cannot be proposed: new files are plain and not executable")]
    NewMode(String),
    #[error("a rename or a copy cannot be proposed as one")]
    Rename,
    #[error("a diff of a merge cannot be proposed")]
    Combined,
    #[error("the two names of the file differ")]
    TwoNames,
    #[error("`{}` is not a path inside the workspace: {why}", ByteString::from(name.as_slice()).display())]
    Name { name: Vec<u8>, why: &'static str },
    #[error("the quoted name is not one")]
    Quoting,
    #[error("the hunk header is not one")]
    HunkHeader,
    #[error("the hunk does not begin where the one before and their lengths say")]
    HunkPlace,
    #[error("the hunk overlaps the one before it, or comes before it")]
    HunkOrder,
    #[error("the hunk has more or fewer lines than its header says")]
    HunkLength,
    #[error("`\\ No newline` belongs behind the last line of a file")]
    NoNewline,
    #[error("the header and the changes contradict each other")]
    Contradiction,
    #[error("the section changes nothing")]
    Nothing,
    #[error("`{}` is changed twice", .0.display())]
    Twice(ByteString),
    #[error("more than {FILES} files")]
    TooMany,
}

impl DiffProblem {
    /// The next step for the user.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Binary | Self::Quoting => {
                Some("hand the whole file in: `ringfence proposal create --file PATH`")
            }
            Self::Mode | Self::NewMode(_) => Some("propose the content, and let the operator set the mode"),
            Self::Rename => Some("make the diff with `git diff --no-renames`"),
            Self::Combined => Some("make the diff against one parent"),
            Self::NotADiff => {
                Some("send what `git diff` or `diff -u` prints, and nothing else: no mail, no comments")
            }
            Self::TwoNames => Some("`--- a/PATH` and `+++ b/PATH`, or the same path in both"),
            Self::CutOff => Some("send all of it, to the end of the last line"),
            _ => None,
        }
    }
}

/// Every file of the diff, in order.
pub(crate) fn read(diff: &[u8]) -> Result<Vec<FileDiff<'_>>, DiffReadError> {
    let ends: fn(&u8) -> bool = |byte| *byte == b'\n';
    let mut reader = DiffReader { lines: diff.split_inclusive(ends).peekable(), line: 0 };
    let mut files: Vec<FileDiff<'_>> = Vec::new();
    let mut names = BTreeSet::new();
    if diff.is_empty() {
        return Err(DiffReadError { line: 1, why: DiffProblem::Empty });
    }
    while reader.peek().is_some() {
        let at = reader.line + 1;
        let file = reader.file()?;
        let wrong = |why| Err(DiffReadError { line: at, why });
        if !names.insert(file.path.clone()) {
            return wrong(DiffProblem::Twice(file.path));
        }
        if files.len() == FILES {
            return wrong(DiffProblem::TooMany);
        }
        files.push(file);
    }
    Ok(files)
}

type DiffLines<'d> = SplitInclusive<'d, u8, fn(&u8) -> bool>;

struct DiffReader<'d> {
    lines: Peekable<DiffLines<'d>>,
    /// Number of the last line read.
    line: usize,
}

/// The header of a file, before `---`.
#[derive(Default)]
struct DiffHeader {
    git: Option<DiffNames>,
    created: bool,
    deleted: bool,
}

/// From `diff --git`: the path, and whether `a/` and `b/` precede it.
struct DiffNames {
    path: Vec<u8>,
    prefixed: bool,
}

impl<'d> DiffReader<'d> {
    fn peek(&mut self) -> Option<&'d [u8]> {
        self.lines.peek().copied()
    }

    fn next(&mut self) -> Result<&'d [u8], DiffReadError> {
        self.line += 1;
        let line = self.lines.next().ok_or_else(|| self.wrong(DiffProblem::CutOff))?;
        if line.ends_with(b"\n") { Ok(line) } else { Err(self.wrong(DiffProblem::CutOff)) }
    }

    fn starts(&mut self, word: &[u8]) -> bool {
        self.peek().is_some_and(|line| line.starts_with(word))
    }

    fn wrong(&self, why: DiffProblem) -> DiffReadError {
        DiffReadError { line: self.line, why }
    }

    fn file(&mut self) -> Result<FileDiff<'d>, DiffReadError> {
        let header = self.header()?;
        let begun = self.line;
        if !self.starts(b"--- ") {
            return self.without_content(header);
        }
        let line = self.next()?;
        let old = self.name(line.get(4..).unwrap_or_default())?;
        if !self.starts(b"+++ ") {
            self.next()?;
            return Err(self.wrong(DiffProblem::NotADiff));
        }
        let line = self.next()?;
        let new = self.name(line.get(4..).unwrap_or_default())?;
        let (path, kind) = self.agree(&header, old, new)?;
        let hunks = self.hunks()?;
        let file = FileDiff { path: self.checked(path)?, kind, hunks };
        self.check(&file, begun)?;
        Ok(file)
    }

    fn header(&mut self) -> Result<DiffHeader, DiffReadError> {
        let mut header = DiffHeader::default();
        if self.starts(b"diff --git ") {
            let line = trimmed(self.next()?);
            header.git = Some(self.git_names(line.get(11..).unwrap_or_default())?);
            while let Some(line) = self.peek() {
                if line.starts_with(b"--- ") || line.starts_with(b"diff ") {
                    break;
                }
                let line = trimmed(self.next()?);
                self.extended(line, &mut header)?;
            }
        } else if self.starts(b"diff --cc ") || self.starts(b"diff --combined ") {
            self.next()?;
            return Err(self.wrong(DiffProblem::Combined));
        } else if self.starts(b"diff ") {
            // The command line that `diff -r` prints.
            self.next()?;
        }
        if header.git.is_none() && !self.starts(b"--- ") {
            let binary = self.starts(b"Binary files ");
            self.next()?;
            return Err(self.wrong(if binary { DiffProblem::Binary } else { DiffProblem::NotADiff }));
        }
        Ok(header)
    }

    /// A line between `diff --git` and `---`.
    fn extended(&self, line: &[u8], header: &mut DiffHeader) -> Result<(), DiffReadError> {
        const RENAMES: [&[u8]; 6] = [
            b"rename from ",
            b"rename to ",
            b"copy from ",
            b"copy to ",
            b"similarity index ",
            b"dissimilarity index ",
        ];
        if let Some(mode) = line.strip_prefix(b"new file mode ") {
            header.created = true;
            return if mode == b"100644" {
                Ok(())
            } else {
                Err(self.wrong(DiffProblem::NewMode(shown(mode))))
            };
        }
        if line.strip_prefix(b"deleted file mode ").is_some_and(is_plain_mode) {
            header.deleted = true;
            return Ok(());
        }
        if let Some(index) = line.strip_prefix(b"index ") {
            return self.index(index);
        }
        Err(self.wrong(match line {
            line if line.starts_with(b"old mode ") || line.starts_with(b"new mode ") => DiffProblem::Mode,
            line if line.starts_with(b"deleted file mode ") => DiffProblem::Mode,
            line if RENAMES.iter().any(|word| line.starts_with(word)) => DiffProblem::Rename,
            line if line.starts_with(b"Binary files ") || line.starts_with(b"GIT binary patch") => {
                DiffProblem::Binary
            }
            _ => DiffProblem::NotADiff,
        }))
    }

    /// `OLD..NEW` or `OLD..NEW MODE`. git's object ids are ignored, because every byte is compared.
    fn index(&self, index: &[u8]) -> Result<(), DiffReadError> {
        let (ids, mode) = match index.iter().position(|byte| *byte == b' ') {
            Some(at) => index.split_at(at),
            None => (index, &b" 100644"[..]),
        };
        if !ids.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'.') {
            return Err(self.wrong(DiffProblem::NotADiff));
        }
        if is_plain_mode(mode.get(1..).unwrap_or_default()) {
            Ok(())
        } else {
            Err(self.wrong(DiffProblem::Mode))
        }
    }

    /// Only a header: an empty file that is created or deleted.
    fn without_content(&self, header: DiffHeader) -> Result<FileDiff<'d>, DiffReadError> {
        let Some(names) = header.git else { return Err(self.wrong(DiffProblem::NotADiff)) };
        let kind = match (header.created, header.deleted) {
            (true, false) => DiffKind::Create,
            (false, true) => DiffKind::Delete,
            (true, true) => return Err(self.wrong(DiffProblem::Contradiction)),
            (false, false) => return Err(self.wrong(DiffProblem::Nothing)),
        };
        Ok(FileDiff { path: self.checked(names.path)?, kind, hunks: Vec::new() })
    }

    /// The rest of a `---` or `+++` line; `None` for `/dev/null`. A time may follow a tab.
    fn name(&self, rest: &[u8]) -> Result<Option<Vec<u8>>, DiffReadError> {
        let rest = rest.strip_suffix(b"\n").unwrap_or(rest);
        let name = if rest.starts_with(b"\"") {
            let end = quoted_length(rest).ok_or_else(|| self.wrong(DiffProblem::Quoting))?;
            let (name, after) = rest.split_at(end);
            if !(after.is_empty() || after.starts_with(b"\t")) {
                return Err(self.wrong(DiffProblem::Quoting));
            }
            self.unquoted(name)?
        } else {
            let name = rest.split(|byte| *byte == b'\t').next().unwrap_or_default();
            if name.iter().any(u8::is_ascii_control) {
                let why = "it has a control character; a name with one is quoted";
                return Err(self.wrong(DiffProblem::Name { name: name.to_vec(), why }));
            }
            name.to_vec()
        };
        Ok((name != b"/dev/null").then_some(name))
    }

    /// `a/P b/P` or `P P`: both halves have the same length, because renames are refused.
    fn git_names(&self, rest: &[u8]) -> Result<DiffNames, DiffReadError> {
        let middle = rest.len() / 2;
        let (old, new) = rest.split_at(middle);
        let new = new.strip_prefix(b" ").ok_or_else(|| self.wrong(DiffProblem::Rename))?;
        let (old, new) = (self.plain(old)?, self.plain(new)?);
        if let (Some(path), Some(same)) = (old.strip_prefix(b"a/"), new.strip_prefix(b"b/"))
            && path == same
        {
            return Ok(DiffNames { path: path.to_vec(), prefixed: true });
        }
        if old == new {
            Ok(DiffNames { path: old, prefixed: false })
        } else {
            Err(self.wrong(DiffProblem::Rename))
        }
    }

    fn plain(&self, name: &[u8]) -> Result<Vec<u8>, DiffReadError> {
        if name.starts_with(b"\"") { self.unquoted(name) } else { Ok(name.to_vec()) }
    }

    /// The file and its kind of change, from the whole header.
    fn agree(
        &self,
        header: &DiffHeader,
        old: Option<Vec<u8>>,
        new: Option<Vec<u8>>,
    ) -> Result<(Vec<u8>, DiffKind), DiffReadError> {
        let (kind, path) = match (old, new) {
            (None, None) => return Err(self.wrong(DiffProblem::Nothing)),
            (None, Some(new)) => (DiffKind::Create, stripped(new, b"b/", header)),
            (Some(old), None) => (DiffKind::Delete, stripped(old, b"a/", header)),
            (Some(old), Some(new)) => (DiffKind::Modify, self.one_name(old, new)?),
        };
        let said = (header.created, header.deleted);
        let expected = (kind == DiffKind::Create, kind == DiffKind::Delete);
        if header.git.is_some() && said != expected {
            return Err(self.wrong(DiffProblem::Contradiction));
        }
        if header.git.as_ref().is_some_and(|names| names.path != path) {
            return Err(self.wrong(DiffProblem::TwoNames));
        }
        Ok((path, kind))
    }

    fn one_name(&self, old: Vec<u8>, new: Vec<u8>) -> Result<Vec<u8>, DiffReadError> {
        match (old.strip_prefix(b"a/"), new.strip_prefix(b"b/")) {
            (Some(path), Some(same)) if path == same => Ok(path.to_vec()),
            _ if old == new => Ok(old),
            _ => Err(self.wrong(DiffProblem::TwoNames)),
        }
    }

    fn hunks(&mut self) -> Result<Vec<Hunk<'d>>, DiffReadError> {
        let mut hunks = Vec::new();
        let mut ends = HunkEnds::default();
        while self.starts(b"@@") {
            let line = trimmed(self.next()?);
            let ranges = ranges(line).ok_or_else(|| self.wrong(DiffProblem::HunkHeader))?;
            let before = ends.advance(&ranges).map_err(|why| self.wrong(why))?;
            let at = self.line;
            let lines = self.hunk_lines(&ranges)?;
            hunks.push(Hunk { before, lines, at });
        }
        if hunks.is_empty() {
            return Err(self.wrong(DiffProblem::Nothing));
        }
        Ok(hunks)
    }

    fn hunk_lines(&mut self, ranges: &HunkRanges) -> Result<Vec<DiffLine<'d>>, DiffReadError> {
        let (mut old, mut new) = (ranges.old.count, ranges.new.count);
        let mut lines: Vec<DiffLine<'d>> = Vec::new();
        while old > 0 || new > 0 {
            let line = self.next()?;
            let (sign, rest) = match line.split_first() {
                Some((b' ', rest)) => (DiffSign::Kept, rest),
                Some((b'-', rest)) => (DiffSign::Removed, rest),
                Some((b'+', rest)) => (DiffSign::Added, rest),
                _ => return Err(self.wrong(DiffProblem::HunkLength)),
            };
            let fewer = |left: usize| left.checked_sub(1).ok_or_else(|| self.wrong(DiffProblem::HunkLength));
            (old, new) = match sign {
                DiffSign::Kept => (fewer(old)?, fewer(new)?),
                DiffSign::Removed => (fewer(old)?, new),
                DiffSign::Added => (old, fewer(new)?),
            };
            let open = self.starts(b"\\ ");
            if open {
                self.next()?;
                let last = match sign {
                    DiffSign::Kept => old == 0 && new == 0,
                    DiffSign::Removed => old == 0,
                    DiffSign::Added => new == 0,
                };
                if !last {
                    return Err(self.wrong(DiffProblem::NoNewline));
                }
            }
            lines.push(DiffLine { sign, text: rest, open });
        }
        Ok(lines)
    }

    /// Checks across lines: a line without an end is the last of its file, and a created or deleted file has
    /// lines of one kind.
    fn check(&self, file: &FileDiff<'_>, begun: usize) -> Result<(), DiffReadError> {
        let wrong = |why| Err(DiffReadError { line: begun + 1, why });
        let (_, earlier) = file.hunks.split_last().map_or((None, &[][..]), |(last, rest)| (Some(last), rest));
        if earlier.iter().any(|hunk| hunk.lines.iter().any(|line| line.open)) {
            return wrong(DiffProblem::NoNewline);
        }
        let only = match file.kind {
            DiffKind::Create => DiffSign::Added,
            DiffKind::Delete => DiffSign::Removed,
            DiffKind::Modify => return Ok(()),
        };
        let whole = file.hunks.len() == 1 && file.hunks.iter().all(|hunk| hunk.before == 0);
        let pure = file.hunks.iter().all(|hunk| hunk.lines.iter().all(|line| line.sign == only));
        if whole && pure { Ok(()) } else { wrong(DiffProblem::Contradiction) }
    }

    fn unquoted(&self, name: &[u8]) -> Result<Vec<u8>, DiffReadError> {
        unquote(name).ok_or_else(|| self.wrong(DiffProblem::Quoting))
    }

    /// A path of plain components below the workspace.
    fn checked(&self, name: Vec<u8>) -> Result<ByteString, DiffReadError> {
        match fault(&name) {
            None => Ok(ByteString::from(name)),
            Some(why) => Err(self.wrong(DiffProblem::Name { name, why })),
        }
    }
}

/// Why a name cannot be a file below the workspace; `None`: it can.
pub(crate) fn fault(name: &[u8]) -> Option<&'static str> {
    if name.is_empty() {
        return Some("it is empty");
    }
    if name.starts_with(b"/") {
        return Some("it is absolute");
    }
    if name.contains(&0) {
        return Some("it has a NUL byte");
    }
    if name.len() > 4096 {
        return Some("it is too long");
    }
    name.split(|byte| *byte == b'/').find_map(|component| match component {
        b"" => Some("a component of it is empty"),
        b"." | b".." => Some("it has `.` or `..` in it"),
        _ => None,
    })
}

/// The name of a created or deleted file, without `b/` or `a/`, unless `diff --git` shows that there is no
/// prefix.
fn stripped(name: Vec<u8>, prefix: &[u8], header: &DiffHeader) -> Vec<u8> {
    if header.git.as_ref().is_some_and(|names| !names.prefixed) {
        return name;
    }
    name.strip_prefix(prefix).map(<[u8]>::to_vec).unwrap_or(name)
}

struct HunkRanges {
    old: HunkRange,
    new: HunkRange,
}

#[derive(Clone, Copy)]
struct HunkRange {
    start: usize,
    count: usize,
}

impl HunkRange {
    /// Number of lines before it. An empty range names the preceding line.
    fn before(self) -> Option<usize> {
        if self.count == 0 { Some(self.start) } else { self.start.checked_sub(1) }
    }
}

/// End of the previous hunks on both sides.
#[derive(Default)]
struct HunkEnds {
    old: usize,
    new: usize,
}

impl HunkEnds {
    /// Number of base lines before the next hunk.
    fn advance(&mut self, ranges: &HunkRanges) -> Result<usize, DiffProblem> {
        let old = ranges.old.before().ok_or(DiffProblem::HunkHeader)?;
        let new = ranges.new.before().ok_or(DiffProblem::HunkHeader)?;
        let between = old.checked_sub(self.old).ok_or(DiffProblem::HunkOrder)?;
        if new.checked_sub(self.new) != Some(between) {
            return Err(DiffProblem::HunkPlace);
        }
        let end = |before: usize, count: usize| before.checked_add(count).ok_or(DiffProblem::HunkHeader);
        *self = Self { old: end(old, ranges.old.count)?, new: end(new, ranges.new.count)? };
        Ok(old)
    }
}

/// `@@ -OLD +NEW @@`, optionally followed by a heading.
fn ranges(line: &[u8]) -> Option<HunkRanges> {
    let rest = line.strip_prefix(b"@@ -")?;
    let (old, rest) = range(rest)?;
    let (new, rest) = range(rest.strip_prefix(b" +")?)?;
    let heading = rest.strip_prefix(b" @@")?;
    let empty = old.count == 0 && new.count == 0;
    (!empty && (heading.is_empty() || heading.starts_with(b" "))).then_some(HunkRanges { old, new })
}

fn range(text: &[u8]) -> Option<(HunkRange, &[u8])> {
    let (start, rest) = number(text)?;
    match rest.strip_prefix(b",") {
        Some(rest) => number(rest).map(|(count, rest)| (HunkRange { start, count }, rest)),
        None => Some((HunkRange { start, count: 1 }, rest)),
    }
}

/// At most nine digits, so that no sum of two overflows.
fn number(text: &[u8]) -> Option<(usize, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at_checked(digits)?;
    if !(1..=9).contains(&digits) {
        return None;
    }
    std::str::from_utf8(number).ok()?.parse().ok().map(|number| (number, rest))
}

/// Length of the quoted name at the beginning of `text`.
fn quoted_length(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    for (index, byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(index + 1),
            _ => {}
        }
    }
    None
}

/// A name quoted by git: C escapes, and three octal digits for any other byte.
fn unquote(name: &[u8]) -> Option<Vec<u8>> {
    let mut rest = name.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut out = Vec::with_capacity(rest.len());
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'"' {
            return None;
        }
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let (escape, after) = rest.split_first()?;
        rest = after;
        out.push(match escape {
            b'a' => 7,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            b'"' | b'\\' => *escape,
            b'0'..=b'3' => {
                let (digits, after) = rest.split_first_chunk::<2>()?;
                rest = after;
                let octal = |digit: &u8| (b'0'..=b'7').contains(digit).then(|| digit - b'0');
                let [middle, last] = [octal(&digits[0])?, octal(&digits[1])?];
                (escape - b'0') * 64 + middle * 8 + last
            }
            _ => return None,
        });
    }
    Some(out)
}

fn is_plain_mode(mode: &[u8]) -> bool {
    mode == b"100644" || mode == b"100755"
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

fn shown(text: &[u8]) -> String {
    ByteString::from(text).display()
}
