//! Recovery: closes transactions of processes that died. Any process can do it at any time, from the records alone.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;

use jiff::Timestamp;
use ringfence_types::{
    ActionFingerprint, PolicyLayer, Principal, Refusal, RefusalCode, RuleId, SessionId, TransactionId,
};

use crate::approval::{ApprovalAnswer, ApprovalDecision, ApprovalRequest};
use crate::event::{Event, ProcessId};
use crate::ledger::{AppendError, Ledger};
use crate::lifecycle::{Lifecycle, TransactionStatus};
use crate::reader::{LedgerReadError, LedgerReader, transaction_id};
use crate::record::Record;
use crate::sqlite::open::LedgerOpenError;

/// A transaction whose process is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanedTransaction {
    pub transaction: TransactionId,
    pub session: SessionId,
    pub left: OrphanStage,
}

/// Progress of an orphaned transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrphanStage {
    /// Started; its outcome is unknown.
    Begun,
    /// An approval request that no process waits for.
    Asked(ActionFingerprint),
    /// An orphaned approval that stays pending.
    WaitsOn,
    /// An answer without an effect.
    Answered,
    /// An approval request about a proposal. The proposal stays; the request ends.
    ProposalAsked(ActionFingerprint),
}

impl OrphanedTransaction {
    /// The records to append.
    fn events(&self) -> Vec<Event> {
        const WHY: &str = "the process that worked on it is gone";
        let transaction = self.transaction.clone();
        let refused = Event::CallRefused {
            transaction: Some(transaction.clone()),
            session: Some(self.session.clone()),
            call: None,
            call_origin: None,
            refusal: Refusal {
                code: RefusalCode::Approval,
                layer: PolicyLayer::Floor,
                rule: RuleId::LedgerRecovery.into(),
                message: WHY.to_owned(),
                hint: None,
            },
        };
        let expired = |fingerprint: &ActionFingerprint| {
            Event::ApprovalDecided(Box::new(ApprovalDecision {
                transaction: transaction.clone(),
                session: self.session.clone(),
                fingerprint: fingerprint.clone(),
                answer: ApprovalAnswer::Expired,
                actor: Principal::System,
                reason: Some(WHY.to_owned()),
                replacement: None,
                bound_objects: Vec::new(),
            }))
        };
        match &self.left {
            OrphanStage::Begun => vec![Event::CallInterrupted { transaction, reason: WHY.to_owned() }],
            OrphanStage::Asked(fingerprint) => vec![expired(fingerprint), refused],
            OrphanStage::WaitsOn => {
                let session = self.session.clone();
                vec![Event::ApprovalOrphaned { transaction, session, reason: WHY.to_owned() }]
            }
            OrphanStage::Answered => vec![refused],
            OrphanStage::ProposalAsked(fingerprint) => vec![expired(fingerprint)],
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    #[error(transparent)]
    Open(#[from] LedgerOpenError),
    #[error("cannot find what was left open")]
    Read(#[from] LedgerReadError),
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl Ledger {
    /// Closes open transactions of dead processes: started ones are interrupted, approval requests expire or become orphaned.
    /// Nothing is executed again and no answer changes: an end or answer that was recorded first wins.
    ///
    /// Costs one query of an empty table if nothing is open.
    pub fn recover(
        &self,
        is_alive: &dyn Fn(&ProcessId) -> bool,
    ) -> Result<Vec<OrphanedTransaction>, RecoverError> {
        if !self.has_open().map_err(AppendError::of_store)? {
            return Ok(Vec::new());
        }
        let mut closed = Vec::new();
        for orphan in orphans(&self.reader()?, is_alive)? {
            match self.append_all(&orphan.events()) {
                Ok(_) => closed.push(orphan),
                Err(AppendError::OutOfOrder { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(closed)
    }
}

/// Open transactions whose process is gone. A session with an unknown process is left alone.
///
/// Reads open transactions only, so it costs nothing if there are none.
pub fn orphans(
    reader: &LedgerReader,
    is_alive: &dyn Fn(&ProcessId) -> bool,
) -> Result<Vec<OrphanedTransaction>, LedgerReadError> {
    let mut gone: HashMap<SessionId, bool> = HashMap::new();
    let mut orphans = Vec::new();
    for id in reader.open_transactions()? {
        let records = reader.about(&id)?;
        let (Some(left), Some(session), Some(transaction)) =
            (orphan_stage(&records), owner_of(reader, &id, &records)?, transaction_id(&id))
        else {
            continue;
        };
        let is_gone = match gone.get(&session) {
            Some(is_gone) => *is_gone,
            None => process_of(reader, &session)?.is_some_and(|process| !is_alive(&process)),
        };
        gone.insert(session.clone(), is_gone);
        if is_gone {
            orphans.push(OrphanedTransaction { transaction, session, left });
        }
    }
    Ok(orphans)
}

/// The session whose process works on a transaction. `None`: this node cannot tell whether that process lives, because another node
/// works on the transaction, or a client with the role of a node has written about it or into the table `open`.
fn owner_of(
    reader: &LedgerReader,
    id: &str,
    records: &[Record],
) -> Result<Option<SessionId>, LedgerReadError> {
    // The last writer owns it: a proposal is applied by another session than the one that made it.
    let last = |records: &[Record]| records.iter().rev().find_map(|record| record.event.session().cloned());
    let own = last(&reader.own_about(id)?);
    Ok(own.filter(|own| last(records).as_ref() == Some(own)))
}

/// `None`: it waits for any client, or it is inconsistent, which [`crate::verify()`] reports.
fn orphan_stage(records: &[Record]) -> Option<OrphanStage> {
    let life = Lifecycle::of(records.iter().map(|record| &record.event)).ok()?;
    let question = || {
        records.iter().find_map(|record| match &record.event {
            Event::ApprovalRequested(request) => Some(request),
            _ => None,
        })
    };
    let fingerprint = || question().map(|request| request.fingerprint.clone());
    match life.status() {
        TransactionStatus::InProgress => Some(OrphanStage::Begun),
        TransactionStatus::AwaitingApproval if life.is_proposed() => {
            fingerprint().map(OrphanStage::ProposalAsked)
        }
        TransactionStatus::AwaitingApproval if question().is_some_and(|request| is_awaited(request)) => {
            let known = records.iter().any(|record| matches!(record.event, Event::ApprovalOrphaned { .. }));
            (!known).then_some(OrphanStage::WaitsOn)
        }
        TransactionStatus::AwaitingApproval => fingerprint().map(OrphanStage::Asked),
        TransactionStatus::Approved | TransactionStatus::Refused
            if !life.is_over() && !life.is_proposed() =>
        {
            Some(OrphanStage::Answered)
        }
        _ => None,
    }
}

/// Whether the request is useful without its requester and has time left.
fn is_awaited(request: &ApprovalRequest) -> bool {
    request.binding_without_session.is_some() && Timestamp::now() < request.expires_at
}

fn process_of(reader: &LedgerReader, session: &SessionId) -> Result<Option<ProcessId>, LedgerReadError> {
    let records = reader.own_about(session.as_str())?;
    Ok(records.into_iter().find_map(|record| match record.event {
        Event::SessionStarted { process, .. } => process,
        _ => None,
    }))
}

impl ProcessId {
    /// This process, as the kernel describes it.
    pub fn own() -> Option<Self> {
        let pid = std::process::id();
        Some(Self { pid, namespace: namespace()?, start_time: start_time(pid)?, boot_id: boot_id()? })
    }

    /// Whether exactly this process exists. Unknown counts as alive, so nothing of it is closed.
    pub fn is_alive(&self) -> bool {
        match (boot_id(), namespace()) {
            (Some(boot), _) if boot != self.boot_id => false,
            (Some(_), Some(namespace)) if namespace == self.namespace => {
                start_time(self.pid) == Some(self.start_time)
            }
            _ => true,
        }
    }
}

fn namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
}

fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Field 22 of `/proc/PID/stat`; the second one is a name in parentheses that may hold anything.
fn start_time(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    // A zombie no longer acts.
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_number() {
        let own = ProcessId::own().unwrap();
        assert!(own.is_alive());
        assert!(!ProcessId { start_time: own.start_time + 1, ..own.clone() }.is_alive());
        assert!(!ProcessId { boot_id: "another".to_owned(), ..own.clone() }.is_alive());
        let elsewhere = ProcessId { namespace: 0, start_time: 0, ..own.clone() };
        assert!(elsewhere.is_alive(), "of what cannot be seen nothing is known");
        let mut child = std::process::Command::new("/bin/sleep").arg("100").spawn().unwrap();
        let start_time = start_time(child.id()).unwrap();
        let theirs = ProcessId { pid: child.id(), start_time, ..own };
        assert!(theirs.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!theirs.is_alive());
    }
}
