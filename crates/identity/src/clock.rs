//! Time that does not run back: a clock that is set back makes no expired credential good again.

use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;

/// Where the time comes from.
pub trait Clock: Send + Sync + Debug {
    /// What the clock on the wall says.
    fn wall(&self) -> Timestamp;
    /// By a clock that nobody sets, and that runs while the machine sleeps.
    fn since_boot(&self) -> Duration;
}

#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn since_boot(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(time).unwrap_or_default()
    }
}

/// The latest moment that is known to have been, and when in the life of this process that was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    at: Timestamp,
    since_boot: Duration,
}

impl Reached {
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        Self { at: clock.wall(), since_boot: clock.since_boot() }
    }

    /// Now: not before the wall says, not before what was reached plus what has passed, not before what was `stored`.
    pub(crate) fn advance(&mut self, clock: &dyn Clock, stored: Option<Timestamp>) -> Timestamp {
        let since_boot = clock.since_boot();
        let passed = since_boot.saturating_sub(self.since_boot);
        let counted = self.at.saturating_add(jiff::SignedDuration::try_from(passed).unwrap_or_default());
        let now = clock.wall().max(counted.unwrap_or(self.at)).max(stored.unwrap_or(self.at));
        *self = Self { at: now, since_boot };
        now
    }
}
