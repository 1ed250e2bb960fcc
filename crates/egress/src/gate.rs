//! What the proxy asks of whoever knows the policy and keeps the record.

use std::fmt;
use std::net::IpAddr;

use ringfence_types::{Host, Refusal};

/// Counts the flows of one session, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

/// Where a flow leads. Never [`Host::Below`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub host: Host,
    pub port: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// How a client came to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `CONNECT host:port`.
    Connect,
    /// `GET http://host/… HTTP/1.1`.
    Forward,
    Socks,
    /// A connection to an address that the namespace led here.
    Transparent,
    /// A request to the proxy itself, for a provider whose base URL it is.
    Reverse,
    /// A fetch of the session, made in this process.
    Fetch,
}

/// What somebody inside wants to do, before anything is resolved or dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub id: FlowId,
    pub way: Way,
    pub target: Target,
    /// Known for plain and inspected HTTP; `None` for a tunnel that was only asked for.
    pub request: Option<Request>,
}

/// One HTTP request of a flow. Without secrets: it is shown and recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// `http` or `https`, host, port and path: what is judged.
    pub url: String,
}

#[derive(Clone, Debug)]
pub enum Verdict {
    Pass(Passage),
    Refuse(Refusal),
}

/// What a flow may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    pub treatment: Treatment,
    pub reach: Reach,
}

/// What the host of a flow may turn out to be. Never a metadata service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A host on the internet alone.
    Internet,
    /// Also this machine and its networks: a rule names exactly this host.
    Special,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Bytes pass; of TLS only the name that is asked for is looked at.
    Tunnel,
    /// TLS ends here; each request is judged, scanned and may be given a credential.
    Inspect,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub up: u64,
    pub down: u64,
}

/// What became of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// Both sides are done.
    Done,
    Refused(Refusal),
    /// Whatever went wrong outside: the name, the connection, TLS.
    Failed(String),
}

/// A secret that was on its way out, or something that looks like one. Never the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// The id of a rule, `secret/NAME` or `secret/NAME/placeholder`.
    pub rule: String,
    pub place: Place,
    /// The encodings around it: `plain`, `base64/gzip`.
    pub encoding: String,
    /// As other findings of the session: one secret has one, wherever it was found.
    pub fingerprint: Option<String>,
    pub action: LeakAction,
}

/// In which part of a request or response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Url,
    /// The value of the header of this name.
    Header(String),
    /// A name where a header's name should be.
    HeaderName,
    Body,
    /// A header of the response that held a secret the proxy had put in.
    ResponseHeader(String),
    ResponseBody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeakAction {
    /// The request was refused, or cut off before these bytes.
    Blocked,
    /// It passed.
    Flagged,
    /// It was taken out of a response.
    Redacted,
}

/// Decides about flows and writes them down. Shared by all flows of a session.
///
/// Every method may block: a person may be asked, a record is made durable. The proxy calls it where that holds up nobody
/// else. A flow whose record cannot be written does not happen.
pub trait Gate: Send + Sync + 'static {
    /// Whether a flow, or one request of an inspected flow, may be.
    fn judge(&self, flow: &Flow) -> Verdict;

    /// Whether a name may be answered inside: what is denied has no address. Nobody is asked for this.
    fn answers(&self, name: &str) -> bool;

    /// Written before a connection is made to `address`, which was checked.
    fn opens(&self, flow: &Flow, address: IpAddr) -> Result<(), Refusal>;

    /// Written when a scanned request or response has something in it. A request that is blocked for it ends as refused.
    fn finding(&self, flow: &Flow, leak: &Leak);

    /// Written when somebody came with what is no flow, because nobody can tell where to. At most a few a second.
    fn malformed(&self, way: Way, why: &str);

    /// Written when it is over, and for what was refused before it began. After every other call for the flow has returned.
    fn ended(&self, flow: &Flow, traffic: Traffic, end: &FlowEnd);
}
