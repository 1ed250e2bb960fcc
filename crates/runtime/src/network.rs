//! The filtered network of a session: the gate that judges and records each flow, and the proxy that asks it.

mod desk;
mod gate;
mod in_force;
mod inside;
mod seen;

use std::fmt;
use std::sync::Arc;

use ringfence_egress::{
    Budget, Ca, CaError, CredentialError, Doors, FetchError, FetchLimits, FetchRequest, FetchResponse,
    Fetcher, Gate, HttpSettings, Limits, Proxy, Secrets, Settings, StartError,
};

use ringfence_authz::Policy;
use ringfence_sandbox::Hold;
use ringfence_types::{Fetch, HostRule};

use crate::approval::Nobody;
use crate::salt::Salt;
use crate::session::{AgentSession, Asked, PolicySource};
pub(crate) use desk::SharedApprover;
use desk::{Desk, Who};
use gate::SessionGate;
use in_force::{InForce, Standing};

pub use inside::provider_url;
pub(crate) use inside::{bundle, variables};
pub use seen::{Seen, SeenFlow, SeenRefusal};

/// Who is asked about flows, and where the policy is read again, from the threads of the proxy.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    pub(crate) approver: Arc<SharedApprover>,
    pub(crate) source: Option<Arc<dyn PolicySource + Send + Sync>>,
}

impl Default for Attention {
    fn default() -> Self {
        Self { approver: Arc::new(SharedApprover::new(Nobody)), source: None }
    }
}

/// A proxy that runs. Dropping it closes every flow.
pub(crate) struct Network {
    /// First: its flows end while there is a gate to tell.
    proxy: Proxy,
    gate: Arc<SessionGate>,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("proxy", &self.proxy).finish_non_exhaustive()
    }
}

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("the sandbox has no door to the proxy")]
    NoDoors,
    #[error("the proxy cannot be started")]
    Start(#[from] StartError),
    #[error("the fingerprints of secrets cannot be made")]
    Salt(#[source] std::io::Error),
    #[error(transparent)]
    Ca(#[from] CaError),
    #[error("the proxy cannot look after the secrets of the session")]
    Credentials(#[from] CredentialError),
}

impl Network {
    /// Behind the doors of a sandbox that stands.
    pub(crate) fn open(
        session: &AgentSession<'_>,
        (doors, hold): (Doors, Hold),
        ca: Arc<Ca>,
    ) -> Result<Self, NetworkError> {
        let gate = Arc::new(gate_of(session, Some(hold)));
        let settings = settings(session, Some(ca))?;
        let proxy = Proxy::start(doors, Arc::clone(&gate) as Arc<dyn Gate>, settings)?;
        Ok(Self { proxy, gate })
    }

    /// What went through it so far.
    pub(crate) fn seen(&self) -> Seen {
        self.gate.seen()
    }

    /// Ends every flow and every question; what there was to see.
    pub(crate) fn close(self) -> Seen {
        let Self { proxy, gate } = self;
        gate.close();
        drop(proxy);
        gate.seen()
    }
}

/// Fetches for the agent, in this process: by the same gate, to the same checked addresses, with the same credentials.
pub(crate) fn fetch(
    session: &AgentSession<'_>,
    wanted: &Fetch,
) -> Result<(Result<FetchResponse, FetchError>, Seen), NetworkError> {
    let gate = Arc::new(gate_of(session, None));
    let fetcher = Fetcher::start(Arc::clone(&gate) as Arc<dyn Gate>, settings(session, None)?)?;
    let request = FetchRequest {
        method: wanted.method.clone(),
        url: wanted.url.clone(),
        limits: FetchLimits::default(),
    };
    let fetched = fetcher.fetch(request);
    drop(fetcher);
    Ok((fetched, gate.seen()))
}

/// Also of a policy that was read again, only what was so from the beginning.
fn upgrades(policy: &Policy) -> Vec<HostRule> {
    let mut hosts = policy.rules.hosts.upgrades();
    for before in policy.all().skip(1) {
        let before = before.rules.hosts.upgrades();
        hosts.retain(|host| before.contains(host));
    }
    hosts
}

fn settings(session: &AgentSession<'_>, ca: Option<Arc<Ca>>) -> Result<Settings, NetworkError> {
    let salt = Salt::load(&session.runtime.setup.state_dir).map_err(NetworkError::Salt)?;
    let (credentials, signings) = (session.secrets.credentials(), session.secrets.signings());
    let secrets = Secrets::new(credentials, signings, Some(salt.of_scanner()))?;
    let http = HttpSettings {
        ca,
        secrets: Arc::new(secrets),
        upgrades: upgrades(&session.policy),
        providers: session.secrets.providers(),
        ..HttpSettings::default()
    };
    let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    Ok(Settings { http, limits: limits(open_files, &session.policy.limits), ..Settings::default() })
}

/// No more connections than there are descriptors for: two for each, and some for everything else.
fn limits(open_files: Option<u64>, wanted: &ringfence_types::Limits) -> Limits {
    const OTHERS: u64 = 256;
    let limits = Limits::default();
    let pairs = open_files.map_or(u64::MAX, |files| (files.saturating_sub(OTHERS) / 2).max(1));
    let least = |count: u64| usize::try_from(count.min(pairs)).unwrap_or(usize::MAX);
    let session = Budget { up: wanted.up_bytes, down: wanted.down_bytes };
    Limits {
        connections: least(wanted.flows.max(limits.connections as u64)),
        flows: least(wanted.flows),
        flows_per_second: u32::try_from(wanted.flows_per_second).unwrap_or(u32::MAX),
        session,
        ..limits
    }
}

fn gate_of(session: &AgentSession<'_>, hold: Option<Hold>) -> SessionGate {
    let asked = Asked {
        policy_digest: session.policy_digest.clone(),
        policy_files: session.policy_files.clone(),
        settings: session.settings.clone(),
        ..Asked::new(session.workspace.path.clone(), session.policy.clone())
    };
    let who = Who {
        workspace: session.workspace.id.clone(),
        requester: session.requester(),
        owner: session.started_by.clone(),
        stated: session.stated.clone(),
        by: session.made_by.clone().filter(|_| hold.is_none()),
    };
    let desk =
        Desk::new((Arc::clone(&session.attention.approver), hold), who, session.common.memory().clone());
    let standing = Standing::new(InForce::new(asked, session.all_roots()), session.attention.source.clone());
    let gate = SessionGate::new(
        (Arc::clone(&session.runtime.ledger), session.runtime.setup.clone()),
        (session.id.clone(), session.leaks.clone()),
        (standing, desk),
        session.secrets.inspected_hosts(),
    );
    gate.leaving(session.left.hosts.clone())
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
