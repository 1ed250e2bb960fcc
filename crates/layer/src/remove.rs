//! Removes what a layer has, whatever a command left in it.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::beneath::{chmod_held, file_type, names};
use crate::error::LayerError;

/// Removes `name` of `parent` with all that is in it, however deep it is and whatever its permissions are. Where it is missing
/// there is nothing to do.
///
/// Directories further down are moved to the top before they are emptied, so that neither the depth of the tree nor the length
/// of its paths matters.
pub(crate) fn remove_tree(parent: &Path, name: &OsStr) -> Result<(), LayerError> {
    remove(parent, name).map_err(|errno| LayerError::io("remove", &parent.join(name), errno))
}

fn remove(parent: &Path, name: &OsStr) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = match rustix::fs::open(parent, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        above => above?,
    };
    let top = match own_directory(above.as_fd(), name) {
        Ok(Some(top)) => top,
        Ok(None) => return rustix::fs::unlinkat(&above, name, AtFlags::empty()),
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let mut moved = 0;
    loop {
        let found = names(top.as_fd())?;
        if found.is_empty() {
            return rustix::fs::unlinkat(&above, name, AtFlags::REMOVEDIR);
        }
        for name in found {
            flatten(&top, &name, &mut moved)?;
        }
    }
}

/// Removes one entry of the top; directories in it move up instead.
fn flatten(top: &OwnedFd, name: &OsStr, moved: &mut u64) -> Result<(), Errno> {
    let directory = match own_directory(top.as_fd(), name) {
        Ok(Some(directory)) => directory,
        Ok(None) => return rustix::fs::unlinkat(top, name, AtFlags::empty()),
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    for inner in names(directory.as_fd())? {
        // Moving a directory changes what is above it, which takes the right to write it.
        match own_directory(directory.as_fd(), &inner) {
            Ok(Some(_)) => move_up(&directory, &inner, top, moved)?,
            Ok(None) => rustix::fs::unlinkat(&directory, &inner, AtFlags::empty())?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    match rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR) {
        // KERNEL: a listing may miss entries while others are removed; the next round finds them.
        Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn move_up(directory: &OwnedFd, name: &OsStr, top: &OwnedFd, moved: &mut u64) -> Result<(), Errno> {
    loop {
        *moved += 1;
        let to = OsString::from(format!(".ringfence-removed-{moved}"));
        match rustix::fs::renameat_with(directory, name, top, &to, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            done => return done,
        }
    }
}

/// Opens a directory and gives its owner back what they need to work in it. `None`: it is no directory.
fn own_directory(above: BorrowedFd<'_>, name: &OsStr) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::openat(above, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&held)?;
    if file_type(&stat) != FileType::Directory {
        return Ok(None);
    }
    if stat.st_mode & 0o700 != 0o700 {
        chmod_held(held.as_fd(), (stat.st_mode & 0o7777) | 0o700)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&held, ".", flags, Mode::empty()).map(Some)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_tree_is_removed_and_what_its_links_lead_to_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (outside, tree) = (dir.path().join("outside"), dir.path().join("tree"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        symlink(&outside, tree.join("a/b/link")).unwrap();
        for path in ["a/b", "a"] {
            fs::set_permissions(tree.join(path), fs::Permissions::from_mode(0o0)).unwrap();
        }
        remove_tree(dir.path(), OsStr::new("tree")).unwrap();
        assert!(!tree.exists() && outside.join("kept").exists());
        remove_tree(dir.path(), OsStr::new("tree")).unwrap();
    }

    /// Deeper than there are descriptors, and with paths longer than the kernel takes.
    #[test]
    fn a_tree_is_removed_however_deep_it_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tree")).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(dir.path().join("tree"), flags, Mode::empty()).unwrap();
        for _ in 0..2000 {
            rustix::fs::mkdirat(&at, "deep-directory", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "deep-directory", flags, Mode::empty()).unwrap();
        }
        drop(at);
        remove_tree(dir.path(), OsStr::new("tree")).unwrap();
        assert!(!dir.path().join("tree").exists());
    }
}
