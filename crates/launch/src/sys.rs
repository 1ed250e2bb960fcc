//! All `unsafe` code of the launcher: entry point, system call instruction, the memory functions that the compiler calls by name,
//! and one thin function per system call.
//!
//! INVARIANT: no function here keeps a pointer after the system call it was passed to returns, except `files::map` and
//! `files::allocate_words`, whose mappings are never unmapped.
#![expect(unsafe_code, reason = "system calls and the entry point cannot be written without it")]

mod confinement;
mod control;
mod entry;
mod files;
mod memory;
mod mounts;
mod network;
mod privileges;
mod processes;
mod signals;
mod terminals;

use core::ffi::CStr;

use libc::c_long;

pub(crate) use confinement::{
    landlock_allow, landlock_create, landlock_enforce, seccomp_filter, seccomp_listener,
};
pub(crate) use control::{MAX_FDS, connect, receive, send};
pub(crate) use entry::exit;
pub(crate) use files::{
    OpenObject, allocate_words, change_directory, close, close_range, directory_entries, dup3,
    duplicate_above, is_full, look_at, make_directory, map, open, open_absolute, open_beneath, read, symlink,
    write,
};
pub(crate) use mounts::{
    MountRecursion, NO_DEVICES, NO_EXECUTE, NO_SETUID, READ_ONLY, allow_writing, attach_tree, clone_tree,
    detach, mount, pivot_root, set_attributes,
};
pub(crate) use network::{bound_socket, loopback_up, netlink_socket, read_now};
pub(crate) use privileges::{
    PrctlOption, capabilities_empty, clear_capabilities, enter_namespace, owner_of, prctl, set_hostname,
    set_limit, set_name, unshare,
};
pub(crate) use processes::{
    ChildExit, ForkResult, execute, execute_descriptor, fork, fork_sibling, kill, open_pidfd, own_ids,
    own_pid, parent_pid, reap, set_session, set_umask, was_stopped,
};
pub(crate) use signals::{
    ALL_SIGNALS, block_signals, default_signals, signal_bit, signal_descriptor, wait_readable, wait_signal,
    wait_signal_within,
};
pub(crate) use terminals::{control_terminal, open_terminal};

/// A kernel error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

pub(crate) type SysResult<T> = core::result::Result<T, Errno>;

/// # Safety
/// Every argument that is a pointer must be valid for what the call does with it.
#[cfg(target_arch = "x86_64")]
unsafe fn raw(number: c_long, a: [usize; 6]) -> SysResult<usize> {
    let answer: isize;
    // SAFETY: the caller vouches for the pointers; rcx and r11 are the registers the instruction destroys.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    decode(answer)
}

/// # Safety
/// Every argument that is a pointer must be valid for what the call does with it.
#[cfg(target_arch = "aarch64")]
unsafe fn raw(number: c_long, a: [usize; 6]) -> SysResult<usize> {
    let answer: isize;
    // SAFETY: the caller vouches for the pointers; the kernel preserves every register but x0.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a[0] as isize => answer,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack)
        );
    }
    decode(answer)
}

fn decode(answer: isize) -> SysResult<usize> {
    if (-4095..0).contains(&answer) { Err(Errno(-answer as i32)) } else { Ok(answer as usize) }
}

fn text(value: &CStr) -> usize {
    value.as_ptr() as usize
}

/// A file descriptor as the kernel wants it: negative numbers (`AT_FDCWD`) keep their sign.
fn descriptor(fd: i32) -> usize {
    fd as isize as usize
}

/// # Safety
/// `argument` must be what the request expects.
unsafe fn ioctl(fd: i32, request: usize, argument: usize) -> SysResult<usize> {
    // SAFETY: passed on.
    unsafe { raw(libc::SYS_ioctl, [descriptor(fd), request, argument, 0, 0, 0]) }
}
