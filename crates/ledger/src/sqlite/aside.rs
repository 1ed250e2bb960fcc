//! How a chain begins, and how one that cannot go on is put aside whole: because it has an older format, or because it is
//! broken and somebody has said that they know.
//!
//! Three files have to change their names, which no file system does in one step. So what is to be done is written down
//! first (`ledger.aside`), and whoever comes next finishes it. INVARIANT: at no point does a database lie beside a log that
//! is not its own, and no chain begins without a word about the one that was there.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use ringfence_types::{Bytes, ChainId, Principal, chain};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::chain::Break;
use crate::event::{Continued, Event};
use crate::key::{Key, KeyError};
use crate::ledger::Ledger;
use crate::settings::Settings;
use crate::sqlite::open::{self, OpenError, SCHEMA_VERSION};
use crate::sqlite::{SqliteStore, format1, place};
use crate::store::{Entry, StoreError};
use crate::verify::{self, VerifyError};
use crate::writer::Prepared;

/// The database first: without it nobody takes the log for anything.
const PARTS: [&str; 3] = ["", "-wal", "-shm"];

/// How often an open begins anew because somebody else is putting the files aside.
const ATTEMPTS: u32 = 20;

/// Where the key of a ledger is.
pub(crate) fn key_of(database: &Path) -> PathBuf {
    database.with_extension("key")
}

/// The store at `path`, with a chain in it.
pub(crate) fn open_or_begin(path: &Path) -> Result<(SqliteStore, PathBuf), OpenError> {
    let database = place::prepare(path)?;
    let mut again = 0..ATTEMPTS;
    loop {
        let before = place::Identity::at(&database);
        let opened = attempt(&database);
        // Somebody put the files aside meanwhile: what was opened may be neither the old chain nor the new one.
        if before.is_some() && is_moving(&database, before) && again.next().is_some() {
            continue;
        }
        return opened.map(|store| (store, database));
    }
}

fn is_moving(database: &Path, before: Option<place::Identity>) -> bool {
    place::Identity::at(database) != before || place::Identity::at(&marker_of(database)).is_some()
}

fn attempt(database: &Path) -> Result<SqliteStore, OpenError> {
    if place::Identity::at(&marker_of(database)).is_some() {
        let _lock = lock(database)?;
        finish(database)?;
    }
    if place::check_database(database)?.is_none() {
        begin(database, None)?;
    }
    let (mut connection, format) = open::open_to_append(database)?;
    if format != SCHEMA_VERSION {
        drop(connection);
        convert(database)?;
        connection = match open::open_to_append(database)? {
            (connection, SCHEMA_VERSION) => connection,
            _ => return Err(OpenError::Older { path: database.to_owned() }),
        };
    }
    Ok(SqliteStore::new(connection, database.to_owned()))
}

/// A new chain. Of several processes that begin one at once, one wins and the others use its chain.
fn begin(database: &Path, continues: Option<Continued>) -> Result<(), OpenError> {
    open::create(database, &beginning(&key_of(database), continues)?)
}

/// The first record of a chain that the key at `key` vouches for; the key is made if there is none.
pub(crate) fn beginning(key: &Path, continues: Option<Continued>) -> Result<Entry, OpenError> {
    let key = Key::load_or_create(key).map_err(|error| match error {
        KeyError::Storage { path, source } => OpenError::Place { path, source },
        other => OpenError::Key(other),
    })?;
    let event = Event::ChainStarted {
        chain: ChainId::random().map_err(OpenError::Random)?,
        node: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        key: key.public(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        continues,
    };
    let prepared = Prepared::new(&event, Timestamp::now()).map_err(OpenError::Encode)?;
    Ok(prepared.after(None))
}

/// Puts a chain of format 1 aside and begins one that continues it.
fn convert(database: &Path) -> Result<(), OpenError> {
    let _lock = lock(database)?;
    let (connection, format) = open::open_to_append(database)?;
    if format == SCHEMA_VERSION {
        // Somebody else did it while we waited.
        return Ok(());
    }
    let failed = |source| OpenError::Storage { path: database.to_owned(), source };
    // Nobody appends to it from here on.
    let held = Transaction::new_unchecked(&connection, TransactionBehavior::Immediate).map_err(failed)?;
    let head = format1::walk(&connection, None)
        .map_err(|source| OpenError::Read { path: database.to_owned(), source })?
        .map_err(|problem| OpenError::Broken { path: database.to_owned(), problem })?;
    let continued = Continued {
        file: Bytes::default(),
        head,
        problem: None,
        by: Principal::System,
        reason: Some("converted from format 1".to_owned()),
        proof: None,
    };
    note_down(database, "v1", continued)?;
    finish(database)?;
    held.rollback().map_err(failed)
}

/// What became of a broken chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Where it is now.
    pub aside: PathBuf,
    pub problem: String,
}

/// Puts a broken chain aside whole and begins a new one that says so, and why.
pub fn acknowledge(
    path: &Path,
    settings: &Settings,
    reason: &str,
    by: Principal,
) -> Result<Acknowledged, OpenError> {
    let database = place::prepare(path)?;
    let guard = lock(&database)?;
    finish(&database)?;
    let (problem, head) = problem_of(&database, settings)?;
    let held = open::open_to_append(&database).ok();
    let held = held.as_ref().map(|(connection, _)| freeze(connection));
    let continued = Continued {
        file: Bytes::default(),
        head,
        problem: Some(problem.clone()),
        by,
        reason: Some(reason.to_owned()),
        proof: None,
    };
    let aside = note_down(&database, "broken", continued)?;
    if let Err(KeyError::NotAKey { .. }) = Key::load(&key_of(&database)) {
        let unusable = aside.with_extension("key");
        fs::rename(key_of(&database), unusable)
            .map_err(|source| OpenError::Place { path: database.clone(), source })?;
    }
    finish(&database)?;
    drop(held);
    drop(guard);
    let ledger = Ledger::open_with(path, settings.clone())?;
    // The anchor learns of the new chain at once; if that fails, the next checkpoint is another chance.
    let _checkpoint = ledger.checkpoint();
    Ok(Acknowledged { aside, problem })
}

/// Keeps others from appending, where the file is whole enough for a lock.
fn freeze(connection: &Connection) -> Option<Transaction<'_>> {
    Transaction::new_unchecked(connection, TransactionBehavior::Immediate).ok()
}

/// What is wrong, and the last record up to which nothing is.
fn problem_of(database: &Path, settings: &Settings) -> Result<(String, Option<crate::Head>), OpenError> {
    let missing = PARTS.iter().all(|part| place::Identity::at(&with_part(database, part)).is_none());
    if missing {
        return Err(OpenError::Missing { path: database.to_owned() });
    }
    let (good, found) = verify::upto(database);
    match found {
        Err(VerifyError::Open(OpenError::Newer { path, found, known })) => {
            return Err(OpenError::Newer { path, found, known });
        }
        Err(error) => return Ok((chain(&error), good)),
        Ok(()) => {}
    }
    let whole = || OpenError::Whole { path: database.to_owned() };
    if let (_, 1) = open::open_to_read(database)? {
        return Err(whole());
    }
    let broken: Option<Break> = Ledger::open_with(database, settings.clone())?.broken();
    broken.map(|broken| (broken.to_string(), good)).ok_or_else(whole)
}

/// What is being done, for whoever has to finish it.
#[derive(Serialize, Deserialize)]
struct Marker {
    /// The name that the database gets.
    to: Bytes,
    continued: Continued,
}

fn marker_of(database: &Path) -> PathBuf {
    database.with_extension("aside")
}

/// Chooses a name for the old chain and writes down what is to be done.
fn note_down(database: &Path, word: &str, mut continued: Continued) -> Result<PathBuf, OpenError> {
    let failed = |source| OpenError::Place { path: database.to_owned(), source };
    let to = free_name(database, word);
    continued.file = Bytes::from(to.as_path());
    let marker = Marker { to: Bytes::from(to.as_path()), continued };
    let text = serde_json::to_vec(&marker).map_err(OpenError::Encode)?;
    let draft = marker_of(database).with_added_extension("new");
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&draft, marker_of(database))?;
        place::sync_directory(database.parent().unwrap_or(database))
    };
    write().map_err(failed)?;
    Ok(to)
}

fn free_name(database: &Path, word: &str) -> PathBuf {
    let name = |number| numbered(database, word, number);
    (1..u32::MAX).map(name).find(|name| place::Identity::at(name).is_none()).unwrap_or_else(|| name(1))
}

fn numbered(database: &Path, word: &str, number: u32) -> PathBuf {
    match number {
        1 => database.with_extension(format!("{word}.db")),
        _ => database.with_extension(format!("{word}-{number}.db")),
    }
}

/// Does what is written down, if anything is. Every step may have been done before.
fn finish(database: &Path) -> Result<(), OpenError> {
    let failed = |source| OpenError::Place { path: database.to_owned(), source };
    let Some(marker) = noted_down(database)? else { return Ok(()) };
    let to = marker.to.as_path();
    let is_there = |path: &Path| place::Identity::at(path).is_some();
    if !(is_there(to) && is_there(database)) {
        for part in PARTS {
            let from = with_part(database, part);
            if is_there(&from) {
                fs::rename(&from, with_part(to, part)).map_err(failed)?;
            }
        }
        place::sync_directory(database.parent().unwrap_or(database)).map_err(failed)?;
        begin(database, Some(marker.continued))?;
    }
    fs::remove_file(marker_of(database)).map_err(failed)?;
    place::sync_directory(database.parent().unwrap_or(database)).map_err(failed)
}

/// What is to be done, if only we can have written it: it says which files get which names.
fn noted_down(database: &Path) -> Result<Option<Marker>, OpenError> {
    let path = marker_of(database);
    let strange = |reason| OpenError::StrangeMarker { path: path.clone(), reason };
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
            return Err(strange("it is a symbolic link"));
        }
        other => other.map_err(|source| OpenError::Place { path: path.clone(), source })?,
    };
    let failed = |source| OpenError::Place { path: path.clone(), source };
    let found = file.metadata().map_err(failed)?;
    let private = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o7777 == 0o600;
    if !found.is_file() || !private {
        return Err(strange("it is not a file that is yours alone"));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(failed)?;
    let marker: Marker = serde_json::from_slice(&text).map_err(|_error| strange("it has another form"))?;
    if marker.continued.file != marker.to || !is_a_name_for(database, marker.to.as_path()) {
        return Err(strange("it names another file"));
    }
    Ok(Some(marker))
}

/// Whether `free_name` could have chosen it.
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

/// One process at a time puts aside.
fn lock(database: &Path) -> Result<File, OpenError> {
    let path = database.with_extension("lock");
    let failed = |source| OpenError::Place { path: path.clone(), source };
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

impl From<StoreError> for VerifyError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Malformed { seq, reason } => {
                Self::Broken(Break { seq, what: crate::Flaw::Malformed { reason } })
            }
            StoreError::Busy(source) | StoreError::Full(source) | StoreError::Failed(source) => {
                Self::Damaged { after: 0, source }
            }
            other => Self::Damaged { after: 0, source: crate::store::Fault::new(other) },
        }
    }
}
