//! Memory budget for long responses, from encoding to the last byte sent. A client that asks and does not read holds a
//! bounded amount for a bounded time. Short responses need no permit.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ringfence_api::{ApiError, ErrorCode};
use ringfence_runtime::MemoryBudget;
use ringfence_runtime::identity::CredentialId;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::timeout;

use crate::limits::budget::{Budget, KeyedBudgets, Permit, within_budget};
use crate::transport::http::{PATIENCE, UNASKED};

/// Share of one session or token: half of each budget for all, so that one client leaves memory for another. The longest
/// response fits into it while it is made.
const MUCH_OF_ONE: usize = 96 * MIB;
const SOME_OF_ONE: usize = 32 * MIB;
/// Budget for responses longer than [`SOME`], each for all sessions, for operators, and for unauthenticated clients.
const MUCH_OF_ALL: usize = 192 * MIB;
/// Separate budget for shorter responses, so that they do not queue behind long ones.
const SOME_OF_ALL: usize = 64 * MIB;
const SOME: usize = MIB;
const MIB: usize = 1024 * 1024;
/// Copies of a response in memory: as read, as a value, and as sent.
const COPIES: u64 = 3;
/// Bytes per slice. A client that takes one slice per `unread` interval counts as reading.
const PIECE: usize = 16 * 1024;

#[derive(Clone, Copy, Debug)]
struct ResponseTiming {
    /// Longest wait for a permit.
    wait: Duration,
    /// Longest time without progress before the response is cut.
    unread: Duration,
}

impl Default for ResponseTiming {
    fn default() -> Self {
        Self { wait: PATIENCE, unread: Duration::from_secs(10) }
    }
}

#[derive(Debug)]
pub(crate) struct ResponseBudgets {
    timing: ResponseTiming,
    strangers: ResponsePool,
    operators: ResponsePool,
    sessions: ResponsePool,
    /// Shares of the operators' budget, by the oldest ancestor of a token: a token that makes others gains nothing.
    some_of_token: KeyedBudgets<CredentialId>,
    much_of_token: KeyedBudgets<CredentialId>,
}

impl Default for ResponseBudgets {
    fn default() -> Self {
        let [strangers, operators, sessions] = [(); 3].map(|()| ResponsePool::of_all());
        Self {
            timing: ResponseTiming::default(),
            strangers,
            operators,
            sessions,
            some_of_token: KeyedBudgets::new(SOME_OF_ONE),
            much_of_token: KeyedBudgets::new(MUCH_OF_ONE),
        }
    }
}

/// Memory for responses up to [`SOME`], and for longer ones.
#[derive(Clone, Debug)]
pub(crate) struct ResponsePool {
    some: Budget,
    much: Budget,
}

impl ResponsePool {
    fn of_all() -> Self {
        Self { some: Budget::new(SOME_OF_ALL), much: Budget::new(MUCH_OF_ALL) }
    }

    /// The share of one session.
    pub(crate) fn of_session() -> Self {
        Self { some: Budget::new(SOME_OF_ONE), much: Budget::new(MUCH_OF_ONE) }
    }

    fn fitting(&self, bytes: usize) -> &Budget {
        if bytes > SOME { &self.much } else { &self.some }
    }
}

/// The receiver of a response, which decides on the budget.
#[derive(Debug)]
pub(crate) enum ResponseOwner {
    /// An unauthenticated client.
    Stranger,
    /// The owner of the daemon, who has no token and no share.
    Operator,
    /// A token of this family.
    Token(CredentialId),
    /// A session with its own share.
    Session(ResponsePool),
}

impl ResponseBudgets {
    pub(crate) fn scale(&self, whose: ResponseOwner, handle: &Handle) -> ResponseMeter {
        let (pool, own) = match whose {
            ResponseOwner::Stranger => (&self.strangers, None),
            ResponseOwner::Operator => (&self.operators, None),
            ResponseOwner::Token(family) => (&self.operators, Some(self.share_of(family))),
            ResponseOwner::Session(own) => (&self.sessions, Some(own)),
        };
        ResponseMeter {
            pool: pool.clone(),
            own,
            timing: self.timing,
            handle: handle.clone(),
            making: Arc::default(),
            was_crowded: Arc::default(),
            gone: Arc::new(watch::Sender::new(false)),
        }
    }

    fn share_of(&self, family: CredentialId) -> ResponsePool {
        ResponsePool { some: self.some_of_token.of(family.clone()), much: self.much_of_token.of(family) }
    }
}

/// Acquires the memory of one response, while it is made and when it is sent.
#[derive(Clone, Debug)]
pub(crate) struct ResponseMeter {
    pool: ResponsePool,
    own: Option<ResponsePool>,
    timing: ResponseTiming,
    handle: Handle,
    making: Arc<Mutex<Option<Permit>>>,
    was_crowded: Arc<AtomicBool>,
    /// True once the client has disconnected.
    gone: Arc<watch::Sender<bool>>,
}

impl ResponseMeter {
    /// The client has disconnected: stops waiting for a permit.
    pub(crate) fn abort(&self) {
        let _before = self.gone.send_replace(true);
    }

    /// Acquires memory for a response made from that many bytes. Blocks for a bounded time, so only for blocking
    /// threads.
    pub(crate) fn room_for(&self, bytes: u64) -> Result<(), ApiError> {
        if bytes <= UNASKED as u64 || self.making().is_some() {
            return Ok(());
        }
        let bytes = usize::try_from(bytes.saturating_mul(COPIES)).unwrap_or(usize::MAX);
        let (told, hears) = std::sync::mpsc::sync_channel(1);
        let scale = self.clone();
        let _asking = self.handle.spawn(async move {
            let mut gone = scale.gone.subscribe();
            let permits = tokio::select! {
                permits = scale.permits(bytes) => permits,
                _gone = gone.wait_for(|is_gone| *is_gone) => Err(exhausted()),
            };
            let _unheard = told.send(permits);
        });
        let permits = hears.recv().unwrap_or_else(|_ended| Err(exhausted()));
        *self.making() = Some(permits.inspect_err(|_| self.was_crowded.store(true, Ordering::SeqCst))?);
        Ok(())
    }

    /// The error, if a permit could not be acquired.
    pub(crate) fn exhausted(&self) -> Option<ApiError> {
        self.was_crowded.load(Ordering::SeqCst).then(exhausted)
    }

    /// Splits a response into slices. Notifies `cut` if the client takes none of them for too long.
    pub(crate) async fn answer(&self, bytes: Bytes, cut: &Arc<Notify>) -> Result<ResponseSlices, ApiError> {
        let Some(permits) = self.fitting(bytes.len()).await? else { return Ok(ResponseSlices::from(bytes)) };
        let taken = Arc::new(AtomicUsize::new(0));
        let (there, gone) = oneshot::channel();
        let _watching =
            tokio::spawn(look_after(Arc::clone(&taken), gone, self.timing.unread, Arc::clone(cut)));
        let room = Arc::new(ResponsePermit { _permits: permits, _there: there });
        Ok(ResponseSlices { rest: within_budget(bytes, Some(room)), taken })
    }

    /// The same for a transport that detects stalled readers itself.
    pub(crate) async fn message(&self, bytes: Bytes) -> Result<Bytes, ApiError> {
        let permits = self.fitting(bytes.len()).await?;
        Ok(within_budget(bytes, permits.map(Arc::new)))
    }

    async fn fitting(&self, bytes: usize) -> Result<Option<Permit>, ApiError> {
        let made = self.making().take();
        match made {
            Some(mut permits) => {
                permits.shrink(bytes);
                Ok(Some(permits))
            }
            None if bytes > UNASKED => self.permits(bytes).await.map(Some),
            None => Ok(None),
        }
    }

    /// Acquires the client's own share first, which bounds what a client has waiting in the shared queue.
    async fn permits(&self, bytes: usize) -> Result<Permit, ApiError> {
        let bytes = bytes.min(MUCH_OF_ONE);
        let pools = self.own.iter().chain([&self.pool]);
        let claims = pools.map(|pool| pool.fitting(bytes).claim(bytes)).collect();
        Permit::acquire(claims, self.timing.wait).await.ok_or_else(exhausted)
    }

    fn making(&self) -> MutexGuard<'_, Option<Permit>> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryBudget for ResponseMeter {
    fn weigh(&self, bytes: u64) -> io::Result<()> {
        self.room_for(bytes).map_err(|crowded| io::Error::new(io::ErrorKind::QuotaExceeded, crowded.message))
    }
}

fn exhausted() -> ApiError {
    ApiError::new(ErrorCode::ResourceExhausted, "too many long answers are under way")
        .with_hint("read those that were asked for, and ask again")
}

/// Held by the response until its last byte is sent.
#[derive(Debug)]
struct ResponsePermit {
    _permits: Permit,
    _there: oneshot::Sender<Infallible>,
}

async fn look_after(
    taken: Arc<AtomicUsize>,
    gone: oneshot::Receiver<Infallible>,
    unread: Duration,
    cut: Arc<Notify>,
) {
    tokio::pin!(gone);
    loop {
        let before = taken.load(Ordering::SeqCst);
        if timeout(unread, gone.as_mut()).await.is_ok() {
            return;
        }
        if taken.load(Ordering::SeqCst) == before {
            return cut.notify_one();
        }
    }
}

/// A response sent in slices, which shows whether the client reads.
#[derive(Debug, Default)]
pub(crate) struct ResponseSlices {
    rest: Bytes,
    taken: Arc<AtomicUsize>,
}

impl From<Bytes> for ResponseSlices {
    fn from(rest: Bytes) -> Self {
        Self { rest, taken: Arc::default() }
    }
}

impl ResponseSlices {
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn next(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() {
            return None;
        }
        let _before = self.taken.fetch_add(1, Ordering::SeqCst);
        Some(self.rest.split_to(self.rest.len().min(PIECE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(100);

    fn free(answers: &ResponseBudgets) -> usize {
        answers.sessions.much.free()
    }

    fn long() -> Bytes {
        Bytes::from(vec![0; 25 * MIB])
    }

    async fn made(scale: &ResponseMeter) -> Result<(), ApiError> {
        let scale = scale.clone();
        tokio::task::spawn_blocking(move || scale.room_for(25 * MIB as u64)).await.unwrap()
    }

    #[tokio::test]
    async fn an_answer_takes_up_room_from_its_making_to_its_last_byte() {
        let (answers, cut) = (ResponseBudgets::default(), Arc::new(Notify::new()));
        let scale = answers.scale(ResponseOwner::Session(ResponsePool::of_session()), &Handle::current());
        made(&scale).await.unwrap();
        assert_eq!(free(&answers), MUCH_OF_ALL - 75 * MIB);
        let mut slices = scale.answer(long(), &cut).await.unwrap();
        assert_eq!(free(&answers), MUCH_OF_ALL - 25 * MIB, "what it was made of has gone");
        let first = slices.next().unwrap();
        assert_eq!(first.len(), PIECE);
        let rest: usize = std::iter::from_fn(|| slices.next()).map(|piece| piece.len()).sum();
        assert_eq!(rest, 25 * MIB - PIECE);
        drop(slices);
        assert_eq!(free(&answers), MUCH_OF_ALL - 25 * MIB, "a piece of it is on its way");
        drop(first);
        assert_eq!(free(&answers), MUCH_OF_ALL);
        let mut short = scale.answer(Bytes::from_static(b"short"), &cut).await.unwrap();
        assert_eq!((short.next().as_deref(), short.next()), (Some(b"short".as_slice()), None));
    }

    #[tokio::test]
    async fn whoever_takes_nothing_is_cut_and_whoever_waits_is_told() {
        let timing = ResponseTiming { wait: SHORT, unread: SHORT };
        let (answers, cut) =
            (ResponseBudgets { timing, ..ResponseBudgets::default() }, Arc::new(Notify::new()));
        let own = ResponsePool::of_session();
        let scale = || answers.scale(ResponseOwner::Session(own.clone()), &Handle::current());
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(scale().answer(long(), &cut).await.unwrap());
        }
        let others = answers.scale(ResponseOwner::Session(ResponsePool::of_session()), &Handle::current());
        assert!(others.answer(long(), &cut).await.is_ok(), "another session has its own");
        let told = scale().answer(long(), &Arc::new(Notify::new())).await.unwrap_err();
        assert_eq!(told.code, ErrorCode::ResourceExhausted);
        let gone = scale();
        gone.abort();
        assert!(made(&gone).await.is_err() && gone.exhausted().is_some(), "it is made for nobody");
        cut.notified().await;
        drop(held);
        let read = Arc::new(Notify::new());
        let mut slices = scale().answer(Bytes::from(vec![0; 10 * PIECE]), &read).await.unwrap();
        while slices.next().is_some() {
            tokio::time::sleep(SHORT / 4).await;
        }
        drop(slices);
        assert!(timeout(2 * SHORT, read.notified()).await.is_err(), "slowly, and all of it");
    }

    fn token(id: &str) -> ResponseOwner {
        ResponseOwner::Token(CredentialId::parse(id).unwrap())
    }

    #[tokio::test]
    async fn one_token_leaves_memory_for_another_and_for_the_owner() {
        let timing = ResponseTiming { wait: SHORT, unread: PATIENCE };
        let answers = ResponseBudgets { timing, ..ResponseBudgets::default() };
        let scale = |whose| answers.scale(whose, &Handle::current());
        let short = || Bytes::from(vec![0; SOME]);
        let (greedy, other) = ("a".repeat(16), "b".repeat(16));
        let mut held = Vec::new();
        for _ in 0..SOME_OF_ONE / SOME {
            held.push(scale(token(&greedy)).message(short()).await.unwrap());
        }
        for _ in 0..3 {
            held.push(scale(token(&greedy)).message(long()).await.unwrap());
        }
        for more in [short(), long()] {
            let told = scale(token(&greedy)).message(more.clone()).await.unwrap_err();
            assert_eq!(told.code, ErrorCode::ResourceExhausted, "its share is used up");
            for whose in [token(&other), ResponseOwner::Operator] {
                assert!(scale(whose).message(more.clone()).await.is_ok(), "the others have theirs");
            }
        }
        drop(held);
        assert!(scale(token(&greedy)).message(long()).await.is_ok(), "what was read is free again");
    }
}
