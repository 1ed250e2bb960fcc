//! Reads files and submodules from a git index.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ringfence_sandbox::{ObjectFormat, visit_index};

use super::repository::read;

/// Larger indexes are not read; git itself takes seconds for them.
const MAX: u64 = 512 * 1024 * 1024;

/// The bytes of all paths of a git directory's indexes. Version 4 writes a path shorter than it is, so a file of a
/// megabyte could otherwise take all memory.
const MOST_PATHS: usize = 512 * 1024 * 1024;

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
    let mut room = MOST_PATHS;
    let mut found = in_file(&git.join("index"), filter, &mut room)?;
    if let Ok(entries) = std::fs::read_dir(git) {
        for entry in entries.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b"sharedindex.") {
                found.extend(in_file(&entry.path(), filter, &mut room)?);
            }
        }
    }
    Ok(found)
}

fn in_file(path: &Path, filter: EntryFilter, room: &mut usize) -> io::Result<Vec<PathBuf>> {
    let content = match read(path, MAX) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    // The file does not say which digest it uses. Read with the wrong length it yields paths that do not exist, or nothing.
    let formats = [ObjectFormat::Sha1, ObjectFormat::Sha256];
    let parse = |format| parse(&content, format, filter, room);
    let read: Vec<Vec<PathBuf>> = formats.into_iter().filter_map(parse).collect();
    if *room == 0 {
        return Err(io::Error::other("its paths are too long together"));
    }
    if read.is_empty() { Err(io::Error::other("not an index")) } else { Ok(read.concat()) }
}

/// Read as git reads it. `None` for an index that git would not have written: git could find other entries in it. Paths that take
/// more than `room` leave nothing of it.
fn parse(
    content: &[u8],
    format: ObjectFormat,
    filter: EntryFilter,
    room: &mut usize,
) -> Option<Vec<PathBuf>> {
    let mut found = Vec::new();
    visit_index(content, format, |entry| {
        if filter == EntryFilter::Everything || entry.is_submodule() {
            *room = room.saturating_sub(entry.path.len() + 1);
            if *room > 0 {
                found.push(PathBuf::from(OsStr::from_bytes(entry.path)));
            }
        }
    })?;
    // In a split index it stands for some entry of the shared one, whose mode may be another.
    let is_unnamed = |path: &PathBuf| path.as_os_str().is_empty();
    (filter == EntryFilter::Everything || !found.iter().any(is_unnamed)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of a path that its entry does not say.
    const LONG: u16 = 0x0fff;

    /// In version 4 each path begins as the one before.
    fn compressed(first: usize, entries: u32) -> Vec<u8> {
        let mut out = b"DIRC\0\0\0\x04".to_vec();
        out.extend(entries.to_be_bytes());
        for number in 0..entries {
            out.extend([0; 40 + 20]);
            out.extend(LONG.to_be_bytes());
            match number {
                0 => out.extend([b"\0", &vec![b'a'; first][..], b"\0"].concat()),
                _ => out
                    .extend([b"\x01".as_slice(), if number % 2 == 0 { b"b" } else { b"c" }, b"\0"].concat()),
            }
        }
        out.extend([0; 20]);
        out
    }

    #[test]
    fn a_small_index_takes_a_bounded_amount_of_memory() {
        let directory = tempfile::tempdir().unwrap();
        let write = |index: &[u8]| std::fs::write(directory.path().join("index"), index).unwrap();
        write(&compressed(1000, 50));
        assert_eq!(tracked(directory.path()).unwrap().len(), 50, "control");
        // Two terabytes of paths in seven megabytes.
        write(&compressed(1 << 20, 100_000));
        assert!(tracked(directory.path()).is_err());
    }
}
