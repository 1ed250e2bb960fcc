//! From the entries of a file to the rules that the engines know. The only place that knows both.

mod commands;
mod paths;
mod seen;

use ringfence_types::{Decision, HostRule};

use super::file::{Loader, Role};
use super::format::{Body, EnvTable, HostTable, ToolTable};
use super::problem::Problems;
use super::read::{Many, shorten};
use super::text::{At, Span};
use crate::command::CommandRule;
use crate::judgement::RuleSource;
use crate::path_rules::PathRule;
use seen::Seen;

/// The rules of one part of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleSet {
    pub(super) commands: Vec<CommandRule>,
    pub(super) paths: Vec<PathRule>,
}

/// What a rule opens or closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A file, or an operator's words about a workspace.
    Whole,
    /// `[agents.NAME]`, which narrows in every file.
    Agent,
}

pub(super) struct Converting<'a, 'p> {
    pub(super) role: Role,
    pub(super) place: Place,
    pub(super) loader: Loader<'a>,
    pub(super) digests: &'a mut Vec<String>,
    pub(super) problems: &'a mut Problems<'p>,
}

impl Converting<'_, '_> {
    pub(super) fn rules(&mut self, body: &Body) -> RuleSet {
        RuleSet {
            commands: self.commands(body.commands_rules.as_deref().unwrap_or_default()),
            paths: self.paths(body.paths.as_deref().unwrap_or_default()),
        }
    }

    fn source(&self, span: Span, reason: Option<&At<String>>) -> RuleSource {
        let layer = match self.place {
            Place::Whole => self.role.layer(),
            Place::Agent => Role::Session.layer(),
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
        entry: Span,
        keys: [(&'static str, Option<&'t T>); N],
    ) -> Option<(&'static str, &'t T)> {
        let mut given = keys.iter().filter_map(|(key, value)| Some((*key, (*value)?)));
        let found = given.next();
        let names: Vec<String> = keys.iter().map(|(key, _)| format!("`{key}`")).collect();
        let names = names.join(", ");
        match (found, given.next()) {
            (Some(found), None) => Some(found),
            (Some((first, _)), Some((second, _))) => {
                let message = format!("`{first}` and `{second}` in one {what}");
                self.problems.add(entry, message, "write one entry for each");
                None
            }
            (None, _) => {
                self.problems.add(entry, format!("a {what} without a decision"), format!("write one of {names}"));
                None
            }
        }
    }

    /// Whether this place may open anything. Where it may not the attempt is a problem.
    fn may_open(&mut self, key: &str, span: Span) -> bool {
        let (who, fix) = match (self.place, self.role) {
            (Place::Agent, _) => ("a part for an agent", "write it at the top of the file, for every agent"),
            (Place::Whole, Role::Session) => ("a session file", "write it in a file of the operator"),
            (Place::Whole, Role::Operator | Role::Workspace) => return true,
        };
        self.problems.add(span, format!("{who} only narrows, and `{key}` opens something"), fix);
        false
    }
}

fn decision(key: &str) -> Decision {
    match key {
        "allow" => Decision::Allow,
        "ask" => Decision::Ask,
        _ => Decision::Deny,
    }
}
