//! Rules about commands: patterns that do not depend on the order or the spelling of options.

use std::path::PathBuf;

use ringfence_types::Decision;

use crate::judgement::RuleSource;

/// One rule of a policy file about commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRule {
    pub pattern: CommandPattern,
    pub decision: Decision,
    /// Only where the working directory is this one or below it; relative to the workspace.
    pub here: Option<PathBuf>,
    pub source: RuleSource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandPattern {
    /// `git push --force`: the program, then subcommands in order, then options that must be present in any order and
    /// spelling. More arguments may follow.
    Words(Vec<String>),
    /// These arguments and no others.
    Exact(Vec<String>),
    /// The program with anything that none of these matches (S000-24).
    Unlisted { program: String, listed: Vec<CommandPattern> },
}

/// All rules about commands, indexed by program. Rules are never ordered: deny before ask before allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandRules {
    rules: Vec<CommandRule>,
}

impl CommandRules {
    pub fn new(rules: Vec<CommandRule>) -> Self {
        Self { rules }
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}
