//! `ringfence session run`: runs a command in a session of the daemon, with its input and output.

use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;

use base64::Engine as _;
use ringfence_api::{CallInfo, CallState, ExecRequest, ExecStreamRequest, OutputChunk, TextOrBase64};

use super::{ask, connect, id, variables};
use crate::args::{FAILED, SessionRunArgs};
use crate::commands::run::print_json;
use crate::daemon_client::failed;
use crate::error;
use crate::output::{bytes_out, note, say};

/// Fits into a request in base64.
const MOST_INPUT: u64 = 700 * 1024;

pub(super) fn run(run: &SessionRunArgs) -> Result<ExitCode, ExitCode> {
    let exec = exec(run)?;
    match (run.background, run.daemon.json) {
        (true, _) => in_background(run, &exec),
        (false, true) => as_json(run, &exec),
        (false, false) => as_it_comes(run, exec),
    }
}

fn exec(run: &SessionRunArgs) -> Result<ExecRequest, ExitCode> {
    Ok(ExecRequest {
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
        ceiling: None,
    })
}

/// All of standard input. None from a terminal; an interactive command gets its input later.
fn stdin(run: &SessionRunArgs) -> Result<Option<TextOrBase64>, ExitCode> {
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
    Ok((!bytes.is_empty()).then_some(TextOrBase64::Base64 { base64 }))
}

fn in_background(run: &SessionRunArgs, exec: &ExecRequest) -> Result<ExitCode, ExitCode> {
    let call = ask(&run.daemon, exec)?;
    if run.daemon.json {
        print_json(&call);
    } else {
        say!("{}", call.call);
    }
    Ok(ExitCode::SUCCESS)
}

/// The call with its output, as the API returns it.
fn as_json(run: &SessionRunArgs, exec: &ExecRequest) -> Result<ExitCode, ExitCode> {
    let call = ask(&run.daemon, exec)?;
    print_json(&call);
    Ok(ExitCode::from(code(&call)))
}

fn as_it_comes(run: &SessionRunArgs, exec: ExecRequest) -> Result<ExitCode, ExitCode> {
    let mut client = connect(&run.daemon)?;
    for chunk in client.run(&ExecStreamRequest(exec)).map_err(|error| failed(&error))? {
        if let Some(call) = shown(chunk.map_err(|error| failed(&error))?)? {
            return Ok(ended(&call));
        }
    }
    Err(gone())
}

pub(super) fn gone() -> ExitCode {
    let hint = "`ringfence session calls` shows what became of it, unless its daemon has gone";
    error::failed_text(
        "the result of the command is unknown: the daemon stopped, or its output was not read in time",
        Some(hint),
    )
}

/// Writes a chunk to its stream; the last chunk is the call itself.
pub(super) fn shown(chunk: OutputChunk) -> Result<Option<Box<CallInfo>>, ExitCode> {
    match chunk {
        OutputChunk::Stdout { data, .. } => bytes_out(&mut std::io::stdout(), &bytes(data)?),
        OutputChunk::Stderr { data, .. } => bytes_out(&mut std::io::stderr(), &bytes(data)?),
        OutputChunk::Dropped { .. } => {
            note!("ringfence: the daemon dropped a part of the output")
        }
        OutputChunk::Ended { call, .. } => return Ok(Some(call)),
        OutputChunk::Closed { error } => return Err(failed(&(*error).into())),
    }
    Ok(None)
}

fn bytes(data: TextOrBase64) -> Result<Vec<u8>, ExitCode> {
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

/// The exit code of `ringfence run` for the same end.
fn code(call: &CallInfo) -> u8 {
    match call.state {
        CallState::Done => call.exit_code.unwrap_or(FAILED),
        CallState::Refused => error::REFUSED,
        CallState::Running | CallState::Failed => FAILED,
    }
}
