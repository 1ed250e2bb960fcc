//! Landlock, seccomp and rlimits without namespaces: for places where namespaces cannot be made, such as an
//! unprivileged container. It cannot hide or protect anything inside a root, and says so in its posture.

use super::native::WorkspaceState;
use crate::cgroup::Cgroups;
use crate::host_sockets::Coverage;
use crate::landlock;
use crate::launch_sequence::PendingLaunch;
use crate::launcher;
use crate::plan_compiler::{self, CompileContext};
use crate::posture::{PostureEvidence, posture};
use crate::sandbox::{Sandbox, SandboxStartError};
use crate::spec::SandboxSpec;

pub(crate) fn start(spec: &SandboxSpec) -> Result<Sandbox, SandboxStartError> {
    let Some(abi) = landlock::abi() else {
        let reason = "this kernel has no Landlock".to_owned();
        return Err(SandboxStartError::Unavailable { backend: spec.backend, reason });
    };
    let launcher = launcher::spawn().map_err(SandboxStartError::Spawn)?;
    let launching = PendingLaunch::begin(launcher, spec.backend, 0, Cgroups::create(&spec.limits))?;
    let ground = CompileContext::shared(Some(abi), launching.cgroups());
    let plan = plan_compiler::landlock_only(spec, &ground)?;
    let sealed = launching.finish(&plan)?;
    let evidence = PostureEvidence {
        spec,
        achieved: sealed.achieved,
        landlock_abi: Some(abi),
        cgroups: &sealed.cgroups,
        doors: None,
        coverage: &Coverage::default(),
    };
    let posture = posture(&evidence);
    Sandbox::new(sealed, posture, WorkspaceState::default())
}
