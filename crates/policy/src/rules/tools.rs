//! `[[tool]]`.

use ringfence_authz::RuleSource;
use ringfence_authz::tools::{ToolPattern, ToolRule};

use super::super::file::PolicyFileRole;
use super::super::format::ToolTable;
use super::super::source_text::{TextSpan, WithSpan};
use super::{DuplicateCheck, EntryClaim, RuleConverter, RuleSection, decision};

impl RuleConverter<'_, '_> {
    pub(super) fn tools(&mut self, tables: &[ToolTable]) -> Vec<ToolRule> {
        let mut seen = DuplicateCheck::default();
        let mut rules = Vec::new();
        for table in tables {
            rules.extend(self.tool(table, &mut seen).unwrap_or_default());
        }
        rules
    }

    fn tool(&mut self, table: &ToolTable, seen: &mut DuplicateCheck) -> Option<Vec<ToolRule>> {
        let keys =
            [("deny", table.deny.as_ref()), ("ask", table.ask.as_ref()), ("allow", table.allow.as_ref())];
        let (key, names) = self.one("rule about tools", table.head, keys)?;
        if key == "allow" && !self.may_choose_tools(names.span) {
            return None;
        }
        let mut rules = Vec::new();
        for name in &names.items {
            let Some(pattern) = self.tool_name(name) else { continue };
            if seen.add(
                EntryClaim { key, about: name.value.clone(), shown: &name.value, span: name.span },
                self.problems,
            ) {
                let source = self.tool_source(name.span, table);
                rules.push(ToolRule { agent: self.agent(), pattern, decision: decision(key), source });
            }
        }
        Some(rules)
    }

    /// For an agent `allow` narrows: it has only what is named. But only an operator is heard when it says so.
    fn may_choose_tools(&mut self, span: TextSpan) -> bool {
        match (self.place, self.role) {
            (RuleSection::Agent(_), PolicyFileRole::Operator) => true,
            (RuleSection::Agent(_), _) => {
                let message = format!("{} does not choose the tools of an agent", self.role.noun());
                self.problems.add(span, message, "write what is not wanted in `deny`");
                false
            }
            (RuleSection::Whole, _) => self.may_open("allow", span),
        }
    }

    fn tool_name(&mut self, name: &WithSpan<String>) -> Option<ToolPattern> {
        match ToolPattern::parse(&name.value) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                self.split_problem(name, &error.to_string(), "write a name, or its beginning and `*`");
                None
            }
        }
    }

    /// With the authority of the file: the engine knows that the rules for an agent only narrow.
    fn tool_source(&self, span: TextSpan, table: &ToolTable) -> RuleSource {
        RuleSource { layer: self.role.layer(), ..self.source(span, table.reason.as_ref()) }
    }

    fn agent(&self) -> Option<String> {
        match self.place {
            RuleSection::Agent(name) => Some(name.to_owned()),
            RuleSection::Whole => None,
        }
    }
}
