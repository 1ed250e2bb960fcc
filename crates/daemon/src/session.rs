//! A session while it lives: what it is bound to, and its calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::{ApiError, CallInfo, ErrorCode, ProviderInfo, SessionInfo, SessionState};
use ringfence_runtime::Bound;
use ringfence_types::SessionId;
use tokio::sync::Notify;

use crate::call::{Inlets, LiveCall};
use crate::door::Door;
use crate::failure::{exhausted, internal, not_found};

/// Calls that are over and still remembered.
const REMEMBERED: usize = 64;

/// What a session is bound to, and its calls.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) bound: Bound<'static>,
    /// Variables that were asked for with the session.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) parent: Option<SessionId>,
    pub(crate) terms: Terms,
    /// What does not change.
    card: SessionInfo,
    most_calls: usize,
    calls: Mutex<Calls>,
    last_call: AtomicU64,
    state: Mutex<State>,
    door: Mutex<Option<Door>>,
    /// Told when the session is over: whoever serves its door goes.
    pub(crate) over: Notify,
}

#[derive(Debug, Default)]
struct Calls {
    live: BTreeMap<u64, Arc<LiveCall>>,
    done: VecDeque<Arc<LiveCall>>,
}

#[derive(Debug)]
struct State {
    state: SessionState,
    why: Option<String>,
    provider: Option<ProviderInfo>,
    touched: Instant,
}

/// How long a session may last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) until: Option<Instant>,
    pub(crate) idle: Option<Duration>,
}

impl Live {
    pub(crate) fn new(
        bound: Bound<'static>,
        card: SessionInfo,
        (environment, terms): (BTreeMap<String, String>, Terms),
        (door, most_calls): (Door, usize),
    ) -> Self {
        let provider = card.provider.clone();
        Self {
            bound,
            environment,
            parent: card.parent.clone(),
            terms,
            card,
            most_calls,
            calls: Mutex::default(),
            last_call: AtomicU64::new(0),
            state: Mutex::new(State {
                state: SessionState::Running,
                why: None,
                provider,
                touched: Instant::now(),
            }),
            door: Mutex::new(Some(door)),
            over: Notify::new(),
        }
    }

    pub(crate) fn id(&self) -> &SessionId {
        self.bound.id()
    }

    pub(crate) fn info(&self) -> SessionInfo {
        let state = self.state();
        SessionInfo {
            state: state.state,
            ended: state.why.clone(),
            provider: state.provider.clone(),
            running: self.calls().live.len() as u64,
            calls: self.last_call.load(Ordering::Relaxed),
            ..self.card.clone()
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state().state == SessionState::Running
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state().state == SessionState::Ended
    }

    /// A place for a call, if there is one.
    pub(crate) fn call(&self, what: String, inlets: Inlets) -> Result<Arc<LiveCall>, ApiError> {
        let mut calls = self.calls();
        if !self.is_running() {
            return Err(ApiError::new(ErrorCode::Conflict, "the session is over"));
        }
        if calls.live.len() >= self.most_calls {
            return Err(exhausted(format!("the session has {} calls under way", calls.live.len())));
        }
        let number = self.last_call.fetch_add(1, Ordering::Relaxed) + 1;
        let call = Arc::new(LiveCall::new(number, what, inlets).map_err(|error| internal(&error))?);
        let _new = calls.live.insert(number, Arc::clone(&call));
        drop(calls);
        self.touch();
        Ok(call)
    }

    /// Calls that are over make place.
    pub(crate) fn sweep(&self) {
        let mut calls = self.calls();
        let over: Vec<u64> =
            calls.live.values().filter(|call| call.is_over()).map(|call| call.number).collect();
        for number in over {
            let call = calls.live.remove(&number);
            calls.done.extend(call);
        }
        while calls.done.len() > REMEMBERED {
            let _oldest = calls.done.pop_front();
        }
    }

    pub(crate) fn find_call(&self, number: u64) -> Result<Arc<LiveCall>, ApiError> {
        let calls = self.calls();
        let known = calls.live.get(&number).or_else(|| calls.done.iter().find(|call| call.number == number));
        known.cloned().ok_or_else(|| not_found("call", &number.to_string()))
    }

    pub(crate) fn call_infos(&self) -> Vec<CallInfo> {
        let calls = self.calls();
        calls.done.iter().chain(calls.live.values()).map(|call| call.info()).collect()
    }

    pub(crate) fn live_calls(&self) -> Vec<Arc<LiveCall>> {
        self.calls().live.values().filter(|call| !call.is_over()).cloned().collect()
    }

    /// Something happened in it.
    pub(crate) fn touch(&self) {
        self.state().touched = Instant::now();
        self.sweep();
    }

    pub(crate) fn provider_ended(&self, exit_code: Option<u8>, failure: Option<String>) {
        if let Some(provider) = &mut self.state().provider {
            (provider.exit_code, provider.failure) = (exit_code, failure);
        }
    }

    /// Why its time is over, if it is.
    pub(crate) fn overdue(&self, now: Instant) -> Option<&'static str> {
        let (running, touched) = {
            let state = self.state();
            (state.state == SessionState::Running, state.touched)
        };
        if !running {
            return None;
        }
        if self.terms.until.is_some_and(|until| now >= until) {
            return Some("its time was over");
        }
        let idle = self.terms.idle.is_some_and(|idle| now.saturating_duration_since(touched) >= idle);
        (idle && self.live_calls().is_empty()).then_some("nothing was asked of it for too long")
    }

    /// Nothing new begins in it from now on. Only the first who says so goes on to end it.
    pub(crate) fn begin_stop(&self, why: &str) -> bool {
        let _no_call_begins = self.calls();
        let mut state = self.state();
        if state.state != SessionState::Running {
            return false;
        }
        (state.state, state.why) = (SessionState::Stopping, Some(why.to_owned()));
        true
    }

    /// Everything in it is gone.
    pub(crate) fn finish(&self) {
        self.state().state = SessionState::Ended;
        *self.door.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.sweep();
        self.over.notify_waiters();
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
