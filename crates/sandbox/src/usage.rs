//! How much room directories take on their disks.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    /// Directories that could not be looked into: what is in them is not known.
    pub unseen: u64,
}

/// What all files below `directories` take together. A file with several names counts once; links are not followed.
pub fn of(directories: &[PathBuf]) -> Usage {
    let mut count = Count::default();
    let mut pending: Vec<PathBuf> = directories.to_vec();
    while let Some(directory) = pending.pop() {
        match count.directory(&directory, &mut pending) {
            // Gone, or something else by now.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => count.usage.unseen += 1,
        }
    }
    count.usage
}

#[derive(Default)]
struct Count {
    usage: Usage,
    /// Files with several names, and directories that are below one another.
    seen: BTreeSet<(u64, u64)>,
}

impl Count {
    fn directory(&mut self, path: &Path, pending: &mut Vec<PathBuf>) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        if !self.add(&rustix::fs::fstat(&directory)?, Names::Several) {
            return Ok(());
        }
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if entry.file_type() == FileType::Directory {
                pending.push(path.join(OsStr::from_bytes(name.to_bytes())));
                continue;
            }
            match rustix::fs::statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                    pending.push(path.join(OsStr::from_bytes(name.to_bytes())));
                }
                Ok(stat) => {
                    let names = if stat.st_nlink > 1 { Names::Several } else { Names::One };
                    self.add(&stat, names);
                }
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Whether it was not counted before.
    fn add(&mut self, stat: &Stat, names: Names) -> bool {
        const BLOCK: u64 = 512;
        if names == Names::Several && !self.seen.insert((stat.st_dev, stat.st_ino)) {
            return false;
        }
        let blocks = u64::try_from(stat.st_blocks).unwrap_or_default();
        self.usage.bytes = self.usage.bytes.saturating_add(blocks.saturating_mul(BLOCK));
        true
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    One,
    Several,
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_count_once_and_links_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::create_dir_all(a.join("deep/er")).unwrap();
        fs::create_dir(&b).unwrap();
        fs::write(b.join("large"), vec![1; 4 << 20]).unwrap();
        let empty = of(std::slice::from_ref(&a));
        fs::write(a.join("deep/er/file"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(a.join("deep/er/file"), a.join("again")).unwrap();
        symlink(&b, a.join("link")).unwrap();
        let grown = of(&[a.clone(), a.join("deep")]).bytes - empty.bytes;
        assert!((1 << 20..(1 << 20) + 65536).contains(&grown), "{grown}");
        assert!(of(&[a, b]).bytes - empty.bytes >= 5 << 20);
        assert_eq!(of(&[dir.path().join("missing")]), Usage::default());
    }
}
