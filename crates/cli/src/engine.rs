//! Where Podman and Docker listen.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_runtime::container::Engine;
use ringfence_runtime::images::InImage;

use crate::args::{EngineArgs, InContainer};
use crate::environment::Environment;
use crate::error;

/// The usual places, those of the caller first.
pub(crate) fn places(environment: &Environment) -> Vec<PathBuf> {
    let runtime = environment.all.iter().find(|(name, _)| name.as_slice() == b"XDG_RUNTIME_DIR");
    let runtime = runtime.map(|(_, value)| value.as_path().to_owned()).filter(|path| path.is_absolute());
    let own = runtime.iter().flat_map(|path| [path.join("podman/podman.sock"), path.join("docker.sock")]);
    own.chain(["/run/podman/podman.sock", "/var/run/docker.sock"].map(PathBuf::from)).collect()
}

/// The socket that was named, or the first that is there.
pub(crate) fn socket(arguments: &EngineArgs, environment: &Environment) -> PathBuf {
    arguments.engine.as_deref().map_or_else(|| usual(environment), absolute)
}

/// A socket as it was named, from wherever one looks.
pub(crate) fn absolute(named: &Path) -> PathBuf {
    let absolute = || std::path::absolute(named).unwrap_or_else(|_| named.to_owned());
    named.canonicalize().unwrap_or_else(|_| absolute())
}

/// The first that is there, or the first that could be.
pub(crate) fn usual(environment: &Environment) -> PathBuf {
    let places = places(environment);
    let found = places.iter().find(|place| place.exists()).or(places.first());
    found.map_or_else(|| Path::new("/run/podman/podman.sock").to_owned(), Clone::clone)
}

pub(crate) fn connect(arguments: &EngineArgs, environment: &Environment) -> Result<Engine, ExitCode> {
    Engine::connect(&socket(arguments, environment))
        .map_err(|error| error::failed(&error, error.hint().as_deref()))
}

/// What was said about where to run.
pub(crate) fn in_image(arguments: &InContainer, environment: &Environment) -> Option<InImage> {
    let name = arguments.image.clone()?;
    let engine = socket(&arguments.engine, environment);
    Some(InImage { name, engine, runtime: arguments.runtime })
}
