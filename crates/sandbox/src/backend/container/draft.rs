use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use ringfence_launch::plan::Access;
use ringfence_types::Limits;
use sha2::{Digest as _, Sha256};

use super::request::{Bound, Network};
use super::scratch::{self, Scratch};
use super::{ids_inside, possible};
use crate::compile::{self, MountKind, RootMount};
use crate::container::ContainerSpec;
use crate::session::StartError;
use crate::spec::{SkeletonFile, Spec};
use crate::survey::SurveyedRoot;

/// What a container is asked to be. Two that are asked for the same can stand for each other.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(super) wanted: ContainerSpec,
    pub(super) limits: Limits,
    pub(super) network: Network,
    pub(super) registry: PathBuf,
    pub(super) home: PathBuf,
    /// Files of `/etc` that are ours, as they are now.
    pub(super) etc: Vec<SkeletonFile>,
    roots: Vec<Bound>,
    /// A digest of all that cannot be changed once it was made; on its label.
    pub(crate) config: String,
}

impl Draft {
    pub(super) fn new(spec: &Spec, surveyed: &[SurveyedRoot]) -> Result<Self, StartError> {
        let wanted = possible(spec)?.clone();
        let mounts = compile::root_mounts(spec, surveyed);
        let roots = mounts.iter().filter(|mount| mount.kind == MountKind::Root).map(|mount| Bound {
            source: mount.path.clone(),
            target: mount.path.clone(),
            access: as_bound(mount, &mounts),
        });
        let mut draft = Self {
            wanted,
            limits: spec.limits.clone(),
            network: Network::from(spec.net),
            registry: spec.registry.clone(),
            home: spec.home.clone(),
            etc: scratch::etc(spec, ids_inside()),
            roots: roots.collect(),
            config: String::new(),
        };
        draft.config = draft.digest();
        Ok(draft)
    }

    /// Everything that is bound: ours, and the roots.
    pub(super) fn bound(&self, scratch: &Scratch) -> Vec<Bound> {
        let mut bound = scratch.bound(self);
        bound.extend(self.roots.iter().cloned());
        bound
    }

    /// By which file a path means as well: a root that was replaced is another.
    fn digest(&self) -> String {
        let identity = |path: &PathBuf| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let roots: Vec<_> = self.roots.iter().map(|bound| (bound, identity(&bound.source))).collect();
        let etc: Vec<&PathBuf> = self.etc.iter().map(|file| &file.path).collect();
        let text = format!(
            "{:?}",
            ((&self.wanted, &self.limits, self.network), (&self.home, identity(&self.home)), roots, etc)
        );
        ringfence_types::hex(Sha256::digest(text))
    }
}

/// KERNEL: what an engine has bound read-only stays so for everybody inside. Where a part is to be written, PID 1 closes the rest.
fn as_bound(mount: &RootMount, all: &[RootMount]) -> Access {
    let written = |part: &RootMount| part.access == Access::Write && part.path.starts_with(&mount.path);
    if all.iter().any(written) { Access::Write } else { mount.access }
}
