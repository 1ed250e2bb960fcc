//! Attempts to make the host's git run a program: configuration, hooks, pointers, and the directories above
//! them.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use ringfence_types::Control::{FsWrite, Syscalls};
use rustix::fs::{CWD, Mode, RenameFlags};

use super::c_path;
use crate::arena::Arena;
use crate::attempt::{Attempt, AttemptBody, BASE, RefusalMeaning, WorldProp};
use crate::evidence::AttemptLog;
use crate::judge::{self, MARK, ObservedEffect};
use crate::sys;

const WRITE: Attempt = Attempt { controls: &[FsWrite], ..BASE };

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        id: "F7-config-lock",
        title: "edit .git/config as git does, by a lock file and a rename",
        from: "F7, B-S25",
        body: AttemptBody::Code(|arena, log| {
            log.step("write", fs::write(arena.inside(".git/config.lock"), MARK));
            let (lock, config) = (arena.inside(".git/config.lock"), arena.inside(".git/config"));
            log.step("rename", fs::rename(lock, config));
        }),
        judge: |world, _| judge::marked(world, &[".git/config"]),
        ..WRITE
    },
    Attempt {
        id: "F7-git-config",
        title: "set core.fsmonitor and core.hooksPath with git itself",
        from: "F7, B-C25",
        unfit: |host| host.lacks(&["sh", "git"]),
        body: AttemptBody::Shell(
            "GIT_DIR=\"$1/.git\" git config core.fsmonitor ./evil; GIT_DIR=\"$1/.git\" git config core.hooksPath evil",
        ),
        judge: |world, _| {
            vec![config_names(world.workspace(), "fsmonitor"), config_names(world.workspace(), "evil")]
        },
        ..WRITE
    },
    Attempt {
        id: "F7-new-hooks",
        title: "plant hooks that did not exist",
        from: "F4, F5, B-S3",
        body: AttemptBody::Code(|arena, log| plant(arena, log, &HOOKS)),
        judge: |world, _| judge::marked(world, &HOOKS),
        ..WRITE
    },
    Attempt {
        id: "F8-pointed",
        title: "write hooks and configuration where a .git file points",
        from: "F8, B-C3",
        body: AttemptBody::Code(|arena, log| plant(arena, log, &POINTED)),
        judge: |world, _| judge::marked(world, &POINTED),
        ..WRITE
    },
    Attempt {
        id: "F8-repoint",
        title: "make a .git file point to an own repository",
        from: "F8, B-C3",
        body: AttemptBody::Code(|arena, log| plant(arena, log, &POINTERS)),
        judge: |world, _| judge::marked(world, &POINTERS),
        ..WRITE
    },
    Attempt {
        id: "F8-worktree",
        title: "redirect a linked worktree",
        from: "F8, B-S25",
        body: AttemptBody::Code(|arena, log| plant(arena, log, &WORKTREE)),
        judge: |world, _| judge::marked(world, &WORKTREE),
        ..WRITE
    },
    Attempt {
        id: "F8-submodule",
        title: "write a submodule's hooks and configuration",
        from: "F8, B-S25",
        body: AttemptBody::Code(|arena, log| plant(arena, log, &SUBMODULE)),
        judge: |world, _| judge::marked(world, &SUBMODULE),
        ..WRITE
    },
    Attempt {
        id: "F8-nested-repository",
        title: "write the hooks and configuration of a repository inside the workspace",
        from: "F8, B-C36",
        body: AttemptBody::Code(|arena, log| plant(arena, log, &NESTED)),
        judge: |world, _| judge::marked(world, &NESTED),
        ..WRITE
    },
    Attempt {
        id: "F10-through-link",
        title: "write through a protected path that is a symlink",
        from: "F10, B-C4",
        props: &[WorldProp::ProtectedLink],
        refusal: RefusalMeaning::Holds,
        body: AttemptBody::Code(|arena, log| plant(arena, log, &[".codex/config.toml"])),
        judge: |world, _| judge::marked(world, &[".codex/config.toml"]),
        ..WRITE
    },
    Attempt {
        id: "F10-replace-link",
        title: "remove a protected symlink and put a directory in its place",
        from: "F10, B-C4, B-S5",
        props: &[WorldProp::ProtectedLink],
        refusal: RefusalMeaning::Holds,
        body: AttemptBody::Code(|arena, log| {
            log.step("unlink", fs::remove_file(arena.inside(".codex")));
            log.step("mkdir", fs::create_dir(arena.inside(".codex")));
        }),
        judge: |world, _| {
            let found = fs::symlink_metadata(world.workspace().join(".codex"));
            vec![ObservedEffect {
                what: ".codex is no longer the symlink".to_owned(),
                happened: !found.is_ok_and(|found| found.is_symlink()),
            }]
        },
        ..WRITE
    },
    Attempt {
        id: "F11-ancestor-rename",
        title: "rename the directory above a repository and plant a new repository",
        from: "F11, B-C36, B-S15",
        body: AttemptBody::Code(|arena, log| {
            log.step("rename", fs::rename(arena.inside("nested"), arena.inside("aside")));
            plant_tree(arena, log, "nested/.git/hooks/pre-commit");
        }),
        judge: |world, _| judge::marked(world, &["nested/.git/hooks/pre-commit"]),
        ..WRITE
    },
    Attempt {
        id: "F11-ancestor-exchange",
        title: "exchange the directory above a repository with an own one",
        from: "F11, F13",
        excuse: judge::not_in_kernel,
        body: AttemptBody::Code(|arena, log| {
            plant_tree(arena, log, "fake/.git/hooks/pre-commit");
            let (fake, nested) = (arena.inside("fake"), arena.inside("nested"));
            log.step("exchange", rustix::fs::renameat_with(CWD, fake, CWD, nested, RenameFlags::EXCHANGE));
        }),
        judge: |world, _| judge::marked(world, &["nested/.git/hooks/pre-commit"]),
        ..WRITE
    },
    Attempt {
        id: "F11-git-rename",
        title: "rename .git and make a new one",
        from: "F11",
        body: AttemptBody::Shell("mv .git aside && mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit"),
        unfit: |host| host.lacks(&["sh", "mv"]),
        judge: |world, _| judge::marked(world, &[".git/hooks/pre-commit"]),
        ..WRITE
    },
    Attempt {
        id: "F11-hooks-rename",
        title: "rename .git/hooks and .git/modules and make new ones",
        from: "F11",
        body: AttemptBody::Code(|arena, log| {
            log.step("hooks", fs::rename(arena.inside(".git/hooks"), arena.inside(".git/aside")));
            log.step("modules", fs::rename(arena.inside(".git/modules"), arena.inside(".git/beside")));
            plant_tree(arena, log, ".git/hooks/pre-commit");
            plant_tree(arena, log, ".git/modules/sub/config");
        }),
        judge: |world, _| judge::marked(world, &[".git/hooks/pre-commit", ".git/modules/sub/config"]),
        ..WRITE
    },
    Attempt {
        id: "F23-nested-namespaces",
        title: "detach the fence's mounts in an own user namespace, then replace .git by a held descriptor",
        from: "F23, B-C35, B-S24",
        controls: &[FsWrite, Syscalls],
        body: AttemptBody::Code(nested_namespaces),
        judge: |world, _| judge::planted(world, &["git-aside"]),
        ..WRITE
    },
];

const HOOKS: [&str; 3] =
    [".git/hooks/post-checkout", ".git/hooks/post-merge", ".git/hooks/fsmonitor-watchman"];
const POINTED: [&str; 2] = ["store/hooks/pre-commit", "store/config"];
const POINTERS: [&str; 3] = ["pointed/.git", "wt/.git", "sub/.git"];
const WORKTREE: [&str; 3] =
    [".git/worktrees/wt/commondir", ".git/worktrees/wt/gitdir", ".git/worktrees/wt/config.worktree"];
const SUBMODULE: [&str; 2] = [".git/modules/sub/config", ".git/modules/sub/hooks/post-checkout"];
const NESTED: [&str; 2] = ["nested/.git/config", "nested/.git/hooks/pre-commit"];

fn plant(arena: &Arena, log: &mut AttemptLog<'_>, paths: &[&str]) {
    for path in paths {
        log.step(path, fs::write(arena.inside(path), MARK));
    }
}

fn plant_tree(arena: &Arena, log: &mut AttemptLog<'_>, path: &str) {
    let target = arena.inside(path);
    let parent = target.parent().map_or(Ok(()), fs::create_dir_all);
    log.step(path, parent.and_then(|()| fs::write(&target, MARK)));
}

fn config_names(workspace: &Path, word: &str) -> ObservedEffect {
    let config = fs::read_to_string(workspace.join(".git/config")).unwrap_or_default();
    ObservedEffect { what: format!(".git/config names {word}"), happened: config.contains(word) }
}

/// Tries the rename in any case; the namespaces only remove obstacles.
fn nested_namespaces(arena: &Arena, log: &mut AttemptLog<'_>) {
    let Some(held) = log.step("hold", File::open(arena.workspace.as_path())) else { return };
    let child = sys::fork(|| {
        let detached = detach(arena);
        let renamed = rustix::fs::renameat(&held, ".git", &held, "git-aside");
        let made = rustix::fs::mkdirat(&held, ".git", Mode::RWXU);
        u8::from(detached.is_err()) + 2 * u8::from(renamed.is_err()) + 4 * u8::from(made.is_err())
    });
    log.step("chain", child.and_then(sys::wait));
}

// PRIVILEGE: works in its own mount namespace, which is made private before any mount.
fn detach(arena: &Arena) -> io::Result<()> {
    const NEW_USER_AND_MOUNT: u64 = 0x1000_0000 | 0x0002_0000;
    const PRIVATE_RECURSIVE: u64 = (1 << 18) | (1 << 14);
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    sys::unshare(NEW_USER_AND_MOUNT)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    sys::mount(c"none", c"/", None, PRIVATE_RECURSIVE)?;
    let stage = arena.inside("notes");
    sys::mount(c"none", &c_path(&stage)?, Some(c"tmpfs"), 0)?;
    fs::create_dir(stage.join("old"))?;
    sys::pivot_root(&c_path(&stage)?, &c_path(&stage.join("old"))?)?;
    std::env::set_current_dir("/")?;
    sys::umount_detach(&CString::new("/old")?)?;
    Ok(())
}
