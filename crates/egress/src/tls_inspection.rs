//! TLS inspection: the proxy terminates TLS with a leaf of the session's CA, and every request is a flow of its own.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ringfence_types::{PolicyLayer, Refusal, RefusalCode, RuleId};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::{ServerConfig, sign::CertifiedKey};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};

use crate::credential::CredentialScheme;
use crate::error_response::ProxyBody;
use crate::exchange;
use crate::flow_gate::{FlowEnd, FlowIngress, FlowTarget};
use crate::live_flow::{LiveFlow, ProxyState};
use crate::request_target::RequestOrigin;

const MOST_HEADERS: usize = 128;
const LONGEST_HEAD: usize = 64 << 10;
const LONGEST_HEADER_LIST: u32 = 64 << 10;
const MOST_STREAMS: u32 = 128;

/// Serves the requests of one TLS connection to the target of `live`.
pub(crate) async fn serve<I>(io: I, live: LiveFlow, shared: Arc<ProxyState>)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let accepted = timeout(shared.settings.times.head, accept(io, &live.flow().target, &shared)).await;
    let stream = match accepted {
        Ok(Ok(stream)) => stream,
        Ok(Err(end)) => return live.end(end),
        Err(_elapsed) => {
            return live.end(FlowEnd::Failed("the client did not finish its handshake".to_owned()));
        }
    };
    let (way, target) = (live.flow().way, live.flow().target.clone());
    let end = match requests(stream, way, target, &shared).await {
        Ok(()) => FlowEnd::Done,
        Err(error) => FlowEnd::Failed(format!("the client closed the connection: {error}")),
    };
    live.end(end);
}

async fn accept<I>(io: I, target: &FlowTarget, shared: &ProxyState) -> Result<TlsStream<I>, FlowEnd>
where
    I: AsyncRead + AsyncWrite + Send + Unpin,
{
    let broken = |error: std::io::Error| FlowEnd::Failed(format!("TLS with the client failed: {error}"));
    let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), io).await.map_err(broken)?;
    let name = start.client_hello().server_name().map(str::to_owned);
    let agrees = name.as_deref().is_none_or(|name| target.is_called(name));
    let config = match (&shared.settings.http.ca, agrees) {
        (Some(ca), true) => ca.server(&target.host).map_err(|error| no_authority(target, &error.to_string())),
        (None, true) => Err(no_authority(target, "the session has none")),
        (_, false) => Err(other_name(target, name.as_deref().unwrap_or_default())),
    };
    match config {
        Ok(config) => start.into_stream(config).await.map_err(broken),
        Err(refusal) => Err(turn_away(start, refusal).await),
    }
}

/// Sends a TLS alert.
async fn turn_away<I>(start: StartHandshake<I>, refusal: Refusal) -> FlowEnd
where
    I: AsyncRead + AsyncWrite + Send + Unpin,
{
    #[derive(Debug)]
    struct Nobody;
    impl ResolvesServerCert for Nobody {
        fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            None
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    if let Ok(builder) = builder {
        let config = builder.with_no_client_auth().with_cert_resolver(Arc::new(Nobody));
        // Ends in an alert, because there is no certificate.
        let _alert = start.into_stream(Arc::new(config)).await;
    }
    FlowEnd::Refused(refusal)
}

async fn requests<I>(
    stream: TlsStream<I>,
    way: FlowIngress,
    target: FlowTarget,
    shared: &Arc<ProxyState>,
) -> Result<(), hyper::Error>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let shared_again = shared.clone();
    let service = service_fn(move |request| {
        let (target, shared) = (target.clone(), shared_again.clone());
        async move { Ok::<_, Infallible>(handle(request, way, target, &shared).await) }
    });
    let times = shared.settings.times;
    if http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .adaptive_window(true)
            .max_header_list_size(LONGEST_HEADER_LIST)
            .max_concurrent_streams(MOST_STREAMS)
            .keep_alive_interval(Some(times.silence))
            .keep_alive_timeout(times.head);
        return builder.serve_connection(TokioIo::new(stream), service).await;
    }
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(times.silence).max_headers(MOST_HEADERS);
    builder.max_buf_size(LONGEST_HEAD).half_close(false);
    builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await
}

async fn handle(
    request: Request<Incoming>,
    way: FlowIngress,
    target: FlowTarget,
    shared: &Arc<ProxyState>,
) -> Response<ProxyBody> {
    let path = request.uri().path_and_query().cloned();
    let path = path.unwrap_or(http::uri::PathAndQuery::from_static("/"));
    let origin = RequestOrigin::known(way, target, CredentialScheme::Https, path);
    exchange::run(request.map(|body| body.map_err(Into::into).boxed()), origin, shared).await
}

fn other_name(target: &FlowTarget, name: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: PolicyLayer::Floor,
        rule: RuleId::NetworkNamesAgree.into(),
        message: format!("TLS asks for `{}`, but the connection is to `{target}`", name.escape_debug()),
        hint: Some("connect to the requested host".to_owned()),
    }
}

/// A flow that cannot be inspected is refused, never tunnelled.
fn no_authority(target: &FlowTarget, why: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: PolicyLayer::Floor,
        rule: RuleId::NetworkInspect.into(),
        message: format!("`{target}` is to be inspected, and there is no authority for that: {why}"),
        hint: None,
    }
}
