//! The frames of one WebSocket: text in, text out, and an end to whoever is silent, slow or makes no sense.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Message};

/// How often the other side is asked whether it is there.
const ROUND: Duration = Duration::from_secs(20);
/// How long it may say nothing, not even that it is there.
const SILENCE: Duration = Duration::from_secs(60);
/// How long it may leave unread what is sent to it.
const PATIENCE: Duration = Duration::from_secs(10);
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
        })
    }
}

/// One WebSocket.
#[derive(Debug)]
pub(crate) struct Frames<S> {
    socket: WebSocketStream<S>,
    heard: Instant,
    round: Interval,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    /// Over a stream on which both sides have agreed. A message has at most `most` bytes, in however many pieces.
    pub(crate) async fn over(stream: S, most: usize) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(Some(most))
            .max_frame_size(Some(most))
            .read_buffer_size(16 * 1024)
            .accept_unmasked_frames(false);
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
        let mut round = interval_at(Instant::now() + ROUND, ROUND);
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { socket, heard: Instant::now(), round }
    }

    /// The next message. Until it comes, what is in `outbox` is sent.
    pub(crate) async fn next(&mut self, outbox: &mut mpsc::Receiver<String>) -> Result<String, End> {
        loop {
            tokio::select! {
                message = self.socket.next() => {
                    let message = message.unwrap_or(Ok(Message::Close(None)));
                    self.heard = Instant::now();
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
    pub(crate) async fn send(&mut self, text: String) -> Result<(), End> {
        self.put(Message::from(text)).await
    }

    async fn look(&mut self) -> Result<(), End> {
        if self.heard.elapsed() >= SILENCE {
            return Err(End::Silent);
        }
        self.put(Message::Ping(Bytes::new())).await
    }

    async fn put(&mut self, message: Message) -> Result<(), End> {
        match timeout(PATIENCE, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Gone),
            Err(_late) => Err(End::Slow),
        }
    }

    /// Says why, where that can still be heard.
    pub(crate) async fn close(mut self, end: End) {
        if let Some((code, reason)) = end.told() {
            let frame = CloseFrame { code, reason: reason.into() };
            // Whoever does not listen any more is not told.
            let _told = timeout(GOODBYE, self.socket.close(Some(frame))).await;
        }
    }
}

fn text_of(message: Result<Message, Error>) -> Result<Option<String>, End> {
    match message {
        Ok(Message::Text(text)) => Ok(Some(text.as_str().to_owned())),
        Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => Ok(None),
        Ok(Message::Binary(_)) => Err(End::Binary),
        Ok(Message::Close(_)) => Err(End::Gone),
        Err(Error::Utf8(_)) => Err(End::NotUtf8),
        Err(Error::Capacity(CapacityError::MessageTooLong { .. })) => Err(End::TooLarge),
        Err(Error::Protocol(_)) => Err(End::Broken),
        Err(_) => Err(End::Gone),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;

    const MOST: usize = 4096;

    async fn pair() -> (Frames<DuplexStream>, WebSocketStream<DuplexStream>) {
        let (here, there) = tokio::io::duplex(1024);
        let client = WebSocketStream::from_raw_socket(there, Role::Client, None).await;
        (Frames::over(here, MOST).await, client)
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_says_nothing_is_let_go_and_whoever_answers_is_not() {
        let (_outbox, mut nothing) = mpsc::channel(1);
        let (mut frames, mut client) = pair().await;
        let there = tokio::spawn(async move {
            // To read is to answer pings.
            for _ in 0..30 {
                assert!(client.next().await.unwrap().unwrap().is_ping());
            }
            client
        });
        let half = Duration::from_secs(25 * 20);
        assert!(timeout(half, frames.next(&mut nothing)).await.is_err(), "nobody ended it");
        let client = tokio::spawn(async move {
            let end = frames.next(&mut nothing).await.unwrap_err();
            assert_eq!(end, End::Silent);
            frames.close(end).await;
        });
        let mut silent = there.await.unwrap();
        client.await.unwrap();
        let mut closed = None;
        while let Some(Ok(message)) = silent.next().await {
            closed = Some(message);
        }
        assert!(
            matches!(closed, Some(Message::Close(Some(frame))) if frame.code == CloseCode::Policy),
            "it is told why"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_whoever_does_not_read() {
        let (outbox, mut sent) = mpsc::channel(4);
        let (mut frames, _client) = pair().await;
        let flood = tokio::spawn(async move {
            let mut count = 0;
            while outbox.send("x".repeat(1000)).await.is_ok() {
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
            let (mut frames, mut client) = pair().await;
            let there = tokio::spawn(async move { client.send(message).await });
            assert_eq!(frames.next(&mut nothing).await, Err(end));
            drop(frames);
            let _sent = there.await.unwrap();
        }
    }
}
