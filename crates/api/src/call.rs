//! Methods about calls: operations of an agent, or of an operator for it, in a session.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringfence_types::{CallCeiling, Outcome, Posture, Refusal, RuleName, SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ApiError, TextOrBase64};

/// Runs a command. With `background` the response comes at once; see `call.show`, `call.output` and `call.signal`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    #[schemars(with = "String")]
    pub session: SessionId,
    #[schemars(length(min = 1))]
    pub argv: Vec<String>,
    /// Relative to the workspace.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Standard input. With `interactive`, only its beginning.
    #[serde(default, deserialize_with = "crate::schema::named")]
    pub stdin: Option<TextOrBase64>,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub background: bool,
    /// Standard input stays open for `call.input`.
    #[serde(default)]
    pub interactive: bool,
    /// The command gets a terminal of this size.
    #[serde(default, deserialize_with = "crate::schema::named")]
    pub terminal: Option<TerminalSize>,
    /// The agent's stated reason. Approvers see it, marked as untrusted.
    #[serde(default)]
    pub reason: Option<String>,
    /// The most that the command may have. It then runs in its own sandbox. A ceiling above that of the session is refused.
    #[serde(default, deserialize_with = "crate::schema::named_ceiling")]
    #[schemars(schema_with = "crate::schema::ceiling")]
    pub ceiling: Option<CallCeiling>,
}

/// Runs a command and streams its output. The command waits for a slow reader.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ExecStreamRequest(pub ExecRequest);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

/// A call of a session, by its number.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowCall {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub call: u64,
    /// Waits at most this long for its end.
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

/// Streams the output of a call as JSON lines, one [`OutputChunk`] each.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamCall {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub call: u64,
    /// Continues after the chunk with this number.
    #[serde(default)]
    pub after: u64,
}

/// A chunk of output, or the end.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "chunk", rename_all = "kebab-case")]
pub enum OutputChunk {
    Stdout {
        seq: u64,
        data: TextOrBase64,
    },
    Stderr {
        seq: u64,
        data: TextOrBase64,
    },
    /// Chunks that the daemon dropped before the client read them.
    Dropped {
        seq: u64,
    },
    Ended {
        seq: u64,
        call: Box<CallInfo>,
    },
    /// The daemon closed the stream before its end.
    Closed {
        error: Box<ApiError>,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallInput {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub call: u64,
    #[serde(default, deserialize_with = "crate::schema::named")]
    pub data: TextOrBase64,
    /// Closes standard input.
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

/// Ends a call, also one that waits for an approval.
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
    #[serde(deserialize_with = "crate::schema::named")]
    pub size: TerminalSize,
}

/// That it was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Empty {
    /// Why the record of it follows only when the ledger can be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_error: Option<String>,
}

/// State and result of a call.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CallInfo {
    pub call: u64,
    /// The command, path or URL, redacted and at most a thousand characters.
    pub summary: String,
    pub state: CallState,
    /// For `ringfence ledger show`.
    pub transaction: Option<String>,
    pub exit_code: Option<u8>,
    #[schemars(with = "Option<serde_json::Value>")]
    pub outcome: Option<Outcome>,
    #[schemars(with = "Option<serde_json::Value>")]
    pub refusal: Option<Refusal>,
    pub failure: Option<String>,
    /// How to resolve the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    #[schemars(with = "Option<serde_json::Value>")]
    pub posture: Option<Posture>,
    /// Only in the response to a call that was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<TextOrBase64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<TextOrBase64>,
    /// A warning of the loop guard, or that output was dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Number of secrets that were about to leave.
    #[serde(default)]
    pub leaks: u64,
    /// Why the outcome could not be recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_error: Option<String>,
    #[serde(skip)]
    pub details: CallDetails,
}

/// What a caller in the same process learns about a call besides its answer: leaks, flows and held changes. A result of a tool
/// shows it.
pub type CallDetails = Option<Box<serde_json::Map<String, serde_json::Value>>>;

impl CallInfo {
    /// A call that has begun.
    pub fn running(call: u64, summary: String) -> Self {
        Self {
            call,
            summary,
            state: CallState::Running,
            transaction: None,
            exit_code: None,
            outcome: None,
            refusal: None,
            failure: None,
            hint: None,
            posture: None,
            stdout: None,
            stderr: None,
            notice: None,
            leaks: 0,
            record_error: None,
            details: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CallState {
    /// Being evaluated, awaiting an approval, or running.
    Running,
    Done,
    Refused,
    Failed,
}

/// Fetches a URL for the agent, under the host rules and the scanner of the session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchUrl {
    #[schemars(with = "String")]
    pub session: SessionId,
    pub url: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FetchResult {
    pub transaction: Option<String>,
    pub status: u16,
    /// The final URL, after redirects.
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: TextOrBase64,
    #[serde(skip)]
    pub details: CallDetails,
}

/// The tools of a session over the Model Context Protocol: request and response bodies are messages of its streamable HTTP.
/// Each tool uses one or two of the other methods, with their scopes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpRequest {
    #[schemars(with = "String")]
    pub session: SessionId,
}

/// Evaluates an action without executing it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
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
pub struct ExplainResult {
    /// `allow`, `ask` or `deny`.
    pub decision: String,
    #[schemars(with = "Option<String>")]
    pub rule: Option<RuleName>,
    pub reason: Option<String>,
    pub hint: Option<String>,
    #[serde(skip)]
    pub details: CallDetails,
}
