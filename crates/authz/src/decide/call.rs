//! One call against what its policy gives at most.

use std::path::{Component, Path, PathBuf};

use ringfence_types::{
    Access, Bytes, Exec, FileCall, NetMode, PathVerdict, Profile, Refusal, RefusalCode, Root,
};

use super::{Permissions, Policy, View, WorkspaceRules, sensitive_refusal};
use crate::danger::check_net;
use crate::path_rules::PathRules;
use crate::refuse::{Refuse as _, refuse};
use crate::{env, protected};

pub(super) fn judge_exec(policy: &Policy, exec: &Exec, permissions: &Permissions) -> Result<(), Refusal> {
    if policy.profile == Profile::Review {
        return Err(refuse(RefusalCode::Profile, "profile.review", "profile `review` runs no commands")
            .hint("use `--profile workspace` to run commands inside the fence"));
    }
    check_argv(&exec.argv)?;
    check_asked_net(policy, exec.net)?;
    check_cwd(permissions, &exec.cwd)?;
    env::check_additions(&exec.env)
}

fn check_argv(argv: &[Bytes]) -> Result<(), Refusal> {
    let Some(program) = argv.first().filter(|program| !program.as_slice().is_empty()) else {
        return Err(malformed("exec.argv", "the command is empty"));
    };
    if argv.iter().any(|arg| arg.as_slice().contains(&0)) {
        let message = format!("an argument of `{}` contains a NUL byte", program.display());
        return Err(malformed("exec.argv", message));
    }
    Ok(())
}

/// A call that asks for more network than its session has is refused, not clamped (C-11).
fn check_asked_net(policy: &Policy, asked: NetMode) -> Result<(), Refusal> {
    check_net(asked)?;
    if asked > policy.net {
        let message = format!("network mode `{asked}` is above the ceiling `{}` of this session", policy.net);
        return Err(refuse(RefusalCode::Network, "net.ceiling", message)
            .hint(format!("start with `--net {asked}` if the command needs it")));
    }
    Ok(())
}

fn check_cwd(permissions: &Permissions, cwd: &Bytes) -> Result<(), Refusal> {
    if !is_plain_absolute(cwd.as_path()) {
        let message = format!("the working directory `{}` is not an absolute canonical path", cwd.display());
        return Err(malformed("exec.cwd", message));
    }
    check_place(permissions, cwd.as_path(), Access::Read).map(|_| ())
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    Read,
    List,
    Write,
}

impl Intent {
    pub(super) fn of(file: &FileCall) -> Self {
        match file {
            FileCall::Read { .. } => Self::Read,
            FileCall::List { .. } => Self::List,
            FileCall::Write { .. } | FileCall::Symlink { .. } => Self::Write,
        }
    }
}

pub(super) fn judge_file(policy: &Policy, file: &FileCall, permissions: &Permissions) -> Result<(), Refusal> {
    let intent = Intent::of(file);
    if policy.profile == Profile::Review && intent == Intent::Write {
        return Err(refuse(RefusalCode::Profile, "profile.review", "profile `review` writes nothing")
            .hint("use `--profile workspace` to write inside the workspace"));
    }
    let path = absolute(permissions, file.path())?;
    if let FileCall::Symlink { target, .. } = file {
        check_link_target(permissions, &path, target)?;
    }
    judge_path(permissions, &path, intent)
}

/// Relative paths are relative to the workspace (C-7). `..` is refused rather than resolved: what it means depends on
/// links that only the kernel can follow.
fn absolute(permissions: &Permissions, path: &Bytes) -> Result<PathBuf, Refusal> {
    let given = path.as_path();
    let workspace = permissions.roots.first().map(|root| root.path.as_path());
    let joined = workspace.unwrap_or(Path::new("/")).join(given);
    if path.as_slice().is_empty() || !is_plain_absolute(&joined) {
        let message = format!("`{}` is empty, or contains `..` or a NUL byte", path.display());
        return Err(refuse(RefusalCode::Path, "path.form", message)
            .hint("name the file relative to the workspace, without `..`"));
    }
    Ok(joined)
}

/// A link may lead only to where a path may lead (S000-15).
fn check_link_target(permissions: &Permissions, link: &Path, target: &Bytes) -> Result<(), Refusal> {
    let folded = link.parent().and_then(|parent| fold(&parent.join(target.as_path())));
    match folded {
        Some(to) if !target.as_slice().is_empty() => judge_path(permissions, &to, Intent::Read),
        _ => Err(refuse(
            RefusalCode::Path,
            "path.link-target",
            format!("link target `{}` is not a path", target.display()),
        )),
    }
}

/// Folds `.` and `..` by name. Good enough to refuse a link whose text leaves the roots; where a path really leads
/// is judged by whoever opens it.
fn fold(path: &Path) -> Option<PathBuf> {
    let mut folded = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir if !folded.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            other => folded.push(other),
        }
    }
    is_plain_absolute(&folded).then_some(folded)
}

pub(super) fn judge_path(permissions: &Permissions, path: &Path, intent: Intent) -> Result<(), Refusal> {
    let needed = if intent == Intent::Write { Access::Write } else { Access::Read };
    let Some(relative) = check_place(permissions, path, needed)? else { return Ok(()) };
    if permissions.rules == WorkspaceRules::Waived {
        return Ok(());
    }
    if intent == Intent::Write {
        check_protected(relative)?;
    }
    // A directory may have any name: rules are about files.
    if intent == Intent::List {
        return Ok(());
    }
    check_visible(relative)
}

/// The path relative to its root, or `None` where the whole machine is open and no root holds it.
fn check_place<'a>(
    permissions: &Permissions,
    path: &'a Path,
    needed: Access,
) -> Result<Option<&'a Path>, Refusal> {
    if let Some(store) = permissions.hidden.iter().find(|hidden| path.starts_with(hidden.as_path())) {
        return Err(sensitive_refusal(path, store.as_path()));
    }
    // The nearest root decides, so that a `none` below a `write` closes what it names.
    let holding = permissions.roots.iter().filter(|root| path.starts_with(root.path.as_path()));
    match holding.max_by_key(|root| root.path.as_slice().len()) {
        Some(root) if root.access >= needed => Ok(path.strip_prefix(root.path.as_path()).ok()),
        Some(root) => Err(no_access(path, root, needed)),
        None if permissions.view == View::WholeMachine => Ok(None),
        None => {
            let message = format!("`{}` is outside the workspace", Bytes::from(path).display());
            Err(refuse(RefusalCode::Path, "path.boundary", message)
                .hint("stay inside the workspace, or declare another root at startup"))
        }
    }
}

fn no_access(path: &Path, root: &Root, needed: Access) -> Refusal {
    let message = format!(
        "`{}` is under root `{}`, which gives access `{}`, not `{needed}`",
        Bytes::from(path).display(),
        root.path.display(),
        root.access
    );
    refuse(RefusalCode::Path, "path.access", message)
}

fn check_protected(relative: &Path) -> Result<(), Refusal> {
    let Some(reason) = protected::is_protected(relative) else { return Ok(()) };
    let message = format!("`{}` is protected: {reason}", Bytes::from(relative).display());
    Err(refuse(RefusalCode::Path, "path.protected", message).hint("edit it outside Ringfence"))
}

fn check_visible(relative: &Path) -> Result<(), Refusal> {
    let rules = PathRules::default();
    match rules.judge(relative) {
        // Whether the content is public is for whoever opens the file to see.
        PathVerdict::Open | PathVerdict::HiddenUnlessPublic => Ok(()),
        PathVerdict::Hidden => {
            let reason = rules.explain(relative).map_or("sensitive file", |rule| rule.reason);
            let message = format!("`{}` is hidden: {reason}", Bytes::from(relative).display());
            Err(refuse(RefusalCode::Path, "path.hidden", message)
                .hint("names that end in `.example`, `.sample` or `.template` are open"))
        }
    }
}

pub(super) fn is_plain_absolute(path: &Path) -> bool {
    let plain = |component| matches!(component, Component::RootDir | Component::Normal(_));
    path.is_absolute() && path.components().all(plain) && !path.as_os_str().as_encoded_bytes().contains(&0)
}

fn malformed(rule: &str, message: impl Into<String>) -> Refusal {
    refuse(RefusalCode::Malformed, rule, message)
}
