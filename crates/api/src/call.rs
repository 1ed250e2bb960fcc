//! Calls: what an agent, or an operator for it, wants done in a session.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringfence_types::{Outcome, Posture, Refusal, SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ApiError, Data};

/// Run a command. With `background` the answer comes at once; `call.show`, `call.output` and `call.signal` know the rest.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    #[schemars(with = "String")]
    pub session: SessionId,
    #[schemars(length(min = 1))]
    pub argv: Vec<String>,
    /// Relative to the workspace.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// What the command reads. With `interactive` it is only the beginning.
    #[serde(default, deserialize_with = "crate::shape::named")]
    pub stdin: Option<Data>,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub background: bool,
    /// Standard input stays open for `call.input`.
    #[serde(default)]
    pub interactive: bool,
    /// The command gets a terminal of this size.
    #[serde(default, deserialize_with = "crate::shape::named")]
    pub terminal: Option<TerminalSize>,
    /// What it is for. People see it, marked as an allegation.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Run a command and get its output as it comes. Whoever does not read holds the command up.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct RunCommand(pub Exec);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

/// A call of a session, by the number it got there.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowCall {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub call: u64,
    /// Wait for its end at most this long.
    #[serde(default)]
    pub wait_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListCalls {
    #[schemars(with = "String")]
    pub session: SessionId,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CallList {
    pub calls: Vec<CallInfo>,
}

/// The output of a call as it comes, as lines of JSON: one [`Chunk`] each.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamCall {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub call: u64,
    /// Go on after what has this number.
    #[serde(default)]
    pub after: u64,
}

/// A piece of output, or the end.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "chunk", rename_all = "kebab-case")]
pub enum Chunk {
    Stdout {
        seq: u64,
        data: Data,
    },
    Stderr {
        seq: u64,
        data: Data,
    },
    /// Chunks that were forgotten before they were asked for.
    Lost {
        seq: u64,
    },
    Ended {
        seq: u64,
        call: Box<CallInfo>,
    },
    /// Whoever asked may not have the rest.
    Cut {
        error: Box<ApiError>,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallInput {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub call: u64,
    #[serde(default, deserialize_with = "crate::shape::named")]
    pub data: Data,
    /// Nothing comes after this.
    #[serde(default)]
    pub close: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalCall {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub call: u64,
    pub signal: CallSignal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum CallSignal {
    Int,
    Term,
    Kill,
    Hup,
    Usr1,
    Usr2,
}

/// End a call: also one that waits for a person.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelCall {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub call: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeCall {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub call: u64,
    #[serde(deserialize_with = "crate::shape::named")]
    pub size: TerminalSize,
}

/// Nothing more to say than that it was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {}

/// What is known of a call.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CallInfo {
    pub call: u64,
    /// The command, path or address, without secrets, and not more than the first thousand characters.
    pub what: String,
    pub state: CallState,
    /// `ringfence ledger show` has all about it.
    pub transaction: Option<String>,
    pub exit_code: Option<u8>,
    #[schemars(with = "Option<serde_json::Value>")]
    pub outcome: Option<Outcome>,
    #[schemars(with = "Option<serde_json::Value>")]
    pub refusal: Option<Refusal>,
    pub failure: Option<String>,
    /// What would change that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    #[schemars(with = "Option<serde_json::Value>")]
    pub posture: Option<Posture>,
    /// For a call that was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Data>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Data>,
    /// That it goes round in circles, or that there was no room for what it printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Secrets that were on their way out.
    #[serde(default)]
    pub leaks: u64,
    /// Why the outcome is not in the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrecorded: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CallState {
    /// Judged, asked about, or running.
    Running,
    Done,
    Refused,
    Failed,
}

/// A page for the agent, through the same rules and scanner as everything else.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchUrl {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub url: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Fetched {
    pub transaction: Option<String>,
    pub status: u16,
    /// Where it came from in the end.
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Data,
}

/// Use the tools of a session with the Model Context Protocol: the body is a message of its streamable HTTP, and so is the
/// answer. Each tool is one or two of the other methods, with their rights.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UseTools {
    #[schemars(with = "String")]
    pub session: SessionId,
}

/// Would this be allowed, asked about or denied? Does nothing.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub subject: ExplainSubject,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExplainSubject {
    Argv(#[schemars(length(min = 1))] Vec<String>),
    Shell(String),
    Read(PathBuf),
    Write(PathBuf),
    Url(String),
    Tool(String),
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Explained {
    /// `allow`, `ask` or `deny`.
    pub decision: String,
    pub rule: Option<String>,
    pub reason: Option<String>,
    pub hint: Option<String>,
}
