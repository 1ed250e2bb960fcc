//! Scans the lines that git changes add.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use ringfence_scan::Finding;
use ringfence_types::ByteString;

use super::line_map::{FindingLocation, LineBuffer};
use super::report::ScanReporter;
use super::{ScanError, ScanSettings};

/// Limit of git's error output that is kept.
const COMPLAINTS: u64 = 64 << 10;

/// git must not fetch, prompt or write.
const VARIABLES: &[(&str, &str)] = &[
    // A partial clone would fetch missing objects through programs in its configuration.
    ("GIT_NO_LAZY_FETCH", "1"),
    // The same for a git that does not know the variable above: no transport is allowed.
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
];

/// The settings of a filter driver, and their values without a program.
const FILTER: &[(&str, &str)] = &[("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")];

/// No setting of the repository may run a program or change the format.
const GIT: &[&str] = &[
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.quotePath=false",
    "-c",
    "diff.noprefix=false",
    "-c",
    "diff.mnemonicPrefix=false",
    "diff",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--no-relative",
    // No git runs inside a submodule, which has its own configuration.
    "--ignore-submodules=dirty",
    "--submodule=short",
    "--text",
    "--unified=0",
    "--inter-hunk-context=0",
    "--src-prefix=a/",
    "--dst-prefix=b/",
];

pub(super) fn range(range: &str, lens: &ScanSettings, report: &ScanReporter) -> Result<(), ScanError> {
    if range.is_empty() || range.starts_with('-') {
        return Err(ScanError::Range(range.to_owned()));
    }
    added(&[range, "--"], lens, report)
}

pub(super) fn staged(lens: &ScanSettings, report: &ScanReporter) -> Result<(), ScanError> {
    added(&["--cached", "--"], lens, report)
}

fn added(arguments: &[&str], lens: &ScanSettings, report: &ScanReporter) -> Result<(), ScanError> {
    let mut git = git();
    without_filters(&mut git, &filters()?);
    git.args(GIT).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = git.spawn().map_err(ScanError::Git)?;
    // Read while git runs, because git blocks on a full pipe.
    let complaints = child.stderr.take().map(|err| thread::spawn(move || beginning(err)));
    let read = child.stdout.take().map(|out| changes(&mut BufReader::new(out), lens, report)).transpose();
    let status = child.wait().map_err(ScanError::Git)?;
    read.map_err(ScanError::Git)?;
    if status.success() {
        return Ok(());
    }
    Err(said(&complaints.and_then(|reader| reader.join().ok()).unwrap_or_default()))
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.envs(VARIABLES.iter().copied());
    git
}

fn said(complaints: &[u8]) -> ScanError {
    ScanError::GitSaid(ByteString::from(complaints.trim_ascii()).display().to_string())
}

/// Keeps the beginning and discards the rest.
fn beginning(mut from: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    let read = from.by_ref().take(COMPLAINTS).read_to_end(&mut kept);
    // A read error is harmless: the exit code tells whether git failed.
    let _rest = read.and_then(|_| io::copy(&mut from, &mut io::sink()));
    kept
}

/// The names of all filter drivers in the configuration: git would run their programs on files of the working
/// tree.
fn filters() -> Result<BTreeSet<Vec<u8>>, ScanError> {
    let listed = git().args(["config", "--list", "-z", "--name-only"]).stdin(Stdio::null()).output();
    let listed = listed.map_err(ScanError::Git)?;
    if !listed.status.success() {
        return Err(said(&listed.stderr));
    }
    Ok(listed.stdout.split(|byte| *byte == 0).filter_map(filter).map(<[u8]>::to_vec).collect())
}

/// `x.y` of `filter.x.y.clean`.
fn filter(key: &[u8]) -> Option<&[u8]> {
    let rest = key.strip_prefix(b"filter.")?;
    rest.get(..rest.iter().rposition(|byte| *byte == b'.')?)
}

/// In variables, because a name may contain the `=` that ends a key after `-c`.
fn without_filters(git: &mut Command, names: &BTreeSet<Vec<u8>>) {
    let settings = names.iter().flat_map(|name| FILTER.iter().map(move |setting| (name, setting)));
    let mut count = 0;
    for (name, (part, value)) in settings {
        let key = [b"filter.", name.as_slice(), b".", part.as_bytes()].concat();
        git.env(format!("GIT_CONFIG_KEY_{count}"), OsStr::from_bytes(&key));
        git.env(format!("GIT_CONFIG_VALUE_{count}"), value);
        count += 1;
    }
    if count > 0 {
        git.env("GIT_CONFIG_COUNT", count.to_string());
    }
}

fn changes(
    diff: &mut dyn std::io::BufRead,
    lens: &ScanSettings,
    report: &ScanReporter,
) -> std::io::Result<()> {
    let mut change = AddedLines::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        if diff.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.starts_with(b"diff --git ") {
            std::mem::take(&mut change).tell(lens, report);
        }
        change.take(&line);
    }
    change.tell(lens, report);
    Ok(())
}

/// The added lines of one file.
#[derive(Default)]
struct AddedLines {
    file: PathBuf,
    /// Remaining lines of the hunk.
    removed: u64,
    added: u64,
    text: Vec<u8>,
    /// Start of each hunk in `text`, and its line in the file.
    hunks: Vec<(usize, u64)>,
}

impl AddedLines {
    fn take(&mut self, line: &[u8]) {
        match line.first() {
            Some(b'-') if self.removed > 0 => self.removed -= 1,
            Some(b'+') if self.added > 0 => {
                self.added -= 1;
                self.text.extend_from_slice(line.get(1..).unwrap_or_default());
            }
            _ => self.header(line),
        }
    }

    fn header(&mut self, line: &[u8]) {
        if let Some(name) = line.strip_prefix(b"+++ ") {
            self.file = file_name(name.trim_ascii_end());
        } else if let Some(((_, removed), (start, added))) = line.strip_prefix(b"@@ -").and_then(hunk) {
            (self.removed, self.added) = (removed, added);
            // Hunks are not adjacent, so a secret must not span two of them.
            if !self.text.is_empty() {
                self.text.push(b'\n');
            }
            self.hunks.push((self.text.len(), start));
        }
    }

    fn tell(self, lens: &ScanSettings, report: &ScanReporter) {
        if self.text.is_empty() {
            return;
        }
        let mut trail = LineBuffer::new();
        trail.follow(&self.text);
        let searched = lens.scanner.search(&self.text);
        for finding in searched.findings {
            let place = self.place(&finding, &mut trail);
            report.finding(lens, &self.file, &finding, &place);
        }
        if searched.refused > 0 {
            report.incomplete(&self.file);
        }
        report.read(self.text.len() as u64);
        report.file_done();
    }

    fn place(&self, finding: &Finding, trail: &mut LineBuffer) -> FindingLocation {
        let mut place = trail.place(finding.start, finding.end);
        let hunk = self.hunks.iter().rev().find(|(start, _)| *start <= finding.start);
        let (start, line) = hunk.copied().unwrap_or((0, 1));
        let within = self.text.get(start..finding.start).unwrap_or_default();
        place.line = line + memchr::memchr_iter(b'\n', within).count() as u64;
        place
    }
}

/// `b/path`, quoted by git if it has control characters.
fn file_name(name: &[u8]) -> PathBuf {
    let name = name.strip_prefix(b"b/").unwrap_or(name);
    let text = String::from_utf8_lossy(name);
    PathBuf::from(text.strip_prefix("\"b/").and_then(|quoted| quoted.strip_suffix('"')).unwrap_or(&text))
}

/// `1,2 +3,4 @@ …`: start and length before, start and length after.
fn hunk(text: &[u8]) -> Option<((u64, u64), (u64, u64))> {
    let text = std::str::from_utf8(text.split(|byte| *byte == b'@').next()?).ok()?;
    let (before, after) = text.trim().split_once(" +")?;
    let pair = |part: &str| {
        let (start, length) = part.split_once(',').unwrap_or((part, "1"));
        Some((start.parse().ok()?, length.parse().ok()?))
    };
    Some((pair(before)?, pair(after)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_named_by_their_middle() {
        assert_eq!(filter(b"filter.x.clean"), Some(b"x".as_slice()));
        assert_eq!(filter(b"filter.a=b.c.process"), Some(b"a=b.c".as_slice()));
        assert_eq!(filter(b"filter.clean"), None);
        assert_eq!(filter(b"core.bare"), None);
    }

    #[test]
    fn hunks_give_lines() {
        assert_eq!(hunk(b"1,2 +3,4 @@ fn x"), Some(((1, 2), (3, 4))));
        assert_eq!(hunk(b"0,0 +1 @@"), Some(((0, 0), (1, 1))));
        assert_eq!(hunk(b"x @@"), None);
    }

    #[test]
    fn a_line_that_looks_like_a_header_is_content() {
        let mut change = AddedLines::default();
        for line in ["+++ b/x\n", "@@ -0,0 +1,2 @@\n", "+++ b/evil\n", "+@@ -1 +9 @@\n"] {
            change.take(line.as_bytes());
        }
        assert_eq!(change.file, PathBuf::from("x"));
        assert_eq!(change.text, b"++ b/evil\n@@ -1 +9 @@\n");
    }
}
