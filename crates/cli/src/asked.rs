//! From what was typed to what a session is asked to be.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_runtime::Asked;
use ringfence_runtime::authz::Policy;
use ringfence_types::{Bytes, Profile};

use crate::args::Place;
use crate::environment::Environment;
use crate::error;
use crate::host;

/// The current directory, or the exit code that says why there is none.
pub(crate) fn current_dir() -> Result<PathBuf, ExitCode> {
    std::env::current_dir()
        .map_err(|error| error::failed_text(&format!("cannot tell the current directory: {error}"), None))
}

/// A session for `place` with nothing opened by flags.
pub(crate) fn plain(place: &Place, environment: &Environment, cwd: &Path) -> Asked {
    let workspace =
        place.workspace.clone().unwrap_or_else(|| host::default_workspace(cwd, environment.home.as_deref()));
    let mut policy = Policy::new(place.profile.unwrap_or(Profile::Workspace));
    policy.home = environment.home.as_deref().map(Bytes::from);
    Asked { workspace, policy, roots: Vec::new() }
}
