//! The export tasks, one for spans and one for events. Each collects a batch, redacts and encodes it, and sends it
//! until the collector accepts it or the task gives up. A call never waits for either.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use prost::Message as _;
use ringfence_policy::{ExportHeader, HeaderSource, TelemetrySettings, TelemetrySignal};
use ringfence_runtime::{OutboundRedactionError, OutboundRedactor, private_value};
use ringfence_types::Endpoint;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::TelemetryExporter;
use super::attributes;
use super::backoff::Backoff;
use super::collector::{Collector, CollectorResponse};
use super::counters::{DropReason, SignalCounts};
use super::otlp::{AnyValue, KeyValue, LogsRequest, Resource, TracesRequest};
use super::record::record;
use super::redact::TelemetryRedactor;
use super::span::FinishedSpan;
use crate::observe::events::{self, SharedEvent};
use crate::server::Daemon;

/// Items per batch.
const BATCH: usize = 256;
/// How long the first item of a batch waits for others.
const GATHER: Duration = Duration::from_millis(500);
/// Wait before the next attempt after a ledger read error.
const AGAIN: Duration = Duration::from_millis(500);

/// Whether the export runs or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExportPhase {
    Running,
    /// Sends the rest without retries. `last` is the last event to export.
    Ending {
        last: u64,
    },
}

/// An encoded batch with its HTTP headers.
struct EncodedBatch {
    headers: HeaderMap,
    message: Bytes,
}

/// Encodes batches. The only place where data of the daemon becomes bytes for the collector.
#[derive(Debug)]
pub(super) struct OtlpEncoder {
    known: OutboundRedactor,
    settings: TelemetrySettings,
    instance: String,
    salt: String,
}

impl OtlpEncoder {
    pub(super) fn new(
        known: OutboundRedactor,
        settings: TelemetrySettings,
    ) -> Result<Self, getrandom::Error> {
        let random = || -> Result<String, getrandom::Error> {
            let mut random = [0_u8; 16];
            getrandom::fill(&mut random)?;
            Ok(ringfence_types::hex(random))
        };
        Ok(Self { known, settings, instance: random()?, salt: random()? })
    }

    /// Reloads secrets and header values.
    pub(super) fn renew(&mut self) -> Result<HeaderMap, OutboundRedactionError> {
        let mut files = Vec::new();
        for header in &self.settings.headers {
            if let HeaderSource::File(path) = &header.source {
                files.push(private_value(path)?);
            }
        }
        self.known.renew(&files)?;
        let mut files = files.into_iter();
        let mut headers = HeaderMap::new();
        for header in &self.settings.headers {
            let value = match &header.source {
                HeaderSource::File(_) => files.next().unwrap_or_default(),
                HeaderSource::Secret(name) => self.known.secret(name, self.host())?,
            };
            let (Ok(name), Some(value)) = (HeaderName::try_from(&header.name), written(header, &value))
            else {
                return Err(OutboundRedactionError::Unusable { name: header.name.clone() });
            };
            let _new = headers.insert(name, value);
        }
        Ok(headers)
    }

    fn host(&self) -> Option<&ringfence_types::Host> {
        match &self.settings.endpoint {
            Endpoint::Tls(site) | Endpoint::Loopback(site) => Some(site.host()),
            Endpoint::Unix(_) => None,
        }
    }

    fn resource(&self, cleaner: &TelemetryRedactor<'_>) -> Resource {
        let own = [
            (attributes::SERVICE_NAME, attributes::SERVICE),
            (attributes::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
            (attributes::SERVICE_INSTANCE, self.instance.as_str()),
        ];
        let said = |key: &str| self.settings.resource.iter().any(|(name, _)| name == key);
        let own = own.iter().filter(|(attribute, _)| !said(attribute.key));
        let own = own.map(|(attribute, text)| KeyValue::new(*attribute, cleaner.text(text)));
        let theirs = self.settings.resource.iter();
        let theirs = theirs
            .map(|(name, value)| KeyValue::named(cleaner.clean(name), AnyValue::text(cleaner.clean(value))));
        Resource::new(own.chain(theirs).collect())
    }

    fn traces(&mut self, happened: &[FinishedSpan]) -> Result<EncodedBatch, OutboundRedactionError> {
        let headers = self.renew()?;
        let cleaner = TelemetryRedactor::new(&self.known, &self.salt);
        let spans = happened.iter().flat_map(|happened| happened.spans(&cleaner)).collect();
        let message = TracesRequest::new(self.resource(&cleaner), spans).encode_to_vec();
        Ok(EncodedBatch { headers, message: message.into() })
    }

    fn logs(
        &mut self,
        to: &TelemetryExporter,
        events: &[Arc<SharedEvent>],
    ) -> Result<EncodedBatch, OutboundRedactionError> {
        let headers = self.renew()?;
        let cleaner = TelemetryRedactor::new(&self.known, &self.salt);
        let content = self.settings.content;
        let of = |event: &Arc<SharedEvent>| {
            let transaction = event.event.get("transaction").and_then(serde_json::Value::as_str);
            record(&cleaner, event, content, transaction.and_then(|id| to.remembered(id)))
        };
        let records = events.iter().map(of).collect();
        let message = LogsRequest::new(self.resource(&cleaner), records).encode_to_vec();
        Ok(EncodedBatch { headers, message: message.into() })
    }
}

/// A header value, with its scheme such as `Bearer`. Marked sensitive, so that `Debug` does not print it.
fn written(header: &ExportHeader, value: &[u8]) -> Option<HeaderValue> {
    let scheme = header.scheme.as_ref().map(|scheme| format!("{scheme} ")).unwrap_or_default();
    let whole = Zeroizing::new([scheme.as_bytes(), value].concat());
    let mut value = HeaderValue::from_bytes(&whole).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Sends the batches of one signal.
pub(super) struct SignalSender {
    pub(super) to: Arc<TelemetryExporter>,
    pub(super) collector: Collector,
    pub(super) phase: watch::Receiver<ExportPhase>,
    pub(super) signal: TelemetrySignal,
}

impl SignalSender {
    fn counts(&self) -> &SignalCounts {
        self.to.counters.of(self.signal)
    }

    fn path(&self) -> &'static str {
        match self.signal {
            TelemetrySignal::Traces => "/v1/traces",
            TelemetrySignal::Logs => "/v1/logs",
        }
    }

    fn is_ending(&self) -> bool {
        *self.phase.borrow() != ExportPhase::Running
    }

    /// Waits, or returns early when the export ends.
    async fn wait(&mut self, time: Duration) {
        if self.is_ending() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            _ending = self.phase.changed() => {}
        }
    }

    /// Encodes off the thread that serves all connections, because redaction is slow.
    async fn made(
        &self,
        make: impl FnOnce(&mut OtlpEncoder, &TelemetryExporter) -> Result<EncodedBatch, OutboundRedactionError>
        + Send
        + 'static,
    ) -> Option<EncodedBatch> {
        let to = Arc::clone(&self.to);
        let made = tokio::task::spawn_blocking(move || make(&mut to.mill(), &to)).await;
        match made {
            Ok(Ok(ready)) => Some(ready),
            Ok(Err(error)) => {
                self.to.told(self.signal, &crate::errors::chain(&error));
                None
            }
            Err(error) => {
                self.to.told(self.signal, &error.to_string());
                None
            }
        }
    }

    /// Sends a batch until the collector accepts it or the attempts are used up.
    async fn deliver(&mut self, ready: Option<EncodedBatch>, count: u64) {
        let Some(EncodedBatch { headers, message }) = ready else {
            return self.counts().dropped(DropReason::Withheld, count);
        };
        let mut backoff = Backoff::default();
        loop {
            let answer = self.collector.post(self.path(), headers.clone(), message.clone()).await;
            let asked = match answer {
                Ok(CollectorResponse::Taken { rejected }) => {
                    let rejected = rejected.min(count);
                    self.to.reached(self.signal);
                    self.counts().sent(count - rejected);
                    return self.counts().dropped(DropReason::Refused, rejected);
                }
                Ok(CollectorResponse::Never(status)) => {
                    self.to.told(self.signal, &format!("the collector answered {status}"));
                    return self.counts().dropped(DropReason::Refused, count);
                }
                Ok(CollectorResponse::Later(asked)) => {
                    self.to.told(self.signal, "the collector asks for patience");
                    asked
                }
                Err(error) => {
                    self.to.told(self.signal, &error.to_string());
                    None
                }
            };
            let wait = backoff.next(asked, random()).filter(|_| !self.is_ending());
            let Some(wait) = wait else { return self.counts().dropped(DropReason::Unreachable, count) };
            self.wait(wait).await;
        }
    }

    /// Exports spans from the queue.
    pub(super) async fn send_spans(mut self, mut queue: mpsc::Receiver<FinishedSpan>) {
        loop {
            let first = tokio::select! {
                biased;
                first = queue.recv() => first,
                () = ending(&mut self.phase) => None,
            };
            let Some(first) = first else { return };
            let mut batch = vec![first];
            let until = Instant::now() + GATHER;
            while batch.len() < BATCH {
                let next = if self.is_ending() {
                    queue.try_recv().ok()
                } else {
                    tokio::select! {
                        next = queue.recv() => next,
                        () = tokio::time::sleep_until(until) => None,
                        _ending = self.phase.changed() => continue,
                    }
                };
                let Some(next) = next else { break };
                batch.push(next);
            }
            let count = batch.iter().map(FinishedSpan::count).sum();
            let ready = self.made(move |mill, _| mill.traces(&batch)).await;
            self.deliver(ready, count).await;
            self.to.settled(count);
        }
    }

    /// Exports events from the ledger, after `after`. Unsent events stay in the ledger and take no memory.
    pub(super) async fn send_events(mut self, daemon: Arc<Daemon>, mut after: u64) {
        let mut head = daemon.events.heads();
        loop {
            self.to.position(after);
            let last = match *self.phase.borrow() {
                ExportPhase::Ending { last } => Some(last),
                ExportPhase::Running => None,
            };
            if last.is_some_and(|last| after >= last) {
                return;
            }
            if *head.borrow_and_update() <= after {
                tokio::select! {
                    changed = head.changed() => if changed.is_err() { return },
                    _ending = self.phase.changed(), if last.is_none() => {}
                }
                continue;
            }
            if head.borrow_and_update().saturating_sub(after) < BATCH as u64 {
                self.wait(GATHER).await;
            }
            after = self.skip(*head.borrow_and_update(), after);
            match self.gathered(&daemon, after).await {
                Some((batch, reached)) => {
                    let count = batch.len() as u64;
                    let ready = self.made(move |mill, to| mill.logs(to, &batch)).await;
                    self.deliver(ready, count).await;
                    after = reached;
                }
                // The ledger may be readable later. At the end there is no later.
                None if self.is_ending() => return,
                None => self.wait(AGAIN).await,
            }
        }
    }

    /// Skips events when the export is too far behind, and counts them as dropped.
    fn skip(&self, head: u64, after: u64) -> u64 {
        let skipped = skipped(head, after, self.to.settings.queue);
        self.counts().dropped(DropReason::Queue, skipped);
        after + skipped
    }

    async fn gathered(&self, daemon: &Arc<Daemon>, after: u64) -> Option<(Vec<Arc<SharedEvent>>, u64)> {
        let (mut batch, mut reached) = (Vec::new(), after);
        while batch.len() < BATCH {
            let (events, up_to) = events::next(daemon, reached).await.ok()?;
            if up_to == reached {
                break;
            }
            batch.extend(events);
            reached = up_to;
        }
        (reached > after).then_some((batch, reached))
    }
}

/// How many events exceed the queue.
fn skipped(head: u64, after: u64, queue: u64) -> u64 {
    head.saturating_sub(after).saturating_sub(queue)
}

async fn ending(phase: &mut watch::Receiver<ExportPhase>) {
    // A dropped sender also means the end.
    let _gone = phase.wait_for(|phase| *phase != ExportPhase::Running).await;
}

fn random() -> u8 {
    let mut byte = [0];
    let _without = getrandom::fill(&mut byte);
    let [byte] = byte;
    byte
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_events_wait_than_may() {
        assert_eq!(skipped(100, 90, 16), 0);
        assert_eq!(skipped(100, 84, 16), 0);
        assert_eq!(skipped(100, 50, 16), 34);
        assert_eq!(skipped(5, 9, 16), 0);
    }

    #[test]
    fn the_value_of_a_header_is_never_shown() {
        let source = HeaderSource::Secret("x".to_owned());
        let header =
            ExportHeader { name: "authorization".to_owned(), scheme: Some("Bearer".to_owned()), source };
        let value = written(&header, b"hunter2").unwrap();
        assert_eq!(value.as_bytes(), b"Bearer hunter2");
        assert!(!format!("{value:?}").contains("hunter2"));
        assert!(written(&header, b"two\nlines").is_none());
    }
}
