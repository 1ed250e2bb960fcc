//! SOCKS 5 (RFC 1928): `CONNECT` without authentication. SOCKS 4 gets a refusal in its own format.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::flow_gate::{FlowEnd, FlowIngress, FlowTarget};
use crate::live_flow::{FlowStop, ProxyState, UpstreamFailureKind};
use crate::relay::{authorize_flow, relay};
use crate::rewind_stream::RewindStream;
use crate::tunnel::farewell;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocksReply {
    Granted = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    HostUnreachable = 4,
    Refused = 5,
    Expired = 6,
    NoCommand = 7,
    NoAddressType = 8,
}

impl SocksReply {
    /// Encodes the reply with an empty bound address, which clients ignore.
    fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }

    /// Reason for the record.
    fn reason(self) -> &'static str {
        match self {
            Self::NoCommand => "another command than CONNECT",
            Self::NoAddressType => "an address of a type that is none",
            Self::NotAllowed => "a host or port that is none",
            _ => "a greeting in one version and a request in another",
        }
    }

    fn of(stopped: &FlowStop) -> Self {
        match stopped {
            FlowStop::Refused(_) => Self::NotAllowed,
            FlowStop::Failed(failure) => match failure.kind {
                UpstreamFailureKind::Name => Self::HostUnreachable,
                UpstreamFailureKind::Peer => Self::Refused,
                UpstreamFailureKind::Late => Self::Expired,
            },
        }
    }
}

/// Serves a client whose first byte, still unread, is 5.
pub(crate) async fn serve(mut client: TcpStream, shared: Arc<ProxyState>) {
    let heard = timeout(shared.settings.times.head, greet(&mut client)).await;
    let target = match heard {
        Ok(Ok(Ok(target))) => target,
        Ok(Ok(Err(reply))) => {
            shared.malformed(FlowIngress::Socks, reply.reason());
            return farewell(&client, &reply.bytes()).await;
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            return shared.malformed(
                FlowIngress::Socks,
                "the client wants to log in, and there is nothing to log in to",
            );
        }
        Ok(Err(_)) | Err(_) => return,
    };
    let named = target.clone().named(&shared.names);
    let Ok(live) = shared.open_flow(FlowIngress::Socks, named.clone().unwrap_or(target), None) else {
        return farewell(&client, &SocksReply::NotAllowed.bytes()).await;
    };
    let course = match named {
        Ok(_) => authorize_flow(&live, &shared).await,
        Err(refusal) => Err(refusal.into()),
    };
    match course {
        Ok(course) => match client.write_all(&SocksReply::Granted.bytes()).await {
            Ok(()) => relay(RewindStream::new(bytes::Bytes::new(), client), live, course, shared).await,
            Err(error) => live.end(FlowEnd::Failed(error.to_string())),
        },
        Err(stopped) => {
            live.end(stopped.end());
            farewell(&client, &SocksReply::of(&stopped).bytes()).await;
        }
    }
}

/// Refuses SOCKS 4 and 4a: they lack names or IPv6, and their clients also support version 5.
pub(crate) async fn refuse_version_4(client: TcpStream, shared: &ProxyState) {
    const REJECTED: [u8; 8] = [0, 0x5b, 0, 0, 0, 0, 0, 0];
    shared.malformed(FlowIngress::Socks, "version 4 of SOCKS");
    farewell(&client, &REJECTED).await;
}

async fn greet(client: &mut TcpStream) -> io::Result<Result<FlowTarget, SocksReply>> {
    let [_version, count] = read_array(client).await?;
    let mut methods = vec![0; usize::from(count)];
    client.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        client.write_all(&[VERSION, NO_METHOD]).await?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    client.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    read_request(client).await
}

async fn read_request(client: &mut TcpStream) -> io::Result<Result<FlowTarget, SocksReply>> {
    let [version, command, _reserved, kind] = read_array(client).await?;
    let host = match kind {
        1 => SocksTarget::Address(IpAddr::from(read_array::<4>(client).await?)),
        4 => SocksTarget::Address(IpAddr::from(read_array::<16>(client).await?)),
        3 => SocksTarget::Name(read_name(client).await?),
        _ => return Ok(Err(SocksReply::NoAddressType)),
    };
    let port = u16::from_be_bytes(read_array(client).await?);
    Ok(match (version, command) {
        (VERSION, CONNECT) => host.target(port).ok_or(SocksReply::NotAllowed),
        (VERSION, _) => Err(SocksReply::NoCommand),
        _ => Err(SocksReply::GeneralFailure),
    })
}

enum SocksTarget {
    Address(IpAddr),
    Name(Vec<u8>),
}

impl SocksTarget {
    fn target(self, port: u16) -> Option<FlowTarget> {
        match self {
            Self::Address(_) if port == 0 => None,
            Self::Address(address) => Some(FlowTarget::from_address(SocketAddr::new(address, port))),
            Self::Name(name) => FlowTarget::from_parts(std::str::from_utf8(&name).ok()?, port).ok(),
        }
    }
}

async fn read_name(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut name = vec![0; usize::from(client.read_u8().await?)];
    client.read_exact(&mut name).await?;
    Ok(name)
}

async fn read_array<const N: usize>(client: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}
