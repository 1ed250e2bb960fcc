//! `ringfence hook AGENT`: the place between what an agent wants and what it does.
//!
//! INVARIANT: nothing but a whole answer after a whole judgement lets anything happen. Garbage, a ledger that cannot be
//! written, a panic and a time limit all end in [`BLOCKED`], which every agent takes as a no.

mod answer;
mod deed;
mod judge;
mod patch;
mod quote;
mod request;
mod transcript;
mod unplugged;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::args::Agent;
use crate::environment::Environment;
use crate::output::note;
pub(crate) use judge::argv as shell;
pub(crate) use quote::{quoted, unquoted};
pub(crate) use request::event;
pub(crate) use unplugged::switched_off;

use answer::Reply;
use request::Request;

/// The event before a tool call, in the settings of Codex.
pub(crate) const EVENT_OF_CODEX: &str = "PreToolUse";
/// The exit code that every agent takes as a no.
const BLOCKED: u8 = 2;
/// Shorter than [`TIMEOUT`], after which an agent would go on without an answer.
const PATIENCE: Duration = Duration::from_secs(TIMEOUT - 20);
/// What agents are told to wait for an answer, in seconds.
pub(crate) const TIMEOUT: u64 = 600;
/// Longer than any tool call that an agent can make.
const LONGEST: u64 = 64 * 1024 * 1024;

/// Why there is no answer. The agent is told to do nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    #[error("standard input cannot be read")]
    Unread(#[source] std::io::Error),
    #[error("standard input is longer than {LONGEST} bytes")]
    TooLong,
    #[error("standard input is not what {0} sends to a hook")]
    Garbage(Agent, #[source] serde_json::Error),
    #[error("`{0}` is not an event that is judged")]
    Event(String),
    #[error("{0} says nothing about where it works")]
    NoPlace(Agent),
    #[error("`{0}` is not a directory that can be worked in")]
    Place(String, #[source] std::io::Error),
    #[error("it is not known where the program ringfence is")]
    NoProgram(#[source] std::io::Error),
    #[error("{0}")]
    Runtime(String),
    #[error("the answer cannot be written")]
    Unwritten(#[source] std::io::Error),
}

pub(crate) fn run(agent: Agent) -> ExitCode {
    guard();
    match answered(agent) {
        Ok(code) => code,
        Err(error) => {
            note!("ringfence: blocked, because there is no judgement: {}", crate::error::chain(&error));
            note!("  hint: nothing was done; `ringfence doctor` and `ringfence status` say what is wrong");
            ExitCode::from(BLOCKED)
        }
    }
}

/// The answer of a tool for `--permission-prompt-tool` of Claude Code to what it was called with.
pub(crate) fn permission(cwd: &Path, session: &str, call: &Value) -> Result<Value, HookError> {
    let agent = Agent::ClaudeCode;
    let sent = serde_json::json!({
        "session_id": session, "cwd": cwd, "hook_event_name": request::event(agent),
        "tool_name": call.get("tool_name"), "tool_input": call.get("input"),
    });
    let request = Request::read(agent, sent.to_string().as_bytes())?;
    let answer = judge::judged(&request, &Environment::read())?;
    Ok(answer::permission(&request, answer))
}

fn answered(agent: Agent) -> Result<ExitCode, HookError> {
    let request = Request::read(agent, &input()?)?;
    let answer = judge::judged(&request, &Environment::read())?;
    match answer::reply(&request, answer) {
        Reply::Json(json) => {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{json}").and_then(|()| out.flush()).map_err(HookError::Unwritten)?;
            Ok(ExitCode::SUCCESS)
        }
        Reply::Nothing => Ok(ExitCode::SUCCESS),
        Reply::Blocked(why) => {
            note!("{why}");
            Ok(ExitCode::from(BLOCKED))
        }
    }
}

fn input() -> Result<Vec<u8>, HookError> {
    let mut bytes = Vec::new();
    let read =
        std::io::stdin().lock().take(LONGEST + 1).read_to_end(&mut bytes).map_err(HookError::Unread)?;
    if read as u64 > LONGEST { Err(HookError::TooLong) } else { Ok(bytes) }
}

/// Whatever goes wrong, and however long it takes: the answer is no.
fn guard() {
    // Where, and no more: nobody can say what is in the message.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|at| format!(" at {}:{}", at.file(), at.line()));
        blocked(&format!("it broke{}", place.unwrap_or_default()));
    }));
    let watch = thread::Builder::new().spawn(|| {
        thread::sleep(PATIENCE);
        blocked("it took too long");
    });
    if let Err(error) = watch {
        blocked(&format!("nothing can watch over the time: {error}"));
    }
}

#[expect(clippy::exit, reason = "nothing else of this process may answer any more")]
fn blocked(why: &str) {
    note!("ringfence: blocked, because there is no judgement: {why}");
    std::process::exit(i32::from(BLOCKED));
}
