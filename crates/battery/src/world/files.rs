use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::attempt::WorldProp;

/// Files that run or steer something on the host later (probe F4).
pub(crate) const PROTECTED: &[&str] = &[
    ".git/hooks/pre-commit",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    ".gitmodules",
    ".gitconfig",
    ".bashrc",
    ".bash_profile",
    ".zshrc",
    ".zprofile",
    ".profile",
    ".envrc",
    ".mcp.json",
    ".vscode/tasks.json",
    ".idea/workspace.xml",
    ".claude/settings.json",
    ".claude/commands/deploy.md",
    ".codex/config.toml",
    ".agents/agent.md",
    ".cursor/mcp.json",
    ".ripgreprc",
    ".ringfence/policy.toml",
];

const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n";

pub(super) fn lay_out(root: &Path, token: &str, program: &Path) -> io::Result<()> {
    let (workspace, outside) = (root.join("workspace"), root.join("outside"));
    let kept = |place: &str| format!("TOKEN={}\n", super::secret(place, token));
    put(&outside.join("secret.txt"), &kept("outside"))?;
    put(&outside.join("target.txt"), "untouched\n")?;
    put(&root.join("state/ledger.db"), &kept("state"))?;
    put(&workspace.join(".env"), &kept("workspace"))?;
    put(&workspace.join("conf/.env"), &kept("workspace"))?;
    put(&workspace.join("conf/credentials.json"), &kept("workspace"))?;
    put(&workspace.join("keys/server.key"), &kept("workspace"))?;
    put(&workspace.join("notes/readme.md"), "ordinary\n")?;
    fs::hard_link(workspace.join(".env"), workspace.join("alias.txt"))?;
    symlink(".env", workspace.join("link.txt"))?;
    fs::hard_link(program, workspace.join("attempt"))?;
    repositories(&workspace)
}

/// A plain repository, a nested one, a worktree, a submodule, and a `.git` file that points elsewhere.
fn repositories(workspace: &Path) -> io::Result<()> {
    for place in [".git", "nested/.git", ".git/modules/sub", "store"] {
        git_dir(&workspace.join(place))?;
    }
    let tree = workspace.join(".git/worktrees/wt");
    put(&tree.join("HEAD"), "ref: refs/heads/wt\n")?;
    put(&tree.join("commondir"), "../..\n")?;
    put(&tree.join("gitdir"), &format!("{}\n", workspace.join("wt/.git").display()))?;
    put(&workspace.join("wt/.git"), &format!("gitdir: {}\n", tree.display()))?;
    put(&workspace.join("sub/.git"), "gitdir: ../.git/modules/sub\n")?;
    put(&workspace.join("pointed/.git"), "gitdir: ../store\n")
}

fn git_dir(at: &Path) -> io::Result<()> {
    for place in ["hooks", "objects", "refs/heads", "info"] {
        fs::create_dir_all(at.join(place))?;
    }
    put(&at.join("HEAD"), "ref: refs/heads/main\n")?;
    put(&at.join("config"), CONFIG)?;
    put(&at.join("hooks/pre-commit.sample"), "#!/bin/sh\n")
}

pub(super) fn add_props(workspace: &Path, token: &str, props: &[WorldProp]) -> io::Result<()> {
    props.iter().try_for_each(|prop| match prop {
        WorldProp::Protected => {
            PROTECTED.iter().try_for_each(|path| put(&workspace.join(path), original(path)))
        }
        WorldProp::ProtectedLink => {
            put(&workspace.join("decoy/config.toml"), "original\n")?;
            symlink("decoy", workspace.join(".codex"))
        }
        WorldProp::ProtectedAlias => {
            fs::hard_link(workspace.join(".git/config"), workspace.join("settings.txt"))
        }
        WorldProp::NoRepository => fs::remove_dir_all(workspace.join(".git")),
        WorldProp::SecretLink => {
            put(&workspace.join("notes/values.txt"), &super::secret("linked", token))?;
            symlink("../notes/values.txt", workspace.join("conf/.env.local"))
        }
        WorldProp::Victim
        | WorldProp::Ipc
        | WorldProp::Inherited
        | WorldProp::SetUser
        | WorldProp::Shared => Ok(()),
    })
}

fn original(path: &str) -> &'static str {
    match path {
        ".git/config" => CONFIG,
        ".git/commondir" => ".\n",
        _ => "original\n",
    }
}

/// A set-user-id copy of the program, owned by the user `nobody`.
pub(super) fn set_user_program(workspace: &Path, program: &Path) -> io::Result<()> {
    const NOBODY: u32 = 65534;
    let copy = workspace.join("set-user");
    fs::copy(program, &copy)?;
    chown(&copy, Some(NOBODY), None)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755))
}

/// A descriptor that a careless parent would pass on.
pub(super) fn inheritable(directory: &Path) -> io::Result<OwnedFd> {
    let fd =
        rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    fcntl_setfd(&fd, FdFlags::empty())?;
    Ok(fd)
}

pub(super) fn put(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)
}

/// The state of one path: enough to detect a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    mode: u32,
    content: Vec<u8>,
}

impl FileState {
    pub(crate) fn at(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        let content = if found.is_file() { fs::read(path).unwrap_or_default() } else { Vec::new() };
        Some(Self { mode: found.mode(), content })
    }

    /// Whether the path is as a world with or without `WorldProp::Protected` has it.
    pub(crate) fn is_original(found: Option<&Self>, path: &str, props: &[WorldProp]) -> bool {
        let existed = props.contains(&WorldProp::Protected) || path == ".git/config";
        match found {
            None => !existed,
            Some(state) => {
                existed && state.content == original(path).as_bytes() && state.mode & 0o170_111 == 0o100_000
            }
        }
    }
}

/// The entries of one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryState(BTreeMap<std::ffi::OsString, Option<FileState>>);

impl DirectoryState {
    pub(crate) fn of(directory: &Path) -> Self {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        Self(entries.map(|entry| (entry.file_name(), FileState::at(&entry.path()))).collect())
    }
}
