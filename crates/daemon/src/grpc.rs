//! gRPC: messages to a method and its request, and back. Who asks and whether they may is found out where HTTP finds it out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Response, Version};
use ringfence_api::{Access, ApiError, Brings, Chunk, ErrorCode, MOST_SENT, Method, Reply};
use ringfence_grpc::{Flow, Rpc};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tonic::codec::{DecodeBuf, Decoder, Streaming};
use tonic::{Code, Status};

use crate::answers::Slices;
use crate::ask::{Answer, Item, UNDER_WAY, ask, blocking};
use crate::authenticate::enter_for;
use crate::dispatch::Arrived;
use crate::events;
use crate::failure::{internal, malformed};
use crate::http::{Line, UNASKED, hear_out, most, token};
use crate::intake::Place;
use crate::outbox::{LEFT, Passed, passed};
use crate::pace::{Late, Paced};
use crate::rate::is_urgent;
use crate::request_body::RequestBody;
use crate::room::{Room, roomy};
use crate::server::Daemon;
use crate::standing::Standing;
use crate::stream::{Body, Held};
use crate::telemetry::Context;
use crate::told::{Failed, Piece, Told, framed};

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");
const ENCODING: &str = "grpc-encoding";
const TIMEOUT: &str = "grpc-timeout";

/// Whether the client of a request speaks gRPC, and so understands no other answer. The media type may name a message format
/// that the daemon does not have.
pub(crate) fn is_spoken(version: Version, headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    let format = kind.strip_prefix(b"application/grpc");
    version == Version::HTTP_2
        && format.is_some_and(|format| matches!(format.first(), None | Some(b'+' | b';')))
}

/// For who speaks it where there is none, in words that they understand.
pub(crate) fn not_here() -> Response<Body> {
    let told = ApiError::new(ErrorCode::NotFound, "there is no gRPC here");
    status_only(&Failed::unimplemented(told.with_hint("it is on the Unix socket of the daemon")))
}

/// An error of a request that did not come as far as a method.
pub(crate) fn refusal(error: ApiError) -> Response<Body> {
    status_only(&Failed::from(error))
}

/// Answers one request. What goes wrong is a status.
pub(crate) async fn answer(
    line: &Arc<Line>,
    request: http::Request<RequestBody>,
    id: &str,
) -> Response<Body> {
    let body = match respond(line, request, id).await {
        Ok(told) => Body::Told(told),
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

/// The status in the head of an answer without a body: trailers-only.
fn status_only(failed: &Failed) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Slices::default()));
    let headers = response.headers_mut();
    let _new = headers.insert(CONTENT_TYPE, MEDIA_TYPE);
    if let Err(error) = failed.status().add_header(headers) {
        tracing::error!(why = %error, "a status cannot be said");
        let _new = headers.insert(Status::GRPC_STATUS, HeaderValue::from(Code::Internal as i32));
    }
    response
}

async fn respond(line: &Arc<Line>, request: http::Request<RequestBody>, id: &str) -> Result<Told, Failed> {
    let (head, body) = request.into_parts();
    let (asker, standing) = match Asker::let_in(line, &head).await {
        Ok(let_in) => let_in,
        Err(failed) => {
            hear_out(body).await;
            return Err(failed);
        }
    };
    let (rpc, until) = (asker.rpc, asker.until);
    // How long it is shows when it is here.
    let longest = longest(rpc.method);
    if rpc.flow == Flow::Conversation {
        let messages = Streaming::new_request(Whole, body, None, Some(longest));
        let (pieces, told) = mpsc::channel(UNDER_WAY);
        let _conversation = tokio::spawn(asker.converse(messages, pieces));
        return Ok(told_by(line, (told, standing), id));
    }
    let until_or_far = until.unwrap_or_else(far);
    // What anyone may send is short: nobody who is unknown takes a place of those who are known.
    let place = if longest <= UNASKED { None } else { Some(asker.place_for_long(longest).await?) };
    let mut messages = Streaming::new_request(Whole, Paced::new(body), None, Some(longest));
    let message = tokio::time::timeout_at(until_or_far, only(&mut messages)).await;
    let message = message.map_err(|_late| late("the request did not come to its end"))??;
    let message = (message, place.into_iter().collect());
    let answer = tokio::time::timeout_at(until_or_far, asker.ask(message)).await;
    let (pieces, told) = mpsc::channel(UNDER_WAY);
    let standing = match answer.map_err(|_late| late("the time that the client gave was over"))?? {
        Answer::Value(value, scale) => {
            let message = framed(&rpc.write(value)?)?;
            let message = scale.answer(message, &line.cut).await?;
            return Ok(told_by(line, (told, Standing::of_owner()), id).beginning_with(message));
        }
        Answer::Stream(items, standing) => {
            let (daemon, cut) = (Arc::clone(&line.daemon), Arc::clone(&line.cut));
            let teller = Teller { daemon, cut, rpc, pieces };
            let _teller = tokio::spawn(teller.tell(items, until));
            standing
        }
    };
    Ok(told_by(line, (told, standing), id))
}

/// As over HTTP; a file is here as it is, and not half as long again.
fn longest(method: Method) -> usize {
    match method.brings() {
        Brings::File => MOST_SENT as usize + UNASKED,
        _ => most(method),
    }
}

fn told_by(line: &Line, (told, standing): (mpsc::Receiver<Piece>, Standing), id: &str) -> Told {
    Told::new(told, Held::new(standing, Arc::clone(&line.cut)), id)
}

/// The method that is called, in a form that is understood.
fn called(head: &Parts) -> Result<&'static Rpc, Failed> {
    let none = |message: &str, hint: &str| {
        Failed::unimplemented(ApiError::new(ErrorCode::NotFound, message).with_hint(hint))
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

/// How long the client waits: at most eight digits and a unit.
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

/// For who gave no time: longer than anything here lasts.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(365 * 24 * 3600)
}

fn late(message: &str) -> ApiError {
    ApiError::new(ErrorCode::TimedOut, message)
}

/// A message as it came. What is in it is looked at when it is known how long it may be.
struct Whole;

impl Decoder for Whole {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, frame: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(frame.copy_to_bytes(frame.remaining())))
    }
}

async fn next(messages: &mut Streaming<Bytes>) -> Result<Option<Bytes>, ApiError> {
    messages.message().await.map_err(|status| match status.code() {
        _ if is_late(&status) => late(&Late.to_string()),
        Code::OutOfRange => ApiError::new(ErrorCode::TooLarge, "the request is longer than it may be here"),
        _ => malformed("the request is no message of gRPC, or did not come to its end"),
    })
}

fn is_late(status: &Status) -> bool {
    std::error::Error::source(status).is_some_and(|error| error.is::<Late>())
}

async fn only(messages: &mut Streaming<Bytes>) -> Result<Bytes, ApiError> {
    let message = next(messages).await?.ok_or_else(|| malformed("there is no message in the request"))?;
    match next(messages).await? {
        Some(_) => Err(malformed("there is more than one message in the request")),
        None => Ok(message),
    }
}

/// Somebody who calls a method.
struct Asker {
    line: Arc<Line>,
    token: Option<String>,
    rpc: &'static Rpc,
    until: Option<Instant>,
    /// The span of whoever calls.
    parent: Option<Context>,
}

impl Asker {
    /// Nothing of what somebody sends is read before it is known who they are and that they may call the method. With their right to what they hold open meanwhile.
    async fn let_in(line: &Arc<Line>, head: &Parts) -> Result<(Self, Standing), Failed> {
        let token = token(line, head)?;
        let rpc = called(head)?;
        let until = deadline(&head.headers)?.and_then(|patience| Instant::now().checked_add(patience));
        let parent = Context::of_headers(&head.headers);
        let asker = Self { line: Arc::clone(line), token, rpc, until, parent };
        let standing = asker.standing().await?;
        Ok((asker, standing))
    }

    async fn place_for_long(&self, bytes: usize) -> Result<Place, ApiError> {
        self.line.place_for_long(self.token.as_deref(), bytes).await
    }

    async fn ask(&self, (message, places): (Bytes, Vec<Place>)) -> Result<Answer, ApiError> {
        let rpc = self.rpc;
        // What takes long to read is not for the thread that serves all connections. It has its place also when whoever sent it has gone.
        let is_long = message.len() > UNASKED;
        let read = move || rpc.read(&message).map(|value| (value, places));
        let (value, places) = if is_long { blocking(read).await? } else { read()? };
        let arrived = Arrived {
            entrance: self.line.entrance.clone(),
            peer: self.line.peer,
            token: self.token.clone(),
            method: rpc.method,
            value,
            places,
            parent: self.parent,
        };
        ask(&self.line.daemon, arrived).await
    }

    async fn standing(&self) -> Result<Standing, ApiError> {
        if self.rpc.method.access() == Access::Anyone {
            return Ok(Standing::of_owner());
        }
        let (line, shown, method) = (Arc::clone(&self.line), self.token.clone(), self.rpc.method);
        let entered = blocking(move || enter_for(&line, shown.as_deref(), method)).await?;
        Ok(entered.known.map_or_else(Standing::of_owner, |known| self.line.daemon.standings.hold(&known)))
    }

    async fn converse(self, mut messages: Streaming<Bytes>, pieces: mpsc::Sender<Piece>) {
        let (daemon, cut) = (Arc::clone(&self.line.daemon), Arc::clone(&self.line.cut));
        let teller = Teller { daemon, cut, rpc: self.rpc, pieces };
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
            if !teller.say(answer, None, || true).await {
                return;
            }
        }
    }

    async fn answer(&self, message: Bytes) -> Result<Value, ApiError> {
        self.line.count(self.token.as_deref(), || is_urgent(self.rpc.method))?;
        let _before = self.line.daemon.meters.requests.fetch_add(1, Ordering::Relaxed);
        match self.ask((message, Vec::new())).await? {
            Answer::Value(value, _short) => Ok(value),
            Answer::Stream(..) => Err(malformed("this is a stream, and was asked for as a value")),
        }
    }
}

/// Whoever tells a client one thing after the other.
struct Teller {
    daemon: Arc<Daemon>,
    cut: Arc<Notify>,
    rpc: &'static Rpc,
    pieces: mpsc::Sender<Piece>,
}

impl Teller {
    async fn tell(self, mut items: mpsc::Receiver<Item>, until: Option<Instant>) {
        let until = until.unwrap_or_else(far);
        loop {
            // Whoever has gone away is noticed also when nothing happens.
            let item = tokio::select! {
                item = items.recv() => item.ok_or_else(unfinished),
                () = self.pieces.closed() => return,
                () = tokio::time::sleep_until(until) => Err(late("the time that the client gave was over")),
            };
            let is_cut_off = item.is_err();
            let is_last = matches!(&item, Ok(Item::Chunk(chunk)) if matches!(**chunk, Chunk::Ended { .. }));
            let room = item.as_ref().ok().and_then(Item::room);
            let value = item.and_then(|item| serde_json::to_value(item).map_err(|error| internal(&error)));
            if !self.say(value, room, || items.is_closed()).await || is_last {
                // Whoever does not even read that it is over keeps nothing open.
                if is_cut_off && tokio::time::timeout(events::PATIENCE, self.pieces.closed()).await.is_err() {
                    self.cut.notify_one();
                }
                return;
            }
        }
    }

    /// Whether there is more to say.
    async fn say(
        &self,
        value: Result<Value, ApiError>,
        room: Option<Arc<Room>>,
        is_over: impl Fn() -> bool,
    ) -> bool {
        let piece = value.and_then(|value| framed(&self.rpc.write(value)?)).map(|piece| roomy(piece, room));
        if let Err(error) = &piece {
            self.daemon.meters.error(error.code);
        }
        let goes_on = piece.is_ok();
        let piece = piece.map_err(Failed::from);
        let passed = match self.rpc.method.reply() {
            // A command waits for whoever reads what it says, while it runs.
            Reply::Lines if goes_on => passed(&self.pieces, piece, is_over, LEFT).await,
            _ => passed(&self.pieces, piece, || true, events::PATIENCE).await,
        };
        match passed {
            Passed::Taken => goes_on,
            Passed::Gone => false,
            // What waits for them would wait forever, and so would their place.
            Passed::Left => {
                let _before = self.daemon.meters.dropped.fetch_add(1, Ordering::Relaxed);
                self.cut.notify_one();
                false
            }
        }
    }
}

/// What has an end says so itself; everything else ended because it could not go on.
fn unfinished() -> ApiError {
    ApiError::new(ErrorCode::Unavailable, "the stream broke off").with_hint("go on after what was seen last")
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
            assert_eq!(read(text), Err(ErrorCode::Malformed), "{text}");
        }
    }
}
