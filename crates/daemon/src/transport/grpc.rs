//! The gRPC transport: messages to a method and its request, and back. Authentication is shared with HTTP.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Response, Version};
use ringfence_api::{
    ApiError, ErrorCode, MOST_SENT, Method, MethodAccess, OutputChunk, RequestBodyKind, Response as Answer,
    ResponseKind,
};
use ringfence_grpc::{Rpc, RpcStreaming};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tonic::codec::{DecodeBuf, Decoder, Streaming};
use tonic::{Code, Status};

use crate::admit::authenticate::authenticate_as;
use crate::admit::dispatch::IncomingRequest;
use crate::admit::revocation::CredentialLease;
use crate::calls::handle::{MethodResponse, StreamItem, UNDER_WAY, ask, blocking};
use crate::calls::output_channel::{LEFT, SendOutcome, sent};
use crate::errors::malformed;
use crate::limits::budget::{Permit, within_budget};
use crate::limits::event_budget::EventPermit;
use crate::limits::min_body_rate::{BodyTooSlow, TimedBody};
use crate::limits::request_rate::is_urgent;
use crate::limits::response_memory::ResponseSlices;
use crate::observe::events;
use crate::observe::telemetry::TraceContext;
use crate::server::Daemon;
use crate::transport::grpc_body::{GrpcBody, GrpcFailure, GrpcFrame, framed};
use crate::transport::http::{HttpConnection, UNASKED, drain_body, max_body, token};
use crate::transport::http_body::{ResponseBody, RevocableBody};
use crate::transport::request_body::RequestBody;

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");
const ENCODING: &str = "grpc-encoding";
const TIMEOUT: &str = "grpc-timeout";

/// Whether the client speaks gRPC, and so understands no other response. The media type may name a message format that
/// the daemon lacks.
pub(crate) fn is_http2(version: Version, headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    let format = kind.strip_prefix(b"application/grpc");
    version == Version::HTTP_2
        && format.is_some_and(|format| matches!(format.first(), None | Some(b'+' | b';')))
}

/// The gRPC status for a listener without gRPC.
pub(crate) fn unimplemented() -> Response<ResponseBody> {
    let told = ApiError::new(ErrorCode::NotFound, "there is no gRPC here");
    status_only(&GrpcFailure::unimplemented(told.with_hint("it is on the Unix socket of the daemon")))
}

/// The status for a request that failed before its method was known.
pub(crate) fn refusal(error: ApiError) -> Response<ResponseBody> {
    status_only(&GrpcFailure::from(error))
}

/// Responds to one request. Every failure is a status.
pub(crate) async fn answer(
    line: &Arc<HttpConnection>,
    request: http::Request<RequestBody>,
    id: &str,
) -> Response<ResponseBody> {
    let body = match respond(line, request, id).await {
        Ok(told) => ResponseBody::Told(told),
        Err(mut failed) => {
            line.daemon.meters.error(failed.error.code);
            failed.error.request_id = Some(id.to_owned());
            return status_only(&failed);
        }
    };
    let mut response = Response::new(body);
    let _new = response.headers_mut().insert(CONTENT_TYPE, MEDIA_TYPE);
    response
}

/// A trailers-only response: the status is in the head, and there is no body.
fn status_only(failed: &GrpcFailure) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(ResponseSlices::default()));
    let headers = response.headers_mut();
    let _new = headers.insert(CONTENT_TYPE, MEDIA_TYPE);
    if let Err(error) = failed.status().add_header(headers) {
        tracing::error!(error = %error, "cannot encode the gRPC status");
        let _new = headers.insert(Status::GRPC_STATUS, HeaderValue::from(Code::Internal as i32));
    }
    response
}

async fn respond(
    line: &Arc<HttpConnection>,
    request: http::Request<RequestBody>,
    id: &str,
) -> Result<GrpcBody, GrpcFailure> {
    let (head, body) = request.into_parts();
    let (asker, standing) = match GrpcCaller::let_in(line, &head).await {
        Ok(let_in) => let_in,
        Err(failed) => {
            drain_body(body).await;
            return Err(failed);
        }
    };
    let (rpc, until) = (asker.rpc, asker.until);
    // The length of a message is only known when it has arrived.
    let longest = longest(rpc.method);
    if rpc.flow == RpcStreaming::Conversation {
        let messages = Streaming::new_request(RawMessage, body, None, Some(longest));
        let (pieces, told) = mpsc::channel(UNDER_WAY);
        let _conversation = tokio::spawn(asker.converse(messages, pieces));
        return Ok(respond_with(line, told, standing, id));
    }
    let until_or_far = until.unwrap_or_else(far);
    // Methods without authentication have short bodies, so unauthenticated clients never take memory permits.
    let memory = if longest <= UNASKED { Permit::default() } else { asker.place_for_long(longest).await? };
    let mut messages = Streaming::new_request(RawMessage, TimedBody::new(body), None, Some(longest));
    let message = tokio::time::timeout_at(until_or_far, only(&mut messages)).await;
    let message = message.map_err(|_late| late("the request did not come to its end"))??;
    let answer = tokio::time::timeout_at(until_or_far, asker.ask(message, memory)).await;
    let (pieces, told) = mpsc::channel(UNDER_WAY);
    let standing = match answer.map_err(|_late| late("the time that the client gave was over"))?? {
        MethodResponse::Value(response, scale) => {
            let message = framed(&rpc.write(*response)?)?;
            let message = scale.answer(message, &line.cut).await?;
            return Ok(respond_with(line, told, CredentialLease::of_owner(), id).beginning_with(message));
        }
        MethodResponse::Stream(items, standing) => {
            let (daemon, cut) = (Arc::clone(&line.daemon), Arc::clone(&line.cut));
            let teller = GrpcStreamSender { daemon, cut, rpc, pieces };
            let _teller = tokio::spawn(teller.send_stream(items, until));
            standing
        }
    };
    Ok(respond_with(line, told, standing, id))
}

/// The limit of HTTP, except that a file is raw here and shorter than its base64.
fn longest(method: Method) -> usize {
    match method.brings() {
        RequestBodyKind::File => MOST_SENT as usize + UNASKED,
        _ => max_body(method),
    }
}

fn respond_with(
    line: &HttpConnection,
    told: mpsc::Receiver<GrpcFrame>,
    standing: CredentialLease,
    id: &str,
) -> GrpcBody {
    GrpcBody::new(told, RevocableBody::new(standing, Arc::clone(&line.cut)), id)
}

/// The called method, if its encoding is supported.
fn called(head: &Parts) -> Result<&'static Rpc, GrpcFailure> {
    let none = |message: &str, hint: &str| {
        GrpcFailure::unimplemented(ApiError::new(ErrorCode::NotFound, message).with_hint(hint))
    };
    let rpc = Rpc::at(head.uri.path()).filter(|_| head.method == http::Method::POST);
    let rpc = rpc.ok_or_else(|| none("there is no such method", "`proto/ringfence/v1` has all there are"))?;
    let kind = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !matches!(kind, Some(b"application/grpc" | b"application/grpc+proto")) {
        return Err(none("messages are in protobuf here", "send `content-type: application/grpc+proto`"));
    }
    if head.headers.get(ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(none("messages are not compressed here", "send them with `grpc-encoding: identity`"));
    }
    Ok(rpc)
}

/// The client's timeout: at most eight digits and a unit.
fn deadline(headers: &HeaderMap) -> Result<Option<Duration>, ApiError> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    let wrong = || malformed("`grpc-timeout` is not a number of up to eight digits with a unit");
    let (unit, digits) = value.as_bytes().split_last().ok_or_else(wrong)?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(wrong());
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    match unit {
        b'H' => Ok(Some(Duration::from_secs(number * 3600))),
        b'M' => Ok(Some(Duration::from_secs(number * 60))),
        b'S' => Ok(Some(Duration::from_secs(number))),
        b'm' => Ok(Some(Duration::from_millis(number))),
        b'u' => Ok(Some(Duration::from_micros(number))),
        b'n' => Ok(Some(Duration::from_nanos(number))),
        _ => Err(wrong()),
    }
}

/// The deadline of a client without a timeout: longer than any request lasts.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(365 * 24 * 3600)
}

fn late(message: &str) -> ApiError {
    ApiError::new(ErrorCode::DeadlineExceeded, message)
}

/// A message as received. It is decoded later, when its length limit is known.
struct RawMessage;

impl Decoder for RawMessage {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, frame: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(frame.copy_to_bytes(frame.remaining())))
    }
}

async fn next(messages: &mut Streaming<Bytes>) -> Result<Option<Bytes>, ApiError> {
    messages.message().await.map_err(|status| match status.code() {
        _ if is_late(&status) => late(&BodyTooSlow.to_string()),
        Code::OutOfRange => ApiError::new(ErrorCode::TooLarge, "the request is longer than it may be here"),
        _ => malformed("the request is no message of gRPC, or did not come to its end"),
    })
}

fn is_late(status: &Status) -> bool {
    std::error::Error::source(status).is_some_and(|error| error.is::<BodyTooSlow>())
}

async fn only(messages: &mut Streaming<Bytes>) -> Result<Bytes, ApiError> {
    let message = next(messages).await?.ok_or_else(|| malformed("there is no message in the request"))?;
    match next(messages).await? {
        Some(_) => Err(malformed("there is more than one message in the request")),
        None => Ok(message),
    }
}

/// The caller of one method.
struct GrpcCaller {
    line: Arc<HttpConnection>,
    token: Option<String>,
    rpc: &'static Rpc,
    until: Option<Instant>,
    /// The client's parent span.
    parent: Option<TraceContext>,
}

impl GrpcCaller {
    /// Authenticates and authorizes the caller before its body is read. The lease closes the request when its
    /// credential is revoked.
    async fn let_in(
        line: &Arc<HttpConnection>,
        head: &Parts,
    ) -> Result<(Self, CredentialLease), GrpcFailure> {
        let token = token(line, head)?;
        let rpc = called(head)?;
        let until = deadline(&head.headers)?.and_then(|patience| Instant::now().checked_add(patience));
        let parent = TraceContext::of_headers(&head.headers);
        let asker = Self { line: Arc::clone(line), token, rpc, until, parent };
        let standing = asker.standing().await?;
        Ok((asker, standing))
    }

    async fn place_for_long(&self, bytes: usize) -> Result<Permit, ApiError> {
        self.line.place_for_long(self.token.as_deref(), bytes).await
    }

    async fn ask(&self, message: Bytes, memory: Permit) -> Result<MethodResponse, ApiError> {
        let rpc = self.rpc;
        // Decoding a long message would block the thread that serves all connections. The permit moves along, also if
        // the client disconnects.
        let is_long = message.len() > UNASKED;
        let read = move || rpc.read(&message).map(|value| (value, memory));
        let (value, memory) = if is_long { blocking(read).await? } else { read()? };
        let arrived = self.line.incoming(self.token.clone(), rpc.method, value, self.parent);
        ask(&self.line.daemon, IncomingRequest { memory, ..arrived }).await
    }

    async fn standing(&self) -> Result<CredentialLease, ApiError> {
        if self.rpc.method.access() == MethodAccess::Anyone {
            return Ok(CredentialLease::of_owner());
        }
        let (line, shown, method) = (Arc::clone(&self.line), self.token.clone(), self.rpc.method);
        let entered = blocking(move || authenticate_as(&line, shown.as_deref(), method)).await?;
        Ok(entered
            .known
            .map_or_else(CredentialLease::of_owner, |known| self.line.daemon.standings.watch(&known)))
    }

    async fn converse(self, mut messages: Streaming<Bytes>, pieces: mpsc::Sender<GrpcFrame>) {
        let (daemon, cut) = (Arc::clone(&self.line.daemon), Arc::clone(&self.line.cut));
        let teller = GrpcStreamSender { daemon, cut, rpc: self.rpc, pieces };
        let until = self.until.unwrap_or_else(far);
        loop {
            let message = tokio::select! {
                message = next(&mut messages) => message,
                () = teller.pieces.closed() => return,
                () = tokio::time::sleep_until(until) => Err(late("the time that the client gave was over")),
            };
            let answer = match message {
                Ok(Some(message)) => self.answer(message).await,
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if !teller.send_one(answer, None, || true).await {
                return;
            }
        }
    }

    async fn answer(&self, message: Bytes) -> Result<Answer, ApiError> {
        self.line.count(self.token.as_deref(), || is_urgent(self.rpc.method))?;
        let _before = self.line.daemon.meters.requests.fetch_add(1, Ordering::Relaxed);
        match self.ask(message, Permit::default()).await? {
            MethodResponse::Value(response, _short) => Ok(*response),
            MethodResponse::Stream(..) => Err(malformed("this is a stream, and was asked for as a value")),
        }
    }
}

/// Sends the items of a stream to a client.
struct GrpcStreamSender {
    daemon: Arc<Daemon>,
    cut: Arc<Notify>,
    rpc: &'static Rpc,
    pieces: mpsc::Sender<GrpcFrame>,
}

impl GrpcStreamSender {
    async fn send_stream(self, mut items: mpsc::Receiver<StreamItem>, until: Option<Instant>) {
        let until = until.unwrap_or_else(far);
        loop {
            // Detects a disconnect also while no item arrives.
            let item = tokio::select! {
                item = items.recv() => item.ok_or_else(unfinished),
                () = self.pieces.closed() => return,
                () = tokio::time::sleep_until(until) => Err(late("the time that the client gave was over")),
            };
            let is_cut_off = item.is_err();
            let is_last =
                matches!(&item, Ok(StreamItem::Chunk(chunk)) if matches!(**chunk, OutputChunk::Ended { .. }));
            let room = item.as_ref().ok().and_then(StreamItem::room);
            let response = item.map(|item| item.response(self.rpc.method));
            if !self.send_one(response, room, || items.is_closed()).await || is_last {
                // A client that does not even read the final status must not keep its stream open.
                if is_cut_off && tokio::time::timeout(events::PATIENCE, self.pieces.closed()).await.is_err() {
                    self.cut.notify_one();
                }
                return;
            }
        }
    }

    /// Sends one item. False if no more can follow.
    async fn send_one(
        &self,
        response: Result<Answer, ApiError>,
        room: Option<Arc<EventPermit>>,
        is_over: impl Fn() -> bool,
    ) -> bool {
        let piece = response
            .and_then(|response| framed(&self.rpc.write(response)?))
            .map(|piece| within_budget(piece, room));
        if let Err(error) = &piece {
            self.daemon.meters.error(error.code);
        }
        let goes_on = piece.is_ok();
        let piece = piece.map_err(GrpcFailure::from);
        let passed = match self.rpc.method.reply() {
            // While the command runs, it blocks until the client reads its output.
            ResponseKind::Lines if goes_on => sent(&self.pieces, piece, is_over, LEFT).await,
            _ => sent(&self.pieces, piece, || true, events::PATIENCE).await,
        };
        match passed {
            SendOutcome::Taken => goes_on,
            SendOutcome::Gone => false,
            // A client that does not read would hold its items and its slot forever.
            SendOutcome::Left => {
                let _before = self.daemon.meters.dropped.fetch_add(1, Ordering::Relaxed);
                self.cut.notify_one();
                false
            }
        }
    }
}

/// A complete stream ends with an item that says so. Every other end is a failure.
fn unfinished() -> ApiError {
    ApiError::new(ErrorCode::Unavailable, "the stream was interrupted")
        .with_hint("continue after the last value that you received")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_client_is_a_number_with_a_unit() {
        let read = |text: &str| {
            let headers = HeaderMap::from_iter([(TIMEOUT.parse().unwrap(), text.parse().unwrap())]);
            deadline(&headers).map_err(|error| error.code)
        };
        assert_eq!(deadline(&HeaderMap::new()), Ok(None));
        for (text, time) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("4m", Duration::from_millis(4)),
            ("5u", Duration::from_micros(5)),
            ("99999999n", Duration::from_nanos(99_999_999)),
            ("99999999H", Duration::from_secs(99_999_999 * 3600)),
        ] {
            assert_eq!(read(text), Ok(Some(time)), "{text}");
        }
        for text in ["", "S", "1", "1s", "-1S", "+1S", "1.5S", "999999999S", "1 S", "S1", "1SS"] {
            assert_eq!(read(text), Err(ErrorCode::InvalidArgument), "{text}");
        }
    }
}
