//! Grants: lists active ones with the approvals they would have answered, and revokes them.

use std::process::ExitCode;

use ringfence_api::{GrantInfo, ListGrants, RevokeAllGrants, RevokeGrant};
use ringfence_ledger::{GrantRecord, GrantSubject};
use ringfence_runtime::approvals::GrantError;
use ringfence_runtime::operator_api::MethodError;
use ringfence_types::ByteString;
use serde::Serialize;

use super::{ApprovalClient, OutputFormat};
use crate::approval::OperatorRequirement;
use crate::args::{FAILED, RevokeArgs};
use crate::commands::run::print_json;
use crate::output::say;

pub(super) fn list(desk: &ApprovalClient, form: OutputFormat) -> Result<ExitCode, ExitCode> {
    let held = desk.api.call(ListGrants {}).map_err(|error| error.told(FAILED))?.grants;
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

fn print(held: &GrantInfo) {
    let made = &held.record;
    let expires = made.expires_at.map_or_else(|| "with its session".to_owned(), |time| format!("{time:.0}"));
    let left = held.uses_left.map(|left| format!(", {left} uses left")).unwrap_or_default();
    say!("{}  expires {expires}{left}, used {} times, created by {}", made.grant, held.uses, made.actor);
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
pub(super) fn stored(held: &GrantInfo) {
    say!("stored as {}: {}", held.record.grant, ByteString::from(held.record.permits.as_str()).display());
    if let Some(text) = saved(held) {
        say!("{text}");
    }
}

/// How many approvals a grant would have answered, as text.
fn saved(held: &GrantInfo) -> Option<String> {
    let matched = held.would_have_matched?;
    Some(format!("would have answered {} of the last {} requests there", matched.count, matched.total))
}

pub(super) fn revoke(desk: &ApprovalClient, revoke: &RevokeArgs) -> Result<ExitCode, ExitCode> {
    let _operator = desk.operator(OperatorRequirement::Nothing, "revoke grants")?;
    let reason = revoke.reason.clone();
    let gone = match revoke.grant.clone() {
        // An empty id would lead to another URL.
        Some(id) if id.is_empty() => Err(MethodError::from(GrantError::Unknown { id }).into()),
        Some(id) => desk.api.call(RevokeGrant { id, reason }),
        None => desk.api.call(RevokeAllGrants { reason }),
    };
    let gone = gone.map_err(|error| error.told(FAILED))?.grants;
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
    created_at: &'a str,
    uses: u32,
    uses_left: Option<u32>,
    /// How many of the last approvals it would have answered.
    would_have_matched: Option<usize>,
}

impl<'a> GrantJson<'a> {
    fn of(held: &'a GrantInfo) -> Self {
        let GrantInfo { record: made, created_at, uses, uses_left, would_have_matched, .. } = held;
        let would_have_matched = would_have_matched.map(|matched| matched.count);
        Self { made, created_at, uses: *uses, uses_left: *uses_left, would_have_matched }
    }
}
