//! What was proposed so far, and what an operator does with it.

use std::fs::{File, TryLockError};
use std::io;

use ringfence_ledger::{
    AppendError, Event, Finding, Kind, LedgerReader, Life, OpenError, ReadError, Record, Status,
};
use ringfence_sandbox::Io;
use ringfence_sandbox::files::{ChangeError, Tree};
use ringfence_scan::{ExactError, Scanner};
use ringfence_types::{
    Bytes, Layer, Patch, PatchedFile, Principal, Refusal, RefusalCode, TransactionId, WorkspaceId,
};
use zeroize::Zeroizing;

use super::diff;
use super::journal::{self, Journal, JournalError, RecoveryError};
use super::secrets;
use super::vault::{Content, Missing, Side, Vault, VaultError};
use crate::pipeline::{self, Received, Settled};
use crate::rules::WorkspaceRules;
use crate::session::{AgentSession, Runtime};

/// More than anybody lists.
const LISTED: u32 = 10_000;

/// A proposal as the ledger has it.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub transaction: TransactionId,
    pub status: Status,
    /// When it was proposed.
    pub time: String,
    pub workspace_id: WorkspaceId,
    pub workspace: Bytes,
    pub patch: Patch,
    pub title: Option<String>,
    pub findings: Vec<Finding>,
    pub by: Principal,
    /// Files that were not what they had to be when somebody wanted to apply it.
    pub conflicts: Vec<Bytes>,
    /// Why it ended, where that needs words.
    pub end: Option<String>,
}

/// Whether the bytes of a proposal can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    Kept,
    Gone,
}

impl Proposal {
    /// It can be applied.
    pub fn is_open(&self) -> bool {
        self.status == Status::Proposed
    }

    /// Nothing will become of it any more.
    pub fn is_over(&self) -> bool {
        match self.status {
            Status::Completed | Status::Refused | Status::Discarded | Status::Interrupted => true,
            Status::Created
            | Status::Proposed
            | Status::AwaitingApproval
            | Status::Approved
            | Status::InProgress => false,
        }
    }

    /// Where it is, in one word.
    pub fn state(&self) -> &'static str {
        match (self.status, &self.end) {
            (Status::Completed, None) => "applied",
            (Status::Completed, Some(_)) => "failed",
            (status, _) => status.word(),
        }
    }

    fn of(records: &[Record]) -> Option<Self> {
        let life = Life::of(records.iter().map(|record| &record.event)).ok()?;
        let (record, mut proposal) =
            records.iter().find_map(|record| Some((record, begun(&record.event)?)))?;
        proposal.time.clone_from(&record.time);
        proposal.status = life.status();
        for record in records {
            match &record.event {
                Event::Conflicted { files, .. } => proposal.conflicts.clone_from(files),
                Event::ApprovalDecided(decision) if !decision.answer.permits() => {
                    proposal.end = Some(format!("a question about it ended: {}", decision.answer.word()));
                }
                Event::Refused { refusal, .. } => proposal.end = Some(refusal.message.clone()),
                Event::Settled { failure, .. } => proposal.end.clone_from(failure),
                Event::Interrupted { why, .. } => proposal.end = Some(why.clone()),
                Event::Discarded { reason, .. } => proposal.end.clone_from(reason),
                _ => {}
            }
        }
        Some(proposal)
    }
}

fn begun(event: &Event) -> Option<Proposal> {
    let Event::Proposed { transaction, workspace_id, workspace, patch, title, findings, by, .. } = event
    else {
        return None;
    };
    Some(Proposal {
        transaction: transaction.clone(),
        status: Status::Proposed,
        time: String::new(),
        workspace_id: workspace_id.clone(),
        workspace: workspace.clone(),
        patch: patch.clone(),
        title: title.clone(),
        findings: findings.clone(),
        by: by.clone(),
        conflicts: Vec::new(),
        end: None,
    })
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    #[error("the ledger cannot be read")]
    Open(#[from] OpenError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("`{}` is not a proposal", Bytes::from(id.as_str()).display())]
    NotOne { id: String },
    #[error("`{}` could be {}", Bytes::from(id.as_str()).display(), candidates.join(", "))]
    Several { id: String, candidates: Vec<String> },
}

/// Why a proposal is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    #[error("`{id}` is {state} and cannot be applied or discarded any more")]
    Closed { id: TransactionId, state: &'static str },
    #[error("somebody else is at work on `{id}`")]
    Busy { id: TransactionId },
    #[error("`{id}` is for the workspace `{}`", workspace.display())]
    OtherWorkspace { id: TransactionId, workspace: Bytes },
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("cannot write to the ledger")]
    Ledger(#[source] AppendError),
    #[error("a stored secret cannot be looked for")]
    Secret(#[from] ExactError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The outcome is as it was said; what was prepared for it is still there.
    #[error("the outcome is in the ledger, but what is left of the application cannot be removed")]
    Left(#[from] RecoveryError),
}

impl RegisterError {
    /// The same as an answer, where it is one and not a failure.
    pub fn refusal(&self) -> Option<Refusal> {
        let (code, rule) = match self {
            Self::Closed { .. } => (RefusalCode::Conflict, "apply.closed"),
            Self::Busy { .. } => (RefusalCode::Conflict, "apply.busy"),
            Self::OtherWorkspace { .. } => (RefusalCode::Workspace, "apply.workspace"),
            Self::Vault(
                VaultError::Gone
                | VaultError::Expired
                | VaultError::Tampered { .. }
                | VaultError::NoKey { .. },
            ) => (RefusalCode::Conflict, "apply.contents"),
            _ => return None,
        };
        let (rule, message) = (rule.to_owned(), self.to_string());
        Some(Refusal { code, layer: Layer::Floor, rule, message, hint: self.hint() })
    }

    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Closed { state: "applied" | "discarded", .. } => {
                Some("`ringfence tx list` shows what is open".to_owned())
            }
            Self::Closed { id, .. } => Some(format!(
                "while its contents are kept, `ringfence tx diff {id} --raw | ringfence tx propose` proposes it again"
            )),
            Self::Busy { .. } => Some("wait for it, or answer its question".to_owned()),
            Self::OtherWorkspace { .. } => Some("leave `--workspace` out".to_owned()),
            Self::Vault(error) => error.hint().map(str::to_owned),
            Self::Ledger(error) => error.hint().map(str::to_owned),
            Self::Find(_) => Some("`ringfence tx list --all` shows every proposal".to_owned()),
            Self::Secret(_) => None,
            Self::Journal(_) => {
                Some("free some space, or check that the state directory is writable".to_owned())
            }
            Self::Left(_) => Some("the next start of `ringfence` tries again".to_owned()),
        }
    }
}

impl Runtime {
    /// Every proposal, oldest first.
    pub fn proposals(&self) -> Result<Vec<Proposal>, FindError> {
        let reader = self.ledger.reader()?;
        let records = reader.of_kinds(&[Kind::Proposed], LISTED)?;
        let begun = records.iter().filter_map(|record| record.event.transaction());
        let all: Result<Vec<_>, FindError> = begun.map(|id| about(&reader, id)).collect();
        Ok(all?.into_iter().flatten().collect())
    }

    /// The proposal that `id` means: its transaction, or the beginning of it.
    pub fn proposal(&self, id: &str) -> Result<Proposal, FindError> {
        let reader = self.ledger.reader()?;
        let records = reader.show(id)?;
        let mut found: Vec<TransactionId> =
            records.iter().filter_map(|record| begun(&record.event)).map(|one| one.transaction).collect();
        found.dedup();
        match found.as_slice() {
            [one] => about(&reader, one)?.ok_or_else(|| FindError::NotOne { id: id.to_owned() }),
            [] => Err(FindError::NotOne { id: id.to_owned() }),
            several => Err(FindError::Several {
                id: id.to_owned(),
                candidates: several.iter().take(10).map(ToString::to_string).collect(),
            }),
        }
    }

    pub fn proposal_contents(&self, proposal: &Proposal) -> Contents {
        let path = self.vault().contents(&proposal.transaction);
        if path.is_dir() { Contents::Kept } else { Contents::Gone }
    }

    /// A proposal as a unified diff against its base, raw.
    pub fn proposal_diff(&self, proposal: &Proposal) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let vault = self.vault();
        let mut out = Zeroizing::new(Vec::new());
        for (number, file) in proposal.patch.files.iter().enumerate() {
            let side = |side| vault.open(&proposal.transaction, (number, file), side);
            let (base, result) = (side(Side::Base)?, side(Side::Result)?);
            let section =
                Zeroizing::new(diff::write(&file.path, plain(base.as_ref()), plain(result.as_ref())));
            out.extend_from_slice(&section);
        }
        Ok(out)
    }

    /// The proposal will not be applied, and its contents are forgotten.
    pub fn discard(
        &self,
        proposal: &Proposal,
        by: Principal,
        reason: Option<String>,
    ) -> Result<(), RegisterError> {
        let id = &proposal.transaction;
        let vault = self.vault();
        // A proposal without contents can still be discarded.
        let _lock = match lock(&vault, id) {
            Ok(lock) => Some(lock),
            Err(RegisterError::Vault(VaultError::Gone)) => None,
            Err(error) => return Err(error),
        };
        let reason = reason.map(|reason| self.cleaner().text(&reason));
        match self.ledger.append(&Event::Discarded { transaction: id.clone(), by, reason }) {
            Ok(_) => Ok(vault.forget(id)?),
            Err(AppendError::OutOfOrder { .. }) => Err(self.closed(id)?),
            Err(error) => Err(RegisterError::Ledger(error)),
        }
    }

    fn vault(&self) -> Vault {
        Vault::new(&self.setup.state_dir)
    }

    fn closed(&self, id: &TransactionId) -> Result<RegisterError, FindError> {
        let state = self.proposal(id.as_str())?.state();
        Ok(RegisterError::Closed { id: id.clone(), state })
    }
}

fn about(reader: &LedgerReader, id: &TransactionId) -> Result<Option<Proposal>, FindError> {
    Ok(Proposal::of(&reader.about(id.as_str())?))
}

fn plain(content: Option<&Content>) -> Option<&[u8]> {
    content.map(|content| content.as_slice())
}

/// Whoever works on a proposal holds this until they are done or dead.
fn lock(vault: &Vault, id: &TransactionId) -> Result<File, RegisterError> {
    let path = vault.contents(id);
    let lock = match File::open(&path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(VaultError::Gone.into()),
        Err(source) => return Err(VaultError::Io { path, source }.into()),
    };
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(RegisterError::Busy { id: id.clone() }),
        Err(TryLockError::Error(source)) => Err(VaultError::Io { path, source }.into()),
    }
}

/// What became of an attempt to apply a proposal.
#[derive(Debug)]
pub enum Applied {
    /// It went through the pipeline.
    Settled(Box<Settled>),
    /// The answer was no before it came that far. Where files are not what it was made for it stays open.
    Refused(Refusal),
}

impl AgentSession<'_> {
    /// Applies a proposal: all of it, or nothing. The act of an operator, through the same pipeline as any other call. A
    /// refusal is in the ledger.
    pub fn apply(&mut self, proposal: &Proposal, io: Io<'_>) -> Result<Applied, RegisterError> {
        let applied = self.try_apply(proposal, io);
        let Some(refusal) = applied.as_ref().err().and_then(RegisterError::refusal) else { return applied };
        let session = Some(self.id.clone());
        let event =
            Event::Refused { transaction: None, session, call: None, refusal: refusal.clone(), by: None };
        let _receipt = self.runtime.ledger.append(&event).map_err(RegisterError::Ledger)?;
        Ok(Applied::Refused(refusal))
    }

    fn try_apply(&mut self, proposal: &Proposal, io: Io<'_>) -> Result<Applied, RegisterError> {
        let id = &proposal.transaction;
        if proposal.workspace_id != self.workspace.id {
            let workspace = proposal.workspace.clone();
            return Err(RegisterError::OtherWorkspace { id: id.clone(), workspace });
        }
        let vault = self.runtime.vault();
        let locked = lock(&vault, id);
        if let Err(busy @ RegisterError::Busy { .. }) = locked {
            return Err(busy);
        }
        // Whoever had the lock before may have settled it.
        let now = self.runtime.proposal(id.as_str())?;
        if !now.is_open() {
            return Err(RegisterError::Closed { id: id.clone(), state: now.state() });
        }
        let _lock = locked?;
        let scanner = secrets::scanner(vault.salt(Missing::Refuse)?, &self.secrets.all)?;
        let patch = scanned(&vault, id, now.patch, &scanner)?;
        if let Some(files) = self.conflicts(&patch) {
            let event = Event::Conflicted { transaction: id.clone(), files: files.clone() };
            let _receipt = self.runtime.ledger.append(&event).map_err(RegisterError::Ledger)?;
            return Ok(Applied::Refused(pipeline::conflict(&files)));
        }
        let _journal = Journal::begin(&vault, id, &self.id)?;
        let settled = pipeline::run(Received::proposed(patch, id.clone()), self, io);
        if settled.unrecorded.is_none() {
            journal::conclude(&vault, id)?;
        }
        Ok(Applied::Settled(Box::new(settled)))
    }

    /// Files that are not what `patch` was made for. A no to one of them is for the judge to say.
    fn conflicts(&self, patch: &Patch) -> Option<Vec<Bytes>> {
        let rules = WorkspaceRules::new(&self.policy.rules.paths).own(&self.runtime.setup.own);
        let tree = Tree::open(&self.all_roots(), &rules).ok()?;
        match tree.plan(&self.workspace.path, &pipeline::edits(patch), "check") {
            Err(ChangeError::Conflict { paths }) => {
                Some(paths.iter().map(|path| Bytes::from(path.as_path())).collect())
            }
            _ => None,
        }
    }
}

/// The patch with what the scanner of today finds in it: whoever approves it is told, whatever was found when it was
/// proposed.
fn scanned(vault: &Vault, id: &TransactionId, patch: Patch, scanner: &Scanner) -> Result<Patch, VaultError> {
    let mut files = Vec::with_capacity(patch.files.len());
    for (number, file) in patch.files.into_iter().enumerate() {
        let base = vault.open(id, (number, &file), Side::Base)?;
        let result = vault.open(id, (number, &file), Side::Result)?;
        let introduced = secrets::introduced(scanner, plain(base.as_ref()), plain(result.as_ref()));
        let secrets = introduced.into_iter().map(|(introduced, _)| introduced).collect();
        files.push(PatchedFile { secrets, ..file });
    }
    Ok(Patch { files })
}
