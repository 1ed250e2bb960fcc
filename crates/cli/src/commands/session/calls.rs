//! `ringfence session calls`, `logs`, `signal`, `input`, `cancel`, `activity` and `report`.

use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use ringfence_api::{
    CallInfo, CallInput, CallSignal, CancelCall, ErrorCode, EventMessage, ListCalls, ReportActivity,
    SessionState, ShowSession, SignalCall, StreamCall, Subscribe, TextOrBase64,
};
use ringfence_client::{Client, ClientError};
use ringfence_types::ByteString;
use serde_json::Value;

use super::exec::{gone, shown};
use super::{ask, connect, id};
use crate::args::{CallArgs, DaemonArgs};
use crate::commands::run::print_json;
use crate::daemon_client::failed;
use crate::error;
use crate::output::{is_closed, say};

/// A pipe accepts this many bytes completely or not at all, so that a rejected chunk can be sent again.
const PIECE: usize = 4096;
/// Pause before a retry, if the command does not read.
const PAUSE: Duration = Duration::from_millis(20);

/// What happens to a call's standard input at the end of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StdinEofMode {
    Close,
    KeepOpen,
}

pub(super) fn list(daemon: &DaemonArgs, session: &str) -> Result<ExitCode, ExitCode> {
    let found = ask(daemon, &ListCalls { session: id(session)? })?;
    if daemon.json {
        print_json(&found);
        return Ok(ExitCode::SUCCESS);
    }
    if found.calls.is_empty() {
        say!("nothing was run in it that is remembered");
    }
    found.calls.iter().for_each(line);
    Ok(ExitCode::SUCCESS)
}

fn line(call: &CallInfo) {
    let state = format!("{:?}", call.state).to_lowercase();
    let code = call.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string());
    say!("{:<4}  {state:<7}  {code:>3}  {}", call.call, ByteString::from(call.summary.as_str()).display());
}

pub(super) fn logs(wanted: &CallArgs, after: u64) -> Result<ExitCode, ExitCode> {
    let request = StreamCall { session: id(&wanted.id)?, call: wanted.call, after };
    let mut client = connect(&wanted.daemon)?;
    for chunk in client.output(&request).map_err(|error| failed(&error))? {
        let chunk = chunk.map_err(|error| failed(&error))?;
        let is_last = matches!(chunk, ringfence_api::OutputChunk::Ended { .. });
        if wanted.daemon.json {
            print_json(&chunk);
        } else {
            let _ended = shown(chunk)?;
        }
        if is_last || is_closed() {
            return Ok(ExitCode::SUCCESS);
        }
    }
    Err(gone())
}

pub(super) fn signal(wanted: &CallArgs, signal: CallSignal) -> Result<ExitCode, ExitCode> {
    let request = SignalCall { session: id(&wanted.id)?, call: wanted.call, signal };
    let answer = ask(&wanted.daemon, &request)?;
    Ok(told(&wanted.daemon, &answer))
}

pub(super) fn cancel(wanted: &CallArgs) -> Result<ExitCode, ExitCode> {
    let answer = ask(&wanted.daemon, &CancelCall { session: id(&wanted.id)?, call: wanted.call })?;
    Ok(told(&wanted.daemon, &answer))
}

/// Sends each chunk as it arrives, at the command's pace.
pub(super) fn input(wanted: &CallArgs, at_end: StdinEofMode) -> Result<ExitCode, ExitCode> {
    let mut client = connect(&wanted.daemon)?;
    let session = id(&wanted.id)?;
    let piece = |data: TextOrBase64, close: bool| CallInput {
        session: session.clone(),
        call: wanted.call,
        data,
        close,
    };
    let mut stdin = std::io::stdin().lock();
    let mut buffer = [0; PIECE];
    loop {
        let read = stdin
            .read(&mut buffer)
            .map_err(|error| error::failed_text(&format!("standard input cannot be read: {error}"), None))?;
        match buffer.get(..read) {
            Some(bytes) if !bytes.is_empty() => give(&mut client, &piece(bytes.to_vec().into(), false))?,
            _ => break,
        }
    }
    if at_end == StdinEofMode::Close {
        give(&mut client, &piece(TextOrBase64::default(), true))?;
    }
    Ok(told(&wanted.daemon, &ringfence_api::Empty::default()))
}

/// Retries until the chunk is accepted, or refused for another reason than a full pipe.
fn give(client: &mut Client, piece: &CallInput) -> Result<(), ExitCode> {
    loop {
        match client.call(piece) {
            Ok(_done) => return Ok(()),
            Err(ClientError::Api(told)) if told.code == ErrorCode::ResourceExhausted => {
                std::thread::sleep(PAUSE)
            }
            Err(error) => return Err(failed(&error)),
        }
    }
}

pub(super) fn report(daemon: &DaemonArgs, report: ReportActivity) -> Result<ExitCode, ExitCode> {
    let answer = ask(daemon, &report)?;
    Ok(told(daemon, &answer))
}

pub(super) fn activity(daemon: &DaemonArgs, session: &str, after: Option<u64>) -> Result<ExitCode, ExitCode> {
    let session = id(session)?;
    let mut client = connect(daemon)?;
    let show = ShowSession { session: session.clone() };
    let info = client.call(&show).map_err(|error| failed(&error))?;
    if info.state == SessionState::Ended {
        let hint = format!("`ringfence ledger tail --session {session}` has what happened in it");
        return Err(error::failed_text("the session has ended", Some(&hint)));
    }
    let wanted = Subscribe { after, session: Some(session) };
    for event in client.events(&wanted).map_err(|error| failed(&error))? {
        let event = event.map_err(|error| failed(&error))?;
        if daemon.json {
            print_json(&event);
        } else {
            happened(&event);
        }
        if event.kind == "session-ended" || is_closed() {
            return Ok(ExitCode::SUCCESS);
        }
    }
    Err(gone())
}

/// One line: time, kind, and the text if there is one.
fn happened(event: &EventMessage) {
    let said = event.event.get("claim").and_then(Value::as_str).unwrap_or_default();
    let shown = |text: &str| ByteString::from(text).display();
    say!("{:<6}  {}  {:<24}  {}", event.seq, shown(&event.time), shown(&event.kind), shown(said));
}

/// Prints the answer only for `--json`.
fn told<T: serde::Serialize>(daemon: &DaemonArgs, answer: &T) -> ExitCode {
    if daemon.json {
        print_json(answer);
    }
    ExitCode::SUCCESS
}
