//! From the entries of a file to the rules that the engines know. The only place that knows both.

mod commands;
mod network;
mod paths;
mod seen;
mod tools;
mod variables;

use ringfence_types::Decision;

use super::file::{Loader, Role};
use super::format::Body;
use super::problem::Problems;
use super::read::{Head, Reading};
use super::text::{At, Span};
use crate::env::EnvRule;
use crate::hosts::HostEntry;
use crate::judgement::RuleSource;
use crate::path_rules::PathRules;
use crate::tools::ToolRule;
use seen::{Said, Seen};

pub(super) use commands::CommandSet;

/// The rules of one part of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleSet {
    pub(super) commands: CommandSet,
    pub(super) paths: PathRules,
    pub(super) tools: Vec<ToolRule>,
    pub(super) env: Vec<EnvRule>,
    pub(super) hosts: Vec<HostEntry>,
}

/// Which part of a file a rule is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// A file, or an operator's words about a workspace.
    Whole,
    /// `[agents.NAME]`, which narrows in every file.
    Agent(&'a str),
}

pub(super) struct Converting<'a, 'p> {
    pub(super) role: Role,
    pub(super) place: Place<'a>,
    pub(super) loader: Loader<'a>,
    /// Of what was read on the way.
    pub(super) digests: &'a mut Vec<String>,
    pub(super) problems: &'a mut Problems<'p>,
}

impl Converting<'_, '_> {
    pub(super) fn rules(&mut self, body: &Body) -> RuleSet {
        RuleSet {
            commands: self.commands(body.command.as_deref().unwrap_or_default()),
            paths: self.paths(body.path.as_deref().unwrap_or_default()),
            tools: self.tools(body.tool.as_deref().unwrap_or_default()),
            env: self.variables(body.env.as_deref().unwrap_or_default()),
            hosts: self.hosts(body.host.as_deref().unwrap_or_default()),
        }
    }

    fn source(&self, span: Span, reason: Option<&At<String>>) -> RuleSource {
        let layer = match self.place {
            Place::Whole => self.role.layer(),
            Place::Agent(_) => Role::Session.layer(),
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
        entry: Head,
        keys: [(&'static str, Option<&'t T>); N],
    ) -> Option<(&'static str, &'t T)> {
        let mut given = keys.iter().filter_map(|(key, value)| Some((*key, (*value)?)));
        match (given.next(), given.next()) {
            (Some(found), None) => return Some(found),
            (Some((first, _)), Some((second, _))) => {
                let message = format!("`{first}` and `{second}` in one {what}");
                self.problems.add(entry.span, message, "write one entry for each");
            }
            (None, _) if entry.reading == Reading::Partial => {}
            (None, _) => {
                let names: Vec<String> = keys.iter().map(|(key, _)| format!("`{key}`")).collect();
                let fix = format!("write one of {}", names.join(", "));
                self.problems.add(entry.span, format!("a {what} that decides nothing"), fix);
            }
        }
        None
    }

    /// Whether this part of a file may open anything. Where it may not the attempt is a problem.
    fn may_open(&mut self, key: &str, span: Span) -> bool {
        let (who, fix) = match (self.place, self.role) {
            (Place::Agent(_), _) => {
                ("a part for an agent", "write it at the top of the file, for every agent")
            }
            (Place::Whole, Role::Session) => ("a session file", "write it in a file of the operator"),
            (Place::Whole, Role::Operator | Role::Workspace) => return true,
        };
        self.problems.add(span, format!("{who} only narrows, and `{key}` opens something"), fix);
        false
    }

    /// For errors of the engines, which say what to write after a semicolon.
    fn split_problem(&mut self, at: &At<String>, error: &str, otherwise: &str) {
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
