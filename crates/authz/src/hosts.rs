//! Rules about hosts, and one URL against them.
//!
//! What a URL is judged as must be what a client makes of it. So it is read by a parser that repairs nothing, and what
//! two readers could read differently is refused before any rule is asked.

mod flow;
mod request;
mod url;

use std::collections::HashMap;
use std::fmt;

use ringfence_types::{
    ApprovalMode, Decision, Host, HostPattern, NetMode, PolicyLayer, Risk, RuleFamily, RuleId, SpecialAddress,
};

use crate::judgement::{JudgementPart, PartKind, RuleSource};
use crate::policy::{Policy, net_ceiling};
pub use flow::{
    FlowHandling, handling, is_open, is_unknown, judge_fetch, judge_flow, judge_request, may_resolve, sought,
};
pub use request::{HttpMethod, HttpMethodError, HttpMethods, PathPrefix, PathPrefixError, UrlScheme};
use request::{MatchStrictness, UrlRequest};

/// One rule of a policy file or of `--allow-host`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    pub decision: Decision,
    /// Host, or every host below one, and the port if it is limited to one.
    pub host: HostPattern,
    /// `None`: both.
    pub scheme: Option<UrlScheme>,
    /// `None`: every ordinary method. Others have to be named.
    pub methods: Option<HttpMethods>,
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
pub enum HostRuleError {
    #[error("`{0}` is the metadata service of a cloud; nothing allows it")]
    Metadata(HostPattern),
}

impl HostRule {
    /// For the loader of rules: an entry without effect is a mistake.
    pub fn check(&self) -> Result<(), HostRuleError> {
        if self.decision != Decision::Deny && self.host.host().special() == Some(SpecialAddress::Metadata) {
            return Err(HostRuleError::Metadata(self.host.clone()));
        }
        Ok(())
    }

    /// Whether it is about some of the requests to its host, which only a proxy that sees requests can hold.
    pub fn is_partial(&self) -> bool {
        self.scheme.is_some() || self.methods.is_some() || self.path_prefix.is_some()
    }
}

/// What is held against rules: a request, or a connection of which only host and port are known.
trait HostQuery: fmt::Display {
    fn host(&self) -> &Host;
    /// What keeps `entry` from speaking about this; its host does already.
    fn mismatch(&self, entry: &HostRule, side: MatchStrictness) -> Option<HostMismatch>;
    fn risk(&self) -> Risk;
    /// What this is in the way of a rule that lacks only `mismatch`.
    fn lacks(&self, mismatch: HostMismatch) -> String;
    /// Host and port as `--allow-host` takes them; the port only where it is not the usual one.
    fn authority(&self) -> String;
}

/// The host rules of all policy files. Without one no host is allowed.
///
/// Rules are never ordered: deny before ask before allow. An allow below the operator's layer has no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRules {
    entries: HashMap<Host, Vec<HostRule>>,
}

impl HostRules {
    pub fn new(entries: Vec<HostRule>) -> Self {
        let mut rules = Self::default();
        for entry in entries {
            rules.entries.entry(entry.host.host().clone()).or_default().push(entry);
        }
        rules
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Hosts that the command line opens, sorted.
    pub(crate) fn of_flags(&self) -> Vec<String> {
        let opens =
            |entry: &&HostRule| entry.source.layer == PolicyLayer::Flags && entry.decision != Decision::Deny;
        let mut hosts: Vec<String> =
            self.entries.values().flatten().filter(opens).map(|entry| entry.host.to_string()).collect();
        hosts.sort();
        hosts
    }

    /// Hosts with which an inspected connection may become another protocol.
    pub fn upgrades(&self) -> Vec<HostPattern> {
        let entries = self.entries.values().flatten();
        let open = entries.filter(|entry| entry.upgrade && entry.decision == Decision::Allow);
        open.filter(|entry| entry.source.has_authority()).map(|entry| entry.host.clone()).collect()
    }

    /// Rules that name the host or a name above it, the exact ones first. An address is below nothing (B-S18).
    fn about(&self, host: &Host) -> impl Iterator<Item = &HostRule> {
        let name = if let Host::Name(name) = host { name.as_str() } else { "" };
        let above = name.match_indices('.').filter_map(|(at, _)| name.get(at + 1..));
        let hosts = std::iter::once(host.clone()).chain(above.map(|above| Host::Below(above.to_owned())));
        hosts.filter_map(|host| self.entries.get(&host)).flatten()
    }

    /// A rule that closes, of any layer.
    fn restricting(&self, request: &dyn HostQuery, decision: Decision) -> Option<&HostRule> {
        self.about(request.host()).find(|entry| {
            entry.decision == decision && request.mismatch(entry, MatchStrictness::Restrict).is_none()
        })
    }

    /// A rule that opens, at least to a question.
    fn opening(&self, request: &dyn HostQuery, decision: Decision) -> Option<&HostRule> {
        self.about(request.host()).find(|entry| {
            entry.decision == decision
                && may_open(entry, request.host())
                && request.mismatch(entry, MatchStrictness::Grant).is_none()
        })
    }

    /// What the nearest rule that could have allowed the request lacks.
    fn nearest_miss(&self, request: &dyn HostQuery) -> Option<(&HostRule, HostMismatch)> {
        let granting = self.about(request.host()).filter(|entry| entry.decision == Decision::Allow);
        let missed = granting.filter(|entry| may_open(entry, request.host()));
        missed
            .filter_map(|entry| Some((entry, request.mismatch(entry, MatchStrictness::Grant)?)))
            .max_by_key(|miss| miss.1)
    }
}

/// Only the operator opens hosts, and a special one only by its own name.
fn may_open(entry: &HostRule, host: &Host) -> bool {
    entry.source.has_authority() && (host.special().is_none() || entry.host.host() == host)
}

/// The first thing that keeps a rule from speaking about a request, farthest from a match first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HostMismatch {
    Port,
    Scheme,
    Path,
    Method,
}

/// Judges a request to a URL. `method`: `GET` where none is given.
///
/// Network mode `full` is the network of the host without a filter: a command reaches everything there, so only rules
/// that deny or ask and the metadata services of clouds are held against what Ringfence itself is asked to fetch.
pub fn judge_url(policy: &Policy, url: &[u8], method: Option<&str>) -> JudgementPart {
    let part = match UrlRequest::read(url, method) {
        Ok(request) => judge_sought(policy, &request),
        Err(error) => JudgementPart::new(PartKind::Host, url::shown(url), error.rule())
            .because(error.to_string())
            .deny(Risk::High, error.fix()),
    };
    if policy.approval == ApprovalMode::Never { part.without_question() } else { part }
}

fn judge_sought(policy: &Policy, request: &dyn HostQuery) -> JudgementPart {
    let rules = &policy.rules.hosts;
    if request.host().special() == Some(SpecialAddress::Metadata) {
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

fn open(rules: &HostRules, net: NetMode, request: &dyn HostQuery) -> JudgementPart {
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
            JudgementPart::new(PartKind::Host, request.to_string(), RuleId::NetFull)
                .because("the network is not filtered"),
            request,
        ),
        None => missed(rules, request),
    }
}

fn by_rule(entry: &HostRule, request: &dyn HostQuery, reason: &'static str) -> JudgementPart {
    JudgementPart::new(PartKind::Host, request.to_string(), RuleFamily::Hosts.member(&entry.host))
        .because(reason)
        .by(&entry.source)
}

fn weighed(part: JudgementPart, request: &dyn HostQuery) -> JudgementPart {
    JudgementPart { risk: request.risk(), ..part }
}

fn metadata(request: &dyn HostQuery) -> JudgementPart {
    JudgementPart::new(PartKind::Host, request.to_string(), RuleId::HostMetadata)
        .because(format!("`{}` is {}, which hands out credentials", request.host(), SpecialAddress::Metadata))
        .deny(Risk::Critical, "nothing: this cannot be allowed")
}

fn switched_off(policy: &Policy, request: &dyn HostQuery) -> JudgementPart {
    let part = JudgementPart::new(PartKind::Host, request.to_string(), RuleId::NetNone)
        .because("the network is off");
    if net_ceiling(policy.profile) == NetMode::None {
        return part.deny(Risk::High, format!("use another profile than `{}`", policy.profile));
    }
    part.deny(Risk::Medium, format!("start with `--allow-host {}`", request.authority()))
}

/// No rule allows it: why, and what would.
fn missed(rules: &HostRules, request: &dyn HostQuery) -> JudgementPart {
    let part = |rule| JudgementPart::new(PartKind::Host, request.to_string(), rule);
    let allow = format!("start with `--allow-host {}`", request.authority());
    if let Some((entry, mismatch)) = rules.nearest_miss(request) {
        let rule = match mismatch {
            HostMismatch::Port => RuleId::HostPort,
            HostMismatch::Scheme => RuleId::HostScheme,
            HostMismatch::Path => RuleId::HostPath,
            HostMismatch::Method => RuleId::HostMethod,
        };
        let part = part(rule).because(request.lacks(mismatch));
        let RuleSource { layer, origin, .. } = entry.source.clone();
        return JudgementPart { layer, origin, ..part.deny(Risk::Medium, entry.source.fix()) };
    }
    match request.host().special() {
        Some(special) => part(RuleId::HostSpecial)
            .because(format!(
                "`{}` is {special}; only a rule for exactly this host allows it",
                request.host()
            ))
            .deny(Risk::High, allow),
        None => part(RuleId::HostUnlisted).because("no rule allows this host").deny(Risk::Medium, allow),
    }
}

#[cfg(test)]
mod tests;
