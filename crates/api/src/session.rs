//! Methods about sessions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringfence_types::{Limits, NetMode, Profile, SessionId, WorkspaceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum length of the name of a session or agent.
pub const MOST_NAME: usize = 256;

/// Starts a session. Its workspace and ceiling never change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSession {
    /// An absolute directory of the host.
    pub workspace: PathBuf,
    /// The name of the agent in the policy (`[agents.NAME]`).
    #[serde(default)]
    #[schemars(length(max = MOST_NAME))]
    pub agent_name: Option<String>,
    /// The program of the agent, with its arguments. Without it the session only accepts calls.
    #[serde(default)]
    pub agent_argv: Option<Vec<String>>,
    /// Never wider than the operator's policy or the parent session.
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::profile")]
    pub profile: Option<Profile>,
    #[serde(default)]
    #[schemars(schema_with = "crate::schema::net")]
    pub net: Option<NetMode>,
    /// Variables for every command of the session. `RINGFENCE_*` is reserved.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The session ends after this many seconds.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub timeout_s: Option<u64>,
    /// The session ends after this many seconds without a request or a running command.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub idle_timeout_s: Option<u64>,
    #[serde(default, deserialize_with = "crate::schema::named")]
    pub limits: SessionLimits,
    /// Names of secrets to release to the session. Provider keys are released as placeholders only.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// The parent session. The child has at most what the parent has, and ends with it.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub parent: Option<SessionId>,
    /// A label for people.
    #[serde(default)]
    #[schemars(length(max = MOST_NAME))]
    pub label: Option<String>,
}

/// Limits of a session. Default: as in the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionLimits {
    pub memory_bytes: Option<u64>,
    pub processes: Option<u64>,
    pub cpu_seconds: Option<u64>,
    pub open_files: Option<u64>,
    pub file_size_bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListSessions {
    /// Also sessions that have ended, as long as the daemon remembers them.
    #[serde(default)]
    pub include_ended: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SessionList {
    pub sessions: Vec<SessionInfo>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowSession {
    #[schemars(with = "String")]
    pub session: SessionId,
}

/// Ends a session. Its commands get SIGTERM, then SIGKILL.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopSession {
    #[schemars(with = "String")]
    pub session: SessionId,
    /// Time between SIGTERM and SIGKILL.
    #[serde(default)]
    pub grace_ms: Option<u64>,
}

/// State of a session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SessionInfo {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub label: Option<String>,
    pub agent_name: Option<String>,
    pub state: SessionState,
    /// Why the session ended.
    pub end_reason: Option<String>,
    pub workspace: PathBuf,
    #[schemars(with = "String")]
    pub workspace_id: WorkspaceId,
    #[schemars(with = "String")]
    pub profile: Profile,
    #[schemars(with = "String")]
    pub net: NetMode,
    #[schemars(with = "Option<String>")]
    pub parent: Option<SessionId>,
    pub agent_process: Option<AgentProcessInfo>,
    #[schemars(with = "serde_json::Value")]
    pub limits: Limits,
    /// RFC 3339.
    pub started_at: String,
    pub created_by: String,
    /// Number of calls that are running.
    pub running_calls: u64,
    /// Number of calls so far.
    pub calls: u64,
    pub timeout_s: Option<u64>,
    pub idle_timeout_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentProcessInfo {
    pub argv: Vec<String>,
    /// `None`: still running.
    pub exit_code: Option<u8>,
    /// Why it could not run.
    pub failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    Running,
    Stopping,
    Ended,
}

impl SessionState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
        }
    }
}

/// A report of an agent about its activity. People see it, marked as untrusted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportActivity {
    #[schemars(with = "String")]
    pub session: SessionId,
    /// `thinking`, `tool`, `message` or another word of the agent.
    pub activity: String,
    /// The agent's text.
    pub claim: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ActivityReceipt {
    /// The number of the event.
    pub seq: u64,
}
