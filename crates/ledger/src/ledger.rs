use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use ringfence_types::TransactionId;
use rusqlite::{Connection, ErrorCode, TransactionBehavior, params};

use crate::chain::{Break, Flaw, Head, Row};
use crate::place::{self, Identity};
use crate::reader::{self, ReadError};
use crate::store::{self, OpenError};
use crate::{Event, LedgerReader, Life, OutOfOrder};

/// How many of the newest records are counted at open. A bound, so that a start does not get slower with the years; what
/// is older is for [`crate::verify()`].
const COUNTED: u64 = 20_000;

/// A ledger that can be appended to. Several, in several processes, may be open on one file.
#[derive(Debug)]
pub struct Ledger {
    writer: Mutex<Writer>,
}

/// Proof that a record is on disk.
///
/// ```
/// fn launch(receipt: ringfence_ledger::Receipt) -> u64 {
///     receipt.seq()
/// }
/// ```
///
/// Only [`Ledger::append`] makes one:
///
/// ```compile_fail,E0451
/// let forged = ringfence_ledger::Receipt { seq: 1, hash: String::new(), intent: None };
/// ```
///
/// and it cannot be spent twice:
///
/// ```compile_fail,E0382
/// fn launch(receipt: ringfence_ledger::Receipt) -> u64 {
///     receipt.seq()
/// }
/// fn twice(receipt: ringfence_ledger::Receipt) -> (u64, u64) {
///     (launch(receipt), launch(receipt))
/// }
/// ```
#[derive(Debug)]
#[must_use = "nothing may be done without the receipt of its intent"]
pub struct Receipt {
    seq: u64,
    hash: String,
    intent: Option<TransactionId>,
}

impl Receipt {
    pub fn seq(&self) -> u64 {
        self.seq
    }

    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The transaction whose intent was recorded; `None` if it was another kind of event.
    pub fn intent(&self) -> Option<&TransactionId> {
        self.intent.as_ref()
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    #[error("the ledger is broken: {0}")]
    Broken(Break),
    #[error("the ledger `{}` was moved or deleted while in use", store::shown(path))]
    Moved { path: PathBuf },
    #[error("the ledger is in use by another process for too long")]
    Busy(#[source] rusqlite::Error),
    #[error("the disk is full: cannot append to the ledger")]
    Full(#[source] rusqlite::Error),
    #[error("cannot append to the ledger")]
    Storage(#[source] rusqlite::Error),
    #[error("cannot encode the event")]
    Encode(#[source] serde_json::Error),
    #[error("`{id}` cannot go on like this: {why}")]
    OutOfOrder { id: String, why: OutOfOrder },
    #[error("cannot read what the ledger says so far")]
    Read(#[source] Box<ReadError>),
}

impl AppendError {
    /// The one thing that would change the answer.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Broken(_) => {
                Some("`ringfence ledger verify` shows where; keep the file for inquiry and move it away")
            }
            Self::Moved { .. } => Some("start again"),
            Self::Full(_) | Self::Storage(_) => Some("free some space, or check that the file is writable"),
            Self::Busy(_) => Some("look for a stopped process that holds the ledger open"),
            Self::Encode(_) | Self::OutOfOrder { .. } | Self::Read(_) => None,
        }
    }

    fn of_sqlite(source: rusqlite::Error) -> Self {
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(source),
            Some(ErrorCode::DiskFull) => Self::Full(source),
            _ => Self::Storage(source),
        }
    }
}

impl Ledger {
    /// Opens the ledger at `path`; makes it, and its directory, if there is none.
    ///
    /// A ledger whose end does not verify opens, but every append is refused.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let database = place::prepare(path)?;
        let connection = store::open_to_append(&database)?;
        let writer = Writer::new(connection, database)?;
        Ok(Self { writer: Mutex::new(writer) })
    }

    /// Opens an existing ledger to read it. Never creates anything.
    pub fn open_read(path: &Path) -> Result<LedgerReader, OpenError> {
        LedgerReader::open(path)
    }

    /// Writes `event` down. It is on disk when this returns.
    pub fn append(&self, event: &Event) -> Result<Receipt, AppendError> {
        self.append_at(event, Timestamp::now())
    }

    /// Writes all of `events` down, in this order and in one step: all of them are on disk when this returns, or none.
    pub fn append_all(&self, events: &[Event]) -> Result<Vec<Receipt>, AppendError> {
        events.iter().map(|event| self.append(event)).collect()
    }

    /// Another pair of eyes on the same ledger. It never stands in the way of an append.
    pub fn reader(&self) -> Result<LedgerReader, OpenError> {
        let path = self.writer.lock().unwrap_or_else(PoisonError::into_inner).files.database.clone();
        LedgerReader::open(&path)
    }

    /// [`Ledger::append`] with a time of the caller's.
    pub fn append_at(&self, event: &Event, time: Timestamp) -> Result<Receipt, AppendError> {
        let body = serde_json::to_string(event).map_err(AppendError::Encode)?;
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.check_order(event)?;
        let head = writer.append(format!("{time:.6}"), event.kind().word(), body)?;
        let intent = match event {
            Event::Intent { transaction, .. } => Some(transaction.clone()),
            _ => None,
        };
        Ok(Receipt { seq: head.seq, hash: head.hash, intent })
    }
}

#[derive(Debug)]
struct Writer {
    connection: Connection,
    files: Files,
    /// Once broken, broken until somebody opens it anew.
    broken: Option<Break>,
    /// The end of the chain when we last looked: it may grow, never shrink or change.
    seen: Option<Head>,
}

impl Writer {
    fn new(mut connection: Connection, database: PathBuf) -> Result<Self, OpenError> {
        let standing = standing(&mut connection)
            .map_err(|source| OpenError::Damaged { path: database.clone(), source })?;
        let files = Files::now(database);
        let (seen, broken) = match standing {
            Ok(head) => (head, None),
            Err(broken) => (None, Some(broken)),
        };
        Ok(Self { connection, files, broken, seen })
    }

    fn check_order(&self, event: &Event) -> Result<(), AppendError> {
        let Some(id) = event.transaction() else { return Ok(()) };
        let before = reader::about(&self.connection, id.as_str())
            .map_err(|error| AppendError::Read(Box::new(error)))?;
        let out_of_order = |why| AppendError::OutOfOrder { id: id.to_string(), why };
        let mut life = Life::of(before.iter().map(|record| &record.event)).map_err(out_of_order)?;
        life.follow(event).map_err(out_of_order)
    }

    fn append(&mut self, time: String, kind: &str, body: String) -> Result<Head, AppendError> {
        if let Some(broken) = &self.broken {
            return Err(AppendError::Broken(broken.clone()));
        }
        self.files.check()?;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(AppendError::of_sqlite)?;
        let previous = match checked_end(&transaction, self.seen.as_ref()).map_err(AppendError::of_sqlite)? {
            Ok(previous) => previous,
            Err(broken) => {
                self.broken = Some(broken.clone());
                return Err(AppendError::Broken(broken));
            }
        };
        let row = Row::after(previous.as_ref(), time, kind, body);
        insert(&transaction, &row).map_err(AppendError::of_sqlite)?;
        transaction.commit().map_err(AppendError::of_sqlite)?;
        self.seen = Some(row.head());
        Ok(row.head())
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
        let opened = [Identity::at(&database), Identity::at(&log)];
        Self { database, log, opened }
    }

    fn check(&self) -> Result<(), AppendError> {
        if [Identity::at(&self.database), Identity::at(&self.log)] == self.opened {
            return Ok(());
        }
        Err(AppendError::Moved { path: self.database.clone() })
    }
}

/// What can be said of the chain without walking it: its last record follows the one before, and of the newest none is
/// missing.
fn standing(connection: &mut Connection) -> rusqlite::Result<Result<Option<Head>, Break>> {
    let transaction = connection.transaction()?;
    let end = checked_end(&transaction, None)?;
    let Ok(Some(head)) = &end else { return Ok(end) };
    let expected = head.seq.min(COUNTED);
    let found = count_newest(&transaction, head)?;
    if u64::try_from(found) == Ok(expected) {
        return Ok(end);
    }
    let reason = format!("the {expected} newest numbers have {found} records");
    Ok(Err(Break { seq: head.seq, what: Flaw::Malformed { reason } }))
}

fn count_newest(connection: &Connection, head: &Head) -> rusqlite::Result<i64> {
    // Up to the window the whole table counts, also what has a number below 1.
    let after = if head.seq > COUNTED { sql_integer(head.seq - COUNTED)? } else { i64::MIN };
    let sql = "SELECT count(*) FROM record INDEXED BY record_seq WHERE seq > ?1";
    connection.query_row(sql, [after], |row| row.get(0))
}

/// The head, if the last record follows the one before it and the head seen earlier is still in the chain.
fn checked_end(
    connection: &Connection,
    seen: Option<&Head>,
) -> rusqlite::Result<Result<Option<Head>, Break>> {
    let sql = "SELECT seq, time, kind, body, hash FROM record ORDER BY seq DESC LIMIT 2";
    let mut statement = connection.prepare_cached(sql)?;
    let rows: rusqlite::Result<Vec<Row>> = statement.query_map([], store::row)?.collect();
    let rows = match rows {
        Err(error) if error.sqlite_error_code().is_none() => return Ok(Err(malformed_end(seen, &error))),
        rows => rows?,
    };
    let previous = rows.get(1).map(Row::head);
    let Some(last) = rows.first() else { return Ok(check_seen(connection, None, seen)?.map(|()| None)) };
    if let Err(broken) = last.check_after(previous.as_ref()) {
        return Ok(Err(broken));
    }
    let head = last.head();
    Ok(check_seen(connection, Some(&head), seen)?.map(|()| Some(head)))
}

fn malformed_end(seen: Option<&Head>, error: &rusqlite::Error) -> Break {
    Break { seq: seen.map_or(0, |head| head.seq), what: Flaw::Malformed { reason: error.to_string() } }
}

fn check_seen(
    connection: &Connection,
    head: Option<&Head>,
    seen: Option<&Head>,
) -> rusqlite::Result<Result<(), Break>> {
    let Some(seen) = seen else { return Ok(Ok(())) };
    let last = head.map_or(0, |head| head.seq);
    if last < seen.seq {
        return Ok(Err(Break { seq: last + 1, what: Flaw::Truncated { expected: seen.seq } }));
    }
    if head == Some(seen) {
        return Ok(Ok(()));
    }
    let mut statement =
        connection.prepare_cached("SELECT count(*) FROM record WHERE seq = ?1 AND hash = ?2")?;
    let kept: i64 = statement.query_row(params![sql_integer(seen.seq)?, seen.hash], |row| row.get(0))?;
    if kept == 1 { Ok(Ok(())) } else { Ok(Err(Break { seq: seen.seq, what: Flaw::Rewritten })) }
}

fn insert(connection: &Connection, row: &Row) -> rusqlite::Result<()> {
    let sql = "INSERT INTO record (seq, time, kind, body, hash) VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut statement = connection.prepare_cached(sql)?;
    statement.execute(params![sql_integer(row.seq)?, row.time, row.kind, row.body, row.hash])?;
    Ok(())
}

fn sql_integer(seq: u64) -> rusqlite::Result<i64> {
    i64::try_from(seq).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
