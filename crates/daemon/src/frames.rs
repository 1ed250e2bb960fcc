//! The frames of one WebSocket: text in, text out, and an end to whoever is silent, slow or makes no sense.

use std::io::ErrorKind;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
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
    /// How long it may leave unread what is sent to it.
    patience: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let [round, silence, patience] = [20, 60, 10].map(Duration::from_secs);
        Self { round, silence, patience }
    }
}

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
                    let message = message.unwrap_or(Ok(Message::Close(None)));
                    self.heard = Instant::now();
                    self.socket.get_mut().discount(beside(&message));
                    if let Some(text) = text_of(message)? {
                        return Ok(text);
                    }
                }
                Some(text) = outbox.recv() => self.send(text).await?,
                _at = self.round.tick() => self.look().await?,
            }
        }
    }

    /// Whoever does not take it in time gets nothing more: nothing is kept for them.
    pub(crate) async fn send(&mut self, text: Utf8Bytes) -> Result<(), End> {
        self.put(Message::Text(text)).await
    }

    async fn look(&mut self) -> Result<(), End> {
        if self.heard.elapsed() >= self.timing.silence {
            return Err(End::Silent);
        }
        self.put(Message::Ping(Bytes::new())).await
    }

    async fn put(&mut self, message: Message) -> Result<(), End> {
        match timeout(self.timing.patience, self.socket.send(message)).await {
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
    use tokio::io::DuplexStream;

    use super::*;

    const MOST: usize = 4096;

    async fn pair(timing: Timing) -> (Frames<DuplexStream>, WebSocketStream<DuplexStream>) {
        let (here, there) = tokio::io::duplex(1024);
        let client = WebSocketStream::from_raw_socket(there, Role::Client, None).await;
        let rationed = Rationed::new(here, |_| Box::pin(std::future::ready(None)));
        (Frames::over(rationed, MOST, timing).await, client)
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
