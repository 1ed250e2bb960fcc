//! Relay: a flow from its verdict to its end, for every listener.

use std::sync::Arc;

use ringfence_types::Refusal;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client_hello::{FirstBytes, TlsAlert, disagreement};
use crate::dial::dial;
use crate::flow_gate::{FlowEnd, FlowTreatment};
use crate::http1::{self, RequestContext};
use crate::live_flow::{FlowStop, LiveFlow, ProxyState};
use crate::rewind_stream::RewindStream;
use crate::sniff::{SniffError, listen};
use crate::tunnel::{self, TunnelEnd, farewell};

/// The decision and, for a tunnel, the upstream connection.
#[derive(Debug)]
pub(crate) enum FlowRoute {
    Tunnel(TcpStream),
    Inspect,
}

/// Asks the gate, and connects if the flow is a tunnel.
pub(crate) async fn authorize_flow(live: &LiveFlow, shared: &ProxyState) -> Result<FlowRoute, FlowStop> {
    let passage = live.authorize().await?;
    match passage.treatment {
        FlowTreatment::Tunnel => Ok(FlowRoute::Tunnel(dial(live, passage, shared).await?)),
        FlowTreatment::Inspect => Ok(FlowRoute::Inspect),
    }
}

/// Relays the bytes of an authorized flow.
pub(crate) async fn relay(client: RewindStream, live: LiveFlow, course: FlowRoute, shared: Arc<ProxyState>) {
    match course {
        FlowRoute::Tunnel(server) => through(client, live, server, shared).await,
        FlowRoute::Inspect => inspected(client, live, shared).await,
    }
}

async fn through(client: RewindStream, live: LiveFlow, server: TcpStream, shared: Arc<ProxyState>) {
    match tunnel::relay(client, server, &live, &shared.settings.times).await {
        TunnelEnd::Ended(end) => live.end(end),
        TunnelEnd::Refused(refusal, speech, client) => refuse(&client, live, refusal, speech).await,
        TunnelEnd::Http(client) => plain(client, live, shared).await,
    }
}

async fn inspected(client: RewindStream, live: LiveFlow, shared: Arc<ProxyState>) {
    let times = shared.settings.times;
    let (head, stream) = client.into_parts();
    let heard = timeout(times.silence, listen(&stream, head, &live.flow().target, times.head)).await;
    let opening = match heard {
        Ok(Ok(opening)) => opening,
        Ok(Err(SniffError::Refused(speech, refusal))) => return refuse(&stream, live, refusal, speech).await,
        Ok(Err(SniffError::Broken(error))) => return live.end(FlowEnd::Failed(error.to_string())),
        Err(_elapsed) => return live.end(FlowEnd::Failed("the client said nothing".to_owned())),
    };
    match opening.speech {
        FirstBytes::Tls => {
            let client = RewindStream::new(opening.bytes, stream);
            crate::tls_inspection::serve(client, live, shared).await;
        }
        FirstBytes::Http => plain(RewindStream::new(opening.bytes, stream), live, shared).await,
        FirstBytes::Other | FirstBytes::Open => {
            let message =
                format!("`{}` is inspected, and the client speaks neither TLS nor HTTP", live.flow().target);
            refuse(&stream, live, disagreement(message), FirstBytes::Other).await;
        }
    }
}

/// Serves plain HTTP to a known target. Each request is a flow of its own.
async fn plain(client: RewindStream, live: LiveFlow, shared: Arc<ProxyState>) {
    let (way, target) = (live.flow().way, live.flow().target.clone());
    live.end(FlowEnd::Done);
    http1::serve(client, RequestContext { way, origin: Some(target) }, shared).await;
}

async fn refuse(client: &TcpStream, live: LiveFlow, refusal: Refusal, speech: FirstBytes) {
    live.end(FlowEnd::Refused(refusal));
    let words = if speech == FirstBytes::Tls { TlsAlert::UnrecognizedName.record() } else { &[] };
    farewell(client, words).await;
}
