//! A session while it lives: what it is bound to, and its calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::{ApiError, CallInfo, ErrorCode, ProviderInfo, SessionInfo, SessionState};
use ringfence_runtime::Bound;
use ringfence_runtime::ledger::SessionEnd;
use ringfence_types::{Bytes, MadeBy, SessionId};
use tokio::sync::{Notify, Semaphore};

use crate::answers;
use crate::call::{Inlets, LiveCall};
use crate::door::Door;
use crate::failure::{exhausted, internal, not_found};
use crate::places::{OwnPlaces, Places};
use crate::reload::Again;
use crate::sessions::Because;
use crate::turns::OfSession;

/// Long requests of one session that are taken in at once.
const LONG: usize = 2;
pub(crate) const TIME: Because<'_> = Because(SessionEnd::Timeout, "its time was over");
/// Calls that are over and still remembered.
const REMEMBERED: usize = 64;

/// Of all calls that are over, the newest first.
const MOST_OUTPUT: usize = 8 * 1024 * 1024;
/// Of what a call is about.
const MOST_SHOWN: usize = 1024;

/// Text for lists, not longer than that.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let text = Bytes::from(text).display();
    match text.char_indices().nth(most) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// What a session is bound to, and its calls.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) bound: Bound<'static>,
    /// What policy says to it, and to its parts.
    pub(crate) again: Arc<Again>,
    /// Variables that were asked for with the session.
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) parent: Option<SessionId>,
    pub(crate) terms: Terms,
    /// What does not change.
    card: SessionInfo,
    most_calls: usize,
    /// Of the calls of all sessions.
    pub(crate) places: OwnPlaces,
    last_call: AtomicU64,
    inside: Mutex<Inside>,
    door: Mutex<Option<Door>>,
    /// Threads of what comes by its door.
    pub(crate) turns: OfSession,
    /// Its long requests that are taken in at once.
    pub(crate) long: Arc<Semaphore>,
    /// The room that there is for what it is answered.
    pub(crate) answers: Arc<Semaphore>,
    /// Told when the session is over: whoever serves its door goes.
    pub(crate) over: Notify,
}

/// What changes. Behind one lock: whoever looks at calls looks at the state as well, and two locks would have an order to get wrong.
#[derive(Debug)]
struct Inside {
    live: BTreeMap<u64, Arc<LiveCall>>,
    done: VecDeque<Arc<LiveCall>>,
    state: SessionState,
    why: Option<String>,
    provider: Option<ProviderInfo>,
    touched: Instant,
    /// Whoever has run something in it with a credential, each once.
    runners: Vec<MadeBy>,
}

/// How long a session may last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) until: Option<Instant>,
    pub(crate) idle: Option<Duration>,
}

impl Live {
    pub(crate) fn new(
        (bound, again): (Bound<'static>, Arc<Again>),
        card: SessionInfo,
        (environment, terms): (BTreeMap<String, String>, Terms),
        (door, (most_calls, places)): (Door, (usize, Places)),
    ) -> Self {
        let provider = card.provider.clone();
        Self {
            bound,
            again,
            environment,
            parent: card.parent.clone(),
            terms,
            card,
            most_calls,
            places: places.of_a_session(),
            last_call: AtomicU64::new(0),
            inside: Mutex::new(Inside {
                live: BTreeMap::new(),
                done: VecDeque::new(),
                state: SessionState::Running,
                why: None,
                provider,
                touched: Instant::now(),
                runners: Vec::new(),
            }),
            door: Mutex::new(Some(door)),
            turns: OfSession::new(most_calls),
            long: Arc::new(Semaphore::new(LONG)),
            answers: answers::of_session(),
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
            ended: inside.why.clone(),
            provider: inside.provider.clone(),
            running: inside.live.values().filter(|call| !call.is_over()).count() as u64,
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

    /// A place for a call, if there is one.
    pub(crate) fn call(&self, what: String, inlets: Inlets) -> Result<Arc<LiveCall>, ApiError> {
        let what = shown(&self.bound.clean(&what), MOST_SHOWN);
        self.sweep();
        let mut inside = self.inside();
        if inside.state != SessionState::Running {
            return Err(ApiError::new(ErrorCode::Conflict, "the session is over"));
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

    /// Calls that are over make place.
    pub(crate) fn sweep(&self) {
        let mut inside = self.inside();
        let over: Vec<u64> =
            inside.live.values().filter(|call| call.is_over()).map(|call| call.number).collect();
        for number in over {
            let call = inside.live.remove(&number);
            // Whoever waited for it has what it printed.
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

    /// Somebody has something to do with what runs in it from now on, also when their call is over: what it began may go on. An
    /// agent answers no question, and the owner of the machine every one, so that neither has to be known.
    pub(crate) fn is_run_by(&self, by: &MadeBy) {
        let mut inside = self.inside();
        if by.shown.is_some() && by.principal.is_person() && !inside.runners.contains(by) {
            inside.runners.push(by.clone());
        }
    }

    pub(crate) fn runners(&self) -> Vec<MadeBy> {
        self.inside().runners.clone()
    }

    /// Something happened in it.
    pub(crate) fn touch(&self) {
        self.inside().touched = Instant::now();
        self.sweep();
    }

    pub(crate) fn provider_ended(&self, exit_code: Option<u8>, failure: Option<String>) {
        if let Some(provider) = &mut self.inside().provider {
            (provider.exit_code, provider.failure) = (exit_code, failure);
        }
    }

    /// Why its time is over, if it is.
    pub(crate) fn overdue(&self, now: Instant) -> Option<Because<'static>> {
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
            .then_some(Because(SessionEnd::Idle, "nothing was asked of it for too long"))
    }

    /// Nothing new begins in it from now on. Only the first who says so goes on to end it.
    pub(crate) fn begin_stop(&self, why: &str) -> bool {
        let mut inside = self.inside();
        if inside.state != SessionState::Running {
            return false;
        }
        (inside.state, inside.why) = (SessionState::Stopping, Some(why.to_owned()));
        true
    }

    /// Everything in it is gone.
    pub(crate) fn finish(&self) {
        self.inside().state = SessionState::Ended;
        *self.door.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.sweep();
        self.over.notify_waiters();
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
