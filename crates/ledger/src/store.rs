//! What a place for chains has to do, whatever it is made of. SQLite is one, PostgreSQL another.
//!
//! A store keeps rows and four small tables beside them, all of which can be made again from the rows:
//!
//! | table | holds | why |
//! |---|---|---|
//! | `mention` | id → numbers of the records about it | looking up by id or by its beginning |
//! | `claim` | what may happen once → the record in which it did | asked once, decided once, intended once … |
//! | `open` | transactions without an end → their first record | what a crash left, without reading everything |
//!
//! A store for several nodes has one chain per node: its tables carry the id of the chain, `claim` and `open` are shared by
//! all chains, and [`Rows::scan`] with an id finds rows of every chain.
//!
//! INVARIANT: when [`Store::append`] returns `Ok`, the batch is on disk, whole. When it returns an error, nothing of
//! it is, now or after a restart; [`StoreError::InDoubt`] is the exception, and says so.

use std::error::Error;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ringfence_types::ChainId;

use crate::chain::Head;
use crate::event::{Class, Kind};
use crate::postgres::node::Node;
use crate::sqlite::aside;
use crate::sqlite::open::OpenError;

pub use crate::chain::{Row, RowRef};

/// Rows that are only looked at.
pub trait Rows {
    /// The rows that `select` means, each given to `each` until it has enough.
    fn scan(&self, select: &Select<'_>, each: &mut Each<'_>) -> Result<(), StoreError>;

    /// How many rows have a number above this, counted without reading them.
    fn count_above(&self, seq: u64) -> Result<u64, StoreError>;

    /// How many rows there are of each kind, in the order of their names.
    fn kinds(&self) -> Result<Vec<(String, u64)>, StoreError>;

    /// How many rows of each of `kinds` there are from the first row on that is not older than `since`, counted
    /// without reading them.
    fn kinds_since(&self, since: &str, kinds: &[Kind]) -> Result<Vec<u64>, StoreError>;

    /// At most `most` different ids that begin with `prefix`, in order.
    fn ids(&self, prefix: &str, most: usize) -> Result<Vec<String>, StoreError>;

    /// The record in which this happened.
    fn claimed(&self, key: &str) -> Result<Option<u64>, StoreError>;

    /// Everything that one of the tables beside the rows says.
    fn side(&self, table: Side, each: &mut dyn FnMut(&str, u64)) -> Result<(), StoreError>;

    /// Changes whenever somebody else has appended.
    fn version(&self) -> Result<i64, StoreError>;

    /// Whatever `work` reads is of one moment.
    fn at_once(&self, work: &mut dyn FnMut()) -> Result<(), StoreError>;

    /// Where the chains of other nodes stand, as far as their nodes have signed it.
    fn others(&self) -> Result<Vec<WitnessedHead>, StoreError> {
        Ok(Vec::new())
    }

    /// The signature of the node over the end of its chain. `None`: this store keeps none.
    fn seal(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// Whether other chains say something about the same transactions. Then numbers tell nothing about their order.
    fn chains(&self) -> Chains {
        Chains::This
    }
}

/// Where the chain of another node stood, and the key that vouched for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessedHead {
    pub chain: ChainId,
    pub head: Head,
    pub key: String,
}

/// Is given a row and says whether it wants another.
pub type Each<'a> = dyn FnMut(RowRef<'_>) -> ControlFlow<()> + 'a;

/// A chain that can be appended to.
pub trait Store: Rows + fmt::Debug + Send {
    /// Appends what `make` says in one step, durably.
    ///
    /// `make` is shown the chain as it is and puts rows behind its end. A store that locks (SQLite) calls it once, with
    /// the lock held. A store that does not (PostgreSQL) calls it with what it last saw, commits only if that is still the end
    /// (`UPDATE head … WHERE seq = … AND hash = …`, and the rows in the same statement), and calls it again otherwise.
    /// An empty batch writes nothing.
    fn append(&mut self, make: &mut Make<'_>) -> Result<(), StoreError>;

    /// Another pair of eyes on the same chain. It never stands in the way of an append.
    fn reader(&self) -> Result<Box<dyn Rows + Send>, OpenError>;
}

/// Makes a batch for the chain it is shown.
pub type Make<'a> = dyn FnMut(&dyn Rows) -> Result<Batch, StoreError> + 'a;

/// What is written in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub entries: Vec<Entry>,
    /// Rows that lose their bodies.
    pub forget: Vec<u64>,
    /// The signature over the last of the entries, for a store that keeps it.
    pub seal: Option<String>,
}

/// A row with what belongs beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub row: Row,
    /// Can be had once. If it is taken the whole batch fails with [`StoreError::Taken`].
    pub claim: Option<String>,
    pub life: Option<LifeChange>,
}

impl Entry {
    pub fn mentions(&self) -> impl Iterator<Item = &str> {
        self.row.ids.split_ascii_whitespace()
    }
}

/// What a row does to the table of open transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifeChange {
    /// It is open, unless it was before.
    Opens(String),
    Closes(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Mention,
    Claim,
    Open,
}

impl Side {
    pub const ALL: [Self; 3] = [Self::Mention, Self::Claim, Self::Open];

    pub fn word(self) -> &'static str {
        match self {
            Self::Mention => "mention",
            Self::Claim => "claim",
            Self::Open => "open",
        }
    }
}

/// Which rows, in which order.
#[derive(Clone, Debug)]
pub struct Select<'a> {
    /// Of every chain, the order is that in which one thing led to another.
    pub chains: Chains,
    /// Filed under exactly this id.
    pub id: Option<&'a str>,
    /// Empty: of any kind.
    pub kinds: Vec<Kind>,
    /// First and last number.
    pub numbers: (u64, u64),
    /// RFC 3339 in UTC with microseconds: not before, and before.
    pub since: Option<String>,
    pub until: Option<String>,
    pub order: Order,
    pub most: Option<u64>,
}

/// Of a store for several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chains {
    This,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    OldestFirst,
    NewestFirst,
}

impl Default for Select<'_> {
    fn default() -> Self {
        Self {
            chains: Chains::This,
            id: None,
            kinds: Vec::new(),
            numbers: (0, u64::MAX),
            since: None,
            until: None,
            order: Order::OldestFirst,
            most: None,
        }
    }
}

impl<'a> Select<'a> {
    pub fn about(id: &'a str) -> Self {
        Self { chains: Chains::All, id: Some(id), ..Self::default() }
    }

    pub fn newest(count: u64) -> Self {
        Self { order: Order::NewestFirst, most: Some(count), ..Self::default() }
    }

    pub fn numbered(first: u64, last: u64) -> Self {
        Self { numbers: (first, last), ..Self::default() }
    }

    pub fn everywhere(mut self) -> Self {
        self.chains = Chains::All;
        self
    }

    pub fn kinds(mut self, kinds: &[Kind]) -> Self {
        self.kinds = kinds.to_vec();
        self
    }
}

/// Whatever went wrong below, for as many callers as waited for it.
#[derive(Clone)]
pub struct Fault(Arc<dyn Error + Send + Sync>);

impl Fault {
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for Fault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("somebody else uses it for too long")]
    Busy(#[source] Fault),
    #[error("there is no room")]
    Full(#[source] Fault),
    /// The files are not where they were.
    #[error("it was moved or deleted while in use")]
    Moved,
    #[error("`{key}` has happened already")]
    Taken { key: String },
    #[error("row {seq} is not one: {reason}")]
    Malformed { seq: u64, reason: String },
    #[error("the server cannot be reached")]
    Unreachable(#[source] Fault),
    #[error("the server takes no writes")]
    ReadOnly(#[source] Fault),
    #[error("this user may not do that")]
    Denied(#[source] Fault),
    /// The one error after which the batch may be there. Whoever appends again finds out.
    #[error("the server went away before it said whether it was written")]
    InDoubt(#[source] Fault),
    #[error("it does not work")]
    Failed(#[source] Fault),
}

/// The store of one machine: the SQLite file at `path`, made with a chain in it if there is none.
pub fn sqlite(path: &Path) -> Result<Box<dyn Store>, OpenError> {
    Ok(Box::new(aside::open_or_begin(path)?.0))
}

/// The store of several machines: the chain of `node` in its database, made if there is none.
pub fn postgres(node: &Node) -> Result<Box<dyn Store>, OpenError> {
    Ok(Box::new(node.open()?))
}

impl StoreError {
    /// The one thing that would change the answer.
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

/// Everything of `select`, owned.
pub fn collect(rows: &dyn Rows, select: &Select<'_>) -> Result<Vec<Row>, StoreError> {
    let mut found = Vec::new();
    rows.scan(select, &mut |row| {
        found.push(row.to_row());
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// The end of the chain, without asking whether it holds.
pub fn head(rows: &dyn Rows) -> Result<Option<Head>, StoreError> {
    Ok(collect(rows, &Select::newest(1))?.first().map(Row::head))
}

/// Kinds of these classes.
pub(crate) fn kinds_of(classes: &[Class]) -> Vec<Kind> {
    Kind::ALL.iter().copied().filter(|kind| classes.contains(&kind.class())).collect()
}
