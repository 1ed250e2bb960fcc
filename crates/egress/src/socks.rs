//! SOCKS 5 (RFC 1928): `CONNECT` without authentication. SOCKS 4 is told no in its own words.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::carry::{carry, prepare};
use crate::gate::{FlowEnd, Target, Way};
use crate::prefixed::Prefixed;
use crate::shared::{FailureKind, Shared, Stopped};
use crate::tunnel::farewell;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Granted = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    HostUnreachable = 4,
    Refused = 5,
    Expired = 6,
    NoCommand = 7,
    NoAddressType = 8,
}

impl Reply {
    /// With the bound address that a client of a proxy has no use for.
    fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }

    /// Why a request with this answer was none.
    fn reason(self) -> &'static str {
        match self {
            Self::NoCommand => "another command than CONNECT",
            Self::NoAddressType => "an address of a type that is none",
            Self::NotAllowed => "a host or port that is none",
            _ => "a greeting in one version and a request in another",
        }
    }

    fn of(stopped: &Stopped) -> Self {
        match stopped {
            Stopped::Refused(_) => Self::NotAllowed,
            Stopped::Failed(failure) => match failure.kind {
                FailureKind::Name => Self::HostUnreachable,
                FailureKind::Peer => Self::Refused,
                FailureKind::Late => Self::Expired,
            },
        }
    }
}

/// Serves a client whose first byte was 5, which is still unread.
pub(crate) async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    let heard = timeout(shared.settings.times.head, greet(&mut client)).await;
    let target = match heard {
        Ok(Ok(Ok(target))) => target,
        Ok(Ok(Err(reply))) => {
            shared.malformed(Way::Socks, reply.reason());
            return farewell(&client, &reply.bytes()).await;
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            return shared
                .malformed(Way::Socks, "the client wants to log in, and there is nothing to log in to");
        }
        Ok(Err(_)) | Err(_) => return,
    };
    let named = target.clone().named(&shared.names);
    let Ok(live) = shared.begin(Way::Socks, named.clone().unwrap_or(target), None) else {
        return farewell(&client, &Reply::NotAllowed.bytes()).await;
    };
    let course = match named {
        Ok(_) => prepare(&live, &shared).await,
        Err(refusal) => Err(refusal.into()),
    };
    match course {
        Ok(course) => match client.write_all(&Reply::Granted.bytes()).await {
            Ok(()) => carry(Prefixed::new(bytes::Bytes::new(), client), live, course, shared).await,
            Err(error) => live.end(FlowEnd::Failed(error.to_string())),
        },
        Err(stopped) => {
            live.end(stopped.end());
            farewell(&client, &Reply::of(&stopped).bytes()).await;
        }
    }
}

/// Refuses SOCKS 4 and 4a: they know no names or no addresses of version 6, and every client that speaks them speaks 5.
pub(crate) async fn refuse_version_4(client: TcpStream, shared: &Shared) {
    const REJECTED: [u8; 8] = [0, 0x5b, 0, 0, 0, 0, 0, 0];
    shared.malformed(Way::Socks, "version 4 of SOCKS");
    farewell(&client, &REJECTED).await;
}

async fn greet(client: &mut TcpStream) -> io::Result<Result<Target, Reply>> {
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

async fn read_request(client: &mut TcpStream) -> io::Result<Result<Target, Reply>> {
    let [version, command, _reserved, kind] = read_array(client).await?;
    let host = match kind {
        1 => Asked::Address(IpAddr::from(read_array::<4>(client).await?)),
        4 => Asked::Address(IpAddr::from(read_array::<16>(client).await?)),
        3 => Asked::Name(read_name(client).await?),
        _ => return Ok(Err(Reply::NoAddressType)),
    };
    let port = u16::from_be_bytes(read_array(client).await?);
    Ok(match (version, command) {
        (VERSION, CONNECT) => host.target(port).ok_or(Reply::NotAllowed),
        (VERSION, _) => Err(Reply::NoCommand),
        _ => Err(Reply::GeneralFailure),
    })
}

enum Asked {
    Address(IpAddr),
    Name(Vec<u8>),
}

impl Asked {
    fn target(self, port: u16) -> Option<Target> {
        match self {
            Self::Address(_) if port == 0 => None,
            Self::Address(address) => Some(Target::from_address(SocketAddr::new(address, port))),
            Self::Name(name) => Target::from_parts(std::str::from_utf8(&name).ok()?, port).ok(),
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
