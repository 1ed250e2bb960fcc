//! Calls, decisions and refusals.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::workspace::words;
use crate::{ByteString, CallCeiling, Landing, NetMode, RuleName, StandardInput, UnknownKeyword, hex};

/// One operation that an agent asks for. Untrusted until the pipeline has evaluated it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Call {
    Exec(ExecCall),
    File(FileCall),
    /// All changes of a proposal, atomically.
    Apply(Patch),
    /// Changes of a layer, into the roots or back out of them.
    Land(Landing),
    /// A connection from inside, or one request in it.
    Flow(FlowCall),
    /// A page fetched for the agent.
    Fetch(FetchCall),
    /// A tool of another program, which the agent calls itself.
    Tool(ToolCall),
}

/// A command with everything that determines its effect: the evaluated command is the executed one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecCall {
    pub argv: Vec<ByteString>,
    pub cwd: ByteString,
    /// Variables requested in addition to the cleared environment.
    pub env: Vec<(ByteString, ByteString)>,
    /// A ceiling below that of the session, for this command only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<Box<CallCeiling>>,
    pub net: NetMode,
    /// Set by the pipeline from the actual standard input; a value from the caller is ignored.
    #[serde(default, skip_serializing_if = "StandardInput::is_none")]
    pub stdin: StandardInput,
}

/// An operation of the in-process file tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "kebab-case")]
pub enum FileCall {
    Read {
        path: ByteString,
    },
    Write {
        path: ByteString,
        sha256: String,
        bytes: u64,
    },
    List {
        path: ByteString,
    },
    Symlink {
        path: ByteString,
        target: ByteString,
    },
    /// Kind, size and times of an entry.
    Stat {
        path: ByteString,
    },
    Move {
        path: ByteString,
        to: ByteString,
    },
    Remove {
        path: ByteString,
    },
    /// Sends a file out of the session, unchanged or not at all.
    Send {
        path: ByteString,
    },
}

impl FileCall {
    pub fn path(&self) -> &ByteString {
        match self {
            Self::Read { path }
            | Self::Write { path, .. }
            | Self::List { path }
            | Self::Symlink { path, .. }
            | Self::Stat { path }
            | Self::Move { path, .. }
            | Self::Remove { path }
            | Self::Send { path } => path,
        }
    }
}

/// Changes to files that are applied atomically.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// Sorted by path; no path twice.
    pub files: Vec<PatchedFile>,
}

/// One file before and after. At least one of the digests is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchedFile {
    /// Relative to the workspace.
    pub path: ByteString,
    /// SHA-256 of the expected content; `None`: the file must not exist.
    pub base: Option<String>,
    /// SHA-256 of the new content; `None`: the file is deleted.
    pub result: Option<String>,
    /// Length of the new content.
    pub bytes: u64,
    /// Findings in the new content that the old content does not have.
    #[serde(default)]
    pub secrets: Vec<IntroducedSecret>,
}

/// Location of a possible secret that a patch adds. Never holds the value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IntroducedSecret {
    /// The rule of the scanner.
    pub rule: String,
    /// Of the result, from 1.
    pub line: u64,
}

/// Target of a flow. Secrets are redacted, because it is shown and recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCall {
    pub way: Way,
    /// As [`crate::Host`] writes it.
    pub host: String,
    pub port: u16,
    /// Set where the proxy can read it: plain HTTP, and inspected TLS.
    #[serde(default)]
    pub request: Option<FetchCall>,
    /// The dialled address, once known. Decisions are about the host.
    #[serde(default)]
    pub address: Option<IpAddr>,
}

/// One HTTP request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FetchCall {
    pub method: String,
    pub url: String,
    #[serde(default, skip_serializing_if = "FetchOrigin::is_ringfence")]
    pub by: FetchOrigin,
}

/// Sender of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FetchOrigin {
    /// The proxy, which evaluates each flow.
    #[default]
    Ringfence,
    /// The agent's own process. Ringfence sees nothing after the decision.
    Agent,
}

impl FetchOrigin {
    fn is_ringfence(&self) -> bool {
        *self == Self::Ringfence
    }
}

impl FetchCall {
    pub fn new(method: String, url: String) -> Self {
        Self { method, url, by: FetchOrigin::Ringfence }
    }

    /// A request that an agent makes itself.
    pub fn by_agent(url: String) -> Self {
        Self { method: "GET".to_owned(), url, by: FetchOrigin::Agent }
    }
}

/// A tool that is not built in, with its input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    pub name: String,
    /// Digest of the whole input.
    pub sha256: String,
    pub bytes: u64,
    /// The whole input until it is recorded; then redacted and shortened.
    pub input: String,
}

impl ToolCall {
    /// In characters.
    const SHOWN: usize = 2048;

    pub fn new(name: &str, input: String) -> Self {
        let sha256 = hex(Sha256::digest(&input));
        Self { name: name.to_owned(), sha256, bytes: input.len() as u64, input }
    }

    /// Shortens an input for display.
    pub fn shortened(input: &str) -> String {
        match input.char_indices().nth(Self::SHOWN) {
            None => input.to_owned(),
            Some((end, _)) => format!("{}...", input.get(..end).unwrap_or_default()),
        }
    }
}

words! {
    /// How a flow came to the proxy.
    Way("way") {
        Connect = "connect",
        Forward = "forward",
        Socks = "socks",
        /// A connection to another address, redirected to the proxy.
        Transparent = "transparent",
        /// A request to the proxy itself, under the base URL of a provider.
        Reverse = "reverse",
        /// A fetch by Ringfence for an agent.
        Fetch = "fetch",
    }
}

/// Ordered by strictness, so that the maximum of several is the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    Allow,
    Ask,
    Deny,
}

/// Source of a decision. Later layers only narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyLayer {
    Floor,
    Flags,
    Operator,
    Workspace,
    Session,
    Call,
}

impl fmt::Display for PolicyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Floor => "floor",
            Self::Flags => "flags",
            Self::Operator => "operator",
            Self::Workspace => "workspace",
            Self::Session => "session",
            Self::Call => "call",
        })
    }
}

/// The answer to a call was no. A value, not an error: it is shown, counted and recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: RefusalCode,
    pub layer: PolicyLayer,
    pub rule: RuleName,
    pub message: String,
    /// The next step that would change the answer.
    pub hint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalCode {
    /// The profile does not allow this kind of call.
    Profile,
    /// A variable that steers other programs, or a reserved one.
    Environment,
    /// The directory cannot be a workspace.
    Workspace,
    /// The path is outside the roots, protected, or on the deny list.
    Path,
    /// The network mode or host is not available.
    Network,
    /// A guarantee would be weakened without the flag that permits it.
    Danger,
    /// A required control is missing on this machine.
    Floor,
    /// The record cannot be written, so no effect may happen.
    Ledger,
    /// A rule about commands denies it.
    Command,
    /// An approval was needed and was denied or not given.
    Approval,
    /// The loop guard stopped a repeated call.
    Loop,
    /// A rule about tools denies it.
    Tool,
    /// The secret may not be released there.
    Secret,
    /// The current state differs from what the call expects.
    Conflict,
    /// The caller is unknown or lacks a right.
    Identity,
    /// The call is invalid (empty command, NUL byte, …).
    Malformed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strictest_decision_is_the_maximum() {
        assert_eq!([Decision::Allow, Decision::Deny, Decision::Ask].iter().max(), Some(&Decision::Deny));
    }
}
