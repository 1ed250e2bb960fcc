//! The identity store: one SQLite file in a private directory.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior, params};

use crate::store::{IdentityStore, IdentityStoreError, RecordRows, RecordTable, TransactionEnd};

/// `RFI1`: identifies the file format.
const APPLICATION_ID: i64 = 0x5246_4931;
const FORMAT: i64 = 1;
const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than a change of another process takes.
const HELD: Duration = Duration::from_secs(1);

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS row (
        kind TEXT NOT NULL,
        id   TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (kind, id)
    ) STRICT, WITHOUT ROWID;
";

/// The store of one machine. In WAL mode reads do not wait for writes. Reads have their own connection, because a
/// change may wait for another process and would block every authentication behind it.
#[derive(Debug)]
pub struct SqliteIdentityStore {
    reading: Mutex<Connection>,
    writing: Mutex<Connection>,
    probing: Mutex<Connection>,
    /// Result of the last probe for a blocked store.
    was_held: AtomicBool,
}

impl SqliteIdentityStore {
    /// Opens the store below `state_dir`, which exists, and creates it if it is missing.
    pub fn open(state_dir: &Path) -> Result<Self, IdentityStoreError> {
        let directory = Self::directory(state_dir);
        make_private(&directory)?;
        let path = directory.join("identity.db");
        make_file(&path)?;
        let open = || opened(&path);
        let writing = open()?;
        prepare(&writing, &path)?;
        let (reading, probing) = (open()?, open()?);
        probing.busy_timeout(HELD)?;
        let [reading, writing, probing] = [reading, writing, probing].map(Mutex::new);
        Ok(Self { reading, writing, probing, was_held: AtomicBool::new(false) })
    }

    /// The directory, which every fence must hide.
    pub fn directory(state_dir: &Path) -> PathBuf {
        state_dir.join("identity")
    }

    pub fn exists(state_dir: &Path) -> bool {
        Self::directory(state_dir).join("identity.db").exists()
    }
}

fn opened(path: &Path) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    configure(&connection)?;
    Ok(connection)
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(PATIENCE)?;
    // Disables triggers and views that an attacker may have planted in the file.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Overwrites deleted content.
    connection.pragma_update(None, "secure_delete", "ON")
}

fn prepare(connection: &Connection, path: &Path) -> Result<(), IdentityStoreError> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    match (number("application_id")?, number("user_version")?) {
        // Two processes that start at the same time write the same values.
        (0, 0) => {
            connection.execute_batch(SCHEMA)?;
            connection.pragma_update(None, "user_version", FORMAT)?;
            connection.pragma_update(None, "application_id", APPLICATION_ID)?;
            Ok(())
        }
        (0, FORMAT) | (APPLICATION_ID, FORMAT) => Ok(connection.execute_batch(SCHEMA)?),
        (APPLICATION_ID, found) => Err(IdentityStoreError::Newer { found, known: FORMAT }),
        _ => Err(IdentityStoreError::Strange { path: path.to_owned() }),
    }
}

fn make_private(directory: &Path) -> Result<(), IdentityStoreError> {
    let failed = |source| IdentityStoreError::Place { path: directory.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(directory).map_err(failed)?;
    if !found.is_dir() {
        return Err(strange_kind(directory));
    }
    check(directory, &found)
}

fn make_file(path: &Path) -> Result<(), IdentityStoreError> {
    let failed = |source| IdentityStoreError::Place { path: path.to_owned(), source };
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(path).map_err(failed)?;
    if !found.is_file() || found.nlink() != 1 {
        return Err(strange_kind(path));
    }
    check(path, &found)
}

fn strange_kind(path: &Path) -> IdentityStoreError {
    IdentityStoreError::NotPrivate {
        path: path.to_owned(),
        why: "it is a link, or something else than was put there",
    }
}

/// Refuses a file that another user could have read or written. It is not repaired either: the owner has to know.
fn check(path: &Path, found: &fs::Metadata) -> Result<(), IdentityStoreError> {
    let refused = |why| Err(IdentityStoreError::NotPrivate { path: path.to_owned(), why });
    if found.uid() != rustix::process::geteuid().as_raw() {
        return refused("it belongs to another user");
    }
    if found.mode() & 0o077 != 0 {
        return refused("others may open it");
    }
    Ok(())
}

struct SqliteTransaction<'a>(rusqlite::Transaction<'a>);

impl RecordRows for SqliteTransaction<'_> {
    fn get(&self, table: RecordTable, id: &str) -> Result<Option<String>, IdentityStoreError> {
        let mut statement = self.0.prepare_cached("SELECT body FROM row WHERE kind = ?1 AND id = ?2")?;
        Ok(statement.query_row(params![table.word(), id], |row| row.get(0)).optional()?)
    }

    fn all(&self, table: RecordTable) -> Result<Vec<String>, IdentityStoreError> {
        let mut statement = self.0.prepare_cached("SELECT body FROM row WHERE kind = ?1 ORDER BY id")?;
        let rows = statement.query_map(params![table.word()], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn count(&self, table: RecordTable) -> Result<usize, IdentityStoreError> {
        let mut statement = self.0.prepare_cached("SELECT count(*) FROM row WHERE kind = ?1")?;
        let count: i64 = statement.query_row(params![table.word()], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    fn put(&mut self, table: RecordTable, id: &str, body: &str) -> Result<(), IdentityStoreError> {
        let sql = "INSERT INTO row (kind, id, body) VALUES (?1, ?2, ?3)
                   ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body";
        self.0.prepare_cached(sql)?.execute(params![table.word(), id, body])?;
        Ok(())
    }

    fn remove(&mut self, table: RecordTable, id: &str) -> Result<(), IdentityStoreError> {
        let mut statement = self.0.prepare_cached("DELETE FROM row WHERE kind = ?1 AND id = ?2")?;
        statement.execute(params![table.word(), id])?;
        Ok(())
    }
}

impl IdentityStore for SqliteIdentityStore {
    fn read(&self, look: &mut dyn FnMut(&dyn RecordRows)) -> Result<(), IdentityStoreError> {
        let mut connection = locked(&self.reading)?;
        let transaction =
            SqliteTransaction(connection.transaction_with_behavior(TransactionBehavior::Deferred)?);
        look(&transaction);
        Ok(transaction.0.rollback()?)
    }

    fn change(
        &self,
        edit: &mut dyn FnMut(&mut dyn RecordRows) -> TransactionEnd,
    ) -> Result<(), IdentityStoreError> {
        changed(&mut *locked(&self.writing)?, edit)
    }

    fn change_if_free(
        &self,
        edit: &mut dyn FnMut(&mut dyn RecordRows) -> TransactionEnd,
    ) -> Result<(), IdentityStoreError> {
        let mut connection = match self.writing.try_lock() {
            Ok(connection) => connection,
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Poisoned(_)) => return Err(IdentityStoreError::Poisoned),
        };
        connection.busy_timeout(Duration::ZERO)?;
        let done = changed(&mut connection, edit);
        connection.busy_timeout(PATIENCE)?;
        if is_busy(&done) { Ok(()) } else { done }
    }

    fn is_held(&self) -> Result<bool, IdentityStoreError> {
        let mut connection = match self.probing.try_lock() {
            Ok(connection) => connection,
            // Another thread is probing. One probe at a time is enough.
            Err(TryLockError::WouldBlock) => return Ok(self.was_held.load(Ordering::Relaxed)),
            Err(TryLockError::Poisoned(_)) => return Err(IdentityStoreError::Poisoned),
        };
        let tried = changed(&mut connection, &mut |_| TransactionEnd::Undo);
        self.was_held.store(is_busy(&tried), Ordering::Relaxed);
        if is_busy(&tried) { Ok(true) } else { tried.map(|()| false) }
    }
}

fn changed(
    connection: &mut Connection,
    edit: &mut dyn FnMut(&mut dyn RecordRows) -> TransactionEnd,
) -> Result<(), IdentityStoreError> {
    // Immediate: no other process can change what this transaction reads before it writes.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut transaction = SqliteTransaction(transaction);
    match edit(&mut transaction) {
        TransactionEnd::Keep => Ok(transaction.0.commit()?),
        TransactionEnd::Undo => Ok(transaction.0.rollback()?),
    }
}

fn is_busy(done: &Result<(), IdentityStoreError>) -> bool {
    let code = |error: &rusqlite::Error| error.sqlite_error_code();
    matches!(done, Err(IdentityStoreError::Sqlite(error)) if code(error) == Some(ErrorCode::DatabaseBusy))
}

fn locked(connection: &Mutex<Connection>) -> Result<MutexGuard<'_, Connection>, IdentityStoreError> {
    connection.lock().map_err(|_poisoned| IdentityStoreError::Poisoned)
}
