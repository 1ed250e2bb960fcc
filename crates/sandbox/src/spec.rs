//! The specification of a sandbox and of a command in it: everything that the runtime gives this crate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_types::{Access, Backend, ByteString, ContainerSpec, Limits, NetMode, Root};
use zeroize::Zeroizing;

use crate::approval::ApprovedFiles;
use crate::layer_view::LayerSource;
use crate::sweeper::Sweeper;
use crate::system_root;

pub use ringfence_types::HOME_INSIDE;

/// Where secret files are inside: in memory, gone with the sandbox.
pub const SECRETS_INSIDE: &str = "/.ringfence/secrets";

/// Everything a sandbox is made from.
#[derive(Clone, Debug)]
pub struct SandboxSpec {
    pub backend: Backend,
    /// The first root is the workspace. Paths are absolute, canonical, and the same inside as outside.
    pub roots: Vec<Root>,
    pub view: HostView,
    /// Language toolchains below the real home: part of the read-only system, at their own paths.
    pub toolchains: Vec<PathBuf>,
    /// Directories of the host with a socket that is meant to be reached: the door of a session that has one. Read-only.
    pub shown: Vec<PathBuf>,
    /// The host directory that is `HOME_INSIDE`: kept per workspace, never the real home.
    pub home: PathBuf,
    pub net: NetMode,
    pub limits: Limits,
    /// Files laid into the read-only system, for example a `gitconfig` with the operator's name.
    pub files: Vec<SkeletonFile>,
    /// Files that no process outside sees. Only a constructed root has a place for them.
    pub secrets: Vec<SecretFile>,
    /// Where placeholders of protected paths are registered; outside every root.
    pub registry: PathBuf,
    /// Removes the placeholders if this process is killed.
    pub sweeper: Option<Arc<Sweeper>>,
    /// Only for the backend `container`.
    pub container: Option<ContainerSpec>,
    /// Commands work on a copy-on-write view of every writable root, and the layer has what they change. `None`: they work on the
    /// roots themselves.
    pub layer: Option<Arc<dyn LayerSource>>,
}

/// What of the machine is visible besides the roots.
#[derive(Clone, Debug)]
pub enum HostView {
    /// A read-only system runtime and nothing else.
    Constructed,
    /// The machine itself, read-write, with the named paths hidden. In the frozen ones no name comes or goes, except in
    /// the home.
    WholeMachine { hidden: Vec<PathBuf>, frozen: Vec<PathBuf> },
}

/// A read-only file of the constructed system.
#[derive(Clone, Debug)]
pub struct SkeletonFile {
    /// Absolute, below `/etc`. In a directory that comes from the host (`/etc/ssl`, `/usr`) the file must exist there,
    /// and is covered.
    pub path: PathBuf,
    pub content: Vec<u8>,
}

/// A file below `SECRETS_INSIDE` that the user inside can read and no process can write.
#[derive(Clone)]
pub struct SecretFile {
    /// One component.
    pub name: String,
    pub content: Zeroizing<Vec<u8>>,
}

impl SecretFile {
    pub fn path(&self) -> PathBuf {
        Path::new(SECRETS_INSIDE).join(&self.name)
    }
}

impl fmt::Debug for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretFile").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One command for a running sandbox.
#[derive(Clone, Debug)]
pub struct SandboxCommand {
    pub argv: Vec<ByteString>,
    /// The whole environment: nothing is inherited.
    pub env: Vec<(ByteString, ByteString)>,
    pub cwd: PathBuf,
    /// What an approval of it is bound to, where there is one.
    pub approved: Option<Arc<ApprovedFiles>>,
}

impl SandboxSpec {
    /// Secret files that this backend has no place of its own for: on the host's tree others could read them.
    pub(crate) fn homeless_secret(&self) -> Option<&SecretFile> {
        self.secrets.first().filter(|_| !self.is_constructed())
    }

    pub fn workspace(&self) -> Option<&Path> {
        self.roots.first().map(|root| root.path.as_path())
    }

    pub(crate) fn closed_roots(&self) -> impl Iterator<Item = &Path> {
        let closed = self.roots.iter().filter(|root| root.access == Access::None);
        closed.map(|root| root.path.as_path())
    }

    pub(crate) fn open_roots(&self) -> impl Iterator<Item = &Path> {
        let open = self.roots.iter().filter(|root| root.access != Access::None);
        open.map(|root| root.path.as_path())
    }

    /// What is shown read-only besides the roots and the system.
    pub(crate) fn besides(&self) -> impl Iterator<Item = &Path> {
        self.toolchains.iter().chain(&self.shown).map(PathBuf::as_path)
    }

    /// Closed roots that no open one holds, but what every sandbox with the system's programs shows.
    pub(crate) fn closed_in_system(&self) -> impl Iterator<Item = &Path> {
        let shown = |path: &Path| {
            let directories =
                system_root::SYSTEM_DIRECTORIES.iter().map(|directory| Path::new("/").join(directory));
            directories.chain(self.besides().map(Path::to_owned)).any(|shown| path.starts_with(shown))
        };
        self.closed_roots().filter(move |path| shown(path) && !self.is_reached(path))
    }

    fn is_reached(&self, closed: &Path) -> bool {
        self.open_roots().any(|open| closed.starts_with(open))
    }

    /// Why a root that is to be closed would not be, or would close more than itself.
    pub(crate) fn cannot_close(&self) -> Option<String> {
        let shown = |path: &Path| ByteString::from(path).display();
        if !self.is_constructed() {
            let closed = self.closed_roots().next()?;
            return Some(format!("it cannot close the root `{}`", shown(closed)));
        }
        if let Some(closed) = self.closed_roots().find(|path| system_root::is_of_etc(path)) {
            return Some(format!("it cannot close `{}`, which every sandbox has of /etc", shown(closed)));
        }
        let bound = self.closed_in_system().next();
        if let Some(closed) = bound.filter(|_| self.backend == Backend::Bubblewrap) {
            return Some(format!("it cannot close `{}`, which is part of the system", shown(closed)));
        }
        let reached = self.closed_roots().filter(|closed| self.is_reached(closed));
        for closed in reached.chain(self.closed_in_system()) {
            if let Some(open) = self.open_roots().find(|open| open.starts_with(closed)) {
                let (open, closed) = (shown(open), shown(closed));
                return Some(format!("the root `{open}` is in `{closed}`, which is closed as a whole"));
            }
        }
        None
    }

    /// Whether there is a tree of its own, in which only what was put there is seen.
    pub(crate) fn is_constructed(&self) -> bool {
        matches!(self.backend, Backend::Native | Backend::Bubblewrap | Backend::Container)
            && matches!(self.view, HostView::Constructed)
    }

    pub fn writable_roots(&self) -> impl Iterator<Item = &Root> {
        self.roots.iter().filter(|root| root.access == Access::Write)
    }
}
