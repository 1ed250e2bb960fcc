//! File operations of Codex. Reading, writing and listing use the file tools of the session; other operations
//! run a command inside the fence.

use std::path::{Path, PathBuf};

use ringfence_runtime::{
    CallEnd, CommandIo, EffectOutput, OutputTarget, SessionShared, Settled, StdinSource,
};
use ringfence_types::{Access, ByteString, Call, ExecCall, FileCall, NetMode, StandardInput};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::CodexSessions;
use super::codex_sandbox::RequestedSandbox;
use super::file_uri::address;
use super::wire::{CopyRequest, FaultKind, PathRequest, RpcFault, decoded, encoded};
use ringfence_types::RefusalNotice;

type CodexFileResult = Result<Value, RpcFault>;

/// An entry of a directory, as the file tools list it.
pub(super) struct CodexDirEntry {
    pub(super) name: String,
    pub(super) kind: CodexFileKind,
    bytes: u64,
    modified_ms: i64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CodexFileKind {
    Directory,
    File,
    Link,
    Other,
}

/// The files of one session.
pub(super) struct CodexFiles<'s, 'r> {
    bound: &'s SessionShared<'r>,
}

impl<'s, 'r> CodexFiles<'s, 'r> {
    pub(super) fn of(sessions: &'s CodexSessions<'r>, sandbox: &Value) -> Result<Self, RpcFault> {
        let intent = RequestedSandbox::of(sandbox, &sessions.writing.workspace().path)?;
        Ok(Self { bound: sessions.of(intent.access, NetMode::None) })
    }

    pub(super) fn read(&self, of: &PathRequest) -> CodexFileResult {
        let bytes = self.content(of.path.path())?;
        Ok(json!({ "dataBase64": encoded(&bytes) }))
    }

    pub(super) fn write(&self, of: &PathRequest) -> CodexFileResult {
        let data = of.data_base64.as_deref();
        let data =
            data.ok_or_else(|| RpcFault::new(FaultKind::Params, "a file is written with `dataBase64`"))?;
        let content = decoded(data)?;
        let sha256 = ringfence_types::hex(Sha256::digest(&content));
        let path = ByteString::from(of.path.path());
        let call = FileCall::Write { path, sha256, bytes: content.len() as u64 };
        match self.call(Call::File(call), StdinSource::Bytes(&content)).ended {
            CallEnd::Touched(EffectOutput::Written) => Ok(json!({})),
            // Codex makes the directory and retries.
            CallEnd::Failed { .. } if of.path.path().parent().is_some_and(|above| self.is_missing(above)) => {
                Err(RpcFault::not_found())
            }
            other => Err(self.fault("write", of.path.path(), &other)),
        }
    }

    pub(super) fn metadata(&self, of: &PathRequest) -> CodexFileResult {
        let path = of.path.path();
        let entry = self.entry(path)?;
        let (kind, bytes) = match entry.kind {
            CodexFileKind::Link => self.beyond(path)?,
            kind => (kind, entry.bytes),
        };
        Ok(json!({
            "isDirectory": kind == CodexFileKind::Directory, "isFile": kind == CodexFileKind::File, "isSymlink": entry.kind == CodexFileKind::Link,
            "size": bytes, "createdAtMs": 0, "modifiedAtMs": entry.modified_ms,
        }))
    }

    pub(super) fn list(&self, of: &PathRequest) -> CodexFileResult {
        let entries = self.entries(of.path.path())?;
        let entries: Vec<Value> = entries
            .iter()
            .map(|entry| {
                json!({ "fileName": entry.name, "isDirectory": entry.kind == CodexFileKind::Directory, "isFile": entry.kind == CodexFileKind::File })
            })
            .collect();
        Ok(json!({ "entries": entries }))
    }

    /// The target of a path, if it is inside a root.
    pub(super) fn canonical(&self, of: &PathRequest) -> CodexFileResult {
        let path = of.path.path();
        self.entry(path)?;
        let real = std::fs::canonicalize(path).ok().filter(|real| self.root_of(real).is_some());
        Ok(json!({ "path": address(&real.ok_or_else(RpcFault::not_found)?) }))
    }

    pub(super) fn make_directory(&self, of: &PathRequest) -> CodexFileResult {
        let options: &[&str] = if of.recursive == Some(true) { &["-p"] } else { &[] };
        self.command("mkdir", options, &[of.path.path()])
    }

    pub(super) fn remove(&self, of: &PathRequest) -> CodexFileResult {
        let mut options = Vec::new();
        options.extend((of.recursive == Some(true)).then_some("-r"));
        options.extend((of.force == Some(true)).then_some("-f"));
        self.command("rm", &options, &[of.path.path()])
    }

    pub(super) fn copy(&self, copy: &CopyRequest) -> CodexFileResult {
        let options: &[&str] = if copy.recursive { &["-R", "-T"] } else { &["-T"] };
        self.command("cp", options, &[copy.source_path.path(), copy.destination_path.path()])
    }

    fn call(&self, call: Call, stdin: StdinSource<'_>) -> Settled {
        let io = CommandIo {
            stdin,
            stdout: OutputTarget::Discard,
            stderr: OutputTarget::Discard,
            interrupts: &[],
            timeout: None,
            output_bytes: 0,
        };
        self.bound.call_handle().call(call, io)
    }

    fn content(&self, path: &Path) -> Result<Vec<u8>, RpcFault> {
        let call = Call::File(FileCall::Read { path: ByteString::from(path) });
        match self.call(call, StdinSource::Empty).ended {
            CallEnd::Touched(EffectOutput::Read(bytes)) => Ok(bytes),
            // A missing file has its own error code.
            CallEnd::Failed { .. } if self.is_missing(path) => Err(RpcFault::not_found()),
            other => Err(self.fault("read", path, &other)),
        }
    }

    pub(super) fn entries(&self, path: &Path) -> Result<Vec<CodexDirEntry>, RpcFault> {
        let call = Call::File(FileCall::List { path: ByteString::from(path) });
        let listed = match self.call(call, StdinSource::Empty).ended {
            CallEnd::Touched(EffectOutput::Listed(listed)) => listed,
            CallEnd::Failed { .. } if self.is_missing(path) => return Err(RpcFault::not_found()),
            other => return Err(self.fault("list", path, &other)),
        };
        let entry = |entry: ringfence_runtime::ListedEntry| CodexDirEntry {
            name: entry.name.to_string_lossy().into_owned(),
            kind: match entry.kind {
                ringfence_types::EntryKind::Directory => CodexFileKind::Directory,
                ringfence_types::EntryKind::File => CodexFileKind::File,
                ringfence_types::EntryKind::Link => CodexFileKind::Link,
                ringfence_types::EntryKind::Other => CodexFileKind::Other,
            },
            bytes: entry.bytes,
            modified_ms: entry.modified_ms,
        };
        Ok(listed.into_iter().map(entry).collect())
    }

    /// The directory's entry for a path. A path outside the roots is reported as missing.
    fn entry(&self, path: &Path) -> Result<CodexDirEntry, RpcFault> {
        let root = self.root_of(path).ok_or_else(RpcFault::not_found)?;
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(RpcFault::not_found());
        };
        if path == root {
            self.entries(path)?;
            return Ok(CodexDirEntry {
                name: String::new(),
                kind: CodexFileKind::Directory,
                bytes: 0,
                modified_ms: 0,
            });
        }
        let name = name.to_string_lossy();
        self.entries(above)?.into_iter().find(|entry| entry.name == name).ok_or_else(RpcFault::not_found)
    }

    fn is_missing(&self, path: &Path) -> bool {
        self.entry(path).is_err_and(|fault| fault.kind == FaultKind::NotFound)
    }

    /// The target of a link, if it may be read.
    fn beyond(&self, path: &Path) -> Result<(CodexFileKind, u64), RpcFault> {
        if self.entries(path).is_ok() {
            return Ok((CodexFileKind::Directory, 0));
        }
        self.content(path).map(|bytes| (CodexFileKind::File, bytes.len() as u64))
    }

    fn root_of(&self, path: &Path) -> Option<PathBuf> {
        let asked = self.bound.asked();
        let open = asked.roots.iter().filter(|root| root.access != Access::None);
        let mut roots =
            open.map(|root| root.path.as_path().to_owned()).chain([self.bound.workspace().path.clone()]);
        roots.find(|root| path.starts_with(root))
    }

    fn command(&self, program: &str, options: &[&str], paths: &[&Path]) -> CodexFileResult {
        let mut argv: Vec<ByteString> =
            [&[program], options, &["--"]].concat().into_iter().map(ByteString::from).collect();
        argv.extend(paths.iter().map(|path| ByteString::from(*path)));
        let cwd = ByteString::from(self.bound.workspace().path.as_path());
        let exec = ExecCall {
            argv,
            cwd,
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        };
        let mut stderr = Vec::new();
        let io = CommandIo {
            stdin: StdinSource::Empty,
            stdout: OutputTarget::Discard,
            stderr: OutputTarget::Buffer(&mut stderr),
            interrupts: &[],
            timeout: None,
            output_bytes: 0,
        };
        let settled = self.bound.call_handle().call(Call::Exec(exec), io);
        let first = paths.first().copied().unwrap_or(Path::new("/"));
        match &settled.ended {
            CallEnd::Executed(outcome) if outcome.exit.code() == 0 => Ok(json!({})),
            CallEnd::Executed(_) if program != "mkdir" && self.is_missing(first) => {
                Err(RpcFault::not_found())
            }
            CallEnd::Executed(_) => Err(RpcFault::internal(String::from_utf8_lossy(&stderr).trim())),
            other => Err(self.fault(program, first, other)),
        }
    }

    fn fault(&self, verb: &str, path: &Path, ended: &CallEnd) -> RpcFault {
        let what = format!("{verb} {}", ByteString::from(path).display());
        match ended {
            CallEnd::Refused(refusal) => {
                let denial = RefusalNotice::of(&what, refusal, Some(&self.bound.workspace().path));
                RpcFault::new(FaultKind::Invalid, denial.text())
            }
            CallEnd::Failed { what, .. } => RpcFault::internal(what),
            CallEnd::Executed(_) | CallEnd::Touched(_) => RpcFault::internal("something else was done"),
        }
    }
}
