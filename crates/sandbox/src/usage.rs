//! How much room directories take on their disks.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::meter;
use crate::survey::open_directory;

/// More directories of our own without permissions than this, one below the other, are not opened at a time.
const MOST_OPENED: usize = 64;
/// The bytes of the paths of directories that are still to be counted.
const MOST_AHEAD: usize = 128 * 1024 * 1024;
/// How long one tree may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// What it takes to look through a directory.
const LOOK: u32 = 0o500;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    /// A directory that may be written and cannot be looked into: what is in it is not known, and can become more.
    pub unseen: Option<PathBuf>,
}

/// What all files below `directories` take together. A file with several names counts once; links are not followed.
///
/// A directory of our own that its owner may not look into is opened for the time of the count: a command inside could keep
/// what it likes in one.
pub fn of(directories: &[PathBuf]) -> Usage {
    let mut count = Count::default();
    for directory in directories {
        count.tree(directory);
    }
    count.usage
}

/// What a session has open. Its processes are found below PID 1, which lives as long as the session.
#[derive(Clone, Copy, Debug)]
pub struct SessionFiles {
    init: Option<u32>,
}

impl SessionFiles {
    pub(crate) fn below(init: Option<u32>) -> Self {
        Self { init }
    }

    /// What files without a name take on the disks of `directories`. Each counts once.
    pub fn unlinked(&self, directories: &[PathBuf]) -> u64 {
        let Some(init) = self.init else { return 0 };
        let disks: BTreeSet<u64> = directories
            .iter()
            .filter_map(|path| std::fs::metadata(path).ok())
            .map(|found| found.dev())
            .collect();
        let mut files = BTreeMap::new();
        for pid in meter::processes(init) {
            let nameless = open_files(pid)
                .filter(|file| file.is_file() && file.nlink() == 0 && disks.contains(&file.dev()));
            files.extend(nameless.map(|file| ((file.dev(), file.ino()), file.blocks().saturating_mul(512))));
        }
        files.values().fold(0, |sum, bytes: &u64| sum.saturating_add(*bytes))
    }
}

/// What a process has open, by each of its threads: a thread can have open files of its own, and `/proc/PID/fd` is empty when
/// the first thread has ended.
fn open_files(pid: u32) -> impl Iterator<Item = std::fs::Metadata> {
    let entries = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let threads = entries(PathBuf::from(format!("/proc/{pid}/task")));
    let open = threads.flat_map(move |thread| entries(thread.path().join("fd")));
    open.filter_map(|entry| std::fs::metadata(entry.path()).ok())
}

#[derive(Default)]
struct Count {
    usage: Usage,
    /// Files with several names, and directories that are below one another.
    seen: BTreeSet<(u64, u64)>,
    opened: Vec<TemporaryAccess>,
}

impl Count {
    fn tree(&mut self, root: &Path) {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(top) = rustix::fs::openat(CWD, root, flags, Mode::empty()) else { return };
        let mut pending: Vec<Vec<u8>> = vec![Vec::new()];
        let begun = Instant::now();
        let mut ahead = 0;
        while let Some(relative) = pending.pop() {
            ahead -= relative.len();
            // Paths of any length, and as many as a command likes: what is not counted is not known.
            if ahead > MOST_AHEAD || begun.elapsed() > PATIENCE {
                self.usage.unseen = Some(root.to_owned());
                return;
            }
            let known = pending.len();
            // A directory comes before everything below it, and after it comes nothing of that.
            self.opened.retain(|opened| is_below(&relative, &opened.relative));
            match self.directory(&top, &relative, &mut pending) {
                // Gone, or something else by now.
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(_) => self.miss(root, &top, &relative),
            }
            ahead += pending.iter().skip(known).map(Vec::len).sum::<usize>();
        }
    }

    /// Marks a directory that could not be counted. One that this user may not write cannot take up space; any other counts
    /// as unseen.
    fn miss(&mut self, root: &Path, top: &OwnedFd, relative: &[u8]) {
        let relative = OsStr::from_bytes(if relative.is_empty() { b"." } else { relative });
        let closed =
            rustix::fs::accessat(top, relative, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
        if closed != Err(Errno::ACCESS) || self.is_own(top, relative) {
            self.usage.unseen = Some(root.join(relative));
        }
    }

    fn is_own(&self, top: &OwnedFd, relative: &OsStr) -> bool {
        let stat = rustix::fs::statat(top, relative, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw())
    }

    fn directory(&mut self, top: &OwnedFd, relative: &[u8], pending: &mut Vec<Vec<u8>>) -> Result<(), Errno> {
        let directory = self.enter(top, relative)?;
        if !self.add(&rustix::fs::fstat(&directory)?, Names::Several) {
            return Ok(());
        }
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if entry.file_type() == FileType::Directory {
                pending.push(below(relative, name.to_bytes()));
                continue;
            }
            match rustix::fs::statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                    pending.push(below(relative, name.to_bytes()));
                }
                Ok(stat) => {
                    let names = if stat.st_nlink > 1 { Names::Several } else { Names::One };
                    self.add(&stat, names);
                }
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Opens a directory, and gives its owner the right to look into it where that is missing.
    fn enter(&mut self, top: &OwnedFd, relative: &[u8]) -> Result<OwnedFd, Errno> {
        let may_look = |directory: &OwnedFd| {
            rustix::fs::accessat(directory, ".", Access::EXEC_OK, AtFlags::EACCESS).is_ok()
        };
        match open_directory(top.as_fd(), relative) {
            Ok(directory) if may_look(&directory) => return Ok(directory),
            Ok(_) | Err(Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
        if self.opened.len() >= MOST_OPENED {
            return Err(Errno::ACCESS);
        }
        self.opened.push(TemporaryAccess::give_back(closed(top, relative)?, relative)?);
        open_directory(top.as_fd(), relative)
    }

    /// Whether it was not counted before.
    fn add(&mut self, stat: &Stat, names: Names) -> bool {
        const BLOCK: u64 = 512;
        if names == Names::Several && !self.seen.insert((stat.st_dev, stat.st_ino)) {
            return false;
        }
        let blocks = u64::try_from(stat.st_blocks).unwrap_or_default();
        self.usage.bytes = self.usage.bytes.saturating_add(blocks.saturating_mul(BLOCK));
        true
    }
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    directory.is_empty() || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
}

fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// A directory that cannot be looked into, as a place.
fn closed(top: &OwnedFd, relative: &[u8]) -> Result<OwnedFd, Errno> {
    let cut = relative.iter().rposition(|byte| *byte == b'/');
    let (above, name) = relative.split_at(cut.unwrap_or(0));
    let name = name.strip_prefix(b"/").unwrap_or(name);
    if name.is_empty() {
        return rustix::io::fcntl_dupfd_cloexec(top, 0);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let above = open_directory(top.as_fd(), above)?;
    rustix::fs::openat(&above, OsStr::from_bytes(name), flags, Mode::empty())
}

/// A directory whose owner may look into it for the time being.
struct TemporaryAccess {
    directory: OwnedFd,
    /// Below the top.
    relative: Vec<u8>,
    before: u32,
}

impl TemporaryAccess {
    fn give_back(directory: OwnedFd, relative: &[u8]) -> Result<Self, Errno> {
        let before = rustix::fs::fstat(&directory)?.st_mode & 0o7777;
        let opened = Self { directory, relative: relative.to_vec(), before };
        opened.change(before | LOOK)?;
        Ok(opened)
    }

    fn change(&self, mode: u32) -> Result<(), Errno> {
        // By its descriptor: the name may have become a link meanwhile.
        let through = PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd()));
        rustix::fs::chmod(&through, Mode::from_raw_mode(mode))
    }
}

impl Drop for TemporaryAccess {
    /// What was changed meanwhile stays as it is.
    fn drop(&mut self) {
        let now = rustix::fs::fstat(&self.directory).map(|stat| stat.st_mode & 0o7777);
        if now == Ok(self.before | LOOK) {
            let _stays = self.change(self.before);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    One,
    Several,
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn files_count_once_and_links_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::create_dir_all(a.join("deep/er")).unwrap();
        fs::create_dir(&b).unwrap();
        fs::write(b.join("large"), vec![1; 4 << 20]).unwrap();
        let empty = of(std::slice::from_ref(&a));
        fs::write(a.join("deep/er/file"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(a.join("deep/er/file"), a.join("again")).unwrap();
        symlink(&b, a.join("link")).unwrap();
        let grown = of(&[a.clone(), a.join("deep")]).bytes - empty.bytes;
        assert!((1 << 20..(1 << 20) + 65536).contains(&grown), "{grown}");
        assert!(of(&[a, b]).bytes - empty.bytes >= 5 << 20);
        assert_eq!(of(&[dir.path().join("missing")]), Usage::default());
    }

    #[test]
    fn directories_without_permissions_count_and_keep_them() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("file"), vec![1; 1 << 20]).unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o000, 0o300, 0o400, 0o600] {
            set(&inner, mode);
            set(&dir.path().join("a"), mode);
            for place in [dir.path().to_owned(), dir.path().join("a")] {
                let usage = of(&[place]);
                assert!(usage.bytes >= 1 << 20 && usage.unseen.is_none(), "{mode:o}: {usage:?}");
            }
            assert_eq!(fs::metadata(dir.path().join("a")).unwrap().permissions().mode() & 0o777, mode);
            set(&dir.path().join("a"), 0o700);
            assert_eq!(fs::metadata(&inner).unwrap().permissions().mode() & 0o777, mode);
        }
        set(&inner, 0o700);
    }

    /// As many as a command likes to leave: they are opened one after the other.
    #[test]
    fn many_directories_without_permissions_count() {
        let dir = tempfile::tempdir().unwrap();
        let closed: Vec<PathBuf> =
            (0..3 * MOST_OPENED).map(|number| dir.path().join(format!("d{number}"))).collect();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for path in &closed {
            fs::create_dir(path).unwrap();
            fs::write(path.join("file"), vec![1; 4096]).unwrap();
            set(path, 0o000);
        }
        let usage = of(&[dir.path().to_owned()]);
        assert!(usage.bytes >= closed.len() as u64 * 4096 && usage.unseen.is_none(), "{usage:?}");
        let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert!(closed.iter().all(|path| mode(path) == 0o000), "they are as they were");
        closed.iter().for_each(|path| set(path, 0o700));
    }

    /// A path that the kernel does not take as a whole hides nothing.
    #[test]
    fn what_is_deep_counts() {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap();
        let name = "d".repeat(200);
        for _ in 0..60 {
            rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, &name, flags, Mode::empty()).unwrap();
        }
        let file = rustix::fs::openat(&at, "file", OFlags::WRONLY | OFlags::CREATE, Mode::RUSR).unwrap();
        rustix::io::write(&file, &vec![1; 1 << 20]).unwrap();
        let usage = of(&[dir.path().to_owned()]);
        assert!(usage.bytes >= 1 << 20 && usage.unseen.is_none(), "{usage:?}");
    }
}
