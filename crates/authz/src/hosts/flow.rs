//! Connections of what runs inside, of which often only host and port are known.
//!
//! A rule about some requests cannot be held against a connection. It opens one where it allows something there, and has the
//! proxy look inside, where each request is judged again.

use std::fmt;

use ringfence_types::{
    ApprovalMode, ByteString, Call, ContainsAll, Decision, FetchCall, FetchOrigin, FlowCall, Host,
    HostPattern, HostPatternError, HostRestriction, NetMode, Risk, RuleId, RuleName, SpecialAddress,
    UnlistedHosts, Way,
};

use super::request::{MatchStrictness, UrlRequest};
use super::{HostMismatch, HostQuery, HostRule, judge_sought, url};
use crate::judgement::{JudgementPart, PartKind};
use crate::policy::Policy;

/// How a connection that may be is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowHandling {
    /// A rule has something to say about single requests, or wants to see them.
    pub inspected: bool,
    /// It may be this machine or its network: a rule says so about exactly this host, or the host is one by its own name.
    pub may_be_local: bool,
}

/// Judges a connection, or one request in it.
pub fn judge_flow(policy: &Policy, flow: &FlowCall) -> JudgementPart {
    let shown = || ByteString::from(format!("{}:{}", flow.host, flow.port).as_str()).display();
    let malformed = |why: String| {
        JudgementPart::new(PartKind::Host, shown(), RuleId::HostMalformed)
            .because(why)
            .deny(Risk::High, "name one host, the same everywhere")
    };
    let tunnel = match TunnelQuery::of(flow) {
        Ok(tunnel) => tunnel,
        Err(why) => return malformed(why.to_string()),
    };
    let part = match &flow.request {
        None => judge_sought(policy, &tunnel),
        Some(request) => match UrlRequest::read(request.url.as_bytes(), Some(&request.method)) {
            Ok(read) if read.host != tunnel.host || read.port != tunnel.port => {
                return malformed("the request is for another host than the connection".to_owned());
            }
            Ok(read) => judge_sought(policy, &read),
            Err(error) => {
                JudgementPart::new(PartKind::Host, url::shown(request.url.as_bytes()), error.rule())
                    .because(error.to_string())
                    .deny(Risk::High, error.fix())
            }
        },
    };
    asked(policy, part)
}

/// Judges a request as the proxy would, which sees host, port, method and path of it.
pub fn judge_request(policy: &Policy, url: &[u8], method: Option<&str>) -> JudgementPart {
    asked(policy, super::judge_url(policy, url, method))
}

/// Judges what an agent wants to be fetched. Where Ringfence fetches it, whether a person has to be asked is a question about
/// each flow of it, redirects included, and is asked there. Of what the agent fetches itself there is no later question.
pub fn judge_fetch(policy: &Policy, fetch: &FetchCall) -> JudgementPart {
    let mut part = judge_request(policy, fetch.url.as_bytes(), Some(&fetch.method));
    if part.decision == Decision::Ask && fetch.by == FetchOrigin::Ringfence {
        (part.decision, part.fix) = (Decision::Allow, None);
    }
    part
}

/// A host that no rule names is a crossing.
fn asked(policy: &Policy, mut part: JudgementPart) -> JudgementPart {
    let asks = policy.net == NetMode::Filtered && policy.unlisted_hosts == UnlistedHosts::Ask;
    if asks && part.decision == Decision::Deny && is_unknown(&part.rule) {
        part.decision = Decision::Ask;
    }
    if policy.approval == ApprovalMode::Never { part.without_question() } else { part }
}

/// Whether a rule of this name says that no policy says anything about the host and port.
pub fn is_unknown(rule: &RuleName) -> bool {
    matches!(rule.id(), Some(RuleId::HostUnlisted | RuleId::HostPort))
}

/// Whether a name has an address inside. A host that is denied at every port has none; a host that a person would be
/// asked about has one, or the question would never come up.
pub fn may_resolve(policy: &Policy, host: &Host) -> bool {
    policy.all().all(|policy| may_resolve_now(policy, host))
}

fn may_resolve_now(policy: &Policy, host: &Host) -> bool {
    if host.special() == Some(SpecialAddress::Metadata) || policy.net == NetMode::None {
        return false;
    }
    let about = || policy.rules.hosts.about(host);
    let whole = |entry: &&HostRule| !entry.is_partial() && entry.host.port().is_none();
    if about().filter(whole).any(|entry| entry.decision == Decision::Deny) {
        return false;
    }
    let opens = |entry: &HostRule| entry.decision != Decision::Deny && super::may_open(entry, host);
    let asks = policy.unlisted_hosts == UnlistedHosts::Ask && policy.approval == ApprovalMode::Ask;
    about().any(opens) || asks && host.special().is_none()
}

/// Whether a session with this policy could reach the host, at least after a question. A host without a port stands for
/// every port of it, and one below a name for all of them: a rule must open all of that.
pub fn is_open(policy: &Policy, limit: &HostRestriction) -> bool {
    let Some(rule) = limit.rule() else { return false };
    policy.all().all(|policy| is_open_now(policy, limit, &rule))
}

fn is_open_now(policy: &Policy, limit: &HostRestriction, rule: &HostPattern) -> bool {
    if let (Some(port), Host::Name(_) | Host::V4(_) | Host::V6(_)) = (rule.port(), rule.host()) {
        let filtered = Policy { net: NetMode::Filtered, began: None, ..policy.clone() };
        let host = rule.host().to_string();
        let flow = FlowCall { way: Way::Connect, host, port, request: None, address: None };
        return judge_flow(&filtered, &flow).decision != Decision::Deny;
    }
    let asks = policy.approval == ApprovalMode::Ask;
    let entries = || policy.rules.hosts.entries.values().flatten();
    let about = |entry: &&HostRule| HostRestriction::new(&entry.host).covers(limit);
    let is_denied = entries().filter(about).any(|entry| entry.decision == Decision::Deny);
    let opens = entries().filter(about).any(|entry| {
        entry.source.has_authority()
            && (entry.decision == Decision::Allow || entry.decision == Decision::Ask && asks)
    });
    !is_denied && (opens || asks && policy.unlisted_hosts == UnlistedHosts::Ask)
}

/// How the proxy treats connections to a host.
pub fn handling(policy: &Policy, host: &Host, port: u16) -> FlowHandling {
    let all = || policy.all().map(|policy| handling_now(policy, host, port));
    FlowHandling {
        inspected: all().any(|handling| handling.inspected),
        may_be_local: all().all(|handling| handling.may_be_local),
    }
}

fn handling_now(policy: &Policy, host: &Host, port: u16) -> FlowHandling {
    let about = || {
        let entries = policy.rules.hosts.about(host);
        entries.filter(move |entry| entry.host.port().is_none_or(|own| own == port))
    };
    let opening = || about().filter(|entry| entry.decision != Decision::Deny && entry.source.has_authority());
    FlowHandling {
        inspected: about().any(|entry| entry.inspect || entry.is_partial()),
        may_be_local: opening()
            .any(|entry| entry.host.host() == host && (entry.local || host.special().is_some())),
    }
}

/// The host that a call is about, with its port, as it is judged.
pub fn sought(call: &Call) -> Option<HostPattern> {
    match call {
        Call::Flow(flow) => HostPattern::parse(&format!("{}:{}", flow.host, flow.port)).ok(),
        Call::Fetch(fetch) => {
            let request = UrlRequest::read(fetch.url.as_bytes(), Some(&fetch.method)).ok()?;
            HostPattern::parse(&format!("{}:{}", request.host, request.port)).ok()
        }
        Call::Exec(_) | Call::File(_) | Call::Apply(_) | Call::Land(_) | Call::Tool(_) => None,
    }
}

/// A connection to a host and port, whatever is said in it.
struct TunnelQuery {
    host: Host,
    port: u16,
}

/// Why a connection cannot be judged.
#[derive(Debug, thiserror::Error)]
enum TunnelQueryError {
    #[error(transparent)]
    Host(#[from] HostPatternError),
    #[error("this is a pattern, not a host")]
    Pattern,
    #[error("the port is not one")]
    Port,
}

impl TunnelQuery {
    fn of(flow: &FlowCall) -> Result<Self, TunnelQueryError> {
        let rule = HostPattern::parse(&flow.host)?;
        match rule.host() {
            Host::Below(_) => Err(TunnelQueryError::Pattern),
            _ if rule.port().is_some() || flow.port == 0 => Err(TunnelQueryError::Port),
            host => Ok(Self { host: host.clone(), port: flow.port }),
        }
    }
}

impl HostQuery for TunnelQuery {
    fn host(&self) -> &Host {
        &self.host
    }

    /// What is about some requests opens the connection and closes none of it.
    fn mismatch(&self, entry: &HostRule, side: MatchStrictness) -> Option<HostMismatch> {
        if entry.host.port().is_some_and(|port| port != self.port) {
            return Some(HostMismatch::Port);
        }
        (side == MatchStrictness::Restrict && entry.is_partial()).then_some(HostMismatch::Path)
    }

    fn risk(&self) -> Risk {
        Risk::Medium
    }

    fn lacks(&self, _port: HostMismatch) -> String {
        format!("port {} is not allowed for this host", self.port)
    }

    fn authority(&self) -> String {
        match self.port {
            80 | 443 => self.host.to_string(),
            port => format!("{}:{port}", self.host),
        }
    }
}

impl fmt::Display for TunnelQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
