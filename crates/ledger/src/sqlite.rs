//! The store of one machine: one SQLite file.

pub(crate) mod aside;
pub(crate) mod format1;
pub(crate) mod open;
pub(crate) mod place;
pub(crate) mod rows;
pub(crate) mod write;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::event::Kind;
use crate::sqlite::open::OpenError;
use crate::sqlite::place::Identity;
use crate::sqlite::rows::{SqliteRows, of_sqlite};
use crate::store::{Each, Make, Rows, Select, Side, Store, StoreError};

/// A SQLite file that can be appended to.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    rows: SqliteRows,
    files: Files,
    pace: Pace,
}

/// How much this process has written so far.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// So many records: what appends once and leaves.
    Few(usize),
    Many,
}

impl SqliteStore {
    pub(crate) fn new(connection: Connection, database: PathBuf) -> Self {
        // The first read makes the log and its index, if there are none, so that their names can be remembered.
        let _version = connection.query_row("SELECT max(version) FROM schema", [], |_row| Ok(()));
        Self { rows: SqliteRows::new(connection), files: Files::now(database), pace: Pace::Few(0) }
    }

    /// Whoever goes on writing lets the log grow: copying it costs two syncs, as many commits do, and nobody reads it at
    /// a start meanwhile. It is emptied when the store is closed, or by the next start.
    fn wrote(&mut self, records: usize) {
        const MANY: usize = 256;
        let Pace::Few(before) = self.pace else { return };
        self.pace = Pace::Few(before + records);
        if before + records >= MANY && open::let_log_grow(&self.rows.connection).is_ok() {
            self.pace = Pace::Many;
        }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if let Pace::Many = self.pace {
            open::empty_log(&self.rows.connection);
        }
    }
}

impl Store for SqliteStore {
    fn append(&mut self, make: &mut Make<'_>) -> Result<(), StoreError> {
        let transaction = Transaction::new_unchecked(&self.rows.connection, TransactionBehavior::Immediate);
        let transaction = transaction.map_err(of_sqlite)?;
        // With the lock held: whoever puts the files aside holds it, too.
        self.files.check()?;
        let batch = make(&self.rows)?;
        if batch.entries.is_empty() && batch.forget.is_empty() {
            return transaction.rollback().map_err(of_sqlite);
        }
        write::batch(&transaction, &batch)?;
        transaction.commit().map_err(of_sqlite)?;
        self.wrote(batch.entries.len());
        if !batch.forget.is_empty() {
            open::empty_log(&self.rows.connection);
        }
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Rows + Send>, OpenError> {
        reader(&self.files.database)
    }
}

/// Rows of the file at `path`, which must have the format of today.
pub(crate) fn reader(path: &Path) -> Result<Box<dyn Rows + Send>, OpenError> {
    match open::open_to_read(path)? {
        (connection, open::SCHEMA_VERSION) => Ok(Box::new(SqliteRows::new(connection))),
        _ => Err(OpenError::Older { path: path.to_owned() }),
    }
}

impl Rows for SqliteStore {
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
}

/// The files SQLite holds open. It would go on writing to them after they lost their names, and the records would be
/// gone with the process.
#[derive(Debug)]
struct Files {
    database: PathBuf,
    log: PathBuf,
    opened: [Option<Identity>; 2],
}

impl Files {
    fn now(database: PathBuf) -> Self {
        let log = place::log_of(&database);
        let opened = Self::found(&database, &log);
        Self { database, log, opened }
    }

    fn check(&self) -> Result<(), StoreError> {
        if Self::found(&self.database, &self.log) == self.opened { Ok(()) } else { Err(StoreError::Moved) }
    }

    fn found(database: &Path, log: &Path) -> [Option<Identity>; 2] {
        [Identity::at(database), Identity::at(log)]
    }
}

#[cfg(test)]
mod tests {
    use crate::Ledger;
    use crate::sqlite::open;

    /// No test can pull the plug, so the settings that make a commit durable are pinned instead.
    #[test]
    fn commits_are_synced() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().canonicalize().unwrap().join("ledger.db");
        drop(Ledger::open(&database).unwrap());
        let (connection, _) = open::open_to_append(&database).unwrap();
        let synchronous: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
        let journal: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!((synchronous, journal.as_str()), (2, "wal"));
        assert!(rusqlite::version_number() >= open::OLDEST_SQLITE, "{}", rusqlite::version());
    }
}
