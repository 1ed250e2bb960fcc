//! State shared by the calls of a session, also by concurrent ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use ringfence_sandbox::Sandbox;

use super::SessionSpec;
use super::container_reuse::ContainerTimes;
use super::memory::{JointMemory, SharedMemory};
use crate::home::Lease;
use crate::images::SelectedImage;
use crate::proxy::SessionProxy;

/// Whether the start of the session is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionRecordState {
    /// Nothing is recorded: the start goes with the first record.
    New,
    Open,
}

/// Limit of concurrent calls with a sandbox of their own.
pub(super) const MOST_BESIDE: usize = 8;

/// What a reloaded policy makes of a session.
#[derive(Clone, Debug)]
pub(super) struct RefreshedSpec {
    pub(super) spec: SessionSpec,
    pub(super) container: Option<SelectedImage>,
}

#[derive(Debug)]
pub(crate) struct SessionCore {
    memory: Arc<SharedMemory>,
    standing: Mutex<SessionRecordState>,
    fence: Mutex<SessionFence>,
    times: Mutex<ContainerTimes>,
    /// Sandboxes of calls with a ceiling below the session's.
    beside: Mutex<Vec<Weak<Sandbox>>>,
    /// The reloaded policy, if it was reloaded.
    refreshed: Mutex<Option<RefreshedSpec>>,
    /// Notes for the caller, delivered with the next settled call.
    notes: Mutex<Vec<String>>,
    /// Last, so that the home is removed after every process in it ended.
    home: Mutex<Option<Lease>>,
}

/// The sandbox and network of a session. Field order is drop order: flows end before the sandbox they come
/// from.
#[derive(Debug, Default)]
pub(crate) struct SessionFence {
    pub(crate) network: Option<SessionProxy>,
    pub(crate) sandbox: Option<Arc<Sandbox>>,
    /// Stronger backends that could not be used, each with the reason.
    pub(crate) skipped_backends: Vec<String>,
    /// Whether a result has reported them.
    pub(crate) told: bool,
}

impl SessionFence {
    /// The note about stronger backends, once.
    pub(crate) fn report_skipped_backends(&mut self) -> Option<String> {
        if self.skipped_backends.is_empty() || std::mem::replace(&mut self.told, true) {
            return None;
        }
        let used = self.sandbox.as_ref()?.posture().backend;
        let reasons = self.skipped_backends.join("; ");
        Some(format!("backend `{used}` is used, because a stronger one could not be: {reasons}"))
    }
}

impl SessionCore {
    pub(super) fn new(memory: JointMemory, standing: SessionRecordState) -> Self {
        Self {
            memory: Arc::new(SharedMemory::new(memory)),
            standing: Mutex::new(standing),
            fence: Mutex::default(),
            times: Mutex::default(),
            beside: Mutex::default(),
            refreshed: Mutex::default(),
            notes: Mutex::default(),
            home: Mutex::default(),
        }
    }

    /// Keeps a home while the session lives.
    pub(crate) fn keep_home(&self, home: Lease) {
        *held(&self.home) = Some(home);
    }

    pub(crate) fn tell(&self, notes: impl IntoIterator<Item = String>) {
        held(&self.notes).extend(notes);
    }

    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *held(&self.notes))
    }

    /// The memory of the session, for its calls and its flows.
    pub(crate) fn memory(&self) -> &Arc<SharedMemory> {
        &self.memory
    }

    /// INVARIANT: not locked while the pipeline asks, runs a command or writes a record.
    pub(crate) fn fence(&self) -> MutexGuard<'_, SessionFence> {
        held(&self.fence)
    }

    /// `None`: another thread starts or ends the sandbox, which may take a container engine minutes.
    pub(super) fn fence_if_free(&self) -> Option<MutexGuard<'_, SessionFence>> {
        match self.fence.try_lock() {
            Ok(fence) => Some(fence),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn times(&self) -> MutexGuard<'_, ContainerTimes> {
        held(&self.times)
    }

    pub(super) fn standing(&self) -> MutexGuard<'_, SessionRecordState> {
        held(&self.standing)
    }

    /// Whether an end must be recorded. Only the first caller gets `true`.
    pub(super) fn close(&self) -> bool {
        std::mem::replace(&mut *self.standing(), SessionRecordState::New) == SessionRecordState::Open
    }

    pub(super) fn refresh(&self, refreshed: RefreshedSpec) {
        *held(&self.refreshed) = Some(refreshed);
    }

    pub(super) fn refreshed(&self) -> Option<RefreshedSpec> {
        held(&self.refreshed).clone()
    }

    /// Ends the sandbox, even while another call waits for it.
    pub(super) fn end_sandbox(&self) {
        let sandbox = self.fence().sandbox.take();
        if let Some(sandbox) = sandbox {
            sandbox.end();
        }
        self.end_all_beside();
    }

    /// Registers the sandbox, so that it ends with the session. Returns whether a slot was free.
    pub(super) fn keep_beside(&self, sandbox: &Arc<Sandbox>) -> bool {
        let mut beside = held(&self.beside);
        beside.retain(|other| other.strong_count() > 0);
        let has_room = beside.len() < MOST_BESIDE;
        if has_room {
            beside.push(Arc::downgrade(sandbox));
        }
        has_room
    }

    pub(super) fn end_beside(&self, sandbox: &Arc<Sandbox>) {
        sandbox.end();
        held(&self.beside).retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(sandbox)));
    }

    fn end_all_beside(&self) {
        let beside = std::mem::take(&mut *held(&self.beside));
        beside.iter().filter_map(Weak::upgrade).for_each(|sandbox| sandbox.end());
    }

    /// Ends this sandbox with its network. A sandbox that replaced it stays.
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
        let SessionFence { network, sandbox, .. } = std::mem::take(&mut *self.fence());
        drop(network);
        if let Some(sandbox) = sandbox {
            sandbox.end();
        }
        self.end_all_beside();
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
