//! How sessions in containers are made.

use std::path::PathBuf;

use ringfence_types::units::HumanDuration;
use ringfence_types::{ImageName, OciRuntime};

/// What `[container]` says, for the backend of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPolicy {
    /// The first where none was named. `None`: whatever is on the operator's list, once it is named.
    pub images: Option<Vec<ImageName>>,
    /// Digests of keys, one of which has signed the image. `None`: no signature is asked for.
    pub trusted_keys: Option<Vec<String>>,
    /// `None`: what the engine uses by itself.
    pub runtime: Option<OciRuntime>,
    /// The engine's socket. `None`: the first of the usual places.
    pub engine_socket: Option<PathBuf>,
    /// Containers that wait for a session.
    pub warm_containers: usize,
    /// A container that nothing ran in for so long is removed; the next call makes another.
    pub max_idle: HumanDuration,
    /// So does one that is older than this, between two calls.
    pub max_age: HumanDuration,
}

impl Default for ContainerPolicy {
    fn default() -> Self {
        const DAY: u64 = 24 * 60 * 60 * 1000;
        Self {
            images: None,
            trusted_keys: None,
            runtime: None,
            engine_socket: None,
            warm_containers: 0,
            max_idle: HumanDuration(DAY),
            max_age: HumanDuration(7 * DAY),
        }
    }
}
