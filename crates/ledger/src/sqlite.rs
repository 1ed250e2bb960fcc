//! The store of one machine: one SQLite file.

pub(crate) mod archive;
pub(crate) mod format1;
pub(crate) mod open;
pub(crate) mod private_path;
pub(crate) mod rows;
pub(crate) mod write;

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::event::Kind;
use crate::sqlite::open::LedgerOpenError;
use crate::sqlite::private_path::InodeIdentity;
use crate::sqlite::rows::{SqliteRows, of_sqlite};
use crate::store::{BatchBuilder, ChainRows, ChainStore, ChainStoreError, ClaimKind, RowQuery, RowVisitor};

/// A SQLite file open for appending.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    rows: SqliteRows,
    files: SqliteFiles,
    pace: SyncPace,
}

/// How much this process has written.
#[derive(Clone, Copy, Debug)]
enum SyncPace {
    /// Number of records so far, for a process that appends a few and exits.
    Few(usize),
    Many,
}

impl SqliteStore {
    pub(crate) fn new(connection: Connection, database: PathBuf) -> Self {
        // The first read makes the log and its index, if there are none, so that their names can be remembered.
        let _version = connection.query_row("SELECT max(version) FROM schema", [], |_row| Ok(()));
        Self { rows: SqliteRows::new(connection), files: SqliteFiles::now(database), pace: SyncPace::Few(0) }
    }

    /// A process that keeps writing lets the log grow: a checkpoint of SQLite costs two syncs. The log is emptied at close or at
    /// the next start.
    fn wrote(&mut self, records: usize) {
        const MANY: usize = 256;
        let SyncPace::Few(before) = self.pace else { return };
        self.pace = SyncPace::Few(before + records);
        if before + records >= MANY && open::let_log_grow(&self.rows.connection).is_ok() {
            self.pace = SyncPace::Many;
        }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if let SyncPace::Many = self.pace {
            open::empty_log(&mut self.rows.connection);
        }
    }
}

impl ChainStore for SqliteStore {
    fn append(&mut self, make: &mut BatchBuilder<'_>) -> Result<(), ChainStoreError> {
        let transaction = Transaction::new_unchecked(&self.rows.connection, TransactionBehavior::Immediate);
        let transaction = transaction.map_err(of_sqlite)?;
        // With the lock held, because archiving the files needs it too.
        self.files.check()?;
        let batch = make(&self.rows)?;
        if batch.entries.is_empty() && batch.forget.is_empty() {
            return transaction.rollback().map_err(of_sqlite);
        }
        write::batch(&transaction, &batch)?;
        transaction.commit().map_err(of_sqlite)?;
        self.wrote(batch.entries.len());
        if !batch.forget.is_empty() {
            open::empty_log(&mut self.rows.connection);
        }
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn ChainRows + Send>, LedgerOpenError> {
        reader(&self.files.database)
    }
}

/// Reader of the file at `path`, which must have the current format.
pub(crate) fn reader(path: &Path) -> Result<Box<dyn ChainRows + Send>, LedgerOpenError> {
    match open::open_to_read(path)? {
        (connection, open::SCHEMA_VERSION) => Ok(Box::new(SqliteRows::new(connection))),
        _ => Err(LedgerOpenError::Older { path: path.to_owned() }),
    }
}

impl ChainRows for SqliteStore {
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

    fn version(&self) -> Result<i64, ChainStoreError> {
        self.rows.version()
    }

    fn at_once(&self, work: &mut dyn FnMut()) -> Result<(), ChainStoreError> {
        self.rows.at_once(work)
    }
}

/// The files that SQLite holds open. SQLite would continue to write to them after they were moved, and those records would be lost.
#[derive(Debug)]
struct SqliteFiles {
    database: PathBuf,
    log: PathBuf,
    opened: [Option<InodeIdentity>; 2],
}

impl SqliteFiles {
    fn now(database: PathBuf) -> Self {
        let log = private_path::log_of(&database);
        let opened = Self::found(&database, &log);
        Self { database, log, opened }
    }

    fn check(&self) -> Result<(), ChainStoreError> {
        if Self::found(&self.database, &self.log) == self.opened {
            Ok(())
        } else {
            Err(ChainStoreError::Moved)
        }
    }

    fn found(database: &Path, log: &Path) -> [Option<InodeIdentity>; 2] {
        [InodeIdentity::at(database), InodeIdentity::at(log)]
    }
}

#[cfg(test)]
mod tests {
    use crate::Ledger;
    use crate::sqlite::open;

    /// No test can cut the power, so the durability settings are tested instead.
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
