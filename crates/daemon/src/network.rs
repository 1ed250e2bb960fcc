//! HTTP on TCP: for browsers, and for whoever is on another machine. Nobody is an owner here.

use std::net::{IpAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::request::Parts;
use ringfence_api::{ApiError, ErrorCode};
use ringfence_runtime::identity::of_browser;
use ringfence_types::{Bind, Transport};
use ringfence_web::{Certificate, Guard, Shown, Turned, secure, shown};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::authenticate::Entrance;
use crate::failure::unauthenticated;
use crate::server::{Daemon, attend};
use crate::sources::Sources;

/// How long somebody may take to agree on TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections at once, and those from one source.
const CONNECTIONS: usize = 512;
const CONNECTIONS_OF_A_SOURCE: usize = CONNECTIONS / 2;

/// A TCP listener with everything it asks of a request.
#[derive(Debug)]
pub struct Network {
    listener: StdListener,
    bind: Bind,
    guard: Guard,
    certificate: Option<Certificate>,
}

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    #[error("cannot listen at {bind}")]
    Bind {
        bind: Bind,
        #[source]
        error: std::io::Error,
    },
    #[error("TLS is wanted, and there is no certificate")]
    NoCertificate,
}

impl Network {
    /// `guard` makes what every request of this listener is asked, of the address that it has: with the port `0` the kernel
    /// chooses one, and only that is an address somebody can name.
    pub fn listen(
        bind: Bind,
        guard: impl FnOnce(Bind) -> Guard,
        certificate: Option<Certificate>,
    ) -> Result<Self, NetworkError> {
        if bind.transport() == Transport::Tls && certificate.is_none() {
            return Err(NetworkError::NoCertificate);
        }
        let failed = |error| NetworkError::Bind { bind, error };
        let listener = StdListener::bind(bind.address()).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bind = bind.at_port(listener.local_addr().map_err(failed)?.port());
        Ok(Self { listener, bind, guard: guard(bind), certificate })
    }

    pub fn bind(&self) -> Bind {
        self.bind
    }

    /// Of its certificate.
    pub fn fingerprint(&self) -> Option<&str> {
        self.certificate.as_ref().map(Certificate::fingerprint)
    }

    /// Before anybody looks at what a request wants.
    pub(crate) fn admit(&self, head: &Parts) -> Result<(), ApiError> {
        self.guard.admit(head).map_err(|turned| turned_away(&turned))
    }

    /// The token that was shown: in a header, or in a cookie with what only our own page knows.
    pub(crate) fn token(&self, head: &Parts) -> Result<Option<String>, ApiError> {
        match shown(head, self.bind.transport()) {
            Shown::Nothing => Ok(None),
            Shown::Bearer(token) => Ok(Some(token.to_owned())),
            Shown::Strange => {
                Err(unauthenticated("the header `Authorization` is not `Bearer TOKEN`", "identity.no-token"))
            }
            // Half of what it takes: whoever asks who it is looks at both.
            Shown::Cookie { token, csrf } => Ok(Some(of_browser(token, csrf).to_string())),
        }
    }

    pub(crate) fn secure(&self, headers: &mut HeaderMap) {
        secure(headers, self.bind.transport());
    }

    pub(crate) fn transport(&self) -> Transport {
        self.bind.transport()
    }
}

fn turned_away(turned: &Turned) -> ApiError {
    let code = match turned.status().as_u16() {
        403 | 421 => ErrorCode::Forbidden,
        _ => ErrorCode::Malformed,
    };
    ApiError::new(code, turned.to_string()).with_rule(turned.rule()).with_hint(turned.hint())
}

/// Serves whoever connects.
pub(crate) async fn accept(daemon: Arc<Daemon>, network: Arc<Network>) -> std::io::Result<()> {
    let listener = TcpListener::from_std(network.listener.try_clone()?)?;
    let tls = network.certificate.as_ref().map(|certificate| TlsAcceptor::from(certificate.config()));
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let sources = Sources::new(CONNECTIONS_OF_A_SOURCE);
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, address)) => {
                // It is closed at once: were it to wait, it would wait in front of everybody else.
                let Some(seat) = sources.seat(address.ip()) else {
                    tracing::debug!(from = %address.ip(), "too many connections from one source");
                    continue;
                };
                let line = serve_one(
                    Arc::clone(&daemon),
                    (Arc::clone(&network), tls.clone()),
                    (stream, address.ip().to_canonical()),
                );
                let _line = tokio::spawn(async move {
                    line.await;
                    drop((place, seat));
                });
            }
            Err(error) => {
                tracing::warn!(why = %error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve_one(
    daemon: Arc<Daemon>,
    (network, tls): (Arc<Network>, Option<TlsAcceptor>),
    (stream, address): (TcpStream, IpAddr),
) {
    let entrance = Entrance::Network(address);
    let Some(tls) = tls else { return attend(daemon, stream, (entrance, None, Some(network))).await };
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => attend(daemon, stream, (entrance, None, Some(network))).await,
        Ok(Err(error)) => tracing::debug!(why = %error, "no TLS"),
        Err(_late) => tracing::debug!("TLS took too long"),
    }
}
