//! The two doors that connections come through: the proxy's own port, and whatever port a connection was led here from.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use rustix::net::sockopt::{ip_original_dst, ipv6_original_dst};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::carry::{carry, prepare};
use crate::gate::{FlowEnd, Target, Way};
use crate::hello::{Alert, Speech};
use crate::http1::{self, Context};
use crate::opening::{Opening, Unopened, listen};
use crate::prefixed::Prefixed;
use crate::shared::{Live, Shared, Stopped};
use crate::socks;
use crate::tunnel::farewell;

/// Somebody who was told of the proxy. The first byte says in which protocol it will be asked.
pub(crate) async fn explicit(client: TcpStream, shared: Arc<Shared>) {
    let mut first = [0];
    match timeout(shared.settings.times.silence, client.peek(&mut first)).await {
        Ok(Ok(1)) => {}
        _ => return,
    }
    match first {
        [5] => socks::serve(client, shared).await,
        [4] => socks::refuse_version_4(client, &shared).await,
        _ => {
            let context = Context { way: Way::Forward, origin: None };
            http1::serve(Prefixed::new(Bytes::new(), client), context, shared).await;
        }
    }
}

/// Somebody who believes to be connected to somebody else.
pub(crate) async fn transparent(client: TcpStream, door: SocketAddr, shared: Arc<Shared>) {
    let Ok(destination) = original_destination(&client) else { return };
    if destination.port() == door.port() && destination.ip().to_canonical().is_loopback() {
        // Nobody led it here: there is no destination.
        return;
    }
    let target = Target::from_address(destination);
    match target.clone().named(&shared.names) {
        Ok(target) => led_here(client, target, shared).await,
        Err(refusal) => {
            if let Ok(live) = shared.begin(Way::Transparent, target, None) {
                live.end(FlowEnd::Refused(refusal));
            }
        }
    }
}

async fn led_here(client: TcpStream, target: Target, shared: Arc<Shared>) {
    let times = &shared.settings.times;
    let patience = match Talk::at(target.port) {
        Talk::ClientFirst => times.head,
        Talk::ServerFirst => std::time::Duration::ZERO,
        Talk::Unknown => times.first_byte,
    };
    let spoken = timeout(patience, client.peek(&mut [0])).await.is_ok();
    let heard = if spoken { listen(&client, Bytes::new(), &target, times.head).await } else { Ok(silent()) };
    match heard {
        Ok(Opening { speech: Speech::Http, bytes }) => {
            let context = Context { way: Way::Transparent, origin: Some(target) };
            http1::serve(Prefixed::new(bytes, client), context, shared).await;
        }
        Ok(Opening { speech, bytes }) => open(Prefixed::new(bytes, client), speech, target, shared).await,
        Err(Unopened::Refused(speech, refusal)) => {
            if let Ok(live) = shared.begin(Way::Transparent, target, None) {
                live.end(FlowEnd::Refused(refusal));
            }
            farewell(&client, last_words(speech, Alert::UnrecognizedName)).await;
        }
        Err(Unopened::Broken(_)) => {}
    }
}

fn silent() -> Opening {
    Opening { speech: Speech::Other, bytes: Bytes::new() }
}

async fn open(client: Prefixed, speech: Speech, target: Target, shared: Arc<Shared>) {
    let Ok(live) = shared.begin(Way::Transparent, target, None) else {
        let (_, client) = client.into_parts();
        return farewell(&client, last_words(speech, Alert::AccessDenied)).await;
    };
    match prepare(&live, &shared).await {
        Ok(course) => carry(client, live, course, shared).await,
        Err(stopped) => stop(client, speech, live, &stopped).await,
    }
}

async fn stop(client: Prefixed, speech: Speech, live: Live, stopped: &Stopped) {
    live.end(stopped.end());
    let alert = match stopped {
        Stopped::Refused(_) => Alert::AccessDenied,
        Stopped::Failed(_) => Alert::InternalError,
    };
    let (_, client) = client.into_parts();
    farewell(&client, last_words(speech, alert)).await;
}

/// What a client can be told in its own protocol.
fn last_words(speech: Speech, alert: Alert) -> &'static [u8] {
    match (speech, alert) {
        (Speech::Tls, alert) => alert.record(),
        _ => &[],
    }
}

/// Who speaks first on a port.
enum Talk {
    ClientFirst,
    ServerFirst,
    Unknown,
}

impl Talk {
    fn at(port: u16) -> Self {
        match port {
            80 | 443 | 8000 | 8080 | 8443 => Self::ClientFirst,
            21 | 22 | 25 | 110 | 143 | 587 | 3306 | 5900 => Self::ServerFirst,
            _ => Self::Unknown,
        }
    }
}

/// Where a connection was going: what the kernel remembers of a redirected one, or its own address where packets are led here
/// unchanged.
fn original_destination(client: &TcpStream) -> io::Result<SocketAddr> {
    let local = client.local_addr()?;
    let remembered = match local.ip().to_canonical() {
        IpAddr::V4(_) => ip_original_dst(client).map(SocketAddr::V4),
        IpAddr::V6(_) => ipv6_original_dst(client).map(SocketAddr::V6),
    };
    Ok(remembered.unwrap_or(local))
}
