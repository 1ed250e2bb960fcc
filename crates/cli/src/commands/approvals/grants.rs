//! Grants: lists active ones with the approvals they would have answered, and revokes them.

use std::process::ExitCode;

use ringfence_ledger::{GrantRecord, GrantSubject, Timestamp};
use ringfence_types::ByteString;
use serde::Serialize;

use super::backend::GrantEntry;
use super::{ApprovalClient, OutputFormat};
use crate::approval::OperatorRequirement;
use crate::args::{FAILED, RevokeArgs};
use crate::commands::run::print_json;
use crate::output::say;

pub(super) fn list(desk: &ApprovalClient, form: OutputFormat) -> Result<ExitCode, ExitCode> {
    let held = desk.place.grants().map_err(|error| error.told(FAILED))?;
    if form == OutputFormat::Json {
        print_json(&GrantListJson { schema: 1, grants: held.iter().map(GrantJson::of).collect() });
        return Ok(ExitCode::SUCCESS);
    }
    if held.is_empty() {
        say!("no active grants");
    }
    held.iter().for_each(print);
    Ok(ExitCode::SUCCESS)
}

fn print(held: &GrantEntry) {
    let made = &held.made;
    let expires = made.expires_at.map_or_else(|| "with its session".to_owned(), |time| format!("{time:.0}"));
    let left = held.left.map(|left| format!(", {left} uses left")).unwrap_or_default();
    say!("{}  expires {expires}{left}, used {} times, created by {}", made.grant, held.used, made.actor);
    say!("  allows {}", ByteString::from(made.permits.as_str()).display());
    match &made.covers {
        GrantSubject::Session { .. } => say!("  in session {}", made.session),
        GrantSubject::Next { directory, .. } => say!("  in {}", directory.display()),
        GrantSubject::Here { directory, rules } => {
            say!("  in {}", directory.display());
            rules.lines().for_each(|line| say!("  | {}", ByteString::from(line).display()));
            if let Some(text) = saved(held) {
                say!("  {text}");
            }
        }
    }
}

/// Prints a new grant.
pub(super) fn stored(held: &GrantEntry) {
    say!("stored as {}: {}", held.made.grant, ByteString::from(held.made.permits.as_str()).display());
    if let Some(text) = saved(held) {
        say!("{text}");
    }
}

/// How many approvals a grant would have answered, as text.
fn saved(held: &GrantEntry) -> Option<String> {
    let (count, of) = held.matched?;
    Some(format!("would have answered {count} of the last {of} requests there"))
}

pub(super) fn revoke(desk: &ApprovalClient, revoke: &RevokeArgs) -> Result<ExitCode, ExitCode> {
    let by = desk.operator(OperatorRequirement::Nothing, "revoke grants")?;
    let gone = desk.place.revoke(revoke.grant.as_deref(), &by, revoke.reason.as_deref());
    let gone = gone.map_err(|error| error.told(FAILED))?;
    if gone.is_empty() {
        say!("no active grants");
    }
    gone.iter().for_each(|grant| say!("{}: revoked", ByteString::from(grant.as_str()).display()));
    Ok(ExitCode::SUCCESS)
}

/// What `grants list --json` prints, schema 1.
#[derive(Serialize)]
struct GrantListJson<'a> {
    schema: u32,
    grants: Vec<GrantJson<'a>>,
}

#[derive(Serialize)]
struct GrantJson<'a> {
    #[serde(flatten)]
    made: &'a GrantRecord,
    created_at: Timestamp,
    uses: u32,
    uses_left: Option<u32>,
    /// How many of the last approvals it would have answered.
    would_have_matched: Option<usize>,
}

impl<'a> GrantJson<'a> {
    fn of(held: &'a GrantEntry) -> Self {
        let GrantEntry { made, since, used, left, matched } = held;
        let would_have_matched = matched.map(|(count, _)| count);
        Self { made, created_at: *since, uses: *used, uses_left: *left, would_have_matched }
    }
}
