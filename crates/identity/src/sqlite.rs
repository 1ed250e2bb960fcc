//! One SQLite file in a directory that only its owner can enter.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior, params};

use crate::store::{End, Rows, Store, StoreError, Table};

/// `RFI1`: tells this file from any other SQLite file.
const APPLICATION_ID: i64 = 0x5246_4931;
const FORMAT: i64 = 1;
const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than another process takes for a change.
const HELD: Duration = Duration::from_secs(1);

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS row (
        kind TEXT NOT NULL,
        id   TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (kind, id)
    ) STRICT, WITHOUT ROWID;
";

/// The store of one machine. In the mode of its journal whoever reads waits for nobody, so that reading has a connection of its
/// own: a change may wait for another process, and everybody who shows a token would wait behind it.
#[derive(Debug)]
pub struct Sqlite {
    reading: Mutex<Connection>,
    writing: Mutex<Connection>,
    probing: Mutex<Connection>,
    /// What was found when it was last tried whether somebody holds the store.
    was_held: AtomicBool,
}

impl Sqlite {
    /// The store below `state_dir`, which exists; made if there is none.
    pub fn open(state_dir: &Path) -> Result<Self, StoreError> {
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

    /// What must stay out of reach of everything that runs inside.
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
    // Whatever somebody planted in the file stays inert.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // What is removed is overwritten.
    connection.pragma_update(None, "secure_delete", "ON")
}

fn prepare(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    match (number("application_id")?, number("user_version")?) {
        // Of two processes that come here at once, both write the same.
        (0, 0) => {
            connection.execute_batch(SCHEMA)?;
            connection.pragma_update(None, "user_version", FORMAT)?;
            connection.pragma_update(None, "application_id", APPLICATION_ID)?;
            Ok(())
        }
        (0, FORMAT) | (APPLICATION_ID, FORMAT) => Ok(connection.execute_batch(SCHEMA)?),
        (APPLICATION_ID, found) => Err(StoreError::Newer { found, known: FORMAT }),
        _ => Err(StoreError::Strange { path: path.to_owned() }),
    }
}

fn make_private(directory: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Place { path: directory.to_owned(), source };
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

fn make_file(path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Place { path: path.to_owned(), source };
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

fn strange_kind(path: &Path) -> StoreError {
    StoreError::NotPrivate {
        path: path.to_owned(),
        why: "it is a link, or something else than was put there",
    }
}

/// What somebody else could have read or put there is not used, and not repaired either: the owner has to know.
fn check(path: &Path, found: &fs::Metadata) -> Result<(), StoreError> {
    let refused = |why| Err(StoreError::NotPrivate { path: path.to_owned(), why });
    if found.uid() != rustix::process::geteuid().as_raw() {
        return refused("it belongs to another user");
    }
    if found.mode() & 0o077 != 0 {
        return refused("others may open it");
    }
    Ok(())
}

struct Transaction<'a>(rusqlite::Transaction<'a>);

impl Rows for Transaction<'_> {
    fn get(&self, table: Table, id: &str) -> Result<Option<String>, StoreError> {
        let mut statement = self.0.prepare_cached("SELECT body FROM row WHERE kind = ?1 AND id = ?2")?;
        Ok(statement.query_row(params![table.word(), id], |row| row.get(0)).optional()?)
    }

    fn all(&self, table: Table) -> Result<Vec<String>, StoreError> {
        let mut statement = self.0.prepare_cached("SELECT body FROM row WHERE kind = ?1 ORDER BY id")?;
        let rows = statement.query_map(params![table.word()], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn count(&self, table: Table) -> Result<usize, StoreError> {
        let mut statement = self.0.prepare_cached("SELECT count(*) FROM row WHERE kind = ?1")?;
        let count: i64 = statement.query_row(params![table.word()], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    fn put(&mut self, table: Table, id: &str, body: &str) -> Result<(), StoreError> {
        let sql = "INSERT INTO row (kind, id, body) VALUES (?1, ?2, ?3)
                   ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body";
        self.0.prepare_cached(sql)?.execute(params![table.word(), id, body])?;
        Ok(())
    }

    fn remove(&mut self, table: Table, id: &str) -> Result<(), StoreError> {
        let mut statement = self.0.prepare_cached("DELETE FROM row WHERE kind = ?1 AND id = ?2")?;
        statement.execute(params![table.word(), id])?;
        Ok(())
    }
}

impl Store for Sqlite {
    fn read(&self, look: &mut dyn FnMut(&dyn Rows)) -> Result<(), StoreError> {
        let mut connection = locked(&self.reading)?;
        let transaction = Transaction(connection.transaction_with_behavior(TransactionBehavior::Deferred)?);
        look(&transaction);
        Ok(transaction.0.rollback()?)
    }

    fn change(&self, edit: &mut dyn FnMut(&mut dyn Rows) -> End) -> Result<(), StoreError> {
        changed(&mut *locked(&self.writing)?, edit)
    }

    fn change_if_free(&self, edit: &mut dyn FnMut(&mut dyn Rows) -> End) -> Result<(), StoreError> {
        let mut connection = match self.writing.try_lock() {
            Ok(connection) => connection,
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Poisoned(_)) => return Err(StoreError::Poisoned),
        };
        connection.busy_timeout(Duration::ZERO)?;
        let done = changed(&mut connection, edit);
        connection.busy_timeout(PATIENCE)?;
        if is_busy(&done) { Ok(()) } else { done }
    }

    fn is_held(&self) -> Result<bool, StoreError> {
        let mut connection = match self.probing.try_lock() {
            Ok(connection) => connection,
            // Somebody tries it: one at a time, however many ask.
            Err(TryLockError::WouldBlock) => return Ok(self.was_held.load(Ordering::Relaxed)),
            Err(TryLockError::Poisoned(_)) => return Err(StoreError::Poisoned),
        };
        let tried = changed(&mut connection, &mut |_| End::Undo);
        self.was_held.store(is_busy(&tried), Ordering::Relaxed);
        if is_busy(&tried) { Ok(true) } else { tried.map(|()| false) }
    }
}

fn changed(
    connection: &mut Connection,
    edit: &mut dyn FnMut(&mut dyn Rows) -> End,
) -> Result<(), StoreError> {
    // Immediate: what is read in it cannot be changed by another before it is written.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut transaction = Transaction(transaction);
    match edit(&mut transaction) {
        End::Keep => Ok(transaction.0.commit()?),
        End::Undo => Ok(transaction.0.rollback()?),
    }
}

fn is_busy(done: &Result<(), StoreError>) -> bool {
    let code = |error: &rusqlite::Error| error.sqlite_error_code();
    matches!(done, Err(StoreError::Sqlite(error)) if code(error) == Some(ErrorCode::DatabaseBusy))
}

fn locked(connection: &Mutex<Connection>) -> Result<MutexGuard<'_, Connection>, StoreError> {
    connection.lock().map_err(|_poisoned| StoreError::Poisoned)
}
