//! The egress proxy of one session: the only way out of its network namespace.
//!
//! It accepts on sockets that were made inside the namespace, asks a [`Gate`] about every flow, resolves the host once, dials
//! an address that it has checked, and tells the gate what became of it. It knows neither policy nor ledger nor sandbox: the
//! gate does. What cannot be judged, recorded or checked is refused.

mod answer;
mod ca;
mod coding;
mod credential;
mod dial;
mod gate;
mod limits;
mod names;
mod resolve;
mod settings;
mod shared;

pub use ca::{Ca, CaError};
pub use credential::{BodyUse, Credential, CredentialError, PlainHttp, Signing};
pub use gate::{
    Flow, FlowEnd, FlowId, Gate, Leak, LeakAction, Passage, Place, Reach, Request, Target, Traffic,
    Treatment, Verdict, Way,
};
pub use settings::{Budget, Limits, NameServers, Settings, Times};
