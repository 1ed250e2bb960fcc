//! One path against the roots, the protected names and the rules about files.

use std::path::{Component, Path};

use ringfence_types::{
    Access, ByteString, Decision, FileCall, PathDecision, Refusal, RefusalCode, Risk, Root, RuleId,
};

use crate::decide::{CallPermissions, FilesystemView, WorkspaceRuleMode, sensitive_refusal};
use crate::eval_context::EvalContext;
use crate::host_facts::PathKind;
use crate::judgement::{JudgementPart, PartKind};
use crate::path_rules::{BuiltInRule, PathRule, PathRuling, SteeringPolicy};
use crate::protected_names;
use crate::refusal_ext::{RefusalExt as _, refuse};

/// What is to be done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathIntent {
    Read,
    List,
    Write,
    /// To see that it is there and how large it is.
    Look,
    /// To take it away from where it is.
    Remove,
}

impl PathIntent {
    /// Whether something is not afterwards what it was before.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Remove)
    }

    pub(crate) fn of(file: &FileCall) -> Self {
        match file {
            FileCall::Read { .. } | FileCall::Send { .. } => Self::Read,
            FileCall::List { .. } => Self::List,
            FileCall::Write { .. } | FileCall::Symlink { .. } => Self::Write,
            FileCall::Stat { .. } => Self::Look,
            FileCall::Move { .. } | FileCall::Remove { .. } => Self::Remove,
        }
    }
}

/// Judges an absolute path by its name. Where it leads when links are followed is judged by the caller, or by the
/// code that opens it.
pub(crate) fn judge_path(scene: &EvalContext<'_>, path: &Path, intent: PathIntent) -> JudgementPart {
    JudgementPart { path: Some(ByteString::from(path)), ..judge_name(scene, path, intent) }
}

fn judge_name(scene: &EvalContext<'_>, path: &Path, intent: PathIntent) -> JudgementPart {
    let (aspect, needed) = match intent {
        PathIntent::Read | PathIntent::List | PathIntent::Look => (PartKind::Read, Access::Read),
        PathIntent::Write | PathIntent::Remove => (PartKind::Write, Access::Write),
    };
    let subject = ByteString::from(path).display();
    let relative = match check_place(scene.permissions, path, needed) {
        Ok(relative) => relative,
        Err(refusal) => return JudgementPart::refused(aspect, subject, &refusal),
    };
    let open =
        JudgementPart::new(aspect, subject, RuleId::PathOpen).because("an ordinary path inside the roots");
    let Some(relative) = relative else { return open };
    if scene.permissions.rules == WorkspaceRuleMode::Waived {
        return open;
    }
    if intent.changes()
        && let Err(refusal) = check_protected(relative)
    {
        return JudgementPart::refused(aspect, open.subject, &refusal);
    }
    match ruling(scene, path, relative, intent) {
        PathRuling::Open if intent == PathIntent::Read && is_closed_repository_config(scene, relative) => {
            JudgementPart { rule: RuleId::PathGitConfig.into(), ..open }
                .because("the configuration of a repository may hold tokens")
                .deny(Risk::High, "ask its program for what is needed: `git remote`, `git config --get NAME`")
        }
        PathRuling::Open => open,
        PathRuling::BuiltIn(rule)
            if rule.verdict == PathDecision::HiddenUnlessPublic && shows(scene, path) =>
        {
            open
        }
        PathRuling::BuiltIn(rule) => by_built_in(open, rule),
        PathRuling::File(rule) => by_file(open, rule),
    }
}

/// The path relative to its root, or `None` where the whole machine is open and no root holds it.
pub(crate) fn check_place<'a>(
    permissions: &CallPermissions,
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
        None if permissions.view == FilesystemView::WholeMachine => Ok(None),
        None => {
            let message = format!("`{}` is outside the workspace", ByteString::from(path).display());
            Err(refuse(RefusalCode::Path, RuleId::PathBoundary, message)
                .hint("stay inside the workspace, or declare another root at startup"))
        }
    }
}

fn no_access(path: &Path, root: &Root, needed: Access) -> Refusal {
    let message = format!(
        "`{}` is under root `{}`, which gives access `{}`, not `{needed}`",
        ByteString::from(path).display(),
        root.path.display(),
        root.access
    );
    refuse(RefusalCode::Path, RuleId::PathAccess, message)
}

fn check_protected(relative: &Path) -> Result<(), Refusal> {
    if let Some(reason) = protected_names::is_protected(relative) {
        let message = format!("`{}` is protected: {reason}", ByteString::from(relative).display());
        return Err(
            refuse(RefusalCode::Path, RuleId::PathProtected, message).hint("edit it outside Ringfence")
        );
    }
    if is_in_git_dir(relative) {
        let message = format!(
            "`{}` is in a git directory, which git alone writes",
            ByteString::from(relative).display()
        );
        return Err(refuse(RefusalCode::Path, RuleId::PathGitDir, message).hint("use a git command"));
    }
    Ok(())
}

/// At any depth: a `HEAD` and a `config` make a repository that git on the host obeys. A git command inside
/// still writes there; the fence holds what would make the host execute something.
fn is_in_git_dir(relative: &Path) -> bool {
    relative.components().any(|component| component.as_os_str().eq_ignore_ascii_case(".git"))
}

fn ruling<'s>(scene: &EvalContext<'s>, path: &Path, relative: &Path, intent: PathIntent) -> PathRuling<'s> {
    let rules = &scene.policy.rules.paths;
    let by_name = match intent {
        PathIntent::Read => rules.reading(relative),
        // A directory may have any name: built-in rules are about files.
        PathIntent::List => return rules.listing(relative),
        PathIntent::Look if scene.facts.kind(path) == PathKind::Directory => return rules.listing(relative),
        PathIntent::Look => rules.reading(relative),
        PathIntent::Write | PathIntent::Remove => {
            rules.writing(relative, SteeringPolicy::of(scene.policy.profile))
        }
    };
    // A root that is itself called `.ssh` or `.kube` holds what such a directory holds.
    let root = path.ancestors().nth(relative.components().count()).and_then(Path::file_name);
    match root.filter(|name| name.as_encoded_bytes().starts_with(b".")) {
        Some(name) => by_name.stricter(rules.reading(&Path::new(name).join(relative))),
        None => by_name,
    }
}

/// On the deny list of document 000 (S000-17). git itself reads it, and the fence shows it without credentials; where
/// commands are listed, no other program needs to. The same for the other systems, whose files the fence shows as they are.
fn is_closed_repository_config(scene: &EvalContext<'_>, relative: &Path) -> bool {
    const FILES: [(&str, &str); 5] =
        [(".git", "config"), (".hg", "hgrc"), (".hg", "hgrc-not-shared"), (".sl", "config"), (".sl", "hgrc")];
    let is = |component: Option<Component<'_>>, name: &str| {
        component.is_some_and(|component| component.as_os_str().eq_ignore_ascii_case(name))
    };
    let mut from_the_end = relative.components().rev();
    let (name, directory) = (from_the_end.next(), from_the_end.next());
    SteeringPolicy::of(scene.policy.profile) == SteeringPolicy::Asked
        && FILES.iter().any(|(around, file)| is(name, file) && is(directory, around))
}

/// Whether a file that may hold a private key holds none. What does not exist holds none yet.
fn shows(scene: &EvalContext<'_>, path: &Path) -> bool {
    scene.facts.kind(path) == PathKind::Missing || scene.facts.is_public(path)
}

fn by_built_in(open: JudgementPart, rule: &'static BuiltInRule) -> JudgementPart {
    let part = JudgementPart { rule: rule.name.into(), ..open };
    let part = match rule.verdict {
        PathDecision::Open => part.because(rule.reason),
        PathDecision::Hidden | PathDecision::HiddenUnlessPublic => {
            part.because(format!("it is hidden: {}", rule.reason))
        }
    };
    match rule.decision {
        Decision::Allow => part,
        Decision::Ask => part.ask(rule.risk, APPROVE),
        Decision::Deny => part.deny(rule.risk, OPEN),
    }
}

const APPROVE: &str = "a person may approve it, or an `allow` rule for it in the operator's policy file";
const OPEN: &str = "an `allow` rule for it in the operator's policy file opens it; names that end in `.example`, \
                    `.sample` or `.template` are open";

fn by_file(open: JudgementPart, rule: &PathRule) -> JudgementPart {
    let part = JudgementPart { rule: RuleId::PathRule.into(), ..open };
    match rule.decision {
        Decision::Allow => part.because("a rule about files allows it"),
        Decision::Ask => part
            .because("a rule about files asks about it")
            .ask(Risk::Medium, "a person may approve it, or change the rule"),
        Decision::Deny => part
            .because("a rule about files denies it")
            .deny(Risk::High, "change the rule in that policy file"),
    }
    .by(&rule.source)
}

pub(crate) fn is_plain_absolute(path: &Path) -> bool {
    let plain = |component| matches!(component, Component::RootDir | Component::Normal(_));
    path.is_absolute() && path.components().all(plain) && !path.as_os_str().as_encoded_bytes().contains(&0)
}
