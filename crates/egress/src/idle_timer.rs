//! Idle timer: detects pauses of a body, so that buffered bytes can be sent.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ringfence_scan::PauseLength;
use tokio::time::{Sleep, sleep};

/// A request body is scanned whole if it arrives without a long pause.
pub(crate) const REQUEST: &[(Duration, PauseLength)] =
    &[(Duration::from_millis(25), PauseLength::Short), (Duration::from_secs(1), PauseLength::Long)];
/// A response has shorter pauses, because clients wait for its events.
pub(crate) const RESPONSE: &[(Duration, PauseLength)] =
    &[(Duration::ZERO, PauseLength::Short), (Duration::from_millis(100), PauseLength::Long)];

pub(crate) struct IdleTimer {
    steps: &'static [(Duration, PauseLength)],
    done: usize,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl IdleTimer {
    pub(crate) fn new(steps: &'static [(Duration, PauseLength)]) -> Self {
        Self { steps, done: 0, sleep: None }
    }

    /// Restarts the timer after new bytes.
    pub(crate) fn ended(&mut self) {
        self.done = 0;
        self.sleep = None;
    }

    /// Returns each pause length once when it has elapsed.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<PauseLength> {
        let Some((length, pause)) = self.steps.get(self.done) else { return Poll::Pending };
        if !length.is_zero() {
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(*length)));
            ready!(sleep.as_mut().poll(context));
        }
        self.sleep = None;
        self.done += 1;
        Poll::Ready(*pause)
    }
}
