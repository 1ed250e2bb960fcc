//! The two backends that contain nothing themselves.
//!
//! `external`: an operator declares that an outer container or virtual machine is the boundary. Limits, a cleared
//! environment and the seccomp filter still apply; everything else is reported as declared, never as enforced.
//! `none`: limits, a cleared environment, and a cover over the sensitive roots unless these were given away as well.

use ringfence_types::Backend;

use super::native::Surroundings;
use crate::cgroup::Cgroups;
use crate::compile::{self, Ground};
use crate::host_sockets::Coverage;
use crate::launching::Launching;
use crate::posture::{Evidence, posture};
use crate::session::{Session, StartError};
use crate::spec::{Spec, View};

pub(crate) fn start(spec: &Spec) -> Result<Session, StartError> {
    let launching = Launching::begin(spec.backend, namespaces(spec), Cgroups::create(&spec.limits))?;
    let ground = Ground::shared(None, launching.cgroups());
    let plan = match spec.backend {
        Backend::External => compile::filter_only(spec, &ground),
        _ => compile::bare(spec, &ground)?,
    };
    let sealed = launching.finish(&plan)?;
    let evidence = Evidence {
        spec,
        achieved: sealed.achieved,
        landlock_abi: None,
        cgroups: &sealed.cgroups,
        doors: None,
        coverage: &Coverage::default(),
    };
    let posture = posture(&evidence);
    Session::new(sealed, posture, Surroundings::default())
}

/// Only what a cover over the sensitive roots takes.
fn namespaces(spec: &Spec) -> u64 {
    match &spec.view {
        View::WholeMachine { hidden, .. } if !hidden.is_empty() => {
            u64::from((libc::CLONE_NEWUSER | libc::CLONE_NEWNS).cast_unsigned())
        }
        _ => 0,
    }
}
