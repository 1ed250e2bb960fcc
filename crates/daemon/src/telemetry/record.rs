//! An event of the ledger as a record of a log.

use jiff::Timestamp;
use ringfence_runtime::authz::policy::Content;
use ringfence_types::{Call, FileCall};
use serde_json::Value as Json;

use super::clean::Cleaner;
use super::names::{self, Attribute};
use super::otlp::{AnyValue, KeyValue, LogRecord, Severity};
use super::trace::{Context, now};
use crate::events::Told;

/// What is told of an event whatever is wanted besides: where in it that is, and what it is called.
const SAID: [(&str, Attribute); 13] = [
    ("/transaction", names::CALL_ID),
    ("/session", names::SESSION),
    ("/decision", names::DECISION),
    ("/answer", names::DECISION),
    ("/rule", names::RULE),
    ("/layer", names::LAYER),
    ("/refusal/rule", names::RULE),
    ("/refusal/layer", names::LAYER),
    ("/refusal/code", names::REFUSAL),
    ("/profile", names::PROFILE),
    ("/workspace_id", names::WORKSPACE),
    ("/outcome/exit/code", names::EXIT),
    ("/kind", names::KIND),
];

pub(super) fn record(
    cleaner: &Cleaner<'_>,
    (told, content): (&Told, Content),
    context: Option<Context>,
) -> LogRecord {
    let kind = cleaner.clean(&told.kind);
    let body = match content {
        Content::Metadata => AnyValue::text(kind.clone()),
        Content::Events => cleaner.json(&told.event),
    };
    let name = cleaner.clean(&names::event(&told.kind));
    LogRecord::new(name, severity(&told.kind), (time(&told.time), now()))
        .saying(body, attributes(cleaner, told))
        .within(context.map(|context| cleaner.context(context)))
}

fn attributes(cleaner: &Cleaner<'_>, told: &Told) -> Vec<KeyValue> {
    let sequence = i64::try_from(told.seq).unwrap_or(i64::MAX);
    let mut attributes = vec![
        KeyValue::new(names::SEQUENCE, AnyValue::number(sequence)),
        KeyValue::new(names::HASH, cleaner.text(&told.hash)),
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
    attributes.extend(call.map(|call| KeyValue::new(names::TOOL, cleaner.text(tool(&call)))));
    attributes
}

/// What agents call what is done in a call.
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
        Call::Flow(_) => "connect",
        Call::Fetch(_) => "fetch",
        Call::Tool(tool) => &tool.name,
    }
}

fn severity(kind: &str) -> Severity {
    match kind {
        "refused" | "finding" | "limit-hit" | "loop-found" | "held" | "conflicted" => Severity::Warn,
        "interrupted" => Severity::Error,
        _ => Severity::Info,
    }
}

fn time(text: &str) -> u64 {
    let time: Timestamp = text.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    u64::try_from(time.as_nanosecond()).unwrap_or_default()
}
