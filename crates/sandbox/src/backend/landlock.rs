//! Landlock, seccomp and rlimits without namespaces: for places where namespaces cannot be made, such as an
//! unprivileged container. It cannot hide or protect anything inside a root, and says so in its posture.

use super::native::Surroundings;
use crate::cgroup::Cgroups;
use crate::compile::{self, Ground};
use crate::host_sockets::Coverage;
use crate::landlock;
use crate::launching::Launching;
use crate::posture::{Evidence, posture};
use crate::session::{Session, StartError};
use crate::spec::Spec;

pub(crate) fn start(spec: &Spec) -> Result<Session, StartError> {
    let Some(abi) = landlock::abi() else {
        let reason = "this kernel has no Landlock".to_owned();
        return Err(StartError::Unavailable { backend: spec.backend, reason });
    };
    let launching = Launching::begin(spec.backend, 0, Cgroups::create(&spec.limits))?;
    let ground = Ground::shared(Some(abi), launching.cgroups());
    let plan = compile::landlock_only(spec, &ground)?;
    let sealed = launching.finish(&plan)?;
    let evidence = Evidence {
        spec,
        achieved: sealed.achieved,
        landlock_abi: Some(abi),
        cgroups: &sealed.cgroups,
        doors: None,
        coverage: &Coverage::default(),
    };
    let posture = posture(&evidence);
    Session::new(sealed, posture, Surroundings::default())
}
