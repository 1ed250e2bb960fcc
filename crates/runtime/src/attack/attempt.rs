use ringfence_types::{Control, Limits};
use serde::Serialize;

use super::arena::Arena;
use super::evidence::{Evidence, Log};
use super::host::Host;
use super::judge::{self, Effect};
use super::world::World;

/// One way out that someone has tried somewhere, or might.
#[derive(Debug)]
pub struct Attempt {
    pub id: &'static str,
    pub class: Class,
    pub title: &'static str,
    /// Probe and bypass ids of the catalogue it comes from.
    pub from: &'static str,
    /// The controls that should stop it.
    pub controls: &'static [Control],
    pub(super) body: Body,
    /// What came of it, from the host's side.
    pub(super) judge: fn(&World, &Evidence) -> Vec<Effect>,
    pub(super) proof: Proof,
    pub(super) props: &'static [Prop],
    /// Why this machine cannot show it even without a fence; asked before anything runs.
    pub(super) unfit: fn(&Host) -> Option<String>,
    /// The same, asked of a control that failed.
    pub(super) excuse: fn(&Host, &Evidence) -> Option<String>,
    /// Why an attempt that got through inside says something about the speed of the machine and nothing about the
    /// fence. Only for attempts that measure time.
    pub(super) too_slow: fn(&World, &Evidence) -> Option<String>,
    pub(super) limits: fn(Limits) -> Limits,
    /// What the host does while the attempt runs.
    pub(super) meanwhile: Option<fn(&World)>,
    pub(super) refusal: Refusal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    Files,
    Network,
    System,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    Code(fn(&Arena, &mut Log<'_>)),
    /// A script; `$1` is the workspace, `$2` the directory outside, `$3` the nonce, `$4` the TCP port.
    Shell(&'static str),
}

/// How much of an attempt must get through without the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    Every,
    /// Parts of it depend on the machine or on privileges.
    Some,
}

/// What a world needs beyond files and listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prop {
    /// Every protected path exists.
    Protected,
    /// `.codex` is a symlink to a directory of the workspace.
    ProtectedLink,
    /// `.git/config` has a second name, made before.
    ProtectedAlias,
    /// The workspace is not a repository yet.
    NoRepository,
    /// A name of the deny list is a symlink to a file with an ordinary name.
    SecretLink,
    Victim,
    Ipc,
    /// An inheritable descriptor on the directory outside.
    Inherited,
    /// A program that changes who runs it.
    SetUser,
    /// Files with a secret in the machine's shared temporary directories.
    Shared,
}

/// What it means when the fence refuses to start at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Fault,
    Holds,
}

/// The common case, for struct update syntax.
pub(super) const BASE: Attempt = Attempt {
    id: "",
    class: Class::Files,
    title: "",
    from: "",
    controls: &[],
    body: Body::Shell(":"),
    judge: judge::succeeded,
    proof: Proof::Every,
    props: &[],
    unfit: fits,
    excuse: no_excuse,
    too_slow: fast_enough,
    limits: same,
    meanwhile: None,
    refusal: Refusal::Fault,
};

fn fits(_: &Host) -> Option<String> {
    None
}

fn no_excuse(_: &Host, _: &Evidence) -> Option<String> {
    None
}

fn fast_enough(_: &World, _: &Evidence) -> Option<String> {
    None
}

fn same(limits: Limits) -> Limits {
    limits
}
