//! One value of a policy, who said so, and what others may make of it.

use std::fmt;

use ringfence_types::{
    Access, ApprovalMode, Backend, CommandMode, Layer, LeakAction, NetMode, OciRuntime, Profile, UnknownHosts,
};

use super::super::limits::Amount;
use super::super::problem::{Problem, StackProblems};
use super::super::text::Span;
use super::{Request, Setting, Standing, Step};
use crate::judgement::Origin;

/// Who said something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Nobody.
    Default,
    Profile(Profile),
    /// The flag as it was written.
    Flag(String),
    File {
        layer: Layer,
        origin: Origin,
    },
}

impl By {
    pub(super) fn file(step: &Step<'_>, span: Span) -> Self {
        Self::File { layer: step.layer, origin: step.document.source.origin(span) }
    }

    /// Whether a flag may not go beyond it.
    fn binds_flags(&self) -> bool {
        !matches!(self, Self::Default)
    }

    pub(super) fn layer(&self) -> Layer {
        match self {
            Self::Default | Self::Profile(_) => Layer::Floor,
            Self::Flag(_) => Layer::Flags,
            Self::File { layer, .. } => *layer,
        }
    }

    pub(super) fn origin(&self) -> Option<&Origin> {
        match self {
            Self::File { origin, .. } => Some(origin),
            Self::Default | Self::Profile(_) | Self::Flag(_) => None,
        }
    }
}

/// A value that one can have more or less of.
pub(super) trait Knob: Clone {
    /// Whether it gives more than `other`.
    fn exceeds(&self, other: &Self) -> bool;
}

impl Knob for CommandMode {
    fn exceeds(&self, other: &Self) -> bool {
        self < other
    }
}

impl Knob for ApprovalMode {
    fn exceeds(&self, other: &Self) -> bool {
        self < other
    }
}

impl Knob for LeakAction {
    fn exceeds(&self, other: &Self) -> bool {
        self < other
    }
}

impl Knob for UnknownHosts {
    fn exceeds(&self, other: &Self) -> bool {
        self < other
    }
}

impl Knob for Access {
    fn exceeds(&self, other: &Self) -> bool {
        self > other
    }
}

impl Knob for NetMode {
    fn exceeds(&self, other: &Self) -> bool {
        self > other
    }
}

impl Knob for Amount {
    fn exceeds(&self, other: &Self) -> bool {
        self > other
    }
}

impl Knob for Profile {
    fn exceeds(&self, other: &Self) -> bool {
        self.strictness() < other.strictness()
    }
}

/// `None` is the strongest that the machine has, so only asking for the strongest there is gives no more than that. A
/// container holds what `native` holds and has another system around it: whoever asks for it asks for less.
impl Knob for Option<Backend> {
    fn exceeds(&self, other: &Self) -> bool {
        match (self, other) {
            (Some(Backend::Container), _) => false,
            (_, Some(Backend::Container)) => true,
            (None, other) => other.is_some_and(|backend| backend == Backend::Native),
            (Some(backend), None) => *backend != Backend::Native,
            (Some(backend), Some(other)) => backend > other,
        }
    }
}

/// `None` is every one there is.
#[derive(Clone, Debug)]
pub(super) struct Only<T>(pub(super) Option<Vec<T>>);

impl<T: Clone + PartialEq> Knob for Only<T> {
    fn exceeds(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(own), Some(other)) => own.iter().any(|one| !other.contains(one)),
        }
    }
}

/// gVisor is more than the others, which are as good as each other; `None` is unknown until something was started.
impl Knob for Option<OciRuntime> {
    fn exceeds(&self, other: &Self) -> bool {
        self != other && *self != Some(OciRuntime::Runsc)
    }
}

/// What has no more and no less: only an operator says it, and nothing besides.
#[derive(Clone, Debug)]
pub(super) struct Said<T>(pub(super) Option<T>);

impl<T: Clone + PartialEq> Knob for Said<T> {
    fn exceeds(&self, other: &Self) -> bool {
        self.0 != other.0
    }
}

/// A value as it stands.
#[derive(Clone, Debug)]
pub(super) struct Slot<T> {
    pub(super) key: &'static str,
    pub(super) value: T,
    /// The value as a person would write it.
    pub(super) shown: String,
    pub(super) by: By,
}

impl<T: Knob> Slot<T> {
    pub(super) fn new(key: &'static str, value: T, shown: impl fmt::Display, by: By) -> Self {
        Self { key, value, shown: shown.to_string(), by }
    }

    /// A file has said something.
    pub(super) fn offer(&mut self, offer: Self, standing: Standing, report: &mut Report) {
        if standing == Standing::Authority {
            *self = offer;
        } else if offer.value.exceeds(&self.value) {
            report.excess(&offer.to_string(), &offer.by, &self.named(), standing);
        } else if self.value.exceeds(&offer.value) {
            *self = offer;
        }
    }

    /// A flag has said something.
    pub(super) fn choose(&mut self, offer: Self, report: &mut Report) {
        if offer.value.exceeds(&self.value) && self.by.binds_flags() {
            report.excess(&offer.to_string(), &offer.by, &self.named(), Standing::Narrows);
        } else {
            *self = offer;
        }
    }

    /// The profile gives no more than this.
    pub(super) fn hold(&mut self, profile: Profile, most: T, shown: impl fmt::Display) {
        if self.value.exceeds(&most) {
            *self = Self::new(self.key, most, shown, By::Profile(profile));
        }
    }

    pub(super) fn setting(&self) -> Setting {
        Setting {
            key: self.key.to_owned(),
            value: self.shown.clone(),
            layer: self.by.layer(),
            origin: self.by.origin().cloned(),
        }
    }

    /// With the place, for "… is above …".
    pub(super) fn named(&self) -> String {
        match &self.by {
            By::Default => format!("the default `{}`", self.shown),
            By::Profile(profile) => format!("the `{}` of profile `{profile}`", self.shown),
            By::Flag(flag) => format!("`{flag}`"),
            By::File { origin, .. } => format!("{self} at {origin}"),
        }
    }
}

impl<T> fmt::Display for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            By::Flag(flag) => write!(f, "`{flag}`"),
            _ => write!(f, "`{} = \"{}\"`", self.key, self.shown),
        }
    }
}

/// What could not be done.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) problems: StackProblems,
    pub(super) requests: Vec<Request>,
}

impl Report {
    /// `what` would give more than `limit`.
    pub(super) fn excess(&mut self, what: &str, by: &By, limit: &str, standing: Standing) {
        match (standing, by.origin()) {
            (Standing::Around, _) => {}
            (Standing::Asks, Some(origin)) => self.request(what, origin, format!("it is above {limit}")),
            _ => {
                let problem = Problem::new(format!("{what} is above {limit}"));
                let problem = match by.origin() {
                    Some(origin) => {
                        problem.at(origin.clone()).fix("lower it, or leave it out: this part only narrows")
                    }
                    None => problem.fix("lower it, or change the file"),
                };
                self.problems.add(problem);
            }
        }
    }

    pub(super) fn request(&mut self, what: &str, origin: &Origin, why: String) {
        self.requests.push(Request { what: what.to_owned(), origin: origin.clone(), why });
    }
}
