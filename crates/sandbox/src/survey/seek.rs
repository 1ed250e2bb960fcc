//! The entries of a tree that can make a program of the host execute something, found by name alone.
//!
//! Names are compared without letter case: a workspace may lie on a file system that does so.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use super::SurveyError;
use super::at::Ground;
use super::walk::{Entry, Shield, Visitor, walk};

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
    /// The directory of another version control system.
    OtherSystem,
    /// A directory with `db/fs-type`: a Subversion repository with hooks of its own.
    Subversion,
    /// A symbolic link that leaves its root.
    Link,
    /// A directory that cannot be listed.
    Closed,
}

/// Directories of other version control systems.
pub(crate) const OTHER_SYSTEMS: [&str; 6] = [".hg", ".sl", ".jj", ".bzr", "_darcs", ".pijul"];

/// All candidates below `ground`.
pub(crate) fn seek(ground: &Ground) -> Result<Vec<Candidate>, SurveyError> {
    let visitors = walk(ground, Seek::default)?;
    Ok(visitors.into_iter().flat_map(|visitor| visitor.found).collect())
}

#[derive(Default)]
struct Seek {
    found: Vec<Candidate>,
}

impl Visitor for Seek {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Shield, SurveyError> {
        self.found.extend(candidate(entry));
        Ok(Shield::AsAbove)
    }

    fn unreadable(&mut self, _ground: &Ground, relative: &Path) -> Result<(), SurveyError> {
        self.found.push(Candidate { relative: relative.to_owned(), kind: CandidateKind::Closed });
        Ok(())
    }
}

pub(super) fn candidate(entry: &Entry<'_>) -> Option<Candidate> {
    let name = entry.name.to_bytes();
    let here = |kind| Some(Candidate { relative: entry.relative.to_owned(), kind });
    let above = |levels: usize, kind| {
        let relative = entry.relative.ancestors().nth(levels)?.to_owned();
        Some(Candidate { relative, kind })
    };
    match name.first() {
        Some(b'.') if name.eq_ignore_ascii_case(b".git") => here(CandidateKind::Git),
        Some(b'.' | b'_') if is_other_system(name) => here(CandidateKind::OtherSystem),
        Some(b'h' | b'H') if name.eq_ignore_ascii_case(b"HEAD") => above(1, CandidateKind::Head),
        Some(b'f' | b'F') if name.eq_ignore_ascii_case(b"fs-type") => above(2, CandidateKind::Subversion),
        _ if entry.kind == FileType::Symlink && leaves(entry) => here(CandidateKind::Link),
        _ => None,
    }
}

fn is_other_system(name: &[u8]) -> bool {
    OTHER_SYSTEMS.iter().any(|system| name.eq_ignore_ascii_case(system.as_bytes()))
}

/// Whether the text of a link can lead out of the root. A link through another link counts by that one: it is an entry too.
fn leaves(entry: &Entry<'_>) -> bool {
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
