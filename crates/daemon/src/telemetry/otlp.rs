//! The messages of OTLP 1 that are sent, as protobuf.
//!
//! INVARIANT: text gets into a message as [`Clean`] or not at all: the fields are nobody else's.

use prost::{Message, Oneof};

use super::clean::Clean;
use super::names::{Attribute, SCHEMA, SCOPE};
use super::trace::Context;

/// What a span is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal = 1,
    Server = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    Info = 9,
    Warn = 13,
    Error = 17,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// Whether what a span is about went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Unset = 0,
    Error = 2,
}

/// From when to when, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) from: u64,
    pub(super) to: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TracesRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LogsRequest {
    #[prost(message, repeated, tag = "1")]
    resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_logs: Vec<ScopeLogs>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeLogs {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    log_records: Vec<LogRecord>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

/// What is said of the sender.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<SpanStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct SpanStatus {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LogRecord {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    severity_number: i32,
    #[prost(string, tag = "3")]
    severity_text: String,
    #[prost(message, optional, tag = "5")]
    body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValue>,
    #[prost(bytes = "vec", tag = "9")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    span_id: Vec<u8>,
    #[prost(fixed64, tag = "11")]
    observed_time_unix_nano: u64,
    #[prost(string, tag = "12")]
    event_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5, 6")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Number(i64),
    #[prost(double, tag = "4")]
    Fraction(f64),
    #[prost(message, tag = "5")]
    List(ValueList),
    #[prost(message, tag = "6")]
    Map(KeyValueList),
}

#[derive(Clone, PartialEq, Message)]
struct ValueList {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValueList {
    #[prost(message, repeated, tag = "1")]
    values: Vec<KeyValue>,
}

/// What a collector says when it took something: also how much of it it did not take.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Taken {
    #[prost(message, optional, tag = "1")]
    partial: Option<Partial>,
}

#[derive(Clone, PartialEq, Message)]
struct Partial {
    #[prost(int64, tag = "1")]
    rejected: i64,
}

impl Taken {
    pub(super) fn rejected(&self) -> u64 {
        self.partial.as_ref().and_then(|partial| u64::try_from(partial.rejected).ok()).unwrap_or_default()
    }
}

impl Resource {
    pub(super) fn new(attributes: Vec<KeyValue>) -> Self {
        Self { attributes }
    }
}

fn scope() -> Option<Scope> {
    Some(Scope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

impl TracesRequest {
    pub(super) fn new(resource: Resource, spans: Vec<Span>) -> Self {
        let schema_url = SCHEMA.to_owned();
        let scope_spans = vec![ScopeSpans { scope: scope(), spans, schema_url: schema_url.clone() }];
        Self { resource_spans: vec![ResourceSpans { resource: Some(resource), scope_spans, schema_url }] }
    }
}

impl LogsRequest {
    pub(super) fn new(resource: Resource, log_records: Vec<LogRecord>) -> Self {
        let schema_url = SCHEMA.to_owned();
        let scope_logs = vec![ScopeLogs { scope: scope(), log_records, schema_url: schema_url.clone() }];
        Self { resource_logs: vec![ResourceLogs { resource: Some(resource), scope_logs, schema_url }] }
    }
}

impl Span {
    pub(super) fn new(name: Clean, kind: SpanKind, (context, parent): (Context, Option<Context>)) -> Self {
        Self {
            trace_id: context.trace.to_vec(),
            span_id: context.span.to_vec(),
            parent_span_id: parent.map(|parent| parent.span.to_vec()).unwrap_or_default(),
            name: name.into(),
            kind: kind as i32,
            ..Self::default()
        }
    }

    pub(super) fn during(mut self, period: Period) -> Self {
        self.start_time_unix_nano = period.from;
        // A clock that was set back makes no span that ends before it begins.
        self.end_time_unix_nano = period.to.max(period.from);
        self
    }

    pub(super) fn saying(mut self, attributes: Vec<KeyValue>, status: Status) -> Self {
        self.attributes = attributes;
        self.status = Some(SpanStatus { code: status as i32 });
        self
    }
}

impl LogRecord {
    pub(super) fn new(event_name: Clean, severity: Severity, (time, observed): (u64, u64)) -> Self {
        Self {
            time_unix_nano: time,
            observed_time_unix_nano: observed,
            severity_number: severity as i32,
            severity_text: severity.word().to_owned(),
            event_name: event_name.into(),
            ..Self::default()
        }
    }

    pub(super) fn saying(mut self, body: AnyValue, attributes: Vec<KeyValue>) -> Self {
        (self.body, self.attributes) = (Some(body), attributes);
        self
    }

    pub(super) fn within(mut self, context: Option<Context>) -> Self {
        if let Some(context) = context {
            (self.trace_id, self.span_id) = (context.trace.to_vec(), context.span.to_vec());
        }
        self
    }
}

impl KeyValue {
    pub(super) fn new(attribute: Attribute, value: AnyValue) -> Self {
        Self { key: attribute.key.to_owned(), value: Some(value) }
    }

    /// With a name that is not ours: the operator's, or of a part of an event.
    pub(super) fn named(name: Clean, value: AnyValue) -> Self {
        Self { key: name.into(), value: Some(value) }
    }
}

impl From<bool> for AnyValue {
    fn from(value: bool) -> Self {
        Self::of(Value::Bool(value))
    }
}

impl AnyValue {
    fn of(value: Value) -> Self {
        Self { value: Some(value) }
    }

    pub(super) fn text(text: Clean) -> Self {
        Self::of(Value::Text(text.into()))
    }

    pub(super) fn number(number: i64) -> Self {
        Self::of(Value::Number(number))
    }

    pub(super) fn fraction(number: f64) -> Self {
        Self::of(Value::Fraction(number))
    }

    pub(super) fn list(values: Vec<Self>) -> Self {
        Self::of(Value::List(ValueList { values }))
    }

    pub(super) fn map(values: Vec<KeyValue>) -> Self {
        Self::of(Value::Map(KeyValueList { values }))
    }

    pub(super) fn nothing() -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::super::names;
    use super::*;

    /// The same messages, written by `opentelemetry-proto` 1.45.2 for Python.
    const TRACES: &str = "CpgCCh0KGwoMc2VydmljZS5uYW1lEgsKCXJpbmdmZW5jZRLNAQoZChByaW5nZmVuY2UuZGFlbW9uEgUwLjEuMBKGAQoQAQEBAQEBAQEBAQEBAQEBARIIAgICAgICAgIiCAMDAwMDAwMDKhFleGVjdXRlX3Rvb2wgZXhlYzABOegDAAAAAAAAQdAHAAAAAAAAShoKEGdlbl9haS50b29sLm5hbWUSBgoEZXhlY0oXChFwcm9jZXNzLmV4aXQuY29kZRICGAd6AhgCGidodHRwczovL29wZW50ZWxlbWV0cnkuaW8vc2NoZW1hcy8xLjM4LjAaJ2h0dHBzOi8vb3BlbnRlbGVtZXRyeS5pby9zY2hlbWFzLzEuMzguMA==";
    const LOGS: &str = "Cq8CCh0KGwoMc2VydmljZS5uYW1lEgsKCXJpbmdmZW5jZRLkAQoZChByaW5nZmVuY2UuZGFlbW9uEgUwLjEuMBKdAQnoAwAAAAAAABANGgRXQVJOKjIyMAouCgRhcmd2EiYqJAoECgJscwoCEAEKCxj///////////8BCgkhAAAAAAAA4D8KADIeChhyaW5nZmVuY2UuZXZlbnQuc2VxdWVuY2USAhgFShABAQEBAQEBAQEBAQEBAQEBUggCAgICAgICAlnQBwAAAAAAAGIRcmluZ2ZlbmNlLnJlZnVzZWQaJ2h0dHBzOi8vb3BlbnRlbGVtZXRyeS5pby9zY2hlbWFzLzEuMzguMBonaHR0cHM6Ly9vcGVudGVsZW1ldHJ5LmlvL3NjaGVtYXMvMS4zOC4w";

    const CONTEXT: Context = Context { trace: [1; 16], span: [2; 8] };

    fn resource() -> Resource {
        let name = AnyValue::text(Clean::fixed("ringfence"));
        Resource::new(vec![KeyValue::new(names::SERVICE_NAME, name)])
    }

    #[test]
    fn spans_are_written_as_others_write_them() {
        let parent = Context { span: [3; 8], ..CONTEXT };
        let said = vec![
            KeyValue::new(names::TOOL, AnyValue::text(Clean::fixed("exec"))),
            KeyValue::new(names::EXIT, AnyValue::number(7)),
        ];
        let span = Span::new(Clean::fixed("execute_tool exec"), SpanKind::Internal, (CONTEXT, Some(parent)))
            .during(Period { from: 1000, to: 2000 })
            .saying(said, Status::Error);
        let message = TracesRequest::new(resource(), vec![span]).encode_to_vec();
        assert_eq!(STANDARD.encode(message), TRACES);
    }

    #[test]
    fn records_are_written_as_others_write_them() {
        let values = vec![
            AnyValue::text(Clean::fixed("ls")),
            AnyValue::from(true),
            AnyValue::number(-1),
            AnyValue::fraction(0.5),
            AnyValue::nothing(),
        ];
        let body = AnyValue::map(vec![KeyValue::named(Clean::fixed("argv"), AnyValue::list(values))]);
        let said = vec![KeyValue::new(names::SEQUENCE, AnyValue::number(5))];
        let record = LogRecord::new(Clean::fixed("ringfence.refused"), Severity::Warn, (1000, 2000))
            .saying(body, said)
            .within(Some(CONTEXT));
        let message = LogsRequest::new(resource(), vec![record]).encode_to_vec();
        assert_eq!(STANDARD.encode(message), LOGS);
    }

    #[test]
    fn what_a_collector_did_not_take_is_read_as_others_write_it() {
        let taken = Taken::decode(STANDARD.decode("CgYIAxICbm8=").unwrap().as_slice()).unwrap();
        assert_eq!(taken.rejected(), 3);
        assert_eq!(Taken::default().rejected(), 0);
    }

    #[test]
    fn no_span_ends_before_it_begins() {
        let span = Span::new(Clean::fixed("x"), SpanKind::Server, (CONTEXT, None));
        let span = span.during(Period { from: 2000, to: 1000 });
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (2000, 2000));
    }
}
