//! Container engines: Podman and Docker over their API. A [`Container`] is made as a `ContainerRequest` says, closed in every
//! respect, and removed when it is dropped; what killed processes left is swept.
//!
//! It knows no sandbox: which program is PID 1 of a container and what that then does, the request says and the sandbox crate
//! knows. It does not choose images, pulls none, reads no policy and keeps no files. The calls block.

mod container;
mod create_request;
mod engine;
mod volumes;

pub use container::{Container, ContainerStartError};
pub use engine::{ContainerEngine, EngineError, EngineImage, EngineKind, EnginePrivilege};
