//! What was sent, and what was not.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use ringfence_runtime::authz::policy::Signal;

/// Why something was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// There was no place left for it.
    Queue,
    /// The collector does not want it.
    Refused,
    /// It was tried for as long as it is, or the daemon ended.
    Unreachable,
    /// Secrets could not be told from it, or a header has no value.
    Withheld,
}

impl Why {
    const ALL: [Self; 4] = [Self::Queue, Self::Refused, Self::Unreachable, Self::Withheld];

    fn word(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Withheld => "withheld",
        }
    }
}

/// Since the start of the daemon.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    traces: Counts,
    logs: Counts,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    sent: AtomicU64,
    dropped: [AtomicU64; Why::ALL.len()],
}

impl Counts {
    pub(super) fn sent(&self, count: u64) {
        let _before = self.sent.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self, why: Why, count: u64) {
        let place = Why::ALL.iter().position(|known| *known == why);
        if let Some(counter) = place.and_then(|place| self.dropped.get(place)) {
            let _before = counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn all_dropped(&self) -> u64 {
        self.dropped.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }
}

impl Counters {
    pub(super) fn of(&self, signal: Signal) -> &Counts {
        match signal {
            Signal::Traces => &self.traces,
            Signal::Logs => &self.logs,
        }
    }

    /// Sent and dropped.
    pub(super) fn sums(&self, signal: Signal) -> (u64, u64) {
        let counts = self.of(signal);
        (counts.sent.load(Ordering::Relaxed), counts.all_dropped())
    }

    /// For Prometheus.
    pub(crate) fn text(&self) -> String {
        let mut text = "# HELP ringfence_telemetry_sent_total Spans and log records that the collector has\n\
             # TYPE ringfence_telemetry_sent_total counter\n"
            .to_owned();
        let both = [Signal::Traces, Signal::Logs].map(|signal| (signal.word(), self.of(signal)));
        // Writing to a string does not fail.
        for (signal, counts) in both {
            let sent = counts.sent.load(Ordering::Relaxed);
            let _written = writeln!(text, "ringfence_telemetry_sent_total{{signal=\"{signal}\"}} {sent}");
        }
        text.push_str(
            "# HELP ringfence_telemetry_dropped_total Spans and log records that it will not have\n",
        );
        text.push_str("# TYPE ringfence_telemetry_dropped_total counter\n");
        for (signal, counts) in both {
            for (why, counter) in Why::ALL.iter().zip(&counts.dropped) {
                let (why, count) = (why.word(), counter.load(Ordering::Relaxed));
                let _written = writeln!(
                    text,
                    "ringfence_telemetry_dropped_total{{signal=\"{signal}\",why=\"{why}\"}} {count}"
                );
            }
        }
        text
    }
}
