use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum as _;
use ringfence_types::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::args::Agent;
use crate::environment::Environment;
use crate::error;
use crate::init::{Found, Standing, command, found, standing};

/// One agent of this user.
#[derive(Debug, Serialize)]
pub(crate) struct Guarded {
    pub(crate) agent: String,
    /// The program or the settings by which it was found.
    pub(crate) found: Option<String>,
    pub(crate) protected: bool,
    /// What is wrong, or what is not covered.
    pub(crate) notes: Vec<String>,
}

/// Every agent that is found, or that has a hook of ours.
pub(crate) fn guarded(environment: &Environment) -> Vec<Guarded> {
    Agent::value_variants().iter().filter_map(|agent| of(*agent, environment)).collect()
}

fn of(agent: Agent, environment: &Environment) -> Option<Guarded> {
    let found = match found(agent, environment) {
        Found::Program(path) | Found::Settings(path) => Some(Bytes::from(path).display()),
        Found::Nothing => None,
    };
    let standing = standing(agent, environment);
    if found.is_none() && !matches!(standing, Ok(Standing::On | Standing::Outdated)) {
        return None;
    }
    let mut notes = Vec::new();
    let mut protected = false;
    match standing {
        Ok(Standing::On) => match fires(agent, environment) {
            Ok(()) => protected = true,
            Err(why) => notes.push(format!("the hook does not answer: {why}")),
        },
        Ok(Standing::Off) => notes.push(format!("no hook: `ringfence init {agent}` sets it up")),
        Ok(Standing::Outdated) => {
            notes.push(format!("the hook leads elsewhere: `ringfence init {agent}` corrects it"));
        }
        Err(error) => notes.push(error::chain(&error)),
    }
    if protected {
        notes.extend(limits(agent).map(str::to_owned));
    }
    if agent == Agent::ClaudeCode {
        notes.extend(switched_off(environment));
    }
    Some(Guarded { agent: agent.to_string(), found, protected, notes })
}

/// Runs the hook as the agent would, with something that is no call: it must say no.
fn fires(agent: Agent, environment: &Environment) -> Result<(), String> {
    const BLOCKED: i32 = 2;
    let line = command(agent, environment).map_err(|error| error::chain(&error))?;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &line]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = shell.spawn().map_err(|error| error.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        // Whoever does not read has its say in the exit code.
        let _unread = stdin.write_all(b"{}");
    }
    let done = child.wait_with_output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.code() == Some(BLOCKED) && said.contains("ringfence: blocked") {
        return Ok(());
    }
    Err(format!("{}, {}", done.status, Bytes::from(said.trim()).display()))
}

/// What even a hook that answers does not cover.
fn limits(agent: Agent) -> Option<&'static str> {
    match agent {
        Agent::Codex => Some(
            "codex runs the hook only once it is trusted (`/hooks`), goes on if it is killed, and contains commands itself \
             unless its sandbox mode is `danger-full-access`",
        ),
        Agent::Gemini => Some("gemini goes on if the hook is killed"),
        Agent::Goose => Some("goose goes on if the hook is killed, and runs no command: use `ringfence mcp`"),
        Agent::ClaudeCode | Agent::Cursor | Agent::Opencode => None,
    }
}

/// Settings by which Claude Code runs no hook at all.
fn switched_off(environment: &Environment) -> Option<String> {
    let cwd = std::env::current_dir().ok();
    let here = cwd.iter().flat_map(|cwd| cwd.ancestors());
    let directories = here.chain(environment.home.as_deref()).map(|place| place.join(".claude"));
    let mut files =
        directories.flat_map(|place| ["settings.json", "settings.local.json"].map(|name| place.join(name)));
    let off = |path: &Path| {
        let settings =
            std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        settings.is_some_and(|settings| settings.get("disableAllHooks") == Some(&Value::Bool(true)))
    };
    let file = files.find(|path| off(path))?;
    Some(format!("`{}` switches every hook off", Bytes::from(file).display()))
}

pub(crate) fn lines(agents: &[Guarded]) -> Vec<String> {
    if agents.is_empty() {
        return vec!["none found".to_owned()];
    }
    let mut lines = Vec::new();
    for agent in agents {
        let word = if agent.protected { "protected" } else { "NOT protected" };
        let place = agent.found.as_deref().map(|place| format!(" ({place})")).unwrap_or_default();
        lines.push(format!("{:<12} {word}{place}", agent.agent));
        lines.extend(agent.notes.iter().map(|note| format!("             {note}")));
    }
    lines
}
