//! What a process left behind that ended without a word: found by anybody, at any time, from the records alone.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;

use jiff::Timestamp;
use ringfence_types::{Fingerprint, Layer, Principal, Refusal, RefusalCode, SessionId, TransactionId};

use crate::approval::{ApprovalAnswer, ApprovalDecision, ApprovalRequest};
use crate::event::{Event, ProcessId};
use crate::ledger::{AppendError, Ledger};
use crate::life::{Life, Status};
use crate::reader::{LedgerReader, ReadError, transaction_id};
use crate::record::Record;
use crate::sqlite::open::OpenError;

/// A transaction whose process is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub transaction: TransactionId,
    pub session: SessionId,
    pub left: Left,
}

/// How far it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Something was begun, and what came of it is not known.
    Begun,
    /// A question about this that nobody waits for any more.
    Asked(Fingerprint),
    /// A question that waits on without them.
    WaitsOn,
    /// An answer that nothing followed from.
    Answered,
    /// A proposal that somebody asked about. It stays; only the question ends.
    ProposalAsked(Fingerprint),
}

impl Orphan {
    /// What is to be written down.
    fn events(&self) -> Vec<Event> {
        const WHY: &str = "the process that worked on it is gone";
        let transaction = self.transaction.clone();
        let refused = Event::Refused {
            transaction: Some(transaction.clone()),
            session: Some(self.session.clone()),
            call: None,
            by: None,
            refusal: Refusal {
                code: RefusalCode::Approval,
                layer: Layer::Floor,
                rule: "ledger.recovery".to_owned(),
                message: WHY.to_owned(),
                hint: None,
            },
        };
        let expired = |fingerprint: &Fingerprint| {
            Event::ApprovalDecided(Box::new(ApprovalDecision {
                transaction: transaction.clone(),
                session: self.session.clone(),
                fingerprint: fingerprint.clone(),
                answer: ApprovalAnswer::Expired,
                by: Principal::System,
                reason: Some(WHY.to_owned()),
                edited: None,
                bound: Vec::new(),
            }))
        };
        match &self.left {
            Left::Begun => vec![Event::Interrupted { transaction, why: WHY.to_owned() }],
            Left::Asked(fingerprint) => vec![expired(fingerprint), refused],
            Left::WaitsOn => {
                let session = self.session.clone();
                vec![Event::ApprovalLeft { transaction, session, why: WHY.to_owned() }]
            }
            Left::Answered => vec![refused],
            Left::ProposalAsked(fingerprint) => vec![expired(fingerprint)],
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot find what was left open")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl Ledger {
    /// Closes what processes left open that are gone: what was begun is interrupted, what was asked has expired or waits on. Nothing is
    /// done again, and no answer is changed: whoever has written an end or an answer before has won.
    ///
    /// Costs one look at an empty table where nothing is open.
    pub fn recover(&self, is_alive: &dyn Fn(&ProcessId) -> bool) -> Result<Vec<Orphan>, RecoverError> {
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

/// Transactions that somebody has begun or asked about, who is gone. A session whose process is not known is left alone.
///
/// Reads nothing but the open transactions, so that it costs nothing where there are none.
pub fn orphans(
    reader: &LedgerReader,
    is_alive: &dyn Fn(&ProcessId) -> bool,
) -> Result<Vec<Orphan>, ReadError> {
    let mut gone: HashMap<SessionId, bool> = HashMap::new();
    let mut orphans = Vec::new();
    for id in reader.open_transactions()? {
        let records = reader.about(&id)?;
        // Whoever wrote last works on it: a proposal is applied by another session than it was made in.
        let session = records.iter().rev().find_map(|record| record.event.session().cloned());
        let (Some(left), Some(session), Some(transaction)) = (left(&records), session, transaction_id(&id))
        else {
            continue;
        };
        let is_gone = match gone.get(&session) {
            Some(is_gone) => *is_gone,
            None => process_of(reader, &session)?.is_some_and(|process| !is_alive(&process)),
        };
        gone.insert(session.clone(), is_gone);
        if is_gone {
            orphans.push(Orphan { transaction, session, left });
        }
    }
    Ok(orphans)
}

/// `None`: it waits for anybody, or it is not what it should be, which is for [`crate::verify()`] to say.
fn left(records: &[Record]) -> Option<Left> {
    let life = Life::of(records.iter().map(|record| &record.event)).ok()?;
    let question = || {
        records.iter().find_map(|record| match &record.event {
            Event::ApprovalRequested(request) => Some(request),
            _ => None,
        })
    };
    let fingerprint = || question().map(|request| request.fingerprint.clone());
    match life.status() {
        Status::InProgress => Some(Left::Begun),
        Status::AwaitingApproval if life.is_proposed() => fingerprint().map(Left::ProposalAsked),
        Status::AwaitingApproval if question().is_some_and(|request| waits_on(request)) => {
            let known = records.iter().any(|record| matches!(record.event, Event::ApprovalLeft { .. }));
            (!known).then_some(Left::WaitsOn)
        }
        Status::AwaitingApproval => fingerprint().map(Left::Asked),
        Status::Approved | Status::Refused if !life.is_over() && !life.is_proposed() => Some(Left::Answered),
        _ => None,
    }
}

/// Whether a question has a use without whoever asked it, and time.
fn waits_on(request: &ApprovalRequest) -> bool {
    request.next.is_some() && Timestamp::now() < request.expires
}

fn process_of(reader: &LedgerReader, session: &SessionId) -> Result<Option<ProcessId>, ReadError> {
    let records = reader.about(session.as_str())?;
    Ok(records.into_iter().find_map(|record| match record.event {
        Event::SessionStarted { process, .. } => process,
        _ => None,
    }))
}

impl ProcessId {
    /// This process, as far as the machine says.
    pub fn own() -> Option<Self> {
        let pid = std::process::id();
        Some(Self { pid, namespace: namespace()?, start_time: start_time(pid)?, boot_id: boot_id()? })
    }

    /// Whether exactly this process is there. What cannot be known counts as alive: nothing is taken from it then.
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
    // A zombie does nothing any more.
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
