//! `ringfence session`: sessions with a name.

use std::process::ExitCode;

use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::end_session;
use ringfence_types::{Bytes, WorkspaceId};

use crate::approval::{self, Need};
use crate::args::{Place, SessionCommand};
use crate::asked;
use crate::commands::run;
use crate::environment::Environment;
use crate::error;
use crate::output::say;

pub(crate) fn run(command: &SessionCommand) -> ExitCode {
    match command {
        SessionCommand::End { place, name } => end(place, name).unwrap_or_else(|code| code),
    }
}

fn end(place: &Place, name: &str) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    approval::require(&environment, Need::Nothing, "end a session")?;
    let runtime = run::runtime(&environment, Attendance::Unattended)?;
    let workspace = WorkspaceId::of_canonical_path(&asked::workspace(place, &environment)?);
    let ended =
        end_session(runtime.ledger(), &workspace, name).map_err(|error| error::failed(&error, None))?;
    let shown = Bytes::from(name).display();
    match ended {
        Some(id) => say!("`{shown}` ({id}) is over"),
        None => say!("no session `{shown}` goes on in this workspace"),
    }
    Ok(ExitCode::SUCCESS)
}
