//! Settings of HTTP in a session: certificate authority, credentials, provider routes.

use std::sync::Arc;

use ringfence_types::HostPattern;

use crate::credential::CredentialSet;
use crate::flow_gate::FlowTarget;
use crate::leak_check::LeakDedup;
use crate::session_ca::SessionCa;
use crate::upstream::UpstreamPool;

/// By default no host can be inspected and no secret is known.
#[derive(Clone, Debug, Default)]
pub struct HttpSettings {
    /// Without a CA the proxy refuses hosts that policy wants inspected.
    pub ca: Option<Arc<SessionCa>>,
    pub secrets: Arc<CredentialSet>,
    /// Hosts that may upgrade to a WebSocket. Its content is not inspected.
    pub upgrades: Vec<HostPattern>,
    pub providers: Vec<ProviderRoute>,
    /// PEM certificates that are trusted in addition to the system's.
    pub extra_roots: Vec<u8>,
}

/// A provider that clients reach by a base URL at the proxy: `http://PROXY/ringfence/provider/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderRoute {
    pub name: String,
    pub upstream: FlowTarget,
}

#[derive(Debug)]
pub(crate) struct Inspection {
    pub(crate) upstream: UpstreamPool,
    pub(crate) told: Arc<LeakDedup>,
}

impl Inspection {
    pub(crate) fn new(settings: &HttpSettings) -> Self {
        Self { upstream: UpstreamPool::new(settings.extra_roots.clone()), told: Arc::default() }
    }
}
