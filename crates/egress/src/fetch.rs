//! Requests that the session itself makes: by the same rules, to the same addresses, with the same credentials.
//!
//! No proxy of the environment, no cookies, nothing kept between two fetches but connections.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, LOCATION, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use ringfence_types::Refusal;
use tokio::time::timeout;
use url::Url;

use crate::answer::{self, Body};
use crate::coding::{Coding, Decoder};
use crate::credential::Scheme;
use crate::exchange::{Unanswered, ask};
use crate::form::{self, Origin};
use crate::gate::{Gate, Way};
use crate::proxy::{Proxy, StartError};
use crate::settings::Settings;
use crate::shared::{Shared, Stopped};

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
    /// Of the body of the response, decoded.
    pub bytes: usize,
    /// For everything, redirects included, but not for decisions.
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
    /// Where it came from in the end.
    pub url: String,
    pub redirects: usize,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    #[error("{0}")]
    Refused(Refusal),
    #[error("the request makes no sense: {0}")]
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

/// How exactly the time of a fetch is measured.
const TICK: Duration = Duration::from_millis(100);

/// Fetches for a session that has no proxy.
#[derive(Debug)]
pub struct Fetcher(Proxy);

impl Fetcher {
    pub fn start(gate: Arc<dyn Gate>, settings: Settings) -> Result<Self, StartError> {
        Proxy::without_doors(gate, settings).map(Self)
    }

    /// Blocks until it is over.
    pub fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        self.0.fetch(request)
    }
}

/// Follows redirects, each judged as a flow of its own.
pub(crate) async fn fetch(request: FetchRequest, shared: &Arc<Shared>) -> Result<FetchResponse, FetchError> {
    let limits = request.limits;
    let hop = Hop::first(request)?;
    let follow = follow(hop, limits, shared);
    tokio::pin!(follow);
    let mut left = limits.time;
    while !left.is_zero() {
        let tick = left.min(TICK);
        if let Ok(done) = timeout(tick, &mut follow).await {
            return done;
        }
        // A person who is asked takes the time that it takes; how long is bounded where it is asked.
        if !shared.is_deciding() {
            left -= tick;
        }
    }
    Err(FetchError::Late(limits.time))
}

/// One request of a fetch.
struct Hop {
    method: Method,
    url: Url,
}

async fn follow(
    mut hop: Hop,
    limits: FetchLimits,
    shared: &Arc<Shared>,
) -> Result<FetchResponse, FetchError> {
    for redirects in 0..=limits.redirects {
        let response = hop.send(shared).await?;
        match hop.next(&response)? {
            Some(next) => hop = next,
            None => return taken(response, hop.url, (limits.bytes, redirects)).await,
        }
    }
    Err(FetchError::Redirects(limits.redirects))
}

impl Hop {
    fn first(request: FetchRequest) -> Result<Self, FetchError> {
        let url = Url::parse(&request.url).map_err(|error| FetchError::Malformed(error.to_string()))?;
        let method = Method::from_bytes(request.method.as_bytes());
        let method = method.map_err(|_error| FetchError::Malformed("the method".to_owned()))?;
        Ok(Self { method, url })
    }

    async fn send(&self, shared: &Arc<Shared>) -> Result<Response<Body>, FetchError> {
        let origin = self.origin()?;
        let mut request = Request::new(answer::empty());
        *request.method_mut() = self.method.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static("ringfence"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate"));
        ask(request, origin, shared).await.map_err(|unanswered| match unanswered {
            Unanswered::Denied(denied) => FetchError::Refused(denied.refusal),
            Unanswered::Stopped(Stopped::Refused(refusal), ..) => FetchError::Refused(refusal),
            Unanswered::Stopped(Stopped::Failed(failure), ..) => FetchError::Failed(failure.message),
        })
    }

    fn origin(&self) -> Result<Origin, FetchError> {
        let scheme = match self.url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            other => return Err(FetchError::Malformed(format!("`{}` is not fetched", other.escape_debug()))),
        };
        if !self.url.username().is_empty() || self.url.password().is_some() {
            return Err(FetchError::Malformed("a user in a URL".to_owned()));
        }
        let host = self.url.host_str().unwrap_or_default();
        let authority = self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let nowhere = || FetchError::Malformed(format!("`{}` is no host", authority.escape_debug()));
        let target = form::read(&authority, scheme).ok_or_else(nowhere)?;
        let path = self
            .url
            .query()
            .map_or_else(|| self.url.path().to_owned(), |query| format!("{}?{query}", self.url.path()));
        let path = PathAndQuery::try_from(path).map_err(|error| FetchError::Malformed(error.to_string()))?;
        Ok(Origin::known(Way::Fetch, target, scheme, path))
    }

    /// Where a response leads, if it leads on.
    fn next(&self, response: &Response<Body>) -> Result<Option<Self>, FetchError> {
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
    response: Response<Body>,
    url: Url,
    (most, redirects): (usize, usize),
) -> Result<FetchResponse, FetchError> {
    let (mut parts, mut incoming) = response.into_parts();
    let failed =
        |error: &dyn std::fmt::Display| FetchError::Failed(format!("the response cannot be read: {error}"));
    let coding = Coding::of(&parts.headers).map_err(|error| failed(&error))?;
    let mut decoder = Decoder::new(coding);
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
    if coding != Coding::Identity {
        parts.headers.remove(http::header::CONTENT_ENCODING);
        parts.headers.remove(CONTENT_LENGTH);
    }
    let header =
        |(name, value): (&HeaderName, &HeaderValue)| (name.as_str().to_owned(), value.as_bytes().to_vec());
    let headers = parts.headers.iter().map(header).collect();
    Ok(FetchResponse { status: parts.status.as_u16(), headers, body, url: url.into(), redirects })
}
