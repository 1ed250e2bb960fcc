//! The Model Context Protocol over HTTP (its "streamable HTTP"), with the tools of `ringfence mcp`.
//!
//! Nothing is kept between requests: who asks is known by the token of each, and each tool is one or two methods of the table,
//! let in like every other request. An id is given to clients of the era with a handshake, for one thing alone: to tell
//! apart whose call they cancel.
//!
//! INVARIANT: no tool does anything but through [`Visitor::call`], [`Visitor::admit`] and what they let in.

mod perform;
mod server;
mod underway;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task;

use bytes::Bytes;
use http::header::{AUTHORIZATION, COOKIE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::Full;
use ringfence_api::{ApiError, ErrorCode, Method};
use ringfence_types::SessionId;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::answers::Scale;
use crate::ask::{admit_elsewhere, blocking};
use crate::authenticate::{Entrance, identify};
use crate::dispatch::{Admitted, Arrived};
use crate::failure::{internal, malformed};
use crate::http::{Line, UNASKED, collected, hear_out};
use crate::intake::Place;
use crate::request_body::RequestBody;
use crate::stream::Body;
use crate::telemetry::Context;
use crate::weigh::weighed;

use ringfence_mcp::Offered;
use server::Server;
pub(crate) use underway::Underway;

/// For whoever has a session of their own.
const PATH: &str = "/mcp";
/// Of a message.
const MOST: usize = 8 * 1024 * 1024;
const CLIENT: HeaderName = HeaderName::from_static("mcp-session-id");

/// Whose tools are wanted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Those of the session that the token is for.
    Own,
    Of(String),
}

/// Whose tools an address is about, if it is about tools.
pub(crate) fn addressed(path: &str) -> Option<Wanted> {
    if path == PATH {
        return Some(Wanted::Own);
    }
    let session = path.strip_prefix("/v1/sessions/")?.strip_suffix(PATH)?;
    (!session.is_empty() && !session.contains('/')).then(|| Wanted::Of(session.to_owned()))
}

/// Somebody who uses the tools of a session.
#[derive(Clone, Debug)]
struct Visitor {
    line: Arc<Line>,
    token: Option<String>,
    session: SessionId,
    /// Of the era with a handshake: what tells its calls from those of others who have the same token.
    client: String,
    /// The span of whoever calls.
    parent: Option<Context>,
    /// Of what they said, until something is made of it.
    places: Arc<Mutex<Vec<Place>>>,
    /// Of what they are told, until it is in the form of the protocol, which is short.
    scales: Arc<Mutex<Vec<Scale>>>,
}

impl Visitor {
    fn arrived(&self, method: Method, value: Value) -> Arrived {
        let (entrance, peer, token) = (self.line.entrance.clone(), self.line.peer, self.token.clone());
        // Whether they may use tools is asked for before they do.
        let places = if method == Method::Mcp { Vec::new() } else { std::mem::take(&mut *self.held()) };
        Arrived { entrance, peer, token, method, value, places, parent: self.parent }
    }

    fn held(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, scale: Scale) {
        self.scales.lock().unwrap_or_else(PoisonError::into_inner).push(scale);
    }

    async fn admit(&self, method: Method, value: Value) -> Result<Admitted, ApiError> {
        admit_elsewhere(&self.line.daemon, self.arrived(method, value)).await
    }

    /// One of their calls, which nobody else can name.
    fn key(&self, request: &Value) -> underway::Key {
        let token = self.token.as_deref().map(|token| Sha256::digest(token).to_vec());
        (self.session.clone(), token, self.client.clone(), request.to_string())
    }
}

/// What is of interest in a message before the protocol has it.
#[derive(Debug, Default, Deserialize)]
struct Message {
    #[serde(default)]
    method: String,
    #[serde(default)]
    params: Value,
}

pub(crate) async fn answer(
    line: &Arc<Line>,
    (mut head, token): (Parts, Option<String>),
    (wanted, body): (Wanted, RequestBody),
) -> Result<Response<Body>, ApiError> {
    // Before anything that they send is read.
    let (visitor, workspace) = match visit(line, &head, token, wanted).await {
        Ok(visitor) => visitor,
        Err(why) => {
            hear_out(body).await;
            return Err(why);
        }
    };
    let (bytes, places) = collected(line, visitor.token.as_deref(), body, MOST).await?;
    let (bytes, places) = light(bytes, places).await?;
    *visitor.held() = places;
    let message = looked_at(&bytes);
    if message.method == "notifications/cancelled" {
        let request = message.params.get("requestId").cloned().unwrap_or_default();
        line.daemon.tools_underway.cancel(&visitor.key(&request));
    }
    // The protocol has no business with who asks.
    let _gone = (head.headers.remove(AUTHORIZATION), head.headers.remove(COOKIE));
    let server = Offered(Server { visitor, workspace });
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        configuration(),
    );
    let is_long = bytes.len() > UNASKED;
    let request = http::Request::from_parts(head, Full::new(bytes));
    let handling = async move { service.handle(request).await };
    let response = if is_long { begun_elsewhere(handling).await? } else { handling.await };
    let mut response = response.map(Body::Tools);
    if message.method == "initialize" && response.status() == StatusCode::OK {
        let _new = response.headers_mut().insert(CLIENT, new_client()?);
    }
    Ok(response)
}

/// Somebody who may use the tools of the session that they name, and its workspace.
async fn visit(
    line: &Arc<Line>,
    head: &Parts,
    token: Option<String>,
    wanted: Wanted,
) -> Result<(Visitor, PathBuf), ApiError> {
    if head.uri.query().is_some() {
        return Err(malformed("nothing is said in the address of a server of tools"));
    }
    let session = match wanted {
        Wanted::Of(id) => id,
        Wanted::Own => own(line, token.clone()).await?.to_string(),
    };
    let session = serde_json::from_value(Value::from(session))
        .map_err(|error| malformed(format!("this is no session: {error}")))?;
    let client = head.headers.get(CLIENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let visitor = Visitor {
        line: Arc::clone(line),
        token,
        session,
        client: client.to_owned(),
        parent: Context::of_headers(&head.headers),
        places: Arc::default(),
        scales: Arc::default(),
    };
    let admitted = visitor.admit(Method::Mcp, json!({ "session": visitor.session })).await?;
    let workspace = admitted.live.as_ref().map(|live| live.bound.workspace().path.clone());
    Ok((visitor, workspace.unwrap_or_default()))
}

/// What there is not too much in. What takes long to read is not for the thread that serves all connections.
async fn light(bytes: Bytes, places: Vec<Place>) -> Result<(Bytes, Vec<Place>), ApiError> {
    let is_long = bytes.len() > UNASKED;
    let weigh = move || weighed(&bytes).map(|()| (bytes, places));
    if is_long { blocking(weigh).await } else { weigh() }
}

/// The protocol reads a message as a whole when it is first asked for the answer, which is therefore done on another thread; it goes on here.
async fn begun_elsewhere<T: Send + 'static>(
    handling: impl Future<Output = T> + Send + 'static,
) -> Result<T, ApiError> {
    let mut handling = Box::pin(handling);
    let (first, handling) = blocking(move || {
        let first = handling.as_mut().poll(&mut task::Context::from_waker(task::Waker::noop()));
        Ok((first, handling))
    })
    .await?;
    match first {
        task::Poll::Ready(done) => Ok(done),
        task::Poll::Pending => Ok(handling.await),
    }
}

/// What is long is for a tool.
fn looked_at(bytes: &[u8]) -> Message {
    bytes
        .get(..=UNASKED)
        .map_or_else(|| serde_json::from_slice(bytes).unwrap_or_default(), |_long| Message::default())
}

/// `Host` and `Origin` were looked at already, as with every request.
fn configuration() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_sse_retry(None)
        .with_max_request_body_bytes(MOST)
        .disable_allowed_hosts()
}

fn new_client() -> Result<HeaderValue, ApiError> {
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random).map_err(|error| internal(&error))?;
    let text: String = ringfence_types::hex(random);
    HeaderValue::from_maybe_shared(Bytes::from(text)).map_err(|error| internal(&error))
}

/// The session of whoever asks.
async fn own(line: &Arc<Line>, token: Option<String>) -> Result<SessionId, ApiError> {
    if let Entrance::Door(session) = &line.entrance {
        return Ok(session.clone());
    }
    let (entrance, peer, daemon) = (line.entrance.clone(), line.peer, Arc::clone(&line.daemon));
    let entered = blocking(move || identify(&daemon.identities, (&entrance, peer), token.as_deref())).await?;
    entered.caller.session().cloned().ok_or_else(|| {
        ApiError::new(ErrorCode::NotFound, "an operator has no session of their own")
            .with_hint("name one: `/v1/sessions/SESSION/mcp`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_session_or_means_ones_own() {
        assert_eq!(addressed("/mcp"), Some(Wanted::Own));
        assert_eq!(addressed("/v1/sessions/ses_1/mcp"), Some(Wanted::Of("ses_1".to_owned())));
        for other in ["/mcp/", "/v1/mcp", "/v1/sessions//mcp", "/v1/sessions/mcp", "/v1/sessions/a/b/mcp"] {
            assert_eq!(addressed(other), None, "{other}");
        }
    }
}
