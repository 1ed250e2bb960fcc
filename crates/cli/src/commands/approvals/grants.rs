//! Stored answers: which hold, what they would have saved, and taking them back.

use std::process::ExitCode;

use ringfence_runtime::ledger::{Covers, GrantMade, Timestamp};
use ringfence_types::Bytes;
use serde::Serialize;

use super::place::Held;
use super::{Desk, Form};
use crate::approval::Need;
use crate::args::{FAILED, Revoke};
use crate::commands::run::print_json;
use crate::output::say;

pub(super) fn list(desk: &Desk, form: Form) -> Result<ExitCode, ExitCode> {
    let held = desk.place.grants().map_err(|error| error.told(FAILED))?;
    if form == Form::Json {
        print_json(&List { schema: 1, grants: held.iter().map(Report::of).collect() });
        return Ok(ExitCode::SUCCESS);
    }
    if held.is_empty() {
        say!("no stored answer holds");
    }
    held.iter().for_each(print);
    Ok(ExitCode::SUCCESS)
}

fn print(held: &Held) {
    let made = &held.made;
    let expires = made.expires.map_or_else(|| "with its session".to_owned(), |time| format!("{time:.0}"));
    let left = held.left.map(|left| format!(", {left} uses left")).unwrap_or_default();
    say!("{}  ends {expires}{left}, used {} times, by {}", made.grant, held.used, made.by);
    say!("  permits {}", Bytes::from(made.permits.as_str()).display());
    match &made.covers {
        Covers::Session { .. } => say!("  in session {}", made.session),
        Covers::Next { directory, .. } => say!("  in {}", directory.display()),
        Covers::Here { directory, rules } => {
            say!("  in {}", directory.display());
            rules.lines().for_each(|line| say!("  | {}", Bytes::from(line).display()));
            if let Some(text) = saved(held) {
                say!("  {text}");
            }
        }
    }
}

/// What an answer has become.
pub(super) fn stored(held: &Held) {
    say!("stored as {}: {}", held.made.grant, Bytes::from(held.made.permits.as_str()).display());
    if let Some(text) = saved(held) {
        say!("{text}");
    }
}

/// What a rule would have saved, in words.
fn saved(held: &Held) -> Option<String> {
    let (count, of) = held.matched?;
    Some(format!("it would have matched {count} of your last {of} asks there"))
}

pub(super) fn revoke(desk: &Desk, revoke: &Revoke) -> Result<ExitCode, ExitCode> {
    let by = desk.operator(Need::Nothing, "take back stored answers")?;
    let gone = desk.place.revoke(revoke.grant.as_deref(), (&by, revoke.reason.as_deref()));
    let gone = gone.map_err(|error| error.told(FAILED))?;
    if gone.is_empty() {
        say!("no stored answer holds");
    }
    gone.iter().for_each(|grant| say!("{}: taken back", Bytes::from(grant.as_str()).display()));
    Ok(ExitCode::SUCCESS)
}

/// What `approvals grants --json` prints, schema 1.
#[derive(Serialize)]
struct List<'a> {
    schema: u32,
    grants: Vec<Report<'a>>,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    made: &'a GrantMade,
    since: Timestamp,
    used: u32,
    uses_left: Option<u32>,
    /// Of how many of the last questions it would have been the answer.
    would_have_matched: Option<usize>,
}

impl<'a> Report<'a> {
    fn of(held: &'a Held) -> Self {
        let Held { made, since, used, left, matched } = held;
        let would_have_matched = matched.map(|(count, _)| count);
        Self { made, since: *since, used: *used, uses_left: *left, would_have_matched }
    }
}
