//! What happens, as it happens: the ledger, followed.
//!
//! Nothing is kept for a subscriber. Each has a place in the ledger and goes on from there at its own pace. The newest events are
//! in memory once for all of them; older ones are read in pages by one reader, and whoever wants the same page gets the same
//! one, also as the same bytes. Whoever does not read for too long is let go, and can go on where it was.
//!
//! Events are weighed, not counted: an agent decides how long those about it are. So is what is under way ([`crate::room`]).

use std::collections::VecDeque;
use std::io;
use std::ops::{ControlFlow, Deref};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ringfence_api::{ApiError, Caller, Happened, Subscribe};
use ringfence_runtime::ledger::{Filter, Ledger, LedgerReader, Listed, ReadError};
use ringfence_types::SessionId;
use tokio::sync::{mpsc, watch};

use crate::ask::Item;
use crate::failure::{internal, unavailable};
use crate::http::text;
use crate::room::{Hall, Room, Seat, roomy};
use crate::server::Daemon;

/// In memory, for all subscribers: so many, and of no more weight.
const NEWEST: usize = 1024;
const NEWEST_WEIGHT: usize = 4 * 1024 * 1024;
/// Read from the ledger at once, up to the next multiple of this.
const PAGE: u64 = 64;
/// So heavy a page is not read to its end.
const PAGE_WEIGHT: usize = 256 * 1024;
/// Pages in memory, for all subscribers.
const PAGES: usize = 32;
const PAGES_WEIGHT: usize = 4 * 1024 * 1024;
/// What an event weighs besides its text.
const AROUND: usize = 512;
/// How often the ledger is looked at while somebody listens.
const LOOK: Duration = Duration::from_millis(20);
/// How long after it could not be read it is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// How long a subscriber may leave an event unread.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// An event, once for everybody who is told of it.
#[derive(Debug)]
pub(crate) struct Told {
    event: Happened,
    /// Of the chain.
    pub(crate) hash: String,
    text: OnceLock<Bytes>,
    /// About as many bytes as it has as text.
    weight: usize,
}

impl Told {
    fn of(listed: Listed) -> Arc<Self> {
        let hash = match &listed {
            Listed::Whole(record) => record.hash.clone(),
            Listed::Pruned(pruned) => pruned.hash.clone(),
        };
        Self::new(happened(listed), hash)
    }

    fn new(event: Happened, hash: String) -> Arc<Self> {
        let mut scales = Scales(AROUND);
        // Scales take everything.
        let _weighed = serde_json::to_writer(&mut scales, &event);
        Arc::new(Self { event, hash, text: OnceLock::new(), weight: scales.0 })
    }

    /// As browsers want it.
    pub(crate) fn text(&self) -> Bytes {
        let text = || format!("id: {}\nevent: {}\ndata: {}\n\n", self.seq, self.kind, text(&self.event));
        self.text.get_or_init(|| text().into()).clone()
    }
}

impl Deref for Told {
    type Target = Happened;

    fn deref(&self) -> &Happened {
        &self.event
    }
}

/// Counts what is written to it.
struct Scales(usize);

impl io::Write for Scales {
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
pub(crate) struct Sent {
    told: Arc<Told>,
    room: Arc<Room>,
}

impl Sent {
    /// As browsers want it, for as long as it takes to be sent.
    pub(crate) fn text(&self) -> Bytes {
        roomy(self.told.text(), Some(self.room()))
    }

    pub(crate) fn room(&self) -> Arc<Room> {
        Arc::clone(&self.room)
    }
}

impl Deref for Sent {
    type Target = Happened;

    fn deref(&self) -> &Happened {
        &self.told.event
    }
}

/// The newest events. One after the other, without a gap up to the last that is known of.
#[derive(Debug, Default)]
struct Newest {
    events: VecDeque<Arc<Told>>,
    weight: usize,
}

impl Newest {
    fn extend(&mut self, events: Vec<Arc<Told>>) {
        self.weight += weight(&events);
        self.events.extend(events);
        while (self.events.len() > NEWEST || self.weight > NEWEST_WEIGHT)
            && let Some(oldest) = self.events.pop_front()
        {
            self.weight -= oldest.weight;
        }
    }
}

fn weight(events: &[Arc<Told>]) -> usize {
    events.iter().map(|event| event.weight).sum()
}

#[derive(Debug)]
pub(crate) struct Events {
    newest: Mutex<Newest>,
    head: watch::Sender<u64>,
    pub(crate) hall: Hall,
    shelf: Arc<tokio::sync::Mutex<Shelf>>,
}

impl Events {
    /// Of a ledger that has `head` events by now. Whoever does not say from where begins behind them.
    pub(crate) fn after_those(head: u64) -> Self {
        let (newest, shelf) = (Mutex::default(), Arc::default());
        Self { newest, head: watch::Sender::new(head), hall: Hall::default(), shelf }
    }

    /// The last one that is known of.
    pub(crate) fn head(&self) -> u64 {
        *self.head.borrow()
    }

    /// For whoever waits for the next.
    pub(crate) fn heads(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    /// What came after `after`, as far as it is in memory. `None`: some of it is not.
    fn after(&self, after: u64) -> Option<Vec<Arc<Told>>> {
        let newest = self.newest();
        match newest.events.front() {
            Some(first) if first.seq <= after + 1 => {
                let later = newest.events.iter().filter(|event| event.seq > after);
                Some(later.take(PAGE as usize).cloned().collect())
            }
            _ => None,
        }
    }

    fn add(&self, events: Vec<Arc<Told>>) {
        let Some(last) = events.last().map(|event| event.seq) else { return };
        self.newest().extend(events);
        self.head.send_replace(last);
    }

    /// Those that were written before anybody followed: who comes back after a restart was here not long ago.
    fn remember(&self, reader: &LedgerReader) -> Result<(), ReadError> {
        let head = self.head();
        let mut after = head.saturating_sub(NEWEST as u64);
        let mut remembered = Newest::default();
        while after < head {
            let page = page(reader, (after, head))?;
            after = page.reached((after, head));
            remembered.extend(page.events);
        }
        let mut newest = self.newest();
        if newest.events.is_empty() {
            *newest = remembered;
        }
        Ok(())
    }

    /// Nobody listens any more.
    fn clear(&self) {
        // Whoever reads now listens, and clears it later.
        if let Ok(mut shelf) = self.shelf.try_lock() {
            *shelf = Shelf::default();
        }
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows the ledger, also what other processes write to it, for as long as the daemon lives. What cannot be read now is read later:
/// nobody who listens learns of less because a disk was full for a while.
pub(crate) fn follow(daemon: &Daemon) {
    let mut said = None;
    while !daemon.has_ended() {
        if let Err(error) = follow_while_it_can_be_read(daemon) {
            if said.as_ref() != Some(&error.message) {
                tracing::error!(why = %error, "the ledger cannot be followed; it is tried again");
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
            let page =
                page(&reader, (daemon.events.head(), u64::MAX)).map_err(|error| unavailable(&error))?;
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

/// Where the ledger ends.
pub(crate) fn end_of(ledger: &Ledger) -> Result<u64, ApiError> {
    let reader = ledger.reader().map_err(|error| unavailable(&error))?;
    Ok(reader.head().map_err(|error| unavailable(&error))?.map_or(0, |head| head.seq))
}

/// Some events, one after the other.
struct Page {
    events: Vec<Arc<Told>>,
    /// Whether these are all that were asked for, or as many as are not too heavy.
    is_whole: bool,
}

impl Page {
    /// Up to where this is everything, of what has a number above the first and none above the last.
    fn reached(&self, (after, last): (u64, u64)) -> u64 {
        let read = self.events.last().map_or(after, |event| event.seq);
        if self.is_whole { read.max(last) } else { read }
    }
}

/// What has a number above the first and none above the last: at least one event, and no more than are not too heavy.
fn page(reader: &LedgerReader, (after, last): (u64, u64)) -> Result<Page, ReadError> {
    let mut page = Page { events: Vec::new(), is_whole: true };
    let mut weight = 0;
    reader.each(&Filter { after, ..Filter::default() }, |listed| {
        let event = Told::of(listed);
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

/// Older events: read by one reader, and kept for whoever else wants them.
#[derive(Debug, Default)]
struct Shelf {
    reader: Option<LedgerReader>,
    /// The one that was last of use at the end.
    pages: VecDeque<Shelved>,
    weight: usize,
}

/// All events with numbers above the first and none above the last of two.
#[derive(Clone, Debug)]
struct Shelved {
    after: u64,
    reached: u64,
    events: Arc<[Arc<Told>]>,
}

impl Shelf {
    /// Something that has what comes after `after`.
    fn find(&mut self, after: u64) -> Option<Shelved> {
        let at = self.pages.iter().position(|page| page.after <= after && after < page.reached)?;
        let page = self.pages.remove(at)?;
        self.pages.push_back(page.clone());
        Some(page)
    }

    /// What comes after `after` in a ledger that ends at `head`.
    fn read(&mut self, ledger: &Ledger, (after, head): (u64, u64)) -> Result<Shelved, ApiError> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => ledger.reader().map_err(|error| unavailable(&error))?,
        };
        let last = end_of_page(after).min(head);
        let read = page(&reader, (after, last)).map_err(|error| unavailable(&error))?;
        self.reader = Some(reader);
        let shelved = Shelved { after, reached: read.reached((after, last)), events: read.events.into() };
        self.keep(shelved.clone());
        Ok(shelved)
    }

    fn keep(&mut self, shelved: Shelved) {
        self.weight += weight(&shelved.events);
        self.pages.push_back(shelved);
        while (self.pages.len() > PAGES || self.weight > PAGES_WEIGHT)
            && let Some(oldest) = self.pages.pop_front()
        {
            self.weight -= weight(&oldest.events);
        }
    }
}

fn end_of_page(after: u64) -> u64 {
    (after / PAGE).saturating_add(1).saturating_mul(PAGE)
}

fn happened(listed: Listed) -> Happened {
    match listed {
        Listed::Whole(record) => Happened {
            seq: record.seq,
            time: record.time,
            kind: record.event.kind().word().to_owned(),
            session: record.event.session().cloned(),
            event: serde_json::to_value(&record.event).unwrap_or_default(),
        },
        Listed::Pruned(pruned) => Happened {
            seq: pruned.seq,
            time: pruned.time,
            kind: pruned.kind,
            session: None,
            event: serde_json::Value::Null,
        },
    }
}

/// Of which events a subscriber is told.
#[derive(Debug)]
struct Wanted {
    session: Option<SessionId>,
    caller: Caller,
}

impl Wanted {
    fn has(&self, daemon: &Daemon, event: &Happened) -> bool {
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

/// Sends what happens to `sender` until nobody takes it.
pub(crate) async fn subscribe(
    daemon: Arc<Daemon>,
    (caller, seat): (Caller, Seat),
    request: Subscribe,
    sender: mpsc::Sender<Item>,
) {
    let _before = daemon.meters.subscribers.fetch_add(1, Ordering::Relaxed);
    let wanted = Wanted { session: request.session, caller };
    let mut head = daemon.events.head.subscribe();
    let mut after = request.after.unwrap_or(*head.borrow());
    loop {
        if *head.borrow_and_update() > after {
            match tell(&daemon, (&wanted, &seat), after, &sender).await {
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

/// Tells a subscriber some of what comes after `after`, and says up to where. `None`: there is nobody to tell any more.
async fn tell(
    daemon: &Arc<Daemon>,
    (wanted, seat): (&Wanted, &Seat),
    after: u64,
    sender: &mpsc::Sender<Item>,
) -> Option<u64> {
    let slow = || {
        let _before = daemon.meters.dropped.fetch_add(1, Ordering::Relaxed);
        None
    };
    // First the room, then what is in it.
    let Some(room) = seat.room(PATIENCE).await else { return slow() };
    let (events, reached) = next(daemon, after).await.ok()?;
    let (events, reached) = as_many_as_fit(events, reached, (&room, &|event| wanted.has(daemon, event)));
    let Some(room) = seat.filled(room, weight(&events), PATIENCE).await else { return slow() };
    for told in events {
        let sent = Item::Event(Sent { told, room: Arc::clone(&room) });
        match tokio::time::timeout(PATIENCE, sender.send(sent)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return None,
            Err(_) => return slow(),
        }
    }
    Some(reached)
}

/// Those of the events that are wanted: one, and then as many as there is room for. And up to where these are all of them.
fn as_many_as_fit(
    events: Vec<Arc<Told>>,
    reached: u64,
    (room, is_wanted): (&Room, &dyn Fn(&Happened) -> bool),
) -> (Vec<Arc<Told>>, u64) {
    let (mut fit, mut weight) = (Vec::new(), 0);
    for event in events.into_iter().filter(|event| is_wanted(event)) {
        weight += event.weight;
        if weight > room.most && !fit.is_empty() {
            // The one before this, which was not wanted by whoever does not get it.
            return (fit, event.seq - 1);
        }
        fit.push(event);
    }
    (fit, reached)
}

/// What comes next after `after`, and up to where that is everything.
pub(crate) async fn next(daemon: &Arc<Daemon>, after: u64) -> Result<(Vec<Arc<Told>>, u64), ApiError> {
    let head = daemon.events.head();
    if let Some(events) = daemon.events.after(after) {
        let reached = events.last().map_or(after, |event| event.seq);
        return Ok((events, reached));
    }
    // Whoever wants the same page waits here, and finds it.
    let mut shelf = Arc::clone(&daemon.events.shelf).lock_owned().await;
    let page = match shelf.find(after) {
        Some(found) => found,
        None => {
            let daemon = Arc::clone(daemon);
            let read = move || shelf.read(daemon.runtime.ledger(), (after, head));
            tokio::task::spawn_blocking(read).await.map_err(|error| internal(&error))??
        }
    };
    let events = page.events.iter().filter(|event| event.seq > after).cloned().collect();
    Ok((events, page.reached))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(seq: u64, length: usize) -> Arc<Told> {
        let event = serde_json::Value::from("x".repeat(length));
        let time = String::new();
        Told::new(Happened { seq, time, kind: "activity".to_owned(), session: None, event }, String::new())
    }

    #[test]
    fn what_is_kept_is_weighed() {
        let mut newest = Newest::default();
        (0..2000).for_each(|seq| newest.extend(vec![told(seq, 10)]));
        assert_eq!(
            (newest.events.len(), newest.events.back().unwrap().seq),
            (NEWEST, 1999),
            "small ones are counted"
        );
        (2000..2100).for_each(|seq| newest.extend(vec![told(seq, 100_000)]));
        assert!(newest.weight <= NEWEST_WEIGHT && newest.events.len() < 50, "{}", newest.events.len());
        assert_eq!(newest.weight, newest.events.iter().map(|event| event.weight).sum::<usize>());
        assert_eq!(newest.events.back().unwrap().seq, 2099, "the newest stay");
        let seqs: Vec<u64> = newest.events.iter().map(|event| event.seq).collect();
        assert!(seqs.is_sorted_by(|one, next| one + 1 == *next), "without a gap");
    }

    #[tokio::test]
    async fn no_more_is_sent_at_once_than_there_is_room_for() {
        let hall = Hall::default();
        let seat = hall.seat().unwrap();
        let room = seat.room(PATIENCE).await.unwrap();
        let events: Vec<Arc<Told>> = (1..=64).map(|seq| told(seq, 16_000)).collect();
        let (fit, reached) = as_many_as_fit(events.clone(), 64, (&room, &|_| true));
        assert!(weight(&fit) <= room.most && fit.len() > 1, "{}", fit.len());
        assert_eq!(reached, fit.last().unwrap().seq, "the rest comes later");
        let (fit, reached) = as_many_as_fit(events.clone(), 70, (&room, &|event| event.seq == 64));
        assert_eq!((fit.len(), reached), (1, 70));
        let (fit, reached) = as_many_as_fit(events, 64, (&room, &|event| event.seq % 10 == 0));
        assert_eq!((fit.len(), reached), (3, 39), "what nobody wants is not waited for");
        let (fit, _) = as_many_as_fit(vec![told(1, 1_000_000)], 1, (&room, &|_| true));
        assert_eq!(fit.len(), 1, "one is sent however long it is");
    }
}
