//! Where secrets and their key are: two directories, each file in them, ours alone.
//!
//! What somebody else could have read or put there is not used. It is not repaired either: a mode that is too open may
//! have been so for a year, and the person has to know.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_types::Bytes;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

const OTHERS: u32 = 0o077;

/// Why a file or directory is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
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

impl PlaceError {
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
    Bytes::from(path).display()
}

/// A directory that only we can enter, made if there is none.
pub(crate) fn make_private(directory: &Path) -> Result<(), PlaceError> {
    let failed = |source| PlaceError::Io { action: "make", path: directory.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => sync(directory.parent().unwrap_or(Path::new("/"))).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    check_directory(directory).map(drop)
}

/// Whether the directory is there; if so, it is ours alone.
pub(crate) fn check_directory(path: &Path) -> Result<bool, PlaceError> {
    match fs::symlink_metadata(path) {
        Ok(found) => check(path, &found, Kind::Directory).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(PlaceError::Io { action: "look at", path: path.to_owned(), source }),
    }
}

/// The content of a private file; `None`: there is none. What is checked is what was opened.
pub(crate) fn read(path: &Path, most: u64) -> Result<Option<Zeroizing<Vec<u8>>>, PlaceError> {
    let failed = |source| PlaceError::Io { action: "read", path: path.to_owned(), source };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(PlaceError::Symlink { path: path.to_owned() }),
        Err(errno) => return Err(failed(errno.into())),
    };
    let found = file.metadata().map_err(failed)?;
    check(path, &found, Kind::File)?;
    if found.nlink() > 1 {
        return Err(PlaceError::HardLinked { path: path.to_owned() });
    }
    // Room for all of it at once: a buffer that grows leaves copies behind.
    let room = usize::try_from(found.len().min(most)).unwrap_or_default().saturating_add(1);
    let mut content = Zeroizing::new(Vec::with_capacity(room));
    let read = file.take(most.saturating_add(1)).read_to_end(&mut content).map_err(failed)?;
    if read as u64 > most {
        return Err(PlaceError::TooLarge { path: path.to_owned(), most });
    }
    Ok(Some(content))
}

/// Replaces `path` in one step: whoever reads sees the old content or the new one, also after a loss of power.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), PlaceError> {
    let failed = |source| PlaceError::Io { action: "write", path: path.to_owned(), source };
    let directory = path.parent().unwrap_or(Path::new("/"));
    sweep(directory);
    let fresh = directory.join(format!("{}{FRESH}", std::process::id()));
    let written = write_new(&fresh, content).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // What is left of an attempt says nothing; the old file is whole.
        let _gone = fs::remove_file(&fresh);
    }
    written.and_then(|()| sync(directory)).map_err(failed)
}

const FRESH: &str = ".new";

/// What a process left that was killed while it wrote. Whoever comes here holds the lock, so nobody else is writing.
fn sweep(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(FRESH)) {
        // What cannot be removed stays for the next time.
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
enum Kind {
    Directory,
    File,
}

fn check(path: &Path, found: &Metadata, wanted: Kind) -> Result<(), PlaceError> {
    let path = path.to_owned();
    if found.is_symlink() {
        return Err(PlaceError::Symlink { path });
    }
    let (fits, what) = match wanted {
        Kind::Directory => (found.is_dir(), "a directory"),
        Kind::File => (found.is_file(), "a regular file"),
    };
    if !fits {
        return Err(PlaceError::Kind { path, what });
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(PlaceError::NotOurs { path, owner: found.uid() });
    }
    if found.mode() & OTHERS != 0 {
        return Err(PlaceError::Open { path, mode: found.mode() & 0o7777 });
    }
    Ok(())
}
