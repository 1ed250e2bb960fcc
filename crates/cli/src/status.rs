//! `ringfence status`: one screen about protection and decisions.

mod agents;
mod bounded_query;
mod daemon;
mod exec_server;
mod hook_switches;
mod probe;
mod today;

use std::process::ExitCode;

use ringfence_ledger::{LedgerLocation, LedgerOpenError, LedgerReadError, LedgerSettings};
use serde::Serialize;

use crate::args::StatusArgs;
use crate::commands::print_json;
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::say;
use daemon::DaemonStatus;
use today::DecisionCounts;

pub(crate) use agents::{AgentStatus, guarded, lines, probed};

#[derive(Serialize)]
struct StatusJson {
    schema: u32,
    agents: Vec<AgentStatus>,
    /// `null`: no daemon runs.
    daemon: Option<DaemonStatus>,
    today: DecisionCounts,
    ledger: Option<LedgerStatusJson>,
}

/// State of the ledger.
#[derive(Serialize)]
struct LedgerStatusJson {
    records: u64,
    head: String,
    /// Records that no checkpoint covers yet.
    unsigned: u64,
    /// Number of open transactions.
    open: usize,
}

#[derive(Debug, thiserror::Error)]
enum StatusError {
    #[error(transparent)]
    NoStateDir(#[from] host::NoStateDir),
    #[error("the ledger cannot be opened")]
    Open(#[from] LedgerOpenError),
    #[error("the ledger cannot be read")]
    Read(#[from] LedgerReadError),
}

pub(crate) fn run(arguments: &StatusArgs) -> ExitCode {
    let environment = Environment::read();
    let report = match report(&environment) {
        Ok(report) => report,
        Err(error) => return error::failed(&error, None),
    };
    if arguments.json {
        print_json(&report);
    } else {
        print(&report);
    }
    ExitCode::SUCCESS
}

fn report(environment: &Environment) -> Result<StatusJson, StatusError> {
    let agents = guarded(environment);
    let daemon = daemon::of(environment);
    let state_dir = host::state_dir(environment)?;
    let setup = host::setup(environment, ringfence_authz::env::ApproverPresence::Unattended)?;
    let settings =
        LedgerSettings::load(&setup.config_dir.join("ledger.toml")).map_err(LedgerOpenError::from)?;
    let Some(reader) = LedgerLocation::of(&state_dir, &settings)?.read()? else {
        return Ok(StatusJson { schema: 1, agents, daemon, today: DecisionCounts::default(), ledger: None });
    };
    let ledger = match reader.head()? {
        None => None,
        Some(head) => {
            let signed = reader.newest_checkpoint()?.map_or(0, |newest| newest.checkpoint.last);
            let open = reader.open_transactions()?.len();
            let unsigned = head.seq.saturating_sub(signed);
            Some(LedgerStatusJson { records: head.seq, head: head.hash.to_string(), unsigned, open })
        }
    };
    Ok(StatusJson { schema: 1, agents, daemon, today: today::of(&reader)?, ledger })
}

fn print(report: &StatusJson) {
    say!("agents");
    for line in lines(&report.agents) {
        say!("  {line}");
    }
    say!("daemon");
    match &report.daemon {
        Some(served) => served.print(),
        None => say!("  none runs; `ringfence serve` starts one"),
    }
    let today = &report.today;
    say!("today (UTC)");
    say!("  {} allowed, {} asked, {} denied", today.allowed, today.asked, today.denied);
    match today.rate() {
        Some(rate) => {
            say!("  {} of {} approval requests were approved ({rate} %)", today.yes, today.yes + today.no)
        }
        None => say!("  no approval was answered"),
    }
    match &report.ledger {
        None => say!("ledger\n  nothing is recorded yet"),
        Some(ledger) => {
            say!("ledger\n  {} records, head {}", ledger.records, ledger.head);
            say!(
                "  {} records since the last signature, {} calls without an end",
                ledger.unsigned,
                ledger.open
            );
        }
    }
}
