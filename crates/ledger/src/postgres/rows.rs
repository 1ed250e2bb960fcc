//! Rows of a chain on a server, read. What a scan finds is fetched in pages, so that nothing stands in the way of
//! whoever appends, however long the reader takes over a row.

use std::cell::{Cell, RefCell};

use ringfence_types::ChainId;
use tokio_postgres::types::ToSql;

use crate::chain::{Head, Hex, Row};
use crate::event::{Event, Kind};
use crate::key;
use crate::postgres::error::Trouble;
use crate::postgres::link::{Link, Parameters, Transaction};
use crate::seal::{self, KeyLine};
use crate::store::{Chains, Each, Fault, Order, Rows, Select, Side, StoreError, WitnessedHead};

const PAGE: u64 = 1000;

/// Ids and keys are short.
const SIDE_PAGE: i64 = 10_000;

/// So often somebody may append while the end is looked at.
const LOOKS: u32 = 20;

/// As many of the last rows as whoever appends looks at.
const TAIL: u64 = 2;

#[derive(Debug)]
pub(crate) struct PostgresRows {
    pub(crate) link: RefCell<Link>,
    /// The chain that numbers are of.
    pub(crate) chain: i32,
    /// What the end was when somebody last looked, newest first.
    pub(crate) tail: RefCell<Option<Tail>>,
    /// Whether what is read now is for a batch.
    pub(crate) is_making: Cell<bool>,
}

#[derive(Clone, Debug)]
pub(crate) struct Tail {
    pub(crate) rows: Vec<Row>,
    pub(crate) fence: i64,
    pub(crate) seal: String,
}

impl PostgresRows {
    pub(crate) fn new(link: Link, chain: i32) -> Self {
        Self { link: RefCell::new(link), chain, tail: RefCell::default(), is_making: Cell::new(false) }
    }

    pub(crate) fn read(
        &self,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, StoreError> {
        self.link.borrow_mut().read(sql, parameters).map_err(Trouble::into_store)
    }

    /// Reads what is known about `id` for a batch: from here to its end nobody else writes about it.
    ///
    /// INVARIANT: everybody who writes about a transaction or a grant has read about it in the same SQL transaction, and so
    /// holds its lock. The order of events about it holds for all nodes together.
    fn read_locked(
        &self,
        id: &str,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, StoreError> {
        let lock = format!("SELECT pg_advisory_xact_lock({})", lock_of(id));
        let mut link = self.link.borrow_mut();
        let rows = match link.transaction {
            Transaction::None => {
                let begin = format!("BEGIN; {lock}");
                match link.after(&begin, sql, parameters) {
                    // It was the first thing in the transaction, so nothing is lost with it.
                    Err(trouble) if trouble.is_lost() => {
                        link.transaction = Transaction::None;
                        link.after(&begin, sql, parameters)
                    }
                    other => other,
                }
            }
            Transaction::Open => link.after(&lock, sql, parameters),
            Transaction::Lost => Err(Trouble::Silent),
        };
        rows.map_err(Trouble::into_store)
    }

    fn page(&self, select: &Select<'_>, cursor: i64, most: u64) -> Result<Vec<Placed>, StoreError> {
        let statement = Statement::of(select, self.chain, cursor, most);
        let parameters = statement.parameters();
        let rows = match select.id {
            Some(id) if self.is_making.get() => self.read_locked(id, &statement.sql, &parameters),
            _ => self.read(&statement.sql, &parameters),
        };
        if !self.is_making.get() {
            // Whoever reads beside a batch may see more than the end that is remembered here.
            *self.tail.borrow_mut() = None;
        }
        rows?.iter().map(placed).collect()
    }

    fn scan_pages(&self, select: &Select<'_>, each: &mut Each<'_>) -> Result<(), StoreError> {
        let mut left = select.most.unwrap_or(u64::MAX);
        let mut cursor = match select.order {
            Order::OldestFirst => i64::MIN,
            Order::NewestFirst => i64::MAX,
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

    /// The end as it was when the batch was begun: whether it still is, is asked when the batch is written.
    fn known_tail(&self, select: &Select<'_>) -> Option<Vec<Row>> {
        let Select { id: None, kinds, numbers: (0, u64::MAX), since: None, until: None, .. } = select else {
            return None;
        };
        let is_end = kinds.is_empty() && select.order == Order::NewestFirst && select.chains == Chains::This;
        let most = usize::try_from(select.most?).ok()?;
        if !self.is_making.get() || !is_end || select.most > Some(TAIL) {
            return None;
        }
        self.tail.borrow().as_ref().map(|tail| tail.rows.iter().take(most).cloned().collect())
    }

    fn other(&self, row: &tokio_postgres::Row) -> Result<Option<WitnessedHead>, StoreError> {
        let Some(chain) = chain_id(get(row, 1)?) else { return Ok(None) };
        let head = Head { seq: from_sql(get(row, 2)?), hash: get(row, 3)? };
        let seal: String = get(row, 4)?;
        let line = self.key_line(get(row, 0)?)?;
        let Some(key) = line.filter(|line| line.chain == chain).and_then(|mut line| line.keys.pop()) else {
            return Ok(None);
        };
        let is_signed = key::is_signed(&key, &seal::end(&chain, &head), &seal);
        Ok(is_signed.then_some(WitnessedHead { chain, head, key }))
    }

    /// Who vouches for a chain, by its beginning and the hand-overs that hold. What is not signed changes nothing here.
    pub(crate) fn key_line(&self, chain: i32) -> Result<Option<KeyLine>, StoreError> {
        let sql = "SELECT body, digest FROM ringfence.record WHERE chain = $1 AND body IS NOT NULL
            AND ((seq = 1 AND kind = 'chain-started') OR (seq > 1 AND kind = 'key-rotated')) ORDER BY seq";
        let mut line: Option<KeyLine> = None;
        for row in self.read(sql, &[&chain])? {
            let (body, digest): (&str, &str) = (get(&row, 0)?, get(&row, 1)?);
            // A node's role may write bodies, to prune them, and no digests.
            if Hex::of(body.as_bytes()).to_string() != digest {
                continue;
            }
            let Ok(event) = serde_json::from_str::<Event>(body) else { continue };
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

    /// From here on everything is read as it is now.
    pub(crate) fn hold_moment(&self) -> Result<(), StoreError> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        self.link.borrow_mut().begin_with(begin).map_err(Trouble::into_store)
    }

    pub(crate) fn leave_moment(&self) -> Result<(), StoreError> {
        let mut link = self.link.borrow_mut();
        let ended = link.commit();
        link.roll_back();
        ended.map_err(Trouble::into_store)
    }

    /// Looks at the end of the chain anew. `lock`: nobody moves it until the transaction ends.
    pub(crate) fn look(&self, lock: Lock) -> Result<(), StoreError> {
        *self.tail.borrow_mut() = None;
        for _ in 0..LOOKS {
            if let Some(tail) = self.look_once(lock)? {
                *self.tail.borrow_mut() = Some(tail);
                return Ok(());
            }
        }
        Err(StoreError::Busy(Fault::new(Overtaken)))
    }

    /// `None`: somebody appended between the two looks that it takes.
    fn look_once(&self, lock: Lock) -> Result<Option<Tail>, StoreError> {
        let sql = "SELECT seq, hash, fence, aside IS NOT NULL, seal FROM ringfence.head WHERE chain = $1";
        let head = match lock {
            Lock::None => self.read(sql, &[&self.chain])?,
            Lock::Head => {
                let sql = format!("{sql} FOR UPDATE");
                let answer = self.link.borrow_mut().after("BEGIN", &sql, &[&self.chain]);
                answer.map_err(Trouble::into_store)?
            }
        };
        let head = head.first().ok_or(StoreError::Moved)?;
        if get::<bool>(head, 3)? {
            return Err(StoreError::Moved);
        }
        let newest: Vec<Row> =
            self.page(&Select::newest(TAIL), i64::MAX, TAIL)?.into_iter().map(|placed| placed.row).collect();
        let end = Head { seq: from_sql(get(head, 0)?), hash: get(head, 1)? };
        let last = newest.first().map(Row::head);
        if last.as_ref() == Some(&end) {
            return Ok(Some(Tail { rows: newest, fence: get(head, 2)?, seal: get(head, 4)? }));
        }
        if lock == Lock::None && last.is_some_and(|last| last.seq > end.seq) {
            return Ok(None);
        }
        let reason = "the table `head` names another end than the records have".to_owned();
        Err(StoreError::Malformed { seq: end.seq, reason })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("other processes of this node were faster every time")]
pub(crate) struct Overtaken;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    None,
    Head,
}

impl Rows for PostgresRows {
    fn scan(&self, select: &Select<'_>, each: &mut Each<'_>) -> Result<(), StoreError> {
        let Some(tail) = self.known_tail(select) else { return self.scan_pages(select, each) };
        let _last = tail.iter().try_for_each(|row| each(row.borrowed()));
        Ok(())
    }

    fn count_above(&self, seq: u64) -> Result<u64, StoreError> {
        // From the beginning the whole chain counts, also what has a number below 1.
        let after = if seq == 0 { i64::MIN } else { to_sql(seq) };
        let sql = "SELECT count(*) FROM ringfence.record WHERE chain = $1 AND seq > $2";
        one(&self.read(sql, &[&self.chain, &after])?).map(from_sql)
    }

    fn kinds(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let sql = "SELECT kind, count(*) FROM ringfence.record WHERE chain = $1 GROUP BY kind ORDER BY kind";
        let rows = self.read(sql, &[&self.chain])?;
        rows.iter().map(|row| Ok((get(row, 0)?, from_sql(get(row, 1)?)))).collect()
    }

    fn kinds_since(&self, since: &str, kinds: &[Kind]) -> Result<Vec<u64>, StoreError> {
        let first = "SELECT coalesce(min(seq), 9223372036854775807) FROM ringfence.record WHERE chain = $1 AND time >= $2";
        let first: i64 = one(&self.read(first, &[&self.chain, &since])?)?;
        let sql = "SELECT count(*) FROM ringfence.record WHERE chain = $1 AND kind = $2 AND seq >= $3";
        let count = |kind: &Kind| one(&self.read(sql, &[&self.chain, &kind.word(), &first])?).map(from_sql);
        kinds.iter().map(count).collect()
    }

    fn ids(&self, prefix: &str, most: usize) -> Result<Vec<String>, StoreError> {
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

    fn claimed(&self, key: &str) -> Result<Option<u64>, StoreError> {
        let sql = "SELECT seq FROM ringfence.claim WHERE key = $1";
        let found = match key.split(' ').nth(1).filter(|_| self.is_making.get()) {
            Some(id) => self.read_locked(id, sql, &[&key])?,
            None => self.read(sql, &[&key])?,
        };
        found.first().map(|row| get(row, 0).map(from_sql)).transpose()
    }

    fn side(&self, table: Side, each: &mut dyn FnMut(&str, u64)) -> Result<(), StoreError> {
        let sql = match table {
            Side::Mention => {
                "SELECT id, seq, place FROM ringfence.mention
                WHERE chain = $1 AND (id, place) > ($2, $3) ORDER BY id, place LIMIT $4"
            }
            Side::Claim => {
                "SELECT key, seq, $3::bigint FROM ringfence.claim
                WHERE chain = $1 AND key > $2 ORDER BY key LIMIT $4"
            }
            Side::Open => {
                "SELECT id, seq, seq FROM ringfence.open
                WHERE chain = $1 AND (seq, id) > ($3, $2) ORDER BY seq, id LIMIT $4"
            }
        };
        let (mut after, mut place) = (String::new(), i64::MIN);
        loop {
            let rows = self.read(sql, &[&self.chain, &after, &place, &SIDE_PAGE])?;
            for row in &rows {
                (after, place) = (get(row, 0)?, get(row, 2)?);
                each(&after, from_sql(get(row, 1)?));
            }
            if i64::try_from(rows.len()) != Ok(SIDE_PAGE) {
                return Ok(());
            }
        }
    }

    fn version(&self) -> Result<i64, StoreError> {
        one(&self.read("SELECT coalesce(sum(seq), 0)::bigint FROM ringfence.head", &[])?)
    }

    fn at_once(&self, work: &mut dyn FnMut()) -> Result<(), StoreError> {
        self.hold_moment()?;
        work();
        self.leave_moment()
    }

    /// A head that its node has not signed is nobody's word, and whoever wrote it down would accuse that node later.
    fn others(&self) -> Result<Vec<WitnessedHead>, StoreError> {
        let sql = "SELECT chain, id, seq, hash, seal FROM ringfence.head WHERE chain <> $1 AND aside IS NULL ORDER BY id";
        let rows = self.read(sql, &[&self.chain])?;
        rows.iter().filter_map(|row| self.other(row).transpose()).collect()
    }

    fn seal(&self) -> Result<Option<String>, StoreError> {
        if let (true, Some(tail)) = (self.is_making.get(), &*self.tail.borrow()) {
            return Ok(Some(tail.seal.clone()));
        }
        let rows = self.read("SELECT seal FROM ringfence.head WHERE chain = $1", &[&self.chain])?;
        rows.first().map(|row| get(row, 0)).transpose()
    }

    fn chains(&self) -> Chains {
        Chains::All
    }
}

/// Reads an id that this ledger gave as one.
pub(crate) fn chain_id(text: String) -> Option<ChainId> {
    serde_json::from_value(serde_json::Value::String(text)).ok()
}

struct Placed {
    row: Row,
    /// Where the next page begins.
    cursor: i64,
}

fn placed(row: &tokio_postgres::Row) -> Result<Placed, StoreError> {
    let number: i64 = get(row, 0)?;
    let malformed = |reason| StoreError::Malformed { seq: from_sql(number), reason };
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
    row_of().map(|row| Placed { row, cursor }).map_err(|error| malformed(error.to_string()))
}

/// A number for `pg_advisory_xact_lock`. Two ids with the same one only wait for each other.
fn lock_of(id: &str) -> i64 {
    use sha2::{Digest as _, Sha256};
    let digest: [u8; 32] = Sha256::digest(id).into();
    digest.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

/// A select in SQL with its values.
struct Statement {
    sql: String,
    values: Vec<Box<dyn ToSql + Sync>>,
}

const COLUMNS: &str = "r.seq, r.time, r.kind, r.ids, r.digest, r.body, r.hash";

impl Statement {
    fn of(select: &Select<'_>, chain: i32, cursor: i64, most: u64) -> Self {
        let mut statement = Self { sql: String::new(), values: Vec::new() };
        statement.sql = match (select.id, select.chains) {
            (Some(id), chains) => {
                let chain = (chains == Chains::This).then_some(chain);
                statement.about(select, (id, chain), cursor)
            }
            (None, Chains::This) => statement.in_chain(select, chain, cursor),
            (None, Chains::All) => statement.everywhere(select, cursor),
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

    fn about(&mut self, select: &Select<'_>, (id, chain): (&str, Option<i32>), cursor: i64) -> String {
        let (order, comparison) = direction(select.order);
        let id = self.value(id.to_owned());
        let cursor = self.value(cursor);
        let mut wanted = self.wanted(select);
        if let Some(chain) = chain {
            wanted.push_str(&format!(" AND m.chain = {}", self.value(chain)));
        }
        if !select.kinds.is_empty() {
            let kinds = self.value(words(select));
            wanted.push_str(&format!(" AND r.kind = ANY({kinds}::text[])"));
        }
        format!(
            "SELECT {COLUMNS}, m.place FROM ringfence.mention m JOIN ringfence.record r USING (chain, seq)
            JOIN ringfence.head h ON h.chain = m.chain AND h.aside IS NULL
            WHERE m.id = {id} AND m.place {comparison} {cursor}{wanted} ORDER BY m.place {order} LIMIT {{most}}"
        )
    }

    fn in_chain(&mut self, select: &Select<'_>, chain: i32, cursor: i64) -> String {
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

    fn everywhere(&mut self, select: &Select<'_>, cursor: i64) -> String {
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
                WHERE r.chain = h.chain AND r.kind = wanted.kind AND {rows} ORDER BY r.seq {order} LIMIT {{most}}
            ) r WHERE h.aside IS NULL ORDER BY r.place {order} LIMIT {{most}}"
        )
    }

    fn wanted(&mut self, select: &Select<'_>) -> String {
        let mut wanted = String::new();
        let (first, last) = select.numbers;
        // From the very beginning also what has a number below 1, so that whoever reads everything sees it.
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

fn direction(order: Order) -> (&'static str, &'static str) {
    match order {
        Order::OldestFirst => ("ASC", ">"),
        Order::NewestFirst => ("DESC", "<"),
    }
}

fn words(select: &Select<'_>) -> Vec<&'static str> {
    select.kinds.iter().map(|kind| kind.word()).collect()
}

fn one(rows: &[tokio_postgres::Row]) -> Result<i64, StoreError> {
    rows.first().map_or(Ok(0), |row| get(row, 0))
}

pub(crate) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a tokio_postgres::Row,
    at: usize,
) -> Result<T, StoreError> {
    row.try_get(at).map_err(|error| Trouble::from(error).into_store())
}

/// Numbers beyond what the server can hold mean "the last one".
pub(crate) fn to_sql(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

pub(crate) fn from_sql(seq: i64) -> u64 {
    u64::try_from(seq).unwrap_or(0)
}
