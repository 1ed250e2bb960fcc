use std::fmt;
use std::path::{Path, PathBuf};

use ringfence_types::{Access, Backend, Bytes, Limits, NetMode, Root};
use zeroize::Zeroizing;

use crate::container::ContainerSpec;

/// Where the synthetic home is inside a sandbox.
pub const HOME_INSIDE: &str = "/home/ringfence";

/// Where secret files are inside: in memory, gone with the sandbox.
pub const SECRETS_INSIDE: &str = "/.ringfence/secrets";

/// Everything a sandbox is made from.
#[derive(Clone, Debug)]
pub struct Spec {
    pub backend: Backend,
    /// The first root is the workspace. Paths are absolute, canonical, and the same inside as outside.
    pub roots: Vec<Root>,
    pub view: View,
    /// Language toolchains below the real home: part of the read-only system, at their own paths.
    pub toolchains: Vec<PathBuf>,
    /// The host directory that is `HOME_INSIDE`: kept per workspace, never the real home.
    pub home: PathBuf,
    pub net: NetMode,
    pub limits: Limits,
    /// Files laid into the read-only system, for example a `gitconfig` with the operator's name.
    pub files: Vec<SkeletonFile>,
    /// Files that nobody outside sees. Only a constructed root has a place for them.
    pub secrets: Vec<SecretFile>,
    /// Where placeholders of protected paths are registered; outside every root.
    pub registry: PathBuf,
    /// Only for the backend `container`.
    pub container: Option<ContainerSpec>,
}

/// What of the machine is visible besides the roots.
#[derive(Clone, Debug)]
pub enum View {
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

/// A file below `SECRETS_INSIDE` that the user inside can read and nobody can write.
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
pub struct Command {
    pub argv: Vec<Bytes>,
    /// The whole environment: nothing is inherited.
    pub env: Vec<(Bytes, Bytes)>,
    pub cwd: PathBuf,
}

impl Spec {
    /// Secret files that this backend has no place of its own for: on the host's tree others could read them.
    pub(crate) fn homeless_secret(&self) -> Option<&SecretFile> {
        let constructed = matches!(self.backend, Backend::Native | Backend::Bubblewrap | Backend::Container)
            && matches!(self.view, View::Constructed);
        self.secrets.first().filter(|_| !constructed)
    }

    pub fn workspace(&self) -> Option<&Path> {
        self.roots.first().map(|root| root.path.as_path())
    }

    /// A root that is to be closed and would still be reached through another: nothing here can close it.
    pub(crate) fn closed_inside_another(&self) -> Option<&Root> {
        let open = |path: &Path| {
            let roots = self.roots.iter().filter(|root| root.access != Access::None);
            roots.map(|root| root.path.as_path()).any(|root| path.starts_with(root))
        };
        self.roots.iter().find(|root| root.access == Access::None && open(root.path.as_path()))
    }

    pub fn writable_roots(&self) -> impl Iterator<Item = &Root> {
        self.roots.iter().filter(|root| root.access == Access::Write)
    }
}
