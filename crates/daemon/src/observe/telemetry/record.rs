//! Ledger records as OTLP log records.

use jiff::Timestamp;
use ringfence_policy::TelemetryDetail;
use ringfence_types::{Call, FileCall};
use serde_json::Value as Json;

use super::attributes::{self, AttributeName};
use super::otlp::{AnyValue, KeyValue, LogRecord, OtlpSeverity};
use super::redact::TelemetryRedactor;
use super::trace::{TraceContext, now};
use crate::observe::events::SharedEvent;

/// Fields that are exported at every level of detail: JSON pointer and attribute.
const SAID: [(&str, AttributeName); 13] = [
    ("/transaction", attributes::CALL_ID),
    ("/session", attributes::SESSION),
    ("/decision", attributes::DECISION),
    ("/answer", attributes::DECISION),
    ("/rule", attributes::RULE),
    ("/layer", attributes::LAYER),
    ("/refusal/rule", attributes::RULE),
    ("/refusal/layer", attributes::LAYER),
    ("/refusal/code", attributes::REFUSAL),
    ("/profile", attributes::PROFILE),
    ("/workspace_id", attributes::WORKSPACE),
    ("/outcome/exit/code", attributes::EXIT),
    ("/kind", attributes::KIND),
];

pub(super) fn record(
    cleaner: &TelemetryRedactor<'_>,
    told: &SharedEvent,
    content: TelemetryDetail,
    context: Option<TraceContext>,
) -> LogRecord {
    let kind = cleaner.clean(&told.kind);
    let body = match content {
        TelemetryDetail::Metadata => AnyValue::text(kind.clone()),
        TelemetryDetail::Events => cleaner.json(&told.event),
    };
    let name = cleaner.clean(&attributes::event(&told.kind));
    LogRecord::new(name, severity(&told.kind), time(&told.time), now())
        .saying(body, attributes(cleaner, told))
        .within(context.map(|context| cleaner.context(context)))
}

fn attributes(cleaner: &TelemetryRedactor<'_>, told: &SharedEvent) -> Vec<KeyValue> {
    let sequence = i64::try_from(told.seq).unwrap_or(i64::MAX);
    let mut attributes = vec![
        KeyValue::new(attributes::SEQUENCE, AnyValue::number(sequence)),
        KeyValue::new(attributes::HASH, cleaner.text(&told.hash)),
    ];
    for (place, attribute) in SAID {
        let value = match told.event.pointer(place) {
            Some(Json::String(text)) => cleaner.text(text),
            Some(Json::Number(number)) => AnyValue::number(number.as_i64().unwrap_or_default()),
            _ => continue,
        };
        attributes.push(KeyValue::new(attribute, value));
    }
    let call = told.event.get("call").and_then(|call| serde_json::from_value::<Call>(call.clone()).ok());
    attributes.extend(call.map(|call| KeyValue::new(attributes::TOOL, cleaner.text(tool(&call)))));
    attributes
}

/// The tool name of a call, as agents know it.
pub(crate) fn tool(call: &Call) -> &str {
    match call {
        Call::Exec(_) => "exec",
        Call::File(FileCall::Read { .. }) => "read_file",
        Call::File(FileCall::Write { .. }) => "write_file",
        Call::File(FileCall::List { .. }) => "list_dir",
        Call::File(FileCall::Symlink { .. }) => "link_file",
        Call::File(FileCall::Stat { .. }) => "stat_file",
        Call::File(FileCall::Move { .. }) => "move_file",
        Call::File(FileCall::Remove { .. }) => "remove_file",
        Call::File(FileCall::Send { .. }) => "send_file",
        Call::Apply(_) => "apply",
        Call::Land(_) => "land",
        Call::Flow(_) => "connect",
        Call::Fetch(_) => "fetch",
        Call::Tool(tool) => &tool.name,
    }
}

fn severity(kind: &str) -> OtlpSeverity {
    match kind {
        "call-refused"
        | "secrets-found"
        | "limit-reached"
        | "loop-detected"
        | "changes-held"
        | "proposal-conflicted" => OtlpSeverity::Warn,
        "call-interrupted" => OtlpSeverity::Error,
        _ => OtlpSeverity::Info,
    }
}

fn time(text: &str) -> u64 {
    let time: Timestamp = text.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    u64::try_from(time.as_nanosecond()).unwrap_or_default()
}
