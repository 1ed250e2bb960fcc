//! Messages of Codex's exec-server protocol (0.166.0): JSON-RPC without its version, one message per line.
//!
//! Unknown fields are ignored: the protocol grows with every version, and an unknown field grants nothing.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::file_uri::FileUri;

#[derive(Debug, Deserialize)]
pub(super) struct IncomingMessage {
    pub(super) id: Option<Value>,
    pub(super) method: String,
    #[serde(default)]
    pub(super) params: Value,
}

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RpcFault {
    pub(super) kind: FaultKind,
    pub(super) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// Also a refusal by policy, because a retry does not help.
    Invalid,
    UnknownMethod,
    Params,
    Internal,
    NotFound,
}

impl FaultKind {
    fn code(self) -> i32 {
        match self {
            Self::Invalid => -32600,
            Self::UnknownMethod => -32601,
            Self::Params => -32602,
            Self::Internal => -32603,
            Self::NotFound => -32004,
        }
    }
}

impl RpcFault {
    pub(super) fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(super) fn not_found() -> Self {
        Self::new(FaultKind::NotFound, "there is nothing of this name inside the fence")
    }

    pub(super) fn internal(error: impl std::fmt::Display) -> Self {
        Self::new(FaultKind::Internal, error.to_string())
    }
}

pub(super) fn params<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, RpcFault> {
    serde_json::from_value(value)
        .map_err(|error| RpcFault::new(FaultKind::Params, format!("the parameters make no sense: {error}")))
}

/// Writes answers and notifications, one line each.
#[derive(Debug)]
pub(super) struct MessageWriter(Mutex<io::Stdout>);

impl MessageWriter {
    pub(super) fn new() -> Self {
        Self(Mutex::new(io::stdout()))
    }

    pub(super) fn answer(&self, id: &Value, answer: Result<Value, RpcFault>) {
        self.send(&match answer {
            Ok(result) => json!({ "id": id, "result": result }),
            Err(fault) => {
                json!({ "id": id, "error": { "code": fault.kind.code(), "message": fault.message } })
            }
        });
    }

    pub(super) fn notify(&self, method: &str, params: &Value) {
        self.send(&json!({ "method": method, "params": params }));
    }

    fn send(&self, message: &Value) {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A client that is gone also closes the other direction, which ends the connection.
        let _gone = writeln!(out, "{message}").and_then(|()| out.flush());
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StartProcess {
    pub(super) process_id: String,
    pub(super) argv: Vec<String>,
    pub(super) cwd: FileUri,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) tty: bool,
    #[serde(default)]
    pub(super) pipe_stdin: bool,
    pub(super) arg0: Option<String>,
    #[serde(default)]
    pub(super) sandbox: Value,
    #[serde(default)]
    pub(super) enforce_managed_network: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProcessRequest {
    pub(super) process_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadOutput {
    pub(super) process_id: String,
    pub(super) after_seq: Option<u64>,
    pub(super) max_bytes: Option<usize>,
    pub(super) wait_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WriteInput {
    pub(super) process_id: String,
    pub(super) chunk: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PathRequest {
    pub(super) path: FileUri,
    #[serde(default)]
    pub(super) sandbox: Value,
    pub(super) recursive: Option<bool>,
    pub(super) force: Option<bool>,
    /// Content of a file write.
    pub(super) data_base64: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CopyRequest {
    pub(super) source_path: FileUri,
    pub(super) destination_path: FileUri,
    #[serde(default)]
    pub(super) recursive: bool,
    #[serde(default)]
    pub(super) sandbox: Value,
}

pub(super) fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn decoded(text: &str) -> Result<Vec<u8>, RpcFault> {
    STANDARD.decode(text).map_err(|error| RpcFault::new(FaultKind::Params, format!("not base64: {error}")))
}
