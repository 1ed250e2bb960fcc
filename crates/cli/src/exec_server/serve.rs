//! One connection: requests come line by line, each is answered from a thread of its own.

use std::io::{self, BufRead as _, Read as _};
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use super::Sessions;
use super::files::Files;
use super::path::address;
use super::process::Processes;
use super::walk::{Walk, walk};
use super::wire::{Copy, Fault, FaultKind, Incoming, OfPath, Outgoing, params};

/// Longer than a file that may be read, in base64.
const LONGEST: u64 = 64 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    #[error("standard input cannot be read")]
    Unread(#[source] io::Error),
    #[error("a message is longer than {LONGEST} bytes")]
    TooLong,
    #[error("a message is not what Codex sends to an exec-server")]
    Garbage(#[source] serde_json::Error),
}

/// Until the client is gone; what still runs is ended with it.
pub(super) fn connection(sessions: &Sessions<'_>) -> Result<(), ServeError> {
    let out = Outgoing::new();
    thread::scope(|scope| {
        let processes = std::sync::Arc::new(Processes::new(scope, sessions, &out));
        let mut begun = Begun::No;
        let served = loop {
            let incoming = match next() {
                Ok(Some(incoming)) => incoming,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let Some(id) = incoming.id.clone() else { continue };
            if begun == Begun::No {
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

/// Whether the client has said who it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    No,
    Yes,
}

fn next() -> Result<Option<Incoming>, ServeError> {
    let mut line = Vec::new();
    let read = io::stdin().lock().take(LONGEST).read_until(b'\n', &mut line).map_err(ServeError::Unread)?;
    match read as u64 {
        0 => Ok(None),
        LONGEST => Err(ServeError::TooLong),
        _ => serde_json::from_slice(&line).map(Some).map_err(ServeError::Garbage),
    }
}

fn greeted(out: &Outgoing, sessions: &Sessions<'_>, incoming: &Incoming, id: &Value) -> Begun {
    if incoming.method != "initialize" {
        out.answer(id, Err(Fault::new(FaultKind::Invalid, "`initialize` comes first")));
        return Begun::No;
    }
    let session = sessions.writing.id().as_str();
    out.answer(id, Ok(json!({ "sessionId": session, "environmentInfo": environment(sessions) })));
    Begun::Yes
}

/// Of what Codex could use beyond the beginnings, nothing is promised.
fn environment(sessions: &Sessions<'_>) -> Value {
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
    sessions: &Sessions<'_>,
    processes: &Processes<'_, '_>,
    Incoming { method, params: sent, .. }: Incoming,
) -> Result<Value, Fault> {
    match method.as_str() {
        "environment/info" => Ok(environment(sessions)),
        "environment/status" => Ok(json!({ "status": "ready" })),
        "process/start" => processes.start(params(sent)?),
        "process/read" => processes.read(&params(sent)?),
        "process/write" => processes.write(&params(sent)?),
        "process/signal" => Ok(processes.interrupt(&params(sent)?)),
        "process/terminate" => Ok(processes.terminate(&params(sent)?)),
        "fs/copy" => {
            let copy: Copy = params(sent)?;
            Files::of(sessions, &copy.sandbox)?.copy(&copy)
        }
        "fs/walk" => {
            let wanted: Walk = params(sent)?;
            walk(&Files::of(sessions, &wanted.sandbox)?, &wanted)
        }
        _ if method.starts_with("fs/") => {
            let act = file_method(&method).ok_or_else(|| unknown(&method))?;
            let of: OfPath = params(sent)?;
            act(&Files::of(sessions, &of.sandbox)?, &of)
        }
        _ => Err(unknown(&method)),
    }
}

type FileMethod = fn(&Files<'_, '_>, &OfPath) -> Result<Value, Fault>;

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

fn unknown(method: &str) -> Fault {
    Fault::new(FaultKind::UnknownMethod, format!("`{method}` is not done here"))
}
