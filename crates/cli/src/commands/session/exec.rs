//! `ringfence session run`: a command in a session of the daemon, with what it reads and what it prints.

use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;

use base64::Engine as _;
use ringfence_api::{CallInfo, CallState, Chunk, Data, Exec, RunCommand};

use super::{ask, connect, id, variables};
use crate::args::{FAILED, SessionRun};
use crate::commands::run::print_json;
use crate::daemon::failed;
use crate::error;
use crate::output::{bytes_out, note, say};

/// In base64 it fits into a request.
const MOST_INPUT: u64 = 700 * 1024;

pub(super) fn run(run: &SessionRun) -> Result<ExitCode, ExitCode> {
    let exec = exec(run)?;
    match (run.background, run.daemon.json) {
        (true, _) => in_background(run, &exec),
        (false, true) => as_json(run, &exec),
        (false, false) => as_it_comes(run, exec),
    }
}

fn exec(run: &SessionRun) -> Result<Exec, ExitCode> {
    Ok(Exec {
        session: id(&run.id)?,
        argv: run.command.clone(),
        cwd: run.cwd.clone(),
        environment: variables(&run.env)?,
        stdin: stdin(run)?,
        timeout_ms: run.timeout.map(|time| time.0),
        background: run.background,
        interactive: run.interactive,
        terminal: None,
        reason: run.reason.clone(),
    })
}

/// All that comes on standard input. A person at a terminal has given none, and what is interactive gets it later.
fn stdin(run: &SessionRun) -> Result<Option<Data>, ExitCode> {
    let stdin = std::io::stdin();
    if run.interactive || stdin.is_terminal() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    stdin
        .lock()
        .take(MOST_INPUT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error::failed_text(&format!("standard input cannot be read: {error}"), None))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MOST_INPUT) {
        let hint = "write it to a file of the workspace, or start the command with `--background --interactive` \
                    and use `ringfence session input`";
        return Err(error::failed_text(
            "standard input is longer than 700 KiB, and nothing was run",
            Some(hint),
        ));
    }
    let base64 = base64::engine::general_purpose::STANDARD.encode(&bytes);
    Ok((!bytes.is_empty()).then_some(Data::Base64 { base64 }))
}

fn in_background(run: &SessionRun, exec: &Exec) -> Result<ExitCode, ExitCode> {
    let call = ask(&run.daemon, exec)?;
    if run.daemon.json {
        print_json(&call);
    } else {
        say!("{}", call.call);
    }
    Ok(ExitCode::SUCCESS)
}

/// The call, with its output, as the interface tells it.
fn as_json(run: &SessionRun, exec: &Exec) -> Result<ExitCode, ExitCode> {
    let call = ask(&run.daemon, exec)?;
    print_json(&call);
    Ok(ExitCode::from(code(&call)))
}

fn as_it_comes(run: &SessionRun, exec: Exec) -> Result<ExitCode, ExitCode> {
    let mut client = connect(&run.daemon)?;
    for chunk in client.run(&RunCommand(exec)).map_err(|error| failed(&error))? {
        if let Some(call) = shown(chunk.map_err(|error| failed(&error))?)? {
            return Ok(ended(&call));
        }
    }
    Err(gone())
}

pub(super) fn gone() -> ExitCode {
    let hint = "`ringfence session calls` shows what became of it, unless its daemon has gone";
    error::failed_text(
        "the end of the command was not told: the daemon went away, or what it sent was not read for too long",
        Some(hint),
    )
}

/// A piece of output goes where it came from; the last is the call itself.
pub(super) fn shown(chunk: Chunk) -> Result<Option<Box<CallInfo>>, ExitCode> {
    match chunk {
        Chunk::Stdout { data, .. } => bytes_out(&mut std::io::stdout(), &bytes(data)?),
        Chunk::Stderr { data, .. } => bytes_out(&mut std::io::stderr(), &bytes(data)?),
        Chunk::Lost { .. } => note!("ringfence: some of the output was forgotten before it was asked for"),
        Chunk::Ended { call, .. } => return Ok(Some(call)),
        Chunk::Cut { error } => return Err(failed(&(*error).into())),
    }
    Ok(None)
}

fn bytes(data: Data) -> Result<Vec<u8>, ExitCode> {
    data.bytes().map_err(|error| failed(&error.into()))
}

fn ended(call: &CallInfo) -> ExitCode {
    match (call.state, &call.refusal) {
        (CallState::Refused, Some(refusal)) => error::refused(refusal),
        (CallState::Done, _) => ExitCode::from(code(call)),
        _ => error::failed_text(
            call.failure.as_deref().unwrap_or("the call did not come to its end"),
            call.hint.as_deref(),
        ),
    }
}

/// As `ringfence run` would end.
fn code(call: &CallInfo) -> u8 {
    match call.state {
        CallState::Done => call.exit_code.unwrap_or(FAILED),
        CallState::Refused => error::REFUSED,
        CallState::Running | CallState::Failed => FAILED,
    }
}
