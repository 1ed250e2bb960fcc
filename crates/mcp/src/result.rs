//! Results of tool calls.

use ringfence_api::CallDetails;
use ringfence_types::{EntryKind, Outcome, RefusalNotice};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use crate::{OutputTail, input};

/// Maximum bytes shown of one stream or file, to protect the context of a model.
pub const MOST: usize = 256 * 1024;

/// Text of at most [`MOST`] bytes, and whether it was cut.
pub fn text(bytes: &[u8]) -> (String, bool) {
    let shown = bytes.get(..MOST).unwrap_or(bytes);
    (String::from_utf8_lossy(shown).into_owned(), shown.len() < bytes.len())
}

pub fn structured(said: ResultFields, shown: &str) -> CallToolResult {
    let is_error = said.get("ended").is_some_and(|ended| ended != "done");
    let content = vec![ContentBlock::text(shown)];
    let mut result = if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(Value::Object(said));
    result
}

/// Fields and text of a refused call.
pub fn denied(denial: &RefusalNotice) -> (ResultFields, String) {
    let said = Map::from_iter([("ended".to_owned(), json!("refused")), ("denial".to_owned(), json!(denial))]);
    (said, denial.text())
}

/// Fields and text of a failed call.
pub fn failed(why: &str, hint: Option<&str>) -> (ResultFields, String) {
    let mut said =
        Map::from_iter([("ended".to_owned(), json!("failed")), ("failure".to_owned(), json!(why))]);
    said.extend(hint.map(|hint| ("hint".to_owned(), json!(hint))));
    (said, hint.map_or_else(|| why.to_owned(), |hint| format!("{why}\n{hint}")))
}

/// Result of an invalid call.
pub fn malformed(why: &str) -> CallToolResult {
    let (said, shown) = failed(why, None);
    structured(said, &shown)
}

/// Common fields of every result.
pub type ResultFields = Map<String, Value>;

/// Result of a completed call, with its transaction if it has one.
pub fn done(transaction: Option<String>) -> ResultFields {
    let mut said = Map::from_iter([("ended".to_owned(), json!("done"))]);
    said.extend(transaction.map(|id| ("transaction".to_owned(), json!(id))));
    said
}

/// The same, with what the session told besides.
pub fn done_with(transaction: Option<String>, details: CallDetails) -> ResultFields {
    let mut said = done(transaction);
    said.extend(details.into_iter().flat_map(|details| *details));
    said
}

/// Output of a command.
#[derive(Clone, Copy, Debug)]
pub struct CommandOutput<'p> {
    pub stdout: &'p [u8],
    pub stderr: &'p [u8],
}

/// Adds the exit fields, which all results about commands share.
pub fn exited(said: &mut ResultFields, outcome: &Outcome) {
    say(said, "exit_code", outcome.exit.code());
    say(said, "duration_ms", outcome.duration_ms);
}

/// Of `exec`.
pub fn ran(mut said: ResultFields, outcome: &Outcome, printed: CommandOutput<'_>) -> CallToolResult {
    let ((stdout, more_out), (stderr, more_err)) = (text(printed.stdout), text(printed.stderr));
    let shown = format!("exit code {}\n{stdout}{stderr}", outcome.exit.code());
    let dropped = outcome.stdout.dropped + outcome.stderr.dropped;
    exited(&mut said, outcome);
    say(&mut said, "truncated", more_out || more_err || dropped > 0);
    say(&mut said, "stdout", stdout);
    say(&mut said, "stderr", stderr);
    if let Some(limit) = outcome.limit_hit {
        say(&mut said, "limit_hit", limit.to_string());
    }
    structured(said, &shown)
}

/// Of `read_file`.
pub fn content(mut said: ResultFields, all: &str, wanted: &input::ReadInput) -> CallToolResult {
    let (content, truncated) = text(wanted.part_of(all).as_bytes());
    say(&mut said, "total_lines", all.lines().count());
    say(&mut said, "truncated", truncated);
    say(&mut said, "content", content.as_str());
    structured(said, &content)
}

/// Of `edit_file`.
pub fn edited(mut said: ResultFields, count: usize) -> CallToolResult {
    say(&mut said, "replaced", count);
    structured(said, &format!("replaced {count}"))
}

/// Of `list_dir`. A name that is not UTF-8 is shown lossily.
pub fn listed(mut said: ResultFields, entries: &[(String, EntryKind)]) -> CallToolResult {
    let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    let list: Vec<Value> = entries.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
    say(&mut said, "entries", list);
    structured(said, &names.join("\n"))
}

/// Of `search`, which runs `grep`.
pub fn found(mut said: ResultFields, outcome: &Outcome, printed: CommandOutput<'_>) -> CallToolResult {
    const NOTHING_FOUND: u8 = 1;
    if outcome.exit.code() > NOTHING_FOUND && printed.stdout.is_empty() {
        return malformed(&text(printed.stderr).0);
    }
    let (shown, truncated) = text(printed.stdout);
    say(&mut said, "truncated", truncated || outcome.stdout.dropped > 0);
    say(&mut said, "matches", shown.lines().collect::<Vec<_>>());
    structured(said, &shown)
}

/// A fetched page.
#[derive(Clone, Debug)]
pub struct PageResult<'p> {
    pub status: u16,
    /// URL after redirects.
    pub url: &'p str,
    pub headers: Vec<(String, String)>,
    pub body: &'p [u8],
}

/// Of `fetch`.
pub fn fetched(mut said: ResultFields, page: PageResult<'_>) -> CallToolResult {
    let (body, truncated) = text(page.body);
    let headers: ResultFields = page.headers.into_iter().map(|(name, value)| (name, json!(value))).collect();
    let shown = format!("{} {}\n{body}", page.status, page.url);
    say(&mut said, "status", page.status);
    say(&mut said, "url", page.url);
    say(&mut said, "headers", headers);
    say(&mut said, "truncated", truncated);
    say(&mut said, "body", body);
    structured(said, &shown)
}

/// Of `jobs`, one line for each.
pub fn jobs(lines: Vec<Value>) -> CallToolResult {
    let shown: Vec<String> = lines.iter().map(Value::to_string).collect();
    let mut said = done(None);
    say(&mut said, "jobs", lines);
    structured(said, &shown.join("\n"))
}

/// Of `jobs`, with what one of them printed.
pub fn logs(line: Value, tail: &OutputTail) -> CallToolResult {
    let output = String::from_utf8_lossy(&tail.output);
    let mut said = done(None);
    say(&mut said, "jobs", vec![line]);
    say(&mut said, "truncated", tail.truncated);
    say(&mut said, "output", output.as_ref());
    structured(said, &output)
}

/// Of `explain`.
pub fn explained(value: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(value.to_string())]);
    result.structured_content = Some(value);
    result
}

/// Adds notes to a result.
pub fn note(said: &mut ResultFields, notes: impl IntoIterator<Item = String>) {
    let notes: Vec<String> = notes.into_iter().collect();
    if !notes.is_empty() {
        say(said, "notice", notes.join("; "));
    }
}

/// Note about a call whose outcome could not be recorded.
pub fn unrecorded(why: &str) -> String {
    format!("the outcome could not be written to the ledger: {why}")
}

fn say(said: &mut ResultFields, name: &str, value: impl Into<Value>) {
    let _before = said.insert(name.to_owned(), value.into());
}
