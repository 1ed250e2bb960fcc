use std::collections::{HashMap, HashSet};
use std::path::Path;

use ringfence_types::TransactionId;
use rusqlite::Connection;
use serde::Serialize;

use crate::chain::{Break, Flaw, Head};
use crate::record::closes;
use crate::store::{self, OpenError};
use crate::{ApprovalAnswer, Event, Record};

/// A chain that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verification {
    pub records: u64,
    /// `None`: there is no record. Kept elsewhere and given to a later [`verify()`], it shows whether records were cut
    /// off the end since.
    pub head: Option<Head>,
    /// Intended and neither settled nor refused: running now, or a crash. In the order of their intents.
    pub incomplete: Vec<TransactionId>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the ledger is broken: {0}")]
    Broken(Break),
    #[error("the file is damaged after record {after}")]
    Damaged { after: u64, source: rusqlite::Error },
}

/// Walks the whole chain. With `expected`, a head from earlier, that record must still be in it.
pub fn verify(path: &Path, expected: Option<&Head>) -> Result<Verification, VerifyError> {
    let connection = store::open_to_read(path)?;
    let mut walk = Walk { expected, ..Walk::default() };
    walk.all(&connection)?;
    walk.finish().map_err(VerifyError::Broken)
}

#[derive(Default)]
struct Walk<'a> {
    expected: Option<&'a Head>,
    head: Option<Head>,
    /// Intents by transaction, with the record that holds them.
    open: HashMap<TransactionId, u64>,
    closed: HashSet<TransactionId>,
    settled: HashSet<TransactionId>,
    /// Questions by transaction, with the answer.
    asked: HashMap<TransactionId, Option<ApprovalAnswer>>,
}

impl Walk<'_> {
    fn all(&mut self, connection: &Connection) -> Result<(), VerifyError> {
        let damaged = |after| move |source| VerifyError::Damaged { after, source };
        let sql = "SELECT seq, time, kind, body, hash FROM record ORDER BY seq";
        let mut statement = connection.prepare(sql).map_err(damaged(0))?;
        let mut rows = statement.query([]).map_err(damaged(0))?;
        while let Some(row) = rows.next().map_err(damaged(self.seq()))? {
            self.step(row).map_err(VerifyError::Broken)?;
        }
        Ok(())
    }

    fn step(&mut self, row: &rusqlite::Row<'_>) -> Result<(), Break> {
        let row = store::row(row).map_err(|error| Break {
            seq: self.seq() + 1,
            what: Flaw::Malformed { reason: error.to_string() },
        })?;
        row.check_after(self.head.as_ref())?;
        let head = row.head();
        if self.expected.is_some_and(|expected| expected.seq == head.seq && *expected != head) {
            return Err(Break { seq: head.seq, what: Flaw::Rewritten });
        }
        let record = Record::of_row(row)?;
        self.follow(&record).map_err(|what| Break { seq: record.seq, what })?;
        self.head = Some(head);
        Ok(())
    }

    /// The life of a transaction: where it is asked about, answered once; intended once, then settled at most once.
    fn follow(&mut self, record: &Record) -> Result<(), Flaw> {
        let Some(id) = record.event.transaction() else { return Ok(()) };
        let transaction = id.to_string();
        match record.event {
            Event::ApprovalRequested { .. } if self.asked.contains_key(id) => {
                return Err(Flaw::AskedTwice { transaction });
            }
            Event::ApprovalRequested { .. } => drop(self.asked.insert(id.clone(), None)),
            Event::ApprovalDecided { answer, .. } => match self.asked.insert(id.clone(), Some(answer)) {
                None => return Err(Flaw::AnsweredWithoutQuestion { transaction }),
                Some(Some(_)) => return Err(Flaw::AnsweredTwice { transaction }),
                Some(None) => {}
            },
            Event::Intent { .. } if !self.may_follow(id) => {
                return Err(Flaw::IntendedUnpermitted { transaction });
            }
            Event::Intent { .. } if self.open.contains_key(id) || self.closed.contains(id) => {
                return Err(Flaw::IntendedTwice { transaction });
            }
            Event::Intent { .. } => drop(self.open.insert(id.clone(), record.seq)),
            Event::Settled { .. } if self.settled.contains(id) => {
                return Err(Flaw::SettledTwice { transaction });
            }
            Event::Settled { .. } if !self.open.contains_key(id) && !self.closed.contains(id) => {
                return Err(Flaw::SettledWithoutIntent { transaction });
            }
            _ => {}
        }
        if closes(&record.event) {
            self.close(record, id);
        }
        Ok(())
    }

    /// An effect follows no question, or one that was answered with yes.
    fn may_follow(&self, id: &TransactionId) -> bool {
        self.asked.get(id).is_none_or(|answer| answer.is_some_and(ApprovalAnswer::permits))
    }

    fn close(&mut self, record: &Record, id: &TransactionId) {
        if self.open.remove(id).is_some() {
            self.closed.insert(id.clone());
        }
        if matches!(record.event, Event::Settled { .. }) {
            self.settled.insert(id.clone());
        }
    }

    fn finish(self) -> Result<Verification, Break> {
        let records = self.seq();
        if let Some(expected) = self.expected.filter(|expected| expected.seq > records) {
            return Err(Break { seq: records + 1, what: Flaw::Truncated { expected: expected.seq } });
        }
        let mut open: Vec<_> = self.open.into_iter().map(|(id, seq)| (seq, id)).collect();
        open.sort();
        let incomplete = open.into_iter().map(|(_, id)| id).collect();
        Ok(Verification { records, head: self.head, incomplete })
    }

    fn seq(&self) -> u64 {
        self.head.as_ref().map_or(0, |head| head.seq)
    }
}
