//! Where a test ends the process: after every step that changes a file system.

#[cfg(not(test))]
pub(crate) fn point() {}

#[cfg(test)]
pub(crate) use counted::{arm, point, reached};

#[cfg(test)]
mod counted {
    use std::sync::atomic::{AtomicU64, Ordering};

    static REACHED: AtomicU64 = AtomicU64::new(0);
    static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

    /// The process ends at the point of this number, the first being 1.
    pub(crate) fn arm(last: u64) {
        REACHED.store(0, Ordering::SeqCst);
        LAST.store(last, Ordering::SeqCst);
    }

    pub(crate) fn reached() -> u64 {
        REACHED.load(Ordering::SeqCst)
    }

    pub(crate) fn point() {
        if REACHED.fetch_add(1, Ordering::SeqCst) + 1 == LAST.load(Ordering::SeqCst) {
            // As `kill -9` does: nothing is unwound.
            let own = rustix::process::getpid();
            let _gone = rustix::process::kill_process(own, rustix::process::Signal::KILL);
            loop {
                std::thread::park();
            }
        }
    }
}
