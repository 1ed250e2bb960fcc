//! The daemon: sessions of agents behind one API.
//!
//! Every request takes one path, `admit::dispatch`: authenticate, authorize, record, perform. Transports only turn
//! bytes into a method and a request. Effects go through the runtime's pipeline, so the daemon has none that `ringfence
//! run` does not have.
//!
//! What it is not: it reads no environment and no policy file, and evaluates no policy. A [`PolicyProvider`] gives it the policy of
//! a session, and the runtime evaluates it.
//!
//! The attacker controls everything that arrives on a session socket, and may connect to the operators' socket.

mod admit;
mod calls;
mod errors;
mod limits;
mod observe;
mod server;
mod sessions;
mod transport;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringfence_policy::{PolicyFile, TelemetrySettings};
use ringfence_runtime::{FileStamps, Runtime, SessionSpec};
use ringfence_types::{NetMode, Profile, Refusal};

pub use observe::telemetry::{CollectorError, TelemetryError, check_telemetry};
pub use server::{ServeError, serve};
pub use transport::tcp_listener::{TcpListenError, TcpListenerConfig};
pub use transport::unix_listener::{
    ListenError, UnixListenerGuard, check_directory, check_socket_path, doors_of, is_locked,
};

/// Combines the policy of the operator and of the workspace into the specification of a session.
pub trait PolicyProvider: fmt::Debug + Send + Sync {
    /// The policy of a new session.
    fn govern(&self, wanted: &SessionPolicyRequest) -> Result<SessionPolicy, Refusal>;

    /// The policy of a running session: at most what it started with. If the workspace file is invalid, its `last`
    /// valid version stays in force. The operator's files always count.
    fn govern_again(
        &self,
        wanted: &SessionPolicyRequest,
        files: PreviousPolicy<'_>,
    ) -> Result<SessionPolicy, Refusal>;

    /// Changes when the policy of the session may have changed: from the operator's files as last read, and the
    /// workspace's files as they are.
    fn edition(&self, wanted: &SessionPolicyRequest) -> PolicyVersion;

    /// Default lifetime of an "always here" grant. `None`: the built-in default.
    fn grant_lifetime(&self) -> Option<Duration>;

    /// Where traces and logs are exported, by the operator's files as last read. `None`: nowhere.
    fn telemetry(&self) -> Option<TelemetrySettings>;

    /// Reads the operator's files, and applies them if they changed and are valid. `None`: unchanged.
    fn reload(&self) -> Option<ReloadOutcome>;
}

/// The specification of a session, with the policy files it comes from.
#[derive(Clone, Debug)]
pub struct SessionPolicy {
    pub asked: SessionSpec,
    pub files: Vec<PolicyFile>,
}

/// The policy files a session started with, and the last valid ones.
#[derive(Clone, Copy, Debug)]
pub struct PreviousPolicy<'a> {
    pub began: &'a [PolicyFile],
    pub last: &'a [PolicyFile],
}

/// Equal versions mean equal policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyVersion {
    /// How often the operator's files were loaded.
    pub loads: u64,
    /// The files of the workspace.
    pub files: FileStamps,
}

/// The result of reading changed policy files.
#[derive(Clone, Debug)]
pub struct ReloadOutcome {
    pub file: PathBuf,
    /// Digest of the policy now in force.
    pub sha256: String,
    pub change: String,
    pub taken: bool,
}

/// The parts of a session request that policy decides on.
#[derive(Clone, Debug)]
pub struct SessionPolicyRequest {
    pub workspace: PathBuf,
    pub agent: Option<String>,
    pub profile: Option<Profile>,
    pub net: Option<NetMode>,
    pub limits: ringfence_api::SessionLimits,
}

/// What the daemon is started with.
#[derive(Debug)]
pub struct DaemonConfig {
    pub runtime: Runtime,
    pub governor: Arc<dyn PolicyProvider>,
    pub listening: UnixListenerGuard,
    /// The TCP listener for browsers and other machines, if the operator configured one.
    pub network: Option<TcpListenerConfig>,
    /// Directory of the session sockets.
    pub doors: PathBuf,
    pub settings: DaemonLimits,
}

/// Limits on concurrent work.
#[derive(Clone, Debug)]
pub struct DaemonLimits {
    pub sessions: usize,
    pub calls_of_a_session: usize,
    pub calls: usize,
    /// How long running calls may take to end during shutdown.
    pub drain: std::time::Duration,
}

impl Default for DaemonLimits {
    fn default() -> Self {
        Self { sessions: 256, calls_of_a_session: 64, calls: 256, drain: std::time::Duration::from_secs(10) }
    }
}
