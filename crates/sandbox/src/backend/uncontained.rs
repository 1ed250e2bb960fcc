//! The two backends that contain nothing themselves.
//!
//! `external`: an operator declares that an outer container or virtual machine is the boundary. Limits, a cleared
//! environment and the seccomp filter still apply; everything else is reported as declared, never as enforced.
//! `none`: limits and a cleared environment only; needs `--danger`.

use ringfence_types::Backend;

use crate::cgroup::Cgroups;
use crate::compile::{self, Ground};
use crate::launching::Launching;
use crate::posture::{Evidence, posture};
use crate::session::{Session, StartError};
use crate::spec::Spec;

pub(crate) fn start(spec: &Spec) -> Result<Session, StartError> {
    let launching = Launching::begin(spec.backend, 0, Cgroups::create(&spec.limits))?;
    let ground = Ground::shared(None, launching.cgroups());
    let plan = match spec.backend {
        Backend::External => compile::filter_only(spec, &ground),
        _ => compile::limits_only(spec, &ground),
    };
    let sealed = launching.finish(&plan)?;
    let evidence = Evidence { spec, achieved: sealed.achieved, landlock_abi: None, cgroups: &sealed.cgroups };
    let posture = posture(&evidence);
    Ok(Session::new(sealed, posture, None, Vec::new()))
}
