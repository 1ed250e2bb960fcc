//! Reading rows of a chain in a database. A scan fetches pages, so a slow reader does not block appends.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::ControlFlow;

use ringfence_types::ChainId;
use tokio_postgres::types::ToSql;

use crate::chain::{ChainHead, HexDigest, Row};
use crate::event::{Event, Kind};
use crate::key;
use crate::postgres::connection::{Parameters, PostgresConnection, TransactionState};
use crate::postgres::error::ConnectionFault;
use crate::seal::{self, KeyLine};
use crate::store::{
    ChainRows, ChainSelection, ChainStoreError, ClaimKind, OtherHead, RowOrder, RowQuery, RowRef, RowVisitor,
    StoreFault, WitnessedHead,
};
use crate::verify::FirstRecord;

const PAGE: u64 = 1000;

/// Ids and keys are short.
const SIDE_PAGE: i64 = 10_000;

/// Attempts to read the head while other processes append.
const LOOKS: u32 = 20;

/// Number of last rows that an append reads.
const TAIL: u64 = 2;

#[derive(Debug)]
pub(crate) struct PostgresRows {
    pub(crate) link: RefCell<PostgresConnection>,
    /// The chain that record numbers refer to.
    pub(crate) chain: i32,
    /// The head at the last look, newest first.
    pub(crate) tail: RefCell<Option<ChainTail>>,
    /// Whether the current read is for a batch.
    pub(crate) is_making: Cell<bool>,
}

#[derive(Clone, Debug)]
pub(crate) struct ChainTail {
    pub(crate) rows: Vec<Row>,
    pub(crate) fence: i64,
    pub(crate) seal: String,
}

impl PostgresRows {
    pub(crate) fn new(link: PostgresConnection, chain: i32) -> Self {
        Self { link: RefCell::new(link), chain, tail: RefCell::default(), is_making: Cell::new(false) }
    }

    pub(crate) fn read(
        &self,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, ChainStoreError> {
        self.link.borrow_mut().read(sql, parameters).map_err(ConnectionFault::into_store)
    }

    /// Reads the records about `id` for a batch, and locks the id until the end of the transaction.
    ///
    /// INVARIANT: every writer of a transaction or grant has read it in the same SQL transaction and so holds its lock. The order
    /// of its events holds for all nodes together.
    fn read_locked(
        &self,
        id: &str,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, ChainStoreError> {
        let lock = format!("SELECT pg_advisory_xact_lock({})", lock_of(id));
        let mut link = self.link.borrow_mut();
        let rows = match link.transaction {
            TransactionState::None => {
                let begin = format!("BEGIN; {lock}");
                match link.after(&begin, sql, parameters) {
                    // It was the first thing in the transaction, so nothing is lost with it.
                    Err(trouble) if trouble.is_lost() => {
                        link.transaction = TransactionState::None;
                        link.after(&begin, sql, parameters)
                    }
                    other => other,
                }
            }
            TransactionState::Open => link.after(&lock, sql, parameters),
            TransactionState::Lost => Err(ConnectionFault::Silent),
        };
        rows.map_err(ConnectionFault::into_store)
    }

    fn page(
        &self,
        select: &RowQuery<'_>,
        cursor: i64,
        most: u64,
    ) -> Result<Vec<LocatedRow>, ChainStoreError> {
        let statement = SqlStatement::of(select, self.chain, cursor, most);
        let parameters = statement.parameters();
        let rows = match select.id {
            Some(id) if self.is_making.get() => self.read_locked(id, &statement.sql, &parameters),
            _ => self.read(&statement.sql, &parameters),
        };
        if !self.is_making.get() {
            // A reader outside a batch may see more than the cached head.
            *self.tail.borrow_mut() = None;
        }
        rows?.iter().map(placed).collect()
    }

    fn scan_pages(&self, select: &RowQuery<'_>, each: &mut RowVisitor<'_>) -> Result<(), ChainStoreError> {
        let mut left = select.most.unwrap_or(u64::MAX);
        let mut cursor = match select.order {
            RowOrder::OldestFirst => i64::MIN,
            RowOrder::NewestFirst => i64::MAX,
        };
        while left > 0 {
            let wanted = left.min(PAGE);
            let page = self.page(select, cursor, wanted)?;
            for placed in &page {
                if each(placed.row.borrowed()).is_break() {
                    return Ok(());
                }
            }
            let found = page.len() as u64;
            match page.last() {
                Some(last) if found == wanted => cursor = last.cursor,
                _ => return Ok(()),
            }
            left = left.saturating_sub(found);
        }
        Ok(())
    }

    /// The head when the batch was started. The write checks that it has not moved.
    fn known_tail(&self, select: &RowQuery<'_>) -> Option<Vec<Row>> {
        let RowQuery { id: None, kinds, numbers: (0, u64::MAX), since: None, until: None, .. } = select
        else {
            return None;
        };
        let is_end = kinds.is_empty()
            && select.order == RowOrder::NewestFirst
            && select.chains == ChainSelection::This;
        let most = usize::try_from(select.most?).ok()?;
        if !self.is_making.get() || !is_end || select.most > Some(TAIL) {
            return None;
        }
        self.tail.borrow().as_ref().map(|tail| tail.rows.iter().take(most).cloned().collect())
    }

    /// `None`: no chain, or one that was set aside.
    fn other(&self, number: i32) -> Result<Option<OtherHead>, ChainStoreError> {
        let mut seen = self.other_now(number)?;
        // A rotation moves the head and names another key: a head that moved between two looks is looked at again.
        for _ in 0..LOOKS {
            if !matches!(seen, Some(OtherHead::Unsigned { .. })) {
                break;
            }
            let before = mem::replace(&mut seen, self.other_now(number)?);
            if seen == before {
                break;
            }
        }
        if let Some(OtherHead::Unsigned { chain, .. }) = &seen {
            tracing::warn!(chain = chain.as_str(), "the end of this chain is not signed by its key");
        }
        Ok(seen)
    }

    fn other_now(&self, number: i32) -> Result<Option<OtherHead>, ChainStoreError> {
        let sql = "SELECT id, seq, hash, seal FROM ringfence.head WHERE chain = $1 AND aside IS NULL";
        let rows = self.read(sql, &[&number])?;
        let Some(row) = rows.first() else { return Ok(None) };
        let Some(chain) = chain_id(get(row, 0)?) else { return Ok(None) };
        let head = ChainHead { seq: from_sql(get(row, 1)?), hash: get(row, 2)? };
        let seal: String = get(row, 3)?;
        let line = self.key_line(number)?.filter(|line| line.chain == chain);
        let key = line.and_then(|mut line| line.keys.pop());
        let key = key.filter(|key| key::is_signed(key, &seal::end(&chain, &head), &seal));
        Ok(Some(match key {
            Some(key) => OtherHead::Signed(WitnessedHead { chain, head, key }),
            None => OtherHead::Unsigned { chain, head },
        }))
    }

    /// The keys of a chain, from its start and its valid rotations. An unsigned rotation changes nothing. `None` also if such a
    /// record is unreadable, because the previous key would become valid again.
    pub(crate) fn key_line(&self, chain: i32) -> Result<Option<KeyLine>, ChainStoreError> {
        // Two parts, each of which an index gives: an `OR` may read the whole chain.
        let sql = "SELECT body, digest FROM (
                SELECT seq, body, digest FROM ringfence.record WHERE chain = $1 AND seq = 1 AND kind = 'chain-started'
                UNION ALL
                SELECT seq, body, digest FROM ringfence.record WHERE chain = $1 AND seq > 1 AND kind = 'ledger-key-rotated'
            ) named ORDER BY seq";
        let mut line: Option<KeyLine> = None;
        for row in self.read(sql, &[&chain])? {
            let (body, digest): (Option<&str>, &str) = (get(&row, 0)?, get(&row, 1)?);
            // A node's role may write bodies, to prune them, and no digests.
            let said = body.filter(|body| HexDigest::of(body.as_bytes()).to_string() == digest);
            let Some(event) = said.and_then(|body| serde_json::from_str::<Event>(body).ok()) else {
                return Ok(None);
            };
            match (&mut line, event) {
                (None, Event::ChainStarted { chain, key, .. }) => {
                    line = Some(KeyLine { chain, keys: vec![key] })
                }
                (Some(line), event) => line.follow(&event),
                (None, _) => {}
            }
        }
        Ok(line)
    }

    /// Reads a side table for this chain.
    ///
    /// WHY NOT a condition on the chain alone: the tables are ordered by id. One statement for a page of a small chain would read
    /// the rows of all others. So each statement reads one page of the table and returns this chain's rows and the end of the page.
    fn side_pages(&self, table: ClaimKind, each: &mut dyn FnMut(&str, u64)) -> Result<(), ChainStoreError> {
        let page = page_of(table);
        let sql = format!(
            "WITH page AS MATERIALIZED ({page}), last AS (SELECT id, place FROM page ORDER BY id DESC, place DESC LIMIT 1)
            SELECT page.id, page.place, page.seq, page.chain = $1, (SELECT count(*) FROM page)
            FROM page, last WHERE page.chain = $1 OR (page.id, page.place) = (last.id, last.place) ORDER BY page.id, page.place"
        );
        let (mut after, mut place) = (String::new(), i64::MIN);
        loop {
            let rows = self.read(&sql, &[&self.chain, &after, &place, &SIDE_PAGE])?;
            for row in &rows {
                (after, place) = (get(row, 0)?, get(row, 1)?);
                if get(row, 3)? {
                    each(&after, from_sql(get(row, 2)?));
                }
            }
            if rows.last().map(|row| get::<i64>(row, 4)).transpose()? != Some(SIDE_PAGE) {
                return Ok(());
            }
        }
    }

    /// The whole table `open`.
    pub(crate) fn open_rows(&self, each: &mut dyn FnMut(&str, FirstRecord)) -> Result<(), ChainStoreError> {
        let sql = "SELECT id, chain, seq FROM ringfence.open WHERE id > $1 ORDER BY id LIMIT $2";
        let mut after = String::new();
        loop {
            let rows = self.read(sql, &[&after, &SIDE_PAGE])?;
            for row in &rows {
                after = get(row, 0)?;
                each(&after, FirstRecord { chain: get(row, 1)?, seq: from_sql(get(row, 2)?) });
            }
            if i64::try_from(rows.len()) != Ok(SIDE_PAGE) {
                return Ok(());
            }
        }
    }

    /// The numbers of the chains that `mention` or `claim` have rows of.
    pub(crate) fn chains_beside(&self, table: ClaimKind) -> Result<ChainNumbers, ChainStoreError> {
        // What is found under an id is found by chain, number and place. All three must be of one record.
        let lost = match table {
            ClaimKind::Mention => {
                // WHY NOT `EXISTS`: it can become a join that reads all records.
                "(SELECT r.place FROM ringfence.record r WHERE r.chain = page.chain AND r.seq = page.seq)
                IS DISTINCT FROM page.place"
            }
            ClaimKind::Claim | ClaimKind::Open => "false",
        };
        let sql = format!(
            "WITH page AS MATERIALIZED ({}), last AS (SELECT id, place FROM page ORDER BY id DESC, place DESC LIMIT 1)
            SELECT last.id, last.place, (SELECT count(*) FROM page), ARRAY(SELECT DISTINCT chain FROM page),
                ARRAY(SELECT DISTINCT chain FROM page WHERE {lost}) FROM last",
            page_of(table).replace("$2", "$1").replace("$3", "$2").replace("$4", "$3")
        );
        let mut beside = ChainNumbers::default();
        let (mut after, mut place) = (String::new(), i64::MIN);
        loop {
            let rows = self.read(&sql, &[&after, &place, &SIDE_PAGE])?;
            let Some(row) = rows.first() else { return Ok(beside) };
            (after, place) = (get(row, 0)?, get(row, 1)?);
            beside.named.extend(get::<Vec<i32>>(row, 3)?);
            beside.lost.extend(get::<Vec<i32>>(row, 4)?);
            if get::<i64>(row, 2)? != SIDE_PAGE {
                return Ok(beside);
            }
        }
    }

    /// All records of the database in the order of `place`, each with its chain number. Malformed rows are skipped; the walk of
    /// their chain reports them.
    pub(crate) fn scan_places(&self, each: &mut EachPlaced<'_>) -> Result<(), ChainStoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, r.place, r.chain FROM ringfence.record r WHERE r.place > $1 ORDER BY r.place LIMIT $2"
        );
        let mut after = i64::MIN;
        loop {
            let page = self.read(&sql, &[&after, &to_sql(PAGE)])?;
            for row in &page {
                after = get(row, 7)?;
                let found = match placed(row) {
                    Err(ChainStoreError::Malformed { .. }) => continue,
                    found => found?,
                };
                if each(get(row, 8)?, found.row.borrowed()).is_break() {
                    return Ok(());
                }
            }
            if page.len() as u64 != PAGE {
                return Ok(());
            }
        }
    }

    /// Looks up heads, and keeps the first of each chain that is not there. `heads` is empty afterwards.
    pub(crate) fn keep_lost(
        &self,
        heads: &mut Vec<(i32, ChainHead)>,
        lost: &mut BTreeMap<i32, ChainHead>,
    ) -> Result<(), ChainStoreError> {
        let sql = "SELECT w.at FROM unnest($1::int[], $2::bigint[], $3::text[]) WITH ORDINALITY AS w (chain, seq, hash, at)
            WHERE (SELECT r.hash FROM ringfence.record r WHERE r.chain = w.chain AND r.seq = w.seq) IS DISTINCT FROM w.hash
            ORDER BY w.at";
        let chains: Vec<i32> = heads.iter().map(|(chain, _)| *chain).collect();
        let numbers: Vec<i64> = heads.iter().map(|(_, head)| to_sql(head.seq)).collect();
        let hashes: Vec<&str> = heads.iter().map(|(_, head)| head.hash.as_str()).collect();
        for row in self.read(sql, &[&chains, &numbers, &hashes])? {
            let at = usize::try_from(get::<i64>(&row, 0)?).ok().and_then(|at| at.checked_sub(1));
            if let Some((chain, head)) = at.and_then(|at| heads.get(at)) {
                lost.entry(*chain).or_insert_with(|| head.clone());
            }
        }
        heads.clear();
        Ok(())
    }

    /// Starts a snapshot for all following reads.
    pub(crate) fn hold_moment(&self) -> Result<(), ChainStoreError> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        self.link.borrow_mut().begin_with(begin).map_err(ConnectionFault::into_store)
    }

    pub(crate) fn leave_moment(&self) -> Result<(), ChainStoreError> {
        let mut link = self.link.borrow_mut();
        let ended = link.commit();
        link.roll_back();
        ended.map_err(ConnectionFault::into_store)
    }

    /// Reads the head again. `lock`: the head cannot move until the transaction ends.
    pub(crate) fn look(&self, lock: RowLock) -> Result<(), ChainStoreError> {
        *self.tail.borrow_mut() = None;
        for _ in 0..LOOKS {
            if let Some(tail) = self.look_once(lock)? {
                *self.tail.borrow_mut() = Some(tail);
                return Ok(());
            }
        }
        Err(ChainStoreError::Busy(StoreFault::new(ConcurrentAppend)))
    }

    /// `None`: another process appended between the two reads.
    fn look_once(&self, lock: RowLock) -> Result<Option<ChainTail>, ChainStoreError> {
        let sql = "SELECT seq, hash, fence, aside IS NOT NULL, seal FROM ringfence.head WHERE chain = $1";
        let head = match lock {
            RowLock::None => self.read(sql, &[&self.chain])?,
            RowLock::Head => {
                let sql = format!("{sql} FOR UPDATE");
                let answer = self.link.borrow_mut().after("BEGIN", &sql, &[&self.chain]);
                answer.map_err(ConnectionFault::into_store)?
            }
        };
        let head = head.first().ok_or(ChainStoreError::Moved)?;
        if get::<bool>(head, 3)? {
            return Err(ChainStoreError::Moved);
        }
        let newest: Vec<Row> = self
            .page(&RowQuery::newest(TAIL), i64::MAX, TAIL)?
            .into_iter()
            .map(|placed| placed.row)
            .collect();
        let end = ChainHead { seq: from_sql(get(head, 0)?), hash: get(head, 1)? };
        let last = newest.first().map(Row::head);
        if last.as_ref() == Some(&end) {
            return Ok(Some(ChainTail { rows: newest, fence: get(head, 2)?, seal: get(head, 4)? }));
        }
        if lock == RowLock::None && last.is_some_and(|last| last.seq > end.seq) {
            return Ok(None);
        }
        let reason = "the table `head` names another end than the records have".to_owned();
        Err(ChainStoreError::Malformed { seq: end.seq, reason })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("other processes of this node were faster every time")]
pub(crate) struct ConcurrentAppend;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowLock {
    None,
    Head,
}

impl ChainRows for PostgresRows {
    fn scan(&self, select: &RowQuery<'_>, each: &mut RowVisitor<'_>) -> Result<(), ChainStoreError> {
        let Some(tail) = self.known_tail(select) else { return self.scan_pages(select, each) };
        let _last = tail.iter().try_for_each(|row| each(row.borrowed()));
        Ok(())
    }

    fn count_above(&self, seq: u64) -> Result<u64, ChainStoreError> {
        // From the beginning the whole chain counts, also what has a number below 1.
        let after = if seq == 0 { i64::MIN } else { to_sql(seq) };
        let sql = "SELECT count(*) FROM ringfence.record WHERE chain = $1 AND seq > $2";
        one(&self.read(sql, &[&self.chain, &after])?).map(from_sql)
    }

    fn kinds(&self) -> Result<Vec<(String, u64)>, ChainStoreError> {
        let sql = "SELECT kind, count(*) FROM ringfence.record WHERE chain = $1 GROUP BY kind ORDER BY kind";
        let rows = self.read(sql, &[&self.chain])?;
        rows.iter().map(|row| Ok((get(row, 0)?, from_sql(get(row, 1)?)))).collect()
    }

    fn kinds_since(&self, since: &str, kinds: &[Kind]) -> Result<Vec<u64>, ChainStoreError> {
        let first = "SELECT coalesce(min(seq), 9223372036854775807) FROM ringfence.record WHERE chain = $1 AND time >= $2";
        let first: i64 = one(&self.read(first, &[&self.chain, &since])?)?;
        let sql = "SELECT count(*) FROM ringfence.record WHERE chain = $1 AND kind = $2 AND seq >= $3";
        let count = |kind: &Kind| one(&self.read(sql, &[&self.chain, &kind.word(), &first])?).map(from_sql);
        kinds.iter().map(count).collect()
    }

    fn ids(&self, prefix: &str, most: usize) -> Result<Vec<String>, ChainStoreError> {
        // WHY NOT `DISTINCT`: it would read every mention of an id to get to the next one.
        let sql = "WITH RECURSIVE found (id) AS (
                (SELECT id FROM ringfence.mention WHERE id >= $1 ORDER BY id LIMIT 1)
                UNION ALL
                SELECT (SELECT id FROM ringfence.mention WHERE id > found.id ORDER BY id LIMIT 1)
                FROM found WHERE starts_with(found.id, $1)
            ) SELECT id FROM found WHERE starts_with(id, $1) LIMIT $2";
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.read(sql, &[&prefix, &most])?.iter().map(|row| get(row, 0)).collect()
    }

    fn claimed(&self, key: &str) -> Result<Option<u64>, ChainStoreError> {
        let sql = "SELECT seq FROM ringfence.claim WHERE key = $1";
        let found = match key.split(' ').nth(1).filter(|_| self.is_making.get()) {
            Some(id) => self.read_locked(id, sql, &[&key])?,
            None => self.read(sql, &[&key])?,
        };
        found.first().map(|row| get(row, 0).map(from_sql)).transpose()
    }

    fn side(&self, table: ClaimKind, each: &mut dyn FnMut(&str, u64)) -> Result<(), ChainStoreError> {
        if table != ClaimKind::Open {
            return self.side_pages(table, each);
        }
        let mut open: Vec<(u64, String)> = Vec::new();
        self.side_pages(table, &mut |id, seq| open.push((seq, id.to_owned())))?;
        open.sort_unstable();
        open.iter().for_each(|(seq, id)| each(id, *seq));
        Ok(())
    }

    fn open_anywhere(&self, each: &mut dyn FnMut(&str)) -> Result<(), ChainStoreError> {
        self.open_rows(&mut |id, _| each(id))
    }

    fn version(&self) -> Result<i64, ChainStoreError> {
        one(&self.read("SELECT coalesce(sum(seq), 0)::bigint FROM ringfence.head", &[])?)
    }

    fn at_once(&self, work: &mut dyn FnMut()) -> Result<(), ChainStoreError> {
        self.hold_moment()?;
        work();
        self.leave_moment()
    }

    /// Heads without a signature of their node are kept apart: witnessing a forged head would later accuse that node.
    fn others(&self) -> Result<Vec<OtherHead>, ChainStoreError> {
        let sql = "SELECT chain FROM ringfence.head WHERE chain <> $1 AND aside IS NULL ORDER BY id";
        let numbers: Result<Vec<i32>, ChainStoreError> =
            self.read(sql, &[&self.chain])?.iter().map(|row| get(row, 0)).collect();
        numbers?.into_iter().filter_map(|number| self.other(number).transpose()).collect()
    }

    fn seal(&self) -> Result<Option<String>, ChainStoreError> {
        if let (true, Some(tail)) = (self.is_making.get(), &*self.tail.borrow()) {
            return Ok(Some(tail.seal.clone()));
        }
        let rows = self.read("SELECT seal FROM ringfence.head WHERE chain = $1", &[&self.chain])?;
        rows.first().map(|row| get(row, 0)).transpose()
    }

    fn chains(&self) -> ChainSelection {
        ChainSelection::All
    }
}

/// Reads an id that this ledger gave as one.
pub(crate) fn chain_id(text: String) -> Option<ChainId> {
    serde_json::from_value(serde_json::Value::String(text)).ok()
}

/// One page of a table after id `$2` and place `$3`.
fn page_of(table: ClaimKind) -> &'static str {
    match table {
        ClaimKind::Mention => {
            "SELECT id, place, chain, seq FROM ringfence.mention WHERE (id, place) > ($2, $3) ORDER BY id, place LIMIT $4"
        }
        ClaimKind::Claim => {
            "SELECT key AS id, $3::bigint AS place, chain, seq FROM ringfence.claim WHERE key > $2 ORDER BY key LIMIT $4"
        }
        ClaimKind::Open => {
            "SELECT id, $3::bigint AS place, chain, seq FROM ringfence.open WHERE id > $2 ORDER BY id LIMIT $4"
        }
    }
}

/// Chain numbers in a side table.
#[derive(Debug, Default)]
pub(crate) struct ChainNumbers {
    pub(crate) named: BTreeSet<i32>,
    /// Chains whose rows lead to no record.
    pub(crate) lost: BTreeSet<i32>,
}

/// Visitor for records with their chain number; returns whether to continue.
pub(crate) type EachPlaced<'a> = dyn FnMut(i32, RowRef<'_>) -> ControlFlow<()> + 'a;

struct LocatedRow {
    row: Row,
    /// Where the next page begins.
    cursor: i64,
}

fn placed(row: &tokio_postgres::Row) -> Result<LocatedRow, ChainStoreError> {
    let number: i64 = get(row, 0)?;
    let malformed = |reason| ChainStoreError::Malformed { seq: from_sql(number), reason };
    let seq =
        u64::try_from(number).map_err(|_negative| malformed(format!("{number} is no number of a record")))?;
    let row_of = || -> Result<Row, tokio_postgres::Error> {
        Ok(Row {
            seq,
            time: row.try_get(1)?,
            kind: row.try_get(2)?,
            ids: row.try_get(3)?,
            digest: row.try_get(4)?,
            body: row.try_get(5)?,
            hash: row.try_get(6)?,
        })
    };
    let cursor = get(row, 7)?;
    row_of().map(|row| LocatedRow { row, cursor }).map_err(|error| malformed(error.to_string()))
}

/// Key for `pg_advisory_xact_lock`. A collision only causes waiting.
fn lock_of(id: &str) -> i64 {
    use sha2::{Digest as _, Sha256};
    let digest: [u8; 32] = Sha256::digest(id).into();
    digest.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

/// A select in SQL with its values.
struct SqlStatement {
    sql: String,
    values: Vec<Box<dyn ToSql + Sync>>,
}

const COLUMNS: &str = "r.seq, r.time, r.kind, r.ids, r.digest, r.body, r.hash";

impl SqlStatement {
    fn of(select: &RowQuery<'_>, chain: i32, cursor: i64, most: u64) -> Self {
        let mut statement = Self { sql: String::new(), values: Vec::new() };
        statement.sql = match (select.id, select.chains) {
            (Some(id), _) => statement.about(select, id, chain, cursor),
            (None, ChainSelection::This) => statement.in_chain(select, chain, cursor),
            (None, ChainSelection::All | ChainSelection::Ever) => statement.everywhere(select, cursor),
        };
        let most = statement.value(to_sql(most));
        statement.sql = statement.sql.replace("{most}", &most);
        statement
    }

    fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.values.iter().map(AsRef::as_ref).collect()
    }

    /// Its name in the statement.
    fn value(&mut self, value: impl ToSql + Sync + 'static) -> String {
        self.values.push(Box::new(value));
        format!("${}", self.values.len())
    }

    /// A node's role may insert into `mention`, and insert records after the head of a chain. So a record is found only by an id
    /// that it contains itself, at its own place, and up to the head of its chain.
    fn about(&mut self, select: &RowQuery<'_>, id: &str, chain: i32, cursor: i64) -> String {
        let (order, comparison) = direction(select.order);
        let id = self.value(id.to_owned());
        let cursor = self.value(cursor);
        let mut wanted = self.wanted(select);
        // Uses count wherever they are recorded: a node's role can move the head in `head` and so hide them for a moment.
        let end = if select.chains == ChainSelection::Ever { "" } else { " AND h.seq >= r.seq" };
        match select.chains {
            ChainSelection::This => wanted.push_str(&format!(" AND m.chain = {}", self.value(chain))),
            ChainSelection::All => wanted.push_str(" AND h.aside IS NULL"),
            ChainSelection::Ever => {}
        }
        if !select.kinds.is_empty() {
            let kinds = self.value(words(select));
            wanted.push_str(&format!(" AND r.kind = ANY({kinds}::text[])"));
        }
        format!(
            "SELECT {COLUMNS}, m.place FROM ringfence.mention m JOIN ringfence.record r USING (chain, seq, place)
            JOIN ringfence.head h ON h.chain = m.chain{end}
            WHERE m.id = {id} AND m.id = ANY(string_to_array(r.ids, ' ')) AND m.place {comparison} {cursor}{wanted}
            ORDER BY m.place {order} LIMIT {{most}}"
        )
    }

    fn in_chain(&mut self, select: &RowQuery<'_>, chain: i32, cursor: i64) -> String {
        let (order, comparison) = direction(select.order);
        let chain = self.value(chain);
        let cursor = self.value(cursor);
        let wanted = self.wanted(select);
        let rows = format!("r.chain = {chain} AND r.seq {comparison} {cursor}{wanted}");
        if select.kinds.is_empty() {
            return format!(
                "SELECT {COLUMNS}, r.seq FROM ringfence.record r WHERE {rows} ORDER BY r.seq {order} LIMIT {{most}}"
            );
        }
        // Each kind by itself is in order in the index; together they would have to be sorted.
        let kinds = self.value(words(select));
        format!(
            "SELECT {COLUMNS}, r.seq FROM unnest({kinds}::text[]) AS wanted (kind) CROSS JOIN LATERAL (
                SELECT * FROM ringfence.record r WHERE r.kind = wanted.kind AND {rows} ORDER BY r.seq {order} LIMIT {{most}}
            ) r ORDER BY r.seq {order} LIMIT {{most}}"
        )
    }

    fn everywhere(&mut self, select: &RowQuery<'_>, cursor: i64) -> String {
        let (order, comparison) = direction(select.order);
        let cursor = self.value(cursor);
        let wanted = self.wanted(select);
        let rows = format!("r.place {comparison} {cursor}{wanted}");
        if select.kinds.is_empty() {
            return format!(
                "SELECT {COLUMNS}, r.place FROM ringfence.record r
                WHERE r.chain = ANY(SELECT h.chain FROM ringfence.head h WHERE h.aside IS NULL) AND {rows}
                ORDER BY r.place {order} LIMIT {{most}}"
            );
        }
        // In one chain the order of places is that of the numbers, and these are in the index.
        let kinds = self.value(words(select));
        format!(
            "SELECT {COLUMNS}, r.place FROM ringfence.head h CROSS JOIN unnest({kinds}::text[]) AS wanted (kind)
            CROSS JOIN LATERAL (
                SELECT * FROM ringfence.record r
                WHERE r.chain = h.chain AND r.seq <= h.seq AND r.kind = wanted.kind AND {rows} ORDER BY r.seq {order} LIMIT {{most}}
            ) r WHERE h.aside IS NULL ORDER BY r.place {order} LIMIT {{most}}"
        )
    }

    fn wanted(&mut self, select: &RowQuery<'_>) -> String {
        let mut wanted = String::new();
        let (first, last) = select.numbers;
        // From the start this includes numbers below 1, so that a full scan sees them.
        if first > 0 {
            wanted.push_str(&format!(" AND r.seq >= {}", self.value(to_sql(first))));
        }
        if last < u64::MAX {
            wanted.push_str(&format!(" AND r.seq <= {}", self.value(to_sql(last))));
        }
        if let Some(since) = &select.since {
            wanted.push_str(&format!(" AND r.time >= {}", self.value(since.clone())));
        }
        if let Some(until) = &select.until {
            wanted.push_str(&format!(" AND r.time < {}", self.value(until.clone())));
        }
        wanted
    }
}

fn direction(order: RowOrder) -> (&'static str, &'static str) {
    match order {
        RowOrder::OldestFirst => ("ASC", ">"),
        RowOrder::NewestFirst => ("DESC", "<"),
    }
}

fn words(select: &RowQuery<'_>) -> Vec<&'static str> {
    select.kinds.iter().map(|kind| kind.word()).collect()
}

fn one(rows: &[tokio_postgres::Row]) -> Result<i64, ChainStoreError> {
    rows.first().map_or(Ok(0), |row| get(row, 0))
}

pub(crate) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a tokio_postgres::Row,
    at: usize,
) -> Result<T, ChainStoreError> {
    row.try_get(at).map_err(|error| ConnectionFault::from(error).into_store())
}

/// Numbers beyond what the server can hold mean "the last one".
pub(crate) fn to_sql(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

pub(crate) fn from_sql(seq: i64) -> u64 {
    u64::try_from(seq).unwrap_or(0)
}
