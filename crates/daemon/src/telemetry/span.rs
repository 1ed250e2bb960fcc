//! Spans while what they are about happens: a request to a method, and a call with its stages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_api::{ApiError, ErrorCode, Method};
use ringfence_runtime::{Ended, Observer, Settled, Stage};
use ringfence_types::{Decision, Layer, RefusalCode, SessionId, TransactionId};
use serde::Serialize;

use super::Exporting;
use super::clean::{Clean, Cleaner};
use super::names::{self, Attribute};
use super::otlp::{AnyValue, KeyValue, Period, Span, SpanKind, Status};
use super::trace::{Context, now};

/// What happened, before it is known what of it may leave.
#[derive(Debug)]
pub(super) enum Happened {
    Request(RequestDone),
    Tool(ToolDone),
}

impl Happened {
    /// How many spans it is.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Request(_) => 1,
            Self::Tool(tool) => 1 + tool.stages.len() as u64,
        }
    }

    pub(super) fn spans(&self, cleaner: &Cleaner<'_>) -> Vec<Span> {
        match self {
            Self::Request(request) => vec![request.span(cleaner)],
            Self::Tool(tool) => tool.spans(cleaner),
        }
    }
}

/// Where something is in the tree, and when it was.
#[derive(Clone, Copy, Debug)]
struct Place {
    context: Context,
    parent: Option<Context>,
    begun: u64,
    ended: u64,
}

impl Place {
    fn below(parent: Option<Context>) -> Option<Self> {
        Some(Self { context: Context::below(parent)?, parent, begun: now(), ended: 0 })
    }

    fn numbers(&self, cleaner: &Cleaner<'_>) -> (Context, Option<Context>) {
        (cleaner.context(self.context), self.parent.map(|parent| cleaner.context(parent)))
    }

    fn period(&self) -> Period {
        Period { from: self.begun, to: self.ended }
    }
}

#[derive(Debug)]
pub(super) struct RequestDone {
    place: Place,
    method: Method,
    session: Option<SessionId>,
    error: Option<(String, Option<String>)>,
}

impl RequestDone {
    fn span(&self, cleaner: &Cleaner<'_>) -> Span {
        let method = Clean::fixed(self.method.name());
        let mut said = vec![KeyValue::new(names::METHOD, AnyValue::text(method.clone()))];
        said.extend(self.session.iter().map(|id| KeyValue::new(names::SESSION, cleaner.text(id.as_str()))));
        let mut status = Status::Unset;
        if let Some((code, rule)) = &self.error {
            status = Status::Error;
            said.push(KeyValue::new(names::ERROR, cleaner.text(code)));
            said.extend(rule.iter().map(|rule| KeyValue::new(names::RULE, cleaner.text(rule))));
        }
        Span::new(method, SpanKind::Server, self.place.numbers(cleaner))
            .during(self.place.period())
            .saying(said, status)
    }
}

/// A request that is being answered. When whoever asked goes away it ends with that.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    to: Arc<Exporting>,
    done: Option<RequestDone>,
}

impl RequestSpan {
    pub(super) fn begin(
        to: Arc<Exporting>,
        (method, session): (Method, Option<SessionId>),
        parent: Option<Context>,
    ) -> Option<Self> {
        let error = Some(("cancelled".to_owned(), None));
        let done = RequestDone { place: Place::below(parent)?, method, session, error };
        Some(Self { to, done: Some(done) })
    }

    pub(super) fn context(&self) -> Option<Context> {
        self.done.as_ref().map(|done| done.place.context)
    }

    /// Strangers are not told of: they would push out what is.
    pub(crate) fn ended<T>(mut self, answer: &Result<T, ApiError>) {
        if answer.as_ref().is_err_and(|error| error.code == ErrorCode::Unauthenticated) {
            self.done = None;
        }
        if let Some(done) = &mut self.done {
            done.error = answer.as_ref().err().map(|error| (word(&error.code), error.rule.clone()));
        }
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        if let Some(mut done) = self.done.take() {
            done.place.ended = now();
            self.to.add(Happened::Request(done));
        }
    }
}

/// A word that something is written as.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().map(str::to_owned).unwrap_or_default()
}

#[derive(Debug)]
pub(super) struct ToolDone {
    place: Place,
    call: ToolCall,
    stages: Vec<(Stage, u64)>,
    end: ToolEnd,
}

/// Which call it is.
#[derive(Clone, Debug)]
pub(crate) struct ToolCall {
    pub(crate) tool: String,
    pub(crate) session: SessionId,
    pub(crate) number: u64,
}

/// What came of it, without what it was about.
#[derive(Debug, Default)]
struct ToolEnd {
    transaction: Option<String>,
    decision: Option<Decision>,
    refusal: Option<(RefusalCode, Layer, String)>,
    failed: bool,
    exit: Option<u8>,
    leaks: u64,
}

impl ToolEnd {
    fn of(settled: &Settled, decision: Option<Decision>) -> Self {
        let mut end = Self {
            transaction: settled.transaction.as_ref().map(ToString::to_string),
            leaks: settled.leaks.len() as u64,
            decision,
            ..Self::default()
        };
        match &settled.ended {
            Ended::Executed(outcome) => end.exit = Some(outcome.exit.code()),
            Ended::Touched(_) => {}
            Ended::Failed { .. } => end.failed = true,
            Ended::Refused(refusal) => {
                end.refusal = Some((refusal.code, refusal.layer, refusal.rule.clone()));
                end.decision = decision.or(Some(Decision::Deny));
            }
        }
        end
    }

    fn error(&self) -> Option<&'static str> {
        if self.refusal.is_some() { Some("refused") } else { self.failed.then_some("failed") }
    }
}

impl ToolDone {
    fn spans(&self, cleaner: &Cleaner<'_>) -> Vec<Span> {
        let name = cleaner.clean(&format!("{} {}", names::EXECUTE_TOOL, self.call.tool));
        let status = if self.end.error().is_some() { Status::Error } else { Status::Unset };
        let whole = Span::new(name, SpanKind::Internal, self.place.numbers(cleaner))
            .during(self.place.period())
            .saying(self.attributes(cleaner), status);
        let mut spans = vec![whole];
        let own = cleaner.context(self.place.context);
        let ends = self.stages.iter().skip(1).map(|(_, from)| *from).chain([self.place.ended]);
        for ((stage, from), to) in self.stages.iter().zip(ends) {
            let Some(context) = Context::below(Some(own)) else { continue };
            let name = Clean::fixed(stage.word());
            let said = vec![KeyValue::new(names::STAGE, AnyValue::text(name.clone()))];
            let place = (context, Some(own));
            let period = Period { from: *from, to };
            spans.push(Span::new(name, SpanKind::Internal, place).during(period).saying(said, Status::Unset));
        }
        spans
    }

    fn attributes(&self, cleaner: &Cleaner<'_>) -> Vec<KeyValue> {
        let (call, end) = (&self.call, &self.end);
        let number = |number: u64| AnyValue::number(i64::try_from(number).unwrap_or(i64::MAX));
        let id = end.transaction.clone().unwrap_or_else(|| format!("{}.{}", call.session, call.number));
        let mut said = vec![
            KeyValue::new(names::OPERATION, AnyValue::text(Clean::fixed(names::EXECUTE_TOOL))),
            KeyValue::new(names::TOOL, cleaner.text(&call.tool)),
            KeyValue::new(names::CALL_ID, cleaner.text(&id)),
            KeyValue::new(names::SESSION, cleaner.text(call.session.as_str())),
            KeyValue::new(names::CALL, number(call.number)),
        ];
        let mut say = |attribute: Attribute, text: Option<String>| {
            said.extend(text.map(|text| KeyValue::new(attribute, cleaner.text(&text))));
        };
        say(names::DECISION, end.decision.as_ref().map(word));
        say(names::ERROR, end.error().map(str::to_owned));
        if let Some((code, layer, rule)) = &end.refusal {
            say(names::REFUSAL, Some(word(code)));
            say(names::LAYER, Some(word(layer)));
            say(names::RULE, Some(rule.clone()));
        }
        said.extend(end.exit.map(|exit| KeyValue::new(names::EXIT, number(exit.into()))));
        if end.leaks > 0 {
            said.push(KeyValue::new(names::LEAKS, number(end.leaks)));
        }
        said
    }
}

/// A call that is being made.
#[derive(Debug)]
pub(crate) struct ToolSpan {
    to: Arc<Exporting>,
    place: Place,
    call: ToolCall,
    passed: Mutex<Passed>,
}

/// How far it came.
#[derive(Debug, Default)]
struct Passed {
    stages: Vec<(Stage, u64)>,
    decision: Option<Decision>,
}

/// More turns than a question has.
const MOST_STAGES: usize = 32;

impl ToolSpan {
    pub(super) fn begin(to: Arc<Exporting>, call: ToolCall, parent: Option<Context>) -> Option<Arc<Self>> {
        let place = Place::below(parent)?;
        Some(Arc::new(Self { to, place, call, passed: Mutex::default() }))
    }

    pub(crate) fn ended(&self, settled: &Settled) {
        let Passed { stages, decision } = std::mem::take(&mut *self.passed());
        let place = Place { ended: now(), ..self.place };
        let (call, end) = (self.call.clone(), ToolEnd::of(settled, decision));
        self.to.add(Happened::Tool(ToolDone { place, call, stages, end }));
    }

    fn passed(&self) -> MutexGuard<'_, Passed> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for ToolSpan {
    fn reached(&self, stage: Stage) {
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
