//! The event feed: ledger records for subscribers, as they are written.
//!
//! Nothing is queued for a subscriber. Each has a position in the ledger and reads on at its own pace. The newest
//! events are in memory once for all subscribers. One reader reads older ones in pages, which subscribers share, also
//! as encoded bytes. A subscriber that does not read for too long is dropped, and can resume at its position.
//!
//! Events are limited by weight, not by number, because an agent decides how long its events are. Events in flight are
//! limited by [`crate::limits::event_budget`].

use std::collections::VecDeque;
use std::io;
use std::ops::{ControlFlow, Deref};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ringfence_api::{ApiError, Caller, EventMessage, Subscribe};
use ringfence_ledger::{Ledger, LedgerReadError, LedgerReader, RecordFilter, RecordOrPruned};
use ringfence_types::SessionId;
use tokio::sync::{mpsc, watch};

use crate::calls::handle::StreamItem;
use crate::errors::{internal, unavailable};
use crate::limits::budget::within_budget;
use crate::limits::event_budget::{EventBudget, EventPermit, Subscriber};
use crate::server::Daemon;
use crate::transport::http::text;

/// Bounds of the newest events in memory: number and weight.
const NEWEST: usize = 1024;
const NEWEST_WEIGHT: usize = 4 * 1024 * 1024;
/// Records per page. A page ends at a multiple of this.
const PAGE: u64 = 64;
/// A page ends early at this weight.
const PAGE_WEIGHT: usize = 256 * 1024;
/// Cached pages.
const PAGES: usize = 32;
const PAGES_WEIGHT: usize = 4 * 1024 * 1024;
/// Weight of an event besides its text.
const AROUND: usize = 512;
/// Poll interval of the ledger.
const LOOK: Duration = Duration::from_millis(20);
/// Wait before the next attempt after a read error.
const AGAIN: Duration = Duration::from_millis(500);
/// Longest time a subscriber may leave an event unread.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// An event, shared by all subscribers.
#[derive(Debug)]
pub(crate) struct SharedEvent {
    event: EventMessage,
    /// Hash in the ledger's chain.
    pub(crate) hash: String,
    text: OnceLock<Bytes>,
    /// About the length of its text.
    weight: usize,
}

impl SharedEvent {
    fn of(listed: RecordOrPruned) -> Arc<Self> {
        let hash = match &listed {
            RecordOrPruned::Whole(record) => record.hash.clone(),
            RecordOrPruned::Pruned(pruned) => pruned.hash.clone(),
        };
        Self::new(happened(listed), hash)
    }

    fn new(event: EventMessage, hash: String) -> Arc<Self> {
        let mut scales = ByteCounter(AROUND);
        // Writing to a counter does not fail.
        let _weighed = serde_json::to_writer(&mut scales, &event);
        Arc::new(Self { event, hash, text: OnceLock::new(), weight: scales.0 })
    }

    /// The event in the format of server-sent events.
    pub(crate) fn text(&self) -> Bytes {
        let text = || format!("id: {}\nevent: {}\ndata: {}\n\n", self.seq, self.kind, text(&self.event));
        self.text.get_or_init(|| text().into()).clone()
    }
}

impl Deref for SharedEvent {
    type Target = EventMessage;

    fn deref(&self) -> &EventMessage {
        &self.event
    }
}

/// Counts the bytes written to it.
struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An event on its way to one subscriber.
#[derive(Debug)]
pub(crate) struct OutboundEvent {
    told: Arc<SharedEvent>,
    room: Arc<EventPermit>,
}

impl OutboundEvent {
    /// The server-sent event, which holds its permit until it is sent.
    pub(crate) fn text(&self) -> Bytes {
        within_budget(self.told.text(), Some(self.room()))
    }

    pub(crate) fn room(&self) -> Arc<EventPermit> {
        Arc::clone(&self.room)
    }
}

impl Deref for OutboundEvent {
    type Target = EventMessage;

    fn deref(&self) -> &EventMessage {
        &self.told.event
    }
}

/// The newest events, without a gap up to the head.
#[derive(Debug, Default)]
struct RecentEvents {
    events: VecDeque<Arc<SharedEvent>>,
    weight: usize,
}

impl RecentEvents {
    fn extend(&mut self, events: Vec<Arc<SharedEvent>>) {
        self.weight += encoded_len(&events);
        self.events.extend(events);
        while (self.events.len() > NEWEST || self.weight > NEWEST_WEIGHT)
            && let Some(oldest) = self.events.pop_front()
        {
            self.weight -= oldest.weight;
        }
    }
}

fn encoded_len(events: &[Arc<SharedEvent>]) -> usize {
    events.iter().map(|event| event.weight).sum()
}

#[derive(Debug)]
pub(crate) struct EventFeed {
    newest: Mutex<RecentEvents>,
    head: watch::Sender<u64>,
    pub(crate) hall: EventBudget,
    shelf: Arc<tokio::sync::Mutex<EventCache>>,
}

impl EventFeed {
    /// A feed for a ledger with `head` records. Subscribers without a position start after them.
    pub(crate) fn after_those(head: u64) -> Self {
        let (newest, shelf) = (Mutex::default(), Arc::default());
        Self { newest, head: watch::Sender::new(head), hall: EventBudget::default(), shelf }
    }

    /// Number of the last known record.
    pub(crate) fn head(&self) -> u64 {
        *self.head.borrow()
    }

    /// Notifies of new records.
    pub(crate) fn heads(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    /// The events after `after`, if all of them are in memory.
    fn after(&self, after: u64) -> Option<Vec<Arc<SharedEvent>>> {
        let newest = self.newest();
        match newest.events.front() {
            Some(first) if first.seq <= after + 1 => {
                let later = newest.events.iter().filter(|event| event.seq > after);
                Some(later.take(PAGE as usize).cloned().collect())
            }
            _ => None,
        }
    }

    fn add(&self, events: Vec<Arc<SharedEvent>>) {
        let Some(last) = events.last().map(|event| event.seq) else { return };
        self.newest().extend(events);
        self.head.send_replace(last);
    }

    /// Loads the newest records written before the start: clients that reconnect after a restart ask for them.
    fn remember(&self, reader: &LedgerReader) -> Result<(), LedgerReadError> {
        let head = self.head();
        let mut after = head.saturating_sub(NEWEST as u64);
        let mut remembered = RecentEvents::default();
        while after < head {
            let page = page(reader, after, head)?;
            after = page.reached(after, head);
            remembered.extend(page.events);
        }
        let mut newest = self.newest();
        if newest.events.is_empty() {
            *newest = remembered;
        }
        Ok(())
    }

    /// Drops the page cache when the last subscriber is gone.
    fn clear(&self) {
        // If the cache is locked, a subscriber is reading and clears it later.
        if let Ok(mut shelf) = self.shelf.try_lock() {
            *shelf = EventCache::default();
        }
    }

    fn newest(&self) -> MutexGuard<'_, RecentEvents> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the ledger, including records of other processes, as long as the daemon runs. A failed read is retried, so
/// that subscribers miss nothing while a disk is full.
pub(crate) fn follow(daemon: &Daemon) {
    let mut said = None;
    while !daemon.has_ended() {
        if let Err(error) = follow_while_it_can_be_read(daemon) {
            if said.as_ref() != Some(&error.message) {
                tracing::error!(error = %error, "cannot read the ledger; retrying");
            }
            said = Some(error.message);
            std::thread::sleep(AGAIN);
        }
    }
}

fn follow_while_it_can_be_read(daemon: &Daemon) -> Result<(), ApiError> {
    let reader = daemon.runtime.ledger().reader().map_err(|error| unavailable(&error))?;
    daemon.events.remember(&reader).map_err(|error| unavailable(&error))?;
    let mut seen = None;
    while !daemon.has_ended() {
        let version = reader.version().map_err(|error| unavailable(&error))?;
        let is_all = seen.replace(version) == Some(version) || {
            let page = page(&reader, daemon.events.head(), u64::MAX).map_err(|error| unavailable(&error))?;
            let is_all = page.is_whole;
            daemon.events.add(page.events);
            is_all
        };
        if is_all {
            std::thread::sleep(LOOK);
        } else {
            seen = None;
        }
    }
    Ok(())
}

/// Number of the last record.
pub(crate) fn end_of(ledger: &Ledger) -> Result<u64, ApiError> {
    let reader = ledger.reader().map_err(|error| unavailable(&error))?;
    Ok(reader.head().map_err(|error| unavailable(&error))?.map_or(0, |head| head.seq))
}

/// Consecutive events.
struct EventPage {
    events: Vec<Arc<SharedEvent>>,
    /// False if the page ended early because of its weight.
    is_whole: bool,
}

impl EventPage {
    /// The last record number that the page covers, within the requested range.
    fn reached(&self, after: u64, last: u64) -> u64 {
        let read = self.events.last().map_or(after, |event| event.seq);
        if self.is_whole { read.max(last) } else { read }
    }
}

/// Reads records after `after` up to `last`: at least one, and no more than a page may weigh.
fn page(reader: &LedgerReader, after: u64, last: u64) -> Result<EventPage, LedgerReadError> {
    let mut page = EventPage { events: Vec::new(), is_whole: true };
    let mut weight = 0;
    reader.each(&RecordFilter { after, ..RecordFilter::default() }, |listed| {
        let event = SharedEvent::of(listed);
        if event.seq > last {
            return ControlFlow::Break(());
        }
        weight += event.weight;
        if weight > PAGE_WEIGHT && !page.events.is_empty() {
            page.is_whole = false;
            return ControlFlow::Break(());
        }
        let is_last = event.seq == last;
        page.events.push(event);
        if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(page)
}

/// Pages of older events, read by one reader and shared by subscribers.
#[derive(Debug, Default)]
struct EventCache {
    reader: Option<LedgerReader>,
    /// In order of use, the most recently used last.
    pages: VecDeque<CachedRange>,
    weight: usize,
}

/// All events after `after`, up to and including `reached`.
#[derive(Clone, Debug)]
struct CachedRange {
    after: u64,
    reached: u64,
    events: Arc<[Arc<SharedEvent>]>,
}

impl EventCache {
    /// The cached page that contains the record after `after`.
    fn find(&mut self, after: u64) -> Option<CachedRange> {
        let at = self.pages.iter().position(|page| page.after <= after && after < page.reached)?;
        let page = self.pages.remove(at)?;
        self.pages.push_back(page.clone());
        Some(page)
    }

    /// Reads and caches the page after `after`, in a ledger that ends at `head`.
    fn read(&mut self, ledger: &Ledger, after: u64, head: u64) -> Result<CachedRange, ApiError> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => ledger.reader().map_err(|error| unavailable(&error))?,
        };
        let last = end_of_page(after).min(head);
        let read = page(&reader, after, last).map_err(|error| unavailable(&error))?;
        self.reader = Some(reader);
        let shelved = CachedRange { after, reached: read.reached(after, last), events: read.events.into() };
        self.keep(shelved.clone());
        Ok(shelved)
    }

    fn keep(&mut self, shelved: CachedRange) {
        self.weight += encoded_len(&shelved.events);
        self.pages.push_back(shelved);
        while (self.pages.len() > PAGES || self.weight > PAGES_WEIGHT)
            && let Some(oldest) = self.pages.pop_front()
        {
            self.weight -= encoded_len(&oldest.events);
        }
    }
}

fn end_of_page(after: u64) -> u64 {
    (after / PAGE).saturating_add(1).saturating_mul(PAGE)
}

fn happened(listed: RecordOrPruned) -> EventMessage {
    match listed {
        RecordOrPruned::Whole(record) => EventMessage {
            seq: record.seq,
            time: record.time,
            kind: record.event.kind().word().to_owned(),
            session: record.event.session().cloned(),
            event: serde_json::to_value(&record.event).unwrap_or_default(),
        },
        RecordOrPruned::Pruned(pruned) => EventMessage {
            seq: pruned.seq,
            time: pruned.time,
            kind: pruned.kind,
            session: None,
            event: serde_json::Value::Null,
        },
    }
}

/// Which events a subscriber receives.
#[derive(Debug)]
struct EventFilter {
    session: Option<SessionId>,
    caller: Caller,
}

impl EventFilter {
    fn has(&self, daemon: &Daemon, event: &EventMessage) -> bool {
        if self.session.is_some() && self.session != event.session {
            return false;
        }
        if self.caller.rights.workspaces.is_any() {
            return true;
        }
        let session = event.session.as_ref().and_then(|id| daemon.sessions.show(id).ok());
        session.is_some_and(|session| self.caller.rights.covers_workspace(&session.workspace))
    }
}

/// Sends events to `sender` until the subscriber is gone.
pub(crate) async fn subscribe(
    daemon: Arc<Daemon>,
    caller: Caller,
    seat: Subscriber,
    request: Subscribe,
    sender: mpsc::Sender<StreamItem>,
) {
    let _before = daemon.meters.subscribers.fetch_add(1, Ordering::Relaxed);
    let wanted = EventFilter { session: request.session, caller };
    let mut head = daemon.events.head.subscribe();
    let mut after = request.after.unwrap_or(*head.borrow());
    loop {
        if *head.borrow_and_update() > after {
            match send(&daemon, &wanted, &seat, after, &sender).await {
                Some(reached) => after = reached,
                None => break,
            }
            continue;
        }
        tokio::select! {
            () = sender.closed() => break,
            changed = head.changed() => if changed.is_err() { break },
        }
    }
    if daemon.meters.subscribers.fetch_sub(1, Ordering::Relaxed) == 1 {
        daemon.events.clear();
    }
}

/// Sends the next events after `after`, and returns the new position. `None`: the subscriber is gone or too slow.
async fn send(
    daemon: &Arc<Daemon>,
    wanted: &EventFilter,
    seat: &Subscriber,
    after: u64,
    sender: &mpsc::Sender<StreamItem>,
) -> Option<u64> {
    let slow = || {
        let _before = daemon.meters.dropped.fetch_add(1, Ordering::Relaxed);
        None
    };
    // The permit first, then the events, so that unread events stay bounded.
    let Some(room) = seat.room(PATIENCE).await else { return slow() };
    let (events, reached) = next(daemon, after).await.ok()?;
    let (events, reached) = fill_page(events, reached, &room, &|event| wanted.has(daemon, event));
    let Some(room) = seat.reserve(room, encoded_len(&events), PATIENCE).await else { return slow() };
    for told in events {
        let sent = StreamItem::Event(OutboundEvent { told, room: Arc::clone(&room) });
        match tokio::time::timeout(PATIENCE, sender.send(sent)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return None,
            Err(_) => return slow(),
        }
    }
    Some(reached)
}

/// The events that match and fit into the permit, at least one. Returns the position that they cover.
fn fill_page(
    events: Vec<Arc<SharedEvent>>,
    reached: u64,
    room: &EventPermit,
    is_wanted: &dyn Fn(&EventMessage) -> bool,
) -> (Vec<Arc<SharedEvent>>, u64) {
    let (mut fit, mut weight) = (Vec::new(), 0);
    for event in events.into_iter().filter(|event| is_wanted(event)) {
        weight += event.weight;
        if weight > room.most && !fit.is_empty() {
            // The position just before the event that does not fit.
            return (fit, event.seq - 1);
        }
        fit.push(event);
    }
    (fit, reached)
}

/// The next events after `after`, and the position that they cover.
pub(crate) async fn next(daemon: &Arc<Daemon>, after: u64) -> Result<(Vec<Arc<SharedEvent>>, u64), ApiError> {
    let head = daemon.events.head();
    if let Some(events) = daemon.events.after(after) {
        let reached = events.last().map_or(after, |event| event.seq);
        return Ok((events, reached));
    }
    // Subscribers that need the same page wait here and find it in the cache.
    let mut shelf = Arc::clone(&daemon.events.shelf).lock_owned().await;
    let page = match shelf.find(after) {
        Some(found) => found,
        None => {
            let daemon = Arc::clone(daemon);
            let read = move || shelf.read(daemon.runtime.ledger(), after, head);
            tokio::task::spawn_blocking(read).await.map_err(|error| internal(&error))??
        }
    };
    let events = page.events.iter().filter(|event| event.seq > after).cloned().collect();
    Ok((events, page.reached))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(seq: u64, length: usize) -> Arc<SharedEvent> {
        let event = serde_json::Value::from("x".repeat(length));
        let time = String::new();
        SharedEvent::new(
            EventMessage { seq, time, kind: "activity-reported".to_owned(), session: None, event },
            String::new(),
        )
    }

    #[test]
    fn what_is_kept_is_weighed() {
        let mut newest = RecentEvents::default();
        (0..2000).for_each(|seq| newest.extend(vec![encode(seq, 10)]));
        assert_eq!(
            (newest.events.len(), newest.events.back().unwrap().seq),
            (NEWEST, 1999),
            "small ones are counted"
        );
        (2000..2100).for_each(|seq| newest.extend(vec![encode(seq, 100_000)]));
        assert!(newest.weight <= NEWEST_WEIGHT && newest.events.len() < 50, "{}", newest.events.len());
        assert_eq!(newest.weight, newest.events.iter().map(|event| event.weight).sum::<usize>());
        assert_eq!(newest.events.back().unwrap().seq, 2099, "the newest stay");
        let seqs: Vec<u64> = newest.events.iter().map(|event| event.seq).collect();
        assert!(seqs.is_sorted_by(|one, next| one + 1 == *next), "without a gap");
    }

    #[tokio::test]
    async fn no_more_is_sent_at_once_than_there_is_room_for() {
        let hall = EventBudget::default();
        let seat = hall.seat().unwrap();
        let room = seat.room(PATIENCE).await.unwrap();
        let events: Vec<Arc<SharedEvent>> = (1..=64).map(|seq| encode(seq, 16_000)).collect();
        let (fit, reached) = fill_page(events.clone(), 64, &room, &|_| true);
        assert!(encoded_len(&fit) <= room.most && fit.len() > 1, "{}", fit.len());
        assert_eq!(reached, fit.last().unwrap().seq, "the rest comes later");
        let (fit, reached) = fill_page(events.clone(), 70, &room, &|event| event.seq == 64);
        assert_eq!((fit.len(), reached), (1, 70));
        let (fit, reached) = fill_page(events, 64, &room, &|event| event.seq % 10 == 0);
        assert_eq!((fit.len(), reached), (3, 39), "what nobody wants is not waited for");
        let (fit, _) = fill_page(vec![encode(1, 1_000_000)], 1, &room, &|_| true);
        assert_eq!(fit.len(), 1, "one is sent however long it is");
    }
}
