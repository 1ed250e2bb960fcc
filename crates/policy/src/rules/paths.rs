//! `[[path]]`.

use std::ops::Range;
use std::path::Path;

use ringfence_authz::{PathOperation, PathRule, PathRules, PathRuling, credential_stores, protected_names};
use ringfence_types::ByteString;

use super::super::format::{OperationWord, PathTable};
use super::super::source_text::{TextSpan, WithSpan};
use super::super::toml_reader::{OneOrMany, shorten};
use super::{DuplicateCheck, EntryClaim, RuleConverter, decision};

impl RuleConverter<'_, '_> {
    pub(super) fn paths(&mut self, tables: &[PathTable]) -> PathRules {
        let mut seen = DuplicateCheck::default();
        let mut rules: Vec<(TextSpan, PathRule)> = Vec::new();
        let mut entries = Vec::new();
        for table in tables {
            let first = rules.len();
            rules.extend(self.path(table, &mut seen).unwrap_or_default());
            entries.push((table, first..rules.len()));
        }
        let rules = self.readable(rules);
        for (table, own) in entries {
            self.path_examples(table, own, &rules);
        }
        rules
    }

    /// One rule for each pattern, so that each knows its own place.
    fn path(&mut self, table: &PathTable, seen: &mut DuplicateCheck) -> Option<Vec<(TextSpan, PathRule)>> {
        let keys =
            [("deny", table.deny.as_ref()), ("ask", table.ask.as_ref()), ("allow", table.allow.as_ref())];
        let (key, patterns) = self.one("rule about files", table.head, keys)?;
        if key == "allow" && !self.may_open(key, patterns.span) {
            return None;
        }
        let operation = match table.operation.as_ref().map(|operation| operation.value) {
            None | Some(OperationWord::All) => PathOperation::All,
            Some(OperationWord::Write) => PathOperation::Write,
        };
        let except: Vec<String> =
            table.except.iter().flat_map(|except| &except.items).map(|at| at.value.clone()).collect();
        let mut rules = Vec::new();
        for pattern in &patterns.items {
            if self.path_makes_sense(key, pattern, operation) && self.is_new_path(key, pattern, table, seen) {
                let rule = PathRule {
                    decision: decision(key),
                    patterns: vec![pattern.value.clone()],
                    except: except.clone(),
                    operation,
                    group: 0,
                    source: self.source(pattern.span, table.reason.as_ref()),
                };
                rules.push((pattern.span, rule));
            }
        }
        Some(rules)
    }

    /// A second rule about the same pattern never speaks, unless the first has exceptions.
    fn is_new_path(
        &mut self,
        key: &'static str,
        pattern: &WithSpan<String>,
        table: &PathTable,
        seen: &mut DuplicateCheck,
    ) -> bool {
        if table.except.is_some() {
            return true;
        }
        let operation = table.operation.as_ref().map(|operation| operation.value);
        let writes = if operation == Some(OperationWord::Write) { "write" } else { "all" };
        let what = format!("{writes} {}", pattern.value.trim_end_matches('/'));
        seen.add(EntryClaim { key, about: what, shown: &pattern.value, span: pattern.span }, self.problems)
    }

    fn path_makes_sense(&mut self, key: &str, pattern: &WithSpan<String>, operation: PathOperation) -> bool {
        let shown = shorten(&pattern.value);
        if key == "allow"
            && let Some(what) = floor(&pattern.value)
        {
            let fix = "leave it out; it stays closed whatever a file says";
            self.problems.add(pattern.span, format!("`{shown}` cannot be opened: {what}"), fix);
            return false;
        }
        if key == "deny" && operation == PathOperation::Write && !is_held(&pattern.value) {
            let fix = format!(
                "write a path from the root (`./{}`) or a directory (`dir/**`), or leave `operation` out",
                pattern.value.trim_start_matches(['*', '/'])
            );
            let message = format!(
                "`{shown}` cannot be kept from being written: it may name files that do not exist yet"
            );
            self.problems.add(pattern.span, message, fix);
            return false;
        }
        true
    }

    /// `own` are the rules of the entry. What is wrong with a pattern is said elsewhere: then there are none.
    fn path_examples(&mut self, table: &PathTable, own: Range<usize>, rules: &PathRules) {
        if rules.rules().len() < own.end {
            return;
        }
        let speaks = |path: &str| own.clone().any(|rule| rules.speaks_alone(rule, Path::new(path)));
        for (key, list, expected) in examples(table.examples.as_ref(), table.counterexamples.as_ref()) {
            for example in list.items.iter().filter(|example| speaks(&example.value) != expected) {
                self.wrong_example(key, example);
            }
        }
    }

    pub(super) fn wrong_example(&mut self, key: &str, example: &WithSpan<String>) {
        let shown = shorten(&example.value);
        let message = if key == "match" {
            format!("the rule does not match its example `{shown}`")
        } else {
            format!("the rule matches its counterexample `{shown}`")
        };
        self.problems.add(example.span, message, "correct the rule, or the example");
    }

    /// The rules, if the engine can read them; what it cannot read is a problem each.
    fn readable(&mut self, rules: Vec<(TextSpan, PathRule)>) -> PathRules {
        let (spans, rules): (Vec<TextSpan>, Vec<PathRule>) = rules.into_iter().unzip();
        let together = match PathRules::new(rules.clone()) {
            Ok(readable) => return readable,
            Err(error) => error,
        };
        let alone =
            |(at, rule): (usize, &PathRule)| Some((at, PathRules::new(vec![rule.clone()]).err()?.message));
        let mut wrong: Vec<(usize, String)> = rules.iter().enumerate().filter_map(alone).collect();
        if wrong.is_empty() {
            wrong.push((together.rule, together.message));
        }
        for (at, message) in wrong {
            let (message, fix) = message.rsplit_once("; ").unwrap_or((&message, "write another pattern"));
            self.problems.add(spans.get(at).copied().unwrap_or_default(), message, fix);
        }
        PathRules::default()
    }
}

pub(super) fn examples<'t>(
    positive: Option<&'t OneOrMany<String>>,
    negative: Option<&'t OneOrMany<String>>,
) -> impl Iterator<Item = (&'static str, &'t OneOrMany<String>, bool)> {
    let positive = positive.map(|list| ("match", list, true));
    positive.into_iter().chain(negative.map(|list| ("not_match", list, false)))
}

/// Why nothing opens what a pattern names.
fn floor(pattern: &str) -> Option<String> {
    let path = Path::new(pattern);
    let reason = protected_names::is_protected(path);
    // What is hidden as well can be opened for reading.
    if let Some(reason) = reason.filter(|_| PathRules::default().reading(path) == PathRuling::Open) {
        return Some(format!("it is protected, because {reason}"));
    }
    let below_home = pattern.strip_prefix("~/")?;
    let store = credential_stores::IN_HOME.iter().find(|store| Path::new(below_home).starts_with(store))?;
    Some(format!("`~/{}` is a sensitive root", ByteString::from(*store).display()))
}

/// Whether the kernel can hold the name before it exists: one path from the root, or all of a directory, the root itself
/// included.
fn is_held(pattern: &str) -> bool {
    if pattern == "**" {
        return true;
    }
    let path = pattern.strip_suffix("/**").unwrap_or(pattern);
    pattern.contains('/') && !path.contains(['*', '?', '[', '{', '\\'])
}
