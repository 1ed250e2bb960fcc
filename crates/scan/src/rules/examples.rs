//! Examples of rules: a rule must find its examples and no counterexample.

use std::sync::Arc;

use thiserror::Error;

use super::file::{RuleError, RuleProblem};
use super::{ScanRule, expand};
use crate::Scanner;

#[derive(Debug, Error)]
pub enum BadExample {
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error("rule `{rule}` does not find its example `{}`", example.escape_debug())]
    NotFound { rule: String, example: String },
    #[error("`{found}` finds the counterexample `{}` of rule `{rule}`", example.escape_debug())]
    Found { rule: String, example: String, found: String },
}

/// Each text is made of its template this many times.
const VARIANTS: u64 = 3;

/// Compiles every rule and tries its examples on it alone.
pub fn check(rules: &[Arc<ScanRule>]) -> Result<(), BadExample> {
    for rule in rules {
        rule.compile()?;
        let scanner = Scanner::builder().rules(vec![rule.clone()]).build();
        for variant in 0..VARIANTS {
            examples(rule, &scanner, variant)?;
        }
    }
    Ok(())
}

fn examples(rule: &ScanRule, scanner: &Scanner, variant: u64) -> Result<(), BadExample> {
    let texts = |templates: &[String]| -> Result<Vec<(String, Vec<u8>)>, RuleError> {
        let text = |template: &String| Ok((template.clone(), expanded(rule, template, variant)?));
        templates.iter().map(text).collect()
    };
    for (example, text) in texts(&rule.examples)? {
        if scanner.scan(&text).is_empty() {
            return Err(BadExample::NotFound { rule: rule.id.to_string(), example });
        }
    }
    for (example, text) in texts(&rule.counterexamples)? {
        if let Some(finding) = scanner.scan(&text).first() {
            let found = finding.rule.to_string();
            return Err(BadExample::Found { rule: rule.id.to_string(), example, found });
        }
    }
    Ok(())
}

fn expanded(rule: &ScanRule, template: &str, variant: u64) -> Result<Vec<u8>, RuleError> {
    expand(template, variant).map_err(|reason| RuleError::Rule {
        id: rule.id.to_string(),
        problem: RuleProblem::Template { example: template.to_owned(), reason },
    })
}
