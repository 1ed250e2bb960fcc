//! Placeholders: what holds a protected name that does not exist, for as long as a session lasts.
//!
//! A read-only mount needs something to sit on, so an empty directory or a fixed small file is made on the host just
//! before a launch and removed after it. Sessions that share a root share its placeholders; the last one removes them.
//!
//! Each root has three files in the registry directory, named by a digest of its path:
//!
//! - `.list`: what was made. An entry is written *before* its placeholder, so that a killed session leaves nothing
//!   unknown: the next session in the root takes it over and removes it at its end, or [`sweep`] does.
//! - `.lock`: held shared by every session for its life. A process that gets it exclusively is alone.
//! - `.turn`: held exclusively while the other two are looked at or changed.
//!
//! Sessions with another state directory, of another user or in another container have another registry. They see each
//! other by marks on the roots themselves ([`presence`]): what such a session could see is not removed. The last of
//! them removes it, also where another one made it: a placeholder is known by its time of change ([`mark`]).
//!
//! A session joins *before* it surveys. Otherwise the placeholders of another session could be surveyed as things that
//! exist and be gone, with that session, before anything is mounted on them.
//!
//! Making and removing a directory costs ten times what moving one does, so the empty directories of the top of a root
//! are kept in a `.pool` beside these files and moved in and out, where root and registry share a file system.
//!
//! INVARIANT: nothing of a user is ever removed. Directories go by `rmdir`, which only takes empty ones, or are moved
//! to the pool, found empty there, and moved back otherwise; files go only if their content is still exactly ours.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use ringfence_types::ByteString;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::survey::{AbsentName, PlaceholderKind, SurveyedRoot, handle_unlinked};

mod file_lock;
mod mark;
mod presence;

use file_lock::FileLock;
use presence::{ClearingMarks, WatchMark};

/// The placeholders of one session. Dropping it removes them, unless another session still needs them.
#[derive(Debug)]
pub struct PlaceholderSet {
    registry_dir: PathBuf,
    roots: Vec<RegistryLease>,
}

/// What became of the absent names of one root. All paths are relative to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceholderOutcome {
    /// A placeholder of ours is there: to be re-bound read-only.
    pub held: Vec<PathBuf>,
    /// Something else has come into being there meanwhile: to be re-bound read-only like anything that exists.
    pub taken: Vec<PathBuf>,
    /// Nothing can be made there, by us or from inside: a read-only filesystem, or another user's directory.
    pub impossible: Vec<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum PlaceholderError {
    #[error("cannot {action} `{}`", ByteString::from(path.as_path()).display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "`{}` is locked: another process removes placeholders in it and does not end; end that process",
        ByteString::from(path.as_path()).display()
    )]
    Cleared { path: PathBuf },
}

impl PlaceholderSet {
    /// Keeps the placeholders that other sessions have made in `roots`, above them or below them from going away.
    pub fn join(registry_dir: &Path, roots: &[PathBuf]) -> Result<Self, PlaceholderError> {
        make_registry(registry_dir)?;
        let mut joined = Self { registry_dir: registry_dir.to_owned(), roots: Vec::new() };
        for root in roots {
            joined.roots.push(RegistryLease::join(registry_dir, root)?);
        }
        joined.join_overlapping()?;
        Ok(joined)
    }

    /// Joins every session that has placeholders above or below one of our roots: a worktree and its repository, a
    /// workspace inside another. Says whether there were any that we did not know of: what was surveyed before that
    /// may have been theirs, and gone since.
    pub fn join_overlapping(&mut self) -> Result<SessionOverlap, PlaceholderError> {
        let mut overlap = SessionOverlap::Known;
        for root in listed_roots(&self.registry_dir)? {
            let known = self.roots.iter().any(|held| held.path == root);
            let near =
                self.roots.iter().any(|held| held.path.starts_with(&root) || root.starts_with(&held.path));
            if known || !near {
                continue;
            }
            match RegistryLease::join(&self.registry_dir, &root) {
                Ok(held) => self.roots.push(held),
                // The root itself is gone, and everything in it.
                Err(PlaceholderError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    continue;
                }
                Err(error) => return Err(error),
            }
            overlap = SessionOverlap::New;
        }
        Ok(overlap)
    }

    /// Makes what the survey found absent, and strikes from it what cannot be made on this file system. On an error,
    /// dropping removes what was made so far.
    pub fn fill(&mut self, root: &mut SurveyedRoot) -> Result<PlaceholderOutcome, PlaceholderError> {
        let outcome = self.hold(&root.path, &root.absent)?;
        if let Some(held) = self.roots.iter_mut().find(|held| held.path == root.path) {
            held.met.extend(root.protected.iter().chain(&root.pins).chain(&outcome.taken).cloned());
        }
        root.absent.retain(|absent| !outcome.impossible.contains(&absent.path));
        Ok(outcome)
    }

    fn hold(&mut self, root: &Path, absent: &[AbsentName]) -> Result<PlaceholderOutcome, PlaceholderError> {
        if let Some(held) = self.roots.iter().find(|held| held.path == root) {
            return held.fill(absent);
        }
        self.roots.push(RegistryLease::join(&self.registry_dir, root)?);
        self.roots.last().map_or_else(|| Ok(PlaceholderOutcome::default()), |held| held.fill(absent))
    }
}

impl Drop for PlaceholderSet {
    /// What this session watches itself must not keep it from removing what it has made.
    fn drop(&mut self) {
        self.roots.iter_mut().for_each(|held| held.watched = None);
    }
}

/// Whether sessions with overlapping roots came to light.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionOverlap {
    Known,
    New,
}

/// The roots that have placeholders now.
fn listed_roots(registry_dir: &Path) -> Result<Vec<PathBuf>, PlaceholderError> {
    let failed = |source| PlaceholderError::Io { action: "list", path: registry_dir.to_owned(), source };
    let mut roots = Vec::new();
    for entry in std::fs::read_dir(registry_dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension() == Some(OsStr::new("list")) {
            let content = PlaceholderRegistry::at(path.with_extension("")).content()?;
            roots.extend(parse(&content).map(|(root, _)| root));
        }
    }
    Ok(roots)
}

/// Removes what killed sessions left behind, and says how many placeholders that were.
pub fn sweep(registry_dir: &Path) -> Result<usize, PlaceholderError> {
    let entries = match std::fs::read_dir(registry_dir) {
        Ok(entries) => entries,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(source) => {
            return Err(PlaceholderError::Io { action: "list", path: registry_dir.to_owned(), source });
        }
    };
    let mut removed = 0;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension() == Some(OsStr::new("list")) {
            removed += PlaceholderRegistry::at(path.with_extension("")).sweep()?;
        }
    }
    Ok(removed)
}

/// One root's share in the registry, for the life of a session.
#[derive(Debug)]
struct RegistryLease {
    path: PathBuf,
    root: OwnedFd,
    registry: PlaceholderRegistry,
    /// Shared.
    lock: FileLock,
    watched: Option<WatchMark>,
    /// What was there when this session came. Some of it may be placeholders of sessions with another registry.
    met: Vec<PathBuf>,
}

impl RegistryLease {
    fn join(registry_dir: &Path, root: &Path) -> Result<Self, PlaceholderError> {
        let fd = handle_unlinked(root).map_err(failed("open", root))?;
        let registry = PlaceholderRegistry::of(registry_dir, root);
        let _turn = registry.take_turn()?;
        let lock = registry.lock("lock", FlockOperation::LockShared)?;
        let watched = WatchMark::mark(root)?;
        Ok(Self { path: root.to_owned(), root: fd, registry, lock, watched, met: Vec::new() })
    }

    fn fill(&self, absent: &[AbsentName]) -> Result<PlaceholderOutcome, PlaceholderError> {
        let _turn = self.registry.take_turn()?;
        let mut listed = self.registry.entries()?;
        let known: BTreeSet<PathBuf> = listed.iter().map(|entry| entry.path.clone()).collect();
        let mut outcome = PlaceholderOutcome::default();
        let mut fresh = Vec::new();
        for absent in absent {
            match (self.exists(&absent.path)?, known.contains(&absent.path)) {
                (true, true) => outcome.held.push(absent.path.clone()),
                (true, false) => outcome.taken.push(absent.path.clone()),
                (false, _) => fresh.push(PlaceholderEntry::of(absent)),
            }
        }
        if !fresh.is_empty() {
            listed.extend(fresh.iter().filter(|entry| !known.contains(&entry.path)).cloned());
            self.registry.write(&self.path, &listed)?;
        }
        fresh.iter().try_for_each(|entry| self.make(entry, &mut outcome))?;
        Ok(outcome)
    }

    fn exists(&self, path: &Path) -> Result<bool, PlaceholderError> {
        match rustix::fs::statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed("look at", &self.path.join(path))(errno)),
        }
    }

    fn make(
        &self,
        entry: &PlaceholderEntry,
        outcome: &mut PlaceholderOutcome,
    ) -> Result<(), PlaceholderError> {
        let made = parent_of(self.root.as_fd(), &entry.path)
            .and_then(|(parent, name)| entry.make(&parent, &name, self.registry.pool().as_ref()));
        let list = match made {
            Ok(()) => {
                outcome.held.push(entry.path.clone());
                return Ok(());
            }
            Err(Errno::EXIST) => &mut outcome.taken,
            Err(Errno::ROFS) => &mut outcome.impossible,
            Err(Errno::ACCESS | Errno::PERM) if self.is_others(&entry.path) => &mut outcome.impossible,
            Err(errno) => return Err(failed("hold the place of", &self.path.join(&entry.path))(errno)),
        };
        list.push(entry.path.clone());
        self.registry.strike(&entry.path)
    }

    /// Removes the placeholders of sessions that have ended before this one and left them for its sake.
    fn remove_met(&self) {
        let mut clearing = ClearingMarks::default();
        // A session that came later may have made names at the top that this one knows nothing of.
        let later = self.names_at_top();
        let mut met: Vec<&PathBuf> = self.met.iter().chain(&later).collect();
        // What lies in a directory goes before it.
        met.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
        for path in met {
            let Some(entry) = marked_at(self.root.as_fd(), path) else { continue };
            if !clearing.is_seen(&self.path, path) {
                // What is not removed now is listed by the session that made it.
                let _stays = entry.remove(self.root.as_fd(), None);
            }
        }
    }

    fn names_at_top(&self) -> Vec<PathBuf> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.root, ".", flags, Mode::empty());
        let Ok(entries) = opened.and_then(Dir::new) else { return Vec::new() };
        let names = entries.flatten().map(|entry| OsString::from_vec(entry.file_name().to_bytes().to_vec()));
        names.filter(|name| name != "." && name != "..").map(PathBuf::from).collect()
    }

    /// A directory of our own could be made writable from inside, another user's cannot.
    fn is_others(&self, path: &Path) -> bool {
        let parent = parent_of(self.root.as_fd(), path).and_then(|(parent, _)| rustix::fs::fstat(&parent));
        parent.is_ok_and(|stat| stat.st_uid != rustix::process::geteuid().as_raw())
    }
}

impl Drop for RegistryLease {
    /// Nothing can be reported from here; what cannot be removed now stays listed for the next session.
    fn drop(&mut self) {
        let Ok(turn) = self.registry.take_turn() else { return };
        if self.lock.is_alone() {
            drop(self.registry.remove_listed());
            self.remove_met();
        }
        // In this order: of two sessions that end together, the one whose turn comes last finds itself alone.
        self.lock.release();
        drop(turn);
    }
}

/// The three files of one root, without their extension.
#[derive(Debug)]
struct PlaceholderRegistry {
    stem: PathBuf,
}

impl PlaceholderRegistry {
    fn of(registry_dir: &Path, root: &Path) -> Self {
        let digest = Sha256::digest(root.as_os_str().as_bytes());
        let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self::at(registry_dir.join(name))
    }

    fn at(stem: PathBuf) -> Self {
        Self { stem }
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.stem.with_extension(extension)
    }

    fn open(&self, extension: &str) -> Result<OwnedFd, PlaceholderError> {
        let path = self.file(extension);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(failed("open", &path))
    }

    fn lock(&self, extension: &str, operation: FlockOperation) -> Result<FileLock, PlaceholderError> {
        FileLock::take(self.open(extension)?, operation).map_err(failed("lock", &self.file(extension)))
    }

    /// Held until it is dropped.
    fn take_turn(&self) -> Result<FileLock, PlaceholderError> {
        self.lock("turn", FlockOperation::LockExclusive)
    }

    /// The empty directories in store; `None` where there is no store, which only costs time.
    fn pool(&self) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(self.file("pool"), flags, Mode::empty()).ok()
    }

    fn make_pool(&self) -> Option<OwnedFd> {
        match rustix::fs::mkdir(self.file("pool"), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.pool(),
            Err(_) => None,
        }
    }

    fn sweep(&self) -> Result<usize, PlaceholderError> {
        let _turn = self.take_turn()?;
        // A session that begins meanwhile waits for the turn before it takes this lock.
        let lock = FileLock { file: self.open("lock")? };
        if lock.is_alone() { self.remove_listed() } else { Ok(0) }
    }

    fn content(&self) -> Result<Vec<u8>, PlaceholderError> {
        let mut content = Vec::new();
        match File::open(self.file("list")).and_then(|mut file| file.read_to_end(&mut content)) {
            Ok(_) => Ok(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(content),
            Err(source) => Err(PlaceholderError::Io { action: "read", path: self.file("list"), source }),
        }
    }

    fn entries(&self) -> Result<Vec<PlaceholderEntry>, PlaceholderError> {
        Ok(parse(&self.content()?).map(|(_, entries)| entries).unwrap_or_default())
    }

    fn strike(&self, path: &Path) -> Result<(), PlaceholderError> {
        let Some((root, mut entries)) = parse(&self.content()?) else { return Ok(()) };
        entries.retain(|entry| entry.path != path);
        self.write(&root, &entries)
    }

    /// A list that is cut off by a crash names fewer placeholders than exist, so it is replaced whole.
    fn write(&self, root: &Path, entries: &[PlaceholderEntry]) -> Result<(), PlaceholderError> {
        let mut content = [root.as_os_str().as_bytes(), b"\0"].concat();
        entries.iter().for_each(|entry| entry.encode(&mut content));
        let (fresh, list) = (self.file("new"), self.file("list"));
        let written = File::create(&fresh).and_then(|mut file| file.write_all(&content));
        written.and_then(|()| std::fs::rename(&fresh, &list)).map_err(|source| PlaceholderError::Io {
            action: "write",
            path: list,
            source,
        })
    }

    /// Removes everything listed that no session with another registry can see. What stays for now stays listed.
    fn remove_listed(&self) -> Result<usize, PlaceholderError> {
        let Some((root, entries)) = parse(&self.content()?) else { return Ok(0) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Not through a link: a command may have put one where the root was.
        let opened =
            rustix::fs::openat2(rustix::fs::CWD, &root, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        let mut clearing = ClearingMarks::default();
        let (mut staying, free): (Vec<PlaceholderEntry>, Vec<PlaceholderEntry>) =
            entries.into_iter().partition(|entry| clearing.is_seen(&root, &entry.path));
        let mut removed = 0;
        match opened {
            Ok(fd) => {
                let pool = self.make_pool();
                for entry in free.into_iter().rev() {
                    match entry.remove(fd.as_fd(), pool.as_ref()) {
                        Ok(()) => removed += 1,
                        Err(errno) if is_no_placeholder(errno) => {}
                        Err(_) => staying.push(entry),
                    }
                }
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(failed("open", &root)(errno)),
        }
        if !staying.is_empty() {
            // A directory is listed before what is in it.
            staying.sort_by(|one, other| one.path.cmp(&other.path));
            self.write(&root, &staying)?;
            return Ok(removed);
        }
        match std::fs::remove_file(self.file("list")) {
            Ok(()) => Ok(removed),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(removed),
            Err(source) => Err(PlaceholderError::Io { action: "remove", path: self.file("list"), source }),
        }
    }
}

/// One placeholder, as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlaceholderEntry {
    path: PathBuf,
    /// `None` for a directory.
    content: Option<Vec<u8>>,
}

impl PlaceholderEntry {
    fn of(absent: &AbsentName) -> Self {
        let content = match absent.placeholder {
            PlaceholderKind::Directory | PlaceholderKind::Way => None,
            PlaceholderKind::File(content) => Some(content.to_vec()),
        };
        Self { path: absent.path.clone(), content }
    }

    /// Kind, path and content, each ended by a zero byte; neither path nor content can hold one.
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.content.is_some() { b"file\0" } else { b"directory\0" });
        out.extend_from_slice(self.path.as_os_str().as_bytes());
        out.push(0);
        out.extend_from_slice(self.content.as_deref().unwrap_or_default());
        out.push(0);
    }

    fn make(&self, parent: &OwnedFd, name: &OsStr, pool: Option<&OwnedFd>) -> Result<(), Errno> {
        mark::keeping(parent, || self.make_plain(parent, name, pool))?;
        // Without its mark only sessions with this registry know it.
        let _unmarked = mark::set(parent, name);
        Ok(())
    }

    fn make_plain(&self, parent: &OwnedFd, name: &OsStr, pool: Option<&OwnedFd>) -> Result<(), Errno> {
        let Some(content) = &self.content else {
            return match pool.filter(|_| self.is_at_top()).map(|pool| move_into(pool, parent, name)) {
                Some(Ok(())) => Ok(()),
                Some(Err(Errno::EXIST)) => Err(Errno::EXIST),
                // Nothing in store, or another file system.
                Some(Err(_)) | None => rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)),
            };
        };
        match make_whole(parent, name, content) {
            // A file system without nameless files, or no /proc to name one.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
            made => return made,
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
        rustix::io::write(&file, content).map(drop)
    }

    fn is_at_top(&self) -> bool {
        self.path.components().count() == 1
    }

    fn remove(&self, root: BorrowedFd<'_>, pool: Option<&OwnedFd>) -> Result<(), Errno> {
        let (parent, name) = parent_of(root, &self.path)?;
        mark::keeping(&parent, || self.remove_from(&parent, &name, pool))
    }

    fn remove_from(&self, parent: &OwnedFd, name: &OsStr, pool: Option<&OwnedFd>) -> Result<(), Errno> {
        if self.content.is_none() {
            clear(parent, name);
        }
        match &self.content {
            None => match pool.filter(|_| self.is_at_top() && is_empty_directory(parent, name)) {
                Some(pool) => put_away(parent, pool, name)
                    .or_else(|_| rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)),
                None => rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR),
            },
            Some(content) if is_exactly(parent, name, content)? => {
                rustix::fs::unlinkat(parent, name, AtFlags::empty())
            }
            Some(_) => Err(Errno::EXIST),
        }
    }
}

/// A file that has its content before it has its name: no session takes an empty file for a placeholder, so one that
/// a killed session left would stay for ever.
fn make_whole(parent: &OwnedFd, name: &OsStr, content: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, ".", flags, Mode::from_raw_mode(0o644))?;
    rustix::io::write(&file, content)?;
    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(rustix::fs::CWD, nameless, parent, name, AtFlags::SYMLINK_FOLLOW)
}

fn move_into(from: &OwnedFd, to: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    rustix::fs::renameat_with(from, name, to, name, RenameFlags::NOREPLACE)
}

/// Moves a directory to the pool, and back if something was put into it meanwhile.
fn put_away(parent: &OwnedFd, pool: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    move_into(parent, pool, name)?;
    if is_empty_directory(pool, name) {
        return Ok(());
    }
    move_into(pool, parent, name)?;
    Err(Errno::NOTEMPTY)
}

fn is_empty_directory(parent: &OwnedFd, name: &OsStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::openat(parent, name, flags, Mode::empty()) else { return false };
    let Ok(mut entries) = Dir::new(directory) else { return false };
    entries.all(|entry| entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")))
}

/// Removes the placeholders that other sessions have made in a placeholder. No session sees it any more, so none needs them.
fn clear(parent: &OwnedFd, name: &OsStr) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::openat(parent, name, flags, Mode::empty()) else { return };
    let Ok(entries) = Dir::read_from(&directory) else { return };
    for entry in entries.flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        if let Some(placeholder) = marked_at(directory.as_fd(), Path::new(name)) {
            // What is not removed keeps the directory, and its list.
            let _stays = placeholder.remove(directory.as_fd(), None);
        }
    }
}

/// The placeholder at `path`, no matter which session made it.
fn marked_at(root: BorrowedFd<'_>, path: &Path) -> Option<PlaceholderEntry> {
    let (parent, name) = parent_of(root, path).ok()?;
    if !mark::is_on(&parent, &name) {
        return None;
    }
    let stat = rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let content = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => None,
        FileType::RegularFile => {
            let is_content = |content: &&&[u8]| is_exactly(&parent, &name, content).unwrap_or(false);
            let known = PlaceholderKind::CONTENTS.iter().find(is_content);
            Some(known?.to_vec())
        }
        _ => return None,
    };
    Some(PlaceholderEntry { path: path.to_owned(), content })
}

/// Whether removing failed because the name is free, or belongs to a user by now. Any other failure may pass.
fn is_no_placeholder(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::EXIST | Errno::NOTEMPTY)
}

fn is_exactly(parent: &OwnedFd, name: &OsStr, content: &[u8]) -> Result<bool, Errno> {
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(false);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let mut found = Vec::new();
    let read = File::from(file).take(content.len() as u64 + 1).read_to_end(&mut found);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(found == content)
}

/// The directory a placeholder goes into, reached without a symbolic link, and its name there.
fn parent_of(root: BorrowedFd<'_>, path: &Path) -> Result<(OwnedFd, OsString), Errno> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    // Not O_PATH: the descriptor is also asked for its owner.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat2(root, parent, flags, Mode::empty(), resolve)?;
    Ok((fd, name.to_owned()))
}

/// The root and the entries of a list; `None` if there is no list.
fn parse(content: &[u8]) -> Option<(PathBuf, Vec<PlaceholderEntry>)> {
    let mut fields = content.split(|byte| *byte == 0);
    let root = fields.next().filter(|root| !root.is_empty())?;
    let mut entries = Vec::new();
    while let (Some(kind), Some(path), Some(content)) = (fields.next(), fields.next(), fields.next()) {
        let content = (kind == b"file").then(|| content.to_vec());
        entries.push(PlaceholderEntry { path: PathBuf::from(OsString::from_vec(path.to_vec())), content });
    }
    Some((PathBuf::from(OsStr::from_bytes(root)), entries))
}

pub(crate) fn make_registry(path: &Path) -> Result<(), PlaceholderError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| PlaceholderError::Io { action: "create", path: path.to_owned(), source })
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(Errno) -> PlaceholderError {
    let path = path.to_owned();
    move |errno| PlaceholderError::Io { action, path, source: io::Error::from(errno) }
}

#[cfg(test)]
mod tests;
