//! What tells one version of an entry from another.

use ringfence_types::EntryKind;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

use crate::beneath::entry_kind;
use crate::change::{EntryState, EntryTime};

/// An entry as it was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// With the type.
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    pub(crate) group: u32,
    pub(crate) bytes: u64,
    pub(crate) modified: EntryTime,
    /// The time of the last change of anything, which no program can set.
    pub(crate) changed: EntryTime,
    /// Of the content, where times alone cannot tell two versions apart.
    pub(crate) digest: Option<String>,
}

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            mode: stat.st_mode,
            owner: stat.st_uid,
            group: stat.st_gid,
            bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
            digest: None,
        }
    }

    pub(crate) fn kind(&self) -> EntryKind {
        entry_kind(self.mode)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind() == EntryKind::Directory
    }

    pub(crate) fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    pub(crate) fn state(&self, digest: Option<String>) -> EntryState {
        let directory = self.is_directory();
        EntryState {
            kind: self.kind(),
            mode: self.permissions(),
            digest,
            // The size of a directory says nothing.
            bytes: if directory { 0 } else { self.bytes },
            modified: self.modified,
        }
    }

    /// INVARIANT: both are of one file system. KERNEL: the number of a device may be another after a start of the machine.
    pub(crate) fn is_same_inode(&self, other: &Self) -> bool {
        self.inode == other.inode && self.kind() == other.kind()
    }

    /// The same version of the same entry, also after a rename, which changes `changed`. Of a directory its entries are looked at
    /// one by one, and its permissions are set last.
    pub(crate) fn is_same_version(&self, other: &Self) -> bool {
        let same = self.is_same_inode(other);
        if self.is_directory() {
            return same;
        }
        same && self.mode == other.mode
            && self.owner == other.owner
            && self.group == other.group
            && self.bytes == other.bytes
            && self.modified == other.modified
    }

    /// Nothing happened to it, not even a rename. Directories change with their entries.
    pub(crate) fn is_untouched(&self, other: &Self) -> bool {
        let directory = self.is_directory();
        self.is_same_version(other) && self.mode == other.mode && (directory || self.changed == other.changed)
    }
}

fn time(seconds: i64, nanos: u64) -> EntryTime {
    EntryTime { seconds, nanos: u32::try_from(nanos).unwrap_or_default() }
}
