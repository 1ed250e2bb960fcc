//! Kills all descendants of this process, found through /proc.
//!
//! The caller is a child subreaper, so orphans of a dead child become its own children. Killing the direct children repeatedly
//! reaches every descendant, whatever its session and process group.

use core::ffi::CStr;

use crate::sys::{self, Errno, signal_bit};

/// Rounds before giving up. Each round ends one generation; a process tree that survives all of them forks faster than it can be
/// found.
const ROUNDS: u32 = 2000;

/// Wait per round for killed processes, in milliseconds.
const PATIENCE: i64 = 10;

/// Kills and reaps until there is no child left.
pub(crate) fn kill_own() -> Result<(), Errno> {
    for _ in 0..ROUNDS {
        match sys::reap() {
            Err(Errno(libc::ECHILD)) => return Ok(()),
            Err(errno) => return Err(errno),
            Ok(Some(_)) => {}
            Ok(None) => {
                kill_children(sys::own_pid());
                // A process with much memory takes a while to exit, which does not mean that it forks.
                let _none_yet = sys::wait_signal_within(signal_bit(libc::SIGCHLD), PATIENCE);
            }
        }
    }
    Err(Errno(libc::EBUSY))
}

/// One round, without reaping: the caller waits for its command as usual.
pub(crate) fn kill_own_now() {
    kill_children(sys::own_pid());
}

/// Final step of the stand-in for PID 1 in a sandbox without a PID namespace.
pub(crate) fn kill_all() {
    // No process is left to report to. What was not found is the known limit of a sandbox without a PID namespace.
    let _unfound = kill_own();
}

fn kill_children(parent: i32) {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let Ok(directory) = sys::open(libc::AT_FDCWD, c"/proc", flags, 0) else { return };
    let mut buffer = [0_u8; 4096];
    while let Ok(length @ 1..) = sys::directory_entries(directory, &mut buffer) {
        let mut entries = buffer.get(..length).unwrap_or_default();
        while let Some((name, rest)) = next_entry(entries) {
            entries = rest;
            if let Some(pid) = number(name.to_bytes())
                && parent_of(directory, name) == Some(parent)
            {
                // It may be gone already.
                let _gone_already = sys::kill(pid, libc::SIGKILL);
            }
        }
    }
    sys::close(directory);
}

/// `struct linux_dirent64`: inode 8, offset 8, record length 2, type 1, name.
fn next_entry(entries: &[u8]) -> Option<(&CStr, &[u8])> {
    let length = u16::from_ne_bytes(entries.get(16..18)?.try_into().ok()?) as usize;
    let (record, rest) = entries.split_at_checked(length)?;
    let name = CStr::from_bytes_until_nul(record.get(19..)?).ok()?;
    Some((name, rest))
}

/// The parent of a process: the second field after the parenthesised name in its `stat`.
fn parent_of(proc: i32, name: &CStr) -> Option<i32> {
    let mut path = [0_u8; 32];
    for (slot, byte) in path.iter_mut().zip(name.to_bytes().iter().chain(b"/stat\0")) {
        *slot = *byte;
    }
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let fd = sys::open(proc, path, libc::O_RDONLY | libc::O_CLOEXEC, 0).ok()?;
    let mut content = [0_u8; 256];
    let length = sys::read(fd, &mut content);
    sys::close(fd);
    let content = content.get(..length.ok()?)?;
    let after_name = content.iter().rposition(|byte| *byte == b')')?;
    number(content.get(after_name..)?.split(|byte| *byte == b' ').nth(2)?)
}

pub(crate) fn number(digits: &[u8]) -> Option<i32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_i32, |value, digit| match digit {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(i32::from(digit - b'0')),
        _ => None,
    })
}
