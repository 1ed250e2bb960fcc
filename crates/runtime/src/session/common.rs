//! What the calls of a session have in common, also those that are made at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use ringfence_sandbox::Session as Sandbox;

use super::Asked;
use super::containers::Times;
use crate::approval::Memory;
use crate::home::Lease;
use crate::images::Chosen;
use crate::network::Network;

/// Where the record of a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing of it is written down: its start goes with the first thing that is.
    New,
    Open,
}

#[derive(Debug)]
pub(crate) struct Common {
    memory: Mutex<Memory>,
    standing: Mutex<Standing>,
    fence: Mutex<Fence>,
    times: Mutex<Times>,
    /// The policy as it was read last, where it was read again.
    refreshed: Mutex<Option<(Asked, Option<Chosen>)>>,
    /// Nothing more is done in it: what it did is so bad that it ended with that.
    over: AtomicBool,
    /// Nothing more is done in it: somebody ended it.
    closed: AtomicBool,
    /// What whoever asks is to be told with the next call that ends.
    notes: Mutex<Vec<String>>,
    /// Last, so that it is thrown away when nothing runs in it any more.
    home: Mutex<Option<Lease>>,
}

/// What keeps the commands of a session in. Field order is drop order: flows end before the sandbox they come from.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    pub(crate) network: Option<Network>,
    pub(crate) sandbox: Option<Arc<Sandbox>>,
    /// Stronger backends that could not be used for it, each with the reason.
    pub(crate) passed_over: Vec<String>,
    /// Whether a call has told of them.
    pub(crate) told: bool,
}

impl Fence {
    /// What to tell of the stronger backends, once.
    pub(crate) fn tell_passed_over(&mut self) -> Option<String> {
        if self.passed_over.is_empty() || std::mem::replace(&mut self.told, true) {
            return None;
        }
        let used = self.sandbox.as_ref()?.posture().backend;
        let reasons = self.passed_over.join("; ");
        Some(format!("backend `{used}` is used, because a stronger one could not be: {reasons}"))
    }
}

impl Common {
    pub(super) fn new(memory: Memory, standing: Standing) -> Self {
        Self {
            memory: Mutex::new(memory),
            standing: Mutex::new(standing),
            fence: Mutex::default(),
            times: Mutex::default(),
            refreshed: Mutex::default(),
            over: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            notes: Mutex::default(),
            home: Mutex::default(),
        }
    }

    /// Keeps a home for as long as the session lives.
    pub(crate) fn keep_home(&self, home: Lease) {
        *held(&self.home) = Some(home);
    }

    pub(crate) fn tell(&self, notes: impl IntoIterator<Item = String>) {
        held(&self.notes).extend(notes);
    }

    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *held(&self.notes))
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        held(&self.memory)
    }

    /// INVARIANT: not held while anything is asked, run or written down.
    pub(crate) fn fence(&self) -> MutexGuard<'_, Fence> {
        held(&self.fence)
    }

    /// `None`: somebody puts it up or takes it down, which may take an engine minutes.
    pub(super) fn fence_if_free(&self) -> Option<MutexGuard<'_, Fence>> {
        match self.fence.try_lock() {
            Ok(fence) => Some(fence),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn times(&self) -> MutexGuard<'_, Times> {
        held(&self.times)
    }

    pub(super) fn standing(&self) -> MutexGuard<'_, Standing> {
        held(&self.standing)
    }

    /// Whether there is an end to write down. Only the first who asks is told so.
    pub(super) fn close(&self) -> bool {
        std::mem::replace(&mut *self.standing(), Standing::New) == Standing::Open
    }

    pub(super) fn refresh(&self, asked: (Asked, Option<Chosen>)) {
        *held(&self.refreshed) = Some(asked);
    }

    pub(super) fn refreshed(&self) -> Option<(Asked, Option<Chosen>)> {
        held(&self.refreshed).clone()
    }

    pub(super) fn set_over(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// INVARIANT: set before the fence is taken down, and looked at while it is held, so that nothing is started behind it.
    pub(super) fn set_closed(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Ends what runs, also where another call waits for it.
    pub(super) fn end_sandbox(&self) {
        let sandbox = self.fence().sandbox.take();
        if let Some(sandbox) = sandbox {
            sandbox.end();
        }
    }

    /// Ends this sandbox with its network. Another that has taken its place stays.
    pub(crate) fn end_if(&self, ended: &Arc<Sandbox>) {
        let mut fence = self.fence();
        if fence.sandbox.as_ref().is_some_and(|sandbox| Arc::ptr_eq(sandbox, ended)) {
            let gone = std::mem::take(&mut *fence);
            drop(fence);
            drop(gone);
        }
        ended.end();
    }

    pub(crate) fn end_fence(&self) {
        let Fence { network, sandbox, .. } = std::mem::take(&mut *self.fence());
        drop(network);
        if let Some(sandbox) = sandbox {
            sandbox.end();
        }
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
