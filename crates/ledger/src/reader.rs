//! The reader: queries of records by number, id, kind and time, and inclusion proofs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;

use jiff::Timestamp;
use ringfence_types::{ByteString, TransactionId};

use crate::anchor::AnchorLine;
use crate::chain::{ChainBreak, ChainFlaw, ChainHead, Row};
use crate::checkpoint::{self, InclusionProof};
use crate::event::{Event, Kind};
use crate::record::{Record, RecordOrPruned};
use crate::store::{
    self, ChainRows, ChainSelection, ChainStoreError, ClaimKind, RowOrder, RowQuery, StoreFault, collect,
};
use crate::verify::{ExpectedHead, Verification, VerifyError, verify_rows};

/// More candidates than a person would read.
const MOST_CANDIDATES: usize = 10;

/// A ledger open for reading. It returns what the rows say; [`crate::verify()`] tells whether they are trustworthy.
///
/// Queries for records omit pruned ones; [`LedgerReader::list`] includes them.
pub struct LedgerReader {
    rows: Box<dyn ChainRows + Send>,
}

impl fmt::Debug for LedgerReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerReader").finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerReadError {
    #[error("nothing in the ledger is called `{}`", ByteString::from(id.as_str()).display())]
    Unknown { id: String },
    #[error("`{}` could be {}", ByteString::from(id.as_str()).display(), candidates.join(", "))]
    Ambiguous { id: String, candidates: Vec<String> },
    #[error("the ledger is broken: {0}")]
    Broken(ChainBreak),
    #[error("cannot read the ledger")]
    Storage(#[source] StoreFault),
    #[error("record {seq} is not signed yet")]
    Unsigned { seq: u64 },
}

impl LedgerReadError {
    /// The next step for the operator.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unknown { .. } => Some("`ringfence ledger tail` shows what there is"),
            Self::Ambiguous { .. } => Some("write more of it"),
            Self::Unsigned { .. } => Some("`ringfence ledger checkpoint` signs everything up to now"),
            Self::Broken(_) => Some(crate::sqlite::open::ACKNOWLEDGE),
            Self::Storage(_) => None,
        }
    }

    fn of_store(error: ChainStoreError) -> Self {
        match error {
            ChainStoreError::Malformed { seq, reason } => {
                Self::Broken(ChainBreak { seq, what: ChainFlaw::Malformed { reason } })
            }
            ChainStoreError::Busy(fault) | ChainStoreError::Full(fault) | ChainStoreError::Failed(fault) => {
                Self::Storage(fault)
            }
            other => Self::Storage(StoreFault::new(other)),
        }
    }
}

/// Filter for records. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct RecordFilter {
    /// Empty: all kinds.
    pub kinds: Vec<Kind>,
    /// A full transaction, session or grant id.
    pub about: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// With a number above this.
    pub after: u64,
}

impl RecordFilter {
    fn select(&self, order: RowOrder, most: Option<u64>) -> RowQuery<'_> {
        let time = |time: &Option<Timestamp>| time.as_ref().map(|time| format!("{time:.6}"));
        RowQuery {
            chains: if self.about.is_some() { ChainSelection::All } else { ChainSelection::This },
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
    pub(crate) fn over(rows: Box<dyn ChainRows + Send>) -> Self {
        Self { rows }
    }

    pub(crate) fn rows(&self) -> &dyn ChainRows {
        &*self.rows
    }

    /// Walks the whole chain; see [`crate::verify()`].
    pub fn verify(&self, expected: ExpectedHead<'_>) -> Result<Verification, VerifyError> {
        verify_rows(self.rows(), expected)
    }

    /// The last `count` records, oldest first.
    pub fn tail(&self, count: u32) -> Result<Vec<Record>, LedgerReadError> {
        Ok(whole(self.list(&RecordFilter::default(), count)?))
    }

    /// The newest `count` records of these kinds, oldest first, of every node.
    pub fn of_kinds(&self, kinds: &[Kind], count: u32) -> Result<Vec<Record>, LedgerReadError> {
        let mut found = self.records(&RowQuery::newest(count.into()).kinds(kinds).everywhere())?;
        found.reverse();
        Ok(whole(found))
    }

    /// [`LedgerReader::of_kinds`], of this node only.
    pub fn own_of_kinds(&self, kinds: &[Kind], count: u32) -> Result<Vec<Record>, LedgerReadError> {
        let mut found = self.records(&RowQuery::newest(count.into()).kinds(kinds))?;
        found.reverse();
        Ok(whole(found))
    }

    /// Everything with exactly this id, in order.
    pub fn about(&self, id: &str) -> Result<Vec<Record>, LedgerReadError> {
        self.records(&RowQuery::about(id)).map(whole)
    }

    /// The kinds of all records about exactly this id, also of pruned ones and of chains that were set aside: neither makes undone what
    /// was used or revoked.
    pub fn kinds_ever_about(&self, id: &str) -> Result<Vec<Kind>, LedgerReadError> {
        let rows = collect(self.rows(), &RowQuery::ever_about(id)).map_err(LedgerReadError::of_store)?;
        Ok(rows.iter().filter_map(|row| Kind::of_word(&row.kind)).collect())
    }

    /// [`LedgerReader::about`], of this node only.
    pub fn own_about(&self, id: &str) -> Result<Vec<Record>, LedgerReadError> {
        self.records(&RowQuery { chains: ChainSelection::This, ..RowQuery::about(id) }).map(whole)
    }

    /// The newest `count` entries that `filter` wants, oldest first.
    pub fn list(&self, filter: &RecordFilter, count: u32) -> Result<Vec<RecordOrPruned>, LedgerReadError> {
        let mut found = self.records(&filter.select(RowOrder::NewestFirst, Some(count.into())))?;
        found.reverse();
        Ok(found)
    }

    /// Every entry that `filter` wants, oldest first, one at a time, until `each` has enough.
    pub fn each(
        &self,
        filter: &RecordFilter,
        mut each: impl FnMut(RecordOrPruned) -> ControlFlow<()>,
    ) -> Result<(), LedgerReadError> {
        let mut broken = None;
        let select = filter.select(RowOrder::OldestFirst, None);
        let read = self.rows.scan(&select, &mut |row| match RecordOrPruned::of_row(row.to_row()) {
            Ok(listed) => each(listed),
            Err(found) => {
                broken = Some(found);
                ControlFlow::Break(())
            }
        });
        read.map_err(LedgerReadError::of_store)?;
        broken.map_or(Ok(()), |broken| Err(LedgerReadError::Broken(broken)))
    }

    /// Whether `moment` has passed since record `after`, according to the time of any later record. A clock that is set back does
    /// not undo this.
    pub fn has_reached(&self, moment: Timestamp, after: u64) -> Result<bool, LedgerReadError> {
        // The numbers of one chain say nothing about those of another.
        let after = if self.rows.chains() == ChainSelection::All { 0 } else { after };
        let filter = RecordFilter { since: Some(moment), after, ..RecordFilter::default() };
        Ok(!self.list(&filter, 1)?.is_empty())
    }

    /// Changes with every append.
    pub fn version(&self) -> Result<i64, LedgerReadError> {
        self.rows.version().map_err(LedgerReadError::of_store)
    }

    /// The head of the chain, unverified.
    pub fn head(&self) -> Result<Option<ChainHead>, LedgerReadError> {
        store::head(self.rows()).map_err(LedgerReadError::of_store)
    }

    /// All records for `id`: a record number, or a transaction, session or grant id, or a unique prefix of one. A record comes with
    /// all records of its transaction, so that [`crate::incomplete()`] can tell whether it was settled.
    pub fn show(&self, id: &str) -> Result<Vec<Record>, LedgerReadError> {
        self.find(id).map(whole)
    }

    /// [`LedgerReader::show`] including pruned records.
    pub fn find(&self, id: &str) -> Result<Vec<RecordOrPruned>, LedgerReadError> {
        let found = self.rows_of(id)?;
        let transactions: BTreeSet<&str> = found
            .iter()
            .flat_map(|row| row.ids.split_ascii_whitespace().filter(|id| id.starts_with("tx_")))
            .collect();
        let several = self.rows.chains() == ChainSelection::All;
        // Numbers of several chains have no order among each other.
        let key = |row: &Row| (several.then(|| row.time.clone()), row.seq, row.hash.clone());
        let mut all: BTreeMap<_, Row> = BTreeMap::new();
        for transaction in transactions {
            let related =
                collect(self.rows(), &RowQuery::about(transaction)).map_err(LedgerReadError::of_store)?;
            all.extend(related.into_iter().map(|row| (key(&row), row)));
        }
        all.extend(found.into_iter().map(|row| (key(&row), row)));
        all.into_values().map(|row| RecordOrPruned::of_row(row).map_err(LedgerReadError::Broken)).collect()
    }

    /// The full id for `prefix`.
    pub fn full_id(&self, prefix: &str) -> Result<String, LedgerReadError> {
        let unknown = || LedgerReadError::Unknown { id: prefix.to_owned() };
        if prefix.is_empty() {
            return Err(unknown());
        }
        let candidates = self.rows.ids(prefix, MOST_CANDIDATES).map_err(LedgerReadError::of_store)?;
        match candidates.first() {
            None => Err(unknown()),
            Some(id) if id == prefix || candidates.len() == 1 => Ok(id.clone()),
            Some(_) => Err(LedgerReadError::Ambiguous { id: prefix.to_owned(), candidates }),
        }
    }

    /// Transactions without an end, oldest first.
    pub fn open_transactions(&self) -> Result<Vec<String>, LedgerReadError> {
        let mut open = Vec::new();
        self.rows
            .side(ClaimKind::Open, &mut |id, _| open.push(id.to_owned()))
            .map_err(LedgerReadError::of_store)?;
        Ok(open)
    }

    /// How many records there are of each kind, in the order of their names.
    pub fn counts(&self) -> Result<Vec<(String, u64)>, LedgerReadError> {
        self.rows.kinds().map_err(LedgerReadError::of_store)
    }

    /// Number of records of each of `kinds`, starting at the first record that is not older than `since`.
    pub fn counts_since(&self, since: Timestamp, kinds: &[Kind]) -> Result<Vec<u64>, LedgerReadError> {
        self.rows.kinds_since(&format!("{since:.6}"), kinds).map_err(LedgerReadError::of_store)
    }

    /// The newest checkpoint with the number of its record.
    pub fn newest_checkpoint(&self) -> Result<Option<AnchorLine>, LedgerReadError> {
        let newest = whole(self.records(&RowQuery::newest(1).kinds(&[Kind::CheckpointSigned]))?).pop();
        Ok(newest.and_then(|record| match record.event {
            Event::CheckpointSigned(checkpoint) => Some(AnchorLine { seq: record.seq, checkpoint }),
            _ => None,
        }))
    }

    /// The first record of the chain.
    pub fn beginning(&self) -> Result<Record, LedgerReadError> {
        let no_beginning = || LedgerReadError::Broken(ChainBreak { seq: 1, what: ChainFlaw::NoBeginning });
        let first = self.records(&RowQuery::numbered(1, 1))?.pop().and_then(RecordOrPruned::whole);
        first.filter(|record| matches!(record.event, Event::ChainStarted { .. })).ok_or_else(no_beginning)
    }

    /// A proof for each record of `id`; see [`LedgerReader::show`].
    pub fn prove(&self, id: &str) -> Result<Vec<InclusionProof>, LedgerReadError> {
        let rows = match id.parse::<u64>() {
            Ok(_) => self.rows_of(id)?,
            // Records of other chains are proven by their own readers.
            Err(_) => {
                let id = self.full_id(id)?;
                let select = RowQuery { chains: ChainSelection::This, ..RowQuery::about(&id) };
                collect(self.rows(), &select).map_err(LedgerReadError::of_store)?
            }
        };
        rows.into_iter().map(|row| self.prove_row(row)).collect()
    }

    fn prove_row(&self, row: Row) -> Result<InclusionProof, LedgerReadError> {
        let mut select = RowQuery { most: Some(1), ..RowQuery::default() }.kinds(&[Kind::CheckpointSigned]);
        // The first checkpoint after it covers it.
        select.numbers.0 = row.seq.saturating_add(1);
        let checkpoint =
            match self.records(&select)?.pop().and_then(RecordOrPruned::whole).map(|record| record.event) {
                Some(Event::CheckpointSigned(checkpoint)) if checkpoint.last >= row.seq => checkpoint,
                _ => return Err(LedgerReadError::Unsigned { seq: row.seq }),
            };
        let seq = row.seq;
        let proof = checkpoint::prove(self.rows(), row, checkpoint).map_err(LedgerReadError::of_store)?;
        proof.ok_or(LedgerReadError::Broken(ChainBreak { seq, what: ChainFlaw::HashMismatch }))
    }

    fn rows_of(&self, id: &str) -> Result<Vec<Row>, LedgerReadError> {
        let select = match id.parse::<u64>() {
            Ok(seq) => {
                let found = collect(self.rows(), &RowQuery::numbered(seq.max(1), seq))
                    .map_err(LedgerReadError::of_store)?;
                return if found.is_empty() {
                    Err(LedgerReadError::Unknown { id: id.to_owned() })
                } else {
                    Ok(found)
                };
            }
            Err(_) => self.full_id(id)?,
        };
        collect(self.rows(), &RowQuery::about(&select)).map_err(LedgerReadError::of_store)
    }

    fn records(&self, select: &RowQuery<'_>) -> Result<Vec<RecordOrPruned>, LedgerReadError> {
        let rows = collect(self.rows(), select).map_err(LedgerReadError::of_store)?;
        rows.into_iter().map(|row| RecordOrPruned::of_row(row).map_err(LedgerReadError::Broken)).collect()
    }
}

fn whole(listed: Vec<RecordOrPruned>) -> Vec<Record> {
    listed.into_iter().filter_map(RecordOrPruned::whole).collect()
}

/// Reads an id that the ledger gave as one.
pub(crate) fn transaction_id(id: &str) -> Option<TransactionId> {
    serde_json::from_value(serde_json::Value::String(id.to_owned())).ok()
}
