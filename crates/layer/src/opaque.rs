//! Opaque directories of an upper, told in whiteouts instead.
//!
//! An opaque directory hides everything of the root below it, also what has landed since. With a whiteout for each entry that it
//! hides, the upper has what the call did and nothing else, and what lands can leave it.

use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, XattrFlags};
use rustix::io::Errno;

use crate::attributes::{self, OverlayMarks};
use crate::beneath::{HeldTree, file_type, name_of, names, stat_at};
use crate::error::LayerError;
use crate::fault;

const OPAQUE: &str = "user.overlay.opaque";

/// INVARIANT: at any moment the view would show the same: directories below become opaque first, then whiteouts come, and the mark
/// goes last.
pub(crate) fn make_explicit(upper: &HeldTree, host: &HeldTree) -> Result<(), LayerError> {
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        match make_directory_explicit(upper, host, &path) {
            Ok(()) => {}
            // It cannot be read, and does not land; or its path is longer than the kernel takes.
            Err(Errno::ACCESS | Errno::XDEV | Errno::NAMETOOLONG) => continue,
            Err(errno) => return Err(upper.failed("read", &path, errno)),
        }
        let below = directories(upper, &path).map_err(|errno| upper.failed("read", &path, errno))?;
        pending.extend(below);
    }
    Ok(())
}

fn make_directory_explicit(upper: &HeldTree, host: &HeldTree, path: &Path) -> Result<(), Errno> {
    let above = upper.directory(path)?;
    let marks = OverlayMarks::of(above.as_fd())?;
    if !marks.opaque {
        return Ok(());
    }
    let hidden = match host.directory(path) {
        Ok(below) => Some(below),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
        Err(errno) => return Err(errno),
    };
    for name in hidden.as_ref().map_or(Ok(Vec::new()), |below| names(below.as_fd()))? {
        match stat_at(above.as_fd(), &name)? {
            None => whiteout(upper, &path.join(&name))?,
            Some(stat) if file_type(&stat) == FileType::Directory => {
                let inner = upper.directory(&path.join(&name))?;
                rustix::fs::fsetxattr(&inner, OPAQUE, b"y", XattrFlags::empty())?;
            }
            Some(_) => {}
        }
        fault::point();
    }
    attributes::remove_opaque(above.as_fd())
}

/// Makes what overlayfs leaves for an entry that was deleted. Something that is there stays.
pub(crate) fn whiteout(upper: &HeldTree, path: &Path) -> Result<(), Errno> {
    let parent = upper.parent(path)?;
    match rustix::fs::mknodat(parent, name_of(path)?, FileType::CharacterDevice, Mode::empty(), 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn directories(upper: &HeldTree, path: &Path) -> Result<Vec<PathBuf>, Errno> {
    let mut found = Vec::new();
    let directory = upper.directory(path)?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
        if matches!(name.as_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => stat_at(directory.as_fd(), name)?.map(|stat| file_type(&stat)),
            kind => Some(kind),
        };
        if kind == Some(FileType::Directory) {
            found.push(path.join(name));
        }
    }
    Ok(found)
}
