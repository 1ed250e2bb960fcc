//! Lingering close of HTTP/1 connections. A kernel that closes a socket with unread data resets the connection, and the
//! reset can overtake the response. The daemon therefore shuts down its sending side, reads what the client still
//! sends, and closes when the client does. Time and bytes are bounded, because the connection holds its slot meanwhile.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::transport::http::MOST_WITH_FILE;

const PIECE: usize = 16 * 1024;

/// Bounds of the lingering close.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linger {
    whole: Duration,
    /// Between two reads.
    silence: Duration,
    bytes: usize,
}

impl Default for Linger {
    fn default() -> Self {
        let [whole, silence] = [5, 2].map(Duration::from_secs);
        Self { whole, silence, bytes: MOST_WITH_FILE }
    }
}

/// Closes a connection so that its last response arrives.
pub(crate) async fn linger<S: AsyncRead + AsyncWrite + Unpin>(stream: S, limits: Linger) {
    let _late = timeout(limits.whole, closed(stream, limits)).await;
}

async fn closed<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, limits: Linger) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let (mut piece, mut left) = (vec![0; PIECE], limits.bytes);
    while left > 0 {
        match timeout(limits.silence, stream.read(&mut piece)).await {
            Ok(Ok(read)) if read > 0 => left = left.saturating_sub(read),
            _ => return,
        }
    }
}

/// A stream that is returned to its lender when dropped.
#[derive(Debug)]
pub(crate) struct Lent<S> {
    /// `Some` until it is dropped.
    stream: Option<S>,
    back: Option<oneshot::Sender<S>>,
}

impl<S> Lent<S> {
    pub(crate) fn new(stream: S) -> (Self, oneshot::Receiver<S>) {
        let (back, returned) = oneshot::channel();
        (Self { stream: Some(stream), back: Some(back) }, returned)
    }
}

impl<S> Drop for Lent<S> {
    fn drop(&mut self) {
        if let (Some(stream), Some(back)) = (self.stream.take(), self.back.take()) {
            let _nobody_waits = back.send(stream);
        }
    }
}

impl<S: Unpin> Lent<S> {
    fn own(self: Pin<&mut Self>) -> io::Result<Pin<&mut S>> {
        self.get_mut().stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lent<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.own()?.poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lent<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.own()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.own()?.poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.own()?.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.own()?.poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use tokio::time::Instant;

    use super::*;

    const SHORT: Duration = Duration::from_millis(100);
    /// Longer than any step of these tests takes.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn the_close_waits_for_what_the_client_still_sends() {
        let (here, mut there) = duplex(1024);
        let limits = Linger { whole: LONG, silence: LONG, bytes: usize::MAX };
        let closing = tokio::spawn(linger(here, limits));
        // More than the buffer between both ends holds.
        there.write_all(&[0; 100 * 1024]).await.unwrap();
        let mut told = Vec::new();
        assert_eq!(there.read_to_end(&mut told).await.unwrap(), 0, "nothing more comes");
        assert!(!closing.is_finished(), "the client is still there");
        drop(there);
        timeout(LONG, closing).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_close_waits_neither_for_long_nor_for_much() {
        let forever = Linger { whole: LONG, silence: LONG, bytes: usize::MAX };
        for limits in [
            Linger { whole: SHORT, ..forever },
            Linger { silence: SHORT, ..forever },
            Linger { bytes: 10_000, ..forever },
        ] {
            let (here, mut there) = duplex(1024);
            let begun = Instant::now();
            let closing = tokio::spawn(linger(here, limits));
            // A client that sends without end, and pauses where the silence limit is under test.
            let pause = if limits.silence == SHORT { LONG } else { SHORT / 20 };
            let sends = tokio::spawn(async move {
                while there.write_all(&[0; 512]).await.is_ok() {
                    tokio::time::sleep(pause).await;
                }
            });
            timeout(LONG, closing).await.unwrap().unwrap();
            assert!(begun.elapsed() < LONG, "{limits:?}");
            sends.abort();
        }
    }

    #[tokio::test]
    async fn a_stream_comes_back_from_who_had_it() {
        let (here, _there) = duplex(64);
        let (lent, mut returned) = Lent::new(here);
        assert!(returned.try_recv().is_err(), "it is lent");
        drop(lent);
        assert!(returned.try_recv().is_ok());
    }
}
