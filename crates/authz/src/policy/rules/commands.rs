//! `[[command]]`.

use std::path::{Component, Path, PathBuf};

use ringfence_types::Decision;

use super::super::file::{named_file, unreadable};
use super::super::format::{CommandTable, Commands};
use super::super::read::{Many, shorten};
use super::super::text::{At, Span, sha256};
use super::super::words::split;
use super::manifest::Manifest;
use super::paths::examples;
use super::{Converting, Seen, decision};
use crate::command::{CommandPattern, CommandRule};
use crate::judgement::RuleSource;

/// What an entry is about.
enum Kind<'t> {
    Listed(&'t Commands),
    Program(&'t At<String>),
    Manifest(&'t At<String>),
}

impl Kind<'_> {
    fn span(&self) -> Span {
        match self {
            Self::Listed(commands) => commands.span,
            Self::Program(text) | Self::Manifest(text) => text.span,
        }
    }
}

impl Converting<'_, '_> {
    pub(super) fn commands(&mut self, tables: &[CommandTable]) -> Vec<CommandRule> {
        let mut seen = Seen::default();
        let mut rules = Vec::new();
        for table in tables {
            if let Some(made) = self.command(table, &mut seen) {
                self.command_examples(table, &made);
                rules.extend(made);
            }
        }
        rules
    }

    fn command(&mut self, table: &CommandTable, seen: &mut Seen) -> Option<Vec<CommandRule>> {
        let (deny, ask) = (table.deny.as_ref().map(Kind::Listed), table.ask.as_ref().map(Kind::Listed));
        let allow = table.allow.as_ref().map(Kind::Listed);
        let program = table.program.as_ref().map(Kind::Program);
        let manifest = table.manifest.as_ref().map(Kind::Manifest);
        let kinds = [
            ("deny", deny.as_ref()),
            ("ask", ask.as_ref()),
            ("allow", allow.as_ref()),
            ("program", program.as_ref()),
            ("manifest", manifest.as_ref()),
        ];
        let (key, kind) = self.one("rule about commands", table.head, kinds)?;
        if !matches!(key, "deny" | "ask") && !self.may_open(key, kind.span()) {
            return None;
        }
        if !self.keys_belong(kind, table) {
            return None;
        }
        let here = match &table.here {
            Some(here) => Some(self.here(here)?),
            None => None,
        };
        let mut rules = match kind {
            Kind::Listed(commands) => self.listed(key, commands, table, seen),
            Kind::Program(program) => self.program(program, table, seen)?,
            Kind::Manifest(file) => self.manifest(file, table, seen)?,
        };
        rules.iter_mut().for_each(|rule| rule.here.clone_from(&here));
        Some(rules)
    }

    /// Keys of one kind of entry in another kind mean nothing.
    fn keys_belong(&mut self, kind: &Kind<'_>, table: &CommandTable) -> bool {
        let exact = table.exact.as_ref().map(|exact| ("exact", exact.span));
        let allowed = table.allowed.as_ref().map(|list| ("allowed", list.span));
        let blocked = table.blocked.as_ref().map(|list| ("blocked", list.span));
        let (stray, with) = match kind {
            Kind::Listed(_) => (allowed.or(blocked), "`program`"),
            Kind::Program(_) => (exact, "`deny`, `ask` or `allow`"),
            Kind::Manifest(_) => (exact.or(allowed).or(blocked), "`program`, `deny`, `ask` or `allow`"),
        };
        if let Some((key, span)) = stray {
            self.problems.add(
                span,
                format!("`{key}` means nothing in this entry"),
                format!("it belongs to an entry with {with}"),
            );
        }
        stray.is_none()
    }

    fn here(&mut self, here: &At<String>) -> Option<PathBuf> {
        let below = |component| matches!(component, Component::Normal(_) | Component::CurDir);
        if Path::new(&here.value).components().all(below) {
            return Some(
                Path::new(&here.value).components().filter(|part| *part != Component::CurDir).collect(),
            );
        }
        let message = format!("`{}` is not a directory of the workspace", shorten(&here.value));
        self.problems.add(here.span, message, "name it relative to the workspace, without `..`");
        None
    }

    fn listed(
        &mut self,
        key: &'static str,
        commands: &Commands,
        table: &CommandTable,
        seen: &mut Seen,
    ) -> Vec<CommandRule> {
        let exact = table.exact.as_ref().is_some_and(|exact| exact.value);
        let mut rules = Vec::new();
        for words in &commands.items {
            if self.is_command(words) && self.is_new_command(key, words, table, seen) {
                let pattern = if exact {
                    CommandPattern::Exact(words.value.clone())
                } else {
                    CommandPattern::Words(words.value.clone())
                };
                rules.push(self.command_rule(pattern, decision(key), words.span, table));
            }
        }
        rules
    }

    fn is_command(&mut self, words: &At<Vec<String>>) -> bool {
        let Some(program) = words.value.first() else { return false };
        let odd = program.starts_with('-') || program.contains(char::is_whitespace);
        if odd {
            let message = format!("`{}` is not the name of a program", shorten(program));
            self.problems.add(words.span, message, "write the program first, then its arguments");
        }
        !odd
    }

    fn is_new_command(
        &mut self,
        key: &'static str,
        words: &At<Vec<String>>,
        table: &CommandTable,
        seen: &mut Seen,
    ) -> bool {
        let exact = table.exact.as_ref().is_some_and(|exact| exact.value);
        let here = table.here.as_ref().map(|here| &here.value);
        let what = format!("{:?} {exact} {here:?}", words.value);
        seen.add(key, what, &words.value.join(" "), words.span, self.problems)
    }

    fn command_rule(
        &self,
        pattern: CommandPattern,
        decision: Decision,
        span: Span,
        table: &CommandTable,
    ) -> CommandRule {
        CommandRule { pattern, decision, here: None, source: self.source(span, table.reason.as_ref()) }
    }

    /// S000-24: `allowed` is all that may run, `blocked` never runs, and without either everything may.
    fn program(
        &mut self,
        program: &At<String>,
        table: &CommandTable,
        seen: &mut Seen,
    ) -> Option<Vec<CommandRule>> {
        let name = At { value: vec![program.value.clone()], span: program.span };
        if !self.is_command(&name) || !self.is_new_command("program", &name, table, seen) {
            return None;
        }
        let blocked = self.subcommands(&program.value, table.blocked.as_ref());
        let mut rules: Vec<CommandRule> = blocked
            .into_iter()
            .map(|words| {
                self.command_rule(CommandPattern::Words(words.value), Decision::Deny, words.span, table)
            })
            .collect();
        if table.allowed.is_none() {
            rules.push(self.command_rule(
                CommandPattern::Words(name.value),
                Decision::Allow,
                program.span,
                table,
            ));
            return Some(rules);
        }
        let allowed = self.subcommands(&program.value, table.allowed.as_ref());
        let listed: Vec<CommandPattern> =
            allowed.iter().map(|words| CommandPattern::Words(words.value.clone())).collect();
        rules.extend(allowed.into_iter().map(|words| {
            self.command_rule(CommandPattern::Words(words.value), Decision::Allow, words.span, table)
        }));
        rules.push(self.otherwise_denied(program, listed, table));
        Some(rules)
    }

    /// `push --force` of `git` as `git push --force`.
    fn subcommands(&mut self, program: &str, list: Option<&Many<String>>) -> Vec<At<Vec<String>>> {
        let mut found = Vec::new();
        for text in list.iter().flat_map(|list| &list.items) {
            match split(&text.value) {
                Ok(words) => {
                    let words = std::iter::once(program.to_owned()).chain(words).collect();
                    found.push(At { value: words, span: text.span });
                }
                Err(error) => self.problems.add(text.span, error.to_string(), error.fix()),
            }
        }
        found
    }

    fn otherwise_denied(
        &self,
        program: &At<String>,
        listed: Vec<CommandPattern>,
        table: &CommandTable,
    ) -> CommandRule {
        let pattern = CommandPattern::Unlisted { program: program.value.clone(), listed };
        self.command_rule(pattern, Decision::Deny, program.span, table)
    }

    /// What a manifest does not name is denied. A command that has others below it runs only without further words: the
    /// next one could be a command that was left out on purpose.
    fn manifest(
        &mut self,
        file: &At<String>,
        table: &CommandTable,
        seen: &mut Seen,
    ) -> Option<Vec<CommandRule>> {
        let manifest = self.load_manifest(file)?;
        let program = At { value: manifest.cli.clone(), span: file.span };
        let name = At { value: vec![program.value.clone()], span: file.span };
        if !self.is_new_command("program", &name, table, seen) {
            return None;
        }
        let pattern = |path: &str| {
            let words =
                std::iter::once(program.value.as_str()).chain(path.split(' ')).map(str::to_owned).collect();
            if manifest.is_group(path) { CommandPattern::Exact(words) } else { CommandPattern::Words(words) }
        };
        let mut rules = Vec::new();
        let mut listed = Vec::new();
        for command in &manifest.commands {
            let found = pattern(&command.path);
            if command.agent_allowed {
                listed.push(found.clone());
                rules.push(self.command_rule(found, Decision::Allow, file.span, table));
            } else if !command.reason.is_empty() {
                let rule = self.command_rule(found, Decision::Deny, file.span, table);
                rules.push(CommandRule {
                    source: RuleSource { reason: Some(command.reason.clone()), ..rule.source },
                    ..rule
                });
            }
        }
        rules.push(self.otherwise_denied(&program, listed, table));
        Some(rules)
    }

    fn load_manifest(&mut self, file: &At<String>) -> Option<Manifest> {
        let path = named_file(self.role, file, self.problems)?;
        let bytes = match (self.loader)(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                unreadable(file, &error, self.problems);
                return None;
            }
        };
        self.digests.push(sha256(&bytes));
        match Manifest::parse(&bytes) {
            Ok(manifest) => Some(manifest),
            Err(error) => {
                self.problems.add(
                    file.span,
                    error.to_string(),
                    "save the output of the program's `__manifest` again",
                );
                None
            }
        }
    }

    /// Of a list: what it matches. Of a program: what it lets run.
    fn command_examples(&mut self, table: &CommandTable, rules: &[CommandRule]) {
        for (key, list, expected) in examples(table.examples.as_ref(), table.counterexamples.as_ref()) {
            for example in &list.items {
                match split(&example.value) {
                    Ok(words) if speaks(rules, &words) == expected => {}
                    Ok(_) => self.wrong_example(key, example),
                    Err(error) => self.problems.add(example.span, error.to_string(), error.fix()),
                }
            }
        }
    }
}

/// Whether the rules of one entry match (deny, ask, allow) or let run (program, manifest) a command.
fn speaks(rules: &[CommandRule], words: &[String]) -> bool {
    let restricted = rules.iter().any(|rule| matches!(rule.pattern, CommandPattern::Unlisted { .. }));
    let mixed = rules.iter().any(|rule| rule.decision != Decision::Allow)
        && rules.iter().any(|rule| rule.decision == Decision::Allow);
    let found = rules.iter().filter(|rule| matches(&rule.pattern, words)).map(|rule| rule.decision).max();
    if restricted || mixed { found == Some(Decision::Allow) } else { found.is_some() }
}

fn matches(pattern: &CommandPattern, words: &[String]) -> bool {
    match pattern {
        CommandPattern::Exact(exact) => exact == words,
        CommandPattern::Words(pattern) => {
            let option = |word: &&String| word.starts_with('-');
            let operands = |list: &[String]| {
                list.iter().filter(|word| !word.starts_with('-')).cloned().collect::<Vec<_>>()
            };
            operands(words).starts_with(&operands(pattern))
                && pattern.iter().filter(option).all(|word| words.contains(word))
        }
        CommandPattern::Unlisted { program, listed } => {
            words.first() == Some(program) && !listed.iter().any(|pattern| matches(pattern, words))
        }
    }
}
