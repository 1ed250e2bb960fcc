//! Changes of a layer against what its roots may take.
//!
//! In the view of its layer a command may write what the host executes or obeys. Here a person decides whether it arrives.

use std::borrow::Cow;
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

const LEAVE_OUT: &str = "say yes to it, or leave it out: `ringfence commit ID --except PATH`; `ringfence changes ID --patch` shows it";

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
        let message = format!("{} changes at once; the most is {}", landing.entries.len(), Landing::MOST);
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
    let named = with_root(path, relative);
    if let Some(reason) = protection(entry, &named) {
        return Ok(protected(open, reason.to_owned()));
    }
    Ok(match ruling(scene, entry, relative, &named) {
        PathRuling::Open => open,
        PathRuling::BuiltIn(rule) if is_public(scene, entry, rule) => open,
        PathRuling::BuiltIn(rule) => by_built_in(open, rule),
        PathRuling::File(rule) => by_file(open, rule),
    })
}

/// A root that is itself called `.git` or `.ssh` holds what such a directory holds.
fn with_root<'p>(path: &'p Path, relative: &'p Path) -> Cow<'p, Path> {
    let root = path.ancestors().nth(relative.components().count()).and_then(Path::file_name);
    match root.filter(|name| name.as_encoded_bytes().starts_with(b".")) {
        Some(name) => Cow::Owned(Path::new(name).join(relative)),
        None => Cow::Borrowed(relative),
    }
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

fn ruling<'s>(scene: &EvalContext<'s>, entry: &LandedEntry, relative: &Path, named: &Path) -> PathRuling<'s> {
    let rules = &scene.policy.rules.paths;
    let states = [&entry.before, &entry.after];
    // A directory may have any name: built-in rules are about files.
    if states.iter().all(|state| state.as_ref().is_none_or(|state| state.kind == EntryKind::Directory)) {
        return rules.listing(relative);
    }
    rules.writing(relative, SteeringPolicy::of(scene.policy.profile)).stricter(rules.reading(named))
}

/// A file that may hold a private key and holds none. The facts are about the host, so they say nothing of a content that arrives.
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
        Decision::Deny => part.because("a rule about files denies it").deny(
            Risk::High,
            "leave it out: `ringfence commit ID --except PATH`, or change the rule in that policy file",
        ),
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

#[cfg(test)]
mod tests {
    use ringfence_types::{ApprovalMode, LandedState, Root, TransactionId};

    use crate::decide::{Action, AuthzVerdict, decide};
    use crate::host_facts::FakeHost;
    use crate::policy::Policy;

    use super::*;

    fn state(kind: EntryKind) -> LandedState {
        LandedState { kind, mode: 0o644, sha256: Some("0".repeat(64)), bytes: 1 }
    }

    fn created(path: &str) -> LandedEntry {
        LandedEntry {
            path: ByteString::from(path),
            before: None,
            after: Some(state(EntryKind::File)),
            repository: None,
            secrets: Vec::new(),
        }
    }

    fn landing(entries: Vec<LandedEntry>) -> ringfence_types::Call {
        let layer = TransactionId::parse("tx_000000000000000000000000").unwrap();
        ringfence_types::Call::Land(Landing { layer, action: LandingAction::Commit, entries })
    }

    fn roots() -> Vec<Root> {
        [
            ("/w", Access::Write),
            ("/data", Access::Read),
            ("/w/closed", Access::None),
            ("/main/.git", Access::Write),
        ]
        .map(|(path, access)| Root { path: ByteString::from(path), access })
        .to_vec()
    }

    fn judged(policy: &Policy, entry: LandedEntry) -> (Decision, String) {
        match decide(
            policy,
            Action::new(landing(vec![created("/w/plain"), entry]), roots()),
            &FakeHost::default(),
        ) {
            AuthzVerdict::Allow(grant) => (Decision::Allow, grant.rule().to_string()),
            AuthzVerdict::Ask(question) => {
                (Decision::Ask, question.judgement().decisive().unwrap().rule.to_string())
            }
            AuthzVerdict::Deny(refusal) => (Decision::Deny, refusal.rule.to_string()),
        }
    }

    fn of(path: &str) -> (Decision, String) {
        judged(&Policy::new(Profile::Workspace), created(path))
    }

    fn is(found: (Decision, String), decision: Decision, rule: &str) {
        assert_eq!((found.0, found.1.as_str()), (decision, rule));
    }

    #[test]
    fn ordinary_paths_land_and_protected_and_hidden_ones_are_asked_about() {
        is(of("/w/src/main.rs"), Decision::Allow, "path.open");
        is(of("/w/.git/index"), Decision::Allow, "path.open");
        is(of("/w/.git/objects/ab/cd"), Decision::Allow, "path.open");
        for path in ["/w/.git/hooks/pre-commit", "/w/.git/config", "/w/.claude/settings.json", "/w/sub/.git"]
        {
            is(of(path), Decision::Ask, "landing.protected");
        }
        is(of("/main/.git/hooks/pre-commit"), Decision::Ask, "landing.protected");
        is(of("/w/.env"), Decision::Ask, "landing.hidden");
        is(of("/w/id_rsa"), Decision::Ask, "landing.hidden");
    }

    #[test]
    fn what_is_outside_the_roots_never_lands() {
        is(of("/etc/passwd"), Decision::Deny, "path.boundary");
        is(of("/data/x"), Decision::Deny, "path.access");
        is(of("/w/closed/x"), Decision::Deny, "path.access");
        for path in ["/w/../etc/passwd", "w/x", "/w/x\u{0}"] {
            assert_eq!(of(path).0, Decision::Deny, "{path:?}");
        }
        is(judged(&Policy::new(Profile::Review), created("/w/x")), Decision::Deny, "profile.review");
    }

    /// S001-26: without questions, what would be asked is refused.
    #[test]
    fn where_nobody_is_asked_a_protected_path_is_refused() {
        let never = Policy { approval: ApprovalMode::Never, ..Policy::new(Profile::Workspace) };
        is(judged(&never, created("/w/.git/hooks/x")), Decision::Deny, "landing.protected");
        is(judged(&never, created("/w/x")), Decision::Allow, "path.open");
    }

    #[test]
    fn a_repository_by_any_other_name_has_the_same_names_in_it() {
        let inside =
            |path: &str| LandedEntry { repository: Some(ByteString::from("/w/bare")), ..created(path) };
        let workspace = Policy::new(Profile::Workspace);
        for path in ["/w/bare/hooks/post-update", "/w/bare/config"] {
            is(judged(&workspace, inside(path)), Decision::Ask, "landing.protected");
            is(of(path), Decision::Allow, "path.open");
        }
        is(judged(&workspace, inside("/w/bare/objects/x")), Decision::Allow, "path.open");
    }

    #[test]
    fn a_repository_that_stays_may_get_other_times() {
        let directory = || Some(state(EntryKind::Directory));
        let stays = LandedEntry { before: directory(), after: directory(), ..created("/w/.git") };
        let workspace = Policy::new(Profile::Workspace);
        is(judged(&workspace, stays.clone()), Decision::Allow, "path.open");
        is(
            judged(&workspace, LandedEntry { after: None, ..stays.clone() }),
            Decision::Ask,
            "landing.protected",
        );
        is(judged(&workspace, LandedEntry { before: None, ..stays }), Decision::Ask, "landing.protected");
    }

    /// C-15: a secret that comes in is asked about; one that is taken back is not.
    #[test]
    fn secrets_that_land_are_asked_about() {
        let secrets = vec![IntroducedSecret { rule: "github-token".to_owned(), line: 3 }];
        let entry = LandedEntry { secrets, ..created("/w/a") };
        let workspace = Policy::new(Profile::Workspace);
        is(judged(&workspace, entry.clone()), Decision::Ask, "secrets.introduced");
        let ringfence_types::Call::Land(landing) = landing(vec![entry]) else { panic!("no landing") };
        let undo = ringfence_types::Call::Land(Landing { action: LandingAction::Undo, ..landing });
        let verdict = decide(&workspace, Action::new(undo, roots()), &FakeHost::default());
        assert!(matches!(verdict, AuthzVerdict::Allow(_)));
    }

    #[test]
    fn what_only_the_machine_knows_is_asked_about_too() {
        let table = FakeHost { obstacles: vec!["/w/linked"], ..FakeHost::default() };
        let action = Action::new(landing(vec![created("/w/linked")]), roots());
        let AuthzVerdict::Ask(question) = decide(&Policy::new(Profile::Workspace), action, &table) else {
            panic!("not asked")
        };
        assert_eq!(question.judgement().decisive().unwrap().rule, "landing.hidden");
        assert!(question.candidates().is_empty(), "asked each time");
    }

    #[test]
    fn nothing_and_too_much_do_not_land() {
        let workspace = Policy::new(Profile::Workspace);
        let rule = |entries| match decide(
            &workspace,
            Action::new(landing(entries), roots()),
            &FakeHost::default(),
        ) {
            AuthzVerdict::Deny(refusal) => refusal.rule.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(rule(Vec::new()), "landing.nothing");
        assert_eq!(rule(vec![created("/w/a"); Landing::MOST + 1]), "landing.too-many");
    }
}
