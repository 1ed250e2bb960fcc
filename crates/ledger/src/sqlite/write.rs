//! Writing rows of a SQLite file. Every function runs inside the caller's transaction.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::sqlite::rows::{of_sqlite, to_sql};
use crate::store::{Batch, BatchRow, ChainStoreError, OpenTableChange};

pub(crate) fn batch(connection: &Connection, batch: &Batch) -> Result<(), ChainStoreError> {
    for new in &batch.entries {
        if let Some(key) = &new.claim
            && is_claimed(connection, key).map_err(of_sqlite)?
        {
            return Err(ChainStoreError::Taken { key: key.clone() });
        }
        entry(connection, new).map_err(of_sqlite)?;
    }
    forget(connection, &batch.forget).map_err(of_sqlite)
}

pub(crate) fn entry(connection: &Connection, entry: &BatchRow) -> rusqlite::Result<()> {
    let (row, seq) = (&entry.row, to_sql(entry.row.seq));
    let sql =
        "INSERT INTO record (seq, time, kind, ids, digest, hash, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let values = params![seq, row.time, row.kind, row.ids, row.digest, row.hash, row.body];
    connection.prepare_cached(sql)?.execute(values)?;
    for id in entry.mentions() {
        let sql = "INSERT OR IGNORE INTO mention (id, seq) VALUES (?1, ?2)";
        connection.prepare_cached(sql)?.execute(params![id, seq])?;
    }
    if let Some(key) = &entry.claim {
        connection
            .prepare_cached("INSERT INTO claim (key, seq) VALUES (?1, ?2)")?
            .execute(params![key, seq])?;
    }
    match &entry.life {
        Some(OpenTableChange::Opens(id)) => {
            let sql = "INSERT OR IGNORE INTO open (id, seq) VALUES (?1, ?2)";
            connection.prepare_cached(sql)?.execute(params![id, seq])?;
        }
        Some(OpenTableChange::Closes(id)) => {
            connection.prepare_cached("DELETE FROM open WHERE id = ?1")?.execute([id])?;
        }
        None => {}
    }
    Ok(())
}

fn is_claimed(connection: &Connection, key: &str) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM claim WHERE key = ?1")?;
    Ok(statement.query_row([key], |_row| Ok(())).optional()?.is_some())
}

fn forget(connection: &Connection, numbers: &[u64]) -> rusqlite::Result<()> {
    if numbers.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached("UPDATE record SET body = NULL WHERE seq = ?1")?;
    for seq in numbers {
        statement.execute([to_sql(*seq)])?;
    }
    Ok(())
}
