//! Signals, and waiting for something to happen.

use libc::{c_int, c_uint};

use super::{SysResult, raw};

pub(crate) const ALL_SIGNALS: u64 = u64::MAX;

pub(crate) const fn signal_bit(signal: c_int) -> u64 {
    1 << (signal as c_uint - 1)
}

const SIGNAL_SET_SIZE: usize = 8;

pub(crate) fn block_signals(set: u64) -> SysResult<()> {
    let set = &raw const set as usize;
    // SAFETY: the kernel reads eight bytes of `set`.
    unsafe { raw(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, set, 0, SIGNAL_SET_SIZE, 0, 0]) }
        .map(drop)
}

/// Default action for every signal, so that nothing ignored by a caller is ignored by a command.
pub(crate) fn default_signals() {
    let default = [0_u64; 4];
    for signal in 1..=64_usize {
        // SAFETY: an all-zero `struct sigaction` means SIG_DFL; SIGKILL and SIGSTOP answer EINVAL, which is fine.
        let _kill_and_stop = unsafe {
            raw(libc::SYS_rt_sigaction, [signal, default.as_ptr() as usize, 0, SIGNAL_SET_SIZE, 0, 0])
        };
    }
}

pub(crate) struct SignalInfo {
    pub(crate) signal: i32,
    pub(crate) sender: i32,
}

/// Waits for one of the blocked signals in `set`.
pub(crate) fn wait_signal(set: u64) -> SysResult<SignalInfo> {
    // SAFETY: an all-zero `siginfo_t` is a valid value of a C struct of integers.
    let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
    let set = &raw const set as usize;
    // SAFETY: the kernel reads eight bytes of `set` and writes one siginfo.
    let signal =
        unsafe { raw(libc::SYS_rt_sigtimedwait, [set, &raw mut info as usize, 0, SIGNAL_SET_SIZE, 0, 0]) }?;
    // SAFETY: for signals sent by kill(2) and for SIGCHLD the kernel fills the pid; for others it stays zero.
    let sender = unsafe { info.si_pid() };
    Ok(SignalInfo { signal: signal as i32, sender })
}

/// Waits for one of the blocked signals in `set`, no longer than this; `EAGAIN` says that none came.
pub(crate) fn wait_signal_within(set: u64, milliseconds: i64) -> SysResult<()> {
    let patience = libc::timespec { tv_sec: 0, tv_nsec: milliseconds.clamp(0, 999) * 1_000_000 };
    let (set, patience) = (&raw const set as usize, &raw const patience as usize);
    // SAFETY: the kernel reads eight bytes of `set` and one timespec, and writes no siginfo where none is given.
    unsafe { raw(libc::SYS_rt_sigtimedwait, [set, 0, patience, SIGNAL_SET_SIZE, 0, 0]) }.map(drop)
}

/// A descriptor that becomes readable when one of `set` is pending.
pub(crate) fn signal_descriptor(set: u64) -> SysResult<i32> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the kernel reads eight bytes of `set`.
    unsafe {
        raw(libc::SYS_signalfd4, [usize::MAX, &raw const set as usize, SIGNAL_SET_SIZE, flags as usize, 0, 0])
    }
    .map(|fd| fd as i32)
}

/// Waits until one of two descriptors is readable or closed.
pub(crate) fn wait_readable(first: i32, second: i32) -> SysResult<(bool, bool)> {
    let mut fds = [
        libc::pollfd { fd: first, events: libc::POLLIN, revents: 0 },
        libc::pollfd { fd: second, events: libc::POLLIN, revents: 0 },
    ];
    // SAFETY: the kernel reads and writes two pollfds; no timeout, no signal mask.
    unsafe { raw(libc::SYS_ppoll, [fds.as_mut_ptr() as usize, 2, 0, 0, 0, 0]) }?;
    let [a, b] = fds;
    Ok((a.revents != 0, b.revents != 0))
}
