//! What is sent back over HTTP: a value, or pieces until there are no more or whoever gets them may not have the rest.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use http_body_util::combinators::BoxBody;
use ringfence_api::{ApiError, Chunk};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::answers::Slices;
use crate::http::text;
use crate::standing::Standing;
use crate::told::Told;

/// How long somebody may take to hear why they are cut off.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(crate) enum Body {
    Whole(Slices),
    Pieces(Pieces),
    /// As the Model Context Protocol has it. It ends with the call that it is about.
    Tools(BoxBody<Bytes, Infallible>),
    /// Messages of gRPC.
    Told(Told),
}

pub(crate) struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    held: Held,
    form: Form,
    is_cut: bool,
}

/// Something that is held open by somebody's right to it.
pub(crate) struct Held {
    /// Why the rest is not for them.
    lost: Pin<Box<dyn Future<Output = ApiError> + Send>>,
    _there: oneshot::Sender<Infallible>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Events,
    Lines,
}

impl Form {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Events => "text/event-stream",
            Self::Lines => "application/x-ndjson",
        }
    }

    fn last_words(self, why: ApiError) -> Bytes {
        match self {
            Self::Events => format!("event: cut\ndata: {}\n\n", text(&why)).into(),
            Self::Lines => format!("{}\n", text(&Chunk::Cut { error: Box::new(why) })).into(),
        }
    }
}

impl Held {
    /// `cut` ends the connection of somebody who does not even read that it is over.
    pub(crate) fn new(standing: Standing, cut: Arc<Notify>) -> Self {
        let (there, gone) = oneshot::channel();
        let (mut own, mut watched) = (standing.clone(), standing);
        let lost = Box::pin(async move { own.lost().await });
        let _watching = tokio::spawn(async move {
            tokio::pin!(gone);
            tokio::select! {
                _why = watched.lost() => {}
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

impl Pieces {
    pub(crate) fn new(pieces: mpsc::Receiver<Bytes>, form: Form, held: Held) -> Self {
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

impl HttpBody for Body {
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

    /// An empty answer ends with its head. A refusal over gRPC is trailers-only because of that: clients take a status in a head
    /// that does not end the stream for no status at all.
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_empty(),
            Self::Tools(messages) => messages.is_end_stream(),
            Self::Pieces(_) | Self::Told(_) => false,
        }
    }
}
