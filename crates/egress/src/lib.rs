//! The egress proxy of one session: the only way out of its network namespace.
//!
//! The proxy accepts connections on listeners inside the namespace. It asks a [`FlowGate`] about every flow, resolves the host
//! once, dials an address that it has checked, and reports the end of the flow to the gate. It knows neither policy nor ledger nor
//! sandbox. A flow that cannot be evaluated, recorded or checked is refused.

#[cfg(test)]
mod body_properties;
mod client_hello;
mod content_encoding;
mod credential;
mod dial;
mod dns;
mod error_response;
mod exchange;
mod fetch;
mod flow_gate;
mod http1;
mod idle_timer;
mod inject;
mod inspection_settings;
mod key_locations;
mod leak_check;
mod limits;
mod listeners;
mod live_flow;
mod metered_body;
mod proxy;
mod redacted_body;
mod relay;
mod request_target;
mod resign;
mod resolve;
mod rewind_stream;
mod scanned_body;
mod session_ca;
mod settings;
mod sigv4;
mod smuggling_guard;
mod sniff;
mod socks;
mod synthetic_addresses;
mod target;
mod tls_inspection;
mod tunnel;
mod upstream;

pub use credential::{AwsSigningKey, CredentialError, CredentialSet, SessionCredential};
pub use fetch::{DirectFetcher, FetchError, FetchLimits, FetchRequest, FetchResponse};
pub use flow_gate::{
    AddressScope, DialPermit, Flow, FlowEnd, FlowGate, FlowId, FlowIngress, FlowRequest, FlowTarget,
    FlowTerms, FlowTreatment, FlowVerdict, LeakLocation, LeakReport, LeakResponse, Traffic,
};
pub use inspection_settings::{HttpSettings, ProviderRoute};
pub use proxy::{Proxy, ProxyListeners, ProxyStartError};
pub use session_ca::{CaError, SessionCa};
pub use settings::{ByteBudget, NameServers, ProxyLimits, ProxySettings, ProxyTimeouts};
pub use upstream::SYSTEM_ROOTS;
