//! Reads an upper against its root: every entry that may differ.
//!
//! The cost grows with what the upper has and with what it hides, never with what else is in the root.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::vec;

use rustix::fs::Stat;
use rustix::io::Errno;

use crate::attributes::OverlayMarks;
use crate::beneath::{HeldTree, is_whiteout, names, stat_at};
use crate::change::UnlandableReason;
use crate::error::LayerError;
use crate::stamp::Stamp;

/// Longer paths cannot be named in one call: KERNEL: PATH_MAX is 4096, with the end and the names that landing makes up.
const LONGEST: usize = 3800;

/// Permissions of entries of an upper from before they were made readable for their owner.
pub(crate) type RecordedModes = HashMap<PathBuf, u32>;

/// An entry of the upper, or one that the upper hides, with what the root has there.
#[derive(Clone, Debug)]
pub(crate) struct UpperCandidate {
    pub(crate) path: PathBuf,
    pub(crate) upper: Option<UpperEntry>,
    pub(crate) host: Option<Stamp>,
}

#[derive(Clone, Debug)]
pub(crate) struct UpperEntry {
    /// With the permissions that the call gave it.
    pub(crate) stamp: Stamp,
    /// It has other permissions now.
    pub(crate) relaxed: bool,
    /// The file has other names too.
    pub(crate) shared: bool,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(crate) struct UpperContents {
    /// A directory comes before its entries, and names are in order.
    pub(crate) candidates: Vec<UpperCandidate>,
    /// Neither these nor anything below them lands.
    pub(crate) refused: BTreeMap<PathBuf, UnlandableReason>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sides {
    /// The view shows both; the upper wins.
    Merged,
    /// The view shows the upper alone, and the root has a directory too.
    Opaque,
    Upper,
    Host,
}

struct Frame {
    path: PathBuf,
    sides: Sides,
    entries: vec::IntoIter<FrameEntry>,
}

struct FrameEntry {
    name: OsString,
    upper: Option<UpperEntry>,
    host: Option<Stamp>,
}

/// Why the entries of a directory are not looked at.
enum ListingError {
    Refused(UnlandableReason),
    Failed(LayerError),
}

pub(crate) struct Walk<'a> {
    pub(crate) upper: &'a HeldTree,
    pub(crate) host: &'a HeldTree,
    pub(crate) modes: &'a RecordedModes,
}

impl Walk<'_> {
    pub(crate) fn run(&self) -> Result<UpperContents, LayerError> {
        let mut contents = UpperContents::default();
        let top = Path::new("");
        let look = |tree: &HeldTree| tree.stat(top).map_err(|errno| tree.failed("look at", top, errno));
        let upper = look(self.upper)?.map(|stat| self.entry(top, &stat));
        let host = look(self.host)?.map(|stat| Stamp::of(&stat));
        contents.candidates.push(UpperCandidate { path: PathBuf::new(), upper, host });
        let mut frames = Vec::new();
        self.enter(PathBuf::new(), Sides::Merged, &mut frames, &mut contents)?;
        while let Some(frame) = frames.last_mut() {
            let Some(entry) = frame.entries.next() else {
                frames.pop();
                continue;
            };
            let path = frame.path.join(&entry.name);
            if path.as_os_str().len() > LONGEST {
                contents.refused.insert(path, UnlandableReason::PathTooLong);
                continue;
            }
            let below = sides_below(frame.sides, &entry);
            contents.candidates.push(UpperCandidate {
                path: path.clone(),
                upper: entry.upper,
                host: entry.host,
            });
            if let Some(sides) = below {
                self.enter(path, sides, &mut frames, &mut contents)?;
            }
        }
        Ok(contents)
    }

    fn enter(
        &self,
        path: PathBuf,
        sides: Sides,
        frames: &mut Vec<Frame>,
        contents: &mut UpperContents,
    ) -> Result<(), LayerError> {
        match self.list(path.clone(), sides) {
            Ok(frame) => frames.push(frame),
            Err(ListingError::Refused(reason)) => {
                contents.refused.insert(path, reason);
            }
            Err(ListingError::Failed(error)) => return Err(error),
        }
        Ok(())
    }

    fn list(&self, path: PathBuf, sides: Sides) -> Result<Frame, ListingError> {
        let mut sides = sides;
        let mut found = BTreeMap::new();
        if sides != Sides::Host {
            let marks = self.list_upper(&path, &mut found)?;
            if sides == Sides::Merged && marks.opaque {
                sides = Sides::Opaque;
            }
        }
        if sides != Sides::Upper {
            self.list_host(&path, sides, &mut found)?;
        }
        let visible = |entry: &FrameEntry| entry.upper.is_some() || entry.host.is_some();
        let entries: Vec<FrameEntry> = found.into_values().filter(visible).collect();
        Ok(Frame { path, sides, entries: entries.into_iter() })
    }

    fn list_upper(
        &self,
        path: &Path,
        found: &mut BTreeMap<OsString, FrameEntry>,
    ) -> Result<OverlayMarks, ListingError> {
        let failed = |errno| match errno {
            Errno::ACCESS => ListingError::Refused(UnlandableReason::Unreadable),
            errno => ListingError::Failed(self.upper.failed("read", path, errno)),
        };
        let directory = self.upper.directory(path).map_err(failed)?;
        let marks = OverlayMarks::of(directory.as_fd()).map_err(failed)?;
        if marks.foreign {
            return Err(ListingError::Refused(UnlandableReason::UnknownOverlay));
        }
        for name in names(directory.as_fd()).map_err(failed)? {
            let Some(stat) = stat_at(directory.as_fd(), &name).map_err(failed)? else { continue };
            let upper = (!is_whiteout(&stat)).then(|| self.entry(&path.join(&name), &stat));
            found.insert(name.clone(), FrameEntry { name, upper, host: None });
        }
        Ok(marks)
    }

    fn list_host(
        &self,
        path: &Path,
        sides: Sides,
        found: &mut BTreeMap<OsString, FrameEntry>,
    ) -> Result<(), ListingError> {
        let failed = |errno| match errno {
            Errno::ACCESS => ListingError::Refused(UnlandableReason::Unreadable),
            Errno::XDEV => ListingError::Refused(UnlandableReason::OtherFileSystem),
            errno => ListingError::Failed(self.host.failed("read", path, errno)),
        };
        let opened = match sides {
            Sides::Merged => self.host.place(path),
            _ => self.host.directory(path),
        };
        let directory = match opened {
            // The host removed or replaced it a moment ago.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            opened => opened.map_err(failed)?,
        };
        let listed: Vec<OsString> = match sides {
            Sides::Merged => found.keys().cloned().collect(),
            _ => names(directory.as_fd()).map_err(failed)?,
        };
        for name in listed {
            let Some(stat) = stat_at(directory.as_fd(), &name).map_err(failed)? else { continue };
            let host = Some(Stamp::of(&stat));
            match found.get_mut(&name) {
                Some(entry) => entry.host = host,
                None => {
                    found.insert(name.clone(), FrameEntry { name, upper: None, host });
                }
            }
        }
        Ok(())
    }

    fn entry(&self, path: &Path, stat: &Stat) -> UpperEntry {
        let mut stamp = Stamp::of(stat);
        let shared = !stamp.is_directory() && stat.st_nlink > 1;
        let recorded = self.modes.get(path);
        if let Some(mode) = recorded {
            stamp.mode = (stamp.mode & !0o7777) | mode;
        }
        UpperEntry { stamp, relaxed: recorded.is_some(), shared }
    }
}

fn sides_below(above: Sides, entry: &FrameEntry) -> Option<Sides> {
    let upper = entry.upper.as_ref().is_some_and(|upper| upper.stamp.is_directory());
    let host = entry.host.as_ref().is_some_and(Stamp::is_directory);
    match (upper, host) {
        (true, true) if above == Sides::Opaque => Some(Sides::Opaque),
        (true, true) => Some(Sides::Merged),
        (true, false) => Some(Sides::Upper),
        (false, true) => Some(Sides::Host),
        (false, false) => None,
    }
}

/// The entries of an upper that their owner cannot read, with their permissions. They are reported before anything changes.
pub(crate) fn unreadable(upper: &HeldTree) -> Result<Vec<PathBuf>, LayerError> {
    let mut found = BTreeSet::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        let failed = |errno| upper.failed("read", &path, errno);
        let directory = match upper.directory(&path) {
            Err(Errno::ACCESS) => continue,
            opened => opened.map_err(failed)?,
        };
        for name in names(directory.as_fd()).map_err(failed)? {
            let stat = match stat_at(directory.as_fd(), &name) {
                // It can be listed and not entered.
                Err(Errno::ACCESS) => break,
                stat => stat.map_err(failed)?,
            };
            let Some(stamp) = stat.map(|stat| Stamp::of(&stat)) else { continue };
            let below = path.join(&name);
            if below.as_os_str().as_bytes().len() > LONGEST {
                continue;
            }
            if stamp.is_directory() {
                pending.push(below.clone());
            }
            if stamp.permissions() & needed(&stamp) != needed(&stamp) {
                found.insert(below);
            }
        }
    }
    Ok(found.into_iter().collect())
}

/// What the owner needs to work with an entry of an upper.
pub(crate) fn needed(stamp: &Stamp) -> u32 {
    match stamp.kind() {
        ringfence_types::EntryKind::Directory => 0o700,
        ringfence_types::EntryKind::File => 0o400,
        _ => 0,
    }
}
