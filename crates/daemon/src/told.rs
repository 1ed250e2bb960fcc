//! What is sent back over gRPC: messages in their frames, and at the end in trailers how it ended.

use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;
use ringfence_api::{ApiError, ErrorCode};
use ringfence_grpc::{code, status};
use tokio::sync::mpsc;
use tonic::{Code, Status};

use crate::answers::Slices;
use crate::stream::Held;

/// The beginning of a message that is not compressed.
const PLAIN: u8 = 0;

/// Why there is no more, or nothing.
#[derive(Debug)]
pub(crate) struct Failed {
    /// gRPC has codes of its own for what is wrong with gRPC.
    code: Code,
    pub(crate) error: ApiError,
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self { code: code(error.code), error }
    }
}

impl Failed {
    /// There is no such thing here, and there will be none if it is asked for again.
    pub(crate) fn unimplemented(error: ApiError) -> Self {
        Self { code: Code::Unimplemented, error }
    }

    pub(crate) fn status(&self) -> Status {
        status(self.code, &self.error)
    }
}

/// One message, or an end that is not a good one.
pub(crate) type Piece = Result<Bytes, Failed>;

pub(crate) struct Told {
    /// What is told first.
    whole: Slices,
    pieces: mpsc::Receiver<Piece>,
    held: Held,
    request_id: String,
    is_over: bool,
}

impl Told {
    /// Ends well when `pieces` do.
    pub(crate) fn new(pieces: mpsc::Receiver<Piece>, held: Held, request_id: &str) -> Self {
        Self { whole: Slices::default(), pieces, held, request_id: request_id.to_owned(), is_over: false }
    }

    pub(crate) fn beginning_with(self, whole: Slices) -> Self {
        Self { whole, ..self }
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(piece) = self.whole.next() {
            return Poll::Ready(Some(Frame::data(piece)));
        }
        let piece = match self.held.poll_lost(context) {
            Poll::Ready(why) => Some(Err(why.into())),
            Poll::Pending => std::task::ready!(self.pieces.poll_recv(context)),
        };
        let status = match piece {
            Some(Ok(message)) => return Poll::Ready(Some(Frame::data(message))),
            Some(Err(mut failed)) => {
                failed.error.request_id = Some(self.request_id.clone());
                failed.status()
            }
            None => Status::ok(""),
        };
        self.is_over = true;
        Poll::Ready(Some(Frame::trailers(trailers(&status))))
    }
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if let Err(error) = status.add_header(&mut trailers) {
        tracing::error!(why = %error, "a status cannot be said");
        let _new = trailers.insert(Status::GRPC_STATUS, http::HeaderValue::from(Code::Internal as i32));
    }
    trailers
}

/// A message in its frame.
pub(crate) fn framed(message: &[u8]) -> Result<Bytes, ApiError> {
    let length = u32::try_from(message.len())
        .map_err(|_long| ApiError::new(ErrorCode::TooLarge, "the answer is too long for a message"))?;
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(PLAIN);
    frame.put_u32(length);
    frame.put_slice(message);
    Ok(frame.freeze())
}
