//! One call against what its policy gives at most.

use std::path::{Component, Path, PathBuf};

use ringfence_types::{
    Access, ByteString, CommandMode, Decision, ExecCall, FileCall, HOME_INSIDE, IntroducedSecret, NetMode,
    Patch, PatchedFile, Profile, Refusal, RefusalCode, Risk, RuleId,
};

use super::{CallPermissions, FilesystemView, Policy, WorkspaceRuleMode};
use crate::command;
use crate::env;
use crate::eval_context::EvalContext;
use crate::host_facts::FileAccess;
use crate::judgement::{JudgementPart, PartKind};
use crate::paths::{PathIntent, check_place, is_plain_absolute, judge_path};
use crate::refusal_ext::{RefusalExt as _, refuse};

/// The command, with everything it would run in turn.
pub(super) fn judge_exec(scene: &EvalContext<'_>, exec: &ExecCall) -> Result<Vec<JudgementPart>, Refusal> {
    check_exec(scene.policy, exec, scene.permissions)?;
    if scene.policy.commands == CommandMode::Contained && scene.policy.rules.commands.is_empty() {
        return Ok(vec![contained(scene.policy, exec)]);
    }
    Ok(command::judge_exec(scene, exec))
}

/// What must hold before the command itself is looked at.
fn check_exec(policy: &Policy, exec: &ExecCall, permissions: &CallPermissions) -> Result<(), Refusal> {
    if policy.profile == Profile::Review {
        return Err(refuse(RefusalCode::Profile, RuleId::ProfileReview, "profile `review` runs no commands")
            .hint("use `--profile workspace` to run commands inside the fence"));
    }
    check_argv(&exec.argv)?;
    check_asked_net(policy, exec.net)?;
    check_cwd(permissions, &exec.cwd)?;
    env::check_additions(&exec.env, &policy.rules.env)
}

fn contained(policy: &Policy, exec: &ExecCall) -> JudgementPart {
    let program = exec.argv.first().map(ByteString::display).unwrap_or_default();
    JudgementPart::new(PartKind::Command, program, RuleId::of_profile(policy.profile))
        .because("whatever stays inside the fence may run")
}

fn check_argv(argv: &[ByteString]) -> Result<(), Refusal> {
    let Some(program) = argv.first().filter(|program| !program.as_slice().is_empty()) else {
        return Err(malformed(RuleId::ExecArgv, "the command is empty"));
    };
    if argv.iter().any(|arg| arg.as_slice().contains(&0)) {
        let message = format!("an argument of `{}` contains a NUL byte", program.display());
        return Err(malformed(RuleId::ExecArgv, message));
    }
    Ok(())
}

/// A call that asks for more network than its session has is refused, not clamped (C-11).
fn check_asked_net(policy: &Policy, asked: NetMode) -> Result<(), Refusal> {
    if asked > policy.net {
        let message = format!("network mode `{asked}` is above the ceiling `{}` of this session", policy.net);
        return Err(refuse(RefusalCode::Network, RuleId::NetCeiling, message)
            .hint(format!("start with `--net {asked}` if the command needs it")));
    }
    Ok(())
}

fn check_cwd(permissions: &CallPermissions, cwd: &ByteString) -> Result<(), Refusal> {
    if !is_plain_absolute(cwd.as_path()) {
        let message = format!("the working directory `{}` is not an absolute canonical path", cwd.display());
        return Err(malformed(RuleId::ExecCwd, message));
    }
    if is_home_of_closed(permissions, cwd.as_path()) {
        return Ok(());
    }
    check_place(permissions, cwd.as_path(), Access::Read).map(|_| ())
}

/// The home is inside whatever else is not.
fn is_home_of_closed(permissions: &CallPermissions, cwd: &Path) -> bool {
    let closed = permissions.roots.first().is_some_and(|workspace| workspace.access == Access::None);
    closed && permissions.view == FilesystemView::Constructed && cwd == Path::new(HOME_INSIDE)
}

pub(super) fn judge_file(scene: &EvalContext<'_>, file: &FileCall) -> Result<Vec<JudgementPart>, Refusal> {
    let intent = PathIntent::of(file);
    if scene.policy.profile == Profile::Review && intent.changes() {
        return Err(refuse(RefusalCode::Profile, RuleId::ProfileReview, "profile `review` writes nothing")
            .hint(
                "hand the change in with `ringfence proposal create`, or use `--profile workspace` to write",
            ));
    }
    let (path, mut parts) = judge_named(scene, file, intent)?;
    let mut places = vec![(path, intent)];
    if let FileCall::Move { to, .. } = file {
        let arriving = FileCall::Write { path: to.clone(), sha256: String::new(), bytes: 0 };
        let (path, judged) = judge_named(scene, &arriving, PathIntent::Write)?;
        parts.extend(judged);
        places.push((path, PathIntent::Write));
    }
    if all_open(&parts) {
        let touches: Vec<FileAccess<'_>> =
            places.iter().filter_map(|(path, intent)| touch(scene, path, *intent)).collect();
        let refused = scene.facts.obstacles(&touches);
        parts.extend(refused.iter().map(|(path, refusal)| in_the_way(path, intent, refusal)));
    }
    Ok(parts)
}

/// By name, and by where it leads.
fn judge_named(
    scene: &EvalContext<'_>,
    file: &FileCall,
    intent: PathIntent,
) -> Result<(PathBuf, Vec<JudgementPart>), Refusal> {
    let path = absolute(scene.permissions, file.path())?;
    let mut parts = vec![judge_path(scene, &path, intent)];
    // By name and by where it leads; the kernel follows links once more when the file is opened.
    let real = led_to(scene, file, &path);
    if real != path {
        parts.push(judge_path(scene, &real, intent));
    }
    if let FileCall::Symlink { target, .. } = file {
        parts.push(judge_link_target(scene, &path, target)?);
    }
    Ok((path, parts))
}

/// Every file of a patch is written; the strictest decides about the whole.
pub(super) fn judge_patch(scene: &EvalContext<'_>, patch: &Patch) -> Result<Vec<JudgementPart>, Refusal> {
    if scene.policy.profile == Profile::Review {
        return Err(refuse(RefusalCode::Profile, RuleId::ProfileReview, "profile `review` applies nothing")
            .hint("apply it with a profile that may write: `--profile workspace`"));
    }
    let mut parts = Vec::new();
    let mut open = Vec::new();
    for file in &patch.files {
        let sha256 = file.result.clone().unwrap_or_default();
        let write = FileCall::Write { path: file.path.clone(), sha256, bytes: file.bytes };
        let (path, judged) = judge_named(scene, &write, PathIntent::Write)?;
        open.extend(all_open(&judged).then_some(path));
        parts.extend(judged);
        parts.extend(file.secrets.iter().map(|secret| judge_secret(file, secret)));
    }
    // One look at the machine for all of them.
    let touches: Vec<FileAccess<'_>> =
        open.iter().filter_map(|path| touch(scene, path, PathIntent::Write)).collect();
    for (path, refusal) in scene.facts.obstacles(&touches) {
        parts.push(in_the_way(path, PathIntent::Write, &refusal));
    }
    Ok(parts)
}

/// What looks like a secret gets into a file only where a person has seen that it does (C-15).
fn judge_secret(file: &PatchedFile, secret: &IntroducedSecret) -> JudgementPart {
    JudgementPart::new(
        PartKind::Write,
        format!("{}:{}", file.path.display(), secret.line),
        RuleId::SecretsIntroduced,
    )
    .because(format!(
        "it brings in what looks like a secret ({})",
        ByteString::from(secret.rule.as_str()).display()
    ))
    .ask(Risk::High, "take the secret out and propose it again, or let a person approve it")
}

/// Where the path leads. A link that is about to be made does not lead anywhere yet, and one that is taken away stands for
/// itself; the directory it is in leads somewhere.
fn led_to(scene: &EvalContext<'_>, file: &FileCall, path: &Path) -> PathBuf {
    match (file, path.parent(), path.file_name()) {
        (
            FileCall::Symlink { .. } | FileCall::Move { .. } | FileCall::Remove { .. },
            Some(parent),
            Some(name),
        ) => scene.facts.real_path(parent).join(name),
        _ => scene.facts.real_path(path),
    }
}

fn all_open(parts: &[JudgementPart]) -> bool {
    parts.iter().all(|part| part.decision == Decision::Allow)
}

/// What only the machine knows is asked last, because it costs a look at the whole workspace.
fn touch<'s>(scene: &EvalContext<'s>, path: &'s Path, intent: PathIntent) -> Option<FileAccess<'s>> {
    let (roots, rules) = (&scene.permissions.roots, &scene.policy.rules.paths);
    let enforced = scene.permissions.rules == WorkspaceRuleMode::Enforced;
    enforced.then_some(FileAccess { roots, rules, path, intent })
}

fn in_the_way(path: &Path, intent: PathIntent, refusal: &Refusal) -> JudgementPart {
    let aspect = if intent.changes() { PartKind::Write } else { PartKind::Read };
    let part = JudgementPart::refused(aspect, ByteString::from(path).display(), refusal);
    JudgementPart { path: Some(ByteString::from(path)), ..part }
}

/// Relative paths are relative to the workspace (C-7). `..` is refused rather than resolved: what it means depends on
/// links that only the kernel can follow.
fn absolute(permissions: &CallPermissions, path: &ByteString) -> Result<PathBuf, Refusal> {
    let given = path.as_path();
    let workspace = permissions.roots.first().map(|root| root.path.as_path());
    let joined = workspace.unwrap_or(Path::new("/")).join(given);
    if path.as_slice().is_empty() || !is_plain_absolute(&joined) {
        let message = format!("`{}` is empty, or contains `..` or a NUL byte", path.display());
        return Err(refuse(RefusalCode::Path, RuleId::PathForm, message)
            .hint("name the file relative to the workspace, without `..`"));
    }
    Ok(joined)
}

/// A link may lead only to where a path may lead (S000-15).
fn judge_link_target(
    scene: &EvalContext<'_>,
    link: &Path,
    target: &ByteString,
) -> Result<JudgementPart, Refusal> {
    let folded = link.parent().and_then(|parent| fold(&parent.join(target.as_path())));
    match folded {
        Some(to) if !target.as_slice().is_empty() => Ok(judge_path(scene, &to, PathIntent::Read)),
        _ => Err(refuse(
            RefusalCode::Path,
            RuleId::PathLinkTarget,
            format!("link target `{}` is not a path", target.display()),
        )),
    }
}

/// Folds `.` and `..` by name. Good enough to refuse a link whose text leaves the roots; where a path really leads
/// is judged by the code that opens it.
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

fn malformed(rule: RuleId, message: impl Into<String>) -> Refusal {
    refuse(RefusalCode::Malformed, rule, message)
}
