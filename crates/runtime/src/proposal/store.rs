//! Lists, applies and discards proposals.

use std::fs::{File, TryLockError};
use std::io;

use ringfence_ledger::{
    AppendError, Event, Kind, LedgerOpenError, LedgerReadError, LedgerReader, Lifecycle, Record,
    RecordedFinding, TransactionStatus,
};
use ringfence_sandbox::CommandIo;
use ringfence_sandbox::files::{ChangeSetError, FileTree};
use ringfence_scan::{RegisteredSecretError, Scanner};
use ringfence_types::{
    ByteString, Patch, PatchedFile, PolicyLayer, Principal, Refusal, RefusalCode, RuleId, TransactionId,
    WorkspaceId,
};
use zeroize::Zeroizing;

use super::content_vault::{ContentVault, ContentVaultError, FileSide, MissingKeyPolicy, SecretContent};
use super::diff;
use super::introduced_secrets;
use super::journal::{self, JournalError, LandingJournal, RecoveryError};
use crate::pipeline::{self, Received, Settled};
use crate::sandbox_rules::{HostFiles, SandboxRules};
use crate::session::{AgentSession, Runtime};

/// Limit of listed proposals.
const LISTED: u32 = 10_000;

/// A proposal as recorded in the ledger.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub transaction: TransactionId,
    pub status: TransactionStatus,
    /// When it was proposed.
    pub time: String,
    pub workspace_id: WorkspaceId,
    pub workspace: ByteString,
    pub patch: Patch,
    pub title: Option<String>,
    pub findings: Vec<RecordedFinding>,
    pub by: Principal,
    /// Files that differed from their base when an operator tried to apply it.
    pub conflicts: Vec<ByteString>,
    /// Why it ended, if that needs an explanation.
    pub end: Option<String>,
}

/// Whether the contents of a proposal are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentAvailability {
    Kept,
    Gone,
}

impl Proposal {
    /// Whether it can be applied.
    pub fn is_open(&self) -> bool {
        self.status == TransactionStatus::Proposed
    }

    /// Whether it has reached a final state.
    pub fn is_over(&self) -> bool {
        match self.status {
            TransactionStatus::Completed
            | TransactionStatus::Refused
            | TransactionStatus::Discarded
            | TransactionStatus::Interrupted => true,
            TransactionStatus::Created
            | TransactionStatus::Proposed
            | TransactionStatus::AwaitingApproval
            | TransactionStatus::Approved
            | TransactionStatus::InProgress => false,
        }
    }

    /// The state in one word.
    pub fn state(&self) -> &'static str {
        match (self.status, &self.end) {
            (TransactionStatus::Completed, None) => "applied",
            (TransactionStatus::Completed, Some(_)) => "failed",
            (status, _) => status.word(),
        }
    }

    fn of(records: &[Record]) -> Option<Self> {
        let life = Lifecycle::of(records.iter().map(|record| &record.event)).ok()?;
        let (record, mut proposal) =
            records.iter().find_map(|record| Some((record, begun(&record.event)?)))?;
        proposal.time.clone_from(&record.time);
        proposal.status = life.status();
        for record in records {
            match &record.event {
                Event::ProposalConflicted { files, .. } => proposal.conflicts.clone_from(files),
                Event::ApprovalDecided(decision) if !decision.answer.permits() => {
                    proposal.end = Some(format!("its approval ended: {}", decision.answer.word()));
                }
                Event::CallRefused { refusal, .. } => proposal.end = Some(refusal.message.clone()),
                Event::CallSettled { failure, .. } => proposal.end.clone_from(failure),
                Event::CallInterrupted { reason, .. } => proposal.end = Some(reason.clone()),
                Event::ProposalDiscarded { reason, .. } => proposal.end.clone_from(reason),
                _ => {}
            }
        }
        Some(proposal)
    }
}

fn begun(event: &Event) -> Option<Proposal> {
    let Event::ProposalCreated {
        transaction, workspace_id, workspace, patch, title, findings, actor, ..
    } = event
    else {
        return None;
    };
    Some(Proposal {
        transaction: transaction.clone(),
        status: TransactionStatus::Proposed,
        time: String::new(),
        workspace_id: workspace_id.clone(),
        workspace: workspace.clone(),
        patch: patch.clone(),
        title: title.clone(),
        findings: findings.clone(),
        by: actor.clone(),
        conflicts: Vec::new(),
        end: None,
    })
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProposalLookupError {
    #[error("the ledger cannot be read")]
    Open(#[from] LedgerOpenError),
    #[error(transparent)]
    Read(#[from] LedgerReadError),
    #[error("`{}` is not a proposal", ByteString::from(id.as_str()).display())]
    NotOne { id: String },
    #[error("`{}` could be {}", ByteString::from(id.as_str()).display(), candidates.join(", "))]
    Several { id: String, candidates: Vec<String> },
}

/// Why a proposal is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProposalError {
    #[error("`{id}` is {state} and cannot be applied or discarded any more")]
    Closed { id: TransactionId, state: &'static str },
    #[error("another process is working on `{id}`")]
    Busy { id: TransactionId },
    #[error("`{id}` is for the workspace `{}`", workspace.display())]
    OtherWorkspace { id: TransactionId, workspace: ByteString },
    #[error(transparent)]
    Vault(#[from] ContentVaultError),
    #[error(transparent)]
    Find(#[from] ProposalLookupError),
    #[error("cannot write to the ledger")]
    Ledger(#[source] AppendError),
    #[error("a stored secret cannot be looked for")]
    Secret(#[from] RegisteredSecretError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The outcome is recorded, but staged files remain.
    #[error("the outcome is in the ledger, but what is left of the application cannot be removed")]
    Left(#[from] RecoveryError),
}

impl ProposalError {
    /// The error as a refusal, if it is one.
    pub fn refusal(&self) -> Option<Refusal> {
        let (code, rule) = match self {
            Self::Closed { .. } => (RefusalCode::Conflict, RuleId::ApplyClosed),
            Self::Busy { .. } => (RefusalCode::Conflict, RuleId::ApplyBusy),
            Self::OtherWorkspace { .. } => (RefusalCode::Workspace, RuleId::ApplyWorkspace),
            Self::Vault(
                ContentVaultError::Gone
                | ContentVaultError::Expired
                | ContentVaultError::Tampered { .. }
                | ContentVaultError::NoKey { .. },
            ) => (RefusalCode::Conflict, RuleId::ApplyContents),
            _ => return None,
        };
        let (rule, message) = (rule.into(), self.to_string());
        Some(Refusal { code, layer: PolicyLayer::Floor, rule, message, hint: self.hint() })
    }

    /// The next step for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Closed { state: "applied" | "discarded", .. } => {
                Some("`ringfence proposal list` shows what is open".to_owned())
            }
            Self::Closed { id, .. } => Some(format!(
                "while its contents are kept, `ringfence proposal diff {id} --raw | ringfence proposal create` proposes it again"
            )),
            Self::Busy { .. } => Some("wait for it, or answer its approval".to_owned()),
            Self::OtherWorkspace { .. } => Some("leave `--workspace` out".to_owned()),
            Self::Vault(error) => error.hint().map(str::to_owned),
            Self::Ledger(error) => error.hint().map(str::to_owned),
            Self::Find(_) => Some("`ringfence proposal list --all` shows every proposal".to_owned()),
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
    pub fn proposals(&self) -> Result<Vec<Proposal>, ProposalLookupError> {
        let reader = self.ledger.reader()?;
        let records = reader.of_kinds(&[Kind::ProposalCreated], LISTED)?;
        let begun = records.iter().filter_map(|record| record.event.transaction());
        let all: Result<Vec<_>, ProposalLookupError> = begun.map(|id| about(&reader, id)).collect();
        Ok(all?.into_iter().flatten().collect())
    }

    /// The proposal whose transaction id is or begins with `id`.
    pub fn proposal(&self, id: &str) -> Result<Proposal, ProposalLookupError> {
        let reader = self.ledger.reader()?;
        let records = reader.show(id)?;
        let mut found: Vec<TransactionId> =
            records.iter().filter_map(|record| begun(&record.event)).map(|one| one.transaction).collect();
        found.dedup();
        match found.as_slice() {
            [one] => about(&reader, one)?.ok_or_else(|| ProposalLookupError::NotOne { id: id.to_owned() }),
            [] => Err(ProposalLookupError::NotOne { id: id.to_owned() }),
            several => Err(ProposalLookupError::Several {
                id: id.to_owned(),
                candidates: several.iter().take(10).map(ToString::to_string).collect(),
            }),
        }
    }

    pub fn proposal_contents(&self, proposal: &Proposal) -> ContentAvailability {
        let path = self.vault().contents(&proposal.transaction);
        if path.is_dir() { ContentAvailability::Kept } else { ContentAvailability::Gone }
    }

    /// The proposal as a unified diff against its base, unredacted.
    pub fn proposal_diff(&self, proposal: &Proposal) -> Result<Zeroizing<Vec<u8>>, ContentVaultError> {
        self.vault().diff(&proposal.transaction, &proposal.patch)
    }

    /// Discards the proposal and deletes its contents.
    pub fn discard(
        &self,
        proposal: &Proposal,
        by: Principal,
        reason: Option<String>,
    ) -> Result<(), ProposalError> {
        let id = &proposal.transaction;
        let vault = self.vault();
        // A proposal without contents can still be discarded.
        let _lock = match lock(&vault, id) {
            Ok(lock) => Some(lock),
            Err(ProposalError::Vault(ContentVaultError::Gone)) => None,
            Err(error) => return Err(error),
        };
        let reason = reason.map(|reason| self.cleaner().text(&reason));
        match self.ledger.append(&Event::ProposalDiscarded { transaction: id.clone(), actor: by, reason }) {
            Ok(_) => Ok(vault.forget(id)?),
            Err(AppendError::OutOfOrder { .. }) => Err(self.closed(id)?),
            Err(error) => Err(ProposalError::Ledger(error)),
        }
    }

    fn vault(&self) -> ContentVault {
        ContentVault::new(&self.setup.state_dir)
    }

    fn closed(&self, id: &TransactionId) -> Result<ProposalError, ProposalLookupError> {
        let state = self.proposal(id.as_str())?.state();
        Ok(ProposalError::Closed { id: id.clone(), state })
    }
}

fn about(reader: &LedgerReader, id: &TransactionId) -> Result<Option<Proposal>, ProposalLookupError> {
    Ok(Proposal::of(&reader.about(id.as_str())?))
}

impl ContentVault {
    /// The changes as a unified diff against their base, unredacted.
    pub(crate) fn diff(
        &self,
        transaction: &TransactionId,
        patch: &Patch,
    ) -> Result<Zeroizing<Vec<u8>>, ContentVaultError> {
        let mut out = Zeroizing::new(Vec::new());
        for (number, file) in patch.files.iter().enumerate() {
            let side = |side| self.open(transaction, number, file, side);
            let (base, result) = (side(FileSide::Base)?, side(FileSide::Result)?);
            let section =
                Zeroizing::new(diff::write(&file.path, plain(base.as_ref()), plain(result.as_ref())));
            out.extend_from_slice(&section);
        }
        Ok(out)
    }
}

fn plain(content: Option<&SecretContent>) -> Option<&[u8]> {
    content.map(|content| content.as_slice())
}

/// Held by the process that works on a proposal until it finishes or dies.
fn lock(vault: &ContentVault, id: &TransactionId) -> Result<File, ProposalError> {
    let path = vault.contents(id);
    let lock = match File::open(&path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ContentVaultError::Gone.into()),
        Err(source) => return Err(ContentVaultError::Io { path, source }.into()),
    };
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(ProposalError::Busy { id: id.clone() }),
        Err(TryLockError::Error(source)) => Err(ContentVaultError::Io { path, source }.into()),
    }
}

/// The result of applying a proposal.
#[derive(Debug)]
pub enum ApplyOutcome {
    /// It went through the pipeline.
    Settled(Box<Settled>),
    /// Refused before the pipeline. After a conflict the proposal stays open.
    Refused(Refusal),
}

impl AgentSession<'_> {
    /// Applies a proposal completely or not at all, as an operator's call through the pipeline. The ledger
    /// records a refusal.
    pub fn apply(&mut self, proposal: &Proposal, io: CommandIo<'_>) -> Result<ApplyOutcome, ProposalError> {
        let applied = self.try_apply(proposal, io);
        let Some(refusal) = applied.as_ref().err().and_then(ProposalError::refusal) else { return applied };
        let session = Some(self.id.clone());
        let event = Event::CallRefused {
            transaction: None,
            session,
            call: None,
            refusal: refusal.clone(),
            call_origin: None,
        };
        let _receipt = self.runtime.ledger.append(&event).map_err(ProposalError::Ledger)?;
        Ok(ApplyOutcome::Refused(refusal))
    }

    fn try_apply(&mut self, proposal: &Proposal, io: CommandIo<'_>) -> Result<ApplyOutcome, ProposalError> {
        let id = &proposal.transaction;
        if proposal.workspace_id != self.workspace.id {
            let workspace = proposal.workspace.clone();
            return Err(ProposalError::OtherWorkspace { id: id.clone(), workspace });
        }
        let vault = self.runtime.vault();
        let locked = lock(&vault, id);
        if let Err(busy @ ProposalError::Busy { .. }) = locked {
            return Err(busy);
        }
        // The previous lock holder may have settled it.
        let now = self.runtime.proposal(id.as_str())?;
        if !now.is_open() {
            return Err(ProposalError::Closed { id: id.clone(), state: now.state() });
        }
        let _lock = locked?;
        let scanner = introduced_secrets::scanner(vault.salt(MissingKeyPolicy::Refuse)?, &self.secrets.all)?;
        let patch = scanned(&vault, id, now.patch, &scanner)?;
        if let Some(files) = self.conflicts(&patch) {
            let event = Event::ProposalConflicted { transaction: id.clone(), files: files.clone() };
            let _receipt = self.runtime.ledger.append(&event).map_err(ProposalError::Ledger)?;
            return Ok(ApplyOutcome::Refused(pipeline::conflict(&files)));
        }
        let _journal = LandingJournal::begin(&vault, id, &self.id)?;
        let settled = pipeline::run(Received::proposed(patch, id.clone()), self, io);
        if settled.record_error.is_none() {
            journal::conclude(&vault, id)?;
        }
        Ok(ApplyOutcome::Settled(Box::new(settled)))
    }

    /// Files that differ from the base of `patch`. A refusal of a path is left to policy.
    fn conflicts(&self, patch: &Patch) -> Option<Vec<ByteString>> {
        let rules = SandboxRules::new(&self.policy.rules.paths).host(HostFiles::of(&self.runtime.setup));
        let tree = FileTree::open(&self.all_roots(), &rules).ok()?;
        match tree.plan(&self.workspace.path, &pipeline::edits(patch), "check") {
            Err(ChangeSetError::Conflict { paths }) => {
                Some(paths.iter().map(|path| ByteString::from(path.as_path())).collect())
            }
            _ => None,
        }
    }
}

/// The patch with the findings of the current scanner, so that the approver sees them whatever was found at
/// the proposal.
fn scanned(
    vault: &ContentVault,
    id: &TransactionId,
    patch: Patch,
    scanner: &Scanner,
) -> Result<Patch, ContentVaultError> {
    let mut files = Vec::with_capacity(patch.files.len());
    for (number, file) in patch.files.into_iter().enumerate() {
        let base = vault.open(id, number, &file, FileSide::Base)?;
        let result = vault.open(id, number, &file, FileSide::Result)?;
        let introduced =
            introduced_secrets::introduced(scanner, plain(base.as_ref()), plain(result.as_ref()));
        let secrets = introduced.into_iter().map(|(introduced, _)| introduced).collect();
        files.push(PatchedFile { secrets, ..file });
    }
    Ok(Patch { files })
}
