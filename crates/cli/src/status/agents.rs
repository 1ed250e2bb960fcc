use std::path::Path;
use std::process::Command;

use clap::ValueEnum as _;
use ringfence_types::Bytes;
use serde::Serialize;

use super::answer::answer;
use super::exec_server::{self, Plugged};
use super::probe::{self, ProbeError};
use super::switches::{self, Switch};
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
    pub(crate) state: State,
    /// What is wrong, or what is not covered.
    pub(crate) notes: Vec<String>,
    /// Whether a call that may not be made was refused by its hook and written down, where that was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fires: Option<bool>,
}

/// Whether the hook of an agent judges what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    Protected,
    Off,
    /// It cannot be seen from outside whether the agent runs the hook.
    Unknown,
}

/// Every agent that is found, or that has a hook of ours.
pub(crate) fn guarded(environment: &Environment) -> Vec<Guarded> {
    Agent::value_variants().iter().filter_map(|agent| of(*agent, environment)).collect()
}

/// The same, with every hook tried.
pub(crate) fn probed(environment: &Environment, scratch: &Path) -> Vec<Guarded> {
    let mut all = Vec::new();
    for agent in Agent::value_variants() {
        let Some(mut guarded) = of(*agent, environment) else { continue };
        match probe::probe(*agent, environment, scratch) {
            Ok(()) => {
                guarded.fires = Some(true);
                guarded.notes.push("its hook fires: a probe was refused and written down".to_owned());
            }
            // Nobody has set one up, or it is not needed: that is said already.
            Err(ProbeError::Missing) => {}
            Err(error) => guarded.is_silent(*agent, &error),
        }
        all.push(guarded);
    }
    all
}

impl Guarded {
    fn is_silent(&mut self, agent: Agent, error: &ProbeError) {
        (self.fires, self.protected, self.state) = (Some(false), false, State::Off);
        self.notes.push(format!("its hook does not work: {}", error::chain(error)));
        self.notes
            .push(format!("fix: `ringfence init {agent}` writes it anew; then `ringfence doctor` again"));
    }
}

fn of(agent: Agent, environment: &Environment) -> Option<Guarded> {
    let found = match found(agent, environment) {
        Found::Program(path) | Found::Settings(path) => Some(Bytes::from(path).display()),
        Found::Nothing => None,
    };
    if agent == Agent::Codex
        && let Some((state, notes)) = by_exec_server(environment)
    {
        let protected = state == State::Protected;
        return Some(Guarded { agent: agent.to_string(), found, protected, state, notes, fires: None });
    }
    let standing = standing(agent, environment);
    if found.is_none() && !matches!(standing, Ok(Standing::On | Standing::Outdated)) {
        return None;
    }
    let (state, mut notes) = match standing {
        Ok(Standing::On) => answering(agent, environment),
        Ok(Standing::Off) => (State::Off, vec![format!("no hook: `ringfence init {agent}` sets it up")]),
        Ok(Standing::Outdated) => {
            (State::Off, vec![format!("the hook leads elsewhere: `ringfence init {agent}` corrects it")])
        }
        Err(error) => (State::Off, vec![error::chain(&error)]),
    };
    if state != State::Off {
        notes.extend(limits(agent).map(str::to_owned));
    }
    let protected = state == State::Protected;
    Some(Guarded { agent: agent.to_string(), found, protected, state, notes, fires: None })
}

/// Codex that leaves everything to us needs no hook. `None`: it does not.
fn by_exec_server(environment: &Environment) -> Option<(State, Vec<String>)> {
    match exec_server::plugged(environment) {
        Plugged::No => None,
        Plugged::In => {
            Some((State::Protected, vec!["everything it does comes to `ringfence exec-server`".to_owned()]))
        }
        Plugged::Wrong(why) => Some((State::Off, vec![why])),
    }
}

/// A hook that is in the settings as it should be: does it answer, and would the agent run it?
fn answering(agent: Agent, environment: &Environment) -> (State, Vec<String>) {
    if let Err(why) = fires(agent, environment) {
        return (State::Off, vec![format!("the hook does not answer: {why}")]);
    }
    match switches::look(agent, environment) {
        None => (State::Protected, Vec::new()),
        Some(Switch::Off(why)) => (State::Off, vec![why]),
        Some(Switch::Unknown(why)) => (State::Unknown, vec![why]),
    }
}

/// Why a hook is as good as none.
#[derive(Debug, thiserror::Error)]
enum Silent {
    #[error("{}", error::chain(.0))]
    NoCommand(crate::init::InitError),
    #[error("{0}")]
    NotStarted(std::io::Error),
    #[error("{0}, {1}")]
    Otherwise(std::process::ExitStatus, String),
}

/// Runs the hook as the agent would, with something that is no call: it must say no.
fn fires(agent: Agent, environment: &Environment) -> Result<(), Silent> {
    const BLOCKED: i32 = 2;
    let line = command(agent, environment).map_err(Silent::NoCommand)?;
    let mut shell = Command::new("/bin/sh");
    let done = answer(shell.args(["-c", &line]), b"{}").map_err(Silent::NotStarted)?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.code() == Some(BLOCKED) && said.contains("ringfence: blocked") {
        return Ok(());
    }
    Err(Silent::Otherwise(done.status, Bytes::from(said.trim()).display()))
}

/// What even a hook that answers does not cover.
fn limits(agent: Agent) -> Option<&'static str> {
    match agent {
        Agent::Codex => Some(
            "codex goes on if the hook is killed, and contains commands itself unless its sandbox mode is \
             `danger-full-access`",
        ),
        Agent::Gemini => Some("gemini goes on if the hook is killed"),
        Agent::Goose => Some("goose goes on if the hook is killed, and runs no command: use `ringfence mcp`"),
        Agent::ClaudeCode | Agent::Cursor | Agent::Opencode => None,
    }
}

pub(crate) fn lines(agents: &[Guarded]) -> Vec<String> {
    if agents.is_empty() {
        return vec!["none found".to_owned()];
    }
    let mut lines = Vec::new();
    for agent in agents {
        let word = match agent.state {
            State::Protected => "protected",
            State::Off => "NOT protected",
            State::Unknown => "UNKNOWN",
        };
        let place = agent.found.as_deref().map(|place| format!(" ({place})")).unwrap_or_default();
        lines.push(format!("{:<12} {word}{place}", agent.agent));
        lines.extend(agent.notes.iter().map(|note| format!("             {note}")));
    }
    lines
}
