//! Reads files and submodules from a git index.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ringfence_sandbox::{ObjectFormat, visit_index};

use super::repository::read;

/// Larger indexes are not read; git itself takes seconds for them.
const MAX: u64 = 512 * 1024 * 1024;

/// Paths of the submodules in the index of a git directory and in the shared index of a split index.
pub(super) fn submodules(git: &Path) -> io::Result<Vec<PathBuf>> {
    entries(git, EntryFilter::Submodules)
}

/// Paths of all tracked files.
pub(super) fn tracked(git: &Path) -> io::Result<Vec<PathBuf>> {
    entries(git, EntryFilter::Everything)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryFilter {
    Submodules,
    Everything,
}

fn entries(git: &Path, filter: EntryFilter) -> io::Result<Vec<PathBuf>> {
    let mut found = in_file(&git.join("index"), filter)?;
    if let Ok(entries) = std::fs::read_dir(git) {
        for entry in entries.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b"sharedindex.") {
                found.extend(in_file(&entry.path(), filter)?);
            }
        }
    }
    Ok(found)
}

fn in_file(path: &Path, filter: EntryFilter) -> io::Result<Vec<PathBuf>> {
    let content = match read(path, MAX) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    // The file does not say which digest it uses. Read with the wrong length it yields paths that do not exist, or nothing.
    let formats = [ObjectFormat::Sha1, ObjectFormat::Sha256];
    let read: Vec<Vec<PathBuf>> =
        formats.into_iter().filter_map(|format| parse(&content, format, filter)).collect();
    if read.is_empty() { Err(io::Error::other("not an index")) } else { Ok(read.concat()) }
}

/// Read as git reads it. `None` for an index that git would not have written: git could find other entries in it.
fn parse(content: &[u8], format: ObjectFormat, filter: EntryFilter) -> Option<Vec<PathBuf>> {
    let mut found = Vec::new();
    visit_index(content, format, |entry| {
        if filter == EntryFilter::Everything || entry.is_submodule() {
            found.push(PathBuf::from(OsStr::from_bytes(entry.path)));
        }
    })?;
    // In a split index it stands for some entry of the shared one, whose mode may be another.
    let is_unnamed = |path: &PathBuf| path.as_os_str().is_empty();
    (filter == EntryFilter::Everything || !found.iter().any(is_unnamed)).then_some(found)
}
