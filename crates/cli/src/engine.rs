//! The sockets of Podman and Docker.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_container::ContainerEngine;
use ringfence_runtime::images::ImageRequest;

use crate::args::{ContainerArgs, EngineArgs};
use crate::environment::Environment;
use crate::error;

/// The usual sockets, those of the caller first.
pub(crate) fn places(environment: &Environment) -> Vec<PathBuf> {
    let runtime = environment.all.iter().find(|(name, _)| name.as_slice() == b"XDG_RUNTIME_DIR");
    let runtime = runtime.map(|(_, value)| value.as_path().to_owned()).filter(|path| path.is_absolute());
    let own = runtime.iter().flat_map(|path| [path.join("podman/podman.sock"), path.join("docker.sock")]);
    own.chain(["/run/podman/podman.sock", "/var/run/docker.sock"].map(PathBuf::from)).collect()
}

/// The named socket, or the first that exists.
pub(crate) fn socket(arguments: &EngineArgs, environment: &Environment) -> PathBuf {
    arguments.engine.as_deref().map_or_else(|| usual(environment), absolute)
}

/// A named socket as an absolute path.
pub(crate) fn absolute(named: &Path) -> PathBuf {
    let absolute = || std::path::absolute(named).unwrap_or_else(|_| named.to_owned());
    named.canonicalize().unwrap_or_else(|_| absolute())
}

/// The first socket that exists, else the first candidate.
pub(crate) fn usual(environment: &Environment) -> PathBuf {
    let places = places(environment);
    let found = places.iter().find(|place| place.exists()).or(places.first());
    found.map_or_else(|| Path::new("/run/podman/podman.sock").to_owned(), Clone::clone)
}

pub(crate) fn connect(
    arguments: &EngineArgs,
    environment: &Environment,
) -> Result<ContainerEngine, ExitCode> {
    ContainerEngine::connect(&socket(arguments, environment))
        .map_err(|error| error::failed(&error, error.hint().as_deref()))
}

/// The requested image.
pub(crate) fn in_image(arguments: &ContainerArgs, environment: &Environment) -> Option<ImageRequest> {
    let name = arguments.image.clone()?;
    let engine = socket(&arguments.engine, environment);
    Some(ImageRequest { name, engine, runtime: arguments.runtime })
}
