//! Request target: determines the server of a request, checks that all parts of its head agree, and removes hop-by-hop headers.

use std::sync::Arc;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    TE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use ringfence_types::{HostPattern, PolicyLayer, Refusal, RefusalCode, RuleId};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::credential::{CredentialScheme, covers};
use crate::error_response::{self, ProxyBody};
use crate::flow_gate::{FlowEnd, FlowIngress, FlowTarget};
use crate::http1::RequestContext;
use crate::limits::TrafficDirection;
use crate::live_flow::{FlowStop, LiveFlow, ProxyState, UpstreamFailureKind};
use crate::redacted_body::{self, RedactionContext};
use crate::smuggling_guard;

/// Path prefix of provider routes.
const PROVIDER: &str = "/ringfence/provider/";

/// Target of a request and how it arrived.
#[derive(Clone, Debug)]
pub(crate) struct RequestOrigin {
    pub(crate) way: FlowIngress,
    pub(crate) target: FlowTarget,
    pub(crate) scheme: CredentialScheme,
    pub(crate) path_and_query: PathAndQuery,
    pub(crate) names: HostClaims,
}

/// What the request head says about its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostClaims {
    /// Address and `Host` agree.
    Agree,
    /// The request addresses the proxy itself.
    Proxy,
}

impl RequestOrigin {
    /// For a request to a known server.
    pub(crate) fn known(
        way: FlowIngress,
        target: FlowTarget,
        scheme: CredentialScheme,
        path_and_query: PathAndQuery,
    ) -> Self {
        Self { way, target, scheme, path_and_query, names: HostClaims::Agree }
    }
}

/// Server name to send: as the client spelled it, because it may be signed.
pub(crate) fn said_host(parts: &Parts, origin: &RequestOrigin) -> String {
    let host = parts.headers.get(HOST).and_then(|value| value.to_str().ok());
    let said = host.or_else(|| parts.uri.authority().map(http::uri::Authority::as_str));
    let usable = said.filter(|_| origin.names == HostClaims::Agree).filter(|said| said.is_ascii());
    usable.map_or_else(|| name(&origin.target, origin.scheme), str::to_owned)
}

/// A target as written in `Host`: without the default port.
pub(crate) fn name(target: &FlowTarget, scheme: CredentialScheme) -> String {
    if target.port == scheme.port() { target.host.to_string() } else { target.to_string() }
}

/// Reason why a plain request has no target.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MissingTarget {
    #[error("an address with a host, inside a connection that has one already")]
    TwoHosts,
    #[error("the address has no host that can be used")]
    NoHost,
    #[error("{}", .0.message)]
    Name(Box<Refusal>),
    #[error("only http:// URLs are supported here; use CONNECT for others")]
    Scheme,
    #[error("this is a proxy; what it serves itself begins with {}NAME/", PROVIDER)]
    Nothing,
    #[error("there is no such provider in this session")]
    NoProvider,
    #[error("the path cannot be used")]
    Path,
}

/// Determines the target of a plain request.
pub(crate) fn plain_origin(
    request: &Request<Incoming>,
    context: &RequestContext,
    shared: &ProxyState,
) -> Result<RequestOrigin, MissingTarget> {
    let uri = request.uri();
    let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    match (&context.origin, uri.scheme_str(), uri.authority()) {
        (Some(target), None, None) => {
            Ok(RequestOrigin::known(context.way, target.clone(), CredentialScheme::Http, path))
        }
        (Some(_), ..) => Err(MissingTarget::TwoHosts),
        (None, Some("http"), Some(authority)) => {
            let target = read(authority.as_str(), CredentialScheme::Http).ok_or(MissingTarget::NoHost)?;
            let named = target.named(&shared.names);
            let target = named.map_err(|refusal| MissingTarget::Name(Box::new(refusal)))?;
            Ok(RequestOrigin::known(FlowIngress::Forward, target, CredentialScheme::Http, path))
        }
        (None, Some(_), _) => Err(MissingTarget::Scheme),
        (None, None, _) => provider(&path, shared),
    }
}

/// Maps `/ringfence/provider/NAME/v1/x` to `/v1/x` of the provider.
fn provider(path: &PathAndQuery, shared: &ProxyState) -> Result<RequestOrigin, MissingTarget> {
    let rest = path.as_str().strip_prefix(PROVIDER).ok_or(MissingTarget::Nothing)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at_checked(end).ok_or(MissingTarget::Nothing)?;
    let known = shared.settings.http.providers.iter().find(|provider| provider.name == name);
    let provider = known.ok_or(MissingTarget::NoProvider)?;
    let slash = if rest.starts_with('/') { "" } else { "/" };
    let path = PathAndQuery::try_from(format!("{slash}{rest}")).map_err(|_error| MissingTarget::Path)?;
    let origin =
        RequestOrigin::known(FlowIngress::Reverse, provider.upstream.clone(), CredentialScheme::Https, path);
    Ok(RequestOrigin { names: HostClaims::Proxy, ..origin })
}

/// Parses `host` or `host:port`.
pub(crate) fn read(authority: &str, scheme: CredentialScheme) -> Option<FlowTarget> {
    let rule = HostPattern::parse(authority).ok()?;
    let host = match rule.host() {
        ringfence_types::Host::Below(_) => return None,
        host => host.clone(),
    };
    Some(FlowTarget { host, port: rule.port().unwrap_or(scheme.port()) })
}

/// Whether the method is a standard one.
pub(crate) fn is_usual(method: &Method) -> bool {
    let usual = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    usual.contains(method)
}

/// HTTP/2 may split cookies; HTTP/1.1 has one header.
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() < 2 {
        return;
    }
    if let Ok(mut joined) = HeaderValue::from_bytes(&cookies.join(b"; ".as_slice())) {
        joined.set_sensitive(true);
        headers.insert(COOKIE, joined);
    }
}

/// Refuses everything in a request head that two parsers may read differently.
pub(crate) fn check(parts: &Parts, origin: &RequestOrigin) -> Result<(), Refusal> {
    if parts.method == Method::CONNECT || parts.method == Method::TRACE {
        return Err(malformed(origin, &format!("the method {} does not pass", parts.method)));
    }
    check_framing(&parts.headers, origin)?;
    check_names(parts, origin)?;
    check_path(origin)?;
    smuggling_guard::check(&parts.headers, origin)
}

/// Requires one length, and no transfer coding but chunks.
fn check_framing(headers: &HeaderMap, origin: &RequestOrigin) -> Result<(), Refusal> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let is_number = |length: &HeaderValue| length.as_bytes().iter().all(u8::is_ascii_digit);
    if lengths.next().is_some_and(|length| !is_number(length)) || lengths.next().is_some() {
        return Err(malformed(origin, "its length is not one number"));
    }
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    let codings = headers.get_all(TRANSFER_ENCODING);
    if !codings.iter().all(is_chunked) || codings.iter().count() > 1 {
        return Err(malformed(origin, "its body is encoded for the way"));
    }
    Ok(())
}

fn check_names(parts: &Parts, origin: &RequestOrigin) -> Result<(), Refusal> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err(malformed(origin, "it has more than one Host"));
    }
    if origin.names == HostClaims::Proxy {
        return Ok(());
    }
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    for said in [host.map(HeaderValue::as_bytes), authority].into_iter().flatten() {
        let target = std::str::from_utf8(said).ok().and_then(|text| read(text, origin.scheme));
        if target.as_ref() != Some(&origin.target) {
            let said = String::from_utf8_lossy(said).chars().take(256).collect::<String>();
            let said = said.escape_debug();
            return Err(disagrees(origin, &format!("the request is for `{said}`")));
        }
    }
    Ok(())
}

/// Refuses dot segments: servers resolve them, path rules do not, so the evaluated path would not be the served one.
fn check_path(origin: &RequestOrigin) -> Result<(), Refusal> {
    let path = origin.path_and_query.path();
    if !path.starts_with('/') {
        return Err(malformed(origin, "it has no path"));
    }
    let dots = |segment: &str| {
        let plain = segment.split(';').next().unwrap_or_default().to_ascii_lowercase().replace("%2e", ".");
        plain == "." || plain == ".."
    };
    let lower = path.to_ascii_lowercase();
    let separators = lower.replace("%2f", "/").replace("%5c", "/");
    let tricky = path.contains('\\') || lower.contains("%00") || separators.split('/').any(dots);
    if tricky || lower.contains("%252e") {
        return Err(malformed(
            origin,
            "its path has dot segments or backslashes, which servers read differently",
        ));
    }
    Ok(())
}

/// Removes hop-by-hop headers.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    let trailers = headers.get(TE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"));
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

static HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    // The proxy has already answered `Expect` itself.
    EXPECT,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
];

/// A request for a protocol upgrade.
#[derive(Clone, Debug)]
pub(crate) struct UpgradeRequest;

impl UpgradeRequest {
    pub(crate) fn declare(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
}

/// Whether a request asks for a WebSocket and the host may have one. `h2c` is ignored, and the client continues without it.
pub(crate) fn upgrade(
    parts: &Parts,
    origin: &RequestOrigin,
    shared: &ProxyState,
) -> Result<Option<UpgradeRequest>, Refusal> {
    let Some(wanted) = parts.headers.get(UPGRADE) else { return Ok(None) };
    let wanted = wanted.to_str().unwrap_or("?").to_ascii_lowercase();
    if wanted == "h2c" {
        return Ok(None);
    }
    let declared = shared.settings.http.upgrades.iter().any(|rule| covers(rule, &origin.target));
    if wanted == "websocket" && declared {
        return Ok(Some(UpgradeRequest));
    }
    let message = format!("a connection with `{}` may not become `{}`", origin.target, wanted.escape_debug());
    Err(refusal(RuleId::NetworkUpgrade, message, Some("let an operator declare WebSockets for this host")))
}

/// Relays an upgraded connection. Bytes are counted but not inspected.
pub(crate) fn switch(
    mut response: Response<Incoming>,
    client: Option<OnUpgrade>,
    about: RedactionContext,
    shared: &Arc<ProxyState>,
) -> Result<Response<ProxyBody>, FlowStop> {
    let Some(client) = client else {
        return Err(FlowStop::failed(
            UpstreamFailureKind::Peer,
            "the server changed the protocol without being asked",
        ));
    };
    let server = hyper::upgrade::on(&mut response);
    let mut headers = std::mem::take(response.headers_mut());
    strip(&mut headers);
    if let Some(echo) = &about.sight.echo {
        redacted_body::headers(&mut headers, echo, &about);
    }
    UpgradeRequest.declare(&mut headers);
    let shared = shared.clone();
    tokio::spawn(async move {
        let (Ok(client), Ok(server)) = tokio::join!(client, server) else {
            return about.live.conclude(FlowEnd::Failed("the protocol was not changed".to_owned()));
        };
        let (up, down) = (tokio::io::split(TokioIo::new(client)), tokio::io::split(TokioIo::new(server)));
        let idle = shared.settings.times.idle;
        let both = async {
            tokio::try_join!(
                pump(up.0, down.1, &about.live, TrafficDirection::Up),
                pump(down.0, up.1, &about.live, TrafficDirection::Down),
            )
        };
        match tokio::time::timeout(idle.saturating_mul(24), both).await {
            Ok(Ok(_)) => about.live.conclude(FlowEnd::Done),
            Ok(Err(end)) => about.live.conclude(end),
            Err(_elapsed) => about.live.conclude(FlowEnd::Failed("it was open for too long".to_owned())),
        }
    });
    let mut switched = Response::new(error_response::empty());
    *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *switched.headers_mut() = headers;
    Ok(switched)
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    live: &LiveFlow,
    direction: TrafficDirection,
) -> Result<(), FlowEnd> {
    let mut buffer = vec![0; 16 << 10];
    let broken = |error: std::io::Error| FlowEnd::Failed(format!("the connection failed: {error}"));
    loop {
        let count = from.read(&mut buffer).await.map_err(broken)?;
        if count == 0 {
            return to.shutdown().await.map_err(broken);
        }
        live.charge(direction, count as u64).map_err(FlowEnd::Refused)?;
        to.write_all(buffer.get(..count).unwrap_or_default()).await.map_err(broken)?;
    }
}

pub(crate) fn disagrees(origin: &RequestOrigin, what: &str) -> Refusal {
    let message = format!("{what}, but the connection is to `{}`", origin.target);
    refusal(RuleId::NetworkNamesAgree, message, Some("connect to the requested host"))
}

pub(crate) fn malformed(origin: &RequestOrigin, what: &str) -> Refusal {
    let message = format!("the request to `{}` is not passed on: {what}", origin.target);
    Refusal { code: RefusalCode::Malformed, ..refusal(RuleId::NetworkRequest, message, None) }
}

pub(crate) fn refusal(rule: RuleId, message: String, hint: Option<&str>) -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: PolicyLayer::Floor,
        rule: rule.into(),
        message,
        hint: hint.map(str::to_owned),
    }
}
