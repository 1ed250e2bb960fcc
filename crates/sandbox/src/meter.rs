//! Counts the memory of everything that runs in a session, and ends the call that takes it beyond the limit. Pages only where
//! no control group counts them: an rlimit bounds one process, and shared memory is in none. File locks always: they are memory
//! of the kernel that it charges to nothing.
//!
//! Each round has a cheap upper bound from `/proc/PID/status`. Pages that processes share are in it once for each of
//! them, so only what is above the limit is looked at page by page.
//!
//! Some memory can be held and not be seen: pages of a shared mapping that a process has given back, memory files on their way
//! through a socket, those of a process that may not be looked into. All of it is shared memory of the machine. What a session could
//! hold of it unseen counts, as far as the machine has that much shared memory at all.

mod count;
mod locks;
mod machine;
mod sockets;
mod tree;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use count::{FIRST_SOCKETS, SOCKET};
use count::{MemoryCount, Objects};
use locks::LastLook;
pub(crate) use locks::MOST_LOCKS;
use tree::Call;

/// How often the processes are counted.
pub(crate) const ROUND: Duration = Duration::from_millis(50);

/// Counting takes at most this part of a processor: where one round is long, the next waits longer, but not without end.
const SHARE: u32 = 10;
const LONGEST: Duration = Duration::from_secs(1);

/// A process that is about to become another program has all of its parent's memory for a moment: what is too much is counted
/// again after this time.
const AGAIN: Duration = Duration::from_millis(5);

/// What is counted besides file locks, and how much of it there may be. File locks are in no control group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MeterScope {
    /// A control group counts the rest.
    LocksAlone,
    Pages(PageLimits),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PageLimits {
    pub(crate) memory_bytes: u64,
    /// The most that one file may have.
    pub(crate) file_bytes: u64,
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
    hits: Arc<Mutex<BTreeSet<u64>>>,
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Meter {
    /// `init` is PID 1 of the session or what stands in for it.
    pub(crate) fn start(init: &OwnedFd, scope: MeterScope) -> io::Result<Self> {
        let init = pid_of(init)?;
        let hits = Arc::<Mutex<BTreeSet<u64>>>::default();
        let (stop, stopped) = mpsc::channel();
        let watch = MeterLoop { init, scope, hits: Arc::clone(&hits) };
        let rounds = move || watch.until(&stopped);
        let thread = std::thread::Builder::new().name("ringfence-meter".to_owned()).spawn(rounds)?;
        Ok(Self { hits, stop: Some(stop), thread: Some(thread) })
    }

    /// Whether this call was ended here.
    pub(crate) fn take_hit(&self, id: u64) -> bool {
        self.hits.lock().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The session has ended, so a panic of its meter has no consequence.
            let _ended = thread.join();
        }
    }
}

struct MeterLoop {
    init: u32,
    scope: MeterScope,
    /// Calls that were ended here.
    hits: Arc<Mutex<BTreeSet<u64>>>,
}

impl MeterLoop {
    fn until(&self, stopped: &Receiver<()>) {
        let (mut look, mut rest) = (LastLook::begun(Instant::now()), ROUND);
        let mut counted = Instant::now();
        while stopped.recv_timeout(ROUND) == Err(RecvTimeoutError::Timeout) {
            if look.is_long_ago() {
                let began = Instant::now();
                self.end_lockers();
                look = LastLook::begun(began);
            }
            if let MeterScope::Pages(limits) = self.scope
                && counted.elapsed() >= rest
            {
                let began = Instant::now();
                self.round(&limits);
                counted = Instant::now();
                rest = began.elapsed().saturating_mul(SHARE).clamp(ROUND, LONGEST);
            }
        }
    }

    fn end_lockers(&self) {
        if let Some(call) = locks::too_many(&tree::calls(self.init)) {
            self.end(call);
        }
    }

    fn round(&self, limits: &PageLimits) {
        if self.too_large(limits).is_none() {
            return;
        }
        std::thread::sleep(AGAIN);
        if let Some(call) = self.too_large(limits) {
            self.end(&call);
        }
    }

    fn end(&self, call: &Call) {
        // Before the kill: the relay asks for the reason as soon as the call has ended.
        self.hits.lock().unwrap_or_else(PoisonError::into_inner).extend(call.id);
        call.kill();
    }

    /// The largest call, where all of them together have too much.
    fn too_large(&self, limits: &PageLimits) -> Option<Call> {
        let calls = tree::calls(self.init);
        if calls.iter().all(|call| call.processes.is_empty()) {
            return None;
        }
        let limit = limits.memory_bytes;
        let of_machine = machine::shared();
        let objects = Objects::of(self.init, &calls, limits.files);
        let rough: u64 = calls.iter().map(|call| call.sum(count::rough)).sum();
        let at_most = rough.saturating_add(objects.bytes()).saturating_add(of_machine);
        let most_mappings: u64 = calls.iter().map(|call| call.sum(count::most_mappings)).sum();
        // They are read only where they can matter.
        if at_most.saturating_add(most_mappings) <= limit {
            return None;
        }
        let mappings: Vec<u64> = calls.iter().map(|call| call.sum(count::mappings)).collect();
        match mappings.iter().sum::<u64>() {
            // To look at the pages as well would take seconds.
            mapped if mapped > limit => {
                let largest = calls.into_iter().zip(mappings).max_by_key(|(_, mapped)| *mapped);
                return largest.map(|(call, _)| call);
            }
            mapped if at_most.saturating_add(mapped) <= limit => return None,
            _ => {}
        }
        let counts: Vec<MemoryCount> =
            calls.iter().map(|call| MemoryCount::of(call, &objects, limits.file_bytes)).collect();
        let seen: u64 = counts.iter().map(|count| count.private).sum();
        let shared: u64 = counts.iter().map(|count| count.shared).sum();
        let in_sight = shared.saturating_add(objects.bytes());
        let hideable = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(count.hideable));
        let hidden = hideable.min(of_machine.saturating_sub(in_sight));
        if seen.saturating_add(in_sight).saturating_add(hidden) <= limit {
            return None;
        }
        let weight = |count: &MemoryCount| count.weight(hidden);
        let largest = calls.into_iter().zip(&counts).max_by_key(|(_, count)| weight(count));
        largest.map(|(call, _)| call)
    }
}

/// Everything that runs in a session.
pub(crate) fn processes(init: u32) -> Vec<u32> {
    tree::calls(init).into_iter().flat_map(|call| call.processes).collect()
}

/// The number of the process behind a descriptor, as this process sees it.
pub(crate) fn pid_of(process: &OwnedFd) -> io::Result<u32> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    let number = about.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    // 0 and -1: it is in no PID namespace that can be seen from here, or gone.
    number.filter(|pid| *pid > 0).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}
