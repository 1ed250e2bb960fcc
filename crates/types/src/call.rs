use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::workspace::words;
use crate::{Bytes, NetMode, Root, StandardInput, UnknownWord, hex};

/// One operation asked for by an agent. An allegation until the pipeline has judged it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Call {
    Exec(Exec),
    File(FileCall),
    /// Everything a proposal changes, at once.
    Apply(Patch),
    /// A connection of something that runs inside, or one request in it.
    Flow(FlowCall),
    /// A page for the agent.
    Fetch(Fetch),
    /// A tool of another program, which the agent calls itself.
    Tool(ToolCall),
}

/// A command with everything that decides what it does: what is judged is what is executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    pub argv: Vec<Bytes>,
    pub cwd: Bytes,
    /// Variables the caller asks for on top of the cleared environment.
    pub env: Vec<(Bytes, Bytes)>,
    pub net: NetMode,
    /// The pipeline sets it from what the command is connected to; what a caller says here does not count.
    #[serde(default, skip_serializing_if = "StandardInput::is_none")]
    pub stdin: StandardInput,
}

/// An operation of the in-process file tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "kebab-case")]
pub enum FileCall {
    Read {
        path: Bytes,
    },
    Write {
        path: Bytes,
        sha256: String,
        bytes: u64,
    },
    List {
        path: Bytes,
    },
    Symlink {
        path: Bytes,
        target: Bytes,
    },
    /// What is there: its kind, size and times.
    Stat {
        path: Bytes,
    },
    Move {
        path: Bytes,
        to: Bytes,
    },
    Remove {
        path: Bytes,
    },
    /// For somebody outside: as it is, or not at all.
    Send {
        path: Bytes,
    },
}

impl FileCall {
    pub fn path(&self) -> &Bytes {
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

/// A set of changes to files that is applied whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// Sorted by path; no path twice.
    pub files: Vec<PatchedFile>,
}

/// One file before and after. At least one of the digests is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchedFile {
    /// Relative to the workspace.
    pub path: Bytes,
    /// SHA-256 of what must be there; `None`: nothing may be there.
    pub base: Option<String>,
    /// SHA-256 of what will be there; `None`: it is deleted.
    pub result: Option<String>,
    /// Length of what will be there.
    pub bytes: u64,
    /// What looks like a secret in what will be there and is not in what must be there.
    #[serde(default)]
    pub secrets: Vec<Introduced>,
}

/// Where something that looks like a secret would come into a file. Never the value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Introduced {
    /// The rule of the scanner.
    pub rule: String,
    /// Of the result, from 1.
    pub line: u64,
}

/// Where something inside wants to go. Without secrets: it is shown and recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCall {
    pub way: Way,
    /// As [`crate::Host`] writes it.
    pub host: String,
    pub port: u16,
    /// Where the proxy can read it: plain HTTP, and TLS that it inspects.
    #[serde(default)]
    pub request: Option<Fetch>,
    /// The one that is dialled, once it is known. What was asked about is the host.
    #[serde(default)]
    pub address: Option<IpAddr>,
}

/// One HTTP request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fetch {
    pub method: String,
    pub url: String,
    #[serde(default, skip_serializing_if = "Fetcher::is_ringfence")]
    pub by: Fetcher,
}

/// Who sends a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fetcher {
    /// Through the proxy, where each flow of it is judged.
    #[default]
    Ringfence,
    /// The agent in its own process, where nothing of it is seen afterwards.
    Agent,
}

impl Fetcher {
    fn is_ringfence(&self) -> bool {
        *self == Self::Ringfence
    }
}

impl Fetch {
    pub fn new(method: String, url: String) -> Self {
        Self { method, url, by: Fetcher::Ringfence }
    }

    /// One that an agent makes itself.
    pub fn by_agent(url: String) -> Self {
        Self { method: "GET".to_owned(), url, by: Fetcher::Agent }
    }
}

/// A tool that is none of ours, with what it is called with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    pub name: String,
    /// Of the whole input.
    pub sha256: String,
    pub bytes: u64,
    /// All of it until it is written down; then without secrets, and no more than a person reads.
    pub input: String,
}

impl ToolCall {
    /// In characters.
    const SHOWN: usize = 2048;

    pub fn new(name: &str, input: String) -> Self {
        let sha256 = hex(Sha256::digest(&input));
        Self { name: name.to_owned(), sha256, bytes: input.len() as u64, input }
    }

    /// How an input begins.
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
        /// A connection to an address that the namespace led to the proxy.
        Transparent = "transparent",
        /// A request to the proxy itself, for a provider whose base URL it is.
        Reverse = "reverse",
        /// Ringfence's own, for an agent.
        Fetch = "fetch",
    }
}

/// Digest of a call with the roots it may touch: the key of approvals and denials.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

impl Fingerprint {
    pub fn of(call: &Call, roots: &[Root]) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"ringfence action v1\0");
        match call {
            Call::Exec(exec) => {
                field(&mut hash, b"exec");
                exec.argv.iter().for_each(|arg| field(&mut hash, arg.as_slice()));
                field(&mut hash, b"cwd");
                field(&mut hash, exec.cwd.as_slice());
                for (name, value) in &exec.env {
                    field(&mut hash, name.as_slice());
                    field(&mut hash, value.as_slice());
                }
                field(&mut hash, exec.net.word().as_bytes());
                exec.stdin.fields(&mut |bytes| field(&mut hash, bytes));
            }
            Call::File(file) => file_fields(&mut hash, file),
            Call::Apply(patch) => patch_fields(&mut hash, patch),
            Call::Flow(flow) => flow_fields(&mut hash, flow),
            Call::Fetch(fetch) => {
                field(&mut hash, b"fetch");
                fetch_fields(&mut hash, fetch);
            }
            Call::Tool(tool) => {
                field(&mut hash, b"tool");
                field(&mut hash, tool.name.as_bytes());
                field(&mut hash, tool.sha256.as_bytes());
            }
        }
        for root in roots {
            field(&mut hash, root.path.as_slice());
            field(&mut hash, root.access.word().as_bytes());
        }
        Self(hex(hash.finalize()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn file_fields(hash: &mut Sha256, file: &FileCall) {
    match file {
        FileCall::Read { path } => {
            field(hash, b"read");
            field(hash, path.as_slice());
        }
        FileCall::Write { path, sha256, .. } => {
            field(hash, b"write");
            field(hash, path.as_slice());
            field(hash, sha256.as_bytes());
        }
        FileCall::List { path } => {
            field(hash, b"list");
            field(hash, path.as_slice());
        }
        FileCall::Symlink { path, target } => {
            field(hash, b"symlink");
            field(hash, path.as_slice());
            field(hash, target.as_slice());
        }
        FileCall::Stat { path } => {
            field(hash, b"stat");
            field(hash, path.as_slice());
        }
        FileCall::Move { path, to } => {
            field(hash, b"move");
            field(hash, path.as_slice());
            field(hash, to.as_slice());
        }
        FileCall::Remove { path } => {
            field(hash, b"remove");
            field(hash, path.as_slice());
        }
        FileCall::Send { path } => {
            field(hash, b"send");
            field(hash, path.as_slice());
        }
    }
}

fn patch_fields(hash: &mut Sha256, patch: &Patch) {
    field(hash, b"apply");
    for file in &patch.files {
        field(hash, file.path.as_slice());
        for digest in [&file.base, &file.result] {
            field(hash, digest.as_deref().unwrap_or("none").as_bytes());
        }
        for secret in &file.secrets {
            field(hash, secret.rule.as_bytes());
            field(hash, &secret.line.to_le_bytes());
        }
    }
}

/// Not the way: whoever may reach a host may reach it on every one.
fn flow_fields(hash: &mut Sha256, flow: &FlowCall) {
    field(hash, b"flow");
    field(hash, flow.host.as_bytes());
    field(hash, &flow.port.to_le_bytes());
    flow.request.iter().for_each(|request| fetch_fields(hash, request));
}

fn fetch_fields(hash: &mut Sha256, fetch: &Fetch) {
    field(hash, fetch.method.as_bytes());
    field(hash, fetch.url.as_bytes());
    if fetch.by == Fetcher::Agent {
        field(hash, b"agent");
    }
}

/// Length first, so that no two lists of fields have the same bytes.
fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

/// Strictest last, so that the strictest of several is their maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    Allow,
    Ask,
    Deny,
}

/// Who decided. Later layers may only narrow what earlier ones left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    Floor,
    Flags,
    Operator,
    Workspace,
    Session,
    Call,
}

impl fmt::Display for Layer {
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

/// The answer was no. A value, not an error: it is shown, counted and written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: RefusalCode,
    pub layer: Layer,
    /// The rule that decided, as a person would look it up.
    pub rule: String,
    pub message: String,
    /// The one thing that would change the answer.
    pub hint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalCode {
    /// The profile does not allow this kind of call.
    Profile,
    /// A variable that steers other programs, or a reserved one.
    Environment,
    /// The workspace cannot be one.
    Workspace,
    /// The path is outside the roots, protected, or on the deny list.
    Path,
    /// The network mode or host cannot be had.
    Network,
    /// Something that weakens a guarantee was asked for without the flag that allows it.
    Danger,
    /// A required control is missing on this machine.
    Floor,
    /// The record cannot be written, so nothing may happen.
    Ledger,
    /// A rule about commands denies it.
    Command,
    /// A person has to decide, and nobody did, or the answer was no.
    Approval,
    /// The same again and again.
    Loop,
    /// A rule about tools denies it.
    Tool,
    /// A secret may not go where it was asked for.
    Secret,
    /// What is there is not what the call was made for.
    Conflict,
    /// Nobody knows who asks, or they may not.
    Identity,
    /// The call itself makes no sense (empty command, NUL byte, …).
    Malformed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    fn exec(argv: &[&str]) -> Call {
        Call::Exec(Exec {
            argv: argv.iter().map(|a| Bytes::from(*a)).collect(),
            cwd: Bytes::from("/w"),
            env: Vec::new(),
            net: NetMode::None,
            stdin: StandardInput::None,
        })
    }

    #[test]
    fn fingerprint_separates_fields() {
        let roots = [Root { path: Bytes::from("/w"), access: Access::Write }];
        let joined = Fingerprint::of(&exec(&["a b"]), &roots);
        assert_ne!(joined, Fingerprint::of(&exec(&["a", "b"]), &roots));
        assert_eq!(joined, Fingerprint::of(&exec(&["a b"]), &roots));
    }

    #[test]
    fn standard_input_is_part_of_the_fingerprint() {
        let with = |stdin: StandardInput| match exec(&["patch", "-p1"]) {
            Call::Exec(exec) => Fingerprint::of(&Call::Exec(Exec { stdin, ..exec }), &[]),
            other => Fingerprint::of(&other, &[]),
        };
        let kinds = [
            StandardInput::None,
            StandardInput::Terminal,
            StandardInput::Stream,
            StandardInput::of_bytes(b"one"),
            StandardInput::of_bytes(b"two"),
        ];
        let prints: std::collections::HashSet<Fingerprint> = kinds.iter().cloned().map(with).collect();
        assert_eq!(prints.len(), kinds.len());
    }

    #[test]
    fn strictest_decision_is_the_maximum() {
        assert_eq!([Decision::Allow, Decision::Deny, Decision::Ask].iter().max(), Some(&Decision::Deny));
    }
}
