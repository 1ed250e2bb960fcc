//! A flow from its verdict to its end, whichever door it came through.

use std::sync::Arc;

use ringfence_types::Refusal;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::dial::dial;
use crate::gate::{FlowEnd, Treatment};
use crate::hello::{Alert, Speech, disagreement};
use crate::http1::{self, Context};
use crate::opening::{Unopened, listen};
use crate::prefixed::Prefixed;
use crate::shared::{Live, Shared, Stopped};
use crate::tunnel::{self, Outcome, farewell};

/// What was decided, and for a tunnel its far end.
#[derive(Debug)]
pub(crate) enum Course {
    Tunnel(TcpStream),
    Inspect,
}

/// Asks the gate, and connects where bytes will simply pass.
pub(crate) async fn prepare(live: &Live, shared: &Shared) -> Result<Course, Stopped> {
    let passage = live.judge().await?;
    match passage.treatment {
        Treatment::Tunnel => Ok(Course::Tunnel(dial(live, passage, shared).await?)),
        Treatment::Inspect => Ok(Course::Inspect),
    }
}

/// Lets the bytes of a client pass, who has been told that they may.
pub(crate) async fn carry(client: Prefixed, live: Live, course: Course, shared: Arc<Shared>) {
    match course {
        Course::Tunnel(server) => through(client, live, server, shared).await,
        Course::Inspect => inspected(client, live, shared).await,
    }
}

async fn through(client: Prefixed, live: Live, server: TcpStream, shared: Arc<Shared>) {
    match tunnel::relay(client, server, &live, &shared.settings.times).await {
        Outcome::Ended(end) => live.end(end),
        Outcome::Refused(refusal, speech, client) => refuse(&client, live, refusal, speech).await,
        Outcome::Http(client) => plain(client, live, shared).await,
    }
}

async fn inspected(client: Prefixed, live: Live, shared: Arc<Shared>) {
    let times = shared.settings.times;
    let (head, stream) = client.into_parts();
    let heard = timeout(times.silence, listen(&stream, head, &live.flow().target, times.head)).await;
    let opening = match heard {
        Ok(Ok(opening)) => opening,
        Ok(Err(Unopened::Refused(speech, refusal))) => return refuse(&stream, live, refusal, speech).await,
        Ok(Err(Unopened::Broken(error))) => return live.end(FlowEnd::Failed(error.to_string())),
        Err(_elapsed) => return live.end(FlowEnd::Failed("the client said nothing".to_owned())),
    };
    match opening.speech {
        Speech::Tls => {
            let client = Prefixed::new(opening.bytes, stream);
            crate::inspect::serve(client, live, shared).await;
        }
        Speech::Http => plain(Prefixed::new(opening.bytes, stream), live, shared).await,
        Speech::Other | Speech::Open => {
            let message =
                format!("`{}` is inspected, and the client speaks neither TLS nor HTTP", live.flow().target);
            refuse(&stream, live, disagreement(message), Speech::Other).await;
        }
    }
}

/// Plain HTTP towards a known target: each request is a flow of its own.
async fn plain(client: Prefixed, live: Live, shared: Arc<Shared>) {
    let (way, target) = (live.flow().way, live.flow().target.clone());
    live.end(FlowEnd::Done);
    http1::serve(client, Context { way, origin: Some(target) }, shared).await;
}

async fn refuse(client: &TcpStream, live: Live, refusal: Refusal, speech: Speech) {
    live.end(FlowEnd::Refused(refusal));
    let words = if speech == Speech::Tls { Alert::UnrecognizedName.record() } else { &[] };
    farewell(client, words).await;
}
