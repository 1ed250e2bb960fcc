//! Rules about tools: which of an agent's tools exist at all (S003-14).
//!
//! A tool that exists is not thereby free: what one call of it does is judged as every other call. Names are compared byte
//! by byte; one that differs in case, in a space or in a letter that looks alike is another tool, and an unknown one.
//!
//! Levels only narrow (C-40): what is denied for everybody is denied for every agent, and an `allow` for one agent gives it
//! nothing that everybody does not have. It says instead that the agent has only what is named.

use std::collections::HashMap;

use ringfence_types::{
    Access, ApprovalMode, ByteString, Call, Decision, FileCall, NetMode, Profile, Risk, RuleFamily, RuleId,
    UnknownKeyword,
};

use crate::judgement::{JudgementPart, PartKind, RuleSource};
use crate::policy::{Policy, net_ceiling};

/// The tools of Ringfence itself.
pub const BUILT_IN: &[&str] =
    &["exec", "read_file", "write_file", "edit_file", "list_dir", "search", "fetch", "jobs", "explain"];

/// The rule about what no rule speaks of.
pub const UNKNOWN: RuleId = RuleId::ToolsUnknown;

/// Names that are longer belong to no tool.
const MAX_NAME: usize = 256;

/// One rule of a policy file about tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRule {
    /// For one agent only; `None` is everybody.
    pub agent: Option<String>,
    pub pattern: ToolPattern,
    pub decision: Decision,
    pub source: RuleSource,
}

/// One tool, or all whose names begin alike: `mcp__github__*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ToolPattern {
    Exact(String),
    Prefix(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolPatternError {
    #[error("the name of a tool is empty")]
    Empty,
    #[error("tool `{0}` has a character that is not a printable ASCII character")]
    Character(String),
    #[error("tool `{0}` has a `*` that is not at its end")]
    Star(String),
    #[error("tool `*` means every tool; name them, or the beginning of their names")]
    Everything,
    #[error("tool `{0}` is longer than {MAX_NAME} bytes")]
    TooLong(String),
}

impl ToolPattern {
    pub fn parse(text: &str) -> Result<Self, ToolPatternError> {
        let shown = || ByteString::from(text).display();
        if text.is_empty() {
            return Err(ToolPatternError::Empty);
        }
        if text.len() > MAX_NAME {
            return Err(ToolPatternError::TooLong(shown().chars().take(32).collect()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ToolPatternError::Character(shown()));
        }
        match text.split_once('*') {
            None => Ok(Self::Exact(text.to_owned())),
            Some(("", "")) => Err(ToolPatternError::Everything),
            Some((prefix, "")) => Ok(Self::Prefix(prefix.to_owned())),
            Some(_) => Err(ToolPatternError::Star(shown())),
        }
    }
}

impl std::fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

/// The tool rules of all policy files. Rules are never ordered: deny before ask before allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRules {
    everybody: ToolRuleLevel,
    agents: HashMap<String, ToolRuleLevel>,
}

/// The rules for everybody, or for one agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ToolRuleLevel {
    exact: HashMap<String, Vec<ToolRule>>,
    prefixes: HashMap<String, Vec<ToolRule>>,
}

impl ToolRules {
    pub fn new(rules: Vec<ToolRule>) -> Self {
        let mut all = Self::default();
        for rule in rules {
            let level = match &rule.agent {
                None => &mut all.everybody,
                Some(agent) => all.agents.entry(agent.clone()).or_default(),
            };
            level.add(rule);
        }
        all
    }

    pub fn is_empty(&self) -> bool {
        self.everybody.is_empty() && self.agents.is_empty()
    }

    fn of(&self, agent: Option<&str>) -> Option<&ToolRuleLevel> {
        self.agents.get(agent?)
    }
}

impl ToolRuleLevel {
    fn add(&mut self, rule: ToolRule) {
        let (rules, text) = match &rule.pattern {
            ToolPattern::Exact(name) => (&mut self.exact, name),
            ToolPattern::Prefix(prefix) => (&mut self.prefixes, prefix),
        };
        rules.entry(text.clone()).or_default().push(rule);
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefixes.is_empty()
    }

    fn rules(&self) -> impl Iterator<Item = &ToolRule> {
        self.exact.values().chain(self.prefixes.values()).flatten()
    }

    /// The rules whose pattern covers the tool: a look-up per byte of its name, however many rules there are.
    fn about<'a>(&'a self, tool: &ToolPattern) -> impl Iterator<Item = &'a ToolRule> {
        let (text, exact) = match tool {
            ToolPattern::Exact(name) => (name, self.exact.get(name)),
            ToolPattern::Prefix(prefix) => (prefix, None),
        };
        let beginnings = (1..=text.len().min(MAX_NAME)).filter_map(|end| text.get(..end));
        exact.into_iter().chain(beginnings.filter_map(|start| self.prefixes.get(start))).flatten()
    }

    /// The strictest rule of any layer that closes.
    fn restricting(&self, tool: &ToolPattern) -> Option<&ToolRule> {
        let closing = self.about(tool).filter(|rule| rule.decision != Decision::Allow);
        closing.reduce(|found, rule| if rule.decision > found.decision { rule } else { found })
    }

    /// A rule of the operator that opens the tool, at least to a question.
    fn opening(&self, tool: &ToolPattern) -> Option<&ToolRule> {
        self.about(tool).find(|rule| rule.decision != Decision::Deny && rule.source.has_authority())
    }

    /// A rule by which the level says "only these".
    fn choice(&self) -> Option<&ToolRule> {
        let choosing =
            self.rules().filter(|rule| rule.decision == Decision::Allow && rule.source.has_authority());
        choosing.min_by_key(|rule| rule.pattern.to_string())
    }
}

/// Judges a tool by its name, for the agent that the policy is for.
pub fn judge_tool(policy: &Policy, name: &str) -> JudgementPart {
    judge_tool_of(policy, policy.agent.as_deref(), name)
}

/// What a rule says about the tool that a call is made with; `None`: nothing that would stop it. What the profile says is
/// judged with the call itself.
pub(crate) fn judge_tool_of_call(policy: &Policy, call: &Call) -> Option<JudgementPart> {
    if policy.rules.tools.is_empty() {
        return None;
    }
    let name = match call {
        Call::Exec(_) => "exec",
        Call::File(FileCall::Read { .. } | FileCall::Stat { .. } | FileCall::Send { .. }) => "read_file",
        Call::File(FileCall::List { .. }) => "list_dir",
        Call::File(
            FileCall::Write { .. }
            | FileCall::Symlink { .. }
            | FileCall::Move { .. }
            | FileCall::Remove { .. },
        )
        | Call::Apply(_)
        | Call::Land(_) => "write_file",
        // What runs inside is no tool of its own, and the others are judged as one anyway.
        Call::Flow(_) | Call::Fetch(_) | Call::Tool(_) => return None,
    };
    let part = judge_tool(policy, name);
    (part.decision > Decision::Allow && RuleFamily::Tools.contains(&part.rule)).then_some(part)
}

/// Judges a tool that is none of ours. What has a name of ours is not thereby ours.
pub fn judge_foreign_tool(policy: &Policy, name: &str) -> JudgementPart {
    if !BUILT_IN.contains(&name) {
        return judge_tool(policy, name);
    }
    JudgementPart::new(PartKind::Tool, name, UNKNOWN)
        .because("it has the name of a built-in tool, and is another program's")
        .deny(Risk::Medium, "give the tool another name")
}

/// Judges a tool by its name for one agent.
pub fn judge_tool_of(policy: &Policy, agent: Option<&str>, name: &str) -> JudgementPart {
    judge_pattern(policy, agent, &ToolPattern::Exact(name.to_owned()))
}

/// What holds for an agent (S003-14): every built-in tool, and every tool or beginning of names that a rule speaks about.
pub fn effective(policy: &Policy, agent: Option<&str>) -> Vec<JudgementPart> {
    let rules = &policy.rules.tools;
    let mut patterns: Vec<ToolPattern> =
        BUILT_IN.iter().map(|name| ToolPattern::Exact((*name).to_owned())).collect();
    let named = rules.everybody.rules().chain(rules.of(agent).into_iter().flat_map(ToolRuleLevel::rules));
    let mut named: Vec<&ToolPattern> = named.map(|rule| &rule.pattern).collect();
    named.sort_by_key(|pattern| pattern.to_string());
    for pattern in named {
        if !patterns.contains(pattern) {
            patterns.push(pattern.clone());
        }
    }
    patterns.iter().map(|pattern| judge_pattern(policy, agent, pattern)).collect()
}

fn judge_pattern(policy: &Policy, agent: Option<&str>, tool: &ToolPattern) -> JudgementPart {
    let rules = &policy.rules.tools;
    let everybody = for_everybody(policy, tool);
    let own = rules.of(agent).and_then(|level| for_agent(level, agent.unwrap_or_default(), tool));
    let part = match own {
        Some(own) if own.decision > everybody.decision => own,
        _ => everybody,
    };
    if policy.approval == ApprovalMode::Never { part.without_question() } else { part }
}

fn for_everybody(policy: &Policy, tool: &ToolPattern) -> JudgementPart {
    let level = &policy.rules.tools.everybody;
    let given = match by_profile(policy, tool) {
        Some(part) if part.decision == Decision::Deny => return part,
        given => given,
    };
    let opening = level.opening(tool);
    match (level.restricting(tool), opening, given) {
        (Some(rule), ..) if rule.decision == Decision::Deny => by_rule(rule, tool),
        // Below the operator a question may stand in for a yes, never for a no.
        (Some(rule), Some(_), _) | (Some(rule), _, Some(_)) | (None, Some(rule), _) => by_rule(rule, tool),
        (None, None, Some(part)) => part,
        (_, None, None) => unknown(tool),
    }
}

/// What the rules for one agent take away; `None`: nothing.
fn for_agent(level: &ToolRuleLevel, agent: &str, tool: &ToolPattern) -> Option<JudgementPart> {
    let restricting = level.restricting(tool);
    let denied = restricting.is_some_and(|rule| rule.decision == Decision::Deny);
    let choice = level.choice().filter(|_| !denied && level.opening(tool).is_none());
    let Some(choice) = choice else { return restricting.map(|rule| by_rule(rule, tool)) };
    let agent = ByteString::from(agent).display();
    let part = JudgementPart::new(PartKind::Tool, shown(tool), RuleId::ToolsNotChosen)
        .because(format!("agent `{agent}` has only the tools that its rules name"))
        .deny(Risk::Medium, format!("name the tool in the rules for agent `{agent}`"));
    Some(JudgementPart { layer: choice.source.layer, origin: choice.source.origin.clone(), ..part })
}

fn by_rule(rule: &ToolRule, tool: &ToolPattern) -> JudgementPart {
    let part = JudgementPart::new(PartKind::Tool, shown(tool), RuleFamily::Tools.member(&rule.pattern));
    match rule.decision {
        Decision::Allow => part.because("a rule allows this tool"),
        Decision::Ask => part.because("a rule asks about this tool").ask(Risk::Medium, rule.source.fix()),
        Decision::Deny => part.because("a rule denies this tool").deny(Risk::Medium, rule.source.fix()),
    }
    .by(&rule.source)
}

/// A built-in tool under the profile; `None` for a tool that is not ours.
fn by_profile(policy: &Policy, tool: &ToolPattern) -> Option<JudgementPart> {
    let ToolPattern::Exact(name) = tool else { return None };
    let name = BUILT_IN.iter().find(|known| *known == name)?;
    let profile = policy.profile;
    let because = match *name {
        "exec" | "jobs" if profile == Profile::Review => Some("runs no commands"),
        "write_file" | "edit_file" if policy.access < Access::Write => Some("writes nothing"),
        "fetch" if profile == Profile::Review || net_ceiling(profile) == NetMode::None => {
            Some("has no network")
        }
        _ => None,
    };
    let part = JudgementPart::new(PartKind::Tool, *name, RuleId::of_profile(profile));
    Some(match because {
        Some(because) => part
            .because(format!("profile `{profile}` {because}"))
            .deny(Risk::Medium, "use another profile, such as `--profile workspace`"),
        None => part.because("a built-in tool; each call of it is judged on its own"),
    })
}

fn unknown(tool: &ToolPattern) -> JudgementPart {
    let part = JudgementPart::new(PartKind::Tool, shown(tool), UNKNOWN).because("no rule knows this tool");
    let ToolPattern::Exact(name) = tool else { return part.deny(Risk::Medium, OPERATOR) };
    match UnknownKeyword::new("tool", &name.chars().take(MAX_NAME).collect::<String>(), BUILT_IN).nearest {
        Some(nearest) => part.deny(Risk::Medium, format!("use the built-in tool `{nearest}`")),
        None => part.deny(Risk::Medium, OPERATOR),
    }
}

const OPERATOR: &str = "allow it by name in the operator's policy";

fn shown(tool: &ToolPattern) -> String {
    let text = ByteString::from(tool.to_string().as_str()).display();
    if text.len() <= MAX_NAME {
        text
    } else {
        format!("{}…", text.chars().take(MAX_NAME).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ringfence_types::PolicyLayer;

    use super::*;

    fn rule(agent: Option<&str>, decision: Decision, pattern: &str, layer: PolicyLayer) -> ToolRule {
        ToolRule {
            agent: agent.map(str::to_owned),
            pattern: ToolPattern::parse(pattern).unwrap(),
            decision,
            source: RuleSource { layer, origin: None, reason: None },
        }
    }

    fn operator(agent: Option<&str>, decision: Decision, pattern: &str) -> ToolRule {
        rule(agent, decision, pattern, PolicyLayer::Operator)
    }

    fn policy(profile: Profile, rules: Vec<ToolRule>) -> Policy {
        let mut policy = Policy::new(profile);
        policy.rules.tools = ToolRules::new(rules);
        policy
    }

    fn workspace(rules: Vec<ToolRule>) -> Policy {
        policy(Profile::Workspace, rules)
    }

    fn decided(policy: &Policy, agent: Option<&str>, tool: &str) -> Decision {
        let part = judge_tool_of(policy, agent, tool);
        assert!(!part.rule.is_empty() && !part.reason.is_empty(), "{part:?}");
        assert_eq!(part.fix.is_some(), part.decision != Decision::Allow, "{part:?}");
        part.decision
    }

    #[test]
    fn s003_38_profiles_say_which_built_in_tools_exist() {
        let denied = |profile| {
            let policy = policy(profile, Vec::new());
            BUILT_IN
                .iter()
                .copied()
                .filter(|tool| decided(&policy, None, tool) != Decision::Allow)
                .collect::<Vec<_>>()
        };
        assert_eq!(denied(Profile::Workspace), Vec::<&str>::new());
        assert_eq!(denied(Profile::Guarded), Vec::<&str>::new());
        assert_eq!(denied(Profile::Review), ["exec", "write_file", "edit_file", "fetch", "jobs"]);
        assert_eq!(denied(Profile::Strict), ["write_file", "edit_file"]);
        assert_eq!(denied(Profile::AirGapped), ["write_file", "edit_file", "fetch"]);
    }

    #[test]
    fn what_a_profile_denies_no_rule_allows() {
        let policy = policy(
            Profile::Review,
            vec![operator(None, Decision::Allow, "exec"), operator(None, Decision::Ask, "write_*")],
        );
        assert_eq!(decided(&policy, None, "exec"), Decision::Deny);
        assert_eq!(decided(&policy, None, "write_file"), Decision::Deny);
    }

    #[test]
    fn unknown_tools_are_denied_however_they_look() {
        let policy = workspace(Vec::new());
        let long = "x".repeat(100_000);
        for tool in [
            "",
            " ",
            "exec ",
            " exec",
            "Exec",
            "EXEC",
            "ехес",
            "exec\0",
            "exec\n",
            "read_file\u{200b}",
            "*",
            "mcp__github__list",
            &long,
        ] {
            assert_eq!(decided(&policy, None, tool), Decision::Deny, "{tool:?}");
        }
        let part = judge_tool(&policy, "readfile");
        assert_eq!(part.fix.as_deref(), Some("use the built-in tool `read_file`"));
        assert!(judge_tool(&policy, &long).subject.len() < 1000);
        assert_eq!(judge_tool(&policy, "a\u{1b}[2J").subject, "a\\u{1b}[2J");
    }

    #[test]
    fn s003_14_rules_name_tools_or_how_they_begin() {
        let policy = workspace(vec![
            operator(None, Decision::Allow, "mcp__github__*"),
            operator(None, Decision::Ask, "mcp__github__create_*"),
            operator(None, Decision::Deny, "mcp__github__delete_repo"),
            operator(None, Decision::Deny, "fetch"),
        ]);
        for (tool, expected) in [
            ("mcp__github__list", Decision::Allow),
            ("mcp__github__", Decision::Allow),
            ("mcp__github__create_issue", Decision::Ask),
            ("mcp__github__delete_repo", Decision::Deny),
            ("mcp__github_evil__list", Decision::Deny),
            ("MCP__github__list", Decision::Deny),
            ("fetch", Decision::Deny),
            ("exec", Decision::Allow),
        ] {
            assert_eq!(decided(&policy, None, tool), expected, "{tool}");
        }
        assert_eq!(judge_tool(&policy, "mcp__github__create_issue").rule, "tools.mcp__github__create_*");
    }

    #[test]
    fn c40_an_agent_has_at_most_what_everybody_has() {
        let policy = workspace(vec![
            operator(None, Decision::Deny, "exec"),
            operator(None, Decision::Allow, "mcp__a__*"),
            operator(Some("codex"), Decision::Allow, "exec"),
            operator(Some("codex"), Decision::Allow, "mcp__b__*"),
            operator(Some("codex"), Decision::Allow, "read_file"),
            operator(Some("claude"), Decision::Deny, "read_file"),
            operator(Some("claude"), Decision::Ask, "mcp__a__x"),
        ]);
        for (agent, tool, expected) in [
            (Some("codex"), "exec", Decision::Deny),
            (Some("codex"), "mcp__b__x", Decision::Deny),
            (Some("codex"), "read_file", Decision::Allow),
            (Some("codex"), "search", Decision::Deny),
            (Some("claude"), "read_file", Decision::Deny),
            (Some("claude"), "search", Decision::Allow),
            (Some("claude"), "mcp__a__x", Decision::Ask),
            (Some("other"), "search", Decision::Allow),
            (None, "read_file", Decision::Allow),
        ] {
            assert_eq!(decided(&policy, agent, tool), expected, "{agent:?} {tool}");
        }
        assert_eq!(judge_tool_of(&policy, Some("codex"), "search").rule, "tools.not-chosen");
    }

    #[test]
    fn s003_14_the_effective_policy_lists_all_that_is_known() {
        let policy = workspace(vec![
            operator(None, Decision::Allow, "mcp__a__*"),
            operator(None, Decision::Deny, "mcp__a__x"),
            operator(Some("claude"), Decision::Deny, "exec"),
        ]);
        let listed: Vec<(String, Decision)> = effective(&policy, Some("claude"))
            .into_iter()
            .map(|part| (part.subject, part.decision))
            .collect();
        assert_eq!(listed.len(), BUILT_IN.len() + 2);
        for (name, decision) in [
            ("exec", Decision::Deny),
            ("search", Decision::Allow),
            ("mcp__a__*", Decision::Allow),
            ("mcp__a__x", Decision::Deny),
        ] {
            assert!(listed.contains(&(name.to_owned(), decision)), "{name}: {listed:?}");
        }
    }

    #[test]
    fn a_question_is_a_no_where_questions_are_off() {
        let mut policy = workspace(vec![operator(None, Decision::Ask, "exec")]);
        policy.approval = ApprovalMode::Never;
        assert_eq!(decided(&policy, None, "exec"), Decision::Deny);
    }

    #[test]
    fn patterns_that_mean_something_else_are_refused() {
        for (text, error) in [
            ("", ToolPatternError::Empty),
            ("*", ToolPatternError::Everything),
            ("a*b", ToolPatternError::Star("a*b".to_owned())),
            ("*a", ToolPatternError::Star("*a".to_owned())),
            ("a**", ToolPatternError::Star("a**".to_owned())),
            ("a b", ToolPatternError::Character("a b".to_owned())),
            ("ехес", ToolPatternError::Character("ехес".to_owned())),
        ] {
            assert_eq!(ToolPattern::parse(text), Err(error));
        }
        assert!(ToolPattern::parse(&"x".repeat(300)).is_err());
    }

    proptest! {
        /// Whatever a lower layer adds, for everybody or for an agent, nothing more is allowed.
        #[test]
        fn c40_a_lower_layer_never_opens(
            high in proptest::collection::vec((0..3_usize, 0..3_usize, 0..5_usize), 0..6),
            low in proptest::collection::vec((0..3_usize, 0..3_usize, 0..5_usize), 0..6),
            agent in 0..3_usize,
            tool in 0..4_usize,
        ) {
            const AGENTS: [Option<&str>; 3] = [None, Some("a"), Some("b")];
            const PATTERNS: [&str; 5] = ["exec", "mcp__*", "mcp__x__*", "mcp__x__y", "fetch"];
            const TOOLS: [&str; 4] = ["exec", "mcp__x__y", "mcp__z", "fetch"];
            const DECISIONS: [Decision; 3] = [Decision::Allow, Decision::Ask, Decision::Deny];
            let made = |list: &[(usize, usize, usize)], layer| -> Vec<ToolRule> {
                list.iter().map(|(a, d, p)| rule(AGENTS[*a], DECISIONS[*d], PATTERNS[*p], layer)).collect()
            };
            let mut rules = made(&high, PolicyLayer::Operator);
            let before = decided(&workspace(rules.clone()), AGENTS[agent], TOOLS[tool]);
            prop_assert!(before >= decided(&workspace(rules.clone()), None, TOOLS[tool]), "an agent has no more");
            rules.extend(made(&low, PolicyLayer::Workspace));
            prop_assert!(decided(&workspace(rules), AGENTS[agent], TOOLS[tool]) >= before);
        }
    }
}
