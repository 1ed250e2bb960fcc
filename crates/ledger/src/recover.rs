//! What a process left behind that ended without a word: found by anybody, at any time, from the records alone.

use std::collections::HashMap;

use ringfence_types::{Fingerprint, Principal, SessionId, TransactionId};

use crate::approval::{ApprovalAnswer, ApprovalDecision};
use crate::event::{Event, ProcessId};
use crate::life::{Life, Status};
use crate::reader::{LedgerReader, ReadError, transaction_id};

/// A transaction whose process is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub transaction: TransactionId,
    pub session: SessionId,
    /// `Some`: a question that nobody waits for any more, about this. `None`: something was begun.
    pub question: Option<Fingerprint>,
}

impl Orphan {
    /// What is to be written down. Whoever is first wins, as with every end and every answer.
    pub fn events(&self, why: &str) -> Vec<Event> {
        let transaction = self.transaction.clone();
        match &self.question {
            Some(fingerprint) => vec![Event::ApprovalDecided(Box::new(ApprovalDecision {
                transaction,
                session: self.session.clone(),
                fingerprint: fingerprint.clone(),
                answer: ApprovalAnswer::Expired,
                by: Principal::System,
                reason: Some(why.to_owned()),
                edited: None,
            }))],
            None => vec![Event::Interrupted { transaction, why: why.to_owned() }],
        }
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
        let (Ok(life), Some(transaction)) =
            (Life::of(records.iter().map(|record| &record.event)), transaction_id(&id))
        else {
            continue;
        };
        let question = records.iter().find_map(|record| match &record.event {
            Event::ApprovalRequested(request) => Some(request.fingerprint.clone()),
            _ => None,
        });
        let question = match life.status() {
            Status::InProgress => None,
            Status::AwaitingApproval => question,
            // A proposal waits for anybody.
            _ => continue,
        };
        let Some(session) = records.iter().find_map(|record| record.event.session().cloned()) else {
            continue;
        };
        let is_gone = match gone.get(&session) {
            Some(is_gone) => *is_gone,
            None => {
                let is_gone = process_of(reader, &session)?.is_some_and(|process| !is_alive(&process));
                gone.insert(session.clone(), is_gone);
                is_gone
            }
        };
        if is_gone {
            orphans.push(Orphan { transaction, session, question });
        }
    }
    Ok(orphans)
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
        Some(Self { pid, start_time: start_time(pid)?, boot_id: boot_id()? })
    }

    /// Whether exactly this process is there. What cannot be known counts as alive: nothing is taken from it then.
    pub fn is_alive(&self) -> bool {
        match boot_id() {
            Some(boot) if boot != self.boot_id => false,
            None => true,
            Some(_) => start_time(self.pid) == Some(self.start_time),
        }
    }
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
        let mut child = std::process::Command::new("/bin/sleep").arg("100").spawn().unwrap();
        let start_time = start_time(child.id()).unwrap();
        let theirs = ProcessId { pid: child.id(), start_time, ..own };
        assert!(theirs.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!theirs.is_alive());
    }
}
