//! Telemetry: traces and logs for the operator's collector, over OTLP. Off unless the operator's file has
//! `[telemetry]`.
//!
//! [`attributes`] lists every exported name. [`span`] and [`record`] build the content, [`redact`] removes secrets,
//! [`otlp`] encodes, and [`export`] sends through [`collector`].
//!
//! INVARIANT: telemetry never delays a call. A call puts its span into a queue if there is space, and goes on. While
//! telemetry is off there is no task, no thread and no timer.

mod attributes;
mod backoff;
mod collector;
mod counters;
mod export;
mod otlp;
mod record;
mod redact;
mod span;
mod trace;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use ringfence_api::MethodAccess;
use ringfence_policy::{TelemetrySettings, TelemetrySignal};
use ringfence_runtime::{OutboundRedactionError, OutboundRedactor};
use ringfence_types::{SessionId, TransactionId};
use serde::Deserialize as _;
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admit::dispatch::IncomingRequest;
use crate::observe::events;
use crate::server::Daemon;
use crate::sessions::registry::SessionRegistry;

use collector::Collector;
pub use collector::CollectorError;
use counters::{DropReason, ExportCounters};
use export::{ExportPhase, OtlpEncoder, SignalSender};
pub(crate) use record::tool as tool_of;
use span::FinishedSpan;
pub(crate) use span::{RequestSpan, ToolCallInfo, ToolSpan};
pub(crate) use trace::TraceContext;

/// Time for the last export at shutdown or at a configuration change.
const FLUSH: Duration = Duration::from_secs(5);
/// Transactions whose span is remembered.
const REMEMBERED: usize = 4096;

/// Why telemetry cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    #[error(transparent)]
    Outbound(#[from] OutboundRedactionError),
    #[error(transparent)]
    Collector(#[from] CollectorError),
    #[error("no random number can be had")]
    Random(#[from] getrandom::Error),
    #[error("it could not be looked at")]
    Broken(#[from] tokio::task::JoinError),
}

impl TelemetryError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Outbound(error) => error.hint(),
            Self::Collector(CollectorError::Read(_) | CollectorError::NoAuthority) => {
                Some("`ca_file` in `[telemetry]` names a file with certificates in PEM".to_owned())
            }
            _ => None,
        }
    }
}

/// Effect of a configuration change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TelemetryUpdate {
    Unchanged,
    On,
    Off,
}

/// The telemetry of the daemon.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    counters: Arc<ExportCounters>,
    current: RwLock<Option<Arc<TelemetryExporter>>>,
}

/// A running export to one collector.
#[derive(Debug)]
pub(crate) struct TelemetryExporter {
    settings: TelemetrySettings,
    counters: Arc<ExportCounters>,
    spans: mpsc::Sender<FinishedSpan>,
    /// Events up to this one are not exported.
    after: u64,
    /// Spans in the queue or in flight.
    waiting: AtomicU64,
    /// The last event that was exported or dropped.
    position: AtomicU64,
    phase: watch::Sender<ExportPhase>,
    mill: Mutex<OtlpEncoder>,
    traced: Mutex<TraceTable>,
    /// The last logged problem of each signal.
    said: Mutex<HashMap<&'static str, String>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// Spans of recent transactions, the newest last.
#[derive(Debug, Default)]
struct TraceTable {
    contexts: HashMap<String, TraceContext>,
    order: VecDeque<String>,
}

impl Telemetry {
    /// The counters in the Prometheus text format.
    pub(crate) fn text(&self) -> String {
        self.counters.text()
    }

    /// Applies changed settings. If the new export cannot start, the previous one goes on.
    pub(crate) async fn apply(
        &self,
        daemon: &Arc<Daemon>,
        wanted: Option<TelemetrySettings>,
    ) -> Result<TelemetryUpdate, TelemetryError> {
        if self.current().as_ref().map(|now| &now.settings) == wanted.as_ref() {
            return Ok(TelemetryUpdate::Unchanged);
        }
        let (next, applied) = match wanted {
            None => (None, TelemetryUpdate::Off),
            Some(settings) => (Some(self.begin(daemon, settings).await?), TelemetryUpdate::On),
        };
        let before = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, next)
        };
        if let Some(before) = before {
            // The previous export ends where the next one starts.
            let last = self.current().map_or_else(|| daemon.events.head(), |next| next.after);
            let _ending = tokio::spawn(async move { before.end(last).await });
        }
        Ok(applied)
    }

    async fn begin(
        &self,
        daemon: &Arc<Daemon>,
        settings: TelemetrySettings,
    ) -> Result<Arc<TelemetryExporter>, TelemetryError> {
        let known = OutboundRedactor::new(&daemon.runtime.setup().state_dir);
        let wanted = settings.clone();
        let looked = tokio::task::spawn_blocking(move || ready(known, wanted));
        let (mill, collector) = looked.await??;
        let (mut exporting, queue) = TelemetryExporter::new(settings, mill, Arc::clone(&self.counters));
        exporting.after = daemon.events.head();
        exporting.position(exporting.after);
        let exporting = Arc::new(exporting);
        exporting.start(daemon, collector, queue);
        Ok(exporting)
    }

    fn current(&self) -> Option<Arc<TelemetryExporter>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn traces(&self) -> Option<Arc<TelemetryExporter>> {
        self.current().filter(|exporting| exporting.settings.signals.contains(&TelemetrySignal::Traces))
    }

    /// Exports the rest for a bounded time, and logs what was dropped.
    pub(crate) async fn end(&self, daemon: &Arc<Daemon>) {
        let Some(exporting) = self.current() else { return };
        let all = Arc::clone(daemon);
        let last = tokio::task::spawn_blocking(move || events::end_of(all.runtime.ledger()).ok()).await;
        exporting.end(last.ok().flatten().unwrap_or_else(|| daemon.events.head())).await;
        for signal in &exporting.settings.signals {
            let (sent, dropped) = self.counters.sums(*signal);
            if dropped > 0 {
                tracing::warn!(
                    signal = signal.word(),
                    sent,
                    dropped,
                    "telemetry stopped before everything was sent"
                );
            } else {
                tracing::info!(signal = signal.word(), sent, "telemetry ended");
            }
        }
    }

    /// The span of a request, parent of all its work. Methods without authentication have none.
    pub(crate) fn request(
        &self,
        sessions: &SessionRegistry,
        arrived: &mut IncomingRequest,
    ) -> Option<RequestSpan> {
        let exporting = self.traces().filter(|_| arrived.method.access() != MethodAccess::Anyone)?;
        // Only the id of a known session is kept: a refused client must not be able to export text of its choice.
        let named = arrived.value.get("session").and_then(|id| SessionId::deserialize(id).ok());
        let session = named.and_then(|id| sessions.find(&id).ok()).map(|live| live.id().clone());
        let span = RequestSpan::begin(exporting, arrived.method, session, arrived.parent)?;
        arrived.parent = span.context();
        Some(span)
    }

    /// The span of a call.
    pub(crate) fn tool(&self, call: ToolCallInfo, parent: Option<TraceContext>) -> Option<Arc<ToolSpan>> {
        ToolSpan::begin(self.traces()?, call, parent)
    }
}

/// Prepares an encoder and a collector.
fn ready(
    known: OutboundRedactor,
    settings: TelemetrySettings,
) -> Result<(OtlpEncoder, Collector), TelemetryError> {
    let collector = Collector::new(&settings)?;
    let mut mill = OtlpEncoder::new(known, settings)?;
    let _headers = mill.renew()?;
    Ok((mill, collector))
}

/// Checks that telemetry could start with the state in `state_dir`. Sends nothing.
pub fn check_telemetry(state_dir: &Path, settings: &TelemetrySettings) -> Result<(), TelemetryError> {
    ready(OutboundRedactor::new(state_dir), settings.clone()).map(drop)
}

impl TelemetryExporter {
    fn new(
        settings: TelemetrySettings,
        mill: OtlpEncoder,
        counters: Arc<ExportCounters>,
    ) -> (Self, Receiver<FinishedSpan>) {
        let (spans, queue) = mpsc::channel(usize::try_from(settings.queue).unwrap_or(usize::MAX >> 4));
        let exporting = Self {
            settings,
            counters,
            spans,
            after: 0,
            waiting: AtomicU64::new(0),
            position: AtomicU64::new(0),
            phase: watch::Sender::new(ExportPhase::Running),
            mill: Mutex::new(mill),
            traced: Mutex::default(),
            said: Mutex::default(),
            tasks: Mutex::default(),
        };
        (exporting, queue)
    }

    fn start(self: &Arc<Self>, daemon: &Arc<Daemon>, collector: Collector, queue: Receiver<FinishedSpan>) {
        let sender = |signal| SignalSender {
            to: Arc::clone(self),
            collector: collector.clone(),
            phase: self.phase.subscribe(),
            signal,
        };
        let mut tasks = self.tasks();
        if self.settings.signals.contains(&TelemetrySignal::Traces) {
            tasks.push(tokio::spawn(sender(TelemetrySignal::Traces).send_spans(queue)));
        }
        if self.settings.signals.contains(&TelemetrySignal::Logs) {
            tasks.push(tokio::spawn(
                sender(TelemetrySignal::Logs).send_events(Arc::clone(daemon), self.after),
            ));
        }
    }

    /// Exports the rest, with events up to `last`, for a bounded time. Counts what is left as dropped.
    async fn end(&self, last: u64) {
        let until = tokio::time::Instant::now() + FLUSH;
        self.phase.send_replace(ExportPhase::Ending { last });
        let tasks = std::mem::take(&mut *self.tasks());
        for mut task in tasks {
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                task.abort();
                let _aborted = task.await;
            }
        }
        let signals = &self.settings.signals;
        if signals.contains(&TelemetrySignal::Traces) {
            let left = self.waiting.swap(0, Ordering::SeqCst);
            self.counters.of(TelemetrySignal::Traces).dropped(DropReason::Unreachable, left);
        }
        if signals.contains(&TelemetrySignal::Logs) {
            let left = last.saturating_sub(self.position.load(Ordering::SeqCst));
            self.counters.of(TelemetrySignal::Logs).dropped(DropReason::Unreachable, left);
        }
    }

    /// Queues a span. Never waits: if the queue is full, the span is dropped and counted.
    fn add(&self, happened: FinishedSpan) {
        let count = happened.count();
        let _before = self.waiting.fetch_add(count, Ordering::SeqCst);
        if self.spans.try_send(happened).is_err() {
            self.settled(count);
            self.counters.of(TelemetrySignal::Traces).dropped(DropReason::Queue, count);
        }
    }

    /// Spans that were sent, or dropped and counted.
    fn settled(&self, count: u64) {
        let less = |waiting: u64| Some(waiting.saturating_sub(count));
        let _before = self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }

    fn position(&self, after: u64) {
        self.position.store(after, Ordering::SeqCst);
    }

    fn remember(&self, transaction: &TransactionId, context: TraceContext) {
        let mut traced = self.traced.lock().unwrap_or_else(PoisonError::into_inner);
        let id = transaction.to_string();
        if traced.contexts.insert(id.clone(), context).is_none() {
            traced.order.push_back(id);
        }
        if traced.order.len() > REMEMBERED
            && let Some(oldest) = traced.order.pop_front()
        {
            let _context = traced.contexts.remove(&oldest);
        }
    }

    fn remembered(&self, transaction: &str) -> Option<TraceContext> {
        let traced = self.traced.lock().unwrap_or_else(PoisonError::into_inner);
        traced.contexts.get(transaction).copied()
    }

    /// Logs a problem once, not with each attempt.
    fn told(&self, signal: TelemetrySignal, what: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.insert(signal.word(), what.to_owned()).as_deref() != Some(what) {
            tracing::warn!(signal = signal.word(), why = what, "cannot send telemetry");
        }
    }

    fn reached(&self, signal: TelemetrySignal) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.remove(signal.word()).is_some() {
            tracing::info!(signal = signal.word(), "telemetry is sent again");
        }
    }

    fn mill(&self) -> MutexGuard<'_, OtlpEncoder> {
        self.mill.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use ringfence_api::{ApiError, Method};
    use ringfence_policy::TelemetryDetail;
    use ringfence_types::Endpoint;
    use ringfence_types::units::HumanDuration as Time;

    use super::*;

    fn settings(queue: u64) -> TelemetrySettings {
        TelemetrySettings {
            endpoint: Endpoint::parse("http://127.0.0.1:9").unwrap(),
            signals: vec![TelemetrySignal::Traces, TelemetrySignal::Logs],
            content: TelemetryDetail::Metadata,
            timeout: Time(1000),
            queue,
            authority: None,
            headers: Vec::new(),
            resource: Vec::new(),
        }
    }

    fn exporting(queue: u64) -> (Arc<TelemetryExporter>, Receiver<FinishedSpan>) {
        let known = OutboundRedactor::new(Path::new("/nonexistent/ringfence"));
        let mill = OtlpEncoder::new(known, settings(queue)).unwrap();
        let (exporting, queue) = TelemetryExporter::new(settings(queue), mill, Arc::default());
        (Arc::new(exporting), queue)
    }

    /// A call that finds the queue full goes on at once, and the span is counted as dropped.
    #[test]
    fn the_queue_takes_as_many_as_it_says_and_counts_the_rest() {
        let (exporting, mut queue) = exporting(16);
        for _ in 0..20 {
            let span = RequestSpan::begin(Arc::clone(&exporting), Method::CallExec, None, None).unwrap();
            span.ended(&Ok::<_, ApiError>(()));
        }
        assert_eq!(exporting.counters.sums(TelemetrySignal::Traces), (0, 4));
        assert_eq!(exporting.waiting.load(Ordering::SeqCst), 16);
        let mut taken = 0;
        while queue.try_recv().is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 16);
        let text = exporting.counters.text();
        let line = "ringfence_telemetry_dropped_total{signal=\"traces\",reason=\"queue\"} 4\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn of_so_many_transactions_the_newest_are_remembered() {
        let (exporting, _queue) = exporting(16);
        let context = TraceContext::below(None).unwrap();
        let ids: Vec<TransactionId> = (0..REMEMBERED + 8).map(|_| TransactionId::random().unwrap()).collect();
        ids.iter().for_each(|id| exporting.remember(id, context));
        let known: Vec<bool> = ids.iter().map(|id| exporting.remembered(id.as_str()).is_some()).collect();
        assert!(known.iter().take(8).all(|known| !known) && known.iter().skip(8).all(|known| *known));
    }

    #[test]
    fn nothing_is_there_while_it_is_off() {
        let telemetry = Telemetry::default();
        assert!(telemetry.current().is_none() && telemetry.traces().is_none());
    }

    /// `docs/telemetry.md` lists every exported name.
    #[test]
    fn telemetry_md_is_up_to_date() {
        let mut table = "| name | of | what |\n|---|---|---|\n".to_owned();
        for attribute in attributes::ALL {
            let on: Vec<&str> = attribute.on.iter().map(|on| on.word()).collect();
            writeln!(table, "| `{}` | {} | {} |", attribute.key, on.join(", "), attribute.meaning).unwrap();
        }
        let text = include_str!("../../../../docs/telemetry.md");
        let (_, rest) = text.split_once("<!-- begin: names -->\n").unwrap();
        let (found, _) = rest.split_once("<!-- end: names -->").unwrap();
        assert_eq!(found, table, "the table in docs/telemetry.md is out of date; it has to be:\n{table}");
    }
}
