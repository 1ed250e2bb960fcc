//! Connections to servers: TLS that is verified, HTTP/1.1 or HTTP/2, kept for the next request to the same target.

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

use crate::answer::Body;
use crate::credential::Scheme;
use crate::dial::dial;
use crate::gate::{Passage, Reach, Target};
use crate::shared::{FailureKind, Live, Shared, Stopped};

/// Connections that wait for a request, for one target.
const MOST_IDLE: usize = 16;
const MOST_TARGETS: usize = 512;
/// Servers close what is idle for longer, some of them while the next request is on its way.
const IDLE: Duration = Duration::from_secs(30);
/// Where a name leads is looked up again after this.
const AGE: Duration = Duration::from_secs(300);
/// A connection whose last response has just ended takes a moment to be ready.
const GETTING_READY: Duration = Duration::from_millis(20);
const MOST_HEADERS: u32 = 64 << 10;

/// The servers of a session.
#[derive(Debug)]
pub(crate) struct Upstream {
    extra_roots: Vec<u8>,
    tls: OnceCell<Tls>,
    kept: Mutex<HashMap<Place, Kept>>,
}

#[derive(Clone, Debug)]
struct Tls {
    /// Offers HTTP/2 and HTTP/1.1.
    any: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
}

/// A connection is used again only for the same target, reached the same way, judged as reaching as far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    target: Target,
    scheme: Scheme,
    special: bool,
}

#[derive(Debug, Default)]
struct Kept {
    http1: Vec<(http1::SendRequest<Body>, Made)>,
    http2: Option<(http2::SendRequest<Body>, Instant)>,
}

#[derive(Clone, Copy, Debug)]
struct Made {
    made: Instant,
    used: Instant,
}

/// Which protocols will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Any,
    /// Only there can a connection become something else.
    Http1,
}

#[derive(Debug)]
pub(crate) enum Connection {
    Http1(http1::SendRequest<Body>, Instant),
    Http2(http2::SendRequest<Body>),
}

/// A connection to be kept when its response has passed.
#[derive(Debug)]
pub(crate) struct Returned {
    shared: Arc<Shared>,
    place: Place,
    sender: http1::SendRequest<Body>,
    made: Instant,
}

impl Returned {
    pub(crate) fn put(self) {
        let mut kept = self.shared.inspection.upstream.lock();
        if kept.len() >= MOST_TARGETS {
            kept.clear();
        }
        let kept = kept.entry(self.place).or_default();
        if kept.http1.len() < MOST_IDLE && !self.sender.is_closed() {
            kept.http1.push((self.sender, Made { made: self.made, used: Instant::now() }));
        }
    }
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) scheme: Scheme,
    pub(crate) passage: Passage,
    pub(crate) wanted: Wanted,
}

impl Upstream {
    pub(crate) fn new(extra_roots: Vec<u8>) -> Self {
        Self { extra_roots, tls: OnceCell::new(), kept: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Place, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kept connection or a new one, and whether it is new.
    pub(crate) async fn connect(
        &self,
        live: &Live,
        way: &Way,
        shared: &Shared,
    ) -> Result<(Connection, Freshness), Stopped> {
        if let Some(connection) = self.kept(&place(live, way), way.wanted).await {
            return Ok((connection, Freshness::Kept));
        }
        Ok((self.fresh(live, way, shared).await?, Freshness::Fresh))
    }

    async fn kept(&self, place: &Place, wanted: Wanted) -> Option<Connection> {
        if wanted == Wanted::Any
            && let Some(sender) = self.kept_http2(place)
        {
            return Some(Connection::Http2(sender));
        }
        loop {
            let (mut sender, at) = self.lock().get_mut(place)?.http1.pop()?;
            let is_young = at.used.elapsed() < IDLE && at.made.elapsed() < AGE;
            let ready = async { matches!(timeout(GETTING_READY, sender.ready()).await, Ok(Ok(()))) };
            if is_young && ready.await {
                return Some(Connection::Http1(sender, at.made));
            }
        }
    }

    fn kept_http2(&self, place: &Place) -> Option<http2::SendRequest<Body>> {
        let mut kept = self.lock();
        let kept = kept.get_mut(place)?;
        let (sender, made) = kept.http2.as_ref()?;
        if sender.is_closed() || made.elapsed() > AGE {
            kept.http2 = None;
            return None;
        }
        Some(sender.clone())
    }

    pub(crate) async fn fresh(&self, live: &Live, way: &Way, shared: &Shared) -> Result<Connection, Stopped> {
        let stream = dial(live, way.passage, shared).await?;
        let times = shared.settings.times;
        let target = &live.flow().target;
        let connected = async {
            match way.scheme {
                Scheme::Http => first_http1(stream).await,
                Scheme::Https => self.secure(stream, target, way, live).await,
            }
        };
        let late =
            || Stopped::failed(FailureKind::Late, format!("`{target}` did not finish its handshake in time"));
        let connection = timeout(times.connect, connected).await.map_err(|_elapsed| late())??;
        if let Connection::Http2(sender) = &connection {
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
        target: &Target,
        way: &Way,
        live: &Live,
    ) -> Result<Connection, Stopped> {
        let tls = self.tls().await?;
        let config = match way.wanted {
            Wanted::Any => tls.any.clone(),
            Wanted::Http1 => tls.http1.clone(),
        };
        let connecting = TlsConnector::from(config).connect(server_name(target)?, stream).await;
        let wrong = |error: std::io::Error| {
            Stopped::failed(FailureKind::Peer, format!("TLS with `{}` failed: {error}", live.flow().target))
        };
        let stream = connecting.map_err(wrong)?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            return first_http2(stream).await;
        }
        first_http1(stream).await
    }

    /// Reading the roots of the system takes longer than most sessions want to wait that inspect nothing.
    async fn tls(&self) -> Result<&Tls, Stopped> {
        let made = self.tls.get_or_try_init(|| async {
            let extra = self.extra_roots.clone();
            let made = tokio::task::spawn_blocking(move || Tls::new(&extra)).await;
            let made = made.map_err(|error| Stopped::failed(FailureKind::Peer, error.to_string()))?;
            made.map_err(|error| Stopped::failed(FailureKind::Peer, error.to_string()))
        });
        made.await
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    Fresh,
    /// Its server may close it at any moment.
    Kept,
}

impl Connection {
    /// Sends a request; gives it back if the connection was gone before any of it was sent.
    pub(crate) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Body>>)> {
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

    /// For when its response has passed.
    pub(crate) fn returned(self, live: &Live, way: &Way, shared: &Arc<Shared>) -> Option<Returned> {
        match self {
            Self::Http1(sender, made) => {
                Some(Returned { shared: shared.clone(), place: place(live, way), sender, made })
            }
            Self::Http2(_) => None,
        }
    }
}

/// Why no server can be verified.
#[derive(Debug, thiserror::Error)]
enum TlsError {
    #[error(
        "no server can be verified: none of {} has a certificate that can be read; install the package `ca-certificates`",
        SYSTEM_ROOTS.join(", ")
    )]
    NoRoots,
    #[error("TLS cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

impl Tls {
    fn new(extra_roots: &[u8]) -> Result<Self, TlsError> {
        let extra = CertificateDer::pem_slice_iter(extra_roots).filter_map(Result::ok);
        Self::trusting(system_roots().into_iter().chain(extra))
    }

    /// Without anybody to trust there is no connection, instead of one that fails for a reason nobody understands.
    fn trusting(certificates: impl Iterator<Item = CertificateDer<'static>>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates);
        if roots.is_empty() {
            return Err(TlsError::NoRoots);
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

/// Where systems keep the certificates they trust. Which of them is not a matter of the environment of this process: a
/// variable must not change whom a session trusts.
pub const SYSTEM_ROOTS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Those of the first file that has any.
fn system_roots() -> Vec<CertificateDer<'static>> {
    let read = |path: &&str| rustls_native_certs::load_certs_from_paths(Some(Path::new(path)), None).certs;
    SYSTEM_ROOTS.iter().map(read).find(|found| !found.is_empty()).unwrap_or_default()
}

fn place(live: &Live, way: &Way) -> Place {
    let special = way.passage.reach == Reach::Special;
    Place { target: live.flow().target.clone(), scheme: way.scheme, special }
}

fn server_name(target: &Target) -> Result<ServerName<'static>, Stopped> {
    let name = match &target.host {
        Host::Name(name) => ServerName::try_from(name.clone()).ok(),
        Host::V4(address) => Some(ServerName::IpAddress(IpAddr::from(std::net::IpAddr::from(*address)))),
        Host::V6(address) => Some(ServerName::IpAddress(IpAddr::from(std::net::IpAddr::from(*address)))),
        Host::Below(_) => None,
    };
    name.ok_or_else(|| Stopped::failed(FailureKind::Peer, format!("`{target}` is no name for TLS")))
}

async fn first_http1(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Connection, Stopped> {
    let handshake = http1::Builder::new().handshake(TokioIo::new(io)).await;
    let (sender, connection) = handshake.map_err(protocol)?;
    // How a connection ends is known to whoever waits for a response on it.
    tokio::spawn(connection.with_upgrades());
    Ok(Connection::Http1(sender, Instant::now()))
}

async fn first_http2(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Connection, Stopped> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).adaptive_window(true).max_header_list_size(MOST_HEADERS);
    let (sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(protocol)?;
    tokio::spawn(connection);
    Ok(Connection::Http2(sender))
}

fn protocol(error: hyper::Error) -> Stopped {
    Stopped::failed(FailureKind::Peer, format!("the server broke the connection: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_roots_there_is_no_tls_and_a_next_step() {
        let error = Tls::trusting(std::iter::empty()).unwrap_err();
        assert!(matches!(error, TlsError::NoRoots));
        assert!(error.to_string().contains("ca-certificates"), "{error}");
        let junk = CertificateDer::from(b"not a certificate".to_vec());
        assert!(matches!(Tls::trusting(std::iter::once(junk)), Err(TlsError::NoRoots)));
        let pem = crate::ca::Ca::new().unwrap();
        let known = CertificateDer::pem_slice_iter(pem.pem().as_bytes()).map(Result::unwrap);
        assert!(Tls::trusting(known).is_ok());
    }
}
