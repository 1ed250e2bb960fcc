//! Counts the memory of everything that runs in a session, and ends the call that takes it beyond the limit. Only where
//! no control group does: an rlimit bounds one process, and shared memory is in none.
//!
//! Each round has a cheap upper bound from `/proc/PID/status`. Pages that processes share are in it once for each of
//! them, so only what is above the limit is looked at page by page.

mod count;
mod tree;

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use count::Objects;
use tree::Call;

/// How often the processes are counted.
pub(crate) const ROUND: Duration = Duration::from_millis(50);

/// Counting takes at most this part of a processor: where one round is long, the next waits longer.
const SHARE: u32 = 10;

/// What is counted, and how much of it there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metered {
    pub(crate) memory_bytes: u64,
    pub(crate) files: MemoryFiles,
}

/// Which files are memory of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryFiles {
    /// Its own `/tmp` and `/dev/shm`.
    Own,
    /// None: `/tmp` is that of the host.
    OfHost,
}

/// A thread that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Meter {
    hit: Arc<AtomicBool>,
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Meter {
    /// `init` is PID 1 of the session or what stands in for it.
    pub(crate) fn start(init: &OwnedFd, metered: Metered) -> io::Result<Self> {
        let init = pid_of(init)?;
        let hit = Arc::new(AtomicBool::new(false));
        let (stop, stopped) = mpsc::channel();
        let watch = Watch { init, metered, hit: Arc::clone(&hit) };
        let rounds = move || watch.until(&stopped);
        let thread = std::thread::Builder::new().name("ringfence-meter".to_owned()).spawn(rounds)?;
        Ok(Self { hit, stop: Some(stop), thread: Some(thread) })
    }

    /// Whether a call was ended since the last time somebody asked.
    pub(crate) fn take_hit(&self) -> bool {
        self.hit.swap(false, Ordering::AcqRel)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it has nothing to say here: the session is over.
            let _ended = thread.join();
        }
    }
}

struct Watch {
    init: u32,
    metered: Metered,
    hit: Arc<AtomicBool>,
}

impl Watch {
    fn until(&self, stopped: &Receiver<()>) {
        let mut wait = ROUND;
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            let began = Instant::now();
            self.round();
            wait = ROUND.max(began.elapsed() * SHARE);
        }
    }

    fn round(&self) {
        let calls = tree::calls(self.init);
        if calls.iter().all(|call| call.processes.is_empty()) {
            return;
        }
        let objects = Objects::of(&calls, self.metered.files);
        let limit = self.metered.memory_bytes;
        let rough: u64 = calls.iter().map(|call| call.sum(count::rough)).sum();
        if rough.saturating_add(objects.bytes()) <= limit {
            return;
        }
        let exact: Vec<(&Call, u64)> =
            calls.iter().map(|call| (call, call.sum(|pid| count::exact(pid, &objects)))).collect();
        let private: u64 = exact.iter().map(|(_, bytes)| bytes).sum();
        if private.saturating_add(objects.bytes()) <= limit {
            return;
        }
        if let Some((call, _)) = exact.iter().max_by_key(|(_, bytes)| *bytes) {
            // Before the kill: whoever hears of the end asks why.
            self.hit.store(true, Ordering::Release);
            call.kill();
        }
    }
}

/// The number of the process behind a descriptor, as this process sees it.
fn pid_of(process: &OwnedFd) -> io::Result<u32> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    let number = about.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    // 0 and -1: it is in no PID namespace that can be seen from here, or gone.
    number.filter(|pid| *pid > 0).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}
