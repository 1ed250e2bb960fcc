//! The few system calls of the supervisor that no safe crate offers.
//!
//! INVARIANT: each function is safe to call with any argument its type admits: pointers never come from the caller.
#![expect(unsafe_code, reason = "raw system calls; every other file of this crate is safe code")]

use std::ffi::{c_int, c_long, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::{Errno, Result};

/// What a number that the kernel took means: the call was carried out, or refused.
fn check(returned: c_long) -> Result<c_long> {
    let failed = || io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
    if returned == -1 { Err(failed()) } else { Ok(returned) }
}

/// A descriptor that whatever is started does not get.
pub fn close_on_exec(fd: RawFd) -> Result<()> {
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFD, libc::FD_CLOEXEC) }).map(drop)
}

/// The process that connected to a Unix socket, also when another process has its number by now.
pub fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd> {
    const SO_PEERPIDFD: c_int = 77;
    let mut fd: c_int = -1;
    let mut length: u32 = 4;
    // SAFETY: `fd` is 4 bytes, as `length` says, and both outlive the call. The kernel has put the number of a new
    // descriptor there, which nothing else knows.
    unsafe {
        let (value, length) = (ptr::from_mut(&mut fd), ptr::from_mut(&mut length));
        check(libc::syscall(
            libc::SYS_getsockopt,
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            value,
            length,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Puts a read lock of this open file description on one byte.
pub(crate) fn share_byte(fd: BorrowedFd<'_>, at: i64) -> Result<()> {
    byte_lock(fd, libc::F_OFD_SETLK, libc::F_RDLCK, at).map(drop)
}

/// Takes the lock of this open file description off that byte, for every process that has a copy of the descriptor.
pub(crate) fn release_byte(fd: BorrowedFd<'_>, at: i64) -> Result<()> {
    byte_lock(fd, libc::F_OFD_SETLK, libc::F_UNLCK, at).map(drop)
}

/// Whether another open file description has a lock on that byte.
pub(crate) fn is_byte_shared(fd: BorrowedFd<'_>, at: i64) -> Result<bool> {
    Ok(byte_lock(fd, libc::F_OFD_GETLK, libc::F_WRLCK, at)? != libc::F_UNLCK)
}

/// The kind of lock that the kernel answers with, or the same.
fn byte_lock(fd: BorrowedFd<'_>, operation: c_int, kind: c_int, at: i64) -> Result<c_int> {
    let [kind, whence] = [kind, libc::SEEK_SET].map(|number| i16::try_from(number).unwrap_or_default());
    let mut lock = libc::flock { l_type: kind, l_whence: whence, l_start: at, l_len: 1, l_pid: 0 };
    // SAFETY: both operations take a whole `flock`, which outlives the call; the kernel writes no more than that.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd.as_raw_fd(), operation, &raw mut lock) })?;
    Ok(c_int::from(lock.l_type))
}

/// The Landlock ABI of the running kernel; `None` where Landlock is not built in or not enabled.
pub(crate) fn landlock_abi() -> Option<u32> {
    const CREATE_RULESET_VERSION: c_int = 1;
    // SAFETY: with the version flag the kernel reads no attributes: the pointer must be null and the size zero.
    let answer = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, CREATE_RULESET_VERSION)
    };
    u32::try_from(answer).ok()
}

/// What the kernel asks before it carries out a system call (`SECCOMP_RET_USER_NOTIF`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notification {
    id: u64,
    /// The thread that waits, as this process numbers it.
    pub pid: u32,
    pub number: c_int,
    pub arguments: [u64; 6],
}

/// What becomes of the call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotificationAnswer {
    Continue,
    Errno(Errno),
}

/// The next question; `NOENT` where the process that asked has ended.
pub(crate) fn notification(listener: BorrowedFd<'_>) -> Result<Notification> {
    const RECEIVE: c_ulong = 0xc050_2100;
    // SAFETY: an all-zero `seccomp_notif` is a valid value of a C struct of integers, and the kernel wants zeros.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the request fills exactly one `struct seccomp_notif`, which outlives the call.
    check(unsafe { libc::syscall(libc::SYS_ioctl, listener.as_raw_fd(), RECEIVE, &raw mut asked) })?;
    let data = asked.data;
    Ok(Notification { id: asked.id, pid: asked.pid, number: data.nr, arguments: data.args })
}

/// Whether the process that asked still waits: if not, its number may belong to another by now.
pub(crate) fn notification_is_valid(listener: BorrowedFd<'_>, asked: &Notification) -> Result<()> {
    const IS_VALID: c_ulong = 0x4008_2102;
    // SAFETY: the request reads one number, which outlives the call.
    check(unsafe { libc::syscall(libc::SYS_ioctl, listener.as_raw_fd(), IS_VALID, &raw const asked.id) })
        .map(drop)
}

pub(crate) fn answer_notification(
    listener: BorrowedFd<'_>,
    asked: &Notification,
    answer: NotificationAnswer,
) -> Result<()> {
    const CONTINUE: u32 = 1;
    let (error, flags) = match answer {
        NotificationAnswer::Continue => (0, CONTINUE),
        NotificationAnswer::Errno(errno) => (-errno.raw_os_error(), 0),
    };
    send_answer(listener, &libc::seccomp_notif_resp { id: asked.id, val: 0, error, flags })
}

fn send_answer(listener: BorrowedFd<'_>, answer: &libc::seccomp_notif_resp) -> Result<()> {
    const SEND: c_ulong = 0xc018_2101;
    let answer = ptr::from_ref(answer);
    // SAFETY: the request reads exactly one `struct seccomp_notif_resp`, which outlives the call.
    check(unsafe { libc::syscall(libc::SYS_ioctl, listener.as_raw_fd(), SEND, answer) }).map(drop)
}

/// A descriptor for another process, and the flags of the new descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenDescriptor<'a> {
    pub fd: BorrowedFd<'a>,
    pub flags: u32,
}

/// Answers with a new descriptor of the process that asked.
///
/// KERNEL: since 5.14 both is one step. Before, a process that a signal takes out of its call keeps a descriptor it does not know of.
pub(crate) fn give_descriptor(
    listener: BorrowedFd<'_>,
    asked: &Notification,
    given: GivenDescriptor<'_>,
) -> Result<()> {
    const WITH_ANSWER: u32 = 2;
    match add_descriptor(listener, asked, given, WITH_ANSWER) {
        Err(Errno::INVAL) => {
            let val = i64::from(add_descriptor(listener, asked, given, 0)?);
            send_answer(listener, &libc::seccomp_notif_resp { id: asked.id, val, error: 0, flags: 0 })
        }
        answer => answer.map(drop),
    }
}

fn add_descriptor(
    listener: BorrowedFd<'_>,
    asked: &Notification,
    given: GivenDescriptor<'_>,
    flags: u32,
) -> Result<i32> {
    const ADD: c_ulong = 0x4018_2103;
    let request = libc::seccomp_notif_addfd {
        id: asked.id,
        flags,
        srcfd: given.fd.as_raw_fd().cast_unsigned(),
        newfd: 0,
        newfd_flags: given.flags,
    };
    // SAFETY: the request reads exactly one `struct seccomp_notif_addfd`, which outlives the call.
    let number =
        check(unsafe { libc::syscall(libc::SYS_ioctl, listener.as_raw_fd(), ADD, &raw const request) })?;
    i32::try_from(number).or(Err(Errno::BADF))
}
