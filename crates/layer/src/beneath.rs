//! Roots and uppers, held open. Agents write both, so every step below goes by descriptor and follows no link.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ringfence_types::EntryKind;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::error::LayerError;

/// KERNEL: `RESOLVE_BENEATH` gives EAGAIN while directories are renamed elsewhere on the machine.
const TRIES: usize = 64;

/// A directory that is held open, and works on names below it.
#[derive(Debug)]
pub(crate) struct HeldTree {
    fd: OwnedFd,
    /// For messages.
    path: PathBuf,
}

impl HeldTree {
    /// A root: no part of its canonical path may have become a link.
    pub(crate) fn root(path: &Path) -> Result<Self, LayerError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve);
        let fd = opened.map_err(|errno| LayerError::io("open", path, errno))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// A directory of the store.
    pub(crate) fn private(path: &Path) -> Result<Self, LayerError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| LayerError::io("open", path, errno))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn failed(&self, action: &'static str, relative: &Path, errno: Errno) -> LayerError {
        LayerError::io(action, &join(&self.path, relative), errno)
    }

    /// A directory to be listed.
    pub(crate) fn directory(&self, relative: &Path) -> Result<OwnedFd, Errno> {
        self.open(relative, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// A directory to work in. Entering it is enough.
    pub(crate) fn place(&self, relative: &Path) -> Result<OwnedFd, Errno> {
        self.open(relative, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// A file to be read. Whatever it is, opening it has no effect and does not wait.
    pub(crate) fn file(&self, relative: &Path) -> Result<OwnedFd, Errno> {
        self.open(relative, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    /// The directory that an entry is in. `EINVAL`: the root is in no directory.
    pub(crate) fn parent(&self, relative: &Path) -> Result<OwnedFd, Errno> {
        self.place(relative.parent().ok_or(Errno::INVAL)?)
    }

    pub(crate) fn stat(&self, relative: &Path) -> Result<Option<Stat>, Errno> {
        if relative.as_os_str().is_empty() {
            return rustix::fs::fstat(&self.fd).map(Some);
        }
        match self.parent(relative) {
            Ok(parent) => stat_at(parent.as_fd(), name_of(relative)?),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn open(&self, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        let mut tries = 0;
        loop {
            match rustix::fs::openat2(&self.fd, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) if tries < TRIES => tries += 1,
                opened => return opened,
            }
        }
    }
}

pub(crate) fn join(directory: &Path, relative: &Path) -> PathBuf {
    // Joining an empty path would leave a slash at the end.
    if relative.as_os_str().is_empty() { directory.to_owned() } else { directory.join(relative) }
}

pub(crate) fn name_of(relative: &Path) -> Result<&OsStr, Errno> {
    relative.file_name().ok_or(Errno::INVAL)
}

pub(crate) fn stat_at(parent: BorrowedFd<'_>, name: &OsStr) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The names in a directory.
pub(crate) fn names(directory: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// Whether a directory that may not be listable has entries.
pub(crate) fn is_empty(parent: BorrowedFd<'_>, name: &OsStr) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Changes the permissions of what a descriptor holds: its name may have become a link meanwhile.
pub(crate) fn chmod_held(held: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    let through = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    rustix::fs::chmod(&through, Mode::from_raw_mode(mode))
}

pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

pub(crate) fn entry_kind(mode: u32) -> EntryKind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Other,
    }
}

/// KERNEL: what overlayfs leaves for an entry that was deleted in the view. A command inside cannot make one (EPERM).
pub(crate) fn is_whiteout(stat: &Stat) -> bool {
    file_type(stat) == FileType::CharacterDevice && stat.st_rdev == 0
}
