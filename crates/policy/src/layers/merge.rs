//! The rules of a stack as one set.

use std::cmp::Reverse;

use ringfence_authz::env::{EnvEffect, EnvRule, EnvRules};
use ringfence_authz::hosts::{HostRule, HostRules};
use ringfence_authz::tools::{ToolRule, ToolRules};
use ringfence_authz::{
    CommandPattern, CommandRule, CommandRules, Manifest, PathOperation, PathRule, PathRules, PolicyRules,
    Restriction, RuleSource,
};
use ringfence_types::{Decision, Host, HostPattern, NetMode, PolicyLayer};

use super::super::file::PolicyFile;
use super::super::problem::PolicyProblem;
use super::super::rules::RuleSet;
use super::setting_slot::MergeReport;
use super::{EffectiveSetting, LayerStep, SectionAuthority, SectionScope, StartupFlags};

pub(super) struct MergedRules {
    pub(super) rules: PolicyRules,
    pub(super) settings: Vec<EffectiveSetting>,
}

/// What the rules of every kind have in common.
trait MergeableRule: Clone {
    fn decision(&self) -> Decision;
    fn source(&self) -> &RuleSource;
    fn source_mut(&mut self) -> &mut RuleSource;
    /// `command.deny`.
    fn key(&self) -> String;
    fn value(&self) -> String;

    /// Whether it opens something that none of these rules of the operator opens.
    fn opens(&self, _authority: &[Self]) -> bool {
        self.decision() == Decision::Allow
    }

    /// Whether it closes something as well.
    fn narrows(&self) -> bool {
        self.decision() != Decision::Allow
    }

    fn at_layer(&self, layer: PolicyLayer) -> Self {
        let mut rule = self.clone();
        rule.source_mut().layer = layer;
        rule
    }

    fn setting(&self) -> EffectiveSetting {
        let source = self.source();
        EffectiveSetting {
            key: self.key(),
            value: self.value(),
            layer: source.layer,
            origin: source.origin.clone(),
        }
    }
}

pub(super) fn rules(
    stack: &[LayerStep<'_>],
    files: &[PolicyFile],
    flags: &StartupFlags,
    net: NetMode,
    report: &mut MergeReport,
) -> MergedRules {
    let all: Vec<&LayerStep<'_>> = stack.iter().collect();
    // Rules about tools know their agent, and are taken from all files at once.
    let for_everybody: Vec<&LayerStep<'_>> =
        stack.iter().filter(|step| step.place == SectionScope::Whole).collect();
    let commands = collected(&all, |rules| &rules.commands.rules, report);
    let restrictions = collected(&all, |rules| &rules.commands.restrictions, report);
    let manifests = collected(&all, |rules| &rules.commands.manifests, report);
    let mut paths = ordered(stack, report);
    paths.extend(around(stack, flags));
    let env = collected(&all, |rules| &rules.env, report);
    let mut tools = collected(&for_everybody, |rules| &rules.tools, report);
    tools.extend(tools_of_agents(files));
    let mut hosts = collected(&all, |rules| &rules.hosts, report);
    check_host_flags(flags, &hosts, report);
    hosts.extend(flags.hosts.iter().map(allowed_by_flag));
    check_held(net, &hosts, report);
    let mut settings = Vec::new();
    settings.extend(commands.iter().map(MergeableRule::setting));
    settings.extend(restrictions.iter().map(MergeableRule::setting));
    settings.extend(manifests.iter().map(MergeableRule::setting));
    settings.extend(paths.iter().map(MergeableRule::setting));
    settings.extend(env.iter().map(MergeableRule::setting));
    settings.extend(tools.iter().map(MergeableRule::setting));
    settings.extend(hosts.iter().map(MergeableRule::setting));
    let paths = path_rules(stack, paths, report);
    let rules = PolicyRules {
        commands: command_rules(commands, restrictions, manifests, report),
        paths,
        env: EnvRules::new(env),
        hosts: HostRules::new(hosts),
        tools: ToolRules::new(tools),
    };
    MergedRules { rules, settings }
}

/// Where one file has all the rules, they were made ready when it was read.
fn path_rules(stack: &[LayerStep<'_>], rules: Vec<PathRule>, report: &mut MergeReport) -> PathRules {
    let ready = stack.iter().map(|step| &step.section.rules.paths).find(|ready| ready.rules() == rules);
    if let Some(ready) = ready {
        return ready.clone();
    }
    PathRules::new(rules).unwrap_or_else(|error| {
        report.problems.add(PolicyProblem::new(format!("the rules about files of all layers: {error}")));
        PathRules::default()
    })
}

/// Each was checked when its file was read.
fn command_rules(
    rules: Vec<CommandRule>,
    restrictions: Vec<Restriction>,
    manifests: Vec<Manifest>,
    report: &mut MergeReport,
) -> CommandRules {
    let mut all = CommandRules::default();
    let mut wrong: Vec<String> = Vec::new();
    wrong.extend(rules.into_iter().filter_map(|rule| all.add(rule).err()).map(|error| error.to_string()));
    wrong.extend(
        restrictions.into_iter().filter_map(|rule| all.restrict(rule).err()).map(|error| error.to_string()),
    );
    wrong.extend(
        manifests.into_iter().filter_map(|rule| all.manifest(rule).err()).map(|error| error.to_string()),
    );
    wrong.into_iter().for_each(|error| report.problems.add(PolicyProblem::new(error)));
    all
}

/// Rules whose order means nothing.
fn collected<R: MergeableRule>(
    stack: &[&LayerStep<'_>],
    of: fn(&RuleSet) -> &Vec<R>,
    report: &mut MergeReport,
) -> Vec<R> {
    let authority = stack.iter().filter(|step| step.standing == SectionAuthority::Authority);
    // What an operator approved is as good as theirs.
    let mut rules: Vec<R> = authority
        .flat_map(|step| of(&step.section.rules))
        .map(|rule| rule.at_layer(rule.source().layer.min(PolicyLayer::Operator)))
        .collect();
    let opened = rules.clone();
    for step in stack.iter().filter(|step| step.standing != SectionAuthority::Authority) {
        for rule in of(&step.section.rules) {
            if rule.opens(&opened) && step.standing != SectionAuthority::Around {
                ask_for(rule, report);
            }
            if rule.narrows() {
                rules.push(rule.clone());
            }
        }
    }
    rules
}

/// Rules about files: in one layer the first that speaks decides, so what is nearer comes first. What narrows cannot be
/// silenced by what was heard before it: an approved file speaks in its own layer, too, and parts that share a layer
/// are sorted.
fn ordered(stack: &[LayerStep<'_>], report: &mut MergeReport) -> Vec<PathRule> {
    let rules = |step: &LayerStep<'_>| step.section.rules.paths.rules().to_vec();
    let nearest =
        |of: fn(&LayerStep<'_>) -> bool| stack.iter().rev().filter(move |step| of(step)).flat_map(rules);
    let mut all: Vec<PathRule> = nearest(|step| step.is_operators()).collect();
    let approved: Vec<PathRule> = nearest(|step| step.is_approved()).collect();
    all.extend(approved.iter().map(|rule| rule.at_layer(PolicyLayer::Operator)));
    all.extend(approved);
    for rule in nearest(|step| step.is_unapproved()) {
        if rule.decision == Decision::Allow {
            ask_for(&rule, report);
        }
        // An `allow` still limits the rules of its own file.
        all.push(rule);
    }
    let mut narrowing: Vec<PathRule> = nearest(|step| step.is_of_session()).collect();
    narrowing.sort_by_key(|rule| Reverse(rule.decision));
    all.extend(narrowing);
    all
}

/// Rules about files of directories around the workspace, as they are read from it. Each part is heard by itself: a
/// file further down, which a command may have written, silences nothing.
fn around(stack: &[LayerStep<'_>], flags: &StartupFlags) -> Vec<PathRule> {
    let mut all = Vec::new();
    let parts = stack.iter().filter(|step| step.standing == SectionAuthority::Around);
    for (step, group) in parts.zip(1..) {
        let Ok(base) = flags.workspace.strip_prefix(flags.above(step.distance)) else { continue };
        let rules = step.section.rules.paths.rules().iter().filter_map(|rule| rule.below(base));
        all.extend(rules.map(|rule| PathRule { group, ..rule }));
    }
    all
}

impl LayerStep<'_> {
    fn is_operators(&self) -> bool {
        self.standing == SectionAuthority::Authority && self.layer == PolicyLayer::Operator
    }

    fn is_approved(&self) -> bool {
        self.standing == SectionAuthority::Authority && self.layer == PolicyLayer::Workspace
    }

    fn is_unapproved(&self) -> bool {
        self.standing == SectionAuthority::Asks && self.place == SectionScope::Whole
    }

    /// Of a session file or an agent's part of any file: they share a layer.
    fn is_of_session(&self) -> bool {
        matches!(self.standing, SectionAuthority::Asks | SectionAuthority::Narrows) && !self.is_unapproved()
    }
}

fn ask_for(rule: &impl MergeableRule, report: &mut MergeReport) {
    let Some(origin) = &rule.source().origin else { return };
    let what = format!("`{}` of `{}`", rule.key(), rule.value());
    report.request(&what, origin, "only an operator opens anything".to_owned());
}

/// Of every agent: who asks about one that this session is not for gets no more than there is.
fn tools_of_agents(files: &[PolicyFile]) -> impl Iterator<Item = ToolRule> {
    let agents = files.iter().flat_map(PolicyFile::documents).flat_map(|document| &document.agents);
    agents.flat_map(|(_, section)| section.rules.tools.clone())
}

fn allowed_by_flag(host: &HostPattern) -> HostRule {
    let source = RuleSource { layer: PolicyLayer::Flags, origin: None, reason: None };
    HostRule {
        decision: Decision::Allow,
        host: host.clone(),
        scheme: None,
        methods: None,
        path_prefix: None,
        inspect: false,
        upgrade: false,
        local: false,
        source,
    }
}

fn check_host_flags(flags: &StartupFlags, hosts: &[HostRule], report: &mut MergeReport) {
    for asked in &flags.hosts {
        let denied = hosts.iter().find(|entry| entry.decision == Decision::Deny && denies(entry, asked));
        if let Some(origin) = denied.and_then(|entry| entry.source.origin.as_ref()) {
            let problem = PolicyProblem::new(format!("`--allow-host {asked}` is denied at {origin}"));
            report.problems.add(problem.fix("leave the flag out, or change the file"));
        }
    }
}

/// Whether nothing of the host is left.
fn denies(entry: &HostRule, asked: &HostPattern) -> bool {
    !entry.is_partial() && covers(&entry.host, asked)
}

fn covers(rule: &HostPattern, asked: &HostPattern) -> bool {
    let port = rule.port().is_none() || rule.port() == asked.port();
    let below = |above: &str, name: &str| name.strip_suffix(above).is_some_and(|rest| rest.ends_with('.'));
    let host = match (rule.host(), asked.host()) {
        (Host::Below(above), Host::Name(name)) => below(above, name),
        (Host::Below(above), Host::Below(name)) => above == name || below(above, name),
        (rule, asked) => rule == asked,
    };
    port && host
}

/// The network of the host has no filter that could hold a rule.
fn check_held(net: NetMode, hosts: &[HostRule], report: &mut MergeReport) {
    if net != NetMode::Full {
        return;
    }
    for entry in hosts.iter().filter(|entry| entry.decision != Decision::Allow) {
        let problem = PolicyProblem::new("with network mode `full` nothing holds this rule about a host");
        let problem = match &entry.source.origin {
            Some(origin) => problem.at(origin.clone()),
            None => problem,
        };
        report.problems.add(problem.fix("use `--net filtered` or `--net none`, or leave the rule out"));
    }
}

impl MergeableRule for CommandRule {
    fn decision(&self) -> Decision {
        self.decision
    }

    fn source(&self) -> &RuleSource {
        &self.source
    }

    fn source_mut(&mut self) -> &mut RuleSource {
        &mut self.source
    }

    fn key(&self) -> String {
        format!("command.{}", word(self.decision))
    }

    fn value(&self) -> String {
        let here = self.here.as_ref().map(|here| format!(" in {}", here.display())).unwrap_or_default();
        match &self.pattern {
            CommandPattern::Words(words) => format!("{}{here}", words.join(" ")),
            CommandPattern::Exact(words) => format!("{} and nothing more{here}", words.join(" ")),
        }
    }
}

/// What it lists is opened, and the rest of the program closed.
impl MergeableRule for Restriction {
    fn decision(&self) -> Decision {
        Decision::Allow
    }

    fn source(&self) -> &RuleSource {
        &self.source
    }

    fn source_mut(&mut self) -> &mut RuleSource {
        &mut self.source
    }

    fn key(&self) -> String {
        "command.program".to_owned()
    }

    fn value(&self) -> String {
        let allowed = self.allowed.as_ref().map(|list| format!(": {}", list.join(", "))).unwrap_or_default();
        let blocked = if self.blocked.is_empty() {
            String::new()
        } else {
            format!("; never {}", self.blocked.join(", "))
        };
        format!("{}{allowed}{blocked}", self.program)
    }

    fn narrows(&self) -> bool {
        self.allowed.is_some() || !self.blocked.is_empty()
    }
}

impl MergeableRule for Manifest {
    fn decision(&self) -> Decision {
        Decision::Allow
    }

    fn source(&self) -> &RuleSource {
        &self.source
    }

    fn source_mut(&mut self) -> &mut RuleSource {
        &mut self.source
    }

    fn key(&self) -> String {
        "command.manifest".to_owned()
    }

    fn value(&self) -> String {
        self.cli.clone()
    }

    fn narrows(&self) -> bool {
        true
    }
}

impl MergeableRule for PathRule {
    fn decision(&self) -> Decision {
        self.decision
    }

    fn source(&self) -> &RuleSource {
        &self.source
    }

    fn source_mut(&mut self) -> &mut RuleSource {
        &mut self.source
    }

    fn key(&self) -> String {
        format!("path.{}", word(self.decision))
    }

    fn value(&self) -> String {
        let but = if self.except.is_empty() {
            String::new()
        } else {
            format!(" except {}", self.except.join(", "))
        };
        let writing = if self.operation == PathOperation::Write { " (writing)" } else { "" };
        format!("{}{but}{writing}", self.patterns.join(", "))
    }
}

impl MergeableRule for EnvRule {
    fn decision(&self) -> Decision {
        if self.effect == EnvEffect::Deny { Decision::Deny } else { Decision::Allow }
    }

    fn source(&self) -> &RuleSource {
        &self.source
    }

    fn source_mut(&mut self) -> &mut RuleSource {
        &mut self.source
    }

    fn key(&self) -> String {
        let effect = match self.effect {
            EnvEffect::Deny => "deny",
            EnvEffect::Allow => "allow",
            EnvEffect::Inherit => "inherit",
        };
        format!("env.{effect}")
    }

    fn value(&self) -> String {
        self.pattern.to_string()
    }
}

impl MergeableRule for HostRule {
    fn decision(&self) -> Decision {
        self.decision
    }

    fn source(&self) -> &RuleSource {
        &self.source
    }

    fn source_mut(&mut self) -> &mut RuleSource {
        &mut self.source
    }

    fn key(&self) -> String {
        format!("host.{}", word(self.decision))
    }

    fn value(&self) -> String {
        let scheme = self.scheme.map(|scheme| format!("{scheme}://")).unwrap_or_default();
        let path = self.path_prefix.as_ref().map(ToString::to_string).unwrap_or_default();
        let methods = self.methods.as_ref().map(|methods| format!(" ({methods})")).unwrap_or_default();
        let inspect = if self.inspect { ", inspected" } else { "" };
        let upgrade = if self.upgrade { ", may upgrade" } else { "" };
        let local = if self.local { ", may be local" } else { "" };
        format!("{scheme}{}{path}{methods}{inspect}{upgrade}{local}", self.host)
    }

    /// A host without a rule is denied, so that a question opens it.
    fn opens(&self, authority: &[Self]) -> bool {
        let known = |rule: &Self| rule.decision != Decision::Deny && covers(&rule.host, &self.host);
        self.decision == Decision::Allow || self.decision == Decision::Ask && !authority.iter().any(known)
    }
}

impl MergeableRule for ToolRule {
    fn decision(&self) -> Decision {
        self.decision
    }

    fn source(&self) -> &RuleSource {
        &self.source
    }

    fn source_mut(&mut self) -> &mut RuleSource {
        &mut self.source
    }

    fn key(&self) -> String {
        let agent = self.agent.as_ref().map(|agent| format!("agents.{agent}.")).unwrap_or_default();
        format!("{agent}tool.{}", word(self.decision))
    }

    fn value(&self) -> String {
        self.pattern.to_string()
    }
}

fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "allow",
        Decision::Ask => "ask",
        Decision::Deny => "deny",
    }
}
