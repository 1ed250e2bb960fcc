//! Containers of sessions: the sandbox asks for one, and an engine makes it.

use ringfence_container::{Container, ContainerStartError};
use ringfence_sandbox::{ContainerMaker, RunningContainer, SandboxStartError, UnsupportedFeature};
use ringfence_types::{Backend, ContainerRequest};

/// Makes containers with the engine that each request names.
#[derive(Clone, Copy, Debug)]
pub struct EngineContainers;

impl ContainerMaker for EngineContainers {
    fn start(&self, request: &ContainerRequest) -> Result<Box<dyn RunningContainer>, SandboxStartError> {
        let container = Container::start(request).map_err(start_error)?;
        Ok(Box::new(EngineContainer(container)))
    }
}

#[derive(Debug)]
struct EngineContainer(Container);

impl RunningContainer for EngineContainer {
    fn is_running(&self) -> bool {
        self.0.is_running()
    }

    fn init(&self) -> Result<Option<u32>, SandboxStartError> {
        self.0.init().map_err(start_error)
    }
}

fn start_error(error: ContainerStartError) -> SandboxStartError {
    match error {
        ContainerStartError::Path(_) => SandboxStartError::Unsupported {
            backend: Backend::Container,
            what: UnsupportedFeature::Root,
            reason: error.to_string(),
        },
        error => SandboxStartError::Container { hint: error.hint(), why: Box::new(error) },
    }
}
