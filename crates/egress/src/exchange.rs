//! One request and its response: checked, looked at, judged, given its credentials, sent, and its response looked at.
//!
//! Plain requests come from the doors, inspected ones from [`crate::inspect`], fetches from [`crate::fetch`]. All of them go
//! through [`run`].

use std::sync::Arc;

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HOST, IF_RANGE, RANGE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use ringfence_types::{Host, Layer, Refusal, RefusalCode};
use tokio::time::timeout;

use crate::answer::{self, Body};
use crate::coding::Coding;
use crate::credential::{Scheme, Sight};
use crate::form::{self, Origin, Upgrade};
use crate::gate::{FlowId, Request as Asked, Target};
use crate::http1::Context;
use crate::inject::{self, InjectError, Towards};
use crate::look::Look;
use crate::metered::Metered;
use crate::redacted::{self, About, Redacted};
use crate::shared::{Denied, FailureKind, Live, Shared, Stopped};
use crate::sign;
use crate::steering;
use crate::upstream::{Connection, Freshness, Wanted, Way};
use crate::watched::Watched;

/// A request that came over a plain connection.
pub(crate) async fn handle(
    request: Request<Incoming>,
    context: Context,
    shared: &Arc<Shared>,
) -> Response<Body> {
    match form::plain_origin(&request, &context, shared) {
        Ok(origin) => run(request.map(|body| body.map_err(Into::into).boxed()), origin, shared).await,
        Err(why) => {
            let message = why.to_string();
            shared.malformed(context.way, &message);
            answer::malformed(&message)
        }
    }
}

/// One request to a known target, and in any case an answer.
pub(crate) async fn run(request: Request<Body>, origin: Origin, shared: &Arc<Shared>) -> Response<Body> {
    match ask(request, origin, shared).await {
        Ok(response) => response,
        Err(Unanswered::Denied(denied)) => answer::denied(&denied),
        Err(Unanswered::Stopped(stopped, id, target)) => answer::stopped(&stopped, id, &target),
    }
}

/// Why there is no answer of the server.
#[derive(Debug)]
pub(crate) enum Unanswered {
    Denied(Denied),
    Stopped(Stopped, FlowId, Target),
}

/// One request to a known target. Whatever becomes of it, the gate is told.
pub(crate) async fn ask(
    request: Request<Body>,
    origin: Origin,
    shared: &Arc<Shared>,
) -> Result<Response<Body>, Unanswered> {
    let asked = asked(&request, &origin, shared);
    let live = shared.begin(origin.way, origin.target.clone(), Some(asked)).map_err(Unanswered::Denied)?;
    let live = Arc::new(live);
    attempt(request, &origin, &live, shared).await.map_err(|stopped| {
        live.conclude(stopped.end());
        Unanswered::Stopped(stopped, live.flow().id, live.flow().target.clone())
    })
}

/// What is judged and written down: a secret in it is neither.
fn asked(request: &Request<Body>, origin: &Origin, shared: &Shared) -> Asked {
    let (method, path) = (request.method().as_str(), origin.path_and_query.path());
    let clean = |text: &str| match shared.settings.http.secrets.everywhere() {
        Ok(sight) => String::from_utf8_lossy(&sight.foreign.redact(text.as_bytes()).clean).into_owned(),
        // The request is refused for the same reason.
        Err(_unusable) => "?".to_owned(),
    };
    let url = format!("{}://{}{}", origin.scheme.name(), origin.target, clean(path));
    let method = if form::is_usual(request.method()) { method.to_owned() } else { clean(method) };
    Asked { method, url }
}

async fn attempt(
    request: Request<Body>,
    origin: &Origin,
    live: &Arc<Live>,
    shared: &Arc<Shared>,
) -> Result<Response<Body>, Stopped> {
    let (mut parts, body) = request.into_parts();
    // First of all: what is wrong with a request is told, and what is told must not be a secret.
    let look = look(origin, live, shared)?;
    look.head(&format!("{} {}", parts.method, origin.path_and_query), &parts.headers)?;
    form::check(&parts, origin)?;
    let towards = Towards { host: &origin.target.host, sight: &look.sight };
    inject::path(origin.path_and_query.path(), towards).map_err(|error| uninjected(&error))?;
    let upgrade = form::upgrade(&parts, origin, shared)?;
    let passage = live.judge().await?;
    let coding = Coding::of(&parts.headers).map_err(|error| look.unsearchable(&error.to_string()))?;
    let mut watched = Watched::new(body, look.clone(), coding);
    let stopped = watched.stopped();
    let broken = |error: &dyn std::fmt::Display| match stopped.get() {
        Some(refusal) => Stopped::Refused(refusal.clone()),
        None => Stopped::failed(FailureKind::Peer, format!("the request broke off: {error}")),
    };
    watched.begin().await.map_err(|error| broken(&error))?;
    let client_upgrade =
        upgrade.is_some().then(|| parts.extensions.remove::<hyper::upgrade::OnUpgrade>()).flatten();
    let method = parts.method.clone();
    let wanted = if upgrade.is_some() { Wanted::Http1 } else { Wanted::Any };
    let outgoing = Outgoing::new(parts, origin, upgrade);
    let idle = shared.settings.times.idle;
    // What was refused of the body while it was read is why nothing came of the request.
    let why = |error: Stopped| match (stopped.get().cloned().or_else(|| live.refusal()), error) {
        (Some(refusal), Stopped::Failed(_)) => Stopped::Refused(refusal),
        (_, error) => error,
    };
    let body = Metered::up(watched, live.clone(), idle);
    let (outgoing, body) = sign::apply(outgoing, body, &look.sight, shared).await.map_err(why)?;
    let way = Way { scheme: origin.scheme, passage, wanted };
    let sent = timeout(idle, send(outgoing, body, &way, live, shared)).await;
    let late = || Stopped::failed(FailureKind::Late, format!("`{}` did not answer in time", origin.target));
    let (response, connection) = sent.map_err(|_elapsed| late())?.map_err(why)?;
    let about = About { sight: look.sight.clone(), live: live.clone() };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return form::switch(response, client_upgrade, about, shared);
    }
    let returned = connection.returned(live, &way, shared);
    incoming(response, (about, &method), |body| Metered::down(body, live.clone(), idle, returned).boxed())
}

fn look(origin: &Origin, live: &Arc<Live>, shared: &Shared) -> Result<Arc<Look>, Refusal> {
    let http = &shared.settings.http;
    let sight = http.secrets.sight(&origin.target, origin.scheme).map_err(|error| unusable(&error))?;
    let told = shared.inspection.told.clone();
    Ok(Arc::new(Look { sight, live: live.clone(), told }))
}

fn unusable(error: &dyn std::fmt::Display) -> Refusal {
    Refusal {
        code: RefusalCode::Secret,
        layer: Layer::Floor,
        rule: "network.secrets".to_owned(),
        message: format!("the secrets of the session cannot be looked for: {error}"),
        hint: None,
    }
}

/// What stands where it must not, or cannot stand where it is.
pub(crate) fn uninjected(error: &InjectError) -> Refusal {
    Refusal { message: error.to_string(), hint: error.hint(), ..unusable(&"") }
}

/// A request as it leaves.
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) scheme: Scheme,
    /// What the server is called in the request.
    pub(crate) host: String,
    /// Who it is.
    pub(crate) target: Host,
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: http::HeaderMap,
    upgrade: Option<Upgrade>,
}

impl Outgoing {
    fn new(parts: Parts, origin: &Origin, upgrade: Option<Upgrade>) -> Self {
        Self {
            host: form::said_host(&parts, origin),
            target: origin.target.host.clone(),
            method: parts.method,
            scheme: origin.scheme,
            path: origin.path_and_query.path().to_owned(),
            query: origin.path_and_query.query().map(str::to_owned),
            headers: parts.headers,
            upgrade,
        }
    }

    /// Takes out what was for this hop only.
    pub(crate) fn prepare(&mut self, sight: &Sight) {
        form::strip(&mut self.headers);
        steering::strip(&mut self.headers);
        self.headers.remove(HOST);
        if let Some(upgrade) = &self.upgrade {
            upgrade.declare(&mut self.headers);
        }
        // What a server sends back is searched for what it was given; that it is compressed only makes it harder.
        if sight.echo.is_some() {
            self.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            // In parts it would not be recognised.
            for name in [&RANGE, &IF_RANGE, &RANGE_OF_AZURE, &DELTA] {
                self.headers.remove(name);
            }
        }
    }

    /// Placeholders become secrets. The last step before it leaves.
    pub(crate) fn inject(&mut self, sight: &Sight) -> Result<(), InjectError> {
        let towards = Towards { host: &self.target, sight };
        inject::headers(&mut self.headers, towards)?;
        let query = self.query.as_deref().map(|query| inject::query(query, towards)).transpose()?;
        if let Some(changed) = query.flatten() {
            self.query = Some(changed.to_string());
        }
        Ok(())
    }

    fn request(self, body: Body, connection: &Connection) -> Result<Request<Body>, Stopped> {
        let path = match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        };
        let wrong = |_error| Stopped::failed(FailureKind::Peer, "the request cannot be written");
        let path = PathAndQuery::from_maybe_shared(bytes::Bytes::from(path)).map_err(wrong)?;
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.headers_mut() = self.headers;
        address(&mut request, path, (&self.host, self.scheme), connection)?;
        Ok(request)
    }
}

/// HTTP/1.1 names the server in a header, HTTP/2 in the address.
fn address(
    request: &mut Request<Body>,
    path: PathAndQuery,
    (host, scheme): (&str, Scheme),
    connection: &Connection,
) -> Result<(), Stopped> {
    let wrong = || Stopped::failed(FailureKind::Peer, "the request cannot be addressed");
    if connection.is_http2() {
        let uri = Uri::builder().scheme(scheme.name()).authority(host).path_and_query(path).build();
        *request.uri_mut() = uri.ok().ok_or_else(wrong)?;
        *request.version_mut() = Version::HTTP_2;
        return Ok(());
    }
    form::join_cookies(request.headers_mut());
    *request.uri_mut() = Uri::from(path);
    let host = HeaderValue::from_str(host).ok().ok_or_else(wrong)?;
    request.headers_mut().insert(HOST, host);
    request.headers_mut().remove(http::header::TE);
    *request.version_mut() = Version::HTTP_11;
    Ok(())
}

/// Other names for asking for a part.
static RANGE_OF_AZURE: HeaderName = HeaderName::from_static("x-ms-range");
static DELTA: HeaderName = HeaderName::from_static("a-im");

async fn send(
    outgoing: Outgoing,
    body: Body,
    way: &Way,
    live: &Live,
    shared: &Arc<Shared>,
) -> Result<(Response<Incoming>, Connection), Stopped> {
    let upstream = &shared.inspection.upstream;
    let (mut connection, freshness) = upstream.connect(live, way, shared).await?;
    let host = outgoing.host.clone();
    let request = outgoing.request(body, &connection)?;
    let failed = |error: &hyper::Error| {
        let text = source_text(error);
        Stopped::failed(FailureKind::Peer, format!("`{}` did not answer: {text}", live.flow().target))
    };
    match connection.send(request).await {
        Ok(response) => Ok((response, connection)),
        // A connection that was kept may be gone when it is needed; nothing of the request has left.
        Err((_, Some(mut request))) if freshness == Freshness::Kept => {
            let mut connection = upstream.fresh(live, way, shared).await?;
            let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
            address(&mut request, path, (&host, way.scheme), &connection)?;
            let response = connection.send(request).await.map_err(|(error, _)| failed(&error))?;
            Ok((response, connection))
        }
        Err((error, _)) => Err(failed(&error)),
    }
}

fn source_text(error: &hyper::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// A response on its way in.
fn incoming(
    response: Response<Incoming>,
    (about, method): (About, &Method),
    meter: impl FnOnce(Body) -> Body,
) -> Result<Response<Body>, Stopped> {
    let (mut parts, body) = response.into_parts();
    // Before anything is taken out: what `Connection` names may be what says how to read the body.
    let coding = Coding::of(&parts.headers);
    form::strip(&mut parts.headers);
    answer::disown(&mut parts.headers);
    // It would lead clients to a protocol that does not pass here.
    parts.headers.remove(http::header::ALT_SVC);
    let body = match about.sight.echo.clone() {
        // HTTP/2 has frames for a body that is none; nobody reads them, and nobody has looked at them.
        _ if body.is_end_stream() || is_bodiless(method, parts.status) => {
            if let Some(echo) = &about.sight.echo {
                redacted::headers(&mut parts.headers, echo, &about);
            }
            answer::empty()
        }
        None => body.map_err(Into::into).boxed(),
        Some(echo) => {
            redacted::headers(&mut parts.headers, &echo, &about);
            if IN_PARTS.contains(&parts.status) {
                return Err(unreadable(&about, &"it sent a part, and was asked for all of it"));
            }
            let coding = coding.map_err(|error| unreadable(&about, &error))?;
            parts.headers.remove(CONTENT_LENGTH);
            if coding != Coding::Identity {
                parts.headers.remove(CONTENT_ENCODING);
            }
            Redacted::new(body.map_err(Into::into).boxed(), &echo, coding, about).boxed()
        }
    };
    let mut response = Response::new(meter(body));
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    Ok(response)
}

/// Responses to what was not asked: `Range` and its like do not leave where a secret may come back.
const IN_PARTS: [StatusCode; 2] = [StatusCode::PARTIAL_CONTENT, StatusCode::IM_USED];

/// What such a response says of a length is about a body that is elsewhere.
fn is_bodiless(method: &Method, status: StatusCode) -> bool {
    method == Method::HEAD || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status)
}

fn unreadable(about: &About, error: &dyn std::fmt::Display) -> Stopped {
    let target = &about.live.flow().target;
    let message =
        format!("the response of `{target}` cannot be searched for the secret it was given: {error}");
    Stopped::failed(FailureKind::Peer, message)
}
