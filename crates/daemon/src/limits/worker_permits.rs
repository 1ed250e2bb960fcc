//! Worker permits: how many blocking threads sessions and unauthenticated clients use at once. A waiting request holds
//! no thread. Operators need no permit, so a thread is always free to stop, answer or revoke.

use ringfence_api::{ApiError, Method, MethodAccess};

use crate::admit::authenticate::ListenerKind;
use crate::admit::dispatch::IncomingRequest;
use crate::errors::exhausted;
use crate::limits::budget::{Budget, Permit};
use crate::server::Daemon;
use crate::transport::http::{PATIENCE, too_many};

/// Concurrent requests without a token.
const STRANGERS: usize = 8;
/// Concurrent requests of all sessions besides calls. Fewer than the threads reserved for requests that are not calls.
const DOORS: usize = 128;
/// The same for one session.
pub(crate) const OF_A_DOOR: usize = 16;

#[derive(Debug)]
pub(crate) struct WorkerPool {
    strangers: Budget,
    doors: Budget,
}

impl Default for WorkerPool {
    fn default() -> Self {
        Self { strangers: Budget::new(STRANGERS), doors: Budget::new(DOORS) }
    }
}

/// The permits of one session.
#[derive(Clone, Debug)]
pub(crate) struct SessionWorkers {
    /// Calls: they wait for a person, a disk or a command.
    calls: Budget,
    /// All other requests.
    rest: Budget,
}

impl SessionWorkers {
    pub(crate) fn new(calls: usize) -> Self {
        Self { calls: Budget::new(calls), rest: Budget::new(OF_A_DOOR) }
    }
}

/// Waits until the request may use a thread. The permit is released with the thread.
pub(crate) async fn acquire(daemon: &Daemon, arrived: &IncomingRequest) -> Result<Permit, ApiError> {
    let WorkerPool { strangers, doors } = &daemon.turns;
    match (&arrived.entrance, arrived.method.access()) {
        (ListenerKind::Door(session), _) => {
            // If the session has ended, the later admission of the request reports it.
            match daemon.sessions.find(session).ok().map(|live| live.turns.clone()) {
                // The bound on calls of one session, over all its connections.
                Some(own) if is_call(arrived.method) => {
                    let slot = own.calls.try_acquire(1);
                    slot.ok_or_else(|| exhausted("the session has too many calls under way"))
                }
                // The session's own permit first, so that its excess requests do not wait in the shared queue.
                Some(own) => one_of([&own.rest, doors]).await,
                None => for_others(doors, arrived.method).await,
            }
        }
        (ListenerKind::Management, _) if is_owner(arrived) => Ok(Permit::default()),
        // A peer at the operators' socket that is not the owner, such as a process in a fence.
        (ListenerKind::Management, access) if access != MethodAccess::Anyone => {
            for_others(doors, arrived.method).await
        }
        (_, MethodAccess::Anyone) => one_of([strangers]).await,
        _ => Ok(Permit::default()),
    }
}

async fn for_others(doors: &Budget, method: Method) -> Result<Permit, ApiError> {
    // The session counts its calls itself.
    if is_call(method) { Ok(Permit::default()) } else { one_of([doors]).await }
}

fn is_owner(arrived: &IncomingRequest) -> bool {
    arrived.peer.is_some_and(|peer| peer.is_owner())
}

/// One slot of each budget.
async fn one_of<const N: usize>(budgets: [&Budget; N]) -> Result<Permit, ApiError> {
    Permit::acquire(budgets.map(|budget| budget.claim(1)).to_vec(), PATIENCE).await.ok_or_else(too_many)
}

/// Methods that hold a call slot, and a thread for as long.
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
            | Method::CallFetch
    );
    at_once && !method.reply().is_stream()
}
