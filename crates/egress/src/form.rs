//! The form of a request: whom it is for, in how many places that is said, and what is for this hop only.

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
use ringfence_types::{HostRule, Layer, Refusal, RefusalCode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::answer::{self, Body};
use crate::credential::{Scheme, covers};
use crate::gate::{FlowEnd, Target, Way};
use crate::http1::Context;
use crate::limits::Direction;
use crate::redacted::{self, About};
use crate::shared::{FailureKind, Live, Shared, Stopped};
use crate::steering;

/// What begins a path to a provider.
const PROVIDER: &str = "/ringfence/provider/";

/// Where a request goes and how it got there.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) way: Way,
    pub(crate) target: Target,
    pub(crate) scheme: Scheme,
    pub(crate) path_and_query: PathAndQuery,
    pub(crate) names: Names,
}

/// What the request itself says about its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// The same as everything else: its address and `Host`.
    Agree,
    /// The proxy: it was asked under its own name.
    Proxy,
}

impl Origin {
    /// Of a request to a server that is known already.
    pub(crate) fn known(way: Way, target: Target, scheme: Scheme, path_and_query: PathAndQuery) -> Self {
        Self { way, target, scheme, path_and_query, names: Names::Agree }
    }
}

/// What the server is to be called: as the client called it, which may be signed.
pub(crate) fn said_host(parts: &Parts, origin: &Origin) -> String {
    let host = parts.headers.get(HOST).and_then(|value| value.to_str().ok());
    let said = host.or_else(|| parts.uri.authority().map(http::uri::Authority::as_str));
    let usable = said.filter(|_| origin.names == Names::Agree).filter(|said| said.is_ascii());
    usable.map_or_else(|| name(&origin.target, origin.scheme), str::to_owned)
}

/// A target as it is written in `Host`: without the port that everybody knows.
pub(crate) fn name(target: &Target, scheme: Scheme) -> String {
    if target.port == scheme.port() { target.host.to_string() } else { target.to_string() }
}

/// Why a request over a plain connection is for nobody.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForNobody {
    #[error("an address with a host, inside a connection that has one already")]
    TwoHosts,
    #[error("the address has no host that can be used")]
    NoHost,
    #[error("{}", .0.message)]
    Name(Box<Refusal>),
    #[error("only http:// is asked for like this; use CONNECT for the rest")]
    Scheme,
    #[error("this is a proxy; what it serves itself begins with {}NAME/", PROVIDER)]
    Nothing,
    #[error("there is no such provider in this session")]
    NoProvider,
    #[error("the path cannot be used")]
    Path,
}

/// Whom a request over a plain connection is for.
pub(crate) fn plain_origin(
    request: &Request<Incoming>,
    context: &Context,
    shared: &Shared,
) -> Result<Origin, ForNobody> {
    let uri = request.uri();
    let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    match (&context.origin, uri.scheme_str(), uri.authority()) {
        (Some(target), None, None) => Ok(Origin::known(context.way, target.clone(), Scheme::Http, path)),
        (Some(_), ..) => Err(ForNobody::TwoHosts),
        (None, Some("http"), Some(authority)) => {
            let target = read(authority.as_str(), Scheme::Http).ok_or(ForNobody::NoHost)?;
            let named = target.named(&shared.names);
            let target = named.map_err(|refusal| ForNobody::Name(Box::new(refusal)))?;
            Ok(Origin::known(Way::Forward, target, Scheme::Http, path))
        }
        (None, Some(_), _) => Err(ForNobody::Scheme),
        (None, None, _) => provider(&path, shared),
    }
}

/// `/ringfence/provider/NAME/v1/x` is `/v1/x` of the provider.
fn provider(path: &PathAndQuery, shared: &Shared) -> Result<Origin, ForNobody> {
    let rest = path.as_str().strip_prefix(PROVIDER).ok_or(ForNobody::Nothing)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at_checked(end).ok_or(ForNobody::Nothing)?;
    let known = shared.settings.http.providers.iter().find(|provider| provider.name == name);
    let provider = known.ok_or(ForNobody::NoProvider)?;
    let slash = if rest.starts_with('/') { "" } else { "/" };
    let path = PathAndQuery::try_from(format!("{slash}{rest}")).map_err(|_error| ForNobody::Path)?;
    let origin = Origin::known(Way::Reverse, provider.upstream.clone(), Scheme::Https, path);
    Ok(Origin { names: Names::Proxy, ..origin })
}

/// `host` or `host:port`, as it may stand in a request.
pub(crate) fn read(authority: &str, scheme: Scheme) -> Option<Target> {
    let rule = HostRule::parse(authority).ok()?;
    let host = match rule.host() {
        ringfence_types::Host::Below(_) => return None,
        host => host.clone(),
    };
    Some(Target { host, port: rule.port().unwrap_or(scheme.port()) })
}

/// Whether everybody knows the method.
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

/// HTTP/2 may send cookies one by one; HTTP/1.1 has one header for them.
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

/// Everything in the head of a request that two readers might read differently.
pub(crate) fn check(parts: &Parts, origin: &Origin) -> Result<(), Refusal> {
    if parts.method == Method::CONNECT || parts.method == Method::TRACE {
        return Err(malformed(origin, &format!("the method {} does not pass", parts.method)));
    }
    check_framing(&parts.headers, origin)?;
    check_names(parts, origin)?;
    check_path(origin)?;
    steering::check(&parts.headers, origin)
}

/// One length, and nothing between the bytes of a body and their meaning but chunks.
fn check_framing(headers: &HeaderMap, origin: &Origin) -> Result<(), Refusal> {
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

fn check_names(parts: &Parts, origin: &Origin) -> Result<(), Refusal> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err(malformed(origin, "it has more than one Host"));
    }
    if origin.names == Names::Proxy {
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

/// Servers resolve these, rules about paths do not: what is judged would not be what is served.
fn check_path(origin: &Origin) -> Result<(), Refusal> {
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

/// What is between two ends of one connection, and goes no further.
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
    // The client has been told to go on when it was.
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

/// A protocol that a client wants to go on with.
#[derive(Clone, Debug)]
pub(crate) struct Upgrade;

impl Upgrade {
    pub(crate) fn declare(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
}

/// Whether a request wants to become a WebSocket, and may. `h2c` is not answered: the client goes on without.
pub(crate) fn upgrade(parts: &Parts, origin: &Origin, shared: &Shared) -> Result<Option<Upgrade>, Refusal> {
    let Some(wanted) = parts.headers.get(UPGRADE) else { return Ok(None) };
    let wanted = wanted.to_str().unwrap_or("?").to_ascii_lowercase();
    if wanted == "h2c" {
        return Ok(None);
    }
    let declared = shared.settings.http.upgrades.iter().any(|rule| covers(rule, &origin.target));
    if wanted == "websocket" && declared {
        return Ok(Some(Upgrade));
    }
    let message = format!("a connection with `{}` may not become `{}`", origin.target, wanted.escape_debug());
    Err(refusal("network.upgrade", message, Some("let an operator declare WebSockets for this host")))
}

/// From here on the connection is whatever the two ends make of it. It is counted and not looked at.
pub(crate) fn switch(
    mut response: Response<Incoming>,
    client: Option<OnUpgrade>,
    about: About,
    shared: &Arc<Shared>,
) -> Result<Response<Body>, Stopped> {
    let Some(client) = client else {
        return Err(Stopped::failed(
            FailureKind::Peer,
            "the server changed the protocol without being asked",
        ));
    };
    let server = hyper::upgrade::on(&mut response);
    let mut headers = std::mem::take(response.headers_mut());
    strip(&mut headers);
    if let Some(echo) = &about.sight.echo {
        redacted::headers(&mut headers, echo, &about);
    }
    Upgrade.declare(&mut headers);
    let shared = shared.clone();
    tokio::spawn(async move {
        let (Ok(client), Ok(server)) = tokio::join!(client, server) else {
            return about.live.conclude(FlowEnd::Failed("the protocol was not changed".to_owned()));
        };
        let (up, down) = (tokio::io::split(TokioIo::new(client)), tokio::io::split(TokioIo::new(server)));
        let idle = shared.settings.times.idle;
        let both = async {
            tokio::try_join!(
                pump(up.0, down.1, (&about.live, Direction::Up)),
                pump(down.0, up.1, (&about.live, Direction::Down)),
            )
        };
        match tokio::time::timeout(idle.saturating_mul(24), both).await {
            Ok(Ok(_)) => about.live.conclude(FlowEnd::Done),
            Ok(Err(end)) => about.live.conclude(end),
            Err(_elapsed) => about.live.conclude(FlowEnd::Failed("it was open for too long".to_owned())),
        }
    });
    let mut switched = Response::new(answer::empty());
    *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *switched.headers_mut() = headers;
    Ok(switched)
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    (live, direction): (&Live, Direction),
) -> Result<(), FlowEnd> {
    let mut buffer = vec![0; 16 << 10];
    let broken = |error: std::io::Error| FlowEnd::Failed(format!("the connection broke: {error}"));
    loop {
        let count = from.read(&mut buffer).await.map_err(broken)?;
        if count == 0 {
            return to.shutdown().await.map_err(broken);
        }
        live.charge(direction, count as u64).map_err(FlowEnd::Refused)?;
        to.write_all(buffer.get(..count).unwrap_or_default()).await.map_err(broken)?;
    }
}

pub(crate) fn disagrees(origin: &Origin, what: &str) -> Refusal {
    let message = format!("{what}, but the connection is to `{}`", origin.target);
    refusal("network.names-agree", message, Some("connect to the host that is asked for"))
}

pub(crate) fn malformed(origin: &Origin, what: &str) -> Refusal {
    let message = format!("the request to `{}` is not passed on: {what}", origin.target);
    Refusal { code: RefusalCode::Malformed, ..refusal("network.request", message, None) }
}

pub(crate) fn refusal(rule: &str, message: String, hint: Option<&str>) -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: Layer::Floor,
        rule: rule.to_owned(),
        message,
        hint: hint.map(str::to_owned),
    }
}
