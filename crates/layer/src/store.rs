//! All layers of a state directory.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::base;
use crate::change::EntryTime;
use crate::error::LayerError;
use crate::journal::{self, PhaseJournal};
use crate::landing::{LandingDirection, LandingReport, RecoveredLanding};
use crate::layer::{Layer, LayerState};
use crate::record::{self, LayerRecord};
use crate::remove::remove_tree;

/// Names of slots have it in them.
const LONGEST_ID: usize = 100;
/// How long a layer is waited for that is in use.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Debug)]
pub struct LayerStore {
    path: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSummary {
    pub id: String,
    pub state: LayerState,
    pub roots: Vec<PathBuf>,
    pub created: SystemTime,
    /// When something of it landed last. `None`: nothing did, or all of it was taken back.
    pub landed: Option<SystemTime>,
    /// What it takes on disk, counted when its view was closed and when it landed.
    pub bytes: u64,
    /// Another process, or this one, works with it.
    pub in_use: bool,
}

/// What became of a landing or an undo whose process died.
#[derive(Debug)]
pub struct LandingRecovery {
    pub layer: String,
    pub direction: LandingDirection,
    pub outcome: LandingRecoveryOutcome,
    /// What landed, or for [`LandingDirection::Undo`] what was undone. Empty when it was taken back.
    pub report: LandingReport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LandingRecoveryOutcome {
    Completed,
    /// The roots are as before it began.
    RolledBack,
}

/// `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PruneLimits {
    /// How long layers are kept after the last of their changes landed.
    pub landed_age: Option<Duration>,
    /// How long layers are kept whose changes wait, for the first time or since an undo.
    pub pending_age: Option<Duration>,
    /// How much all layers together may take. What landed first goes first; layers with changes that wait stay.
    pub bytes: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    pub removed: Vec<String>,
    pub bytes: u64,
}

impl LayerSummary {
    /// The last time at which it was worked with, as far as the record says.
    fn since(&self) -> SystemTime {
        self.landed.unwrap_or(self.created)
    }
}

impl LayerStore {
    /// Makes the directory where it is missing. Refuses one that another user owns or can enter.
    pub fn open(path: &Path) -> Result<Self, LayerError> {
        for directory in [path.to_owned(), journal::directory(path)] {
            match rustix::fs::mkdir(&directory, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(LayerError::io("make", &directory, errno)),
            }
            let found = fs::symlink_metadata(&directory)
                .map_err(|error| LayerError::io("look at", &directory, error))?;
            let own = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
            if !found.is_dir() || !own {
                return Err(LayerError::NotPrivate { path: directory });
            }
        }
        Ok(Self { path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a layer. Its name has letters, digits, `_` and `-` alone, and is as long as ids are.
    pub fn create(&self, id: &str) -> Result<Layer, LayerError> {
        let path = self.place(id)?;
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(LayerError::Exists { id: id.to_owned() }),
            Err(errno) => return Err(LayerError::io("make", &path, errno)),
        }
        let lock = lock(&path, id)?;
        let record = LayerRecord {
            version: record::VERSION,
            id: id.to_owned(),
            created: base::now(),
            state: LayerState::Open,
            roots: Vec::new(),
            landings: Vec::new(),
            next_landing: 1,
            bytes: 0,
            landed: None,
        };
        let layer = Layer::locked(&self.path, path, lock, record);
        layer.save()?;
        Ok(layer)
    }

    pub fn open_layer(&self, id: &str) -> Result<Layer, LayerError> {
        let layer = self.open_any(id)?;
        match PhaseJournal::read(&self.path, id)? {
            None => Ok(layer),
            Some(_) => Err(LayerError::Interrupted { id: id.to_owned() }),
        }
    }

    /// For [`Layer::discard`]: also a layer whose landing was cut off and can be neither completed nor taken back, because a
    /// root of it is gone.
    pub fn open_to_discard(&self, id: &str) -> Result<Layer, LayerError> {
        let layer = self.open_any(id)?;
        match PhaseJournal::read(&self.path, id)? {
            Some(_) if layer.open_roots().is_ok() => Err(LayerError::Interrupted { id: id.to_owned() }),
            _ => Ok(layer),
        }
    }

    /// The newest first. A layer whose record cannot be read is left out, with a warning in the log.
    pub fn list(&self) -> Result<Vec<LayerSummary>, LayerError> {
        let mut found = Vec::new();
        for id in self.ids()? {
            match self.summary(&id) {
                Ok(summary) => found.push(summary),
                // It was removed, or is being made.
                Err(LayerError::Unreadable { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(layer = id, %error, "a layer cannot be listed"),
            }
        }
        found.sort_by(|one, other| other.created.cmp(&one.created).then_with(|| other.id.cmp(&one.id)));
        Ok(found)
    }

    /// Completes or takes back every landing whose process is gone. Cheap where there is none.
    pub fn recover(&self) -> Vec<Result<LandingRecovery, LayerError>> {
        let Ok(entries) = fs::read_dir(journal::directory(&self.path)) else { return Vec::new() };
        let mut found = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            // A draft has another ending; the next journal of the layer replaces it.
            if path.extension() != Some(OsStr::new("json")) {
                continue;
            }
            let Some(id) = path.file_stem().and_then(OsStr::to_str) else { continue };
            found.extend(self.recover_layer(id).transpose());
        }
        found
    }

    fn recover_layer(&self, id: &str) -> Result<Option<LandingRecovery>, LayerError> {
        let mut layer = match self.open_any(id) {
            // Its process is alive.
            Err(LayerError::InUse { .. }) => return Ok(None),
            // It was discarded, and its process died before the journal was gone.
            Err(LayerError::Unknown { .. }) => return journal::forget(&self.path, id).map(|()| None),
            layer => layer?,
        };
        let Some(journal) = PhaseJournal::read(&self.path, id)? else { return Ok(None) };
        let RecoveredLanding { direction, report } = layer.recover(journal)?;
        let outcome = match report {
            Some(_) => LandingRecoveryOutcome::Completed,
            None => LandingRecoveryOutcome::RolledBack,
        };
        let report = report.unwrap_or_default();
        Ok(Some(LandingRecovery { layer: id.to_owned(), direction, outcome, report }))
    }

    /// Removes layers beyond the limits. Layers in use stay, layers whose landing was cut off and can still be ended, and layers
    /// that have set something aside.
    pub fn prune(&self, limits: &PruneLimits) -> Result<PruneReport, LayerError> {
        let mut report = PruneReport::default();
        self.sweep()?;
        let now = SystemTime::now();
        let mut kept = Vec::new();
        for summary in self.list()? {
            let limit = match summary.state {
                LayerState::Landed => limits.landed_age,
                LayerState::Open | LayerState::Pending | LayerState::Undone => limits.pending_age,
            };
            let age = now.duration_since(summary.since()).unwrap_or_default();
            if limit.is_none_or(|limit| age <= limit) || !self.remove(&summary, &mut report)? {
                kept.push(summary);
            }
        }
        let mut total: u64 = kept.iter().map(|summary| summary.bytes).sum();
        kept.retain(|summary| summary.state == LayerState::Landed);
        kept.sort_by_key(LayerSummary::since);
        for summary in &kept {
            let beyond = limits.bytes.is_some_and(|limit| total > limit);
            if beyond && self.remove(summary, &mut report)? {
                total = total.saturating_sub(summary.bytes);
            }
        }
        Ok(report)
    }

    fn remove(&self, summary: &LayerSummary, report: &mut PruneReport) -> Result<bool, LayerError> {
        match self.open_to_discard(&summary.id) {
            // It has edits of the user that are nowhere else.
            Ok(layer) if layer.set_aside()?.is_some() => return Ok(false),
            Ok(layer) => layer.discard()?,
            Err(LayerError::InUse { .. } | LayerError::Interrupted { .. } | LayerError::Unknown { .. }) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        report.removed.push(summary.id.clone());
        report.bytes = report.bytes.saturating_add(summary.bytes);
        Ok(true)
    }

    /// Removes what a dead process left of layers that it was removing.
    fn sweep(&self) -> Result<(), LayerError> {
        let read = |error| LayerError::io("read", &self.path, error);
        for entry in fs::read_dir(&self.path).map_err(read)?.flatten() {
            let name = entry.file_name();
            if name.as_bytes().starts_with(b".removed-") {
                remove_tree(&self.path, &name)?;
            }
        }
        Ok(())
    }

    fn ids(&self) -> Result<Vec<String>, LayerError> {
        let read = |error| LayerError::io("read", &self.path, error);
        let names = fs::read_dir(&self.path).map_err(read)?.flatten().map(|entry| entry.file_name());
        Ok(names.filter_map(|name| name.into_string().ok()).filter(|name| is_id(name)).collect())
    }

    fn summary(&self, id: &str) -> Result<LayerSummary, LayerError> {
        let path = self.place(id)?;
        let record: LayerRecord = record::read(&path.join("layer.json"))?;
        let in_use = match try_lock(&path) {
            Ok(lock) => lock.is_none(),
            Err(_) => false,
        };
        let is_landed = !record.landings.is_empty();
        Ok(LayerSummary {
            id: record.id,
            state: record.state,
            roots: record.roots.iter().map(|root| root.path.as_path().to_owned()).collect(),
            created: system_time(record.created),
            // A record of an older version does not say when.
            landed: is_landed.then(|| system_time(record.landed.unwrap_or(record.created))),
            bytes: record.bytes,
            in_use,
        })
    }

    fn open_any(&self, id: &str) -> Result<Layer, LayerError> {
        let path = self.place(id)?;
        let lock = lock(&path, id)?;
        let file = path.join("layer.json");
        let record: LayerRecord = record::read(&file)?;
        if record.version != record::VERSION || record.id != id {
            let source = std::io::Error::other("it is of another version or layer");
            return Err(LayerError::Unreadable { path: file, source });
        }
        Ok(Layer::locked(&self.path, path, lock, record))
    }

    fn place(&self, id: &str) -> Result<PathBuf, LayerError> {
        if is_id(id) { Ok(self.path.join(id)) } else { Err(LayerError::BadId { id: id.to_owned() }) }
    }
}

fn is_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(allowed)
}

fn lock(path: &Path, id: &str) -> Result<OwnedFd, LayerError> {
    let mut tries = 0;
    loop {
        match try_lock(path) {
            Ok(Some(lock)) => return Ok(lock),
            // A listing holds it for a moment.
            Ok(None) if tries < LOCK_TRIES => tries += 1,
            Ok(None) => return Err(LayerError::InUse { id: id.to_owned() }),
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(LayerError::Unknown { id: id.to_owned() }),
            Err(errno) => return Err(LayerError::io("lock", path, errno)),
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// `None`: another process has it.
fn try_lock(path: &Path) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(directory)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn system_time(time: EntryTime) -> SystemTime {
    let seconds = u64::try_from(time.seconds).unwrap_or_default();
    UNIX_EPOCH + Duration::new(seconds, time.nanos.min(999_999_999))
}
