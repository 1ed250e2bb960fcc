//! Sessions: what is asked for, and what is known of one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringfence_types::{Limits, NetMode, Profile, SessionId, WorkspaceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Characters of what a session or its agent is called.
pub const MOST_NAME: usize = 256;

/// Start a session. What it is bound to here it is bound to for life.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSession {
    /// A directory of the host, absolute.
    pub workspace: PathBuf,
    /// By which policy knows the agent.
    #[serde(default)]
    #[schemars(length(max = MOST_NAME))]
    pub agent: Option<String>,
    /// The program that is the agent, with its arguments. Without one the session only takes calls.
    #[serde(default)]
    pub provider: Option<Vec<String>>,
    /// At most what the operator's policy allows, and what the parent has.
    #[serde(default)]
    #[schemars(schema_with = "crate::shape::profile")]
    pub profile: Option<Profile>,
    #[serde(default)]
    #[schemars(schema_with = "crate::shape::net")]
    pub net: Option<NetMode>,
    /// Variables for everything that runs in it. `RINGFENCE_*` are not for others to set.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The session ends after this many seconds.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub timeout_s: Option<u64>,
    /// It ends when nothing was asked of it and no command ran for this many seconds.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub idle_timeout_s: Option<u64>,
    #[serde(default, deserialize_with = "crate::shape::named")]
    pub limits: SessionLimits,
    /// Secrets of the operator that it gets, by name: provider keys only as placeholders.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// The session that this one is a part of: it has at most the same, and ends with it.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub parent: Option<SessionId>,
    /// A word for people.
    #[serde(default)]
    #[schemars(length(max = MOST_NAME))]
    pub label: Option<String>,
}

/// What a session may use; what is not said is as policy says.
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
    /// Also those that are over, as long as the daemon remembers them.
    #[serde(default)]
    pub all: bool,
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

/// End a session: its commands are asked to end, then made to.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopSession {
    #[schemars(with = "String")]
    pub session: SessionId,
    /// How long commands may take to end after SIGTERM.
    #[serde(default)]
    pub grace_ms: Option<u64>,
}

/// What is known of a session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SessionInfo {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub label: Option<String>,
    pub agent: Option<String>,
    pub state: SessionState,
    /// Why it is over.
    pub ended: Option<String>,
    pub workspace: PathBuf,
    #[schemars(with = "String")]
    pub workspace_id: WorkspaceId,
    #[schemars(with = "String")]
    pub profile: Profile,
    #[schemars(with = "String")]
    pub net: NetMode,
    #[schemars(with = "Option<String>")]
    pub parent: Option<SessionId>,
    pub provider: Option<ProviderInfo>,
    #[schemars(with = "serde_json::Value")]
    pub limits: Limits,
    /// RFC 3339.
    pub started: String,
    pub created_by: String,
    /// Calls that are under way.
    pub running: u64,
    /// Calls so far.
    pub calls: u64,
    pub timeout_s: Option<u64>,
    pub idle_timeout_s: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderInfo {
    pub argv: Vec<String>,
    /// Once it has ended.
    pub exit_code: Option<u8>,
    /// Why it did not run.
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

/// What an agent says that it does. People see it, marked as an allegation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportActivity {
    #[schemars(with = "String")]
    pub session: SessionId,
    /// `thinking`, `tool`, `message` or whatever else the agent calls it.
    pub kind: String,
    pub text: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Reported {
    /// Of the event, to go on after it.
    pub seq: u64,
}
