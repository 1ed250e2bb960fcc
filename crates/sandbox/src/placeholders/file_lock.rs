//! A lock of flock(2) that ends when its owner drops it.
//!
//! KERNEL: a lock belongs to the open file description. A child that another thread forks has every descriptor until it executes
//! another program, so closing a descriptor ends the lock only when that child lets go as well. To unlock ends it at once.

use std::os::fd::OwnedFd;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

#[derive(Debug)]
pub(super) struct FileLock {
    pub(super) file: OwnedFd,
}

impl FileLock {
    /// Waits for the lock.
    pub(super) fn take(file: OwnedFd, operation: FlockOperation) -> Result<Self, Errno> {
        let lock = Self { file };
        lock.apply(operation)?;
        Ok(lock)
    }

    /// Whether no other session holds the lock. If so, this one now holds it exclusively.
    pub(super) fn is_alone(&self) -> bool {
        self.apply(FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    pub(super) fn release(&self) {
        // A descriptor that is open can always be unlocked.
        let _unlocked = self.apply(FlockOperation::Unlock);
    }

    fn apply(&self, operation: FlockOperation) -> Result<(), Errno> {
        rustix::io::retry_on_intr(|| rustix::fs::flock(&self.file, operation))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        self.release();
    }
}
