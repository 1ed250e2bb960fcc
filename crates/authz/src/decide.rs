//! One action in, one verdict out. Every error on the way is a denial; the strictest part wins.

mod call;
mod landing;

use std::path::{Path, PathBuf};

use ringfence_types::{
    Access, ActionFingerprint, ApprovalMode, Backend, ByteString, Call, Control, Decision, ExecCall,
    HOME_INSIDE, Limits, NetMode, PolicyLayer, Profile, Refusal, RefusalCode, Risk, Root, RuleId, RuleName,
};

use crate::command::{RuleConditions, SessionTerms};
use crate::credential_stores;
use crate::danger::{check_backend, check_flags, check_profile};
use crate::eval_context::EvalContext;
use crate::grant_suggestions::{self, ActionLocation, GrantCandidate};
use crate::host_facts::{HostFacts, SessionFacts};
use crate::hosts::{judge_fetch, judge_flow};
use crate::judgement::{Judgement, JudgementPart, PartKind};
use crate::paths::is_plain_absolute;
use crate::policy::{Policy, net_ceiling};
use crate::refusal_ext::{RefusalExt as _, refuse};
use crate::tools::{self, judge_foreign_tool, judge_tool, judge_tool_of_call};
use call::{judge_exec, judge_file, judge_patch};
use landing::judge_landing;

/// A call with the roots it may touch: what is judged, recorded and executed. The first root is the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    call: Call,
    roots: Vec<Root>,
    fingerprint: ActionFingerprint,
}

impl Action {
    pub fn new(call: Call, roots: Vec<Root>) -> Self {
        let fingerprint = ActionFingerprint::of(&call, &roots);
        Self { call, roots, fingerprint }
    }

    pub fn call(&self) -> &Call {
        &self.call
    }

    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    pub fn fingerprint(&self) -> &ActionFingerprint {
        &self.fingerprint
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum AuthzVerdict {
    Allow(Box<Authorization>),
    /// A person decides. Nothing happens until a [`ApprovalNeeded`] is answered.
    Ask(Box<ApprovalNeeded>),
    Deny(Refusal),
}

/// An action that policy neither allows nor denies, with all that a person needs to decide.
#[derive(Debug, PartialEq, Eq)]
pub struct ApprovalNeeded {
    action: Action,
    permissions: CallPermissions,
    judgement: Judgement,
    session: SessionFacts,
    terms: SessionTerms,
}

/// How a question was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalOutcome {
    Once,
    Session,
    /// And these rules are stored: the text of one of [`ApprovalNeeded::candidates`].
    AlwaysHere {
        stored: String,
    },
    Deny,
    /// No operator answered in time.
    Expired,
    /// No operator could be asked.
    Unreachable,
    /// What was asked about is not what it was any more.
    Superseded,
}

impl ApprovalNeeded {
    pub fn action(&self) -> &Action {
        &self.action
    }

    pub fn permissions(&self) -> &CallPermissions {
        &self.permissions
    }

    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }

    /// What its session has besides policy and roots.
    pub fn session(&self) -> &SessionFacts {
        &self.session
    }

    /// What "always here" could store, narrow first. Empty where the answer should be given again each time.
    pub fn candidates(&self) -> Vec<GrantCandidate> {
        // The rule would hold for another value of the secret as well.
        if !self.session.secrets.is_empty() {
            return Vec::new();
        }
        let workspace = self.permissions.roots.first().map(|root| root.path.as_path());
        match (&self.action.call, workspace) {
            (Call::Exec(exec), Some(workspace)) => {
                // What a rule cannot say it should not stand for.
                let Some(given) = RuleConditions::of(exec, self.terms.clone()) else { return Vec::new() };
                grant_suggestions::candidates(
                    &self.judgement,
                    ActionLocation { workspace, cwd: exec.cwd.as_path() },
                    &given,
                )
            }
            (call @ (Call::Flow(_) | Call::Fetch(_)), Some(workspace)) => {
                grant_suggestions::host_candidate(&self.judgement, call, workspace).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// The only way from a question to an effect.
    pub fn answered(self, answer: ApprovalOutcome) -> Result<Authorization, Refusal> {
        let no = |rule, why| Err(self.refused(rule, why));
        let offered = |stored: &str| self.candidates().iter().any(|candidate| candidate.stored == stored);
        let rule = match answer {
            ApprovalOutcome::Once => RuleId::ApprovalOnce,
            ApprovalOutcome::Session => RuleId::ApprovalSession,
            ApprovalOutcome::AlwaysHere { stored } if offered(&stored) => RuleId::ApprovalAlwaysHere,
            ApprovalOutcome::AlwaysHere { .. } => {
                return no(RuleId::ApprovalNotOffered, "the answer stores a rule that was not offered");
            }
            ApprovalOutcome::Deny => return no(RuleId::ApprovalDenied, "the answer was no"),
            ApprovalOutcome::Expired => {
                return no(RuleId::ApprovalExpired, "this needs an approval, and no answer came in time");
            }
            ApprovalOutcome::Unreachable => return Err(self.unreachable()),
            ApprovalOutcome::Superseded => {
                return no(RuleId::ApprovalSuperseded, "the action changed while the request was pending");
            }
        };
        let Self { action, permissions, judgement, .. } = self;
        let (opened, stored) = (judgement.asked_paths(), judgement.stored());
        Ok(Authorization { action, permissions, rule: rule.into(), layer: PolicyLayer::Call, opened, stored })
    }

    fn unreachable(&self) -> Refusal {
        let hint = "run it at a terminal, or keep `ringfence approvals watch` open in another one";
        self.refused(RuleId::ApprovalUnreachable, "this needs an approval, and no approver is available")
            .hint(hint)
    }

    fn refused(&self, rule: RuleId, why: &str) -> Refusal {
        let Some(part) = self.judgement.decisive() else {
            return refuse(RefusalCode::Approval, rule, why);
        };
        let refusal = part.refusal();
        Refusal {
            code: RefusalCode::Approval,
            rule: RuleName::because_of(rule, &refusal.rule),
            message: format!("{why}: {}", refusal.message),
            ..refusal
        }
    }
}

/// Proof that an action was judged and allowed, with all that the sandbox may give it.
#[derive(Debug, PartialEq, Eq)]
pub struct Authorization {
    action: Action,
    permissions: CallPermissions,
    rule: RuleName,
    layer: PolicyLayer,
    opened: Vec<ByteString>,
    stored: Vec<String>,
}

impl Authorization {
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// The rule that allowed it, as a person would look it up.
    pub fn rule(&self) -> &RuleName {
        &self.rule
    }

    pub fn layer(&self) -> PolicyLayer {
        self.layer
    }

    /// Whether a person said yes to it. Rules of that layer can only narrow.
    pub fn is_approved(&self) -> bool {
        self.layer == PolicyLayer::Call
    }

    pub fn permissions(&self) -> &CallPermissions {
        &self.permissions
    }

    /// The stored answers without which it would not be allowed, by id.
    pub fn stored(&self) -> &[String] {
        &self.stored
    }

    /// Absolute paths that a person was asked about and opened, for this one action.
    pub fn opened(&self) -> &[ByteString] {
        &self.opened
    }
}

/// What the sandbox may give one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPermissions {
    pub view: FilesystemView,
    pub roots: Vec<Root>,
    /// Sensitive roots that must not be visible inside, absolute.
    pub hidden: Vec<ByteString>,
    pub rules: WorkspaceRuleMode,
    pub net: NetMode,
    pub limits: Limits,
    /// Controls that must be enforced. What the policy gives away on purpose is not in it.
    pub floor: Vec<Control>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesystemView {
    /// The read-only system runtime and the roots, nothing else.
    Constructed,
    /// The machine as it is, without the hidden roots.
    WholeMachine,
}

/// Whether hidden and protected paths hold inside the roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceRuleMode {
    Enforced,
    /// Profile `danger`: a command that may write the whole machine is not stopped by a read-only `.git/hooks`.
    Waived,
}

pub fn decide(policy: &Policy, action: Action, facts: &dyn HostFacts) -> AuthzVerdict {
    let (permissions, judgement) = match judged(policy, &action, facts) {
        Ok(judged) => judged,
        Err(refusal) => return AuthzVerdict::Deny(refusal),
    };
    let Some(part) = judgement.decisive() else { return AuthzVerdict::Deny(nothing_judged()) };
    match part.decision {
        Decision::Allow => {
            let layer = if policy.profile == Profile::Danger { PolicyLayer::Flags } else { part.layer };
            let rule = part.rule.clone();
            let stored = judgement.stored();
            AuthzVerdict::Allow(Box::new(Authorization {
                action,
                permissions,
                rule,
                layer,
                opened: Vec::new(),
                stored,
            }))
        }
        Decision::Ask => {
            let session = facts.session();
            let terms = SessionTerms::of(policy, permissions.net, &permissions.roots, &session);
            AuthzVerdict::Ask(Box::new(ApprovalNeeded { action, permissions, judgement, session, terms }))
        }
        Decision::Deny => AuthzVerdict::Deny(part.refusal()),
    }
}

/// Leaves a tool that no rule speaks of to the person at the agent, whom the agent asks by itself. Whatever else denies it
/// stays a no, and so does a call that is anything else.
pub fn refer(policy: &Policy, action: Action, facts: &dyn HostFacts) -> Result<Authorization, Refusal> {
    let (permissions, judgement) = judged(policy, &action, facts)?;
    let Some(part) = judgement.decisive() else { return Err(nothing_judged()) };
    if !matches!(action.call, Call::Tool(_)) || part.rule != tools::UNKNOWN {
        return Err(part.refusal());
    }
    let (rule, layer) = (part.rule.clone(), part.layer);
    Ok(Authorization { action, permissions, rule, layer, opened: Vec::new(), stored: Vec::new() })
}

/// The decision about every part, without a grant: what `check` and `policy explain` show. A refusal is a no to the
/// call as a whole.
pub fn judge(policy: &Policy, action: &Action, facts: &dyn HostFacts) -> Result<Judgement, Refusal> {
    judged(policy, action, facts).map(|(_, judgement)| judgement)
}

/// What applying a patch would meet, for a caller that may only propose it: profile `review` hands in what it may not write.
/// No person is asked about a proposal; what would be asked stays a question, also where questions are off.
pub fn judge_proposal(policy: &Policy, action: &Action, facts: &dyn HostFacts) -> Result<Judgement, Refusal> {
    let mut applied = policy.clone();
    let mut roots = action.roots.clone();
    applied.approval = ApprovalMode::Ask;
    if policy.profile == Profile::Review {
        applied.profile = Profile::Workspace;
        open_for_a_proposal(&mut roots);
    }
    judge(&applied, &Action::new(action.call.clone(), roots), facts)
}

/// Profile `review` only reads its workspace and hands in what it would write. A workspace that is closed stays so.
pub fn open_for_a_proposal(roots: &mut [Root]) {
    if let Some(workspace) = roots.first_mut().filter(|root| root.access == Access::Read) {
        workspace.access = Access::Write;
    }
}

/// A command that names no place of its own starts in the workspace; in its home where nothing of the workspace is there.
pub fn placed(call: Call, roots: &[Root]) -> Call {
    let closed = roots.first().filter(|root| root.access == Access::None);
    match (call, closed) {
        (Call::Exec(exec), Some(workspace)) if exec.cwd == workspace.path => {
            Call::Exec(ExecCall { cwd: ByteString::from(HOME_INSIDE), ..exec })
        }
        (call, _) => call,
    }
}

/// What the policy gives the action at most, and what it says of each part. A policy that was read again is held to the
/// one before it: both are asked, and the strictest part decides.
fn judged(
    policy: &Policy,
    action: &Action,
    facts: &dyn HostFacts,
) -> Result<(CallPermissions, Judgement), Refusal> {
    check_policy(policy)?;
    check_roots(policy, &action.roots)?;
    let permissions = ceiling(policy, action)?;
    let scene = EvalContext::new(policy, &permissions, facts, &action.call);
    let mut parts = match &action.call {
        Call::Exec(exec) => judge_exec(&scene, exec)?,
        Call::File(file) => judge_file(&scene, file)?,
        Call::Apply(patch) => judge_patch(&scene, patch)?,
        Call::Land(landing) => judge_landing(&scene, landing)?,
        Call::Flow(flow) => vec![without_secrets(judge_flow(policy, flow), facts)],
        Call::Fetch(fetch) => {
            vec![judge_tool(policy, "fetch"), without_secrets(judge_fetch(policy, fetch), facts)]
        }
        Call::Tool(tool) => vec![judge_foreign_tool(policy, &tool.name)],
    };
    parts.extend(judge_tool_of_call(policy, &action.call));
    let nothing = JudgementPart::refused(PartKind::Call, "the call", &nothing_judged());
    let mut judgement = Judgement::new(parts, nothing);
    if policy.approval == ApprovalMode::Never {
        judgement = judgement.without_questions();
    }
    if let Some(before) = policy.all().nth(1) {
        judgement = judgement.and(judged(before, action, facts)?.1);
    }
    Ok((permissions, judgement))
}

/// A stored answer about a host was given for a session in which nothing could read a secret.
fn without_secrets(part: JudgementPart, facts: &dyn HostFacts) -> JudgementPart {
    let stored = part.origin.as_ref().is_some_and(|origin| origin.grant().is_some());
    if part.decision != Decision::Allow || !stored || !facts.session().has_secret_inside() {
        return part;
    }
    let part = JudgementPart { origin: None, rule: RuleId::HostSecret.into(), ..part };
    part.because("the grant for this host covers only sessions without secrets")
        .ask(Risk::High, "say yes to this one, or allow the host in the policy of the operator")
}

fn nothing_judged() -> Refusal {
    refuse(RefusalCode::Malformed, RuleId::CallEmpty, "there is nothing to judge in it")
}

fn check_policy(policy: &Policy) -> Result<(), Refusal> {
    check_flags(policy.danger)?;
    check_profile(policy.profile, policy.danger)?;
    check_ceilings(policy)?;
    policy.backend.map_or(Ok(()), |backend| check_backend(backend, policy.danger))
}

/// What a profile promises holds whatever the flags say (C-3).
fn check_ceilings(policy: &Policy) -> Result<(), Refusal> {
    let profile = policy.profile;
    let most = net_ceiling(profile);
    if policy.net > most {
        let message =
            format!("profile `{profile}` gives at most network mode `{most}`, not `{}`", policy.net);
        return Err(refuse(RefusalCode::Network, RuleId::ProfileNet, message)
            .hint(format!("leave `--net {}` out, or use another profile", policy.net)));
    }
    let unlowered = Control::ALL.iter().all(|control| policy.floor.contains(control));
    if matches!(profile, Profile::Strict | Profile::AirGapped) && !unlowered {
        let message = format!("profile `{profile}` requires every control");
        return Err(refuse(RefusalCode::Floor, RuleId::ProfileFloor, message)
            .hint("leave `--danger-required-controls` out, or use another profile"));
    }
    Ok(())
}

fn check_roots(policy: &Policy, roots: &[Root]) -> Result<(), Refusal> {
    if roots.is_empty() {
        return Err(refuse(RefusalCode::Workspace, RuleId::RootsEmpty, "the action names no root"));
    }
    for root in roots {
        let path = root.path.as_path();
        if !is_plain_absolute(path) {
            let message = format!("root `{}` is not an absolute canonical path", root.path.display());
            return Err(refuse(RefusalCode::Workspace, RuleId::RootsAbsolute, message));
        }
        let store = sensitive_around(policy, path);
        if let Some(store) = store {
            return Err(sensitive_refusal(path, &store));
        }
    }
    Ok(())
}

fn sensitive_around(policy: &Policy, path: &Path) -> Option<PathBuf> {
    let home = policy.home.as_ref().filter(|_| !policy.danger.allow_sensitive_roots)?;
    credential_stores::around(home.as_path(), path)
}

pub(crate) fn sensitive_refusal(path: &Path, store: &Path) -> Refusal {
    let message = format!(
        "`{}` is in the sensitive root `{}`",
        ByteString::from(path).display(),
        ByteString::from(store).display()
    );
    refuse(RefusalCode::Danger, RuleId::SensitiveRoots, message)
        .hint("`--danger --allow-sensitive-roots` at startup opens it; nothing else does")
}

/// The most this policy gives to any call on these roots.
pub fn ceiling(policy: &Policy, action: &Action) -> Result<CallPermissions, Refusal> {
    // A backend that contains nothing shows a command the machine; the file tools keep their own guard (C-37).
    let bare = policy.backend == Some(Backend::None) && matches!(action.call, Call::Exec(_));
    let (view, rules) = match policy.profile {
        Profile::Danger => (FilesystemView::WholeMachine, WorkspaceRuleMode::Waived),
        _ if bare => (FilesystemView::WholeMachine, WorkspaceRuleMode::Waived),
        _ => (FilesystemView::Constructed, WorkspaceRuleMode::Enforced),
    };
    let net = match &action.call {
        Call::Exec(exec) => exec.net,
        Call::File(_) | Call::Apply(_) | Call::Land(_) | Call::Flow(_) | Call::Fetch(_) | Call::Tool(_) => {
            NetMode::None
        }
    };
    Ok(CallPermissions {
        view,
        roots: action.roots.iter().map(|root| narrowed(policy.profile, root)).collect(),
        hidden: hidden_roots(policy, view, &action.roots)?,
        rules,
        net,
        limits: policy.limits.clone(),
        floor: floor(policy, net),
    })
}

/// `review` reads: roots that the operator declared writable are read-only under it.
fn narrowed(profile: Profile, root: &Root) -> Root {
    let access = if profile == Profile::Review { root.access.min(Access::Read) } else { root.access };
    Root { path: root.path.clone(), access }
}

fn hidden_roots(policy: &Policy, view: FilesystemView, roots: &[Root]) -> Result<Vec<ByteString>, Refusal> {
    if policy.danger.allow_sensitive_roots {
        return Ok(Vec::new());
    }
    match (&policy.home, view) {
        (Some(home), FilesystemView::WholeMachine) => {
            Ok(credential_stores::roots(home.as_path()).map(ByteString::from).collect())
        }
        (Some(home), FilesystemView::Constructed) => Ok(credential_stores::roots(home.as_path())
            .filter(|hidden| roots.iter().any(|root| hidden.starts_with(root.path.as_path())))
            .map(ByteString::from)
            .collect()),
        (None, FilesystemView::Constructed) => Ok(Vec::new()),
        (None, FilesystemView::WholeMachine) => {
            let message = "the home directory is not known, so the sensitive roots cannot be hidden";
            Err(refuse(RefusalCode::Danger, RuleId::SensitiveRoots, message)
                .hint("set HOME to the real home directory"))
        }
    }
}

/// Controls that still have something to enforce. One that the operator gave away (the network of the host, a backend
/// that is none) cannot be missing.
fn floor(policy: &Policy, net: NetMode) -> Vec<Control> {
    let given_away = |control: Control| match control {
        Control::Env => false,
        _ if policy.backend == Some(Backend::None) => true,
        Control::Net => net == NetMode::Full,
        Control::FsRead | Control::FsWrite => {
            policy.profile == Profile::Danger && policy.danger.allow_sensitive_roots
        }
        // The sockets in /run are part of the machine that `danger` opens.
        Control::Ipc => policy.profile == Profile::Danger,
        // An operator who declares an outer boundary answers for its /tmp as well.
        Control::Limits => policy.backend == Some(Backend::External),
        Control::Pid | Control::Syscalls => false,
    };
    policy.floor.iter().copied().filter(|control| !given_away(*control)).collect()
}

#[cfg(test)]
mod tests;
