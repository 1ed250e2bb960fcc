use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use ringfence_types::TransactionId;

use crate::anchor::{Anchor, AnchorError, Anchored};
use crate::chain::{Break, Head};
use crate::event::Event;
use crate::key::KeyError;
use crate::life::OutOfOrder;
use crate::postgres::node::Node;
use crate::postgres::remembered::Remembered;
use crate::reader::LedgerReader;
use crate::settings::Settings;
use crate::sqlite::open::{ACKNOWLEDGE, OpenError};
use crate::sqlite::{self, aside};
use crate::store::{self, Batch, Fault, Side, Store, StoreError};
use crate::writer::{Committed, Elsewhere, Keyring, Prepared, Request, Wanted, Writer};

/// Whoever asks whether something can be written again makes that be tried no more often than this.
const TRIED_AGAIN: Duration = Duration::from_secs(1);

/// A ledger that can be appended to. Several, in several processes, may be open on one file, and several threads may use
/// one: what they append at the same time is made durable together.
#[derive(Debug)]
pub struct Ledger {
    queue: Mutex<Queue>,
    writer: Mutex<Writer>,
    path: PathBuf,
    settings: Settings,
    /// Why the last of what was to be written was not, if that may pass.
    unwritten: Mutex<Option<AppendError>>,
    /// When it was last tried whether that is over. Held by whoever tries.
    tried: Mutex<Option<Instant>>,
    unanchored: Mutex<Option<AnchorError>>,
    anchoring: Mutex<Vec<std::thread::JoinHandle<Result<(), AnchorError>>>>,
    /// The file in which a node keeps what it signed last.
    remembers: Option<PathBuf>,
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

#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    #[error("the ledger is broken: {0}")]
    Broken(Break),
    #[error("the ledger was moved or deleted while in use")]
    Moved,
    #[error("the ledger is in use by another process for too long")]
    Busy(#[source] Fault),
    #[error("the disk is full: cannot append to the ledger")]
    Full(#[source] Fault),
    #[error("cannot append to the ledger")]
    Storage(#[source] Fault),
    #[error("cannot append to the ledger")]
    Server(#[source] StoreError),
    #[error("cannot encode the event")]
    Encode(#[source] Arc<serde_json::Error>),
    #[error("`{id}` cannot go on like this: {why}")]
    OutOfOrder { id: String, why: OutOfOrder },
    #[error("cannot sign what is in the ledger")]
    Key(#[source] Arc<KeyError>),
}

impl AppendError {
    /// The one thing that would change the answer.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Broken(_) => Some(ACKNOWLEDGE),
            Self::Moved => Some("start again"),
            Self::Full(_) | Self::Storage(_) => Some("free some space, or check that the file is writable"),
            Self::Busy(_) => Some("look for a stopped process that holds the ledger open"),
            Self::Key(_) => Some(
                "put the key back from a backup with mode 600, or `ringfence ledger acknowledge` begins a new chain",
            ),
            Self::Server(error) => error.hint(),
            Self::Encode(_) | Self::OutOfOrder { .. } => None,
        }
    }

    /// Whether it is about the place that the ledger is in, and not about the ledger or what was to be written.
    fn may_pass(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Full(_) | Self::Storage(_) | Self::Server(_))
    }

    pub(crate) fn of_store(error: StoreError) -> Self {
        match error {
            StoreError::Busy(fault) => Self::Busy(fault),
            StoreError::Full(fault) => Self::Full(fault),
            StoreError::Moved => Self::Moved,
            StoreError::Malformed { seq, reason } => {
                Self::Broken(Break { seq, what: crate::Flaw::Malformed { reason } })
            }
            StoreError::Failed(fault) => Self::Storage(fault),
            StoreError::Unreachable(_)
            | StoreError::ReadOnly(_)
            | StoreError::Denied(_)
            | StoreError::InDoubt(_) => Self::Server(error),
            StoreError::Taken { key } => {
                let (id, why) = crate::claim::taken(&key);
                Self::OutOfOrder { id, why }
            }
        }
    }

    pub(crate) fn encode(error: serde_json::Error) -> Self {
        Self::Encode(Arc::new(error))
    }

    pub(crate) fn key(error: KeyError) -> Self {
        Self::Key(Arc::new(error))
    }
}

/// Threads that wait for the disk. The first one that finds nobody at work takes everything that waits and writes it.
#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<(Waiter, Request)>,
    done: Vec<(Ticket, Answer)>,
    is_busy: bool,
    next: Ticket,
    /// Goes before whatever is written next.
    announced: Vec<Prepared>,
}

type Ticket = u64;

/// Each is woken by itself: a word to all would wake everybody for the answer of a few.
#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    thread: Thread,
}

type Answer = Result<Vec<Head>, AppendError>;

impl Ledger {
    /// Opens the ledger at `path`; makes it, its key and its directory, if there is none.
    ///
    /// A ledger whose end does not verify opens, but every append is refused.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_with(path, Settings::default())
    }

    pub fn open_with(path: &Path, settings: Settings) -> Result<Self, OpenError> {
        let (store, database) = aside::open_or_begin(path)?;
        let keyring = Keyring::new(aside::key_of(&database));
        Self::over(Box::new(store), keyring, database, settings)
    }

    /// Over a store that somebody else has opened, with the key at `key`. Begins a chain if there is none.
    pub fn with_store(
        mut store: Box<dyn Store>,
        key: PathBuf,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        let path = key.clone();
        let beginning = aside::beginning(&key, None)?;
        let begun = store.append(&mut |rows| {
            let entries = if store::head(rows)?.is_none() { vec![beginning.clone()] } else { Vec::new() };
            Ok(Batch { entries, ..Batch::default() })
        });
        begun.map_err(|source| OpenError::Read { path: path.clone(), source })?;
        Self::over(store, Keyring::new(key), path, settings)
    }

    /// The ledger of a node in a database, where its chain begins if there is none.
    ///
    /// Not from a task of an async runtime: every call waits for the server.
    pub fn connect(node: &Node, settings: Settings) -> Result<Self, OpenError> {
        let store = Box::new(node.open()?);
        let keyring = Keyring::new(node.key.clone());
        let remembered = node.remembered().transpose();
        let elsewhere = Elsewhere { anchor: settings.anchor.as_ref(), remembered };
        let writer = Writer::new(store, keyring, &elsewhere)
            .map_err(|source| OpenError::Read { path: node.key.clone(), source })?;
        let mut ledger = Self::of(writer, node.key.clone(), settings);
        ledger.remembers = Some(node.remembered_path());
        Ok(ledger)
    }

    /// Opens the ledger of a node in a database to read it. Never creates anything.
    pub fn connect_read(node: &Node) -> Result<LedgerReader, OpenError> {
        Ok(LedgerReader::over(Box::new(node.read()?)))
    }

    fn over(
        store: Box<dyn Store>,
        keyring: Keyring,
        path: PathBuf,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        let elsewhere = Elsewhere { anchor: settings.anchor.as_ref(), remembered: None };
        let writer = Writer::new(store, keyring, &elsewhere)
            .map_err(|source| OpenError::Read { path: path.clone(), source })?;
        Ok(Self::of(writer, path, settings))
    }

    fn of(writer: Writer, path: PathBuf, settings: Settings) -> Self {
        Self {
            queue: Mutex::default(),
            writer: Mutex::new(writer),
            path,
            settings,
            unwritten: Mutex::default(),
            tried: Mutex::default(),
            unanchored: Mutex::default(),
            anchoring: Mutex::default(),
            remembers: None,
        }
    }

    /// Opens an existing ledger to read it. Never creates anything.
    pub fn open_read(path: &Path) -> Result<LedgerReader, OpenError> {
        sqlite::reader(path).map(LedgerReader::over)
    }

    /// Another pair of eyes on the same ledger. It never stands in the way of an append.
    pub fn reader(&self) -> Result<LedgerReader, OpenError> {
        held(&self.writer).store.reader().map(LedgerReader::over)
    }

    pub(crate) fn has_open(&self) -> Result<bool, StoreError> {
        let mut is_any = false;
        held(&self.writer).store.side(Side::Open, &mut |_, _| is_any = true)?;
        Ok(is_any)
    }

    /// Why nothing can be appended, as far as that is known.
    pub fn broken(&self) -> Option<Break> {
        held(&self.writer).broken().cloned()
    }

    /// Why nothing can be written down at the moment. Where the last write failed it is tried whether another one does: what
    /// was in the way may be gone, and nobody who asks first would ever learn that from a failure that is over. That is tried by one
    /// at a time and once in a second: everybody else is told what was found last.
    pub fn unwritable(&self) -> Option<AppendError> {
        self.unwritable_at(Instant::now())
    }

    fn unwritable_at(&self, now: Instant) -> Option<AppendError> {
        let last = held(&self.unwritten).clone()?;
        let mut tried = match self.tried.try_lock() {
            Ok(tried) => tried,
            Err(TryLockError::Poisoned(tried)) => tried.into_inner(),
            Err(TryLockError::WouldBlock) => return Some(last),
        };
        if tried.is_some_and(|before| now.saturating_duration_since(before) < TRIED_AGAIN) {
            return Some(last);
        }
        let began = Instant::now();
        let found = self.checkpoint().err();
        // From its end: what takes long is not tried all the time.
        *tried = Some(now + began.elapsed());
        if found.is_none() {
            *held(&self.unwritten) = None;
        }
        found
    }

    /// Writes `event` down. It is on disk when this returns.
    pub fn append(&self, event: &Event) -> Result<Receipt, AppendError> {
        self.append_at(event, Timestamp::now())
    }

    /// [`Ledger::append`] with a time of the caller's.
    pub fn append_at(&self, event: &Event, time: Timestamp) -> Result<Receipt, AppendError> {
        let prepared = Prepared::new(event, time).map_err(AppendError::encode)?;
        let mut heads =
            self.submit(Request { events: vec![prepared], forget: Vec::new(), checkpoint: Wanted::WhenDue })?;
        // One event, one record.
        let head = heads.pop().unwrap_or(Head { seq: 0, hash: String::new() });
        Ok(receipt(event, head))
    }

    /// Writes all of `events` down, in this order and in one step: all of them are on disk when this returns, or none.
    pub fn append_all(&self, events: &[Event]) -> Result<Vec<Receipt>, AppendError> {
        let now = Timestamp::now();
        let prepared: Result<Vec<Prepared>, _> =
            events.iter().map(|event| Prepared::new(event, now)).collect();
        let prepared = prepared.map_err(AppendError::encode)?;
        let heads =
            self.submit(Request { events: prepared, forget: Vec::new(), checkpoint: Wanted::WhenDue })?;
        Ok(events.iter().zip(heads).map(|(event, head)| receipt(event, head)).collect())
    }

    /// Writes `event` down together with whatever is appended next, in front of it. If nothing is, nothing is written.
    pub fn announce(&self, event: &Event) -> Result<(), AppendError> {
        let prepared = Prepared::new(event, Timestamp::now()).map_err(AppendError::encode)?;
        held(&self.queue).announced.push(prepared);
        Ok(())
    }

    /// Signs everything up to now, and gives the newest checkpoint with the number of its record.
    pub fn checkpoint(&self) -> Result<Option<Anchored>, AppendError> {
        let request = Request { events: Vec::new(), forget: Vec::new(), checkpoint: Wanted::Now };
        self.submit(request)?;
        let reader = self.reader().map_err(|error| AppendError::Storage(Fault::new(error)))?;
        reader.newest_checkpoint().map_err(|error| AppendError::Storage(Fault::new(error)))
    }

    /// Another key vouches from here on. What was before is signed by the old one first. Gives the new public key.
    pub fn rotate_key(&self) -> Result<String, AppendError> {
        let mut writer = held(&self.writer);
        let (event, next) = writer.rotate()?;
        let public = match &event {
            Event::KeyRotated { new, .. } => new.clone(),
            _ => String::new(),
        };
        let prepared = Prepared::new(&event, Timestamp::now()).map_err(AppendError::encode)?;
        let request = Request { events: vec![prepared], forget: Vec::new(), checkpoint: Wanted::Before };
        let mut committed = writer.commit(std::slice::from_ref(&request));
        committed.results.pop().unwrap_or_else(|| Ok(Vec::new()))?;
        writer.promote(&next)?;
        drop(writer);
        self.keep(committed.checkpoints);
        Ok(public)
    }

    /// Signs what is unsigned if it is much or old. Also done when the ledger is dropped.
    pub fn close(&self) -> Result<(), AppendError> {
        held(&self.queue).announced.clear();
        let mut signed = Ok(());
        if held(&self.writer).leaves_unsigned() {
            let request = Request { events: Vec::new(), forget: Vec::new(), checkpoint: Wanted::AtEnd };
            signed = self.submit(request).map(drop);
        }
        for thread in mem::take(&mut *held(&self.anchoring)) {
            if let Ok(Err(error)) = thread.join() {
                *held(&self.unanchored) = Some(error);
            }
        }
        signed
    }

    /// Why the newest checkpoint is only in the chain, if there is an anchor and it did not work.
    pub fn unanchored(&self) -> Option<AnchorError> {
        held(&self.unanchored).take()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn submit(&self, request: Request) -> Answer {
        let mut queue = held(&self.queue);
        let ticket = queue.next;
        queue.next += 1;
        queue.waiting.push((Waiter { ticket, thread: thread::current() }, request));
        loop {
            if let Some(at) = queue.done.iter().position(|(done, _)| *done == ticket) {
                return queue.done.swap_remove(at).1;
            }
            if queue.is_busy {
                drop(queue);
                thread::park();
                queue = held(&self.queue);
            } else {
                queue = self.lead(queue);
            }
        }
    }

    /// Writes everything that waits.
    fn lead<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        queue.is_busy = true;
        let (waiters, requests) = queue.take();
        drop(queue);
        let span = tracing::debug_span!("commit", requests = requests.len());
        let committed = span.in_scope(|| held(&self.writer).commit(&requests));
        drop(span);
        self.remember(&committed);
        self.keep(committed.checkpoints);
        let mut queue = held(&self.queue);
        queue.is_busy = false;
        let mut answered = Vec::with_capacity(waiters.len());
        for (waiter, answer) in waiters.into_iter().zip(committed.results) {
            let Some(waiter) = waiter else { continue };
            queue.done.push((waiter.ticket, answer));
            answered.push(waiter.thread);
        }
        // Whoever waits longest writes next, also if it is this thread that goes away.
        answered.extend(queue.waiting.first().map(|(next, _)| next.thread.clone()));
        drop(queue);
        answered.iter().for_each(Thread::unpark);
        held(&self.queue)
    }

    /// Whether anything can be written. What had nothing to write shows nothing.
    fn remember(&self, committed: &Committed) {
        let mut errors = committed.results.iter().filter_map(|result| result.as_ref().err());
        let failed = errors.find(|error| error.may_pass());
        let wrote = committed.results.iter().flatten().any(|heads| !heads.is_empty());
        if failed.is_some() || wrote || !committed.checkpoints.is_empty() {
            *held(&self.unwritten) = failed.cloned();
        }
    }

    /// Takes new checkpoints to the anchor. Whatever goes wrong there is told, and undoes nothing.
    fn keep(&self, checkpoints: Vec<Anchored>) {
        for anchored in &checkpoints {
            tracing::info!(seq = anchored.seq, "checkpoint signed");
        }
        if let (Some(path), Some(newest)) = (&self.remembers, checkpoints.last())
            && let Err(source) = Remembered::of(&newest.checkpoint).keep(path)
        {
            *held(&self.unanchored) = Some(AnchorError::File { path: path.clone(), source });
        }
        let Some(anchor) = &self.settings.anchor else { return };
        for anchored in checkpoints {
            match anchor {
                Anchor::File(_) => {
                    if let Err(error) = anchor.keep(&anchored) {
                        *held(&self.unanchored) = Some(error);
                    }
                }
                // Nobody who appends waits for a program that is slow.
                Anchor::Command { .. } => {
                    let anchor = anchor.clone();
                    let thread = std::thread::spawn(move || anchor.keep(&anchored));
                    held(&self.anchoring).push(thread);
                }
            }
        }
    }
}

impl Queue {
    /// Everything that waits, what was announced first, which nobody waits for.
    fn take(&mut self) -> (Vec<Option<Waiter>>, Vec<Request>) {
        let announced = mem::take(&mut self.announced);
        let announced = announced.into_iter().map(|event| {
            (None, Request { events: vec![event], forget: Vec::new(), checkpoint: Wanted::WhenDue })
        });
        let waiting =
            mem::take(&mut self.waiting).into_iter().map(|(waiter, request)| (Some(waiter), request));
        announced.chain(waiting).unzip()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // What is not signed now is signed by whoever opens it next.
        let _unsigned = self.close();
    }
}

fn receipt(event: &Event, head: Head) -> Receipt {
    let intent = match event {
        Event::Intent { transaction, .. } => Some(transaction.clone()),
        _ => None,
    };
    Receipt { seq: head.seq, hash: head.hash, intent }
}

/// Nothing is left half done under these locks that the next holder could not go on with.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(ledger: &Ledger) -> Option<u64> {
        ledger.reader().unwrap().newest_checkpoint().unwrap().map(|anchored| anchored.seq)
    }

    /// Anybody may ask, and what they can make happen by it has a bound.
    #[test]
    fn whether_it_can_be_written_again_is_tried_once_in_a_second_and_by_one() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(&directory.path().canonicalize().unwrap().join("ledger.db")).unwrap();
        let start = Instant::now();
        assert!(ledger.unwritable_at(start).is_none(), "control: nothing went wrong");
        let before = signed(&ledger);
        *held(&ledger.unwritten) = Some(AppendError::Moved);
        *held(&ledger.tried) = Some(start);
        let early = start + TRIED_AGAIN / 2;
        assert!(matches!(ledger.unwritable_at(early), Some(AppendError::Moved)), "it was tried just now");
        let trying = held(&ledger.tried);
        let late = start + TRIED_AGAIN;
        assert!(matches!(ledger.unwritable_at(late), Some(AppendError::Moved)), "somebody tries it");
        drop(trying);
        assert_eq!(signed(&ledger), before, "nothing was written for any of them");
        assert!(ledger.unwritable_at(late).is_none());
        assert_ne!(signed(&ledger), before, "control: it was written");
        assert!(ledger.unwritable_at(late).is_none(), "what is over stays over");
    }
}
