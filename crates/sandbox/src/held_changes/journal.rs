//! What was in the roots of a session at its start, kept until its last look: a start that finds it without its owner looks.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_types::{ByteString, HeldChange, RuleId};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::act::open_up;
use super::finding::{AcceptedPrints, Print};
use super::{ClearedEnd, LOOK_AT_MOST, Places};
use crate::survey::{RootHandle, SurveyError, handle_unlinked};

const EXTENSION: &str = "watch";
/// One session at a time writes down what was there before it.
const TURN: &str = "watch.lock";

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    roots: Vec<RootRecord>,
    outside: Vec<ByteString>,
    #[serde(default)]
    visible: Vec<ByteString>,
    fixed: BTreeSet<ByteString>,
    #[serde(default)]
    hooks_of_user: Vec<ByteString>,
    accepted: AcceptedPrints,
    /// Whatever any session with any roots would find of what was there.
    known: AcceptedPrints,
}

/// A root, and which directory it was: another one in its place is not what the session wrote to.
#[derive(Debug, Serialize, Deserialize)]
struct RootRecord {
    path: ByteString,
    inode: u64,
}

impl Record {
    pub(super) fn of(places: &Places, known: AcceptedPrints) -> io::Result<Self> {
        let bytes = |path: &PathBuf| ByteString::from(path.as_path());
        let root = |ground: &RootHandle| {
            let inode = rustix::fs::fstat(&ground.fd)?.st_ino;
            Ok(RootRecord { path: bytes(&ground.path), inode })
        };
        Ok(Self {
            roots: places.grounds.iter().map(root).collect::<io::Result<_>>()?,
            outside: places.outside.iter().map(bytes).collect(),
            visible: places.visible.iter().map(bytes).collect(),
            fixed: places.fixed.iter().map(bytes).collect(),
            hooks_of_user: places.hooks_of_user.iter().map(bytes).collect(),
            accepted: places.accepted.clone(),
            known,
        })
    }

    /// Roots that are gone, or replaced by others, need no look. One that its commands have closed is opened again.
    fn places(self) -> Result<Places, SurveyError> {
        let path = |bytes: &ByteString| bytes.as_path().to_owned();
        let grounds = self.roots.iter().filter_map(|root| root.open().transpose());
        Ok(Places {
            grounds: grounds.collect::<Result<_, _>>()?,
            outside: self.outside.iter().map(path).collect(),
            visible: self.visible.iter().map(path).collect(),
            fixed: self.fixed.iter().map(path).collect(),
            hooks_of_user: self.hooks_of_user.iter().map(path).collect(),
            accepted: self.accepted,
            at_most: LOOK_AT_MOST,
        })
    }

    /// Whether this session can have made what is at `path`.
    fn may_have_made(&self, path: &Path, print: &Print) -> bool {
        let reaches = self.roots.iter().any(|root| path.starts_with(root.path.as_path()));
        let fixed = || path.ancestors().any(|above| self.fixed.contains(&ByteString::from(above)));
        reaches && !self.known.contains(print) && !fixed()
    }
}

impl RootRecord {
    /// `None` where it is gone. A root that is there and cannot be opened is an error: what is in it would count as the host's own
    /// from then on, and a command can take the permissions of its root away.
    fn open(&self) -> Result<Option<RootHandle>, SurveyError> {
        let path = self.path.as_path();
        let failed = |errno: Errno| SurveyError::Io {
            action: "open",
            path: path.to_owned(),
            source: io::Error::from(errno),
        };
        let top = match handle_unlinked(path) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            top => top.map_err(failed)?,
        };
        let stat = rustix::fs::fstat(&top).map_err(failed)?;
        if stat.st_ino != self.inode || FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Ok(None);
        }
        if stat.st_mode & 0o700 != 0o700 && stat.st_uid == rustix::process::geteuid().as_raw() {
            open_up(top.as_fd()).map_err(failed)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&top, ".", flags, Mode::empty()).map_err(failed)?;
        Ok(Some(RootHandle { path: path.to_owned(), fd }))
    }
}

/// What other sessions have written down that still run, or whose last look is not done.
///
/// INVARIANT: what one of them may have made is never taken for the host's own. Without this a session would accept what another
/// one has planted, and could plant it again when the other one is over.
#[derive(Debug)]
pub(super) struct Others {
    registry: PathBuf,
    records: Vec<Record>,
    /// While it is held no session begins.
    _turn: File,
}

impl Others {
    pub(super) fn read(registry: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(registry)?;
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let turn = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(flags)
            .open(registry.join(TURN))?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&turn, FlockOperation::LockExclusive))?;
        let records = journals(registry)?.into_iter().filter_map(|path| Record::read(&path)).collect();
        Ok(Self { registry: registry.to_owned(), records, _turn: turn })
    }

    /// Whether one of them may have made what is at `path`.
    pub(super) fn may_have_made(&self, path: &Path, print: &Print) -> bool {
        self.records.iter().any(|record| record.may_have_made(path, print))
    }

    /// Writes down what was there. From now on other sessions begin.
    pub(super) fn begin(self, record: &Record) -> io::Result<Journal> {
        Journal::begin(&self.registry, record)
    }
}

impl Record {
    fn read(path: &Path) -> Option<Self> {
        let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path);
        Self::read_from(&mut file.ok()?)
    }

    fn read_from(file: &mut File) -> Option<Self> {
        let mut content = Vec::new();
        file.read_to_end(&mut content).ok()?;
        serde_json::from_slice(&content).ok()
    }
}

/// A record on disk, locked while its owner lives.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    fn begin(registry: &Path, record: &Record) -> io::Result<Self> {
        let named = tempfile::Builder::new().prefix("").suffix(".new").tempfile_in(registry)?;
        let (mut file, fresh) = named.keep().map_err(|error| error.error)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        serde_json::to_writer(&mut file, record)?;
        file.flush()?;
        // What commands make may reach the disk before a power failure, and so does this.
        file.sync_data()?;
        // Under its own name only once it is locked and whole.
        let path = fresh.with_extension(EXTENSION);
        std::fs::rename(&fresh, &path)?;
        let directory = rustix::fs::open(registry, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::fs::fsync(directory)?;
        Ok(Self { file, path })
    }

    /// Everything was looked at.
    pub(super) fn end(self) {
        // One that cannot be removed costs the next start a look.
        let _removed = std::fs::remove_file(&self.path);
    }

    /// Leaves it to the next start.
    pub(super) fn leave(self) {
        // KERNEL: a child that another thread forks has a copy of the descriptor until it executes another program. To close
        // ours would leave the lock with that child.
        let _unlocked = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }

    /// One that no process holds; `None` where its owner lives or it is gone.
    fn take_over(path: PathBuf) -> Option<Self> {
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let file = File::options().read(true).write(true).custom_flags(flags).open(&path).ok()?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let same = std::fs::symlink_metadata(&path).ok()?.ino() == file.metadata().ok()?.ino();
        same.then_some(Self { file, path })
    }
}

/// Looks through the roots of every session whose supervisor was killed, as that session would have done at its end.
pub(crate) fn repair(registry: &Path) -> Vec<HeldChange> {
    let Ok(journals) = journals(registry) else { return Vec::new() };
    let mut changes = Vec::new();
    for mut journal in journals.into_iter().filter_map(Journal::take_over) {
        let Some(record) = Record::read_from(&mut journal.file) else {
            changes.push(unreadable(&journal.path));
            journal.end();
            continue;
        };
        let cleared = match record.places() {
            Ok(places) => places.clear(),
            Err(error) => {
                changes.push(closed_root(&error));
                journal.leave();
                continue;
            }
        };
        changes.extend(cleared.changes);
        match cleared.end {
            ClearedEnd::Clean => journal.end(),
            ClearedEnd::Unfinished { .. } => journal.leave(),
        }
    }
    changes
}

/// The journal stays, so that no session takes what is there for the host's own.
fn closed_root(error: &SurveyError) -> HeldChange {
    let path = match error {
        SurveyError::Io { path, .. } => ByteString::from(path.as_path()),
        _ => ByteString::default(),
    };
    let what = format!(
        "what a session that was killed left could not be looked at: {}; make it readable for its owner",
        ringfence_types::chain(error)
    );
    HeldChange { path, rule: RuleId::HeldUnfinished.into(), what, kept: None }
}

/// One that cannot be read does not say where to look, so the operator has to.
fn unreadable(path: &Path) -> HeldChange {
    let what =
        "the record of a session that was killed cannot be read: what that session left was not looked at";
    let rule = RuleId::HeldUnfinished.into();
    HeldChange { path: ByteString::from(path), rule, what: what.to_owned(), kept: None }
}

fn journals(registry: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(registry) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let is_journal = |path: &PathBuf| path.extension().is_some_and(|known| known == EXTENSION);
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.filter(|path| path.as_ref().map_or(true, is_journal)).collect()
}
