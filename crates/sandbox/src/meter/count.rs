//! How much memory a process has, and how much is in objects that need no process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};

use super::tree::Call;
use super::{MemoryFiles, sockets};

/// Where a session has file systems in memory.
const IN_MEMORY: [&str; 3] = ["tmp", "dev/shm", "var/tmp"];

/// Memory that is counted once for each object, however many processes map it: files in memory, memory files that are
/// open, and what the kernel may keep in sockets.
#[derive(Debug, Default)]
pub(super) struct Objects {
    files: u64,
    sockets: u64,
    /// By inode.
    memory_files: BTreeMap<u64, u64>,
}

/// What sockets beyond the first of a session count as: the most that a program may ask for in both directions, where the
/// machine has the kernel's own limits. The network of a session is made to give no more to a TCP socket.
pub(crate) const SOCKET: u64 = 832 << 10;
pub(crate) const FIRST_SOCKETS: u64 = 64;
/// What an inode of a file system in memory takes, whatever is in it.
const INODE: u64 = 1 << 10;
/// What a mapping takes in the kernel, whatever is in it, and how many of them a process may have.
const MAPPING: u64 = 256;
const MOST_MAPPINGS: u64 = 65_530;
/// A process with more than this many is not looked at page by page: a second of work for one of them.
const MANY_MAPPINGS: u64 = 16_384;

impl Objects {
    pub(super) fn of(init: u32, calls: &[Call], files: MemoryFiles) -> Self {
        let (mut memory_files, mut sockets) = (BTreeMap::new(), BTreeSet::new());
        let processes = || calls.iter().flat_map(|call| call.processes.iter().copied());
        for open in processes().filter_map(OpenObjects::of) {
            memory_files.extend(open.memory_files);
            sockets.extend(open.sockets);
        }
        let files = match files {
            // By the first that may be looked into: they all have the same tree.
            MemoryFiles::Own => processes().find_map(files_in_memory).unwrap_or(0),
            MemoryFiles::OfHost => 0,
        };
        let sockets = sockets::number(init, &sockets).saturating_sub(FIRST_SOCKETS).saturating_mul(SOCKET);
        Self { files, sockets, memory_files }
    }

    pub(super) fn bytes(&self) -> u64 {
        let rest = self.files.saturating_add(self.sockets);
        self.memory_files.values().fold(rest, |sum, bytes| sum.saturating_add(*bytes))
    }

    fn hold(&self, mapping: &Mapping<'_>) -> bool {
        let in_file = self.files > 0 && IN_MEMORY.iter().any(|place| is_in(mapping.path, place));
        in_file || (mapping.path.starts_with("/memfd:") && self.memory_files.contains_key(&mapping.inode))
    }
}

fn is_in(path: &str, place: &str) -> bool {
    path.strip_prefix('/').and_then(|path| path.strip_prefix(place)).is_some_and(|rest| rest.starts_with('/'))
}

fn files_in_memory(pid: u32) -> Option<u64> {
    let root = PathBuf::from(format!("{}/root", about(pid)?.place));
    let mut seen = BTreeMap::new();
    for place in IN_MEMORY {
        // A link would lead into the tree of the host.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(directory) = rustix::fs::open(root.join(place), flags, Mode::empty()) else { continue };
        let (Ok(about), Ok(space)) = (rustix::fs::fstat(&directory), rustix::fs::fstatfs(&directory)) else {
            continue;
        };
        if space.f_type == libc::TMPFS_MAGIC {
            let used = space.f_blocks.saturating_sub(space.f_bfree);
            let content = used.saturating_mul(u64::try_from(space.f_bsize).unwrap_or(0));
            let inodes = space.f_files.saturating_sub(space.f_ffree).saturating_mul(INODE);
            seen.insert(about.st_dev, content.saturating_add(inodes));
        }
    }
    (!seen.is_empty()).then(|| seen.values().sum())
}

/// A process as one of its threads shows it.
struct About {
    place: String,
    status: String,
}

/// KERNEL: when the first thread has ended and others live, `/proc/PID` shows no memory, no files and no tree. Each thread has
/// a place of its own.
fn about(pid: u32) -> Option<About> {
    let first = format!("/proc/{pid}");
    let threads = fs::read_dir(format!("{first}/task")).into_iter().flatten().flatten();
    let others = threads.map(|thread| thread.path().to_string_lossy().into_owned());
    std::iter::once(first).chain(others).find_map(|place| {
        let status = fs::read_to_string(format!("{place}/status")).ok()?;
        status.contains("\nVmRSS:").then_some(About { place, status })
    })
}

/// What a process has open.
#[derive(Default)]
struct OpenObjects {
    memory_files: Vec<(u64, u64)>,
    sockets: Vec<u64>,
}

impl OpenObjects {
    /// `None`: it may not be looked into.
    fn of(pid: u32) -> Option<Self> {
        let descriptors = fs::read_dir(format!("{}/fd", about(pid)?.place)).ok()?;
        let mut open = Self::default();
        for path in descriptors.flatten().map(|entry| entry.path()) {
            let Ok(target) = fs::read_link(&path) else { continue };
            let target = target.to_string_lossy();
            if target.starts_with("/memfd:") {
                open.memory_files
                    .extend(fs::metadata(&path).ok().map(|file| (file.ino(), file.blocks() * 512)));
            } else if let Some(inode) = target.strip_prefix("socket:[") {
                open.sockets.extend(inode.trim_end_matches(']').parse::<u64>());
            }
        }
        Some(open)
    }
}

/// The memory of one call, looked at page by page.
#[derive(Debug, Default)]
pub(super) struct MemoryCount {
    pub(super) private: u64,
    /// Shared memory that is in no object.
    pub(super) shared: u64,
    /// In objects that processes of it have open.
    open: u64,
    /// How much it could hold besides, unseen.
    pub(super) hideable: u64,
}

impl MemoryCount {
    pub(super) fn of(call: &Call, objects: &Objects, file_bytes: u64) -> Self {
        let mut count = Self::default();
        let mut unseen = BTreeMap::new();
        for pid in &call.processes {
            let Some(found) = about(*pid) else { continue };
            let mapped = mappings(*pid);
            let tables = sum_of(&found.status, &["VmPTE:"]).saturating_add(mapped);
            let maps =
                (mapped <= MANY_MAPPINGS * MAPPING).then(|| fs::read(format!("{}/smaps", found.place)));
            match (maps, OpenObjects::of(*pid)) {
                (Some(Ok(maps)), Some(open)) => {
                    let share = own_share(&String::from_utf8_lossy(&maps), objects, &mut unseen);
                    count.private = count.private.saturating_add(share.private).saturating_add(tables);
                    count.shared = count.shared.saturating_add(share.shared);
                    count.open += open.memory_files.iter().map(|(_, bytes)| bytes).sum::<u64>();
                    let in_transit = descriptors_in_transit(&found.place).saturating_mul(file_bytes);
                    count.hideable = count.hideable.saturating_add(in_transit);
                }
                // It may not be looked into, or that would take too long: all of it counts, and what it could have open.
                _ => {
                    count.private = count.private.saturating_add(rough(*pid)).saturating_add(mapped);
                    count.hideable = u64::MAX;
                }
            }
        }
        count.hideable = unseen.values().fold(count.hideable, |sum, bytes| sum.saturating_add(*bytes));
        count
    }

    /// What ending this call would give back.
    pub(super) fn weight(&self, hidden: u64) -> u64 {
        let seen = self.private.saturating_add(self.shared).saturating_add(self.open);
        seen.saturating_add(self.hideable.min(hidden))
    }
}

/// How many descriptors are in the queues of its sockets.
fn descriptors_in_transit(place: &str) -> u64 {
    let Ok(entries) = fs::read_dir(format!("{place}/fdinfo")) else { return u64::MAX };
    let waiting = |about: String| {
        about.lines().find_map(|line| line.strip_prefix("scm_fds:")?.trim().parse::<u64>().ok())
    };
    let all = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    all.filter_map(waiting).fold(0, u64::saturating_add)
}

/// No less than the process has: pages that it shares with others are all counted as its own.
pub(super) fn rough(pid: u32) -> u64 {
    about(pid).map_or(0, |found| sum_of(&found.status, &["RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:"]))
}

/// No less than [`mappings`] says.
pub(super) fn most_mappings(_pid: u32) -> u64 {
    MOST_MAPPINGS * MAPPING
}

/// What the kernel keeps for the mappings of a process, those without pages included.
pub(super) fn mappings(pid: u32) -> u64 {
    let maps =
        about(pid).and_then(|found| fs::read(format!("{}/maps", found.place)).ok()).unwrap_or_default();
    (memchr::memchr_iter(b'\n', &maps).count() as u64).saturating_mul(MAPPING)
}

fn sum_of(status: &str, wanted: &[&str]) -> u64 {
    status.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name))).map(kib).sum::<u64>()
        * 1024
}

/// One mapping of a process, in KiB.
#[derive(Debug, Default)]
struct Mapping<'a> {
    path: &'a str,
    inode: u64,
    shared: bool,
    size: u64,
    resident: u64,
    proportional: u64,
    anonymous: u64,
    swapped: u64,
}

impl Mapping<'_> {
    /// Of a private mapping only what was written is memory; the rest is the file's.
    fn private(&self) -> u64 {
        let part = (self.proportional * self.anonymous).checked_div(self.resident);
        if self.shared { 0 } else { part.unwrap_or(0) + self.swapped }
    }

    /// Whether it is of shared memory that no object holds.
    fn is_loose(&self, objects: &Objects) -> bool {
        let in_memory = ["/dev/zero", "/SYSV", "/memfd:", "/dev/shm/"];
        self.shared && in_memory.iter().any(|start| self.path.starts_with(start)) && !objects.hold(self)
    }
}

/// Of one process, in bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Share {
    private: u64,
    shared: u64,
}

/// Its share of each page that is memory alone, without what `objects` hold already. What its shared mappings could hold
/// besides is added to `unseen`, by inode: a mapping that a child has as well is the same memory.
fn own_share(maps: &str, objects: &Objects, unseen: &mut BTreeMap<u64, u64>) -> Share {
    let mut share = Share::default();
    let mut own = BTreeMap::<u64, u64>::new();
    let mut mapping = Mapping::default();
    let mut add = |mapping: &Mapping<'_>| {
        share.private += mapping.private() * 1024;
        if mapping.is_loose(objects) {
            share.shared += (mapping.proportional + mapping.swapped) * 1024;
            *own.entry(mapping.inode).or_default() += mapping.size.saturating_sub(mapping.resident) * 1024;
        }
    };
    for line in maps.lines() {
        if let Some(next) = header(line) {
            add(&mapping);
            mapping = next;
            continue;
        }
        match line.split(':').next() {
            Some("Size") => mapping.size = kib(line),
            Some("Rss") => mapping.resident = kib(line),
            Some("Pss") => mapping.proportional = kib(line),
            Some("Anonymous") => mapping.anonymous = kib(line),
            Some("SwapPss") => mapping.swapped = kib(line),
            _ => {}
        }
    }
    add(&mapping);
    for (inode, bytes) in own {
        let known = unseen.entry(inode).or_default();
        *known = bytes.max(*known);
    }
    share
}

/// `START-END PERMISSIONS OFFSET DEVICE INODE PATH`; the lines of numbers begin with a name and a colon.
fn header(line: &str) -> Option<Mapping<'_>> {
    let mut fields = line.splitn(6, ' ');
    fields.next().filter(|range| range.contains('-') && !range.ends_with(':'))?;
    let shared = fields.next()?.ends_with('s');
    let inode = fields.nth(2)?.parse().ok()?;
    Some(Mapping {
        path: fields.next().unwrap_or_default().trim_start(),
        inode,
        shared,
        ..Mapping::default()
    })
}

fn kib(line: &str) -> u64 {
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0-55d1 r-xp 00000000 fe:00 12                        /usr/bin/python3
Rss:                4000 kB
Pss:                2000 kB
Anonymous:             0 kB
7f00-7f01 rw-p 00000000 00:00 0
Rss:                1000 kB
Pss:                 500 kB
Anonymous:          1000 kB
SwapPss:               7 kB
7f02-7f03 rw-s 00000000 00:01 77                        /dev/zero (deleted)
Size:               1000 kB
Rss:                 300 kB
Pss:                 100 kB
Anonymous:             0 kB
7f04-7f05 rw-s 00000000 00:01 88                        /memfd:x (deleted)
Rss:                 600 kB
Pss:                 600 kB
Anonymous:             0 kB
7f06-7f07 rw-s 00000000 00:30 99                        /dev/shm/y
Rss:                 900 kB
Pss:                 900 kB
";

    #[test]
    fn each_page_counts_once() {
        let mut unseen = BTreeMap::new();
        let shared = (100 + 600 + 900) * 1024;
        let share = own_share(MAPS, &Objects::default(), &mut unseen);
        assert_eq!(share, Share { private: 507 * 1024, shared });
        assert_eq!(unseen.get(&77), Some(&(700 * 1024)), "what was given back and is still there");
        let memory_files = BTreeMap::from([(88, 600 * 1024)]);
        let objects = Objects { files: 900 * 1024, sockets: 0, memory_files };
        let share = own_share(MAPS, &objects, &mut BTreeMap::new());
        assert_eq!(share, Share { private: 507 * 1024, shared: 100 * 1024 });
        assert_eq!(objects.bytes(), 1500 * 1024);
    }

    #[test]
    fn this_process_has_memory() {
        let kept = vec![1_u8; 8 << 20];
        assert!(rough(std::process::id()) >= 8 << 20);
        assert!(OpenObjects::of(std::process::id()).is_some());
        assert_eq!(kept.len(), 8 << 20);
        assert!((MAPPING..most_mappings(0)).contains(&mappings(std::process::id())));
    }
}
