//! Control groups: one per sandbox and controller, below the group this process is in.
//!
//! Version 1 where its controllers are mounted (needs root or delegation), version 2 where a subtree is delegated
//! to us. Nothing here degrades by itself: what could be had is returned and reported.

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ringfence_types::{LimitName, Limits};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::lease;

/// The groups of one sandbox. Dropping it removes them, with whatever is left in them.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    groups: Vec<Cgroup>,
}

#[derive(Debug)]
struct Cgroup {
    path: PathBuf,
    version: CgroupVersion,
    controllers: Vec<&'static str>,
    tcp: TcpAccounting,
    owner: CgroupOwner,
}

/// Whether the buffers of TCP connections count against the memory of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TcpAccounting {
    Counted,
    Uncounted,
}

#[derive(Debug)]
enum CgroupOwner {
    /// What keeps sweeps of other supervisors away, in whatever PID namespace they are.
    Us(#[expect(dead_code, reason = "held for its lock")] OwnedFd),
    Engine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupVersion {
    One,
    Two,
}

impl CgroupVersion {
    /// KERNEL: moving a whole process takes a lock that waits for a grace period, 10 ms and more; moving one thread
    /// does not, and the launcher has only one.
    fn entrance(self) -> &'static str {
        match self {
            Self::One => "tasks",
            Self::Two => "cgroup.procs",
        }
    }
}

const WANTED: [&str; 3] = ["memory", "pids", "cpu"];

impl Cgroups {
    /// Creates what can be created. An empty result is not an error: rlimits remain.
    pub(crate) fn create(limits: &Limits) -> Self {
        let mut created = Self::default();
        for place in places(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo")) {
            if place.controllers == ["cpu"] && limits.millicpus.is_none() {
                continue;
            }
            // What a killed supervisor left. A group that is not empty yet is tried again by the next start.
            lease::sweep(PREFIX, &place.parent, |group| drop(fs::remove_dir(group)));
            match Cgroup::create(&place, limits) {
                Ok(group) => created.groups.push(group),
                Err(error) => {
                    tracing::debug!(parent = %place.parent.display(), error = %error, "cannot create a control group")
                }
            }
        }
        created
    }

    /// The groups of a process that a container engine made, as far as they hold it to `limits`. The engine removes them.
    pub(crate) fn of_process(pid: u32, limits: &Limits) -> Self {
        let membership = read(&format!("/proc/{pid}/cgroup"));
        let mounts = read("/proc/self/mountinfo");
        let memberships = membership.lines().filter_map(|line| group_of(line, &mounts));
        let groups = memberships.map(|(path, version)| {
            let controllers = WANTED.into_iter().filter(|name| holds(&path, version, name, limits)).collect();
            let tcp = tcp_accounting(&path, version, limits);
            Cgroup { path, version, controllers, tcp, owner: CgroupOwner::Engine }
        });
        Self { groups: groups.filter(|group| !group.controllers.is_empty()).collect() }
    }

    /// Descriptors of the groups: a process that writes `0` to one enters the group.
    pub(crate) fn entrances(&self) -> io::Result<Vec<OwnedFd>> {
        self.groups
            .iter()
            .map(|group| {
                Ok(fs::File::options().write(true).open(group.path.join(group.version.entrance()))?.into())
            })
            .collect()
    }

    pub(crate) fn controls(&self, controller: &str) -> bool {
        self.groups.iter().any(|group| group.controllers.contains(&controller))
    }

    /// Whether the memory that is limited has the buffers of TCP connections in it.
    pub(crate) fn counts_tcp(&self) -> bool {
        let mut groups = self.groups.iter().filter(|group| group.controllers.contains(&"memory"));
        groups.any(|group| group.tcp == TcpAccounting::Counted)
    }

    pub(crate) fn describe(&self) -> &'static str {
        match self.groups.first().map(|group| group.version) {
            Some(CgroupVersion::One) => "cgroup v1",
            Some(CgroupVersion::Two) => "cgroup v2",
            None => "rlimits",
        }
    }

    /// The limit that the kernel says was hit since `before`, the most telling first.
    pub(crate) fn limit_hit(&self, before: Hits) -> Option<LimitName> {
        let now = self.hits();
        if now.memory > before.memory {
            return Some(LimitName::Memory);
        }
        (now.processes > before.processes).then_some(LimitName::Processes)
    }

    pub(crate) fn hits(&self) -> Hits {
        let killed = |group: &Cgroup| {
            let file = match group.version {
                CgroupVersion::One => "memory.oom_control",
                CgroupVersion::Two => "memory.events",
            };
            counter(&group.path.join(file), "oom_kill")
        };
        let forked = |group: &Cgroup| counter(&group.path.join("pids.events"), "max");
        Hits { memory: self.sum("memory", killed), processes: self.sum("pids", forked) }
    }

    fn sum(&self, controller: &str, count: impl Fn(&Cgroup) -> u64) -> u64 {
        self.groups.iter().filter(|group| group.controllers.contains(&controller)).map(count).sum()
    }
}

/// How often limits were hit in the life of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hits {
    memory: u64,
    processes: u64,
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for group in self.groups.iter().filter(|group| matches!(group.owner, CgroupOwner::Us(_))) {
            // PID 1 of the sandbox is gone, and everything with it; this is for what a fault has left.
            group.kill();
            // Still busy for a moment after the last exit; what stays is swept by the next start.
            for _ in 0..20 {
                match fs::remove_dir(&group.path) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(std::time::Duration::from_micros(500));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// A directory below which a group can be made, and for which controllers.
#[derive(Debug, PartialEq, Eq)]
struct CgroupParent {
    parent: PathBuf,
    version: CgroupVersion,
    controllers: Vec<&'static str>,
}

impl Cgroup {
    /// Kills whatever is in it.
    fn kill(&self) {
        // KERNEL: version one has no such file, version two before 5.14 neither.
        if self.version == CgroupVersion::Two && self.write("cgroup.kill", 1).is_ok() {
            return;
        }
        for _ in 0..KILL_ROUNDS {
            if self.kill_members() == 0 {
                return;
            }
        }
    }

    /// Kills the members one after the other and returns how many there were. Processes that they start meanwhile are
    /// for the next round. A group that is gone has no members.
    fn kill_members(&self) -> usize {
        let members = || read_numbers(&self.path.join("cgroup.procs"));
        let found = members();
        for pid in &found {
            let Some(process) = Pid::from_raw(*pid) else { continue };
            let Ok(process) = rustix::process::pidfd_open(process, PidfdFlags::empty()) else {
                continue;
            };
            // Checked again: another process may have got the number before it was opened.
            if members().contains(pid) {
                let _gone = rustix::process::pidfd_send_signal(process, Signal::KILL);
            }
        }
        found.len()
    }

    fn create(place: &CgroupParent, limits: &Limits) -> io::Result<Self> {
        let (directory, lease) = lease::make(PREFIX, &place.parent)?;
        let (path, version, controllers) = (directory.keep(), place.version, place.controllers.clone());
        let tcp = TcpAccounting::Uncounted;
        let group = Self { path, version, controllers, tcp, owner: CgroupOwner::Us(lease) };
        match group.set(limits) {
            Ok(()) => Ok(Self { tcp: tcp_accounting(&group.path, version, limits), ..group }),
            Err(error) => {
                // The error says more than a second one would.
                let _busy = fs::remove_dir(&group.path);
                Err(error)
            }
        }
    }

    fn set(&self, limits: &Limits) -> io::Result<()> {
        const PERIOD_US: u64 = 100_000;
        for controller in &self.controllers {
            match (*controller, self.version) {
                ("memory", CgroupVersion::One) => {
                    self.write("memory.limit_in_bytes", limits.memory_bytes)?;
                    // Only where swap accounting is compiled in and on.
                    match self.write("memory.memsw.limit_in_bytes", limits.memory_bytes) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                    // A kernel without it counts no TCP, which is read back.
                    let _uncounted = self.write(TCP_LIMIT, tcp_share(limits));
                }
                ("memory", CgroupVersion::Two) => {
                    self.write("memory.max", limits.memory_bytes)?;
                    self.write("memory.swap.max", 0)?;
                }
                ("pids", _) => self.write("pids.max", limits.processes.saturating_add(OWN_PROCESSES))?,
                ("cpu", version) => {
                    let Some(millicpus) = limits.millicpus else { continue };
                    let quota = millicpus.saturating_mul(PERIOD_US) / 1000;
                    match version {
                        CgroupVersion::One => self.write("cpu.cfs_quota_us", quota.max(1000))?,
                        CgroupVersion::Two => {
                            self.write_text("cpu.max", &format!("{} {PERIOD_US}", quota.max(1000)))?
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write(&self, file: &str, value: u64) -> io::Result<()> {
        self.write_text(file, &value.to_string())
    }

    fn write_text(&self, file: &str, value: &str) -> io::Result<()> {
        fs::File::options().write(true).open(self.path.join(file))?.write_all(value.as_bytes())
    }
}

/// KERNEL: version one counts TCP apart from all other memory, and only where it has a limit.
const TCP_LIMIT: &str = "memory.kmem.tcp.limit_in_bytes";

/// On top of the limit for all other memory.
fn tcp_share(limits: &Limits) -> u64 {
    limits.memory_bytes / 4
}

fn tcp_accounting(path: &Path, version: CgroupVersion, limits: &Limits) -> TcpAccounting {
    let limit = || fs::read_to_string(path.join(TCP_LIMIT)).ok()?.trim().parse::<u64>().ok();
    match version {
        CgroupVersion::Two => TcpAccounting::Counted,
        CgroupVersion::One if limit().is_some_and(|limit| limit <= limits.memory_bytes) => {
            TcpAccounting::Counted
        }
        CgroupVersion::One => TcpAccounting::Uncounted,
    }
}

const PREFIX: &str = "ringfence-";

/// A killed process takes a moment to exit and may have started another just before.
const KILL_ROUNDS: usize = 20;

/// PID 1 and the leader of the call do not count against what a command may have.
pub(crate) const OWN_PROCESSES: u64 = 2;

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Where groups can be made, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn places(membership: &str, mounts: &str) -> Vec<CgroupParent> {
    let mut found: Vec<CgroupParent> = Vec::new();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(names), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let place =
            if names.is_empty() { version_two(path, mounts) } else { version_one(names, path, mounts) };
        found.extend(place);
    }
    found
}

/// The group that a line of `/proc/PID/cgroup` names.
fn group_of(line: &str, mounts: &str) -> Option<(PathBuf, CgroupVersion)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (names, path) = (fields.next()?, fields.next()?);
    let (kind, controller, version) = match names.split(',').next() {
        None | Some("") => ("cgroup2", None, CgroupVersion::Two),
        first => ("cgroup", first, CgroupVersion::One),
    };
    Some((below(&mount_point(mounts, kind, controller)?, path), version))
}

/// Whether a controller gives no more than `limits` do.
fn holds(path: &Path, version: CgroupVersion, controller: &str, limits: &Limits) -> bool {
    let number = |file: &str| fs::read_to_string(path.join(file)).ok()?.trim().parse::<u64>().ok();
    let (limit, most) = match (controller, version) {
        ("memory", CgroupVersion::One) => (number("memory.limit_in_bytes"), limits.memory_bytes),
        ("memory", CgroupVersion::Two) => (number("memory.max"), limits.memory_bytes),
        ("pids", _) => (number("pids.max"), limits.processes.saturating_add(OWN_PROCESSES)),
        ("cpu", version) => {
            let (quota, period) = match version {
                CgroupVersion::One => (number("cpu.cfs_quota_us"), number("cpu.cfs_period_us")),
                CgroupVersion::Two => {
                    two_numbers(&fs::read_to_string(path.join("cpu.max")).unwrap_or_default())
                }
            };
            let share =
                quota.zip(period).and_then(|(quota, period)| quota.saturating_mul(1000).checked_div(period));
            (share, limits.millicpus.unwrap_or(0))
        }
        _ => (None, 0),
    };
    limit.is_some_and(|limit| limit <= most)
}

fn two_numbers(text: &str) -> (Option<u64>, Option<u64>) {
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    (numbers.next().flatten(), numbers.next().flatten())
}

fn version_one(names: &str, path: &str, mounts: &str) -> Option<CgroupParent> {
    let controllers: Vec<&'static str> =
        WANTED.into_iter().filter(|wanted| names.split(',').any(|name| name == *wanted)).collect();
    if controllers.is_empty() {
        return None;
    }
    let mount = mount_point(mounts, "cgroup", names.split(',').next())?;
    Some(CgroupParent { parent: below(&mount, path), version: CgroupVersion::One, controllers })
}

/// A group with processes cannot have children with controllers, so ours is a sibling of the one we are in.
fn version_two(path: &str, mounts: &str) -> Option<CgroupParent> {
    let mount = mount_point(mounts, "cgroup2", None)?;
    let own = below(&mount, path);
    let parent = if own == mount { own } else { own.parent()?.to_owned() };
    let available = fs::read_to_string(parent.join("cgroup.subtree_control")).ok()?;
    let controllers: Vec<&'static str> = WANTED
        .into_iter()
        .filter(|wanted| available.split_whitespace().any(|name| name == *wanted))
        .collect();
    (!controllers.is_empty()).then_some(CgroupParent { parent, version: CgroupVersion::Two, controllers })
}

fn below(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

/// `… <root> <mount point> <options> … - <type> <source> <super options>`
fn mount_point(mounts: &str, kind: &str, controller: Option<&str>) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let matches = after.next()? == kind
            && controller
                .is_none_or(|name| after.nth(1).is_some_and(|options| options.split(',').any(|o| o == name)));
        matches.then(|| before.split(' ').nth(4).map(PathBuf::from)).flatten()
    })
}

fn read_numbers(path: &Path) -> Vec<i32> {
    let content = fs::read_to_string(path).unwrap_or_default();
    content.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

fn counter(path: &Path, key: &str) -> u64 {
    let content = fs::read_to_string(path).unwrap_or_default();
    content.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 29 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 29 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
32 29 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 29 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    /// Who can make no group has none, and rlimits alone.
    #[test]
    fn what_is_left_in_a_group_is_killed_with_it() {
        let cgroups = Cgroups::create(&Limits::default());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        for group in &cgroups.groups {
            fs::write(group.path.join(group.version.entrance()), child.id().to_string()).unwrap();
        }
        let has_group = !cgroups.groups.is_empty();
        assert_eq!(has_group, cgroups.describe() != "rlimits");
        assert_eq!(child.try_wait().unwrap(), None, "control: it runs");
        drop(cgroups);
        if has_group {
            assert_eq!(ended(&mut child), Some(9));
        } else {
            assert_eq!(child.try_wait().unwrap(), None);
            child.kill().unwrap();
            let _status = child.wait().unwrap();
        }
    }

    /// The signal that ended it. What does not end by itself is ended here, and no signal did.
    fn ended(child: &mut std::process::Child) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt as _;

        for _ in 0..12_000 {
            if let Some(status) = child.try_wait().unwrap() {
                return status.signal();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        None
    }

    /// As before 5.14: a directory with a list of members and without `cgroup.kill` stands for the group.
    #[test]
    fn a_group_of_version_two_without_its_switch_is_killed_by_its_members() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let mut other = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(directory.path().join("cgroup.procs"), format!("{}\n", child.id())).unwrap();
        let path = directory.path().to_owned();
        let group = Cgroup {
            path,
            version: CgroupVersion::Two,
            tcp: TcpAccounting::Uncounted,
            controllers: vec!["pids"],
            owner: CgroupOwner::Engine,
        };
        group.kill();
        assert_eq!(ended(&mut child), Some(9));
        assert!(!directory.path().join("cgroup.kill").exists(), "what is not there is not made");
        assert_eq!(other.try_wait().unwrap(), None, "control: who is no member goes on");
        other.kill().unwrap();
        let _status = other.wait().unwrap();
    }

    #[test]
    fn version_one_places_are_below_our_own_group() {
        let found = places("5:pids:/a\n4:memory:/\n3:cpu,cpuacct:/b/c\n2:freezer:/x", MOUNTS);
        let parents: Vec<_> = found.iter().map(|place| place.parent.to_str().unwrap()).collect();
        assert_eq!(
            parents,
            ["/sys/fs/cgroup/pids/a", "/sys/fs/cgroup/memory/", "/sys/fs/cgroup/cpu,cpuacct/b/c"]
        );
        assert_eq!(found[2].controllers, ["cpu"]);
    }

    #[test]
    fn version_two_needs_a_delegated_parent() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("user.slice/app.scope");
        fs::create_dir_all(&own).unwrap();
        let mounts = format!("33 29 0:29 / {} rw - cgroup2 cgroup2 rw", root.path().display());
        assert_eq!(places("0::/user.slice/app.scope", &mounts), []);
        fs::write(root.path().join("user.slice/cgroup.subtree_control"), "memory pids\n").unwrap();
        let found = places("0::/user.slice/app.scope", &mounts);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].parent, root.path().join("user.slice"));
        assert_eq!(found[0].controllers, ["memory", "pids"]);
    }

    #[test]
    fn counters_are_read_by_exact_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n").unwrap();
        assert_eq!(counter(file.path(), "oom_kill"), 3);
        assert_eq!(counter(file.path(), "max"), 0);
    }
}
