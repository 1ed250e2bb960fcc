//! The copy-on-write view of writable roots: where a layer keeps what commands change, and which roots cannot have such a view.
//!
//! A root that cannot is a refusal. Commands never work on the root itself where a layer was asked for.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ringfence_launch::plan::{MountAccess, Plan, PlanOp};
use ringfence_types::{Backend, ByteString};
use rustix::io::Errno;

use crate::host_sockets;
use crate::plan_compiler;
use crate::sandbox::{SandboxStartError, UnsupportedFeature};
use crate::spec::{HostView, SandboxSpec};
use crate::survey::SurveyedRoot;
use crate::system_root;

/// Gives each writable root its directories in a layer.
pub trait LayerSource: fmt::Debug + Send + Sync {
    /// The directories for the root with this canonical path. A start that is repeated asks again: the upper directory is the same
    /// then, and the work directory a fresh one, because the kernel mounts a work directory once.
    fn mount_of(&self, root: &Path) -> io::Result<LayerMountPaths>;
}

/// Directories of one layer for one root. Both are canonical, in one mount, and outside of everything that commands see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerMountPaths {
    /// What commands change. Owner, mode and times are those of the root, because the view shows them as the root's.
    pub upper: PathBuf,
    /// Empty, for the kernel alone.
    pub work: PathBuf,
}

/// The roots of one start that are mounted as views.
#[derive(Clone, Debug, Default)]
pub(crate) struct LayeredRoots {
    roots: Vec<LayeredRoot>,
}

#[derive(Clone, Debug)]
struct LayeredRoot {
    path: PathBuf,
    directories: LayerMountPaths,
}

impl LayeredRoots {
    /// Asks for the directories of every writable root; git directories that follow the workspace are such roots, too.
    pub(crate) fn prepare(spec: &SandboxSpec, surveyed: &[SurveyedRoot]) -> Result<Self, SandboxStartError> {
        let Some(source) = &spec.layer else { return Ok(Self::default()) };
        let mounted = host_sockets::mount_points_of_host();
        let mut roots = Vec::new();
        for mount in plan_compiler::root_mounts(spec, surveyed) {
            if mount.access != MountAccess::Write {
                continue;
            }
            let path = mount.path;
            if let Some(why) = obstacle(&path, &mounted) {
                return Err(refusal(spec.backend, &path, &why));
            }
            let directories = source
                .mount_of(&path)
                .map_err(|source| SandboxStartError::Layer { root: path.clone(), source })?;
            if let Some(why) = exposed(spec, surveyed, &directories) {
                return Err(refusal(spec.backend, &path, &why));
            }
            roots.push(LayeredRoot { path, directories });
        }
        Ok(Self { roots })
    }

    pub(crate) fn of(&self, root: &Path) -> Option<&LayerMountPaths> {
        self.roots.iter().find(|known| known.path == root).map(|known| &known.directories)
    }
}

/// Why `spec` asks for a layer that its backend does not make.
pub(crate) fn refused(spec: &SandboxSpec) -> Option<SandboxStartError> {
    spec.layer.as_ref()?;
    let reason = match (spec.backend, &spec.view) {
        (Backend::Native, HostView::Constructed) => return None,
        (Backend::Native, HostView::WholeMachine { .. }) => {
            "profile `danger` shows the machine itself, of which there is no layer"
        }
        _ => "it has no layer for the changes of a command",
    };
    Some(unsupported(spec.backend, reason.to_owned()))
}

/// A failure of a launch. Where a root could not be mounted as a view, it names that root and the reason.
pub(crate) fn explained(error: SandboxStartError, plan: &[u8]) -> SandboxStartError {
    let SandboxStartError::Step { backend, operation, errno, .. } = &error else { return error };
    match reason(*errno).zip(layered_root(plan, *operation)) {
        Some((why, root)) => refusal(*backend, &root, &format!("{why} ({errno})")),
        None => error,
    }
}

/// The root that an operation of a plan mounts as a view.
fn layered_root(plan: &[u8], operation: u64) -> Option<PathBuf> {
    let mut operations = Plan::parse(plan).ok()?.operations();
    for _ in 0..operation {
        operations.next_op().ok()??;
    }
    match operations.next_op().ok()?? {
        PlanOp::LayeredRoot { source, .. } => Some(ByteString::from(source.to_bytes()).as_path().to_owned()),
        _ => None,
    }
}

/// What a kernel or a file system says that no waiting changes. Anything else is a failure and no answer: the root is another object
/// by now, or the machine is short of something.
fn reason(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::INVAL => {
            "overlayfs does not take its file system or that of the state directory, or too many overlays are stacked already"
        }
        Errno::PERM | Errno::ACCESS => {
            "the kernel does not let this user mount an overlay (Linux 5.11 does, unless a security module forbids it)"
        }
        Errno::NODEV | Errno::NOSYS => "this kernel has no overlayfs",
        Errno::OPNOTSUPP => "its file system or that of the state directory lacks what overlayfs needs",
        Errno::ROFS => "the state directory is on a read-only file system",
        Errno::BUSY => "another view has the layer's directories",
        _ => return None,
    })
}

/// What is known before anything is mounted.
fn obstacle(root: &Path, mounted: &[PathBuf]) -> Option<String> {
    if !root.is_dir() {
        return Some("it is no directory".to_owned());
    }
    // KERNEL: the view would show what is below the mount, and who may not unmount it must not see that (EINVAL).
    let point = mounted.iter().find(|point| *point != root && point.starts_with(root))?;
    Some(format!("`{}` is mounted in it", shown(point)))
}

/// What a person should know about a root of another user or group, whose content mostly is of the same.
///
/// KERNEL: in a user namespace that maps one user and one group, overlayfs does not copy up a file or directory of another one
/// (EOVERFLOW). Names can be created, and files of this user changed.
pub(crate) fn note_of_owner(root: &Path) -> Option<String> {
    let found = fs::metadata(root).ok()?;
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    ((found.uid(), found.gid()) != own).then(|| {
        format!(
            "`{}` belongs to user {} and group {}: through a layer a command changes only files of its own user and group \
             (EOVERFLOW for others)",
            shown(root),
            found.uid(),
            found.gid()
        )
    })
}

/// What commands see that a directory of the layer is in, or that is in one.
fn exposed(spec: &SandboxSpec, surveyed: &[SurveyedRoot], directories: &LayerMountPaths) -> Option<String> {
    let system = system_root::SYSTEM_DIRECTORIES.iter().map(|directory| Path::new("/").join(directory));
    let roots = spec.open_roots().chain(surveyed.iter().map(|root| root.path.as_path()));
    let visible = roots.chain(spec.besides()).chain([spec.home.as_path()]).map(Path::to_owned).chain(system);
    let own = [&directories.upper, &directories.work];
    let meets = |place: &Path| own.iter().any(|own| own.starts_with(place) || place.starts_with(own));
    let place = visible.into_iter().find(|place| meets(place))?;
    Some(format!("the layer's own directory is in `{}`, which commands see", shown(&place)))
}

fn refusal(backend: Backend, root: &Path, why: &str) -> SandboxStartError {
    unsupported(backend, format!("the root `{}` cannot have a layer: {why}", shown(root)))
}

fn unsupported(backend: Backend, reason: String) -> SandboxStartError {
    SandboxStartError::Unsupported { backend, what: UnsupportedFeature::Layer, reason }
}

fn shown(path: &Path) -> String {
    ByteString::from(path).display()
}

#[cfg(test)]
mod tests {
    use ringfence_launch::plan::{Encoder, FileIdentity};
    use ringfence_launch::step::LaunchStep;

    use super::*;

    #[test]
    fn a_mount_in_a_root_is_an_obstacle_and_the_root_itself_is_none() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        let beside = root.with_extension("beside");
        assert_eq!(obstacle(root, &[PathBuf::from("/"), root.to_owned(), beside]), None);
        let why = obstacle(root, &[root.join("data")]).unwrap();
        assert_eq!(why, format!("`{}` is mounted in it", root.join("data").display()));
        assert_eq!(obstacle(&root.join("none"), &[]).unwrap(), "it is no directory");
    }

    /// Only the failed mount of a view is a refusal, and only where the kernel would say the same again.
    #[test]
    fn the_root_of_a_failed_mount_is_named() {
        let identity = FileIdentity { device: 1, inode: 2 };
        let mut encoder = Encoder::default();
        encoder.push(&PlanOp::Root { source: c"/a", target: c"a", access: MountAccess::Write, identity });
        let view = PlanOp::LayeredRoot { source: c"/b", target: c"b", identity, upper: c"/u", work: c"/w" };
        encoder.push(&view);
        let plan = encoder.finish();
        let failed = |operation, errno| {
            let (backend, step) = (Backend::Native, LaunchStep::Roots);
            explained(SandboxStartError::Step { backend, step, operation, errno }, &plan)
        };
        for errno in [Errno::INVAL, Errno::PERM, Errno::NODEV, Errno::OPNOTSUPP, Errno::ROFS] {
            let refused = failed(1, errno);
            let what =
                matches!(refused, SandboxStartError::Unsupported { what: UnsupportedFeature::Layer, .. });
            assert!(what && refused.to_string().contains("the root `/b` cannot have a layer"), "{refused}");
        }
        for (operation, errno) in [(0, Errno::INVAL), (2, Errno::INVAL), (1, Errno::STALE), (1, Errno::NOMEM)]
        {
            assert!(
                matches!(failed(operation, errno), SandboxStartError::Step { .. }),
                "{operation} {errno}"
            );
        }
    }

    #[test]
    fn a_root_of_another_owner_is_told() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(note_of_owner(place.path()), None);
        // /etc belongs to root.
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(note_of_owner(Path::new("/etc")).is_none(), is_root);
    }
}
