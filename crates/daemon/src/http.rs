//! HTTP with JSON: bytes to a method and its request, and back.

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
use ringfence_api::{Access, ApiError, Brings, ErrorCode, LoggedIn, MOST_SENT, Method, Reply, Request};
use ringfence_runtime::identity::IdentityError;
use ringfence_types::{Principal, Transport};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::{Notify, mpsc};
use zeroize::Zeroizing;

use crate::answers::Slices;
use crate::ask::{Answer, CHUNKS_UNDER_WAY, Item, UNDER_WAY, ask, blocking};
use crate::authenticate::{Entrance, not_let_in, note, source};
use crate::dispatch::{Admitted, Arrived, admit, foretell};
use crate::events;
use crate::failure::{internal, malformed, unavailable};
use crate::grpc;
use crate::identity::{self, Turn};
use crate::intake::{Place, Whose};
use crate::mcp;
use crate::network::Network;
use crate::outbox::{LEFT, Passed, passed};
use crate::pace::{Late, Paced};
use crate::peer::Peer;
use crate::rate::{Rate, is_urgent};
use crate::request_body::RequestBody;
use crate::route;
use crate::server::Daemon;
use crate::socket;
use crate::standing::Standing;
use crate::stream::{self, Body, Held, Pieces};
use crate::telemetry::Context;
use crate::transfer;
use crate::turns::turn;
use crate::weigh::weighed;

/// Of a request without a file in it.
const MOST: usize = 1024 * 1024;
/// Of one with a file: base64 and what is around it.
pub(crate) const MOST_WITH_FILE: usize = MOST_SENT as usize / 3 * 4 + MOST;
/// What is read of a request before it is known whether whoever sends it may make it.
pub(crate) const UNASKED: usize = 16 * 1024;
/// How long somebody waits for a place or a turn.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// How long somebody who is refused may take to come to an end.
const HEARING: Duration = Duration::from_secs(1);
/// The rule that a request has one end and one host.
const FRAMING: &str = "http.framing";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// One connection.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) entrance: Entrance,
    /// What the kernel says of them, where it knows.
    pub(crate) peer: Option<Peer>,
    /// The listener that they came by, if that is on TCP.
    pub(crate) network: Option<Arc<Network>>,
    /// How often may be asked on it.
    pub(crate) rate: Rate,
    /// Ends the connection.
    pub(crate) cut: Arc<Notify>,
    /// For as long as the line is held, also by what a connection has become, it counts as one.
    pub(crate) _held: mpsc::Sender<Infallible>,
}

impl Line {
    /// One request more of whoever shows this token, if that is not too many. What is `urgent` has a reserve.
    pub(crate) fn count(&self, token: Option<&str>, urgent: impl FnOnce() -> bool) -> Result<(), ApiError> {
        self.rate.ask(&self.daemon.rates, token, urgent)
    }

    /// So many bytes of long requests are taken in at once, those of sessions apart from all others, and of these no more than its
    /// share of what comes with one token.
    pub(crate) async fn place_for_long(&self, token: Option<&str>, bytes: usize) -> Result<Place, ApiError> {
        let whose = match (&self.entrance, token) {
            (Entrance::Door(session), _) => {
                Whose::Session(Arc::clone(&self.daemon.sessions.find(session)?.long))
            }
            (_, Some(token)) => Whose::Known(self.daemon.intake.share(token)),
            (_, None) => Whose::Operator,
        };
        self.daemon.intake.place(whose, bytes).await
    }

    /// The same for the rest of something that has a place already.
    pub(crate) async fn place_for_rest(&self, token: Option<&str>, bytes: usize) -> Result<Place, ApiError> {
        let whose = match (&self.entrance, token) {
            (Entrance::Door(_), _) => Whose::SameOfSession,
            (_, Some(token)) => Whose::Known(self.daemon.intake.share(token)),
            (_, None) => Whose::Operator,
        };
        self.daemon.intake.place(whose, bytes).await
    }
}

/// Answers one request. Nothing here fails: what goes wrong is an answer, too.
pub(crate) async fn answer(line: Arc<Line>, request: http::Request<Incoming>) -> Response<Body> {
    let id = line.daemon.request_id();
    let _before = line.daemon.meters.requests.fetch_add(1, Ordering::Relaxed);
    let is_first_version = request.version() < Version::HTTP_2;
    let speaks_grpc = grpc::is_spoken(request.version(), request.headers());
    let (request, progress) = RequestBody::of(request);
    let mut is_ambiguous = false;
    let mut response = if speaks_grpc && line.network.is_none() {
        grpc::answer(&line, request, &id).await
    } else {
        respond(&line, request).await.unwrap_or_else(|mut error| {
            line.daemon.meters.error(error.code);
            error.request_id = Some(id.clone());
            is_ambiguous = error.rule.as_deref() == Some(FRAMING);
            if speaks_grpc { grpc::refusal(error) } else { refusal(&error) }
        })
    };
    let headers = response.headers_mut();
    // What comes next may be a part of this request. A client that is not told would send its next request into a connection that
    // is about to close.
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

/// What every request is asked before anything of it is read: the token that came with it, if one did.
pub(crate) fn token(line: &Line, head: &Parts) -> Result<Option<String>, ApiError> {
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
        // No page of a browser has business at a Unix socket.
        return Err(ApiError::new(ErrorCode::Forbidden, "requests of web pages are not answered here")
            .with_rule("http.origin"));
    }
    shown
}

fn wants_an_end(head: &Parts) -> bool {
    let by_grpc = ringfence_grpc::Rpc::at(head.uri.path()).map(|rpc| rpc.method);
    let by_path = || route::find(head.method.as_str(), head.uri.path(), head.uri.query()).ok();
    by_grpc.or_else(|| by_path().map(|(method, _)| method)).is_some_and(is_urgent)
}

/// Somebody whom nobody knows is told no. Each place and reason is written down once in a while, so that a stranger does not
/// fill the ledger.
async fn turned_away(line: &Arc<Line>, why: ApiError) -> ApiError {
    let source = source(&line.entrance, line.peer);
    let is_new = || line.daemon.strangers.is_new(&source.network(), why.rule.as_deref());
    if why.code != ErrorCode::Forbidden || !is_new() {
        return why;
    }
    let source = source.to_string();
    let (daemon, told) = (Arc::clone(&line.daemon), why.clone());
    let written = blocking(move || {
        let who = Principal::Stranger { source };
        note(&daemon, (&who, "send a request"), Some(&told)).map_err(|error| unavailable(&error))
    });
    written.await.err().unwrap_or(why)
}

/// Whoever stands between a client and us has to see the same requests as we do, and the same host. Most of what they could see
/// otherwise the server below has refused already.
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
    ApiError::new(ErrorCode::Exhausted, "too many requests").with_hint("send fewer of them")
}

/// What a request wants, as far as its head says it.
enum Way {
    /// gRPC, where there is none.
    Grpc,
    Socket,
    Tools(mcp::Wanted),
    Method(Method, Map<String, Value>),
}

async fn respond(line: &Arc<Line>, request: http::Request<RequestBody>) -> Result<Response<Body>, ApiError> {
    let (head, body) = request.into_parts();
    let (token, way) = match begin(line, &head, body.size_hint().exact()).await {
        Ok(begun) => begun,
        Err(why) => {
            hear_out(body).await;
            return Err(why);
        }
    };
    let parent = Context::of_headers(&head.headers);
    match way {
        Way::Grpc => {
            hear_out(body).await;
            Ok(grpc::not_here())
        }
        Way::Socket => socket::open(line, head, token).await,
        Way::Tools(wanted) => mcp::answer(line, (head, token), (wanted, body)).await,
        Way::Method(Method::FileUpload, fields) => {
            transfer::upload(line, (token, Value::Object(fields), parent), body).await
        }
        Way::Method(method, mut fields) => {
            let mut places = Vec::new();
            if head.method == http::Method::POST {
                let (said, held) = read(line, token.as_deref(), method, body).await?;
                merge(&mut fields, said)?;
                places = held;
            }
            called(line, (token, parent), (method, fields, places)).await
        }
    }
}

/// Whoever may not is told so before anything of the body is read.
async fn begin(
    line: &Arc<Line>,
    head: &Parts,
    length: Option<u64>,
) -> Result<(Option<String>, Way), ApiError> {
    let token = match token(line, head) {
        Ok(token) => token,
        Err(why) => return Err(turned_away(line, why).await),
    };
    if line.network.is_some() && grpc::is_spoken(head.version, &head.headers) {
        return Ok((token, Way::Grpc));
    }
    if head.uri.path() == socket::PATH {
        return Ok((token, Way::Socket));
    }
    if let Some(wanted) = mcp::addressed(head.uri.path()) {
        return Ok((token, Way::Tools(wanted)));
    }
    let parent = Context::of_headers(&head.headers);
    let (method, mut fields) = route::find(head.method.as_str(), head.uri.path(), head.uri.query())?;
    go_on(&mut fields, method, &head.headers)?;
    let is_long = length.is_none_or(|bytes| bytes > UNASKED as u64);
    let is_asked = method.brings() != Brings::Bytes && method.access() != Access::Anyone;
    if head.method == http::Method::POST && is_asked && is_long {
        let (daemon, token) = (Arc::clone(&line.daemon), token.clone());
        let (entrance, peer, value) = (line.entrance.clone(), line.peer, Value::Object(fields.clone()));
        let arrived = Arrived { entrance, peer, token, method, value, places: Vec::new(), parent };
        let turn = turn(&daemon, &arrived).await?;
        blocking(move || {
            let _turn = turn;
            foretell(&daemon, &arrived)
        })
        .await?;
    }
    Ok((token, Way::Method(method, fields)))
}

/// Reads the rest of a refused request and throws it away, for a while. Clients of HTTP/2 take an answer that comes before they have
/// sent everything for a broken stream. On HTTP/1 the connection can be used again after a short request; after a long one it
/// closes, and [`crate::connection`] takes care that the answer arrives.
pub(crate) async fn hear_out(body: RequestBody) {
    let is_short = body.size_hint().exact().is_some_and(|bytes| bytes <= UNASKED as u64);
    if body.version() == Version::HTTP_2 || is_short {
        throw_away(body, HEARING).await;
    }
}

async fn throw_away(mut body: RequestBody, patience: Duration) {
    // To read would ask the client for what nobody wants.
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
    line: &Arc<Line>,
    (token, parent): (Option<String>, Option<Context>),
    (method, fields, places): (Method, Map<String, Value>, Vec<Place>),
) -> Result<Response<Body>, ApiError> {
    let arrived = Arrived {
        entrance: line.entrance.clone(),
        peer: line.peer,
        token,
        method,
        value: Value::Object(fields),
        places,
        parent,
    };
    if let (Method::Login, Some(network)) = (method, &line.network) {
        return login(&line.daemon, network.transport(), arrived).await;
    }
    if method == Method::FileDownload {
        return transfer::download(line, arrived).await;
    }
    let mut response = match (ask(&line.daemon, arrived).await?, method.reply()) {
        (Answer::Stream(items, standing), _) => streamed(line, method, (items, standing)),
        (Answer::Value(Value::String(text), scale), Reply::Text) => {
            let slices = scale.answer(text.into(), &line.cut).await?;
            whole("text/plain; version=0.0.4", slices)
        }
        (Answer::Value(value, scale), _) => {
            let text = value.to_string();
            drop(value);
            whole("application/json", scale.answer(text.into(), &line.cut).await?)
        }
    };
    if let (Method::Logout, Some(network)) = (method, &line.network) {
        let gone = ringfence_web::cookie_gone(network.transport()).map_err(|error| internal(&error))?;
        let _new = response.headers_mut().insert(SET_COOKIE, gone);
    }
    Ok(response)
}

/// Where a browser goes on after a stream that broke off; the address is still that of the first time.
fn go_on(fields: &mut Map<String, Value>, method: Method, headers: &HeaderMap) -> Result<(), ApiError> {
    let (Method::Events, Some(last)) = (method, headers.get(LAST_EVENT)) else { return Ok(()) };
    let last = last.to_str().ok().and_then(|last| last.parse::<u64>().ok());
    let last = last.ok_or_else(|| malformed("the header `Last-Event-ID` is the number of no event"))?;
    let _before = fields.insert("after".to_owned(), last.into());
    Ok(())
}

/// A cookie for a name and a password.
async fn login(
    daemon: &Arc<Daemon>,
    transport: Transport,
    arrived: Arrived,
) -> Result<Response<Body>, ApiError> {
    let admitting = Arc::clone(daemon);
    let Admitted { request, source, .. } = blocking(move || admit(&admitting, arrived)).await?;
    let Request::Login(login) = request else { return Err(malformed("this is no login")) };
    let daemon = Arc::clone(daemon);
    let is_familiar =
        daemon.identities.is_familiar(&login.name, &source).map_err(|error| unavailable(&error))?;
    // Who goes away has their turn until what they showed was looked at.
    let turn = identity::turn(&daemon, if is_familiar { Turn::Familiar } else { Turn::Stranger }).await?;
    let session = blocking(move || {
        let _turn = turn;
        let password = Zeroizing::new(login.password);
        daemon.identities.login(&login.name, password.as_bytes(), &source).map_err(|error| match error {
            IdentityError::Denied(denied) => not_let_in(&denied),
            error => identity::failed(error),
        })
    })
    .await?;
    let answer = LoggedIn { csrf: session.csrf.to_string() };
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

/// How long a request of this method may be.
pub(crate) fn most(method: Method) -> usize {
    match (method.brings(), method.access()) {
        (Brings::File, _) => MOST_WITH_FILE,
        (_, Access::Anyone) => UNASKED,
        _ => MOST,
    }
}

async fn read(
    line: &Line,
    token: Option<&str>,
    method: Method,
    body: RequestBody,
) -> Result<(Map<String, Value>, Vec<Place>), ApiError> {
    let (bytes, places) = collected(line, token, body, most(method)).await?;
    // What takes long to read is not for the thread that serves all connections. It has its place also when whoever sent it has gone.
    let is_long = bytes.len() > UNASKED;
    let read = move || fields_of(&bytes).map(|fields| (fields, places));
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

/// All of a body that is no larger than it may be, with the place that it takes until it is something else.
pub(crate) async fn collected(
    line: &Line,
    token: Option<&str>,
    mut body: RequestBody,
    most: usize,
) -> Result<(Bytes, Vec<Place>), ApiError> {
    // What anyone may send is short: nobody who is unknown takes a place of those who are known.
    let announced =
        body.size_hint().exact().map_or(most, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if announced > most {
        // Whoever may send it and sends a little too much hears so: most clients do not listen before they have said everything.
        if announced / 2 <= most {
            throw_away(body, PATIENCE).await;
        } else {
            hear_out(body).await;
        }
        return Err(too_large(most));
    }
    let place = if announced <= UNASKED { None } else { Some(line.place_for_long(token, announced).await?) };
    match Limited::new(Paced::new(&mut body), most).collect().await {
        Ok(bytes) => Ok((bytes.to_bytes(), place.into_iter().collect())),
        Err(error) if error.downcast_ref::<http_body_util::LengthLimitError>().is_some() => {
            hear_out(body).await;
            Err(too_large(most))
        }
        Err(error) if error.is::<Late>() => Err(ApiError::new(ErrorCode::TimedOut, Late.to_string())),
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

/// What is read by line is sent by line; what can be resumed is sent as events of a browser.
fn streamed(
    line: &Line,
    method: Method,
    (mut items, standing): (mpsc::Receiver<Item>, Standing),
) -> Response<Body> {
    let (form, patience) = match method.reply() {
        // A command waits for whoever reads what it says.
        Reply::Lines => (stream::Form::Lines, None),
        _ => (stream::Form::Events, Some(events::PATIENCE)),
    };
    let (daemon, cut) = (Arc::clone(&line.daemon), Arc::clone(&line.cut));
    let (pieces, body) = mpsc::channel(if patience.is_some() { UNDER_WAY } else { CHUNKS_UNDER_WAY });
    let _writer = tokio::spawn(async move {
        loop {
            // Whoever has gone away is noticed also when nothing happens.
            let item = tokio::select! {
                item = items.recv() => item,
                () = pieces.closed() => None,
            };
            let Some(item) = item else {
                // What is about everything that happens has no end: they did not read it, or it could not go on. What they have not
                // read yet would wait for them forever. What has an end has said so, unless they did not read it.
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
                Some(patience) => passed(&pieces, piece(&item), || true, patience).await,
                None => passed(&pieces, piece(&item), || items.is_closed(), LEFT).await,
            };
            match passed {
                Passed::Taken => {}
                Passed::Gone => return,
                // What waits for them would wait forever, and so would their place.
                Passed::Left => {
                    let _before = daemon.meters.dropped.fetch_add(1, Ordering::Relaxed);
                    return cut.notify_one();
                }
            }
        }
    });
    pieces_of(form, (body, standing), line)
}

/// Whether the last of it is taken, or nobody is there any more.
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

fn piece(item: &Item) -> Bytes {
    match item {
        Item::Event(event) => event.text(),
        Item::Question(_) => format!("event: question\ndata: {}\n\n", text(item)).into(),
        Item::Chunk(_) => format!("{}\n", text(item)).into(),
    }
}

pub(crate) fn short(kind: &'static str, text: String) -> Response<Body> {
    whole(kind, Slices::from(Bytes::from(text)))
}

pub(crate) fn whole(kind: &'static str, slices: Slices) -> Response<Body> {
    let mut response = Response::new(Body::Whole(slices));
    let _new = response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn pieces_of(
    form: stream::Form,
    (body, standing): (mpsc::Receiver<Bytes>, Standing),
    line: &Line,
) -> Response<Body> {
    let pieces = Pieces::new(body, form, Held::new(standing, Arc::clone(&line.cut)));
    let mut response = Response::new(Body::Pieces(pieces));
    let kind = HeaderValue::from_static(form.media_type());
    let _new = response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn refusal(error: &ApiError) -> Response<Body> {
    let mut response = short("application/json", text(error));
    *response.status_mut() =
        StatusCode::from_u16(error.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
