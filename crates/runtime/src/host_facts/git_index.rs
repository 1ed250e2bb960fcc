//! Reads files and submodules from a git index.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use super::repository::read;

/// Larger indexes are not read; git itself takes seconds for them.
const MAX: u64 = 512 * 1024 * 1024;

/// The bytes of all paths of a git directory's indexes. Version 4 writes a path shorter than it is, so a file of a
/// megabyte could otherwise take all memory.
const MOST_PATHS: usize = 512 * 1024 * 1024;

/// The mode of a submodule entry in the index.
const SUBMODULE: u32 = 0o160_000;

/// Bytes of a digest: SHA-1, SHA-256.
const DIGESTS: [usize; 2] = [20, 32];

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
    // Fast path: most indexes have no submodule.
    let submodule = || memchr::memmem::find(&content, &SUBMODULE.to_be_bytes());
    if filter == EntryFilter::Submodules && submodule().is_none() {
        return Ok(Vec::new());
    }
    // The file does not say which digest it uses. Parsed with the wrong length it yields paths that do not
    // exist.
    let parse = |digest| parse(&content, digest, filter, room);
    let read: Vec<Vec<PathBuf>> = DIGESTS.into_iter().filter_map(parse).collect();
    if *room == 0 {
        return Err(io::Error::other("its paths are too long together"));
    }
    if read.is_empty() { Err(io::Error::other("not an index")) } else { Ok(read.concat()) }
}

/// `None`: not an index, or its paths take more than `room`, of which nothing is left then.
fn parse(content: &[u8], digest: usize, filter: EntryFilter, room: &mut usize) -> Option<Vec<PathBuf>> {
    let mut reader = GitIndexReader { content, at: 0, digest };
    if reader.take(4)? != b"DIRC" {
        return None;
    }
    let version = reader.number()?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let count = reader.number()?;
    let mut found = Vec::new();
    let mut name = Vec::new();
    for _ in 0..count {
        let mode = reader.entry(version, &mut name)?;
        *room = room.saturating_sub(name.len() + 1);
        if *room == 0 {
            return None;
        }
        if filter == EntryFilter::Everything || mode == SUBMODULE {
            found.push(PathBuf::from(OsString::from_vec(name.clone())));
        }
    }
    Some(found)
}

struct GitIndexReader<'a> {
    content: &'a [u8],
    at: usize,
    digest: usize,
}

impl<'a> GitIndexReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let bytes = self.content.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes)
    }

    /// Reads one entry: returns its mode and updates `name`, which holds the previous path.
    fn entry(&mut self, version: u32, name: &mut Vec<u8>) -> Option<u32> {
        const EXTENDED: u8 = 0x40;
        let start = self.at;
        // Times, device and inode precede the mode; owner, size and digest follow it.
        self.take(24)?;
        let mode = self.number()?;
        self.take(12 + self.digest)?;
        let flags = self.take(2)?;
        if flags.first().is_some_and(|high| high & EXTENDED != 0) {
            self.take(2)?;
        }
        if version == 4 {
            let dropped = self.variable()?;
            name.truncate(name.len().checked_sub(dropped)?);
            name.extend_from_slice(self.until_zero()?);
        } else {
            name.clear();
            name.extend_from_slice(self.until_zero()?);
            // Padded to a multiple of eight, including the terminating zero.
            let length = self.at.checked_sub(start)?;
            self.take((8 - length % 8) % 8)?;
        }
        Some(mode)
    }

    fn until_zero(&mut self) -> Option<&'a [u8]> {
        let length = memchr::memchr(0, self.content.get(self.at..)?)?;
        let bytes = self.take(length)?;
        self.take(1)?;
        Some(bytes)
    }

    /// Git's variable-length integer: seven bits per byte, with an offset for each continuation.
    fn variable(&mut self) -> Option<usize> {
        let mut value = 0_usize;
        loop {
            let byte = *self.take(1)?.first()?;
            value = value.checked_add(usize::from(byte & 0x7f))?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            value = value.checked_add(1)?.checked_mul(128)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In version 4 each path begins as the one before.
    fn compressed(first: usize, entries: u32) -> Vec<u8> {
        let mut out = b"DIRC\0\0\0\x04".to_vec();
        out.extend(entries.to_be_bytes());
        for number in 0..entries {
            out.extend([0; 40 + 20 + 2]);
            match number {
                0 => out.extend([b"\0", &vec![b'a'; first][..], b"\0"].concat()),
                _ => out.extend(b"\x01b\0"),
            }
        }
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
