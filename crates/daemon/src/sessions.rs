//! All sessions: making them, finding them, ending them.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use ringfence_api::{
    ApiError, CallState, Caller, CreateSession, ErrorCode, Exec, MOST_NAME, ProviderInfo, SessionInfo,
    SessionState,
};
use ringfence_runtime::authz::{check_flags, check_profile};
use ringfence_runtime::identity::{Denied, Grantee, Known};
use ringfence_runtime::ledger::SessionEnd;
use ringfence_runtime::secrets::Meta;
use ringfence_runtime::{AgentSession, Asked};
use ringfence_types::{Bytes, MadeBy, Refusal, SessionId};

use crate::authenticate::may_not;
use crate::call::Cancelled;
use crate::ceiling::Chooses;
use crate::desk::Desk;
use crate::door::Door;
use crate::exec::{Form, Sink, TOKEN_VARIABLE, Wired};
use crate::failure::{broken_for_operator, exhausted, malformed, not_found, refused, unavailable};
use crate::identity;
use crate::reload::{Above, Again};
use crate::server::Daemon;
use crate::session::{Live, Terms, shown};
use crate::telemetry::Context;
use crate::{Wanted, ceiling, parts, threads};

/// Sessions that are over and still remembered.
const REMEMBERED: usize = 256;
/// How long what runs may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// A session without an end of its own has a token for this long.
const LONGEST: SignedDuration = SignedDuration::from_hours(24 * 30);
/// What is captured of one stream is held in memory.
const MOST_OUTPUT: u64 = 16 * 1024 * 1024;
const WITH_THE_WHOLE: Because<'_> = Because(SessionEnd::WholeEnded, "the session it is a part of ended");
/// Of a command, where it is shown.
const MOST_WORDS: usize = 32;
/// Variables that are ours to set.
const RESERVED: &str = "RINGFENCE_";

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    live: HashMap<SessionId, Arc<Live>>,
    /// Places of sessions that are being made.
    reserved: usize,
    over: VecDeque<SessionInfo>,
}

/// A place for a session: given back unless one is put there.
struct Place<'s>(&'s Sessions);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.all().reserved -= 1;
    }
}

impl Sessions {
    /// Counted before it is made: of many who come at once, no more get in than there are places.
    fn reserve(&self, most: usize) -> Result<Place<'_>, ApiError> {
        let mut all = self.all();
        if all.live.len() + all.reserved >= most {
            return Err(exhausted(format!("there are {} sessions already", all.live.len() + all.reserved)));
        }
        all.reserved += 1;
        Ok(Place(self))
    }

    pub(crate) fn find(&self, id: &SessionId) -> Result<Arc<Live>, ApiError> {
        self.all().live.get(id).cloned().ok_or_else(|| not_found("session", id.as_str()))
    }

    pub(crate) fn show(&self, id: &SessionId) -> Result<SessionInfo, ApiError> {
        let all = self.all();
        let live = all.live.get(id).map(|live| live.info());
        let over = || all.over.iter().find(|info| info.session == *id).cloned();
        live.or_else(over).ok_or_else(|| not_found("session", id.as_str()))
    }

    /// Newest last.
    pub(crate) fn infos(&self, also_over: AlsoOver) -> Vec<SessionInfo> {
        let all = self.all();
        let mut infos: Vec<SessionInfo> = all.live.values().map(|live| live.info()).collect();
        if also_over == AlsoOver::Yes {
            infos.extend(all.over.iter().cloned());
        }
        infos.sort_by(|one, other| one.started.cmp(&other.started));
        infos
    }

    pub(crate) fn live(&self) -> Vec<Arc<Live>> {
        self.all().live.values().cloned().collect()
    }

    /// Whether there is none, and none is being made.
    pub(crate) fn is_empty(&self) -> bool {
        let all = self.all();
        all.live.is_empty() && all.reserved == 0
    }

    fn forget(&self, live: &Live) {
        let mut all = self.all();
        if all.live.remove(live.id()).is_some() {
            all.over.push_back(live.info());
        }
        while all.over.len() > REMEMBERED {
            let _oldest = all.over.pop_front();
        }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a session ends: for the ledger, and for people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Because<'a>(pub(crate) SessionEnd, pub(crate) &'a str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AlsoOver {
    Yes,
    No,
}

pub(crate) fn bounded(mut asked: Asked) -> Asked {
    let output = &mut asked.policy.limits.output_bytes;
    *output = (*output).min(MOST_OUTPUT);
    asked
}

/// Makes a session. What it is bound to here it is bound to for life.
pub(crate) fn create(
    daemon: &Arc<Daemon>,
    (caller, by, span): (&Caller, &MadeBy, Option<Context>),
    request: CreateSession,
) -> Result<SessionInfo, ApiError> {
    check(&request)?;
    is_for(caller, &request.workspace)?;
    let place = daemon.sessions.reserve(daemon.settings.sessions)?;
    let parent = request.parent.as_ref().map(|id| daemon.sessions.find(id)).transpose()?;
    if parent.as_ref().is_some_and(|parent| !caller.rights.covers_workspace(&parent.bound.workspace().path)) {
        return Err(not_for());
    }
    let wanted = Wanted {
        // A link that somebody moves later moves nothing.
        workspace: std::fs::canonicalize(&request.workspace).unwrap_or_else(|_| request.workspace.clone()),
        agent: request.agent.clone(),
        profile: request.profile,
        net: request.net,
        limits: request.limits.clone(),
    };
    let whole = parent.as_ref().map(|parent| Above::Whole(Arc::clone(&parent.again)));
    let governed = governed(daemon, caller, wanted, whole);
    let (again, mut asked) = governed.map_err(|refusal| not_governed(daemon, &refusal))?;
    let (door, listener) = Door::open(&daemon.doors).map_err(|error| broken_for_operator(&error))?;
    asked.shown = vec![door.directory().to_owned()];
    asked.agent.clone_from(&request.agent);
    (asked.started_by, asked.started_with) = (by.principal.clone(), by.shown.clone());
    let opened = daemon.runtime.session(asked).map_err(|error| broken_for_operator(&error))?;
    let mut session = opened.map_err(|refusal| refused(&refusal))?;
    if !caller.rights.covers_workspace(&session.workspace().path) {
        return Err(not_for());
    }
    if !again.is_for(&session.workspace().path) {
        return Err(not_governed(daemon, &ceiling::moved()));
    }
    let by_whom = Chooses::of(caller).names_secrets(request.agent.as_deref());
    let released = session.release(&request.secrets, by_whom).map_err(|error| unavailable(&error))?;
    released.map_err(|refusal| refused(&refusal))?;
    if let Some(parent) = &parent {
        within(parent, &session).map_err(|refusal| not_governed(daemon, &refusal))?;
    }
    session.set_flow_policy_source(Arc::clone(&again));
    session.set_flow_approver(Desk { cancelled: Arc::new(Cancelled::default()) });
    let provider = request.provider.clone();
    let (live, token) = bind(daemon, (session, caller), request, (door, again))?;
    if let Err(error) = live.bound.lane().begin() {
        // What cannot be written down is not begun; its token is worth nothing without a session.
        let _unwritten = daemon.identities.end_session(live.id());
        return Err(unavailable(&error));
    }
    let _new = daemon.sessions.all().live.insert(live.id().clone(), Arc::clone(&live));
    drop(place);
    if let Err(ending) = daemon.takes_work() {
        // Whoever ends all sessions may have looked for them before this was one.
        stop_with_daemon(daemon, &live);
        return Err(ending);
    }
    if parent.is_some_and(|parent| !parent.is_running()) {
        // Whoever ended the whole has looked for its parts before this was one.
        stop(daemon, &live, (WITH_THE_WHOLE, None));
        return Err(ApiError::new(ErrorCode::Conflict, WITH_THE_WHOLE.1));
    }
    daemon.serve_door(&live, listener);
    daemon.end_with_token(&live, token);
    live.bound.keep_containers();
    if let Some(argv) = provider {
        start_provider(daemon, &live, argv, (by, span));
    }
    Ok(live.info())
}

/// What policy makes of what somebody wants, as far as they may have it.
fn governed(
    daemon: &Daemon,
    caller: &Caller,
    wanted: Wanted,
    whole: Option<Above>,
) -> Result<(Arc<Again>, Asked), Refusal> {
    let again = match Chooses::of(caller) {
        Chooses::Freely => Again::new(&daemon.governor, wanted, whole),
        Chooses::WithinGiven => Again::within_given(&daemon.governor, wanted, whole),
    }?;
    if let Some(other) = again.overlap() {
        let told = Some(&*other).filter(|other| caller.rights.covers_workspace(other));
        return Err(ceiling::overlap(told));
    }
    let asked = again.began()?;
    // What opens the machine is a flag of the command line that started the daemon.
    check_flags(asked.policy.danger)?;
    check_profile(asked.policy.profile, asked.policy.danger)?;
    Ok((Arc::new(again), asked))
}

/// Before anything of it is looked at: what there is beyond the workspaces of a token is not told by how it fails.
fn is_for(caller: &Caller, workspace: &Path) -> Result<(), ApiError> {
    if caller.rights.workspaces.is_any() {
        return Ok(());
    }
    let real = std::fs::canonicalize(workspace);
    let own = real.is_ok_and(|real| caller.rights.covers_workspace(&real));
    if own { Ok(()) } else { Err(not_for()) }
}

fn not_for() -> ApiError {
    may_not(&Denied::Workspace)
}

fn check(request: &CreateSession) -> Result<(), ApiError> {
    if !request.workspace.is_absolute() {
        return Err(malformed("the workspace has to be an absolute path"));
    }
    if let Some(name) = request.environment.keys().find(|name| name.starts_with(RESERVED)) {
        let told = malformed(format!("`{}` is not for others to set", Bytes::from(name.as_str()).display()));
        return Err(told
            .with_rule("env.reserved")
            .with_hint("names that begin with RINGFENCE_ are set by the daemon"));
    }
    for (what, text) in [("label", &request.label), ("agent", &request.agent)] {
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
    match &request.provider {
        Some(argv) if argv.is_empty() => Err(malformed("the provider is an empty command")),
        _ => Ok(()),
    }
}

fn not_governed(daemon: &Daemon, refusal: &Refusal) -> ApiError {
    // The answer is no in any case; a ledger that cannot be written is told where something is to be done.
    let _unrecorded = daemon.runtime.refuse(refusal);
    refused(refusal)
}

/// A part is in the workspace of the whole, as it was opened, and has no secret that the whole has not.
fn within(whole: &Live, part: &AgentSession<'_>) -> Result<(), Refusal> {
    if !part.workspace().path.starts_with(&whole.bound.workspace().path) {
        return Err(parts::outside());
    }
    let given = |secret: &&Meta| {
        whole.bound.secrets_held().any(|own| own.name == secret.name && own.scope == secret.scope)
    };
    match part.secrets_held().find(|secret| !given(secret)) {
        None => Ok(()),
        Some(secret) => Err(ceiling::refusal(format!(
            "the session that it is a part of does not have the secret `{}`",
            secret.name
        ))),
    }
}

fn bind(
    daemon: &Daemon,
    (mut session, caller): (AgentSession<'static>, &Caller),
    request: CreateSession,
    (door, again): (Door, Arc<Again>),
) -> Result<(Arc<Live>, Known), ApiError> {
    let seconds = |seconds: Option<u64>| seconds.map(Duration::from_secs);
    let lifetime =
        request.timeout_s.and_then(|seconds| i64::try_from(seconds).ok()).map(SignedDuration::from_secs);
    let grantee = Grantee {
        session: session.id().clone(),
        agent: request.agent.clone(),
        workspace: &session.workspace().path.clone(),
        lifetime: lifetime.unwrap_or(LONGEST).min(LONGEST),
    };
    let token = daemon.identities.session_token(grantee).map_err(identity::failed)?;
    let known = daemon.identities.holder_of(&token).map_err(|error| unavailable(&error))?;
    let mut variables = vec![
        (Bytes::from("RINGFENCE_SESSION_SOCKET"), Bytes::from(door.socket())),
        (Bytes::from(TOKEN_VARIABLE), Bytes::from(token.text.reveal().as_str())),
    ];
    if let Some(program) = request.provider.as_ref().and_then(|argv| argv.first()) {
        variables.push((Bytes::from("RINGFENCE_PROVIDER"), Bytes::from(program.as_str())));
    }
    session.set_variables(variables);
    let provider = request.provider.as_ref().map(|argv| ProviderInfo {
        argv: shown_argv(session.clean_argv(argv)),
        exit_code: None,
        failure: None,
    });
    let label = request.label.map(|label| session.clean(&label));
    let now = Instant::now();
    let terms = Terms {
        until: seconds(request.timeout_s).and_then(|time| now.checked_add(time)),
        idle: seconds(request.idle_timeout_s),
    };
    let card = SessionInfo {
        session: session.id().clone(),
        label,
        agent: request.agent,
        state: SessionState::Running,
        ended: None,
        workspace: session.workspace().path.clone(),
        workspace_id: session.workspace().id.clone(),
        profile: session.policy().profile,
        net: session.policy().net,
        parent: request.parent,
        provider,
        limits: session.policy().limits.clone(),
        started: Timestamp::now().to_string(),
        created_by: caller.principal.to_string(),
        running: 0,
        calls: 0,
        timeout_s: request.timeout_s,
        idle_timeout_s: request.idle_timeout_s,
    };
    let most = (daemon.settings.calls_of_a_session, daemon.calls.clone());
    let bound = (session.into_bound(), again);
    let live = Live::new(bound, card, (request.environment, terms), (door, most));
    Ok((Arc::new(live), known))
}

/// A command as lists have it: its first words, each not too long.
fn shown_argv(mut argv: Vec<String>) -> Vec<String> {
    if argv.len() > MOST_WORDS {
        argv.truncate(MOST_WORDS);
        argv.push("…".to_owned());
    }
    argv.iter().map(|word| shown(word, MOST_NAME)).collect()
}

/// The provider is a call like any other, of whoever made the session, and the session ends with it.
fn start_provider(
    daemon: &Arc<Daemon>,
    live: &Arc<Live>,
    argv: Vec<String>,
    (by, span): (&MadeBy, Option<Context>),
) {
    let exec = Exec {
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
    };
    let (daemon, live) = (Arc::clone(daemon), Arc::clone(live));
    let wired = match Wired::new(&live, exec, Form::Pieces) {
        Ok(wired) => wired.made_by(by, None).traced(&daemon.telemetry, span),
        Err(error) => {
            return no_provider(&daemon, &live, error.message);
        }
    };
    let (call, all, own) = (Arc::clone(&wired.call), Arc::clone(&daemon), Arc::clone(&live));
    let work = move || {
        let info = wired.run(&live, Sink::Keep);
        let reason = match info.state {
            CallState::Done => SessionEnd::ProviderEnded,
            _ => SessionEnd::Crashed,
        };
        let why = info.refusal.map(|refusal| refusal.message).or(info.failure);
        live.provider_ended(info.exit_code, why);
        stop(&daemon, &live, (Because(reason, "its provider ended"), None));
    };
    // A thread of its own: it lasts as long as the session does.
    if let Err(error) = Builder::new().name("provider".to_owned()).spawn(work) {
        let info = call.end(|info| {
            (info.state, info.failure) =
                (CallState::Failed, Some(format!("there is no thread for it: {error}")));
        });
        no_provider(&all, &own, info.failure.unwrap_or_default());
    }
}

fn no_provider(daemon: &Daemon, live: &Live, why: String) {
    live.provider_ended(None, Some(why));
    stop(daemon, live, (Because(SessionEnd::Crashed, "its provider could not be started"), None));
}

/// Ends a session with the daemon, also one that somebody else is ending at their own pace.
pub(crate) fn stop_with_daemon(daemon: &Daemon, live: &Live) {
    stop(daemon, live, (Because(SessionEnd::DaemonStopped, "the daemon ended"), None));
    if !live.has_ended() {
        kill_after(live, GRACE);
    }
}

/// What still runs after that time is killed.
fn kill_after(live: &Live, grace: Duration) {
    let until = Instant::now() + grace;
    while !live.live_calls().is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    live.live_calls().iter().for_each(|call| call.kill());
}

/// Ends a session and its parts: politely, then not. When this returns nothing of it runs, and that is written down.
pub(crate) fn stop(daemon: &Daemon, live: &Live, (why, grace): (Because<'_>, Option<Duration>)) {
    let Because(reason, why) = why;
    if !live.begin_stop(why) {
        return;
    }
    live.live_calls().iter().for_each(|call| call.cancel());
    let mut parts = daemon.sessions.live();
    parts.retain(|part| part.parent.as_ref() == Some(live.id()));
    // All of them have the same time, and none runs on while another is waited for.
    let stop_part = |part: &Arc<Live>| stop(daemon, part, (WITH_THE_WHOLE, grace));
    threads::for_each(Builder::new, (&parts, stop_part), || kill_after(live, grace.unwrap_or(GRACE)));
    // Takes PID 1 of the fence, and with it whatever is left.
    if let Err(error) = live.bound.lane().end_because(reason) {
        tracing::error!(session = %live.id(), why = %error, "the end of a session is not in the ledger");
    }
    if let Err(error) = daemon.identities.end_session(live.id()) {
        tracing::error!(session = %live.id(), why = %error, "the tokens of a session are not revoked");
    }
    daemon.standings.look(&daemon.identities);
    live.finish();
    daemon.sessions.forget(live);
}
