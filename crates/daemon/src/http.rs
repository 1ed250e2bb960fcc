//! HTTP with JSON: bytes to a method and its request, and back.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, ORIGIN, SET_COOKIE};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use ringfence_api::{ApiError, Chunk, ErrorCode, LoggedIn, MOST_SENT, Method, Reply, Request};
use ringfence_runtime::identity::IdentityError;
use ringfence_types::Transport;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::{Notify, mpsc};
use zeroize::Zeroizing;

use crate::authenticate::{Entrance, not_let_in, source};
use crate::dispatch::{Admitted, Arrived, admit, perform};
use crate::events;
use crate::exec::{Form, Sink, Wired};
use crate::failure::{internal, malformed};
use crate::identity;
use crate::network::Network;
use crate::output::seq;
use crate::peer::Peer;
use crate::rate::Bucket;
use crate::route;
use crate::server::Daemon;
use crate::session::Live;
use crate::transfer;

/// Of a request without a file in it.
const MOST: usize = 1024 * 1024;
/// Of one with a file: base64 and what is around it.
const MOST_WITH_FILE: usize = MOST_SENT as usize / 3 * 4 + MOST;
/// How long a client may take to send what it announced.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pieces of a stream that are under way to a client.
const UNDER_WAY: usize = 16;

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
    pub(crate) rate: Bucket,
    /// Ends the connection.
    pub(crate) cut: Arc<Notify>,
}

/// What is sent back: a value, or pieces until there are no more.
pub(crate) enum Body {
    Whole(Full<Bytes>),
    Pieces(mpsc::Receiver<Bytes>),
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(whole) => Pin::new(whole).poll_frame(context),
            Self::Pieces(pieces) => {
                pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }
}

/// Answers one request. Nothing here fails: what goes wrong is an answer, too.
pub(crate) async fn answer(line: Arc<Line>, request: http::Request<Incoming>) -> Response<Body> {
    let id = line.daemon.request_id();
    let _before = line.daemon.meters.requests.fetch_add(1, Ordering::Relaxed);
    let mut response = match respond(&line, request).await {
        Ok(response) => response,
        Err(mut error) => {
            line.daemon.meters.error(error.code);
            error.request_id = Some(id.clone());
            refusal(&error)
        }
    };
    let headers = response.headers_mut();
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

async fn respond(line: &Arc<Line>, request: http::Request<Incoming>) -> Result<Response<Body>, ApiError> {
    if !line.rate.take() {
        return Err(ApiError::new(ErrorCode::Exhausted, "too many requests").with_hint("send fewer of them"));
    }
    if line.network.is_none() && request.headers().contains_key(ORIGIN) {
        // No page of a browser has business at a Unix socket.
        return Err(ApiError::new(ErrorCode::Forbidden, "requests of web pages are not answered here")
            .with_rule("http.origin"));
    }
    let (head, body) = request.into_parts();
    if let Some(network) = &line.network {
        network.admit(&head)?;
    }
    let (method, mut fields) = route::find(head.method.as_str(), head.uri.path(), head.uri.query())?;
    let token = match &line.network {
        Some(network) => network.token(&line.daemon.identities, &head)?,
        None => token(&head.headers)?,
    };
    if method == Method::FileUpload {
        return transfer::upload(line, (token, Value::Object(fields)), body).await;
    }
    if head.method == http::Method::POST {
        merge(&mut fields, read(method, body).await?)?;
    }
    if let (Method::Login, Some(network)) = (method, &line.network) {
        return login(line, network.transport(), Value::Object(fields)).await;
    }
    let arrived = Arrived {
        entrance: line.entrance.clone(),
        peer: line.peer,
        token,
        method,
        value: Value::Object(fields),
    };
    let daemon = Arc::clone(&line.daemon);
    if method == Method::FileDownload {
        return transfer::download(daemon, arrived).await;
    }
    if method.reply() == Reply::Stream || method == Method::CallShow {
        let admitted = blocking({
            let daemon = Arc::clone(&daemon);
            move || admit(&daemon, arrived)
        })
        .await?;
        return stream(line, admitted).await;
    }
    let value =
        blocking(move || admit(&daemon, arrived).and_then(|admitted| perform(&daemon, admitted))).await?;
    Ok(match (method.reply(), value) {
        (Reply::Text, Value::String(text)) => whole("text/plain; version=0.0.4", text.into_bytes()),
        (_, value) => whole("application/json", value.to_string().into_bytes()),
    })
}

/// A cookie for a name and a password.
async fn login(line: &Arc<Line>, transport: Transport, value: Value) -> Result<Response<Body>, ApiError> {
    let Request::Login(login) = Request::parse(Method::Login, value)? else {
        return Err(malformed("this is no login"));
    };
    let (daemon, source) = (Arc::clone(&line.daemon), source(&line.entrance, line.peer));
    let session = blocking(move || {
        let password = Zeroizing::new(login.password);
        daemon.identities.login(&login.name, password.as_bytes(), &source).map_err(|error| match error {
            IdentityError::Denied(denied) => not_let_in(&denied),
            error => identity::failed(error),
        })
    })
    .await?;
    let answer = LoggedIn { csrf: session.csrf.to_string() };
    let mut response = whole("application/json", text(&answer).into_bytes());
    let cookie =
        ringfence_web::cookie(&session.cookie.reveal(), transport).map_err(|error| internal(&error))?;
    let _new = response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

/// The pipeline waits for disks, people and commands; none of that is for the thread that serves all connections.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| internal(&error))?
}

fn token(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let text = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer ")).map(str::trim);
    match text {
        Some(text) if !text.is_empty() => Ok(Some(text.to_owned())),
        _ => {
            Err(ApiError::new(ErrorCode::Unauthenticated, "the header `Authorization` is not `Bearer TOKEN`"))
        }
    }
}

async fn read(method: Method, body: Incoming) -> Result<Map<String, Value>, ApiError> {
    let bytes = collected(body, if method == Method::FileWrite { MOST_WITH_FILE } else { MOST }).await?;
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(malformed("the body is not an object")),
        Err(error) => Err(malformed(format!("the body is not JSON: {error}"))),
    }
}

/// All of a body that is no larger than it may be.
pub(crate) async fn collected(body: Incoming, most: usize) -> Result<Bytes, ApiError> {
    let collected = tokio::time::timeout(PATIENCE, Limited::new(body, most).collect()).await;
    let collected = collected
        .map_err(|_late| ApiError::new(ErrorCode::TimedOut, "the request did not come to its end"))?;
    let bytes =
        collected.map_err(|error| match error.downcast_ref::<http_body_util::LengthLimitError>() {
            Some(_) => ApiError::new(ErrorCode::TooLarge, format!("a request has at most {most} bytes here")),
            None => malformed("the request did not come to its end"),
        })?;
    Ok(bytes.to_bytes())
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

async fn stream(line: &Line, admitted: Admitted) -> Result<Response<Body>, ApiError> {
    let Admitted { caller, request, live, .. } = admitted;
    let daemon = Arc::clone(&line.daemon);
    let live = || live.clone().ok_or_else(|| malformed("the request names no session"));
    match request {
        Request::Events(request) => {
            let (sender, mut events) = mpsc::channel(UNDER_WAY);
            let _follower = tokio::spawn(events::subscribe(Arc::clone(&daemon), caller, request, sender));
            let (pieces, body) = mpsc::channel(UNDER_WAY);
            let cut = Arc::clone(&line.cut);
            let _writer = tokio::spawn(async move {
                loop {
                    let event = tokio::select! {
                        event = events.recv() => event,
                        // Whoever has gone is noticed also while nothing happens.
                        () = pieces.closed() => None,
                    };
                    let Some(event) = event else { return };
                    let text =
                        format!("id: {}\nevent: {}\ndata: {}\n\n", event.seq, event.kind, text(&*event));
                    match tokio::time::timeout(events::PATIENCE, pieces.send(text.into())).await {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return,
                        // What waits for them would wait forever, and so would their place.
                        Err(_) => {
                            let _before = daemon.meters.dropped.fetch_add(1, Ordering::Relaxed);
                            return cut.notify_one();
                        }
                    }
                }
            });
            Ok(pieces_of("text/event-stream", body))
        }
        Request::CallOutput(request) => {
            let call = live()?.find_call(request.call)?;
            let (pieces, body) = mpsc::channel(UNDER_WAY);
            let _writer = tokio::spawn(async move {
                let mut after = request.after;
                loop {
                    let (chunks, over) = call.output.after(after);
                    for chunk in chunks {
                        after = seq(&chunk);
                        if pieces.send(line_of(&chunk)).await.is_err() {
                            return;
                        }
                    }
                    if over {
                        let ended = Chunk::Ended { seq: after, call: Box::new(call.info()) };
                        // Whoever has gone away needs no end.
                        let _gone = pieces.send(line_of(&ended)).await;
                        return;
                    }
                    tokio::select! {
                        () = call.output.changed(after) => {}
                        () = pieces.closed() => return,
                    }
                }
            });
            Ok(pieces_of("application/x-ndjson", body))
        }
        Request::CallRun(ringfence_api::RunCommand(exec)) => run(daemon, live()?, exec),
        Request::CallShow(request) => {
            let call = live()?.find_call(request.call)?;
            call.ended(Duration::from_millis(request.wait_ms.unwrap_or(0).min(600_000))).await;
            Ok(whole("application/json", text(&call.info()).into_bytes()))
        }
        _ => Err(malformed("this is a value, and was asked for as a stream")),
    }
}

/// While the client does not read, the channel is full, the pipe is full, and the command waits.
fn run(daemon: Arc<Daemon>, live: Arc<Live>, exec: ringfence_api::Exec) -> Result<Response<Body>, ApiError> {
    daemon.takes_work()?;
    let wired = Wired::new(&live, exec, Form::Pieces)?;
    let call = Arc::clone(&wired.call);
    let (sender, mut chunks) = mpsc::channel(UNDER_WAY);
    daemon.in_background(live, wired, Sink::Send(sender))?;
    let (pieces, body) = mpsc::channel(UNDER_WAY);
    let _writer = tokio::spawn(async move {
        loop {
            let chunk = tokio::select! {
                chunk = chunks.recv() => chunk,
                () = pieces.closed() => None,
            };
            let Some(chunk) = chunk else { break };
            if pieces.send(line_of(&chunk)).await.is_err() {
                break;
            }
        }
        // Nobody wants it any more, or it is over.
        call.cancel();
    });
    Ok(pieces_of("application/x-ndjson", body))
}

pub(crate) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn line_of(chunk: &Chunk) -> Bytes {
    let mut line = text(chunk);
    line.push('\n');
    line.into()
}

pub(crate) fn whole(kind: &'static str, bytes: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Full::new(bytes.into())));
    let _new = response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn pieces_of(kind: &'static str, body: mpsc::Receiver<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::Pieces(body));
    let _new = response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn refusal(error: &ApiError) -> Response<Body> {
    let mut response = whole("application/json", text(error).into_bytes());
    *response.status_mut() =
        StatusCode::from_u16(error.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
