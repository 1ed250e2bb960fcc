//! Verdicts: what an attempt achieved, read from the world it was made in.

use rustix::io::Errno;

use super::evidence::{Evidence, Step};
use super::host::Host;
use super::world::{Ear, PROTECTED, State, World};
use crate::attack::attempt::Prop;

/// One thing that may have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Effect {
    pub(super) what: String,
    pub(super) happened: bool,
}

/// Steps that worked. Only for what leaves no trace on the host.
pub(super) fn succeeded(_: &World, evidence: &Evidence) -> Vec<Effect> {
    evidence
        .steps
        .iter()
        .map(|step| Effect { what: step.what.clone(), happened: step.errno.is_none() })
        .collect()
}

/// Steps that got past the system call filter: they worked, or the kernel looked at their arguments.
pub(super) fn reached(_: &World, evidence: &Evidence) -> Vec<Effect> {
    evidence
        .steps
        .iter()
        .map(|step| Effect { what: step.what.clone(), happened: got_through(step) })
        .collect()
}

fn got_through(step: &Step) -> bool {
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

pub(super) fn workspace_secret(world: &World, evidence: &Evidence) -> Vec<Effect> {
    leaked(world, evidence, "workspace")
}

pub(super) fn outside_secret(world: &World, evidence: &Evidence) -> Vec<Effect> {
    leaked(world, evidence, "outside")
}

pub(super) fn victim_secret(world: &World, evidence: &Evidence) -> Vec<Effect> {
    leaked(world, evidence, "victim")
}

pub(super) fn leaked(world: &World, evidence: &Evidence, place: &str) -> Vec<Effect> {
    vec![Effect {
        what: format!("the {place} secret is in the output"),
        happened: evidence.shows(&world.secret(place)),
    }]
}

pub(super) fn outside_changed(world: &World, _: &Evidence) -> Vec<Effect> {
    vec![Effect {
        what: "the directory outside the workspace changed".to_owned(),
        happened: world.outside_changed(),
    }]
}

/// Protected files that existed and are not what they were.
pub(super) fn protected_changed(world: &World, _: &Evidence) -> Vec<Effect> {
    protected(world, &[Prop::Protected])
}

/// Protected files that did not exist; a ghost left behind by the fence counts as well.
pub(super) fn protected_appeared(world: &World, _: &Evidence) -> Vec<Effect> {
    let parents = [".vscode", ".idea", ".claude", ".codex", ".agents", ".cursor", ".ringfence"];
    [protected(world, &[]), planted(world, &parents)].concat()
}

fn protected(world: &World, props: &[Prop]) -> Vec<Effect> {
    let changed = |path: &str| {
        let found = State::at(&world.workspace().join(path));
        Effect { what: format!("{path} changed"), happened: !State::is_original(found.as_ref(), path, props) }
    };
    let judged = PROTECTED.iter().filter(|path| !props.is_empty() || **path != ".git/config");
    judged.map(|path| changed(path)).collect()
}

/// Paths of the workspace that exist now and did not.
pub(super) fn planted(world: &World, paths: &[&str]) -> Vec<Effect> {
    let there = |path: &&str| world.workspace().join(path).symlink_metadata().is_ok();
    paths.iter().map(|path| Effect { what: format!("{path} was planted"), happened: there(path) }).collect()
}

/// Paths of the workspace that contain the mark every attempt writes.
pub(super) fn marked(world: &World, paths: &[&str]) -> Vec<Effect> {
    let has = |path: &&str| {
        std::fs::read(world.workspace().join(path)).is_ok_and(|content| content.starts_with(MARK.as_bytes()))
    };
    paths.iter().map(|path| Effect { what: format!("{path} was written"), happened: has(path) }).collect()
}

/// What attempts write where they must not.
pub(super) const MARK: &str = "evil\n";

pub(super) fn heard(world: &World, ears: &[Ear]) -> Vec<Effect> {
    ears.iter()
        .map(|ear| Effect {
            what: format!("{ear:?} was reached"),
            happened: !world.listeners.heard(*ear).is_empty(),
        })
        .collect()
}

pub(super) fn victim_died(world: &World, _: &Evidence) -> Vec<Effect> {
    let died = world.victim.as_ref().is_some_and(super::world::Process::died);
    vec![Effect { what: "a process of the host was ended".to_owned(), happened: died }]
}

/// Only root can do it anywhere.
pub(super) fn needs_root(host: &Host) -> Option<String> {
    (!host.root).then(|| "only root can do this, with or without a fence".to_owned())
}

pub(super) fn needs_shell(host: &Host) -> Option<String> {
    host.lacks(&["sh", "cat"])
}

/// A control that failed because the kernel has no such call, or because a filter is already around us.
pub(super) fn not_in_kernel(host: &Host, control: &Evidence) -> Option<String> {
    let missing = [Errno::NOSYS, Errno::AFNOSUPPORT, Errno::PROTONOSUPPORT, Errno::OPNOTSUPP];
    if missing.iter().any(|errno| control.met(*errno)) {
        return Some("the kernel of this machine does not have it".to_owned());
    }
    let filtered = host.outer_filter && control.met(Errno::PERM);
    filtered.then(|| "a system call filter around this whole session already refuses it".to_owned())
}

/// The same, and some kernels are set to keep ordinary users out.
pub(super) fn not_for_users(host: &Host, control: &Evidence) -> Option<String> {
    let kept_out = !host.root && (control.met(Errno::PERM) || control.met(Errno::ACCESS));
    kept_out
        .then(|| "this machine keeps ordinary users from it, with or without a fence".to_owned())
        .or_else(|| not_in_kernel(host, control))
}
