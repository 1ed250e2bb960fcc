//! The entries of a tree that can make a program of the host execute something, found by name alone.
//!
//! Names are compared without letter case: a workspace may lie on a file system that does so.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use super::SurveyError;
use super::root_handle::RootHandle;
use super::walk::{Patience, WalkEntry, WalkShield, WalkVisitor, walk};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    /// From the root.
    pub(crate) relative: PathBuf,
    pub(crate) kind: CandidateKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CandidateKind {
    /// An entry with the name `.git`.
    Git,
    /// A directory with a `HEAD`: git takes it for a repository if `objects` and `refs`, or `commondir`, are there too.
    Head,
    /// A directory with a `config` below one that git may take for its own: a `commondir` can lead there, also without a `HEAD`.
    InnerConfig,
    /// The directory of another version control system.
    OtherSystem,
    /// A directory with a `format`: with `db` too it is a Subversion repository, which has hooks of its own.
    Subversion,
    /// A symbolic link that leaves its root.
    Link,
    /// A symbolic link that stays in its root, a pipe or a device: a version control system follows or opens it where it lies
    /// in its directory.
    InnerLink,
    /// A directory that cannot be listed, or by root alone.
    Closed,
}

/// Directories of other version control systems that have files which execute.
pub(crate) const OTHER_SYSTEMS: [&str; 6] = [".hg", ".sl", ".jj", ".bzr", "_darcs", ".pijul"];

/// All candidates below `ground`.
pub(crate) fn seek(ground: &RootHandle, patience: Patience) -> Result<Vec<Candidate>, SurveyError> {
    let visitors = walk(ground, patience, Seek::default)?;
    Ok(visitors.into_iter().flat_map(|visitor| visitor.found).collect())
}

#[derive(Default)]
struct Seek {
    found: Vec<Candidate>,
}

impl WalkVisitor for Seek {
    fn entry(&mut self, entry: &WalkEntry<'_>) -> Result<WalkShield, SurveyError> {
        self.found.extend(candidates(entry));
        Ok(WalkShield::AsAbove)
    }

    fn unreadable(&mut self, _ground: &RootHandle, relative: &Path) -> Result<(), SurveyError> {
        self.closed_to_owner(relative);
        Ok(())
    }

    fn closed_to_owner(&mut self, relative: &Path) {
        self.found.push(Candidate { relative: relative.to_owned(), kind: CandidateKind::Closed });
    }
}

pub(super) fn candidates(entry: &WalkEntry<'_>) -> impl Iterator<Item = Candidate> {
    let named = by_name(entry);
    let is_whole = named.as_ref().is_some_and(|named| named.relative == entry.relative);
    let followed = if is_whole { None } else { by_kind(entry) };
    named.into_iter().chain(followed)
}

fn by_name(entry: &WalkEntry<'_>) -> Option<Candidate> {
    let name = entry.name.to_bytes();
    let here = |kind| Some(Candidate { relative: entry.path(), kind });
    let above = |levels: usize, kind| {
        let relative = entry.relative.ancestors().nth(levels)?.to_owned();
        entry.keeps(relative.as_os_str().len());
        Some(Candidate { relative, kind })
    };
    match name.first() {
        Some(b'.') if name.eq_ignore_ascii_case(b".git") => here(CandidateKind::Git),
        Some(b'.' | b'_') if is_other_system(name) => here(CandidateKind::OtherSystem),
        Some(b'h' | b'H') if name.eq_ignore_ascii_case(b"HEAD") => above(1, CandidateKind::Head),
        Some(b'c' | b'C') if name.eq_ignore_ascii_case(b"config") => above(1, CandidateKind::InnerConfig),
        Some(b'f' | b'F') if name.eq_ignore_ascii_case(b"format") => above(1, CandidateKind::Subversion),
        _ => None,
    }
}

fn by_kind(entry: &WalkEntry<'_>) -> Option<Candidate> {
    let kind = match entry.kind {
        FileType::Symlink if leaves(entry) => CandidateKind::Link,
        FileType::Symlink | FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice => {
            CandidateKind::InnerLink
        }
        _ => return None,
    };
    Some(Candidate { relative: entry.path(), kind })
}

/// Whether a path lies, by the names above it, in the directory of a version control system.
pub(crate) fn is_in_version_control(relative: &Path) -> bool {
    let above = relative.parent().unwrap_or(Path::new(""));
    above.iter().any(|name| {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        is(".git") || is(".svn") || is_other_system(name.as_bytes())
    })
}

fn is_other_system(name: &[u8]) -> bool {
    OTHER_SYSTEMS.iter().any(|system| name.eq_ignore_ascii_case(system.as_bytes()))
}

/// Whether the text of a link can lead out of the root. A link through another link counts by that one: it is an entry too.
fn leaves(entry: &WalkEntry<'_>) -> bool {
    let Ok(text) = rustix::fs::readlinkat(entry.directory, entry.name, Vec::new()) else { return false };
    let mut depth = entry.relative.components().count().saturating_sub(1);
    let mut entered = false;
    for component in Path::new(OsStr::from_bytes(text.to_bytes())).components() {
        match component {
            Component::RootDir | Component::Prefix(_) => return true,
            // What `..` means after a name depends on whether that name is a link.
            Component::ParentDir if entered || depth == 0 => return true,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => entered = true,
            Component::CurDir => {}
        }
    }
    false
}
