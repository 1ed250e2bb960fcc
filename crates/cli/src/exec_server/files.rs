//! The file work of Codex. Reading, writing and listing are the file tools of the session; what they have no word for is a
//! command inside the fence.

use std::path::{Path, PathBuf};

use ringfence_runtime::{Bound, Ended, Io, Settled, Source, Target, Touched};
use ringfence_types::{Access, Bytes, Call, Exec, FileCall, NetMode, StandardInput};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Sessions;
use super::intent::Intent;
use super::path::address;
use super::wire::{Copy, Fault, FaultKind, OfPath, decoded, encoded};
use ringfence_types::Denial;

type Answer = Result<Value, Fault>;

/// An entry of a directory, as the file tools list it.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) kind: Kind,
    bytes: u64,
    modified_ms: i64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    File,
    Link,
    Other,
}

/// The files of one session.
pub(super) struct Files<'s, 'r> {
    bound: &'s Bound<'r>,
}

impl<'s, 'r> Files<'s, 'r> {
    pub(super) fn of(sessions: &'s Sessions<'r>, sandbox: &Value) -> Result<Self, Fault> {
        let intent = Intent::of(sandbox, &sessions.writing.workspace().path)?;
        Ok(Self { bound: sessions.of(intent.access, NetMode::None) })
    }

    pub(super) fn read(&self, of: &OfPath) -> Answer {
        let bytes = self.content(of.path.path())?;
        Ok(json!({ "dataBase64": encoded(&bytes) }))
    }

    pub(super) fn write(&self, of: &OfPath) -> Answer {
        let data = of.data_base64.as_deref();
        let data =
            data.ok_or_else(|| Fault::new(FaultKind::Params, "a file is written with `dataBase64`"))?;
        let content = decoded(data)?;
        let sha256 = ringfence_types::hex(Sha256::digest(&content));
        let path = Bytes::from(of.path.path());
        let call = FileCall::Write { path, sha256, bytes: content.len() as u64 };
        match self.call(Call::File(call), Source::Bytes(&content)).ended {
            Ended::Touched(Touched::Written) => Ok(json!({})),
            // Codex makes the directory and comes again.
            Ended::Failed { .. } if of.path.path().parent().is_some_and(|above| self.is_missing(above)) => {
                Err(Fault::not_found())
            }
            other => Err(self.fault("write", of.path.path(), &other)),
        }
    }

    pub(super) fn metadata(&self, of: &OfPath) -> Answer {
        let path = of.path.path();
        let entry = self.entry(path)?;
        let (kind, bytes) = match entry.kind {
            Kind::Link => self.beyond(path)?,
            kind => (kind, entry.bytes),
        };
        Ok(json!({
            "isDirectory": kind == Kind::Directory, "isFile": kind == Kind::File, "isSymlink": entry.kind == Kind::Link,
            "size": bytes, "createdAtMs": 0, "modifiedAtMs": entry.modified_ms,
        }))
    }

    pub(super) fn list(&self, of: &OfPath) -> Answer {
        let entries = self.entries(of.path.path())?;
        let entries: Vec<Value> = entries
            .iter()
            .map(|entry| {
                json!({ "fileName": entry.name, "isDirectory": entry.kind == Kind::Directory, "isFile": entry.kind == Kind::File })
            })
            .collect();
        Ok(json!({ "entries": entries }))
    }

    /// Where it leads, if that is inside as well.
    pub(super) fn canonical(&self, of: &OfPath) -> Answer {
        let path = of.path.path();
        self.entry(path)?;
        let real = std::fs::canonicalize(path).ok().filter(|real| self.root_of(real).is_some());
        Ok(json!({ "path": address(&real.ok_or_else(Fault::not_found)?) }))
    }

    pub(super) fn make_directory(&self, of: &OfPath) -> Answer {
        let options: &[&str] = if of.recursive == Some(true) { &["-p"] } else { &[] };
        self.command("mkdir", options, &[of.path.path()])
    }

    pub(super) fn remove(&self, of: &OfPath) -> Answer {
        let mut options = Vec::new();
        options.extend((of.recursive == Some(true)).then_some("-r"));
        options.extend((of.force == Some(true)).then_some("-f"));
        self.command("rm", &options, &[of.path.path()])
    }

    pub(super) fn copy(&self, copy: &Copy) -> Answer {
        let options: &[&str] = if copy.recursive { &["-R", "-T"] } else { &["-T"] };
        self.command("cp", options, &[copy.source_path.path(), copy.destination_path.path()])
    }

    fn call(&self, call: Call, stdin: Source<'_>) -> Settled {
        let io = Io {
            stdin,
            stdout: Target::Discard,
            stderr: Target::Discard,
            interrupts: &[],
            timeout: None,
            output_bytes: 0,
        };
        self.bound.lane().call(call, io)
    }

    fn content(&self, path: &Path) -> Result<Vec<u8>, Fault> {
        let call = Call::File(FileCall::Read { path: Bytes::from(path) });
        match self.call(call, Source::Empty).ended {
            Ended::Touched(Touched::Read(bytes)) => Ok(bytes),
            // Nothing there is said with a number of its own.
            Ended::Failed { .. } if self.is_missing(path) => Err(Fault::not_found()),
            other => Err(self.fault("read", path, &other)),
        }
    }

    pub(super) fn entries(&self, path: &Path) -> Result<Vec<Entry>, Fault> {
        let call = Call::File(FileCall::List { path: Bytes::from(path) });
        let listed = match self.call(call, Source::Empty).ended {
            Ended::Touched(Touched::Listed(listed)) => listed,
            Ended::Failed { .. } if self.is_missing(path) => return Err(Fault::not_found()),
            other => return Err(self.fault("list", path, &other)),
        };
        let entry = |entry: ringfence_runtime::Listed| Entry {
            name: entry.name.to_string_lossy().into_owned(),
            kind: match entry.kind {
                ringfence_types::EntryKind::Directory => Kind::Directory,
                ringfence_types::EntryKind::File => Kind::File,
                ringfence_types::EntryKind::Link => Kind::Link,
                ringfence_types::EntryKind::Other => Kind::Other,
            },
            bytes: entry.bytes,
            modified_ms: entry.modified_ms,
        };
        Ok(listed.into_iter().map(entry).collect())
    }

    /// What a directory says of one of its entries. What is in no root is not there.
    fn entry(&self, path: &Path) -> Result<Entry, Fault> {
        let root = self.root_of(path).ok_or_else(Fault::not_found)?;
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Fault::not_found());
        };
        if path == root {
            self.entries(path)?;
            return Ok(Entry { name: String::new(), kind: Kind::Directory, bytes: 0, modified_ms: 0 });
        }
        let name = name.to_string_lossy();
        self.entries(above)?.into_iter().find(|entry| entry.name == name).ok_or_else(Fault::not_found)
    }

    fn is_missing(&self, path: &Path) -> bool {
        self.entry(path).is_err_and(|fault| fault.kind == FaultKind::NotFound)
    }

    /// What a link leads to, where that may be read.
    fn beyond(&self, path: &Path) -> Result<(Kind, u64), Fault> {
        if self.entries(path).is_ok() {
            return Ok((Kind::Directory, 0));
        }
        self.content(path).map(|bytes| (Kind::File, bytes.len() as u64))
    }

    fn root_of(&self, path: &Path) -> Option<PathBuf> {
        let asked = self.bound.asked();
        let open = asked.roots.iter().filter(|root| root.access != Access::None);
        let mut roots =
            open.map(|root| root.path.as_path().to_owned()).chain([self.bound.workspace().path.clone()]);
        roots.find(|root| path.starts_with(root))
    }

    fn command(&self, program: &str, options: &[&str], paths: &[&Path]) -> Answer {
        let mut argv: Vec<Bytes> =
            [&[program], options, &["--"]].concat().into_iter().map(Bytes::from).collect();
        argv.extend(paths.iter().map(|path| Bytes::from(*path)));
        let cwd = Bytes::from(self.bound.workspace().path.as_path());
        let exec = Exec { argv, cwd, env: Vec::new(), net: NetMode::None, stdin: StandardInput::None };
        let mut stderr = Vec::new();
        let io = Io {
            stdin: Source::Empty,
            stdout: Target::Discard,
            stderr: Target::Buffer(&mut stderr),
            interrupts: &[],
            timeout: None,
            output_bytes: 0,
        };
        let settled = self.bound.lane().call(Call::Exec(exec), io);
        let first = paths.first().copied().unwrap_or(Path::new("/"));
        match &settled.ended {
            Ended::Executed(outcome) if outcome.exit.code() == 0 => Ok(json!({})),
            Ended::Executed(_) if program != "mkdir" && self.is_missing(first) => Err(Fault::not_found()),
            Ended::Executed(_) => Err(Fault::internal(String::from_utf8_lossy(&stderr).trim())),
            other => Err(self.fault(program, first, other)),
        }
    }

    fn fault(&self, verb: &str, path: &Path, ended: &Ended) -> Fault {
        let what = format!("{verb} {}", Bytes::from(path).display());
        match ended {
            Ended::Refused(refusal) => {
                let denial = Denial::of(&what, refusal, Some(&self.bound.workspace().path));
                Fault::new(FaultKind::Invalid, denial.text())
            }
            Ended::Failed { what, .. } => Fault::internal(what),
            Ended::Executed(_) | Ended::Touched(_) => Fault::internal("something else was done"),
        }
    }
}
