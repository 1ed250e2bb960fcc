//! File locks: memory of the kernel that no control group counts and no limit of a process bounds.

use std::fs::{self, File};
use std::io::Read as _;
use std::time::{Duration, Instant};

use super::machine;
use super::tree::Call;
use super::{LONGEST, ROUND, SHARE};

/// More than any program is known to hold. Each takes some 200 bytes.
pub(crate) const MOST_LOCKS: u64 = 65_536;

/// When the kernel has taken this much more, locks are looked at without waiting.
const STEP: u64 = 8 << 20;

/// When locks were last looked at, how long the next look may wait, and what the kernel had.
#[derive(Debug)]
pub(super) struct LastLook {
    kernel_bytes: u64,
    at: Instant,
    pause: Duration,
}

impl LastLook {
    /// A look that has just ended.
    pub(super) fn begun(began: Instant) -> Self {
        let pause = began.elapsed().saturating_mul(SHARE).clamp(ROUND, LONGEST);
        Self { kernel_bytes: machine::kernel_objects(), at: Instant::now(), pause }
    }

    pub(super) fn is_long_ago(&self) -> bool {
        let grown = || machine::kernel_objects() > self.kernel_bytes.saturating_add(STEP);
        self.at.elapsed() >= self.pause || grown()
    }
}

/// The call with most locks, where all of them together have too many.
pub(super) fn too_many(calls: &[Call]) -> Option<&Call> {
    let on_machine = of_machine();
    if on_machine <= MOST_LOCKS {
        return None;
    }
    let counts: Vec<LockCount> = calls.iter().map(LockCount::of).collect();
    let seen: u64 = counts.iter().map(|count| count.locks).sum();
    // A file that is on its way through a socket keeps its locks, and no process shows them.
    let hidden = if counts.iter().any(|count| count.hides) { on_machine.saturating_sub(seen) } else { 0 };
    if seen.saturating_add(hidden) <= MOST_LOCKS {
        return None;
    }
    let weight = |count: &LockCount| count.locks.saturating_add(if count.hides { hidden } else { 0 });
    calls.iter().zip(&counts).max_by_key(|(_, count)| weight(count)).map(|(call, _)| call)
}

/// Counted no further than is needed: the kernel goes through the list from its beginning for each page of it.
fn of_machine() -> u64 {
    let Ok(mut list) = File::open("/proc/locks") else { return u64::MAX };
    let (mut lines, mut buffer) = (0_u64, vec![0_u8; 64 << 10]);
    while let Ok(length @ 1..) = list.read(&mut buffer) {
        let part = buffer.get(..length).unwrap_or_default();
        lines += memchr::memchr_iter(b'\n', part).count() as u64;
        if lines > MOST_LOCKS.saturating_mul(2) {
            break;
        }
    }
    lines
}

#[derive(Debug, Default)]
struct LockCount {
    locks: u64,
    /// Whether it could have more that are not seen.
    hides: bool,
}

impl LockCount {
    fn of(call: &Call) -> Self {
        let mut count = Self::default();
        for pid in &call.processes {
            // Each thread can have open files of its own.
            let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for thread in threads {
                match fs::read_dir(thread.path().join("fdinfo")) {
                    Ok(files) => files.flatten().for_each(|file| count.add(&file.path())),
                    Err(error) => count.hides |= error.kind() == std::io::ErrorKind::PermissionDenied,
                }
            }
        }
        count
    }

    fn add(&mut self, file: &std::path::Path) {
        let Ok(about) = fs::read_to_string(file) else { return };
        for line in about.lines() {
            self.locks += u64::from(line.starts_with("lock:"));
            self.hides |= line.strip_prefix("scm_fds:").is_some_and(|number| number.trim() != "0");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_this_process_are_seen() {
        let file = tempfile::tempfile().unwrap();
        let own = Call::of_processes(vec![std::process::id()]);
        let before = LockCount::of(&own).locks;
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert!(LockCount::of(&own).locks > before);
        assert!(of_machine() > 0 && too_many(&[own]).is_none());
    }
}
