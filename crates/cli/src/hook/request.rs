//! The request of an agent to its hook. Each field is an untrusted claim.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{HookError, transcript};
use crate::args::AgentKind;

/// A tool call that an agent is about to make.
#[derive(Debug)]
pub(super) struct HookRequest {
    pub(super) agent: AgentKind,
    /// Ringfence's session name: the same for all calls of one conversation.
    pub(super) session: String,
    pub(super) cwd: PathBuf,
    pub(super) project: AgentProject,
    pub(super) tool: String,
    pub(super) input: Map<String, Value>,
    pub(super) mode: Option<String>,
    pub(super) transcript: Option<PathBuf>,
    pub(super) turn: Option<String>,
}

/// The directory that a person opened the agent on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AgentProject {
    Directory(PathBuf),
    /// The agent does not say.
    Unsaid,
    /// Codex keeps no record of the turn, and all that it says otherwise is the directory that the model named.
    Unrecorded,
}

impl AgentProject {
    pub(super) fn directory(&self) -> Option<&PathBuf> {
        match self {
            Self::Directory(directory) => Some(directory),
            Self::Unsaid | Self::Unrecorded => None,
        }
    }
}

/// The fields of all agents: each sends some of them.
#[derive(Debug, Deserialize)]
struct HookPayload {
    #[serde(alias = "conversation_id")]
    session_id: Option<String>,
    #[serde(alias = "working_dir")]
    cwd: Option<PathBuf>,
    #[serde(default)]
    workspace_roots: Vec<PathBuf>,
    #[serde(alias = "event")]
    hook_event_name: String,
    tool_name: String,
    tool_input: Map<String, Value>,
    permission_mode: Option<String>,
    transcript_path: Option<PathBuf>,
    turn_id: Option<String>,
}

impl HookRequest {
    pub(super) fn read(agent: AgentKind, bytes: &[u8]) -> Result<Self, HookError> {
        let sent: HookPayload =
            serde_json::from_slice(bytes).map_err(|error| HookError::Garbage(agent, error))?;
        if sent.hook_event_name != event(agent) {
            return Err(HookError::Event(sent.hook_event_name));
        }
        let roots = sent.workspace_roots;
        let cwd = sent.cwd.or_else(|| roots.first().cloned());
        let cwd = cwd.filter(|cwd| cwd.is_absolute()).ok_or(HookError::NoPlace(agent))?;
        let around = roots.iter().find(|root| cwd.starts_with(root)).or(roots.first());
        let told = around.filter(|root| root.is_absolute()).cloned();
        // What Codex calls its directory is the one that the model named with this call.
        let project = match (agent, sent.turn_id.as_deref()) {
            (AgentKind::Codex, Some(turn)) => transcript::project(sent.transcript_path.as_deref(), turn)
                .map_or(AgentProject::Unrecorded, AgentProject::Directory),
            _ => told.map_or(AgentProject::Unsaid, AgentProject::Directory),
        };
        Ok(Self {
            agent,
            session: session(agent, sent.session_id.as_deref().unwrap_or_default()),
            cwd,
            project,
            tool: sent.tool_name,
            input: sent.tool_input,
            mode: sent.permission_mode,
            transcript: sent.transcript_path,
            turn: sent.turn_id,
        })
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.input.get(key).and_then(Value::as_str)
    }

    /// The absolute path, as the agent would resolve it. `None` if that is ambiguous: some agents expand `~`
    /// or trim the name, each what its language calls a space.
    pub(super) fn path(&self, path: &str) -> Option<PathBuf> {
        const BYTE_ORDER_MARK: char = '\u{feff}';
        let is_space = |c: char| c.is_whitespace() || c == BYTE_ORDER_MARK;
        let is_trimmed = path.trim_matches(is_space) != path;
        (!path.starts_with('~') && !is_trimmed).then(|| self.cwd.join(Path::new(path)))
    }
}

/// The event before a tool call, by each agent's name for it.
pub(crate) fn event(agent: AgentKind) -> &'static str {
    match agent {
        AgentKind::ClaudeCode | AgentKind::Codex | AgentKind::Goose => "PreToolUse",
        AgentKind::Gemini => "BeforeTool",
        AgentKind::Cursor => "preToolUse",
        AgentKind::Opencode => "tool.execute.before",
    }
}

fn session(agent: AgentKind, id: &str) -> String {
    const LONGEST: usize = 64;
    let plain = id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(LONGEST);
    format!("{agent}-{}", plain.collect::<String>())
}
