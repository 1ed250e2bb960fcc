//! Document 000's form of a rule: a program with the subcommands that are allowed and those that are blocked.

use ringfence_types::Decision;

use super::{CommandPattern, CommandPatternError, CommandRule, RuleConditions};
use crate::judgement::RuleSource;

/// One entry of `commands` in document 000 (S000-21, S000-23, S000-24).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restriction {
    pub program: String,
    /// Only these subcommands; `None` is all of them.
    pub allowed: Option<Vec<String>>,
    /// Subcommands with options: `push --force`.
    pub blocked: Vec<String>,
    pub source: RuleSource,
}

impl Restriction {
    pub(super) fn rules(&self) -> Result<Vec<CommandRule>, CommandPatternError> {
        let mut rules = Vec::new();
        for words in &self.blocked {
            rules.push(self.rule(words, Decision::Deny)?);
        }
        match &self.allowed {
            None => rules.push(self.rule("", Decision::Allow)?),
            Some(allowed) if allowed.is_empty() => {
                return Err(CommandPatternError::NothingAllowed(self.program.clone()));
            }
            Some(allowed) => {
                for words in allowed {
                    rules.push(self.rule(words, Decision::Allow)?);
                }
            }
        }
        Ok(rules)
    }

    fn rule(&self, words: &str, decision: Decision) -> Result<CommandRule, CommandPatternError> {
        let pattern = CommandPattern::words(&format!("{} {words}", self.program))?;
        Ok(CommandRule {
            pattern,
            decision,
            here: None,
            given: RuleConditions::default(),
            source: self.source.clone(),
        })
    }
}
