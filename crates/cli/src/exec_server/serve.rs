//! One connection: reads requests line by line and answers each from its own thread.

use std::io::{self, BufRead as _, Read as _};
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use super::CodexSessions;
use super::file_uri::address;
use super::files::CodexFiles;
use super::process::Processes;
use super::walk::{WalkRequest, walk};
use super::wire::{CopyRequest, FaultKind, IncomingMessage, MessageWriter, PathRequest, RpcFault, params};

/// Larger than a readable file in base64.
const LONGEST: u64 = 64 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum ExecServerError {
    #[error("standard input cannot be read")]
    Unread(#[source] io::Error),
    #[error("a message is longer than {LONGEST} bytes")]
    TooLong,
    #[error("a message is not what Codex sends to an exec-server")]
    Garbage(#[source] serde_json::Error),
}

/// Serves until the client is gone, then ends its processes.
pub(super) fn connection(sessions: &CodexSessions<'_>) -> Result<(), ExecServerError> {
    let out = MessageWriter::new();
    thread::scope(|scope| {
        let processes = std::sync::Arc::new(Processes::new(scope, sessions, &out));
        let mut begun = HandshakeState::No;
        let served = loop {
            let incoming = match next() {
                Ok(Some(incoming)) => incoming,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let Some(id) = incoming.id.clone() else { continue };
            if begun == HandshakeState::No {
                begun = greeted(&out, sessions, &incoming, &id);
                continue;
            }
            let (processes, out) = (std::sync::Arc::clone(&processes), &out);
            scope.spawn(move || out.answer(&id, answer(sessions, &processes, incoming)));
        };
        processes.end();
        served
    })
}

/// Whether the client has identified itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HandshakeState {
    No,
    Yes,
}

fn next() -> Result<Option<IncomingMessage>, ExecServerError> {
    let mut line = Vec::new();
    let read =
        io::stdin().lock().take(LONGEST).read_until(b'\n', &mut line).map_err(ExecServerError::Unread)?;
    match read as u64 {
        0 => Ok(None),
        LONGEST => Err(ExecServerError::TooLong),
        _ => serde_json::from_slice(&line).map(Some).map_err(ExecServerError::Garbage),
    }
}

fn greeted(
    out: &MessageWriter,
    sessions: &CodexSessions<'_>,
    incoming: &IncomingMessage,
    id: &Value,
) -> HandshakeState {
    if incoming.method != "initialize" {
        out.answer(id, Err(RpcFault::new(FaultKind::Invalid, "`initialize` comes first")));
        return HandshakeState::No;
    }
    let session = sessions.writing.id().as_str();
    out.answer(id, Ok(json!({ "sessionId": session, "environmentInfo": environment(sessions) })));
    HandshakeState::Yes
}

/// Announces no optional features of the protocol.
fn environment(sessions: &CodexSessions<'_>) -> Value {
    const BASH: &str = "/bin/bash";
    let (name, path) = if Path::new(BASH).exists() { ("bash", BASH) } else { ("sh", "/bin/sh") };
    json!({
        "shell": { "name": name, "path": path },
        "cwd": address(&sessions.writing.workspace().path),
        "tempDir": "file:///tmp",
        "platformOs": "linux",
        "executorVersion": env!("CARGO_PKG_VERSION"),
        "capabilities": {},
    })
}

fn answer(
    sessions: &CodexSessions<'_>,
    processes: &Processes<'_, '_>,
    IncomingMessage { method, params: sent, .. }: IncomingMessage,
) -> Result<Value, RpcFault> {
    match method.as_str() {
        "environment/info" => Ok(environment(sessions)),
        "environment/status" => Ok(json!({ "status": "ready" })),
        "process/start" => processes.start(params(sent)?),
        "process/read" => processes.read(&params(sent)?),
        "process/write" => processes.write(&params(sent)?),
        "process/signal" => Ok(processes.interrupt(&params(sent)?)),
        "process/terminate" => Ok(processes.terminate(&params(sent)?)),
        "fs/copy" => {
            let copy: CopyRequest = params(sent)?;
            CodexFiles::of(sessions, &copy.sandbox)?.copy(&copy)
        }
        "fs/walk" => {
            let wanted: WalkRequest = params(sent)?;
            walk(&CodexFiles::of(sessions, &wanted.sandbox)?, &wanted)
        }
        _ if method.starts_with("fs/") => {
            let act = file_method(&method).ok_or_else(|| unknown(&method))?;
            let of: PathRequest = params(sent)?;
            act(&CodexFiles::of(sessions, &of.sandbox)?, &of)
        }
        _ => Err(unknown(&method)),
    }
}

type FileMethod = fn(&CodexFiles<'_, '_>, &PathRequest) -> Result<Value, RpcFault>;

fn file_method(method: &str) -> Option<FileMethod> {
    Some(match method {
        "fs/readFile" => |files, of| files.read(of),
        "fs/writeFile" => |files, of| files.write(of),
        "fs/getMetadata" => |files, of| files.metadata(of),
        "fs/readDirectory" => |files, of| files.list(of),
        "fs/canonicalize" => |files, of| files.canonical(of),
        "fs/createDirectory" => |files, of| files.make_directory(of),
        "fs/remove" => |files, of| files.remove(of),
        _ => return None,
    })
}

fn unknown(method: &str) -> RpcFault {
    RpcFault::new(FaultKind::UnknownMethod, format!("`{method}` is not done here"))
}
