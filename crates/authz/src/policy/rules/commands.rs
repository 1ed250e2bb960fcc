//! `[[command]]`.

use std::path::{Component, Path, PathBuf};

use ringfence_types::{Bytes, Decision, Layer, StandardInput};
use serde::Deserialize;

use super::super::file::{named_file, unreadable};
use super::super::format::{CommandTable, Commands};
use super::super::read::{Many, shorten};
use super::super::text::{At, MAX_BYTES, Span, sha256};
use super::super::words::split;
use super::paths::examples;
use super::{Converting, Said, Seen, decision};
use crate::command::{
    CommandPattern, CommandRule, CommandRules, Given, Manifest, ManifestCommand, Restriction,
};
use crate::judgement::RuleSource;

/// What one part of a file says about commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct CommandSet {
    pub(in crate::policy) rules: Vec<CommandRule>,
    pub(in crate::policy) restrictions: Vec<Restriction>,
    pub(in crate::policy) manifests: Vec<Manifest>,
}

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
    pub(super) fn commands(&mut self, tables: &[CommandTable]) -> CommandSet {
        let mut seen = Seen::default();
        let mut set = CommandSet::default();
        for table in tables {
            self.command(table, &mut seen, &mut set);
        }
        set
    }

    fn command(&mut self, table: &CommandTable, seen: &mut Seen, set: &mut CommandSet) -> Option<()> {
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
        let opens = !matches!(key, "deny" | "ask");
        if opens && !self.may_open(key, kind.span()) || !self.keys_belong(kind, table) {
            return None;
        }
        match kind {
            Kind::Listed(commands) => {
                let rules = self.listed(key, commands, table, seen)?;
                self.command_examples(table, |words| rules.iter().any(|rule| rule.matches(words)));
                set.rules.extend(rules);
            }
            Kind::Program(program) => {
                let restriction = self.restriction(program, table, seen)?;
                let mut alone = CommandRules::default();
                let heard = RuleSource { layer: Layer::Operator, ..restriction.source.clone() };
                if let Err(error) = alone.restrict(Restriction { source: heard, ..restriction.clone() }) {
                    self.split_problem(program, &error.to_string(), "write its name alone");
                    return None;
                }
                self.command_examples(table, |words| alone.decision_alone(words) == Some(Decision::Allow));
                set.restrictions.push(restriction);
            }
            Kind::Manifest(file) => {
                let manifest = self.manifest(file, table, seen)?;
                let mut alone = CommandRules::default();
                let heard = RuleSource { layer: Layer::Operator, ..manifest.source.clone() };
                if let Err(error) = alone.manifest(Manifest { source: heard, ..manifest.clone() }) {
                    self.split_problem(file, &error.to_string(), AGAIN);
                    return None;
                }
                self.command_examples(table, |words| alone.decision_alone(words) == Some(Decision::Allow));
                set.manifests.push(manifest);
            }
        }
        Some(())
    }

    /// Keys of one kind of entry in another kind mean nothing.
    fn keys_belong(&mut self, kind: &Kind<'_>, table: &CommandTable) -> bool {
        let exact = table.exact.as_ref().map(|exact| ("exact", exact.span));
        let here = table.here.as_ref().map(|here| ("here", here.span));
        let variables = table.variables.as_ref().map(|list| ("variables", list.span));
        let given = variables.or(table.stdin.as_ref().map(|stdin| ("stdin", stdin.span)));
        let allowed = table.allowed.as_ref().map(|list| ("allowed", list.span));
        let blocked = table.blocked.as_ref().map(|list| ("blocked", list.span));
        let (stray, with) = match kind {
            Kind::Listed(_) if given.is_some() && table.allow.is_none() => (given, "`allow`"),
            Kind::Listed(_) => (allowed.or(blocked), "`program`"),
            Kind::Program(_) => (exact.or(here).or(given), "`deny`, `ask` or `allow`"),
            Kind::Manifest(_) => {
                (exact.or(here).or(given).or(allowed).or(blocked), "`program`, `deny`, `ask` or `allow`")
            }
        };
        if let Some((key, span)) = stray {
            let fix = format!("it belongs to an entry with {with}");
            self.problems.add(span, format!("`{key}` means nothing in this entry"), fix);
        }
        stray.is_none()
    }

    fn listed(
        &mut self,
        key: &'static str,
        commands: &Commands,
        table: &CommandTable,
        seen: &mut Seen,
    ) -> Option<Vec<CommandRule>> {
        let here = match &table.here {
            Some(here) => Some(self.here(here)?),
            None => None,
        };
        let exact = table.exact.as_ref().is_some_and(|exact| exact.value);
        let given = self.given(table)?;
        let mut rules = Vec::new();
        for words in &commands.items {
            let pattern = if exact { CommandPattern::Exact } else { CommandPattern::Words };
            let pattern = pattern(words.value.clone());
            if !self.is_command(words, &pattern) {
                continue;
            }
            let what = format!("{:?} {exact} {here:?} {given:?}", words.value);
            if seen.add(
                Said { key, about: what, shown: &words.value.join(" "), span: words.span },
                self.problems,
            ) {
                let source = self.source(words.span, table.reason.as_ref());
                let stored = source.origin.as_ref().is_some_and(|origin| origin.grant().is_some());
                let given = if stored { given.clone().of_answer() } else { given.clone() };
                rules.push(CommandRule {
                    pattern,
                    decision: decision(key),
                    here: here.clone(),
                    given,
                    source,
                });
            }
        }
        Some(rules)
    }

    fn is_command(&mut self, words: &At<Vec<String>>, pattern: &CommandPattern) -> bool {
        let program = words.value.first().map(String::as_str).unwrap_or_default();
        if program.starts_with('-') || program.contains(char::is_whitespace) {
            let message = format!("`{}` is not the name of a program", shorten(program));
            self.problems.add(words.span, message, "write the program first, then its arguments");
            return false;
        }
        let checked = pattern.check();
        if let Err(error) = &checked {
            self.problems.add(
                words.span,
                error.to_string(),
                "write `exact = true` with all of its words, or leave them out",
            );
        }
        checked.is_ok()
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

    fn given(&mut self, table: &CommandTable) -> Option<Given> {
        let stdin = table.stdin.as_ref();
        if let Some(stdin) = stdin.filter(|stdin| !StandardInput::is_word(&stdin.value)) {
            let message =
                format!("`{}` is no standard input that a rule can be about", shorten(&stdin.value));
            self.problems.add(stdin.span, message, "write `none`, `terminal` or `sha256:` and 64 hex digits");
            return None;
        }
        let listed = table.variables.as_ref().map(|list| list.items.as_slice());
        if let Some(wrong) = listed.unwrap_or_default().iter().find(|text| !text.value.contains('=')) {
            let message = format!("`{}` is no variable with a value", shorten(&wrong.value));
            self.problems.add(wrong.span, message, "write `NAME=value`");
            return None;
        }
        let sorted = |items: &[At<String>]| {
            let mut texts: Vec<String> = items.iter().map(|text| text.value.clone()).collect();
            texts.sort();
            texts
        };
        Some(Given { variables: listed.map(sorted), stdin: stdin.map(|stdin| stdin.value.clone()) })
    }

    /// S000-24: `allowed` is all that may run, `blocked` never runs, and without either everything may.
    fn restriction(
        &mut self,
        program: &At<String>,
        table: &CommandTable,
        seen: &mut Seen,
    ) -> Option<Restriction> {
        let words = At { value: vec![program.value.clone()], span: program.span };
        if !self.is_command(&words, &CommandPattern::Words(words.value.clone())) {
            return None;
        }
        if !seen.add(
            Said {
                key: "program",
                about: format!("program {}", program.value),
                shown: &program.value,
                span: program.span,
            },
            self.problems,
        ) {
            return None;
        }
        let blocked = match &table.blocked {
            Some(list) => self.subcommands(&program.value, list)?,
            None => Vec::new(),
        };
        let allowed = match &table.allowed {
            Some(list) => Some(self.subcommands(&program.value, list)?),
            None => None,
        };
        let both = allowed.iter().flatten().find(|allowed| blocked.contains(allowed));
        if let (Some(both), Some(list)) = (both, &table.blocked) {
            self.problems.add(
                list.span,
                format!("`{}` is allowed and blocked", shorten(both)),
                "keep one of them",
            );
            return None;
        }
        let source = self.source(program.span, table.reason.as_ref());
        Some(Restriction { program: program.value.clone(), allowed, blocked, source })
    }

    /// Subcommands as plain words: `push --force`.
    fn subcommands(&mut self, program: &str, list: &Many<String>) -> Option<Vec<String>> {
        let mut found = Vec::new();
        for text in &list.items {
            let words = match split(&text.value) {
                Ok(words) => words,
                Err(error) => {
                    self.problems.add(text.span, error.to_string(), error.fix());
                    continue;
                }
            };
            let pattern = CommandPattern::Words(
                std::iter::once(program.to_owned()).chain(words.iter().cloned()).collect(),
            );
            let spaced = words.iter().any(|word| word.contains(char::is_whitespace));
            if spaced || pattern.check().is_err() {
                let message = format!("`{}` is not a subcommand", shorten(&text.value));
                self.problems.add(text.span, message, "write its name, and options where they matter");
            } else {
                found.push(words.join(" "));
            }
        }
        (found.len() == list.items.len()).then_some(found)
    }

    fn manifest(&mut self, file: &At<String>, table: &CommandTable, seen: &mut Seen) -> Option<Manifest> {
        let path = named_file(self.role, file, self.problems)?;
        let bytes = match (self.loader)(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                unreadable(file, &error, self.problems);
                return None;
            }
        };
        self.digests.push(sha256(&bytes));
        if bytes.len() > MAX_BYTES {
            self.problems.add(
                file.span,
                format!("the manifest has {} bytes", bytes.len()),
                format!("the most is {MAX_BYTES}"),
            );
            return None;
        }
        let saved: Saved = match serde_json::from_slice(&bytes) {
            Ok(saved) => saved,
            Err(error) => {
                self.problems.add(file.span, format!("the manifest is not readable: {error}"), AGAIN);
                return None;
            }
        };
        let program = At { value: vec![saved.cli.clone()], span: file.span };
        if !self.is_command(&program, &CommandPattern::Words(program.value.clone())) {
            return None;
        }
        let what = format!("program {}", saved.cli);
        if !seen.add(Said { key: "program", about: what, shown: &saved.cli, span: file.span }, self.problems)
        {
            return None;
        }
        let source = self.source(file.span, table.reason.as_ref());
        Some(Manifest { version: saved.version, cli: saved.cli, commands: saved.commands, source })
    }

    /// Of a list: what it matches. Of a program or a manifest: what it lets run.
    fn command_examples(&mut self, table: &CommandTable, speaks: impl Fn(&[Bytes]) -> bool) {
        for (key, list, expected) in examples(table.examples.as_ref(), table.counterexamples.as_ref()) {
            for example in &list.items {
                let words = match split(&example.value) {
                    Ok(words) => words,
                    Err(error) => {
                        self.problems.add(example.span, error.to_string(), error.fix());
                        continue;
                    }
                };
                let argv: Vec<Bytes> = words.iter().map(|word| Bytes::from(word.as_str())).collect();
                if speaks(&argv) != expected {
                    self.wrong_example(key, example);
                }
            }
        }
    }
}

const AGAIN: &str = "save the output of the program's `__manifest` again";

/// A manifest as a program prints it.
#[derive(Deserialize)]
struct Saved {
    version: u32,
    cli: String,
    commands: Vec<ManifestCommand>,
}
