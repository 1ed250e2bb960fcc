//! The HTTP transport with JSON: bytes to a method and its request, and back.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN,
    SET_COOKIE, TRANSFER_ENCODING,
};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Incoming};
use ringfence_api::{
    ApiError, ErrorCode, LoginResult, MOST_SENT, Method, MethodAccess, Request, RequestBodyKind,
    Response as Answer, ResponseKind,
};
use ringfence_runtime::identity::IdentityError;
use ringfence_types::{BindTransport, Principal, RuleId};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::{Notify, mpsc};
use zeroize::Zeroizing;

use crate::admit::authenticate::{ListenerKind, authentication_failed, note, source};
use crate::admit::dispatch::{AuthorizedRequest, IncomingRequest, admit, authorize_early};
use crate::admit::identity_methods::{self, PasswordSlot};
use crate::admit::peer::UnixPeer;
use crate::admit::revocation::CredentialLease;
use crate::calls::handle::{CHUNKS_UNDER_WAY, MethodResponse, StreamItem, UNDER_WAY, ask, blocking};
use crate::calls::output_channel::{LEFT, SendOutcome, sent};
use crate::calls::transfer;
use crate::errors::{internal, malformed, unavailable};
use crate::limits::budget::Permit;
use crate::limits::json_size::weighed;
use crate::limits::min_body_rate::{BodyTooSlow, TimedBody};
use crate::limits::request_memory::BodySender;
use crate::limits::request_rate::{ConnectionRate, is_urgent};
use crate::limits::response_memory::ResponseSlices;
use crate::limits::worker_permits::acquire;
use crate::observe::events;
use crate::observe::telemetry::TraceContext;
use crate::server::Daemon;
use crate::transport::grpc;
use crate::transport::http_body::{self, ResponseBody, RevocableBody, StreamBody};
use crate::transport::mcp;
use crate::transport::request_body::RequestBody;
use crate::transport::route;
use crate::transport::tcp_listener::TcpListenerConfig;
use crate::transport::websocket;

/// Longest body without a file.
const MOST: usize = 1024 * 1024;
/// Longest body with a file: base64, and the fields around it.
pub(crate) const MOST_WITH_FILE: usize = MOST_SENT as usize / 3 * 4 + MOST;
/// Bytes of a body that are read before the caller is authorized.
pub(crate) const UNASKED: usize = 16 * 1024;
/// Longest wait for a permit or a turn.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// How long the rest of a refused request is read.
const HEARING: Duration = Duration::from_secs(1);
/// The rule that the framing and the host of a request are unambiguous.
const FRAMING: RuleId = RuleId::HttpFraming;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// One connection.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) entrance: ListenerKind,
    /// Peer credentials, on Unix sockets.
    pub(crate) peer: Option<UnixPeer>,
    /// The TCP listener, if the connection came over TCP.
    pub(crate) network: Option<Arc<TcpListenerConfig>>,
    pub(crate) rate: ConnectionRate,
    /// Closes the connection.
    pub(crate) cut: Arc<Notify>,
    /// Keeps the connection counted while it is in use, also after an upgrade.
    pub(crate) _held: mpsc::Sender<Infallible>,
}

impl HttpConnection {
    /// Charges one request to the rate of the token. `urgent` requests have a reserve.
    pub(crate) fn count(&self, token: Option<&str>, urgent: impl FnOnce() -> bool) -> Result<(), ApiError> {
        self.rate.check(&self.daemon.rates, token, urgent)
    }

    /// A request of this connection, without a memory permit.
    pub(crate) fn incoming(
        &self,
        token: Option<String>,
        method: Method,
        value: Value,
        parent: Option<TraceContext>,
    ) -> IncomingRequest {
        let (entrance, peer) = (self.entrance.clone(), self.peer);
        IncomingRequest { entrance, peer, token, method, value, memory: Permit::default(), parent }
    }

    /// Acquires memory for a long request. Sessions have a budget of their own, and each token has a share of the
    /// operators' budget.
    pub(crate) async fn place_for_long(&self, token: Option<&str>, bytes: usize) -> Result<Permit, ApiError> {
        let whose = match (&self.entrance, token) {
            (ListenerKind::Door(session), _) => {
                BodySender::Session(self.daemon.sessions.find(session)?.long.clone())
            }
            (_, Some(token)) => BodySender::Known(token),
            (_, None) => BodySender::Operator,
        };
        self.daemon.intake.place(whose, bytes).await
    }

    /// The same for the rest of a message that already holds a permit.
    pub(crate) async fn place_for_rest(&self, token: Option<&str>, bytes: usize) -> Result<Permit, ApiError> {
        let whose = match (&self.entrance, token) {
            (ListenerKind::Door(_), _) => BodySender::SameOfSession,
            (_, Some(token)) => BodySender::Known(token),
            (_, None) => BodySender::Operator,
        };
        self.daemon.intake.place(whose, bytes).await
    }
}

/// Responds to one request. Every failure is a response, too.
pub(crate) async fn answer(
    line: Arc<HttpConnection>,
    request: http::Request<Incoming>,
) -> Response<ResponseBody> {
    let id = line.daemon.request_id();
    let _before = line.daemon.meters.requests.fetch_add(1, Ordering::Relaxed);
    let is_first_version = request.version() < Version::HTTP_2;
    let speaks_grpc = grpc::is_http2(request.version(), request.headers());
    let (request, progress) = RequestBody::of(request);
    let mut is_ambiguous = false;
    let mut response = if speaks_grpc && line.network.is_none() {
        grpc::answer(&line, request, &id).await
    } else {
        respond(&line, request).await.unwrap_or_else(|mut error| {
            line.daemon.meters.error(error.code);
            error.request_id = Some(id.clone());
            is_ambiguous = error.rule.as_ref().is_some_and(|rule| *rule == FRAMING);
            if speaks_grpc { grpc::refusal(error) } else { refusal(&error) }
        })
    };
    let headers = response.headers_mut();
    // Unread bytes could be taken for the next request. Without this header the client would send it into a connection
    // that is about to close.
    if is_first_version && (is_ambiguous || !progress.is_complete()) {
        let _new = headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        let _new = headers.insert(REQUEST_ID, value);
    }
    if let Some(network) = &line.network {
        network.secure(headers);
    }
    let _new = headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let _new = headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Checks that apply to every request before its body is read. Returns the token, if there is one.
pub(crate) fn token(line: &HttpConnection, head: &Parts) -> Result<Option<String>, ApiError> {
    unambiguous(&head.headers)?;
    let shown = match &line.network {
        Some(network) => network.token(head),
        None => bearer(&head.headers),
    };
    line.count(shown.as_ref().ok().and_then(Option::as_deref), || wants_an_end(head))?;
    if let Some(network) = &line.network {
        network.admit(head)?;
        return shown;
    }
    if head.headers.contains_key(ORIGIN) {
        // Web pages must not reach a Unix socket.
        return Err(ApiError::new(ErrorCode::Forbidden, "requests of web pages are not answered here")
            .with_rule(RuleId::HttpOrigin));
    }
    shown
}

fn wants_an_end(head: &Parts) -> bool {
    let by_grpc = ringfence_grpc::Rpc::at(head.uri.path()).map(|rpc| rpc.method);
    let by_path = || route::find(head.method.as_str(), head.uri.path(), head.uri.query()).ok();
    by_grpc.or_else(|| by_path().map(|(method, _)| method)).is_some_and(is_urgent)
}

/// Refuses an unauthenticated client. Each network and rule is recorded once in a while, so that strangers cannot fill
/// the ledger.
async fn reject(line: &Arc<HttpConnection>, why: ApiError) -> ApiError {
    let source = source(&line.entrance, line.peer);
    let is_new = || line.daemon.strangers.is_new(&source.network(), why.rule.as_deref());
    if why.code != ErrorCode::Forbidden || !is_new() {
        return why;
    }
    let source = source.to_string();
    let (daemon, told) = (Arc::clone(&line.daemon), why.clone());
    let written = blocking(move || {
        let who = Principal::Stranger { source };
        note(&daemon, &who, "send a request", Some(&told)).map_err(|error| unavailable(&error))
    });
    written.await.err().unwrap_or(why)
}

/// Prevents request smuggling: a proxy in front must see the same requests and the same host. hyper already refuses
/// most ambiguous requests.
fn unambiguous(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_plain = codings.next().is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !is_plain || codings.next().is_some() {
        let why = "the body comes in chunks or in one piece, and is not encoded otherwise";
        return Err(malformed(why).with_rule(FRAMING));
    }
    if headers.get_all(HOST).iter().nth(1).is_some() {
        return Err(malformed("a request has one host").with_rule(FRAMING));
    }
    Ok(())
}

pub(crate) fn too_many() -> ApiError {
    ApiError::new(ErrorCode::ResourceExhausted, "too many requests").with_hint("send fewer of them")
}

/// What a request wants, by its head.
enum RequestKind {
    /// gRPC on a listener without gRPC.
    Grpc,
    Socket,
    Tools(mcp::ToolTarget),
    Method(Method, Map<String, Value>),
}

async fn respond(
    line: &Arc<HttpConnection>,
    request: http::Request<RequestBody>,
) -> Result<Response<ResponseBody>, ApiError> {
    let (head, body) = request.into_parts();
    let (token, way) = match begin(line, &head, body.size_hint().exact()).await {
        Ok(begun) => begun,
        Err(why) => {
            drain_body(body).await;
            return Err(why);
        }
    };
    let parent = TraceContext::of_headers(&head.headers);
    match way {
        RequestKind::Grpc => {
            drain_body(body).await;
            Ok(grpc::unimplemented())
        }
        RequestKind::Socket => websocket::open(line, head, token).await,
        RequestKind::Tools(wanted) => mcp::answer(line, head, token, wanted, body).await,
        RequestKind::Method(Method::FileUpload, fields) => {
            let arrived = line.incoming(token, Method::FileUpload, Value::Object(fields), parent);
            transfer::upload(line, arrived, body).await
        }
        RequestKind::Method(method, mut fields) => {
            let mut memory = Permit::default();
            if head.method == http::Method::POST {
                let (said, held) = read(line, token.as_deref(), method, body).await?;
                merge(&mut fields, said)?;
                memory = held;
            }
            let arrived = line.incoming(token, method, Value::Object(fields), parent);
            called(line, IncomingRequest { memory, ..arrived }).await
        }
    }
}

/// Authorizes the caller before its body is read.
async fn begin(
    line: &Arc<HttpConnection>,
    head: &Parts,
    length: Option<u64>,
) -> Result<(Option<String>, RequestKind), ApiError> {
    let token = match token(line, head) {
        Ok(token) => token,
        Err(why) => return Err(reject(line, why).await),
    };
    if line.network.is_some() && grpc::is_http2(head.version, &head.headers) {
        return Ok((token, RequestKind::Grpc));
    }
    if head.uri.path() == websocket::PATH {
        return Ok((token, RequestKind::Socket));
    }
    if let Some(wanted) = mcp::addressed(head.uri.path()) {
        return Ok((token, RequestKind::Tools(wanted)));
    }
    let parent = TraceContext::of_headers(&head.headers);
    let (method, mut fields) = route::find(head.method.as_str(), head.uri.path(), head.uri.query())?;
    continue_request(&mut fields, method, &head.headers)?;
    let is_long = length.is_none_or(|bytes| bytes > UNASKED as u64);
    let is_asked = method.brings() != RequestBodyKind::Bytes && method.access() != MethodAccess::Anyone;
    if head.method == http::Method::POST && is_asked && is_long {
        let (daemon, token) = (Arc::clone(&line.daemon), token.clone());
        let arrived = line.incoming(token, method, Value::Object(fields.clone()), parent);
        let turn = acquire(&daemon, &arrived).await?;
        blocking(move || {
            let _turn = turn;
            authorize_early(&daemon, &arrived)
        })
        .await?;
    }
    Ok((token, RequestKind::Method(method, fields)))
}

/// Reads and discards the rest of a refused request for a limited time. HTTP/2 clients treat a response before the end
/// of their request as a broken stream. On HTTP/1 a connection is reusable after a short request. After a long one it
/// closes, and [`super::linger`] makes sure that the response arrives.
pub(crate) async fn drain_body(body: RequestBody) {
    let is_short = body.size_hint().exact().is_some_and(|bytes| bytes <= UNASKED as u64);
    if body.version() == Version::HTTP_2 || is_short {
        discard_body(body, HEARING).await;
    }
}

async fn discard_body(mut body: RequestBody, patience: Duration) {
    // Reading would send `100 Continue` and ask the client for the body.
    if body.awaits_continue() {
        return;
    }
    let mut heard = 0;
    let hears = async {
        while let Some(Ok(frame)) = body.frame().await {
            heard += frame.data_ref().map_or(0, Bytes::len);
            if heard > MOST_WITH_FILE {
                return;
            }
        }
    };
    let _nobody = tokio::time::timeout(patience, hears).await;
}

async fn called(
    line: &Arc<HttpConnection>,
    arrived: IncomingRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let method = arrived.method;
    if let (Method::Login, Some(network)) = (method, &line.network) {
        return login(&line.daemon, network.transport(), arrived).await;
    }
    if method == Method::FileDownload {
        return transfer::download(line, arrived).await;
    }
    let mut response = match ask(&line.daemon, arrived).await? {
        MethodResponse::Stream(items, standing) => streamed(line, method, items, standing),
        MethodResponse::Value(answer, scale) => {
            let (kind, text) = match *answer {
                Answer::Metrics(text) => ("text/plain; version=0.0.4", text),
                answer => {
                    let text = serde_json::to_string(&answer).map_err(|error| internal(&error))?;
                    ("application/json", text)
                }
            };
            whole(kind, scale.answer(text.into(), &line.cut).await?)
        }
    };
    if let (Method::Logout, Some(network)) = (method, &line.network) {
        let gone = ringfence_web::cookie_gone(network.transport()).map_err(|error| internal(&error))?;
        let _new = response.headers_mut().insert(SET_COOKIE, gone);
    }
    Ok(response)
}

/// Continues an event stream after `Last-Event-ID`, because a browser reconnects with the first URL.
fn continue_request(
    fields: &mut Map<String, Value>,
    method: Method,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    let (Method::Events, Some(last)) = (method, headers.get(LAST_EVENT)) else { return Ok(()) };
    let last = last.to_str().ok().and_then(|last| last.parse::<u64>().ok());
    let last = last.ok_or_else(|| malformed("the header `Last-Event-ID` is the number of no event"))?;
    let _before = fields.insert("after".to_owned(), last.into());
    Ok(())
}

/// Logs an operator in with name and password, and sets the cookie.
async fn login(
    daemon: &Arc<Daemon>,
    transport: BindTransport,
    arrived: IncomingRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let admitting = Arc::clone(daemon);
    let AuthorizedRequest { request, source, .. } = blocking(move || admit(&admitting, arrived)).await?;
    let Request::Login(login) = request else { return Err(malformed("this is no login")) };
    let daemon = Arc::clone(daemon);
    let is_familiar =
        daemon.identities.is_known_source(&login.name, &source).map_err(|error| unavailable(&error))?;
    // The turn is held until the password is checked, also if the client disconnects.
    let turn = identity_methods::turn(
        &daemon,
        if is_familiar { PasswordSlot::Familiar } else { PasswordSlot::Stranger },
    )
    .await?;
    let session = blocking(move || {
        let _turn = turn;
        let password = Zeroizing::new(login.password);
        daemon.identities.login(&login.name, password.as_bytes(), &source).map_err(|error| match error {
            IdentityError::Denied(denied) => authentication_failed(&denied),
            error => identity_methods::failed(error),
        })
    })
    .await?;
    let answer = LoginResult { csrf: session.csrf.to_string() };
    let mut response = short("application/json", text(&answer));
    let cookie =
        ringfence_web::cookie(&session.cookie.reveal(), transport).map_err(|error| internal(&error))?;
    let _new = response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

fn bearer(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let text = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer ")).map(str::trim);
    match text {
        Some(text) if !text.is_empty() => Ok(Some(text.to_owned())),
        _ => {
            Err(ApiError::new(ErrorCode::Unauthenticated, "the header `Authorization` is not `Bearer TOKEN`"))
        }
    }
}

/// Longest body of a method.
pub(crate) fn max_body(method: Method) -> usize {
    match (method.brings(), method.access()) {
        (RequestBodyKind::File, _) => MOST_WITH_FILE,
        (_, MethodAccess::Anyone) => UNASKED,
        _ => MOST,
    }
}

async fn read(
    line: &HttpConnection,
    token: Option<&str>,
    method: Method,
    body: RequestBody,
) -> Result<(Map<String, Value>, Permit), ApiError> {
    let (bytes, memory) = collected(line, token, body, max_body(method)).await?;
    // Decoding a long body would block the thread that serves all connections. The permit moves along, also if the
    // client disconnects.
    let is_long = bytes.len() > UNASKED;
    let read = move || fields_of(&bytes).map(|fields| (fields, memory));
    if is_long { blocking(read).await } else { read() }
}

fn fields_of(bytes: &[u8]) -> Result<Map<String, Value>, ApiError> {
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    weighed(bytes)?;
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(malformed("the body is not an object")),
        Err(error) => Err(malformed(format!("the body is not JSON: {error}"))),
    }
}

/// Reads a whole body of at most `most` bytes, with the permit for its memory.
pub(crate) async fn collected(
    line: &HttpConnection,
    token: Option<&str>,
    mut body: RequestBody,
    most: usize,
) -> Result<(Bytes, Permit), ApiError> {
    // Methods without authentication have short bodies, so unauthenticated clients never take memory permits.
    let announced =
        body.size_hint().exact().map_or(most, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if announced > most {
        // Most clients read the response only after they sent the whole body, so a slightly too long one is read to its
        // end.
        if announced / 2 <= most {
            discard_body(body, PATIENCE).await;
        } else {
            drain_body(body).await;
        }
        return Err(too_large(most));
    }
    let memory =
        if announced <= UNASKED { Permit::default() } else { line.place_for_long(token, announced).await? };
    match Limited::new(TimedBody::new(&mut body), most).collect().await {
        Ok(bytes) => Ok((bytes.to_bytes(), memory)),
        Err(error) if error.downcast_ref::<http_body_util::LengthLimitError>().is_some() => {
            drain_body(body).await;
            Err(too_large(most))
        }
        Err(error) if error.is::<BodyTooSlow>() => {
            Err(ApiError::new(ErrorCode::DeadlineExceeded, BodyTooSlow.to_string()))
        }
        Err(_broken) => Err(malformed("the request did not come to its end")),
    }
}

fn too_large(most: usize) -> ApiError {
    ApiError::new(ErrorCode::TooLarge, format!("a request has at most {most} bytes here"))
}

fn merge(fields: &mut Map<String, Value>, body: Map<String, Value>) -> Result<(), ApiError> {
    for (name, value) in body {
        match fields.get(&name) {
            Some(said) if *said != value => {
                return Err(malformed("the path and the body name different things"));
            }
            _ => {
                let _new = fields.insert(name, value);
            }
        }
    }
    Ok(())
}

pub(crate) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Sends a stream as lines, or as server-sent events if it can be resumed.
fn streamed(
    line: &HttpConnection,
    method: Method,
    mut items: mpsc::Receiver<StreamItem>,
    standing: CredentialLease,
) -> Response<ResponseBody> {
    let (form, patience) = match method.reply() {
        // The command blocks until the client reads its output.
        ResponseKind::Lines => (http_body::StreamFormat::Lines, None),
        _ => (http_body::StreamFormat::Events, Some(events::PATIENCE)),
    };
    let (daemon, cut) = (Arc::clone(&line.daemon), Arc::clone(&line.cut));
    let (pieces, body) = mpsc::channel(if patience.is_some() { UNDER_WAY } else { CHUNKS_UNDER_WAY });
    let _writer = tokio::spawn(async move {
        loop {
            // Detects a disconnect also while no item arrives.
            let item = tokio::select! {
                item = items.recv() => item,
                () = pieces.closed() => None,
            };
            let Some(item) = item else {
                // The event stream has no regular end: the client was too slow, or the feed failed. Unread items would
                // wait forever, so the connection is cut. An output stream has sent its end, unless the client did not
                // read it.
                let is_left = match patience {
                    Some(_) => !pieces.is_closed(),
                    None => !is_read(&pieces).await,
                };
                if is_left {
                    cut.notify_one();
                }
                return;
            };
            let passed = match patience {
                Some(patience) => sent(&pieces, piece(&item), || true, patience).await,
                None => sent(&pieces, piece(&item), || items.is_closed(), LEFT).await,
            };
            match passed {
                SendOutcome::Taken => {}
                SendOutcome::Gone => return,
                // A client that does not read would hold its items and its slot forever.
                SendOutcome::Left => {
                    let _before = daemon.meters.dropped.fetch_add(1, Ordering::Relaxed);
                    return cut.notify_one();
                }
            }
        }
    });
    pieces_of(form, body, standing, line)
}

/// True when the client has taken the last item or has disconnected.
async fn is_read(pieces: &mpsc::Sender<Bytes>) -> bool {
    loop {
        let left = pieces.capacity();
        let all = pieces.reserve_many(pieces.max_capacity());
        if tokio::time::timeout(LEFT, all).await.is_ok() {
            return true;
        }
        if pieces.capacity() == left {
            return false;
        }
    }
}

fn piece(item: &StreamItem) -> Bytes {
    match item {
        StreamItem::Event(event) => event.text(),
        StreamItem::Question(_) => format!("event: question\ndata: {}\n\n", text(item)).into(),
        StreamItem::Chunk(_) => format!("{}\n", text(item)).into(),
    }
}

pub(crate) fn short(kind: &'static str, text: String) -> Response<ResponseBody> {
    whole(kind, ResponseSlices::from(Bytes::from(text)))
}

pub(crate) fn whole(kind: &'static str, slices: ResponseSlices) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(slices));
    let _new = response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn pieces_of(
    form: http_body::StreamFormat,
    body: mpsc::Receiver<Bytes>,
    standing: CredentialLease,
    line: &HttpConnection,
) -> Response<ResponseBody> {
    let pieces = StreamBody::new(body, form, RevocableBody::new(standing, Arc::clone(&line.cut)));
    let mut response = Response::new(ResponseBody::Pieces(pieces));
    let kind = HeaderValue::from_static(form.media_type());
    let _new = response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn refusal(error: &ApiError) -> Response<ResponseBody> {
    let mut response = short("application/json", text(error));
    *response.status_mut() =
        StatusCode::from_u16(error.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
