//! Metrics in the Prometheus text format.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use ringfence_api::ErrorCode;

/// Counters since the start of the daemon.
#[derive(Debug, Default)]
pub(crate) struct MetricCounters {
    pub(crate) requests: AtomicU64,
    pub(crate) calls: AtomicU64,
    pub(crate) sessions: AtomicU64,
    pub(crate) subscribers: AtomicU64,
    pub(crate) dropped: AtomicU64,
    errors: [AtomicU64; ErrorCode::ALL.len()],
}

impl MetricCounters {
    pub(crate) fn error(&self, code: ErrorCode) {
        let place = ErrorCode::ALL.iter().position(|known| *known == code);
        if let Some(counter) = place.and_then(|place| self.errors.get(place)) {
            let _before = counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn text(&self, sessions: usize, running: usize) -> String {
        let mut text = String::new();
        let mut line = |kind: &str, name: &str, help: &str, value: u64| {
            // Writing to a string does not fail.
            let _written = write!(
                text,
                "# HELP ringfence_{name} {help}\n# TYPE ringfence_{name} {kind}\nringfence_{name} {value}\n"
            );
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        line("gauge", "sessions", "Sessions that are under way", sessions as u64);
        line("gauge", "calls_running", "Calls that are under way", running as u64);
        line("counter", "requests_total", "Requests of any kind", count(&self.requests));
        line("counter", "sessions_total", "Sessions that were made", count(&self.sessions));
        line("counter", "calls_total", "Commands that were asked for", count(&self.calls));
        line("gauge", "subscribers", "Streams of events", count(&self.subscribers));
        line(
            "counter",
            "subscribers_dropped_total",
            "Subscribers that did not keep up",
            count(&self.dropped),
        );
        text.push_str("# HELP ringfence_errors_total Requests without an answer\n# TYPE ringfence_errors_total counter\n");
        for (code, counter) in ErrorCode::ALL.iter().zip(&self.errors) {
            let word = serde_json::to_value(code)
                .ok()
                .and_then(|value| value.as_str().map(str::to_owned))
                .unwrap_or_default();
            let _written = writeln!(text, "ringfence_errors_total{{code=\"{word}\"}} {}", count(counter));
        }
        text
    }
}
