//! The work of one request. It ends when the client disconnects or its credential is revoked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_types::{Attenuation, CallOrigin};
use tokio::runtime::Handle;

use crate::calls::live_call::LiveCall;
use crate::limits::response_memory::ResponseMeter;
use crate::observe::telemetry::{Telemetry, TraceContext};
use crate::sessions::live_session::LiveSession;

/// Time between SIGTERM and SIGKILL for cancelled calls.
const GRACE: Duration = Duration::from_secs(2);

/// The calls of one request, cancelled together.
#[derive(Debug)]
pub(crate) struct RequestScope {
    state: Mutex<ScopeState>,
    handle: Handle,
    /// Meter of the response.
    pub(crate) scale: ResponseMeter,
}

#[derive(Debug, Default)]
struct ScopeState {
    given_up: bool,
    calls: Vec<Arc<LiveCall>>,
}

impl RequestScope {
    pub(crate) fn new(handle: &Handle, scale: ResponseMeter) -> Self {
        Self { state: Mutex::default(), handle: handle.clone(), scale }
    }

    /// Ties `call` to the request: it is cancelled with the request.
    pub(crate) fn track(&self, call: &Arc<LiveCall>) {
        let mut state = self.state();
        if state.given_up {
            self.end(call);
        } else {
            state.calls.push(Arc::clone(call));
        }
    }

    fn cancel(&self) {
        self.scale.abort();
        let mut state = self.state();
        state.given_up = true;
        state.calls.drain(..).filter(|call| !call.is_over()).for_each(|call| self.end(&call));
    }

    /// SIGTERM, then SIGKILL after the grace period.
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

    fn state(&self) -> MutexGuard<'_, ScopeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session, with the request that works in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionScope<'a> {
    pub(crate) live: &'a LiveSession,
    pub(crate) work: &'a RequestScope,
    /// The attenuation of the caller's token.
    pub(crate) left: &'a Attenuation,
    /// The origin recorded with each call.
    pub(crate) by: &'a CallOrigin,
    pub(crate) telemetry: &'a Telemetry,
    /// The parent span.
    pub(crate) parent: Option<TraceContext>,
}

/// Cancels the request when dropped, for whatever reason its client stopped waiting.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(Arc<RequestScope>);

impl CancelOnDrop {
    pub(crate) fn of(work: &Arc<RequestScope>) -> Self {
        Self(Arc::clone(work))
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
