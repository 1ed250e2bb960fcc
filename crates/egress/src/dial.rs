//! Dialling: resolves a target, checks its addresses and connects.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::flow_gate::{DialPermit, FlowTerms};
use crate::live_flow::{FlowStop, LiveFlow, ProxyState, UpstreamFailureKind};

/// Delay before the next address is tried in parallel.
const HEAD_START: Duration = Duration::from_millis(250);

/// Resolves the target of an authorized flow and checks every address. Each address is recorded before the proxy tries it.
pub(crate) async fn dial(
    live: &LiveFlow,
    passage: FlowTerms,
    shared: &ProxyState,
) -> Result<TcpStream, FlowStop> {
    let target = &live.flow().target;
    let addresses = shared.resolver.addresses(target, passage.reach).await?;
    let connected = timeout(shared.settings.times.connect, connect(live, addresses));
    let late = || FlowStop::failed(UpstreamFailureKind::Late, format!("`{target}` did not accept in time"));
    connected.await.map_err(|_elapsed| late())?
}

/// Tries the addresses with a delay between them; the first that accepts is used.
async fn connect(live: &LiveFlow, addresses: Vec<IpAddr>) -> Result<TcpStream, FlowStop> {
    let target = &live.flow().target;
    let mut attempts = JoinSet::new();
    let mut waiting = addresses.into_iter();
    let mut last = format!("`{target}` has no address to connect to");
    loop {
        let next = waiting.next();
        if next.is_none() && attempts.is_empty() {
            return Err(FlowStop::failed(UpstreamFailureKind::Peer, last));
        }
        let more = next.is_some();
        if let Some(address) = next {
            attempts.spawn(attempt(live.opens(address).await?));
        }
        let finished = if more {
            timeout(HEAD_START, attempts.join_next()).await.unwrap_or(None)
        } else {
            attempts.join_next().await
        };
        match finished {
            Some(Ok((_, Ok(stream)))) => return Ok(stream),
            Some(Ok((address, Err(error)))) => {
                last = format!("cannot connect to `{target}` at {address}: {error}")
            }
            Some(Err(_)) | None => {}
        }
    }
}

/// INVARIANT: the only place where this crate connects to a server. It consumes a permit, which only the gate creates, for a flow
/// that is allowed and recorded. `cargo xtask layers` checks that there is no other place.
async fn attempt(permit: Box<dyn DialPermit>) -> (SocketAddr, std::io::Result<TcpStream>) {
    let address = permit.address();
    let stream = TcpStream::connect(address).await;
    if let Ok(stream) = &stream {
        // The proxy forwards small writes at once. Delaying them (Nagle) is the client's decision.
        let _refused = stream.set_nodelay(true);
    }
    (address, stream)
}
