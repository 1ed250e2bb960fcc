//! Monotonic time: setting the clock back must not revive expired credentials.

use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;

/// The source of time.
pub trait Clock: Send + Sync + Debug {
    /// The wall clock.
    fn wall(&self) -> Timestamp;
    /// A clock that cannot be set and that runs during suspend.
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

/// The latest time seen, with the boot time at that moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatestTime {
    at: Timestamp,
    since_boot: Duration,
}

impl LatestTime {
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        Self { at: clock.wall(), since_boot: clock.since_boot() }
    }

    /// The current time: the latest of the wall clock, the last time plus what has passed since, and the `stored` time.
    pub(crate) fn advance(&mut self, clock: &dyn Clock, stored: Option<Timestamp>) -> Timestamp {
        let since_boot = clock.since_boot();
        let passed = since_boot.saturating_sub(self.since_boot);
        let counted = self.at.saturating_add(jiff::SignedDuration::try_from(passed).unwrap_or_default());
        let now = clock.wall().max(counted.unwrap_or(self.at)).max(stored.unwrap_or(self.at));
        *self = Self { at: now, since_boot };
        now
    }
}
