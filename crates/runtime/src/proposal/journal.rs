//! The journal of applying a proposal: makes the application atomic across a crash.
//!
//! ```text
//!  Begun → Staging → Swapping → Done → (removed)      after a crash: back ← Staging, Undoing │ Swapping, Done → forward
//!             └→ Begun ←─ Undoing ┘
//! ```
//!
//! Each application has one file, `proposals/journals/tx_….json`, replaced atomically at every step. The applying process
//! locks the directory of the contents; the kernel releases the lock when the process ends.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ringfence_ledger::{AppendError, Event, Ledger, ProcessId};
use ringfence_sandbox::files::{ChangeProgress, ChangeSet, ChangeSetError};
use ringfence_types::{ByteString, SessionId, TransactionId};
use serde::{Deserialize, Serialize};

use super::content_vault::{ContentVault, ContentVaultError, sync, write_private};
use crate::pipeline::edits;

const VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum JournalPhase {
    /// The workspace is untouched.
    Begun,
    /// Staged files may exist.
    Staging,
    /// Everything is staged, and some files may be swapped.
    Swapping,
    /// Rollback: some files may be swapped.
    Undoing,
    /// Every file is swapped.
    Done,
}

#[derive(Debug)]
pub(crate) struct LandingJournal {
    path: PathBuf,
    entry: JournalEntry,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct JournalEntry {
    version: u32,
    transaction: TransactionId,
    session: SessionId,
    /// The process that began it.
    process: Option<ProcessId>,
    phase: JournalPhase,
    changes: Option<ChangeSet>,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The old journal is still on disk.
    #[error("the journal of the application cannot be written")]
    Unchanged(#[source] ContentVaultError),
    #[error("the journal of the application may not be on disk")]
    Unsure(#[source] ContentVaultError),
    #[error("the journal `{}` cannot be read", ByteString::from(path.as_path()).display())]
    Unreadable { path: PathBuf, source: io::Error },
}

impl LandingJournal {
    /// Durable before the intent.
    pub(crate) fn begin(
        vault: &ContentVault,
        transaction: &TransactionId,
        session: &SessionId,
    ) -> Result<Self, JournalError> {
        vault.private_directory(&vault.journals()).map_err(JournalError::Unchanged)?;
        let entry = JournalEntry {
            version: VERSION,
            transaction: transaction.clone(),
            session: session.clone(),
            process: ProcessId::own(),
            phase: JournalPhase::Begun,
            changes: None,
        };
        let journal = Self { path: place(vault, transaction), entry };
        journal.write()?;
        Ok(journal)
    }

    pub(crate) fn open(vault: &ContentVault, transaction: &TransactionId) -> Result<Self, JournalError> {
        Self::read(place(vault, transaction))
    }

    fn read(path: PathBuf) -> Result<Self, JournalError> {
        let unreadable = |source| JournalError::Unreadable { path: path.clone(), source };
        let text = read_own(&path).map_err(unreadable)?;
        let entry: JournalEntry = serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))?;
        if entry.version != VERSION {
            return Err(unreadable(io::Error::other(format!("it has version {}", entry.version))));
        }
        Ok(Self { path, entry })
    }

    pub(crate) fn enter(
        &mut self,
        phase: JournalPhase,
        changes: Option<&ChangeSet>,
    ) -> Result<(), JournalError> {
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
        let failed =
            |source| JournalError::Unchanged(ContentVaultError::Io { path: self.path.clone(), source });
        let text = serde_json::to_vec(&self.entry).map_err(|error| failed(error.into()))?;
        write_private(&fresh, &text).map_err(JournalError::Unchanged)?;
        fs::rename(&fresh, &self.path).map_err(failed)?;
        sync(directory(&self.path)).map_err(JournalError::Unsure)
    }

    fn remove(self) -> Result<(), JournalError> {
        let failed =
            |source| JournalError::Unchanged(ContentVaultError::Io { path: self.path.clone(), source });
        let _stale = fs::remove_file(self.path.with_extension("new"));
        fs::remove_file(&self.path).map_err(failed)?;
        sync(directory(&self.path)).map_err(JournalError::Unsure)
    }
}

/// Refuses a journal that another user can have written.
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

/// Checks a journal against the ledger: the journal only holds the phase, the ledger holds what is applied
/// and where.
fn check(ledger: &Ledger, journal: &LandingJournal) -> Result<(), JournalError> {
    let strange = |source| JournalError::Unreadable { path: journal.path.clone(), source };
    let LandingJournal { path, entry } = journal;
    if path.file_stem() != Some(OsStr::new(entry.transaction.as_str())) {
        return Err(strange(io::Error::other("it is about another transaction")));
    }
    let Some(changes) = &entry.changes else { return Ok(()) };
    let reader = ledger.reader().map_err(|error| strange(io::Error::other(error)))?;
    let records =
        reader.about(entry.transaction.as_str()).map_err(|error| strange(io::Error::other(error)))?;
    let begun = records.iter().any(|record| matches!(record.event, Event::CallIntended { .. }));
    let proposed = records.iter().any(|record| match &record.event {
        Event::ProposalCreated { workspace, patch, .. } => {
            changes.is_of(workspace.as_path(), &edits(patch), entry.transaction.as_str())
        }
        _ => false,
    });
    if begun && proposed { Ok(()) } else { Err(strange(io::Error::other("it is not what the ledger says"))) }
}

/// Removes the leftovers of an application whose end is recorded. An incomplete one is left for [`recover`].
pub(crate) fn conclude(vault: &ContentVault, transaction: &TransactionId) -> Result<(), RecoveryError> {
    let journal = LandingJournal::open(vault, transaction)?;
    match (journal.entry.phase, &journal.entry.changes) {
        (JournalPhase::Begun, _) => {}
        (JournalPhase::Done, Some(changes)) => {
            changes.clear()?;
            vault.forget(transaction)?;
        }
        _ => return Ok(()),
    }
    Ok(journal.remove()?)
}

/// The result of recovering an interrupted application.
#[derive(Debug)]
pub struct JournalRecovery {
    pub transaction: TransactionId,
    pub outcome: RecoveryOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryOutcome {
    /// The proposal is applied completely.
    Finished,
    /// Nothing of the proposal is applied.
    Undone,
    /// Applied except for these files, which changed meanwhile.
    FinishedBut(Vec<PathBuf>),
}

#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Change(#[from] ChangeSetError),
    #[error(transparent)]
    Vault(#[from] ContentVaultError),
    #[error("cannot write down what became of it")]
    Ledger(#[from] AppendError),
}

/// Completes or rolls back every application whose process is gone. The next start retries failures.
pub(crate) fn recover(ledger: &Ledger, state_dir: &Path) -> Vec<Result<JournalRecovery, RecoveryError>> {
    let vault = ContentVault::new(state_dir);
    vault.purge();
    let Ok(entries) = fs::read_dir(vault.journals()) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(_lock) = alone(&vault, &path) else { continue };
        match path.extension() {
            Some(end) if end == "json" => found.extend(recover_one(ledger, &vault, path).transpose()),
            // A draft that was never renamed to a journal.
            _ => drop(fs::remove_file(path)),
        }
    }
    found
}

/// The lock for the proposal of a journal; `None`: another process works on it. Without contents there is
/// nothing to lock.
fn alone(vault: &ContentVault, path: &Path) -> Option<Option<File>> {
    let contents = path.file_stem().map(|name| vault.directory_of(name));
    let Some(lock) = contents.and_then(|contents| File::open(contents).ok()) else { return Some(None) };
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) if !is_orphaned(path) => None,
        // Another start is recovering it: wait, because the outcome is unknown until then.
        Err(TryLockError::WouldBlock) => lock.lock().ok().map(|()| Some(lock)),
        _ => Some(Some(lock)),
    }
}

fn is_orphaned(path: &Path) -> bool {
    let process = LandingJournal::read(path.to_owned()).ok().and_then(|journal| journal.entry.process);
    process.is_some_and(|process| !process.is_alive())
}

fn recover_one(
    ledger: &Ledger,
    vault: &ContentVault,
    path: PathBuf,
) -> Result<Option<JournalRecovery>, RecoveryError> {
    let journal = match LandingJournal::read(path) {
        // The previous lock holder has just finished.
        Err(JournalError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        read => read?,
    };
    check(ledger, &journal)?;
    let outcome = restore(&journal.entry)?;
    record(ledger, &journal.entry, &outcome)?;
    let transaction = journal.entry.transaction.clone();
    if outcome == RecoveryOutcome::Finished {
        vault.forget(&transaction)?;
    }
    journal.remove()?;
    Ok(Some(JournalRecovery { transaction, outcome }))
}

fn restore(entry: &JournalEntry) -> Result<RecoveryOutcome, ChangeSetError> {
    let Some(changes) = &entry.changes else { return Ok(RecoveryOutcome::Undone) };
    match entry.phase {
        JournalPhase::Begun => Ok(RecoveryOutcome::Undone),
        JournalPhase::Staging | JournalPhase::Undoing if changes.is_void() => Ok(RecoveryOutcome::Undone),
        JournalPhase::Swapping if changes.is_void() => Ok(RecoveryOutcome::FinishedBut(changes.paths())),
        JournalPhase::Done if changes.is_void() => Ok(RecoveryOutcome::Finished),
        JournalPhase::Staging => changes.withdraw(ChangeProgress::Staged).map(|()| RecoveryOutcome::Undone),
        JournalPhase::Undoing => changes.withdraw(ChangeProgress::Swapping).map(|()| RecoveryOutcome::Undone),
        JournalPhase::Done => changes.clear().map(|()| RecoveryOutcome::Finished),
        JournalPhase::Swapping => changes.complete().map(|left| match left.as_slice() {
            [] => RecoveryOutcome::Finished,
            _ => RecoveryOutcome::FinishedBut(left),
        }),
    }
}

/// Skips an outcome that the ledger already has.
fn record(ledger: &Ledger, entry: &JournalEntry, outcome: &RecoveryOutcome) -> Result<(), AppendError> {
    let transaction = entry.transaction.clone();
    let event = match outcome {
        RecoveryOutcome::Finished => Event::CallSettled {
            transaction,
            session: entry.session.clone(),
            outcome: None,
            failure: None,
            delegated_to: None,
            notes: Vec::new(),
        },
        RecoveryOutcome::Undone => Event::CallInterrupted {
            transaction,
            reason: "cut off before it was applied; nothing was changed".to_owned(),
        },
        RecoveryOutcome::FinishedBut(left) => {
            let left: Vec<String> =
                left.iter().map(|path| ByteString::from(path.as_path()).display()).collect();
            let why =
                format!("cut off and finished, except for what was changed meanwhile: {}", left.join(", "));
            Event::CallInterrupted { transaction, reason: why }
        }
    };
    match ledger.append(&event) {
        Ok(_) | Err(AppendError::OutOfOrder { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn place(vault: &ContentVault, transaction: &TransactionId) -> PathBuf {
    vault.journals().join(format!("{transaction}.json"))
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests;
