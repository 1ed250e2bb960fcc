use std::collections::HashMap;
use std::path::Path;

use ringfence_types::TransactionId;
use rusqlite::Connection;
use serde::Serialize;

use crate::chain::{Break, Flaw, Head};
use crate::store::{self, OpenError};
use crate::{Life, Record, Status};

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
    lives: HashMap<TransactionId, Life>,
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

    fn follow(&mut self, record: &Record) -> Result<(), Flaw> {
        let Some(id) = record.event.transaction() else { return Ok(()) };
        let life = self.lives.entry(id.clone()).or_default();
        life.follow(&record.event)
            .map_err(|why| Flaw::OutOfOrder { transaction: id.to_string(), why: why.to_string() })?;
        match life.status() {
            Status::InProgress => drop(self.open.entry(id.clone()).or_insert(record.seq)),
            _ => drop(self.open.remove(id)),
        }
        Ok(())
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
