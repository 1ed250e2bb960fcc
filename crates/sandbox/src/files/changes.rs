//! Several files changed as one: prepared beside their targets, then exchanged with them one by one, with enough written
//! down that whoever comes after a crash can finish or undo it.
//!
//! ```text
//!  plan → stage ──→ swap ──→ clear          what was there waits under the spare name until `clear`
//!           └→ withdraw ←┘                  every step back is possible until then
//!  after a crash: `withdraw` before the swap was begun, `complete` after
//! ```
//!
//! INVARIANT: a file is never replaced by something else than the bytes of its digest, and never lost: the exchange is
//! atomic, and what came out of it is looked at before the next step.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ringfence_types::{Bytes, hex};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::exact::Place;
use super::{FileError, FileRefusal, FileType, Tree, file_type};

/// What is larger was never the base of an edit.
const LARGEST: u64 = 64 * 1024 * 1024;

/// One file before and after, by SHA-256 in hexadecimal. `None`: there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit<'a> {
    /// Relative to the root.
    pub path: &'a Path,
    pub base: Option<&'a str>,
    pub result: Option<&'a str>,
}

/// A set of changes to one root. It can be written down, and carried on by another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    root: Bytes,
    /// To be made first, outermost first, relative.
    directories: Vec<Bytes>,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// Relative; empty for the root.
    directory: Bytes,
    name: Bytes,
    /// A name beside it: first for what will be there, after the exchange for what was.
    spare: Bytes,
    base: Option<String>,
    result: Option<String>,
}

/// How far a set of changes came before it is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing was exchanged.
    Staged,
    /// Some may have been exchanged.
    Swapping,
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    File(#[from] FileError),
    /// Not what the changes were made for.
    #[error("{} is not what it was", list(paths))]
    Conflict { paths: Vec<PathBuf> },
    /// Neither what was there before nor what was prepared: somebody's, and not removed.
    #[error("{} is not what was left there, and is kept", list(paths))]
    Kept { paths: Vec<PathBuf> },
    /// KERNEL: some network and user-space file systems have no RENAME_EXCHANGE.
    #[error("the file system of `{}` cannot exchange two files", Bytes::from(path.as_path()).display())]
    NoExchange { path: PathBuf },
}

impl Tree<'_> {
    /// Checks every edit against the rules and against what is there. Touches nothing. `label` names the spare files.
    pub fn plan(&self, root: &Path, edits: &[Edit<'_>], label: &str) -> Result<Changes, ChangeError> {
        let mut directories = BTreeSet::new();
        let mut entries = Vec::with_capacity(edits.len());
        let mut conflicts = Vec::new();
        for (number, edit) in edits.iter().enumerate() {
            match self.place(&root.join(edit.path), LARGEST) {
                Ok(Place::File(content)) if edit.base == Some(&digest(&content)) => {}
                Ok(Place::Vacant { missing }) if edit.base.is_none() => directories.extend(missing),
                Ok(_) | Err(FileError::Refused { refusal: FileRefusal::TooLarge, .. }) => {
                    conflicts.push(edit.path.to_owned());
                }
                Err(error) => return Err(error.into()),
            }
            entries.push(Entry::new(edit, spare(label, number))?);
        }
        if !conflicts.is_empty() {
            return Err(ChangeError::Conflict { paths: conflicts });
        }
        let relative = |path: PathBuf| path.strip_prefix(root).map(Bytes::from).unwrap_or_default();
        // Sorted by component: what is above comes first.
        Ok(Changes {
            root: Bytes::from(root),
            directories: directories.into_iter().map(relative).collect(),
            entries,
        })
    }
}

impl Changes {
    /// Writes what will be there beside where it will be, durable. `contents` has one for each edit, in their order.
    pub fn stage(&self, contents: &[Option<&[u8]>]) -> Result<(), ChangeError> {
        let root = self.open()?;
        for directory in &self.directories {
            self.make(&root, directory.as_path())?;
        }
        for (entry, content) in self.entries.iter().zip(contents) {
            if let (Some(_), Some(content)) = (&entry.result, content) {
                let parent = self.directory(&root, entry)?;
                entry.write(&parent, content).map_err(|source| self.failed("write", entry, source))?;
            }
        }
        self.sync(&root)
    }

    /// Exchanges. After an error some are exchanged: [`Changes::withdraw`] undoes it.
    pub fn swap(&self) -> Result<(), ChangeError> {
        let root = self.open()?;
        for entry in &self.entries {
            let parent = self.directory(&root, entry)?;
            match entry.swap(&parent) {
                Ok(()) => {}
                Err(Obstacle::Conflict) => return Err(self.conflict(entry)),
                Err(Obstacle::Io(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)) => {
                    return Err(ChangeError::NoExchange { path: self.path(entry) });
                }
                Err(Obstacle::Io(errno)) => return Err(self.failed("replace", entry, errno.into())),
            }
        }
        self.sync(&root)
    }

    /// Removes what was there before. The last step: there is no way back after it.
    pub fn clear(&self) -> Result<(), ChangeError> {
        let root = self.open()?;
        let kept = self.remove_spares(&root, Progress::Swapping)?;
        self.sync(&root)?;
        none_kept(kept)
    }

    /// Puts everything back as it was.
    pub fn withdraw(&self, progress: Progress) -> Result<(), ChangeError> {
        let root = self.open()?;
        if progress == Progress::Swapping {
            for entry in self.entries.iter().rev() {
                if let Some(parent) = self.present(&root, entry)? {
                    entry.unswap(&parent).map_err(|errno| self.failed("restore", entry, errno.into()))?;
                }
            }
        }
        let kept = self.remove_spares(&root, progress)?;
        for directory in self.directories.iter().rev() {
            match remove_directory(&root, directory.as_path()) {
                // Gone already, or somebody uses it.
                Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::LOOP) => {
                }
                Err(errno) => return Err(self.failed_at("remove", directory.as_path(), errno.into())),
            }
        }
        self.sync(&root)?;
        none_kept(kept)
    }

    /// Finishes what another process began to exchange. The paths are those that somebody changed meanwhile: they are left
    /// as they are.
    pub fn complete(&self) -> Result<Vec<PathBuf>, ChangeError> {
        let root = self.open()?;
        let mut left = Vec::new();
        for entry in &self.entries {
            let Some(parent) = self.present(&root, entry)? else {
                left.push(self.path(entry));
                continue;
            };
            match entry.resume(&parent) {
                Ok(()) => {}
                Err(Obstacle::Conflict) => left.push(self.path(entry)),
                Err(Obstacle::Io(errno)) => return Err(self.failed("replace", entry, errno.into())),
            }
        }
        self.sync(&root)?;
        left.extend(self.remove_spares(&root, Progress::Swapping)?);
        self.sync(&root)?;
        Ok(left)
    }

    /// Nobody can finish or undo anything in a root that does not exist any more.
    pub fn is_void(&self) -> bool {
        !std::fs::symlink_metadata(self.root.as_path()).is_ok_and(|found| found.is_dir())
    }

    /// Whether [`Tree::plan`] can have made it of these.
    pub fn is_of(&self, root: &Path, edits: &[Edit<'_>], label: &str) -> bool {
        let numbered = edits.iter().enumerate();
        let planned: Result<Vec<Entry>, FileError> =
            numbered.map(|(number, edit)| Entry::new(edit, spare(label, number))).collect();
        let is_above = |directory: &Bytes| {
            let path = directory.as_path();
            !path.as_os_str().is_empty() && edits.iter().any(|edit| edit.path.starts_with(path))
        };
        self.root.as_path().as_os_str() == root.as_os_str()
            && planned.is_ok_and(|planned| planned == self.entries)
            && self.directories.iter().all(is_above)
    }

    /// Every file, relative to the root.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.entries.iter().map(|entry| self.path(entry)).collect()
    }

    fn open(&self) -> Result<OwnedFd, ChangeError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(self.root.as_path(), flags, Mode::empty())
            .map_err(|errno| self.failed_at("open", Path::new(""), errno.into()))
    }

    fn make(&self, root: &OwnedFd, directory: &Path) -> Result<(), ChangeError> {
        let failed = |errno: Errno| self.failed_at("make", directory, errno.into());
        let name = directory.file_name().ok_or_else(|| failed(Errno::INVAL))?;
        let parent = beneath(root, directory.parent().unwrap_or(Path::new(""))).map_err(failed)?;
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn directory(&self, root: &OwnedFd, entry: &Entry) -> Result<OwnedFd, ChangeError> {
        beneath(root, entry.directory.as_path()).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => self.conflict(entry),
            errno => self.failed("open the directory of", entry, errno.into()),
        })
    }

    /// `None`: somebody has taken its directory away, and the spare file with it.
    fn present(&self, root: &OwnedFd, entry: &Entry) -> Result<Option<OwnedFd>, ChangeError> {
        match self.directory(root, entry) {
            Ok(parent) => Ok(Some(parent)),
            Err(ChangeError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The paths are those of spare files that are not what we left there.
    fn remove_spares(&self, root: &OwnedFd, progress: Progress) -> Result<Vec<PathBuf>, ChangeError> {
        let mut kept = Vec::new();
        for entry in &self.entries {
            let Some(parent) = self.present(root, entry)? else { continue };
            let failed = |errno: Errno| self.failed("look at what was prepared for", entry, errno.into());
            match (entry.kept(&parent).map_err(failed)?, progress) {
                (Seen::Nothing, _) => continue,
                // Cut off while it was written it has any beginning of the result.
                (Seen::File(_), Progress::Staged) => {}
                (seen, _) if entry.is_one_of_ours(&seen) => {}
                _ => {
                    kept.push(entry.directory.as_path().join(entry.spare.as_path()));
                    continue;
                }
            }
            match rustix::fs::unlinkat(&parent, entry.spare.as_path(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
                Err(errno) => return Err(self.failed("remove what was prepared for", entry, errno.into())),
            }
        }
        Ok(kept)
    }

    /// Makes the names durable in every directory that has changed.
    fn sync(&self, root: &OwnedFd) -> Result<(), ChangeError> {
        let above = |directory: &'_ Bytes| directory.as_path().parent().map(Path::to_owned);
        let mut changed: BTreeSet<PathBuf> = self.directories.iter().filter_map(above).collect();
        changed.extend(self.entries.iter().map(|entry| entry.directory.as_path().to_owned()));
        for directory in changed {
            let failed = |errno: Errno| self.failed_at("sync", &directory, errno.into());
            match beneath(root, &directory) {
                Ok(opened) => rustix::fs::fsync(&opened).map_err(failed)?,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }

    fn path(&self, entry: &Entry) -> PathBuf {
        entry.directory.as_path().join(entry.name.as_path())
    }

    fn conflict(&self, entry: &Entry) -> ChangeError {
        ChangeError::Conflict { paths: vec![self.path(entry)] }
    }

    fn failed(&self, action: &'static str, entry: &Entry, source: io::Error) -> ChangeError {
        self.failed_at(action, &self.path(entry), source)
    }

    fn failed_at(&self, action: &'static str, path: &Path, source: io::Error) -> ChangeError {
        FileError::Io { action, path: self.root.as_path().join(path), source }.into()
    }
}

enum Obstacle {
    Conflict,
    Io(Errno),
}

impl From<Errno> for Obstacle {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::EXIST => Self::Conflict,
            errno => Self::Io(errno),
        }
    }
}

/// What a name means.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    File(String),
    Other,
}

impl Seen {
    fn is(&self, wanted: Option<&String>) -> bool {
        match (self, wanted) {
            (Self::Nothing, None) => true,
            (Self::File(digest), Some(wanted)) => digest == wanted,
            _ => false,
        }
    }
}

impl Entry {
    fn new(edit: &Edit<'_>, spare: String) -> Result<Self, FileError> {
        let malformed = || FileError::Refused { path: edit.path.to_owned(), refusal: FileRefusal::Malformed };
        Ok(Self {
            directory: Bytes::from(edit.path.parent().ok_or_else(malformed)?),
            name: Bytes::from(edit.path.file_name().ok_or_else(malformed)?),
            spare: Bytes::from(spare.as_str()),
            base: edit.base.map(str::to_owned),
            result: edit.result.map(str::to_owned),
        })
    }

    fn write(&self, parent: &OwnedFd, content: &[u8]) -> io::Result<()> {
        let old = match rustix::fs::statat(parent, self.name.as_path(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(old) => Some(old),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno.into()),
        };
        let mode = if old.is_some() { 0o600 } else { 0o644 };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(parent, self.spare.as_path(), flags, Mode::from_raw_mode(mode))?;
        let mut file = File::from(fd);
        file.write_all(content)?;
        if let Some(old) = old {
            match rustix::fs::fchown(&file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)))
            {
                // Only root can keep another owner; anyone else becomes the owner of what they write.
                Ok(()) | Err(Errno::PERM) => {}
                Err(errno) => return Err(errno.into()),
            }
            rustix::fs::fchmod(&file, Mode::from_raw_mode(old.st_mode & 0o777))?;
        }
        file.sync_all()
    }

    fn swap(&self, parent: &OwnedFd) -> Result<(), Obstacle> {
        match (&self.base, &self.result) {
            (Some(_), Some(_)) => self.exchange(parent)?,
            (None, Some(_)) => self.rename(parent, &self.spare, &self.name)?,
            (Some(_), None) => self.rename(parent, &self.name, &self.spare)?,
            (None, None) => return Ok(()),
        }
        let whole =
            self.target(parent)?.is(self.result.as_ref()) && self.kept(parent)?.is(self.base.as_ref());
        if whole {
            return Ok(());
        }
        match (&self.base, &self.result) {
            (Some(_), Some(_)) => self.exchange(parent)?,
            (None, _) => self.rename(parent, &self.name, &self.spare)?,
            (_, None) => self.rename(parent, &self.spare, &self.name)?,
        }
        Err(Obstacle::Conflict)
    }

    fn unswap(&self, parent: &OwnedFd) -> Result<(), Errno> {
        let swapped =
            self.target(parent)?.is(self.result.as_ref()) && self.kept(parent)?.is(self.base.as_ref());
        // What somebody changed meanwhile is theirs.
        if !swapped {
            return Ok(());
        }
        match (&self.base, &self.result) {
            (Some(_), Some(_)) => self.exchange(parent),
            (None, Some(_)) => self.rename(parent, &self.name, &self.spare),
            (Some(_), None) => self.rename(parent, &self.spare, &self.name),
            (None, None) => Ok(()),
        }
    }

    /// Whichever of the two states it is in, afterwards it is in the second.
    fn resume(&self, parent: &OwnedFd) -> Result<(), Obstacle> {
        let (target, kept) = (self.target(parent)?, self.kept(parent)?);
        if target.is(self.base.as_ref()) && kept.is(self.result.as_ref()) {
            return self.swap(parent);
        }
        // Exchanged, and whatever happened to the target since then happened to the result. Where there was nothing before,
        // nothing tells our file from another that somebody put there, except what is in it.
        let exchanged = self.base.is_some() && kept.is(self.base.as_ref());
        if exchanged || (target.is(self.result.as_ref()) && kept == Seen::Nothing) {
            return Ok(());
        }
        Err(Obstacle::Conflict)
    }

    fn is_one_of_ours(&self, seen: &Seen) -> bool {
        [&self.base, &self.result].into_iter().flatten().any(|digest| seen.is(Some(digest)))
    }

    fn target(&self, parent: &OwnedFd) -> Result<Seen, Errno> {
        look(parent, self.name.as_path())
    }

    fn kept(&self, parent: &OwnedFd) -> Result<Seen, Errno> {
        look(parent, self.spare.as_path())
    }

    fn exchange(&self, parent: &OwnedFd) -> Result<(), Errno> {
        let (spare, name) = (self.spare.as_path(), self.name.as_path());
        rustix::fs::renameat_with(parent, spare, parent, name, RenameFlags::EXCHANGE)
    }

    fn rename(&self, parent: &OwnedFd, from: &Bytes, to: &Bytes) -> Result<(), Errno> {
        rustix::fs::renameat_with(parent, from.as_path(), parent, to.as_path(), RenameFlags::NOREPLACE)
    }
}

fn beneath(root: &OwnedFd, directory: &Path) -> Result<OwnedFd, Errno> {
    let path = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

fn spare(label: &str, number: usize) -> String {
    format!(".ringfence-{label}-{number}.tmp")
}

fn none_kept(paths: Vec<PathBuf>) -> Result<(), ChangeError> {
    if paths.is_empty() { Ok(()) } else { Err(ChangeError::Kept { paths }) }
}

fn remove_directory(root: &OwnedFd, directory: &Path) -> Result<(), Errno> {
    let name = directory.file_name().ok_or(Errno::INVAL)?;
    let parent = beneath(root, directory.parent().unwrap_or(Path::new("")))?;
    rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)
}

fn look(parent: &OwnedFd, name: &Path) -> Result<Seen, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(Seen::Nothing),
        Err(Errno::LOOP | Errno::NXIO) => return Ok(Seen::Other),
        Err(errno) => return Err(errno),
    };
    let stat = rustix::fs::fstat(&fd)?;
    // With a second name it could be changed from there, and what is exchanged would not be what is kept.
    if file_type(&stat) != FileType::RegularFile || stat.st_nlink != 1 {
        return Ok(Seen::Other);
    }
    if u64::try_from(stat.st_size).is_ok_and(|size| size > LARGEST) {
        return Ok(Seen::Other);
    }
    let mut hash = Sha256::new();
    let mut file = File::from(fd);
    let mut buffer = [0_u8; 64 * 1024];
    let mut total = 0;
    // It may grow while it is read.
    while total <= LARGEST {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(Seen::File(hex(hash.finalize()))),
            Ok(count) => {
                total += count as u64;
                hash.update(buffer.get(..count).unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
    Ok(Seen::Other)
}

fn digest(content: &[u8]) -> String {
    hex(Sha256::digest(content))
}

fn list(paths: &[PathBuf]) -> String {
    let shown = |path: &PathBuf| format!("`{}`", Bytes::from(path.as_path()).display());
    paths.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
