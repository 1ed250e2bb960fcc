//! What a client is told about a call.

use ringfence_runtime::{Ended, Settled};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use crate::denial::Denial;
use crate::leaks;

/// The most of one stream or file that is shown; more would only fill the context of a model.
pub(super) const MOST: usize = 256 * 1024;

/// Text of at most [`MOST`] bytes, and whether that is not all.
pub(super) fn text(bytes: &[u8]) -> (String, bool) {
    let shown = bytes.get(..MOST).unwrap_or(bytes);
    (String::from_utf8_lossy(shown).into_owned(), shown.len() < bytes.len())
}

/// What every result of a settled call says.
pub(super) fn settled(
    settled: &Settled,
    denial: impl FnOnce(&ringfence_types::Refusal) -> Denial,
) -> Map<String, Value> {
    let mut said = Map::new();
    let mut say = |name: &str, value: Value| said.insert(name.to_owned(), value);
    match &settled.ended {
        Ended::Executed(_) | Ended::Touched(_) => say("ended", json!("done")),
        Ended::Refused(refusal) => {
            say("denial", json!(denial(refusal)));
            say("ended", json!("refused"))
        }
        Ended::Failed { what, .. } => {
            say("failure", json!(what));
            say("ended", json!("failed"))
        }
    };
    if let Some(transaction) = &settled.transaction {
        say("transaction", json!(transaction.as_str()));
    }
    if let Some(note) = &settled.note {
        say("note", json!(note));
    }
    if !settled.leaks.is_empty() {
        say("leaks", json!(leaks::reports(&settled.leaks)));
    }
    if let Some(network) = &settled.network {
        say("network", json!(network));
    }
    if let Some(why) = &settled.unrecorded {
        say("note", json!(format!("the outcome could not be written to the ledger: {why}")));
    }
    said
}

pub(super) fn structured(said: Map<String, Value>, shown: &str) -> CallToolResult {
    let is_error = said.get("ended").is_some_and(|ended| ended != "done");
    let content = vec![ContentBlock::text(shown)];
    let mut result = if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(Value::Object(said));
    result
}

/// The call itself makes no sense.
pub(super) fn malformed(why: &str) -> CallToolResult {
    let said = json!({ "ended": "failed", "failure": why });
    let mut result = CallToolResult::error(vec![ContentBlock::text(why)]);
    result.structured_content = Some(said);
    result
}
