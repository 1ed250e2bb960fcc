//! Disk quota: limits the total size of a session's writable roots, home and layer.
//!
//! The kernel offers no such limit to an unprivileged supervisor, so Ringfence measures while a command runs
//! and once after it ended. It ends a command that exceeds the limit. The command can write more until the
//! next measurement, and unlinked files count only while a process has them open.
//!
//! An excess is recorded per workspace, across sessions. After it, commands may only remove data: the second
//! command that leaves more than it found is the last, until the size is below the limit. Without this, many
//! short commands, each ended too late, could exceed every limit.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ringfence_authz::CallPermissions;
use ringfence_sandbox::usage::{self, SessionFiles, Usage};
use ringfence_types::{Access, ByteString, PolicyLayer, Refusal, RefusalCode, RuleId, units::ByteSize};
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};

use crate::pipeline::chain;
use crate::session::SessionShared;

/// Below the state directory.
const QUOTAS: &str = "quotas";
/// Least time between two measurements.
const PAUSE: Duration = Duration::from_millis(250);
/// Most time between two measurements, also for a tree that takes longer to walk.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Measuring takes at most one in this many parts of the time.
const SHARE: u32 = 8;
/// Number of commands that may exceed the limit before none may run.
const MOST_EXCESSES: u32 = 2;

/// The size and the limit when a call begins.
#[derive(Debug)]
pub(crate) struct Room {
    places: Vec<PathBuf>,
    most: u64,
    before: Usage,
    record: PathBuf,
    excess: Option<Excess>,
}

/// Record that commands of a workspace exceeded the limit.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Excess {
    /// The limit at the first excess.
    allowed: u64,
    times: u32,
}

impl Room {
    /// `None`: no limit is set. What a command writes into a `layer` counts as if it were in the roots already.
    pub(crate) fn of(
        session: &SessionShared<'_>,
        permissions: &CallPermissions,
        layer: Option<&Path>,
    ) -> Option<Self> {
        let most = permissions.limits.disk_bytes?;
        let writable = permissions.roots.iter().filter(|root| root.access == Access::Write);
        let mut places: Vec<PathBuf> = writable.map(|root| root.path.as_path().to_owned()).collect();
        places.push(session.workspace.home.clone());
        places.extend(layer.map(Path::to_owned));
        let before = usage::of(&places);
        let quotas = session.runtime.setup.state_dir.join(QUOTAS);
        let record = quotas.join(session.workspace.id.to_string());
        let mut room = Self { places, most, before, record, excess: None };
        room.excess = room.read().filter(|excess| room.before.bytes > most.max(excess.allowed));
        Some(room)
    }

    fn read(&self) -> Option<Excess> {
        match fs::read(&self.record) {
            // An unreadable record counts as the worst case.
            Ok(text) => {
                Some(serde_json::from_slice(&text).unwrap_or(Excess { allowed: 0, times: MOST_EXCESSES }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => Some(Excess { allowed: 0, times: MOST_EXCESSES }),
        }
    }

    /// Records the result of a command.
    fn note(&self, state: QuotaState) {
        let noted = match (state, self.excess) {
            (QuotaState::Within, Some(_)) => Ok(()),
            (QuotaState::Within, None) => match fs::remove_file(&self.record) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
            (QuotaState::Exceeded, known) => {
                let allowed = known.map_or(self.threshold(), |excess| excess.allowed);
                let times = known.map_or(0, |excess| excess.times).saturating_add(1);
                self.write(Excess { allowed, times })
            }
        };
        if let Err(error) = noted {
            tracing::warn!(error = %chain(&error), "cannot record the disk use of a command");
        }
    }

    fn write(&self, excess: Excess) -> io::Result<()> {
        if let Some(quotas) = self.record.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(quotas)?;
        }
        fs::write(&self.record, serde_json::to_vec(&excess).map_err(io::Error::other)?)
    }

    /// Above the limit, a command may run while it adds nothing; otherwise no command could remove data.
    fn threshold(&self) -> u64 {
        self.most.max(self.before.bytes)
    }

    fn is_too_much(&self, now: &Usage) -> bool {
        now.bytes > self.threshold() || now.unseen.is_some()
    }

    /// Why no command may run.
    pub(crate) fn refuse_command(&self) -> Option<Refusal> {
        if let Some(unseen) = &self.before.unseen {
            let unseen = ByteString::from(unseen.as_path()).display();
            return Some(refusal(format!(
                "`{unseen}` can be written and not be looked into, so what commands leave there cannot be counted"
            )));
        }
        let closed = self.excess.is_some_and(|excess| excess.times >= MOST_EXCESSES);
        closed.then(|| {
            let (held, most) = (self.before.bytes, ByteSize(self.most));
            refusal(format!(
                "the workspace and its home hold {held} bytes, the limit is {most}, and {MOST_EXCESSES} commands have added to it \
                 beyond that"
            ))
        })
    }

    /// Why the file tools refuse to write this many bytes.
    pub(crate) fn refuse(&self, bytes: u64) -> Option<Refusal> {
        let now = self.before.bytes.saturating_add(bytes);
        (bytes > 0 && now > self.most).then(|| {
            let most = ByteSize(self.most);
            refusal(format!("the workspace and its home would hold {now} bytes, and the limit is {most}"))
        })
    }
}

fn refusal(message: String) -> Refusal {
    Refusal {
        code: RefusalCode::Path,
        layer: PolicyLayer::Operator,
        rule: RuleId::LimitsDisk.into(),
        message,
        hint: Some("remove something outside, or raise `--disk` or `disk` in `[limits]`".to_owned()),
    }
}

/// Whether a command kept within the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaState {
    Exceeded,
    Within,
}

/// The quota of one command, measured while it runs.
#[derive(Debug)]
pub(crate) struct Quota {
    room: Room,
    files: SessionFiles,
    bell: OwnedFd,
    ring: OwnedFd,
    exceeded: AtomicBool,
}

impl Quota {
    pub(crate) fn new(room: Room, files: SessionFiles) -> io::Result<Self> {
        let (bell, ring) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { room, files, bell, ring, exceeded: AtomicBool::new(false) })
    }

    /// Becomes readable when the command must end.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Measures repeatedly until `end` closes or the limit is exceeded.
    pub(crate) fn watch(&self, end: &Receiver<()>) {
        let mut pause = PAUSE;
        while end.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let began = Instant::now();
            if self.room.is_too_much(&self.now()) {
                self.exceeded.store(true, Ordering::SeqCst);
                // A full pipe signals the same.
                let _full = rustix::io::write(&self.ring, &[0]);
                return;
            }
            pause = began.elapsed().saturating_mul(SHARE).clamp(PAUSE, LONGEST_PAUSE);
        }
    }

    fn now(&self) -> Usage {
        let named = usage::of(&self.room.places);
        let unlinked = self.files.unlinked(&self.room.places);
        Usage { bytes: named.bytes.saturating_add(unlinked), ..named }
    }

    /// Measures once more after the end: the command may have been faster than the last measurement.
    pub(crate) fn settle(&self) -> QuotaState {
        let seen = self.exceeded.load(Ordering::SeqCst);
        let now = self.now();
        let state =
            if seen || self.room.is_too_much(&now) { QuotaState::Exceeded } else { QuotaState::Within };
        self.room.note(state);
        state
    }
}
