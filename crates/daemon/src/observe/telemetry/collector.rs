//! One HTTP exchange with the operator's collector. Time and memory are bounded, whatever the collector sends.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use prost::Message as _;
use ringfence_policy::TelemetrySettings;
use ringfence_types::{Endpoint, EndpointBase, Host};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::otlp::ExportResponse;

/// Longest response head.
const MOST_HEAD: usize = 16 * 1024;
const MOST_FIELDS: usize = 64;
/// Longest response body.
const MOST_BODY: usize = 16 * 1024;
/// Longest file of CA certificates.
const MOST_AUTHORITIES: u64 = 4 * 1024 * 1024;

/// The endpoint, with TLS and timeout.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    endpoint: Endpoint,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
}

/// The result of an export request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectorResponse {
    /// Accepted, except for the rejected items.
    Taken { rejected: u64 },
    /// Retry, after the time the collector asked for.
    Later(Option<Duration>),
    /// Permanent failure, with the HTTP status.
    Never(u16),
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum CollectorSendError {
    #[error("it cannot be reached: {0}")]
    Connect(#[from] io::Error),
    #[error("it does not speak HTTP as it should: {0}")]
    Http(#[from] hyper::Error),
    #[error("the request cannot be made: {0}")]
    Request(#[from] http::Error),
    #[error("it did not answer in time")]
    Late,
}

/// Why no collector can be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectorError {
    #[error("the authorities for the collector cannot be read")]
    Read(#[source] io::Error),
    #[error("there is no authority that could vouch for the collector")]
    NoAuthority,
    #[error("TLS cannot be used")]
    Tls(#[from] rustls::Error),
}

impl Collector {
    /// Loads the CA certificates, if the endpoint uses TLS.
    pub(super) fn new(settings: &TelemetrySettings) -> Result<Self, CollectorError> {
        let tls = match &settings.endpoint {
            Endpoint::Tls(_) => Some(Arc::new(tls(settings.authority.as_deref())?)),
            Endpoint::Loopback(_) | Endpoint::Unix(_) => None,
        };
        let timeout = Duration::from_millis(settings.timeout.0);
        Ok(Self { endpoint: settings.endpoint.clone(), tls, timeout })
    }

    /// Sends one message to `path`.
    pub(super) async fn post(
        &self,
        path: &'static str,
        headers: HeaderMap,
        message: Bytes,
    ) -> Result<CollectorResponse, CollectorSendError> {
        let exchange = self.exchange(path, headers, message);
        tokio::time::timeout(self.timeout, exchange).await.map_err(|_late| CollectorSendError::Late)?
    }

    async fn exchange(
        &self,
        path: &'static str,
        headers: HeaderMap,
        message: Bytes,
    ) -> Result<CollectorResponse, CollectorSendError> {
        let request = self.request(path, headers, message)?;
        match &self.endpoint {
            Endpoint::Unix(socket) => ask(UnixStream::connect(socket).await?, request).await,
            Endpoint::Loopback(site) => ask(connect(site).await?, request).await,
            Endpoint::Tls(site) => {
                let config = self.tls.clone().ok_or_else(|| io::Error::other("TLS handshake failed"))?;
                let name = server_name(site.host())?;
                let stream = TlsConnector::from(config).connect(name, connect(site).await?).await?;
                ask(stream, request).await
            }
        }
    }

    fn request(
        &self,
        path: &str,
        headers: HeaderMap,
        message: Bytes,
    ) -> Result<Request<Full<Bytes>>, http::Error> {
        let (authority, prefix) = match &self.endpoint {
            Endpoint::Unix(_) => ("localhost".to_owned(), ""),
            Endpoint::Loopback(site) | Endpoint::Tls(site) => {
                (format!("{}:{}", site.host(), site.port()), site.prefix())
            }
        };
        let mut request = Request::post(format!("{prefix}{path}")).body(Full::new(message))?;
        let own = request.headers_mut();
        *own = headers;
        let _new = own.insert(HOST, HeaderValue::from_str(&authority)?);
        let _new = own.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let agent = concat!("ringfence/", env!("CARGO_PKG_VERSION"));
        let _new = own.insert(USER_AGENT, HeaderValue::from_static(agent));
        Ok(request)
    }
}

/// `localhost` is not resolved by DNS.
async fn connect(site: &EndpointBase) -> io::Result<TcpStream> {
    match site.host() {
        Host::Name(name) if name == "localhost" => {
            let here: [SocketAddr; 2] =
                [(Ipv4Addr::LOCALHOST, site.port()).into(), (Ipv6Addr::LOCALHOST, site.port()).into()];
            TcpStream::connect(here.as_slice()).await
        }
        Host::Name(name) => TcpStream::connect((name.as_str(), site.port())).await,
        _ => {
            let address = site.address().ok_or_else(|| io::Error::other("this is no host"))?;
            TcpStream::connect((address, site.port())).await
        }
    }
}

fn server_name(host: &Host) -> io::Result<ServerName<'static>> {
    match host {
        Host::V4(address) => Ok(ServerName::IpAddress(std::net::IpAddr::V4(*address).into())),
        Host::V6(address) => Ok(ServerName::IpAddress(std::net::IpAddr::V6(*address).into())),
        Host::Name(name) | Host::Below(name) => ServerName::try_from(name.clone()).map_err(io::Error::other),
    }
}

fn tls(authority: Option<&Path>) -> Result<ClientConfig, CollectorError> {
    let mut roots = RootCertStore::empty();
    let (good, _bad) = match authority {
        Some(file) => roots.add_parsable_certificates(authorities(file)?),
        None => roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    };
    if good == 0 {
        return Err(CollectorError::NoAuthority);
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, CollectorError> {
    if std::fs::metadata(file).map_err(CollectorError::Read)?.len() > MOST_AUTHORITIES {
        return Err(CollectorError::NoAuthority);
    }
    let text = std::fs::read(file).map_err(CollectorError::Read)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    read.map_err(|_pem| CollectorError::NoAuthority)
}

/// One request on its own connection. Redirects are not followed.
async fn ask<S>(stream: S, request: Request<Full<Bytes>>) -> Result<CollectorResponse, CollectorSendError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    let (mut sender, connection) =
        builder.max_buf_size(MOST_HEAD).max_headers(MOST_FIELDS).handshake(TokioIo::new(stream)).await?;
    // Aborts the connection task when this future is dropped.
    let mut tasks = JoinSet::new();
    let _connection = tasks.spawn(async move {
        let _ended = connection.await;
    });
    let response = sender.send_request(request).await?;
    Ok(understood(response).await)
}

async fn understood(response: Response<Incoming>) -> CollectorResponse {
    let status = response.status();
    if status.is_success() {
        // The status decides: a broken body does not make the export fail.
        let body = Limited::new(response.into_body(), MOST_BODY).collect().await;
        let taken =
            body.ok().and_then(|body| ExportResponse::decode(body.to_bytes()).ok()).unwrap_or_default();
        return CollectorResponse::Taken { rejected: taken.rejected() };
    }
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            CollectorResponse::Later(asked_for(response.headers(), Timestamp::now()))
        }
        other => CollectorResponse::Never(other.as_u16()),
    }
}

/// The `Retry-After` of a response: seconds or a date.
fn asked_for(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_a_collector_wants_to_be_left_alone() {
        let now: Timestamp = "1994-11-06T08:49:30Z".parse().unwrap();
        let read = |text: &str| {
            asked_for(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]), now)
                .map(|time| time.as_secs())
        };
        assert_eq!(read("7"), Some(7));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(7));
        assert_eq!(read("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        for wrong in ["", "-1", "soon", "1.5"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
