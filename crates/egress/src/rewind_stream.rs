//! Rewind stream: a connection from which some bytes were already read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Returns the stored bytes first.
#[derive(Debug)]
pub(crate) struct RewindStream {
    head: Bytes,
    stream: TcpStream,
}

impl RewindStream {
    pub(crate) fn new(head: Bytes, stream: TcpStream) -> Self {
        Self { head, stream }
    }

    /// Puts back bytes that were read.
    pub(crate) fn unread(self, bytes: Bytes) -> Self {
        if bytes.is_empty() {
            return self;
        }
        let mut head = BytesMut::from(&bytes[..]);
        head.extend_from_slice(&self.head);
        Self { head: head.freeze(), stream: self.stream }
    }

    pub(crate) fn into_parts(self) -> (Bytes, TcpStream) {
        (self.head, self.stream)
    }
}

impl AsyncRead for RewindStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.head.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let count = self.head.len().min(buf.remaining());
        buf.put_slice(self.head.get(..count).unwrap_or_default());
        self.head.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RewindStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
