//! From the entries of a file to the rules that the engines know. The only place that knows both.

mod commands;
mod duplicates;
mod network;
mod paths;
mod tools;
mod variables;

use ringfence_authz::env::EnvRule;
use ringfence_authz::hosts::HostRule;
use ringfence_authz::tools::ToolRule;
use ringfence_authz::{PathRules, RuleSource};
use ringfence_types::Decision;

use super::file::{PolicyFileRole, PolicyLoader};
use super::format::Body;
use super::problem::FileProblems;
use super::source_text::{TextSpan, WithSpan};
use super::toml_reader::{ReadStatus, TomlTableHead};
use duplicates::{DuplicateCheck, EntryClaim};

pub(super) use commands::CommandSet;

/// The rules of one part of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleSet {
    pub(super) commands: CommandSet,
    pub(super) paths: PathRules,
    pub(super) tools: Vec<ToolRule>,
    pub(super) env: Vec<EnvRule>,
    pub(super) hosts: Vec<HostRule>,
}

/// Which part of a file a rule is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleSection<'a> {
    /// A file, or an operator's words about a workspace.
    Whole,
    /// `[agents.NAME]`, which narrows in every file.
    Agent(&'a str),
}

pub(super) struct RuleConverter<'a, 'p> {
    pub(super) role: PolicyFileRole,
    pub(super) place: RuleSection<'a>,
    pub(super) loader: PolicyLoader<'a>,
    /// Of what was read on the way.
    pub(super) digests: &'a mut Vec<String>,
    pub(super) problems: &'a mut FileProblems<'p>,
}

impl RuleConverter<'_, '_> {
    pub(super) fn rules(&mut self, body: &Body) -> RuleSet {
        RuleSet {
            commands: self.commands(body.command.as_deref().unwrap_or_default()),
            paths: self.paths(body.path.as_deref().unwrap_or_default()),
            tools: self.tools(body.tool.as_deref().unwrap_or_default()),
            env: self.variables(body.env.as_deref().unwrap_or_default()),
            hosts: self.hosts(body.host.as_deref().unwrap_or_default()),
        }
    }

    fn source(&self, span: TextSpan, reason: Option<&WithSpan<String>>) -> RuleSource {
        let layer = match self.place {
            RuleSection::Whole => self.role.layer(),
            RuleSection::Agent(_) => PolicyFileRole::Session.layer(),
        };
        RuleSource {
            layer,
            origin: Some(self.problems.source().origin(span)),
            reason: reason.map(|reason| reason.value.clone()),
        }
    }

    /// The one key of several that an entry has.
    fn one<'t, T, const N: usize>(
        &mut self,
        what: &str,
        entry: TomlTableHead,
        keys: [(&'static str, Option<&'t T>); N],
    ) -> Option<(&'static str, &'t T)> {
        let mut given = keys.iter().filter_map(|(key, value)| Some((*key, (*value)?)));
        match (given.next(), given.next()) {
            (Some(found), None) => return Some(found),
            (Some((first, _)), Some((second, _))) => {
                let message = format!("`{first}` and `{second}` in one {what}");
                self.problems.add(entry.span, message, "write one entry for each");
            }
            (None, _) if entry.reading == ReadStatus::Partial => {}
            (None, _) => {
                let names: Vec<String> = keys.iter().map(|(key, _)| format!("`{key}`")).collect();
                let fix = format!("write one of {}", names.join(", "));
                self.problems.add(entry.span, format!("a {what} that decides nothing"), fix);
            }
        }
        None
    }

    /// Whether this part of a file may open anything. Where it may not the attempt is a problem.
    fn may_open(&mut self, key: &str, span: TextSpan) -> bool {
        let (who, fix) = match (self.place, self.role) {
            (RuleSection::Agent(_), _) => {
                ("a part for an agent", "write it at the top of the file, for every agent")
            }
            (RuleSection::Whole, PolicyFileRole::Session) => {
                ("a session file", "write it in a file of the operator")
            }
            (RuleSection::Whole, PolicyFileRole::Operator | PolicyFileRole::Workspace) => return true,
        };
        self.problems.add(span, format!("{who} only narrows, and `{key}` opens something"), fix);
        false
    }

    /// For errors of the engines, which say what to write after a semicolon.
    fn split_problem(&mut self, at: &WithSpan<String>, error: &str, otherwise: &str) {
        let (message, fix) = error.rsplit_once("; ").unwrap_or((error, otherwise));
        self.problems.add(at.span, message, fix);
    }
}

fn decision(key: &str) -> Decision {
    match key {
        "allow" => Decision::Allow,
        "ask" => Decision::Ask,
        _ => Decision::Deny,
    }
}
