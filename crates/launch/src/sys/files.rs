//! Files, descriptors and mappings.

use core::ffi::CStr;

use libc::c_int;

use super::{Errno, SysResult, descriptor, raw, text};

pub(crate) fn close(fd: i32) {
    // SAFETY: no pointers. An error means that the descriptor is gone already.
    let _gone_already = unsafe { raw(libc::SYS_close, [descriptor(fd), 0, 0, 0, 0, 0]) };
}

pub(crate) fn close_range(first: u32, last: u32) -> SysResult<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_close_range, [first as usize, last as usize, 0, 0, 0, 0]) }.map(drop)
}

pub(crate) fn dup3(from: i32, to: i32) -> SysResult<()> {
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_dup3, [descriptor(from), descriptor(to), 0, 0, 0, 0]) }.map(drop)
}

/// A duplicate with the lowest number that is at least `least`.
pub(crate) fn duplicate_above(fd: i32, least: i32) -> SysResult<i32> {
    // SAFETY: no pointers for F_DUPFD_CLOEXEC.
    unsafe { raw(libc::SYS_fcntl, [descriptor(fd), libc::F_DUPFD_CLOEXEC as usize, least as usize, 0, 0, 0]) }
        .map(|new| new as i32)
}

pub(crate) fn open(directory: i32, path: &CStr, flags: c_int, mode: u32) -> SysResult<i32> {
    // SAFETY: `path` is a C string that outlives the call.
    unsafe { raw(libc::SYS_openat, [descriptor(directory), text(path), flags as usize, mode as usize, 0, 0]) }
        .map(|fd| fd as i32)
}

/// `O_PATH` beneath `directory`, refusing every symbolic link on the way; the last component may be one.
pub(crate) fn open_beneath(directory: i32, path: &CStr) -> SysResult<i32> {
    const BENEATH: u64 = 0x08;
    open_without_links(directory, path, BENEATH)
}

/// `O_PATH` at an absolute path, refusing every symbolic link on the way.
pub(crate) fn open_absolute(path: &CStr) -> SysResult<i32> {
    open_without_links(libc::AT_FDCWD, path, 0)
}

fn open_without_links(directory: i32, path: &CStr, resolve: u64) -> SysResult<i32> {
    #[repr(C)]
    struct OpenHow {
        flags: u64,
        mode: u64,
        resolve: u64,
    }
    const NO_MAGICLINKS: u64 = 0x02;
    const NO_SYMLINKS: u64 = 0x04;
    let how = OpenHow {
        flags: (libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) as u64,
        mode: 0,
        resolve: resolve | NO_MAGICLINKS | NO_SYMLINKS,
    };
    let size = size_of::<OpenHow>();
    // SAFETY: `path` and `how` outlive the call and `size` is the size of `how`.
    unsafe {
        raw(libc::SYS_openat2, [descriptor(directory), text(path), &raw const how as usize, size, 0, 0])
    }
    .map(|fd| fd as i32)
}

pub(crate) fn read(fd: i32, buffer: &mut [u8]) -> SysResult<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into the exclusive borrow.
    unsafe { raw(libc::SYS_read, [descriptor(fd), buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) }
}

pub(crate) fn write(fd: i32, buffer: &[u8]) -> SysResult<usize> {
    // SAFETY: the kernel reads `buffer.len()` bytes of the borrow.
    unsafe { raw(libc::SYS_write, [descriptor(fd), buffer.as_ptr() as usize, buffer.len(), 0, 0, 0]) }
}

pub(crate) fn directory_entries(fd: i32, buffer: &mut [u8]) -> SysResult<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into the exclusive borrow.
    unsafe {
        raw(libc::SYS_getdents64, [descriptor(fd), buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0])
    }
}

pub(crate) fn make_directory(path: &CStr, mode: u32) -> SysResult<()> {
    // SAFETY: `path` outlives the call.
    unsafe { raw(libc::SYS_mkdirat, [descriptor(libc::AT_FDCWD), text(path), mode as usize, 0, 0, 0]) }
        .map(drop)
}

pub(crate) fn symlink(target: &CStr, path: &CStr) -> SysResult<()> {
    // SAFETY: both strings outlive the call.
    unsafe { raw(libc::SYS_symlinkat, [text(target), descriptor(libc::AT_FDCWD), text(path), 0, 0, 0]) }
        .map(drop)
}

pub(crate) fn change_directory(path: &CStr) -> SysResult<()> {
    // SAFETY: `path` outlives the call.
    unsafe { raw(libc::SYS_chdir, [text(path), 0, 0, 0, 0, 0]) }.map(drop)
}

/// What is behind an `O_PATH` descriptor.
pub(crate) struct OpenObject {
    pub(crate) directory: bool,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

pub(crate) fn look_at(fd: i32) -> SysResult<OpenObject> {
    // SAFETY: an all-zero `stat` is a valid value of a C struct of integers.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    let empty = c"";
    // SAFETY: `stat` and the empty path outlive the call, which fills exactly one `struct stat`.
    unsafe {
        raw(
            libc::SYS_newfstatat,
            [descriptor(fd), text(empty), &raw mut stat as usize, libc::AT_EMPTY_PATH as usize, 0, 0],
        )
    }?;
    let directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    Ok(OpenObject { directory, device: stat.st_dev, inode: stat.st_ino })
}

/// Whether a file system has no room left; one that cannot be asked counts as roomy.
pub(crate) fn is_full(path: &CStr) -> bool {
    // SAFETY: an all-zero `statfs` is a valid value of a C struct of integers.
    let mut found: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: `path` and `found` outlive the call, which fills exactly one `struct statfs`.
    let answer = unsafe { raw(libc::SYS_statfs, [text(path), &raw mut found as usize, 0, 0, 0, 0]) };
    answer.is_ok() && found.f_blocks > 0 && found.f_bavail == 0
}

/// Maps a whole file read-only. The mapping is never removed.
pub(crate) fn map(fd: i32, length: usize) -> SysResult<&'static [u8]> {
    let address = map_memory(length, libc::PROT_READ, libc::MAP_PRIVATE, fd)?;
    // SAFETY: the kernel gave `length` readable bytes at `address`, which is never 0 without MAP_FIXED; the file is a
    // memfd that the supervisor sealed before it sent it, so that it can neither shrink nor change; the mapping is never
    // removed.
    Ok(unsafe { core::slice::from_raw_parts(address as *const u8, length) })
}

/// Allocates zeroed words that are never freed.
pub(crate) fn allocate_words(count: usize) -> SysResult<&'static mut [usize]> {
    let size = count.checked_mul(size_of::<usize>()).ok_or(Errno(libc::ENOMEM))?;
    let address =
        map_memory(size, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
    // SAFETY: a fresh private anonymous mapping of `count` words, page aligned, zeroed, with no other owner.
    Ok(unsafe { core::slice::from_raw_parts_mut(address as *mut usize, count) })
}

fn map_memory(length: usize, protection: c_int, flags: c_int, fd: i32) -> SysResult<usize> {
    // SAFETY: address 0 lets the kernel choose, so no existing mapping is touched.
    unsafe { raw(libc::SYS_mmap, [0, length, protection as usize, flags as usize, descriptor(fd), 0]) }
}
