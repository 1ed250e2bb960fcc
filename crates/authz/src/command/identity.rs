//! Which program a name means, and whether it can be believed (B-C27: `./git` is not git).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ringfence_types::{Access, Root};

use super::place::{fold, is_below, join};
use crate::scene::Scene;

/// Where a program comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity<'a> {
    /// The last component of the name it was called by.
    pub(super) name: &'a [u8],
    /// The file it really is.
    pub(super) file: Option<PathBuf>,
    pub(super) trust: Trust,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Nothing inside the fence can have written it.
    System,
    /// There is no such program: whatever it is called, it fails.
    Missing,
    /// It is not what its name says, or nobody can know.
    Doubtful(&'static str),
}

/// Programs that are what they are called by.
const MULTI_CALL: &[&[u8]] = &[b"busybox", b"busybox.static", b"toybox", b"coreutils", b"box"];

/// Where the system keeps its programs, and nothing inside the fence can write.
const SYSTEM: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libexec", "/nix/store", "/gnu/store", "/snap"];

impl Identity<'_> {
    /// The name of the file, where it is called by another one and does not go by what it is called.
    pub(super) fn other_name(&self) -> Option<&[u8]> {
        let real = self.file.as_deref()?.file_name()?.as_bytes();
        (real != self.name && !MULTI_CALL.contains(&real)).then_some(real)
    }
}

pub(super) fn identify<'a>(scene: &Scene<'_>, cwd: Option<&Path>, called: &'a [u8]) -> Identity<'a> {
    let name = called.rsplit(|byte| *byte == b'/').next().unwrap_or(called);
    let slashed = called.contains(&b'/');
    let Some(dir) = cwd.or((!slashed || called.starts_with(b"/")).then_some(scene.cwd)) else {
        let trust = Trust::Doubtful("it is named relative to a directory that is not known");
        return Identity { name, file: None, trust };
    };
    let file = scene.facts.program(called, dir).map(|file| fold(&file).into_owned());
    let trust = match &file {
        None if slashed => Trust::Doubtful("there is no such program inside the fence"),
        None => Trust::Missing,
        Some(file) if slashed => trusted(scene, &fold(&join(dir, called)))
            .and(trusted(scene, file))
            .map_or_else(doubt, |()| Trust::System),
        Some(file) => trusted(scene, file).map_or_else(doubt, |()| Trust::System),
    };
    Identity { name, file, trust }
}

/// An applet of a program that is trusted: `ls` in `busybox ls`.
pub(super) fn applet(name: &[u8]) -> Identity<'_> {
    Identity { name, file: None, trust: Trust::Missing }
}

fn doubt(why: &'static str) -> Trust {
    Trust::Doubtful(why)
}

fn trusted(scene: &Scene<'_>, file: &Path) -> Result<(), &'static str> {
    let workspace = is_below(file, scene.workspace().as_os_str().as_bytes());
    let holds = |root: &Root| root.access == Access::Write && is_below(file, root.path.as_slice());
    if workspace || scene.permissions.roots.iter().any(holds) {
        return Err("the program lies in the workspace, so it need not be what it is called");
    }
    if SYSTEM.iter().any(|dir| is_below(file, dir.as_bytes())) {
        return Ok(());
    }
    Err("the program does not lie in a directory of the system, so it need not be what it is called")
}

/// A program name without what distributions add to it: `python3.11`, `nc.openbsd`, `vim.basic`, `bash-5.2`, `CMD.EXE`.
/// Only good for being stricter.
pub(super) fn family(name: &[u8]) -> &[u8] {
    const SUFFIXES: &[&str] = &[
        ".exe",
        ".basic",
        ".tiny",
        ".nox",
        ".gtk3",
        ".openbsd",
        ".traditional",
        ".distrib",
        ".real",
        ".uutils",
        ".static",
    ];
    let mut stem = name;
    for suffix in SUFFIXES {
        let cut = stem.len().saturating_sub(suffix.len());
        if stem.get(cut..).is_some_and(|end| end.eq_ignore_ascii_case(suffix.as_bytes())) {
            stem = stem.get(..cut).unwrap_or(stem);
        }
    }
    let version = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_');
    let end = stem.iter().rposition(|byte| !version(byte)).map_or(0, |at| at + 1);
    let short = stem.get(..end).filter(|short| !short.is_empty());
    match (short, stem.get(end..)) {
        (Some(short), Some(rest)) if rest.iter().any(u8::is_ascii_digit) => short,
        _ => stem,
    }
}

/// `program` as a path that a rule names: absolute, or relative to the workspace.
pub(super) fn is_file(identity: &Identity<'_>, workspace: &Path, program: &str) -> bool {
    let wanted = join(workspace, OsStr::new(program).as_bytes());
    identity.file.as_deref() == Some(&*fold(&wanted))
}
