//! Stored answers: which hold, what they would have saved, and taking them back.

use std::process::ExitCode;

use ringfence_runtime::Runtime;
use ringfence_runtime::approval::{Here, LiveGrant, live_grants, matched, revoke as take_back};
use ringfence_runtime::ledger::{Covers, GrantMade, Timestamp};
use ringfence_types::{Bytes, WorkspaceId};
use serde::Serialize;

use super::{Desk, Form};
use crate::approval::Need;
use crate::args::Revoke;
use crate::commands::run::print_json;
use crate::error;
use crate::output::say;

pub(super) fn list(desk: &Desk, form: Form) -> Result<ExitCode, ExitCode> {
    let reader = desk.runtime.ledger().reader().map_err(|error| error::failed(&error, None))?;
    let live = live_grants(&reader, Here::Everywhere, Timestamp::now());
    let live = live.map_err(|error| error::failed(&error, None))?;
    if form == Form::Json {
        let grants = live.iter().map(|grant| report(&desk.runtime, grant)).collect();
        print_json(&List { schema: 1, grants });
        return Ok(ExitCode::SUCCESS);
    }
    if live.is_empty() {
        say!("no stored answer holds");
    }
    live.iter().for_each(|grant| print(&desk.runtime, grant));
    Ok(ExitCode::SUCCESS)
}

fn print(runtime: &Runtime, grant: &LiveGrant) {
    let made = &grant.made;
    let expires = made.expires.map_or_else(|| "with its session".to_owned(), |time| format!("{time:.0}"));
    let left = grant.left().map(|left| format!(", {left} uses left")).unwrap_or_default();
    say!("{}  ends {expires}{left}, used {} times, by {}", made.grant, grant.used, made.by);
    say!("  permits {}", Bytes::from(made.permits.as_str()).display());
    match &made.covers {
        Covers::Session { .. } => say!("  in session {}", made.session),
        Covers::Here { directory, rules } => {
            say!("  in {}", directory.display());
            rules.lines().for_each(|line| say!("  | {}", Bytes::from(line).display()));
            if let Some(text) = saved(runtime, &made.workspace, rules) {
                say!("  {text}");
            }
        }
    }
}

/// What a rule would have saved, in words.
pub(super) fn saved(runtime: &Runtime, workspace: &WorkspaceId, rules: &str) -> Option<String> {
    let reader = runtime.ledger().reader().ok()?;
    let (count, of) = matched(&reader, workspace, rules).ok()?;
    Some(format!("it would have matched {count} of your last {of} asks there"))
}

pub(super) fn revoke(desk: &Desk, revoke: &Revoke) -> Result<ExitCode, ExitCode> {
    let by = desk.operator(Need::Nothing, "take back stored answers")?;
    let place = (desk.runtime.ledger(), desk.runtime.setup().state_dir.as_path());
    let gone = take_back(place, revoke.grant.as_deref(), &by, revoke.reason.as_deref())
        .map_err(|error| error::failed(&error, None))?;
    if gone.is_empty() {
        say!("no stored answer holds");
    }
    gone.iter().for_each(|grant| say!("{grant}: taken back"));
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

fn report<'a>(runtime: &Runtime, grant: &'a LiveGrant) -> Report<'a> {
    let would_have_matched = match &grant.made.covers {
        Covers::Here { rules, .. } => runtime
            .ledger()
            .reader()
            .ok()
            .and_then(|reader| matched(&reader, &grant.made.workspace, rules).ok())
            .map(|(count, _)| count),
        Covers::Session { .. } => None,
    };
    Report {
        made: &grant.made,
        since: grant.since,
        used: grant.used,
        uses_left: grant.left(),
        would_have_matched,
    }
}
