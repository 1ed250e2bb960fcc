//! Changes of a layer against what its roots may take.
//!
//! In the view of its layer a command may write what the host executes or obeys. Here a person decides whether it arrives.

use std::path::Path;

use ringfence_types::{
    Access, ByteString, Decision, EntryKind, IntroducedSecret, LandedEntry, Landing, LandingAction,
    PathDecision, Profile, Refusal, RefusalCode, Risk, RuleId,
};

use super::WorkspaceRuleMode;
use crate::eval_context::EvalContext;
use crate::host_facts::{FileAccess, PathKind};
use crate::judgement::{JudgementPart, PartKind};
use crate::path_rules::{BuiltInRule, PathRule, PathRuling, SteeringPolicy};
use crate::paths::{PathIntent, check_place, is_plain_absolute};
use crate::protected_names;
use crate::refusal_ext::{RefusalExt as _, refuse};

const LEAVE_OUT: &str =
    "say yes to it, or leave it out: `ringfence commit ID --except PATH`; `ringfence changes ID --patch` shows it";

/// Every path is judged; the strictest decides about the whole.
pub(super) fn judge_landing(
    scene: &EvalContext<'_>,
    landing: &Landing,
) -> Result<Vec<JudgementPart>, Refusal> {
    check_landing(scene, landing)?;
    let mut parts = Vec::with_capacity(landing.entries.len());
    for entry in &landing.entries {
        parts.push(judge_entry(scene, entry)?);
        if landing.action == LandingAction::Commit {
            parts.extend(entry.secrets.iter().map(|secret| judge_secret(entry, secret)));
        }
    }
    held_by_the_machine(scene, landing, &mut parts);
    Ok(parts)
}

fn check_landing(scene: &EvalContext<'_>, landing: &Landing) -> Result<(), Refusal> {
    if scene.policy.profile == Profile::Review {
        let message = "profile `review` lands nothing";
        return Err(refuse(RefusalCode::Profile, RuleId::ProfileReview, message)
            .hint("use a profile that may write: `--profile workspace`"));
    }
    if landing.entries.is_empty() {
        return Err(refuse(RefusalCode::Malformed, RuleId::LandingNothing, "no change was chosen")
            .hint("`ringfence changes ID` lists the changes of the layer"));
    }
    if landing.entries.len() > Landing::MOST {
        let message =
            format!("{} changes at once; the most is {}", landing.entries.len(), Landing::MOST);
        return Err(refuse(RefusalCode::Path, RuleId::LandingTooMany, message)
            .hint("name directories, one landing after the other: `ringfence commit ID DIR`"));
    }
    Ok(())
}

fn judge_entry(scene: &EvalContext<'_>, entry: &LandedEntry) -> Result<JudgementPart, Refusal> {
    let path = entry.path.as_path();
    if !is_plain_absolute(path) {
        let message = format!("`{}` is not an absolute canonical path", entry.path.display());
        return Err(refuse(RefusalCode::Path, RuleId::PathForm, message));
    }
    let open = JudgementPart::new(PartKind::Write, entry.path.display(), RuleId::PathOpen)
        .because("an ordinary path inside the roots");
    let open = JudgementPart { path: Some(entry.path.clone()), ..open };
    let relative = match check_place(scene.permissions, path, Access::Write) {
        Ok(relative) => relative,
        Err(refusal) => return Ok(refused(open, &refusal)),
    };
    let (Some(relative), WorkspaceRuleMode::Enforced) = (relative, scene.permissions.rules) else {
        return Ok(open);
    };
    if let Some(reason) = protection(entry, relative) {
        return Ok(protected(open, reason.to_owned()));
    }
    Ok(match ruling(scene, entry, relative) {
        PathRuling::Open => open,
        PathRuling::BuiltIn(rule) if is_public(scene, entry, rule) => open,
        PathRuling::BuiltIn(rule) => by_built_in(open, rule),
        PathRuling::File(rule) => by_file(open, rule),
    })
}

/// Why a program of the host would execute or obey what arrives.
fn protection(entry: &LandedEntry, relative: &Path) -> Option<&'static str> {
    // A repository that is there stays one; only the bits or times of its directory change.
    if is_same_directory(entry) && is_git(relative) {
        return None;
    }
    protected_names::is_protected(relative).or_else(|| {
        // A directory that git takes for a repository has the same names in it, whatever it is called.
        let inside = entry.path.as_path().strip_prefix(entry.repository.as_ref()?.as_path()).ok()?;
        protected_names::is_protected(&Path::new(".git").join(inside))
    })
}

fn is_same_directory(entry: &LandedEntry) -> bool {
    let states = [&entry.before, &entry.after];
    states.iter().all(|state| state.as_ref().is_some_and(|state| state.kind == EntryKind::Directory))
}

fn is_git(relative: &Path) -> bool {
    relative.file_name().is_some_and(|name| name.eq_ignore_ascii_case(".git"))
}

fn ruling<'s>(scene: &EvalContext<'s>, entry: &LandedEntry, relative: &Path) -> PathRuling<'s> {
    let rules = &scene.policy.rules.paths;
    let states = [&entry.before, &entry.after];
    // A directory may have any name: built-in rules are about files.
    if states.iter().all(|state| state.as_ref().is_none_or(|state| state.kind == EntryKind::Directory)) {
        return rules.listing(relative);
    }
    rules.writing(relative, SteeringPolicy::of(scene.policy.profile))
}

/// A file that may hold a private key and holds none. Of what is new nobody has looked yet.
fn is_public(scene: &EvalContext<'_>, entry: &LandedEntry, rule: &BuiltInRule) -> bool {
    rule.verdict == PathDecision::HiddenUnlessPublic
        && entry.after.is_none()
        && scene.facts.kind(entry.path.as_path()) == PathKind::File
        && scene.facts.is_public(entry.path.as_path())
}

fn by_built_in(open: JudgementPart, rule: &'static BuiltInRule) -> JudgementPart {
    match rule.decision {
        Decision::Allow => JudgementPart { rule: rule.name.into(), ..open }.because(rule.reason),
        Decision::Ask => {
            JudgementPart { rule: rule.name.into(), ..open }.because(rule.reason).ask(rule.risk, LEAVE_OUT)
        }
        Decision::Deny => JudgementPart { rule: RuleId::LandingHidden.into(), ..open }
            .because(format!("its name is that of a hidden file: {}", rule.reason))
            .ask(Risk::High, LEAVE_OUT),
    }
}

/// A rule of the operator says what it says, here too.
fn by_file(open: JudgementPart, rule: &PathRule) -> JudgementPart {
    let part = JudgementPart { rule: RuleId::PathRule.into(), ..open };
    match rule.decision {
        Decision::Allow => part.because("a rule about files allows it"),
        Decision::Ask => part.because("a rule about files asks about it").ask(Risk::Medium, LEAVE_OUT),
        Decision::Deny => part
            .because("a rule about files denies it")
            .deny(Risk::High, "leave it out: `ringfence commit ID --except PATH`, or change the rule in that policy file"),
    }
    .by(&rule.source)
}

fn protected(open: JudgementPart, reason: String) -> JudgementPart {
    JudgementPart { rule: RuleId::LandingProtected.into(), ..open }
        .because(format!("it is protected: {reason}"))
        .ask(Risk::High, LEAVE_OUT)
}

fn refused(open: JudgementPart, refusal: &Refusal) -> JudgementPart {
    let part = JudgementPart::refused(PartKind::Write, open.subject, refusal);
    JudgementPart { path: open.path, ..part }
}

/// What no name tells: git's configuration sends it there for hooks, another name of the file is hidden …
fn held_by_the_machine(scene: &EvalContext<'_>, landing: &Landing, parts: &mut [JudgementPart]) {
    if scene.permissions.rules != WorkspaceRuleMode::Enforced
        || parts.iter().any(|part| part.decision == Decision::Deny)
    {
        return;
    }
    let (roots, rules) = (&scene.permissions.roots, &scene.policy.rules.paths);
    let files = landing.entries.iter().filter(|entry| {
        let mut states = [&entry.before, &entry.after].into_iter().flatten();
        states.all(|state| state.kind != EntryKind::Directory)
    });
    let accesses: Vec<FileAccess<'_>> = files
        .map(|entry| FileAccess { roots, rules, path: entry.path.as_path(), intent: PathIntent::Write })
        .collect();
    for (path, refusal) in scene.facts.obstacles(&accesses) {
        // What is a link or not regular is exchanged as it is, and never followed.
        let counts = [RuleId::PathProtected, RuleId::PathHidden, RuleId::PathSurvey];
        if !counts.iter().any(|rule| refusal.rule == *rule) {
            continue;
        }
        let is_it = |part: &&mut JudgementPart| {
            part.decision == Decision::Allow && part.path.as_ref().is_some_and(|it| it.as_path() == path)
        };
        for part in parts.iter_mut().filter(is_it) {
            let open = part.clone();
            *part = match refusal.rule.id() {
                Some(RuleId::PathProtected) => protected(open, refusal.message.clone()),
                Some(RuleId::PathHidden) => JudgementPart { rule: RuleId::LandingHidden.into(), ..open }
                    .because(refusal.message.clone())
                    .ask(Risk::High, LEAVE_OUT),
                _ => refused(open, &refusal),
            };
        }
    }
}

fn judge_secret(entry: &LandedEntry, secret: &IntroducedSecret) -> JudgementPart {
    let place = format!("{}:{}", entry.path.display(), secret.line);
    let rule = ByteString::from(secret.rule.as_str()).display();
    JudgementPart::new(PartKind::Write, place, RuleId::SecretsIntroduced)
        .because(format!("it brings in what looks like a secret ({rule})"))
        .ask(Risk::High, "leave the file out with `--except PATH`, or let a person approve it")
}
