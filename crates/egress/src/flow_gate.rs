//! Flow gate: the interface through which the proxy asks for decisions and reports events. The runtime implements it with policy
//! and ledger.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ringfence_types::{Host, Refusal};

/// Number of a flow in its session, starting at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

/// Destination of a flow. Never [`Host::Below`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowTarget {
    pub host: Host,
    pub port: u16,
}

impl fmt::Display for FlowTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// How a flow reached the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowIngress {
    /// `CONNECT host:port`.
    Connect,
    /// `GET http://host/… HTTP/1.1`.
    Forward,
    Socks,
    /// A connection to another address, redirected by nf_tables.
    Transparent,
    /// A request to the proxy's own address, under the base URL of a provider.
    Reverse,
    /// A fetch of the session, made in this process.
    Fetch,
}

/// A flow that a client inside requests, before its host is resolved or dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub id: FlowId,
    pub way: FlowIngress,
    pub target: FlowTarget,
    /// Set for plain and inspected HTTP; `None` for a tunnel.
    pub request: Option<FlowRequest>,
}

/// One HTTP request of a flow. Secrets are redacted, because it is shown and recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRequest {
    pub method: String,
    /// Scheme, host, port and path, as policy evaluates them.
    pub url: String,
}

#[derive(Clone, Debug)]
pub enum FlowVerdict {
    Pass(FlowTerms),
    Refuse(Refusal),
}

/// Terms under which a flow is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTerms {
    pub treatment: FlowTreatment,
    pub reach: AddressScope,
}

/// Addresses that the host of a flow may resolve to. Never a metadata service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressScope {
    /// Public addresses only.
    Internet,
    /// Also addresses of this machine and its networks, because a rule names exactly this host.
    Special,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowTreatment {
    /// Bytes are relayed. Of TLS the proxy reads only the server name.
    Tunnel,
    /// The proxy terminates TLS. It evaluates and scans each request and may inject credentials.
    Inspect,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub up: u64,
    pub down: u64,
}

/// How a flow ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// Both sides closed the connection.
    Done,
    Refused(Refusal),
    /// An upstream error: name resolution, connection or TLS.
    Failed(String),
}

/// A secret, or text that looks like one, in a flow. Never holds the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakReport {
    /// The id of a rule, `secret/NAME` or `secret/NAME/placeholder`.
    pub rule: String,
    pub place: LeakLocation,
    /// The encodings around it: `plain`, `base64/gzip`.
    pub encoding: String,
    /// Same salt as the other findings of the session: one secret has one fingerprint.
    pub fingerprint: Option<String>,
    pub action: LeakResponse,
}

/// Part of a request or response in which a secret was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeakLocation {
    Url,
    /// The value of the header of this name.
    Header(String),
    /// The name of a header, which held a secret.
    HeaderName,
    Body,
    /// A response header that held an injected secret.
    ResponseHeader(String),
    ResponseBody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeakResponse {
    /// The request was refused or aborted before these bytes.
    Blocked,
    /// Reported only.
    Flagged,
    /// Replaced in a response.
    Redacted,
}

/// Permission for one connection to one address, consumed by the attempt.
///
/// This crate does not implement it. Only [`FlowGate::opens`] returns a permit, for a flow that is allowed and recorded, and the
/// proxy cannot dial without one.
pub trait DialPermit: fmt::Debug + Send {
    fn address(&self) -> SocketAddr;
}

/// Decides about flows and records them. Shared by all flows of a session.
///
/// Methods may block on an approval or on fsync. The proxy calls them on a blocking thread pool. A flow that cannot be recorded is
/// refused.
pub trait FlowGate: Send + Sync + 'static {
    /// Evaluates a flow, or one request of an inspected flow.
    fn judge(&self, flow: &Flow) -> FlowVerdict;

    /// Whether the stub resolver may answer a name. Denied names have no address. Never asks for an approval.
    fn answers(&self, name: &str) -> bool;

    /// Records the intent to connect to `address`, which was checked, and returns the permit.
    fn opens(&self, flow: &Flow, address: IpAddr) -> Result<Box<dyn DialPermit>, Refusal>;

    /// Records a finding. A request that is blocked for it ends as refused.
    fn finding(&self, flow: &Flow, leak: &LeakReport);

    /// Records a connection without a valid target. Called a few times per second at most.
    fn malformed(&self, way: FlowIngress, why: &str);

    /// Records the end of a flow, including one that was refused before it began. Called after every other call for the flow has
    /// returned.
    fn ended(&self, flow: &Flow, traffic: Traffic, end: &FlowEnd);
}
