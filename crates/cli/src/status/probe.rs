//! Whether the hook of an agent really fires: it is run as the agent would run it, with a call that has to be refused, and
//! the refusal has to be in the ledger.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringfence_runtime::ledger::{Kind, Location, OpenError, ReadError, Settings};
use ringfence_types::Bytes;
use serde_json::{Value, json};

use super::answer::{PATIENCE, answer};
use crate::args::Agent;
use crate::environment::Environment;
use crate::hook::event;
use crate::host;
use crate::init::{InitError, configured};

/// How many of the newest refusals are looked through for that of the probe.
const NEWEST: u32 = 256;

/// Why it is not known that an agent would be stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error(transparent)]
    Settings(#[from] InitError),
    #[error("no hook of Ringfence is in its settings")]
    Missing,
    #[error("there is nothing to try the hook with")]
    Scratch(#[source] io::Error),
    #[error("the hook cannot be run")]
    Spawn(#[source] io::Error),
    #[error("the hook gave no answer within {} seconds", PATIENCE.as_secs())]
    Silent,
    #[error("the hook did not refuse what it has to refuse ({0})")]
    Passed(String),
    #[error(
        "the hook refused, but the ledger has no record of it: it belongs to another Ringfence, or writes elsewhere"
    )]
    Unrecorded,
    #[error(transparent)]
    NoStateDir(#[from] host::NoStateDir),
    #[error("the ledger cannot be opened")]
    Open(#[from] OpenError),
    #[error("the ledger cannot be read")]
    Read(#[from] ReadError),
}

/// Tries every hook of ours that the agent would run. `scratch` is a directory that goes away afterwards.
pub(crate) fn probe(agent: Agent, environment: &Environment, scratch: &Path) -> Result<(), ProbeError> {
    let commands = configured(agent, environment)?;
    if commands.is_empty() {
        return Err(ProbeError::Missing);
    }
    let workspace = scratch.join("probe");
    // A project of its own, also where the scratch directory is in one.
    fs::create_dir_all(workspace.join(".git")).map_err(ProbeError::Scratch)?;
    let state_dir = host::state_dir(environment)?;
    for command in commands {
        let secret = unique(&state_dir)?;
        said_no(&run((&command, &workspace), &call(agent, &workspace, &secret))?)?;
        recorded(environment, &secret)?;
    }
    Ok(())
}

/// A file that is nobody's to read, where Ringfence keeps what it knows.
fn unique(state_dir: &Path) -> Result<PathBuf, ProbeError> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| ProbeError::Scratch(io::Error::other(error)))?;
    let name: String = ringfence_types::hex(random);
    Ok(state_dir.join(format!("probe-{name}")))
}

/// What the agent would send before it touched that file.
fn call(agent: Agent, workspace: &Path, secret: &Path) -> Value {
    let secret = secret.to_string_lossy();
    let (tool, input) = match agent {
        Agent::ClaudeCode | Agent::Cursor => ("Read", json!({ "file_path": secret })),
        Agent::Codex => {
            let patch = format!("*** Begin Patch\n*** Add File: {secret}\n+probe\n*** End Patch\n");
            ("apply_patch", json!({ "command": patch }))
        }
        Agent::Gemini => ("read_file", json!({ "absolute_path": secret })),
        Agent::Goose => ("read", json!({ "path": secret })),
        Agent::Opencode => ("read", json!({ "filePath": secret })),
    };
    json!({
        "hook_event_name": event(agent), "session_id": "doctor", "cwd": workspace, "tool_name": tool, "tool_input": input,
    })
}

/// What a hook said, and how it ended.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    errors: String,
}

fn run((line, workspace): (&str, &Path), input: &Value) -> Result<Said, ProbeError> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", line]).current_dir(workspace);
    let done = answer(&mut shell, input.to_string().as_bytes()).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => ProbeError::Silent,
        _ => ProbeError::Spawn(error),
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { code: done.status.code(), out: text(&done.stdout), errors: text(&done.stderr) })
}

/// Only a no that comes of a judgement counts: a hook that blocks everything stops the agent, and protects nobody for long.
fn said_no(said: &Said) -> Result<(), ProbeError> {
    const JUDGED: &str = "Ringfence stopped this";
    const PLACES: [&str; 3] = ["/hookSpecificOutput/permissionDecision", "/decision", "/permission"];
    let answer: Value = serde_json::from_str(&said.out).unwrap_or_default();
    let denies = PLACES.iter().any(|place| answer.pointer(place).and_then(Value::as_str) == Some("deny"));
    let by_word = said.code == Some(0) && denies && said.out.contains(JUDGED);
    if by_word || said.code == Some(2) && said.errors.contains(JUDGED) {
        return Ok(());
    }
    let code = said.code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
    let line = [&said.errors, &said.out].into_iter().find_map(|text| text.lines().next()).unwrap_or_default();
    Err(ProbeError::Passed(format!("{code}: {}", Bytes::from(line).display())))
}

fn recorded(environment: &Environment, secret: &Path) -> Result<(), ProbeError> {
    let state_dir = host::state_dir(environment)?;
    let setup = host::setup(environment, ringfence_runtime::authz::env::Attendance::Unattended)?;
    let settings = Settings::load(&setup.config_dir.join("ledger.toml")).map_err(OpenError::from)?;
    let Some(reader) = Location::of(&state_dir, &settings)?.read()? else {
        return Err(ProbeError::Unrecorded);
    };
    let name = secret.file_name().unwrap_or_default().to_string_lossy();
    let refusals = reader.of_kinds(&[Kind::Refused], NEWEST)?;
    let is_it = |record| serde_json::to_string(record).is_ok_and(|text| text.contains(&*name));
    if refusals.iter().any(is_it) { Ok(()) } else { Err(ProbeError::Unrecorded) }
}
