//! JSON-RPC over a WebSocket: many requests and streams on one connection, of one caller.

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
use ringfence_api::{ApiError, Method};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::answers::Slices;
use crate::ask::{Answer, UNDER_WAY, ask, blocking};
use crate::authenticate::{Entrance, enter};
use crate::dispatch::Arrived;
use crate::failure::malformed;
use crate::frames::{End, Frames, Timing};
use crate::http::{Line, MOST_WITH_FILE, UNASKED};
use crate::intake::{Place, Rationed};
use crate::rate::is_urgent;
use crate::room::roomy;
use crate::rpc::{self, Asked, Id, Rejected};
use crate::standing::Standing;
use crate::stream::Body;
use crate::telemetry::Context;

/// Where it is.
pub(crate) const PATH: &str = "/v1/ws";
/// What whoever opens one is after, in the ledger.
const PURPOSE: &str = "open a websocket";
/// Requests and streams of one socket at once. What runs inside a fence has no more of the daemon than it needs.
const AT_ONCE: usize = 64;
const AT_ONCE_AT_A_DOOR: usize = 8;
/// Messages that are no requests, in all the time of a socket.
const NONSENSE: u32 = 64;
/// Of a message: what is around the parameters of a request is short.
pub(crate) const LONGEST: usize = MOST_WITH_FILE + 1024;

/// Answers the request for a WebSocket of somebody who is known, and goes on with them on it.
pub(crate) async fn open(
    line: &Arc<Line>,
    head: Parts,
    token: Option<String>,
) -> Result<Response<Body>, ApiError> {
    let accept = agreed(&head)?;
    // A browser that offers protocols wants one of them, and is told no half of a secret.
    let speaks_ours = lists(&head.headers, SEC_WEBSOCKET_PROTOCOL.as_str(), ringfence_web::PROTOCOL);
    let (visited, shown) = (Arc::clone(line), token.clone());
    let entered = blocking(move || enter(&visited, shown.as_deref(), PURPOSE)).await?;
    let standing = entered.known.map_or_else(Standing::of_owner, |known| line.daemon.standings.hold(&known));
    let parent = Context::of_headers(&head.headers);
    let upgraded = hyper::upgrade::on(http::Request::from_parts(head, ()));
    let line = Arc::clone(line);
    let _conversation = tokio::spawn(async move {
        match upgraded.await {
            Ok(stream) => {
                let rationed = Rationed::of(TokioIo::new(stream), Arc::clone(&line), token.clone());
                let frames = Frames::over(rationed, LONGEST, Timing::default()).await;
                converse(Conversation::new(line, token, parent), frames, standing).await;
            }
            Err(error) => tracing::debug!(why = %error, "no WebSocket came of it"),
        }
    });
    let mut response = Response::new(Body::Whole(Slices::default()));
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

/// What proves that the request was understood, if it is one for a WebSocket.
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
    HeaderValue::from_str(&derive_accept_key(key)).map_err(|error| crate::failure::internal(&error))
}

fn lists(headers: &HeaderMap, name: &str, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(word))
}

async fn converse<S>(mut conversation: Conversation, mut frames: Frames<S>, mut standing: Standing)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let (sender, mut outbox) = mpsc::channel(UNDER_WAY);
    let end = loop {
        let message = tokio::select! {
            message = frames.next(&mut outbox) => message,
            _why = standing.lost() => Err(End::Revoked),
        };
        let answered = match message {
            Ok(text) => conversation.heard((text, frames.places()), &sender).await,
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
    if end == End::Slow {
        let _before = conversation.line.daemon.meters.dropped.fetch_add(1, Ordering::Relaxed);
    }
    // What was done for whoever waited here is ended.
    drop(conversation);
    frames.close(end).await;
}

/// What was begun on one socket. All of it ends with it.
struct Conversation {
    line: Arc<Line>,
    token: Option<String>,
    tasks: JoinSet<()>,
    streams: HashMap<u64, AbortHandle>,
    subscriptions: u64,
    nonsense: u32,
    /// The span that the socket was opened under.
    parent: Option<Context>,
}

impl Conversation {
    fn new(line: Arc<Line>, token: Option<String>, parent: Option<Context>) -> Self {
        let (tasks, streams) = (JoinSet::new(), HashMap::new());
        Self { line, token, tasks, streams, subscriptions: 0, nonsense: 0, parent }
    }

    /// What can be said at once to a message. Everything else is said later, through `outbox`.
    async fn heard(
        &mut self,
        message: (Utf8Bytes, Vec<Place>),
        outbox: &mpsc::Sender<Utf8Bytes>,
    ) -> Result<Option<String>, End> {
        let _before = self.line.daemon.meters.requests.fetch_add(1, Ordering::Relaxed);
        let (parsed, places) = match read(message).await {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(why = %error.message, "a message was not read");
                return Err(End::Gone);
            }
        };
        let (id, asked) = match parsed {
            Ok(parsed) => parsed,
            Err(mut rejected) => {
                if rejected.id.is_none() {
                    self.nonsense += 1;
                }
                if self.nonsense > NONSENSE {
                    return Err(End::Nonsense);
                }
                rejected.error = self.counted(rejected.error);
                return Ok(Some(rejected.into()));
            }
        };
        let begun = match asked {
            Asked::Cancel { subscription } => {
                let answer = self.cancel(subscription).map_err(|error| self.counted(error));
                return Ok(Some(rpc::answer(&id, answer)));
            }
            Asked::Method(method, value) => self.begin((id.clone(), method), (value, places), outbox),
        };
        Ok(begun.err().map(|error| rpc::answer(&id, Err(self.counted(error)))))
    }

    fn begin(
        &mut self,
        (id, method): (Id, Method),
        (value, places): (serde_json::Value, Vec<Place>),
        outbox: &mpsc::Sender<Utf8Bytes>,
    ) -> Result<(), ApiError> {
        self.line.count(self.token.as_deref(), || is_urgent(method))?;
        while self.tasks.try_join_next().is_some() {}
        self.streams.retain(|_, stream| !stream.is_finished());
        let most = if matches!(self.line.entrance, Entrance::Door(_)) { AT_ONCE_AT_A_DOOR } else { AT_ONCE };
        if self.tasks.len() >= most {
            let message = format!("{most} requests and streams of this socket are under way");
            return Err(crate::failure::exhausted(message));
        }
        let (entrance, peer, token) = (self.line.entrance.clone(), self.line.peer, self.token.clone());
        let arrived = Arrived { entrance, peer, token, method, value, places, parent: self.parent };
        self.subscriptions += 1;
        let reply = ToBe { id, method, subscription: self.subscriptions, outbox: outbox.clone() };
        let task = self.tasks.spawn(reply.made(Arc::clone(&self.line), arrived));
        if method.reply().is_stream() {
            let _new = self.streams.insert(self.subscriptions, task);
        }
        Ok(())
    }

    fn cancel(&mut self, subscription: u64) -> Result<serde_json::Value, ApiError> {
        let Some(stream) = self.streams.remove(&subscription).filter(|stream| !stream.is_finished()) else {
            return Err(crate::failure::not_found("stream", &subscription.to_string()));
        };
        stream.abort();
        Ok(serde_json::json!({}))
    }

    fn counted(&self, error: ApiError) -> ApiError {
        counted(&self.line, error)
    }
}

/// What a message says. What takes long to read is not for the thread that serves all connections, and has its places until it is read,
/// also when whoever sent it has gone.
async fn read(
    (text, places): (Utf8Bytes, Vec<Place>),
) -> Result<(Result<(Id, Asked), Rejected>, Vec<Place>), ApiError> {
    let is_long = text.len() > UNASKED;
    let read = move || Ok((rpc::parse(&text), places));
    if is_long { blocking(read).await } else { read() }
}

fn counted(line: &Line, mut error: ApiError) -> ApiError {
    line.daemon.meters.error(error.code);
    error.request_id = Some(line.daemon.request_id());
    error
}

/// An answer that is not there yet.
struct ToBe {
    id: Id,
    method: Method,
    subscription: u64,
    outbox: mpsc::Sender<Utf8Bytes>,
}

impl ToBe {
    /// Nothing here waits for a socket that is gone: with it goes who reads `outbox`, and with that this task.
    async fn made(self, line: Arc<Line>, arrived: Arrived) {
        let answer = ask(&line.daemon, arrived).await.map_err(|error| counted(&line, error));
        let mut items = match answer {
            Ok(Answer::Stream(items, _)) => items,
            Ok(Answer::Value(value, scale)) => {
                let text = scale.message(rpc::answer(&self.id, Ok(value)).into()).await;
                let text =
                    text.unwrap_or_else(|error| rpc::answer(&self.id, Err(counted(&line, error))).into());
                return self.put(text).await;
            }
            Err(error) => return self.say(rpc::answer(&self.id, Err(error))).await,
        };
        self.say(rpc::answer(&self.id, Ok(rpc::begun(self.subscription)))).await;
        while let Some(item) = items.recv().await {
            let text = rpc::told(self.method, self.subscription, &item);
            let text = roomy(text.into(), item.room());
            drop(item);
            self.put(text).await;
        }
        self.say(rpc::ended(self.subscription)).await;
    }

    async fn say(&self, text: String) {
        let _gone = self.outbox.send(text.into()).await;
    }

    /// Text that takes up room. It was text before it did.
    async fn put(&self, text: Bytes) {
        if let Ok(text) = Utf8Bytes::try_from(text) {
            let _gone = self.outbox.send(text).await;
        }
    }
}
