//! Own namespaces, constructed root, Landlock and seccomp: everything at once, made by our own launcher.

use std::path::{Path, PathBuf};

use ringfence_types::{Access, NetMode};

use crate::cgroup::Cgroups;
use crate::compile::{self, Ground};
use crate::landlock;
use crate::launching::Launching;
use crate::placeholders::Placeholders;
use crate::posture::{Evidence, posture};
use crate::session::{Session, StartError};
use crate::spec::{Spec, View};
use crate::survey::{self, Rules, Survey};

pub(crate) fn start(spec: &Spec, rules: &dyn Rules) -> Result<Session, StartError> {
    let launching = Launching::begin(spec.backend, namespaces(spec.net), Cgroups::create(&spec.limits))?;
    let surroundings = Surroundings::look(spec, rules)?;
    let landlock_abi = landlock::abi();
    let ground = Ground::here(landlock_abi, launching.cgroups());
    let plan = compile::native(spec, &surroundings.survey.roots, &ground)?;
    let sealed = launching.finish(&plan)?;
    let posture =
        posture(&Evidence { spec, achieved: sealed.achieved, landlock_abi, cgroups: &sealed.cgroups });
    Ok(Session::new(sealed, posture, surroundings.placeholders, surroundings.survey.notes))
}

fn namespaces(net: NetMode) -> u64 {
    let always = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    let net = if net == NetMode::Full { 0 } else { libc::CLONE_NEWNET };
    u64::from((always | net).cast_unsigned())
}

/// What the workspace holds, and the placeholders for what it must not come to hold.
pub(crate) struct Surroundings {
    pub(crate) survey: Survey,
    pub(crate) placeholders: Option<Placeholders>,
}

impl Surroundings {
    pub(crate) fn look(spec: &Spec, rules: &dyn Rules) -> Result<Self, StartError> {
        if !matches!(spec.view, View::Constructed) {
            return Ok(Self { survey: Survey::default(), placeholders: None });
        }
        let roots: Vec<&Path> = surveyable(spec).collect();
        let all: Vec<PathBuf> = roots.iter().flat_map(|root| survey::roots(root)).collect();
        // Joined before the survey: what another session holds must not go away in between.
        let mut placeholders = Placeholders::join(&spec.registry, &all)?;
        let mut survey = survey::survey_all(&roots, rules)?;
        for root in &mut survey.roots {
            placeholders.fill(root)?;
        }
        Ok(Self { survey, placeholders: Some(placeholders) })
    }
}

/// Directories whose content is not the system's: hidden files are hidden in all of them.
fn surveyable(spec: &Spec) -> impl Iterator<Item = &Path> {
    let visible = spec.roots.iter().filter(|root| root.access != Access::None);
    visible.map(|root| root.path.as_path()).filter(|path| path.is_dir())
}
