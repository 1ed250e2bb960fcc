//! The WebSocket transport: JSON-RPC with many requests and streams of one caller on one connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode, Version};

use hyper_util::rt::TokioIo;
use ringfence_api::{ApiError, Empty, Method};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::admit::authenticate::{ListenerKind, authenticate};
use crate::admit::dispatch::IncomingRequest;
use crate::admit::revocation::CredentialLease;
use crate::calls::handle::{MethodResponse, UNDER_WAY, ask, blocking};
use crate::errors::malformed;
use crate::limits::budget::{Permit, within_budget};
use crate::limits::request_memory::MeteredReader;
use crate::limits::request_rate::is_urgent;
use crate::limits::response_memory::ResponseSlices;
use crate::observe::telemetry::TraceContext;
use crate::transport::http::{HttpConnection, MOST_WITH_FILE, UNASKED};
use crate::transport::http_body::ResponseBody;
use crate::transport::json_rpc::{self, RpcError, RpcId, RpcRequest};
use crate::transport::ws_frames::{CloseReason, WebSocketFrames, WebSocketTiming};

/// The endpoint.
pub(crate) const PATH: &str = "/v1/ws";
/// The purpose in the ledger.
const PURPOSE: &str = "open a websocket";
/// Concurrent requests and streams of one socket. A fenced process gets fewer.
const AT_ONCE: usize = 64;
const AT_ONCE_AT_A_DOOR: usize = 8;
/// Invalid messages over the lifetime of a socket.
const NONSENSE: u32 = 64;
/// Longest message: the fields around the parameters are short.
pub(crate) const LONGEST: usize = MOST_WITH_FILE + 1024;

/// Upgrades the connection of an authenticated caller.
pub(crate) async fn open(
    line: &Arc<HttpConnection>,
    head: Parts,
    token: Option<String>,
) -> Result<Response<ResponseBody>, ApiError> {
    let accept = agreed(&head)?;
    // A browser requires one of its offered protocols in the response. The CSRF token, offered as another one, must not
    // be echoed.
    let speaks_ours = lists(&head.headers, SEC_WEBSOCKET_PROTOCOL.as_str(), ringfence_web::PROTOCOL);
    let (visited, shown) = (Arc::clone(line), token.clone());
    let entered = blocking(move || authenticate(&visited, shown.as_deref(), PURPOSE)).await?;
    let standing =
        entered.known.map_or_else(CredentialLease::of_owner, |known| line.daemon.standings.watch(&known));
    let parent = TraceContext::of_headers(&head.headers);
    let upgraded = hyper::upgrade::on(http::Request::from_parts(head, ()));
    let line = Arc::clone(line);
    let _conversation = tokio::spawn(async move {
        match upgraded.await {
            Ok(stream) => {
                let rationed = MeteredReader::of(TokioIo::new(stream), Arc::clone(&line), token.clone());
                let frames = WebSocketFrames::over(rationed, LONGEST, WebSocketTiming::default()).await;
                converse(WebSocketSession::new(line, token, parent), frames, standing).await;
            }
            Err(error) => tracing::debug!(error = %error, "the WebSocket upgrade failed"),
        }
    });
    let mut response = Response::new(ResponseBody::Whole(ResponseSlices::default()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    let _new = headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let _new = headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    let _new = headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if speaks_ours {
        let _new = headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(ringfence_web::PROTOCOL));
    }
    Ok(response)
}

/// The `Sec-WebSocket-Accept` value of a valid upgrade request.
fn agreed(head: &Parts) -> Result<HeaderValue, ApiError> {
    let wrong = |message: &str| malformed(message).with_hint("this is a WebSocket: RFC 6455 over HTTP/1.1");
    if head.uri.query().is_some() {
        return Err(wrong("nothing is said in the address of a WebSocket"));
    }
    let asks = head.method == http::Method::GET && head.version == Version::HTTP_11;
    if !asks || !lists(&head.headers, CONNECTION.as_str(), "upgrade") {
        return Err(wrong("the request does not ask for a WebSocket"));
    }
    if !lists(&head.headers, UPGRADE.as_str(), "websocket") {
        return Err(wrong("the request does not ask for a WebSocket"));
    }
    if head.headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(wrong("the version of WebSockets is 13"));
    }
    let key = head.headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
    if !STANDARD.decode(key).is_ok_and(|key| key.len() == 16) {
        return Err(wrong("the key of the WebSocket is not 16 bytes in base64"));
    }
    HeaderValue::from_str(&derive_accept_key(key)).map_err(|error| crate::errors::internal(&error))
}

fn lists(headers: &HeaderMap, name: &str, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(word))
}

async fn converse<S>(
    mut conversation: WebSocketSession,
    mut frames: WebSocketFrames<S>,
    mut standing: CredentialLease,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let (sender, mut outbox) = mpsc::channel(UNDER_WAY);
    let end = loop {
        let message = tokio::select! {
            message = frames.next(&mut outbox) => message,
            _why = standing.revoked() => Err(CloseReason::Revoked),
        };
        let answered = match message {
            Ok(text) => conversation.heard(text, frames.memory(), &sender).await,
            Err(end) => break end,
        };
        let sent = match answered {
            Ok(Some(text)) => frames.send(text.into()).await,
            Ok(None) => Ok(()),
            Err(end) => Err(end),
        };
        if let Err(end) = sent {
            break end;
        }
    };
    if end == CloseReason::Slow {
        let _before = conversation.line.daemon.meters.dropped.fetch_add(1, Ordering::Relaxed);
    }
    // Cancels the work of this client.
    drop(conversation);
    frames.close(end).await;
}

/// The requests and streams of one socket. All end with it.
struct WebSocketSession {
    line: Arc<HttpConnection>,
    token: Option<String>,
    tasks: JoinSet<()>,
    streams: HashMap<u64, AbortHandle>,
    subscriptions: u64,
    nonsense: u32,
    /// The span the socket was opened under.
    parent: Option<TraceContext>,
}

impl WebSocketSession {
    fn new(line: Arc<HttpConnection>, token: Option<String>, parent: Option<TraceContext>) -> Self {
        let (tasks, streams) = (JoinSet::new(), HashMap::new());
        Self { line, token, tasks, streams, subscriptions: 0, nonsense: 0, parent }
    }

    /// The immediate response to a message, if there is one. Other responses go through `outbox`.
    async fn heard(
        &mut self,
        text: Utf8Bytes,
        memory: Permit,
        outbox: &mpsc::Sender<Utf8Bytes>,
    ) -> Result<Option<String>, CloseReason> {
        let _before = self.line.daemon.meters.requests.fetch_add(1, Ordering::Relaxed);
        let (parsed, memory) = match read(text, memory).await {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(error = %error.message, "cannot read a message");
                return Err(CloseReason::Gone);
            }
        };
        let (id, asked) = match parsed {
            Ok(parsed) => parsed,
            Err(mut rejected) => {
                if rejected.id.is_none() {
                    self.nonsense += 1;
                }
                if self.nonsense > NONSENSE {
                    return Err(CloseReason::Nonsense);
                }
                rejected.error = self.counted(rejected.error);
                return Ok(Some(rejected.into()));
            }
        };
        let begun = match asked {
            RpcRequest::Cancel { subscription } => {
                let answer = self.cancel(subscription).map_err(|error| self.counted(error));
                return Ok(Some(json_rpc::answer(&id, answer)));
            }
            RpcRequest::Method(method, value) => {
                let arrived = self.line.incoming(self.token.clone(), method, value, self.parent);
                self.begin(id.clone(), IncomingRequest { memory, ..arrived }, outbox)
            }
        };
        Ok(begun.err().map(|error| json_rpc::failed(&id, &self.counted(error))))
    }

    fn begin(
        &mut self,
        id: RpcId,
        arrived: IncomingRequest,
        outbox: &mpsc::Sender<Utf8Bytes>,
    ) -> Result<(), ApiError> {
        let method = arrived.method;
        self.line.count(self.token.as_deref(), || is_urgent(method))?;
        while self.tasks.try_join_next().is_some() {}
        self.streams.retain(|_, stream| !stream.is_finished());
        let most =
            if matches!(self.line.entrance, ListenerKind::Door(_)) { AT_ONCE_AT_A_DOOR } else { AT_ONCE };
        if self.tasks.len() >= most {
            let message = format!("{most} requests and streams of this socket are under way");
            return Err(crate::errors::exhausted(message));
        }
        self.subscriptions += 1;
        let reply = PendingResponse { id, method, subscription: self.subscriptions, outbox: outbox.clone() };
        let task = self.tasks.spawn(reply.made(Arc::clone(&self.line), arrived));
        if method.reply().is_stream() {
            let _new = self.streams.insert(self.subscriptions, task);
        }
        Ok(())
    }

    fn cancel(&mut self, subscription: u64) -> Result<Empty, ApiError> {
        let Some(stream) = self.streams.remove(&subscription).filter(|stream| !stream.is_finished()) else {
            return Err(crate::errors::not_found("stream", &subscription.to_string()));
        };
        stream.abort();
        Ok(Empty::default())
    }

    fn counted(&self, error: ApiError) -> ApiError {
        counted(&self.line, error)
    }
}

/// Parses a message. A long one would block the thread that serves all connections. The permit moves along, also if the
/// client disconnects.
async fn read(
    text: Utf8Bytes,
    memory: Permit,
) -> Result<(Result<(RpcId, RpcRequest), RpcError>, Permit), ApiError> {
    let is_long = text.len() > UNASKED;
    let read = move || Ok((json_rpc::parse(&text), memory));
    if is_long { blocking(read).await } else { read() }
}

fn counted(line: &HttpConnection, mut error: ApiError) -> ApiError {
    line.daemon.meters.error(error.code);
    error.request_id = Some(line.daemon.request_id());
    error
}

/// A response in the making.
struct PendingResponse {
    id: RpcId,
    method: Method,
    subscription: u64,
    outbox: mpsc::Sender<Utf8Bytes>,
}

impl PendingResponse {
    /// Never waits for a closed socket: with the socket the receiver of `outbox` is dropped, and this task with it.
    async fn made(self, line: Arc<HttpConnection>, arrived: IncomingRequest) {
        let answer = ask(&line.daemon, arrived).await.map_err(|error| counted(&line, error));
        let mut items = match answer {
            Ok(MethodResponse::Stream(items, _)) => items,
            Ok(MethodResponse::Value(response, scale)) => {
                let text = scale.message(json_rpc::answer(&self.id, Ok(response)).into()).await;
                let text =
                    text.unwrap_or_else(|error| json_rpc::failed(&self.id, &counted(&line, error)).into());
                return self.put(text).await;
            }
            Err(error) => return self.say(json_rpc::failed(&self.id, &error)).await,
        };
        self.say(json_rpc::answer(&self.id, Ok(json_rpc::begun(self.subscription)))).await;
        while let Some(item) = items.recv().await {
            let text = json_rpc::told(self.method, self.subscription, &item);
            let text = within_budget(text.into(), item.room());
            drop(item);
            self.put(text).await;
        }
        self.say(json_rpc::ended(self.subscription)).await;
    }

    async fn say(&self, text: String) {
        let _gone = self.outbox.send(text.into()).await;
    }

    /// Sends text that holds a memory permit. It was UTF-8 before it became bytes.
    async fn put(&self, text: Bytes) {
        if let Ok(text) = Utf8Bytes::try_from(text) {
            let _gone = self.outbox.send(text).await;
        }
    }
}
