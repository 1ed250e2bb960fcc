//! Rules about hosts, and one URL against them.
//!
//! What a URL is judged as must be what a client makes of it. So it is read by a parser that repairs nothing, and what
//! two readers could read differently is refused before any rule is asked.

mod flow;
mod request;
mod url;

use std::collections::HashMap;
use std::fmt;

use ringfence_types::{ApprovalMode, Decision, Host, HostRule, NetMode, Risk, Special};

use crate::judgement::{Aspect, Part, RuleSource};
use crate::policy::{Policy, net_ceiling};
pub use flow::{Handling, handling, is_unknown, judge_fetch, judge_flow, judge_request, may_resolve, sought};
pub use request::{Method, MethodError, Methods, PathPrefix, PathPrefixError, Scheme};
use request::{Request, Side};

/// One rule of a policy file or of `--allow-host`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    pub decision: Decision,
    /// Host, or every host below one, and the port if it is limited to one.
    pub host: HostRule,
    /// `None`: both.
    pub scheme: Option<Scheme>,
    /// `None`: every ordinary method. Others have to be named.
    pub methods: Option<Methods>,
    /// `None`: every path.
    pub path_prefix: Option<PathPrefix>,
    /// The proxy looks into connections to it.
    pub inspect: bool,
    /// An inspected connection may become another protocol.
    pub upgrade: bool,
    /// Its name may lead to an address of this machine or its network.
    pub local: bool,
    pub source: RuleSource,
}

/// A rule about a host that can never have the effect it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostEntryError {
    #[error("`{0}` is the metadata service of a cloud; nothing allows it")]
    Metadata(HostRule),
}

impl HostEntry {
    /// For whoever loads rules: an entry without effect is a mistake.
    pub fn check(&self) -> Result<(), HostEntryError> {
        if self.decision != Decision::Deny && self.host.host().special() == Some(Special::Metadata) {
            return Err(HostEntryError::Metadata(self.host.clone()));
        }
        Ok(())
    }

    /// Whether it is about some of the requests to its host, which only somebody who sees requests can hold.
    pub(crate) fn is_partial(&self) -> bool {
        self.scheme.is_some() || self.methods.is_some() || self.path_prefix.is_some()
    }
}

/// What is held against rules: a request, or a connection of which only host and port are known.
trait Sought: fmt::Display {
    fn host(&self) -> &Host;
    /// What keeps `entry` from speaking about this; its host does already.
    fn mismatch(&self, entry: &HostEntry, side: Side) -> Option<Mismatch>;
    fn risk(&self) -> Risk;
    /// What this is in the way of a rule that lacks only `mismatch`.
    fn lacks(&self, mismatch: Mismatch) -> String;
    /// Host and port as `--allow-host` takes them; the port only where it is not the usual one.
    fn authority(&self) -> String;
}

/// The host rules of all policy files. Without one no host is allowed.
///
/// Rules are never ordered: deny before ask before allow. An allow below the operator's layer has no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRules {
    entries: HashMap<Host, Vec<HostEntry>>,
}

impl HostRules {
    pub fn new(entries: Vec<HostEntry>) -> Self {
        let mut rules = Self::default();
        for entry in entries {
            rules.entries.entry(entry.host.host().clone()).or_default().push(entry);
        }
        rules
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Hosts with which an inspected connection may become another protocol.
    pub fn upgrades(&self) -> Vec<HostRule> {
        let entries = self.entries.values().flatten();
        let open = entries.filter(|entry| entry.upgrade && entry.decision == Decision::Allow);
        open.filter(|entry| entry.source.has_authority()).map(|entry| entry.host.clone()).collect()
    }

    /// Rules that name the host or a name above it, the exact ones first. An address is below nothing (B-S18).
    fn about(&self, host: &Host) -> impl Iterator<Item = &HostEntry> {
        let name = if let Host::Name(name) = host { name.as_str() } else { "" };
        let above = name.match_indices('.').filter_map(|(at, _)| name.get(at + 1..));
        let hosts = std::iter::once(host.clone()).chain(above.map(|above| Host::Below(above.to_owned())));
        hosts.filter_map(|host| self.entries.get(&host)).flatten()
    }

    /// A rule that closes, of any layer.
    fn restricting(&self, request: &dyn Sought, decision: Decision) -> Option<&HostEntry> {
        self.about(request.host())
            .find(|entry| entry.decision == decision && request.mismatch(entry, Side::Restrict).is_none())
    }

    /// A rule that opens, at least to a question.
    fn opening(&self, request: &dyn Sought, decision: Decision) -> Option<&HostEntry> {
        self.about(request.host()).find(|entry| {
            entry.decision == decision
                && may_open(entry, request.host())
                && request.mismatch(entry, Side::Grant).is_none()
        })
    }

    /// What the nearest rule that could have allowed the request lacks.
    fn nearest_miss(&self, request: &dyn Sought) -> Option<(&HostEntry, Mismatch)> {
        let granting = self.about(request.host()).filter(|entry| entry.decision == Decision::Allow);
        let missed = granting.filter(|entry| may_open(entry, request.host()));
        missed
            .filter_map(|entry| Some((entry, request.mismatch(entry, Side::Grant)?)))
            .max_by_key(|miss| miss.1)
    }
}

/// Only the operator opens hosts, and a special one only by its own name.
fn may_open(entry: &HostEntry, host: &Host) -> bool {
    entry.source.has_authority() && (host.special().is_none() || entry.host.host() == host)
}

/// The first thing that keeps a rule from speaking about a request, farthest from a match first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mismatch {
    Port,
    Scheme,
    Path,
    Method,
}

/// Judges a request to a URL. `method`: `GET` where none is given.
///
/// Network mode `full` is the network of the host without a filter: a command reaches everything there, so only rules
/// that deny or ask and the metadata services of clouds are held against what Ringfence itself is asked to fetch.
pub fn judge_url(policy: &Policy, url: &[u8], method: Option<&str>) -> Part {
    let part = match Request::read(url, method) {
        Ok(request) => judge_sought(policy, &request),
        Err(error) => Part::new(Aspect::Host, url::shown(url), error.rule())
            .because(error.to_string())
            .deny(Risk::High, error.fix()),
    };
    if policy.approval == ApprovalMode::Never { part.without_question() } else { part }
}

fn judge_sought(policy: &Policy, request: &dyn Sought) -> Part {
    let rules = &policy.rules.hosts;
    if request.host().special() == Some(Special::Metadata) {
        return metadata(request);
    }
    if let Some(entry) = rules.restricting(request, Decision::Deny) {
        return by_rule(entry, request, "a rule denies this host").deny(Risk::High, entry.source.fix());
    }
    match policy.net.min(net_ceiling(policy.profile)) {
        NetMode::None => switched_off(policy, request),
        net => open(rules, net, request),
    }
}

fn open(rules: &HostRules, net: NetMode, request: &dyn Sought) -> Part {
    let unfiltered = net == NetMode::Full;
    let allowing = rules.opening(request, Decision::Allow);
    // Below the operator a question may stand in for a yes, never for a no.
    let asking = match rules.opening(request, Decision::Ask) {
        None if unfiltered || allowing.is_some() => rules.restricting(request, Decision::Ask),
        opening => opening,
    };
    if let Some(entry) = asking {
        return by_rule(entry, request, "a rule asks about this host").ask(Risk::Medium, entry.source.fix());
    }
    match allowing {
        Some(entry) => weighed(by_rule(entry, request, "a rule allows this host"), request),
        None if unfiltered => weighed(
            Part::new(Aspect::Host, request.to_string(), "net.full").because("the network is not filtered"),
            request,
        ),
        None => missed(rules, request),
    }
}

fn by_rule(entry: &HostEntry, request: &dyn Sought, reason: &'static str) -> Part {
    Part::new(Aspect::Host, request.to_string(), format!("hosts.{}", entry.host))
        .because(reason)
        .by(&entry.source)
}

fn weighed(part: Part, request: &dyn Sought) -> Part {
    Part { risk: request.risk(), ..part }
}

fn metadata(request: &dyn Sought) -> Part {
    Part::new(Aspect::Host, request.to_string(), "host.metadata")
        .because(format!("`{}` is {}, which hands out credentials", request.host(), Special::Metadata))
        .deny(Risk::Critical, "nothing: this cannot be allowed")
}

fn switched_off(policy: &Policy, request: &dyn Sought) -> Part {
    let part = Part::new(Aspect::Host, request.to_string(), "net.none").because("the network is off");
    if net_ceiling(policy.profile) == NetMode::None {
        return part.deny(Risk::High, format!("use another profile than `{}`", policy.profile));
    }
    part.deny(Risk::Medium, format!("start with `--allow-host {}`", request.authority()))
}

/// No rule allows it: why, and what would.
fn missed(rules: &HostRules, request: &dyn Sought) -> Part {
    let part = |rule| Part::new(Aspect::Host, request.to_string(), rule);
    let allow = format!("start with `--allow-host {}`", request.authority());
    if let Some((entry, mismatch)) = rules.nearest_miss(request) {
        let rule = match mismatch {
            Mismatch::Port => "host.port",
            Mismatch::Scheme => "host.scheme",
            Mismatch::Path => "host.path",
            Mismatch::Method => "host.method",
        };
        let part = part(rule).because(request.lacks(mismatch));
        let RuleSource { layer, origin, .. } = entry.source.clone();
        return Part { layer, origin, ..part.deny(Risk::Medium, entry.source.fix()) };
    }
    match request.host().special() {
        Some(special) => part("host.special")
            .because(format!(
                "`{}` is {special}; only a rule for exactly this host allows it",
                request.host()
            ))
            .deny(Risk::High, allow),
        None => part("host.unlisted").because("no rule allows this host").deny(Risk::Medium, allow),
    }
}

#[cfg(test)]
mod tests;
