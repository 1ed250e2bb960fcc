//! The walk: every entry below a root, by directory descriptors, without recursion and without following a link.
//!
//! Almost all of its time is spent in the kernel opening directories, so a large tree is shared between a few threads.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;

use rustix::fs::{Access, AtFlags, FileType, RawDir};
use rustix::io::Errno;

use super::SurveyError;
use super::at::{Ground, failed, open_directory};

/// One entry of a directory, as the directory lists it.
pub(super) struct Entry<'a> {
    pub(super) directory: BorrowedFd<'a>,
    /// From the root.
    pub(super) relative: &'a Path,
    pub(super) name: &'a CStr,
    pub(super) kind: FileType,
    /// From the directory, not from the file: they can differ where a filesystem is mounted or stacked.
    pub(super) inode: u64,
    pub(super) shielded: bool,
}

pub(super) trait Visitor: Send {
    /// Whether what is below the entry is shielded by a read-only bind.
    fn entry(&mut self, entry: &Entry<'_>) -> Result<Shield, SurveyError>;
    /// A directory that may not be listed.
    fn unreadable(&mut self, ground: &Ground, relative: &Path) -> Result<(), SurveyError>;
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shield {
    Up,
    AsAbove,
}

/// Directories walked alone before it is worth asking others for help.
const ALONE: usize = 256;
/// Directories a helper takes at once.
const BATCH: usize = 32;
const HELPERS: usize = 4;

/// Visits every entry below `ground`, with one or (in a large tree) several visitors, and returns them. Time is
/// linear in the entries; memory holds the directories still to come.
pub(super) fn walk<V: Visitor>(ground: &Ground, visitor: impl Fn() -> V) -> Result<Vec<V>, SurveyError> {
    let mut walker = Walker::new(ground, visitor());
    let mut pending = vec![Pending { relative: Vec::new(), shielded: false }];
    let mut count = 0;
    while let Some(next) = pending.pop() {
        walker.directory(&next, &mut pending)?;
        count += 1;
        if count > ALONE && pending.len() > BATCH {
            break;
        }
    }
    if pending.is_empty() {
        return Ok(vec![walker.visitor]);
    }
    let helpers = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(HELPERS)) - 1;
    let walkers =
        std::iter::once(walker).chain((0..helpers).map(|_| Walker::new(ground, visitor()))).collect();
    together(walkers, pending)
}

fn together<V: Visitor>(walkers: Vec<Walker<'_, V>>, pending: Vec<Pending>) -> Result<Vec<V>, SurveyError> {
    let queue = Queue { state: Mutex::new(State { pending, busy: 0, error: None }), changed: Condvar::new() };
    let visitors = std::thread::scope(|scope| {
        let workers: Vec<_> = walkers.into_iter().map(|walker| scope.spawn(|| walker.work(&queue))).collect();
        let done = workers.into_iter().map(ScopedJoinHandle::join);
        done.map(|visitor| visitor.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    match queue.lock().error.take() {
        Some(error) => Err(error),
        None => Ok(visitors),
    }
}

struct Pending {
    relative: Vec<u8>,
    shielded: bool,
}

/// Directories to be walked, shared.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    pending: Vec<Pending>,
    /// Walkers that may still find more.
    busy: usize,
    error: Option<SurveyError>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next directories, or nothing once every walker is idle.
    fn take(&self) -> Vec<Pending> {
        let mut state = self.lock();
        while state.pending.is_empty() && state.busy > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let rest = state.pending.len().saturating_sub(BATCH);
        let batch = state.pending.split_off(rest);
        state.busy += usize::from(!batch.is_empty());
        batch
    }

    fn give(&self, walked: Result<Vec<Pending>, SurveyError>) {
        let mut state = self.lock();
        match walked {
            Ok(found) if state.error.is_none() => state.pending.extend(found),
            Ok(_) => {}
            Err(error) => {
                state.pending.clear();
                state.error = Some(error);
            }
        }
        state.busy -= 1;
        self.changed.notify_all();
    }
}

struct Walker<'g, V> {
    ground: &'g Ground,
    visitor: V,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    /// Root enters every directory.
    privileged: bool,
}

impl<'g, V: Visitor> Walker<'g, V> {
    fn new(ground: &'g Ground, visitor: V) -> Self {
        const BUFFER: usize = 32 * 1024;
        let privileged = rustix::process::geteuid().is_root();
        Self { ground, visitor, buffer: Vec::with_capacity(BUFFER), scratch: Vec::new(), privileged }
    }

    fn work(mut self, queue: &Queue) -> V {
        loop {
            let batch = queue.take();
            if batch.is_empty() {
                return self.visitor;
            }
            let mut found = Vec::new();
            let walked = batch.iter().try_for_each(|next| self.directory(next, &mut found));
            queue.give(walked.map(|()| found));
        }
    }

    fn directory(&mut self, next: &Pending, found: &mut Vec<Pending>) -> Result<(), SurveyError> {
        match open_directory(self.ground.fd.as_fd(), &next.relative) {
            // One that can be listed but not entered would show names and hide what they are.
            Ok(directory) if !self.may_enter(&directory) => {
                self.visitor.unreadable(self.ground, as_path(&next.relative))
            }
            Ok(directory) => self.entries(&directory, next, found),
            Err(Errno::ACCESS | Errno::PERM) => self.visitor.unreadable(self.ground, as_path(&next.relative)),
            // Gone or replaced since it was listed.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(errno) => Err(failed("open", &self.ground.path.join(as_path(&next.relative)))(errno)),
        }
    }

    fn may_enter(&self, directory: &OwnedFd) -> bool {
        self.privileged || rustix::fs::accessat(directory, ".", Access::EXEC_OK, AtFlags::EACCESS).is_ok()
    }

    fn entries(
        &mut self,
        directory: &OwnedFd,
        next: &Pending,
        found: &mut Vec<Pending>,
    ) -> Result<(), SurveyError> {
        let mut listing = RawDir::new(directory.as_fd(), self.buffer.spare_capacity_mut());
        while let Some(listed) = listing.next() {
            let listed = match listed {
                Ok(listed) => listed,
                // The directory was removed after it was opened.
                Err(Errno::NOENT) => break,
                Err(errno) => {
                    return Err(failed("list", &self.ground.path.join(as_path(&next.relative)))(errno));
                }
            };
            let name = listed.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Some(kind) = kind_of(directory.as_fd(), &listed) else { continue };
            join(&mut self.scratch, &next.relative, name.to_bytes());
            let shield = self.visitor.entry(&Entry {
                directory: directory.as_fd(),
                relative: as_path(&self.scratch),
                name,
                kind,
                inode: listed.ino(),
                shielded: next.shielded,
            })?;
            if kind == FileType::Directory {
                let shielded = next.shielded || shield == Shield::Up;
                found.push(Pending { relative: self.scratch.clone(), shielded });
            }
        }
        Ok(())
    }
}

/// Some filesystems do not say what an entry is; only there a `stat` is paid for.
fn kind_of(directory: BorrowedFd<'_>, entry: &rustix::fs::RawDirEntry<'_>) -> Option<FileType> {
    match entry.file_type() {
        FileType::Unknown => rustix::fs::statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            .ok()
            .map(|stat| FileType::from_raw_mode(stat.st_mode)),
        known => Some(known),
    }
}

fn join(out: &mut Vec<u8>, directory: &[u8], name: &[u8]) {
    out.clear();
    out.extend_from_slice(directory);
    if !directory.is_empty() {
        out.push(b'/');
    }
    out.extend_from_slice(name);
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}
