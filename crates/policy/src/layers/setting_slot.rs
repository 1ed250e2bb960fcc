//! One value of a policy, who said so, and what others may make of it.

use std::fmt;

use ringfence_authz::RuleLocation;
use ringfence_types::{
    Access, ApprovalMode, Backend, CommandMode, LeakAction, NetMode, OciRuntime, PolicyLayer, Profile,
    UnlistedHosts,
};

use super::super::limits::LimitAmount;
use super::super::problem::{PolicyProblem, StackProblems};
use super::super::source_text::TextSpan;
use super::{EffectiveSetting, LayerStep, SectionAuthority, WideningRequest};

/// Who said something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SettingAuthor {
    /// No file and no flag.
    Default,
    Profile(Profile),
    /// The flag as it was written.
    Flag(String),
    File {
        layer: PolicyLayer,
        origin: RuleLocation,
    },
}

impl SettingAuthor {
    pub(super) fn file(step: &LayerStep<'_>, span: TextSpan) -> Self {
        Self::File { layer: step.layer, origin: step.document.source.origin(span) }
    }

    /// Whether a flag may not go beyond it.
    fn binds_flags(&self) -> bool {
        !matches!(self, Self::Default)
    }

    pub(super) fn layer(&self) -> PolicyLayer {
        match self {
            Self::Default | Self::Profile(_) => PolicyLayer::Floor,
            Self::Flag(_) => PolicyLayer::Flags,
            Self::File { layer, .. } => *layer,
        }
    }

    pub(super) fn origin(&self) -> Option<&RuleLocation> {
        match self {
            Self::File { origin, .. } => Some(origin),
            Self::Default | Self::Profile(_) | Self::Flag(_) => None,
        }
    }
}

/// A value that one can have more or less of.
pub(super) trait OrderedSetting: Clone {
    /// Whether it gives more than `other`.
    fn exceeds(&self, other: &Self) -> bool;
}

impl OrderedSetting for CommandMode {
    fn exceeds(&self, other: &Self) -> bool {
        self < other
    }
}

impl OrderedSetting for ApprovalMode {
    fn exceeds(&self, other: &Self) -> bool {
        self < other
    }
}

impl OrderedSetting for LeakAction {
    fn exceeds(&self, other: &Self) -> bool {
        self < other
    }
}

impl OrderedSetting for UnlistedHosts {
    fn exceeds(&self, other: &Self) -> bool {
        self < other
    }
}

impl OrderedSetting for Access {
    fn exceeds(&self, other: &Self) -> bool {
        self > other
    }
}

impl OrderedSetting for NetMode {
    fn exceeds(&self, other: &Self) -> bool {
        self > other
    }
}

impl OrderedSetting for LimitAmount {
    fn exceeds(&self, other: &Self) -> bool {
        self > other
    }
}

impl OrderedSetting for Profile {
    fn exceeds(&self, other: &Self) -> bool {
        self.strictness() < other.strictness()
    }
}

/// `None` is the strongest that the machine has, so only asking for the strongest there is gives no more than that. A
/// container holds what `native` holds and has another system around it: to ask for one is to ask for less.
impl OrderedSetting for Option<Backend> {
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
pub(super) struct NameSubset<T>(pub(super) Option<Vec<T>>);

impl<T: Clone + PartialEq> OrderedSetting for NameSubset<T> {
    fn exceeds(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(own), Some(other)) => own.iter().any(|one| !other.contains(one)),
        }
    }
}

/// gVisor is more than the others, which are as good as each other; `None` is unknown until something was started.
impl OrderedSetting for Option<OciRuntime> {
    fn exceeds(&self, other: &Self) -> bool {
        self != other && *self != Some(OciRuntime::Runsc)
    }
}

/// What has no more and no less: only an operator says it, and nothing besides.
#[derive(Clone, Debug)]
pub(super) struct FixedSetting<T>(pub(super) Option<T>);

impl<T: Clone + PartialEq> OrderedSetting for FixedSetting<T> {
    fn exceeds(&self, other: &Self) -> bool {
        self.0 != other.0
    }
}

/// A value as it stands.
#[derive(Clone, Debug)]
pub(super) struct SettingSlot<T> {
    pub(super) key: &'static str,
    pub(super) value: T,
    /// The value as a person would write it.
    pub(super) shown: String,
    pub(super) by: SettingAuthor,
}

impl<T: OrderedSetting> SettingSlot<T> {
    pub(super) fn new(key: &'static str, value: T, shown: impl fmt::Display, by: SettingAuthor) -> Self {
        Self { key, value, shown: shown.to_string(), by }
    }

    /// A file has said something.
    pub(super) fn offer(&mut self, offer: Self, standing: SectionAuthority, report: &mut MergeReport) {
        if standing == SectionAuthority::Authority {
            *self = offer;
        } else if offer.value.exceeds(&self.value) {
            report.excess(&offer.to_string(), &offer.by, &self.named(), standing);
        } else if self.value.exceeds(&offer.value) {
            *self = offer;
        }
    }

    /// A flag has said something.
    pub(super) fn choose(&mut self, offer: Self, report: &mut MergeReport) {
        if offer.value.exceeds(&self.value) && self.by.binds_flags() {
            report.excess(&offer.to_string(), &offer.by, &self.named(), SectionAuthority::Narrows);
        } else {
            *self = offer;
        }
    }

    /// The profile gives no more than this.
    pub(super) fn hold(&mut self, profile: Profile, most: T, shown: impl fmt::Display) {
        if self.value.exceeds(&most) {
            *self = Self::new(self.key, most, shown, SettingAuthor::Profile(profile));
        }
    }

    pub(super) fn setting(&self) -> EffectiveSetting {
        EffectiveSetting {
            key: self.key.to_owned(),
            value: self.shown.clone(),
            layer: self.by.layer(),
            origin: self.by.origin().cloned(),
        }
    }

    /// With the place, for "… is above …".
    pub(super) fn named(&self) -> String {
        match &self.by {
            SettingAuthor::Default => format!("the default `{}`", self.shown),
            SettingAuthor::Profile(profile) => format!("the `{}` of profile `{profile}`", self.shown),
            SettingAuthor::Flag(flag) => format!("`{flag}`"),
            SettingAuthor::File { origin, .. } => format!("{self} at {origin}"),
        }
    }
}

impl<T> fmt::Display for SettingSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.by {
            SettingAuthor::Flag(flag) => write!(f, "`{flag}`"),
            _ => write!(f, "`{} = \"{}\"`", self.key, self.shown),
        }
    }
}

/// What could not be done.
#[derive(Debug, Default)]
pub(super) struct MergeReport {
    pub(super) problems: StackProblems,
    pub(super) requests: Vec<WideningRequest>,
}

impl MergeReport {
    /// `what` would give more than `limit`.
    pub(super) fn excess(&mut self, what: &str, by: &SettingAuthor, limit: &str, standing: SectionAuthority) {
        match (standing, by.origin()) {
            (SectionAuthority::Around, _) => {}
            (SectionAuthority::Asks, Some(origin)) => {
                self.request(what, origin, format!("it is above {limit}"))
            }
            _ => {
                let problem = PolicyProblem::new(format!("{what} is above {limit}"));
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

    pub(super) fn request(&mut self, what: &str, origin: &RuleLocation, why: String) {
        self.requests.push(WideningRequest { what: what.to_owned(), origin: origin.clone(), why });
    }
}
