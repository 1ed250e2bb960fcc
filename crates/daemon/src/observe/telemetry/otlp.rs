//! OTLP 1 messages as protobuf.
//!
//! INVARIANT: variable text enters a message only as [`RedactedText`]. The fields are private for that reason.

use prost::{Message, Oneof};

use super::attributes::{AttributeName, SCHEMA, SCOPE};
use super::redact::RedactedText;
use super::trace::TraceContext;

/// Kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal = 1,
    Server = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtlpSeverity {
    Info = 9,
    Warn = 13,
    Error = 17,
}

impl OtlpSeverity {
    fn word(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// Status of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtlpStatus {
    Unset = 0,
    Error = 2,
}

/// Start and end, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanPeriod {
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
    scope: Option<OtlpScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OtlpSpan>,
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
    scope: Option<OtlpScope>,
    #[prost(message, repeated, tag = "2")]
    log_records: Vec<LogRecord>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

/// The sender of the telemetry.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OtlpSpan {
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
    #[prost(oneof = "OtlpValue", tags = "1, 2, 3, 4, 5, 6")]
    value: Option<OtlpValue>,
}

#[derive(Clone, PartialEq, Oneof)]
enum OtlpValue {
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

/// The collector's response, with the number of rejected items.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
}

impl ExportResponse {
    pub(super) fn rejected(&self) -> u64 {
        self.partial.as_ref().and_then(|partial| u64::try_from(partial.rejected).ok()).unwrap_or_default()
    }
}

impl Resource {
    pub(super) fn new(attributes: Vec<KeyValue>) -> Self {
        Self { attributes }
    }
}

fn scope() -> Option<OtlpScope> {
    Some(OtlpScope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

impl TracesRequest {
    pub(super) fn new(resource: Resource, spans: Vec<OtlpSpan>) -> Self {
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

impl OtlpSpan {
    pub(super) fn new(
        name: RedactedText,
        kind: SpanKind,
        context: TraceContext,
        parent: Option<TraceContext>,
    ) -> Self {
        Self {
            trace_id: context.trace.to_vec(),
            span_id: context.span.to_vec(),
            parent_span_id: parent.map(|parent| parent.span.to_vec()).unwrap_or_default(),
            name: name.into(),
            kind: kind as i32,
            ..Self::default()
        }
    }

    pub(super) fn during(mut self, period: SpanPeriod) -> Self {
        self.start_time_unix_nano = period.from;
        // After a clock step back a span must not end before it starts.
        self.end_time_unix_nano = period.to.max(period.from);
        self
    }

    pub(super) fn saying(mut self, attributes: Vec<KeyValue>, status: OtlpStatus) -> Self {
        self.attributes = attributes;
        self.status = Some(SpanStatus { code: status as i32 });
        self
    }
}

impl LogRecord {
    pub(super) fn new(event_name: RedactedText, severity: OtlpSeverity, time: u64, observed: u64) -> Self {
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

    pub(super) fn within(mut self, context: Option<TraceContext>) -> Self {
        if let Some(context) = context {
            (self.trace_id, self.span_id) = (context.trace.to_vec(), context.span.to_vec());
        }
        self
    }
}

impl KeyValue {
    pub(super) fn new(attribute: AttributeName, value: AnyValue) -> Self {
        Self { key: attribute.key.to_owned(), value: Some(value) }
    }

    /// An attribute with a variable name: from the operator's configuration, or a field of an event.
    pub(super) fn named(name: RedactedText, value: AnyValue) -> Self {
        Self { key: name.into(), value: Some(value) }
    }
}

impl From<bool> for AnyValue {
    fn from(value: bool) -> Self {
        Self::of(OtlpValue::Bool(value))
    }
}

impl AnyValue {
    fn of(value: OtlpValue) -> Self {
        Self { value: Some(value) }
    }

    pub(super) fn text(text: RedactedText) -> Self {
        Self::of(OtlpValue::Text(text.into()))
    }

    pub(super) fn number(number: i64) -> Self {
        Self::of(OtlpValue::Number(number))
    }

    pub(super) fn fraction(number: f64) -> Self {
        Self::of(OtlpValue::Fraction(number))
    }

    pub(super) fn list(values: Vec<Self>) -> Self {
        Self::of(OtlpValue::List(ValueList { values }))
    }

    pub(super) fn map(values: Vec<KeyValue>) -> Self {
        Self::of(OtlpValue::Map(KeyValueList { values }))
    }

    pub(super) fn nothing() -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::super::attributes;
    use super::*;

    /// The same messages, encoded by `opentelemetry-proto` 1.45.2 for Python.
    const TRACES: &str = "CpgCCh0KGwoMc2VydmljZS5uYW1lEgsKCXJpbmdmZW5jZRLNAQoZChByaW5nZmVuY2UuZGFlbW9uEgUwLjEuMBKGAQoQAQEBAQEBAQEBAQEBAQEBARIIAgICAgICAgIiCAMDAwMDAwMDKhFleGVjdXRlX3Rvb2wgZXhlYzABOegDAAAAAAAAQdAHAAAAAAAAShoKEGdlbl9haS50b29sLm5hbWUSBgoEZXhlY0oXChFwcm9jZXNzLmV4aXQuY29kZRICGAd6AhgCGidodHRwczovL29wZW50ZWxlbWV0cnkuaW8vc2NoZW1hcy8xLjM4LjAaJ2h0dHBzOi8vb3BlbnRlbGVtZXRyeS5pby9zY2hlbWFzLzEuMzguMA==";
    const LOGS: &str = "Cq8CCh0KGwoMc2VydmljZS5uYW1lEgsKCXJpbmdmZW5jZRLkAQoZChByaW5nZmVuY2UuZGFlbW9uEgUwLjEuMBKdAQnoAwAAAAAAABANGgRXQVJOKjIyMAouCgRhcmd2EiYqJAoECgJscwoCEAEKCxj///////////8BCgkhAAAAAAAA4D8KADIeChhyaW5nZmVuY2UuZXZlbnQuc2VxdWVuY2USAhgFShABAQEBAQEBAQEBAQEBAQEBUggCAgICAgICAlnQBwAAAAAAAGIRcmluZ2ZlbmNlLnJlZnVzZWQaJ2h0dHBzOi8vb3BlbnRlbGVtZXRyeS5pby9zY2hlbWFzLzEuMzguMBonaHR0cHM6Ly9vcGVudGVsZW1ldHJ5LmlvL3NjaGVtYXMvMS4zOC4w";

    const CONTEXT: TraceContext = TraceContext { trace: [1; 16], span: [2; 8] };

    fn resource() -> Resource {
        let name = AnyValue::text(RedactedText::fixed("ringfence"));
        Resource::new(vec![KeyValue::new(attributes::SERVICE_NAME, name)])
    }

    #[test]
    fn spans_are_written_as_others_write_them() {
        let parent = TraceContext { span: [3; 8], ..CONTEXT };
        let said = vec![
            KeyValue::new(attributes::TOOL, AnyValue::text(RedactedText::fixed("exec"))),
            KeyValue::new(attributes::EXIT, AnyValue::number(7)),
        ];
        let span = OtlpSpan::new(
            RedactedText::fixed("execute_tool exec"),
            SpanKind::Internal,
            CONTEXT,
            Some(parent),
        )
        .during(SpanPeriod { from: 1000, to: 2000 })
        .saying(said, OtlpStatus::Error);
        let message = TracesRequest::new(resource(), vec![span]).encode_to_vec();
        assert_eq!(STANDARD.encode(message), TRACES);
    }

    #[test]
    fn records_are_written_as_others_write_them() {
        let values = vec![
            AnyValue::text(RedactedText::fixed("ls")),
            AnyValue::from(true),
            AnyValue::number(-1),
            AnyValue::fraction(0.5),
            AnyValue::nothing(),
        ];
        let body = AnyValue::map(vec![KeyValue::named(RedactedText::fixed("argv"), AnyValue::list(values))]);
        let said = vec![KeyValue::new(attributes::SEQUENCE, AnyValue::number(5))];
        let record = LogRecord::new(RedactedText::fixed("ringfence.refused"), OtlpSeverity::Warn, 1000, 2000)
            .saying(body, said)
            .within(Some(CONTEXT));
        let message = LogsRequest::new(resource(), vec![record]).encode_to_vec();
        assert_eq!(STANDARD.encode(message), LOGS);
    }

    #[test]
    fn what_a_collector_did_not_take_is_read_as_others_write_it() {
        let taken = ExportResponse::decode(STANDARD.decode("CgYIAxICbm8=").unwrap().as_slice()).unwrap();
        assert_eq!(taken.rejected(), 3);
        assert_eq!(ExportResponse::default().rejected(), 0);
    }

    #[test]
    fn no_span_ends_before_it_begins() {
        let span = OtlpSpan::new(RedactedText::fixed("x"), SpanKind::Server, CONTEXT, None);
        let span = span.during(SpanPeriod { from: 2000, to: 1000 });
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (2000, 2000));
    }
}
