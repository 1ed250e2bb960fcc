//! Counters of exported and dropped items.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use ringfence_policy::TelemetrySignal;

/// Why an item was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropReason {
    /// The queue was full.
    Queue,
    /// The collector rejected it.
    Refused,
    /// All attempts failed, or the daemon ended.
    Unreachable,
    /// Redaction failed, or a header has no value.
    Withheld,
}

impl DropReason {
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

/// Counters since the start of the daemon.
#[derive(Debug, Default)]
pub(crate) struct ExportCounters {
    traces: SignalCounts,
    logs: SignalCounts,
}

#[derive(Debug, Default)]
pub(super) struct SignalCounts {
    sent: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
}

impl SignalCounts {
    pub(super) fn sent(&self, count: u64) {
        let _before = self.sent.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self, why: DropReason, count: u64) {
        let place = DropReason::ALL.iter().position(|known| *known == why);
        if let Some(counter) = place.and_then(|place| self.dropped.get(place)) {
            let _before = counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn all_dropped(&self) -> u64 {
        self.dropped.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }
}

impl ExportCounters {
    pub(super) fn of(&self, signal: TelemetrySignal) -> &SignalCounts {
        match signal {
            TelemetrySignal::Traces => &self.traces,
            TelemetrySignal::Logs => &self.logs,
        }
    }

    /// Sent and dropped items.
    pub(super) fn sums(&self, signal: TelemetrySignal) -> (u64, u64) {
        let counts = self.of(signal);
        (counts.sent.load(Ordering::Relaxed), counts.all_dropped())
    }

    /// The counters in the Prometheus text format.
    pub(crate) fn text(&self) -> String {
        let mut text = "# HELP ringfence_telemetry_sent_total Spans and log records that the collector has\n\
             # TYPE ringfence_telemetry_sent_total counter\n"
            .to_owned();
        let both =
            [TelemetrySignal::Traces, TelemetrySignal::Logs].map(|signal| (signal.word(), self.of(signal)));
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
            for (why, counter) in DropReason::ALL.iter().zip(&counts.dropped) {
                let (why, count) = (why.word(), counter.load(Ordering::Relaxed));
                let _written = writeln!(
                    text,
                    "ringfence_telemetry_dropped_total{{signal=\"{signal}\",reason=\"{why}\"}} {count}"
                );
            }
        }
        text
    }
}
