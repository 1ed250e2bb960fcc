use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;

use jiff::Timestamp;
use ringfence_types::{Bytes, TransactionId};

use crate::anchor::Anchored;
use crate::chain::{Break, Flaw, Head, Row};
use crate::checkpoint::{self, Proof};
use crate::event::{Event, Kind};
use crate::record::{Listed, Record};
use crate::store::{self, Chains, Fault, Order, Rows, Select, Side, StoreError, collect};
use crate::verify::{Expected, Verification, VerifyError, verify_rows};

/// More candidates than a person would read.
const MOST_CANDIDATES: usize = 10;

/// A ledger that is only looked at. What it returns is what the rows say; [`crate::verify()`] says whether to believe them.
///
/// Where records are asked for, those that were pruned are left out; [`LedgerReader::list`] has them.
pub struct LedgerReader {
    rows: Box<dyn Rows + Send>,
}

impl fmt::Debug for LedgerReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerReader").finish_non_exhaustive()
    }
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
    Storage(#[source] Fault),
    #[error("record {seq} is not signed yet")]
    Unsigned { seq: u64 },
}

impl ReadError {
    /// The one thing that would change the answer.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unknown { .. } => Some("`ringfence ledger tail` shows what there is"),
            Self::Ambiguous { .. } => Some("write more of it"),
            Self::Unsigned { .. } => Some("`ringfence ledger checkpoint` signs everything up to now"),
            Self::Broken(_) => Some(crate::sqlite::open::ACKNOWLEDGE),
            Self::Storage(_) => None,
        }
    }

    fn of_store(error: StoreError) -> Self {
        match error {
            StoreError::Malformed { seq, reason } => {
                Self::Broken(Break { seq, what: Flaw::Malformed { reason } })
            }
            StoreError::Busy(fault) | StoreError::Full(fault) | StoreError::Failed(fault) => {
                Self::Storage(fault)
            }
            other => Self::Storage(Fault::new(other)),
        }
    }
}

/// Which records are wanted. Everything that is said must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Empty: of any kind.
    pub kinds: Vec<Kind>,
    /// A transaction, session or grant, in full.
    pub about: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// With a number above this.
    pub after: u64,
}

impl Filter {
    fn select(&self, order: Order, most: Option<u64>) -> Select<'_> {
        let time = |time: &Option<Timestamp>| time.as_ref().map(|time| format!("{time:.6}"));
        Select {
            chains: if self.about.is_some() { Chains::All } else { Chains::This },
            id: self.about.as_deref(),
            kinds: self.kinds.clone(),
            numbers: (self.after.saturating_add(1), u64::MAX),
            since: time(&self.since),
            until: time(&self.until),
            order,
            most,
        }
    }
}

impl LedgerReader {
    pub(crate) fn over(rows: Box<dyn Rows + Send>) -> Self {
        Self { rows }
    }

    pub(crate) fn rows(&self) -> &dyn Rows {
        &*self.rows
    }

    /// Walks the whole chain; see [`crate::verify()`].
    pub fn verify(&self, expected: Expected<'_>) -> Result<Verification, VerifyError> {
        verify_rows(self.rows(), expected)
    }

    /// The last `count` records, oldest first.
    pub fn tail(&self, count: u32) -> Result<Vec<Record>, ReadError> {
        Ok(whole(self.list(&Filter::default(), count)?))
    }

    /// The newest `count` records of these kinds, oldest first, of every node.
    pub fn of_kinds(&self, kinds: &[Kind], count: u32) -> Result<Vec<Record>, ReadError> {
        let mut found = self.records(&Select::newest(count.into()).kinds(kinds).everywhere())?;
        found.reverse();
        Ok(whole(found))
    }

    /// Everything with exactly this id, in order.
    pub fn about(&self, id: &str) -> Result<Vec<Record>, ReadError> {
        self.records(&Select::about(id)).map(whole)
    }

    /// The newest `count` entries that `filter` wants, oldest first.
    pub fn list(&self, filter: &Filter, count: u32) -> Result<Vec<Listed>, ReadError> {
        let mut found = self.records(&filter.select(Order::NewestFirst, Some(count.into())))?;
        found.reverse();
        Ok(found)
    }

    /// Every entry that `filter` wants, oldest first, one at a time, until `each` has enough.
    pub fn each(
        &self,
        filter: &Filter,
        mut each: impl FnMut(Listed) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let mut broken = None;
        let select = filter.select(Order::OldestFirst, None);
        let read = self.rows.scan(&select, &mut |row| match Listed::of_row(row.to_row()) {
            Ok(listed) => each(listed),
            Err(found) => {
                broken = Some(found);
                ControlFlow::Break(())
            }
        });
        read.map_err(ReadError::of_store)?;
        broken.map_or(Ok(()), |broken| Err(ReadError::Broken(broken)))
    }

    /// Whether it has been `moment` since record `after` was written, by what the clock said to any record behind it. A clock
    /// that is set back does not take that back.
    pub fn has_reached(&self, moment: Timestamp, after: u64) -> Result<bool, ReadError> {
        // The numbers of one chain say nothing about those of another.
        let after = if self.rows.chains() == Chains::All { 0 } else { after };
        let filter = Filter { since: Some(moment), after, ..Filter::default() };
        Ok(!self.list(&filter, 1)?.is_empty())
    }

    /// Changes whenever somebody has appended.
    pub fn version(&self) -> Result<i64, ReadError> {
        self.rows.version().map_err(ReadError::of_store)
    }

    /// The end of the chain, without asking whether it holds.
    pub fn head(&self) -> Result<Option<Head>, ReadError> {
        store::head(self.rows()).map_err(ReadError::of_store)
    }

    /// Everything that belongs to `id`: the number of a record, or a transaction, session or grant, or the beginning
    /// of one if no other begins so. With a record come all records of its transaction, so that
    /// [`crate::incomplete()`] can tell whether it was settled.
    pub fn show(&self, id: &str) -> Result<Vec<Record>, ReadError> {
        self.find(id).map(whole)
    }

    /// [`LedgerReader::show`] with what was pruned.
    pub fn find(&self, id: &str) -> Result<Vec<Listed>, ReadError> {
        let found = self.rows_of(id)?;
        let transactions: BTreeSet<&str> = found
            .iter()
            .flat_map(|row| row.ids.split_ascii_whitespace().filter(|id| id.starts_with("tx_")))
            .collect();
        let several = self.rows.chains() == Chains::All;
        // Numbers of several chains have no order among each other.
        let key = |row: &Row| (several.then(|| row.time.clone()), row.seq, row.hash.clone());
        let mut all: BTreeMap<_, Row> = BTreeMap::new();
        for transaction in transactions {
            let related = collect(self.rows(), &Select::about(transaction)).map_err(ReadError::of_store)?;
            all.extend(related.into_iter().map(|row| (key(&row), row)));
        }
        all.extend(found.into_iter().map(|row| (key(&row), row)));
        all.into_values().map(|row| Listed::of_row(row).map_err(ReadError::Broken)).collect()
    }

    /// The full id that `prefix` means.
    pub fn full_id(&self, prefix: &str) -> Result<String, ReadError> {
        let unknown = || ReadError::Unknown { id: prefix.to_owned() };
        if prefix.is_empty() {
            return Err(unknown());
        }
        let candidates = self.rows.ids(prefix, MOST_CANDIDATES).map_err(ReadError::of_store)?;
        match candidates.first() {
            None => Err(unknown()),
            Some(id) if id == prefix || candidates.len() == 1 => Ok(id.clone()),
            Some(_) => Err(ReadError::Ambiguous { id: prefix.to_owned(), candidates }),
        }
    }

    /// Transactions that have begun, in any way, and have no end, oldest first.
    pub fn open_transactions(&self) -> Result<Vec<String>, ReadError> {
        let mut open = Vec::new();
        self.rows.side(Side::Open, &mut |id, _| open.push(id.to_owned())).map_err(ReadError::of_store)?;
        Ok(open)
    }

    /// How many records there are of each kind, in the order of their names.
    pub fn counts(&self) -> Result<Vec<(String, u64)>, ReadError> {
        self.rows.kinds().map_err(ReadError::of_store)
    }

    /// How many records of each of `kinds` there are from the first record on that is not older than `since`.
    pub fn counts_since(&self, since: Timestamp, kinds: &[Kind]) -> Result<Vec<u64>, ReadError> {
        self.rows.kinds_since(&format!("{since:.6}"), kinds).map_err(ReadError::of_store)
    }

    /// The newest checkpoint with the number of its record.
    pub fn newest_checkpoint(&self) -> Result<Option<Anchored>, ReadError> {
        let newest = whole(self.records(&Select::newest(1).kinds(&[Kind::Checkpoint]))?).pop();
        Ok(newest.and_then(|record| match record.event {
            Event::Checkpoint(checkpoint) => Some(Anchored { seq: record.seq, checkpoint }),
            _ => None,
        }))
    }

    /// How the chain began.
    pub fn beginning(&self) -> Result<Record, ReadError> {
        let no_beginning = || ReadError::Broken(Break { seq: 1, what: Flaw::NoBeginning });
        let first = self.records(&Select::numbered(1, 1))?.pop().and_then(Listed::whole);
        first.filter(|record| matches!(record.event, Event::ChainStarted { .. })).ok_or_else(no_beginning)
    }

    /// A proof for each record that `id` means; see [`LedgerReader::show`].
    pub fn prove(&self, id: &str) -> Result<Vec<Proof>, ReadError> {
        let rows = match id.parse::<u64>() {
            Ok(_) => self.rows_of(id)?,
            // Other chains are proven by whoever reads them.
            Err(_) => {
                let id = self.full_id(id)?;
                let select = Select { chains: Chains::This, ..Select::about(&id) };
                collect(self.rows(), &select).map_err(ReadError::of_store)?
            }
        };
        rows.into_iter().map(|row| self.prove_row(row)).collect()
    }

    fn prove_row(&self, row: Row) -> Result<Proof, ReadError> {
        let mut select = Select { most: Some(1), ..Select::default() }.kinds(&[Kind::Checkpoint]);
        // The first checkpoint after it covers it.
        select.numbers.0 = row.seq.saturating_add(1);
        let checkpoint = match self.records(&select)?.pop().and_then(Listed::whole).map(|record| record.event)
        {
            Some(Event::Checkpoint(checkpoint)) if checkpoint.last >= row.seq => checkpoint,
            _ => return Err(ReadError::Unsigned { seq: row.seq }),
        };
        let seq = row.seq;
        let proof = checkpoint::prove(self.rows(), row, checkpoint).map_err(ReadError::of_store)?;
        proof.ok_or(ReadError::Broken(Break { seq, what: Flaw::HashMismatch }))
    }

    fn rows_of(&self, id: &str) -> Result<Vec<Row>, ReadError> {
        let select = match id.parse::<u64>() {
            Ok(seq) => {
                let found =
                    collect(self.rows(), &Select::numbered(seq.max(1), seq)).map_err(ReadError::of_store)?;
                return if found.is_empty() {
                    Err(ReadError::Unknown { id: id.to_owned() })
                } else {
                    Ok(found)
                };
            }
            Err(_) => self.full_id(id)?,
        };
        collect(self.rows(), &Select::about(&select)).map_err(ReadError::of_store)
    }

    fn records(&self, select: &Select<'_>) -> Result<Vec<Listed>, ReadError> {
        let rows = collect(self.rows(), select).map_err(ReadError::of_store)?;
        rows.into_iter().map(|row| Listed::of_row(row).map_err(ReadError::Broken)).collect()
    }
}

fn whole(listed: Vec<Listed>) -> Vec<Record> {
    listed.into_iter().filter_map(Listed::whole).collect()
}

/// Reads an id that the ledger gave as one.
pub(crate) fn transaction_id(id: &str) -> Option<TransactionId> {
    serde_json::from_value(serde_json::Value::String(id.to_owned())).ok()
}
