//! Probes an agent's hook: runs it as the agent would, with a call that must be refused, and checks that the
//! ledger has the refusal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringfence_ledger::{Kind, LedgerLocation, LedgerOpenError, LedgerReadError, LedgerSettings};
use ringfence_types::ByteString;
use serde_json::{Value, json};

use super::bounded_query::{PATIENCE, answer};
use crate::args::AgentKind;
use crate::environment::Environment;
use crate::hook::event;
use crate::host;
use crate::init::{InitError, hook_commands};

/// Number of newest refusals searched for that of the probe.
const NEWEST: u32 = 256;

/// Why the probe did not prove that the hook works.
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
    Open(#[from] LedgerOpenError),
    #[error("the ledger cannot be read")]
    Read(#[from] LedgerReadError),
}

/// Probes every hook of Ringfence that the agent would run. `scratch` is a temporary directory.
pub(crate) fn probe(agent: AgentKind, environment: &Environment, scratch: &Path) -> Result<(), ProbeError> {
    let commands = hook_commands(agent, environment)?;
    if commands.is_empty() {
        return Err(ProbeError::Missing);
    }
    let workspace = scratch.join("probe");
    // A project of its own, also if the scratch directory is inside another one.
    fs::create_dir_all(workspace.join(".git")).map_err(ProbeError::Scratch)?;
    let state_dir = host::state_dir(environment)?;
    for command in commands {
        let secret = unique(&state_dir)?;
        said_no(&run(&command, &workspace, &call(agent, &workspace, &secret))?)?;
        recorded(environment, &secret)?;
    }
    Ok(())
}

/// A unique path in the state directory, which no agent may read.
fn unique(state_dir: &Path) -> Result<PathBuf, ProbeError> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| ProbeError::Scratch(io::Error::other(error)))?;
    let name: String = ringfence_types::hex(random);
    Ok(state_dir.join(format!("probe-{name}")))
}

/// What the agent would send before it read that file.
fn call(agent: AgentKind, workspace: &Path, secret: &Path) -> Value {
    let secret = secret.to_string_lossy();
    let (tool, input) = match agent {
        AgentKind::ClaudeCode | AgentKind::Cursor => ("Read", json!({ "file_path": secret })),
        AgentKind::Codex => {
            let patch = format!("*** Begin Patch\n*** Add File: {secret}\n+probe\n*** End Patch\n");
            ("apply_patch", json!({ "command": patch }))
        }
        AgentKind::Gemini => ("read_file", json!({ "absolute_path": secret })),
        AgentKind::Goose => ("read", json!({ "path": secret })),
        AgentKind::Opencode => ("read", json!({ "filePath": secret })),
    };
    json!({
        "hook_event_name": event(agent), "session_id": "doctor", "cwd": workspace, "tool_name": tool, "tool_input": input,
    })
}

/// The output and exit code of a hook.
#[derive(Debug)]
struct HookProbeOutput {
    code: Option<i32>,
    out: String,
    errors: String,
}

fn run(line: &str, workspace: &Path, input: &Value) -> Result<HookProbeOutput, ProbeError> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", line]).current_dir(workspace);
    let done = answer(&mut shell, input.to_string().as_bytes()).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => ProbeError::Silent,
        _ => ProbeError::Spawn(error),
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(HookProbeOutput { code: done.status.code(), out: text(&done.stdout), errors: text(&done.stderr) })
}

/// Only an evaluated refusal counts: a hook that blocks every call does not evaluate, and its user will
/// remove it.
fn said_no(said: &HookProbeOutput) -> Result<(), ProbeError> {
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
    Err(ProbeError::Passed(format!("{code}: {}", ByteString::from(line).display())))
}

fn recorded(environment: &Environment, secret: &Path) -> Result<(), ProbeError> {
    let state_dir = host::state_dir(environment)?;
    let setup = host::setup(environment, ringfence_authz::env::ApproverPresence::Unattended)?;
    let settings =
        LedgerSettings::load(&setup.config_dir.join("ledger.toml")).map_err(LedgerOpenError::from)?;
    let Some(reader) = LedgerLocation::of(&state_dir, &settings)?.read()? else {
        return Err(ProbeError::Unrecorded);
    };
    let name = secret.file_name().unwrap_or_default().to_string_lossy();
    let refusals = reader.of_kinds(&[Kind::CallRefused], NEWEST)?;
    let is_it = |record| serde_json::to_string(record).is_ok_and(|text| text.contains(&*name));
    if refusals.iter().any(is_it) { Ok(()) } else { Err(ProbeError::Unrecorded) }
}
