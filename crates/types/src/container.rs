//! What a container is made from. The sandbox says it, and an engine is asked for it.

use std::path::PathBuf;

use crate::{Access, ImageId, Limits, NetMode, OciRuntime};

/// Which engine and which image a session runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSpec {
    /// The engine's API socket.
    pub engine: PathBuf,
    pub image: ImageId,
    /// `None`: what the engine uses by itself.
    pub runtime: Option<OciRuntime>,
}

/// A directory or file of the host, and where it is inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindMount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub access: Access,
}

/// The container of one session. Its only program is ours; nothing of the image runs before that allows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRequest {
    pub spec: ContainerSpec,
    /// An engine has one container of a name.
    pub name: String,
    /// Where the program is inside that becomes PID 1.
    pub init: PathBuf,
    /// With room for the processes of PID 1.
    pub limits: Limits,
    pub net: NetMode,
    pub bound: Vec<BindMount>,
    /// The directory that it belongs to: what killed sessions left with another is none of our business.
    pub registry: PathBuf,
    /// A digest of all that cannot be changed once it was made, for its label.
    pub config: String,
}
