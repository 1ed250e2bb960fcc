//! The copy-on-write view of writable roots: where a layer keeps what commands change, and what cannot have such a view.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_types::Backend;

use crate::sandbox::{SandboxStartError, UnsupportedFeature};
use crate::spec::{HostView, SandboxSpec};

/// Gives each writable root its directories in a layer.
pub trait LayerSource: fmt::Debug + Send + Sync {
    /// The directories for the root with this canonical path. A start that is repeated asks again: the upper directory is the same
    /// then, and the work directory a fresh one, because the kernel mounts a work directory once.
    fn mount_of(&self, root: &Path) -> io::Result<LayerMountPaths>;
}

/// Directories of one layer for one root. Both are canonical, on one file system, and outside every root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerMountPaths {
    /// What commands change. Owner, mode and times are those of the root, because the view shows them as the root's.
    pub upper: PathBuf,
    /// Empty, for the kernel alone.
    pub work: PathBuf,
}

/// Why `spec` asks for a layer that its backend does not make. Commands then run nowhere: never on the roots themselves.
pub(crate) fn refused(spec: &SandboxSpec) -> Option<SandboxStartError> {
    spec.layer.as_ref()?;
    let reason = match (spec.backend, &spec.view) {
        (Backend::Native, HostView::Constructed) => "it mounts no layer".to_owned(),
        (Backend::Native, HostView::WholeMachine { .. }) => {
            "profile `danger` shows the machine itself, of which there is no layer".to_owned()
        }
        _ => "it has no layer for the changes of a command".to_owned(),
    };
    Some(unsupported(spec.backend, reason))
}

fn unsupported(backend: Backend, reason: String) -> SandboxStartError {
    SandboxStartError::Unsupported { backend, what: UnsupportedFeature::Layer, reason }
}
