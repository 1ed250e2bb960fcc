//! Listeners of the proxy: the proxy port, and the port to which nf_tables redirects other connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use rustix::net::sockopt::{ip_original_dst, ipv6_original_dst};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client_hello::{FirstBytes, TlsAlert};
use crate::flow_gate::{FlowEnd, FlowIngress, FlowTarget};
use crate::http1::{self, RequestContext};
use crate::live_flow::{FlowStop, LiveFlow, ProxyState};
use crate::relay::{authorize_flow, relay};
use crate::rewind_stream::RewindStream;
use crate::sniff::{ProtocolSniff, SniffError, listen};
use crate::socks;
use crate::tunnel::farewell;

/// Serves a client that knows the proxy. Its first byte tells the protocol.
pub(crate) async fn explicit(client: TcpStream, shared: Arc<ProxyState>) {
    let mut first = [0];
    match timeout(shared.settings.times.silence, client.peek(&mut first)).await {
        Ok(Ok(1)) => {}
        _ => return,
    }
    match first {
        [5] => socks::serve(client, shared).await,
        [4] => socks::refuse_version_4(client, &shared).await,
        _ => {
            let context = RequestContext { way: FlowIngress::Forward, origin: None };
            http1::serve(RewindStream::new(Bytes::new(), client), context, shared).await;
        }
    }
}

/// Serves a redirected client, which does not know that it talks to a proxy.
pub(crate) async fn transparent(client: TcpStream, door: SocketAddr, shared: Arc<ProxyState>) {
    let Ok(destination) = original_destination(&client) else { return };
    if destination.port() == door.port() && destination.ip().to_canonical().is_loopback() {
        // The connection was not redirected, so it has no destination.
        return;
    }
    let target = FlowTarget::from_address(destination);
    match target.clone().named(&shared.names) {
        Ok(target) => led_here(client, target, shared).await,
        Err(refusal) => {
            if let Ok(live) = shared.open_flow(FlowIngress::Transparent, target, None) {
                live.end(FlowEnd::Refused(refusal));
            }
        }
    }
}

async fn led_here(client: TcpStream, target: FlowTarget, shared: Arc<ProxyState>) {
    let times = &shared.settings.times;
    let patience = match FirstSpeaker::at(target.port) {
        FirstSpeaker::ClientFirst => times.head,
        FirstSpeaker::ServerFirst => std::time::Duration::ZERO,
        FirstSpeaker::Unknown => times.first_byte,
    };
    let spoken = timeout(patience, client.peek(&mut [0])).await.is_ok();
    let heard = if spoken { listen(&client, Bytes::new(), &target, times.head).await } else { Ok(silent()) };
    match heard {
        Ok(ProtocolSniff { speech: FirstBytes::Http, bytes }) => {
            let context = RequestContext { way: FlowIngress::Transparent, origin: Some(target) };
            http1::serve(RewindStream::new(bytes, client), context, shared).await;
        }
        Ok(ProtocolSniff { speech, bytes }) => {
            open(RewindStream::new(bytes, client), speech, target, shared).await
        }
        Err(SniffError::Refused(speech, refusal)) => {
            if let Ok(live) = shared.open_flow(FlowIngress::Transparent, target, None) {
                live.end(FlowEnd::Refused(refusal));
            }
            farewell(&client, last_words(speech, TlsAlert::UnrecognizedName)).await;
        }
        Err(SniffError::Broken(_)) => {}
    }
}

fn silent() -> ProtocolSniff {
    ProtocolSniff { speech: FirstBytes::Other, bytes: Bytes::new() }
}

async fn open(client: RewindStream, speech: FirstBytes, target: FlowTarget, shared: Arc<ProxyState>) {
    let Ok(live) = shared.open_flow(FlowIngress::Transparent, target, None) else {
        let (_, client) = client.into_parts();
        return farewell(&client, last_words(speech, TlsAlert::AccessDenied)).await;
    };
    match authorize_flow(&live, &shared).await {
        Ok(course) => relay(client, live, course, shared).await,
        Err(stopped) => stop(client, speech, live, &stopped).await,
    }
}

async fn stop(client: RewindStream, speech: FirstBytes, live: LiveFlow, stopped: &FlowStop) {
    live.end(stopped.end());
    let alert = match stopped {
        FlowStop::Refused(_) => TlsAlert::AccessDenied,
        FlowStop::Failed(_) => TlsAlert::InternalError,
    };
    let (_, client) = client.into_parts();
    farewell(&client, last_words(speech, alert)).await;
}

/// Last bytes for a client of this protocol.
fn last_words(speech: FirstBytes, alert: TlsAlert) -> &'static [u8] {
    match (speech, alert) {
        (FirstBytes::Tls, alert) => alert.record(),
        _ => &[],
    }
}

/// Which side speaks first on a port.
enum FirstSpeaker {
    ClientFirst,
    ServerFirst,
    Unknown,
}

impl FirstSpeaker {
    fn at(port: u16) -> Self {
        match port {
            80 | 443 | 8000 | 8080 | 8443 => Self::ClientFirst,
            21 | 22 | 25 | 110 | 143 | 587 | 3306 | 5900 => Self::ServerFirst,
            _ => Self::Unknown,
        }
    }
}

/// Original destination of a redirected connection (`SO_ORIGINAL_DST`), or its local address where packets arrive unchanged.
fn original_destination(client: &TcpStream) -> io::Result<SocketAddr> {
    let local = client.local_addr()?;
    let remembered = match local.ip().to_canonical() {
        IpAddr::V4(_) => ip_original_dst(client).map(SocketAddr::V4),
        IpAddr::V6(_) => ipv6_original_dst(client).map(SocketAddr::V6),
    };
    Ok(remembered.unwrap_or(local))
}
