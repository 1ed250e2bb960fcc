//! The store of several machines: one PostgreSQL database, one chain per node.
//!
//! The mechanisms of an append, and the failure that each of them prevents:
//!
//! | mechanism | prevents |
//! |---|---|
//! | the head moves only from where it was when the batch was made | two processes of a node that write the same number |
//! | a batch that reads a transaction holds its lock | two nodes that both find the transaction open |
//! | a claim is a primary key over all chains | a duplicate that the two mechanisms above have missed |
//! | a batch without an answer is declared void, then looked up | a duplicated or lost record |
//! | the node signs the head that a batch makes | a record in its chain that another role has written |

pub(crate) mod address;
pub(crate) mod aside;
pub(crate) mod connection;
pub(crate) mod error;
pub(crate) mod local_head;
pub(crate) mod node;
pub(crate) mod pgpass;
pub(crate) mod rows;
pub(crate) mod schema;
pub(crate) mod signed_part;
pub(crate) mod verify;
pub(crate) mod write;

use std::thread;
use std::time::{Duration, Instant};

use crate::chain::Row;
use crate::event::Kind;
use crate::postgres::connection::{ConnectionPurpose, PostgresConnection, TransactionState};
use crate::postgres::error::ConnectionFault;
use crate::postgres::rows::{ChainTail, ConcurrentAppend, PostgresRows, RowLock, get, to_sql};
use crate::postgres::write::{WireBatch, check_claims};
use crate::sqlite::open::LedgerOpenError;
use crate::store::{
    Batch, BatchBuilder, ChainRows, ChainSelection, ChainStore, ChainStoreError, ClaimKind, OtherHead,
    RowQuery, RowVisitor, StoreFault,
};

/// How long an append waits for an unreachable server.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// Optimistic attempts before the next one locks the head.
const FREE_TRIES: u32 = 2;

/// A chain in a database, open for appending.
#[derive(Debug)]
pub(crate) struct PostgresStore {
    rows: PostgresRows,
}

enum AppendAttempt {
    Done,
    /// Nothing was written: the head has moved, or another transaction has priority.
    Again,
}

impl PostgresStore {
    pub(crate) fn new(link: PostgresConnection, chain: i32) -> Self {
        Self { rows: PostgresRows::new(link, chain) }
    }

    fn attempt(
        &mut self,
        make: &mut BatchBuilder<'_>,
        lock: RowLock,
    ) -> Result<AppendAttempt, ChainStoreError> {
        if lock == RowLock::Head || self.rows.tail.get_mut().is_none() {
            self.rows.look(lock)?;
        }
        self.rows.is_making.set(true);
        let batch = make(&self.rows);
        self.rows.is_making.set(false);
        let batch = batch?;
        if batch.entries.is_empty() && batch.forget.is_empty() {
            *self.rows.tail.get_mut() = None;
            return Ok(AppendAttempt::Done);
        }
        check_claims(&batch)?;
        self.write(&batch)
    }

    fn write(&mut self, batch: &Batch) -> Result<AppendAttempt, ChainStoreError> {
        let Some(tail) = self.rows.tail.get_mut().clone() else { return Ok(AppendAttempt::Again) };
        let sent = WireBatch::new(batch, self.rows.chain, &tail);
        let link = self.rows.link.get_mut();
        let answer = match link.transaction {
            TransactionState::None => link.once(&sent.sql, &sent.parameters()),
            TransactionState::Open => link.commit_with(&sent.sql, &sent.parameters()),
            TransactionState::Lost => return Ok(AppendAttempt::Again),
        };
        match answer {
            Ok(rows) if rows.first().map(|row| get::<i64>(row, 0)).transpose()? == Some(1) => {
                *self.rows.tail.get_mut() = Some(moved(tail, batch));
                Ok(AppendAttempt::Done)
            }
            Ok(_) => Ok(AppendAttempt::Again),
            Err(trouble) if trouble.is_lost() => self.resolve(batch),
            Err(trouble) if trouble.is_turn() => Ok(AppendAttempt::Again),
            Err(trouble) if trouble.breaks("claim_once") => self.taken(batch),
            Err(trouble) => Err(trouble.into_store()),
        }
    }

    /// Determines the fate of `batch` after a lost connection. First every statement in flight is declared void; then the stored
    /// rows show what was committed.
    fn resolve(&mut self, batch: &Batch) -> Result<AppendAttempt, ChainStoreError> {
        *self.rows.tail.get_mut() = None;
        let chain = self.rows.chain;
        let link = self.rows.link.get_mut();
        link.roll_back();
        let sql = "UPDATE ringfence.head SET fence = fence + 1 WHERE chain = $1 RETURNING fence";
        loop {
            match link.once(sql, &[&chain]) {
                Ok(_) => break,
                Err(trouble) if link.has_patience() && !matches!(trouble, ConnectionFault::Connect(_)) => {
                    thread::sleep(PAUSE)
                }
                Err(trouble) => return Err(ChainStoreError::InDoubt(StoreFault::new(trouble.into_store()))),
            }
        }
        let Some(last) = batch.entries.last().map(|entry| &entry.row) else {
            return Ok(AppendAttempt::Again);
        };
        let sql = "SELECT seq FROM ringfence.record WHERE chain = $1 AND seq = $2 AND hash = $3";
        let found = link.read(sql, &[&chain, &to_sql(last.seq), &last.hash]);
        let found =
            found.map_err(|trouble| ChainStoreError::InDoubt(StoreFault::new(trouble.into_store())))?;
        Ok(if found.is_empty() { AppendAttempt::Again } else { AppendAttempt::Done })
    }

    fn taken(&mut self, batch: &Batch) -> Result<AppendAttempt, ChainStoreError> {
        self.rows.link.get_mut().roll_back();
        let keys: Vec<&str> = batch.entries.iter().filter_map(|entry| entry.claim.as_deref()).collect();
        let sql = "SELECT key FROM ringfence.claim WHERE key = ANY($1) ORDER BY key LIMIT 1";
        match self.rows.read(sql, &[&keys])?.first() {
            Some(row) => Err(ChainStoreError::Taken { key: get(row, 0)? }),
            None => Ok(AppendAttempt::Again),
        }
    }
}

fn moved(tail: ChainTail, batch: &Batch) -> ChainTail {
    let new = batch.entries.iter().rev().map(|entry| entry.row.clone());
    let rows: Vec<Row> = new.chain(tail.rows).take(2).collect();
    let seal = if batch.entries.is_empty() { tail.seal } else { batch.seal.clone().unwrap_or_default() };
    ChainTail { rows, fence: tail.fence, seal }
}

impl ChainStore for PostgresStore {
    fn append(&mut self, make: &mut BatchBuilder<'_>) -> Result<(), ChainStoreError> {
        let end = Instant::now() + PATIENCE;
        self.rows.link.get_mut().until = Some(end);
        let mut tries = 0_u32;
        let done = loop {
            let lock = if tries < FREE_TRIES { RowLock::None } else { RowLock::Head };
            let attempt = self.attempt(make, lock);
            self.rows.link.get_mut().roll_back();
            if matches!(attempt, Ok(AppendAttempt::Done)) {
                break Ok(());
            }
            *self.rows.tail.get_mut() = None;
            match attempt {
                Err(ChainStoreError::Unreachable(_)) if Instant::now() < end => thread::sleep(PAUSE),
                Err(error) => break Err(error),
                Ok(_) if Instant::now() < end => tries = tries.saturating_add(1),
                Ok(_) => break Err(ChainStoreError::Busy(StoreFault::new(ConcurrentAppend))),
            }
        };
        self.rows.link.get_mut().until = None;
        done
    }

    fn reader(&self) -> Result<Box<dyn ChainRows + Send>, LedgerOpenError> {
        let mut link = self.rows.link.borrow().again(ConnectionPurpose::Read)?;
        link.connect()?;
        Ok(Box::new(PostgresRows::new(link, self.rows.chain)))
    }
}

impl ChainRows for PostgresStore {
    fn scan(&self, select: &RowQuery<'_>, each: &mut RowVisitor<'_>) -> Result<(), ChainStoreError> {
        self.rows.scan(select, each)
    }

    fn count_above(&self, seq: u64) -> Result<u64, ChainStoreError> {
        self.rows.count_above(seq)
    }

    fn kinds(&self) -> Result<Vec<(String, u64)>, ChainStoreError> {
        self.rows.kinds()
    }

    fn kinds_since(&self, since: &str, kinds: &[Kind]) -> Result<Vec<u64>, ChainStoreError> {
        self.rows.kinds_since(since, kinds)
    }

    fn ids(&self, prefix: &str, most: usize) -> Result<Vec<String>, ChainStoreError> {
        self.rows.ids(prefix, most)
    }

    fn claimed(&self, key: &str) -> Result<Option<u64>, ChainStoreError> {
        self.rows.claimed(key)
    }

    fn side(&self, table: ClaimKind, each: &mut dyn FnMut(&str, u64)) -> Result<(), ChainStoreError> {
        self.rows.side(table, each)
    }

    fn open_anywhere(&self, each: &mut dyn FnMut(&str)) -> Result<(), ChainStoreError> {
        self.rows.open_anywhere(each)
    }

    fn version(&self) -> Result<i64, ChainStoreError> {
        self.rows.version()
    }

    fn at_once(&self, work: &mut dyn FnMut()) -> Result<(), ChainStoreError> {
        self.rows.at_once(work)
    }

    fn others(&self) -> Result<Vec<OtherHead>, ChainStoreError> {
        self.rows.others()
    }

    fn seal(&self) -> Result<Option<String>, ChainStoreError> {
        self.rows.seal()
    }

    fn chains(&self) -> ChainSelection {
        self.rows.chains()
    }
}
