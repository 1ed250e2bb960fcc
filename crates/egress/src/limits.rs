//! Rates and budgets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ringfence_types::{Layer, Refusal, RefusalCode};

use crate::settings::Budget;
use crate::{Limits, Traffic};

/// So many a second, and twice as many at once.
#[derive(Debug)]
pub(crate) struct Rate {
    per_second: f64,
    bucket: Mutex<(f64, Instant)>,
}

impl Rate {
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, bucket: Mutex::new((2.0 * per_second, Instant::now())) }
    }

    /// Whether one more may be now.
    pub(crate) fn admits(&self) -> bool {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let refilled = bucket.0 + now.duration_since(bucket.1).as_secs_f64() * self.per_second;
        let available = refilled.min(2.0 * self.per_second);
        let admitted = available >= 1.0;
        *bucket = (if admitted { available - 1.0 } else { available }, now);
        admitted
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// Bytes that passed, against what may pass.
#[derive(Debug)]
pub(crate) struct Meter {
    up: AtomicU64,
    down: AtomicU64,
    budget: Budget,
}

impl Meter {
    pub(crate) fn new(budget: Budget) -> Self {
        Self { up: AtomicU64::new(0), down: AtomicU64::new(0), budget }
    }

    /// Adds `bytes`; false when that is more than the budget.
    pub(crate) fn adds(&self, direction: Direction, bytes: u64) -> bool {
        let (count, budget) = match direction {
            Direction::Up => (&self.up, self.budget.up),
            Direction::Down => (&self.down, self.budget.down),
        };
        count.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= budget
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic { up: self.up.load(Ordering::Relaxed), down: self.down.load(Ordering::Relaxed) }
    }
}

/// What of a session is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Flows,
    Requests,
    FlowsPerSecond,
    Deciding,
    FlowBytes(Direction),
    SessionBytes(Direction),
    SignedBytes,
}

impl Limit {
    pub(crate) fn refusal(self, limits: &Limits) -> Refusal {
        let (name, message, setting) = match self {
            Self::Flows => {
                let message = format!("{} flows are open, which is all that may be", limits.flows);
                ("flows", message, Some("flows"))
            }
            Self::Requests => {
                ("requests", format!("{} requests are open, which is all that may be", limits.requests), None)
            }
            Self::FlowsPerSecond => {
                let message = format!("more than {} flows a second", limits.flows_per_second);
                ("flows-per-second", message, Some("flow_rate"))
            }
            Self::Deciding => {
                ("deciding", format!("{} flows wait for a decision already", limits.deciding), None)
            }
            Self::FlowBytes(direction) => ("flow-bytes", spent("the flow", direction, limits.flow), None),
            Self::SessionBytes(direction) => {
                ("session-bytes", spent("the session", direction, limits.session), Some(budget(direction)))
            }
            Self::SignedBytes => (
                "signed-bytes",
                format!("bodies that are signed may take {} bytes at once, and do", limits.signed_bytes),
                None,
            ),
        };
        Refusal {
            code: RefusalCode::Network,
            layer: Layer::Floor,
            rule: format!("limit {name}"),
            message,
            hint: setting.map(|setting| format!("`limits.{setting}` of the policy sets it")),
        }
    }
}

fn budget(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "net_up",
        Direction::Down => "net_down",
    }
}

fn spent(who: &str, direction: Direction, budget: Budget) -> String {
    match direction {
        Direction::Up => format!("{who} has sent the {} bytes it may", budget.up),
        Direction::Down => format!("{who} has received the {} bytes it may", budget.down),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_a_burst_and_an_end() {
        let rate = Rate::new(10);
        let admitted = (0..1000).filter(|_| rate.admits()).count();
        assert!((20..100).contains(&admitted), "{admitted}");
    }

    #[test]
    fn a_meter_counts_what_is_above_its_budget_too() {
        let meter = Meter::new(Budget { up: 10, down: 0 });
        assert!(meter.adds(Direction::Up, 10));
        assert!(!meter.adds(Direction::Up, 1));
        assert!(!meter.adds(Direction::Down, u64::MAX));
        assert_eq!(meter.traffic(), Traffic { up: 11, down: u64::MAX });
    }
}
