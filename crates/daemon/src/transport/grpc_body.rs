//! gRPC response bodies: framed messages, and the status in the trailers.

use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;
use ringfence_api::{ApiError, ErrorCode};
use ringfence_grpc::{code, status};
use tokio::sync::mpsc;
use tonic::{Code, Status};

use crate::limits::response_memory::ResponseSlices;
use crate::transport::http_body::RevocableBody;

/// Flag of an uncompressed message.
const PLAIN: u8 = 0;

/// A failed response.
#[derive(Debug)]
pub(crate) struct GrpcFailure {
    /// The gRPC code, which differs from that of `error` for protocol failures.
    code: Code,
    pub(crate) error: ApiError,
}

impl From<ApiError> for GrpcFailure {
    fn from(error: ApiError) -> Self {
        Self { code: code(error.code), error }
    }
}

impl GrpcFailure {
    /// A permanent failure: a retry cannot succeed.
    pub(crate) fn unimplemented(error: ApiError) -> Self {
        Self { code: Code::Unimplemented, error }
    }

    pub(crate) fn status(&self) -> Status {
        status(self.code, &self.error)
    }
}

/// One message, or the failure that ends the stream.
pub(crate) type GrpcFrame = Result<Bytes, GrpcFailure>;

pub(crate) struct GrpcBody {
    /// Sent before `pieces`.
    whole: ResponseSlices,
    pieces: mpsc::Receiver<GrpcFrame>,
    held: RevocableBody,
    request_id: String,
    is_over: bool,
}

impl GrpcBody {
    /// Ends with status OK when `pieces` ends.
    pub(crate) fn new(pieces: mpsc::Receiver<GrpcFrame>, held: RevocableBody, request_id: &str) -> Self {
        Self {
            whole: ResponseSlices::default(),
            pieces,
            held,
            request_id: request_id.to_owned(),
            is_over: false,
        }
    }

    pub(crate) fn beginning_with(self, whole: ResponseSlices) -> Self {
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
        tracing::error!(error = %error, "cannot encode the gRPC status");
        let _new = trailers.insert(Status::GRPC_STATUS, http::HeaderValue::from(Code::Internal as i32));
    }
    trailers
}

/// Adds the frame header to a message.
pub(crate) fn framed(message: &[u8]) -> Result<Bytes, ApiError> {
    let length = u32::try_from(message.len())
        .map_err(|_long| ApiError::new(ErrorCode::TooLarge, "the answer is too long for a message"))?;
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(PLAIN);
    frame.put_u32(length);
    frame.put_slice(message);
    Ok(frame.freeze())
}
