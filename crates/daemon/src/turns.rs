//! Whose turn it is: how many threads those have at once who could take all of them. Whoever waits here has none. Operators are not
//! counted, so that there is always a thread for whoever stops, answers or revokes.

use std::sync::Arc;

use ringfence_api::{Access, ApiError, Method};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::authenticate::Entrance;
use crate::dispatch::Arrived;
use crate::failure::exhausted;
use crate::http::{PATIENCE, too_many};
use crate::server::Daemon;

/// Requests that need no token, of everybody together.
const STRANGERS: usize = 8;
/// Requests of all sessions besides calls: less than the threads that are kept for what is no call.
const DOORS: usize = 128;
/// Those of one session.
pub(crate) const OF_A_DOOR: usize = 16;

#[derive(Debug)]
pub(crate) struct Turns {
    strangers: Arc<Semaphore>,
    doors: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        let [strangers, doors] = [STRANGERS, DOORS].map(|most| Arc::new(Semaphore::new(most)));
        Self { strangers, doors }
    }
}

/// What one session does at once.
#[derive(Clone, Debug)]
pub(crate) struct OfSession {
    /// What waits for a person, a disk or a command.
    calls: Arc<Semaphore>,
    /// Everything else.
    rest: Arc<Semaphore>,
}

impl OfSession {
    pub(crate) fn new(calls: usize) -> Self {
        let [calls, rest] = [calls, OF_A_DOOR].map(|most| Arc::new(Semaphore::new(most)));
        Self { calls, rest }
    }
}

/// Given back when the thread is.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    _held: Vec<OwnedSemaphorePermit>,
}

/// Waits until somebody may have a thread.
pub(crate) async fn turn(daemon: &Daemon, arrived: &Arrived) -> Result<Turn, ApiError> {
    match (&arrived.entrance, arrived.method.access()) {
        (Entrance::Door(session), _) => {
            // Whose session is gone is told so by whoever looks at the request.
            let own = daemon.sessions.find(session).ok().map(|live| live.turns.clone());
            let of_door = at_door(daemon, own, arrived.method);
            tokio::time::timeout(PATIENCE, of_door).await.unwrap_or_else(|_late| Err(too_many()))
        }
        (Entrance::Management, _) if is_owner(arrived) => Ok(Turn::default()),
        // Whoever is in a fence and reaches the socket of the operators all the same.
        (Entrance::Management, access) if access != Access::Anyone => {
            let others = at_door(daemon, None, arrived.method);
            tokio::time::timeout(PATIENCE, others).await.unwrap_or_else(|_late| Err(too_many()))
        }
        (_, Access::Anyone) => {
            let turn = waited([Arc::clone(&daemon.turns.strangers)]);
            tokio::time::timeout(PATIENCE, turn).await.unwrap_or_else(|_late| Err(too_many()))
        }
        _ => Ok(Turn::default()),
    }
}

async fn at_door(daemon: &Daemon, own: Option<OfSession>, method: Method) -> Result<Turn, ApiError> {
    let all = Arc::clone(&daemon.turns.doors);
    match own {
        // What is under way is counted with its session.
        None if is_call(method) => Ok(Turn::default()),
        None => waited([all]).await,
        // A session has no more calls than this, whoever makes them.
        Some(own) if is_call(method) => {
            let held = own.calls.try_acquire_owned();
            let held = held.map_err(|_none| exhausted("the session has too many calls under way"))?;
            Ok(Turn { _held: vec![held] })
        }
        // First its own, so that it waits in front of nobody else.
        Some(own) => waited([own.rest, all]).await,
    }
}

fn is_owner(arrived: &Arrived) -> bool {
    arrived.peer.is_some_and(|peer| peer.is_owner())
}

async fn waited<const N: usize>(all: [Arc<Semaphore>; N]) -> Result<Turn, ApiError> {
    let mut held = Vec::with_capacity(N);
    for one in all {
        held.push(one.acquire_owned().await.map_err(|_closed| too_many())?);
    }
    Ok(Turn { _held: held })
}

/// What takes a place among the calls of all sessions, and has a thread for as long.
fn is_call(method: Method) -> bool {
    let at_once = matches!(
        method,
        Method::CallExec
            | Method::FileRead
            | Method::FileWrite
            | Method::FileList
            | Method::FileStat
            | Method::FileMove
            | Method::FileRemove
            | Method::FileSend
            | Method::Fetch
    );
    at_once && !method.reply().is_stream()
}
