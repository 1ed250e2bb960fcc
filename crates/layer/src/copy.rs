//! Copies of entries, for where an entry cannot be moved.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use ringfence_types::EntryKind;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::attributes;
use crate::change::EntryTime;
use crate::stamp::Stamp;

/// A name in an open directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPlace<'a> {
    pub(crate) directory: BorrowedFd<'a>,
    pub(crate) name: &'a OsStr,
}

impl EntryPlace<'_> {
    pub(crate) fn stamp(&self) -> Result<Option<Stamp>, Errno> {
        let stat = crate::beneath::stat_at(self.directory, self.name)?;
        Ok(stat.map(|stat| Stamp::of(&stat)))
    }

    pub(crate) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::openat(self.directory, self.name, flags, Mode::empty())
    }

    /// Removes what is there. An empty directory too.
    pub(crate) fn remove(&self) -> Result<(), Errno> {
        match rustix::fs::unlinkat(self.directory, self.name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {
                match rustix::fs::unlinkat(self.directory, self.name, AtFlags::REMOVEDIR) {
                    Err(Errno::NOENT) => Ok(()),
                    removed => removed,
                }
            }
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }
}

/// Copies a file, a link, or a directory without its entries. `mode` is what the copy gets; directories get it last, when their
/// entries are in them.
pub(crate) fn copy(from: EntryPlace<'_>, to: EntryPlace<'_>, mode: u32) -> Result<Stamp, Errno> {
    let source = from.stamp()?.ok_or(Errno::NOENT)?;
    match source.kind() {
        EntryKind::File => copy_file(from, to, &source, mode)?,
        EntryKind::Link => copy_link(from, to, &source)?,
        EntryKind::Directory => copy_directory(from, to, &source)?,
        EntryKind::Other => return Err(Errno::INVAL),
    }
    to.stamp()?.ok_or(Errno::NOENT)
}

fn copy_file(from: EntryPlace<'_>, to: EntryPlace<'_>, source: &Stamp, mode: u32) -> Result<(), Errno> {
    let mut old = File::from(from.open(OFlags::RDONLY)?);
    let create = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(to.directory, to.name, create, Mode::RUSR | Mode::WUSR)?;
    let mut new = File::from(fd);
    if rustix::fs::ioctl_ficlone(&new, &old).is_err() {
        copy_content(&mut old, &mut new)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    }
    give(new.as_fd(), source)?;
    attributes::set(new.as_fd(), &attributes::visible(old.as_fd())?)?;
    // After the owner, which takes set-id bits away, and after the attributes, which take the right to write.
    rustix::fs::fchmod(&new, Mode::from_raw_mode(mode & 0o7777))?;
    rustix::fs::futimens(&new, &times(source.modified))
}

/// Copies what is not a hole.
fn copy_content(old: &mut File, new: &mut File) -> io::Result<()> {
    let length = old.metadata()?.len();
    let mut at = 0;
    while at < length {
        let start = match rustix::fs::seek(&*old, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // KERNEL: a file system without holes.
            Err(_) => at,
        };
        let end = match rustix::fs::seek(&*old, SeekFrom::Hole(start)) {
            Ok(end) if end > start => end,
            _ => length,
        };
        old.seek(io::SeekFrom::Start(start))?;
        new.seek(io::SeekFrom::Start(start))?;
        copy_range(old, new, end - start)?;
        at = end;
    }
    new.set_len(length)
}

fn copy_range(old: &mut File, new: &mut File, length: u64) -> io::Result<()> {
    let mut buffer = vec![0_u8; 64 * 1024];
    let mut left = length;
    while left > 0 {
        let wanted = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let count = match old.read(buffer.get_mut(..wanted).unwrap_or_default()) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        new.write_all(buffer.get(..count).unwrap_or_default())?;
        left = left.saturating_sub(count as u64);
    }
    Ok(())
}

fn copy_link(from: EntryPlace<'_>, to: EntryPlace<'_>, source: &Stamp) -> Result<(), Errno> {
    let target = rustix::fs::readlinkat(from.directory, from.name, Vec::new())?;
    rustix::fs::symlinkat(target.as_c_str(), to.directory, to.name)?;
    let owner = Some(Uid::from_raw(source.owner));
    let group = Some(Gid::from_raw(source.group));
    match rustix::fs::chownat(to.directory, to.name, owner, group, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    rustix::fs::utimensat(to.directory, to.name, &times(source.modified), AtFlags::SYMLINK_NOFOLLOW)
}

fn copy_directory(from: EntryPlace<'_>, to: EntryPlace<'_>, source: &Stamp) -> Result<(), Errno> {
    rustix::fs::mkdirat(to.directory, to.name, Mode::RWXU)?;
    let new = to.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
    give(new.as_fd(), source)?;
    match from.open(OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(old) => attributes::set(new.as_fd(), &attributes::visible(old.as_fd())?)?,
        // Its attributes are out of reach like its entries.
        Err(Errno::ACCESS) => {}
        Err(errno) => return Err(errno),
    }
    // KERNEL: an access list may have narrowed the bits of its owner.
    rustix::fs::fchmod(&new, Mode::RWXU)
}

/// Gives the owner. Only root can keep another one; for anyone else the copy is theirs, with the group if they are in it.
fn give(fd: BorrowedFd<'_>, source: &Stamp) -> Result<(), Errno> {
    let group = Some(Gid::from_raw(source.group));
    match rustix::fs::fchown(fd, Some(Uid::from_raw(source.owner)), group) {
        Err(Errno::PERM) => match rustix::fs::fchown(fd, None, group) {
            Ok(()) | Err(Errno::PERM) => Ok(()),
            Err(errno) => Err(errno),
        },
        given => given,
    }
}

pub(crate) fn times(modified: EntryTime) -> Timestamps {
    let time = Timespec { tv_sec: modified.seconds, tv_nsec: i64::from(modified.nanos) };
    Timestamps { last_access: time, last_modification: time }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use super::*;
    use crate::beneath::HeldTree;

    #[test]
    fn holes_stay_holes_and_bytes_stay_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = File::create(dir.path().join("old")).unwrap();
        file.seek(io::SeekFrom::Start(8 << 20)).unwrap();
        file.write_all(b"middle").unwrap();
        file.set_len(32 << 20).unwrap();
        file.sync_all().unwrap();
        let tree = HeldTree::private(dir.path()).unwrap();
        let place = |name: &'static str| EntryPlace { directory: tree.fd(), name: OsStr::new(name) };
        copy(place("old"), place("new"), 0o640).unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        assert!(fs::read(&old).unwrap() == fs::read(&new).unwrap());
        let metadata = fs::metadata(&new).unwrap();
        assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
        assert_eq!(metadata.mode() & 0o7777, 0o640);
        assert_eq!(metadata.mtime_nsec(), fs::metadata(&old).unwrap().mtime_nsec());
        assert!(tree.stat(Path::new("new")).unwrap().is_some());
    }
}
