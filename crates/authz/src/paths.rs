//! One path against the roots, the protected names and the rules about files.

use std::path::{Component, Path};

use ringfence_types::{Access, Bytes, Decision, FileCall, PathVerdict, Refusal, RefusalCode, Risk, Root};

use crate::decide::{Permissions, View, WorkspaceRules, sensitive_refusal};
use crate::judgement::{Aspect, Part};
use crate::path_rules::Ruling;
use crate::protected;
use crate::refuse::{Refuse as _, refuse};
use crate::scene::Scene;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    Read,
    List,
    Write,
}

impl Intent {
    pub(crate) fn of(file: &FileCall) -> Self {
        match file {
            FileCall::Read { .. } => Self::Read,
            FileCall::List { .. } => Self::List,
            FileCall::Write { .. } | FileCall::Symlink { .. } => Self::Write,
        }
    }
}

/// Judges an absolute path by its name. Where it leads when links are followed is judged by the caller, or by whoever
/// opens it.
pub(crate) fn judge_path(scene: &Scene<'_>, path: &Path, intent: Intent) -> Part {
    let aspect = if intent == Intent::Write { Aspect::Write } else { Aspect::Read };
    let subject = Bytes::from(path).display();
    let needed = if intent == Intent::Write { Access::Write } else { Access::Read };
    let relative = match check_place(scene.permissions, path, needed) {
        Ok(relative) => relative,
        Err(refusal) => return Part::refused(aspect, subject, &refusal),
    };
    let open = Part::new(aspect, subject, "path.open").because("an ordinary path inside the roots");
    let Some(relative) = relative else { return open };
    if scene.permissions.rules == WorkspaceRules::Waived {
        return open;
    }
    if intent == Intent::Write
        && let Err(refusal) = check_protected(relative)
    {
        return Part::refused(aspect, open.subject, &refusal);
    }
    // A directory may have any name: rules are about files.
    if intent == Intent::List { open } else { check_visible(scene, relative, open) }
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
    let Some(reason) = protected::is_protected(relative) else { return Ok(()) };
    let message = format!("`{}` is protected: {reason}", Bytes::from(relative).display());
    Err(refuse(RefusalCode::Path, "path.protected", message).hint("edit it outside Ringfence"))
}

fn check_visible(scene: &Scene<'_>, relative: &Path, open: Part) -> Part {
    let ruling = scene.policy.rules.paths.reading(relative);
    match ruling {
        Ruling::Open => open,
        // Whether the content is public is for whoever opens the file to see.
        Ruling::BuiltIn(rule) if rule.verdict == PathVerdict::HiddenUnlessPublic => open,
        Ruling::BuiltIn(rule) => {
            let part =
                Part { rule: rule.name.into(), ..open }.because(format!("it is hidden: {}", rule.reason));
            let fix = "names that end in `.example`, `.sample` or `.template` are open";
            decided(part, rule.decision, fix)
        }
        Ruling::File(rule) => {
            let part =
                Part { rule: "path.rule".into(), ..open }.because("a rule about files").by(&rule.source);
            decided(part, rule.decision, "change the rule in the policy file")
        }
    }
}

fn decided(part: Part, decision: Decision, fix: &'static str) -> Part {
    match decision {
        Decision::Allow => part,
        Decision::Ask => part.ask(Risk::High, fix),
        Decision::Deny => part.deny(Risk::High, fix),
    }
}

pub(crate) fn is_plain_absolute(path: &Path) -> bool {
    let plain = |component| matches!(component, Component::RootDir | Component::Normal(_));
    path.is_absolute() && path.components().all(plain) && !path.as_os_str().as_encoded_bytes().contains(&0)
}
