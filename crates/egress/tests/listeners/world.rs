//! A proxy on the loopback, and those it is between.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hickory_proto::op::{Message, Metadata, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record};
use ringfence_egress::{NameServers, Proxy, ProxyListeners, ProxySettings};

use crate::clerk::Clerk;

pub(crate) const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Nothing here takes long; what takes this long hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) clerk: Arc<Clerk>,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) door: SocketAddr,
    pub(crate) dns: SocketAddr,
    pub(crate) dns_stream: SocketAddr,
}

impl World {
    /// A proxy whose names are answered by a server that says 127.0.0.1 to everything.
    pub(crate) fn new(clerk: Clerk) -> Self {
        Self::with(clerk, |_| {})
    }

    pub(crate) fn with(clerk: Clerk, change: impl FnOnce(&mut ProxySettings)) -> Self {
        let mut settings =
            ProxySettings { names: NameServers::Only(vec![honest()]), ..ProxySettings::default() };
        settings.times.resolve = Duration::from_secs(8);
        change(&mut settings);
        Self::start(clerk, settings, None)
    }

    pub(crate) fn start(clerk: Clerk, settings: ProxySettings, transparent: Option<TcpListener>) -> Self {
        let doors = ProxyListeners {
            proxy: TcpListener::bind((HERE, 0)).unwrap(),
            transparent,
            dns: UdpSocket::bind((HERE, 0)).unwrap(),
            dns_stream: TcpListener::bind((HERE, 0)).unwrap(),
        };
        let door = doors.proxy.local_addr().unwrap();
        let dns = doors.dns.local_addr().unwrap();
        let dns_stream = doors.dns_stream.local_addr().unwrap();
        let clerk = Arc::new(clerk);
        let proxy = Proxy::start(doors, Arc::clone(&clerk) as _, settings).unwrap();
        Self { clerk, proxy: Some(proxy), door, dns, dns_stream }
    }

    pub(crate) fn client(&self) -> TcpStream {
        dialled(self.door)
    }

    /// Sends bytes to the proxy and reads all it answers.
    pub(crate) fn exchange(&self, bytes: &[u8]) -> String {
        let mut client = self.client();
        client.write_all(bytes).unwrap();
        read_to_end(&mut client)
    }

    /// A tunnel by `CONNECT`, after the proxy has said yes.
    pub(crate) fn tunnel(&self, target: &str) -> TcpStream {
        let mut client = self.client();
        write!(client, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
        let head = read_head(&mut client);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        client
    }
}

pub(crate) fn dialled(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// All that comes; a reset is an end, silence is a failure.
pub(crate) fn read_to_end(stream: &mut TcpStream) -> String {
    String::from_utf8_lossy(&read_bytes(stream)).into_owned()
}

pub(crate) fn read_bytes(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "after {bytes:?}");
    }
    bytes
}

pub(crate) fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap() == 0 {
            break;
        }
        head.extend(byte);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// A server that handles each connection in a thread of its own.
pub(crate) fn server(handle: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    serve(listener, handle);
    address
}

pub(crate) fn serve(listener: TcpListener, handle: impl Fn(TcpStream) + Send + Sync + 'static) {
    let handle = Arc::new(handle);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let handle = Arc::clone(&handle);
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            thread::spawn(move || handle(stream));
        }
    });
}

/// Sends back what comes, and ends when the client does.
pub(crate) fn echo() -> SocketAddr {
    server(echoing)
}

pub(crate) fn echoing(mut stream: TcpStream) {
    let mut buffer = [0; 65536];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

/// What a name server says to one question.
pub(crate) enum Says {
    Data(Vec<RData>),
    /// Further names, and then data for the last.
    Chain(Vec<&'static str>, Vec<RData>),
    Code(ResponseCode),
    Silence,
    Garbage(Vec<u8>),
}

pub(crate) fn a(text: &str) -> RData {
    match text.parse().unwrap() {
        std::net::IpAddr::V4(address) => RData::A(A(address)),
        std::net::IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    }
}

fn honest() -> SocketAddr {
    names(|_, _| Says::Data(vec![a("127.0.0.1")]))
}

/// A name server on UDP and TCP. The rule sees the question and how many there were before.
pub(crate) fn names(rule: impl Fn(&Query, usize) -> Says + Send + Sync + 'static) -> SocketAddr {
    let (socket, listener) = bind_both();
    let address = socket.local_addr().unwrap();
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let rule = Arc::new(move |bytes: &[u8]| {
        let count = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let query = Message::from_vec(bytes).unwrap();
        let says = rule(&query.queries[0], count);
        reply(&query, says)
    });
    let over_stream = Arc::clone(&rule);
    serve(listener, move |mut stream| {
        let mut length = [0; 2];
        while stream.read_exact(&mut length).is_ok() {
            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut query).unwrap();
            let Some(answer) = over_stream(&query) else { return };
            stream.write_all(&u16::try_from(answer.len()).unwrap().to_be_bytes()).unwrap();
            stream.write_all(&answer).unwrap();
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((count, peer)) = socket.recv_from(&mut buffer) {
            if let Some(answer) = rule(&buffer[..count]) {
                let _ = socket.send_to(&shorten(answer), peer);
            }
        }
    });
    address
}

/// The same port of both kinds: other tests take ports too.
fn bind_both() -> (UdpSocket, TcpListener) {
    loop {
        let listener = TcpListener::bind((HERE, 0)).unwrap();
        if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()) {
            return (socket, listener);
        }
    }
}

fn reply(query: &Message, says: Says) -> Option<Vec<u8>> {
    let mut answer = Message::query();
    answer.metadata = Metadata::response_from_request(&query.metadata);
    answer.add_queries(query.queries.iter().cloned());
    let asked = &query.queries[0];
    let fits = |data: &RData| data.record_type() == asked.query_type();
    match says {
        Says::Silence => return None,
        Says::Garbage(bytes) => {
            let id = query.metadata.id.to_be_bytes();
            return Some(id.into_iter().chain(bytes).collect());
        }
        Says::Code(code) => answer.metadata.response_code = code,
        Says::Data(data) => {
            let records = data.into_iter().filter(fits);
            answer.add_answers(records.map(|data| Record::from_rdata(asked.name().clone(), 0, data)));
        }
        Says::Chain(names, data) => {
            let mut owner = asked.name().clone();
            for name in names {
                let next = Name::from_ascii(name).unwrap();
                answer.add_answer(Record::from_rdata(owner, 0, RData::CNAME(CNAME(next.clone()))));
                owner = next;
            }
            let records = data.into_iter().filter(fits);
            answer.add_answers(records.map(|data| Record::from_rdata(owner.clone(), 0, data)));
        }
    }
    Some(answer.to_vec().unwrap())
}

/// What does not fit into a datagram is asked for again over TCP.
fn shorten(answer: Vec<u8>) -> Vec<u8> {
    match Message::from_vec(&answer) {
        Ok(message) if answer.len() > 1200 => message.truncate().to_vec().unwrap(),
        _ => answer,
    }
}

/// The first message of a TLS client that asks for a name, or for none.
pub(crate) fn hello(name: Option<&str>) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.enable_sni = name.is_some();
    let server = name.unwrap_or("nobody.test").to_owned().try_into().unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), server).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}
