//! Memory budget for long requests. A body is in memory before the daemon knows what it is, so every transport acquires
//! a permit first. Short requests need none.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ringfence_api::{ApiError, ErrorCode};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::limits::budget::{Budget, KeyedBudgets, Permit};
use crate::limits::min_body_rate::{BodyRateMonitor, WINDOW};
use crate::transport::http::{HttpConnection, PATIENCE, UNASKED};
use crate::transport::websocket::LONGEST;

/// Budget of operators, and the same again for all sessions: agents cannot use up the memory an operator needs.
const MOST: usize = 128 * 1024 * 1024;
/// Bodies that one token sends at once, up to a megabyte and longer. One token therefore leaves memory for the longest
/// body of another. The owner has no token and no such limit.
const SHORTER_OF_A_TOKEN: usize = 16;
const LONGER_OF_A_TOKEN: usize = 2;
/// First permit of a message of unknown length: most messages fit.
const FIRST: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct RequestMemory {
    operators: Budget,
    sessions: Budget,
    /// By digest of the token.
    shorter: KeyedBudgets<[u8; 32]>,
    longer: KeyedBudgets<[u8; 32]>,
}

impl Default for RequestMemory {
    fn default() -> Self {
        let [operators, sessions] = [(); 2].map(|()| Budget::new(MOST));
        let [shorter, longer] = [SHORTER_OF_A_TOKEN, LONGER_OF_A_TOKEN].map(KeyedBudgets::new);
        Self { operators, sessions, shorter, longer }
    }
}

/// The sender of a body, which decides on the budget.
#[derive(Debug)]
pub(crate) enum BodySender<'a> {
    Operator,
    /// A token. A message holds a `shorter` permit while it waits for a `longer` one, never the reverse,
    /// so messages cannot deadlock.
    Known(&'a str),
    /// A session with its own slots.
    Session(Budget),
    /// A session that already holds a permit of its own for this message. With one permit for each part, two partly
    /// read messages would deadlock.
    SameOfSession,
}

impl RequestMemory {
    /// Waits in order of arrival, for at most [`PATIENCE`]. The permit is held until the body is decoded or dropped.
    pub(crate) async fn place(&self, whose: BodySender<'_>, bytes: usize) -> Result<Permit, ApiError> {
        let (all, own) = match whose {
            BodySender::Operator => (&self.operators, None),
            BodySender::Known(token) => {
                let of_size = if bytes > FIRST { &self.longer } else { &self.shorter };
                (&self.operators, Some(of_size.of(Sha256::digest(token).into())))
            }
            BodySender::Session(slots) => (&self.sessions, Some(slots)),
            BodySender::SameOfSession => (&self.sessions, None),
        };
        let own = own.map(|own| own.claim(1));
        Permit::acquire(own.into_iter().chain([all.claim(bytes)]).collect(), PATIENCE)
            .await
            .ok_or_else(exhausted)
    }
}

fn exhausted() -> ApiError {
    ApiError::new(ErrorCode::ResourceExhausted, "too much is sent at once by others")
        .with_hint("send it again, or in shorter parts")
}

type PermitFuture = Pin<Box<dyn Future<Output = Option<Result<Permit, ApiError>>> + Send>>;

/// A stream of messages that reads no more bytes than it has permits for.
pub(crate) struct MeteredReader<S> {
    stream: S,
    place: Box<dyn Fn(usize) -> PermitFuture + Send>,
    /// Bytes of the current message.
    read: usize,
    allowed: usize,
    held: Permit,
    waiting: Option<PermitFuture>,
    /// Deadline of the wait for a permit.
    late: Option<Pin<Box<Sleep>>>,
    patience: Duration,
    /// Rate of the current message, once its first byte is read.
    pace: Option<BodyRateMonitor>,
    window: Duration,
}

impl<S> std::fmt::Debug for MeteredReader<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rationed({} of {})", self.read, self.allowed)
    }
}

impl<S> MeteredReader<S> {
    /// `place` acquires a permit for that many bytes more. `None`: no permit is needed.
    pub(crate) fn new(stream: S, place: impl Fn(usize) -> PermitFuture + Send + 'static) -> Self {
        Self {
            stream,
            place: Box::new(place),
            read: 0,
            allowed: UNASKED,
            held: Permit::default(),
            waiting: None,
            late: None,
            patience: PATIENCE,
            pace: None,
            window: WINDOW,
        }
    }

    /// A stream on this connection.
    pub(crate) fn of(stream: S, line: Arc<HttpConnection>, token: Option<String>) -> Self {
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

    /// Starts the next message.
    pub(crate) fn begin(&mut self) {
        (self.read, self.allowed) = (0, UNASKED);
        (self.waiting, self.late, self.pace) = (None, None, None);
        self.held = Permit::default();
    }

    /// Takes the permit of the complete message; the caller holds it while the message exists.
    pub(crate) fn complete(&mut self) -> Permit {
        std::mem::take(&mut self.held)
    }

    /// Excludes a time in which the daemon did not read from the rate of the sender.
    pub(crate) fn pause_clock(&mut self, time: Duration) {
        if let Some(pace) = &mut self.pace {
            pace.excuse(time);
        }
        if let Some(late) = &mut self.late {
            let until = late.deadline() + time;
            late.as_mut().reset(until);
        }
    }

    /// Subtracts bytes that belong to no message.
    pub(crate) fn discount(&mut self, bytes: usize) {
        self.read = self.read.saturating_sub(bytes);
        if self.read == 0 {
            self.pace = None;
        }
    }

    /// Bytes to acquire next for the current message.
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
        // The client could not send while it waited for a permit.
        (self.waiting, self.late, self.pace) = (None, None, None);
        match placed {
            Some(Err(_crowded)) => return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into())),
            Some(Ok(more)) => self.held.extend(more),
            None => {}
        }
        self.allowed = self.allowed.saturating_add(more);
        Poll::Ready(Ok(()))
    }

    /// Fails when the sender of a partly read message is too slow, because it holds permits.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.read == 0 {
            return Poll::Pending;
        }
        let window = self.window;
        let pace = self.pace.get_or_insert_with(|| BodyRateMonitor::new(window));
        pace.poll_late(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn came(&mut self, bytes: usize) {
        self.read += bytes;
        if let Some(pace) = &mut self.pace {
            pace.count(bytes);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredReader<S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredReader<S> {
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
    use tokio::time::timeout;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const SHORT: Duration = Duration::from_millis(100);

    /// A reader with a budget of its own, and the sender's end.
    fn rationed(intake: &Arc<RequestMemory>) -> (MeteredReader<DuplexStream>, DuplexStream) {
        let (here, there) = duplex(4 * LONGEST);
        let intake = Arc::clone(intake);
        let place = move |bytes| -> PermitFuture {
            let intake = Arc::clone(&intake);
            Box::pin(async move { Some(intake.place(BodySender::Operator, bytes).await) })
        };
        let mut rationed = MeteredReader::new(here, place);
        (rationed.patience, rationed.window) = (SHORT, SHORT);
        (rationed, there)
    }

    async fn read(from: &mut MeteredReader<DuplexStream>, bytes: usize) -> io::Result<()> {
        from.read_exact(&mut vec![0; bytes]).await.map(drop)
    }

    fn free(intake: &RequestMemory) -> usize {
        intake.operators.free()
    }

    #[tokio::test]
    async fn what_is_short_needs_no_place_and_what_is_long_gives_it_back() {
        let intake = Arc::new(RequestMemory::default());
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
        let places = stream.complete();
        stream.begin();
        assert!(free(&intake) <= MOST - FIRST - LONGEST, "it is as long as before");
        drop(places);
        assert_eq!(free(&intake), MOST);
    }

    #[tokio::test]
    async fn whoever_has_no_place_is_not_read_and_told_so_in_the_end() {
        let intake = Arc::new(RequestMemory::default());
        let all = intake.place(BodySender::Operator, MOST).await.unwrap();
        let (mut stream, mut client) = rationed(&intake);
        client.write_all(&vec![0; 4 * UNASKED]).await.unwrap();
        read(&mut stream, UNASKED).await.unwrap();
        read(&mut stream, UNASKED).await.unwrap();
        let waits = timeout(SHORT / 10, read(&mut stream, UNASKED)).await;
        assert!(waits.is_err(), "it waits for its turn");
        let of_session = BodySender::Session(Budget::new(2));
        assert!(intake.place(of_session, MOST).await.is_ok(), "sessions have places of their own");
        let kind = read(&mut stream, UNASKED).await.unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::QuotaExceeded);
        drop(all);
    }

    #[tokio::test]
    async fn one_token_leaves_a_place_for_another() {
        let intake = RequestMemory::default();
        let longest = |token: &'static str| intake.place(BodySender::Known(token), LONGEST);
        let _held = [longest("one").await.unwrap(), longest("one").await.unwrap()];
        assert!(timeout(SHORT, longest("one")).await.is_err(), "it waits for its own");
        let short = intake.place(BodySender::Known("one"), FIRST).await;
        assert!(short.is_ok() && longest("another").await.is_ok());
        assert!(intake.place(BodySender::Operator, LONGEST).await.is_ok());
    }

    #[tokio::test]
    async fn a_place_is_for_those_who_send() {
        let intake = Arc::new(RequestMemory::default());
        let (mut stream, mut client) = rationed(&intake);
        client.write_all(&vec![0; 3 * UNASKED]).await.unwrap();
        let kind = read(&mut stream, 4 * UNASKED).await.unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::TimedOut, "the rest did not come");
        stream.discount(3 * UNASKED);
        assert_eq!(stream.read, 0, "what is no message counts for none");
    }
}
