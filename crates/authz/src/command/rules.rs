//! Rules about commands: patterns that do not depend on the order or the spelling of options.
//!
//! Rules have no order: deny beats ask beats allow. A rule that narrows matches generously (an abbreviation, a cluster, a
//! refspec with `+`), one that allows matches strictly, and only what the built-in lists would have asked about.

mod conditions;
mod examples;
mod index;
mod manifest;
mod matcher;
mod pattern;
mod restriction;
mod session_terms;

use std::path::{Path, PathBuf};

use ringfence_types::{ByteString, Decision, ExecCall, Risk, RuleFamily, RuleId, RuleName};

use super::arg::Arg;
use super::program_origin::ProgramOrigin;
use super::working_dirs::WorkingDirs;
use crate::eval_context::EvalContext;
use crate::judgement::{JudgementPart, PartKind, RuleSource};
use index::CommandRuleIndex;
use manifest::ManifestMatch;

pub use conditions::RuleConditions;
pub use manifest::{Manifest, ManifestCommand, ManifestError};
pub use pattern::{CommandPattern, CommandPatternError};
pub use restriction::Restriction;
pub use session_terms::{SessionTermError, SessionTerms};

pub(super) use matcher::{has_option, has_plus_refspec, takes_value};

/// One rule of a policy file about commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRule {
    pub pattern: CommandPattern,
    pub decision: Decision,
    /// Only where the working directory is this one or below it; relative to the workspace.
    pub here: Option<PathBuf>,
    pub given: RuleConditions,
    pub source: RuleSource,
}

impl CommandRule {
    /// Whether this rule alone speaks about a command line: what `match` and `not_match` examples are about. Nothing is
    /// unwrapped, and where it would have to run is not asked.
    pub fn matches(&self, argv: &[ByteString]) -> bool {
        examples::matches(self, argv)
    }
}

/// All rules about commands, indexed by program: what a command costs does not depend on how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandRules {
    entries: Vec<NamedRule>,
    index: CommandRuleIndex,
    /// Programs of which only what is allowed may run.
    closed: Vec<ClosedProgram>,
    manifests: Vec<Manifest>,
}

/// A rule with the name that it goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedRule {
    rule: CommandRule,
    name: RuleName,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ClosedProgram {
    program: String,
    /// Whatever layer it is of: what a lower one lists opens nothing, but is not closed by its own list either.
    listed: Vec<CommandRule>,
    source: RuleSource,
}

/// A command line whose program is known.
pub(super) struct CommandLine<'a> {
    pub(super) identity: ProgramOrigin<'a>,
    /// As it was called.
    pub(super) called: &'a [u8],
    /// Without the program.
    pub(super) args: &'a [Arg<'a>],
}

/// Where a command line would run, and as a part of which call.
pub(super) struct Standpoint<'a> {
    pub(super) place: &'a WorkingDirs,
    pub(super) workspace: &'a Path,
    pub(super) exec: Option<&'a ExecCall>,
    /// `None`: it would run in no session.
    pub(super) scene: Option<&'a EvalContext<'a>>,
}

impl CommandRules {
    pub fn new(rules: Vec<CommandRule>) -> Result<Self, CommandPatternError> {
        let mut all = Self::default();
        for rule in rules {
            all.add(rule)?;
        }
        Ok(all)
    }

    pub fn add(&mut self, rule: CommandRule) -> Result<(), CommandPatternError> {
        let name = match rule.decision {
            Decision::Allow => RuleId::CommandsAllow,
            Decision::Ask => RuleId::CommandsAsk,
            Decision::Deny => RuleId::CommandsDeny,
        };
        self.insert(rule, name.into())
    }

    /// Document 000's form: a program with the subcommands that are allowed and those that are blocked (S000-23).
    pub fn restrict(&mut self, restriction: Restriction) -> Result<(), CommandPatternError> {
        let name = RuleFamily::Restriction.member(&restriction.program);
        let rules = restriction.rules()?;
        if restriction.allowed.is_some() {
            let listed = rules.iter().filter(|rule| rule.decision == Decision::Allow).cloned().collect();
            self.closed.push(ClosedProgram {
                program: restriction.program,
                listed,
                source: restriction.source,
            });
        }
        rules.into_iter().try_for_each(|rule| self.insert(rule, name.clone()))
    }

    /// What a tool says of itself: a command that its manifest does not name is denied (S000-22).
    pub fn manifest(&mut self, manifest: Manifest) -> Result<(), ManifestError> {
        manifest.check()?;
        self.manifests.push(manifest);
        Ok(())
    }

    /// What these rules alone say about a command line; `None`: nothing. For the examples that an entry carries.
    pub fn decision_alone(&self, argv: &[ByteString]) -> Option<Decision> {
        examples::decision(self, argv)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.closed.is_empty() && self.manifests.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &CommandRule> {
        self.entries.iter().map(|entry| &entry.rule)
    }

    fn insert(&mut self, rule: CommandRule, name: RuleName) -> Result<(), CommandPatternError> {
        rule.pattern.check()?;
        self.index.add(&rule.pattern, self.entries.len());
        self.entries.push(NamedRule { rule, name });
        Ok(())
    }

    /// Every rule that speaks about a command line.
    pub(super) fn find(&self, line: &CommandLine<'_>, at: &Standpoint<'_>) -> RuleMatches<'_> {
        let Standpoint { place, workspace, .. } = *at;
        let mut found = RuleMatches::default();
        if self.is_empty() {
            return found;
        }
        for entry in self.index.candidates(line).into_iter().filter_map(|at| self.entries.get(at)) {
            let rule = &entry.rule;
            if matcher::speaks(rule, line, workspace)
                && is_here(rule, place, workspace)
                && rule.given.holds(at)
            {
                found.add(CommandRuling::rule(entry));
            }
        }
        let names = line.names();
        let closed = self.closed.iter().filter(|closed| names.contains(&closed.program.as_bytes()));
        for closed in closed {
            if !closed.listed.iter().any(|rule| matcher::speaks(rule, line, workspace)) {
                found.add(CommandRuling::closed(
                    RuleFamily::Restriction.member(&closed.program),
                    &closed.source,
                ));
            }
        }
        for manifest in self.manifests.iter().filter(|manifest| manifest.is_about(&names)) {
            found.add(CommandRuling::manifest(manifest, line));
        }
        found
    }
}

impl CommandLine<'_> {
    /// Every name that a rule about it may use.
    fn names(&self) -> Vec<&[u8]> {
        let mut names = vec![self.identity.name];
        let name = self.identity.name;
        let others =
            [self.identity.other_name(), Some(super::program_origin::family(name)), Some(major(name))];
        for name in others.into_iter().flatten() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// `python3.11` without what is behind the last dot: `python3`.
fn major(name: &[u8]) -> &[u8] {
    let dot = name.iter().rposition(|byte| *byte == b'.');
    let minor = dot.and_then(|at| name.get(at + 1..)).is_some_and(|rest| rest.iter().all(u8::is_ascii_digit));
    dot.filter(|_| minor).and_then(|at| name.get(..at)).unwrap_or(name)
}

/// Where a rule is limited to a directory: one that narrows holds wherever the command could be there.
fn is_here(rule: &CommandRule, place: &WorkingDirs, workspace: &Path) -> bool {
    let Some(here) = &rule.here else { return true };
    let dir = workspace.join(here);
    let inside = |candidate: &PathBuf| candidate.starts_with(&dir);
    let candidates = place.candidates();
    match rule.decision {
        Decision::Allow => !candidates.is_empty() && candidates.iter().all(inside),
        Decision::Ask | Decision::Deny => candidates.is_empty() || candidates.iter().any(inside),
    }
}

/// What the rules say about one command.
#[derive(Default)]
pub(super) struct RuleMatches<'r> {
    deny: Option<CommandRuling<'r>>,
    ask: Option<CommandRuling<'r>>,
    allow: Vec<CommandRuling<'r>>,
}

impl<'r> RuleMatches<'r> {
    fn add(&mut self, ruling: CommandRuling<'r>) {
        match ruling.decision {
            Decision::Deny => self.deny = self.deny.take().or(Some(ruling)),
            Decision::Ask => self.ask = self.ask.take().or(Some(ruling)),
            // Below the operator a rule can only narrow (C-10).
            Decision::Allow if !ruling.source.has_authority() => {}
            Decision::Allow => self.allow.push(ruling),
        }
    }

    pub(super) fn denied(&mut self) -> Option<CommandRuling<'r>> {
        self.deny.take()
    }

    pub(super) fn asked(&mut self) -> Option<CommandRuling<'r>> {
        self.ask.take()
    }

    /// The first rule that allows it and covers everything unusual in it.
    pub(super) fn allowed(self, covers: impl Fn(&CommandPattern) -> bool) -> Option<CommandRuling<'r>> {
        self.allow.into_iter().find(|ruling| ruling.pattern.as_deref().is_none_or(&covers))
    }
}

/// A rule that speaks about a command, as it is shown.
pub(super) struct CommandRuling<'r> {
    decision: Decision,
    name: RuleName,
    reason: String,
    source: &'r RuleSource,
    pattern: Option<std::borrow::Cow<'r, CommandPattern>>,
}

impl<'r> CommandRuling<'r> {
    fn rule(entry: &'r NamedRule) -> Self {
        let verb = match entry.rule.decision {
            Decision::Allow => "allows",
            Decision::Ask => "asks about",
            Decision::Deny => "denies",
        };
        Self {
            decision: entry.rule.decision,
            name: entry.name.clone(),
            reason: format!("a rule {verb} `{}`", entry.rule.pattern),
            source: &entry.rule.source,
            pattern: Some(std::borrow::Cow::Borrowed(&entry.rule.pattern)),
        }
    }

    fn closed(name: RuleName, source: &'r RuleSource) -> Self {
        let reason = "it is not among the subcommands that are allowed".to_owned();
        Self { decision: Decision::Deny, name, reason, source, pattern: None }
    }

    fn manifest(manifest: &'r Manifest, line: &CommandLine<'_>) -> Self {
        let ManifestMatch { decision, reason, pattern } = manifest.judge(line.args);
        let name = RuleFamily::Manifest.member(&manifest.cli);
        Self {
            decision,
            name,
            reason,
            source: &manifest.source,
            pattern: pattern.map(std::borrow::Cow::Owned),
        }
    }

    pub(super) fn part(self, subject: String) -> JudgementPart {
        let part =
            JudgementPart::new(PartKind::Command, subject, self.name).because(self.reason).by(self.source);
        match self.decision {
            Decision::Allow => part,
            Decision::Ask => part.ask(Risk::Medium, format!("say yes to this one, or {}", self.source.fix())),
            Decision::Deny => part.deny(Risk::High, self.source.fix()),
        }
    }
}
