use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ringfence_types::{Bytes, TransactionId};
use rusqlite::{Connection, Params};

use crate::chain::{Break, Flaw};
use crate::store::{self, OpenError};
use crate::{Kind, Record};

/// More candidates than a person would read.
const MOST_CANDIDATES: usize = 10;

/// A ledger that is only looked at. What it returns is what the rows say; [`crate::verify()`] says whether to believe them.
#[derive(Debug)]
pub struct LedgerReader {
    connection: Connection,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    #[error("nothing in the ledger is called `{}`", Bytes::from(id.as_str()).display())]
    Unknown { id: String },
    #[error("`{}` could be {}", Bytes::from(id.as_str()).display(), candidates.join(", "))]
    Ambiguous { id: String, candidates: Vec<String> },
    #[error("the ledger is broken: {0}")]
    Broken(Break),
    #[error("cannot read the ledger")]
    Storage(#[source] rusqlite::Error),
}

impl LedgerReader {
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        Ok(Self { connection: store::open_to_read(path)? })
    }

    /// The last `count` records, oldest first.
    pub fn tail(&self, count: u32) -> Result<Vec<Record>, ReadError> {
        let sql = "SELECT seq, time, kind, body, hash FROM record ORDER BY seq DESC LIMIT ?1";
        let mut records = self.select(sql, [count])?;
        records.reverse();
        Ok(records)
    }

    /// The newest `count` records of these kinds, oldest first.
    pub fn of_kinds(&self, kinds: &[Kind], count: u32) -> Result<Vec<Record>, ReadError> {
        let words: Vec<String> = kinds.iter().map(|kind| format!("'{}'", kind.word())).collect();
        let sql = format!(
            "SELECT seq, time, kind, body, hash FROM record WHERE kind IN ({}) ORDER BY seq DESC LIMIT ?1",
            words.join(", ")
        );
        let mut records = select(&self.connection, &sql, [count])?;
        records.reverse();
        Ok(records)
    }

    /// Everything with exactly this id, in order.
    pub fn about(&self, id: &str) -> Result<Vec<Record>, ReadError> {
        about(&self.connection, id)
    }

    /// Changes whenever somebody has appended.
    pub fn version(&self) -> Result<i64, ReadError> {
        self.connection.pragma_query_value(None, "data_version", |row| row.get(0)).map_err(ReadError::Storage)
    }

    /// Everything that belongs to `id`: the number of a record, or a transaction, session or grant, or the beginning
    /// of one if no other begins so. With a record come all records of its transaction, so that
    /// [`crate::incomplete()`] can tell whether it was settled.
    pub fn show(&self, id: &str) -> Result<Vec<Record>, ReadError> {
        let snapshot = self.connection.unchecked_transaction().map_err(ReadError::Storage)?;
        let found = match id.parse::<u32>() {
            Ok(seq) => self.numbered(seq, id)?,
            Err(_) => self.named(id)?,
        };
        let whole = self.with_transactions(found)?;
        snapshot.finish().map_err(ReadError::Storage)?;
        Ok(whole)
    }

    fn numbered(&self, seq: u32, id: &str) -> Result<Vec<Record>, ReadError> {
        let found = self.select("SELECT seq, time, kind, body, hash FROM record WHERE seq = ?1", [seq])?;
        if found.is_empty() { Err(ReadError::Unknown { id: id.to_owned() }) } else { Ok(found) }
    }

    fn named(&self, prefix: &str) -> Result<Vec<Record>, ReadError> {
        let unknown = || ReadError::Unknown { id: prefix.to_owned() };
        if prefix.is_empty() {
            return Err(unknown());
        }
        let sql = "SELECT seq, time, kind, body, hash FROM record WHERE instr(body, ?1) ORDER BY seq";
        let mut records = self.select(sql, [prefix])?;
        let id = the_one(prefix, &records)?.ok_or_else(unknown)?;
        records.retain(|record| record.event.ids().any(|candidate| candidate == id));
        Ok(records)
    }

    fn with_transactions(&self, found: Vec<Record>) -> Result<Vec<Record>, ReadError> {
        let wanted: BTreeSet<TransactionId> =
            found.iter().filter_map(|record| record.event.transaction().cloned()).collect();
        let mut whole: BTreeMap<u64, Record> = found.into_iter().map(|record| (record.seq, record)).collect();
        if !wanted.is_empty() {
            let sql = "SELECT seq, time, kind, body, hash FROM record WHERE kind IN ('intent', 'refused', 'settled')";
            let related = self.select(sql, [])?.into_iter();
            let related =
                related.filter(|record| record.event.transaction().is_some_and(|id| wanted.contains(id)));
            whole.extend(related.map(|record| (record.seq, record)));
        }
        Ok(whole.into_values().collect())
    }

    fn select(&self, sql: &str, params: impl Params) -> Result<Vec<Record>, ReadError> {
        select(&self.connection, sql, params)
    }
}

pub(crate) fn about(connection: &Connection, id: &str) -> Result<Vec<Record>, ReadError> {
    let sql = "SELECT seq, time, kind, body, hash FROM record WHERE instr(body, ?1) ORDER BY seq";
    let mut records = select(connection, sql, [id])?;
    records.retain(|record| record.event.ids().any(|candidate| candidate == id));
    Ok(records)
}

fn select(connection: &Connection, sql: &str, params: impl Params) -> Result<Vec<Record>, ReadError> {
    let mut statement = connection.prepare(sql).map_err(ReadError::Storage)?;
    let mut rows = statement.query(params).map_err(ReadError::Storage)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(ReadError::Storage)? {
        records.push(record(row).map_err(ReadError::Broken)?);
    }
    Ok(records)
}

fn record(row: &rusqlite::Row<'_>) -> Result<Record, Break> {
    let stored = store::row(row).map_err(|error| {
        let seq = row.get::<_, i64>(0).ok().and_then(|seq| seq.try_into().ok()).unwrap_or(0);
        Break { seq, what: Flaw::Malformed { reason: error.to_string() } }
    })?;
    Record::of_row(stored)
}

/// The id that `prefix` means: itself, or the only one that begins with it.
fn the_one(prefix: &str, records: &[Record]) -> Result<Option<String>, ReadError> {
    let ids = records.iter().flat_map(|record| record.event.ids());
    let candidates: BTreeSet<&str> = ids.filter(|id| id.starts_with(prefix)).collect();
    if candidates.contains(prefix) || candidates.len() < 2 {
        return Ok(candidates.first().map(|id| (*id).to_owned()));
    }
    let candidates = candidates.into_iter().take(MOST_CANDIDATES).map(str::to_owned).collect();
    Err(ReadError::Ambiguous { id: prefix.to_owned(), candidates })
}
