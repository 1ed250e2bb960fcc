//! What a layer changes.

use std::fmt;
use std::path::{Path, PathBuf};

use ringfence_types::{ByteString, EntryKind};
use serde::{Deserialize, Serialize};

/// What became of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    Created,
    /// Other content.
    Modified,
    Deleted,
    /// Other permissions or times, the same content.
    Metadata,
    /// Another type: a file became a directory, a link became a file.
    Replaced,
}

impl ChangeKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
            Self::Metadata => "metadata",
            Self::Replaced => "replaced",
        }
    }
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntryTime {
    pub seconds: i64,
    pub nanos: u32,
}

/// An entry as it is on one side of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryState {
    pub kind: EntryKind,
    /// The permission bits.
    pub mode: u32,
    /// SHA-256 in hexadecimal of the content of a file or the target of a link. `None`: a directory, or nothing that can be read.
    pub digest: Option<String>,
    pub bytes: u64,
    pub modified: EntryTime,
}

/// Where the before-image of a landed change is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LandedSlot {
    pub landing: u32,
    pub entry: u32,
}

/// One entry that a layer changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerChange {
    pub root: ByteString,
    /// Relative to the root; empty for the root itself.
    pub path: ByteString,
    pub kind: ChangeKind,
    /// `None`: there was nothing.
    pub before: Option<EntryState>,
    /// `None`: there is nothing.
    pub after: Option<EntryState>,
    /// `None`: it has not landed.
    pub landed: Option<LandedSlot>,
}

impl LayerChange {
    pub fn absolute(&self) -> PathBuf {
        match self.path.as_path() {
            path if path.as_os_str().is_empty() => self.root.as_path().to_owned(),
            path => self.root.as_path().join(path),
        }
    }
}

/// Why an entry never lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnlandableReason {
    Fifo,
    Socket,
    Device,
    /// A set-user-id or set-group-id bit, or file capabilities.
    Privileged,
    /// The host has a FIFO, a socket or a device there.
    HostSpecial,
    /// Its path is longer than the kernel takes.
    PathTooLong,
    /// An attribute of overlayfs that does not occur with the options of the view.
    UnknownOverlay,
    /// On the host another file system is mounted there.
    OtherFileSystem,
    /// Its own permissions, or those of a directory above, keep its reader out.
    Unreadable,
}

/// An entry of the layer that never lands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedEntry {
    pub root: ByteString,
    pub path: ByteString,
    pub reason: UnlandableReason,
}

/// What is in a layer and not in its roots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerChanges {
    /// In the order of roots and, within a root, of paths.
    pub changes: Vec<LayerChange>,
    pub refused: Vec<RefusedEntry>,
}

impl LayerChanges {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.refused.is_empty()
    }

    /// The changes at or below any of these absolute paths, and what they need: created directories above them.
    pub fn below(&self, paths: &[&Path]) -> Vec<LayerChange> {
        let wanted = |path: &Path| paths.iter().any(|above| path.starts_with(above));
        let selected: Vec<PathBuf> =
            self.changes.iter().map(LayerChange::absolute).filter(|path| wanted(path)).collect();
        let needed = |change: &LayerChange| {
            let path = change.absolute();
            let made = change.after.as_ref().is_some_and(|after| after.kind == EntryKind::Directory)
                && change.before.as_ref().is_none_or(|before| before.kind != EntryKind::Directory);
            wanted(&path) || (made && selected.iter().any(|below| below.starts_with(&path)))
        };
        self.changes.iter().filter(|change| needed(change)).cloned().collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeSide {
    /// The entry of the host; for a landed change what was kept of it.
    Before,
    /// The entry of the layer; for a landed change what is on the host.
    After,
}

/// The content of a file, or the target of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryContent {
    /// As many as were asked for.
    pub bytes: Vec<u8>,
    /// How many there are.
    pub total: u64,
}
