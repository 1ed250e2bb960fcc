//! Long answers: how much of them is in memory at once, from when they are made until the last byte has gone. Whoever asks and
//! does not read has no more of the machine than that, and not for long. Nobody waits for what is short.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ringfence_api::{ApiError, ErrorCode};
use ringfence_runtime::Weigher;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::timeout;

use crate::http::{PATIENCE, UNASKED};
use crate::room::roomy;

/// Of one session.
const OF_SESSION: usize = 96 * MIB;
/// Of all sessions, of everybody else, and of those whom nobody knows: of what is longer than [`SOME`].
const MUCH_OF_ALL: usize = 192 * MIB;
/// Of the rest, apart: what is large and waits for its turn does not stand in its way.
const SOME_OF_ALL: usize = 64 * MIB;
const SOME: usize = MIB;
const MIB: usize = 1024 * 1024;
/// Room is counted in these.
const UNIT: usize = 1024;
/// What is made into an answer is there as it was read, as a value, and as it is sent.
const COPIES: u64 = 3;
/// What is given out at once: whoever takes one of these now and then is there.
const PIECE: usize = 16 * 1024;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
struct Timing {
    /// Until there is room.
    wait: Duration,
    /// While somebody takes nothing of an answer.
    unread: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { wait: PATIENCE, unread: Duration::from_secs(10) }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Answers {
    timing: Timing,
    strangers: Pool,
    operators: Pool,
    sessions: Pool,
}

#[derive(Clone, Debug)]
struct Pool {
    some: Arc<Semaphore>,
    much: Arc<Semaphore>,
}

impl Default for Pool {
    fn default() -> Self {
        let [some, much] = [SOME_OF_ALL, MUCH_OF_ALL].map(|most| Arc::new(Semaphore::new(most / UNIT)));
        Self { some, much }
    }
}

/// To whom an answer goes.
#[derive(Debug)]
pub(crate) enum Whose {
    /// Nobody knows who they are.
    Stranger,
    Operator,
    /// With the room of the session.
    Session(Arc<Semaphore>),
}

/// The room of one session.
pub(crate) fn of_session() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(OF_SESSION / UNIT))
}

impl Answers {
    pub(crate) fn scale(&self, whose: Whose, handle: &Handle) -> Scale {
        let (pool, own) = match whose {
            Whose::Stranger => (&self.strangers, None),
            Whose::Operator => (&self.operators, None),
            Whose::Session(own) => (&self.sessions, Some(own)),
        };
        Scale {
            pool: pool.clone(),
            own,
            timing: self.timing,
            handle: handle.clone(),
            making: Arc::default(),
            was_crowded: Arc::default(),
            gone: Arc::new(watch::Sender::new(false)),
        }
    }
}

#[derive(Debug)]
struct Permits {
    own: Option<OwnedSemaphorePermit>,
    all: OwnedSemaphorePermit,
}

impl Permits {
    /// The rest is for others.
    fn shrink(&mut self, bytes: usize) {
        let units = bytes.div_ceil(UNIT);
        for permit in self.own.iter_mut().chain([&mut self.all]) {
            let rest = permit.num_permits().saturating_sub(units);
            drop(permit.split(rest));
        }
    }
}

/// Weighs one answer, while it is made and when it is there.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pool: Pool,
    own: Option<Arc<Semaphore>>,
    timing: Timing,
    handle: Handle,
    making: Arc<Mutex<Option<Permits>>>,
    was_crowded: Arc<AtomicBool>,
    /// Whether whoever asked has gone.
    gone: Arc<watch::Sender<bool>>,
}

impl Scale {
    /// Nobody waits for the answer any more, and so it waits for no room.
    pub(crate) fn give_up(&self) {
        let _before = self.gone.send_replace(true);
    }

    /// Room for an answer that is made out of so many bytes. Waits for it, and not for ever. For threads that may wait.
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
                _gone = gone.wait_for(|is_gone| *is_gone) => Err(crowded()),
            };
            let _unheard = told.send(permits);
        });
        let permits = hears.recv().unwrap_or_else(|_ended| Err(crowded()));
        *self.making() = Some(permits.inspect_err(|_| self.was_crowded.store(true, Ordering::SeqCst))?);
        Ok(())
    }

    /// Why an answer was not made, if it was for want of room.
    pub(crate) fn crowded(&self) -> Option<ApiError> {
        self.was_crowded.load(Ordering::SeqCst).then(crowded)
    }

    /// What was made as it is sent. Whoever takes nothing of it for too long is `cut`.
    pub(crate) async fn answer(&self, bytes: Bytes, cut: &Arc<Notify>) -> Result<Slices, ApiError> {
        let Some(permits) = self.fitting(bytes.len()).await? else { return Ok(Slices::from(bytes)) };
        let taken = Arc::new(AtomicUsize::new(0));
        let (there, gone) = oneshot::channel();
        let _watching =
            tokio::spawn(look_after(Arc::clone(&taken), (gone, self.timing.unread), Arc::clone(cut)));
        let room = Arc::new(Room { _permits: permits, _there: there });
        Ok(Slices { rest: roomy(bytes, Some(room)), taken })
    }

    /// The same for a transport that looks by itself whether anybody takes what it sends.
    pub(crate) async fn message(&self, bytes: Bytes) -> Result<Bytes, ApiError> {
        let permits = self.fitting(bytes.len()).await?;
        Ok(roomy(bytes, permits.map(Arc::new)))
    }

    async fn fitting(&self, bytes: usize) -> Result<Option<Permits>, ApiError> {
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

    /// The session's own first: of each session at most one waits in front of others.
    async fn permits(&self, bytes: usize) -> Result<Permits, ApiError> {
        let (pool, most) = if bytes > SOME { (&self.pool.much, OF_SESSION) } else { (&self.pool.some, SOME) };
        let units = u32::try_from(bytes.min(most).div_ceil(UNIT)).unwrap_or(u32::MAX);
        let permits = async {
            let own = match &self.own {
                Some(own) => Some(Arc::clone(own).acquire_many_owned(units).await?),
                None => None,
            };
            Ok::<_, tokio::sync::AcquireError>(Permits {
                own,
                all: Arc::clone(pool).acquire_many_owned(units).await?,
            })
        };
        timeout(self.timing.wait, permits).await.ok().and_then(Result::ok).ok_or_else(crowded)
    }

    fn making(&self) -> MutexGuard<'_, Option<Permits>> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Weigher for Scale {
    fn weigh(&self, bytes: u64) -> io::Result<()> {
        self.room_for(bytes).map_err(|crowded| io::Error::new(io::ErrorKind::QuotaExceeded, crowded.message))
    }
}

fn crowded() -> ApiError {
    ApiError::new(ErrorCode::Exhausted, "too many long answers are under way")
        .with_hint("read those that were asked for, and ask again")
}

/// What an answer takes up until its last byte has gone.
#[derive(Debug)]
struct Room {
    _permits: Permits,
    _there: oneshot::Sender<Infallible>,
}

async fn look_after(
    taken: Arc<AtomicUsize>,
    (gone, unread): (oneshot::Receiver<Infallible>, Duration),
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

/// An answer that is given out piece by piece, so that it shows whether anybody takes it.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    rest: Bytes,
    taken: Arc<AtomicUsize>,
}

impl From<Bytes> for Slices {
    fn from(rest: Bytes) -> Self {
        Self { rest, taken: Arc::default() }
    }
}

impl Slices {
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

    fn free(answers: &Answers) -> usize {
        answers.sessions.much.available_permits() * UNIT
    }

    fn long() -> Bytes {
        Bytes::from(vec![0; 25 * MIB])
    }

    async fn made(scale: &Scale) -> Result<(), ApiError> {
        let scale = scale.clone();
        tokio::task::spawn_blocking(move || scale.room_for(25 * MIB as u64)).await.unwrap()
    }

    #[tokio::test]
    async fn an_answer_takes_up_room_from_its_making_to_its_last_byte() {
        let (answers, cut) = (Answers::default(), Arc::new(Notify::new()));
        let scale = answers.scale(Whose::Session(of_session()), &Handle::current());
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
        let timing = Timing { wait: SHORT, unread: SHORT };
        let (answers, cut) = (Answers { timing, ..Answers::default() }, Arc::new(Notify::new()));
        let own = of_session();
        let scale = || answers.scale(Whose::Session(Arc::clone(&own)), &Handle::current());
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(scale().answer(long(), &cut).await.unwrap());
        }
        let others = answers.scale(Whose::Session(of_session()), &Handle::current());
        assert!(others.answer(long(), &cut).await.is_ok(), "another session has its own");
        let told = scale().answer(long(), &Arc::new(Notify::new())).await.unwrap_err();
        assert_eq!(told.code, ErrorCode::Exhausted);
        let gone = scale();
        gone.give_up();
        assert!(made(&gone).await.is_err() && gone.crowded().is_some(), "it is made for nobody");
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
}
