//! Several files changed as one: prepared beside their targets, then exchanged with them one by one, with enough written
//! down that the next process can finish or undo it after a crash.
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

use ringfence_types::{ByteString, hex};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::no_follow::NoFollowTarget;
use super::{FileError, FileRefusal, FileTree, FileType, file_type};
use crate::survey::handle_unlinked;

/// What is larger was never the base of an edit.
const LARGEST: u64 = 64 * 1024 * 1024;

/// One file before and after, by SHA-256 in hexadecimal. `None`: there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEdit<'a> {
    /// Relative to the root.
    pub path: &'a Path,
    pub base: Option<&'a str>,
    pub result: Option<&'a str>,
}

/// A set of changes to one root. It can be written down, and carried on by another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSet {
    root: ByteString,
    /// To be made first, outermost first, relative.
    directories: Vec<ByteString>,
    entries: Vec<ChangeEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ChangeEntry {
    /// Relative; empty for the root.
    directory: ByteString,
    name: ByteString,
    /// A name beside it: first for what will be there, after the exchange for what was.
    spare: ByteString,
    base: Option<String>,
    result: Option<String>,
}

/// How far a set of changes came before it is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeProgress {
    /// Nothing was exchanged.
    Staged,
    /// Some may have been exchanged.
    Swapping,
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeSetError {
    #[error(transparent)]
    File(#[from] FileError),
    /// Not what the changes were made for.
    #[error("{} is not what it was", list(paths))]
    Conflict { paths: Vec<PathBuf> },
    /// Another process changed it: it has neither the content from before nor the prepared one, and stays.
    #[error("{} is not what was left there, and is kept", list(paths))]
    Kept { paths: Vec<PathBuf> },
    /// KERNEL: some network and user-space file systems have no RENAME_EXCHANGE.
    #[error("the file system of `{}` cannot exchange two files", ByteString::from(path.as_path()).display())]
    NoExchange { path: PathBuf },
}

impl FileTree<'_> {
    /// Checks every edit against the rules and against what is there. Touches nothing. `label` names the spare files.
    pub fn plan(
        &self,
        root: &Path,
        edits: &[FileEdit<'_>],
        label: &str,
    ) -> Result<ChangeSet, ChangeSetError> {
        let mut directories = BTreeSet::new();
        let mut entries = Vec::with_capacity(edits.len());
        let mut conflicts = Vec::new();
        for (number, edit) in edits.iter().enumerate() {
            match self.place(&root.join(edit.path), LARGEST) {
                Ok(NoFollowTarget::File(content)) if edit.base == Some(&digest(&content)) => {}
                Ok(NoFollowTarget::Vacant { missing }) if edit.base.is_none() => directories.extend(missing),
                Ok(_) | Err(FileError::Refused { refusal: FileRefusal::TooLarge, .. }) => {
                    conflicts.push(edit.path.to_owned());
                }
                Err(error) => return Err(error.into()),
            }
            entries.push(ChangeEntry::new(edit, spare(label, number))?);
        }
        if !conflicts.is_empty() {
            return Err(ChangeSetError::Conflict { paths: conflicts });
        }
        let relative = |path: PathBuf| path.strip_prefix(root).map(ByteString::from).unwrap_or_default();
        // Sorted by component: what is above comes first.
        Ok(ChangeSet {
            root: ByteString::from(root),
            directories: directories.into_iter().map(relative).collect(),
            entries,
        })
    }
}

impl ChangeSet {
    /// Writes what will be there beside where it will be, durable. `contents` has one for each edit, in their order.
    pub fn stage(&self, contents: &[Option<&[u8]>]) -> Result<(), ChangeSetError> {
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

    /// Exchanges. After an error some are exchanged: [`ChangeSet::withdraw`] undoes it.
    pub fn swap(&self) -> Result<(), ChangeSetError> {
        let root = self.open()?;
        for entry in &self.entries {
            let parent = self.directory(&root, entry)?;
            match entry.swap(&parent) {
                Ok(()) => {}
                Err(ChangeObstacle::Conflict) => return Err(self.conflict(entry)),
                Err(ChangeObstacle::Io(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)) => {
                    return Err(ChangeSetError::NoExchange { path: self.path(entry) });
                }
                Err(ChangeObstacle::Io(errno)) => return Err(self.failed("replace", entry, errno.into())),
            }
        }
        self.sync(&root)
    }

    /// Removes what was there before. The last step: there is no way back after it.
    pub fn clear(&self) -> Result<(), ChangeSetError> {
        let root = self.open()?;
        let kept = self.remove_spares(&root, ChangeProgress::Swapping)?;
        self.sync(&root)?;
        none_kept(kept)
    }

    /// Puts everything back as it was.
    pub fn withdraw(&self, progress: ChangeProgress) -> Result<(), ChangeSetError> {
        let root = self.open()?;
        if progress == ChangeProgress::Swapping {
            for entry in self.entries.iter().rev() {
                if let Some(parent) = self.present(&root, entry)? {
                    entry.unswap(&parent).map_err(|errno| self.failed("restore", entry, errno.into()))?;
                }
            }
        }
        let kept = self.remove_spares(&root, progress)?;
        for directory in self.directories.iter().rev() {
            match remove_directory(&root, directory.as_path()) {
                // Gone already, or in use by another process.
                Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::LOOP) => {
                }
                Err(errno) => return Err(self.failed_at("remove", directory.as_path(), errno.into())),
            }
        }
        self.sync(&root)?;
        none_kept(kept)
    }

    /// Finishes an exchange that another process began. Returns the paths that changed meanwhile; they stay as they are.
    pub fn complete(&self) -> Result<Vec<PathBuf>, ChangeSetError> {
        let root = self.open()?;
        let mut left = Vec::new();
        for entry in &self.entries {
            let Some(parent) = self.present(&root, entry)? else {
                left.push(self.path(entry));
                continue;
            };
            match entry.resume(&parent) {
                Ok(()) => {}
                Err(ChangeObstacle::Conflict) => left.push(self.path(entry)),
                Err(ChangeObstacle::Io(errno)) => return Err(self.failed("replace", entry, errno.into())),
            }
        }
        self.sync(&root)?;
        left.extend(self.remove_spares(&root, ChangeProgress::Swapping)?);
        self.sync(&root)?;
        Ok(left)
    }

    /// Whether the root is gone, so that there is nothing left to finish or undo.
    pub fn is_void(&self) -> bool {
        !std::fs::symlink_metadata(self.root.as_path()).is_ok_and(|found| found.is_dir())
    }

    /// Whether [`FileTree::plan`] can have made it of these.
    pub fn is_of(&self, root: &Path, edits: &[FileEdit<'_>], label: &str) -> bool {
        let numbered = edits.iter().enumerate();
        let planned: Result<Vec<ChangeEntry>, FileError> =
            numbered.map(|(number, edit)| ChangeEntry::new(edit, spare(label, number))).collect();
        let is_above = |directory: &ByteString| {
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

    /// No part of the path is a link: a command of another session can make a directory above the root one at any time.
    fn open(&self) -> Result<OwnedFd, ChangeSetError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        handle_unlinked(self.root.as_path())
            .and_then(|root| rustix::fs::openat(&root, ".", flags, Mode::empty()))
            .map_err(|errno| self.failed_at("open", Path::new(""), errno.into()))
    }

    fn make(&self, root: &OwnedFd, directory: &Path) -> Result<(), ChangeSetError> {
        let failed = |errno: Errno| self.failed_at("make", directory, errno.into());
        let name = directory.file_name().ok_or_else(|| failed(Errno::INVAL))?;
        let parent = beneath(root, directory.parent().unwrap_or(Path::new(""))).map_err(failed)?;
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn directory(&self, root: &OwnedFd, entry: &ChangeEntry) -> Result<OwnedFd, ChangeSetError> {
        beneath(root, entry.directory.as_path()).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => self.conflict(entry),
            errno => self.failed("open the directory of", entry, errno.into()),
        })
    }

    /// `None`: another process has removed the directory, and the spare file with it.
    fn present(&self, root: &OwnedFd, entry: &ChangeEntry) -> Result<Option<OwnedFd>, ChangeSetError> {
        match self.directory(root, entry) {
            Ok(parent) => Ok(Some(parent)),
            Err(ChangeSetError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The paths are those of spare files that are not what we left there.
    fn remove_spares(
        &self,
        root: &OwnedFd,
        progress: ChangeProgress,
    ) -> Result<Vec<PathBuf>, ChangeSetError> {
        let mut kept = Vec::new();
        for entry in &self.entries {
            let Some(parent) = self.present(root, entry)? else { continue };
            let failed = |errno: Errno| self.failed("look at what was prepared for", entry, errno.into());
            match (entry.kept(&parent).map_err(failed)?, progress) {
                (NameState::Nothing, _) => continue,
                // Cut off while it was written it has any beginning of the result.
                (NameState::File(_), ChangeProgress::Staged) => {}
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
    fn sync(&self, root: &OwnedFd) -> Result<(), ChangeSetError> {
        let above = |directory: &'_ ByteString| directory.as_path().parent().map(Path::to_owned);
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

    fn path(&self, entry: &ChangeEntry) -> PathBuf {
        entry.directory.as_path().join(entry.name.as_path())
    }

    fn conflict(&self, entry: &ChangeEntry) -> ChangeSetError {
        ChangeSetError::Conflict { paths: vec![self.path(entry)] }
    }

    fn failed(&self, action: &'static str, entry: &ChangeEntry, source: io::Error) -> ChangeSetError {
        self.failed_at(action, &self.path(entry), source)
    }

    fn failed_at(&self, action: &'static str, path: &Path, source: io::Error) -> ChangeSetError {
        FileError::Io { action, path: self.root.as_path().join(path), source }.into()
    }
}

enum ChangeObstacle {
    Conflict,
    Io(Errno),
}

impl From<Errno> for ChangeObstacle {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::EXIST => Self::Conflict,
            errno => Self::Io(errno),
        }
    }
}

/// What a name means.
#[derive(Debug, PartialEq, Eq)]
enum NameState {
    Nothing,
    File(String),
    Other,
}

impl NameState {
    fn is(&self, wanted: Option<&String>) -> bool {
        match (self, wanted) {
            (Self::Nothing, None) => true,
            (Self::File(digest), Some(wanted)) => digest == wanted,
            _ => false,
        }
    }
}

impl ChangeEntry {
    fn new(edit: &FileEdit<'_>, spare: String) -> Result<Self, FileError> {
        let malformed = || FileError::Refused { path: edit.path.to_owned(), refusal: FileRefusal::Malformed };
        Ok(Self {
            directory: ByteString::from(edit.path.parent().ok_or_else(malformed)?),
            name: ByteString::from(edit.path.file_name().ok_or_else(malformed)?),
            spare: ByteString::from(spare.as_str()),
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

    fn swap(&self, parent: &OwnedFd) -> Result<(), ChangeObstacle> {
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
        Err(ChangeObstacle::Conflict)
    }

    fn unswap(&self, parent: &OwnedFd) -> Result<(), Errno> {
        let swapped =
            self.target(parent)?.is(self.result.as_ref()) && self.kept(parent)?.is(self.base.as_ref());
        // A file that another process changed meanwhile keeps that change.
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
    fn resume(&self, parent: &OwnedFd) -> Result<(), ChangeObstacle> {
        let (target, kept) = (self.target(parent)?, self.kept(parent)?);
        if target.is(self.base.as_ref()) && kept.is(self.result.as_ref()) {
            return self.swap(parent);
        }
        // Exchanged, and whatever happened to the target since then happened to the result. Where there was nothing before,
        // only its content tells the prepared file from one that another process put there.
        let exchanged = self.base.is_some() && kept.is(self.base.as_ref());
        if exchanged || (target.is(self.result.as_ref()) && kept == NameState::Nothing) {
            return Ok(());
        }
        Err(ChangeObstacle::Conflict)
    }

    fn is_one_of_ours(&self, seen: &NameState) -> bool {
        [&self.base, &self.result].into_iter().flatten().any(|digest| seen.is(Some(digest)))
    }

    fn target(&self, parent: &OwnedFd) -> Result<NameState, Errno> {
        look(parent, self.name.as_path())
    }

    fn kept(&self, parent: &OwnedFd) -> Result<NameState, Errno> {
        look(parent, self.spare.as_path())
    }

    fn exchange(&self, parent: &OwnedFd) -> Result<(), Errno> {
        let (spare, name) = (self.spare.as_path(), self.name.as_path());
        rustix::fs::renameat_with(parent, spare, parent, name, RenameFlags::EXCHANGE)
    }

    fn rename(&self, parent: &OwnedFd, from: &ByteString, to: &ByteString) -> Result<(), Errno> {
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

fn none_kept(paths: Vec<PathBuf>) -> Result<(), ChangeSetError> {
    if paths.is_empty() { Ok(()) } else { Err(ChangeSetError::Kept { paths }) }
}

fn remove_directory(root: &OwnedFd, directory: &Path) -> Result<(), Errno> {
    let name = directory.file_name().ok_or(Errno::INVAL)?;
    let parent = beneath(root, directory.parent().unwrap_or(Path::new("")))?;
    rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)
}

fn look(parent: &OwnedFd, name: &Path) -> Result<NameState, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(NameState::Nothing),
        Err(Errno::LOOP | Errno::NXIO) => return Ok(NameState::Other),
        Err(errno) => return Err(errno),
    };
    let stat = rustix::fs::fstat(&fd)?;
    // With a second name it could be changed from there, and what is exchanged would not be what is kept.
    if file_type(&stat) != FileType::RegularFile || stat.st_nlink != 1 {
        return Ok(NameState::Other);
    }
    if u64::try_from(stat.st_size).is_ok_and(|size| size > LARGEST) {
        return Ok(NameState::Other);
    }
    let mut hash = Sha256::new();
    let mut file = File::from(fd);
    let mut buffer = [0_u8; 64 * 1024];
    let mut total = 0;
    // It may grow while it is read.
    while total <= LARGEST {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(NameState::File(hex(hash.finalize()))),
            Ok(count) => {
                total += count as u64;
                hash.update(buffer.get(..count).unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
    Ok(NameState::Other)
}

fn digest(content: &[u8]) -> String {
    hex(Sha256::digest(content))
}

fn list(paths: &[PathBuf]) -> String {
    let shown = |path: &PathBuf| format!("`{}`", ByteString::from(path.as_path()).display());
    paths.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
