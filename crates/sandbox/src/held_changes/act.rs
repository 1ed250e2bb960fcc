//! Makes a finding ineffective. Nothing is lost: what was there stays beside it under a name that nothing executes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ringfence_types::{ByteString, HeldChange, TransactionId};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, statat};
use rustix::io::Errno;

use super::examine::{MARK, MAX, Place, Scene, TOP, executes, setting_print};
use super::finding::{Finding, FindingKind, Reason};
use super::settings;
use crate::git_config::{self, GitSetting};
use crate::survey::{open_directory, read_small};

/// Names with a number that are tried for what is put aside. A command may have taken all of them.
const NUMBERED: u32 = 100;
/// Names that no command can foresee are tried after them.
const RANDOM: u32 = 100;

/// Makes these ineffective, and says what was done and what could not be.
pub(super) fn neutralise(scene: &Scene<'_>, findings: &[Finding]) -> Vec<HeldChange> {
    let mut changes = Vec::new();
    let mut rest = findings;
    while let Some(first) = rest.first() {
        let same = |other: &&Finding| {
            other.ground == first.ground && other.directory == first.directory && other.name == first.name
        };
        let count = rest.iter().take_while(same).count().max(1);
        let (group, after) = rest.split_at(count.min(rest.len()));
        changes.extend(one_entry(scene, group));
        rest = after;
    }
    changes
}

/// All findings about one entry.
fn one_entry(scene: &Scene<'_>, findings: &[Finding]) -> Vec<HeldChange> {
    let Some(first) = findings.first() else { return Vec::new() };
    let Some(ground) = scene.grounds.get(first.ground) else { return Vec::new() };
    let path = ground.path.join(&first.directory).join(&first.name);
    let place = Place::new(scene, ground.path.join(&first.directory));
    let keep = |setting: &GitSetting| {
        settings::is_harmless(setting, &place) || scene.accepted.contains(&setting_print(&path, setting))
    };
    let done = match first.kind {
        FindingKind::Closed if first.name == TOP => open_up(ground.fd.as_fd()).map(|()| None),
        _ => open_directory(ground.fd.as_fd(), first.directory.as_os_str().as_bytes())
            .and_then(|directory| with_write_access(&directory, || act(&directory, first, &keep))),
    };
    let kept = match &done {
        Ok(kept) => kept.as_ref().map(|name| ByteString::from(path.with_file_name(name))),
        // It is gone, and with it what was wrong.
        Err(Errno::NOENT) => return Vec::new(),
        Err(_) => None,
    };
    let failure = done.err().map(|errno| format!("; it could not be made ineffective: {errno}"));
    let change = |finding: &Finding| HeldChange {
        path: ByteString::from(path.as_path()),
        rule: finding.kind.rule().into(),
        what: finding.kind.what() + failure.as_deref().unwrap_or_default(),
        kept: kept.clone(),
    };
    findings.iter().map(change).collect()
}

fn act(
    directory: &OwnedFd,
    finding: &Finding,
    keep: &dyn Fn(&GitSetting) -> bool,
) -> Result<Option<OsString>, Errno> {
    match &finding.kind {
        FindingKind::Setting { .. } => rewrite(directory, &finding.name, keep),
        FindingKind::Entry(Reason::RebaseCommand) => comment_out(directory, &finding.name),
        FindingKind::Entry(Reason::SymbolicRef) => put_aside_unlisted(directory, &finding.name).map(Some),
        FindingKind::Entry(Reason::HardLink) => separate(directory, &finding.name),
        FindingKind::Entry(_) => put_down(directory, &finding.name).map(Some),
        FindingKind::Closed => make_listable(directory, &finding.name).map(|()| None),
    }
}

/// A command can take the owner's right to write from a directory, so that nothing in it can be renamed. The directory gets it back.
fn with_write_access<T>(directory: &OwnedFd, attempt: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match attempt() {
        Err(Errno::ACCESS | Errno::PERM) => {
            open_up(directory.as_fd())?;
            attempt()
        }
        done => done,
    }
}

/// Takes settings out of a configuration. Where it is put aside as a whole, git goes on without it.
fn rewrite(
    directory: &OwnedFd,
    name: &OsStr,
    keep: &dyn Fn(&GitSetting) -> bool,
) -> Result<Option<OsString>, Errno> {
    let content = read_small(directory.as_fd(), Path::new(name), MAX);
    match content.and_then(|content| git_config::without(&content, keep)) {
        Some(clean) => replace_or_put_aside(directory, name, &clean),
        None => put_down(directory, name).map(Some),
    }
}

/// A full disk has no room for another file, and still renames the one that is there.
fn replace_or_put_aside(
    directory: &OwnedFd,
    name: &OsStr,
    content: &[u8],
) -> Result<Option<OsString>, Errno> {
    replace(directory, name, content).or_else(|_| put_aside(directory, name)).map(Some)
}

fn comment_out(directory: &OwnedFd, name: &OsStr) -> Result<Option<OsString>, Errno> {
    let Some(content) = read_small(directory.as_fd(), Path::new(name), MAX) else {
        return put_down(directory, name).map(Some);
    };
    let mut clean = Vec::with_capacity(content.len());
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        if executes(line) {
            clean.extend_from_slice(b"# held by ringfence: ");
        }
        clean.extend_from_slice(line);
    }
    replace_or_put_aside(directory, name, &clean)
}

/// Puts a copy in the place of a file that has other names. What was there is left to those, so nothing is kept beside it.
fn separate(directory: &OwnedFd, name: &OsStr) -> Result<Option<OsString>, Errno> {
    let Some(content) = read_small(directory.as_fd(), Path::new(name), MAX) else {
        return put_down(directory, name).map(Some);
    };
    let shared = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kept = put_in_place(directory, name, &content, Mode::from_raw_mode(shared.st_mode & 0o777))?;
    let aside = rustix::fs::statat(directory, &kept, AtFlags::SYMLINK_NOFOLLOW)?;
    // The other names may have gone meanwhile, or another file may have come.
    if (aside.st_dev, aside.st_ino) != (shared.st_dev, shared.st_ino) || aside.st_nlink < 2 {
        return Ok(Some(kept));
    }
    rustix::fs::unlinkat(directory, &kept, AtFlags::empty())?;
    Ok(None)
}

/// Puts a file with this content in the place of `name`, at once where the file system can exchange two names.
fn replace(directory: &OwnedFd, name: &OsStr, content: &[u8]) -> Result<OsString, Errno> {
    let mode = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode & 0o666;
    put_in_place(directory, name, content, Mode::from_raw_mode(mode | 0o200))
}

fn put_in_place(directory: &OwnedFd, name: &OsStr, content: &[u8], mode: Mode) -> Result<OsString, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create = |fresh: &OsStr| rustix::fs::openat(directory, fresh, flags, mode);
    let (fresh, fd) = free_name(name, create)?;
    let written = File::from(fd).write_all(content);
    if written.is_err() {
        let _removed = rustix::fs::unlinkat(directory, &fresh, AtFlags::empty());
        return Err(Errno::NOSPC);
    }
    match rustix::fs::renameat_with(directory, &fresh, directory, name, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(fresh),
        Err(Errno::INVAL | Errno::NOSYS) => {
            let kept = put_aside(directory, name)?;
            rustix::fs::renameat(directory, &fresh, directory, name)?;
            Ok(kept)
        }
        Err(errno) => {
            let _removed = rustix::fs::unlinkat(directory, &fresh, AtFlags::empty());
            Err(errno)
        }
    }
}

fn put_aside(directory: &OwnedFd, name: &OsStr) -> Result<OsString, Errno> {
    put_aside_as(directory, name, name)
}

/// Every file in `refs` is a ref to git, by whatever name, but for those that begin with a dot.
fn put_aside_unlisted(directory: &OwnedFd, name: &OsStr) -> Result<OsString, Errno> {
    put_aside_as(directory, name, OsStr::from_bytes(&[b".", name.as_bytes()].concat()))
}

/// Gives an entry a free name that begins with `stem`.
fn put_aside_as(directory: &OwnedFd, name: &OsStr, stem: &OsStr) -> Result<OsString, Errno> {
    let moved = |fresh: &OsStr| {
        match rustix::fs::renameat_with(directory, name, directory, fresh, RenameFlags::NOREPLACE) {
            // Not on every file system. A plain rename would replace what was kept before, or the clean file.
            Err(Errno::INVAL | Errno::NOSYS) => {
                match rustix::fs::statat(directory, fresh, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(_) => Err(Errno::EXIST),
                    Err(Errno::NOENT) => rustix::fs::renameat(directory, name, directory, fresh),
                    Err(errno) => Err(errno),
                }
            }
            done => done,
        }
    };
    free_name(stem, moved).map(|(fresh, ())| fresh)
}

/// Puts an entry aside. Of a link a file with its text is left: a link is followed whatever it is called. It is moved first, so
/// that what is removed is what was looked at last.
fn put_down(directory: &OwnedFd, name: &OsStr) -> Result<OsString, Errno> {
    let aside = put_aside(directory, name)?;
    let kind = FileType::from_raw_mode(statat(directory, &aside, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
    let text = match kind {
        FileType::Symlink => rustix::fs::readlinkat(directory, &aside, Vec::new())?.into_bytes(),
        FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice => b"no file".to_vec(),
        _ => return Ok(aside),
    };
    rustix::fs::unlinkat(directory, &aside, AtFlags::empty())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The text is for a reader. On a full disk the link is gone without it.
    if let Ok(fd) = rustix::fs::openat(directory, &aside, flags, Mode::RUSR | Mode::WUSR) {
        let _written = File::from(fd).write_all(&[&text, &b"\n"[..]].concat());
    }
    Ok(aside)
}

/// The first name of its kind with which `attempt` does not find something there.
fn free_name<T>(name: &OsStr, attempt: impl Fn(&OsStr) -> Result<T, Errno>) -> Result<(OsString, T), Errno> {
    const LONGEST: usize = 200;
    // A name can be as long as the file system allows already.
    let stem = OsStr::from_bytes(name.as_bytes().get(..LONGEST).unwrap_or(name.as_bytes()));
    for number in 0..NUMBERED + RANDOM {
        let mut fresh = stem.to_owned();
        fresh.push(MARK);
        match number {
            0 => {}
            1..NUMBERED => fresh.push(format!(".{number}")),
            _ => {
                let Ok(random) = TransactionId::random() else { return Err(Errno::AGAIN) };
                fresh.push(format!(".{}", random.as_str()));
            }
        }
        match attempt(&fresh) {
            Ok(done) => return Ok((fresh, done)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

/// Gives the owner of a directory the rights to list and enter it.
fn make_listable(parent: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let fd = rustix::fs::openat2(parent, name, flags, Mode::empty(), resolve)?;
    open_up(fd.as_fd())
}

/// Gives the owner of an open directory every right in it.
pub(super) fn open_up(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(directory)?.st_mode & 0o7777) | Mode::RWXU;
    // A descriptor that only names a directory has no chmod of its own.
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    rustix::fs::chmodat(rustix::fs::CWD, path, mode, AtFlags::empty())
}
