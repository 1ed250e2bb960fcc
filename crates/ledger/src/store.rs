//! The interface of ledger stores. SQLite and PostgreSQL implement it.
//!
//! A store keeps rows and three small side tables, which can be rebuilt from the rows:
//!
//! | table | holds | used for |
//! |---|---|---|
//! | `mention` | id → numbers of the records about it | lookup by id or by its prefix |
//! | `claim` | key of a unique event → its record | one request, one decision, one intent … |
//! | `open` | transactions without an end → their first record | recovery after a crash, without a full scan |
//!
//! A store for several nodes has one chain per node. Its tables carry the id of the chain, all chains share `claim` and
//! `open`, and [`ChainRows::scan`] with an id finds rows of every chain.
//!
//! INVARIANT: when [`ChainStore::append`] returns `Ok`, the whole batch is on disk. When it returns an error, nothing of
//! the batch is stored, now or after a restart. [`ChainStoreError::InDoubt`] is the only exception.

use std::error::Error;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ringfence_types::ChainId;

use crate::chain::ChainHead;
use crate::event::{Event, Kind, RetentionClass};
use crate::postgres::node::LedgerNode;
use crate::sqlite::archive;
use crate::sqlite::open::LedgerOpenError;

pub use crate::chain::{Row, RowRef};

/// Read access to rows.
pub trait ChainRows {
    /// Passes the rows of `select` to `each` until it stops.
    fn scan(&self, select: &RowQuery<'_>, each: &mut RowVisitor<'_>) -> Result<(), ChainStoreError>;

    /// How many rows have a number above this, counted without reading them.
    fn count_above(&self, seq: u64) -> Result<u64, ChainStoreError>;

    /// How many rows there are of each kind, in the order of their names.
    fn kinds(&self) -> Result<Vec<(String, u64)>, ChainStoreError>;

    /// How many rows of each of `kinds` there are from the first row on that is not older than `since`, counted
    /// without reading them.
    fn kinds_since(&self, since: &str, kinds: &[Kind]) -> Result<Vec<u64>, ChainStoreError>;

    /// At most `most` distinct ids with this prefix, in order.
    fn ids(&self, prefix: &str, most: usize) -> Result<Vec<String>, ChainStoreError>;

    /// The record that holds this claim.
    fn claimed(&self, key: &str) -> Result<Option<u64>, ChainStoreError>;

    /// All entries of a side table.
    fn side(&self, table: ClaimKind, each: &mut dyn FnMut(&str, u64)) -> Result<(), ChainStoreError>;

    /// Ids of the transactions that are open in any chain.
    fn open_anywhere(&self, each: &mut dyn FnMut(&str)) -> Result<(), ChainStoreError> {
        self.side(ClaimKind::Open, &mut |id, _| each(id))
    }

    /// Changes when another process has appended.
    fn version(&self) -> Result<i64, ChainStoreError>;

    /// Runs `work` on one snapshot.
    fn at_once(&self, work: &mut dyn FnMut()) -> Result<(), ChainStoreError>;

    /// Heads of the chains of other nodes.
    fn others(&self) -> Result<Vec<OtherHead>, ChainStoreError> {
        Ok(Vec::new())
    }

    /// Signature of the node over the head of its chain. `None`: this store has none.
    fn seal(&self) -> Result<Option<String>, ChainStoreError> {
        Ok(None)
    }

    /// Whether other chains have records about the same transactions. Then numbers do not order them.
    fn chains(&self) -> ChainSelection {
        ChainSelection::This
    }
}

/// The head of another node's chain, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessedHead {
    pub chain: ChainId,
    pub head: ChainHead,
    pub key: String,
}

/// The head of another node's chain, as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherHead {
    Signed(WitnessedHead),
    /// Not signed by the key of its chain, or a record that names a key is not readable.
    Unsigned {
        chain: ChainId,
        head: ChainHead,
    },
}

impl OtherHead {
    /// What this node records about it.
    pub(crate) fn event(self) -> Event {
        match self {
            Self::Signed(WitnessedHead { chain, head, key }) => Event::ChainWitnessed { chain, head, key },
            Self::Unsigned { chain, head } => Event::ChainWitnessRefused { chain, head },
        }
    }
}

/// Visitor of rows; returns whether to continue.
pub type RowVisitor<'a> = dyn FnMut(RowRef<'_>) -> ControlFlow<()> + 'a;

/// A chain open for appending.
pub trait ChainStore: ChainRows + fmt::Debug + Send {
    /// Appends the batch of `make` durably in one step.
    ///
    /// `make` sees the current chain and returns rows to append. A store that locks (SQLite) calls it once, with the lock held. A
    /// store that does not (PostgreSQL) calls it with the last known state, commits only if the head has not moved (`UPDATE head …
    /// WHERE seq = … AND hash = …`, and the rows in the same statement), and calls it again otherwise. An empty batch writes
    /// nothing.
    fn append(&mut self, make: &mut BatchBuilder<'_>) -> Result<(), ChainStoreError>;

    /// Another reader of the same chain. It never blocks an append.
    fn reader(&self) -> Result<Box<dyn ChainRows + Send>, LedgerOpenError>;
}

/// Builds a batch for the given chain.
pub type BatchBuilder<'a> = dyn FnMut(&dyn ChainRows) -> Result<Batch, ChainStoreError> + 'a;

/// Rows written in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub entries: Vec<BatchRow>,
    /// Rows whose bodies are removed.
    pub forget: Vec<u64>,
    /// Signature over the last row, for a store that keeps it.
    pub seal: Option<String>,
}

/// A row with its side-table entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRow {
    pub row: Row,
    /// Granted once. If it is taken, the whole batch fails with [`ChainStoreError::Taken`].
    pub claim: Option<String>,
    pub life: Option<OpenTableChange>,
}

impl BatchRow {
    pub fn mentions(&self) -> impl Iterator<Item = &str> {
        self.row.ids.split_ascii_whitespace()
    }
}

/// Effect of a row on the table `open`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenTableChange {
    /// Opens the transaction, unless it was open before.
    Opens(String),
    Closes(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    Mention,
    Claim,
    Open,
}

impl ClaimKind {
    pub const ALL: [Self; 3] = [Self::Mention, Self::Claim, Self::Open];

    pub fn word(self) -> &'static str {
        match self {
            Self::Mention => "mention",
            Self::Claim => "claim",
            Self::Open => "open",
        }
    }
}

/// Selection and order of rows.
#[derive(Clone, Debug)]
pub struct RowQuery<'a> {
    /// For all chains the order is causal.
    pub chains: ChainSelection,
    /// Rows with exactly this id.
    pub id: Option<&'a str>,
    /// Empty: all kinds.
    pub kinds: Vec<Kind>,
    /// First and last number.
    pub numbers: (u64, u64),
    /// RFC 3339 in UTC with microseconds: not before, and before.
    pub since: Option<String>,
    pub until: Option<String>,
    pub order: RowOrder,
    pub most: Option<u64>,
}

/// Which chains of a database to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainSelection {
    This,
    /// All active chains.
    All,
    /// Also chains that were set aside.
    Ever,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    OldestFirst,
    NewestFirst,
}

impl Default for RowQuery<'_> {
    fn default() -> Self {
        Self {
            chains: ChainSelection::This,
            id: None,
            kinds: Vec::new(),
            numbers: (0, u64::MAX),
            since: None,
            until: None,
            order: RowOrder::OldestFirst,
            most: None,
        }
    }
}

impl<'a> RowQuery<'a> {
    pub fn about(id: &'a str) -> Self {
        Self { chains: ChainSelection::All, id: Some(id), ..Self::default() }
    }

    /// [`RowQuery::about`], including chains that were set aside.
    pub fn ever_about(id: &'a str) -> Self {
        Self { chains: ChainSelection::Ever, ..Self::about(id) }
    }

    pub fn newest(count: u64) -> Self {
        Self { order: RowOrder::NewestFirst, most: Some(count), ..Self::default() }
    }

    pub fn numbered(first: u64, last: u64) -> Self {
        Self { numbers: (first, last), ..Self::default() }
    }

    pub fn everywhere(mut self) -> Self {
        self.chains = ChainSelection::All;
        self
    }

    pub fn kinds(mut self, kinds: &[Kind]) -> Self {
        self.kinds = kinds.to_vec();
        self
    }
}

/// A shared error of the store, for all callers that waited for it.
#[derive(Clone)]
pub struct StoreFault(Arc<dyn Error + Send + Sync>);

impl StoreFault {
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }
}

impl fmt::Debug for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for StoreFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainStoreError {
    #[error("another process has locked it for too long")]
    Busy(#[source] StoreFault),
    #[error("there is no room")]
    Full(#[source] StoreFault),
    /// The files were moved.
    #[error("it was moved or deleted while in use")]
    Moved,
    #[error("`{key}` has happened already")]
    Taken { key: String },
    #[error("row {seq} is not one: {reason}")]
    Malformed { seq: u64, reason: String },
    #[error("the server cannot be reached")]
    Unreachable(#[source] StoreFault),
    #[error("the server takes no writes")]
    ReadOnly(#[source] StoreFault),
    #[error("this user may not do that")]
    Denied(#[source] StoreFault),
    /// The only error after which the batch may have been written. The next append finds out.
    #[error("the server went away before it said whether it was written")]
    InDoubt(#[source] StoreFault),
    #[error("the ledger store failed")]
    Failed(#[source] StoreFault),
}

/// Opens the SQLite store at `path`. Creates it with a chain if missing.
pub fn sqlite(path: &Path) -> Result<Box<dyn ChainStore>, LedgerOpenError> {
    Ok(Box::new(archive::open_or_begin(path)?.0))
}

/// Opens the store of `node` in its database. Starts its chain if missing.
pub fn postgres(node: &LedgerNode) -> Result<Box<dyn ChainStore>, LedgerOpenError> {
    Ok(Box::new(node.open()?))
}

impl ChainStoreError {
    /// The next step for the operator.
    pub fn hint(&self) -> Option<&'static str> {
        let hint = match self {
            Self::Busy(_) => "look for a stopped process that holds the ledger open",
            Self::Full(_) => "free some space",
            Self::Moved => "start again",
            Self::Unreachable(_) | Self::InDoubt(_) => "check that the server runs, then try again",
            Self::ReadOnly(_) => "connect to the primary",
            Self::Denied(_) => {
                "docs/postgres.md has the rights a role needs; the owner of the tables grants them"
            }
            Self::Failed(_) => "check that the store can be written",
            Self::Taken { .. } | Self::Malformed { .. } => return None,
        };
        Some(hint)
    }
}

/// Collects all rows of `select`.
pub fn collect(rows: &dyn ChainRows, select: &RowQuery<'_>) -> Result<Vec<Row>, ChainStoreError> {
    let mut found = Vec::new();
    rows.scan(select, &mut |row| {
        found.push(row.to_row());
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// The head of the chain, unverified.
pub fn head(rows: &dyn ChainRows) -> Result<Option<ChainHead>, ChainStoreError> {
    Ok(collect(rows, &RowQuery::newest(1))?.first().map(Row::head))
}

/// Kinds of these classes.
pub(crate) fn kinds_of(classes: &[RetentionClass]) -> Vec<Kind> {
    Kind::ALL.iter().copied().filter(|kind| classes.contains(&kind.class())).collect()
}
