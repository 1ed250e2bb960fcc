use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use ringfence_launch::plan::MountAccess;
use ringfence_types::{Access, BindMount, ContainerRequest, ContainerSpec, Limits, NetMode};
use sha2::{Digest as _, Sha256};

use super::possible;
use super::scratch_dir::{self, ContainerScratch};
use crate::cgroup::OWN_PROCESSES;
use crate::plan_compiler::{self, MountKind, RootMount};
use crate::sandbox::SandboxStartError;
use crate::spec::{SandboxSpec, SkeletonFile};
use crate::survey::SurveyedRoot;

/// What a container is asked to be. Two that are asked for the same can stand for each other.
#[derive(Clone, Debug)]
pub(super) struct ContainerTemplate {
    wanted: ContainerSpec,
    limits: Limits,
    net: NetMode,
    pub(super) registry: PathBuf,
    pub(super) home: PathBuf,
    /// Files of `/etc` that are ours, as they are now.
    pub(super) etc: Vec<SkeletonFile>,
    roots: Vec<BindMount>,
    /// A digest of all that cannot be changed once it was made; on its label.
    pub(super) config: String,
}

impl ContainerTemplate {
    pub(super) fn new(spec: &SandboxSpec, surveyed: &[SurveyedRoot]) -> Result<Self, SandboxStartError> {
        let wanted = possible(spec)?.clone();
        let mounts = plan_compiler::root_mounts(spec, surveyed);
        let roots = mounts.iter().filter(|mount| mount.kind == MountKind::Root).map(|mount| BindMount {
            source: mount.path.clone(),
            target: mount.path.clone(),
            access: as_bound(mount, &mounts),
        });
        let mut template = Self {
            wanted,
            limits: spec.limits.clone(),
            net: spec.net,
            registry: spec.registry.clone(),
            home: spec.home.clone(),
            etc: scratch_dir::etc(spec),
            roots: roots.collect(),
            config: String::new(),
        };
        template.config = template.digest();
        Ok(template)
    }

    /// What the engine is asked for, with `scratch` as its own directory. Ours is bound besides the roots.
    pub(super) fn request(&self, scratch: &ContainerScratch) -> ContainerRequest {
        let mut bound = scratch.bound(self);
        bound.extend(self.roots.iter().cloned());
        let processes = self.limits.processes.saturating_add(OWN_PROCESSES);
        ContainerRequest {
            spec: self.wanted.clone(),
            name: scratch.name(),
            init: scratch_dir::LAUNCHER.into(),
            limits: Limits { processes, ..self.limits.clone() },
            net: self.net,
            bound,
            registry: self.registry.clone(),
            config: self.config.clone(),
        }
    }

    /// By which file a path means as well: a root that was replaced is another.
    fn digest(&self) -> String {
        let identity = |path: &PathBuf| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let roots: Vec<_> = self.roots.iter().map(|bound| (bound, identity(&bound.source))).collect();
        let etc: Vec<&PathBuf> = self.etc.iter().map(|file| &file.path).collect();
        let text = format!(
            "{:?}",
            ((&self.wanted, &self.limits, self.net), (&self.home, identity(&self.home)), roots, etc)
        );
        ringfence_types::hex(Sha256::digest(text))
    }
}

/// KERNEL: what an engine has bound read-only stays so for everybody inside. Where a part is to be written, PID 1 closes the rest.
fn as_bound(mount: &RootMount, all: &[RootMount]) -> Access {
    let written = |part: &RootMount| part.access == MountAccess::Write && part.path.starts_with(&mount.path);
    if all.iter().any(written) { Access::Write } else { Access::Read }
}
