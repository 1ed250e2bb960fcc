//! The ledger: opens a chain, appends events in group commits, signs checkpoints and rotates the key.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use ringfence_types::TransactionId;

use crate::anchor::{AnchorError, AnchorLine, CheckpointAnchor};
use crate::chain::{ChainBreak, ChainHead};
use crate::event::Event;
use crate::key::LedgerKeyError;
use crate::lifecycle::LifecycleError;
use crate::postgres::local_head::LocalHead;
use crate::postgres::node::LedgerNode;
use crate::reader::LedgerReader;
use crate::settings::LedgerSettings;
use crate::sqlite::open::{ACKNOWLEDGE, LedgerOpenError};
use crate::sqlite::{self, archive};
use crate::store::{self, Batch, ChainStore, ChainStoreError, ClaimKind, StoreFault};
use crate::writer::{
    AppendRequest, ChainWriter, CheckpointTiming, CommitSummary, Elsewhere, Keyring, PreparedEvent,
};

/// Minimum time between two write probes, however often clients ask.
const TRIED_AGAIN: Duration = Duration::from_secs(1);

/// More than an operator ends while a ledger cannot be written.
const MOST_LATE: usize = 10_000;

/// A ledger open for appending. Several processes may open the same file and several threads may share one `Ledger`: concurrent
/// appends share one fsync.
#[derive(Debug)]
pub struct Ledger {
    queue: Mutex<AppendQueue>,
    writer: Mutex<ChainWriter>,
    path: PathBuf,
    settings: LedgerSettings,
    /// The last write error, if it may be temporary.
    unwritten: Mutex<Option<AppendError>>,
    /// Time of the last write probe. The probing thread holds the lock.
    tried: Mutex<Option<Instant>>,
    unanchored: Mutex<Option<AnchorError>>,
    anchoring: Mutex<Vec<std::thread::JoinHandle<Result<(), AnchorError>>>>,
    /// File in which a node stores the last head that it signed.
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
    Broken(ChainBreak),
    #[error("the ledger was moved or deleted while in use")]
    Moved,
    #[error("the ledger is in use by another process for too long")]
    Busy(#[source] StoreFault),
    #[error("the disk is full: cannot append to the ledger")]
    Full(#[source] StoreFault),
    #[error("cannot append to the ledger")]
    Storage(#[source] StoreFault),
    #[error("cannot append to the ledger")]
    Server(#[source] ChainStoreError),
    #[error("cannot encode the event")]
    Encode(#[source] Arc<serde_json::Error>),
    #[error("`{id}` cannot continue like this: {why}")]
    OutOfOrder { id: String, why: LifecycleError },
    #[error("another process has rotated the key of the ledger meanwhile")]
    RotatedMeanwhile,
    #[error("cannot sign what is in the ledger")]
    Key(#[source] Arc<LedgerKeyError>),
}

impl AppendError {
    /// The next step for the operator.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Broken(_) => Some(ACKNOWLEDGE),
            Self::Moved => Some("start again"),
            Self::Full(_) | Self::Storage(_) => Some("free some space, or check that the file is writable"),
            Self::Busy(_) => Some("look for a stopped process that holds the ledger open"),
            Self::Key(_) => Some(
                "put the key back from a backup with mode 600, or `ringfence ledger restart` begins a new chain",
            ),
            Self::RotatedMeanwhile => {
                Some("`ringfence ledger rotate-key` again, if the new key is not enough")
            }
            Self::Server(error) => error.hint(),
            Self::Encode(_) | Self::OutOfOrder { .. } => None,
        }
    }

    /// Whether the error is about the storage, and so may be temporary, and not about the ledger or the event.
    fn may_pass(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Full(_) | Self::Storage(_) | Self::Server(_))
    }

    pub(crate) fn of_store(error: ChainStoreError) -> Self {
        match error {
            ChainStoreError::Busy(fault) => Self::Busy(fault),
            ChainStoreError::Full(fault) => Self::Full(fault),
            ChainStoreError::Moved => Self::Moved,
            ChainStoreError::Malformed { seq, reason } => {
                Self::Broken(ChainBreak { seq, what: crate::ChainFlaw::Malformed { reason } })
            }
            ChainStoreError::Failed(fault) => Self::Storage(fault),
            ChainStoreError::Unreachable(_)
            | ChainStoreError::ReadOnly(_)
            | ChainStoreError::Denied(_)
            | ChainStoreError::InDoubt(_) => Self::Server(error),
            ChainStoreError::Taken { key } => {
                let (id, why) = crate::claim::taken(&key);
                Self::OutOfOrder { id, why }
            }
        }
    }

    pub(crate) fn encode(error: serde_json::Error) -> Self {
        Self::Encode(Arc::new(error))
    }

    pub(crate) fn key(error: LedgerKeyError) -> Self {
        Self::Key(Arc::new(error))
    }
}

/// Threads that wait for a commit. The first one that finds no leader becomes it and writes all pending requests.
#[derive(Debug, Default)]
struct AppendQueue {
    waiting: Vec<(AppendWaiter, AppendRequest)>,
    done: Vec<(AppendTicket, AppendResult)>,
    is_busy: bool,
    next: AppendTicket,
    /// Written before the next request.
    announced: Vec<PreparedEvent>,
    /// What was done without waiting for its record. It goes before everything else until it is written.
    late: Vec<PreparedEvent>,
    /// Late records of the commit that runs now. They count as missing until it ends.
    late_in_commit: usize,
}

type AppendTicket = u64;

/// Woken individually: waking all threads for the results of a few would be wasteful.
#[derive(Debug)]
struct AppendWaiter {
    ticket: AppendTicket,
    thread: Thread,
}

type AppendResult = Result<Vec<ChainHead>, AppendError>;

impl Ledger {
    /// Opens the ledger at `path`. Creates it, its key and its directory if missing.
    ///
    /// A ledger whose end does not verify opens, but every append is refused.
    pub fn open(path: &Path) -> Result<Self, LedgerOpenError> {
        Self::open_with(path, LedgerSettings::default())
    }

    pub fn open_with(path: &Path, settings: LedgerSettings) -> Result<Self, LedgerOpenError> {
        let (store, database) = archive::open_or_begin(path)?;
        let keyring = Keyring::new(archive::key_of(&database));
        Self::over(Box::new(store), keyring, database, settings)
    }

    /// Opens a ledger over a given store with the key at `key`. Starts a chain if there is none.
    pub fn with_store(
        mut store: Box<dyn ChainStore>,
        key: PathBuf,
        settings: LedgerSettings,
    ) -> Result<Self, LedgerOpenError> {
        let path = key.clone();
        let beginning = archive::beginning(&key, None)?;
        let begun = store.append(&mut |rows| {
            let entries = if store::head(rows)?.is_none() { vec![beginning.clone()] } else { Vec::new() };
            Ok(Batch { entries, ..Batch::default() })
        });
        begun.map_err(|source| LedgerOpenError::Read { path: path.clone(), source })?;
        Self::over(store, Keyring::new(key), path, settings)
    }

    /// Opens the ledger of a node in a database. Starts its chain if there is none.
    ///
    /// Must not be called from an async task: every call blocks on the server.
    pub fn connect(node: &LedgerNode, settings: LedgerSettings) -> Result<Self, LedgerOpenError> {
        let store = Box::new(node.open()?);
        let keyring = Keyring::new(node.key.clone());
        let elsewhere = Elsewhere { anchor: settings.anchor.as_ref(), memory: node.memory() };
        let writer = ChainWriter::new(store, keyring, &elsewhere)
            .map_err(|source| LedgerOpenError::Read { path: node.key.clone(), source })?;
        let mut ledger = Self::of(writer, node.key.clone(), settings);
        ledger.remembers = Some(node.local_head_path());
        Ok(ledger)
    }

    /// Opens the ledger of a node in a database to read it. Never creates anything.
    pub fn connect_read(node: &LedgerNode) -> Result<LedgerReader, LedgerOpenError> {
        Ok(LedgerReader::over(Box::new(node.read()?)))
    }

    fn over(
        store: Box<dyn ChainStore>,
        keyring: Keyring,
        path: PathBuf,
        settings: LedgerSettings,
    ) -> Result<Self, LedgerOpenError> {
        let elsewhere = Elsewhere { anchor: settings.anchor.as_ref(), memory: None };
        let writer = ChainWriter::new(store, keyring, &elsewhere)
            .map_err(|source| LedgerOpenError::Read { path: path.clone(), source })?;
        Ok(Self::of(writer, path, settings))
    }

    fn of(writer: ChainWriter, path: PathBuf, settings: LedgerSettings) -> Self {
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
    pub fn open_read(path: &Path) -> Result<LedgerReader, LedgerOpenError> {
        sqlite::reader(path).map(LedgerReader::over)
    }

    /// Another reader of the same ledger. It never blocks an append.
    pub fn reader(&self) -> Result<LedgerReader, LedgerOpenError> {
        held(&self.writer).store.reader().map(LedgerReader::over)
    }

    pub(crate) fn has_open(&self) -> Result<bool, ChainStoreError> {
        let mut is_any = false;
        held(&self.writer).store.side(ClaimKind::Open, &mut |_, _| is_any = true)?;
        Ok(is_any)
    }

    /// Reason why appends are refused, if known.
    pub fn broken(&self) -> Option<ChainBreak> {
        held(&self.writer).broken().cloned()
    }

    /// Reason why writes fail at the moment. If the last write failed, this probes whether the storage works again, because a
    /// caller that checks first would otherwise never write and never notice. One thread probes at most once per second; all others
    /// get the last result.
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
        // Counted from the end of the probe, so that slow probes do not follow each other.
        *tried = Some(now + began.elapsed());
        if found.is_none() {
            *held(&self.unwritten) = None;
        }
        found
    }

    /// Appends `event`. It is durable when this returns.
    pub fn append(&self, event: &Event) -> Result<Receipt, AppendError> {
        self.append_at(event, Timestamp::now())
    }

    /// [`Ledger::append`] with a given time.
    pub fn append_at(&self, event: &Event, time: Timestamp) -> Result<Receipt, AppendError> {
        let prepared = PreparedEvent::new(event, time).map_err(AppendError::encode)?;
        let mut heads = self.submit(AppendRequest {
            events: vec![prepared],
            forget: Vec::new(),
            checkpoint: CheckpointTiming::WhenDue,
        })?;
        // One event, one record.
        let head = heads.pop().unwrap_or(ChainHead { seq: 0, hash: String::new() });
        Ok(receipt(event, head))
    }

    /// Appends `events` in order, atomically: when this returns, all are durable or none is.
    pub fn append_all(&self, events: &[Event]) -> Result<Vec<Receipt>, AppendError> {
        let now = Timestamp::now();
        let prepared: Result<Vec<PreparedEvent>, _> =
            events.iter().map(|event| PreparedEvent::new(event, now)).collect();
        let prepared = prepared.map_err(AppendError::encode)?;
        let heads = self.submit(AppendRequest {
            events: prepared,
            forget: Vec::new(),
            checkpoint: CheckpointTiming::WhenDue,
        })?;
        Ok(events.iter().zip(heads).map(|(event, head)| receipt(event, head)).collect())
    }

    /// Queues `event` to be written before the next append. Without another append it is not written.
    pub fn announce(&self, event: &Event) -> Result<(), AppendError> {
        let prepared = PreparedEvent::new(event, Timestamp::now()).map_err(AppendError::encode)?;
        held(&self.queue).announced.push(prepared);
        Ok(())
    }

    /// Writes `events` down, or keeps them until the ledger can be written: for what only takes something away, and is done
    /// whether it can be written down or not. An error says that the record is missing for now. It is written with whatever is
    /// written next, and by [`Ledger::write_late`]. What is still missing when the process ends is lost.
    pub fn append_late(&self, events: &[Event]) -> Result<(), AppendError> {
        self.keep_late(events)?;
        self.write_late()
    }

    /// [`Ledger::append_late`] without trying to write.
    pub fn keep_late(&self, events: &[Event]) -> Result<(), AppendError> {
        let now = Timestamp::now();
        let prepared: Result<Vec<PreparedEvent>, _> =
            events.iter().map(|event| PreparedEvent::new(event, now)).collect();
        let prepared = prepared.map_err(AppendError::encode)?;
        let mut queue = held(&self.queue);
        let room = MOST_LATE.saturating_sub(queue.late.len());
        if prepared.len() > room {
            tracing::error!(left_out = prepared.len() - room, "too many records wait for the ledger");
        }
        queue.late.extend(prepared.into_iter().take(room));
        Ok(())
    }

    /// Writes the late records. Without a late record it returns at once.
    pub fn write_late(&self) -> Result<(), AppendError> {
        let queue = held(&self.queue);
        if queue.late.is_empty() && queue.late_in_commit == 0 {
            return Ok(());
        }
        drop(queue);
        let request =
            AppendRequest { events: Vec::new(), forget: Vec::new(), checkpoint: CheckpointTiming::WhenDue };
        self.submit(request).map(drop)
    }

    /// Signs all records so far, and returns the newest checkpoint with its record number.
    pub fn checkpoint(&self) -> Result<Option<AnchorLine>, AppendError> {
        let request =
            AppendRequest { events: Vec::new(), forget: Vec::new(), checkpoint: CheckpointTiming::Now };
        self.submit(request)?;
        let reader = self.reader().map_err(|error| AppendError::Storage(StoreFault::new(error)))?;
        reader.newest_checkpoint().map_err(|error| AppendError::Storage(StoreFault::new(error)))
    }

    /// Rotates the key. The old key signs all earlier records first. Returns the new public key.
    pub fn rotate_key(&self) -> Result<String, AppendError> {
        let mut writer = held(&self.writer);
        let lock = writer.lock_key()?;
        let event = writer.rotate(&lock)?;
        let public = match &event {
            Event::LedgerKeyRotated { new, .. } => new.clone(),
            _ => String::new(),
        };
        let prepared = PreparedEvent::new(&event, Timestamp::now()).map_err(AppendError::encode)?;
        let request = AppendRequest {
            events: vec![prepared],
            forget: Vec::new(),
            checkpoint: CheckpointTiming::Before,
        };
        let mut committed = writer.commit(std::slice::from_ref(&request));
        if let Err(error) = committed.results.pop().unwrap_or_else(|| Ok(Vec::new())) {
            writer.forget_next();
            return Err(error);
        }
        writer.promote(&lock, &public)?;
        drop((writer, lock));
        self.keep(committed.checkpoints);
        Ok(public)
    }

    /// Signs unsigned records if they are many or old. Also called on drop.
    pub fn close(&self) -> Result<(), AppendError> {
        held(&self.queue).announced.clear();
        let mut signed = self.write_late();
        if held(&self.writer).leaves_unsigned() {
            let request =
                AppendRequest { events: Vec::new(), forget: Vec::new(), checkpoint: CheckpointTiming::AtEnd };
            signed = signed.and(self.submit(request).map(drop));
        }
        for thread in mem::take(&mut *held(&self.anchoring)) {
            if let Ok(Err(error)) = thread.join() {
                *held(&self.unanchored) = Some(error);
            }
        }
        signed
    }

    /// Reason why the newest checkpoint did not reach its anchor.
    pub fn unanchored(&self) -> Option<AnchorError> {
        held(&self.unanchored).take()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn submit(&self, request: AppendRequest) -> AppendResult {
        let mut queue = held(&self.queue);
        let ticket = queue.next;
        queue.next += 1;
        queue.waiting.push((AppendWaiter { ticket, thread: thread::current() }, request));
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

    /// Writes all pending requests.
    fn lead<'a>(&'a self, mut queue: MutexGuard<'a, AppendQueue>) -> MutexGuard<'a, AppendQueue> {
        queue.is_busy = true;
        let late = queue.take_late();
        let count = late.len();
        queue.late_in_commit = count;
        let (waiters, requests) = queue.take(late);
        drop(queue);
        let span = tracing::debug_span!("commit", requests = requests.len());
        let committed = span.in_scope(|| held(&self.writer).commit(&requests));
        drop(span);
        self.remember(&committed);
        self.keep(committed.checkpoints);
        let mut queue = held(&self.queue);
        queue.is_busy = false;
        queue.late_in_commit = 0;
        queue.keep_unwritten(requests.into_iter().zip(&committed.results).take(count));
        let mut answered = Vec::with_capacity(waiters.len());
        for (waiter, answer) in waiters.into_iter().zip(committed.results) {
            let Some(waiter) = waiter else { continue };
            queue.done.push((waiter.ticket, answer));
            answered.push(waiter.thread);
        }
        // The thread that has waited longest becomes the next leader.
        answered.extend(queue.waiting.first().map(|(next, _)| next.thread.clone()));
        drop(queue);
        answered.iter().for_each(Thread::unpark);
        held(&self.queue)
    }

    /// Updates the write status. A commit without records proves nothing.
    fn remember(&self, committed: &CommitSummary) {
        let mut errors = committed.results.iter().filter_map(|result| result.as_ref().err());
        let failed = errors.find(|error| error.may_pass());
        let wrote = committed.results.iter().flatten().any(|heads| !heads.is_empty());
        if failed.is_some() || wrote || !committed.checkpoints.is_empty() {
            *held(&self.unwritten) = failed.cloned();
        }
    }

    /// Sends new checkpoints to the anchor. A failure is reported and undoes nothing.
    fn keep(&self, checkpoints: Vec<AnchorLine>) {
        for anchored in &checkpoints {
            tracing::info!(seq = anchored.seq, "checkpoint signed");
        }
        if let (Some(path), Some(newest)) = (&self.remembers, checkpoints.last())
            && let Err(source) = LocalHead::of(&newest.checkpoint).keep_newer(path)
        {
            *held(&self.unanchored) = Some(AnchorError::File { path: path.clone(), source });
        }
        let Some(anchor) = &self.settings.anchor else { return };
        for anchored in checkpoints {
            match anchor {
                CheckpointAnchor::File(_) => {
                    if let Err(error) = anchor.keep(&anchored) {
                        *held(&self.unanchored) = Some(error);
                    }
                }
                // Run in the background, so that appends do not wait for a slow program.
                CheckpointAnchor::Command { .. } => {
                    let anchor = anchor.clone();
                    let thread = std::thread::spawn(move || anchor.keep(&anchored));
                    held(&self.anchoring).push(thread);
                }
            }
        }
    }
}

impl AppendQueue {
    /// What is late, each by itself: one that cannot be written keeps no other back.
    fn take_late(&mut self) -> Vec<PreparedEvent> {
        mem::take(&mut self.late)
    }

    /// What is late and was not written stays late, in its order, unless it never can be written.
    fn keep_unwritten<'r>(&mut self, done: impl Iterator<Item = (AppendRequest, &'r AppendResult)>) {
        let mut still = Vec::new();
        for (request, result) in done {
            match result {
                Ok(_) => {}
                Err(error @ (AppendError::OutOfOrder { .. } | AppendError::Encode(_))) => {
                    tracing::error!(error = %error, "cannot write a late record");
                }
                Err(_) => still.extend(request.events),
            }
        }
        still.append(&mut self.late);
        self.late = still;
    }

    /// All pending requests, after late and announced records, for which no thread waits.
    fn take(&mut self, late: Vec<PreparedEvent>) -> (Vec<Option<AppendWaiter>>, Vec<AppendRequest>) {
        let announced = mem::take(&mut self.announced);
        let announced = late.into_iter().chain(announced).map(|event| {
            (
                None,
                AppendRequest {
                    events: vec![event],
                    forget: Vec::new(),
                    checkpoint: CheckpointTiming::WhenDue,
                },
            )
        });
        let waiting =
            mem::take(&mut self.waiting).into_iter().map(|(waiter, request)| (Some(waiter), request));
        announced.chain(waiting).unzip()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // Unsigned records are signed by the next process that opens the ledger.
        let _unsigned = self.close();
    }
}

fn receipt(event: &Event, head: ChainHead) -> Receipt {
    let intent = match event {
        Event::CallIntended { transaction, .. } => Some(transaction.clone()),
        _ => None,
    };
    Receipt { seq: head.seq, hash: head.hash, intent }
}

/// Ignores poisoning: no state under these locks is left inconsistent by a panic.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(ledger: &Ledger) -> Option<u64> {
        ledger.reader().unwrap().newest_checkpoint().unwrap().map(|anchored| anchored.seq)
    }

    /// What is done without its record gets it as soon as the ledger can be written.
    #[test]
    fn what_is_late_is_written_when_the_ledger_is_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("ledger.db");
        let ledger = Ledger::open(&path).unwrap();
        let event = |text: &str| Event::AuthenticationAttempted {
            principal: ringfence_types::Principal::System,
            purpose: text.to_owned(),
            refusal: None,
        };
        let purposes = || -> Vec<String> {
            let records = ledger.reader().unwrap().tail(10).unwrap();
            let purpose = |record: crate::Record| match record.event {
                Event::AuthenticationAttempted { purpose, .. } => Some(purpose),
                _ => None,
            };
            records.into_iter().filter_map(purpose).collect()
        };
        ledger.append_late(&[event("control")]).unwrap();
        assert_eq!(purposes(), ["control"]);
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(matches!(ledger.append_late(&[event("one")]), Err(AppendError::Busy(_))));
        ledger.keep_late(&[event("two")]).unwrap();
        assert!(ledger.append(&event("refused")).is_err());
        other.execute_batch("ROLLBACK").unwrap();
        drop(ledger.append(&event("next")).unwrap());
        assert_eq!(purposes(), ["control", "one", "two", "next"]);
        ledger.write_late().unwrap();
        assert_eq!(purposes().len(), 4, "each of them once");
    }

    /// Clients may ask often, so the cost of probing is bounded.
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
