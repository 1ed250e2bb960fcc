//! Spans in progress: of a request to a method, and of a call with its stages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_api::{ApiError, ErrorCode, Method};
use ringfence_runtime::{CallEnd, CallObserver, PipelineStage, Settled};
use ringfence_types::{Decision, PolicyLayer, RefusalCode, SessionId, TransactionId};
use serde::Serialize;

use super::TelemetryExporter;
use super::attributes::{self, AttributeName};
use super::otlp::{AnyValue, KeyValue, OtlpSpan, OtlpStatus, SpanKind, SpanPeriod};
use super::redact::{RedactedText, TelemetryRedactor};
use super::trace::{TraceContext, now};

/// A finished span before redaction.
#[derive(Debug)]
pub(super) enum FinishedSpan {
    Request(FinishedRequest),
    Tool(FinishedToolCall),
}

impl FinishedSpan {
    /// The number of OTLP spans.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Request(_) => 1,
            Self::Tool(tool) => 1 + tool.stages.len() as u64,
        }
    }

    pub(super) fn spans(&self, cleaner: &TelemetryRedactor<'_>) -> Vec<OtlpSpan> {
        match self {
            Self::Request(request) => vec![request.span(cleaner)],
            Self::Tool(tool) => tool.spans(cleaner),
        }
    }
}

/// Position in the trace, and time.
#[derive(Clone, Copy, Debug)]
struct SpanPosition {
    context: TraceContext,
    parent: Option<TraceContext>,
    begun: u64,
    ended: u64,
}

impl SpanPosition {
    fn below(parent: Option<TraceContext>) -> Option<Self> {
        Some(Self { context: TraceContext::below(parent)?, parent, begun: now(), ended: 0 })
    }

    fn span(&self, cleaner: &TelemetryRedactor<'_>, name: RedactedText, kind: SpanKind) -> OtlpSpan {
        let parent = self.parent.map(|parent| cleaner.context(parent));
        OtlpSpan::new(name, kind, cleaner.context(self.context), parent).during(self.period())
    }

    fn period(&self) -> SpanPeriod {
        SpanPeriod { from: self.begun, to: self.ended }
    }
}

#[derive(Debug)]
pub(super) struct FinishedRequest {
    place: SpanPosition,
    method: Method,
    session: Option<SessionId>,
    error: Option<(String, Option<String>)>,
}

impl FinishedRequest {
    fn span(&self, cleaner: &TelemetryRedactor<'_>) -> OtlpSpan {
        let method = RedactedText::fixed(self.method.name());
        let mut said = vec![KeyValue::new(attributes::METHOD, AnyValue::text(method.clone()))];
        said.extend(
            self.session.iter().map(|id| KeyValue::new(attributes::SESSION, cleaner.text(id.as_str()))),
        );
        let mut status = OtlpStatus::Unset;
        if let Some((code, rule)) = &self.error {
            status = OtlpStatus::Error;
            said.push(KeyValue::new(attributes::ERROR, cleaner.text(code)));
            said.extend(rule.iter().map(|rule| KeyValue::new(attributes::RULE, cleaner.text(rule))));
        }
        self.place.span(cleaner, method, SpanKind::Server).saying(said, status)
    }
}

/// The span of a request in progress. It also ends when the client disconnects.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    to: Arc<TelemetryExporter>,
    done: Option<FinishedRequest>,
}

impl RequestSpan {
    pub(super) fn begin(
        to: Arc<TelemetryExporter>,
        method: Method,
        session: Option<SessionId>,
        parent: Option<TraceContext>,
    ) -> Option<Self> {
        let error = Some(("cancelled".to_owned(), None));
        let done = FinishedRequest { place: SpanPosition::below(parent)?, method, session, error };
        Some(Self { to, done: Some(done) })
    }

    pub(super) fn context(&self) -> Option<TraceContext> {
        self.done.as_ref().map(|done| done.place.context)
    }

    /// Unauthenticated requests are not exported: they could crowd out the others.
    pub(crate) fn ended<T>(mut self, answer: &Result<T, ApiError>) {
        if answer.as_ref().is_err_and(|error| error.code == ErrorCode::Unauthenticated) {
            self.done = None;
        }
        if let Some(done) = &mut self.done {
            done.error =
                answer.as_ref().err().map(|error| (word(&error.code), error.rule.clone().map(String::from)));
        }
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        if let Some(mut done) = self.done.take() {
            done.place.ended = now();
            self.to.add(FinishedSpan::Request(done));
        }
    }
}

/// The serialized name of an enum value.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().map(str::to_owned).unwrap_or_default()
}

#[derive(Debug)]
pub(super) struct FinishedToolCall {
    place: SpanPosition,
    call: ToolCallInfo,
    stages: Vec<(PipelineStage, u64)>,
    end: ToolCallResult,
}

/// Identifies a call.
#[derive(Clone, Debug)]
pub(crate) struct ToolCallInfo {
    pub(crate) tool: String,
    pub(crate) session: SessionId,
    pub(crate) number: u64,
}

/// The result of a call, without its content.
#[derive(Debug, Default)]
struct ToolCallResult {
    transaction: Option<String>,
    decision: Option<Decision>,
    refusal: Option<(RefusalCode, PolicyLayer, String)>,
    failed: bool,
    exit: Option<u8>,
    leaks: u64,
}

impl ToolCallResult {
    fn of(settled: &Settled, decision: Option<Decision>) -> Self {
        let mut end = Self {
            transaction: settled.transaction.as_ref().map(ToString::to_string),
            leaks: settled.leaks.len() as u64,
            decision,
            ..Self::default()
        };
        match &settled.ended {
            CallEnd::Executed(outcome) => end.exit = Some(outcome.exit.code()),
            CallEnd::Touched(_) => {}
            CallEnd::Failed { .. } => end.failed = true,
            CallEnd::Refused(refusal) => {
                end.refusal = Some((refusal.code, refusal.layer, refusal.rule.to_string()));
                end.decision = decision.or(Some(Decision::Deny));
            }
        }
        end
    }

    fn error(&self) -> Option<&'static str> {
        if self.refusal.is_some() { Some("refused") } else { self.failed.then_some("failed") }
    }
}

impl FinishedToolCall {
    fn spans(&self, cleaner: &TelemetryRedactor<'_>) -> Vec<OtlpSpan> {
        let name = cleaner.clean(&format!("{} {}", attributes::EXECUTE_TOOL, self.call.tool));
        let status = if self.end.error().is_some() { OtlpStatus::Error } else { OtlpStatus::Unset };
        let whole = self.place.span(cleaner, name, SpanKind::Internal);
        let whole = whole.saying(self.attributes(cleaner), status);
        let mut spans = vec![whole];
        let own = cleaner.context(self.place.context);
        let ends = self.stages.iter().skip(1).map(|(_, from)| *from).chain([self.place.ended]);
        for ((stage, from), to) in self.stages.iter().zip(ends) {
            let Some(context) = TraceContext::below(Some(own)) else { continue };
            let name = RedactedText::fixed(stage.word());
            let said = vec![KeyValue::new(attributes::STAGE, AnyValue::text(name.clone()))];
            let span = OtlpSpan::new(name, SpanKind::Internal, context, Some(own));
            spans.push(span.during(SpanPeriod { from: *from, to }).saying(said, OtlpStatus::Unset));
        }
        spans
    }

    fn attributes(&self, cleaner: &TelemetryRedactor<'_>) -> Vec<KeyValue> {
        let (call, end) = (&self.call, &self.end);
        let number = |number: u64| AnyValue::number(i64::try_from(number).unwrap_or(i64::MAX));
        let id = end.transaction.clone().unwrap_or_else(|| format!("{}.{}", call.session, call.number));
        let mut said = vec![
            KeyValue::new(
                attributes::OPERATION,
                AnyValue::text(RedactedText::fixed(attributes::EXECUTE_TOOL)),
            ),
            KeyValue::new(attributes::TOOL, cleaner.text(&call.tool)),
            KeyValue::new(attributes::CALL_ID, cleaner.text(&id)),
            KeyValue::new(attributes::SESSION, cleaner.text(call.session.as_str())),
            KeyValue::new(attributes::CALL, number(call.number)),
        ];
        let mut say = |attribute: AttributeName, text: Option<String>| {
            said.extend(text.map(|text| KeyValue::new(attribute, cleaner.text(&text))));
        };
        say(attributes::DECISION, end.decision.as_ref().map(word));
        say(attributes::ERROR, end.error().map(str::to_owned));
        if let Some((code, layer, rule)) = &end.refusal {
            say(attributes::REFUSAL, Some(word(code)));
            say(attributes::LAYER, Some(word(layer)));
            say(attributes::RULE, Some(rule.clone()));
        }
        said.extend(end.exit.map(|exit| KeyValue::new(attributes::EXIT, number(exit.into()))));
        if end.leaks > 0 {
            said.push(KeyValue::new(attributes::LEAKS, number(end.leaks)));
        }
        said
    }
}

/// The span of a call in progress.
#[derive(Debug)]
pub(crate) struct ToolSpan {
    to: Arc<TelemetryExporter>,
    place: SpanPosition,
    call: ToolCallInfo,
    passed: Mutex<StageTimes>,
}

/// The stages reached so far.
#[derive(Debug, Default)]
struct StageTimes {
    stages: Vec<(PipelineStage, u64)>,
    decision: Option<Decision>,
}

/// Bound on recorded stages. Approvals repeat stages.
const MOST_STAGES: usize = 32;

impl ToolSpan {
    pub(super) fn begin(
        to: Arc<TelemetryExporter>,
        call: ToolCallInfo,
        parent: Option<TraceContext>,
    ) -> Option<Arc<Self>> {
        let place = SpanPosition::below(parent)?;
        Some(Arc::new(Self { to, place, call, passed: Mutex::default() }))
    }

    pub(crate) fn ended(&self, settled: &Settled) {
        let StageTimes { stages, decision } = std::mem::take(&mut *self.passed());
        let place = SpanPosition { ended: now(), ..self.place };
        let (call, end) = (self.call.clone(), ToolCallResult::of(settled, decision));
        self.to.add(FinishedSpan::Tool(FinishedToolCall { place, call, stages, end }));
    }

    fn passed(&self) -> MutexGuard<'_, StageTimes> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallObserver for ToolSpan {
    fn reached(&self, stage: PipelineStage) {
        let mut passed = self.passed();
        if passed.stages.len() < MOST_STAGES {
            passed.stages.push((stage, now()));
        }
    }

    fn decided(&self, decision: Decision) {
        self.passed().decision = Some(decision);
    }

    fn begun(&self, transaction: &TransactionId) {
        self.to.remember(transaction, self.place.context);
    }
}
