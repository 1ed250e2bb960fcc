//! Which sessions can see a directory, whatever state directory, user and PID namespace they belong to.
//!
//! Such sessions share nothing but the directory itself. Each session marks its root as *watched*. A process that
//! removes placeholders marks every directory from which a session could see one as *being cleared*, and then looks
//! for sessions that watch. A session looks for processes that clear after it has marked its root, and waits for them
//! to end. Each of the two marks first and looks second, so one of them always sees the other.
//!
//! A mark is a read lock of an open file description on one byte of the directory. The kernel removes it with the last
//! descriptor, however its process ended. A child that another thread forks has a copy of each descriptor until it executes
//! another program, so a mark is taken away and not only closed: a session that ends would take such a copy for another session
//! and leave its placeholders behind. KERNEL: a directory cannot be opened for writing, so no process can have
//! a write lock on it, and a mark never fails. A lock of flock(2) would meet the `flock .` of scripts.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::PlaceholderError;
use crate::sys;

/// The two bytes. Any two will do, as long as every version uses the same.
const WATCHED: i64 = 0x5246_0001;
const CLEARED: i64 = 0x5246_0002;

/// How long a session waits for a process that clears. To clear a root takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// A root that a session watches, until this is dropped.
#[derive(Debug)]
pub(super) struct WatchMark {
    #[cfg_attr(not(test), expect(dead_code, reason = "held for its lock"))]
    pub(super) mark: PresenceMark,
}

impl WatchMark {
    /// `None`: this file system has no such locks, or the directory cannot be read. Sessions with another state
    /// directory are then not seen.
    pub(super) fn mark(root: &Path) -> Result<Option<Self>, PlaceholderError> {
        let Some(mark) = PresenceMark::put(root, WATCHED) else { return Ok(None) };
        let begun = Instant::now();
        while mark.is_beside(CLEARED) {
            if begun.elapsed() > PATIENCE {
                return Err(PlaceholderError::Cleared { path: root.to_owned() });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Some(Self { mark }))
    }
}

/// Directories that are being cleared, until this is dropped.
#[derive(Debug, Default)]
pub(super) struct ClearingMarks {
    looked_at: BTreeMap<PathBuf, Look>,
}

#[derive(Debug)]
struct Look {
    #[expect(dead_code, reason = "held for its lock")]
    mark: Option<PresenceMark>,
    watched: bool,
}

impl ClearingMarks {
    /// Whether a session could see what is at `path` in `root`: one whose root is above it.
    pub(super) fn is_seen(&mut self, root: &Path, path: &Path) -> bool {
        let below = path.parent().into_iter().flat_map(Path::ancestors).map(|relative| root.join(relative));
        let above = root.ancestors().skip(1).map(Path::to_owned);
        // Every directory is marked before one of them answers.
        let watched: Vec<bool> = below.chain(above).map(|directory| self.is_watched(directory)).collect();
        watched.contains(&true)
    }

    fn is_watched(&mut self, directory: PathBuf) -> bool {
        let look = |path: &Path| {
            let mark = PresenceMark::put(path, CLEARED);
            let watched = mark.as_ref().is_some_and(|mark| mark.is_beside(WATCHED));
            Look { mark, watched }
        };
        if let Some(known) = self.looked_at.get(&directory) {
            return known.watched;
        }
        let found = look(&directory);
        let watched = found.watched;
        self.looked_at.insert(directory, found);
        watched
    }
}

/// A lock on one byte of a directory, until this is dropped.
#[derive(Debug)]
pub(super) struct PresenceMark {
    pub(super) directory: OwnedFd,
    byte: i64,
}

impl PresenceMark {
    fn put(directory: &Path, byte: i64) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS;
        let directory =
            rustix::fs::openat2(rustix::fs::CWD, directory, flags, Mode::empty(), resolve).ok()?;
        sys::share_byte(directory.as_fd(), byte).is_ok().then_some(Self { directory, byte })
    }

    /// Whether another process or session has this mark here. An error counts as yes, so that nothing is removed on a guess.
    fn is_beside(&self, byte: i64) -> bool {
        let answer: Result<bool, Errno> = sys::is_byte_shared(self.directory.as_fd(), byte);
        answer.unwrap_or(true)
    }
}

impl Drop for PresenceMark {
    fn drop(&mut self) {
        // A mark that was put on can always be taken away.
        let _unmarked = sys::release_byte(self.directory.as_fd(), self.byte);
    }
}
