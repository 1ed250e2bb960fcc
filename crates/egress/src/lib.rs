//! The egress proxy of one session: the only way out of its network namespace.
//!
//! It accepts on sockets that were made inside the namespace, asks a [`Gate`] about every flow, resolves the host once, dials
//! an address that it has checked, and tells the gate what became of it. It knows neither policy nor ledger nor sandbox: the
//! gate does. What cannot be judged, recorded or checked is refused.

mod answer;
#[cfg(test)]
mod bodies;
mod ca;
mod carry;
mod coding;
mod credential;
mod dial;
mod dns;
mod door;
mod exchange;
mod fetch;
mod form;
mod gate;
mod hello;
mod http1;
mod inject;
mod inspect;
mod inspection;
mod limits;
mod look;
mod metered;
mod names;
mod opening;
mod places;
mod prefixed;
mod proxy;
mod quiet;
mod redacted;
mod resolve;
mod settings;
mod shared;
mod sign;
mod sigv4;
mod socks;
mod steering;
mod target;
mod tunnel;
mod upstream;
mod watched;

pub use ca::{Ca, CaError};
pub use credential::{Credential, CredentialError, Secrets, Signing};
pub use fetch::{FetchError, FetchLimits, FetchRequest, FetchResponse, Fetcher};
pub use gate::{
    Flow, FlowEnd, FlowId, Gate, Leak, LeakAction, Passage, Place, Reach, Request, Target, Traffic,
    Treatment, Verdict, Way,
};
pub use inspection::{HttpSettings, Provider};
pub use proxy::{Doors, Proxy, StartError};
pub use settings::{Budget, Limits, NameServers, Settings, Times};
pub use upstream::SYSTEM_ROOTS;
