//! Creating and opening the SQLite file. Does not interpret rows.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use ringfence_types::ByteString;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::chain::ChainBreak;
use crate::key::LedgerKeyError;
use crate::settings::LedgerSettingsError;
use crate::sqlite::{private_path, write};
use crate::store::{BatchRow, ChainStoreError};

/// `RFL1`: identifies a ledger among SQLite files.
const APPLICATION_ID: i64 = 0x5246_4c31;
pub(crate) const SCHEMA_VERSION: i64 = 2;

/// `record_seq` holds numbers only: counting at open reads kilobytes instead of every body. The hash is stored before the body, so
/// reading it does not read a long body.
pub(super) const SCHEMA: &str = "
    CREATE TABLE schema (version INTEGER NOT NULL) STRICT;
    CREATE TABLE record (
        seq    INTEGER PRIMARY KEY,
        time   TEXT NOT NULL,
        kind   TEXT NOT NULL,
        ids    TEXT NOT NULL,
        digest TEXT NOT NULL,
        hash   TEXT NOT NULL,
        body   TEXT
    ) STRICT;
    CREATE INDEX record_seq ON record (seq);
    CREATE INDEX record_kind ON record (kind);
    CREATE INDEX record_time ON record (time);
    CREATE TABLE mention (id TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (id, seq)) STRICT, WITHOUT ROWID;
    CREATE TABLE claim (key TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE open (id TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    INSERT INTO schema VALUES (2);
";

/// The first version without the WAL-reset bug, which could lose committed records.
pub(crate) const OLDEST_SQLITE: i32 = 3_051_003;

/// Log length, in pages, at which a commit copies the log into the database. Each start reads the log, so it is kept short.
const CHECKPOINT_PAGES: i64 = 128;

/// The same for a process that writes a lot.
const CHECKPOINT_PAGES_OF_MANY: i64 = 1024;

/// Above this the log is emptied at open: processes that append once and leave never get to reuse it.
const LONGEST_LOG: u64 = 2 * 1024 * 1024;

const BUSY_STEP: Duration = Duration::from_millis(2);
const BUSY_STEPS: i32 = 2500;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerOpenError {
    #[error("cannot keep a ledger at `{}`", shown(path))]
    Place { path: PathBuf, source: io::Error },
    #[error("`{}` is a symbolic link", shown(path))]
    Symlink { path: PathBuf },
    #[error("`{}` belongs to user {owner}", shown(path))]
    NotOurs { path: PathBuf, owner: u32 },
    #[error("`{}` can be written by others (mode {mode:04o})", shown(path))]
    WritableByOthers { path: PathBuf, mode: u32 },
    #[error("`{}` is not a regular file", shown(path))]
    NotAFile { path: PathBuf },
    #[error("`{}` is not believed: {reason}", shown(path))]
    StrangeMarker { path: PathBuf, reason: &'static str },
    #[error("there is no ledger at `{}`", shown(path))]
    Missing { path: PathBuf },
    #[error("`{}` is gone but its log is still there", shown(path))]
    Gone { path: PathBuf },
    #[error("`{}` is not a ledger", shown(path))]
    NotALedger { path: PathBuf },
    #[error("`{}` has ledger format {found}; this program knows up to {known}", shown(path))]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("the ledger `{}` is damaged", shown(path))]
    Damaged { path: PathBuf, source: rusqlite::Error },
    #[error("cannot open the ledger `{}`", shown(path))]
    Storage { path: PathBuf, source: rusqlite::Error },
    #[error("SQLite {found} can lose committed records; 3.51.3 or newer is needed")]
    SqliteTooOld { found: &'static str },
    #[error("no random bytes for a new ledger: {0}")]
    Random(getrandom::Error),
    #[error("`{}` has ledger format 1", shown(path))]
    Older { path: PathBuf },
    #[error(transparent)]
    Key(#[from] LedgerKeyError),
    #[error(transparent)]
    Settings(#[from] LedgerSettingsError),
    #[error("cannot read the ledger `{}`", shown(path))]
    Read { path: PathBuf, source: ChainStoreError },
    #[error("cannot encode the beginning of a chain")]
    Encode(#[source] serde_json::Error),
    #[error("the ledger `{}` is broken: {problem}", shown(path))]
    Broken { path: PathBuf, problem: ChainBreak },
    #[error(transparent)]
    Connect(Box<crate::postgres::error::ConnectError>),
    #[error("the ledger `{}` is valid: there is nothing to restart", shown(path))]
    Whole { path: PathBuf },
}

impl LedgerOpenError {
    /// The next step for the operator.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Symlink { path } => format!("replace `{}` by what it points to", shown(path)),
            Self::NotOurs { path, owner } => {
                format!(
                    "run as user {owner}, or use a state directory of your own instead of `{}`",
                    shown(path)
                )
            }
            Self::WritableByOthers { path, .. } => format!("chmod go-w '{}'", shown(path)),
            Self::Gone { path } => format!(
                "put `{}` back from a backup, or move `{}` away to begin a new chain",
                shown(path),
                shown(&private_path::log_of(path))
            ),
            Self::StrangeMarker { path, .. } => {
                format!("look at `{}`, and at who could have written it, and move it away", shown(path))
            }
            Self::NotALedger { path } => format!("move `{}` away to begin a new chain", shown(path)),
            Self::Damaged { .. } => ACKNOWLEDGE.to_owned(),
            Self::Newer { .. } => "use the version of ringfence that wrote it, or a newer one".to_owned(),
            Self::Place { .. } | Self::Storage { .. } => {
                "check that the directory is writable and the disk is not full".to_owned()
            }
            Self::Older { .. } => {
                "the next `ringfence run` puts it aside and begins a chain of format 2".to_owned()
            }
            Self::Broken { .. } => ACKNOWLEDGE.to_owned(),
            Self::Key(error) => return error.hint(),
            Self::Settings(error) => error.hint(),
            Self::Connect(error) => return error.hint(),
            Self::NotAFile { .. }
            | Self::Missing { .. }
            | Self::SqliteTooOld { .. }
            | Self::Random(_)
            | Self::Read { .. }
            | Self::Encode(_)
            | Self::Whole { .. } => return None,
        };
        Some(hint)
    }
}

/// Hint for a broken chain.
pub(crate) const ACKNOWLEDGE: &str = "`ringfence ledger verify` shows where; `ringfence ledger restart --reason WHY` archives it and starts a new chain";

/// A connection that may append to a file that is there, and the format of the file.
pub(crate) fn open_to_append(database: &Path) -> Result<(Connection, i64), LedgerOpenError> {
    check_sqlite()?;
    let mut connection =
        connect(database, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW)?;
    let format = format_of(&connection, database)?;
    shorten_log(&mut connection, database);
    Ok((connection, format))
}

/// Opens read-only and returns the format. Creates nothing, and does not check the location: a reader does not rely on it.
pub(crate) fn open_to_read(path: &Path) -> Result<(Connection, i64), LedgerOpenError> {
    check_sqlite()?;
    let resolved = fs::canonicalize(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => LedgerOpenError::Missing { path: path.to_owned() },
        _ => LedgerOpenError::Place { path: path.to_owned(), source },
    })?;
    if !resolved.is_file() {
        return Err(LedgerOpenError::NotAFile { path: path.to_owned() });
    }
    let connection = connect(&resolved, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let format = format_of(&connection, path)?;
    Ok((connection, format))
}

pub(crate) fn shown(path: &Path) -> String {
    ByteString::from(path).display()
}

fn check_sqlite() -> Result<(), LedgerOpenError> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(LedgerOpenError::SqliteTooOld { found: rusqlite::version() });
    }
    Ok(())
}

/// Creates the file under a draft name and renames it, so that it appears whole. If several processes do this at once, one wins and
/// the others use its file.
pub(crate) fn create(database: &Path, beginning: &BatchRow) -> Result<(), LedgerOpenError> {
    check_sqlite()?;
    if private_path::InodeIdentity::at(&private_path::log_of(database)).is_some()
        && private_path::InodeIdentity::at(database).is_none()
    {
        // SQLite would take the old log for part of the new file.
        return Err(LedgerOpenError::Gone { path: database.to_owned() });
    }
    let draft = draft_name(database)?;
    let made = write_draft(&draft, database, beginning).and_then(|()| publish(&draft, database));
    for leftover in [private_path::log_of(&draft), draft] {
        // Only there if something failed, and that is the error to report.
        let _removed = fs::remove_file(leftover);
    }
    made
}

fn draft_name(database: &Path) -> Result<PathBuf, LedgerOpenError> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(LedgerOpenError::Random)?;
    Ok(database.with_added_extension(format!("{:016x}.new", u64::from_le_bytes(random))))
}

fn write_draft(draft: &Path, database: &Path, beginning: &BatchRow) -> Result<(), LedgerOpenError> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(draft)
        .map_err(|source| LedgerOpenError::Place { path: database.to_owned(), source })?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let filled = Connection::open_with_flags(draft, flags).and_then(|connection| fill(connection, beginning));
    filled.map_err(|source| LedgerOpenError::Storage { path: database.to_owned(), source })
}

/// The connection closes with a checkpoint, so that no log is left behind under the draft's name.
fn fill(mut connection: Connection, beginning: &BatchRow) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(SCHEMA)?;
    write::entry(&transaction, beginning)?;
    transaction.commit()?;
    connection.close().map_err(|(_connection, error)| error)
}

fn publish(draft: &Path, database: &Path) -> Result<(), LedgerOpenError> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let renamed = match renameat_with(CWD, draft, CWD, database, RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        other => other.map_err(io::Error::from),
    };
    let directory = database.parent().unwrap_or(database);
    renamed
        .and_then(|()| private_path::sync_directory(directory))
        .map_err(|source| LedgerOpenError::Place { path: database.to_owned(), source })
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, LedgerOpenError> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags);
    let storage = |source| LedgerOpenError::Storage { path: path.to_owned(), source };
    let mut connection = connection.map_err(storage)?;
    configure(&mut connection).map_err(storage)?;
    Ok(connection)
}

fn configure(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait_a_little))?;
    // Without a checkpoint at close the log stays, and closing costs no fsync.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Malicious schema objects in the file stay inert.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false)?;
    Ok(())
}

/// WHY NOT `busy_timeout`: its waits grow to 100 ms, and under load the longest sleeper starves.
fn wait_a_little(waits: i32) -> bool {
    thread::sleep(BUSY_STEP);
    waits < BUSY_STEPS
}

fn format_of(connection: &Connection, path: &Path) -> Result<i64, LedgerOpenError> {
    let unreadable = |source: rusqlite::Error| unreadable(path, source);
    // The first statements that read the file: a file that is no database fails here.
    connection.pragma_update(None, "synchronous", "FULL").map_err(unreadable)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES).map_err(unreadable)?;
    // Pruned content is overwritten, also on pages that were split earlier.
    connection.pragma_update(None, "secure_delete", "ON").map_err(unreadable)?;
    let id: i64 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(unreadable)?;
    if id != APPLICATION_ID {
        return Err(LedgerOpenError::NotALedger { path: path.to_owned() });
    }
    let found: i64 =
        connection.query_row("SELECT max(version) FROM schema", [], |row| row.get(0)).map_err(unreadable)?;
    if found > SCHEMA_VERSION {
        return Err(LedgerOpenError::Newer { path: path.to_owned(), found, known: SCHEMA_VERSION });
    }
    // Missing tables are detected here and not at the first append.
    let sql = if found == SCHEMA_VERSION { SAMPLE } else { "SELECT max(seq) FROM record" };
    connection.query_row(sql, [], |_row| Ok(())).map_err(unreadable)?;
    Ok(found)
}

const SAMPLE: &str = "SELECT (SELECT max(seq) FROM record), (SELECT count(*) FROM (SELECT 1 FROM mention LIMIT 1)),
    (SELECT count(*) FROM (SELECT 1 FROM claim LIMIT 1)), (SELECT count(*) FROM (SELECT 1 FROM open LIMIT 1))";

fn unreadable(path: &Path, source: rusqlite::Error) -> LedgerOpenError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => LedgerOpenError::NotALedger { path },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::Unknown) | None => {
            LedgerOpenError::Damaged { path, source }
        }
        Some(_) => LedgerOpenError::Storage { path, source },
    }
}

pub(crate) fn let_log_grow(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES_OF_MANY)
}

fn shorten_log(connection: &mut Connection, database: &Path) {
    let length = fs::symlink_metadata(private_path::log_of(database)).map_or(0, |log| log.len());
    if length > LONGEST_LOG {
        empty_log(connection);
    }
}

/// Never waits: with an active reader the log stays, and a later start empties it.
pub(crate) fn empty_log(connection: &mut Connection) {
    if connection.busy_handler(None::<fn(i32) -> bool>).is_ok() {
        let _busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let _set = connection.busy_handler(Some(wait_a_little));
    }
}
