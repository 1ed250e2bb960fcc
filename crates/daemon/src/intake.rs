//! Long requests: how much of them is taken in at once. What anybody sends is in memory before it is known what it is, so that it
//! has a place first, whichever way it comes. Nobody is turned away for what is short.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ringfence_api::{ApiError, ErrorCode};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep, timeout};

use crate::http::{Line, PATIENCE, UNASKED};
use crate::pace::{Pace, WINDOW};
use crate::socket::LONGEST;

/// Of everybody who is in no session, and of all sessions: no agent takes a place that an operator needs.
const MOST: usize = 128 * 1024 * 1024;
/// Requests with one token that are taken in at once, those of up to a megabyte and longer ones, so that it does not have all of that and
/// leaves a place for the longest of another. The owner has no token.
const SHORTER_OF_A_TOKEN: usize = 16;
const LONGER_OF_A_TOKEN: usize = 2;
/// Places are counted in these.
const UNIT: usize = 1024;
/// Of a message of which nobody has said how long it will be, as much as most have at most.
const FIRST: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Intake {
    operators: Arc<Semaphore>,
    sessions: Arc<Semaphore>,
    /// By what was shown, for as long as anybody has one.
    shares: Mutex<HashMap<[u8; 32], Weak<Share>>>,
}

impl Default for Intake {
    fn default() -> Self {
        let [operators, sessions] = [(); 2].map(|()| Arc::new(Semaphore::new(MOST / UNIT)));
        Self { operators, sessions, shares: Mutex::default() }
    }
}

/// What comes with one token.
#[derive(Debug)]
pub(crate) struct Share {
    shorter: Arc<Semaphore>,
    longer: Arc<Semaphore>,
}

impl Default for Share {
    fn default() -> Self {
        let [shorter, longer] =
            [SHORTER_OF_A_TOKEN, LONGER_OF_A_TOKEN].map(|most| Arc::new(Semaphore::new(most)));
        Self { shorter, longer }
    }
}

/// Given back when what came is a request, or nothing.
#[derive(Debug)]
pub(crate) struct Place {
    _own: Option<OwnedSemaphorePermit>,
    /// It is the same for whoever comes meanwhile.
    _share: Option<Arc<Share>>,
    _of_all: OwnedSemaphorePermit,
}

/// Who sends something.
#[derive(Debug)]
pub(crate) enum Whose {
    /// The owner.
    Operator,
    /// With the share of a token. What has a place for its first part waits for one of the longer ones, which nobody has who waits for the
    /// first.
    Known(Arc<Share>),
    /// With the places of the session.
    Session(Arc<Semaphore>),
    /// A session that has one of its own for this: were each part to have one, two that have begun would wait for each other.
    SameOfSession,
}

impl Intake {
    /// What comes with this token.
    pub(crate) fn share(&self, token: &str) -> Arc<Share> {
        let key = Sha256::digest(token).into();
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.retain(|_, share| share.strong_count() > 0);
        let share = shares.get(&key).and_then(Weak::upgrade);
        share.unwrap_or_else(|| {
            let share = Arc::<Share>::default();
            let _gone = shares.insert(key, Arc::downgrade(&share));
            share
        })
    }

    /// Whoever waits longest is next.
    pub(crate) async fn place(&self, whose: Whose, bytes: usize) -> Result<Place, ApiError> {
        let (all, own, share) = match whose {
            Whose::Operator => (&self.operators, None, None),
            Whose::Known(share) => {
                let own = if bytes > FIRST { &share.longer } else { &share.shorter };
                (&self.operators, Some(Arc::clone(own)), Some(share))
            }
            Whose::Session(places) => (&self.sessions, Some(places), None),
            Whose::SameOfSession => (&self.sessions, None, None),
        };
        let units = u32::try_from(bytes.min(MOST).div_ceil(UNIT)).unwrap_or(u32::MAX);
        let place = async {
            let own = match own {
                Some(places) => Some(places.acquire_owned().await?),
                None => None,
            };
            Ok::<_, tokio::sync::AcquireError>(Place {
                _own: own,
                _share: share,
                _of_all: Arc::clone(all).acquire_many_owned(units).await?,
            })
        };
        timeout(PATIENCE, place).await.ok().and_then(Result::ok).ok_or_else(crowded)
    }
}

fn crowded() -> ApiError {
    ApiError::new(ErrorCode::Exhausted, "too much is sent at once by others")
        .with_hint("send it again, or in shorter parts")
}

type Placing = Pin<Box<dyn Future<Output = Option<Result<Place, ApiError>>> + Send>>;

/// A stream of messages of which no more is read than there is a place for.
pub(crate) struct Rationed<S> {
    stream: S,
    place: Box<dyn Fn(usize) -> Placing + Send>,
    /// Of the message that is being read.
    read: usize,
    allowed: usize,
    places: Vec<Place>,
    waiting: Option<Placing>,
    /// When whoever waits for a place is told that there is none.
    late: Option<Pin<Box<Sleep>>>,
    patience: Duration,
    /// Of the message that is being read, once something of it is here.
    pace: Option<Pace>,
    window: Duration,
}

impl<S> std::fmt::Debug for Rationed<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rationed({} of {})", self.read, self.allowed)
    }
}

impl<S> Rationed<S> {
    /// `place` gives a place for so many bytes more; `None`: that needs none.
    pub(crate) fn new(stream: S, place: impl Fn(usize) -> Placing + Send + 'static) -> Self {
        Self {
            stream,
            place: Box::new(place),
            read: 0,
            allowed: UNASKED,
            places: Vec::new(),
            waiting: None,
            late: None,
            patience: PATIENCE,
            pace: None,
            window: WINDOW,
        }
    }

    /// What comes by this connection.
    pub(crate) fn of(stream: S, line: Arc<Line>, token: Option<String>) -> Self {
        Self::new(stream, move |bytes| {
            let (line, token) = (Arc::clone(&line), token.clone());
            Box::pin(async move {
                let is_rest = bytes > FIRST;
                Some(if is_rest {
                    line.place_for_rest(token.as_deref(), bytes).await
                } else {
                    line.place_for_long(token.as_deref(), bytes).await
                })
            })
        })
    }

    #[cfg(test)]
    pub(crate) fn within(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Another message begins.
    pub(crate) fn begin(&mut self) {
        (self.read, self.allowed) = (0, UNASKED);
        (self.waiting, self.late, self.pace) = (None, None, None);
        self.places.clear();
    }

    /// Those of the message that was read, for as long as it is there.
    pub(crate) fn handed_over(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.places)
    }

    /// For so long nothing was read, and whoever sends could not go on.
    pub(crate) fn excuse(&mut self, time: Duration) {
        if let Some(pace) = &mut self.pace {
            pace.excuse(time);
        }
        if let Some(late) = &mut self.late {
            let until = late.deadline() + time;
            late.as_mut().reset(until);
        }
    }

    /// So many of the bytes that were read are of no message.
    pub(crate) fn discount(&mut self, bytes: usize) {
        self.read = self.read.saturating_sub(bytes);
        if self.read == 0 {
            self.pace = None;
        }
    }

    /// How much more of a message may be read once there is a place for it.
    fn more(&self) -> usize {
        if self.allowed == UNASKED { FIRST } else { LONGEST }
    }

    fn poll_allowed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.read <= self.allowed {
            return Poll::Ready(Ok(()));
        }
        let patience = self.patience;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(patience)));
        if late.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        let more = self.more();
        let place = &self.place;
        let waiting = self.waiting.get_or_insert_with(|| place(more));
        let placed = ready!(waiting.as_mut().poll(context));
        // While they waited they could not send.
        (self.waiting, self.late, self.pace) = (None, None, None);
        match placed {
            Some(Err(_crowded)) => return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into())),
            Some(Ok(place)) => self.places.push(place),
            None => {}
        }
        self.allowed = self.allowed.saturating_add(more);
        Poll::Ready(Ok(()))
    }

    /// Whoever has begun and sends nothing keeps a place from others.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.read == 0 {
            return Poll::Pending;
        }
        let window = self.window;
        let pace = self.pace.get_or_insert_with(|| Pace::new(window));
        pace.poll_late(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn came(&mut self, bytes: usize) {
        self.read += bytes;
        if let Some(pace) = &mut self.pace {
            pace.count(bytes);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rationed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_allowed(context))?;
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Pending => this.poll_late(context),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => {
                this.came(buffer.filled().len() - before);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rationed<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const SHORT: Duration = Duration::from_millis(100);

    /// What somebody sends who may have this much of the intake at once.
    fn rationed(intake: &Arc<Intake>) -> (Rationed<DuplexStream>, DuplexStream) {
        let (here, there) = duplex(4 * LONGEST);
        let intake = Arc::clone(intake);
        let place = move |bytes| -> Placing {
            let intake = Arc::clone(&intake);
            Box::pin(async move { Some(intake.place(Whose::Operator, bytes).await) })
        };
        let mut rationed = Rationed::new(here, place);
        (rationed.patience, rationed.window) = (SHORT, SHORT);
        (rationed, there)
    }

    async fn read(from: &mut Rationed<DuplexStream>, bytes: usize) -> io::Result<()> {
        from.read_exact(&mut vec![0; bytes]).await.map(drop)
    }

    fn free(intake: &Intake) -> usize {
        intake.operators.available_permits() * UNIT
    }

    #[tokio::test]
    async fn what_is_short_needs_no_place_and_what_is_long_gives_it_back() {
        let intake = Arc::new(Intake::default());
        let (mut stream, mut client) = rationed(&intake);
        client.write_all(&vec![0; 4 * FIRST]).await.unwrap();
        stream.begin();
        read(&mut stream, UNASKED).await.unwrap();
        assert_eq!(free(&intake), MOST);
        read(&mut stream, UNASKED).await.unwrap();
        read(&mut stream, UNASKED).await.unwrap();
        assert_eq!(free(&intake), MOST - FIRST);
        read(&mut stream, 2 * FIRST).await.unwrap();
        read(&mut stream, UNASKED).await.unwrap();
        assert!(free(&intake) <= MOST - FIRST - LONGEST);
        let places = stream.handed_over();
        stream.begin();
        assert!(free(&intake) <= MOST - FIRST - LONGEST, "it is as long as before");
        drop(places);
        assert_eq!(free(&intake), MOST);
    }

    #[tokio::test]
    async fn whoever_has_no_place_is_not_read_and_told_so_in_the_end() {
        let intake = Arc::new(Intake::default());
        let all = intake.place(Whose::Operator, MOST).await.unwrap();
        let (mut stream, mut client) = rationed(&intake);
        client.write_all(&vec![0; 4 * UNASKED]).await.unwrap();
        read(&mut stream, UNASKED).await.unwrap();
        read(&mut stream, UNASKED).await.unwrap();
        let waits = timeout(SHORT / 10, read(&mut stream, UNASKED)).await;
        assert!(waits.is_err(), "it waits for its turn");
        let of_session = Whose::Session(Arc::new(Semaphore::new(2)));
        assert!(intake.place(of_session, MOST).await.is_ok(), "sessions have places of their own");
        let kind = read(&mut stream, UNASKED).await.unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::QuotaExceeded);
        drop(all);
    }

    #[tokio::test]
    async fn one_token_leaves_a_place_for_another() {
        let intake = Intake::default();
        let longest = |token: &str| intake.place(Whose::Known(intake.share(token)), LONGEST);
        let _held = [longest("one").await.unwrap(), longest("one").await.unwrap()];
        assert!(timeout(SHORT, longest("one")).await.is_err(), "it waits for its own");
        let short = intake.place(Whose::Known(intake.share("one")), FIRST).await;
        assert!(short.is_ok() && longest("another").await.is_ok());
        assert!(intake.place(Whose::Operator, LONGEST).await.is_ok());
    }

    #[tokio::test]
    async fn a_place_is_for_those_who_send() {
        let intake = Arc::new(Intake::default());
        let (mut stream, mut client) = rationed(&intake);
        client.write_all(&vec![0; 3 * UNASKED]).await.unwrap();
        let kind = read(&mut stream, 4 * UNASKED).await.unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::TimedOut, "the rest did not come");
        stream.discount(3 * UNASKED);
        assert_eq!(stream.read, 0, "what is no message counts for none");
    }
}
