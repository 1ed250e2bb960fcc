//! A proxy that inspects, servers with certificates of the test's own root, and clients that trust the session's authority.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hickory_proto::op::{Message, Metadata};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use ringfence_egress::{
    AddressScope, AwsSigningKey, CredentialSet, DialPermit, Flow, FlowEnd, FlowGate, FlowIngress, FlowTerms,
    FlowTreatment, FlowVerdict, HttpSettings, LeakReport, NameServers, Proxy, ProxyListeners, ProxySettings,
    SessionCa, SessionCredential, Traffic,
};
use ringfence_types::{CredentialLocation, HostPattern, PolicyLayer, Refusal, RefusalCode};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use zeroize::Zeroizing;

pub(crate) const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Body = BoxBody<Bytes, Error>;

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// Who signs for servers.
pub(crate) struct Root {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Root {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn config(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> ServerConfig {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap()
    }
}

/// What a server saw of a request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
    /// Not broken off.
    pub(crate) whole: bool,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(crate) type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

pub(crate) struct Server {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) connections: Arc<std::sync::atomic::AtomicUsize>,
}

impl Server {
    /// Tells back what it was sent: headers, one per line, and the body.
    pub(crate) async fn echo(root: &Root, names: &[&str]) -> Self {
        Self::answering(root, names, |seen| Box::pin(async move { Response::new(full(told(&seen))) })).await
    }

    pub(crate) async fn answering(
        root: &Root,
        names: &[&str],
        answer: impl Fn(Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let mut config = root.config(names, |_| {});
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self::start(Some(config), answer).await
    }

    pub(crate) async fn http1(
        root: &Root,
        names: &[&str],
        answer: impl Fn(Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::start(Some(root.config(names, |_| {})), answer).await
    }

    /// Whose certificate is as the test wants it.
    pub(crate) async fn odd(
        root: &Root,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let config = root.config(names, change);
        Self::start(Some(config), |seen| Box::pin(async move { Response::new(full(told(&seen))) })).await
    }

    pub(crate) async fn plain() -> Self {
        Self::start(None, |seen| Box::pin(async move { Response::new(full(told(&seen))) })).await
    }

    pub(crate) async fn start(
        config: Option<ServerConfig>,
        answer: impl Fn(Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (noted, answer) = (seen.clone(), Arc::new(answer));
        Self::raw(config, seen, move |request| {
            let (noted, answer) = (noted.clone(), answer.clone());
            Box::pin(async move {
                let seen = see(request).await;
                noted.lock().unwrap().push(seen.clone());
                answer(seen).await
            })
        })
        .await
    }

    /// Handles requests as they come, before their bodies have.
    pub(crate) async fn raw(
        config: Option<ServerConfig>,
        seen: Arc<Mutex<Vec<Seen>>>,
        handle: impl Fn(Request<Incoming>) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::TcpListener::bind((HERE, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = config.map(|config| TlsAcceptor::from(Arc::new(config)));
        let handle = Arc::new(handle);
        let connections: Arc<std::sync::atomic::AtomicUsize> = Arc::default();
        let counted = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                stream.set_nodelay(true).unwrap();
                let (acceptor, handle) = (acceptor.clone(), handle.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let handle = handle.clone();
                        async move { Ok::<_, Infallible>(handle(request).await) }
                    });
                    let Some(acceptor) = acceptor else {
                        let _ = hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service)
                            .with_upgrades()
                            .await;
                        return;
                    };
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                            .serve_connection(TokioIo::new(stream), service)
                            .await;
                    } else {
                        let _ = hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service)
                            .with_upgrades()
                            .await;
                    }
                });
            }
        });
        Self { port, seen, connections }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Everything that arrived here, in one text.
    pub(crate) fn all(&self) -> String {
        self.seen().iter().map(|seen| format!("{} {}\n{}", seen.method, seen.uri, told(seen))).collect()
    }
}

pub(crate) fn tls(root: &Root, names: &[&str]) -> ServerConfig {
    let mut config = root.config(names, |_| {});
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

async fn see(request: Request<Incoming>) -> Seen {
    let (parts, mut body) = request.into_parts();
    let (mut bytes, mut trailers, mut whole) = (Vec::new(), None, true);
    while let Some(frame) = body.frame().await {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(data)) => bytes.extend_from_slice(&data),
            Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
            Err(_) => {
                whole = false;
                break;
            }
        }
    }
    let http::request::Parts { method, uri, headers, .. } = parts;
    Seen { method, uri, headers, body: bytes, trailers, whole }
}

pub(crate) fn told(seen: &Seen) -> String {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()))
    };
    let headers: String = seen.headers.iter().map(line).collect();
    let trailers: String = seen.trailers.iter().flatten().map(line).collect();
    format!("{}\n{headers}\n{}{trailers}", seen.uri, String::from_utf8_lossy(&seen.body))
}

#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) judged: Vec<Flow>,
    pub(crate) leaks: Vec<(Flow, LeakReport)>,
    pub(crate) ended: Vec<(Flow, Traffic, FlowEnd)>,
}

type Rule = Box<dyn Fn(&Flow) -> Result<(), Refusal> + Send + Sync>;

pub(crate) struct Clerk {
    rule: Rule,
    notes: Mutex<Notes>,
}

/// Leave to dial, of a gate that keeps no record.
#[derive(Debug)]
struct PlainPermit(SocketAddr);

impl DialPermit for PlainPermit {
    fn address(&self) -> SocketAddr {
        self.0
    }
}

impl FlowGate for Clerk {
    fn judge(&self, flow: &Flow) -> FlowVerdict {
        self.notes.lock().unwrap().judged.push(flow.clone());
        match (self.rule)(flow) {
            Ok(()) => FlowVerdict::Pass(FlowTerms {
                treatment: FlowTreatment::Inspect,
                reach: AddressScope::Special,
            }),
            Err(refusal) => FlowVerdict::Refuse(refusal),
        }
    }

    fn answers(&self, _name: &str) -> bool {
        true
    }

    fn opens(&self, flow: &Flow, address: IpAddr) -> Result<Box<dyn DialPermit>, Refusal> {
        Ok(Box::new(PlainPermit(SocketAddr::new(address, flow.target.port))))
    }

    fn finding(&self, flow: &Flow, leak: &LeakReport) {
        self.notes.lock().unwrap().leaks.push((flow.clone(), leak.clone()));
    }

    fn malformed(&self, _way: FlowIngress, _why: &str) {}

    fn ended(&self, flow: &Flow, traffic: Traffic, end: &FlowEnd) {
        self.notes.lock().unwrap().ended.push((flow.clone(), traffic, end.clone()));
    }
}

pub(crate) fn no(rule: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: PolicyLayer::Session,
        rule: ringfence_types::RuleName::of_scanner(rule),
        message: "no".into(),
        hint: None,
    }
}

pub(crate) struct World {
    proxy: Option<Proxy>,
    pub(crate) door: SocketAddr,
    clerk: Arc<Clerk>,
    inside: RootCertStore,
}

impl World {
    /// Hosts that begin with `denied` are; everything else is inspected.
    pub(crate) fn new(root: &Root, change: impl FnOnce(&mut HttpSettings)) -> Self {
        let rule = |flow: &Flow| {
            if flow.target.host.to_string().starts_with("denied") { Err(no("denied")) } else { Ok(()) }
        };
        Self::ruled(root, Box::new(rule), change)
    }

    pub(crate) fn ruled(root: &Root, rule: Rule, change: impl FnOnce(&mut HttpSettings)) -> Self {
        Self::settled(root, rule, |settings| change(&mut settings.http))
    }

    pub(crate) fn settled(root: &Root, rule: Rule, change: impl FnOnce(&mut ProxySettings)) -> Self {
        let ca = Arc::new(SessionCa::new().unwrap());
        let mut inside = RootCertStore::empty();
        inside.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
        let extra_roots = root.pem.clone().into_bytes();
        let mut settings = ProxySettings {
            names: NameServers::Only(vec![names()]),
            http: HttpSettings { ca: Some(ca), extra_roots, ..HttpSettings::default() },
            ..ProxySettings::default()
        };
        settings.limits.flows_per_second = 100_000;
        change(&mut settings);
        let doors = ProxyListeners {
            proxy: TcpListener::bind((HERE, 0)).unwrap(),
            transparent: None,
            dns: UdpSocket::bind((HERE, 0)).unwrap(),
            dns_stream: TcpListener::bind((HERE, 0)).unwrap(),
        };
        let door = doors.proxy.local_addr().unwrap();
        let clerk = Arc::new(Clerk { rule, notes: Mutex::default() });
        let proxy = Proxy::start(doors, clerk.clone(), settings).unwrap();
        Self { proxy: Some(proxy), door, clerk, inside }
    }

    /// Ends the proxy, so that every end has been told, and gives what was noted.
    pub(crate) async fn notes(mut self) -> Notes {
        let proxy = self.proxy.take();
        tokio::task::spawn_blocking(move || drop(proxy)).await.unwrap();
        std::mem::take(&mut *self.clerk.notes.lock().unwrap())
    }

    pub(crate) fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().unwrap()
    }

    /// A tunnel to `target`.
    pub(crate) async fn tunnel(&self, target: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.door).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
        stream
    }

    pub(crate) async fn tls(
        &self,
        target: &str,
        (sni, alpn): (&str, &str),
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.inside.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let name = ServerName::try_from(sni.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, self.tunnel(target).await).await
    }

    pub(crate) async fn http1(&self, target: &str) -> http1::SendRequest<Body> {
        let name = target.rsplit_once(':').unwrap().0;
        let stream = self.tls(target, (name, "http/1.1")).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        sender
    }

    pub(crate) async fn http2(&self, target: &str) -> http2::SendRequest<Body> {
        let name = target.rsplit_once(':').unwrap().0;
        let stream = self.tls(target, (name, "h2")).await.unwrap();
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// One request over a new connection.
    pub(crate) async fn send(&self, target: &str, request: Request<Body>) -> (u16, HeaderMap, String) {
        let mut request = request;
        if !request.headers().contains_key("host") {
            request.headers_mut().insert("host", target.parse().unwrap());
        }
        let response = self.http1(target).await.send_request(request).await.unwrap();
        taken(response).await
    }

    /// Bytes as they are, inside TLS; everything that comes back.
    pub(crate) async fn bytes(&self, target: &str, bytes: &[u8]) -> String {
        let name = target.rsplit_once(':').unwrap().0;
        let mut stream = self.tls(target, (name, "http/1.1")).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let proxy = self.proxy.take();
        // It has a runtime of its own, which may not be dropped inside of another.
        std::thread::spawn(move || drop(proxy)).join().unwrap();
    }
}

pub(crate) async fn taken(response: Response<Incoming>) -> (u16, HeaderMap, String) {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    (parts.status.as_u16(), parts.headers, String::from_utf8_lossy(&bytes).into_owned())
}

pub(crate) fn get(path: &str) -> http::request::Builder {
    Request::get(path)
}

/// Says 127.0.0.1 to everything.
fn names() -> SocketAddr {
    let socket = UdpSocket::bind((HERE, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((count, peer)) = socket.recv_from(&mut buffer) {
            let query = Message::from_vec(&buffer[..count]).unwrap();
            let mut answer = Message::query();
            answer.metadata = Metadata::response_from_request(&query.metadata);
            answer.add_queries(query.queries.iter().cloned());
            let asked = &query.queries[0];
            let data = RData::A(A(HERE));
            if data.record_type() == asked.query_type() {
                answer.add_answer(Record::from_rdata(asked.name().clone(), 60, data));
            }
            socket.send_to(&answer.to_vec().unwrap(), peer).unwrap();
        }
    });
    address
}

/// A secret for a host: its placeholder and its value.
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) placeholder: String,
    pub(crate) value: String,
    pub(crate) hosts: Vec<String>,
    pub(crate) places: Vec<CredentialLocation>,
}

impl Key {
    pub(crate) fn new(name: &str, hosts: &[&str]) -> Self {
        Self {
            name: name.into(),
            placeholder: format!("rf_placeholder_{name}_{}", "7f3a91c2".repeat(4)),
            value: format!("real+{name}/{}", "Zq81".repeat(6)),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            places: Vec::new(),
        }
    }

    pub(crate) fn credential(&self) -> SessionCredential {
        SessionCredential {
            name: self.name.clone(),
            placeholder: Some(Zeroizing::new(self.placeholder.clone())),
            value: Zeroizing::new(self.value.clone().into_bytes()),
            hosts: self.hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
            places: self.places.clone(),
        }
    }
}

pub(crate) fn secrets(keys: &[&Key]) -> Arc<CredentialSet> {
    signing(keys, Vec::new())
}

pub(crate) fn signing(keys: &[&Key], signings: Vec<AwsSigningKey>) -> Arc<CredentialSet> {
    let credentials = keys.iter().map(|key| key.credential()).collect();
    Arc::new(CredentialSet::new(credentials, signings, None).unwrap())
}

/// The requests among the flows that ended.
pub(crate) fn requests(notes: &Notes) -> Vec<(&Flow, &FlowEnd)> {
    let requests = notes.ended.iter().filter(|(flow, ..)| flow.request.is_some());
    requests.map(|(flow, _, end)| (flow, end)).collect()
}

pub(crate) fn is_refused(end: &FlowEnd, rule: &str) -> bool {
    matches!(end, FlowEnd::Refused(refusal) if refusal.rule == rule)
}
