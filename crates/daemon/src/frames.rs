//! The frames of one WebSocket: text in, text out, and an end to whoever is silent, slow or makes no sense.

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

use crate::intake::{Place, Rationed};

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// How often the other side is asked whether it is there.
    round: Duration,
    /// How long it may say nothing, not even that it is there.
    silence: Duration,
    /// How long it may take nothing of what is sent to it.
    patience: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let [round, silence, patience] = [20, 60, 10].map(Duration::from_secs);
        Self { round, silence, patience }
    }
}

/// What is longer is sent in frames of this size. Of what is sent there is a copy until the stream has taken it: were that the whole,
/// the room that an answer takes up would be given back before anything of it has gone.
const PIECE: usize = 16 * 1024;

/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// Why a conversation is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The other side has gone, in order or not.
    Gone,
    /// It did not read what was sent.
    Slow,
    /// It said nothing for too long.
    Silent,
    /// What it sent is no WebSocket.
    Broken,
    /// What it sent is no UTF-8.
    NotUtf8,
    TooLarge,
    /// Bytes where text was meant.
    Binary,
    /// Too many messages that were no requests.
    Nonsense,
    /// Whoever it is would not be let in any more.
    Revoked,
    /// Others send too much at the same time.
    Crowded,
    /// A long message did not come to its end.
    Late,
}

impl End {
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
pub(crate) struct Frames<S> {
    socket: WebSocketStream<Rationed<S>>,
    timing: Timing,
    heard: Instant,
    round: Interval,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    /// Over a stream on which both sides have agreed. A message has at most `most` bytes, in however many pieces.
    pub(crate) async fn over(stream: Rationed<S>, most: usize, timing: Timing) -> Self {
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

    /// The places of the message that came last, for whoever goes on with it.
    pub(crate) fn places(&mut self) -> Vec<Place> {
        self.socket.get_mut().handed_over()
    }

    /// The next message. Until it comes, what is in `outbox` is sent.
    pub(crate) async fn next(&mut self, outbox: &mut mpsc::Receiver<Utf8Bytes>) -> Result<Utf8Bytes, End> {
        // What came before is read by now, and has its places with it.
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

    fn understood(&mut self, message: Option<Result<Message, Error>>) -> Result<Option<Utf8Bytes>, End> {
        let message = message.unwrap_or(Ok(Message::Close(None)));
        self.heard = Instant::now();
        self.socket.get_mut().discount(beside(&message));
        text_of(message)
    }

    /// Whoever takes nothing of it in time gets nothing more: nothing is kept for them.
    pub(crate) async fn send(&mut self, text: Utf8Bytes) -> Result<(), End> {
        for piece in Pieces::of(text) {
            self.put(Message::Frame(piece)).await?;
        }
        Ok(())
    }

    /// The same. What takes long is no reason to leave unanswered whether anybody is here; a message that comes meanwhile is the last that
    /// is read before the end.
    async fn send_and_hear(&mut self, text: Utf8Bytes) -> Result<Option<Utf8Bytes>, End> {
        let mut heard = None;
        for piece in Pieces::of(text) {
            if heard.is_none()
                && let Some(message) = self.socket.next().now_or_never()
            {
                heard = self.understood(message)?;
            }
            self.put(Message::Frame(piece)).await?;
        }
        Ok(heard)
    }

    async fn look(&mut self) -> Result<(), End> {
        if self.heard.elapsed() >= self.timing.silence {
            return Err(End::Silent);
        }
        self.put(Message::Ping(Bytes::new())).await
    }

    /// While this waits nothing is read, which is no fault of whoever sends.
    async fn put(&mut self, message: Message) -> Result<(), End> {
        let began = Instant::now();
        let sent = timeout(self.timing.patience, self.socket.send(message)).await;
        self.heard += began.elapsed();
        self.socket.get_mut().excuse(began.elapsed());
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Gone),
            Err(_late) => Err(End::Slow),
        }
    }

    /// Says why, where that can still be heard, and waits a moment for the other side to say that it was: what is sent to a
    /// stream that is gone takes along what was not read yet.
    pub(crate) async fn close(mut self, end: End) {
        let Some((code, reason)) = end.told() else { return };
        let frame = CloseFrame { code, reason: reason.into() };
        // Whoever does not listen any more is not told.
        let _told = timeout(GOODBYE, async {
            if self.socket.close(Some(frame)).await.is_ok() {
                while let Some(Ok(_)) = self.socket.next().await {}
            }
        })
        .await;
    }
}

/// A text in frames. It takes up room until the last of them is sent.
struct Pieces {
    whole: Bytes,
    /// Where the next one begins, if there is one.
    at: Option<usize>,
}

impl Pieces {
    fn of(text: Utf8Bytes) -> Self {
        Self { whole: text.into(), at: Some(0) }
    }
}

impl Iterator for Pieces {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        let begin = self.at?;
        let end = self.whole.len().min(begin + PIECE);
        self.at = (end < self.whole.len()).then_some(end);
        let kind = if begin == 0 { Data::Text } else { Data::Continue };
        Some(Frame::message(self.whole.slice(begin..end), OpCode::Data(kind), self.at.is_none()))
    }
}

/// The bytes of a frame that may be between those of a message, and is none itself.
fn beside(message: &Result<Message, Error>) -> usize {
    const HEAD_AND_MASK: usize = 6;
    match message {
        Ok(Message::Ping(bytes) | Message::Pong(bytes)) => HEAD_AND_MASK + bytes.len(),
        _ => 0,
    }
}

fn text_of(message: Result<Message, Error>) -> Result<Option<Utf8Bytes>, End> {
    match message {
        Ok(Message::Text(text)) => Ok(Some(text)),
        Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => Ok(None),
        Ok(Message::Binary(_)) => Err(End::Binary),
        Ok(Message::Close(_)) => Err(End::Gone),
        Err(Error::Utf8(_)) => Err(End::NotUtf8),
        Err(Error::Capacity(CapacityError::MessageTooLong { .. })) => Err(End::TooLarge),
        Err(Error::Protocol(_)) => Err(End::Broken),
        Err(Error::Io(error)) if error.kind() == ErrorKind::QuotaExceeded => Err(End::Crowded),
        Err(Error::Io(error)) if error.kind() == ErrorKind::TimedOut => Err(End::Late),
        Err(_) => Err(End::Gone),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;
    use crate::room::roomy;

    const MOST: usize = 4096;

    async fn pair(timing: Timing) -> (Frames<DuplexStream>, WebSocketStream<DuplexStream>) {
        pair_within(timing, Duration::from_secs(60)).await
    }

    /// With the time in which something of a message comes.
    async fn pair_within(
        timing: Timing,
        window: Duration,
    ) -> (Frames<DuplexStream>, WebSocketStream<DuplexStream>) {
        let (here, there) = tokio::io::duplex(1024);
        let client = WebSocketStream::from_raw_socket(there, Role::Client, None).await;
        let rationed = Rationed::new(here, |_| Box::pin(std::future::ready(None))).within(window);
        (Frames::over(rationed, MOST, timing).await, client)
    }

    /// A text that takes up room, and whether it does. Its pieces end within characters.
    fn roomy_text(bytes: usize) -> (Utf8Bytes, Weak<()>) {
        let room = Arc::new(());
        let held = Arc::downgrade(&room);
        let text = format!("x{}y", "ä".repeat(bytes / 2 - 1));
        (Utf8Bytes::try_from(roomy(text.into(), Some(room))).unwrap(), held)
    }

    #[tokio::test]
    async fn a_long_answer_takes_up_room_until_its_last_piece_and_may_take_long() {
        const PIECES: usize = 25;
        let pause = Duration::from_millis(50);
        let (outbox, mut texts) = mpsc::channel(2);
        let (mut frames, mut client) = pair(Timing { patience: 20 * pause, ..Timing::default() }).await;
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
        let (mut frames, mut client) = pair(Timing::default()).await;
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
        let (mut frames, mut client) = pair_within(Timing::default(), window).await;
        let server = tokio::spawn(async move { (frames.next(&mut texts).await, texts) });
        let stream = client.get_mut();
        // A text of four bytes and a mask that changes nothing, of which two are there.
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
        // The control: nobody is written to.
        let (mut frames, mut client) = pair_within(Timing::default(), window).await;
        client.get_mut().write_all(&[0x81, 0x84, 0, 0, 0, 0, b'l', b'a']).await.unwrap();
        assert_eq!(frames.next(&mut texts).await, Err(End::Late));
    }

    #[tokio::test]
    async fn whoever_says_nothing_is_let_go_and_told_why() {
        let (_outbox, mut nothing) = mpsc::channel(1);
        let [round, silence] = [10, 50].map(Duration::from_millis);
        let (mut frames, mut client) = pair(Timing { round, silence, ..Timing::default() }).await;
        let end = frames.next(&mut nothing).await.unwrap_err();
        assert_eq!(end, End::Silent);
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
        let (mut frames, mut client) = pair(Timing { round, ..Timing::default() }).await;
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
        let (mut frames, _client) = pair(Timing { patience, ..Timing::default() }).await;
        let flood = tokio::spawn(async move {
            let mut count = 0;
            while outbox.send("x".repeat(1000).into()).await.is_ok() {
                count += 1;
            }
            count
        });
        assert_eq!(frames.next(&mut sent).await, Err(End::Slow));
        drop(sent);
        assert!(flood.await.unwrap() < 16, "so much was under way and no more");
    }

    #[tokio::test]
    async fn what_is_no_text_is_the_end() {
        for (message, end) in [
            (Message::Binary(Bytes::from_static(b"{}")), End::Binary),
            (Message::Text("x".repeat(MOST + 1).into()), End::TooLarge),
            (Message::Close(None), End::Gone),
        ] {
            let (_outbox, mut nothing) = mpsc::channel(1);
            let (mut frames, mut client) = pair(Timing::default()).await;
            let there = tokio::spawn(async move { client.send(message).await });
            assert_eq!(frames.next(&mut nothing).await, Err(end));
            drop(frames);
            let _sent = there.await.unwrap();
        }
    }
}
