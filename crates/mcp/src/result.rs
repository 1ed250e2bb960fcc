//! What a client is told about a call.

use ringfence_types::Denial;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

/// The most of one stream or file that is shown; more would only fill the context of a model.
pub const MOST: usize = 256 * 1024;

/// Text of at most [`MOST`] bytes, and whether that is not all.
pub fn text(bytes: &[u8]) -> (String, bool) {
    let shown = bytes.get(..MOST).unwrap_or(bytes);
    (String::from_utf8_lossy(shown).into_owned(), shown.len() < bytes.len())
}

pub fn structured(said: Map<String, Value>, shown: &str) -> CallToolResult {
    let is_error = said.get("ended").is_some_and(|ended| ended != "done");
    let content = vec![ContentBlock::text(shown)];
    let mut result = if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(Value::Object(said));
    result
}

/// The answer was no.
pub fn refused(denial: &Denial) -> CallToolResult {
    let said = Map::from_iter([("ended".to_owned(), json!("refused")), ("denial".to_owned(), json!(denial))]);
    structured(said, &denial.text())
}

/// The call itself makes no sense, or something broke.
pub fn malformed(why: &str) -> CallToolResult {
    let said = Map::from_iter([("ended".to_owned(), json!("failed")), ("failure".to_owned(), json!(why))]);
    structured(said, why)
}
