//! A proposal becomes what it says: all of it, or nothing.

use ringfence_authz::Grant;
use ringfence_ledger::Event;
use ringfence_sandbox::files::{ChangeError, Changes, Edit, Progress, Tree};
use ringfence_types::{Bytes, Layer, Patch, Refusal, RefusalCode, TransactionId};

use super::decided::chain;
use super::file::{Touched, ended};
use super::settled::Ended;
use crate::proposal::{Content, Journal, JournalError, Phase, Side, Vault, VaultError};
use crate::rules::WorkspaceRules;
use crate::session::AgentSession;

/// What is written is what was judged: the bytes come from the vault, by the digests in the patch that was granted.
pub(super) fn perform(
    patch: &Patch,
    grant: &Grant,
    session: &AgentSession<'_>,
    transaction: &TransactionId,
) -> Result<Touched, Ended> {
    let vault = Vault::new(&session.runtime.setup.state_dir);
    let results = results(&vault, patch, transaction).map_err(|error| unavailable(&error))?;
    let contents: Vec<Option<&[u8]>> =
        results.iter().map(|content| content.as_ref().map(|content| content.as_slice())).collect();
    let rules = WorkspaceRules::of_call(&session.policy, grant).own(&session.runtime.setup.own);
    let tree = Tree::open(&grant.permissions().roots, &rules).map_err(|error| failed(chain(&error)))?;
    let root = &session.workspace.path;
    let changes = tree
        .plan(root, &edits(patch), transaction.as_str())
        .map_err(|error| not_applied(error, session, transaction))?;
    let mut journal = Journal::open(&vault, transaction).map_err(|error| failed(chain(&error)))?;
    match carry_out(&changes, &contents, &mut journal) {
        Ok(()) => Ok(Touched::Applied),
        Err(Stopped::Journal(error)) => Err(failed(chain(&error))),
        Err(Stopped::Change(error)) => Err(not_applied(error, session, transaction)),
    }
}

enum Stopped {
    Change(ChangeError),
    Journal(JournalError),
}

impl From<ChangeError> for Stopped {
    fn from(error: ChangeError) -> Self {
        Self::Change(error)
    }
}

impl From<JournalError> for Stopped {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// INVARIANT: whatever is on disk is never further than the journal says, so that whoever finds the journal knows which
/// way to go: back before `Swapping`, forward from there on.
fn carry_out(changes: &Changes, contents: &[Option<&[u8]>], journal: &mut Journal) -> Result<(), Stopped> {
    journal.enter(Phase::Staging, Some(changes))?;
    if let Err(error) = changes.stage(contents) {
        return Err(back(changes, journal, Progress::Staged, error.into()));
    }
    match journal.enter(Phase::Swapping, Some(changes)) {
        Ok(()) => {}
        Err(error @ JournalError::Unchanged { .. }) => {
            return Err(back(changes, journal, Progress::Staged, error.into()));
        }
        // Nothing was exchanged. Which way the next start goes depends on what reached the disk; both end whole.
        Err(error) => return Err(error.into()),
    }
    if let Err(error) = changes.swap() {
        journal.enter(Phase::Undoing, Some(changes))?;
        return Err(back(changes, journal, Progress::Swapping, error.into()));
    }
    Ok(journal.enter(Phase::Done, Some(changes))?)
}

/// What cannot be taken back now is taken back by the next start: the journal stays.
fn back(changes: &Changes, journal: &mut Journal, progress: Progress, why: Stopped) -> Stopped {
    match changes.withdraw(progress) {
        Ok(()) => journal.enter(Phase::Begun, None).err().map_or(why, Stopped::Journal),
        Err(error) => Stopped::Change(error),
    }
}

fn results(
    vault: &Vault,
    patch: &Patch,
    transaction: &TransactionId,
) -> Result<Vec<Option<Content>>, VaultError> {
    let files = patch.files.iter().enumerate();
    files.map(|file| vault.open(transaction, file, Side::Result)).collect()
}

pub(crate) fn edits(patch: &Patch) -> Vec<Edit<'_>> {
    let files = patch.files.iter();
    files
        .map(|file| Edit {
            path: file.path.as_path(),
            base: file.base.as_deref(),
            result: file.result.as_deref(),
        })
        .collect()
}

fn not_applied(error: ChangeError, session: &AgentSession<'_>, transaction: &TransactionId) -> Ended {
    match error {
        ChangeError::File(error) => ended(error),
        ChangeError::Conflict { paths } => {
            let files: Vec<Bytes> = paths.iter().map(|path| Bytes::from(path.as_path())).collect();
            let event = Event::Conflicted { transaction: transaction.clone(), files: files.clone() };
            // The refusal that follows names the files as well.
            let _unrecorded = session.runtime.ledger.append(&event);
            Ended::Refused(conflict(&files))
        }
        error @ ChangeError::Kept { .. } => Ended::Failed {
            what: chain(&error),
            hint: Some("look at it and move it away: the next start finishes".to_owned()),
        },
        error @ ChangeError::NoExchange { .. } => Ended::Failed {
            what: chain(&error),
            hint: Some(
                "apply it on a local file system, or by hand: `ringfence tx diff ID --raw`".to_owned(),
            ),
        },
    }
}

pub(crate) fn conflict(files: &[Bytes]) -> Refusal {
    let names: Vec<String> = files.iter().map(|file| format!("`{}`", file.display())).collect();
    Refusal {
        code: RefusalCode::Conflict,
        layer: Layer::Floor,
        rule: "apply.conflict".to_owned(),
        message: format!("nothing was applied: not what the proposal was made for: {}", names.join(", ")),
        hint: Some("let it be proposed again for the files as they are, or bring them back".to_owned()),
    }
}

fn unavailable(error: &VaultError) -> Ended {
    Ended::Failed { what: chain(error), hint: error.hint().map(str::to_owned) }
}

fn failed(what: String) -> Ended {
    Ended::Failed { what, hint: None }
}
