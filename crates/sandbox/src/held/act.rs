//! Makes a finding ineffective. Nothing is lost: what was there stays beside it under a name that nothing executes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ringfence_types::{Bytes, HeldChange};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use super::examine::{MARK, MAX, Place, Scene, executes, setting_print};
use super::finding::{Accepted, Finding, FindingKind, Reason};
use super::settings;
use crate::git_config::{self, Setting};
use crate::survey::{open_directory, read_small};

/// Names that are tried for what is put aside.
const ATTEMPTS: u32 = 10_000;

/// Makes these ineffective, and says what was done and what could not be.
pub(super) fn neutralise(scene: &Scene<'_>, findings: &[Finding], accepted: &Accepted) -> Vec<HeldChange> {
    let mut changes = Vec::new();
    let mut rest = findings;
    while let Some(first) = rest.first() {
        let same = |other: &&Finding| {
            other.ground == first.ground && other.directory == first.directory && other.name == first.name
        };
        let count = rest.iter().take_while(same).count().max(1);
        let (group, after) = rest.split_at(count.min(rest.len()));
        changes.extend(one_entry(scene, group, accepted));
        rest = after;
    }
    changes
}

/// All findings about one entry.
fn one_entry(scene: &Scene<'_>, findings: &[Finding], accepted: &Accepted) -> Vec<HeldChange> {
    let Some(first) = findings.first() else { return Vec::new() };
    let Some(ground) = scene.grounds.get(first.ground) else { return Vec::new() };
    let path = ground.path.join(&first.directory).join(&first.name);
    let done =
        open_directory(ground.fd.as_fd(), first.directory.as_os_str().as_bytes()).and_then(|directory| {
            match &first.kind {
                FindingKind::Setting { .. } => {
                    let place = Place { scene, git: ground.path.join(&first.directory) };
                    rewrite(&directory, &first.name, |setting| {
                        settings::is_harmless(setting, &place)
                            || accepted.contains(&setting_print(&path, setting))
                    })
                }
                FindingKind::Entry(Reason::RebaseCommand) => comment_out(&directory, &first.name),
                FindingKind::Entry(_) => put_aside(&directory, &first.name).map(Some),
                FindingKind::Closed => make_listable(&directory, &first.name).map(|()| None),
            }
        });
    let kept = match &done {
        Ok(kept) => kept.as_ref().map(|name| Bytes::from(path.with_file_name(name))),
        // It is gone, and with it what was wrong.
        Err(Errno::NOENT) => return Vec::new(),
        Err(_) => None,
    };
    let failure = done.err().map(|errno| format!("; it could not be made ineffective: {errno}"));
    let change = |finding: &Finding| HeldChange {
        path: Bytes::from(path.as_path()),
        rule: finding.kind.rule().to_owned(),
        what: finding.kind.what() + failure.as_deref().unwrap_or_default(),
        kept: kept.clone(),
    };
    findings.iter().map(change).collect()
}

/// Takes settings out of a configuration. Where it is put aside as a whole, git goes on without it.
fn rewrite(
    directory: &OwnedFd,
    name: &OsStr,
    keep: impl Fn(&Setting) -> bool,
) -> Result<Option<OsString>, Errno> {
    let content = read_small(directory.as_fd(), Path::new(name), MAX);
    match content.and_then(|content| git_config::without(&content, keep)) {
        Some(clean) => replace(directory, name, &clean).map(Some),
        None => put_aside(directory, name).map(Some),
    }
}

fn comment_out(directory: &OwnedFd, name: &OsStr) -> Result<Option<OsString>, Errno> {
    let Some(content) = read_small(directory.as_fd(), Path::new(name), MAX) else {
        return put_aside(directory, name).map(Some);
    };
    let mut clean = Vec::with_capacity(content.len());
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        if executes(line) {
            clean.extend_from_slice(b"# held by ringfence: ");
        }
        clean.extend_from_slice(line);
    }
    replace(directory, name, &clean).map(Some)
}

/// Puts a file with this content in the place of `name`, at once where the file system can exchange two names.
fn replace(directory: &OwnedFd, name: &OsStr, content: &[u8]) -> Result<OsString, Errno> {
    let mode = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode & 0o666;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create =
        |fresh: &OsStr| rustix::fs::openat(directory, fresh, flags, Mode::from_raw_mode(mode | 0o200));
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
        Err(errno) => Err(errno),
    }
}

fn put_aside(directory: &OwnedFd, name: &OsStr) -> Result<OsString, Errno> {
    let moved = |fresh: &OsStr| {
        match rustix::fs::renameat_with(directory, name, directory, fresh, RenameFlags::NOREPLACE) {
            // Not on every file system.
            Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(directory, name, directory, fresh),
            done => done,
        }
    };
    free_name(name, moved).map(|(fresh, ())| fresh)
}

/// The first name of its kind with which `attempt` does not find something there.
fn free_name<T>(name: &OsStr, attempt: impl Fn(&OsStr) -> Result<T, Errno>) -> Result<(OsString, T), Errno> {
    const LONGEST: usize = 200;
    // A name can be as long as the file system allows already.
    let stem = OsStr::from_bytes(name.as_bytes().get(..LONGEST).unwrap_or(name.as_bytes()));
    for number in 0..ATTEMPTS {
        let mut fresh = stem.to_owned();
        fresh.push(MARK);
        if number > 0 {
            fresh.push(format!(".{number}"));
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
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode & 0o7777) | Mode::RWXU;
    // A descriptor that only names a directory has no chmod of its own.
    rustix::fs::chmodat(rustix::fs::CWD, format!("/proc/self/fd/{}", fd.as_raw_fd()), mode, AtFlags::empty())
}
