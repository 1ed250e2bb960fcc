//! `[[env]]`.

use ringfence_authz::env::{EnvEffect, EnvPattern, EnvRule};

use super::super::format::EnvTable;
use super::super::source_text::WithSpan;
use super::{DuplicateCheck, EntryClaim, RuleConverter};

impl RuleConverter<'_, '_> {
    pub(super) fn variables(&mut self, tables: &[EnvTable]) -> Vec<EnvRule> {
        let (mut settable, mut inherited) = (DuplicateCheck::default(), DuplicateCheck::default());
        let mut rules = Vec::new();
        for table in tables {
            let keys = [
                ("deny", table.deny.as_ref()),
                ("allow", table.allow.as_ref()),
                ("inherit", table.inherit.as_ref()),
            ];
            let Some((key, names)) = self.one("rule about variables", table.head, keys) else { continue };
            if key != "deny" && !self.may_open(key, names.span) {
                continue;
            }
            for name in &names.items {
                let said = || EntryClaim {
                    key,
                    about: name.value.to_ascii_uppercase(),
                    shown: &name.value,
                    span: name.span,
                };
                // What a caller may set and what is inherited are two questions, and a denial answers both.
                let new = (key == "inherit" || settable.add(said(), self.problems))
                    && (key == "allow" || inherited.add(said(), self.problems));
                if new {
                    rules.extend(self.variable(key, name, table));
                }
            }
        }
        rules
    }

    fn variable(&mut self, key: &str, name: &WithSpan<String>, table: &EnvTable) -> Option<EnvRule> {
        let pattern = match EnvPattern::parse(&name.value) {
            Ok(pattern) => pattern,
            Err(error) => {
                self.split_problem(name, &error.to_string(), "write a name, or a part of it and `*`");
                return None;
            }
        };
        let effect = match key {
            "allow" => EnvEffect::Allow,
            "inherit" => EnvEffect::Inherit,
            _ => EnvEffect::Deny,
        };
        let rule = EnvRule { effect, pattern, source: self.source(name.span, table.reason.as_ref()) };
        match rule.check() {
            Ok(()) => Some(rule),
            Err(error) => {
                self.split_problem(name, &error.to_string(), "leave it out");
                None
            }
        }
    }
}
