//! The two backends that contain nothing themselves.
//!
//! `external`: an operator declares that an outer container or virtual machine is the boundary. Limits, a cleared
//! environment and the seccomp filter still apply; everything else is reported as declared, never as enforced.
//! `none`: limits, a cleared environment, and a cover over the sensitive roots unless these were given away as well.

use ringfence_types::Backend;

use super::native::WorkspaceState;
use crate::cgroup::Cgroups;
use crate::host_sockets::Coverage;
use crate::launch_sequence::PendingLaunch;
use crate::plan_compiler::{self, CompileContext};
use crate::posture::{PostureEvidence, posture};
use crate::sandbox::{Sandbox, SandboxStartError};
use crate::spec::{HostView, SandboxSpec};

pub(crate) fn start(spec: &SandboxSpec) -> Result<Sandbox, SandboxStartError> {
    let launching = PendingLaunch::begin(spec.backend, namespaces(spec), Cgroups::create(&spec.limits))?;
    let ground = CompileContext::shared(None, launching.cgroups());
    let plan = match spec.backend {
        Backend::External => plan_compiler::filter_only(spec, &ground),
        _ => plan_compiler::bare(spec, &ground)?,
    };
    let sealed = launching.finish(&plan)?;
    let evidence = PostureEvidence {
        spec,
        achieved: sealed.achieved,
        landlock_abi: None,
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
