//! HTTP response bodies: a value, or a stream that ends early when its credential is revoked.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use http_body_util::combinators::BoxBody;
use ringfence_api::{ApiError, OutputChunk};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::admit::revocation::CredentialLease;
use crate::limits::response_memory::ResponseSlices;
use crate::transport::grpc_body::GrpcBody;
use crate::transport::http::text;

/// Longest time for sending the reason of a revocation.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(crate) enum ResponseBody {
    Whole(ResponseSlices),
    Pieces(StreamBody),
    /// An MCP response. It ends with its call.
    Tools(BoxBody<Bytes, Infallible>),
    /// gRPC messages.
    Told(GrpcBody),
}

pub(crate) struct StreamBody {
    pieces: mpsc::Receiver<Bytes>,
    held: RevocableBody,
    form: StreamFormat,
    is_cut: bool,
}

/// Ends a response when its credential is revoked.
pub(crate) struct RevocableBody {
    /// Resolves with the reason of the revocation.
    lost: Pin<Box<dyn Future<Output = ApiError> + Send>>,
    _there: oneshot::Sender<Infallible>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum StreamFormat {
    Events,
    Lines,
}

impl StreamFormat {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Events => "text/event-stream",
            Self::Lines => "application/x-ndjson",
        }
    }

    fn last_words(self, why: ApiError) -> Bytes {
        match self {
            Self::Events => format!("event: cut\ndata: {}\n\n", text(&why)).into(),
            Self::Lines => format!("{}\n", text(&OutputChunk::Closed { error: Box::new(why) })).into(),
        }
    }
}

impl RevocableBody {
    /// `cut` closes the connection of a client that does not read the reason.
    pub(crate) fn new(standing: CredentialLease, cut: Arc<Notify>) -> Self {
        let (there, gone) = oneshot::channel();
        let (mut own, mut watched) = (standing.clone(), standing);
        let lost = Box::pin(async move { own.revoked().await });
        let _watching = tokio::spawn(async move {
            tokio::pin!(gone);
            tokio::select! {
                _why = watched.revoked() => {}
                _ended = &mut gone => return,
            }
            if tokio::time::timeout(LAST_WORDS, gone).await.is_err() {
                cut.notify_one();
            }
        });
        Self { lost, _there: there }
    }

    pub(crate) fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<ApiError> {
        self.lost.as_mut().poll(context)
    }
}

impl StreamBody {
    pub(crate) fn new(pieces: mpsc::Receiver<Bytes>, form: StreamFormat, held: RevocableBody) -> Self {
        Self { pieces, held, form, is_cut: false }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.is_cut {
            return Poll::Ready(None);
        }
        if let Poll::Ready(why) = self.held.poll_lost(context) {
            self.is_cut = true;
            return Poll::Ready(Some(self.form.last_words(why)));
        }
        self.pieces.poll_recv(context)
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(whole) => Poll::Ready(whole.next().map(|piece| Ok(Frame::data(piece)))),
            Self::Tools(messages) => Pin::new(messages).poll_frame(context),
            Self::Pieces(pieces) => {
                pieces.poll_next(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
            Self::Told(told) => told.poll_next(context).map(|frame| frame.map(Ok)),
        }
    }

    /// An empty response ends with its head. That makes a gRPC refusal trailers-only: clients ignore a status in a head
    /// that does not end the stream.
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_empty(),
            Self::Tools(messages) => messages.is_end_stream(),
            Self::Pieces(_) | Self::Told(_) => false,
        }
    }
}
