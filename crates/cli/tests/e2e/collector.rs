//! A collector of OTLP over HTTP on loopback, which behaves as a test wants it to, and what it was sent.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use prost::{Message, Oneof};

use crate::test_timeouts::Patient;
use crate::testkit::{contains, eventually};

/// How it treats whoever sends something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Takes,
    /// Asks for patience so often, then takes.
    Later(usize),
    /// Never takes anything.
    Refuses,
    /// Says that it took it, except for one.
    TakesButOne,
    /// Says nothing.
    Silent,
    /// Takes, and does not come to an end about it.
    Endless,
    /// Does not come to the end of its head.
    EndlessHead,
    /// Sends whoever comes to another place.
    Elsewhere(u16),
}

#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Sent {
    fn is_to(&self, path: &str) -> bool {
        self.head.starts_with(&format!("POST {path} HTTP/1.1\r\n"))
    }
}

#[derive(Clone)]
pub(crate) struct Collector {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    manner: Mutex<Manner>,
    taken: Mutex<Vec<Sent>>,
    /// Also of what was not taken.
    all: Mutex<Vec<Sent>>,
    connections: AtomicUsize,
    /// Bytes that an endless answer came to.
    answered: AtomicUsize,
}

impl Collector {
    pub(crate) fn new(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector = Self::with(manner, listener.local_addr().unwrap().port());
        let own = collector.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                own.attend(stream.unwrap());
            }
        });
        collector
    }

    /// At a socket.
    pub(crate) fn at(path: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let collector = Self::with(Manner::Takes, 0);
        let own = collector.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                own.attend(stream.unwrap());
            }
        });
        collector
    }

    /// Behind TLS, with this certificate.
    pub(crate) fn behind(config: Arc<rustls::ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector = Self::with(Manner::Takes, listener.local_addr().unwrap().port());
        let own = collector.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream: TcpStream = stream.unwrap();
                let tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
                own.counted();
                let own = own.clone();
                thread::spawn(move || own.serve(&mut rustls::StreamOwned::new(tls, Patient(stream))));
            }
        });
        collector
    }

    fn with(manner: Manner, port: u16) -> Self {
        let shared = Shared {
            manner: Mutex::new(manner),
            taken: Mutex::default(),
            all: Mutex::default(),
            connections: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
        };
        Self { port, shared: Arc::new(shared) }
    }

    pub(crate) fn behave(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap() = manner;
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn answered(&self) -> usize {
        self.shared.answered.load(Ordering::SeqCst)
    }

    fn counted(&self) {
        self.shared.connections.fetch_add(1, Ordering::SeqCst);
    }

    fn attend<S: Read + Write + AsFd + Send + 'static>(&self, stream: S) {
        self.counted();
        let own = self.clone();
        thread::spawn(move || own.serve(&mut Patient(stream)));
    }

    fn serve(&self, stream: &mut (impl Read + Write)) {
        // Whoever goes away in the middle has sent nothing.
        let Ok(sent) = read(stream) else { return };
        self.shared.all.lock().unwrap().push(sent.clone());
        let manner = {
            let mut manner = self.shared.manner.lock().unwrap();
            let now = *manner;
            if let Manner::Later(times) = now {
                *manner = if times > 1 { Manner::Later(times - 1) } else { Manner::Takes };
            }
            now
        };
        let takes = matches!(manner, Manner::Takes | Manner::Endless | Manner::TakesButOne);
        if takes {
            self.shared.taken.lock().unwrap().push(sent);
        }
        let _gone = self.answer(stream, manner);
    }

    fn answer(&self, stream: &mut (impl Read + Write), manner: Manner) -> io::Result<()> {
        match manner {
            Manner::Takes => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?,
            Manner::TakesButOne => {
                // `partial_success { rejected: 1 }`
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x0a\x02\x08\x01")?;
            }
            Manner::Later(_) => {
                let head = "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(head.as_bytes())?;
            }
            Manner::Refuses => stream.write_all(b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n")?,
            Manner::Elsewhere(port) => {
                let to = format!("http://127.0.0.1:{port}/v1/logs");
                let head = format!("HTTP/1.1 307 There\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
                stream.write_all(head.as_bytes())?;
            }
            Manner::Silent => {
                let _closed = stream.read(&mut [0]);
            }
            Manner::Endless => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")?;
                self.without_end(stream, &[b'x'; 4096])?;
            }
            Manner::EndlessHead => {
                stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
                self.without_end(stream, b"x-more: of the same, and so on without an end\r\n")?;
            }
        }
        stream.flush()
    }

    fn without_end(&self, stream: &mut impl Write, piece: &[u8]) -> io::Result<()> {
        loop {
            stream.write_all(piece)?;
            self.shared.answered.fetch_add(piece.len(), Ordering::SeqCst);
        }
    }

    fn taken(&self, path: &str) -> Vec<Sent> {
        self.shared.taken.lock().unwrap().iter().filter(|sent| sent.is_to(path)).cloned().collect()
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        let requests = self.taken("/v1/traces");
        let read = requests.iter().map(|sent| TracesRequest::decode(sent.body.as_slice()).unwrap());
        let scopes =
            read.flat_map(|request| request.resource_spans).flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }

    pub(crate) fn records(&self) -> Vec<LogRecord> {
        let requests = self.taken("/v1/logs");
        let read = requests.iter().map(|sent| LogsRequest::decode(sent.body.as_slice()).unwrap());
        let scopes = read.flat_map(|request| request.resource_logs).flat_map(|resource| resource.scope_logs);
        scopes.flat_map(|scope| scope.log_records).collect()
    }

    pub(crate) fn resources(&self) -> Vec<KeyValue> {
        let requests = self.taken("/v1/logs");
        let read = requests.iter().map(|sent| LogsRequest::decode(sent.body.as_slice()).unwrap());
        let resources = read.flat_map(|request| request.resource_logs).filter_map(|logs| logs.resource);
        resources.flat_map(|resource| resource.attributes).collect()
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.shared.all.lock().unwrap().iter().map(|sent| sent.head.clone()).collect()
    }

    /// In what was sent, also where it was not taken; apart from what is in headers.
    pub(crate) fn has(&self, bytes: &[u8]) -> bool {
        self.shared.all.lock().unwrap().iter().any(|sent| contains(&sent.body, bytes))
    }

    /// A record of this kind comes.
    pub(crate) fn gets(&self, kind: &str) {
        let name = format!("ringfence.{kind}");
        eventually(&format!("{name} comes"), || {
            self.records().iter().any(|record| record.event_name == name)
        });
    }
}

fn read(stream: &mut impl Read) -> io::Result<Sent> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&buffer[..length]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end + 2].to_vec()).unwrap();
        let lengths = head.lines().filter_map(|line| line.split_once(": "));
        let length = lengths.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length: usize = length.map(|(_, value)| value.parse().unwrap()).next().unwrap_or(0);
        if bytes.len() >= end + 4 + length {
            return Ok(Sent { head, body: bytes[end + 4..].to_vec() });
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct TracesRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct LogsRequest {
    #[prost(message, repeated, tag = "1")]
    resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_logs: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeLogs {
    #[prost(message, repeated, tag = "2")]
    log_records: Vec<LogRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    #[prost(fixed64, tag = "7")]
    pub(crate) start: u64,
    #[prost(fixed64, tag = "8")]
    pub(crate) end: u64,
    #[prost(message, repeated, tag = "9")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LogRecord {
    #[prost(message, optional, tag = "5")]
    pub(crate) body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(bytes = "vec", tag = "9")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    pub(crate) span_id: Vec<u8>,
    #[prost(string, tag = "12")]
    pub(crate) event_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    pub(crate) value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

/// What an attribute says, as text.
pub(crate) fn said(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::Text(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
    }
}
