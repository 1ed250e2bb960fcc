//! Processes.

use core::ffi::CStr;

use libc::c_int;

use super::{Errno, SysResult, descriptor, raw, text};

pub(crate) enum ForkResult {
    Parent(i32),
    Child,
}

pub(crate) fn fork() -> SysResult<ForkResult> {
    // SAFETY: no new stack and no shared memory: the child continues on a copy of this one. The process is
    // single-threaded and has no C library whose locks could be held.
    unsafe { raw(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0, 0, 0]) }.map(forked)
}

/// Forks PID 1 of the new namespace as a sibling, so that the parent of this process is its parent, and returns
/// a pidfd for it.
pub(crate) fn fork_sibling() -> SysResult<(ForkResult, i32)> {
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_PARENT | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: as in `fork`; the kernel writes one int to `pidfd` in the parent's memory before it returns.
    let answer = unsafe { raw(libc::SYS_clone, [flags as usize, 0, &raw mut pidfd as usize, 0, 0, 0]) }?;
    // SAFETY: reads the int that the kernel wrote behind the compiler's back.
    let pidfd = unsafe { (&raw const pidfd).read_volatile() };
    Ok((forked(answer), pidfd))
}

fn forked(answer: usize) -> ForkResult {
    match answer {
        0 => ForkResult::Child,
        pid => ForkResult::Parent(pid as i32),
    }
}

/// Executes; `arguments` and `environment` are NULL-terminated arrays of C strings built by `command.rs`.
pub(crate) fn execute(path: &CStr, arguments: &[usize], environment: &[usize]) -> Errno {
    if arguments.last() != Some(&0) || environment.last() != Some(&0) {
        return Errno(libc::EINVAL);
    }
    // SAFETY: both arrays end in NULL (checked), and the kernel only reads what their addresses point to: one that is no
    // string answers EFAULT. On success this program is gone.
    match unsafe {
        raw(
            libc::SYS_execve,
            [text(path), arguments.as_ptr() as usize, environment.as_ptr() as usize, 0, 0, 0],
        )
    } {
        Ok(_) => Errno(libc::EINVAL),
        Err(errno) => errno,
    }
}

/// The same for the file behind a descriptor.
pub(crate) fn execute_descriptor(fd: i32, arguments: &[usize], environment: &[usize]) -> Errno {
    if arguments.last() != Some(&0) || environment.last() != Some(&0) {
        return Errno(libc::EINVAL);
    }
    let (arguments, environment) = (arguments.as_ptr() as usize, environment.as_ptr() as usize);
    // SAFETY: as in `execute`; the empty path outlives the call.
    match unsafe {
        raw(
            libc::SYS_execveat,
            [descriptor(fd), text(c""), arguments, environment, libc::AT_EMPTY_PATH as usize, 0],
        )
    } {
        Ok(_) => Errno(libc::EINVAL),
        Err(errno) => errno,
    }
}

#[derive(Clone, Copy)]
pub(crate) struct ChildExit {
    pub(crate) pid: i32,
    pub(crate) status: i32,
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
    pub(crate) max_rss_kib: u64,
}

/// Reaps one child that has ended; `None` when none has, `ECHILD` when there are none.
pub(crate) fn reap() -> SysResult<Option<ChildExit>> {
    let mut status: c_int = 0;
    // SAFETY: an all-zero `rusage` is a valid value of a C struct of integers.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes one int and one rusage, both of which outlive the call.
    let pid = unsafe {
        raw(
            libc::SYS_wait4,
            [
                usize::MAX,
                &raw mut status as usize,
                (libc::WNOHANG | libc::__WALL) as usize,
                &raw mut usage as usize,
                0,
                0,
            ],
        )
    }?;
    if pid == 0 {
        return Ok(None);
    }
    Ok(Some(ChildExit {
        pid: pid as i32,
        status,
        user_us: microseconds(usage.ru_utime),
        system_us: microseconds(usage.ru_stime),
        max_rss_kib: usage.ru_maxrss as u64,
    }))
}

/// Whether a child has been stopped since it was last asked about.
pub(crate) fn was_stopped(child: i32) -> bool {
    // SAFETY: an all-zero `siginfo_t` is a valid value of a C struct of integers and unions of integers.
    let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes one `siginfo_t`, which outlives the call.
    let answer = unsafe {
        raw(
            libc::SYS_waitid,
            [
                libc::P_PID as usize,
                descriptor(child),
                &raw mut info as usize,
                (libc::WSTOPPED | libc::WNOHANG) as usize,
                0,
                0,
            ],
        )
    };
    answer.is_ok() && info.si_signo == libc::SIGCHLD
}

fn microseconds(time: libc::timeval) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000).wrapping_add(time.tv_usec as u64)
}

pub(crate) fn kill(pid: i32, signal: i32) -> SysResult<()> {
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_kill, [descriptor(pid), signal as usize, 0, 0, 0, 0]) }.map(drop)
}

pub(crate) fn own_pid() -> i32 {
    // SAFETY: no pointers; getpid cannot fail.
    unsafe { raw(libc::SYS_getpid, [0; 6]) }.map_or(0, |pid| pid as i32)
}

/// The effective user and group of this process.
pub(crate) fn own_ids() -> (u64, u64) {
    // SAFETY: no pointers; geteuid and getegid cannot fail.
    let [uid, gid] = [libc::SYS_geteuid, libc::SYS_getegid].map(|call| unsafe { raw(call, [0; 6]) });
    (uid.map_or(0, |id| id as u64), gid.map_or(0, |id| id as u64))
}

pub(crate) fn parent_pid() -> i32 {
    // SAFETY: no pointers; getppid cannot fail.
    unsafe { raw(libc::SYS_getppid, [0; 6]) }.map_or(0, |pid| pid as i32)
}

pub(crate) fn open_pidfd(pid: i32) -> SysResult<i32> {
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_pidfd_open, [descriptor(pid), 0, 0, 0, 0, 0]) }.map(|fd| fd as i32)
}

pub(crate) fn set_session() -> SysResult<()> {
    // SAFETY: no pointers.
    unsafe { raw(libc::SYS_setsid, [0; 6]) }.map(drop)
}

pub(crate) fn set_umask(mask: u32) {
    // SAFETY: no pointers; umask cannot fail.
    let _old_mask = unsafe { raw(libc::SYS_umask, [mask as usize, 0, 0, 0, 0, 0]) };
}
