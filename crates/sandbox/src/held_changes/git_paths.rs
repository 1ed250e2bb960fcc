//! The paths that git takes from its own files without a check: those of the index, and of the conflicts that `rerere` knows.
//!
//! Git checks a path that comes from a tree and trusts one that is in the index already. A command can write an index by itself,
//! and `git restore .` of the host then writes a hook, or a file outside of the checkout. `git commit` of the host replaces, or
//! copies, each file that `MERGE_RR` names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::untracked_cache::listed_directories;

/// Larger indexes are not read, and so not trusted. A million files have about 100 MB.
pub(super) const MAX_INDEX: u64 = 256 * 1024 * 1024;
/// The bytes of all paths of an index, which an index of version 4 writes shorter than they are: each can begin as the one before.
/// Two million files have about 200 MB. More are not read, and so not trusted: a small file could have paths that take days.
const MOST_PATHS: usize = 512 * 1024 * 1024;

/// How long the name of an object is in a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectFormat {
    Sha1,
    Sha256,
}

impl ObjectFormat {
    fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
}

/// What an index leads git to besides its entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CheckedIndex {
    /// The indexes that it is based on, by the names of their files.
    pub(super) shared: Vec<String>,
    /// Directories that git lists, from the checkout.
    pub(super) listed: Vec<PathBuf>,
}

/// `None` where git could read a path from an index that git itself would not have put there, or where it is no index.
pub(super) fn checked_index(content: &[u8], format: ObjectFormat) -> Option<CheckedIndex> {
    read_index(content, format, |_| {})
}

/// One entry of an index.
#[derive(Clone, Copy, Debug)]
pub struct GitIndexEntry<'e> {
    pub mode: u32,
    pub path: &'e [u8],
    /// What `git add` would resolve.
    pub is_conflict: bool,
}

impl GitIndexEntry<'_> {
    /// Whether git takes the entry for a submodule. It looks at the upper bits alone.
    pub fn is_submodule(&self) -> bool {
        const KIND: u32 = 0o170_000;
        self.mode & KIND == 0o160_000
    }
}

/// Shows each entry of an index to `visit`, and returns the names of the indexes that it is based on. `None` where
/// git could read a path from it that git itself would not have put there, or where it is no index.
pub fn visit_index(
    content: &[u8],
    format: ObjectFormat,
    visit: impl FnMut(GitIndexEntry<'_>),
) -> Option<Vec<String>> {
    read_index(content, format, visit).map(|index| index.shared)
}

fn read_index(
    content: &[u8],
    format: ObjectFormat,
    mut visit: impl FnMut(GitIndexEntry<'_>),
) -> Option<CheckedIndex> {
    let mut entries = IndexEntries::begin(content, format)?;
    while entries.left > 0 {
        let EntryBits { mode, flags } = entries.next_entry()?;
        let is_conflict = flags & IndexEntries::STAGE != 0;
        visit(GitIndexEntry { mode, path: &entries.name, is_conflict });
    }
    entries.extensions()
}

/// Whether each conflict of a `MERGE_RR` has a path that git could have put there, and that is not `held`. Git follows a link on the
/// way to it.
pub(super) fn is_plain_conflicts(content: &[u8], is_held: &dyn Fn(&Path) -> bool) -> bool {
    let Some(content) = content.strip_suffix(b"\0") else { return content.is_empty() };
    content.split(|byte| *byte == 0).all(|conflict| {
        let at = conflict.iter().position(|byte| *byte == b'\t').unwrap_or(conflict.len());
        let (id, path) = conflict.split_at(at);
        let path = path.strip_prefix(b"\t").unwrap_or_default();
        is_conflict_id(id)
            && !path.is_empty()
            && is_plain_path(path)
            && !is_held(Path::new(OsStr::from_bytes(path)))
    })
}

/// The digest of a conflict, alone or with the number of a variant. Git skips white space before that number: another path than
/// the first one could follow.
fn is_conflict_id(id: &[u8]) -> bool {
    let mut parts = id.splitn(2, |byte| *byte == b'.');
    let digest = parts.next().unwrap_or_default();
    let is_number = |number: &[u8]| {
        let digits = number.strip_prefix(b"-").unwrap_or(number);
        !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
    };
    digest.iter().all(u8::is_ascii_hexdigit) && parts.next().is_none_or(is_number)
}

/// Whether a path stays in the checkout and out of every git directory.
pub(super) fn is_plain_path(path: &[u8]) -> bool {
    // In a split index an entry that stands for one of the shared index has no path, in a sparse one a directory ends in a slash.
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.is_empty() || path.split(|byte| *byte == b'/').all(is_plain_name)
}

pub(super) fn is_plain_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&0) && !is_git(name)
}

/// Whether some file system takes a name for `.git`, by git's own rules.
fn is_git(name: &[u8]) -> bool {
    // Most names begin otherwise, and what is ignored is not ASCII.
    if name.first().is_some_and(|first| first.is_ascii() && !b".gG".contains(first)) {
        return false;
    }
    let ignored = |c: &char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let folded: String = String::from_utf8_lossy(name).chars().filter(|c| !ignored(c)).collect();
    let first =
        folded.split(':').next().unwrap_or_default().trim_end_matches([' ', '.']).to_ascii_lowercase();
    first == ".git" || first == "git~1"
}

/// Reads an index as git does.
struct IndexEntries<'c> {
    content: &'c [u8],
    format: ObjectFormat,
    version: u32,
    left: u32,
    at: usize,
    name: Vec<u8>,
    /// The bytes of all names so far.
    named: usize,
    /// Where each entry begins, and whether its name needs the one before.
    starts: Vec<(usize, NameForm)>,
}

struct EntryBits {
    mode: u32,
    flags: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameForm {
    Whole,
    Continued,
}

impl<'c> IndexEntries<'c> {
    const EXTENDED: u16 = 0x4000;
    const STAGE: u16 = 0x3000;
    const LENGTH: u16 = 0x0fff;

    fn begin(content: &'c [u8], format: ObjectFormat) -> Option<Self> {
        let version = number(content, 4).filter(|version| (2..=4).contains(version))?;
        let left = number(content, 8)?;
        content.starts_with(b"DIRC").then_some(Self {
            content,
            format,
            version,
            left,
            at: 12,
            name: Vec::new(),
            named: 0,
            starts: Vec::new(),
        })
    }

    /// `name` is the path of the entry then.
    fn next_entry(&mut self) -> Option<EntryBits> {
        let begin = self.at;
        // Times, device and inode come first.
        let mode = number(self.content, begin + 24)?;
        let mut at = begin + 40 + self.format.bytes();
        let flags = u16::from_be_bytes(self.content.get(at..at + 2)?.try_into().ok()?);
        at += if flags & Self::EXTENDED == 0 { 2 } else { 4 };
        let length = usize::from(flags & Self::LENGTH);
        let is_long = length == usize::from(Self::LENGTH);
        let kept = if self.version == 4 {
            let removed = offset(self.content, &mut at)?;
            self.name.len().checked_sub(removed)?
        } else {
            0
        };
        let rest = self.content.get(at..)?;
        let fresh = match is_long {
            true => rest.iter().position(|byte| *byte == 0)?,
            false => length.checked_sub(kept)?,
        };
        self.name.truncate(kept);
        self.name.extend_from_slice(rest.get(..fresh)?);
        self.named += self.name.len();
        if self.named > MOST_PATHS || !is_plain_path(&self.name) {
            return None;
        }
        let end = at + fresh;
        self.at = if self.version == 4 { end + 1 } else { begin + ((end - begin + 8) & !7) };
        // A reader that looks for the end of the name would find another.
        if !self.content.get(end..self.at)?.iter().all(|byte| *byte == 0) {
            return None;
        }
        self.left -= 1;
        self.starts.push((begin, if kept == 0 { NameForm::Whole } else { NameForm::Continued }));
        Some(EntryBits { mode, flags })
    }

    /// What follows the entries. Git reads a large index in parts, from where two tables of it say that they begin: the tables
    /// say what is so.
    fn extensions(&mut self) -> Option<CheckedIndex> {
        let entries_end = self.at;
        let end = self.content.len().checked_sub(self.format.bytes())?;
        let (mut shared, mut listed) = (Vec::new(), Vec::new());
        let mut last = None;
        while self.at + 8 <= end {
            let name = self.content.get(self.at..self.at + 4)?;
            let size = usize::try_from(number(self.content, self.at + 4)?).ok()?;
            let begin = self.at + 8;
            let data = self.content.get(begin..begin + size).filter(|_| begin + size <= end)?;
            match name {
                b"UNTR" => listed.extend(listed_directories(data, self.format.bytes())?),
                b"link" => shared.push(hex(data.get(..self.format.bytes())?)),
                b"IEOT" => self.check_blocks(data)?,
                b"EOIE" => {
                    number(data, 0).filter(|offset| usize::try_from(*offset) == Ok(entries_end)).map(drop)?
                }
                _ => {}
            }
            last = Some(self.at);
            self.at = begin + size;
        }
        self.check_end(end, last)?;
        shared.retain(|base| base.bytes().any(|digit| digit != b'0'));
        let shared = shared.into_iter().map(|base| format!("sharedindex.{base}")).collect();
        Some(CheckedIndex { shared, listed })
    }

    /// The table of the end is found by its place before the checksum, so nothing else may look like it there.
    fn check_end(&self, end: usize, last: Option<usize>) -> Option<()> {
        let place = end.checked_sub(8 + 4 + self.format.bytes());
        let looks_so = place.is_some_and(|place| self.content.get(place..place + 4) == Some(b"EOIE"));
        (!looks_so || place == last).then_some(())
    }

    fn check_blocks(&self, table: &[u8]) -> Option<()> {
        let mut entry = 0;
        for block in table.get(4..)?.chunks(8) {
            let begin = usize::try_from(number(block, 0)?).ok()?;
            let count = usize::try_from(number(block, 4)?).ok()?;
            let (start, form) = *self.starts.get(entry)?;
            if start != begin || form != NameForm::Whole || count == 0 {
                return None;
            }
            entry += count;
        }
        (entry == self.starts.len()).then_some(())
    }
}

fn number(content: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(content.get(at..at + 4)?.try_into().ok()?))
}

/// A number of any length: seven bits in each byte, all but the last with the eighth set.
pub(super) fn offset(content: &[u8], at: &mut usize) -> Option<usize> {
    let mut byte = *content.get(*at)?;
    *at += 1;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = *content.get(*at)?;
        *at += 1;
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    Some(value)
}

fn hex(bytes: &[u8]) -> String {
    ringfence_types::hex(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    /// An index with one entry.
    fn index(name: &[u8]) -> Vec<u8> {
        let mut out = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
        out.extend([0; 24]);
        out.extend(0o100_644_u32.to_be_bytes());
        out.extend([0; 12 + 20]);
        out.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
        out.extend(name);
        let length = (62 + name.len() + 8) & !7;
        out.resize(12 + length, 0);
        out.extend([0; 20]);
        out
    }

    #[test]
    fn a_path_that_leads_out_or_into_a_git_directory_is_refused() {
        for name in ["a", "a/b", ".github/x", ".gitignore", "a/.git.txt", "sparse/", "git", "...", "é"] {
            assert_eq!(
                checked_index(&index(name.as_bytes()), ObjectFormat::Sha1),
                Some(CheckedIndex::default()),
                "{name}"
            );
        }
        for name in [
            "../a",
            "/etc/x",
            "a/../b",
            "a//b",
            ".",
            "..",
            ".git/config",
            "a/.git/hooks/x",
            ".GIT/config",
            ".git./x",
            ".git /x",
            "GIT~1/x",
            ".g\u{200c}it/x",
            ".git::$INDEX_ALLOCATION/x",
            "a\0b",
        ] {
            assert_eq!(checked_index(&index(name.as_bytes()), ObjectFormat::Sha1), None, "{name}");
        }
        assert_eq!(checked_index(b"", ObjectFormat::Sha1), None);
        assert_eq!(checked_index(&index(b"a")[..70], ObjectFormat::Sha1), None, "cut off");
    }

    #[test]
    fn a_name_ends_in_zero_bytes() {
        let mut padded = index(b"ab");
        let end = 12 + 62 + 2;
        assert_eq!(checked_index(&padded, ObjectFormat::Sha1), Some(CheckedIndex::default()), "control");
        padded[end + 3] = b'x';
        assert_eq!(checked_index(&padded, ObjectFormat::Sha1), None);
        let mut short = compressed(8, 1);
        let end = short.len() - 21;
        assert_eq!(checked_index(&short, ObjectFormat::Sha1), Some(CheckedIndex::default()), "control");
        // The length that the entry states ends before the zero byte.
        short[12 + 60..12 + 62].copy_from_slice(&4_u16.to_be_bytes());
        assert_eq!(short[end], 0);
        assert_eq!(checked_index(&short, ObjectFormat::Sha1), None);
    }

    /// In version 4 each path begins as the one before.
    fn compressed(first: usize, entries: u32) -> Vec<u8> {
        let mut out = b"DIRC\0\0\0\x04".to_vec();
        out.extend(entries.to_be_bytes());
        for number in 0..entries {
            out.extend([0; 40 + 20]);
            out.extend(IndexEntries::LENGTH.to_be_bytes());
            match number {
                0 => out.extend([b"\0", &vec![b'a'; first][..], b"\0"].concat()),
                _ => out
                    .extend([b"\x01".as_slice(), if number % 2 == 0 { b"b" } else { b"c" }, b"\0"].concat()),
            }
        }
        out.extend([0; 20]);
        out
    }

    #[test]
    fn a_small_index_with_long_paths_is_not_trusted_and_takes_no_hours() {
        assert_eq!(
            checked_index(&compressed(5000, 50), ObjectFormat::Sha1),
            Some(CheckedIndex::default()),
            "control"
        );
        let begun = std::time::Instant::now();
        assert_eq!(checked_index(&compressed(4 << 20, 300_000), ObjectFormat::Sha1), None);
        assert!(begun.elapsed().as_secs() < 100, "{:?}", begun.elapsed());
    }

    /// Git starts at the places that the tables name, not behind the entry before.
    #[test]
    fn tables_that_name_other_entries_are_refused() {
        let with = |begin: u32, count: u32| {
            let mut out = index(b"a");
            let checksum = out.split_off(out.len() - 20);
            out.extend(b"IEOT\0\0\0\x0c\0\0\0\x01");
            out.extend(begin.to_be_bytes());
            out.extend(count.to_be_bytes());
            out.extend(checksum);
            checked_index(&out, ObjectFormat::Sha1)
        };
        assert_eq!(with(12, 1), Some(CheckedIndex::default()));
        assert_eq!(with(16, 1), None);
        assert_eq!(with(12, 2), None);
        assert_eq!(with(12, 0), None);
        let mut end = index(b"a");
        let checksum = end.split_off(end.len() - 20);
        end.extend(b"EOIE\0\0\0\x18");
        end.extend(13_u32.to_be_bytes());
        end.extend([0; 20]);
        end.extend(checksum);
        assert_eq!(checked_index(&end, ObjectFormat::Sha1), None);
    }

    #[test]
    fn conflicts_have_paths_of_the_checkout() {
        let none = |_: &Path| false;
        let held = |path: &Path| path == Path::new(".claude/settings.json");
        assert!(is_plain_conflicts(b"", &none));
        assert!(is_plain_conflicts(b"aa\ta/b\0bb.1\tc\0", &none));
        for text in [
            &b"aa\t.git/config\0"[..],
            b"aa\ta\0bb\t/etc/x\0",
            b"aa.-1\t../x\0",
            b"aa\ta",
            b"aa\0",
            b"aa\t\0",
            b"aa.\t-1\t.git/config\0",
            b"aa. 1\ta\0",
            b"aa.\ta\0",
        ] {
            assert!(!is_plain_conflicts(text, &none), "{text:?}");
        }
        assert!(!is_plain_conflicts(b"aa\t.claude/settings.json\0", &held));
    }

    /// Every form that git writes.
    #[test]
    fn every_index_of_git_itself_is_read() {
        let directory = tempfile::tempdir().unwrap();
        for (format, setup, extra) in [
            (ObjectFormat::Sha1, "git init -q .", ""),
            (ObjectFormat::Sha256, "git init -q --object-format=sha256 .", ""),
            (ObjectFormat::Sha1, "git init -q .; git config index.version 4", ""),
            (ObjectFormat::Sha1, "git init -q .", "echo n > n; git add -N n"),
            (
                ObjectFormat::Sha1,
                "git init -q .",
                "git update-index --untracked-cache; mkdir -p n/e d1/g/h; touch n/e/f d1/g/h/i d1/k; git status",
            ),
            (
                ObjectFormat::Sha256,
                "git init -q --object-format=sha256 .",
                "git update-index --force-untracked-cache; mkdir -p n/e; touch n/e/f; git status",
            ),
            (
                ObjectFormat::Sha1,
                "git init -q .",
                "git update-index --split-index; echo q > q; git add q; git rm -q --cached d1/f1",
            ),
            (
                ObjectFormat::Sha1,
                "git init -q .; git config index.threads 2; git config index.recordOffsetTable true; \
                 git config index.recordEndOfIndexEntries true; git config index.version 4",
                "",
            ),
            (
                ObjectFormat::Sha1,
                "git init -q .",
                "git -c user.name=a -c user.email=a commit -qm x; git sparse-checkout set --cone --sparse-index d1",
            ),
        ] {
            let root = directory.path().join(format!("{:x}", setup.len() * 1000 + extra.len()));
            fs::create_dir(&root).unwrap();
            let files = "for d in 1 2 3 4 5 6 7 8; do mkdir d$d; for f in 1 2 3 4 5 6 7 8; do echo $d$f > d$d/f$f; done; done; git add .";
            let script = format!("{setup}; {files}; {extra}");
            let run = Command::new("sh")
                .env("HOME", &root)
                .args(["-c", &script])
                .current_dir(&root)
                .output()
                .unwrap();
            assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
            let content = fs::read(root.join(".git/index")).unwrap();
            let CheckedIndex { shared, listed } =
                checked_index(&content, format).unwrap_or_else(|| panic!("{script}"));
            for name in &shared {
                let base = fs::read(root.join(".git").join(name)).unwrap();
                assert!(checked_index(&base, format).is_some(), "{script}");
            }
            assert_eq!(shared.is_empty(), !extra.contains("split"), "{script}");
            assert_eq!(listed.is_empty(), !extra.contains("untracked"), "{script}");
        }
    }
}
