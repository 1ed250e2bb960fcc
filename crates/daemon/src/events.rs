//! What happens, as it happens: the ledger, followed.
//!
//! Nothing is kept for a subscriber. Each has a place in the ledger and goes on from there at its own pace. The newest events are
//! in memory once for all of them; older ones are read in pages by one reader, and whoever wants the same page gets the same
//! one, also as the same bytes. Whoever does not read for too long is let go, and can go on where it was.

use std::collections::VecDeque;
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
use crate::server::Daemon;

/// In memory, for all subscribers.
const NEWEST: usize = 1024;
/// Read from the ledger at once: those with the numbers from one multiple of this to the next.
const PAGE: u64 = 64;
/// Pages in memory, for all subscribers.
const PAGES: usize = 32;
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
    text: OnceLock<Bytes>,
}

impl Told {
    fn new(event: Happened) -> Arc<Self> {
        Arc::new(Self { event, text: OnceLock::new() })
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

#[derive(Debug)]
pub(crate) struct Events {
    newest: Mutex<VecDeque<Arc<Told>>>,
    head: watch::Sender<u64>,
    shelf: Arc<tokio::sync::Mutex<Shelf>>,
}

impl Events {
    /// Of a ledger that has `head` events by now. Whoever does not say from where begins behind them.
    pub(crate) fn after_those(head: u64) -> Self {
        Self { newest: Mutex::default(), head: watch::Sender::new(head), shelf: Arc::default() }
    }

    /// The last one that is known of.
    pub(crate) fn head(&self) -> u64 {
        *self.head.borrow()
    }

    /// What came after `after`, as far as it is in memory. `None`: some of it is not.
    fn after(&self, after: u64) -> Option<Vec<Arc<Told>>> {
        let newest = self.newest();
        match newest.front() {
            Some(first) if first.seq <= after + 1 => {
                let later = newest.iter().filter(|event| event.seq > after);
                Some(later.take(PAGE as usize).cloned().collect())
            }
            _ => None,
        }
    }

    fn add(&self, events: Vec<Happened>) {
        let Some(last) = events.last().map(|event| event.seq) else { return };
        let mut newest = self.newest();
        newest.extend(events.into_iter().map(Told::new));
        while newest.len() > NEWEST {
            let _oldest = newest.pop_front();
        }
        drop(newest);
        self.head.send_replace(last);
    }

    /// Those that were written before anybody followed: who comes back after a restart was here not long ago.
    fn remember(&self, reader: &LedgerReader) -> Result<(), ReadError> {
        let head = self.head();
        let events = page(reader, (head.saturating_sub(NEWEST as u64), head))?;
        let mut newest = self.newest();
        if newest.is_empty() {
            newest.extend(events.into_iter().map(Told::new));
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

    fn newest(&self) -> MutexGuard<'_, VecDeque<Arc<Told>>> {
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
        if seen.replace(version) != Some(version) {
            let last = daemon.events.head();
            daemon.events.add(page(&reader, (last, u64::MAX)).map_err(|error| unavailable(&error))?);
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Where the ledger ends.
pub(crate) fn end_of(ledger: &Ledger) -> Result<u64, ApiError> {
    let reader = ledger.reader().map_err(|error| unavailable(&error))?;
    Ok(reader.head().map_err(|error| unavailable(&error))?.map_or(0, |head| head.seq))
}

/// What has a number above the first and none above the last.
fn page(reader: &LedgerReader, (after, last): (u64, u64)) -> Result<Vec<Happened>, ReadError> {
    let mut found = Vec::new();
    reader.each(&Filter { after, ..Filter::default() }, |listed| {
        let event = happened(listed);
        if event.seq > last {
            return ControlFlow::Break(());
        }
        let is_last = event.seq == last;
        found.push(event);
        if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// Older events: read by one reader, and kept for whoever else wants them.
#[derive(Debug, Default)]
struct Shelf {
    reader: Option<LedgerReader>,
    /// The one that was last of use at the end.
    pages: VecDeque<(u64, Arc<[Arc<Told>]>)>,
}

impl Shelf {
    fn find(&mut self, number: u64) -> Option<Arc<[Arc<Told>]>> {
        let at = self.pages.iter().position(|(known, _)| *known == number)?;
        let page = self.pages.remove(at)?;
        let events = Arc::clone(&page.1);
        self.pages.push_back(page);
        Some(events)
    }

    /// Page `number` of a ledger that ends at `head`.
    fn read(&mut self, ledger: &Ledger, (number, head): (u64, u64)) -> Result<Arc<[Arc<Told>]>, ApiError> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => ledger.reader().map_err(|error| unavailable(&error))?,
        };
        let last = number.saturating_add(1).saturating_mul(PAGE);
        let events =
            page(&reader, (number.saturating_mul(PAGE), last)).map_err(|error| unavailable(&error))?;
        self.reader = Some(reader);
        let events: Arc<[Arc<Told>]> = events.into_iter().map(Told::new).collect();
        // What is not full yet is another page later.
        if last <= head {
            self.pages.push_back((number, Arc::clone(&events)));
        }
        if self.pages.len() > PAGES {
            let _oldest = self.pages.pop_front();
        }
        Ok(events)
    }
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
    caller: Caller,
    request: Subscribe,
    sender: mpsc::Sender<Item>,
) {
    let _before = daemon.meters.subscribers.fetch_add(1, Ordering::Relaxed);
    let wanted = Wanted { session: request.session, caller };
    let mut head = daemon.events.head.subscribe();
    let mut after = request.after.unwrap_or(*head.borrow());
    while let Ok((events, reached)) = next(&daemon, after).await {
        for event in events.into_iter().filter(|event| wanted.has(&daemon, event)) {
            match tokio::time::timeout(PATIENCE, sender.send(Item::Event(event))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return left(&daemon),
                Err(_) => {
                    let _before = daemon.meters.dropped.fetch_add(1, Ordering::Relaxed);
                    return left(&daemon);
                }
            }
        }
        after = reached;
        if *head.borrow_and_update() > after {
            continue;
        }
        tokio::select! {
            () = sender.closed() => return left(&daemon),
            changed = head.changed() => if changed.is_err() { return left(&daemon) },
        }
    }
    left(&daemon);
}

fn left(daemon: &Daemon) {
    if daemon.meters.subscribers.fetch_sub(1, Ordering::Relaxed) == 1 {
        daemon.events.clear();
    }
}

/// What comes next after `after`, and up to where that is everything.
async fn next(daemon: &Arc<Daemon>, after: u64) -> Result<(Vec<Arc<Told>>, u64), ApiError> {
    let head = daemon.events.head();
    if head <= after {
        return Ok((Vec::new(), after));
    }
    if let Some(events) = daemon.events.after(after) {
        let reached = events.last().map_or(after, |event| event.seq);
        return Ok((events, reached));
    }
    let number = after / PAGE;
    // Whoever wants the same page waits here, and finds it.
    let mut shelf = Arc::clone(&daemon.events.shelf).lock_owned().await;
    let page = match shelf.find(number) {
        Some(page) => page,
        None => {
            let daemon = Arc::clone(daemon);
            let read = move || shelf.read(daemon.runtime.ledger(), (number, head));
            tokio::task::spawn_blocking(read).await.map_err(|error| internal(&error))??
        }
    };
    let events: Vec<Arc<Told>> = page.iter().filter(|event| event.seq > after).cloned().collect();
    let whole = number.saturating_add(1).saturating_mul(PAGE).min(head);
    let reached = events.last().map_or(whole, |event| event.seq.max(whole));
    Ok((events, reached))
}
