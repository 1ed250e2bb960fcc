//! What happens, as it happens: the ledger, followed.
//!
//! Nothing is kept for a subscriber. Each has a place in the ledger and reads on from there at its own pace; the newest events
//! are in memory once for all of them. Whoever does not read for too long is let go, and can go on where it was.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_api::{ApiError, Caller, Happened, Subscribe};
use ringfence_runtime::ledger::{Filter, Ledger, LedgerReader, Listed, ReadError};
use ringfence_types::SessionId;
use tokio::sync::{mpsc, watch};

use crate::ask::Item;
use crate::failure::{internal, unavailable};
use crate::server::Daemon;

/// In memory, for all subscribers.
const NEWEST: usize = 1024;
/// Read from the ledger at once.
const PAGE: usize = 256;
/// How often the ledger is looked at while somebody listens.
const LOOK: Duration = Duration::from_millis(20);
/// How long after it could not be read it is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// How long a subscriber may leave an event unread.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Events {
    newest: Mutex<VecDeque<Arc<Happened>>>,
    head: watch::Sender<u64>,
}

impl Events {
    /// Of a ledger that has `head` events by now. Whoever does not say from where begins behind them.
    pub(crate) fn after_those(head: u64) -> Self {
        Self { newest: Mutex::default(), head: watch::Sender::new(head) }
    }

    /// The last one that is known of.
    pub(crate) fn head(&self) -> u64 {
        *self.head.borrow()
    }

    /// What came after `after`, as far as it is in memory. `None`: some of it is not.
    fn after(&self, after: u64) -> Option<Vec<Arc<Happened>>> {
        let newest = self.newest();
        match newest.front() {
            Some(first) if first.seq <= after + 1 => {
                Some(newest.iter().filter(|event| event.seq > after).take(PAGE).cloned().collect())
            }
            _ => None,
        }
    }

    fn add(&self, events: Vec<Happened>) {
        let Some(last) = events.last().map(|event| event.seq) else { return };
        let mut newest = self.newest();
        newest.extend(events.into_iter().map(Arc::new));
        while newest.len() > NEWEST {
            let _oldest = newest.pop_front();
        }
        drop(newest);
        self.head.send_replace(last);
    }

    fn newest(&self) -> MutexGuard<'_, VecDeque<Arc<Happened>>> {
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
    let mut seen = None;
    while !daemon.has_ended() {
        let version = reader.version().map_err(|error| unavailable(&error))?;
        if seen.replace(version) != Some(version) {
            let last = daemon.events.head();
            daemon.events.add(page(&reader, last, usize::MAX).map_err(|error| unavailable(&error))?);
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

fn page(reader: &LedgerReader, after: u64, most: usize) -> Result<Vec<Happened>, ReadError> {
    let mut found = Vec::new();
    reader.each(&Filter { after, ..Filter::default() }, |listed| {
        found.push(happened(listed));
        if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(found)
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
    while let Ok(events) = next(&daemon, after).await {
        let last = events.last().map(|event| event.seq);
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
        after = last.unwrap_or(after);
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
    let _before = daemon.meters.subscribers.fetch_sub(1, Ordering::Relaxed);
}

async fn next(daemon: &Arc<Daemon>, after: u64) -> Result<Vec<Arc<Happened>>, ApiError> {
    if *daemon.events.head.borrow() <= after {
        return Ok(Vec::new());
    }
    if let Some(events) = daemon.events.after(after) {
        return Ok(events);
    }
    let daemon = Arc::clone(daemon);
    let read = tokio::task::spawn_blocking(move || {
        let reader = daemon.runtime.ledger().reader().map_err(|error| unavailable(&error))?;
        page(&reader, after, PAGE).map_err(|error| unavailable(&error))
    });
    let events = read.await.map_err(|error| internal(&error))??;
    Ok(events.into_iter().map(Arc::new).collect())
}
