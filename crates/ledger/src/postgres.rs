//! The store of several machines: one PostgreSQL database, one chain per node.
//!
//! The parts of an append, and what each of them is against:
//!
//! | part | against |
//! |---|---|
//! | the end moves only from where it was when the batch was made | two processes of a node with the same number |
//! | whoever reads about a transaction for a batch holds its lock | two nodes that both find it open |
//! | a claim is a primary key over all chains | whatever the two above have missed |
//! | a batch without an answer is declared void, then looked for | a record that is doubled, or lost after all |
//! | the node signs the end that a batch makes | a record in its chain that somebody else has written |

pub(crate) mod address;
pub(crate) mod aside;
pub(crate) mod error;
pub(crate) mod link;
pub(crate) mod node;
pub(crate) mod password;
pub(crate) mod remembered;
pub(crate) mod rows;
pub(crate) mod schema;
pub(crate) mod verify;
pub(crate) mod write;

use std::thread;
use std::time::{Duration, Instant};

use crate::chain::Row;
use crate::event::Kind;
use crate::postgres::error::Trouble;
use crate::postgres::link::{Link, Purpose, Transaction};
use crate::postgres::rows::{Lock, Overtaken, PostgresRows, Tail, get, to_sql};
use crate::postgres::write::{Sent, check_claims};
use crate::sqlite::open::OpenError;
use crate::store::{Batch, Chains, Each, Fault, Make, Rows, Select, Side, Store, StoreError, WitnessedHead};

/// How long an append waits for a server that went away to come back.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

/// So often the end may have moved before the next try holds it fast.
const FREE_TRIES: u32 = 2;

/// A chain on a server that can be appended to.
#[derive(Debug)]
pub(crate) struct PostgresStore {
    rows: PostgresRows,
}

enum Attempt {
    Done,
    /// Nothing was written; the end is elsewhere now, or somebody else goes first.
    Again,
}

impl PostgresStore {
    pub(crate) fn new(link: Link, chain: i32) -> Self {
        Self { rows: PostgresRows::new(link, chain) }
    }

    fn attempt(&mut self, make: &mut Make<'_>, lock: Lock) -> Result<Attempt, StoreError> {
        if lock == Lock::Head || self.rows.tail.get_mut().is_none() {
            self.rows.look(lock)?;
        }
        self.rows.is_making.set(true);
        let batch = make(&self.rows);
        self.rows.is_making.set(false);
        let batch = batch?;
        if batch.entries.is_empty() && batch.forget.is_empty() {
            *self.rows.tail.get_mut() = None;
            return Ok(Attempt::Done);
        }
        check_claims(&batch)?;
        self.write(&batch)
    }

    fn write(&mut self, batch: &Batch) -> Result<Attempt, StoreError> {
        let Some(tail) = self.rows.tail.get_mut().clone() else { return Ok(Attempt::Again) };
        let sent = Sent::new(batch, self.rows.chain, &tail);
        let link = self.rows.link.get_mut();
        let answer = match link.transaction {
            Transaction::None => link.once(&sent.sql, &sent.parameters()),
            Transaction::Open => link.commit_with(&sent.sql, &sent.parameters()),
            Transaction::Lost => return Ok(Attempt::Again),
        };
        match answer {
            Ok(rows) if rows.first().map(|row| get::<i64>(row, 0)).transpose()? == Some(1) => {
                *self.rows.tail.get_mut() = Some(moved(tail, batch));
                Ok(Attempt::Done)
            }
            Ok(_) => Ok(Attempt::Again),
            Err(trouble) if trouble.is_lost() => self.resolve(batch),
            Err(trouble) if trouble.is_turn() => Ok(Attempt::Again),
            Err(trouble) if trouble.breaks("claim_once") => self.taken(batch),
            Err(trouble) => Err(trouble.into_store()),
        }
    }

    /// Nobody has said what became of `batch`. First everything is declared void that was sent and is not done, then what
    /// is there is what was done.
    fn resolve(&mut self, batch: &Batch) -> Result<Attempt, StoreError> {
        *self.rows.tail.get_mut() = None;
        let chain = self.rows.chain;
        let link = self.rows.link.get_mut();
        link.roll_back();
        let sql = "UPDATE ringfence.head SET fence = fence + 1 WHERE chain = $1 RETURNING fence";
        loop {
            match link.once(sql, &[&chain]) {
                Ok(_) => break,
                Err(trouble) if link.has_patience() && !matches!(trouble, Trouble::Connect(_)) => {
                    thread::sleep(PAUSE)
                }
                Err(trouble) => return Err(StoreError::InDoubt(Fault::new(trouble.into_store()))),
            }
        }
        let Some(last) = batch.entries.last().map(|entry| &entry.row) else { return Ok(Attempt::Again) };
        let sql = "SELECT seq FROM ringfence.record WHERE chain = $1 AND seq = $2 AND hash = $3";
        let found = link.read(sql, &[&chain, &to_sql(last.seq), &last.hash]);
        let found = found.map_err(|trouble| StoreError::InDoubt(Fault::new(trouble.into_store())))?;
        Ok(if found.is_empty() { Attempt::Again } else { Attempt::Done })
    }

    fn taken(&mut self, batch: &Batch) -> Result<Attempt, StoreError> {
        self.rows.link.get_mut().roll_back();
        let keys: Vec<&str> = batch.entries.iter().filter_map(|entry| entry.claim.as_deref()).collect();
        let sql = "SELECT key FROM ringfence.claim WHERE key = ANY($1) ORDER BY key LIMIT 1";
        match self.rows.read(sql, &[&keys])?.first() {
            Some(row) => Err(StoreError::Taken { key: get(row, 0)? }),
            None => Ok(Attempt::Again),
        }
    }
}

fn moved(tail: Tail, batch: &Batch) -> Tail {
    let new = batch.entries.iter().rev().map(|entry| entry.row.clone());
    let rows: Vec<Row> = new.chain(tail.rows).take(2).collect();
    let seal = if batch.entries.is_empty() { tail.seal } else { batch.seal.clone().unwrap_or_default() };
    Tail { rows, fence: tail.fence, seal }
}

impl Store for PostgresStore {
    fn append(&mut self, make: &mut Make<'_>) -> Result<(), StoreError> {
        let end = Instant::now() + PATIENCE;
        self.rows.link.get_mut().until = Some(end);
        let mut tries = 0_u32;
        let done = loop {
            let lock = if tries < FREE_TRIES { Lock::None } else { Lock::Head };
            let attempt = self.attempt(make, lock);
            self.rows.link.get_mut().roll_back();
            if matches!(attempt, Ok(Attempt::Done)) {
                break Ok(());
            }
            *self.rows.tail.get_mut() = None;
            match attempt {
                Err(StoreError::Unreachable(_)) if Instant::now() < end => thread::sleep(PAUSE),
                Err(error) => break Err(error),
                Ok(_) if Instant::now() < end => tries = tries.saturating_add(1),
                Ok(_) => break Err(StoreError::Busy(Fault::new(Overtaken))),
            }
        };
        self.rows.link.get_mut().until = None;
        done
    }

    fn reader(&self) -> Result<Box<dyn Rows + Send>, OpenError> {
        let mut link = self.rows.link.borrow().again(Purpose::Read)?;
        link.connect()?;
        Ok(Box::new(PostgresRows::new(link, self.rows.chain)))
    }
}

impl Rows for PostgresStore {
    fn scan(&self, select: &Select<'_>, each: &mut Each<'_>) -> Result<(), StoreError> {
        self.rows.scan(select, each)
    }

    fn count_above(&self, seq: u64) -> Result<u64, StoreError> {
        self.rows.count_above(seq)
    }

    fn kinds(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.rows.kinds()
    }

    fn kinds_since(&self, since: &str, kinds: &[Kind]) -> Result<Vec<u64>, StoreError> {
        self.rows.kinds_since(since, kinds)
    }

    fn ids(&self, prefix: &str, most: usize) -> Result<Vec<String>, StoreError> {
        self.rows.ids(prefix, most)
    }

    fn claimed(&self, key: &str) -> Result<Option<u64>, StoreError> {
        self.rows.claimed(key)
    }

    fn side(&self, table: Side, each: &mut dyn FnMut(&str, u64)) -> Result<(), StoreError> {
        self.rows.side(table, each)
    }

    fn version(&self) -> Result<i64, StoreError> {
        self.rows.version()
    }

    fn at_once(&self, work: &mut dyn FnMut()) -> Result<(), StoreError> {
        self.rows.at_once(work)
    }

    fn others(&self) -> Result<Vec<WitnessedHead>, StoreError> {
        self.rows.others()
    }

    fn seal(&self) -> Result<Option<String>, StoreError> {
        self.rows.seal()
    }

    fn chains(&self) -> Chains {
        self.rows.chains()
    }
}
