//! How much the writable roots and the home of a session may hold together.
//!
//! No kernel interface gives this to a supervisor without privileges, so it is measured while a command runs, and the command
//! is ended when there is too much. It can write more until the next look, and what has no name any more is not seen.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ringfence_authz::Permissions;
use ringfence_sandbox::usage::{self, Usage};
use ringfence_types::{Access, Layer, Refusal, RefusalCode, units::Size};
use rustix::pipe::PipeFlags;

use crate::session::Bound;

/// The least time between two looks.
const PAUSE: Duration = Duration::from_millis(250);
/// Of the time that passes, at most a part this small is spent looking.
const SHARE: u32 = 8;

#[derive(Debug)]
pub(crate) struct Quota {
    places: Vec<PathBuf>,
    most: u64,
    before: Usage,
    bell: OwnedFd,
    ring: OwnedFd,
    exceeded: AtomicBool,
}

impl Quota {
    /// `None`: there is none.
    pub(crate) fn of(session: &Bound<'_>, permissions: &Permissions) -> io::Result<Option<Self>> {
        let Some(most) = permissions.limits.disk_bytes else { return Ok(None) };
        let writable = permissions.roots.iter().filter(|root| root.access == Access::Write);
        let mut places: Vec<PathBuf> = writable.map(|root| root.path.as_path().to_owned()).collect();
        places.push(session.workspace.home.clone());
        let before = usage::of(&places);
        let (bell, ring) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Some(Self { places, most, before, bell, ring, exceeded: AtomicBool::new(false) }))
    }

    /// Has a byte when the command is to be ended.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.exceeded.load(Ordering::SeqCst)
    }

    /// Looks again and again, until `end` is closed or there is too much.
    pub(crate) fn watch(&self, end: &Receiver<()>) {
        let mut pause = PAUSE;
        while end.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let began = Instant::now();
            if self.is_too_much(usage::of(&self.places)) {
                self.exceeded.store(true, Ordering::SeqCst);
                // A full pipe says the same.
                let _full = rustix::io::write(&self.ring, &[0]);
                return;
            }
            pause = PAUSE.max(began.elapsed().saturating_mul(SHARE));
        }
    }

    /// Where there is too much already, a command may run as long as it does not add to it: otherwise nothing could be removed.
    /// A directory that nobody can look into any more hides what is in it.
    fn is_too_much(&self, now: Usage) -> bool {
        now.bytes > self.most.max(self.before.bytes) || now.unseen > self.before.unseen
    }

    /// Why the file tools do not write this many bytes more.
    pub(crate) fn refuse(&self, bytes: u64) -> Option<Refusal> {
        let now = self.before.bytes.saturating_add(bytes);
        (now > self.most).then(|| Refusal {
            code: RefusalCode::Path,
            layer: Layer::Operator,
            rule: "limits.disk".to_owned(),
            message: format!(
                "the workspace and its home would hold {now} bytes, and the limit is {}",
                Size(self.most)
            ),
            hint: Some("remove something, or raise `--disk` or `disk` in `[limits]`".to_owned()),
        })
    }
}
