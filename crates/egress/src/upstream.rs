//! Upstream connections: verified TLS, HTTP/1.1 or HTTP/2, pooled per target.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ringfence_types::Host;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, IpAddr, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::credential::CredentialScheme;
use crate::dial::dial;
use crate::error_response::ProxyBody;
use crate::flow_gate::{AddressScope, FlowTarget, FlowTerms};
use crate::live_flow::{FlowStop, LiveFlow, ProxyState, UpstreamFailureKind};

/// Idle connections per target.
const MOST_IDLE: usize = 16;
const MOST_TARGETS: usize = 512;
/// Servers close connections that are idle for longer, sometimes while a request is on its way.
const IDLE: Duration = Duration::from_secs(30);
/// Maximum age, after which the name is resolved again.
const AGE: Duration = Duration::from_secs(300);
/// Wait for a connection whose last response has just ended.
const GETTING_READY: Duration = Duration::from_millis(20);
const MOST_HEADERS: u32 = 64 << 10;

/// Upstream connections of a session.
#[derive(Debug)]
pub(crate) struct UpstreamPool {
    extra_roots: Vec<u8>,
    tls: OnceCell<TlsConfigs>,
    kept: Mutex<HashMap<UpstreamKey, PooledConnections>>,
}

#[derive(Clone, Debug)]
struct TlsConfigs {
    /// Offers HTTP/2 and HTTP/1.1.
    any: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
}

/// A connection is reused only for the same target, scheme and address scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UpstreamKey {
    target: FlowTarget,
    scheme: CredentialScheme,
    special: bool,
}

#[derive(Debug, Default)]
struct PooledConnections {
    http1: Vec<(http1::SendRequest<ProxyBody>, PooledInfo)>,
    http2: Option<(http2::SendRequest<ProxyBody>, Instant)>,
}

#[derive(Clone, Copy, Debug)]
struct PooledInfo {
    made: Instant,
    used: Instant,
}

/// Acceptable protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolChoice {
    Any,
    /// Only HTTP/1.1 connections can be upgraded.
    Http1,
}

#[derive(Debug)]
pub(crate) enum UpstreamConnection {
    Http1(http1::SendRequest<ProxyBody>, Instant),
    Http2(http2::SendRequest<ProxyBody>),
}

/// A connection that returns to the pool after its response.
#[derive(Debug)]
pub(crate) struct PoolReturn {
    shared: Arc<ProxyState>,
    place: UpstreamKey,
    sender: http1::SendRequest<ProxyBody>,
    made: Instant,
}

impl PoolReturn {
    pub(crate) fn put(self) {
        let mut kept = self.shared.inspection.upstream.lock();
        if kept.len() >= MOST_TARGETS {
            kept.clear();
        }
        let kept = kept.entry(self.place).or_default();
        if kept.http1.len() < MOST_IDLE && !self.sender.is_closed() {
            kept.http1.push((self.sender, PooledInfo { made: self.made, used: Instant::now() }));
        }
    }
}

/// Destination of a request.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamRoute {
    pub(crate) scheme: CredentialScheme,
    pub(crate) passage: FlowTerms,
    pub(crate) wanted: ProtocolChoice,
}

impl UpstreamPool {
    pub(crate) fn new(extra_roots: Vec<u8>) -> Self {
        Self { extra_roots, tls: OnceCell::new(), kept: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<UpstreamKey, PooledConnections>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a pooled or new connection, and which of the two it is.
    pub(crate) async fn connect(
        &self,
        live: &LiveFlow,
        way: &UpstreamRoute,
        shared: &ProxyState,
    ) -> Result<(UpstreamConnection, Freshness), FlowStop> {
        if let Some(connection) = self.kept(&place(live, way), way.wanted).await {
            return Ok((connection, Freshness::Kept));
        }
        Ok((self.fresh(live, way, shared).await?, Freshness::Fresh))
    }

    async fn kept(&self, place: &UpstreamKey, wanted: ProtocolChoice) -> Option<UpstreamConnection> {
        if wanted == ProtocolChoice::Any
            && let Some(sender) = self.kept_http2(place)
        {
            return Some(UpstreamConnection::Http2(sender));
        }
        loop {
            let (mut sender, at) = self.lock().get_mut(place)?.http1.pop()?;
            let is_young = at.used.elapsed() < IDLE && at.made.elapsed() < AGE;
            let ready = async { matches!(timeout(GETTING_READY, sender.ready()).await, Ok(Ok(()))) };
            if is_young && ready.await {
                return Some(UpstreamConnection::Http1(sender, at.made));
            }
        }
    }

    fn kept_http2(&self, place: &UpstreamKey) -> Option<http2::SendRequest<ProxyBody>> {
        let mut kept = self.lock();
        let kept = kept.get_mut(place)?;
        let (sender, made) = kept.http2.as_ref()?;
        if sender.is_closed() || made.elapsed() > AGE {
            kept.http2 = None;
            return None;
        }
        Some(sender.clone())
    }

    pub(crate) async fn fresh(
        &self,
        live: &LiveFlow,
        way: &UpstreamRoute,
        shared: &ProxyState,
    ) -> Result<UpstreamConnection, FlowStop> {
        let stream = dial(live, way.passage, shared).await?;
        let times = shared.settings.times;
        let target = &live.flow().target;
        let connected = async {
            match way.scheme {
                CredentialScheme::Http => first_http1(stream).await,
                CredentialScheme::Https => self.secure(stream, target, way, live).await,
            }
        };
        let late = || {
            FlowStop::failed(
                UpstreamFailureKind::Late,
                format!("`{target}` did not finish its handshake in time"),
            )
        };
        let connection = timeout(times.connect, connected).await.map_err(|_elapsed| late())??;
        if let UpstreamConnection::Http2(sender) = &connection {
            let mut kept = self.lock();
            if kept.len() >= MOST_TARGETS {
                kept.clear();
            }
            kept.entry(place(live, way)).or_default().http2 = Some((sender.clone(), Instant::now()));
        }
        Ok(connection)
    }

    async fn secure(
        &self,
        stream: tokio::net::TcpStream,
        target: &FlowTarget,
        way: &UpstreamRoute,
        live: &LiveFlow,
    ) -> Result<UpstreamConnection, FlowStop> {
        let tls = self.tls().await?;
        let config = match way.wanted {
            ProtocolChoice::Any => tls.any.clone(),
            ProtocolChoice::Http1 => tls.http1.clone(),
        };
        let connecting = TlsConnector::from(config).connect(server_name(target)?, stream).await;
        let wrong = |error: std::io::Error| {
            FlowStop::failed(
                UpstreamFailureKind::Peer,
                format!("TLS with `{}` failed: {error}", live.flow().target),
            )
        };
        let stream = connecting.map_err(wrong)?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            return first_http2(stream).await;
        }
        first_http1(stream).await
    }

    /// Loads the system's roots at first use, because sessions without inspection do not need them.
    async fn tls(&self) -> Result<&TlsConfigs, FlowStop> {
        let made = self.tls.get_or_try_init(|| async {
            let extra = self.extra_roots.clone();
            let made = tokio::task::spawn_blocking(move || TlsConfigs::new(&extra)).await;
            let made =
                made.map_err(|error| FlowStop::failed(UpstreamFailureKind::Peer, error.to_string()))?;
            made.map_err(|error| FlowStop::failed(UpstreamFailureKind::Peer, error.to_string()))
        });
        made.await
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    Fresh,
    /// From the pool; the server may close it at any moment.
    Kept,
}

impl UpstreamConnection {
    /// Sends a request. Returns it if the connection was closed before any of it was sent.
    pub(crate) async fn send(
        &mut self,
        request: Request<ProxyBody>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<ProxyBody>>)> {
        match self {
            Self::Http1(sender, _) => sender.try_send_request(request).await.map_err(|mut error| {
                let request = error.take_message();
                (error.into_error(), request)
            }),
            Self::Http2(sender) => sender.try_send_request(request).await.map_err(|mut error| {
                let request = error.take_message();
                (error.into_error(), request)
            }),
        }
    }

    pub(crate) fn is_http2(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// Prepares the return to the pool.
    pub(crate) fn returned(
        self,
        live: &LiveFlow,
        way: &UpstreamRoute,
        shared: &Arc<ProxyState>,
    ) -> Option<PoolReturn> {
        match self {
            Self::Http1(sender, made) => {
                Some(PoolReturn { shared: shared.clone(), place: place(live, way), sender, made })
            }
            Self::Http2(_) => None,
        }
    }
}

/// Reason why no server can be verified.
#[derive(Debug, thiserror::Error)]
enum UpstreamTlsError {
    #[error(
        "no server can be verified: none of {} has a certificate that can be read; install the package `ca-certificates`",
        SYSTEM_ROOTS.join(", ")
    )]
    NoRoots,
    #[error("TLS cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

impl TlsConfigs {
    fn new(extra_roots: &[u8]) -> Result<Self, UpstreamTlsError> {
        let extra = CertificateDer::pem_slice_iter(extra_roots).filter_map(Result::ok);
        Self::trusting(system_roots().into_iter().chain(extra))
    }

    /// Without roots the connection fails here, with a clear reason.
    fn trusting(
        certificates: impl Iterator<Item = CertificateDer<'static>>,
    ) -> Result<Self, UpstreamTlsError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates);
        if roots.is_empty() {
            return Err(UpstreamTlsError::NoRoots);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let http1 = Arc::new(config.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { any: Arc::new(config), http1 })
    }
}

/// Files with the system's trusted certificates. Environment variables are ignored: they must not change which servers a session
/// trusts.
pub const SYSTEM_ROOTS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Certificates of the first file that has any.
fn system_roots() -> Vec<CertificateDer<'static>> {
    let read = |path: &&str| rustls_native_certs::load_certs_from_paths(Some(Path::new(path)), None).certs;
    SYSTEM_ROOTS.iter().map(read).find(|found| !found.is_empty()).unwrap_or_default()
}

fn place(live: &LiveFlow, way: &UpstreamRoute) -> UpstreamKey {
    let special = way.passage.reach == AddressScope::Special;
    UpstreamKey { target: live.flow().target.clone(), scheme: way.scheme, special }
}

fn server_name(target: &FlowTarget) -> Result<ServerName<'static>, FlowStop> {
    let name = match &target.host {
        Host::Name(name) => ServerName::try_from(name.clone()).ok(),
        Host::V4(address) => Some(ServerName::IpAddress(IpAddr::from(std::net::IpAddr::from(*address)))),
        Host::V6(address) => Some(ServerName::IpAddress(IpAddr::from(std::net::IpAddr::from(*address)))),
        Host::Below(_) => None,
    };
    name.ok_or_else(|| FlowStop::failed(UpstreamFailureKind::Peer, format!("`{target}` is no name for TLS")))
}

async fn first_http1(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<UpstreamConnection, FlowStop> {
    let handshake = http1::Builder::new().handshake(TokioIo::new(io)).await;
    let (sender, connection) = handshake.map_err(protocol)?;
    // The task that waits for a response sees how the connection ended.
    tokio::spawn(connection.with_upgrades());
    Ok(UpstreamConnection::Http1(sender, Instant::now()))
}

async fn first_http2(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<UpstreamConnection, FlowStop> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).adaptive_window(true).max_header_list_size(MOST_HEADERS);
    let (sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(protocol)?;
    tokio::spawn(connection);
    Ok(UpstreamConnection::Http2(sender))
}

fn protocol(error: hyper::Error) -> FlowStop {
    FlowStop::failed(UpstreamFailureKind::Peer, format!("the server closed the connection: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_roots_there_is_no_tls_and_a_next_step() {
        let error = TlsConfigs::trusting(std::iter::empty()).unwrap_err();
        assert!(matches!(error, UpstreamTlsError::NoRoots));
        assert!(error.to_string().contains("ca-certificates"), "{error}");
        let junk = CertificateDer::from(b"not a certificate".to_vec());
        assert!(matches!(TlsConfigs::trusting(std::iter::once(junk)), Err(UpstreamTlsError::NoRoots)));
        let pem = crate::session_ca::SessionCa::new().unwrap();
        let known = CertificateDer::pem_slice_iter(pem.pem().as_bytes()).map(Result::unwrap);
        assert!(TlsConfigs::trusting(known).is_ok());
    }
}
