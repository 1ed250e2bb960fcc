//! Rate limits and byte budgets of a session.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ringfence_types::{PolicyLayer, Refusal, RefusalCode, RuleId};

use crate::settings::ByteBudget;
use crate::{ProxyLimits, Traffic};

/// Token bucket for new flows; holds twice the rate.
#[derive(Debug)]
pub(crate) struct FlowRate {
    per_second: f64,
    bucket: Mutex<(f64, Instant)>,
}

impl FlowRate {
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, bucket: Mutex::new((2.0 * per_second, Instant::now())) }
    }

    /// Takes a token if there is one.
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
pub(crate) enum TrafficDirection {
    Up,
    Down,
}

/// Bytes transferred, and the byte budget.
#[derive(Debug)]
pub(crate) struct ByteMeter {
    up: AtomicU64,
    down: AtomicU64,
    budget: ByteBudget,
}

impl ByteMeter {
    pub(crate) fn new(budget: ByteBudget) -> Self {
        Self { up: AtomicU64::new(0), down: AtomicU64::new(0), budget }
    }

    /// Adds `bytes`; false if that exceeds the budget.
    pub(crate) fn adds(&self, direction: TrafficDirection, bytes: u64) -> bool {
        let (count, budget) = match direction {
            TrafficDirection::Up => (&self.up, self.budget.up),
            TrafficDirection::Down => (&self.down, self.budget.down),
        };
        count.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= budget
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic { up: self.up.load(Ordering::Relaxed), down: self.down.load(Ordering::Relaxed) }
    }
}

/// The limit that a flow exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowLimit {
    Flows,
    Requests,
    FlowsPerSecond,
    Deciding,
    FlowBytes(TrafficDirection),
    SessionBytes(TrafficDirection),
    SignedBytes,
}

impl FlowLimit {
    pub(crate) fn refusal(self, limits: &ProxyLimits) -> Refusal {
        let (rule, message, setting) = match self {
            Self::Flows => {
                let message = format!("{} flows are open, which is all that may be", limits.flows);
                (RuleId::LimitsFlows, message, Some("max_flows"))
            }
            Self::Requests => (
                RuleId::LimitsRequests,
                format!("{} requests are open, which is all that may be", limits.requests),
                None,
            ),
            Self::FlowsPerSecond => {
                let message = format!("more than {} flows a second", limits.flows_per_second);
                (RuleId::LimitsFlowsPerSecond, message, Some("max_flow_rate"))
            }
            Self::Deciding => (
                RuleId::LimitsDeciding,
                format!("{} flows wait for a decision already", limits.deciding),
                None,
            ),
            Self::FlowBytes(direction) => {
                (RuleId::LimitsFlowBytes, spent("the flow", direction, limits.flow), None)
            }
            Self::SessionBytes(direction) => (
                RuleId::LimitsSessionBytes,
                spent("the session", direction, limits.session),
                Some(budget(direction)),
            ),
            Self::SignedBytes => (
                RuleId::LimitsSignedBytes,
                format!("bodies that are signed may take {} bytes at once, and do", limits.signed_bytes),
                None,
            ),
        };
        Refusal {
            code: RefusalCode::Network,
            layer: PolicyLayer::Floor,
            rule: rule.into(),
            message,
            hint: setting.map(|setting| format!("`limits.{setting}` of the policy sets it")),
        }
    }
}

fn budget(direction: TrafficDirection) -> &'static str {
    match direction {
        TrafficDirection::Up => "max_bytes_out",
        TrafficDirection::Down => "max_bytes_in",
    }
}

fn spent(who: &str, direction: TrafficDirection, budget: ByteBudget) -> String {
    match direction {
        TrafficDirection::Up => format!("{who} has sent the {} bytes it may", budget.up),
        TrafficDirection::Down => format!("{who} has received the {} bytes it may", budget.down),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_a_burst_and_an_end() {
        let rate = FlowRate::new(10);
        let admitted = (0..1000).filter(|_| rate.admits()).count();
        assert!((20..100).contains(&admitted), "{admitted}");
    }

    #[test]
    fn a_meter_counts_what_is_above_its_budget_too() {
        let meter = ByteMeter::new(ByteBudget { up: 10, down: 0 });
        assert!(meter.adds(TrafficDirection::Up, 10));
        assert!(!meter.adds(TrafficDirection::Up, 1));
        assert!(!meter.adds(TrafficDirection::Down, u64::MAX));
        assert_eq!(meter.traffic(), Traffic { up: 11, down: u64::MAX });
    }
}
