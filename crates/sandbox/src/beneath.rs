//! Work of the supervisor in directories that commands inside can write.
//!
//! Every step goes from an open directory to one name in it with `O_NOFOLLOW`, so that nothing a command leaves behind leads the
//! supervisor elsewhere. For one name that is what `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS` say, and it works also where there is
//! no `openat2`: in a fence. What is in the way (a link, a FIFO, a file, a directory of another user) is moved aside under a
//! name that says so; a directory that its owner cannot enter gets the owner's permissions back. Neither makes a start fail.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use ringfence_types::ByteString;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

/// Read, write and enter, for the owner.
const OWNER: u32 = 0o700;
/// How often a piece is looked at again that changes while it is looked at.
const TRIES: usize = 16;

/// What was put right, in words for a person.
pub type Repairs = Vec<String>;

/// A directory that commands inside can write, held open.
#[derive(Debug)]
pub struct Beneath {
    fd: OwnedFd,
    /// For messages only.
    path: PathBuf,
}

impl Beneath {
    /// The directory `name` of `parent`, made where it is missing. The parent itself is out of reach for commands inside.
    pub fn open(parent: &Path, name: &OsStr, repairs: &mut Repairs) -> io::Result<Self> {
        let [name] = normal_names(Path::new(name))?[..] else { return Err(Errno::INVAL.into()) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = rustix::fs::open(parent, flags, Mode::empty())?;
        let fd = directory(above.as_fd(), name, parent, repairs)?;
        Ok(Self { fd, path: parent.join(name) })
    }

    /// Puts a symbolic link at `relative`, with the directories above it. A link or a directory that is there already stays.
    pub fn link(&self, relative: &Path, target: &Path, repairs: &mut Repairs) -> io::Result<()> {
        let mut names = normal_names(relative)?;
        let last = names.pop().ok_or(Errno::INVAL)?;
        let mut path = self.path.clone();
        let mut held = None;
        for name in names {
            let above = held.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            held = Some(directory(above, name, &path, repairs)?);
            path.push(name);
        }
        let above = held.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
        for _ in 0..TRIES {
            match rustix::fs::symlinkat(target, above, last) {
                Err(Errno::EXIST) => {}
                made => return Ok(made?),
            }
            match kind_at(above, last) {
                Ok(FileType::Symlink | FileType::Directory) => return Ok(()),
                Ok(_) => move_aside(above, last, &path, repairs)?,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(changing(&path.join(last)))
    }
}

/// Removes the directory `name` of `parent` with all that is in it, however deep it is and whatever its permissions are.
///
/// Directories further down are moved to the top before they are emptied, so that neither the depth of the tree nor the length
/// of its paths matters.
pub fn remove_tree(parent: &Path, name: &OsStr) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::open(parent, flags, Mode::empty())?;
    let top = match own_directory(above.as_fd(), name) {
        Ok(EntryOwnership::Directory(top, _)) => top,
        Ok(EntryOwnership::Other) => return Ok(rustix::fs::unlinkat(&above, name, AtFlags::empty())?),
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    let mut moved = 0;
    loop {
        let mut found = DirectoryContents::Empty;
        for name in names(&top)? {
            found = DirectoryContents::Entries;
            flatten(&top, &name, &mut moved)?;
        }
        if found == DirectoryContents::Empty {
            return Ok(rustix::fs::unlinkat(&above, name, AtFlags::REMOVEDIR)?);
        }
    }
}

#[derive(PartialEq, Eq)]
enum DirectoryContents {
    Empty,
    Entries,
}

/// Removes one entry of the top; directories in it move up instead.
fn flatten(top: &OwnedFd, name: &OsStr, moved: &mut u64) -> io::Result<()> {
    let directory = match own_directory(top.as_fd(), name) {
        Ok(EntryOwnership::Directory(directory, _)) => directory,
        Ok(EntryOwnership::Other) => return Ok(rustix::fs::unlinkat(top, name, AtFlags::empty())?),
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    loop {
        let inner = names(&directory)?;
        if inner.is_empty() {
            return Ok(rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR)?);
        }
        for inner in inner {
            lift(top, &directory, &inner, moved)?;
        }
    }
}

/// Removes an entry of a directory in the top; a directory moves up instead.
fn lift(top: &OwnedFd, directory: &OwnedFd, name: &OsStr, moved: &mut u64) -> io::Result<()> {
    // Moving a directory changes what is above it, which takes the right to write it.
    match own_directory(directory.as_fd(), name) {
        Ok(EntryOwnership::Directory(..)) => loop {
            *moved += 1;
            let to = OsString::from(format!(".ringfence-removed-{moved}"));
            match rustix::fs::renameat_with(directory, name, top, &to, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                done => return Ok(done?),
            }
        },
        Ok(EntryOwnership::Other) => Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Names in a directory that are taken at once: a command can make as many as its disk has room for.
const MOST_LISTED: usize = 10_000;

/// The first names in a directory. KERNEL: a listing may miss entries while others are removed, so a caller that empties a
/// directory lists it again until it is empty.
fn names(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(OsStr::from_bytes(name).to_owned());
        }
        if names.len() == MOST_LISTED {
            break;
        }
    }
    Ok(names)
}

/// The directory `name`, made where it is missing, and open for its owner.
fn directory(above: BorrowedFd<'_>, name: &OsStr, path: &Path, repairs: &mut Repairs) -> io::Result<OwnedFd> {
    for _ in 0..TRIES {
        match rustix::fs::mkdirat(above, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        match own_directory(above, name) {
            Ok(EntryOwnership::Directory(directory, Permissions::Sufficient)) => return Ok(directory),
            Ok(EntryOwnership::Directory(directory, Permissions::Restored)) => {
                repairs
                    .push(format!("`{}` had no permissions for its owner; they are back", shown(path, name)));
                return Ok(directory);
            }
            Ok(EntryOwnership::Other) => move_aside(above, name, path, repairs)?,
            // Replaced or removed while it was looked at.
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::STALE) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(changing(&path.join(name)))
}

enum EntryOwnership {
    Directory(OwnedFd, Permissions),
    /// Not a directory, or a directory of another user.
    Other,
}

enum Permissions {
    Sufficient,
    Restored,
}

/// Opens a directory of our own, and gives its owner back what they need to work in it.
fn own_directory(above: BorrowedFd<'_>, name: &OsStr) -> Result<EntryOwnership, Errno> {
    let place = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::openat(above, name, place, Mode::empty())?;
    let stat = rustix::fs::fstat(&held)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory || !is_own(&stat) {
        return Ok(EntryOwnership::Other);
    }
    let restored = stat.st_mode & OWNER != OWNER;
    if restored {
        // By its descriptor: the name may have become a link meanwhile.
        let through = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        rustix::fs::chmod(&through, Mode::from_raw_mode((stat.st_mode & 0o7777) | OWNER))?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(&held, ".", flags, Mode::empty())?;
    Ok(EntryOwnership::Directory(
        directory,
        if restored { Permissions::Restored } else { Permissions::Sufficient },
    ))
}

fn is_own(stat: &Stat) -> bool {
    let caller = rustix::process::geteuid();
    caller.is_root() || stat.st_uid == caller.as_raw()
}

fn kind_at(above: BorrowedFd<'_>, name: &OsStr) -> Result<FileType, Errno> {
    let stat = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// Gives what is in the way another name in the same directory.
fn move_aside(above: BorrowedFd<'_>, name: &OsStr, path: &Path, repairs: &mut Repairs) -> io::Result<()> {
    for number in 1..=u32::MAX {
        // A name of the greatest length has no room for a suffix.
        let cut = name.as_bytes().get(..name.len().min(200)).unwrap_or_default();
        let mut aside = OsStr::from_bytes(cut).to_owned();
        aside.push(format!(".ringfence-aside-{number}"));
        match rustix::fs::renameat_with(above, name, above, &aside, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
            Ok(()) => {
                repairs.push(format!(
                    "`{}` was in the way of Ringfence and was moved to `{}`",
                    shown(path, name),
                    ByteString::from(aside.as_os_str()).display()
                ));
                return Ok(());
            }
        }
    }
    Err(changing(&path.join(name)))
}

fn normal_names(relative: &Path) -> Result<Vec<&OsStr>, Errno> {
    let name = |component| match component {
        Component::Normal(name) => Ok(name),
        _ => Err(Errno::INVAL),
    };
    relative.components().map(name).collect()
}

fn shown(path: &Path, name: &OsStr) -> String {
    ByteString::from(path.join(name)).display()
}

fn changing(path: &Path) -> io::Error {
    io::Error::other(format!("`{}` changes while it is looked at", ByteString::from(path).display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rustix::fs::CWD;

    use super::*;

    struct Bench {
        dir: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("outside")).unwrap();
            Self { dir }
        }

        fn home(&self) -> PathBuf {
            self.dir.path().join("home")
        }

        fn open(&self, repairs: &mut Repairs) -> Beneath {
            Beneath::open(self.dir.path(), OsStr::new("home"), repairs).unwrap()
        }

        /// Links packages as a start does; what had to be put right.
        fn linked(&self) -> Repairs {
            let mut repairs = Repairs::new();
            let home = self.open(&mut repairs);
            home.link(Path::new(".cargo/registry"), Path::new("/packages"), &mut repairs).unwrap();
            repairs
        }

        fn is_linked(&self) -> bool {
            fs::symlink_metadata(self.home().join(".cargo")).unwrap().is_dir()
                && fs::read_link(self.home().join(".cargo/registry")).unwrap() == Path::new("/packages")
        }

        fn outside(&self) -> usize {
            fs::read_dir(self.dir.path().join("outside")).unwrap().count()
        }
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn an_ordinary_home_needs_no_repair() {
        let bench = Bench::new();
        assert_eq!(bench.linked(), Repairs::new());
        assert!(bench.is_linked());
        assert_eq!(bench.linked(), Repairs::new());
    }

    #[test]
    fn a_link_is_never_followed() {
        let bench = Bench::new();
        fs::create_dir(bench.home()).unwrap();
        let outside = bench.dir.path().join("outside");
        symlink(&outside, bench.home().join(".cargo")).unwrap();
        // Control: by path, the work would be done outside.
        symlink("/packages", bench.home().join(".cargo/control")).unwrap();
        assert_eq!(bench.outside(), 1);
        let repairs = bench.linked();
        assert_eq!(repairs.len(), 1, "{repairs:?}");
        assert!(bench.is_linked());
        assert_eq!(bench.outside(), 1);
        let aside = bench.home().join(".cargo.ringfence-aside-1");
        assert_eq!(fs::read_link(aside).unwrap(), outside);
    }

    #[test]
    fn what_is_in_the_way_is_moved_aside() {
        for piece in ["file", "fifo", "loop"] {
            let bench = Bench::new();
            fs::create_dir(bench.home()).unwrap();
            let place = bench.home().join(".cargo");
            match piece {
                "file" => fs::write(&place, "mine").unwrap(),
                "fifo" => rustix::fs::mknodat(CWD, &place, FileType::Fifo, Mode::RUSR, 0).unwrap(),
                _ => symlink(".cargo", &place).unwrap(),
            }
            assert_eq!(bench.linked().len(), 1, "{piece}");
            assert!(bench.is_linked(), "{piece}");
            assert!(fs::symlink_metadata(bench.home().join(".cargo.ringfence-aside-1")).is_ok(), "{piece}");
        }
    }

    #[test]
    fn directories_without_permissions_are_opened_again() {
        let bench = Bench::new();
        fs::create_dir_all(bench.home().join(".cargo")).unwrap();
        mode(&bench.home().join(".cargo"), 0);
        mode(&bench.home(), 0);
        assert_eq!(bench.linked().len(), 2);
        assert!(bench.is_linked());
    }

    #[test]
    fn what_a_command_put_at_the_end_stays() {
        let bench = Bench::new();
        fs::create_dir_all(bench.home().join(".cargo")).unwrap();
        symlink("/elsewhere", bench.home().join(".cargo/registry")).unwrap();
        assert_eq!(bench.linked(), Repairs::new());
        assert_eq!(fs::read_link(bench.home().join(".cargo/registry")).unwrap(), Path::new("/elsewhere"));
    }

    #[test]
    fn only_names_below_are_taken() {
        let bench = Bench::new();
        let mut repairs = Repairs::new();
        let home = bench.open(&mut repairs);
        for path in ["../outside/x", "/etc/x", "a/../../outside/x", ""] {
            assert!(home.link(Path::new(path), Path::new("/t"), &mut repairs).is_err(), "{path}");
        }
        assert_eq!(bench.outside(), 0);
    }

    #[test]
    fn a_tree_is_removed_whatever_is_in_it() {
        let bench = Bench::new();
        let outside = bench.dir.path().join("outside");
        fs::write(outside.join("kept"), "x").unwrap();
        fs::create_dir_all(bench.home().join("a/b/c")).unwrap();
        symlink(&outside, bench.home().join("a/b/link")).unwrap();
        fs::write(bench.home().join(OsStr::from_bytes(b"a/\xff\n")), "x").unwrap();
        rustix::fs::mknodat(CWD, bench.home().join("a/fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        mode(&bench.home().join("a/b/c"), 0);
        mode(&bench.home().join("a/b"), 0);
        mode(&bench.home().join("a"), 0o100);
        remove_tree(bench.dir.path(), OsStr::new("home")).unwrap();
        assert!(!bench.home().exists());
        assert_eq!(bench.outside(), 1);
        remove_tree(bench.dir.path(), OsStr::new("home")).unwrap();
    }

    #[test]
    fn a_tree_is_removed_however_many_names_are_in_it() {
        let bench = Bench::new();
        fs::create_dir_all(bench.home().join("many/below")).unwrap();
        for number in 0..=MOST_LISTED {
            fs::write(bench.home().join(format!("many/{number}")), "").unwrap();
            fs::write(bench.home().join(number.to_string()), "").unwrap();
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let many = rustix::fs::open(bench.home().join("many"), flags, Mode::empty()).unwrap();
        assert_eq!(names(&many).unwrap().len(), MOST_LISTED);
        remove_tree(bench.dir.path(), OsStr::new("home")).unwrap();
        assert!(!bench.home().exists());
    }

    /// Deeper than there are descriptors, and with paths longer than the kernel takes.
    #[test]
    fn a_tree_is_removed_however_deep_it_is() {
        let bench = Bench::new();
        fs::create_dir(bench.home()).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(bench.home(), flags, Mode::empty()).unwrap();
        let name = "d".repeat(100);
        for _ in 0..2000 {
            rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, &name, flags, Mode::empty()).unwrap();
        }
        drop(at);
        remove_tree(bench.dir.path(), OsStr::new("home")).unwrap();
        assert!(!bench.home().exists());
    }

    #[test]
    fn a_link_is_removed_and_not_what_it_leads_to() {
        let bench = Bench::new();
        fs::write(bench.dir.path().join("outside/kept"), "x").unwrap();
        symlink("outside", bench.home()).unwrap();
        remove_tree(bench.dir.path(), OsStr::new("home")).unwrap();
        assert!(fs::symlink_metadata(bench.home()).is_err());
        assert_eq!(bench.outside(), 1);
    }
}
