//! Traces and logs for a collector of the operator, over OTLP. Off unless the operator's file has `[telemetry]`.
//!
//! What leaves is in [`names`], made in [`span`] and [`record`], cleaned in [`clean`], encoded in [`otlp`], sent by [`export`] over
//! [`collector`]. INVARIANT: nothing of it is on the way of a call: a call puts what happened into a queue if there is a place, and
//! goes on. While it is off there is no task, no thread and no timer.

mod backoff;
mod clean;
mod collector;
mod counters;
mod export;
mod names;
mod otlp;
mod record;
mod span;
mod trace;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use ringfence_api::Access;
use ringfence_runtime::authz::policy::{Signal, TelemetrySettings};
use ringfence_runtime::{Outbound, OutboundError};
use ringfence_types::{SessionId, TransactionId};
use serde::Deserialize as _;
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::dispatch::Arrived;
use crate::events;
use crate::server::Daemon;
use crate::sessions::Sessions;

use collector::Collector;
pub use collector::CollectorError;
use counters::{Counters, Why};
use export::{Mill, Phase, Sender};
pub(crate) use record::tool as tool_of;
use span::Happened;
pub(crate) use span::{RequestSpan, ToolCall, ToolSpan};
pub(crate) use trace::Context;

/// How long what is left may take when the daemon or its configuration ends.
const FLUSH: Duration = Duration::from_secs(5);
/// Of so many transactions it is known under which span they are.
const REMEMBERED: usize = 4096;

/// Why what the operator asks for is not begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    #[error(transparent)]
    Outbound(#[from] OutboundError),
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
                Some("`authority` in `[telemetry]` names a file with certificates in PEM".to_owned())
            }
            _ => None,
        }
    }
}

/// Whether the configuration was another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Unchanged,
    On,
    Off,
}

/// What the daemon says about itself to others.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    counters: Arc<Counters>,
    current: RwLock<Option<Arc<Exporting>>>,
}

/// What is sent where, while it is.
#[derive(Debug)]
pub(crate) struct Exporting {
    settings: TelemetrySettings,
    counters: Arc<Counters>,
    spans: mpsc::Sender<Happened>,
    /// Nothing is sent of events up to this one.
    after: u64,
    /// Spans that are in the queue or on their way.
    waiting: AtomicU64,
    /// The last event that is done with.
    position: AtomicU64,
    phase: watch::Sender<Phase>,
    mill: Mutex<Mill>,
    traced: Mutex<Traced>,
    /// What was last said about each signal.
    said: Mutex<HashMap<&'static str, String>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// Transactions with the span that they are under, the newest last.
#[derive(Debug, Default)]
struct Traced {
    contexts: HashMap<String, Context>,
    order: VecDeque<String>,
}

impl Telemetry {
    /// For Prometheus.
    pub(crate) fn text(&self) -> String {
        self.counters.text()
    }

    /// Begins what is wanted and ends what was before. Where it cannot be begun, what was before goes on.
    pub(crate) async fn apply(
        &self,
        daemon: &Arc<Daemon>,
        wanted: Option<TelemetrySettings>,
    ) -> Result<Applied, TelemetryError> {
        if self.current().as_ref().map(|now| &now.settings) == wanted.as_ref() {
            return Ok(Applied::Unchanged);
        }
        let (next, applied) = match wanted {
            None => (None, Applied::Off),
            Some(settings) => (Some(self.begin(daemon, settings).await?), Applied::On),
        };
        let before = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, next)
        };
        if let Some(before) = before {
            // What comes after that is told by the next, or by nobody.
            let last = self.current().map_or_else(|| daemon.events.head(), |next| next.after);
            let _ending = tokio::spawn(async move { before.end(last).await });
        }
        Ok(applied)
    }

    async fn begin(
        &self,
        daemon: &Arc<Daemon>,
        settings: TelemetrySettings,
    ) -> Result<Arc<Exporting>, TelemetryError> {
        let known = Outbound::new(&daemon.runtime.setup().state_dir);
        let wanted = settings.clone();
        let looked = tokio::task::spawn_blocking(move || ready(known, wanted));
        let (mill, collector) = looked.await??;
        let (mut exporting, queue) = Exporting::new(settings, mill, Arc::clone(&self.counters));
        exporting.after = daemon.events.head();
        exporting.position(exporting.after);
        let exporting = Arc::new(exporting);
        exporting.start(daemon, collector, queue);
        Ok(exporting)
    }

    fn current(&self) -> Option<Arc<Exporting>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn traces(&self) -> Option<Arc<Exporting>> {
        self.current().filter(|exporting| exporting.settings.signals.contains(&Signal::Traces))
    }

    /// Sends what is left, for a bounded time, and says what was not sent.
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
                    "telemetry ended; not all of it was sent"
                );
            } else {
                tracing::info!(signal = signal.word(), sent, "telemetry ended");
            }
        }
    }

    /// A span for a request, under which everything that is done for it is. What anybody may ask without being known has none.
    pub(crate) fn request(&self, sessions: &Sessions, arrived: &mut Arrived) -> Option<RequestSpan> {
        let exporting = self.traces().filter(|_| arrived.method.access() != Access::Anyone)?;
        // Of what somebody sends nothing is kept: whoever is refused would fill the queue with it, and send it on.
        let named = arrived.value.get("session").and_then(|id| SessionId::deserialize(id).ok());
        let session = named.and_then(|id| sessions.find(&id).ok()).map(|live| live.id().clone());
        let span = RequestSpan::begin(exporting, (arrived.method, session), arrived.parent)?;
        arrived.parent = span.context();
        Some(span)
    }

    /// A span for a call.
    pub(crate) fn tool(&self, call: ToolCall, parent: Option<Context>) -> Option<Arc<ToolSpan>> {
        ToolSpan::begin(self.traces()?, call, parent)
    }
}

/// Everything that sending takes, or why it cannot be had.
fn ready(known: Outbound, settings: TelemetrySettings) -> Result<(Mill, Collector), TelemetryError> {
    let collector = Collector::new(&settings)?;
    let mut mill = Mill::new(known, settings)?;
    let _headers = mill.renew()?;
    Ok((mill, collector))
}

/// Whether what the operator asks for could be begun with the state in `state_dir`. Nothing is sent.
pub fn check_telemetry(state_dir: &Path, settings: &TelemetrySettings) -> Result<(), TelemetryError> {
    ready(Outbound::new(state_dir), settings.clone()).map(drop)
}

impl Exporting {
    fn new(settings: TelemetrySettings, mill: Mill, counters: Arc<Counters>) -> (Self, Receiver<Happened>) {
        let (spans, queue) = mpsc::channel(usize::try_from(settings.queue).unwrap_or(usize::MAX >> 4));
        let exporting = Self {
            settings,
            counters,
            spans,
            after: 0,
            waiting: AtomicU64::new(0),
            position: AtomicU64::new(0),
            phase: watch::Sender::new(Phase::Running),
            mill: Mutex::new(mill),
            traced: Mutex::default(),
            said: Mutex::default(),
            tasks: Mutex::default(),
        };
        (exporting, queue)
    }

    fn start(self: &Arc<Self>, daemon: &Arc<Daemon>, collector: Collector, queue: Receiver<Happened>) {
        let sender = |signal| Sender {
            to: Arc::clone(self),
            collector: collector.clone(),
            phase: self.phase.subscribe(),
            signal,
        };
        let mut tasks = self.tasks();
        if self.settings.signals.contains(&Signal::Traces) {
            tasks.push(tokio::spawn(sender(Signal::Traces).send_spans(queue)));
        }
        if self.settings.signals.contains(&Signal::Logs) {
            tasks.push(tokio::spawn(sender(Signal::Logs).send_events(Arc::clone(daemon), self.after)));
        }
    }

    /// What is left, of events up to `last`, is sent if that goes quickly, and counted if not.
    async fn end(&self, last: u64) {
        let until = tokio::time::Instant::now() + FLUSH;
        self.phase.send_replace(Phase::Ending { last });
        let tasks = std::mem::take(&mut *self.tasks());
        for mut task in tasks {
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                task.abort();
                let _aborted = task.await;
            }
        }
        let signals = &self.settings.signals;
        if signals.contains(&Signal::Traces) {
            let left = self.waiting.swap(0, Ordering::SeqCst);
            self.counters.of(Signal::Traces).dropped(Why::Unreachable, left);
        }
        if signals.contains(&Signal::Logs) {
            let left = last.saturating_sub(self.position.load(Ordering::SeqCst));
            self.counters.of(Signal::Logs).dropped(Why::Unreachable, left);
        }
    }

    /// Whoever has no place is not waited for.
    fn add(&self, happened: Happened) {
        let count = happened.count();
        let _before = self.waiting.fetch_add(count, Ordering::SeqCst);
        if self.spans.try_send(happened).is_err() {
            self.settled(count);
            self.counters.of(Signal::Traces).dropped(Why::Queue, count);
        }
    }

    /// So many spans are sent, or dropped and counted.
    fn settled(&self, count: u64) {
        let less = |waiting: u64| Some(waiting.saturating_sub(count));
        let _before = self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }

    fn position(&self, after: u64) {
        self.position.store(after, Ordering::SeqCst);
    }

    fn remember(&self, transaction: &TransactionId, context: Context) {
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

    fn remembered(&self, transaction: &str) -> Option<Context> {
        let traced = self.traced.lock().unwrap_or_else(PoisonError::into_inner);
        traced.contexts.get(transaction).copied()
    }

    /// Says once that something is wrong, and not with each attempt.
    fn told(&self, signal: Signal, what: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.insert(signal.word(), what.to_owned()).as_deref() != Some(what) {
            tracing::warn!(signal = signal.word(), why = what, "telemetry is not sent");
        }
    }

    fn reached(&self, signal: Signal) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.remove(signal.word()).is_some() {
            tracing::info!(signal = signal.word(), "telemetry is sent again");
        }
    }

    fn mill(&self) -> MutexGuard<'_, Mill> {
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
    use ringfence_runtime::authz::policy::Content;
    use ringfence_types::Endpoint;
    use ringfence_types::units::Duration as Time;

    use super::*;

    fn settings(queue: u64) -> TelemetrySettings {
        TelemetrySettings {
            endpoint: Endpoint::parse("http://127.0.0.1:9").unwrap(),
            signals: vec![Signal::Traces, Signal::Logs],
            content: Content::Metadata,
            timeout: Time(1000),
            queue,
            authority: None,
            headers: Vec::new(),
            resource: Vec::new(),
        }
    }

    fn exporting(queue: u64) -> (Arc<Exporting>, Receiver<Happened>) {
        let known = Outbound::new(Path::new("/nonexistent/ringfence"));
        let mill = Mill::new(known, settings(queue)).unwrap();
        let (exporting, queue) = Exporting::new(settings(queue), mill, Arc::default());
        (Arc::new(exporting), queue)
    }

    /// Whoever finds the queue full goes on at once, and it is counted.
    #[test]
    fn the_queue_takes_as_many_as_it_says_and_counts_the_rest() {
        let (exporting, mut queue) = exporting(16);
        for _ in 0..20 {
            let span = RequestSpan::begin(Arc::clone(&exporting), (Method::CallExec, None), None).unwrap();
            span.ended(&Ok::<_, ApiError>(()));
        }
        assert_eq!(exporting.counters.sums(Signal::Traces), (0, 4));
        assert_eq!(exporting.waiting.load(Ordering::SeqCst), 16);
        let mut taken = 0;
        while queue.try_recv().is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 16);
        let text = exporting.counters.text();
        let line = "ringfence_telemetry_dropped_total{signal=\"traces\",why=\"queue\"} 4\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn of_so_many_transactions_the_newest_are_remembered() {
        let (exporting, _queue) = exporting(16);
        let context = Context::below(None).unwrap();
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

    /// `docs/telemetry.md` names everything that leaves.
    #[test]
    fn telemetry_md_is_up_to_date() {
        let mut table = "| name | of | what |\n|---|---|---|\n".to_owned();
        for attribute in names::ALL {
            let on: Vec<&str> = attribute.on.iter().map(|on| on.word()).collect();
            writeln!(table, "| `{}` | {} | {} |", attribute.key, on.join(", "), attribute.meaning).unwrap();
        }
        let text = include_str!("../../../docs/telemetry.md");
        let (_, rest) = text.split_once("<!-- begin: names -->\n").unwrap();
        let (found, _) = rest.split_once("<!-- end: names -->").unwrap();
        assert_eq!(found, table, "the table in docs/telemetry.md is out of date; it has to be:\n{table}");
    }
}
