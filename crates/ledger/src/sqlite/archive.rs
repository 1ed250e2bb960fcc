//! Starting a chain, and archiving one that cannot continue: it has an older format, or it is broken and an operator acknowledged
//! that.
//!
//! Three files are renamed, which no file system does atomically. So the plan is written first (`ledger.aside`), and the next
//! process finishes it. INVARIANT: a database never lies beside a log of another one, and no chain starts without a record of the
//! previous one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use ringfence_types::{ByteString, ChainId, Principal, chain};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::chain::ChainBreak;
use crate::event::{Event, PreviousChain};
use crate::key::{LedgerKey, LedgerKeyError};
use crate::ledger::Ledger;
use crate::record::Record;
use crate::settings::LedgerSettings;
use crate::sqlite::open::{self, LedgerOpenError, SCHEMA_VERSION};
use crate::sqlite::rows::SqliteRows;
use crate::sqlite::{SqliteStore, format1, private_path};
use crate::store::{BatchRow, ChainStoreError, RowQuery, collect};
use crate::verify::{self, VerifyError};
use crate::writer::PreparedEvent;

/// The database first: without it SQLite ignores the log.
const PARTS: [&str; 3] = ["", "-wal", "-shm"];

/// Attempts to open while another process archives the files.
const ATTEMPTS: u32 = 20;

/// Path of the key of a ledger.
pub(crate) fn key_of(database: &Path) -> PathBuf {
    database.with_extension("key")
}

/// Opens the store at `path`, with a chain in it.
pub(crate) fn open_or_begin(path: &Path) -> Result<(SqliteStore, PathBuf), LedgerOpenError> {
    let database = private_path::prepare(path)?;
    let mut again = 0..ATTEMPTS;
    loop {
        let before = private_path::InodeIdentity::at(&database);
        let opened = attempt(&database);
        // Another process archived the files meanwhile: the opened file may be neither the old chain nor the new one.
        if before.is_some() && is_moving(&database, before) && again.next().is_some() {
            continue;
        }
        return opened.map(|store| (store, database));
    }
}

fn is_moving(database: &Path, before: Option<private_path::InodeIdentity>) -> bool {
    private_path::InodeIdentity::at(database) != before
        || private_path::InodeIdentity::at(&marker_of(database)).is_some()
}

fn attempt(database: &Path) -> Result<SqliteStore, LedgerOpenError> {
    if private_path::InodeIdentity::at(&marker_of(database)).is_some() {
        let _lock = lock(database)?;
        finish(database)?;
    }
    if private_path::check_database(database)?.is_none() {
        begin(database, None)?;
    }
    let (mut connection, format) = open::open_to_append(database)?;
    if format != SCHEMA_VERSION {
        drop(connection);
        convert(database)?;
        connection = match open::open_to_append(database)? {
            (connection, SCHEMA_VERSION) => connection,
            _ => return Err(LedgerOpenError::Older { path: database.to_owned() }),
        };
    }
    Ok(SqliteStore::new(connection, database.to_owned()))
}

/// Starts a chain. If several processes do so at once, one wins and the others use its chain.
fn begin(database: &Path, continues: Option<PreviousChain>) -> Result<(), LedgerOpenError> {
    open::create(database, &beginning(&key_of(database), continues)?)
}

/// The first record of a chain with the key at `key`, which is created if missing.
pub(crate) fn beginning(key: &Path, continues: Option<PreviousChain>) -> Result<BatchRow, LedgerOpenError> {
    let key = LedgerKey::load_or_create(key).map_err(|error| match error {
        LedgerKeyError::Storage { path, source } => LedgerOpenError::Place { path, source },
        other => LedgerOpenError::Key(other),
    })?;
    let event = Event::ChainStarted {
        chain: ChainId::random().map_err(LedgerOpenError::Random)?,
        node: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        key: key.public(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        continues,
    };
    let prepared = PreparedEvent::new(&event, Timestamp::now()).map_err(LedgerOpenError::Encode)?;
    Ok(prepared.after(None))
}

/// Archives a chain of format 1 and starts one that continues it.
fn convert(database: &Path) -> Result<(), LedgerOpenError> {
    let _lock = lock(database)?;
    let (connection, format) = open::open_to_append(database)?;
    if format == SCHEMA_VERSION {
        // Another process did it meanwhile.
        return Ok(());
    }
    let failed = |source| LedgerOpenError::Storage { path: database.to_owned(), source };
    // Blocks appends from here on.
    let held = Transaction::new_unchecked(&connection, TransactionBehavior::Immediate).map_err(failed)?;
    let head = format1::walk(&connection, None)
        .map_err(|source| LedgerOpenError::Read { path: database.to_owned(), source })?
        .map_err(|problem| LedgerOpenError::Broken { path: database.to_owned(), problem })?;
    let continued = PreviousChain {
        file: ByteString::default(),
        head,
        problem: None,
        actor: Principal::System,
        reason: Some("converted from format 1".to_owned()),
        chain: None,
        proof: None,
    };
    note_down(database, "v1", continued)?;
    finish(database)?;
    held.rollback().map_err(failed)
}

/// The archive of a broken chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedChain {
    /// Path of the archive.
    pub aside: PathBuf,
    pub problem: String,
}

/// Archives a broken chain whole and starts a new one that records this and the reason.
pub fn restart(
    path: &Path,
    settings: &LedgerSettings,
    reason: &str,
    by: Principal,
) -> Result<ArchivedChain, LedgerOpenError> {
    let database = private_path::prepare(path)?;
    let guard = lock(&database)?;
    finish(&database)?;
    let (problem, head) = problem_of(&database, settings)?;
    let held = open::open_to_append(&database).ok();
    let held = held.as_ref().map(|(connection, _)| freeze(connection));
    let continued = PreviousChain {
        file: ByteString::default(),
        head,
        problem: Some(problem.clone()),
        actor: by,
        reason: Some(reason.to_owned()),
        chain: settings.anchored_chain().or_else(|| chain_of(&database)),
        proof: None,
    };
    let aside = note_down(&database, "broken", continued)?;
    if let Err(LedgerKeyError::NotAKey { .. }) = LedgerKey::load(&key_of(&database)) {
        let unusable = aside.with_extension("key");
        fs::rename(key_of(&database), unusable)
            .map_err(|source| LedgerOpenError::Place { path: database.clone(), source })?;
    }
    finish(&database)?;
    drop(held);
    drop(guard);
    let ledger = Ledger::open_with(path, settings.clone())?;
    // Anchors the new chain at once. A failure is harmless, because the next checkpoint tries again.
    let _checkpoint = ledger.checkpoint();
    Ok(ArchivedChain { aside, problem })
}

/// The name of the chain in a database, as far as it can be read.
fn chain_of(database: &Path) -> Option<ChainId> {
    let (connection, format) = open::open_to_read(database).ok()?;
    if format != SCHEMA_VERSION {
        return None;
    }
    let first = collect(&SqliteRows::new(connection), &RowQuery::numbered(1, 1)).ok()?.pop()?;
    match Record::of_row(first).ok()?.event {
        Event::ChainStarted { chain, .. } => Some(chain),
        _ => None,
    }
}

/// Blocks appends by other processes, if the file is intact enough for a lock.
fn freeze(connection: &Connection) -> Option<Transaction<'_>> {
    Transaction::new_unchecked(connection, TransactionBehavior::Immediate).ok()
}

/// The problem, and the last valid record before it.
fn problem_of(
    database: &Path,
    settings: &LedgerSettings,
) -> Result<(String, Option<crate::ChainHead>), LedgerOpenError> {
    let missing =
        PARTS.iter().all(|part| private_path::InodeIdentity::at(&with_part(database, part)).is_none());
    if missing {
        return Err(LedgerOpenError::Missing { path: database.to_owned() });
    }
    let (good, found) = verify::upto(database);
    match found {
        Err(VerifyError::Open(LedgerOpenError::Newer { path, found, known })) => {
            return Err(LedgerOpenError::Newer { path, found, known });
        }
        Err(error) => return Ok((chain(&error), good)),
        Ok(()) => {}
    }
    let whole = || LedgerOpenError::Whole { path: database.to_owned() };
    if let (_, 1) = open::open_to_read(database)? {
        return Err(whole());
    }
    let broken: Option<ChainBreak> = Ledger::open_with(database, settings.clone())?.broken();
    broken.map(|broken| (broken.to_string(), good)).ok_or_else(whole)
}

/// The plan of an archiving, for the process that finishes it.
#[derive(Serialize, Deserialize)]
struct ArchiveMarker {
    /// New name of the database.
    to: ByteString,
    continued: PreviousChain,
}

fn marker_of(database: &Path) -> PathBuf {
    database.with_extension("aside")
}

/// Chooses a name for the old chain and writes the plan.
fn note_down(database: &Path, word: &str, mut continued: PreviousChain) -> Result<PathBuf, LedgerOpenError> {
    let failed = |source| LedgerOpenError::Place { path: database.to_owned(), source };
    let to = free_name(database, word);
    continued.file = ByteString::from(to.as_path());
    let marker = ArchiveMarker { to: ByteString::from(to.as_path()), continued };
    let text = serde_json::to_vec(&marker).map_err(LedgerOpenError::Encode)?;
    let draft = marker_of(database).with_added_extension("new");
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&draft, marker_of(database))?;
        private_path::sync_directory(database.parent().unwrap_or(database))
    };
    write().map_err(failed)?;
    Ok(to)
}

fn free_name(database: &Path, word: &str) -> PathBuf {
    let name = |number| numbered(database, word, number);
    (1..u32::MAX)
        .map(name)
        .find(|name| private_path::InodeIdentity::at(name).is_none())
        .unwrap_or_else(|| name(1))
}

fn numbered(database: &Path, word: &str, number: u32) -> PathBuf {
    match number {
        1 => database.with_extension(format!("{word}.db")),
        _ => database.with_extension(format!("{word}-{number}.db")),
    }
}

/// Executes the plan, if there is one. Every step is idempotent.
fn finish(database: &Path) -> Result<(), LedgerOpenError> {
    let failed = |source| LedgerOpenError::Place { path: database.to_owned(), source };
    let Some(marker) = noted_down(database)? else { return Ok(()) };
    let to = marker.to.as_path();
    let is_there = |path: &Path| private_path::InodeIdentity::at(path).is_some();
    if !(is_there(to) && is_there(database)) {
        for part in PARTS {
            let from = with_part(database, part);
            if is_there(&from) {
                fs::rename(&from, with_part(to, part)).map_err(failed)?;
            }
        }
        private_path::sync_directory(database.parent().unwrap_or(database)).map_err(failed)?;
        begin(database, Some(marker.continued))?;
    }
    fs::remove_file(marker_of(database)).map_err(failed)?;
    private_path::sync_directory(database.parent().unwrap_or(database)).map_err(failed)
}

/// Reads the plan, and rejects one that Ringfence cannot have written: it says which files are renamed.
fn noted_down(database: &Path) -> Result<Option<ArchiveMarker>, LedgerOpenError> {
    let path = marker_of(database);
    let strange = |reason| LedgerOpenError::StrangeMarker { path: path.clone(), reason };
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
            return Err(strange("it is a symbolic link"));
        }
        other => other.map_err(|source| LedgerOpenError::Place { path: path.clone(), source })?,
    };
    let failed = |source| LedgerOpenError::Place { path: path.clone(), source };
    let found = file.metadata().map_err(failed)?;
    let private = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o7777 == 0o600;
    if !found.is_file() || !private {
        return Err(strange("it is not a file that is yours alone"));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(failed)?;
    let marker: ArchiveMarker =
        serde_json::from_slice(&text).map_err(|_error| strange("it has another form"))?;
    if marker.continued.file != marker.to || !is_a_name_for(database, marker.to.as_path()) {
        return Err(strange("it names another file"));
    }
    Ok(Some(marker))
}

/// Whether `free_name` could have chosen this name.
fn is_a_name_for(database: &Path, to: &Path) -> bool {
    let number = to.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.rsplit_once('-'));
    let number = number.and_then(|(_, number)| number.parse().ok()).unwrap_or(1);
    ["v1", "broken"].iter().any(|word| numbered(database, word, number).as_os_str() == to.as_os_str())
}

fn with_part(database: &Path, part: &str) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(part);
    PathBuf::from(name)
}

/// Lock against concurrent archiving.
fn lock(database: &Path) -> Result<File, LedgerOpenError> {
    let path = database.with_extension("lock");
    let failed = |source| LedgerOpenError::Place { path: path.clone(), source };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|errno| failed(errno.into()))?;
    Ok(file)
}

impl From<ChainStoreError> for VerifyError {
    fn from(error: ChainStoreError) -> Self {
        match error {
            ChainStoreError::Malformed { seq, reason } => {
                Self::Broken(ChainBreak { seq, what: crate::ChainFlaw::Malformed { reason } })
            }
            ChainStoreError::Busy(source)
            | ChainStoreError::Full(source)
            | ChainStoreError::Failed(source) => Self::Damaged { after: 0, source },
            other => Self::Damaged { after: 0, source: crate::store::StoreFault::new(other) },
        }
    }
}
