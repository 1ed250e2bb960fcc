//! How far an application came, on disk: what makes it all or nothing across a crash.
//!
//! ```text
//!  Begun → Staging → Swapping → Done → (removed)      after a crash: back ← Staging, Undoing │ Swapping, Done → forward
//!             └→ Begun ←─ Undoing ┘
//! ```
//!
//! One file for each application that is under way, `proposals/journals/tx_….json`, replaced whole at every step. Whoever
//! works on a proposal holds a lock on the directory of its contents; the kernel takes it away with the process.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_ledger::{AppendError, Event, Ledger, ProcessId};
use ringfence_sandbox::files::{ChangeError, Changes, Progress};
use ringfence_types::{Bytes, SessionId, TransactionId};
use serde::{Deserialize, Serialize};

use super::vault::{Vault, VaultError, sync, write_private};
use crate::pipeline::edits;

const VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// Nothing is in the workspace.
    Begun,
    /// Prepared files may be there.
    Staging,
    /// Everything is prepared, some may be exchanged.
    Swapping,
    /// It did not work out, some may be exchanged.
    Undoing,
    /// Everything is exchanged.
    Done,
}

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    entry: Entry,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    version: u32,
    transaction: TransactionId,
    session: SessionId,
    /// Whoever began it.
    process: Option<ProcessId>,
    phase: Phase,
    changes: Option<Changes>,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// What is on disk is what was there before.
    #[error("the journal of the application cannot be written")]
    Unchanged(#[source] VaultError),
    #[error("the journal of the application may not be on disk")]
    Unsure(#[source] VaultError),
    #[error("the journal `{}` cannot be read", Bytes::from(path.as_path()).display())]
    Unreadable { path: PathBuf, source: io::Error },
}

impl Journal {
    /// On disk before the intent is.
    pub(crate) fn begin(
        vault: &Vault,
        transaction: &TransactionId,
        session: &SessionId,
    ) -> Result<Self, JournalError> {
        vault.private_directory(&vault.journals()).map_err(JournalError::Unchanged)?;
        let entry = Entry {
            version: VERSION,
            transaction: transaction.clone(),
            session: session.clone(),
            process: ProcessId::own(),
            phase: Phase::Begun,
            changes: None,
        };
        let journal = Self { path: place(vault, transaction), entry };
        journal.write()?;
        Ok(journal)
    }

    pub(crate) fn open(vault: &Vault, transaction: &TransactionId) -> Result<Self, JournalError> {
        Self::read(place(vault, transaction))
    }

    fn read(path: PathBuf) -> Result<Self, JournalError> {
        let unreadable = |source| JournalError::Unreadable { path: path.clone(), source };
        let text = read_own(&path).map_err(unreadable)?;
        let entry: Entry = serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))?;
        if entry.version != VERSION {
            return Err(unreadable(io::Error::other(format!("it has version {}", entry.version))));
        }
        Ok(Self { path, entry })
    }

    pub(crate) fn enter(&mut self, phase: Phase, changes: Option<&Changes>) -> Result<(), JournalError> {
        let before = self.entry.clone();
        self.entry.phase = phase;
        self.entry.changes = changes.cloned();
        let written = self.write();
        if let Err(JournalError::Unchanged(_)) = written {
            self.entry = before;
        }
        written
    }

    fn write(&self) -> Result<(), JournalError> {
        let fresh = self.path.with_extension("new");
        let _stale = fs::remove_file(&fresh);
        let failed = |source| JournalError::Unchanged(VaultError::Io { path: self.path.clone(), source });
        let text = serde_json::to_vec(&self.entry).map_err(|error| failed(error.into()))?;
        write_private(&fresh, &text).map_err(JournalError::Unchanged)?;
        fs::rename(&fresh, &self.path).map_err(failed)?;
        sync(directory(&self.path)).map_err(JournalError::Unsure)
    }

    fn remove(self) -> Result<(), JournalError> {
        let failed = |source| JournalError::Unchanged(VaultError::Io { path: self.path.clone(), source });
        let _stale = fs::remove_file(self.path.with_extension("new"));
        fs::remove_file(&self.path).map_err(failed)?;
        sync(directory(&self.path)).map_err(JournalError::Unsure)
    }
}

/// What somebody else can have written says nothing.
fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    let private = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o7777 == 0o600;
    if !found.is_file() || !private {
        return Err(io::Error::other("it is not a file that is yours alone"));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}

/// A journal only says how far it came: what is done and where is in the ledger.
fn check(ledger: &Ledger, journal: &Journal) -> Result<(), JournalError> {
    let strange = |source| JournalError::Unreadable { path: journal.path.clone(), source };
    let Journal { path, entry } = journal;
    if path.file_stem() != Some(OsStr::new(entry.transaction.as_str())) {
        return Err(strange(io::Error::other("it is about another transaction")));
    }
    let Some(changes) = &entry.changes else { return Ok(()) };
    let reader = ledger.reader().map_err(|error| strange(io::Error::other(error)))?;
    let records =
        reader.about(entry.transaction.as_str()).map_err(|error| strange(io::Error::other(error)))?;
    let begun = records.iter().any(|record| matches!(record.event, Event::Intent { .. }));
    let proposed = records.iter().any(|record| match &record.event {
        Event::Proposed { workspace, patch, .. } => {
            changes.is_of(workspace.as_path(), &edits(patch), entry.transaction.as_str())
        }
        _ => false,
    });
    if begun && proposed { Ok(()) } else { Err(strange(io::Error::other("it is not what the ledger says"))) }
}

/// After an application has its end in the ledger: what is left of it is removed. What is not whole is left for
/// [`recover`].
pub(crate) fn conclude(vault: &Vault, transaction: &TransactionId) -> Result<(), RecoveryError> {
    let journal = Journal::open(vault, transaction)?;
    match (journal.entry.phase, &journal.entry.changes) {
        (Phase::Begun, _) => {}
        (Phase::Done, Some(changes)) => {
            changes.clear()?;
            vault.forget(transaction)?;
        }
        _ => return Ok(()),
    }
    Ok(journal.remove()?)
}

/// What became of an application that was cut off.
#[derive(Debug)]
pub struct Recovery {
    pub transaction: TransactionId,
    pub outcome: Recovered,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// All of it is applied.
    Finished,
    /// Nothing of it is applied.
    Undone,
    /// All but these, which somebody changed meanwhile.
    FinishedBut(Vec<PathBuf>),
}

#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("cannot write down what became of it")]
    Ledger(#[from] AppendError),
}

/// Finishes or undoes every application whose process is gone. What cannot be done now is tried again by the next start.
pub(crate) fn recover(ledger: &Ledger, state_dir: &Path) -> Vec<Result<Recovery, RecoveryError>> {
    let vault = Vault::new(state_dir);
    vault.purge();
    let Ok(entries) = fs::read_dir(vault.journals()) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(_lock) = alone(&vault, &path) else { continue };
        match path.extension() {
            Some(end) if end == "json" => found.extend(recover_one(ledger, &vault, path).transpose()),
            // Cut off before it had a name that counts.
            _ => drop(fs::remove_file(path)),
        }
    }
    found
}

/// The right to work on the proposal of a journal; `None`: somebody else does. Without its contents nobody can.
fn alone(vault: &Vault, path: &Path) -> Option<Option<File>> {
    let contents = path.file_stem().map(|name| vault.directory_of(name));
    let Some(lock) = contents.and_then(|contents| File::open(contents).ok()) else { return Some(None) };
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) if !is_orphaned(path) => None,
        // Another start is at it, and is done in a moment: until then nobody may say what became of it.
        Err(TryLockError::WouldBlock) => lock.lock().ok().map(|()| Some(lock)),
        _ => Some(Some(lock)),
    }
}

fn is_orphaned(path: &Path) -> bool {
    let process = Journal::read(path.to_owned()).ok().and_then(|journal| journal.entry.process);
    process.is_some_and(|process| !process.is_alive())
}

fn recover_one(ledger: &Ledger, vault: &Vault, path: PathBuf) -> Result<Option<Recovery>, RecoveryError> {
    let journal = match Journal::read(path) {
        // Whoever had the lock has just finished.
        Err(JournalError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        read => read?,
    };
    check(ledger, &journal)?;
    let outcome = restore(&journal.entry)?;
    record(ledger, &journal.entry, &outcome)?;
    let transaction = journal.entry.transaction.clone();
    if outcome == Recovered::Finished {
        vault.forget(&transaction)?;
    }
    journal.remove()?;
    Ok(Some(Recovery { transaction, outcome }))
}

fn restore(entry: &Entry) -> Result<Recovered, ChangeError> {
    let Some(changes) = &entry.changes else { return Ok(Recovered::Undone) };
    match entry.phase {
        Phase::Begun => Ok(Recovered::Undone),
        Phase::Staging | Phase::Undoing if changes.is_void() => Ok(Recovered::Undone),
        Phase::Swapping if changes.is_void() => Ok(Recovered::FinishedBut(changes.paths())),
        Phase::Done if changes.is_void() => Ok(Recovered::Finished),
        Phase::Staging => changes.withdraw(Progress::Staged).map(|()| Recovered::Undone),
        Phase::Undoing => changes.withdraw(Progress::Swapping).map(|()| Recovered::Undone),
        Phase::Done => changes.clear().map(|()| Recovered::Finished),
        Phase::Swapping => changes.complete().map(|left| match left.as_slice() {
            [] => Recovered::Finished,
            _ => Recovered::FinishedBut(left),
        }),
    }
}

/// What the ledger knows already is not said twice.
fn record(ledger: &Ledger, entry: &Entry, outcome: &Recovered) -> Result<(), AppendError> {
    let transaction = entry.transaction.clone();
    let event = match outcome {
        Recovered::Finished => Event::Settled {
            transaction,
            session: entry.session.clone(),
            outcome: None,
            failure: None,
            left_to: None,
            notes: Vec::new(),
        },
        Recovered::Undone => Event::Interrupted {
            transaction,
            why: "cut off before it was applied; nothing was changed".to_owned(),
        },
        Recovered::FinishedBut(left) => {
            let left: Vec<String> = left.iter().map(|path| Bytes::from(path.as_path()).display()).collect();
            let why =
                format!("cut off and finished, except for what was changed meanwhile: {}", left.join(", "));
            Event::Interrupted { transaction, why }
        }
    };
    match ledger.append(&event) {
        Ok(_) | Err(AppendError::OutOfOrder { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn place(vault: &Vault, transaction: &TransactionId) -> PathBuf {
    vault.journals().join(format!("{transaction}.json"))
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests;
