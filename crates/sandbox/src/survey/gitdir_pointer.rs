//! The git directory of a workspace that has it elsewhere: a linked worktree or the checkout of a submodule.
//!
//! The `.git` file of a workspace is a claim. The directory it names becomes a root only if that directory claims the
//! workspace in turn, is a complete repository, and belongs to the same user; git itself asks for less.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;

use super::root_handle::{normalized, read_small};
use super::{git_config, shown};

const MAX: u64 = 64 * 1024;

#[derive(Debug)]
pub(super) enum ExternalGitDir {
    /// The workspace needs no other directory.
    None,
    Valid(PathBuf),
    /// Why git will not work inside.
    Invalid(String),
}

/// The directory outside `workspace` that git needs to work in it.
pub(super) fn outside_git_dir(workspace: &Path) -> ExternalGitDir {
    let Some(claimed) = pointed_at(&workspace.join(".git")) else { return ExternalGitDir::None };
    if claimed.starts_with(workspace) {
        return ExternalGitDir::None;
    }
    let Ok(git_dir) = fs::canonicalize(&claimed) else {
        return ExternalGitDir::Invalid(note(workspace, &claimed, "it does not exist"));
    };
    if git_dir.starts_with(workspace) {
        return ExternalGitDir::None;
    }
    let validated = if git_dir.join("gitdir").exists() {
        linked_worktree(workspace, &git_dir)
    } else {
        submodule(workspace, &git_dir)
    };
    match validated {
        Ok(path) => ExternalGitDir::Valid(path),
        Err(reason) => ExternalGitDir::Invalid(note(workspace, &git_dir, reason)),
    }
}

/// What a `.git` file points at, not resolved.
pub(super) fn pointed_at(git_file: &Path) -> Option<PathBuf> {
    let content = read_small(CWD, git_file, MAX)?;
    let target = as_path(content.strip_prefix(b"gitdir: ")?);
    Some(normalized(&git_file.parent()?.join(target)))
}

/// The path in a one-line file of git, taken from the directory the file is in.
pub(super) fn path_in(file: &Path) -> Option<PathBuf> {
    let content = read_small(CWD, file, MAX)?;
    Some(file.parent()?.join(as_path(&content)))
}

fn as_path(line: &[u8]) -> &Path {
    let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    Path::new(std::ffi::OsStr::from_bytes(line.get(..end).unwrap_or_default()))
}

fn linked_worktree(workspace: &Path, git_dir: &Path) -> Result<PathBuf, &'static str> {
    let back = path_in(&git_dir.join("gitdir")).ok_or("its `gitdir` file cannot be read")?;
    let back_in = back.parent().and_then(|parent| fs::canonicalize(parent).ok());
    if back_in.as_deref() != Some(workspace) || !back.ends_with(".git") {
        return Err("its `gitdir` file names another worktree");
    }
    let common = path_in(&git_dir.join("commondir")).and_then(|path| fs::canonicalize(path).ok());
    let common = common.ok_or("its `commondir` file cannot be followed")?;
    if git_dir.parent().and_then(Path::parent) != Some(&common)
        || !git_dir.starts_with(common.join("worktrees"))
    {
        return Err("it is not in the `worktrees` of the repository it names");
    }
    owned_repository(workspace, &common)?;
    same_owner(workspace, git_dir)?;
    Ok(common)
}

fn submodule(workspace: &Path, git_dir: &Path) -> Result<PathBuf, &'static str> {
    if !git_dir.ancestors().skip(1).any(|above| above.ends_with("modules")) {
        return Err("it is neither a worktree nor a module of another repository");
    }
    let common = path_in(&git_dir.join("commondir"));
    if common.is_some_and(|common| fs::canonicalize(common).ok().as_deref() != Some(git_dir)) {
        return Err("its `commondir` file leads elsewhere");
    }
    let content =
        read_small(CWD, &git_dir.join("config"), git_config::MAX).ok_or("its `config` cannot be read")?;
    let worktree = git_config::parse(&content).worktree.ok_or("its `config` has no `core.worktree`")?;
    if fs::canonicalize(git_dir.join(worktree)).ok().as_deref() != Some(workspace) {
        return Err("its `core.worktree` names another directory");
    }
    owned_repository(workspace, git_dir)?;
    Ok(git_dir.to_owned())
}

fn owned_repository(workspace: &Path, git_dir: &Path) -> Result<(), &'static str> {
    let is = |name: &str, directory: bool| {
        fs::symlink_metadata(git_dir.join(name)).is_ok_and(|meta| meta.is_dir() == directory)
    };
    if !is("HEAD", false) || !is("objects", true) || !is("refs", true) {
        return Err("it is not a complete repository");
    }
    same_owner(workspace, git_dir)
}

fn same_owner(workspace: &Path, git_dir: &Path) -> Result<(), &'static str> {
    let owner = |path: &Path| fs::symlink_metadata(path).ok().map(|meta| meta.uid());
    match (owner(workspace), owner(git_dir)) {
        (Some(ours), Some(theirs)) if ours == theirs => Ok(()),
        _ => Err("it belongs to another user"),
    }
}

fn note(workspace: &Path, git_dir: &Path, reason: &str) -> String {
    format!(
        "git will not work inside: `{}` points at `{}`, which is not made available because {reason}",
        shown(&workspace.join(".git")),
        shown(git_dir)
    )
}
