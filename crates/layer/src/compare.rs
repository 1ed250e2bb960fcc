//! Tells what a candidate is: a change, nothing, or something that never lands.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use ringfence_types::{ByteString, EntryKind};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::attributes::{self, OverlayMarks};
use crate::beneath::HeldTree;
use crate::change::{ChangeKind, EntryState, LayerChange, RefusedEntry, UnlandableReason};
use crate::digest::DigestCache;
use crate::error::LayerError;
use crate::stamp::Stamp;
use crate::walk::{UpperCandidate, UpperContents, UpperEntry};

/// A change with what was seen of it.
#[derive(Clone, Debug)]
pub(crate) struct ComparedChange {
    pub(crate) change: LayerChange,
    pub(crate) upper: Option<UpperEntry>,
    pub(crate) host: Option<Stamp>,
}

#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) changes: Vec<ComparedChange>,
    pub(crate) refused: Vec<RefusedEntry>,
}

pub(crate) struct Comparer<'a> {
    pub(crate) root: &'a ByteString,
    pub(crate) upper: &'a HeldTree,
    pub(crate) host: &'a HeldTree,
    pub(crate) digests: &'a DigestCache,
}

enum Verdict {
    Change(ChangeKind),
    Nothing,
    Refused(UnlandableReason),
}

impl Comparer<'_> {
    pub(crate) fn compare(&self, contents: UpperContents) -> Result<Comparison, LayerError> {
        let mut comparison = Comparison::default();
        let mut refused: Option<PathBuf> = None;
        let mut reported = BTreeMap::new();
        for candidate in contents.candidates {
            if refused.as_ref().is_some_and(|above| candidate.path.starts_with(above)) {
                continue;
            }
            let verdict = match contents.refused.get(&candidate.path) {
                Some(reason) => Verdict::Refused(*reason),
                None => self.judge(&candidate)?,
            };
            match verdict {
                Verdict::Nothing => {}
                Verdict::Refused(reason) => {
                    reported.insert(candidate.path.clone(), reason);
                    refused = Some(candidate.path);
                }
                Verdict::Change(kind) => {
                    comparison.changes.push(self.change(candidate, kind)?);
                }
            }
        }
        for (path, reason) in contents.refused {
            if !reported.keys().any(|above: &PathBuf| path.starts_with(above)) {
                reported.insert(path, reason);
            }
        }
        let entry = |path: PathBuf, reason| RefusedEntry {
            root: self.root.clone(),
            path: ByteString::from(path),
            reason,
        };
        comparison.refused = reported.into_iter().map(|(path, reason)| entry(path, reason)).collect();
        Ok(comparison)
    }

    fn judge(&self, candidate: &UpperCandidate) -> Result<Verdict, LayerError> {
        let path = &candidate.path;
        let Some(upper) = &candidate.upper else {
            let there = candidate.host.is_some();
            return Ok(if there { Verdict::Change(ChangeKind::Deleted) } else { Verdict::Nothing });
        };
        if let Some(reason) = unlandable(&upper.stamp) {
            return Ok(Verdict::Refused(reason));
        }
        let marks = match self.marks(upper, path) {
            Err(Errno::ACCESS) => return Ok(Verdict::Refused(UnlandableReason::Unreadable)),
            marks => marks.map_err(|errno| self.upper.failed("read", path, errno))?,
        };
        if marks.privileged {
            return Ok(Verdict::Refused(UnlandableReason::Privileged));
        }
        if marks.foreign {
            return Ok(Verdict::Refused(UnlandableReason::UnknownOverlay));
        }
        let Some(host) = &candidate.host else {
            return Ok(Verdict::Change(ChangeKind::Created));
        };
        Ok(match (upper.stamp.kind(), host.kind()) {
            (_, EntryKind::Other) => Verdict::Refused(UnlandableReason::HostSpecial),
            (EntryKind::Directory, EntryKind::Directory) => {
                let same = upper.stamp.permissions() == host.permissions();
                if same { Verdict::Nothing } else { Verdict::Change(ChangeKind::Metadata) }
            }
            (EntryKind::File, EntryKind::File) => self.judge_file(upper, host, path)?,
            (EntryKind::Link, EntryKind::Link) => {
                let same =
                    self.digest(self.upper, path, &upper.stamp)? == self.digest(self.host, path, host)?;
                if same { Verdict::Nothing } else { Verdict::Change(ChangeKind::Modified) }
            }
            _ => Verdict::Change(ChangeKind::Replaced),
        })
    }

    fn judge_file(&self, upper: &UpperEntry, host: &Stamp, path: &Path) -> Result<Verdict, LayerError> {
        let other = upper.stamp.bytes != host.bytes
            || self.digest(self.upper, path, &upper.stamp)? != self.digest(self.host, path, host)?;
        if other {
            return Ok(Verdict::Change(ChangeKind::Modified));
        }
        let same = upper.stamp.mode == host.mode
            && upper.stamp.owner == host.owner
            && upper.stamp.group == host.group
            && upper.stamp.modified == host.modified
            && self.attributes(self.upper, path)? == self.attributes(self.host, path)?;
        Ok(if same { Verdict::Nothing } else { Verdict::Change(ChangeKind::Metadata) })
    }

    fn attributes(&self, tree: &HeldTree, path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, LayerError> {
        match tree.file(path).and_then(|file| attributes::visible(file.as_fd())) {
            Ok(found) => Ok(found),
            // The content was the same a moment ago: the host has just removed or locked it.
            Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(BTreeMap::new()),
            Err(errno) => Err(tree.failed("read", path, errno)),
        }
    }

    fn marks(&self, upper: &UpperEntry, path: &Path) -> Result<OverlayMarks, Errno> {
        let opened: OwnedFd = match upper.stamp.kind() {
            EntryKind::Directory => self.upper.directory(path)?,
            EntryKind::File => self.upper.file(path)?,
            // KERNEL: links have no attributes of users.
            _ => return Ok(OverlayMarks::default()),
        };
        OverlayMarks::of(opened.as_fd())
    }

    fn change(&self, candidate: UpperCandidate, kind: ChangeKind) -> Result<ComparedChange, LayerError> {
        let UpperCandidate { path, upper, host } = candidate;
        let before = self.state(self.host, &path, host.as_ref())?;
        let mut after = self.state(self.upper, &path, upper.as_ref().map(|upper| &upper.stamp))?;
        if let Some(after) = &mut after
            && after.kind == EntryKind::Directory
        {
            after.mode &= !0o4000;
        }
        let change = LayerChange {
            root: self.root.clone(),
            path: ByteString::from(path),
            kind,
            before,
            after,
            landed: None,
        };
        Ok(ComparedChange { change, upper, host })
    }

    fn state(
        &self,
        tree: &HeldTree,
        path: &Path,
        stamp: Option<&Stamp>,
    ) -> Result<Option<EntryState>, LayerError> {
        let Some(stamp) = stamp else { return Ok(None) };
        Ok(Some(stamp.state(self.digest(tree, path, stamp)?)))
    }

    fn digest(&self, tree: &HeldTree, path: &Path, stamp: &Stamp) -> Result<Option<String>, LayerError> {
        self.digests.of(tree, path, stamp).map_err(|errno| tree.failed("read", path, errno))
    }
}

fn unlandable(stamp: &Stamp) -> Option<UnlandableReason> {
    match FileType::from_raw_mode(stamp.mode) {
        FileType::Fifo => Some(UnlandableReason::Fifo),
        FileType::Socket => Some(UnlandableReason::Socket),
        FileType::Directory | FileType::Symlink => None,
        // The set-group-id bit of a directory says which group new entries get.
        FileType::RegularFile if stamp.mode & 0o6000 == 0 => None,
        FileType::RegularFile => Some(UnlandableReason::Privileged),
        _ => Some(UnlandableReason::Device),
    }
}
