//! The filtered network of a session: its proxy, and the gate that takes each flow through the pipeline.

mod proxy_env;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ringfence_egress::{
    ByteBudget, CaError, CredentialError, CredentialSet, DirectFetcher, FetchError, FetchLimits,
    FetchRequest, FetchResponse, FlowGate, HttpSettings, Proxy, ProxyLimits, ProxyListeners, ProxySettings,
    ProxyStartError, SessionCa,
};

use ringfence_authz::Policy;
use ringfence_sandbox::RelayPause;
use ringfence_types::{AllOrOnly, Call, HostPattern, HostRestriction, NetCeiling};

use crate::approvals::NoApprover;
use crate::effect::{FetchEffect, FlowRequester, Flows, SessionGate, SharedApprover};
use crate::finding_salt::StateSalt;
use crate::pipeline::Running;
use crate::policy_reload::{CurrentPolicy, PolicyCache};
use crate::session::{AgentSession, PolicySource, SessionSpec};

pub use crate::effect::{FlowCount, FlowSummary, RefusedHostCount};
pub use proxy_env::provider_url;
pub(crate) use proxy_env::{bundle, variables};

/// The approver and the policy source that proxy threads use.
#[derive(Clone, Debug)]
pub(crate) struct FlowApproverSettings {
    pub(crate) approver: Arc<SharedApprover>,
    pub(crate) source: Option<Arc<dyn PolicySource + Send + Sync>>,
}

impl Default for FlowApproverSettings {
    fn default() -> Self {
        Self { approver: Arc::new(SharedApprover::new(NoApprover)), source: None }
    }
}

/// A running proxy. Dropping it closes every flow.
pub(crate) struct SessionProxy {
    /// First, so that its flows end while the gate still records them.
    proxy: Proxy,
    gate: Arc<SessionGate>,
}

impl fmt::Debug for SessionProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("proxy", &self.proxy).finish_non_exhaustive()
    }
}

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionProxyError {
    #[error("the sandbox has no listener of the proxy")]
    NoDoors,
    #[error("the call is not a fetch")]
    NoFetch,
    #[error("the proxy cannot be started")]
    Start(#[from] ProxyStartError),
    #[error("the fingerprints of secrets cannot be made")]
    Salt(#[source] std::io::Error),
    #[error(transparent)]
    Ca(#[from] CaError),
    #[error("the proxy cannot look after the secrets of the session")]
    Credentials(#[from] CredentialError),
}

impl SessionProxy {
    /// Starts the proxy on the listeners of a running sandbox.
    pub(crate) fn open(
        session: &AgentSession<'_>,
        doors: ProxyListeners,
        hold: RelayPause,
        ca: Arc<SessionCa>,
    ) -> Result<Self, SessionProxyError> {
        let gate = Arc::new(gate_of(session, Some(hold)));
        let settings = settings(session, Some(ca))?;
        let proxy = Proxy::start(doors, Arc::clone(&gate) as Arc<dyn FlowGate>, settings)?;
        Ok(Self { proxy, gate })
    }

    /// The summary so far.
    pub(crate) fn seen(&self) -> FlowSummary {
        self.gate.seen()
    }

    /// Ends every flow and approval; returns the summary.
    pub(crate) fn close(self) -> FlowSummary {
        let Self { proxy, gate } = self;
        gate.close();
        drop(proxy);
        gate.seen()
    }
}

/// Fetches a page for the agent in this process, with the same gate, address checks and credentials as the
/// proxy.
pub(crate) fn fetch(
    session: &AgentSession<'_>,
    running: &Running<FetchEffect>,
) -> Result<(Result<FetchResponse, FetchError>, FlowSummary), SessionProxyError> {
    let Call::Fetch(wanted) = running.call() else { return Err(SessionProxyError::NoFetch) };
    let gate = Arc::new(gate_of(session, None));
    let fetcher = DirectFetcher::start(Arc::clone(&gate) as Arc<dyn FlowGate>, settings(session, None)?)?;
    let request = FetchRequest {
        method: wanted.method.clone(),
        url: wanted.url.clone(),
        limits: FetchLimits::default(),
    };
    let fetched = fetcher.fetch(request);
    drop(fetcher);
    Ok((fetched, gate.seen()))
}

/// Hosts that every policy of the session allowed to upgrade: a reload only narrows.
fn upgrades(policy: &Policy) -> Vec<HostPattern> {
    let mut hosts = policy.rules.hosts.upgrades();
    for before in policy.all().skip(1) {
        let before = before.rules.hosts.upgrades();
        hosts.retain(|host| before.contains(host));
    }
    hosts
}

fn settings(
    session: &AgentSession<'_>,
    ca: Option<Arc<SessionCa>>,
) -> Result<ProxySettings, SessionProxyError> {
    let salt = StateSalt::load(&session.runtime.setup.state_dir).map_err(SessionProxyError::Salt)?;
    let (credentials, signings) = (session.secrets.credentials(), session.secrets.signings());
    let secrets = CredentialSet::new(credentials, signings, Some(salt.of_scanner()))?;
    let http = HttpSettings {
        ca,
        secrets: Arc::new(secrets),
        upgrades: upgrades(&session.policy),
        providers: session.secrets.providers(),
        ..HttpSettings::default()
    };
    let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    Ok(ProxySettings { http, limits: limits(open_files, &session.policy.limits), ..ProxySettings::default() })
}

/// Limits connections by the available descriptors: two for each, and a reserve for everything else.
fn limits(open_files: Option<u64>, wanted: &ringfence_types::Limits) -> ProxyLimits {
    const OTHERS: u64 = 256;
    let limits = ProxyLimits::default();
    let pairs = open_files.map_or(u64::MAX, |files| (files.saturating_sub(OTHERS) / 2).max(1));
    let least = |count: u64| usize::try_from(count.min(pairs)).unwrap_or(usize::MAX);
    let session = ByteBudget { up: wanted.max_bytes_out, down: wanted.max_bytes_in };
    ProxyLimits {
        connections: least(wanted.max_flows.max(limits.connections as u64)),
        flows: least(wanted.max_flows),
        flows_per_second: u32::try_from(wanted.max_flow_rate).unwrap_or(u32::MAX),
        session,
        ..limits
    }
}

/// The hosts within the ceiling of the call.
fn hosts_of_call(session: &AgentSession<'_>) -> AllOrOnly<HostRestriction> {
    match session.own.as_ref().and_then(|own| own.ceiling.net.as_ref()) {
        Some(NetCeiling::Hosts(hosts)) => AllOrOnly::Only(hosts.iter().cloned().collect()),
        Some(NetCeiling::None) => AllOrOnly::Only(BTreeSet::new()),
        Some(NetCeiling::Filtered) | None => AllOrOnly::Any,
    }
}

fn gate_of(session: &AgentSession<'_>, hold: Option<RelayPause>) -> SessionGate {
    let asked = SessionSpec {
        policy_digest: session.policy_digest.clone(),
        policy_files: session.policy_files.clone(),
        settings: session.settings.clone(),
        ..SessionSpec::new(session.workspace.path.clone(), session.policy.clone())
    };
    let requester = FlowRequester {
        workspace: session.workspace.id.clone(),
        requester: session.requester(),
        owner: session.started_by.clone(),
        stated: session.stated.clone(),
        by: session.made_by.clone().filter(|_| hold.is_none()),
        session: session.session_facts(),
        given: session.secrets.given(),
    };
    let current = CurrentPolicy::new(asked, session.all_roots());
    SessionGate {
        ledger: Arc::clone(&session.runtime.ledger),
        setup: session.runtime.setup.clone(),
        session: session.id.clone(),
        leaks: session.leaks.clone(),
        policy: PolicyCache::new(current, session.attention.source.clone()),
        memory: Arc::clone(session.common.memory()),
        approver: Arc::clone(&session.attention.approver),
        hold,
        requester,
        inspected: session.secrets.inspected_hosts(),
        left: session.left.hosts.clone(),
        ceiling: hosts_of_call(session),
        flows: Flows::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_descriptors() {
        for (files, most) in [(Some(0), 1), (Some(1024), 384), (Some(1 << 20), 8192), (None, 8192)] {
            let limits = limits(files, &ringfence_types::Limits::default());
            assert_eq!((limits.connections, limits.flows), (most, most), "{files:?}");
        }
    }
}
