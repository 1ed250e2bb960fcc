//! Directories that belong to a process for as long as it lives.
//!
//! A process id in a name says nothing to a process in another PID namespace that shares the file system. A lock does: the
//! kernel releases it when its process is gone, and every namespace sees it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use tempfile::TempDir;

/// A sweep has to come between two system calls to make another round necessary. Processes that sweep without a pause do that
/// in every second round.
const ROUNDS: usize = 4096;

/// Makes a directory in `parent`, for this user alone (a process that can open it could lock it), and holds it until the
/// descriptor is closed.
pub(crate) fn make(prefix: &str, parent: &Path) -> io::Result<(TempDir, OwnedFd)> {
    for _ in 0..ROUNDS {
        let directory = tempfile::Builder::new().prefix(prefix).rand_bytes(12).tempdir_in(parent)?;
        match lock(directory.path(), FlockOperation::NonBlockingLockShared) {
            // With the lock held no sweep removes it, but one may have done so before.
            Ok(held) if directory.path().exists() => return Ok((directory, held)),
            Ok(_) | Err(Errno::NOENT | Errno::WOULDBLOCK) => {}
            Err(errno) => {
                remove_empty(directory);
                return Err(errno.into());
            }
        }
        remove_empty(directory);
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Directories of `parent` that begin with `prefix` and whose process is gone, each given to `remove`.
pub(crate) fn sweep(prefix: &str, parent: &Path, remove: impl Fn(&Path)) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let named =
        |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
    for directory in entries.flatten().filter(named).map(|entry| entry.path()) {
        // Held meanwhile: who has just made it finds it gone, and not half removed.
        if let Ok(_held) = lock(&directory, FlockOperation::NonBlockingLockExclusive) {
            remove(&directory);
        }
    }
}

/// WHY NOT by dropping it: that would also try to remove the files that a control group has by itself.
fn remove_empty(directory: TempDir) {
    let _swept = fs::remove_dir(directory.keep());
}

fn lock(directory: &Path, operation: FlockOperation) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty())?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&opened, operation))?;
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    /// Its owner may be removing it at this moment.
    fn remove(directory: &Path) {
        let _gone = fs::remove_dir(directory);
    }

    #[test]
    fn a_sweep_leaves_what_is_held_and_takes_what_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let (held, _lock) = make("ours-", parent.path()).unwrap();
        let (left, lock) = make("ours-", parent.path()).unwrap();
        let left = left.keep();
        let other = parent.path().join("somebody-else");
        fs::create_dir(&other).unwrap();
        sweep("ours-", parent.path(), remove);
        assert!(left.exists(), "control: its process holds it");
        drop(lock);
        // Until it becomes another program, a child that a neighbouring test starts holds the lock as well.
        for _ in 0..1000 {
            sweep("ours-", parent.path(), remove);
            if !left.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!left.exists(), "nobody holds it");
        assert!(held.path().exists(), "its process lives, whatever its id is here");
        assert!(other.exists(), "it is not ours");
    }

    /// Ends the other thread also when this one panics: a scope waits for both.
    struct Finish<'a>(&'a AtomicBool);

    impl Drop for Finish<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_made_while_others_sweep_is_there() {
        let parent = tempfile::tempdir().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _finish = Finish(&done);
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    sweep("ours-", parent.path(), remove);
                }
            });
            for _ in 0..2000 {
                let (made, _lock) = make("ours-", parent.path()).unwrap();
                assert!(made.path().exists());
            }
        });
    }
}
