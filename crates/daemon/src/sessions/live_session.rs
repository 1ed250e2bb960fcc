//! A running session: its policy, sockets, limits and calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::{AgentProcessInfo, ApiError, CallInfo, ErrorCode, SessionInfo, SessionState};
use ringfence_ledger::SessionEndReason;
use ringfence_runtime::SessionShared;
use ringfence_types::{ByteString, CallOrigin, SessionId};
use tokio::sync::Notify;

use crate::calls::live_call::{CallInputs, LiveCall};
use crate::errors::{exhausted, internal, not_found};
use crate::limits::budget::Budget;
use crate::limits::call_slots::SessionCallSlots;
use crate::limits::response_memory::ResponsePool;
use crate::limits::worker_permits::SessionWorkers;
use crate::server::Daemon;
use crate::sessions::policy_reload::SessionPolicySource;
use crate::sessions::registry::{EndReason, OpenSession};
use crate::sessions::session_socket::SessionSocket;

/// Long requests of one session in memory at once.
const LONG: usize = 2;
pub(crate) const TIME: EndReason<'_> = EndReason(SessionEndReason::Timeout, "its time was over");
/// Ended calls that are remembered.
const REMEMBERED: usize = 64;

/// Buffered output of all ended calls. The newest output is kept.
const MOST_OUTPUT: usize = 8 * 1024 * 1024;
/// Characters of a call's description.
const MOST_SHOWN: usize = 1024;

/// Text for lists, cut to `most` characters.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let text = ByteString::from(text).display();
    match text.char_indices().nth(most) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

#[derive(Debug)]
pub(crate) struct LiveSession {
    pub(crate) bound: SessionShared<'static>,
    /// The policy source of this session and its children.
    pub(crate) again: Arc<SessionPolicySource>,
    /// Variables requested with the session.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) parent: Option<SessionId>,
    pub(crate) terms: SessionLifetime,
    /// The immutable part of the session's info.
    card: SessionInfo,
    most_calls: usize,
    /// Its share of the call slots of all sessions.
    pub(crate) places: SessionCallSlots,
    last_call: AtomicU64,
    inside: Mutex<LiveSessionState>,
    door: Mutex<Option<SessionSocket>>,
    /// Worker permits of requests on its socket.
    pub(crate) turns: SessionWorkers,
    /// Slots of its long requests.
    pub(crate) long: Budget,
    /// Memory budget of its responses.
    pub(crate) answers: ResponsePool,
    /// Notified when the session ends, so that its listener stops.
    pub(crate) over: Notify,
}

/// Mutable state behind one lock: calls and state are read together, and two locks would need an order.
#[derive(Debug)]
struct LiveSessionState {
    live: BTreeMap<u64, Arc<LiveCall>>,
    done: VecDeque<Arc<LiveCall>>,
    state: SessionState,
    why: Option<String>,
    provider: Option<AgentProcessInfo>,
    touched: Instant,
    /// Origins with a credential that ran a command here, each once.
    runners: Vec<CallOrigin>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionLifetime {
    pub(crate) until: Option<Instant>,
    pub(crate) idle: Option<Duration>,
}

impl LiveSession {
    pub(crate) fn new(
        daemon: &Daemon,
        opened: OpenSession,
        card: SessionInfo,
        environment: BTreeMap<String, String>,
        terms: SessionLifetime,
    ) -> Self {
        let (provider, most_calls) = (card.agent_process.clone(), daemon.settings.calls_of_a_session);
        Self {
            bound: opened.session.into_bound(),
            again: opened.again,
            environment,
            parent: card.parent.clone(),
            terms,
            card,
            most_calls,
            places: daemon.calls.of_a_session(),
            last_call: AtomicU64::new(0),
            inside: Mutex::new(LiveSessionState {
                live: BTreeMap::new(),
                done: VecDeque::new(),
                state: SessionState::Running,
                why: None,
                provider,
                touched: Instant::now(),
                runners: Vec::new(),
            }),
            door: Mutex::new(Some(opened.door)),
            turns: SessionWorkers::new(most_calls),
            long: Budget::new(LONG),
            answers: ResponsePool::of_session(),
            over: Notify::new(),
        }
    }

    pub(crate) fn id(&self) -> &SessionId {
        self.bound.id()
    }

    pub(crate) fn info(&self) -> SessionInfo {
        let inside = self.inside();
        SessionInfo {
            state: inside.state,
            end_reason: inside.why.clone(),
            agent_process: inside.provider.clone(),
            running_calls: inside.live.values().filter(|call| !call.is_over()).count() as u64,
            calls: self.last_call.load(Ordering::Relaxed),
            ..self.card.clone()
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.inside().state == SessionState::Running
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.inside().state == SessionState::Ended
    }

    /// Registers a call, if the session has a free slot.
    pub(crate) fn call(&self, what: String, inlets: CallInputs) -> Result<Arc<LiveCall>, ApiError> {
        let what = shown(&self.bound.clean(&what), MOST_SHOWN);
        self.sweep();
        let mut inside = self.inside();
        if inside.state != SessionState::Running {
            return Err(ApiError::new(ErrorCode::FailedPrecondition, "the session has ended"));
        }
        if inside.live.len() >= self.most_calls {
            return Err(exhausted(format!("the session has {} calls under way", inside.live.len())));
        }
        let number = self.last_call.fetch_add(1, Ordering::Relaxed) + 1;
        let call = Arc::new(LiveCall::new(number, what, inlets).map_err(|error| internal(&error))?);
        let _new = inside.live.insert(number, Arc::clone(&call));
        drop(inside);
        self.touch();
        Ok(call)
    }

    /// Moves ended calls to the remembered ones, and drops what exceeds the limits.
    pub(crate) fn sweep(&self) {
        let mut inside = self.inside();
        let over: Vec<u64> =
            inside.live.values().filter(|call| call.is_over()).map(|call| call.number).collect();
        for number in over {
            let call = inside.live.remove(&number);
            // The waiting client already has the captured output.
            call.iter().for_each(|call| call.forget_output());
            inside.done.extend(call);
        }
        while inside.done.len() > REMEMBERED {
            let _oldest = inside.done.pop_front();
        }
        let mut kept = 0;
        for call in inside.done.iter().rev() {
            kept += call.output.size();
            if kept > MOST_OUTPUT {
                call.output.forget();
            }
        }
    }

    pub(crate) fn find_call(&self, number: u64) -> Result<Arc<LiveCall>, ApiError> {
        let inside = self.inside();
        let known =
            inside.live.get(&number).or_else(|| inside.done.iter().find(|call| call.number == number));
        known.cloned().ok_or_else(|| not_found("call", &number.to_string()))
    }

    pub(crate) fn call_infos(&self) -> Vec<CallInfo> {
        self.sweep();
        let inside = self.inside();
        inside.done.iter().chain(inside.live.values()).map(|call| call.info()).collect()
    }

    pub(crate) fn live_calls(&self) -> Vec<Arc<LiveCall>> {
        self.inside().live.values().filter(|call| !call.is_over()).cloned().collect()
    }

    /// Remembers the origin of a command, also after its call ended, because its processes may go on. Agents cannot
    /// approve and the owner may always approve, so neither is remembered.
    pub(crate) fn is_run_by(&self, by: &CallOrigin) {
        let mut inside = self.inside();
        if by.credential.is_some() && by.principal.is_person() && !inside.runners.contains(by) {
            inside.runners.push(by.clone());
        }
    }

    pub(crate) fn runners(&self) -> Vec<CallOrigin> {
        self.inside().runners.clone()
    }

    /// Restarts the idle time.
    pub(crate) fn touch(&self) {
        self.inside().touched = Instant::now();
        self.sweep();
    }

    pub(crate) fn provider_ended(&self, exit_code: Option<u8>, failure: Option<String>) {
        if let Some(provider) = &mut self.inside().provider {
            (provider.exit_code, provider.failure) = (exit_code, failure);
        }
    }

    /// The reason, if the session has expired or is idle for too long.
    pub(crate) fn overdue(&self, now: Instant) -> Option<EndReason<'static>> {
        let (running, touched) = {
            let inside = self.inside();
            (inside.state == SessionState::Running, inside.touched)
        };
        if !running {
            return None;
        }
        if self.terms.until.is_some_and(|until| now >= until) {
            return Some(TIME);
        }
        let idle = self.terms.idle.is_some_and(|idle| now.saturating_duration_since(touched) >= idle);
        (idle && self.live_calls().is_empty())
            .then_some(EndReason(SessionEndReason::Idle, "nothing was asked of it for too long"))
    }

    /// Stops new calls. True for the first caller only, which then ends the session.
    pub(crate) fn begin_stop(&self, why: &str) -> bool {
        let mut inside = self.inside();
        if inside.state != SessionState::Running {
            return false;
        }
        (inside.state, inside.why) = (SessionState::Stopping, Some(why.to_owned()));
        true
    }

    /// Marks the session as ended and closes its socket, after its last process is gone.
    pub(crate) fn finish(&self) {
        self.inside().state = SessionState::Ended;
        *self.door.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.sweep();
        self.over.notify_waiters();
    }

    fn inside(&self) -> MutexGuard<'_, LiveSessionState> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
