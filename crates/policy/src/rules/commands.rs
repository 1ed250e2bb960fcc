//! `[[command]]`.

use std::path::{Component, Path, PathBuf};

use ringfence_authz::{
    CommandPattern, CommandRule, CommandRules, Manifest, ManifestCommand, Restriction, RuleConditions,
    RuleSource, SessionTerms,
};
use ringfence_types::{ByteString, Decision, PolicyLayer, StandardInput};
use serde::Deserialize;

use super::super::command_words::split;
use super::super::file::{named_file, unreadable};
use super::super::format::{CommandList, CommandTable};
use super::super::source_text::{MAX_BYTES, TextSpan, WithSpan, sha256};
use super::super::toml_reader::{OneOrMany, shorten};
use super::paths::examples;
use super::{DuplicateCheck, EntryClaim, RuleConverter, decision};

/// What one part of a file says about commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandSet {
    pub(crate) rules: Vec<CommandRule>,
    pub(crate) restrictions: Vec<Restriction>,
    pub(crate) manifests: Vec<Manifest>,
}

/// What an entry is about.
enum CommandEntryKind<'t> {
    Listed(&'t CommandList),
    Program(&'t WithSpan<String>),
    Manifest(&'t WithSpan<String>),
}

impl CommandEntryKind<'_> {
    fn span(&self) -> TextSpan {
        match self {
            Self::Listed(commands) => commands.span,
            Self::Program(text) | Self::Manifest(text) => text.span,
        }
    }
}

impl RuleConverter<'_, '_> {
    pub(super) fn commands(&mut self, tables: &[CommandTable]) -> CommandSet {
        let mut seen = DuplicateCheck::default();
        let mut set = CommandSet::default();
        for table in tables {
            self.command(table, &mut seen, &mut set);
        }
        set
    }

    fn command(
        &mut self,
        table: &CommandTable,
        seen: &mut DuplicateCheck,
        set: &mut CommandSet,
    ) -> Option<()> {
        let (deny, ask) = (
            table.deny.as_ref().map(CommandEntryKind::Listed),
            table.ask.as_ref().map(CommandEntryKind::Listed),
        );
        let allow = table.allow.as_ref().map(CommandEntryKind::Listed);
        let program = table.program.as_ref().map(CommandEntryKind::Program);
        let manifest = table.manifest.as_ref().map(CommandEntryKind::Manifest);
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
            CommandEntryKind::Listed(commands) => {
                let rules = self.listed(key, commands, table, seen)?;
                self.command_examples(table, |words| rules.iter().any(|rule| rule.matches(words)));
                set.rules.extend(rules);
            }
            CommandEntryKind::Program(program) => {
                let restriction = self.restriction(program, table, seen)?;
                let mut alone = CommandRules::default();
                let heard = RuleSource { layer: PolicyLayer::Operator, ..restriction.source.clone() };
                if let Err(error) = alone.restrict(Restriction { source: heard, ..restriction.clone() }) {
                    self.split_problem(program, &error.to_string(), "write its name alone");
                    return None;
                }
                self.command_examples(table, |words| alone.decision_alone(words) == Some(Decision::Allow));
                set.restrictions.push(restriction);
            }
            CommandEntryKind::Manifest(file) => {
                let manifest = self.manifest(file, table, seen)?;
                let mut alone = CommandRules::default();
                let heard = RuleSource { layer: PolicyLayer::Operator, ..manifest.source.clone() };
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
    fn keys_belong(&mut self, kind: &CommandEntryKind<'_>, table: &CommandTable) -> bool {
        let exact = table.exact.as_ref().map(|exact| ("exact", exact.span));
        let here = table.within.as_ref().map(|here| ("within", here.span));
        let variables = table.variables.as_ref().map(|list| ("variables", list.span));
        let with = table.with.as_ref().map(|list| ("with", list.span));
        let given = variables.or(table.stdin.as_ref().map(|stdin| ("stdin", stdin.span))).or(with);
        let allowed = table.allow_subcommands.as_ref().map(|list| ("allow_subcommands", list.span));
        let blocked = table.deny_subcommands.as_ref().map(|list| ("deny_subcommands", list.span));
        let (stray, with) = match kind {
            CommandEntryKind::Listed(_) if given.is_some() && table.allow.is_none() => (given, "`allow`"),
            CommandEntryKind::Listed(_) => (allowed.or(blocked), "`program`"),
            CommandEntryKind::Program(_) => (exact.or(here).or(given), "`deny`, `ask` or `allow`"),
            CommandEntryKind::Manifest(_) => {
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
        commands: &CommandList,
        table: &CommandTable,
        seen: &mut DuplicateCheck,
    ) -> Option<Vec<CommandRule>> {
        let here = match &table.within {
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
                EntryClaim { key, about: what, shown: &words.value.join(" "), span: words.span },
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

    fn is_command(&mut self, words: &WithSpan<Vec<String>>, pattern: &CommandPattern) -> bool {
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

    fn here(&mut self, here: &WithSpan<String>) -> Option<PathBuf> {
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

    fn given(&mut self, table: &CommandTable) -> Option<RuleConditions> {
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
        let sorted = |items: &[WithSpan<String>]| {
            let mut texts: Vec<String> = items.iter().map(|text| text.value.clone()).collect();
            texts.sort();
            texts
        };
        let session = match &table.with {
            Some(words) => Some(self.session_terms(words)?),
            None => None,
        };
        Some(RuleConditions {
            variables: listed.map(sorted),
            stdin: stdin.map(|stdin| stdin.value.clone()),
            session,
        })
    }

    fn session_terms(&mut self, words: &OneOrMany<String>) -> Option<SessionTerms> {
        let terms = SessionTerms::read(words.items.iter().map(|word| word.value.as_str()));
        if let Err(error) = &terms {
            let fix = "write `net MODE`, `host HOST`, `read PATH`, `write PATH`, `workspace ACCESS`, `agent NAME` or `image ID`";
            self.problems.add(words.span, error.to_string(), fix);
        }
        terms.ok()
    }

    /// S000-24: `allow_subcommands` is all that may run, `deny_subcommands` never runs, and without either everything may.
    fn restriction(
        &mut self,
        program: &WithSpan<String>,
        table: &CommandTable,
        seen: &mut DuplicateCheck,
    ) -> Option<Restriction> {
        let words = WithSpan { value: vec![program.value.clone()], span: program.span };
        if !self.is_command(&words, &CommandPattern::Words(words.value.clone())) {
            return None;
        }
        if !seen.add(
            EntryClaim {
                key: "program",
                about: format!("program {}", program.value),
                shown: &program.value,
                span: program.span,
            },
            self.problems,
        ) {
            return None;
        }
        let blocked = match &table.deny_subcommands {
            Some(list) => self.subcommands(&program.value, list)?,
            None => Vec::new(),
        };
        let allowed = match &table.allow_subcommands {
            Some(list) => Some(self.subcommands(&program.value, list)?),
            None => None,
        };
        let both = allowed.iter().flatten().find(|allowed| blocked.contains(allowed));
        if let (Some(both), Some(list)) = (both, &table.deny_subcommands) {
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
    fn subcommands(&mut self, program: &str, list: &OneOrMany<String>) -> Option<Vec<String>> {
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

    fn manifest(
        &mut self,
        file: &WithSpan<String>,
        table: &CommandTable,
        seen: &mut DuplicateCheck,
    ) -> Option<Manifest> {
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
        let saved: SavedManifest = match serde_json::from_slice(&bytes) {
            Ok(saved) => saved,
            Err(error) => {
                self.problems.add(file.span, format!("the manifest is not readable: {error}"), AGAIN);
                return None;
            }
        };
        let program = WithSpan { value: vec![saved.cli.clone()], span: file.span };
        if !self.is_command(&program, &CommandPattern::Words(program.value.clone())) {
            return None;
        }
        let what = format!("program {}", saved.cli);
        if !seen.add(
            EntryClaim { key: "program", about: what, shown: &saved.cli, span: file.span },
            self.problems,
        ) {
            return None;
        }
        let source = self.source(file.span, table.reason.as_ref());
        Some(Manifest { version: saved.version, cli: saved.cli, commands: saved.commands, source })
    }

    /// Of a list: what it matches. Of a program or a manifest: what it lets run.
    fn command_examples(&mut self, table: &CommandTable, speaks: impl Fn(&[ByteString]) -> bool) {
        for (key, list, expected) in examples(table.examples.as_ref(), table.counterexamples.as_ref()) {
            for example in &list.items {
                let words = match split(&example.value) {
                    Ok(words) => words,
                    Err(error) => {
                        self.problems.add(example.span, error.to_string(), error.fix());
                        continue;
                    }
                };
                let argv: Vec<ByteString> =
                    words.iter().map(|word| ByteString::from(word.as_str())).collect();
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
struct SavedManifest {
    version: u32,
    cli: String,
    commands: Vec<ManifestCommand>,
}
