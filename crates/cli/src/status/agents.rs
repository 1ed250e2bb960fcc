use std::path::Path;
use std::process::Command;

use clap::ValueEnum as _;
use ringfence_types::ByteString;
use serde::Serialize;

use super::bounded_query::answer;
use super::exec_server::{self, ExecServerStatus};
use super::hook_switches::{self, HookSwitch};
use super::probe::{self, ProbeError};
use crate::args::AgentKind;
use crate::environment::Environment;
use crate::error;
use crate::init::{AgentDetection, HookStatus, command, found, standing};

/// One agent of this user.
#[derive(Debug, Serialize)]
pub(crate) struct AgentStatus {
    pub(crate) agent: String,
    /// The program or settings by which it was detected.
    pub(crate) found: Option<String>,
    pub(crate) protected: bool,
    pub(crate) state: HookState,
    /// Problems and gaps.
    pub(crate) notes: Vec<String>,
    /// Whether a probe was refused by the hook and recorded, if the probe ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fires: Option<bool>,
}

/// Whether the hook of an agent evaluates its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HookState {
    Protected,
    Off,
    /// It is not visible from outside whether the agent runs the hook.
    Unknown,
}

/// Every agent that is installed or has Ringfence's hook.
pub(crate) fn guarded(environment: &Environment) -> Vec<AgentStatus> {
    AgentKind::value_variants().iter().filter_map(|agent| of(*agent, environment)).collect()
}

/// Like [`guarded`], with a probe of every hook.
pub(crate) fn probed(environment: &Environment, scratch: &Path) -> Vec<AgentStatus> {
    let mut all = Vec::new();
    for agent in AgentKind::value_variants() {
        let Some(mut guarded) = of(*agent, environment) else { continue };
        match probe::probe(*agent, environment, scratch) {
            Ok(()) => {
                guarded.fires = Some(true);
                guarded.notes.push("its hook fires: a probe was refused and written down".to_owned());
            }
            // No hook is installed or needed, which the state already says.
            Err(ProbeError::Missing) => {}
            Err(error) => guarded.is_silent(*agent, &error),
        }
        all.push(guarded);
    }
    all
}

impl AgentStatus {
    fn is_silent(&mut self, agent: AgentKind, error: &ProbeError) {
        (self.fires, self.protected, self.state) = (Some(false), false, HookState::Off);
        self.notes.push(format!("its hook does not work: {}", error::chain(error)));
        self.notes
            .push(format!("fix: `ringfence init {agent}` writes it anew; then `ringfence doctor` again"));
    }
}

fn of(agent: AgentKind, environment: &Environment) -> Option<AgentStatus> {
    let found = match found(agent, environment) {
        AgentDetection::Program(path) | AgentDetection::Settings(path) => {
            Some(ByteString::from(path).display())
        }
        AgentDetection::Nothing => None,
    };
    if agent == AgentKind::Codex
        && let Some((state, notes)) = by_exec_server(environment)
    {
        let protected = state == HookState::Protected;
        return Some(AgentStatus { agent: agent.to_string(), found, protected, state, notes, fires: None });
    }
    let standing = standing(agent, environment);
    if found.is_none() && !matches!(standing, Ok(HookStatus::On | HookStatus::Outdated)) {
        return None;
    }
    let (state, mut notes) = match standing {
        Ok(HookStatus::On) => answering(agent, environment),
        Ok(HookStatus::Off) => {
            (HookState::Off, vec![format!("no hook: `ringfence init {agent}` sets it up")])
        }
        Ok(HookStatus::Outdated) => {
            (HookState::Off, vec![format!("the hook leads elsewhere: `ringfence init {agent}` corrects it")])
        }
        Err(error) => (HookState::Off, vec![error::chain(&error)]),
    };
    if state != HookState::Off {
        notes.extend(limits(agent).map(str::to_owned));
    }
    let protected = state == HookState::Protected;
    Some(AgentStatus { agent: agent.to_string(), found, protected, state, notes, fires: None })
}

/// With the exec server Codex needs no hook. `None`: the exec server is not configured.
fn by_exec_server(environment: &Environment) -> Option<(HookState, Vec<String>)> {
    match exec_server::plugged(environment) {
        ExecServerStatus::No => None,
        ExecServerStatus::In => Some((
            HookState::Protected,
            vec!["everything it does comes to `ringfence exec-server`".to_owned()],
        )),
        ExecServerStatus::Wrong(why) => Some((HookState::Off, vec![why])),
    }
}

/// Checks a correctly configured hook: whether it answers, and whether the agent would run it.
fn answering(agent: AgentKind, environment: &Environment) -> (HookState, Vec<String>) {
    if let Err(why) = fires(agent, environment) {
        return (HookState::Off, vec![format!("the hook does not answer: {why}")]);
    }
    match hook_switches::look(agent, environment) {
        None => (HookState::Protected, Vec::new()),
        Some(HookSwitch::Off(why)) => (HookState::Off, vec![why]),
        Some(HookSwitch::Unknown(why)) => (HookState::Unknown, vec![why]),
    }
}

/// Why a hook does not work.
#[derive(Debug, thiserror::Error)]
enum HookFailure {
    #[error("{}", error::chain(.0))]
    NoCommand(crate::init::InitError),
    #[error("{0}")]
    NotStarted(std::io::Error),
    #[error("{0}, {1}")]
    Otherwise(std::process::ExitStatus, String),
}

/// Runs the hook as the agent would, with an invalid call that it must deny.
fn fires(agent: AgentKind, environment: &Environment) -> Result<(), HookFailure> {
    const BLOCKED: i32 = 2;
    let line = command(agent, environment).map_err(HookFailure::NoCommand)?;
    let mut shell = Command::new("/bin/sh");
    let done = answer(shell.args(["-c", &line]), b"{}").map_err(HookFailure::NotStarted)?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.code() == Some(BLOCKED) && said.contains("ringfence: blocked") {
        return Ok(());
    }
    Err(HookFailure::Otherwise(done.status, ByteString::from(said.trim()).display()))
}

/// Gaps that remain with a working hook.
fn limits(agent: AgentKind) -> Option<&'static str> {
    match agent {
        AgentKind::Codex => Some(
            "codex goes on if the hook is killed, and contains commands itself unless its sandbox mode is \
             `danger-full-access`",
        ),
        AgentKind::Gemini => Some("gemini continues if the hook is killed"),
        AgentKind::Goose => {
            Some("goose continues if the hook is killed, and runs no command: use `ringfence mcp`")
        }
        AgentKind::ClaudeCode | AgentKind::Cursor | AgentKind::Opencode => None,
    }
}

pub(crate) fn lines(agents: &[AgentStatus]) -> Vec<String> {
    if agents.is_empty() {
        return vec!["none found".to_owned()];
    }
    let mut lines = Vec::new();
    for agent in agents {
        let word = match agent.state {
            HookState::Protected => "protected",
            HookState::Off => "NOT protected",
            HookState::Unknown => "UNKNOWN",
        };
        let place = agent.found.as_deref().map(|place| format!(" ({place})")).unwrap_or_default();
        lines.push(format!("{:<12} {word}{place}", agent.agent));
        lines.extend(agent.notes.iter().map(|note| format!("             {note}")));
    }
    lines
}
