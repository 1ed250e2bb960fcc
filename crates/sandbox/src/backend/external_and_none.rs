//! The two backends that contain nothing themselves.
//!
//! `external`: an operator declares that an outer container or virtual machine is the boundary. Limits, a cleared
//! environment and the seccomp filter still apply, and a Landlock domain that keeps a command from the processes that enforce
//! them; everything else is reported as declared, never as enforced.
//! `none`: limits, a cleared environment, and a cover over the sensitive roots unless these were given away as well.

use ringfence_types::Backend;

use super::native::WorkspaceState;
use crate::cgroup::Cgroups;
use crate::host_sockets::Coverage;
use crate::landlock;
use crate::launch_sequence::PendingLaunch;
use crate::launcher;
use crate::plan_compiler::{self, CompileContext};
use crate::posture::{PostureEvidence, posture};
use crate::sandbox::{Sandbox, SandboxStartError};
use crate::spec::{HostView, SandboxSpec};

pub(crate) fn start(spec: &SandboxSpec) -> Result<Sandbox, SandboxStartError> {
    let launcher = launcher::spawn().map_err(SandboxStartError::Spawn)?;
    let launching =
        PendingLaunch::begin(launcher, spec.backend, namespaces(spec), Cgroups::create(&spec.limits))?;
    // The other one has no plan with a domain.
    let landlock_abi = landlock::abi().filter(|_| spec.backend == Backend::External);
    let ground = CompileContext::shared(landlock_abi, launching.cgroups());
    let plan = match spec.backend {
        Backend::External => plan_compiler::filter_only(spec, &ground),
        _ => plan_compiler::bare(spec, &ground)?,
    };
    let sealed = launching.finish(&plan)?;
    let evidence = PostureEvidence {
        spec,
        achieved: sealed.achieved,
        landlock_abi,
        cgroups: &sealed.cgroups,
        doors: None,
        coverage: &Coverage::default(),
    };
    let posture = posture(&evidence);
    Sandbox::new(sealed, posture, WorkspaceState::default())
}

/// Only what a cover over the sensitive roots takes.
fn namespaces(spec: &SandboxSpec) -> u64 {
    match &spec.view {
        HostView::WholeMachine { hidden, .. } if !hidden.is_empty() => {
            u64::from((libc::CLONE_NEWUSER | libc::CLONE_NEWNS).cast_unsigned())
        }
        _ => 0,
    }
}
