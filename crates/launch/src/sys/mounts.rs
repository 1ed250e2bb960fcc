//! Mounts.

use core::ffi::CStr;

use libc::c_int;

use super::{SysResult, descriptor, raw, text};

pub(crate) fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: u64, data: &CStr) -> SysResult<()> {
    // SAFETY: all strings outlive the call.
    unsafe { raw(libc::SYS_mount, [text(source), text(target), text(kind), flags as usize, text(data), 0]) }
        .map(drop)
}

pub(crate) fn pivot_root(new: &CStr, old: &CStr) -> SysResult<()> {
    // SAFETY: both strings outlive the call.
    unsafe { raw(libc::SYS_pivot_root, [text(new), text(old), 0, 0, 0, 0]) }.map(drop)
}

pub(crate) fn detach(path: &CStr) -> SysResult<()> {
    // SAFETY: `path` outlives the call.
    unsafe { raw(libc::SYS_umount2, [text(path), libc::MNT_DETACH as usize, 0, 0, 0, 0]) }.map(drop)
}

/// A detached copy of the mount tree at a descriptor.
pub(crate) fn clone_tree(fd: i32) -> SysResult<i32> {
    const OPEN_TREE_CLONE: c_int = 1;
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC | libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the empty path outlives the call.
    unsafe { raw(libc::SYS_open_tree, [descriptor(fd), text(c""), flags as usize, 0, 0, 0]) }
        .map(|fd| fd as i32)
}

/// Attaches a detached tree on top of the object behind `target`.
pub(crate) fn attach_tree(tree: i32, target: i32) -> SysResult<()> {
    const FROM_EMPTY: usize = 0x04;
    const TO_EMPTY: usize = 0x40;
    // SAFETY: the empty paths outlive the call.
    unsafe {
        raw(
            libc::SYS_move_mount,
            [descriptor(tree), text(c""), descriptor(target), text(c""), FROM_EMPTY | TO_EMPTY, 0],
        )
    }
    .map(drop)
}

pub(crate) const READ_ONLY: u64 = 0x1;
pub(crate) const NO_SETUID: u64 = 0x2;
pub(crate) const NO_DEVICES: u64 = 0x4;
pub(crate) const NO_EXECUTE: u64 = 0x8;

#[derive(Clone, Copy)]
pub(crate) enum MountRecursion {
    One,
    Recursive,
}

/// Adds mount attributes to the mount at `path` relative to `directory` (empty path: the descriptor itself).
pub(crate) fn set_attributes(
    directory: i32,
    path: &CStr,
    attributes: u64,
    reach: MountRecursion,
) -> SysResult<()> {
    change_attributes(directory, path, &MountAttr { set: attributes, ..MountAttr::default() }, reach)
}

/// Lets a detached tree be written, without the mounts below it. What the host has made read-only is locked: EPERM.
pub(crate) fn allow_writing(tree: i32) -> SysResult<()> {
    change_attributes(tree, c"", &MountAttr { clear: READ_ONLY, ..MountAttr::default() }, MountRecursion::One)
}

#[repr(C)]
#[derive(Default)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

fn change_attributes(
    directory: i32,
    path: &CStr,
    request: &MountAttr,
    reach: MountRecursion,
) -> SysResult<()> {
    let recursive = match reach {
        MountRecursion::One => 0,
        MountRecursion::Recursive => libc::AT_RECURSIVE,
    };
    let flags = recursive | libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: `path` and `request` outlive the call and the size is that of `request`.
    unsafe {
        raw(
            libc::SYS_mount_setattr,
            [
                descriptor(directory),
                text(path),
                flags as usize,
                core::ptr::from_ref(request) as usize,
                size_of::<MountAttr>(),
                0,
            ],
        )
    }
    .map(drop)
}
