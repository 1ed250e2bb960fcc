use ringfence_types::{Control, Limits};
use serde::Serialize;

use super::arena::Arena;
use super::evidence::{AttemptLog, TrialEvidence};
use super::host::HostFeatures;
use super::judge::{self, ObservedEffect};
use super::world::AttackWorld;

/// One way out of the fence that an attacker might try.
#[derive(Debug)]
pub struct Attempt {
    pub id: &'static str,
    pub class: AttemptClass,
    pub title: &'static str,
    /// Probe and bypass ids of the catalogue it comes from.
    pub from: &'static str,
    /// The controls that should stop it.
    pub controls: &'static [Control],
    pub(super) body: AttemptBody,
    /// Reads from the host what the attempt achieved.
    pub(super) judge: fn(&AttackWorld, &TrialEvidence) -> Vec<ObservedEffect>,
    pub(super) proof: ControlRequirement,
    pub(super) props: &'static [WorldProp],
    /// Why this machine cannot show it even without a fence; checked before any run.
    pub(super) unfit: fn(&HostFeatures) -> Option<String>,
    /// Like `unfit`, for a control run that failed.
    pub(super) excuse: fn(&HostFeatures, &TrialEvidence) -> Option<String>,
    /// Why an attempt that got through proves the machine slow rather than the fence broken. Only for
    /// attempts that measure time.
    pub(super) too_slow: fn(&AttackWorld, &TrialEvidence) -> Option<String>,
    pub(super) limits: fn(Limits) -> Limits,
    /// What the host does while the attempt runs.
    pub(super) meanwhile: Option<fn(&AttackWorld)>,
    pub(super) refusal: RefusalMeaning,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttemptClass {
    Files,
    Network,
    System,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AttemptBody {
    Code(fn(&Arena, &mut AttemptLog<'_>)),
    /// A script; `$1` is the workspace, `$2` the directory outside, `$3` the nonce, `$4` the TCP port.
    Shell(&'static str),
}

/// How much of an attempt must get through without the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlRequirement {
    Every,
    /// Parts of it depend on the machine or on privileges.
    Some,
}

/// What a world needs beyond files and listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorldProp {
    /// Every protected path exists.
    Protected,
    /// `.codex` is a symlink to a directory of the workspace.
    ProtectedLink,
    /// `.git/config` has a second hard link from the start.
    ProtectedAlias,
    /// The workspace is not a repository yet.
    NoRepository,
    /// A name of the deny list is a symlink to a file with an ordinary name.
    SecretLink,
    Victim,
    Ipc,
    /// An inheritable descriptor on the directory outside.
    Inherited,
    /// A set-user-id program.
    SetUser,
    /// Files with a secret in the machine's shared temporary directories.
    Shared,
}

/// What it means when the fence refuses to start at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalMeaning {
    Fault,
    Holds,
}

/// The common case, for struct update syntax.
pub(super) const BASE: Attempt = Attempt {
    id: "",
    class: AttemptClass::Files,
    title: "",
    from: "",
    controls: &[],
    body: AttemptBody::Shell(":"),
    judge: judge::succeeded,
    proof: ControlRequirement::Every,
    props: &[],
    unfit: fits,
    excuse: no_excuse,
    too_slow: fast_enough,
    limits: same,
    meanwhile: None,
    refusal: RefusalMeaning::Fault,
};

fn fits(_: &HostFeatures) -> Option<String> {
    None
}

fn no_excuse(_: &HostFeatures, _: &TrialEvidence) -> Option<String> {
    None
}

fn fast_enough(_: &AttackWorld, _: &TrialEvidence) -> Option<String> {
    None
}

fn same(limits: Limits) -> Limits {
    limits
}
