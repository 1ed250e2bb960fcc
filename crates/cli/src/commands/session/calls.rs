//! `ringfence session calls`, `logs`, `signal`, `input`, `cancel`, `activity` and `report`: what goes on in a session.

use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use ringfence_api::{
    CallInfo, CallInput, CallSignal, CancelCall, Data, ErrorCode, Happened, ListCalls, ReportActivity,
    SessionState, ShowSession, SignalCall, StreamCall, Subscribe,
};
use ringfence_client::{Client, ClientError};
use ringfence_types::Bytes;
use serde_json::Value;

use super::exec::{gone, shown};
use super::{ask, connect, id};
use crate::args::{AtDaemon, OneCall};
use crate::commands::run::print_json;
use crate::daemon::failed;
use crate::error;
use crate::output::{is_closed, say};

/// What a pipe takes whole or not at all, so that what was not taken can be given again.
const PIECE: usize = 4096;
/// How long a command that does not read is left alone.
const PAUSE: Duration = Duration::from_millis(20);

/// What becomes of the input of a call when there is no more here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtEnd {
    Close,
    KeepOpen,
}

pub(super) fn list(daemon: &AtDaemon, session: &str) -> Result<ExitCode, ExitCode> {
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
    say!("{:<4}  {state:<7}  {code:>3}  {}", call.call, Bytes::from(call.what.as_str()).display());
}

pub(super) fn logs(wanted: &OneCall, after: u64) -> Result<ExitCode, ExitCode> {
    let request = StreamCall { session: id(&wanted.id)?, call: wanted.call, after };
    let mut client = connect(&wanted.daemon)?;
    for chunk in client.output(&request).map_err(|error| failed(&error))? {
        let chunk = chunk.map_err(|error| failed(&error))?;
        let is_last = matches!(chunk, ringfence_api::Chunk::Ended { .. });
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

pub(super) fn signal(wanted: &OneCall, signal: CallSignal) -> Result<ExitCode, ExitCode> {
    let request = SignalCall { session: id(&wanted.id)?, call: wanted.call, signal };
    let answer = ask(&wanted.daemon, &request)?;
    Ok(told(&wanted.daemon, &answer))
}

pub(super) fn cancel(wanted: &OneCall) -> Result<ExitCode, ExitCode> {
    let answer = ask(&wanted.daemon, &CancelCall { session: id(&wanted.id)?, call: wanted.call })?;
    Ok(told(&wanted.daemon, &answer))
}

/// Each piece as it comes, at the pace of the command.
pub(super) fn input(wanted: &OneCall, at_end: AtEnd) -> Result<ExitCode, ExitCode> {
    let mut client = connect(&wanted.daemon)?;
    let session = id(&wanted.id)?;
    let piece =
        |data: Data, close: bool| CallInput { session: session.clone(), call: wanted.call, data, close };
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
    if at_end == AtEnd::Close {
        give(&mut client, &piece(Data::default(), true))?;
    }
    Ok(told(&wanted.daemon, &ringfence_api::Done {}))
}

/// Until it is taken, or is refused for another reason than that there is no place for it yet.
fn give(client: &mut Client, piece: &CallInput) -> Result<(), ExitCode> {
    loop {
        match client.call(piece) {
            Ok(_done) => return Ok(()),
            Err(ClientError::Api(told)) if told.code == ErrorCode::Exhausted => std::thread::sleep(PAUSE),
            Err(error) => return Err(failed(&error)),
        }
    }
}

pub(super) fn report(daemon: &AtDaemon, report: ReportActivity) -> Result<ExitCode, ExitCode> {
    let answer = ask(daemon, &report)?;
    Ok(told(daemon, &answer))
}

pub(super) fn activity(daemon: &AtDaemon, session: &str, after: Option<u64>) -> Result<ExitCode, ExitCode> {
    let session = id(session)?;
    let mut client = connect(daemon)?;
    let show = ShowSession { session: session.clone() };
    let info = client.call(&show).map_err(|error| failed(&error))?;
    if info.state == SessionState::Ended {
        let hint = format!("`ringfence ledger tail --session {session}` has what happened in it");
        return Err(error::failed_text("the session is over", Some(&hint)));
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

/// In one line: when, what, and what was said where somebody said something.
fn happened(event: &Happened) {
    let said = event.event.get("text").and_then(Value::as_str).unwrap_or_default();
    let shown = |text: &str| Bytes::from(text).display();
    say!("{:<6}  {}  {:<16}  {}", event.seq, shown(&event.time), shown(&event.kind), shown(said));
}

/// Nothing more is to be said than that it was done.
fn told<T: serde::Serialize>(daemon: &AtDaemon, answer: &T) -> ExitCode {
    if daemon.json {
        print_json(answer);
    }
    ExitCode::SUCCESS
}
