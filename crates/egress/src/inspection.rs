//! What the session's HTTP needs besides connections: an authority, its secrets, the servers it knows.

use std::sync::Arc;

use ringfence_types::HostRule;

use crate::ca::Ca;
use crate::credential::Secrets;
use crate::gate::Target;
use crate::look::Told;
use crate::upstream::Upstream;

/// By default nothing can be inspected and no secret is known.
#[derive(Clone, Debug, Default)]
pub struct HttpSettings {
    /// Without one, hosts that are to be inspected are refused.
    pub ca: Option<Arc<Ca>>,
    pub secrets: Arc<Secrets>,
    /// Hosts with which a connection may become a WebSocket. What then passes is not looked at.
    pub upgrades: Vec<HostRule>,
    pub providers: Vec<Provider>,
    /// Certificates, in PEM, that servers may be verified by besides the system's.
    pub extra_roots: Vec<u8>,
}

/// A server that clients reach by a base URL at the proxy itself: `http://PROXY/ringfence/provider/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    pub name: String,
    pub upstream: Target,
}

#[derive(Debug)]
pub(crate) struct Inspection {
    pub(crate) upstream: Upstream,
    pub(crate) told: Arc<Told>,
}

impl Inspection {
    pub(crate) fn new(settings: &HttpSettings) -> Self {
        Self { upstream: Upstream::new(settings.extra_roots.clone()), told: Arc::default() }
    }
}
