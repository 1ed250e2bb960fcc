//! The egress proxy of one session: the only way out of its network namespace.
//!
//! It accepts on sockets that were made inside the namespace, asks a [`Gate`] about every flow, resolves the host once, dials
//! an address that it has checked, and tells the gate what became of it. It knows neither policy nor ledger nor sandbox: the
//! gate does. What cannot be judged, recorded or checked is refused.

mod answer;
mod ca;
mod carry;
mod coding;
mod credential;
mod dial;
mod dns;
mod door;
mod gate;
mod hello;
mod http1;
mod limits;
mod names;
mod opening;
mod prefixed;
mod proxy;
mod resolve;
mod settings;
mod shared;
mod socks;
mod target;
mod tunnel;

pub use ca::{Ca, CaError};
pub use credential::{BodyUse, Credential, CredentialError, PlainHttp, Signing};
pub use gate::{
    Flow, FlowEnd, FlowId, Gate, Leak, LeakAction, Passage, Place, Reach, Request, Target, Traffic,
    Treatment, Verdict, Way,
};
pub use proxy::{Counters, Doors, Proxy, StartError};
pub use settings::{Budget, Limits, NameServers, Settings, Times};

mod exchange {
    pub(crate) async fn handle(
        _request: http::Request<hyper::body::Incoming>,
        _context: crate::http1::Context,
        _shared: &std::sync::Arc<crate::shared::Shared>,
    ) -> http::Response<crate::answer::Body> {
        crate::answer::malformed("only CONNECT is served here")
    }
}

mod inspect {
    pub(crate) async fn serve(
        client: crate::prefixed::Prefixed,
        live: crate::shared::Live,
        _passage: crate::Passage,
        _shared: std::sync::Arc<crate::shared::Shared>,
    ) {
        drop(client);
        live.end(crate::FlowEnd::Failed("nothing is inspected here".to_owned()));
    }
}
