//! The MCP transport over streamable HTTP, with the tools of `ringfence mcp`.
//!
//! Stateless: each request authenticates with its own token, and each tool is one or two methods of the table, admitted
//! like every other request. Clients of protocol versions with a handshake get an id, which only tells their
//! cancellations apart.
//!
//! INVARIANT: a tool acts only as `ToolSession` of `HttpMcpServer`, through `ask` and [`McpCaller::admit`].

mod inflight;
mod perform;
mod server;

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

use crate::admit::authenticate::{ListenerKind, identify};
use crate::admit::dispatch::{AuthorizedRequest, IncomingRequest};
use crate::calls::handle::{admit_elsewhere, blocking};
use crate::errors::{internal, malformed};
use crate::limits::budget::Permit;
use crate::limits::json_size::weighed;
use crate::limits::response_memory::ResponseMeter;
use crate::observe::telemetry::TraceContext;
use crate::transport::http::{HttpConnection, UNASKED, collected, drain_body};
use crate::transport::http_body::ResponseBody;
use crate::transport::request_body::RequestBody;

pub(crate) use inflight::InflightCalls;
use ringfence_mcp::ToolServer;
use server::HttpMcpServer;

/// The endpoint for callers with a session of their own.
const PATH: &str = "/mcp";
/// Longest message, in bytes.
const MOST: usize = 8 * 1024 * 1024;
const CLIENT: HeaderName = HeaderName::from_static("mcp-session-id");

/// The session whose tools a request is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ToolTarget {
    /// The session of the token.
    Own,
    Of(String),
}

/// The session a path is about, if it is an MCP path.
pub(crate) fn addressed(path: &str) -> Option<ToolTarget> {
    if path == PATH {
        return Some(ToolTarget::Own);
    }
    let session = path.strip_prefix("/v1/sessions/")?.strip_suffix(PATH)?;
    (!session.is_empty() && !session.contains('/')).then(|| ToolTarget::Of(session.to_owned()))
}

/// A client that uses the tools of a session.
#[derive(Clone, Debug)]
struct McpCaller {
    line: Arc<HttpConnection>,
    token: Option<String>,
    session: SessionId,
    /// The id from the handshake. It separates the calls of clients with the same token.
    client: String,
    /// The client's parent span.
    parent: Option<TraceContext>,
    /// The memory permit of the request, until it is decoded.
    memory: Arc<Mutex<Permit>>,
    /// Meters of the results, until they are converted to the short MCP form.
    scales: Arc<Mutex<Vec<ResponseMeter>>>,
}

impl McpCaller {
    fn arrived(&self, method: Method, value: Value) -> IncomingRequest {
        // The admission of the MCP request itself must not consume the permit of the tool call.
        let memory =
            if method == Method::Mcp { Permit::default() } else { std::mem::take(&mut *self.held()) };
        IncomingRequest { memory, ..self.line.incoming(self.token.clone(), method, value, self.parent) }
    }

    fn held(&self) -> MutexGuard<'_, Permit> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, scale: ResponseMeter) {
        self.scales.lock().unwrap_or_else(PoisonError::into_inner).push(scale);
    }

    async fn admit(&self, method: Method, value: Value) -> Result<AuthorizedRequest, ApiError> {
        admit_elsewhere(&self.line.daemon, self.arrived(method, value)).await
    }

    /// The key of a call, which includes the token, so that no other client can cancel it.
    fn key(&self, request: &Value) -> inflight::InflightKey {
        let token = self.token.as_deref().map(|token| Sha256::digest(token).to_vec());
        (self.session.clone(), token, self.client.clone(), request.to_string())
    }
}

/// The fields of a message that are needed before the MCP library decodes it.
#[derive(Debug, Default, Deserialize)]
struct McpEnvelope {
    #[serde(default)]
    method: String,
    #[serde(default)]
    params: Value,
}

pub(crate) async fn answer(
    line: &Arc<HttpConnection>,
    mut head: Parts,
    token: Option<String>,
    wanted: ToolTarget,
    body: RequestBody,
) -> Result<Response<ResponseBody>, ApiError> {
    // Authorizes the client before its body is read.
    let (visitor, workspace) = match visit(line, &head, token, wanted).await {
        Ok(visitor) => visitor,
        Err(why) => {
            drain_body(body).await;
            return Err(why);
        }
    };
    let (bytes, memory) = collected(line, visitor.token.as_deref(), body, MOST).await?;
    let (bytes, memory) = light(bytes, memory).await?;
    *visitor.held() = memory;
    let message = looked_at(&bytes);
    if message.method == "notifications/cancelled" {
        let request = message.params.get("requestId").cloned().unwrap_or_default();
        line.daemon.tools_underway.cancel(&visitor.key(&request));
    }
    // Keeps credentials out of the MCP library.
    let _gone = (head.headers.remove(AUTHORIZATION), head.headers.remove(COOKIE));
    let server = ToolServer(HttpMcpServer { visitor, workspace });
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        configuration(),
    );
    let is_long = bytes.len() > UNASKED;
    let request = http::Request::from_parts(head, Full::new(bytes));
    let handling = async move { service.handle(request).await };
    let response = if is_long { begun_elsewhere(handling).await? } else { handling.await };
    let mut response = response.map(ResponseBody::Tools);
    if message.method == "initialize" && response.status() == StatusCode::OK {
        let _new = response.headers_mut().insert(CLIENT, new_client()?);
    }
    Ok(response)
}

/// Authorizes a client for the session it names, and returns the workspace.
async fn visit(
    line: &Arc<HttpConnection>,
    head: &Parts,
    token: Option<String>,
    wanted: ToolTarget,
) -> Result<(McpCaller, PathBuf), ApiError> {
    if head.uri.query().is_some() {
        return Err(malformed("nothing is said in the address of a server of tools"));
    }
    let session = match wanted {
        ToolTarget::Of(id) => id,
        ToolTarget::Own => own(line, token.clone()).await?.to_string(),
    };
    let session = serde_json::from_value(Value::from(session))
        .map_err(|error| malformed(format!("this is no session: {error}")))?;
    let client = head.headers.get(CLIENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let visitor = McpCaller {
        line: Arc::clone(line),
        token,
        session,
        client: client.to_owned(),
        parent: TraceContext::of_headers(&head.headers),
        memory: Arc::default(),
        scales: Arc::default(),
    };
    let admitted = visitor.admit(Method::Mcp, json!({ "session": visitor.session })).await?;
    let workspace = admitted.live.as_ref().map(|live| live.bound.workspace().path.clone());
    Ok((visitor, workspace.unwrap_or_default()))
}

/// Bounds the JSON values of a message. A long one is counted off the thread that serves all connections.
async fn light(bytes: Bytes, memory: Permit) -> Result<(Bytes, Permit), ApiError> {
    let is_long = bytes.len() > UNASKED;
    let weigh = move || weighed(&bytes).map(|()| (bytes, memory));
    if is_long { blocking(weigh).await } else { weigh() }
}

/// The MCP library decodes the message on its first poll, so the first poll of a long one runs on a blocking thread.
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

/// Reads the envelope of a short message. A long one can only be a tool call.
fn looked_at(bytes: &[u8]) -> McpEnvelope {
    bytes
        .get(..=UNASKED)
        .map_or_else(|| serde_json::from_slice(bytes).unwrap_or_default(), |_long| McpEnvelope::default())
}

/// `Host` and `Origin` are already checked, as for every request.
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

/// The session of the caller.
async fn own(line: &Arc<HttpConnection>, token: Option<String>) -> Result<SessionId, ApiError> {
    if let ListenerKind::Door(session) = &line.entrance {
        return Ok(session.clone());
    }
    let (entrance, peer, daemon) = (line.entrance.clone(), line.peer, Arc::clone(&line.daemon));
    let entered = blocking(move || identify(&daemon.identities, &entrance, peer, token.as_deref())).await?;
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
        assert_eq!(addressed("/mcp"), Some(ToolTarget::Own));
        assert_eq!(addressed("/v1/sessions/ses_1/mcp"), Some(ToolTarget::Of("ses_1".to_owned())));
        for other in ["/mcp/", "/v1/mcp", "/v1/sessions//mcp", "/v1/sessions/mcp", "/v1/sessions/a/b/mcp"] {
            assert_eq!(addressed(other), None, "{other}");
        }
    }
}
