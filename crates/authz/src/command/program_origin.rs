//! Which program a name means, and whether it can be believed (B-C27: `./git` is not git).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use ringfence_types::{Access, Root};

use super::working_dirs::{WorkingDirs, fold, is_below, join};
use crate::eval_context::EvalContext;

/// Where a program comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProgramOrigin<'a> {
    /// The last component of the name it was called by.
    pub(super) name: &'a [u8],
    /// The file it really is.
    pub(super) file: Option<PathBuf>,
    pub(super) trust: ProgramTrust,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramTrust {
    /// Nothing inside the fence can have written it.
    System,
    /// There is no such program: whatever it is called, it fails.
    Missing,
    /// It is not what its name says, or that cannot be known.
    Doubtful(&'static str),
    /// A program of the system by a path with `..`: where that leads is a matter of links, which may be others when it runs.
    Climbing,
}

/// Programs that are what they are called by.
const MULTI_CALL: &[&[u8]] = &[b"busybox", b"busybox.static", b"toybox", b"coreutils", b"box"];

/// Where the system keeps its programs, and nothing inside the fence can write.
const SYSTEM: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libexec", "/nix/store", "/gnu/store", "/snap"];

impl ProgramOrigin<'_> {
    /// The name of the file, where it is called by another one and does not go by what it is called.
    pub(super) fn other_name(&self) -> Option<&[u8]> {
        let real = self.file.as_deref()?.file_name()?.as_bytes();
        (real != self.name && !MULTI_CALL.contains(&real)).then_some(real)
    }
}

pub(super) fn identify<'a>(
    scene: &EvalContext<'_>,
    place: &WorkingDirs,
    called: &'a [u8],
) -> ProgramOrigin<'a> {
    let is_relative = called.contains(&b'/') && !called.starts_with(b"/");
    if !is_relative {
        return identify_from(scene, place.likely().unwrap_or(scene.cwd), called);
    }
    let from = |dir: &PathBuf| identify_from(scene, dir, called);
    let mut identities = place.candidates().iter().map(from);
    let Some(likely) = identities.next() else {
        let trust = ProgramTrust::Doubtful("it is named relative to a directory that is not known");
        return ProgramOrigin { name: last(called), file: None, trust };
    };
    match identities.any(|other| other.file != likely.file || other.trust != likely.trust) {
        true => ProgramOrigin {
            trust: ProgramTrust::Doubtful("which program it is depends on where it runs"),
            ..likely
        },
        false => likely,
    }
}

fn identify_from<'a>(scene: &EvalContext<'_>, dir: &Path, called: &'a [u8]) -> ProgramOrigin<'a> {
    let slashed = called.contains(&b'/');
    let file = scene.facts.program(called, dir).map(|file| fold(&file).into_owned());
    let trust = match &file {
        None if slashed => ProgramTrust::Doubtful("there is no such program inside the fence"),
        None => ProgramTrust::Missing,
        // A rule of the operator that names a file of the workspace is about whatever lies there.
        Some(file) if climbs(scene, &join(dir, called)) => {
            trusted(scene, file).map_or_else(doubt, |()| ProgramTrust::Climbing)
        }
        Some(file) if slashed => trusted(scene, &fold(&join(dir, called)))
            .and(trusted(scene, file))
            .map_or_else(doubt, |()| ProgramTrust::System),
        Some(file) => trusted(scene, file).map_or_else(doubt, |()| ProgramTrust::System),
    };
    ProgramOrigin { name: last(called), file, trust }
}

fn last(called: &[u8]) -> &[u8] {
    called.rsplit(|byte| *byte == b'/').next().unwrap_or(called)
}

/// Whether a path leads up from a place that a command could have made a link of.
fn climbs(scene: &EvalContext<'_>, path: &Path) -> bool {
    let mut reached = PathBuf::new();
    path.components().any(|component| match component {
        Component::ParentDir => trusted(scene, &reached).is_err() || !reached.pop(),
        other => {
            reached.push(other);
            false
        }
    })
}

/// An applet of a program that is trusted: `ls` in `busybox ls`.
pub(super) fn applet(name: &[u8]) -> ProgramOrigin<'_> {
    ProgramOrigin { name, file: None, trust: ProgramTrust::Missing }
}

fn doubt(why: &'static str) -> ProgramTrust {
    ProgramTrust::Doubtful(why)
}

fn trusted(scene: &EvalContext<'_>, file: &Path) -> Result<(), &'static str> {
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
pub(super) fn is_file(identity: &ProgramOrigin<'_>, workspace: &Path, program: &str) -> bool {
    let wanted = join(workspace, OsStr::new(program).as_bytes());
    identity.file.as_deref() == Some(&*fold(&wanted))
}
