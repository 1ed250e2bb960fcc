//! The patch effect: applies a proposal completely or not at all.

use ringfence_ledger::Event;
use ringfence_sandbox::CommandIo;
use ringfence_sandbox::files::{ChangeProgress, ChangeSet, ChangeSetError, FileEdit, FileTree};
use ringfence_types::{ByteString, Call, Patch, PolicyLayer, Refusal, RefusalCode, RuleId, TransactionId};

use super::file::{EffectOutput, ended, over_quota};
use super::{Effect, Perform, held_changes};
use crate::pipeline::{Admitted, CallEnd, Running, Settled, chain};
use crate::proposal::{
    ContentVault, ContentVaultError, FileSide, JournalError, JournalPhase, LandingJournal, SecretContent,
};
use crate::sandbox_rules::{HostFiles, SandboxRules};
use crate::session::AgentSession;

#[derive(Debug)]
pub struct PatchEffect;

impl Effect for PatchEffect {
    fn can_become(call: &Call) -> bool {
        matches!(call, Call::Apply(_))
    }
}

impl Perform for PatchEffect {
    fn perform(admitted: Admitted<Self>, session: &mut AgentSession<'_>, _io: CommandIo<'_>) -> Settled {
        let running = match admitted.start(session) {
            Ok(running) => running,
            Err(settled) => return settled,
        };
        if let Some(refusal) = over_quota(running.grant(), session) {
            return running.settling.refused(session, refusal);
        }
        let before = match held_changes::before(running.grant(), session) {
            Ok(before) => before,
            Err(ended) => return running.settling.touched(session, Err(ended)),
        };
        let done = apply(&running, session);
        let (changes, looked) = held_changes::after(before, session);
        let done = done.and_then(|touched| looked.map(|()| touched));
        running.settling.touched(session, done).with_held(&changes, &session.leaks)
    }
}

/// Writes what policy evaluated: the bytes come from the vault, by the digests in the authorized patch.
fn apply(running: &Running<PatchEffect>, session: &AgentSession<'_>) -> Result<EffectOutput, CallEnd> {
    let (grant, transaction) = (running.grant(), &running.settling.transaction);
    let Call::Apply(patch) = running.call() else {
        return Err(failed("the call is not a patch".to_owned()));
    };
    let vault = ContentVault::new(&session.runtime.setup.state_dir);
    let results = results(&vault, patch, transaction).map_err(|error| unavailable(&error))?;
    let contents: Vec<Option<&[u8]>> =
        results.iter().map(|content| content.as_ref().map(|content| content.as_slice())).collect();
    let rules = SandboxRules::of_call(&session.policy, grant).host(HostFiles::of(&session.runtime.setup));
    let tree = FileTree::open(&grant.permissions().roots, &rules).map_err(|error| failed(chain(&error)))?;
    let root = &session.workspace.path;
    let changes = tree
        .plan(root, &edits(patch), transaction.as_str())
        .map_err(|error| not_applied(error, session, transaction))?;
    let mut journal = LandingJournal::open(&vault, transaction).map_err(|error| failed(chain(&error)))?;
    match carry_out(&changes, &contents, &mut journal) {
        Ok(()) => Ok(EffectOutput::Applied),
        Err(LandingError::Journal(error)) => Err(failed(chain(&error))),
        Err(LandingError::Change(error)) => Err(not_applied(error, session, transaction)),
    }
}

enum LandingError {
    Change(ChangeSetError),
    Journal(JournalError),
}

impl From<ChangeSetError> for LandingError {
    fn from(error: ChangeSetError) -> Self {
        Self::Change(error)
    }
}

impl From<JournalError> for LandingError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// INVARIANT: the disk is never ahead of the journal. Recovery therefore knows the direction: back before
/// `Swapping`, forward from there on.
fn carry_out(
    changes: &ChangeSet,
    contents: &[Option<&[u8]>],
    journal: &mut LandingJournal,
) -> Result<(), LandingError> {
    journal.enter(JournalPhase::Staging, Some(changes))?;
    if let Err(error) = changes.stage(contents) {
        return Err(back(changes, journal, ChangeProgress::Staged, error.into()));
    }
    match journal.enter(JournalPhase::Swapping, Some(changes)) {
        Ok(()) => {}
        Err(error @ JournalError::Unchanged { .. }) => {
            return Err(back(changes, journal, ChangeProgress::Staged, error.into()));
        }
        // No file was swapped. Recovery may go back or forward, by what reached the disk; both are consistent.
        Err(error) => return Err(error.into()),
    }
    if let Err(error) = changes.swap() {
        journal.enter(JournalPhase::Undoing, Some(changes))?;
        return Err(back(changes, journal, ChangeProgress::Swapping, error.into()));
    }
    Ok(journal.enter(JournalPhase::Done, Some(changes))?)
}

/// On failure the journal stays, and the next start completes the rollback.
fn back(
    changes: &ChangeSet,
    journal: &mut LandingJournal,
    progress: ChangeProgress,
    why: LandingError,
) -> LandingError {
    match changes.withdraw(progress) {
        Ok(()) => journal.enter(JournalPhase::Begun, None).err().map_or(why, LandingError::Journal),
        Err(error) => LandingError::Change(error),
    }
}

fn results(
    vault: &ContentVault,
    patch: &Patch,
    transaction: &TransactionId,
) -> Result<Vec<Option<SecretContent>>, ContentVaultError> {
    let files = patch.files.iter().enumerate();
    files.map(|(number, file)| vault.open(transaction, number, file, FileSide::Result)).collect()
}

pub(crate) fn edits(patch: &Patch) -> Vec<FileEdit<'_>> {
    let files = patch.files.iter();
    files
        .map(|file| FileEdit {
            path: file.path.as_path(),
            base: file.base.as_deref(),
            result: file.result.as_deref(),
        })
        .collect()
}

fn not_applied(error: ChangeSetError, session: &AgentSession<'_>, transaction: &TransactionId) -> CallEnd {
    match error {
        ChangeSetError::File(error) => ended(error),
        ChangeSetError::Conflict { paths } => {
            let files: Vec<ByteString> = paths.iter().map(|path| ByteString::from(path.as_path())).collect();
            let event = Event::ProposalConflicted { transaction: transaction.clone(), files: files.clone() };
            // The refusal below names the files as well.
            let _unrecorded = session.runtime.ledger.append(&event);
            CallEnd::Refused(conflict(&files))
        }
        error @ ChangeSetError::Kept { .. } => CallEnd::Failed {
            what: chain(&error),
            hint: Some("look at it and move it away: the next start finishes".to_owned()),
        },
        error @ ChangeSetError::NoExchange { .. } => CallEnd::Failed {
            what: chain(&error),
            hint: Some(
                "apply it on a local file system, or by hand: `ringfence proposal diff ID --raw`".to_owned(),
            ),
        },
    }
}

pub(crate) fn conflict(files: &[ByteString]) -> Refusal {
    let names: Vec<String> = files.iter().map(|file| format!("`{}`", file.display())).collect();
    Refusal {
        code: RefusalCode::Conflict,
        layer: PolicyLayer::Floor,
        rule: RuleId::ApplyConflict.into(),
        message: format!("nothing was applied: not what the proposal was made for: {}", names.join(", ")),
        hint: Some("let it be proposed again for the files as they are, or bring them back".to_owned()),
    }
}

fn unavailable(error: &ContentVaultError) -> CallEnd {
    CallEnd::Failed { what: chain(error), hint: error.hint().map(str::to_owned) }
}

fn failed(what: String) -> CallEnd {
    CallEnd::Failed { what, hint: None }
}
