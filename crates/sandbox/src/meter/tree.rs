//! Which processes belong to which call of a session.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal};

/// Far more than a process tree of a command is deep.
const DEEPEST: usize = 256;

/// What one leader has started, itself not included: it must live to say how the command ended.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// As its leader is called; `None` where it is not called anything yet.
    pub(super) id: Option<u64>,
    leader: u32,
    pub(super) processes: Vec<u32>,
}

impl Call {
    #[cfg(test)]
    pub(super) fn of_processes(processes: Vec<u32>) -> Self {
        Self { id: None, leader: 0, processes }
    }

    pub(super) fn sum(&self, bytes: impl Fn(u32) -> u64) -> u64 {
        self.processes.iter().fold(0, |sum, pid| sum.saturating_add(bytes(*pid)))
    }

    pub(super) fn kill(&self) {
        for pid in &self.processes {
            let Some(process) = i32::try_from(*pid).ok().and_then(Pid::from_raw) else { continue };
            let Ok(process) = rustix::process::pidfd_open(process, PidfdFlags::empty()) else { continue };
            // Checked again: another process may have got the number before it was opened.
            if is_below(*pid, self.leader) {
                let _gone = rustix::process::pidfd_send_signal(process, Signal::KILL);
            }
        }
    }
}

/// The children of PID 1 are the leaders, one per call.
pub(super) fn calls(init: u32) -> Vec<Call> {
    let table = Table::read();
    let leaders = table.children(init).into_iter();
    leaders.map(|leader| Call { id: call_of(leader), leader, processes: table.descendants(leader) }).collect()
}

/// The number of a call. No process but the leader itself can change its name.
fn call_of(leader: u32) -> Option<u64> {
    let name = fs::read_to_string(format!("/proc/{leader}/comm")).ok()?;
    name.trim_end().strip_prefix(ringfence_launch::wire::LEADER)?.parse().ok()
}

/// Who is whose child.
enum Table {
    /// The kernel keeps lists.
    Listed,
    /// It was built without them: pairs of parent and child.
    Scanned(Vec<(u32, u32)>),
}

impl Table {
    fn read() -> Self {
        if Path::new("/proc/thread-self/children").exists() { Self::Listed } else { Self::Scanned(scan()) }
    }

    fn children(&self, parent: u32) -> Vec<u32> {
        match self {
            Self::Listed => listed_children(parent),
            Self::Scanned(pairs) => {
                pairs.iter().filter(|(above, _)| *above == parent).map(|(_, child)| *child).collect()
            }
        }
    }

    fn descendants(&self, ancestor: u32) -> Vec<u32> {
        let mut found = self.children(ancestor);
        let mut next = 0;
        while let Some(parent) = found.get(next).copied() {
            next += 1;
            // The list changes while it is read: a process that appears twice counts once.
            let new: Vec<u32> =
                self.children(parent).into_iter().filter(|pid| !found.contains(pid)).collect();
            found.extend(new);
        }
        found
    }
}

/// Each thread has a list of its own.
fn listed_children(parent: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let lists =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn scan() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|pid: u32| Some((parent_of(pid)?, pid))).collect()
}

/// The second field after the parenthesised name.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(1)?.parse().ok()
}

fn is_below(pid: u32, ancestor: u32) -> bool {
    let above = std::iter::successors(parent_of(pid), |parent| parent_of(*parent));
    above.take(DEEPEST).any(|parent| parent == ancestor)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn children_of_children_are_found_both_ways() {
        let mut shell = Command::new("/bin/sh").args(["-c", "sleep 30 & sleep 30 & wait"]).spawn().unwrap();
        let own = std::process::id();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while listed_children(shell.id()).len() < 2 && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        for table in [Table::Listed, Table::Scanned(scan())] {
            let (mut sleepers, all) = (table.children(shell.id()), table.descendants(own));
            sleepers.sort_unstable();
            assert_eq!(sleepers.len(), 2);
            assert!(sleepers.iter().chain([&shell.id()]).all(|pid| all.contains(pid)));
            assert!(sleepers.iter().all(|pid| is_below(*pid, own) && !is_below(own, *pid)));
        }
        Call { id: None, leader: own, processes: Table::Listed.descendants(shell.id()) }.kill();
        assert!(shell.wait().is_ok());
    }
}
