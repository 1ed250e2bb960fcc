//! A container with our launcher as its PID 1 ([ADR 26](../../../../docs/adr/0026-launcher-in-containers.md)). This crate talks to no
//! engine: a [`ContainerMaker`] makes what a `ContainerRequest` says.
//!
//! The engine gives the image's root (read-only), namespaces and limits, and binds the roots. The launcher connects to
//! the control socket, makes a user and a mount namespace inside, in which the caller is an ordinary user and every
//! path is held as in `native`, and installs Landlock and the filter. What the engine says it has done is not believed:
//! who connected, and which namespaces and control groups they are in, is asked of the kernel.

mod pool;
mod ready_container;
mod scratch_dir;
mod template;
mod verify;

use std::fmt;
use std::path::Path;

use ringfence_types::{Backend, ByteString, ContainerRequest, ContainerSpec};

use self::ready_container::ReadyContainer;
use self::scratch_dir::ContainerScratch;
use self::template::ContainerTemplate;
use super::native::WorkspaceState;
use crate::netns;
use crate::sandbox::{Sandbox, SandboxStartError, UnsupportedFeature};
use crate::spec::{HostView, SandboxSpec};
use crate::survey::SurveyRules;

pub use self::pool::{ContainerPool, ContainerPoolKey};

/// Makes the containers of the backend `container`.
pub trait ContainerMaker: fmt::Debug + Send + Sync {
    fn start(&self, request: &ContainerRequest) -> Result<Box<dyn RunningContainer>, SandboxStartError>;
}

/// A container whose PID 1 is the launcher. Dropping it removes it.
pub trait RunningContainer: fmt::Debug + Send + Sync {
    /// Whether its PID 1 runs.
    fn is_running(&self) -> bool;

    /// Its PID 1, as the engine says, which started it as the request wanted.
    fn init(&self) -> Result<Option<u32>, SandboxStartError>;
}

/// Who the caller is inside: never root.
const INSTEAD_OF_ROOT: u32 = 1000;

pub(crate) fn start(
    spec: &SandboxSpec,
    rules: &dyn SurveyRules,
    pool: Option<&ContainerPool>,
) -> Result<Sandbox, SandboxStartError> {
    let pool = pool.ok_or_else(|| unavailable("this process has no client of a container engine"))?;
    netns::with_or_without_netfilter(|netfilter| {
        let surroundings = WorkspaceState::look(spec, rules)?;
        let surveyed = &surroundings.survey.roots;
        let template = ContainerTemplate::new(spec, surveyed)?;
        let waiting = std::iter::from_fn(|| pool.take(&template.config));
        // One that waited may have died, or what is bound in it may be another by now. Then a fresh one is made.
        let mut sealed = waiting.filter_map(|ready| ready.launch(spec, surveyed, netfilter).ok());
        let (sealed, posture) = match sealed.next() {
            Some(sealed) => sealed,
            None => pool.make(&template)?.launch(spec, surveyed, netfilter)?,
        };
        Sandbox::new(sealed, posture, surroundings)
    })
}

/// What a container for `spec` would be asked to be, without making one.
fn template(spec: &SandboxSpec, rules: &dyn SurveyRules) -> Result<ContainerTemplate, SandboxStartError> {
    let surroundings = WorkspaceState::look(spec, rules)?;
    ContainerTemplate::new(spec, &surroundings.survey.roots)
}

/// What this backend does not do is refused before anything is made.
fn possible(spec: &SandboxSpec) -> Result<&ContainerSpec, SandboxStartError> {
    let Some(wanted) = &spec.container else {
        return Err(unavailable("no image was named (--image NAME)"));
    };
    if matches!(spec.view, HostView::WholeMachine { .. }) {
        let what = UnsupportedFeature::WholeMachine;
        return Err(unsupported(what, "it does not do profile `danger`"));
    }
    let sources = spec.roots.iter().map(|root| root.path.as_path());
    if let Some((source, why)) =
        sources.filter_map(|source| Some((source, forbidden(source, &wanted.engine)?))).next()
    {
        let source = ByteString::from(source).display();
        let reason = format!("the root `{source}` is not shown to a container: {why}");
        return Err(unsupported(UnsupportedFeature::Root, &reason));
    }
    Ok(wanted)
}

fn unsupported(what: UnsupportedFeature, reason: &str) -> SandboxStartError {
    SandboxStartError::Unsupported { backend: Backend::Container, what, reason: reason.to_owned() }
}

fn unavailable(reason: &str) -> SandboxStartError {
    SandboxStartError::Unavailable { backend: Backend::Container, reason: reason.to_owned() }
}

/// An engine mounts whatever it is told to, with its own rights.
fn forbidden(source: &Path, engine: &Path) -> Option<&'static str> {
    const SYSTEM: [&str; 8] =
        ["/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/var/run", "/var/lib/containers"];
    if engine.starts_with(source) || engine.canonicalize().is_ok_and(|engine| engine.starts_with(source)) {
        return Some("the engine's own socket is in it");
    }
    let system = SYSTEM.map(Path::new);
    let touches = |path: &&Path| path.starts_with(source) || source.starts_with(path);
    system.iter().any(touches).then_some("it is, holds or is part of the system")
}

fn ids_inside() -> (u32, u32) {
    let not_root = |id: u32| if id == 0 { INSTEAD_OF_ROOT } else { id };
    (not_root(rustix::process::geteuid().as_raw()), not_root(rustix::process::getegid().as_raw()))
}

/// Dropping it removes the container. What is mounted inside stays until that is done.
#[derive(Debug)]
pub(crate) struct ContainerGuard {
    #[expect(dead_code, reason = "held for its drop: removes the container")]
    running: Box<dyn RunningContainer>,
    scratch: ContainerScratch,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_root_shows_the_system_or_an_engine() {
        let engine = Path::new("/run/user/1000/podman/podman.sock");
        for source in
            ["/", "/etc", "/etc/ssl", "/var", "/var/run/docker.sock", "/proc/1", "/dev/shm", "/run/user/1000"]
        {
            assert!(forbidden(Path::new(source), engine).is_some(), "{source}");
        }
        assert!(forbidden(Path::new("/srv/x"), Path::new("/srv/x/api.sock")).is_some());
        for source in ["/home/me/project", "/srv/x", "/var/tmp/w", "/etcetera"] {
            assert_eq!(forbidden(Path::new(source), engine), None, "{source}");
        }
    }
}
