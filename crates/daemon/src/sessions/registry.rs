//! The session registry: creates, finds and ends sessions.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use ringfence_api::{
    AgentProcessInfo, ApiError, CallState, Caller, CreateSession, ErrorCode, ExecRequest, MOST_NAME,
    SessionInfo, SessionState,
};
use ringfence_authz::{check_flags, check_profile};
use ringfence_ledger::SessionEndReason;
use ringfence_runtime::identity::{AuthError, KnownIdentity, SessionTokenSpec};
use ringfence_runtime::secrets::SecretInfo;
use ringfence_runtime::{AgentSession, SessionSpec};
use ringfence_types::{ByteString, CallOrigin, Refusal, RuleId, SessionId};

use crate::admit::authenticate::may_not;
use crate::admit::ceiling::CeilingKind;
use crate::admit::identity_methods;
use crate::calls::exec::{OutputForm, OutputSink, PreparedExec, TOKEN_VARIABLE};
use crate::calls::ledger_approver::LedgerApprover;
use crate::calls::live_call::CancelFlag;
use crate::errors::{broken_for_operator, exhausted, malformed, not_found, unavailable};
use crate::limits::budget::{Budget, Permit};
use crate::observe::telemetry::TraceContext;
use crate::server::Daemon;
use crate::sessions::live_session::{LiveSession, SessionLifetime, shown};
use crate::sessions::policy_reload::{ParentPolicy, SessionPolicySource};
use crate::sessions::session_socket::SessionSocket;
use crate::{SessionPolicyRequest, admit::ceiling, limits::threads, sessions::child_session};

/// Ended sessions that are remembered.
const REMEMBERED: usize = 256;
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Lifetime of the token of a session without a timeout.
const LONGEST: SignedDuration = SignedDuration::from_hours(24 * 30);
/// Captured bytes of one stream, which are held in memory.
const MOST_OUTPUT: u64 = 16 * 1024 * 1024;
const WITH_THE_WHOLE: EndReason<'_> = EndReason(SessionEndReason::ParentEnded, "the parent session ended");
/// Words of a command in lists.
const MOST_WORDS: usize = 32;
/// Prefix of variables that only the daemon sets.
const RESERVED: &str = "RINGFENCE_";

#[derive(Debug)]
pub(crate) struct SessionRegistry {
    /// Slots of sessions, taken before a session is created.
    slots: Budget,
    all: Mutex<RegistryState>,
}

#[derive(Debug, Default)]
struct RegistryState {
    live: HashMap<SessionId, RegisteredSession>,
    over: VecDeque<SessionInfo>,
}

#[derive(Debug)]
struct RegisteredSession {
    live: Arc<LiveSession>,
    _slot: Permit,
}

impl SessionRegistry {
    pub(crate) fn new(most: usize) -> Self {
        Self { slots: Budget::new(most), all: Mutex::default() }
    }

    /// Reserves before creation, so that concurrent requests cannot exceed the limit.
    fn reserve(&self) -> Result<Permit, ApiError> {
        let slot = self.slots.try_acquire(1);
        slot.ok_or_else(|| exhausted(format!("there are {} sessions already", self.slots.used())))
    }

    pub(crate) fn find(&self, id: &SessionId) -> Result<Arc<LiveSession>, ApiError> {
        let found = self.all().live.get(id).map(|session| Arc::clone(&session.live));
        found.ok_or_else(|| not_found("session", id.as_str()))
    }

    pub(crate) fn show(&self, id: &SessionId) -> Result<SessionInfo, ApiError> {
        let all = self.all();
        let live = all.live.get(id).map(|session| session.live.info());
        let over = || all.over.iter().find(|info| info.session == *id).cloned();
        live.or_else(over).ok_or_else(|| not_found("session", id.as_str()))
    }

    /// Sorted by start time, newest last.
    pub(crate) fn infos(&self, also_over: IncludeEnded) -> Vec<SessionInfo> {
        let all = self.all();
        let mut infos: Vec<SessionInfo> = all.live.values().map(|session| session.live.info()).collect();
        if also_over == IncludeEnded::Yes {
            infos.extend(all.over.iter().cloned());
        }
        infos.sort_by(|one, other| one.started_at.cmp(&other.started_at));
        infos
    }

    pub(crate) fn live(&self) -> Vec<Arc<LiveSession>> {
        self.all().live.values().map(|session| Arc::clone(&session.live)).collect()
    }

    /// True if no session exists or is being created.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.used() == 0
    }

    fn forget(&self, live: &LiveSession) {
        let mut all = self.all();
        if all.live.remove(live.id()).is_some() {
            all.over.push_back(live.info());
        }
        while all.over.len() > REMEMBERED {
            let _oldest = all.over.pop_front();
        }
    }

    fn all(&self) -> MutexGuard<'_, RegistryState> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a session ends: the code for the ledger and the text for people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndReason<'a>(pub(crate) SessionEndReason, pub(crate) &'a str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncludeEnded {
    Yes,
    No,
}

pub(crate) fn bounded(mut asked: SessionSpec) -> SessionSpec {
    let output = &mut asked.policy.limits.output_bytes;
    *output = (*output).min(MOST_OUTPUT);
    asked
}

/// Creates a session and binds it to its workspace, policy and ceiling for life.
pub(crate) fn create(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    by: &CallOrigin,
    span: Option<TraceContext>,
    request: CreateSession,
) -> Result<SessionInfo, ApiError> {
    check(&request)?;
    is_for(caller, &request.workspace)?;
    let place = daemon.sessions.reserve()?;
    let parent = request.parent.as_ref().map(|id| daemon.sessions.find(id)).transpose()?;
    if parent.as_ref().is_some_and(|parent| !caller.rights.covers_workspace(&parent.bound.workspace().path)) {
        return Err(wrong_workspace());
    }
    let wanted = SessionPolicyRequest {
        // Resolved once, so that a link that is changed later has no effect.
        workspace: std::fs::canonicalize(&request.workspace).unwrap_or_else(|_| request.workspace.clone()),
        agent: request.agent_name.clone(),
        profile: request.profile,
        net: request.net,
        limits: request.limits.clone(),
    };
    let whole = parent.as_ref().map(|parent| ParentPolicy::Whole(Arc::clone(&parent.again)));
    let governed = governed(daemon, caller, wanted, whole);
    let (again, mut asked) = governed.map_err(|refusal| policy_error(daemon, &refusal))?;
    let (door, listener) = SessionSocket::open(&daemon.doors).map_err(|error| broken_for_operator(&error))?;
    asked.shown = vec![door.directory().to_owned()];
    asked.agent.clone_from(&request.agent_name);
    (asked.started_by, asked.started_with) = (by.principal.clone(), by.credential.clone());
    let opened = daemon.runtime.session(asked).map_err(|error| broken_for_operator(&error))?;
    let mut session = opened.map_err(ApiError::from)?;
    if !caller.rights.covers_workspace(&session.workspace().path) {
        return Err(wrong_workspace());
    }
    if !again.is_for(&session.workspace().path) {
        return Err(policy_error(daemon, &ceiling::moved()));
    }
    let by_whom = CeilingKind::of(caller).names_secrets(request.agent_name.as_deref());
    let released = session.release(&request.secrets, by_whom).map_err(|error| unavailable(&error))?;
    released.map_err(ApiError::from)?;
    if let Some(parent) = &parent {
        within_parent(parent, &session).map_err(|refusal| policy_error(daemon, &refusal))?;
    }
    session.set_policy_source(Arc::clone(&again));
    session.set_flow_approver(LedgerApprover { cancelled: Arc::new(CancelFlag::default()) });
    let provider = request.agent_argv.clone();
    let (live, token) = OpenSession { session, door, again }.start(daemon, caller, request)?;
    if let Err(error) = live.bound.call_handle().begin() {
        // What cannot be recorded is not started. The token must not outlive the session.
        let _unwritten = daemon.identities.end_session(live.id());
        return Err(unavailable(&error));
    }
    let registered = RegisteredSession { live: Arc::clone(&live), _slot: place };
    let _new = daemon.sessions.all().live.insert(live.id().clone(), registered);
    if let Err(ending) = daemon.takes_work() {
        // The drain may have listed the sessions before this one was registered.
        stop_with_daemon(daemon, &live);
        return Err(ending);
    }
    if parent.is_some_and(|parent| !parent.is_running()) {
        // The stop of the parent may have listed its children before this one was registered.
        stop(daemon, &live, WITH_THE_WHOLE, None);
        return Err(ApiError::new(ErrorCode::FailedPrecondition, WITH_THE_WHOLE.1));
    }
    daemon.serve_door(&live, listener);
    daemon.end_with_token(&live, token);
    live.bound.keep_containers();
    if let Some(argv) = provider {
        start_provider(daemon, &live, argv, by, span);
    }
    Ok(live.info())
}

/// The policy source and the specification for a request, within the caller's ceiling.
fn governed(
    daemon: &Daemon,
    caller: &Caller,
    wanted: SessionPolicyRequest,
    whole: Option<ParentPolicy>,
) -> Result<(Arc<SessionPolicySource>, SessionSpec), Refusal> {
    let again = match CeilingKind::of(caller) {
        CeilingKind::Freely => SessionPolicySource::new(&daemon.governor, wanted, whole),
        CeilingKind::WithinGiven => SessionPolicySource::within_given(&daemon.governor, wanted, whole),
    }?;
    if let Some(other) = again.overlap() {
        let told = Some(&*other).filter(|other| caller.rights.covers_workspace(other));
        return Err(ceiling::overlap(told));
    }
    let asked = again.began()?;
    // Danger flags are only valid on the command line that started the daemon.
    check_flags(asked.policy.danger)?;
    check_profile(asked.policy.profile, asked.policy.danger)?;
    Ok((Arc::new(again), asked))
}

/// Checked before anything else, so that the error does not reveal which paths exist outside the token's workspaces.
fn is_for(caller: &Caller, workspace: &Path) -> Result<(), ApiError> {
    if caller.rights.workspaces.is_any() {
        return Ok(());
    }
    let real = std::fs::canonicalize(workspace);
    let own = real.is_ok_and(|real| caller.rights.covers_workspace(&real));
    if own { Ok(()) } else { Err(wrong_workspace()) }
}

fn wrong_workspace() -> ApiError {
    may_not(&AuthError::Workspace)
}

fn check(request: &CreateSession) -> Result<(), ApiError> {
    if !request.workspace.is_absolute() {
        return Err(malformed("the workspace has to be an absolute path"));
    }
    if let Some(name) = request.environment.keys().find(|name| name.starts_with(RESERVED)) {
        let told =
            malformed(format!("`{}` is not for others to set", ByteString::from(name.as_str()).display()));
        return Err(told
            .with_rule(RuleId::EnvReserved)
            .with_hint("names that begin with RINGFENCE_ are set by the daemon"));
    }
    for (what, text) in [("label", &request.label), ("agent", &request.agent_name)] {
        if text.as_ref().is_some_and(|text| text.chars().count() > MOST_NAME) {
            let told = malformed(format!("`{what}` is longer than {MOST_NAME} characters"));
            return Err(told.with_hint("give it a shorter name"));
        }
    }
    if request.timeout_s == Some(0) || request.idle_timeout_s == Some(0) {
        let told = malformed("a session that ends at once does nothing");
        return Err(told
            .with_hint("`timeout_s` and `idle_timeout_s` are at least 1; without one there is no such end"));
    }
    match &request.agent_argv {
        Some(argv) if argv.is_empty() => Err(malformed("the provider is an empty command")),
        _ => Ok(()),
    }
}

fn policy_error(daemon: &Daemon, refusal: &Refusal) -> ApiError {
    // The refusal stands even if it cannot be recorded. A broken ledger is reported by methods with an effect.
    let _unrecorded = daemon.runtime.refuse(refusal);
    ApiError::from(refusal.clone())
}

/// A child session lies in its parent's workspace as opened, and has no secret that the parent lacks.
fn within_parent(whole: &LiveSession, part: &AgentSession<'_>) -> Result<(), Refusal> {
    if !part.workspace().path.starts_with(&whole.bound.workspace().path) {
        return Err(child_session::outside());
    }
    let given = |secret: &&SecretInfo| {
        whole.bound.secrets_held().any(|own| own.name == secret.name && own.scope == secret.scope)
    };
    match part.secrets_held().find(|secret| !given(secret)) {
        None => Ok(()),
        Some(secret) => {
            Err(ceiling::refusal(format!("the parent session does not have the secret `{}`", secret.name)))
        }
    }
}

/// A session of the runtime, with what the daemon adds to it.
#[derive(Debug)]
pub(crate) struct OpenSession {
    pub(crate) session: AgentSession<'static>,
    pub(crate) door: SessionSocket,
    pub(crate) again: Arc<SessionPolicySource>,
}

impl OpenSession {
    fn start(
        mut self,
        daemon: &Daemon,
        caller: &Caller,
        request: CreateSession,
    ) -> Result<(Arc<LiveSession>, KnownIdentity), ApiError> {
        let session = &mut self.session;
        let seconds = |seconds: Option<u64>| seconds.map(Duration::from_secs);
        let lifetime =
            request.timeout_s.and_then(|seconds| i64::try_from(seconds).ok()).map(SignedDuration::from_secs);
        let grantee = SessionTokenSpec {
            session: session.id().clone(),
            agent: request.agent_name.clone(),
            workspace: &session.workspace().path.clone(),
            lifetime: lifetime.unwrap_or(LONGEST).min(LONGEST),
        };
        let token = daemon.identities.session_token(grantee).map_err(identity_methods::failed)?;
        let known = daemon.identities.holder_of(&token).map_err(|error| unavailable(&error))?;
        let mut variables = vec![
            (ByteString::from("RINGFENCE_SESSION_SOCKET"), ByteString::from(self.door.socket())),
            (ByteString::from(TOKEN_VARIABLE), ByteString::from(token.text.reveal().as_str())),
        ];
        if let Some(program) = request.agent_argv.as_ref().and_then(|argv| argv.first()) {
            variables.push((ByteString::from("RINGFENCE_PROVIDER"), ByteString::from(program.as_str())));
        }
        session.set_variables(variables);
        let provider = request.agent_argv.as_ref().map(|argv| AgentProcessInfo {
            argv: shown_argv(session.clean_argv(argv)),
            exit_code: None,
            failure: None,
        });
        let label = request.label.map(|label| session.clean(&label));
        let now = Instant::now();
        let terms = SessionLifetime {
            until: seconds(request.timeout_s).and_then(|time| now.checked_add(time)),
            idle: seconds(request.idle_timeout_s),
        };
        let card = SessionInfo {
            session: session.id().clone(),
            label,
            agent_name: request.agent_name,
            state: SessionState::Running,
            end_reason: None,
            workspace: session.workspace().path.clone(),
            workspace_id: session.workspace().id.clone(),
            profile: session.policy().profile,
            net: session.policy().net,
            parent: request.parent,
            agent_process: provider,
            limits: session.policy().limits.clone(),
            started_at: Timestamp::now().to_string(),
            created_by: caller.principal.to_string(),
            running_calls: 0,
            calls: 0,
            timeout_s: request.timeout_s,
            idle_timeout_s: request.idle_timeout_s,
            record_error: None,
        };
        let live = LiveSession::new(daemon, self, card, request.environment, terms);
        Ok((Arc::new(live), known))
    }
}

/// A command for lists: its first words, each cut to a bounded length.
fn shown_argv(mut argv: Vec<String>) -> Vec<String> {
    if argv.len() > MOST_WORDS {
        argv.truncate(MOST_WORDS);
        argv.push("…".to_owned());
    }
    argv.iter().map(|word| shown(word, MOST_NAME)).collect()
}

/// Starts the provider as a call of the session's creator. The session ends with it.
fn start_provider(
    daemon: &Arc<Daemon>,
    live: &Arc<LiveSession>,
    argv: Vec<String>,
    by: &CallOrigin,
    span: Option<TraceContext>,
) {
    let exec = ExecRequest {
        session: live.id().clone(),
        argv,
        cwd: None,
        environment: Default::default(),
        stdin: None,
        timeout_ms: None,
        background: true,
        interactive: false,
        terminal: None,
        reason: None,
        ceiling: None,
    };
    let (daemon, live) = (Arc::clone(daemon), Arc::clone(live));
    let wired = match PreparedExec::new(&live, exec, OutputForm::Pieces) {
        Ok(wired) => wired.made_by(by, None).traced(&daemon.telemetry, span),
        Err(error) => {
            return no_provider(&daemon, &live, error.message);
        }
    };
    let (call, all, own) = (Arc::clone(&wired.call), Arc::clone(&daemon), Arc::clone(&live));
    let work = move || {
        let info = wired.run(&live, OutputSink::Keep);
        let reason = match info.state {
            CallState::Done => SessionEndReason::AgentExited,
            _ => SessionEndReason::Crashed,
        };
        let why = info.refusal.map(|refusal| refusal.message).or(info.failure);
        live.provider_ended(info.exit_code, why);
        stop(&daemon, &live, EndReason(reason, "its provider ended"), None);
    };
    // A thread of its own, because the provider runs as long as the session.
    if let Err(error) = Builder::new().name("provider".to_owned()).spawn(work) {
        let info = call.end(|info| {
            (info.state, info.failure) =
                (CallState::Failed, Some(format!("there is no thread for it: {error}")));
        });
        no_provider(&all, &own, info.failure.unwrap_or_default());
    }
}

fn no_provider(daemon: &Daemon, live: &LiveSession, why: String) {
    live.provider_ended(None, Some(why));
    stop(daemon, live, EndReason(SessionEndReason::Crashed, "its provider could not be started"), None);
}

/// Ends a session with the daemon, also one whose stop is already in progress with a longer grace period.
pub(crate) fn stop_with_daemon(daemon: &Daemon, live: &LiveSession) {
    stop(daemon, live, EndReason(SessionEndReason::DaemonStopped, "the daemon ended"), None);
    if !live.has_ended() {
        kill_after_grace(live, GRACE);
    }
}

/// Kills the calls that still run after `grace`.
fn kill_after_grace(live: &LiveSession, grace: Duration) {
    let until = Instant::now() + grace;
    while !live.live_calls().is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    live.live_calls().iter().for_each(|call| call.kill());
}

/// Ends a session and its children: SIGTERM, then SIGKILL. When this returns, no process is left and the end is
/// recorded.
pub(crate) fn stop(daemon: &Daemon, live: &LiveSession, why: EndReason<'_>, grace: Option<Duration>) {
    let EndReason(reason, why) = why;
    if !live.begin_stop(why) {
        return;
    }
    live.live_calls().iter().for_each(|call| call.cancel());
    let mut parts = daemon.sessions.live();
    parts.retain(|part| part.parent.as_ref() == Some(live.id()));
    // In parallel, so that all children have the same grace period.
    let stop_part = |part: &Arc<LiveSession>| stop(daemon, part, WITH_THE_WHOLE, grace);
    threads::for_each(Builder::new, &parts, stop_part, || kill_after_grace(live, grace.unwrap_or(GRACE)));
    // Kills PID 1 of the fence, and with it every process that is left.
    if let Err(error) = live.bound.call_handle().end_because(reason) {
        tracing::error!(session = %live.id(), error = %error, "cannot record the end of a session");
    }
    if let Err(error) = daemon.identities.end_session(live.id()) {
        tracing::error!(session = %live.id(), error = %error, "cannot revoke the tokens of a session");
    }
    daemon.standings.check(&daemon.identities);
    live.finish();
    daemon.sessions.forget(live);
}
