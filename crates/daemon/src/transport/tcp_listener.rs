//! The TCP listener, for browsers and other machines. A TCP client is never the owner.

use std::net::{IpAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::request::Parts;
use ringfence_api::{ApiError, ErrorCode};
use ringfence_runtime::identity::of_browser;
use ringfence_types::{BindAddress, BindTransport, RuleId};
use ringfence_web::{Certificate, OriginGuard, PresentedCredential, RequestRejection, secure, shown};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::admit::authenticate::ListenerKind;
use crate::errors::unauthenticated;
use crate::limits::budget::{Budget, KeyedBudgets};
use crate::limits::request_rate::source_of;
use crate::server::{Daemon, attend};

/// Longest TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Concurrent connections: all, and from one source.
const CONNECTIONS: usize = 512;
const CONNECTIONS_OF_A_SOURCE: usize = CONNECTIONS / 2;

/// A TCP listener with its certificate and its checks.
#[derive(Debug)]
pub struct TcpListenerConfig {
    listener: StdListener,
    bind: BindAddress,
    guard: OriginGuard,
    certificate: Option<Certificate>,
}

/// Why the listener cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcpListenError {
    #[error("cannot listen at {bind}")]
    Bind {
        bind: BindAddress,
        #[source]
        error: std::io::Error,
    },
    #[error("TLS is wanted, and there is no certificate")]
    NoCertificate,
}

impl TcpListenerConfig {
    /// `guard` makes the request checks for the actual address: with port `0` the kernel chooses the port, and requests
    /// must name that one.
    pub fn listen(
        bind: BindAddress,
        guard: impl FnOnce(BindAddress) -> OriginGuard,
        certificate: Option<Certificate>,
    ) -> Result<Self, TcpListenError> {
        if bind.transport() == BindTransport::Tls && certificate.is_none() {
            return Err(TcpListenError::NoCertificate);
        }
        let failed = |error| TcpListenError::Bind { bind, error };
        let listener = StdListener::bind(bind.address()).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bind = bind.at_port(listener.local_addr().map_err(failed)?.port());
        Ok(Self { listener, bind, guard: guard(bind), certificate })
    }

    pub fn bind(&self) -> BindAddress {
        self.bind
    }

    /// Fingerprint of the certificate.
    pub fn fingerprint(&self) -> Option<&str> {
        self.certificate.as_ref().map(Certificate::fingerprint)
    }

    /// Checks host and origin before the request is routed.
    pub(crate) fn admit(&self, head: &Parts) -> Result<(), ApiError> {
        self.guard.admit(head).map_err(|turned| turned_away(&turned))
    }

    /// The presented token: from a header, or from a cookie with its CSRF token.
    pub(crate) fn token(&self, head: &Parts) -> Result<Option<String>, ApiError> {
        match shown(head, self.bind.transport()) {
            PresentedCredential::Nothing => Ok(None),
            PresentedCredential::Bearer(token) => Ok(Some(token.to_owned())),
            PresentedCredential::Strange => Err(unauthenticated(
                "the header `Authorization` is not `Bearer TOKEN`",
                RuleId::IdentityNoToken,
            )),
            // The cookie alone is not enough: authentication checks both parts.
            PresentedCredential::Cookie { token, csrf } => Ok(Some(of_browser(token, csrf).to_string())),
        }
    }

    pub(crate) fn secure(&self, headers: &mut HeaderMap) {
        secure(headers, self.bind.transport());
    }

    pub(crate) fn transport(&self) -> BindTransport {
        self.bind.transport()
    }
}

fn turned_away(turned: &RequestRejection) -> ApiError {
    let code = match turned.status().as_u16() {
        403 | 421 => ErrorCode::Forbidden,
        _ => ErrorCode::InvalidArgument,
    };
    ApiError::new(code, turned.to_string()).with_rule(turned.rule()).with_hint(turned.hint())
}

/// Accepts and serves connections.
pub(crate) async fn accept(daemon: Arc<Daemon>, network: Arc<TcpListenerConfig>) -> std::io::Result<()> {
    let listener = TcpListener::from_std(network.listener.try_clone()?)?;
    let tls = network.certificate.as_ref().map(|certificate| TlsAcceptor::from(certificate.config()));
    let (places, sources) = (Budget::new(CONNECTIONS), KeyedBudgets::new(CONNECTIONS_OF_A_SOURCE));
    loop {
        let Some(place) = places.acquire(1).await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, address)) => {
                // Closed at once: a waiting connection would queue in front of the other sources.
                let Some(seat) = sources.of(source_of(address.ip())).try_acquire(1) else {
                    tracing::debug!(from = %address.ip(), "too many connections from one source");
                    continue;
                };
                let line = serve_one(
                    Arc::clone(&daemon),
                    Arc::clone(&network),
                    tls.clone(),
                    stream,
                    address.ip().to_canonical(),
                );
                let _line = tokio::spawn(async move {
                    line.await;
                    drop((place, seat));
                });
            }
            Err(error) => {
                tracing::warn!(error = %error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve_one(
    daemon: Arc<Daemon>,
    network: Arc<TcpListenerConfig>,
    tls: Option<TlsAcceptor>,
    stream: TcpStream,
    address: IpAddr,
) {
    let entrance = ListenerKind::Network(address);
    let Some(tls) = tls else { return attend(daemon, stream, entrance, None, Some(network)).await };
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => attend(daemon, stream, entrance, None, Some(network)).await,
        Ok(Err(error)) => tracing::debug!(error = %error, "TLS handshake failed"),
        Err(_late) => tracing::debug!("TLS handshake timed out"),
    }
}
