//! The daemon: sessions of agents behind one door.
//!
//! Every request takes one path, in [`dispatch`]: who asks, whether they may, what is done, what is written down. Transports
//! only turn bytes into a method and a request ([`http`], [`rpc`], [`grpc`]). What is done goes through the pipeline of the runtime, so that there
//! is no effect here that `ringfence run` would not have.
//!
//! What the attacker controls here: everything that arrives on a door of a session, and who connects to the socket.

mod answers;
mod approvals;
mod ask;
mod authenticate;
mod call;
mod ceiling;
mod connection;
mod desk;
mod dispatch;
mod door;
mod events;
mod exec;
mod failure;
mod files;
mod frames;
mod grpc;
mod http;
mod identity;
mod intake;
mod linger;
mod listen;
mod mcp;
mod metrics;
mod narrowed;
mod network;
mod outbox;
mod output;
mod pace;
mod parts;
mod peer;
mod places;
mod quota;
mod rate;
mod reload;
mod request_body;
mod room;
mod route;
mod rpc;
mod server;
mod session;
mod sessions;
mod socket;
mod sources;
mod standing;
mod strangers;
mod stream;
mod telemetry;
mod threads;
mod told;
mod transfer;
mod turns;
mod waiter;
mod weigh;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringfence_runtime::authz::policy::{PolicyFile, TelemetrySettings};
use ringfence_runtime::{Asked, Runtime};
use ringfence_types::{NetMode, Profile, Refusal};

pub use listen::{ListenError, Listening, check_directory, doors_of, is_locked};
pub use network::{Network, NetworkError};
pub use server::{ServeError, serve};
pub use telemetry::{CollectorError, TelemetryError, check_telemetry};

/// Puts together what a session is asked to be, from the operator's policy and that of the workspace.
pub trait Governor: fmt::Debug + Send + Sync {
    /// For a session that begins.
    fn govern(&self, wanted: &Wanted) -> Result<Governed, Refusal>;

    /// For one that runs: at most what it began with. A file of the workspace that is wrong by now leaves the one that was
    /// `last` right in force, and what the operator says counts in any case.
    fn govern_again(&self, wanted: &Wanted, files: Earlier<'_>) -> Result<Governed, Refusal>;

    /// Other than before when what is said to a session may be: of the operator's files as they were last taken, and of the
    /// workspace's as they are.
    fn edition(&self, wanted: &Wanted) -> Edition;

    /// How long "always here" holds where nobody says it; `None`: as long as is usual.
    fn grant_expiry(&self) -> Option<Duration>;

    /// Where traces and logs are sent, by the operator's files as they were last taken. `None`: nowhere.
    fn telemetry(&self) -> Option<TelemetrySettings>;

    /// Looks at the operator's files, and takes them if they are others and right. `None`: they are what they were.
    fn reload(&self) -> Option<Reload>;
}

/// What a session is asked to be, and the files that say so.
#[derive(Clone, Debug)]
pub struct Governed {
    pub asked: Asked,
    pub files: Vec<PolicyFile>,
}

/// The files that a session had before.
#[derive(Clone, Copy, Debug)]
pub struct Earlier<'a> {
    pub began: &'a [PolicyFile],
    pub last: &'a [PolicyFile],
}

/// Two that are the same say the same.
pub type Edition = Vec<i64>;

/// What became of files that were others.
#[derive(Clone, Debug)]
pub struct Reload {
    pub file: PathBuf,
    /// Of what holds now.
    pub sha256: String,
    pub change: String,
    pub taken: bool,
}

/// What somebody wants a session to be, as far as policy has a word in it.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub workspace: PathBuf,
    pub agent: Option<String>,
    pub profile: Option<Profile>,
    pub net: Option<NetMode>,
    pub limits: ringfence_api::SessionLimits,
}

/// What the daemon is made of.
#[derive(Debug)]
pub struct Serve {
    pub runtime: Runtime,
    pub governor: Arc<dyn Governor>,
    pub listening: Listening,
    /// For browsers and other machines, where the operator wants it.
    pub network: Option<Network>,
    /// Where sessions get their doors.
    pub doors: PathBuf,
    pub settings: Settings,
}

/// How much the daemon does at once.
#[derive(Clone, Debug)]
pub struct Settings {
    pub sessions: usize,
    pub calls_of_a_session: usize,
    pub calls: usize,
    /// How long what runs may take to end when the daemon does.
    pub drain: std::time::Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { sessions: 256, calls_of_a_session: 64, calls: 256, drain: std::time::Duration::from_secs(10) }
    }
}
