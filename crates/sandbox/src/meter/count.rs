//! How much memory a process has, and how much is in objects that need no process.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};

use super::MemoryFiles;
use super::tree::Call;

/// Where a session has file systems in memory.
const IN_MEMORY: [&str; 3] = ["tmp", "dev/shm", "var/tmp"];

/// Memory that is counted by the object, whoever has it mapped: files in memory, and memory files that are open.
#[derive(Debug, Default)]
pub(super) struct Objects {
    files: u64,
    /// By inode.
    memory_files: BTreeMap<u64, u64>,
}

impl Objects {
    pub(super) fn of(calls: &[Call], files: MemoryFiles) -> Self {
        let mut memory_files = BTreeMap::new();
        let processes = || calls.iter().flat_map(|call| call.processes.iter().copied());
        processes().for_each(|pid| memory_files.extend(open_memory_files(pid)));
        let files = match files {
            // By the first that may be looked into: they all have the same tree.
            MemoryFiles::Own => processes().find_map(files_in_memory).unwrap_or(0),
            MemoryFiles::OfHost => 0,
        };
        Self { files, memory_files }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.memory_files.values().fold(self.files, |sum, bytes| sum.saturating_add(*bytes))
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
    let root = PathBuf::from(format!("/proc/{pid}/root"));
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
            seen.insert(about.st_dev, used.saturating_mul(u64::try_from(space.f_bsize).unwrap_or(0)));
        }
    }
    (!seen.is_empty()).then(|| seen.values().sum())
}

fn open_memory_files(pid: u32) -> Vec<(u64, u64)> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let is_memory =
        |path: &PathBuf| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:"));
    let paths = descriptors.flatten().map(|entry| entry.path()).filter(is_memory);
    paths.filter_map(|path| fs::metadata(path).ok()).map(|file| (file.ino(), file.blocks() * 512)).collect()
}

/// No less than the process has: pages that it shares with others are all counted as its own.
pub(super) fn rough(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let wanted = ["RssAnon:", "RssShmem:", "VmSwap:"];
    status.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name))).map(kib).sum::<u64>()
        * 1024
}

/// Its share of each page that is memory alone, without what `objects` hold already.
pub(super) fn exact(pid: u32, objects: &Objects) -> u64 {
    match fs::read(format!("/proc/{pid}/smaps")) {
        Ok(maps) => own_share(&String::from_utf8_lossy(&maps), objects),
        // It may not be looked into, so that all of it counts.
        Err(_) => rough(pid),
    }
}

/// One mapping of a process, in KiB.
#[derive(Debug, Default)]
struct Mapping<'a> {
    path: &'a str,
    inode: u64,
    shared: bool,
    resident: u64,
    proportional: u64,
    anonymous: u64,
    swapped: u64,
}

impl Mapping<'_> {
    fn share(&self, objects: &Objects) -> u64 {
        if !self.shared {
            // Of a private mapping only what was written is memory; the rest is the file's.
            let part = (self.proportional * self.anonymous).checked_div(self.resident);
            return part.unwrap_or(0) + self.swapped;
        }
        let in_memory = ["/dev/zero", "/SYSV", "/memfd:", "/dev/shm/"];
        let counts = in_memory.iter().any(|start| self.path.starts_with(start)) && !objects.hold(self);
        if counts { self.proportional + self.swapped } else { 0 }
    }
}

fn own_share(maps: &str, objects: &Objects) -> u64 {
    let mut sum = 0;
    let mut mapping = Mapping::default();
    for line in maps.lines() {
        if let Some(next) = header(line) {
            sum += mapping.share(objects);
            mapping = next;
            continue;
        }
        match line.split(':').next() {
            Some("Rss") => mapping.resident = kib(line),
            Some("Pss") => mapping.proportional = kib(line),
            Some("Anonymous") => mapping.anonymous = kib(line),
            Some("SwapPss") => mapping.swapped = kib(line),
            _ => {}
        }
    }
    (sum + mapping.share(objects)) * 1024
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
        let none = Objects::default();
        assert_eq!(own_share(MAPS, &none), (500 + 7 + 100 + 600 + 900) * 1024);
        let memory_files = BTreeMap::from([(88, 600 * 1024)]);
        let objects = Objects { files: 900 * 1024, memory_files };
        assert_eq!(own_share(MAPS, &objects), (500 + 7 + 100) * 1024);
        assert_eq!(objects.bytes(), 1500 * 1024);
    }

    #[test]
    fn this_process_has_memory() {
        let kept = vec![1_u8; 8 << 20];
        let own = std::process::id();
        assert!(rough(own) >= 8 << 20 && exact(own, &Objects::default()) >= 8 << 20);
        assert_eq!(kept.len(), 8 << 20);
    }
}
