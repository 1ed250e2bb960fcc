//! Reading rows of a SQLite file.

use std::fmt::Write as _;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params, params_from_iter};

use crate::event::Kind;
use crate::store::{
    ChainRows, ChainStoreError, ClaimKind, RowOrder, RowQuery, RowRef, RowVisitor, StoreFault,
};

/// A limited search by time first looks at this many rows per wanted row, from the end.
const NEAR: u64 = 8;

/// The index holds kind and number, so no row is read.
const COUNT_OF_KIND: &str =
    "SELECT count(*) FROM record INDEXED BY record_kind WHERE kind = ?1 AND seq >= ?2";

#[derive(Debug)]
pub(crate) struct SqliteRows {
    pub(crate) connection: Connection,
}

impl SqliteRows {
    pub(crate) fn new(connection: Connection) -> Self {
        connection.set_prepared_statement_cache_capacity(48);
        Self { connection }
    }

    fn run(
        &self,
        select: &RowQuery<'_>,
        each: &mut RowVisitor<'_>,
    ) -> rusqlite::Result<Result<u64, ChainStoreError>> {
        let (sql, values) = statement(select);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            let row = match borrowed(row) {
                Ok(row) => row,
                Err(broken) => return Ok(Err(broken)),
            };
            count += 1;
            if each(row).is_break() {
                break;
            }
        }
        Ok(Ok(count))
    }

    /// Range of numbers that rows of this time can have, because times are not monotonic.
    fn numbers(&self, select: &RowQuery<'_>) -> rusqlite::Result<(u64, u64)> {
        let (mut first, mut last) = select.numbers;
        let one = |sql: &str, time: &str| -> rusqlite::Result<Option<i64>> {
            self.connection.prepare_cached(sql)?.query_row([time], |row| row.get(0))
        };
        if let Some(since) = &select.since {
            let sql = "SELECT min(seq) FROM record INDEXED BY record_time WHERE time >= ?1";
            first = first.max(one(sql, since)?.map_or(u64::MAX, from_sql));
        }
        if let Some(until) = &select.until {
            let sql = "SELECT max(seq) FROM record INDEXED BY record_time WHERE time < ?1";
            last = last.min(one(sql, until)?.map_or(0, from_sql));
        }
        Ok((first, last))
    }

    /// Whether the wanted rows are near the end, so that no search is needed.
    fn found_near(
        &self,
        select: &RowQuery<'_>,
        each: &mut RowVisitor<'_>,
    ) -> rusqlite::Result<Result<bool, ChainStoreError>> {
        let (Some(most), RowOrder::NewestFirst, None) = (select.most, select.order, select.id) else {
            return Ok(Ok(false));
        };
        let end: Option<i64> =
            self.connection.query_row("SELECT max(seq) FROM record", [], |row| row.get(0))?;
        let near = end.map_or(0, from_sql).saturating_sub(most.saturating_mul(NEAR));
        let mut probe = select.clone();
        probe.numbers.0 = probe.numbers.0.max(near);
        let mut rows = Vec::new();
        let counted = self.run(&probe, &mut |row| {
            rows.push(row.to_row());
            std::ops::ControlFlow::Continue(())
        })?;
        match counted {
            Ok(count) if count < most => return Ok(Ok(false)),
            Ok(_) => {}
            Err(error) => return Ok(Err(error)),
        }
        for row in &rows {
            if each(row.borrowed()).is_break() {
                break;
            }
        }
        Ok(Ok(true))
    }

    fn select(
        &self,
        select: &RowQuery<'_>,
        each: &mut RowVisitor<'_>,
    ) -> rusqlite::Result<Result<(), ChainStoreError>> {
        if select.since.is_none() && select.until.is_none() {
            return Ok(self.run(select, each)?.map(drop));
        }
        match self.found_near(select, each)? {
            Ok(false) => {}
            found => return Ok(found.map(drop)),
        }
        let bounded = RowQuery { numbers: self.numbers(select)?, ..select.clone() };
        Ok(self.run(&bounded, each)?.map(drop))
    }
}

impl ChainRows for SqliteRows {
    fn scan(&self, select: &RowQuery<'_>, each: &mut RowVisitor<'_>) -> Result<(), ChainStoreError> {
        self.select(select, each).map_err(of_sqlite)?
    }

    fn count_above(&self, seq: u64) -> Result<u64, ChainStoreError> {
        // From the beginning the whole table counts, also what has a number below 1.
        let after = if seq == 0 { i64::MIN } else { to_sql(seq) };
        let sql = "SELECT count(*) FROM record INDEXED BY record_seq WHERE seq > ?1";
        self.connection.query_row(sql, [after], |row| row.get(0)).map(from_sql).map_err(of_sqlite)
    }

    fn kinds(&self) -> Result<Vec<(String, u64)>, ChainStoreError> {
        let sql = "SELECT kind, count(*) FROM record INDEXED BY record_kind GROUP BY kind ORDER BY kind";
        let mut statement = self.connection.prepare_cached(sql).map_err(of_sqlite)?;
        let counted = statement.query_map([], |row| Ok((row.get(0)?, from_sql(row.get(1)?))));
        counted.and_then(Iterator::collect).map_err(of_sqlite)
    }

    fn kinds_since(&self, since: &str, kinds: &[Kind]) -> Result<Vec<u64>, ChainStoreError> {
        let select = RowQuery { since: Some(since.to_owned()), ..RowQuery::default() };
        let count = || -> rusqlite::Result<Vec<u64>> {
            let (first, _) = self.numbers(&select)?;
            let mut statement = self.connection.prepare_cached(COUNT_OF_KIND)?;
            let count = |kind: &Kind| {
                statement.query_row(params![kind.word(), to_sql(first)], |row| row.get(0)).map(from_sql)
            };
            kinds.iter().map(count).collect()
        };
        count().map_err(of_sqlite)
    }

    fn ids(&self, prefix: &str, most: usize) -> Result<Vec<String>, ChainStoreError> {
        let mut found: Vec<String> = Vec::new();
        let mut statement = self
            .connection
            .prepare_cached(
                "SELECT id FROM mention WHERE id >= ?1 AND (?2 = '' OR id > ?2) ORDER BY id LIMIT 1",
            )
            .map_err(of_sqlite)?;
        // WHY NOT `DISTINCT`: it would read every mention of an id to get to the next one.
        while found.len() < most {
            let last = found.last().cloned().unwrap_or_default();
            let from = if last.is_empty() { prefix } else { &last };
            let next: Option<String> =
                statement.query_row(params![from, last], |row| row.get(0)).optional().map_err(of_sqlite)?;
            match next.filter(|id| id.starts_with(prefix)) {
                Some(id) => found.push(id),
                None => break,
            }
        }
        Ok(found)
    }

    fn claimed(&self, key: &str) -> Result<Option<u64>, ChainStoreError> {
        let statement = self.connection.prepare_cached("SELECT seq FROM claim WHERE key = ?1");
        let found =
            statement.and_then(|mut statement| statement.query_row([key], |row| row.get(0)).optional());
        found.map(|seq: Option<i64>| seq.map(from_sql)).map_err(of_sqlite)
    }

    fn side(&self, table: ClaimKind, each: &mut dyn FnMut(&str, u64)) -> Result<(), ChainStoreError> {
        let sql = match table {
            ClaimKind::Mention => "SELECT id, seq FROM mention",
            ClaimKind::Claim => "SELECT key, seq FROM claim",
            ClaimKind::Open => "SELECT id, seq FROM open ORDER BY seq",
        };
        let mut read = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                each(row.get_ref(0)?.as_str()?, from_sql(row.get(1)?));
            }
            Ok(())
        };
        read().map_err(of_sqlite)
    }

    fn version(&self) -> Result<i64, ChainStoreError> {
        self.connection.pragma_query_value(None, "data_version", |row| row.get(0)).map_err(of_sqlite)
    }

    fn at_once(&self, work: &mut dyn FnMut()) -> Result<(), ChainStoreError> {
        let snapshot = self.connection.unchecked_transaction().map_err(of_sqlite)?;
        work();
        snapshot.finish().map_err(of_sqlite)
    }
}

const COLUMNS: &str = "r.seq, r.time, r.kind, r.ids, r.digest, r.body, r.hash";

fn statement(select: &RowQuery<'_>) -> (String, Vec<Value>) {
    let mut values = vec![Value::Integer(to_sql(select.numbers.0)), Value::Integer(to_sql(select.numbers.1))];
    let mut value = |value: &str| {
        values.push(Value::Text(value.to_owned()));
        values.len()
    };
    // From the start this includes numbers below 1, so that a full scan sees them.
    let lower = if select.numbers.0 == 0 { "?1 = 0" } else { "r.seq >= ?1" };
    let mut wanted = format!("{lower} AND r.seq <= ?2");
    for (time, comparison) in [(&select.since, ">="), (&select.until, "<")] {
        if let Some(time) = time {
            let _written = write!(wanted, " AND r.time {comparison} ?{}", value(time));
        }
    }
    let (order, limit) =
        (direction(select.order), select.most.map(|most| format!(" LIMIT {most}")).unwrap_or_default());
    let kinds: Vec<&str> = select.kinds.iter().map(|kind| kind.word()).collect();
    let sql = match (select.id, kinds.as_slice()) {
        (Some(id), kinds) => {
            let id = value(id);
            let kinds =
                if kinds.is_empty() { String::new() } else { format!(" AND r.kind IN ({})", quoted(kinds)) };
            // The order of a cross join is the order in which it is done: first what is filed under the id.
            format!(
                "SELECT {COLUMNS} FROM mention m CROSS JOIN record r ON r.seq = m.seq WHERE m.id = ?{id} AND {wanted}{kinds} ORDER BY m.seq {order}{limit}"
            )
        }
        (None, []) => {
            format!("SELECT {COLUMNS} FROM record r NOT INDEXED WHERE {wanted} ORDER BY r.seq {order}{limit}")
        }
        // Each kind by itself is in order in the index; together they would have to be sorted.
        (None, kinds) => {
            let each: Vec<String> = kinds
                .iter()
                .map(|kind| {
                    format!("SELECT * FROM (SELECT r.seq FROM record r INDEXED BY record_kind WHERE r.kind = '{kind}' AND {wanted} ORDER BY r.seq {order}{limit})")
                })
                .collect();
            format!(
                "SELECT {COLUMNS} FROM record r WHERE r.seq IN ({}) ORDER BY r.seq {order}{limit}",
                each.join(" UNION ALL ")
            )
        }
    };
    (sql, values)
}

fn direction(order: RowOrder) -> &'static str {
    match order {
        RowOrder::OldestFirst => "ASC",
        RowOrder::NewestFirst => "DESC",
    }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ")
}

fn borrowed<'a>(row: &'a rusqlite::Row<'_>) -> Result<RowRef<'a>, ChainStoreError> {
    let seq = row.get::<_, i64>(0).unwrap_or(-1);
    let malformed =
        |reason: String| ChainStoreError::Malformed { seq: u64::try_from(seq).unwrap_or(0), reason };
    let seq = u64::try_from(seq).map_err(|_negative| malformed(format!("{seq} is no number of a record")))?;
    let text = |at: usize| -> Result<&'a str, ChainStoreError> {
        let value = row.get_ref(at).map_err(|error| malformed(error.to_string()))?;
        value.as_str().map_err(|error| malformed(error.to_string()))
    };
    let body = match row.get_ref(5) {
        Ok(ValueRef::Null) => None,
        _ => Some(text(5)?),
    };
    Ok(RowRef { seq, time: text(1)?, kind: text(2)?, ids: text(3)?, digest: text(4)?, body, hash: text(6)? })
}

pub(crate) fn of_sqlite(source: rusqlite::Error) -> ChainStoreError {
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            ChainStoreError::Busy(StoreFault::new(source))
        }
        Some(ErrorCode::DiskFull) => ChainStoreError::Full(StoreFault::new(source)),
        Some(_) => ChainStoreError::Failed(StoreFault::new(source)),
        None => ChainStoreError::Malformed { seq: 0, reason: source.to_string() },
    }
}

/// Numbers beyond what SQLite can hold mean "the last one".
pub(crate) fn to_sql(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

fn from_sql(seq: i64) -> u64 {
    u64::try_from(seq).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a row to read for each count, `ringfence status` takes seconds over a million records.
    #[test]
    fn kinds_are_counted_in_the_index_alone() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(super::super::open::SCHEMA).unwrap();
        let sql = format!("EXPLAIN QUERY PLAN {COUNT_OF_KIND}");
        let plan: String = connection.query_row(&sql, params!["call-intended", 1], |row| row.get(3)).unwrap();
        assert!(plan.contains("USING COVERING INDEX record_kind"), "{plan}");
    }
}
