//! What a layer writes down about itself.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_types::ByteString;
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::beneath::HeldTree;
use crate::change::EntryTime;
use crate::error::LayerError;
use crate::fault;
use crate::landing::ConflictReason;
use crate::layer::LayerState;
use crate::stamp::Stamp;
use crate::walk::RecordedModes;

pub(crate) const VERSION: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LayerRecord {
    pub(crate) version: u32,
    pub(crate) id: String,
    pub(crate) created: EntryTime,
    pub(crate) state: LayerState,
    pub(crate) roots: Vec<LayerRootRecord>,
    /// What landed and was not undone, the oldest first.
    pub(crate) landings: Vec<u32>,
    pub(crate) next_landing: u32,
    pub(crate) bytes: u64,
    /// When something of it landed last. `None`: nothing did, or an older version wrote the record.
    #[serde(default)]
    pub(crate) landed: Option<EntryTime>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LayerRootRecord {
    pub(crate) path: ByteString,
    /// When its first view was opened.
    pub(crate) opened: EntryTime,
    pub(crate) mounts: u32,
    /// `None`: an older version wrote the record.
    #[serde(default)]
    pub(crate) identity: Option<RootIdentity>,
}

/// Which directory a root is, whatever its path. KERNEL: the number of a device may be another after a start of the machine, and
/// the number of an inode is used again; the time of its making tells the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RootIdentity {
    inode: u64,
    /// `None`: the file system does not say.
    born: Option<EntryTime>,
}

impl RootIdentity {
    pub(crate) fn of(root: &HeldTree) -> Result<Self, LayerError> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = rustix::fs::statx(root.fd(), "", AtFlags::EMPTY_PATH, wanted)
            .map_err(|errno| root.failed("look at", Path::new(""), errno))?;
        let known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let (seconds, nanos) = (found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
        let born = known.then_some(EntryTime { seconds, nanos });
        Ok(Self { inode: found.stx_ino, born })
    }
}

/// What the root had at a path when the view was open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BaseEntry {
    Absent,
    Present(Stamp),
    /// The host changed it meanwhile.
    Changed(ConflictReason),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RootBase {
    pub(crate) entries: HashMap<PathBuf, BaseEntry>,
    pub(crate) modes: RecordedModes,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredBase {
    entries: Vec<StoredEntry>,
    modes: Vec<StoredMode>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredEntry {
    path: ByteString,
    base: BaseEntry,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredMode {
    path: ByteString,
    mode: u32,
}

impl RootBase {
    pub(crate) fn read(path: &Path) -> Result<Self, LayerError> {
        let stored: StoredBase = match read(path) {
            Err(LayerError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                StoredBase::default()
            }
            stored => stored?,
        };
        let entries = stored.entries.into_iter();
        let modes = stored.modes.into_iter();
        Ok(Self {
            entries: entries.map(|entry| (entry.path.as_path().to_owned(), entry.base)).collect(),
            modes: modes.map(|entry| (entry.path.as_path().to_owned(), entry.mode)).collect(),
        })
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), LayerError> {
        let entries = self.entries.iter();
        let modes = self.modes.iter();
        let stored = StoredBase {
            entries: entries
                .map(|(path, base)| StoredEntry {
                    path: ByteString::from(path.as_path()),
                    base: base.clone(),
                })
                .collect(),
            modes: modes
                .map(|(path, mode)| StoredMode { path: ByteString::from(path.as_path()), mode: *mode })
                .collect(),
        };
        write(path, &stored)
    }
}

/// Reads a record. Refuses one that another user can have written.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, LayerError> {
    let unreadable = |source| LayerError::Unreadable { path: path.to_owned(), source };
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    let mut file = File::options().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    let private = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o7777 == 0o600;
    if !found.is_file() || !private {
        return Err(unreadable(io::Error::other("it is not a file that is yours alone")));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(unreadable)?;
    serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))
}

/// Replaces a record at once, durable.
pub(crate) fn write<T: Serialize>(path: &Path, record: &T) -> Result<(), LayerError> {
    let failed = |source: io::Error| LayerError::io("write", path, source);
    let text = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
    let fresh = path.with_extension("new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&fresh).map_err(failed)?;
    fault::point();
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
    fault::point();
    fs::rename(&fresh, path).map_err(failed)?;
    fault::point();
    sync_directory(path.parent().unwrap_or(Path::new("/")))
}

pub(crate) fn sync_directory(path: &Path) -> Result<(), LayerError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| LayerError::io("sync", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_another_user_is_not_read() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.json");
        write(&path, &7_u32).unwrap();
        assert_eq!(read::<u32>(&path).unwrap(), 7);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(read::<u32>(&path), Err(LayerError::Unreadable { .. })));
    }
}
