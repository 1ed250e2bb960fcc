//! One HTTP exchange: the proxy checks, scans and authorizes a request, injects credentials, sends it and scans the response.
//!
//! Plain requests come from the listeners, inspected ones from [`crate::tls_inspection`], fetches from [`crate::fetch`]. All of
//! them go through [`run`].

use std::sync::Arc;

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HOST, IF_RANGE, RANGE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use ringfence_types::{Host, PolicyLayer, Refusal, RefusalCode, RuleId};
use tokio::time::timeout;

use crate::content_encoding::ContentEncoding;
use crate::credential::{CredentialScheme, CredentialView};
use crate::error_response::{self, ProxyBody};
use crate::flow_gate::{FlowId, FlowRequest as Asked, FlowTarget};
use crate::http1::RequestContext;
use crate::inject::{self, InjectError, InjectTarget};
use crate::leak_check::LeakCheck;
use crate::live_flow::{DeniedFlow, FlowStop, LiveFlow, ProxyState, UpstreamFailureKind};
use crate::metered_body::MeteredBody;
use crate::redacted_body::{self, RedactedBody, RedactionContext};
use crate::request_target::{self, RequestOrigin, UpgradeRequest};
use crate::resign;
use crate::scanned_body::ScannedBody;
use crate::smuggling_guard;
use crate::upstream::{Freshness, ProtocolChoice, UpstreamConnection, UpstreamRoute};

/// Handles a request from a plain connection.
pub(crate) async fn handle(
    request: Request<Incoming>,
    context: RequestContext,
    shared: &Arc<ProxyState>,
) -> Response<ProxyBody> {
    match request_target::plain_origin(&request, &context, shared) {
        Ok(origin) => run(request.map(|body| body.map_err(Into::into).boxed()), origin, shared).await,
        Err(why) => {
            let message = why.to_string();
            shared.malformed(context.way, &message);
            error_response::malformed(&message)
        }
    }
}

/// Performs a request to a known target and always returns a response.
pub(crate) async fn run(
    request: Request<ProxyBody>,
    origin: RequestOrigin,
    shared: &Arc<ProxyState>,
) -> Response<ProxyBody> {
    match ask(request, origin, shared).await {
        Ok(response) => response,
        Err(ExchangeError::Denied(denied)) => error_response::denied(&denied),
        Err(ExchangeError::Stopped(stopped, id, target)) => error_response::stopped(&stopped, id, &target),
    }
}

/// Reason why there is no response of the server.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    Denied(DeniedFlow),
    Stopped(FlowStop, FlowId, FlowTarget),
}

/// Performs a request to a known target. The gate is told the end of the flow in every case.
pub(crate) async fn ask(
    request: Request<ProxyBody>,
    origin: RequestOrigin,
    shared: &Arc<ProxyState>,
) -> Result<Response<ProxyBody>, ExchangeError> {
    let asked = asked(&request, &origin, shared);
    let live =
        shared.open_flow(origin.way, origin.target.clone(), Some(asked)).map_err(ExchangeError::Denied)?;
    let live = Arc::new(live);
    attempt(request, &origin, &live, shared).await.map_err(|stopped| {
        live.conclude(stopped.end());
        ExchangeError::Stopped(stopped, live.flow().id, live.flow().target.clone())
    })
}

/// Describes the request for policy and ledger, with secrets redacted.
fn asked(request: &Request<ProxyBody>, origin: &RequestOrigin, shared: &ProxyState) -> Asked {
    let (method, path) = (request.method().as_str(), origin.path_and_query.path());
    let clean = |text: &str| match shared.settings.http.secrets.everywhere() {
        Ok(sight) => String::from_utf8_lossy(&sight.foreign.redact(text.as_bytes()).clean).into_owned(),
        // The request is refused for the same reason.
        Err(_unusable) => "?".to_owned(),
    };
    let url = format!("{}://{}{}", origin.scheme.name(), origin.target, clean(path));
    let method = if request_target::is_usual(request.method()) { method.to_owned() } else { clean(method) };
    Asked { method, url }
}

async fn attempt(
    request: Request<ProxyBody>,
    origin: &RequestOrigin,
    live: &Arc<LiveFlow>,
    shared: &Arc<ProxyState>,
) -> Result<Response<ProxyBody>, FlowStop> {
    let (mut parts, body) = request.into_parts();
    // The scan comes first: refusals quote the request and must not quote a secret.
    let look = look(origin, live, shared)?;
    look.head(&format!("{} {}", parts.method, origin.path_and_query), &parts.headers)?;
    request_target::check(&parts, origin)?;
    let towards = InjectTarget { host: &origin.target.host, sight: &look.sight };
    inject::path(origin.path_and_query.path(), towards).map_err(|error| uninjected(&error))?;
    let upgrade = request_target::upgrade(&parts, origin, shared)?;
    let passage = live.authorize().await?;
    let coding = ContentEncoding::of(&parts.headers).map_err(|error| look.scan_failed(&error.to_string()))?;
    let mut watched = ScannedBody::new(body, look.clone(), coding);
    let stopped = watched.stopped();
    let broken = |error: &dyn std::fmt::Display| match stopped.get() {
        Some(refusal) => FlowStop::Refused(refusal.clone()),
        None => FlowStop::failed(UpstreamFailureKind::Peer, format!("the request was interrupted: {error}")),
    };
    watched.begin().await.map_err(|error| broken(&error))?;
    let client_upgrade =
        upgrade.is_some().then(|| parts.extensions.remove::<hyper::upgrade::OnUpgrade>()).flatten();
    let method = parts.method.clone();
    let wanted = if upgrade.is_some() { ProtocolChoice::Http1 } else { ProtocolChoice::Any };
    let outgoing = OutgoingRequest::new(parts, origin, upgrade);
    let idle = shared.settings.times.idle;
    // If the scan stopped the body, that refusal is the cause of the failed send.
    let why = |error: FlowStop| match (stopped.get().cloned().or_else(|| live.refusal()), error) {
        (Some(refusal), FlowStop::Failed(_)) => FlowStop::Refused(refusal),
        (_, error) => error,
    };
    let body = MeteredBody::up(watched, live.clone(), idle);
    let (outgoing, body) = resign::apply(outgoing, body, &look.sight, shared).await.map_err(why)?;
    let way = UpstreamRoute { scheme: origin.scheme, passage, wanted };
    let sent = timeout(idle, send(outgoing, body, &way, live, shared)).await;
    let late =
        || FlowStop::failed(UpstreamFailureKind::Late, format!("`{}` did not answer in time", origin.target));
    let (response, connection) = sent.map_err(|_elapsed| late())?.map_err(why)?;
    let about = RedactionContext { sight: look.sight.clone(), live: live.clone() };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return request_target::switch(response, client_upgrade, about, shared);
    }
    let returned = connection.returned(live, &way, shared);
    incoming(response, about, &method, |body| MeteredBody::down(body, live.clone(), idle, returned).boxed())
}

fn look(
    origin: &RequestOrigin,
    live: &Arc<LiveFlow>,
    shared: &ProxyState,
) -> Result<Arc<LeakCheck>, Refusal> {
    let http = &shared.settings.http;
    let sight = http.secrets.sight(&origin.target, origin.scheme).map_err(|error| unusable(&error))?;
    let told = shared.inspection.told.clone();
    Ok(Arc::new(LeakCheck { sight, live: live.clone(), told }))
}

fn unusable(error: &dyn std::fmt::Display) -> Refusal {
    Refusal {
        code: RefusalCode::Secret,
        layer: PolicyLayer::Floor,
        rule: RuleId::NetworkSecrets.into(),
        message: format!("the secrets of the session cannot be looked for: {error}"),
        hint: None,
    }
}

/// Refusal for a placeholder outside a key location.
pub(crate) fn uninjected(error: &InjectError) -> Refusal {
    Refusal { message: error.to_string(), hint: error.hint(), ..unusable(&"") }
}

/// A request in the form in which the proxy sends it.
pub(crate) struct OutgoingRequest {
    pub(crate) method: Method,
    pub(crate) scheme: CredentialScheme,
    /// Value of `Host`.
    pub(crate) host: String,
    /// The server that the request is sent to.
    pub(crate) target: Host,
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: http::HeaderMap,
    upgrade: Option<UpgradeRequest>,
}

impl OutgoingRequest {
    fn new(parts: Parts, origin: &RequestOrigin, upgrade: Option<UpgradeRequest>) -> Self {
        Self {
            host: request_target::said_host(&parts, origin),
            target: origin.target.host.clone(),
            method: parts.method,
            scheme: origin.scheme,
            path: origin.path_and_query.path().to_owned(),
            query: origin.path_and_query.query().map(str::to_owned),
            headers: parts.headers,
            upgrade,
        }
    }

    /// Removes hop-by-hop headers.
    pub(crate) fn prepare(&mut self, sight: &CredentialView) {
        request_target::strip(&mut self.headers);
        smuggling_guard::strip(&mut self.headers);
        self.headers.remove(HOST);
        if let Some(upgrade) = &self.upgrade {
            upgrade.declare(&mut self.headers);
        }
        // The proxy scans responses for injected secrets, so it asks for uncompressed ones.
        if sight.echo.is_some() {
            self.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            // A secret split over partial responses would not be recognised.
            for name in [&RANGE, &IF_RANGE, &RANGE_OF_AZURE, &DELTA] {
                self.headers.remove(name);
            }
        }
    }

    /// Replaces placeholders by secrets. The last step before the request is sent.
    pub(crate) fn inject(&mut self, sight: &CredentialView) -> Result<(), InjectError> {
        let towards = InjectTarget { host: &self.target, sight };
        inject::headers(&mut self.headers, towards)?;
        let query = self.query.as_deref().map(|query| inject::query(query, towards)).transpose()?;
        if let Some(changed) = query.flatten() {
            self.query = Some(changed.to_string());
        }
        Ok(())
    }

    fn request(
        self,
        body: ProxyBody,
        connection: &UpstreamConnection,
    ) -> Result<Request<ProxyBody>, FlowStop> {
        let path = match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        };
        let wrong = |_error| FlowStop::failed(UpstreamFailureKind::Peer, "the request cannot be written");
        let path = PathAndQuery::from_maybe_shared(bytes::Bytes::from(path)).map_err(wrong)?;
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.headers_mut() = self.headers;
        address(&mut request, path, &self.host, self.scheme, connection)?;
        Ok(request)
    }
}

/// Sets the server name: a header in HTTP/1.1, the authority in HTTP/2.
fn address(
    request: &mut Request<ProxyBody>,
    path: PathAndQuery,
    host: &str,
    scheme: CredentialScheme,
    connection: &UpstreamConnection,
) -> Result<(), FlowStop> {
    let wrong = || FlowStop::failed(UpstreamFailureKind::Peer, "the request cannot be addressed");
    if connection.is_http2() {
        let uri = Uri::builder().scheme(scheme.name()).authority(host).path_and_query(path).build();
        *request.uri_mut() = uri.ok().ok_or_else(wrong)?;
        *request.version_mut() = Version::HTTP_2;
        return Ok(());
    }
    request_target::join_cookies(request.headers_mut());
    *request.uri_mut() = Uri::from(path);
    let host = HeaderValue::from_str(host).ok().ok_or_else(wrong)?;
    request.headers_mut().insert(HOST, host);
    request.headers_mut().remove(http::header::TE);
    *request.version_mut() = Version::HTTP_11;
    Ok(())
}

/// Vendor headers with the effect of `Range`.
static RANGE_OF_AZURE: HeaderName = HeaderName::from_static("x-ms-range");
static DELTA: HeaderName = HeaderName::from_static("a-im");

async fn send(
    outgoing: OutgoingRequest,
    body: ProxyBody,
    way: &UpstreamRoute,
    live: &LiveFlow,
    shared: &Arc<ProxyState>,
) -> Result<(Response<Incoming>, UpstreamConnection), FlowStop> {
    let upstream = &shared.inspection.upstream;
    let (mut connection, freshness) = upstream.connect(live, way, shared).await?;
    let host = outgoing.host.clone();
    let request = outgoing.request(body, &connection)?;
    let failed = |error: &hyper::Error| {
        let text = source_text(error);
        FlowStop::failed(
            UpstreamFailureKind::Peer,
            format!("`{}` did not answer: {text}", live.flow().target),
        )
    };
    match connection.send(request).await {
        Ok(response) => Ok((response, connection)),
        // The server may have closed a pooled connection. Nothing of the request was sent, so it is safe to retry.
        Err((_, Some(mut request))) if freshness == Freshness::Kept => {
            let mut connection = upstream.fresh(live, way, shared).await?;
            let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
            address(&mut request, path, &host, way.scheme, &connection)?;
            let response = connection.send(request).await.map_err(|(error, _)| failed(&error))?;
            Ok((response, connection))
        }
        Err((error, _)) => Err(failed(&error)),
    }
}

fn source_text(error: &hyper::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// Prepares a response for the client.
fn incoming(
    response: Response<Incoming>,
    about: RedactionContext,
    method: &Method,
    meter: impl FnOnce(ProxyBody) -> ProxyBody,
) -> Result<Response<ProxyBody>, FlowStop> {
    let (mut parts, body) = response.into_parts();
    // Read before hop-by-hop headers are removed: `Connection` may name `Content-Encoding`.
    let coding = ContentEncoding::of(&parts.headers);
    request_target::strip(&mut parts.headers);
    error_response::disown(&mut parts.headers);
    // `Alt-Svc` would lead clients to QUIC, which the namespace rejects.
    parts.headers.remove(http::header::ALT_SVC);
    let body = match about.sight.echo.clone() {
        // HTTP/2 permits body frames after a bodiless response. They are dropped, because they were not scanned.
        _ if body.is_end_stream() || is_bodiless(method, parts.status) => {
            if let Some(echo) = &about.sight.echo {
                redacted_body::headers(&mut parts.headers, echo, &about);
            }
            error_response::empty()
        }
        None => body.map_err(Into::into).boxed(),
        Some(echo) => {
            redacted_body::headers(&mut parts.headers, &echo, &about);
            if IN_PARTS.contains(&parts.status) {
                return Err(unreadable(&about, &"it sent a part, and was asked for all of it"));
            }
            let coding = coding.map_err(|error| unreadable(&about, &error))?;
            parts.headers.remove(CONTENT_LENGTH);
            if coding != ContentEncoding::Identity {
                parts.headers.remove(CONTENT_ENCODING);
            }
            RedactedBody::new(body.map_err(Into::into).boxed(), &echo, coding, about).boxed()
        }
    };
    let mut response = Response::new(meter(body));
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    Ok(response)
}

/// Partial responses are refused where a secret may come back, because `Range` headers are removed there.
const IN_PARTS: [StatusCode; 2] = [StatusCode::PARTIAL_CONTENT, StatusCode::IM_USED];

/// `Content-Length` of such a response describes a body that is not sent.
fn is_bodiless(method: &Method, status: StatusCode) -> bool {
    method == Method::HEAD || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status)
}

fn unreadable(about: &RedactionContext, error: &dyn std::fmt::Display) -> FlowStop {
    let target = &about.live.flow().target;
    let message =
        format!("the response of `{target}` cannot be searched for the secret it was given: {error}");
    FlowStop::failed(UpstreamFailureKind::Peer, message)
}
