//! One path against the roots, the protected names and the rules about files.

use std::path::{Component, Path};

use ringfence_types::{Access, Bytes, Decision, FileCall, PathVerdict, Refusal, RefusalCode, Risk, Root};

use crate::decide::{Permissions, View, WorkspaceRules, sensitive_refusal};
use crate::facts::PathKind;
use crate::judgement::{Aspect, Part};
use crate::path_rules::{BuiltInRule, PathRule, Ruling, Steering};
use crate::protected;
use crate::refuse::{Refuse as _, refuse};
use crate::scene::Scene;

/// What is to be done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Read,
    List,
    Write,
    /// To see that it is there and how large it is.
    Look,
    /// To take it away from where it is.
    Remove,
}

impl Intent {
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

/// Judges an absolute path by its name. Where it leads when links are followed is judged by the caller, or by whoever
/// opens it.
pub(crate) fn judge_path(scene: &Scene<'_>, path: &Path, intent: Intent) -> Part {
    Part { path: Some(Bytes::from(path)), ..judge_name(scene, path, intent) }
}

fn judge_name(scene: &Scene<'_>, path: &Path, intent: Intent) -> Part {
    let (aspect, needed) = match intent {
        Intent::Read | Intent::List | Intent::Look => (Aspect::Read, Access::Read),
        Intent::Write | Intent::Remove => (Aspect::Write, Access::Write),
    };
    let subject = Bytes::from(path).display();
    let relative = match check_place(scene.permissions, path, needed) {
        Ok(relative) => relative,
        Err(refusal) => return Part::refused(aspect, subject, &refusal),
    };
    let open = Part::new(aspect, subject, "path.open").because("an ordinary path inside the roots");
    let Some(relative) = relative else { return open };
    if scene.permissions.rules == WorkspaceRules::Waived {
        return open;
    }
    if intent.changes()
        && let Err(refusal) = check_protected(relative)
    {
        return Part::refused(aspect, open.subject, &refusal);
    }
    match ruling(scene, path, relative, intent) {
        Ruling::Open if intent == Intent::Read && is_closed_git_config(scene, relative) => {
            Part { rule: "path.git-config".into(), ..open }
                .because("the configuration of a repository may hold tokens")
                .deny(Risk::High, "ask git for what is needed: `git remote`, `git config --get NAME`")
        }
        Ruling::Open => open,
        Ruling::BuiltIn(rule) if rule.verdict == PathVerdict::HiddenUnlessPublic && shows(scene, path) => {
            open
        }
        Ruling::BuiltIn(rule) => by_built_in(open, rule),
        Ruling::File(rule) => by_file(open, rule),
    }
}

/// The path relative to its root, or `None` where the whole machine is open and no root holds it.
pub(crate) fn check_place<'a>(
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
    if let Some(reason) = protected::is_protected(relative) {
        let message = format!("`{}` is protected: {reason}", Bytes::from(relative).display());
        return Err(refuse(RefusalCode::Path, "path.protected", message).hint("edit it outside Ringfence"));
    }
    if is_in_git_dir(relative) {
        let message =
            format!("`{}` is in a git directory, which git alone writes", Bytes::from(relative).display());
        return Err(refuse(RefusalCode::Path, "path.git-dir", message).hint("use a git command"));
    }
    Ok(())
}

/// At any depth: a `HEAD` and a `config` make a repository that git on the host obeys. A git command inside
/// still writes there; the fence holds what would make the host execute something.
fn is_in_git_dir(relative: &Path) -> bool {
    relative.components().any(|component| component.as_os_str().eq_ignore_ascii_case(".git"))
}

fn ruling<'s>(scene: &Scene<'s>, path: &Path, relative: &Path, intent: Intent) -> Ruling<'s> {
    let rules = &scene.policy.rules.paths;
    let by_name = match intent {
        Intent::Read => rules.reading(relative),
        // A directory may have any name: built-in rules are about files.
        Intent::List => return rules.listing(relative),
        Intent::Look if scene.facts.kind(path) == PathKind::Directory => return rules.listing(relative),
        Intent::Look => rules.reading(relative),
        Intent::Write | Intent::Remove => rules.writing(relative, Steering::of(scene.policy.profile)),
    };
    // A root that is itself called `.ssh` or `.kube` holds what such a directory holds.
    let root = path.ancestors().nth(relative.components().count()).and_then(Path::file_name);
    match root.filter(|name| name.as_encoded_bytes().starts_with(b".")) {
        Some(name) => by_name.stricter(rules.reading(&Path::new(name).join(relative))),
        None => by_name,
    }
}

/// On the deny list of document 000 (S000-17). git itself reads it, and the fence shows it without credentials; where
/// commands are listed, nobody else needs to.
fn is_closed_git_config(scene: &Scene<'_>, relative: &Path) -> bool {
    let is = |component: Option<Component<'_>>, name: &str| {
        component.is_some_and(|component| component.as_os_str().eq_ignore_ascii_case(name))
    };
    let mut from_the_end = relative.components().rev();
    Steering::of(scene.policy.profile) == Steering::Asked
        && is(from_the_end.next(), "config")
        && is(from_the_end.next(), ".git")
}

/// Whether a file that may hold a private key holds none. What does not exist holds none yet.
fn shows(scene: &Scene<'_>, path: &Path) -> bool {
    scene.facts.kind(path) == PathKind::Missing || scene.facts.is_public(path)
}

fn by_built_in(open: Part, rule: &'static BuiltInRule) -> Part {
    let part = Part { rule: rule.name.into(), ..open };
    let part = match rule.verdict {
        PathVerdict::Open => part.because(rule.reason),
        PathVerdict::Hidden | PathVerdict::HiddenUnlessPublic => {
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

fn by_file(open: Part, rule: &PathRule) -> Part {
    let part = Part { rule: "path.rule".into(), ..open };
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
