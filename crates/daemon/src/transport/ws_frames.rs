//! WebSocket frames: text in and out, with timeouts for silent, slow and broken clients.

use std::io::ErrorKind;
use std::time::Duration;

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Message, Utf8Bytes};

use crate::limits::budget::Permit;
use crate::limits::request_memory::MeteredReader;

#[derive(Clone, Copy, Debug)]
pub(crate) struct WebSocketTiming {
    /// Interval of pings.
    round: Duration,
    /// Longest time without any frame from the client.
    silence: Duration,
    /// Longest time for sending one frame.
    patience: Duration,
}

impl Default for WebSocketTiming {
    fn default() -> Self {
        let [round, silence, patience] = [20, 60, 10].map(Duration::from_secs);
        Self { round, silence, patience }
    }
}

/// Frame size of long messages. The WebSocket library copies each frame until it is sent. With one large frame the
/// memory permit would be released before anything is sent.
const PIECE: usize = 16 * 1024;

/// Longest wait for the close handshake.
const GOODBYE: Duration = Duration::from_secs(1);

/// Why a socket is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client closed the connection, with or without a handshake.
    Gone,
    /// The client did not read.
    Slow,
    /// The client sent nothing for too long.
    Silent,
    /// The bytes are no valid WebSocket frames.
    Broken,
    /// The text is not UTF-8.
    NotUtf8,
    TooLarge,
    /// A binary message instead of text.
    Binary,
    /// Too many invalid messages.
    Nonsense,
    /// The credential is no longer valid.
    Revoked,
    /// The memory budget is exhausted.
    Crowded,
    /// A long message was too slow.
    Late,
}

impl CloseReason {
    fn told(self) -> Option<(CloseCode, &'static str)> {
        Some(match self {
            Self::Gone | Self::Slow => return None,
            Self::Silent => (CloseCode::Policy, "nothing was heard for too long"),
            Self::Broken => (CloseCode::Protocol, "this is no WebSocket"),
            Self::NotUtf8 => (CloseCode::Invalid, "text is UTF-8"),
            Self::TooLarge => (CloseCode::Size, "the message is too large"),
            Self::Binary => (CloseCode::Unsupported, "messages are text"),
            Self::Nonsense => (CloseCode::Policy, "too much of this was no request"),
            Self::Revoked => (CloseCode::Policy, "the token is worth nothing any more"),
            Self::Crowded => (CloseCode::Again, "too much is sent at once by others; try again"),
            Self::Late => (CloseCode::Policy, "the message did not come to its end"),
        })
    }
}

/// One WebSocket.
#[derive(Debug)]
pub(crate) struct WebSocketFrames<S> {
    socket: WebSocketStream<MeteredReader<S>>,
    timing: WebSocketTiming,
    heard: Instant,
    round: Interval,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocketFrames<S> {
    /// Wraps an upgraded stream. A message has at most `most` bytes, in any number of frames.
    pub(crate) async fn over(stream: MeteredReader<S>, most: usize, timing: WebSocketTiming) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(Some(most))
            .max_frame_size(Some(most))
            .read_buffer_size(16 * 1024)
            .accept_unmasked_frames(false);
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
        let mut round = interval_at(Instant::now() + timing.round, timing.round);
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { socket, timing, heard: Instant::now(), round }
    }

    /// The permit of the last message, for its further processing.
    pub(crate) fn memory(&mut self) -> Permit {
        self.socket.get_mut().complete()
    }

    /// The next message. Sends what is in `outbox` until it arrives.
    pub(crate) async fn next(
        &mut self,
        outbox: &mut mpsc::Receiver<Utf8Bytes>,
    ) -> Result<Utf8Bytes, CloseReason> {
        // The previous message is parsed and has taken its permit along.
        self.socket.get_mut().begin();
        loop {
            tokio::select! {
                message = self.socket.next() => {
                    if let Some(text) = self.understood(message)? {
                        return Ok(text);
                    }
                }
                Some(text) = outbox.recv() => {
                    if let Some(text) = self.send_and_hear(text).await? {
                        return Ok(text);
                    }
                }
                _at = self.round.tick() => self.look().await?,
            }
        }
    }

    fn understood(
        &mut self,
        message: Option<Result<Message, Error>>,
    ) -> Result<Option<Utf8Bytes>, CloseReason> {
        let message = message.unwrap_or(Ok(Message::Close(None)));
        self.heard = Instant::now();
        self.socket.get_mut().discount(beside(&message));
        text_of(message)
    }

    /// Fails if the client does not take a frame in time: nothing is buffered for it.
    pub(crate) async fn send(&mut self, text: Utf8Bytes) -> Result<(), CloseReason> {
        for piece in FrameSequence::of(text) {
            self.put(Message::Frame(piece)).await?;
        }
        Ok(())
    }

    /// The same, and answers pings between frames. If a message arrives meanwhile, no further one is read until the
    /// text is sent.
    async fn send_and_hear(&mut self, text: Utf8Bytes) -> Result<Option<Utf8Bytes>, CloseReason> {
        let mut heard = None;
        for piece in FrameSequence::of(text) {
            if heard.is_none()
                && let Some(message) = self.socket.next().now_or_never()
            {
                heard = self.understood(message)?;
            }
            self.put(Message::Frame(piece)).await?;
        }
        Ok(heard)
    }

    async fn look(&mut self) -> Result<(), CloseReason> {
        if self.heard.elapsed() >= self.timing.silence {
            return Err(CloseReason::Silent);
        }
        self.put(Message::Ping(Bytes::new())).await
    }

    /// While this waits nothing is read, so the time does not count against the sender.
    async fn put(&mut self, message: Message) -> Result<(), CloseReason> {
        let began = Instant::now();
        let sent = timeout(self.timing.patience, self.socket.send(message)).await;
        self.heard += began.elapsed();
        self.socket.get_mut().pause_clock(began.elapsed());
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(CloseReason::Gone),
            Err(_late) => Err(CloseReason::Slow),
        }
    }

    /// Sends the reason and waits briefly for the client's close frame: closing at once could reset the connection and
    /// destroy unread data.
    pub(crate) async fn close(mut self, end: CloseReason) {
        let Some((code, reason)) = end.told() else { return };
        let frame = CloseFrame { code, reason: reason.into() };
        // A timeout is ignored: the client no longer reads.
        let _told = timeout(GOODBYE, async {
            if self.socket.close(Some(frame)).await.is_ok() {
                while let Some(Ok(_)) = self.socket.next().await {}
            }
        })
        .await;
    }
}

/// A text as frames. It holds its memory permit until the last frame is sent.
struct FrameSequence {
    whole: Bytes,
    /// Start of the next frame.
    at: Option<usize>,
}

impl FrameSequence {
    fn of(text: Utf8Bytes) -> Self {
        Self { whole: text.into(), at: Some(0) }
    }
}

impl Iterator for FrameSequence {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        let begin = self.at?;
        let end = self.whole.len().min(begin + PIECE);
        self.at = (end < self.whole.len()).then_some(end);
        let kind = if begin == 0 { Data::Text } else { Data::Continue };
        Some(Frame::message(self.whole.slice(begin..end), OpCode::Data(kind), self.at.is_none()))
    }
}

/// The bytes of a control frame, which may lie between the frames of a message.
fn beside(message: &Result<Message, Error>) -> usize {
    const HEAD_AND_MASK: usize = 6;
    match message {
        Ok(Message::Ping(bytes) | Message::Pong(bytes)) => HEAD_AND_MASK + bytes.len(),
        _ => 0,
    }
}

fn text_of(message: Result<Message, Error>) -> Result<Option<Utf8Bytes>, CloseReason> {
    match message {
        Ok(Message::Text(text)) => Ok(Some(text)),
        Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => Ok(None),
        Ok(Message::Binary(_)) => Err(CloseReason::Binary),
        Ok(Message::Close(_)) => Err(CloseReason::Gone),
        Err(Error::Utf8(_)) => Err(CloseReason::NotUtf8),
        Err(Error::Capacity(CapacityError::MessageTooLong { .. })) => Err(CloseReason::TooLarge),
        Err(Error::Protocol(_)) => Err(CloseReason::Broken),
        Err(Error::Io(error)) if error.kind() == ErrorKind::QuotaExceeded => Err(CloseReason::Crowded),
        Err(Error::Io(error)) if error.kind() == ErrorKind::TimedOut => Err(CloseReason::Late),
        Err(_) => Err(CloseReason::Gone),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;
    use crate::limits::budget::within_budget;

    const MOST: usize = 4096;

    async fn pair(timing: WebSocketTiming) -> (WebSocketFrames<DuplexStream>, WebSocketStream<DuplexStream>) {
        pair_within(timing, Duration::from_secs(60)).await
    }

    /// With the window of the minimum rate.
    async fn pair_within(
        timing: WebSocketTiming,
        window: Duration,
    ) -> (WebSocketFrames<DuplexStream>, WebSocketStream<DuplexStream>) {
        let (here, there) = tokio::io::duplex(1024);
        let client = WebSocketStream::from_raw_socket(there, Role::Client, None).await;
        let rationed = MeteredReader::new(here, |_| Box::pin(std::future::ready(None))).within(window);
        (WebSocketFrames::over(rationed, MOST, timing).await, client)
    }

    /// A text with a permit, and a handle that shows whether the permit is held. Frames end inside characters.
    fn roomy_text(bytes: usize) -> (Utf8Bytes, Weak<()>) {
        let room = Arc::new(());
        let held = Arc::downgrade(&room);
        let text = format!("x{}y", "ä".repeat(bytes / 2 - 1));
        (Utf8Bytes::try_from(within_budget(text.into(), Some(room))).unwrap(), held)
    }

    #[tokio::test]
    async fn a_long_answer_takes_up_room_until_its_last_piece_and_may_take_long() {
        const PIECES: usize = 25;
        let pause = Duration::from_millis(50);
        let (outbox, mut texts) = mpsc::channel(2);
        let (mut frames, mut client) =
            pair(WebSocketTiming { patience: 20 * pause, ..WebSocketTiming::default() }).await;
        let (text, held) = roomy_text(PIECES * PIECE);
        outbox.send(text.clone()).await.unwrap();
        let whole = Bytes::copy_from_slice(text.as_ref());
        drop(text);
        let server = tokio::spawn(async move { (frames.next(&mut texts).await, texts) });
        let stream = client.get_mut();
        for number in 0..PIECES {
            tokio::time::sleep(pause).await;
            let (mut head, mut piece) = ([0; 4], vec![0; PIECE]);
            let _read = stream.read_exact(&mut head).await.unwrap();
            assert!(held.upgrade().is_some(), "{number}: the rest has not gone");
            let _read = stream.read_exact(&mut piece).await.unwrap();
            let first = u8::from(number == 0) | if number + 1 == PIECES { 0x80 } else { 0 };
            assert_eq!((head[0], piece), (first, whole[number * PIECE..][..PIECE].to_vec()));
        }
        let (text, held_too) = roomy_text(3 * PIECE + 2);
        outbox.send(text.clone()).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), Message::Text(text), "a client makes one of them");
        assert!(held.upgrade().is_none());
        client.send(Message::from("read")).await.unwrap();
        assert_eq!(server.await.unwrap().0, Ok("read".into()));
        assert!(held_too.upgrade().is_none());
    }

    #[tokio::test]
    async fn whoever_asks_is_answered_within_a_long_message() {
        let (outbox, mut texts) = mpsc::channel(1);
        let (mut frames, mut client) = pair(WebSocketTiming::default()).await;
        outbox.send("x".repeat(8 * PIECE).into()).await.unwrap();
        let server = tokio::spawn(async move { (frames.next(&mut texts).await, texts) });
        let stream = client.get_mut();
        let mut first = vec![0; 4 + PIECE];
        let _read = stream.read_exact(&mut first).await.unwrap();
        client.send(Message::Ping(Bytes::from_static(b"here?"))).await.unwrap();
        client.send(Message::from("next")).await.unwrap();
        let mut rest = vec![0; 7 * (4 + PIECE) + 7];
        let _read = client.get_mut().read_exact(&mut rest).await.unwrap();
        let pong = [0x8a, 5, b'h', b'e', b'r', b'e', b'?'];
        let at = rest.windows(pong.len()).position(|bytes| bytes == pong).unwrap();
        assert!(at < rest.len() - pong.len(), "not after everything else");
        assert_eq!(server.await.unwrap().0, Ok("next".into()));
    }

    #[tokio::test]
    async fn whoever_sends_is_not_late_while_nothing_is_read() {
        let window = Duration::from_millis(500);
        let (outbox, mut texts) = mpsc::channel(1);
        let (mut frames, mut client) = pair_within(WebSocketTiming::default(), window).await;
        let server = tokio::spawn(async move { (frames.next(&mut texts).await, texts) });
        let stream = client.get_mut();
        // The first two bytes of a four-byte text, with a mask of zeros.
        stream.write_all(&[0x81, 0x84, 0, 0, 0, 0, b'l', b'a']).await.unwrap();
        tokio::time::sleep(window / 10).await;
        outbox.send("x".repeat(2 * PIECE).into()).await.unwrap();
        tokio::time::sleep(2 * window).await;
        let mut sent = vec![0; 2 * (4 + PIECE)];
        let _read = stream.read_exact(&mut sent).await.unwrap();
        tokio::time::sleep(window / 10).await;
        stream.write_all(b"te").await.unwrap();
        let (message, mut texts) = server.await.unwrap();
        assert_eq!(message, Ok("late".into()));
        // The control: the daemon sends nothing.
        let (mut frames, mut client) = pair_within(WebSocketTiming::default(), window).await;
        client.get_mut().write_all(&[0x81, 0x84, 0, 0, 0, 0, b'l', b'a']).await.unwrap();
        assert_eq!(frames.next(&mut texts).await, Err(CloseReason::Late));
    }

    #[tokio::test]
    async fn whoever_says_nothing_is_let_go_and_told_why() {
        let (_outbox, mut nothing) = mpsc::channel(1);
        let [round, silence] = [10, 50].map(Duration::from_millis);
        let (mut frames, mut client) =
            pair(WebSocketTiming { round, silence, ..WebSocketTiming::default() }).await;
        let end = frames.next(&mut nothing).await.unwrap_err();
        assert_eq!(end, CloseReason::Silent);
        let there = tokio::spawn(async move {
            let mut last = None;
            while let Some(Ok(message)) = client.next().await {
                last = Some(message);
            }
            last
        });
        frames.close(end).await;
        let last = there.await.unwrap();
        assert!(
            matches!(&last, Some(Message::Close(Some(frame))) if frame.code == CloseCode::Policy),
            "{last:?}"
        );
    }

    #[tokio::test]
    async fn whoever_answers_is_asked_again_and_stays() {
        let (_outbox, mut nothing) = mpsc::channel(1);
        let round = Duration::from_millis(10);
        let (mut frames, mut client) = pair(WebSocketTiming { round, ..WebSocketTiming::default() }).await;
        let there = tokio::spawn(async move {
            for _ in 0..5 {
                assert!(client.next().await.unwrap().unwrap().is_ping());
            }
            client.send(Message::from("still here")).await.unwrap();
            client
        });
        assert_eq!(frames.next(&mut nothing).await, Ok("still here".into()));
        let _client = there.await.unwrap();
    }

    #[tokio::test]
    async fn nothing_is_kept_for_whoever_does_not_read() {
        let (outbox, mut sent) = mpsc::channel(4);
        let patience = Duration::from_millis(50);
        let (mut frames, _client) = pair(WebSocketTiming { patience, ..WebSocketTiming::default() }).await;
        let flood = tokio::spawn(async move {
            let mut count = 0;
            while outbox.send("x".repeat(1000).into()).await.is_ok() {
                count += 1;
            }
            count
        });
        assert_eq!(frames.next(&mut sent).await, Err(CloseReason::Slow));
        drop(sent);
        assert!(flood.await.unwrap() < 16, "so much was under way and no more");
    }

    #[tokio::test]
    async fn what_is_no_text_is_the_end() {
        for (message, end) in [
            (Message::Binary(Bytes::from_static(b"{}")), CloseReason::Binary),
            (Message::Text("x".repeat(MOST + 1).into()), CloseReason::TooLarge),
            (Message::Close(None), CloseReason::Gone),
        ] {
            let (_outbox, mut nothing) = mpsc::channel(1);
            let (mut frames, mut client) = pair(WebSocketTiming::default()).await;
            let there = tokio::spawn(async move { client.send(message).await });
            assert_eq!(frames.next(&mut nothing).await, Err(end));
            drop(frames);
            let _sent = there.await.unwrap();
        }
    }
}
