//! `ringfence status`: one screen about what is protected and what was decided.

mod agents;
mod answer;
mod daemon;
mod exec_server;
mod probe;
mod switches;
mod today;

use std::process::ExitCode;

use ringfence_runtime::ledger::{Location, OpenError, ReadError, Settings};
use serde::Serialize;

use crate::args::Status;
use crate::commands::print_json;
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::say;
use daemon::Served;
use today::Today;

pub(crate) use agents::{Guarded, guarded, lines, probed};

#[derive(Serialize)]
struct Report {
    schema: u32,
    agents: Vec<Guarded>,
    /// `null`: none runs.
    daemon: Option<Served>,
    today: Today,
    ledger: Option<Standing>,
}

/// Where the ledger stands.
#[derive(Serialize)]
struct Standing {
    records: u64,
    head: String,
    /// Records that no signature covers yet.
    unsigned: u64,
    /// Begun and not ended.
    open: usize,
}

#[derive(Debug, thiserror::Error)]
enum StatusError {
    #[error(transparent)]
    NoStateDir(#[from] host::NoStateDir),
    #[error("the ledger cannot be opened")]
    Open(#[from] OpenError),
    #[error("the ledger cannot be read")]
    Read(#[from] ReadError),
}

pub(crate) fn run(arguments: &Status) -> ExitCode {
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

fn report(environment: &Environment) -> Result<Report, StatusError> {
    let agents = guarded(environment);
    let daemon = daemon::of(environment);
    let state_dir = host::state_dir(environment)?;
    let setup = host::setup(environment, ringfence_runtime::authz::env::Attendance::Unattended)?;
    let settings = Settings::load(&setup.config_dir.join("ledger.toml")).map_err(OpenError::from)?;
    let Some(reader) = Location::of(&state_dir, &settings)?.read()? else {
        return Ok(Report { schema: 1, agents, daemon, today: Today::default(), ledger: None });
    };
    let ledger = match reader.head()? {
        None => None,
        Some(head) => {
            let signed = reader.newest_checkpoint()?.map_or(0, |newest| newest.checkpoint.last);
            let open = reader.open_transactions()?.len();
            let unsigned = head.seq.saturating_sub(signed);
            Some(Standing { records: head.seq, head: head.hash.to_string(), unsigned, open })
        }
    };
    Ok(Report { schema: 1, agents, daemon, today: today::of(&reader)?, ledger })
}

fn print(report: &Report) {
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
            say!("  people said yes to {} of {} questions ({rate} %)", today.yes, today.yes + today.no)
        }
        None => say!("  nobody was asked anything that they answered"),
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
