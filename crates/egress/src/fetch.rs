//! Fetches: requests of the session itself, under the same rules, address checks and credentials as flows from inside.
//!
//! A fetch uses no proxy of the environment and no cookies. Only connections are kept between fetches.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, LOCATION, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use ringfence_types::Refusal;
use tokio::time::timeout;
use url::Url;

use crate::content_encoding::{ContentDecoder, ContentEncoding};
use crate::credential::CredentialScheme;
use crate::error_response::{self, ProxyBody};
use crate::exchange::{ExchangeError, ask};
use crate::flow_gate::{FlowGate, FlowIngress};
use crate::live_flow::{FlowStop, ProxyState};
use crate::proxy::{Proxy, ProxyStartError};
use crate::request_target::{self, RequestOrigin};
use crate::settings::ProxySettings;

#[derive(Clone, Debug)]
pub struct FetchRequest {
    pub method: String,
    /// `http` or `https`.
    pub url: String,
    pub limits: FetchLimits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    pub redirects: usize,
    /// Maximum size of the decoded response body.
    pub bytes: usize,
    /// Time limit including redirects, but without the time of decisions.
    pub time: Duration,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self { redirects: 5, bytes: 10 << 20, time: Duration::from_secs(60) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponse {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    /// URL after redirects.
    pub url: String,
    pub redirects: usize,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    #[error("{0}")]
    Refused(Refusal),
    #[error("invalid request: {0}")]
    Malformed(String),
    #[error("{0}")]
    Failed(String),
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
    #[error("more than {0} redirects")]
    Redirects(usize),
    #[error("it took longer than {0:?}")]
    Late(Duration),
}

/// Resolution of the time limit.
const TICK: Duration = Duration::from_millis(100);

/// Performs fetches for a session without a proxy.
#[derive(Debug)]
pub struct DirectFetcher(Proxy);

impl DirectFetcher {
    pub fn start(gate: Arc<dyn FlowGate>, settings: ProxySettings) -> Result<Self, ProxyStartError> {
        Proxy::without_doors(gate, settings).map(Self)
    }

    /// Blocks until the response is complete.
    pub fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        self.0.fetch(request)
    }
}

/// Follows redirects. The gate evaluates each as a separate flow.
pub(crate) async fn fetch(
    request: FetchRequest,
    shared: &Arc<ProxyState>,
) -> Result<FetchResponse, FetchError> {
    let limits = request.limits;
    let hop = FetchHop::first(request)?;
    let follow = follow(hop, limits, shared);
    tokio::pin!(follow);
    let mut left = limits.time;
    while !left.is_zero() {
        let tick = left.min(TICK);
        if let Ok(done) = timeout(tick, &mut follow).await {
            return done;
        }
        // Time spent on an approval does not count; approvals have their own limit.
        if !shared.is_deciding() {
            left -= tick;
        }
    }
    Err(FetchError::Late(limits.time))
}

/// One request of a fetch.
struct FetchHop {
    method: Method,
    url: Url,
}

async fn follow(
    mut hop: FetchHop,
    limits: FetchLimits,
    shared: &Arc<ProxyState>,
) -> Result<FetchResponse, FetchError> {
    for redirects in 0..=limits.redirects {
        let response = hop.send(shared).await?;
        match hop.next(&response)? {
            Some(next) => hop = next,
            None => return taken(response, hop.url, limits.bytes, redirects).await,
        }
    }
    Err(FetchError::Redirects(limits.redirects))
}

impl FetchHop {
    fn first(request: FetchRequest) -> Result<Self, FetchError> {
        let url = Url::parse(&request.url).map_err(|error| FetchError::Malformed(error.to_string()))?;
        let method = Method::from_bytes(request.method.as_bytes());
        let method = method.map_err(|_error| FetchError::Malformed("the method".to_owned()))?;
        Ok(Self { method, url })
    }

    async fn send(&self, shared: &Arc<ProxyState>) -> Result<Response<ProxyBody>, FetchError> {
        let origin = self.origin()?;
        let mut request = Request::new(error_response::empty());
        *request.method_mut() = self.method.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static("ringfence"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate"));
        ask(request, origin, shared).await.map_err(|unanswered| match unanswered {
            ExchangeError::Denied(denied) => FetchError::Refused(denied.refusal),
            ExchangeError::Stopped(FlowStop::Refused(refusal), ..) => FetchError::Refused(refusal),
            ExchangeError::Stopped(FlowStop::Failed(failure), ..) => FetchError::Failed(failure.message),
        })
    }

    fn origin(&self) -> Result<RequestOrigin, FetchError> {
        let scheme = match self.url.scheme() {
            "http" => CredentialScheme::Http,
            "https" => CredentialScheme::Https,
            other => return Err(FetchError::Malformed(format!("`{}` is not fetched", other.escape_debug()))),
        };
        if !self.url.username().is_empty() || self.url.password().is_some() {
            return Err(FetchError::Malformed("a user in a URL".to_owned()));
        }
        let host = self.url.host_str().unwrap_or_default();
        let authority = self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let nowhere = || FetchError::Malformed(format!("`{}` is no host", authority.escape_debug()));
        let target = request_target::read(&authority, scheme).ok_or_else(nowhere)?;
        let path = self
            .url
            .query()
            .map_or_else(|| self.url.path().to_owned(), |query| format!("{}?{query}", self.url.path()));
        let path = PathAndQuery::try_from(path).map_err(|error| FetchError::Malformed(error.to_string()))?;
        Ok(RequestOrigin::known(FlowIngress::Fetch, target, scheme, path))
    }

    /// Target of a redirect, if the response is one.
    fn next(&self, response: &Response<ProxyBody>) -> Result<Option<Self>, FetchError> {
        let status = response.status();
        let location = response.headers().get(LOCATION).filter(|_| FOLLOWED.contains(&status));
        let Some(location) = location else { return Ok(None) };
        let wrong = || FetchError::Failed("it was redirected to what is no URL".to_owned());
        let url = location.to_str().ok().and_then(|text| self.url.join(text).ok()).ok_or_else(wrong)?;
        let keeps = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        let is_post = self.method == Method::POST || status == StatusCode::SEE_OTHER;
        if keeps || self.method == Method::HEAD || !is_post {
            return Ok(Some(Self { url, method: self.method.clone() }));
        }
        Ok(Some(Self { url, method: Method::GET }))
    }
}

const FOLLOWED: [StatusCode; 5] = [
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::SEE_OTHER,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];

async fn taken(
    response: Response<ProxyBody>,
    url: Url,
    most: usize,
    redirects: usize,
) -> Result<FetchResponse, FetchError> {
    let (mut parts, mut incoming) = response.into_parts();
    let failed =
        |error: &dyn std::fmt::Display| FetchError::Failed(format!("the response cannot be read: {error}"));
    let coding = ContentEncoding::of(&parts.headers).map_err(|error| failed(&error))?;
    let mut decoder = ContentDecoder::new(coding);
    let mut body = Vec::new();
    while let Some(frame) = incoming.frame().await {
        let Ok(bytes) = frame.map_err(|error| failed(&error))?.into_data() else { continue };
        decoder.feed(&bytes, |decoded| body.extend_from_slice(decoded)).map_err(|error| failed(&error))?;
        if body.len() > most {
            return Err(FetchError::TooLarge(most));
        }
    }
    decoder.finish(|decoded| body.extend_from_slice(decoded)).map_err(|error| failed(&error))?;
    if body.len() > most {
        return Err(FetchError::TooLarge(most));
    }
    if coding != ContentEncoding::Identity {
        parts.headers.remove(http::header::CONTENT_ENCODING);
        parts.headers.remove(CONTENT_LENGTH);
    }
    let header =
        |(name, value): (&HeaderName, &HeaderValue)| (name.as_str().to_owned(), value.as_bytes().to_vec());
    let headers = parts.headers.iter().map(header).collect();
    Ok(FetchResponse { status: parts.status.as_u16(), headers, body, url: url.into(), redirects })
}
