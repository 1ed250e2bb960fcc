//! Whoever waits for an answer. What is done for them ends when they go away, or may not have it any more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_types::{Attenuation, MadeBy};
use tokio::runtime::Handle;

use crate::answers::Scale;
use crate::call::LiveCall;
use crate::session::Live;
use crate::telemetry::{Context, Telemetry};

/// How long what is cut off may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// What is done for somebody while they wait.
#[derive(Debug)]
pub(crate) struct Work {
    state: Mutex<State>,
    handle: Handle,
    /// Of what they are answered.
    pub(crate) scale: Scale,
}

#[derive(Debug, Default)]
struct State {
    given_up: bool,
    calls: Vec<Arc<LiveCall>>,
}

impl Work {
    pub(crate) fn new(handle: &Handle, scale: Scale) -> Self {
        Self { state: Mutex::default(), handle: handle.clone(), scale }
    }

    /// `call` is done for whoever waits, and for nobody else.
    pub(crate) fn includes(&self, call: &Arc<LiveCall>) {
        let mut state = self.state();
        if state.given_up {
            self.end(call);
        } else {
            state.calls.push(Arc::clone(call));
        }
    }

    fn give_up(&self) {
        self.scale.give_up();
        let mut state = self.state();
        state.given_up = true;
        state.calls.drain(..).filter(|call| !call.is_over()).for_each(|call| self.end(&call));
    }

    /// Politely, then not.
    fn end(&self, call: &Arc<LiveCall>) {
        call.cancel();
        let call = Arc::clone(call);
        let _ending = self.handle.spawn(async move {
            call.ended(GRACE).await;
            if !call.is_over() {
                call.kill();
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session, and what is done in it for somebody who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit<'a> {
    pub(crate) live: &'a Live,
    pub(crate) work: &'a Work,
    /// What of it whoever asks may use.
    pub(crate) left: &'a Attenuation,
    /// Who asks, as it is written down.
    pub(crate) by: &'a MadeBy,
    pub(crate) telemetry: &'a Telemetry,
    /// The span that it belongs to.
    pub(crate) parent: Option<Context>,
}

/// Dropped when whoever waited does not any more, for whatever reason.
#[derive(Debug)]
pub(crate) struct Waiter(Arc<Work>);

impl Waiter {
    pub(crate) fn of(work: &Arc<Work>) -> Self {
        Self(Arc::clone(work))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
