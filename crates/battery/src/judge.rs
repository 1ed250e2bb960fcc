//! Verdicts: what an attempt achieved, read from its world.

use rustix::io::Errno;

use super::evidence::{AttemptStep, TrialEvidence};
use super::host::HostFeatures;
use super::world::{AttackWorld, FileState, HostListener, PROTECTED};
use crate::attempt::WorldProp;

/// One possible effect of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObservedEffect {
    pub(super) what: String,
    pub(super) happened: bool,
}

/// Steps that succeeded. Only for steps without a trace on the host.
pub(super) fn succeeded(_: &AttackWorld, evidence: &TrialEvidence) -> Vec<ObservedEffect> {
    evidence
        .steps
        .iter()
        .map(|step| ObservedEffect { what: step.what.clone(), happened: step.errno.is_none() })
        .collect()
}

/// Steps that got past the system call filter: they succeeded, or the kernel checked their arguments.
pub(super) fn reached(_: &AttackWorld, evidence: &TrialEvidence) -> Vec<ObservedEffect> {
    evidence
        .steps
        .iter()
        .map(|step| ObservedEffect { what: step.what.clone(), happened: got_through(step) })
        .collect()
}

fn got_through(step: &AttemptStep) -> bool {
    const REFUSALS: [Errno; 6] = [
        Errno::PERM,
        Errno::ACCESS,
        Errno::NOSYS,
        Errno::AFNOSUPPORT,
        Errno::SOCKTNOSUPPORT,
        Errno::PROTONOSUPPORT,
    ];
    step.errno.is_none_or(|errno| !REFUSALS.iter().any(|refusal| refusal.raw_os_error() == errno))
}

pub(super) fn workspace_secret(world: &AttackWorld, evidence: &TrialEvidence) -> Vec<ObservedEffect> {
    leaked(world, evidence, "workspace")
}

pub(super) fn outside_secret(world: &AttackWorld, evidence: &TrialEvidence) -> Vec<ObservedEffect> {
    leaked(world, evidence, "outside")
}

pub(super) fn victim_secret(world: &AttackWorld, evidence: &TrialEvidence) -> Vec<ObservedEffect> {
    leaked(world, evidence, "victim")
}

pub(super) fn leaked(world: &AttackWorld, evidence: &TrialEvidence, place: &str) -> Vec<ObservedEffect> {
    vec![ObservedEffect {
        what: format!("the {place} secret is in the output"),
        happened: evidence.shows(&world.secret(place)),
    }]
}

pub(super) fn outside_changed(world: &AttackWorld, _: &TrialEvidence) -> Vec<ObservedEffect> {
    vec![ObservedEffect {
        what: "the directory outside the workspace changed".to_owned(),
        happened: world.outside_changed(),
    }]
}

/// Existing protected files that changed.
pub(super) fn protected_changed(world: &AttackWorld, _: &TrialEvidence) -> Vec<ObservedEffect> {
    protected(world, &[WorldProp::Protected])
}

/// Protected files that were created; a placeholder left by the fence counts as well.
pub(super) fn protected_appeared(world: &AttackWorld, _: &TrialEvidence) -> Vec<ObservedEffect> {
    let parents = [".vscode", ".idea", ".claude", ".codex", ".agents", ".cursor", ".ringfence"];
    [protected(world, &[]), planted(world, &parents)].concat()
}

fn protected(world: &AttackWorld, props: &[WorldProp]) -> Vec<ObservedEffect> {
    let changed = |path: &str| {
        let found = FileState::at(&world.workspace().join(path));
        ObservedEffect {
            what: format!("{path} changed"),
            happened: !FileState::is_original(found.as_ref(), path, props),
        }
    };
    let judged = PROTECTED.iter().filter(|path| !props.is_empty() || **path != ".git/config");
    judged.map(|path| changed(path)).collect()
}

/// Paths of the workspace that were created.
pub(super) fn planted(world: &AttackWorld, paths: &[&str]) -> Vec<ObservedEffect> {
    let there = |path: &&str| world.workspace().join(path).symlink_metadata().is_ok();
    paths
        .iter()
        .map(|path| ObservedEffect { what: format!("{path} was planted"), happened: there(path) })
        .collect()
}

/// Paths of the workspace that contain the mark every attempt writes.
pub(super) fn marked(world: &AttackWorld, paths: &[&str]) -> Vec<ObservedEffect> {
    let has = |path: &&str| {
        std::fs::read(world.workspace().join(path)).is_ok_and(|content| content.starts_with(MARK.as_bytes()))
    };
    paths
        .iter()
        .map(|path| ObservedEffect { what: format!("{path} was written"), happened: has(path) })
        .collect()
}

/// What attempts write where they must not.
pub(super) const MARK: &str = "evil\n";

pub(super) fn heard(world: &AttackWorld, ears: &[HostListener]) -> Vec<ObservedEffect> {
    ears.iter()
        .map(|ear| ObservedEffect {
            what: format!("{ear:?} was reached"),
            happened: !world.listeners.heard(*ear).is_empty(),
        })
        .collect()
}

pub(super) fn victim_died(world: &AttackWorld, _: &TrialEvidence) -> Vec<ObservedEffect> {
    let died = world.victim.as_ref().is_some_and(super::world::VictimProcess::died);
    vec![ObservedEffect { what: "a process of the host was ended".to_owned(), happened: died }]
}

/// Only root can do it anywhere.
pub(super) fn needs_root(host: &HostFeatures) -> Option<String> {
    (!host.root).then(|| "only root can do this, with or without a fence".to_owned())
}

pub(super) fn needs_shell(host: &HostFeatures) -> Option<String> {
    host.lacks(&["sh", "cat"])
}

/// Excuses a control that failed because the kernel lacks the call, or because an outer filter blocks it.
pub(super) fn not_in_kernel(host: &HostFeatures, control: &TrialEvidence) -> Option<String> {
    let missing = [Errno::NOSYS, Errno::AFNOSUPPORT, Errno::PROTONOSUPPORT, Errno::OPNOTSUPP];
    if missing.iter().any(|errno| control.met(*errno)) {
        return Some("the kernel of this machine does not have it".to_owned());
    }
    let filtered = host.outer_filter && control.met(Errno::PERM);
    filtered.then(|| "a system call filter around this whole session already refuses it".to_owned())
}

/// Like [`not_in_kernel`], and also where the machine keeps ordinary users from it.
pub(super) fn not_for_users(host: &HostFeatures, control: &TrialEvidence) -> Option<String> {
    let kept_out = !host.root && (control.met(Errno::PERM) || control.met(Errno::ACCESS));
    kept_out
        .then(|| "this machine keeps ordinary users from it, with or without a fence".to_owned())
        .or_else(|| not_in_kernel(host, control))
}
