//! The walk: every entry below a root, by directory descriptors, without recursion and without following a link.
//!
//! Almost all of its time is spent in the kernel opening directories, so a large tree is shared between a few threads.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, FileType, RawDir};
use rustix::io::Errno;

use super::SurveyError;
use super::root_handle::{PIECE, RootHandle, failed, open_directory};

/// One entry of a directory, as the directory lists it.
pub(super) struct WalkEntry<'a> {
    pub(super) directory: BorrowedFd<'a>,
    /// From the root.
    pub(super) relative: &'a Path,
    pub(super) name: &'a CStr,
    pub(super) kind: FileType,
    /// From the directory, not from the file: they can differ where a filesystem is mounted or stacked.
    pub(super) inode: u64,
    pub(super) shielded: bool,
    room: &'a WalkRoom,
}

impl WalkEntry<'_> {
    /// The path, for a visitor that keeps it.
    pub(super) fn path(&self) -> PathBuf {
        self.room.take(self.relative.as_os_str().len());
        self.relative.to_owned()
    }

    /// A visitor keeps this many bytes because of the entry.
    pub(super) fn keeps(&self, bytes: usize) {
        self.room.take(bytes);
    }
}

pub(super) trait WalkVisitor: Send {
    /// Whether what is below the entry is shielded by a read-only bind.
    fn entry(&mut self, entry: &WalkEntry<'_>) -> Result<WalkShield, SurveyError>;
    /// A directory that may not be listed.
    fn unreadable(&mut self, ground: &RootHandle, relative: &Path) -> Result<(), SurveyError>;
    /// A directory that root lists although its mode keeps its owner out. Commands of root have no such right.
    fn closed_to_owner(&mut self, _relative: &Path) {}
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkShield {
    Up,
    AsAbove,
}

/// Directories walked alone before it is worth asking others for help.
const ALONE: usize = 256;
/// Directories a helper takes at once.
const BATCH: usize = 32;
const HELPERS: usize = 4;

/// What a walk may take. Time is linear in the entries and in the depth of each, so a command can make a tree that takes
/// hours: such a tree is an error, never half a result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    begun: Instant,
    most: Duration,
}

impl Patience {
    /// Far above what a tree takes that people work in: a million files are a matter of seconds.
    const MOST: Duration = Duration::from_secs(120);

    pub(crate) fn new() -> Self {
        Self::of(Self::MOST)
    }

    pub(crate) fn of(most: Duration) -> Self {
        Self { begun: Instant::now(), most }
    }

    pub(crate) fn check(&self, path: &Path) -> Result<(), SurveyError> {
        match self.begun.elapsed() < self.most {
            true => Ok(()),
            false => Err(SurveyError::TooSlow { path: path.to_owned(), seconds: self.most.as_secs() }),
        }
    }
}

/// The memory of one walk: paths that visitors keep, and of directories still to come. A path can be as long as a command likes
/// to nest directories, so that a few thousand entries far down would take all the memory of the machine, in a process that the
/// limits of commands are not for.
#[derive(Debug, Default)]
struct WalkRoom {
    taken: AtomicUsize,
}

impl WalkRoom {
    /// A million paths of people's work, or some hundred of the longest that a command can make.
    const MOST: usize = 128 * 1024 * 1024;

    fn take(&self, bytes: usize) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn check(&self, path: &Path) -> Result<(), SurveyError> {
        match self.taken.load(Ordering::Relaxed) <= Self::MOST {
            true => Ok(()),
            false => Err(SurveyError::TooMuch { path: path.to_owned() }),
        }
    }
}

/// Visits every entry below `ground`, with one or (in a large tree) several visitors, and returns them. Memory holds the
/// directories still to come.
pub(super) fn walk<V: WalkVisitor>(
    ground: &RootHandle,
    patience: Patience,
    visitor: impl Fn() -> V,
) -> Result<Vec<V>, SurveyError> {
    let room = WalkRoom::default();
    let mut walker = Walker::new(ground, patience, &room, visitor());
    let mut pending = vec![PendingDir { relative: Vec::new(), shielded: false }];
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
    let walkers = std::iter::once(walker)
        .chain((0..helpers).map(|_| Walker::new(ground, patience, &room, visitor())))
        .collect();
    together(walkers, pending)
}

fn together<V: WalkVisitor>(
    walkers: Vec<Walker<'_, V>>,
    pending: Vec<PendingDir>,
) -> Result<Vec<V>, SurveyError> {
    let queue =
        WalkQueue { state: Mutex::new(WalkState { pending, busy: 0, error: None }), changed: Condvar::new() };
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

struct PendingDir {
    relative: Vec<u8>,
    shielded: bool,
}

/// Directories to be walked, shared.
struct WalkQueue {
    state: Mutex<WalkState>,
    changed: Condvar,
}

struct WalkState {
    pending: Vec<PendingDir>,
    /// Walkers that may still find more.
    busy: usize,
    error: Option<SurveyError>,
}

impl WalkQueue {
    fn lock(&self) -> MutexGuard<'_, WalkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next directories, or nothing once every walker is idle.
    fn take(&self) -> Vec<PendingDir> {
        let mut state = self.lock();
        while state.pending.is_empty() && state.busy > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let rest = state.pending.len().saturating_sub(BATCH);
        let batch = state.pending.split_off(rest);
        state.busy += usize::from(!batch.is_empty());
        batch
    }

    fn give(&self, walked: Result<Vec<PendingDir>, SurveyError>) {
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
    ground: &'g RootHandle,
    patience: Patience,
    room: &'g WalkRoom,
    visitor: V,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    anchor: Anchor,
    /// Root enters every directory.
    privileged: bool,
}

impl<'g, V: WalkVisitor> Walker<'g, V> {
    fn new(ground: &'g RootHandle, patience: Patience, room: &'g WalkRoom, visitor: V) -> Self {
        const BUFFER: usize = 32 * 1024;
        let privileged = rustix::process::geteuid().is_root();
        let buffer = Vec::with_capacity(BUFFER);
        let (scratch, anchor) = (Vec::new(), Anchor::default());
        Self { ground, patience, room, visitor, buffer, scratch, anchor, privileged }
    }

    fn work(mut self, queue: &WalkQueue) -> V {
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

    fn directory(&mut self, next: &PendingDir, found: &mut Vec<PendingDir>) -> Result<(), SurveyError> {
        self.patience.check(&self.ground.path)?;
        self.room.check(&self.ground.path)?;
        self.room.give_back(next.relative.len());
        match self.anchor.open(self.ground, &next.relative) {
            // One that can be listed but not entered would show names and hide what they are.
            Ok(directory) if !self.may_enter(&directory) => self.unreadable(next),
            Ok(directory) => {
                if self.privileged && is_closed_to_owner(&directory) {
                    self.room.take(next.relative.len());
                    self.visitor.closed_to_owner(as_path(&next.relative));
                }
                self.entries(&directory, next, found)
            }
            Err(Errno::ACCESS | Errno::PERM) => self.unreadable(next),
            // Gone or replaced since it was listed.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(errno) => Err(failed("open", &self.ground.path.join(as_path(&next.relative)))(errno)),
        }
    }

    fn unreadable(&mut self, directory: &PendingDir) -> Result<(), SurveyError> {
        // Twice: as what is hidden, and as what is to be looked at.
        self.room.take(2 * directory.relative.len());
        self.visitor.unreadable(self.ground, as_path(&directory.relative))
    }

    fn may_enter(&self, directory: &OwnedFd) -> bool {
        self.privileged || rustix::fs::accessat(directory, ".", Access::EXEC_OK, AtFlags::EACCESS).is_ok()
    }

    fn entries(
        &mut self,
        directory: &OwnedFd,
        next: &PendingDir,
        found: &mut Vec<PendingDir>,
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
            let shield = self.visitor.entry(&WalkEntry {
                directory: directory.as_fd(),
                relative: as_path(&self.scratch),
                name,
                kind,
                inode: listed.ino(),
                shielded: next.shielded,
                room: self.room,
            })?;
            // What one entry takes grows with its path too, so that the time of a directory has no bound.
            self.patience.check(&self.ground.path)?;
            self.room.check(&self.ground.path)?;
            if kind == FileType::Directory {
                self.room.take(self.scratch.len());
                let shielded = next.shielded || shield == WalkShield::Up;
                found.push(PendingDir { relative: self.scratch.clone(), shielded });
            }
        }
        Ok(())
    }
}

/// The last directory far down that was passed. Without it each directory of a very deep tree would be opened from the root
/// again, and time would grow with the square of the depth.
#[derive(Default)]
struct Anchor {
    held: Option<(Vec<u8>, OwnedFd)>,
}

impl Anchor {
    fn open(&mut self, ground: &RootHandle, relative: &[u8]) -> Result<OwnedFd, Errno> {
        if relative.len() <= PIECE {
            return open_directory(ground.fd.as_fd(), relative);
        }
        let below = |path: &[u8]| relative.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
        self.held.take_if(|(path, _)| !below(path));
        loop {
            let (start, directory) = match &self.held {
                Some((path, fd)) => (path.len() + 1, fd.as_fd()),
                None => (0, ground.fd.as_fd()),
            };
            let rest = relative.get(start..).unwrap_or_default();
            if rest.len() <= PIECE {
                return open_directory(directory, rest);
            }
            let cut = rest.iter().take(PIECE).rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
            let fd = open_directory(directory, rest.get(..cut).unwrap_or_default())?;
            let path = relative.get(..start + cut).unwrap_or_default().to_owned();
            self.held = Some((path, fd));
        }
    }
}

/// Whether the caller owns a directory that its mode does not let the owner list and enter.
fn is_closed_to_owner(directory: &OwnedFd) -> bool {
    const LIST_AND_ENTER: u32 = 0o500;
    rustix::fs::fstat(directory).is_ok_and(|stat| {
        stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & LIST_AND_ENTER != LIST_AND_ENTER
    })
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
