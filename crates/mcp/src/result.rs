//! What a client is told about a call.

use ringfence_types::{Denial, EntryKind, Outcome};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use crate::input;

/// The most of one stream or file that is shown; more would only fill the context of a model.
pub const MOST: usize = 256 * 1024;

/// Text of at most [`MOST`] bytes, and whether that is not all.
pub fn text(bytes: &[u8]) -> (String, bool) {
    let shown = bytes.get(..MOST).unwrap_or(bytes);
    (String::from_utf8_lossy(shown).into_owned(), shown.len() < bytes.len())
}

pub fn structured(said: Said, shown: &str) -> CallToolResult {
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

/// What every result says, as fields of an object.
pub type Said = Map<String, Value>;

/// A call that was done, with its transaction where it has one.
pub fn done(transaction: Option<String>) -> Said {
    let mut said = Map::from_iter([("ended".to_owned(), json!("done"))]);
    said.extend(transaction.map(|id| ("transaction".to_owned(), json!(id))));
    said
}

/// What a command printed.
#[derive(Clone, Copy, Debug)]
pub struct Printed<'p> {
    pub stdout: &'p [u8],
    pub stderr: &'p [u8],
}

/// How a command ended, in the words of every result about one.
pub fn exited(said: &mut Said, outcome: &Outcome) {
    say(said, "exit_code", outcome.exit.code());
    say(said, "duration_ms", outcome.duration_ms);
}

/// Of `exec`.
pub fn ran(mut said: Said, outcome: &Outcome, printed: Printed<'_>) -> CallToolResult {
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
pub fn content(mut said: Said, all: &str, wanted: &input::Read) -> CallToolResult {
    let (content, truncated) = text(wanted.part_of(all).as_bytes());
    say(&mut said, "total_lines", all.lines().count());
    say(&mut said, "truncated", truncated);
    say(&mut said, "content", content.as_str());
    structured(said, &content)
}

/// Of `edit_file`.
pub fn edited(mut said: Said, count: usize) -> CallToolResult {
    say(&mut said, "replaced", count);
    structured(said, &format!("replaced {count}"))
}

/// Of `list_dir`. A name that is no text is shown as near to it as text can be.
pub fn listed(mut said: Said, entries: &[(String, EntryKind)]) -> CallToolResult {
    let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    let list: Vec<Value> = entries.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
    say(&mut said, "entries", list);
    structured(said, &names.join("\n"))
}

/// Of `search`, which is done by `grep`.
pub fn found(mut said: Said, outcome: &Outcome, printed: Printed<'_>) -> CallToolResult {
    const NOTHING_FOUND: u8 = 1;
    if outcome.exit.code() > NOTHING_FOUND && printed.stdout.is_empty() {
        return malformed(&text(printed.stderr).0);
    }
    let (shown, truncated) = text(printed.stdout);
    say(&mut said, "truncated", truncated || outcome.stdout.dropped > 0);
    say(&mut said, "matches", shown.lines().collect::<Vec<_>>());
    structured(said, &shown)
}

/// A page as it came.
#[derive(Clone, Debug)]
pub struct Page<'p> {
    pub status: u16,
    /// Where it came from in the end.
    pub url: &'p str,
    pub headers: Vec<(String, String)>,
    pub body: &'p [u8],
}

/// Of `fetch`.
pub fn fetched(mut said: Said, page: Page<'_>) -> CallToolResult {
    let (body, truncated) = text(page.body);
    let headers: Said = page.headers.into_iter().map(|(name, value)| (name, json!(value))).collect();
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

/// Of `explain`.
pub fn explained(value: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(value.to_string())]);
    result.structured_content = Some(value);
    result
}

/// What else there is to know of a call, in one sentence after the other.
pub fn note(said: &mut Said, notes: impl IntoIterator<Item = String>) {
    let notes: Vec<String> = notes.into_iter().collect();
    if !notes.is_empty() {
        say(said, "note", notes.join("; "));
    }
}

/// Of a call whose outcome is not in the ledger.
pub fn unrecorded(why: &str) -> String {
    format!("the outcome could not be written to the ledger: {why}")
}

fn say(said: &mut Said, name: &str, value: impl Into<Value>) {
    let _before = said.insert(name.to_owned(), value.into());
}
