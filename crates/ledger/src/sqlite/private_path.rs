//! Private paths: a ledger may only be in a directory and file of this user alone.
//!
//! The file itself is never opened here. KERNEL: closing any descriptor of a file drops every POSIX lock the process has on it, and
//! SQLite's locks are POSIX locks.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::sqlite::open::LedgerOpenError;

const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Creates the directory of `path` if missing, checks it, and returns `path` with the directory resolved.
pub(crate) fn prepare(path: &Path) -> Result<PathBuf, LedgerOpenError> {
    let (directory, name) = split(path)?;
    make_private(&directory)?;
    let found = lstat(&directory)?.ok_or_else(|| no_directory(&directory, io::ErrorKind::NotFound.into()))?;
    check_ours(&directory, &found)?;
    if !found.is_dir() {
        return Err(no_directory(&directory, io::ErrorKind::NotADirectory.into()));
    }
    let resolved = fs::canonicalize(&directory).map_err(|source| no_directory(&directory, source))?;
    Ok(resolved.join(name))
}

/// Checks the owner of the database, if it exists.
pub(crate) fn check_database(database: &Path) -> Result<Option<InodeIdentity>, LedgerOpenError> {
    let Some(found) = lstat(database)? else { return Ok(None) };
    check_ours(database, &found)?;
    if !found.is_file() {
        return Err(LedgerOpenError::NotAFile { path: database.to_owned() });
    }
    Ok(Some(InodeIdentity::of(&found)))
}

/// Makes directory entries durable.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// SQLite's log beside `database`.
pub(crate) fn log_of(database: &Path) -> PathBuf {
    let mut name = OsString::from(database);
    name.push("-wal");
    PathBuf::from(name)
}

/// Identity of the file behind a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeIdentity {
    device: u64,
    inode: u64,
}

impl InodeIdentity {
    /// `None`: there is no such file.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path).ok().map(|found| Self::of(&found))
    }

    fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}

fn split(path: &Path) -> Result<(PathBuf, OsString), LedgerOpenError> {
    let not_a_file = || LedgerOpenError::NotAFile { path: path.to_owned() };
    let name = path.file_name().ok_or_else(not_a_file)?;
    Ok((parent_of(path).to_owned(), name.to_owned()))
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn make_private(directory: &Path) -> Result<(), LedgerOpenError> {
    if lstat(directory)?.is_some() {
        return Ok(());
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.and_then(|()| sync_directory(parent_of(directory))).map_err(|source| no_directory(directory, source))
}

fn check_ours(path: &Path, found: &Metadata) -> Result<(), LedgerOpenError> {
    let path = path.to_owned();
    if found.is_symlink() {
        return Err(LedgerOpenError::Symlink { path });
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(LedgerOpenError::NotOurs { path, owner: found.uid() });
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(LedgerOpenError::WritableByOthers { path, mode: found.mode() & 0o7777 });
    }
    Ok(())
}

fn lstat(path: &Path) -> Result<Option<Metadata>, LedgerOpenError> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LedgerOpenError::Place { path: path.to_owned(), source }),
    }
}

fn no_directory(directory: &Path, source: io::Error) -> LedgerOpenError {
    LedgerOpenError::Place { path: directory.to_owned(), source }
}
