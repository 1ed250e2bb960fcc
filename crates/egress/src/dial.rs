//! A connection to a checked address.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::gate::Passage;
use crate::shared::{FailureKind, Live, Shared, Stopped};

/// How long the first address may be alone.
const HEAD_START: Duration = Duration::from_millis(250);

/// Resolves the target of a flow, checks every address, records each one that is tried before it is tried, and connects.
/// Whether the flow may be was judged before.
pub(crate) async fn dial(live: &Live, passage: Passage, shared: &Shared) -> Result<TcpStream, Stopped> {
    let target = &live.flow().target;
    let addresses = shared.resolver.addresses(target, passage.reach).await?;
    let connected = timeout(shared.settings.times.connect, connect(live, addresses));
    let late = || Stopped::failed(FailureKind::Late, format!("`{target}` did not accept in time"));
    connected.await.map_err(|_elapsed| late())?
}

/// Each address gets a head start before the next; the first that accepts wins.
async fn connect(live: &Live, addresses: Vec<IpAddr>) -> Result<TcpStream, Stopped> {
    let target = &live.flow().target;
    let mut attempts = JoinSet::new();
    let mut waiting = addresses.into_iter();
    let mut last = format!("`{target}` has no address to connect to");
    loop {
        let next = waiting.next();
        if next.is_none() && attempts.is_empty() {
            return Err(Stopped::failed(FailureKind::Peer, last));
        }
        let more = next.is_some();
        if let Some(address) = next {
            live.opens(address).await?;
            attempts.spawn(attempt(SocketAddr::new(address, target.port)));
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

async fn attempt(address: SocketAddr) -> (SocketAddr, std::io::Result<TcpStream>) {
    let stream = TcpStream::connect(address).await;
    if let Ok(stream) = &stream {
        // Small writes are passed on as they come; what the kernel would gain by waiting is the client's to decide.
        let _refused = stream.set_nodelay(true);
    }
    (address, stream)
}
