//! Stub resolver inside the namespace. It answers names that policy allows with synthetic addresses and never forwards a query.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, PTR};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use ringfence_types::{Host, HostPattern};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::limits::FlowRate;
use crate::live_flow::ProxyState;
use crate::synthetic_addresses::AddressMeaning;

/// Answers do not change, so the TTL only limits how often programs ask again.
const TTL: u32 = 60;
/// A query is one name of at most 255 bytes and a few options.
const LONGEST_QUERY: usize = 4096;
const QUERIES_AT_ONCE: usize = 64;
/// Pause after an error of the socket.
const BROKEN: Duration = Duration::from_millis(20);

/// Address families in which clients inside can connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressFamilies {
    V4,
    Both,
}

#[derive(Debug)]
pub(crate) struct StubResolver {
    shared: Arc<ProxyState>,
    rate: FlowRate,
    families: AddressFamilies,
}

impl StubResolver {
    pub(crate) fn new(shared: Arc<ProxyState>, families: AddressFamilies) -> Self {
        let rate = FlowRate::new(shared.settings.limits.queries_per_second);
        Self { shared, rate, families }
    }

    pub(crate) async fn serve_datagrams(self: Arc<Self>, socket: UdpSocket) {
        let socket = Arc::new(socket);
        let places = Arc::new(Semaphore::new(QUERIES_AT_ONCE));
        let mut buffer = vec![0; LONGEST_QUERY];
        loop {
            let Ok((length, peer)) = socket.recv_from(&mut buffer).await else {
                tokio::time::sleep(BROKEN).await;
                continue;
            };
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let query = buffer.get(..length).unwrap_or_default().to_vec();
            let (server, socket) = (Arc::clone(&self), Arc::clone(&socket));
            tokio::spawn(async move {
                if let Some(answer) = server.answer(&query).await {
                    let _lost = socket.send_to(&answer, peer).await;
                }
                drop(place);
            });
        }
    }

    pub(crate) async fn serve_stream(self: Arc<Self>, mut stream: TcpStream) {
        let times = self.shared.settings.times;
        while let Ok(Ok(query)) = timeout(times.head, read_framed(&mut stream)).await {
            let Some(answer) = self.answer(&query).await else { return };
            let Ok(length) = u16::try_from(answer.len()) else { return };
            let mut framed = length.to_be_bytes().to_vec();
            framed.extend_from_slice(&answer);
            if !matches!(timeout(times.head, stream.write_all(&framed)).await, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// Answers one message; `None` if it is not a query.
    async fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let Ok(query) = Message::from_vec(bytes) else { return malformed(bytes) };
        if query.metadata.message_type != MessageType::Query {
            return None;
        }
        let mut answer = Message::query();
        answer.metadata = Metadata::response_from_request(&query.metadata);
        answer.metadata.recursion_available = true;
        answer.add_queries(query.queries.iter().cloned());
        let found = if self.rate.admits() { self.find(&query).await } else { Err(ResponseCode::Refused) };
        match found {
            Ok(records) => answer.insert_answers(records),
            Err(code) => answer.metadata.response_code = code,
        }
        if query.edns.is_some() {
            answer.set_edns(Edns::new());
        }
        answer.to_vec().ok()
    }

    async fn find(&self, message: &Message) -> Result<Vec<Record>, ResponseCode> {
        if message.metadata.op_code != OpCode::Query {
            return Err(ResponseCode::NotImp);
        }
        if message.version() != 0 {
            return Err(ResponseCode::BADVERS);
        }
        let [query] = message.queries.as_slice() else { return Err(ResponseCode::FormErr) };
        match (query.query_class(), query.query_type()) {
            (DNSClass::IN, RecordType::PTR) => self.name_of(query),
            (DNSClass::IN, RecordType::ANY | RecordType::AXFR | RecordType::IXFR) => {
                Err(ResponseCode::Refused)
            }
            (DNSClass::IN, kind) => self.addresses_of(query, kind).await,
            _ => Err(ResponseCode::Refused),
        }
    }

    async fn addresses_of(&self, query: &Query, kind: RecordType) -> Result<Vec<Record>, ResponseCode> {
        let name = host_name(query.name()).ok_or(ResponseCode::NXDomain)?;
        if name == "localhost" || name.ends_with(".localhost") {
            return Ok(record(query, loopback(kind)));
        }
        if !self.shared.answers(&name).await {
            return Err(ResponseCode::NXDomain);
        }
        let given = self.shared.names.addresses(&name).ok_or(ResponseCode::ServFail)?;
        let data = match (kind, self.families) {
            (RecordType::A, _) => Some(RData::A(A(given.v4))),
            (RecordType::AAAA, AddressFamilies::Both) => Some(RData::AAAA(AAAA(given.v6))),
            // In particular no HTTPS and SVCB records: they carry addresses, and ECH keys that would hide the server name.
            _ => None,
        };
        Ok(record(query, data))
    }

    fn name_of(&self, query: &Query) -> Result<Vec<Record>, ResponseCode> {
        let network = query.name().parse_arpa_name().ok().ok_or(ResponseCode::NXDomain)?;
        let address: IpAddr = network.addr();
        if network.prefix_len() != network.max_prefix_len() {
            return Err(ResponseCode::NXDomain);
        }
        match self.shared.names.meaning(address) {
            AddressMeaning::Name(name) => {
                let name = Name::from_ascii(format!("{name}.")).ok().ok_or(ResponseCode::ServFail)?;
                Ok(record(query, Some(RData::PTR(PTR(name)))))
            }
            AddressMeaning::Nobody | AddressMeaning::Itself => Err(ResponseCode::NXDomain),
        }
    }
}

fn record(query: &Query, data: Option<RData>) -> Vec<Record> {
    data.map(|data| Record::from_rdata(query.name().clone(), TTL, data)).into_iter().collect()
}

/// Loopback addresses, which belong to the session's namespace.
fn loopback(kind: RecordType) -> Option<RData> {
    match kind {
        RecordType::A => Some(RData::A(A(std::net::Ipv4Addr::LOCALHOST))),
        RecordType::AAAA => Some(RData::AAAA(AAAA(std::net::Ipv6Addr::LOCALHOST))),
        _ => None,
    }
}

/// The name in the spelling of host rules; `None` if it cannot be a host name.
fn host_name(name: &Name) -> Option<String> {
    let labels: Vec<&str> = name.iter().map(std::str::from_utf8).collect::<Result<_, _>>().ok()?;
    let plain = |label: &&str| label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !labels.iter().all(plain) {
        return None;
    }
    match HostPattern::parse(&labels.join(".")).ok()?.host() {
        Host::Name(name) => Some(name.clone()),
        _ => None,
    }
}

/// Answers an unreadable message with a format error, unless it could be a response, which would start a loop.
fn malformed(bytes: &[u8]) -> Option<Vec<u8>> {
    const IS_ANSWER: u8 = 0x80;
    let [high, low, flags, ..] = bytes else { return None };
    if bytes.len() < 12 || flags & IS_ANSWER != 0 {
        return None;
    }
    let id = u16::from_be_bytes([*high, *low]);
    Message::error_msg(id, OpCode::Query, ResponseCode::FormErr).to_vec().ok()
}

async fn read_framed(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > LONGEST_QUERY {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut query = vec![0; length];
    stream.read_exact(&mut query).await?;
    Ok(query)
}
