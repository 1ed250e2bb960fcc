//! `ringfence hook AGENT`: decides about a tool call before the agent makes it.
//!
//! INVARIANT: only a complete answer after a complete evaluation allows a call. Invalid input, an unwritable
//! ledger, a panic and a timeout all end in [`BLOCKED`], which every agent treats as a denial.

mod decision;
mod disabled_hooks;
mod patch;
mod quote;
mod reply;
mod request;
mod tool_effect;
mod transcript;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::args::AgentKind;
use crate::environment::Environment;
use crate::output::note;
pub(crate) use decision::argv as shell;
pub(crate) use disabled_hooks::switched_off;
pub(crate) use quote::{quoted, unquoted};
pub(crate) use request::event;

use reply::HookReply;
use request::HookRequest;

/// The event before a tool call, in the settings of Codex.
pub(crate) const EVENT_OF_CODEX: &str = "PreToolUse";
/// The exit code that every agent treats as a denial.
const BLOCKED: u8 = 2;
/// Shorter than [`TIMEOUT`], after which an agent would continue without an answer.
const PATIENCE: Duration = Duration::from_secs(TIMEOUT - 20);
/// How long agents wait for an answer, in seconds.
pub(crate) const TIMEOUT: u64 = 600;
/// Larger than any tool call.
const LONGEST: u64 = 64 * 1024 * 1024;

/// Why there is no answer. The agent is told to do nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    #[error("standard input cannot be read")]
    Unread(#[source] std::io::Error),
    #[error("standard input is longer than {LONGEST} bytes")]
    TooLong,
    #[error("standard input is not what {0} sends to a hook")]
    Garbage(AgentKind, #[source] serde_json::Error),
    #[error("`{0}` is not an event that is judged")]
    Event(String),
    #[error("{0} says nothing about where it works")]
    NoPlace(AgentKind),
    #[error("`{0}` is not a directory that can be worked in")]
    Place(String, #[source] std::io::Error),
    #[error("it is not known where the program ringfence is")]
    NoProgram(#[source] std::io::Error),
    #[error("{0}")]
    Runtime(String),
    #[error("the answer cannot be written")]
    Unwritten(#[source] std::io::Error),
}

pub(crate) fn run(agent: AgentKind) -> ExitCode {
    guard();
    match answered(agent) {
        Ok(code) => code,
        Err(error) => {
            note!("ringfence: blocked, because the evaluation failed: {}", crate::error::chain(&error));
            note!("  hint: nothing was executed; see `ringfence doctor` and `ringfence status`");
            ExitCode::from(BLOCKED)
        }
    }
}

/// Answers a request of Claude Code's `--permission-prompt-tool`.
pub(crate) fn permission(cwd: &Path, session: &str, call: &Value) -> Result<Value, HookError> {
    let agent = AgentKind::ClaudeCode;
    let sent = serde_json::json!({
        "session_id": session, "cwd": cwd, "hook_event_name": request::event(agent),
        "tool_name": call.get("tool_name"), "tool_input": call.get("input"),
    });
    let request = HookRequest::read(agent, sent.to_string().as_bytes())?;
    let answer = decision::judged(&request, &Environment::read())?;
    Ok(reply::permission(&request, answer))
}

fn answered(agent: AgentKind) -> Result<ExitCode, HookError> {
    let request = HookRequest::read(agent, &input()?)?;
    let answer = decision::judged(&request, &Environment::read())?;
    match reply::reply(&request, answer) {
        HookReply::Json(json) => {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{json}").and_then(|()| out.flush()).map_err(HookError::Unwritten)?;
            Ok(ExitCode::SUCCESS)
        }
        HookReply::Nothing => Ok(ExitCode::SUCCESS),
        HookReply::Blocked(why) => {
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

/// Turns a panic or a timeout into a denial.
fn guard() {
    // Only the place: the message may contain a secret.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|at| format!(" at {}:{}", at.file(), at.line()));
        blocked(&format!("internal error{}", place.unwrap_or_default()));
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
    note!("ringfence: blocked, because the evaluation failed: {why}");
    std::process::exit(i32::from(BLOCKED));
}
