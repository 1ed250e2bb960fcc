//! Private directories and files for secrets and keys: only their owner can access them.
//!
//! A file that another user could have read or written is refused, and not repaired. It may have been open
//! for a year, and the operator has to know.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_types::ByteString;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

const OTHERS: u32 = 0o077;

/// Why a file or directory is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateDirError {
    #[error("`{}` is a symbolic link", shown(path))]
    Symlink { path: PathBuf },
    #[error("`{}` is not {what}", shown(path))]
    Kind { path: PathBuf, what: &'static str },
    #[error("`{}` belongs to user {owner}", shown(path))]
    NotOurs { path: PathBuf, owner: u32 },
    #[error("`{}` is open to others (mode {mode:04o})", shown(path))]
    Open { path: PathBuf, mode: u32 },
    #[error("`{}` has another name elsewhere (hard link)", shown(path))]
    HardLinked { path: PathBuf },
    #[error("`{}` is larger than {most} bytes", shown(path))]
    TooLarge { path: PathBuf, most: u64 },
    #[error("cannot {action} `{}`", shown(path))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl PrivateDirError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Open { path, .. } => {
                let mode = if path.is_dir() { "700" } else { "600" };
                Some(format!(
                    "`chmod {mode} {}`; if others may have read it, set the secrets anew",
                    shown(path)
                ))
            }
            Self::NotOurs { path, .. } => Some(format!("run as its owner, or move `{}` away", shown(path))),
            Self::Symlink { path } | Self::Kind { path, .. } | Self::HardLinked { path } => {
                Some(format!("look at `{}` and move it away", shown(path)))
            }
            Self::TooLarge { .. } | Self::Io { .. } => None,
        }
    }
}

fn shown(path: &Path) -> String {
    ByteString::from(path).display()
}

/// A directory that only the owner can enter, made if it is missing.
pub(crate) fn make_private(directory: &Path) -> Result<(), PrivateDirError> {
    let failed = |source| PrivateDirError::Io { action: "make", path: directory.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => sync(directory.parent().unwrap_or(Path::new("/"))).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    check_directory(directory).map(drop)
}

/// Whether the directory exists. If so, checks that it is private.
pub(crate) fn check_directory(path: &Path) -> Result<bool, PrivateDirError> {
    match fs::symlink_metadata(path) {
        Ok(found) => check(path, &found, PrivateEntryKind::Directory).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(PrivateDirError::Io { action: "look at", path: path.to_owned(), source }),
    }
}

/// The content of a private file; `None` if it is missing. Checks the open file, so a replacement has no
/// effect.
pub(crate) fn read(path: &Path, most: u64) -> Result<Option<Zeroizing<Vec<u8>>>, PrivateDirError> {
    let failed = |source| PrivateDirError::Io { action: "read", path: path.to_owned(), source };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(PrivateDirError::Symlink { path: path.to_owned() }),
        Err(errno) => return Err(failed(errno.into())),
    };
    let found = file.metadata().map_err(failed)?;
    check(path, &found, PrivateEntryKind::File)?;
    if found.nlink() > 1 {
        return Err(PrivateDirError::HardLinked { path: path.to_owned() });
    }
    // Reserves all of it at once: a growing buffer would leave copies in memory.
    let room = usize::try_from(found.len().min(most)).unwrap_or_default().saturating_add(1);
    let mut content = Zeroizing::new(Vec::with_capacity(room));
    let read = file.take(most.saturating_add(1)).read_to_end(&mut content).map_err(failed)?;
    if read as u64 > most {
        return Err(PrivateDirError::TooLarge { path: path.to_owned(), most });
    }
    Ok(Some(content))
}

/// Replaces `path` atomically: a reader sees the old or the new content, also after a power loss.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), PrivateDirError> {
    let failed = |source| PrivateDirError::Io { action: "write", path: path.to_owned(), source };
    let directory = path.parent().unwrap_or(Path::new("/"));
    sweep(directory);
    let fresh = directory.join(format!("{}{FRESH}", std::process::id()));
    let written = write_new(&fresh, content).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // A leftover is harmless; the old file is complete.
        let _gone = fs::remove_file(&fresh);
    }
    written.and_then(|()| sync(directory)).map_err(failed)
}

const FRESH: &str = ".new";

/// Removes leftovers of processes killed while writing. The caller holds the lock, so no other process is
/// writing.
fn sweep(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(FRESH)) {
        // A leftover stays until the next time.
        let _gone = fs::remove_file(entry.path());
    }
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[derive(Clone, Copy)]
enum PrivateEntryKind {
    Directory,
    File,
}

fn check(path: &Path, found: &Metadata, wanted: PrivateEntryKind) -> Result<(), PrivateDirError> {
    let path = path.to_owned();
    if found.is_symlink() {
        return Err(PrivateDirError::Symlink { path });
    }
    let (fits, what) = match wanted {
        PrivateEntryKind::Directory => (found.is_dir(), "a directory"),
        PrivateEntryKind::File => (found.is_file(), "a regular file"),
    };
    if !fits {
        return Err(PrivateDirError::Kind { path, what });
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(PrivateDirError::NotOurs { path, owner: found.uid() });
    }
    if found.mode() & OTHERS != 0 {
        return Err(PrivateDirError::Open { path, mode: found.mode() & 0o7777 });
    }
    Ok(())
}
