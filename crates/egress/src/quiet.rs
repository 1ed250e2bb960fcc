//! Pauses of a body, and what is done about them.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ringfence_scan::Pause;
use tokio::time::{Sleep, sleep};

/// A request is searched whole if it comes whole. Whoever waits for an answer to the first part of it waits a little.
pub(crate) const REQUEST: &[(Duration, Pause)] =
    &[(Duration::from_millis(25), Pause::Short), (Duration::from_secs(1), Pause::Long)];
/// A response flows: events are for now.
pub(crate) const RESPONSE: &[(Duration, Pause)] =
    &[(Duration::ZERO, Pause::Short), (Duration::from_millis(100), Pause::Long)];

pub(crate) struct Quiet {
    steps: &'static [(Duration, Pause)],
    done: usize,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Quiet {
    pub(crate) fn new(steps: &'static [(Duration, Pause)]) -> Self {
        Self { steps, done: 0, sleep: None }
    }

    /// Something came: the next pause is another.
    pub(crate) fn ended(&mut self) {
        self.done = 0;
        self.sleep = None;
    }

    /// While nothing comes: each step once, when its time has come.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Pause> {
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
