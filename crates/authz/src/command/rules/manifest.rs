//! What a tool says about its own commands (`tool __manifest`, version 2; S000-22).

use ringfence_types::Decision;
use serde::Deserialize;

use super::CommandPattern;
use crate::command::arg::Arg;
use crate::judgement::RuleSource;

/// A tool manifest. A command that is not in it is hidden, and hidden is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub version: u32,
    pub cli: String,
    pub commands: Vec<ManifestCommand>,
    pub source: RuleSource,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ManifestCommand {
    /// `project list`, with or without the name of the tool before it.
    pub path: String,
    pub agent_allowed: bool,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub interactive: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    #[error("the manifest of `{cli}` has version {version}; version 2 is understood")]
    Version { cli: String, version: u32 },
    #[error("a manifest names no tool")]
    NoTool,
    #[error("the manifest of `{0}` names no command, which would deny all of them")]
    NoCommands(String),
}

/// What a manifest says about one command line.
pub(super) struct ManifestMatch {
    pub(super) decision: Decision,
    pub(super) reason: String,
    pub(super) pattern: Option<CommandPattern>,
}

/// Whether the words that were found are the command: an option before them could have taken one of them as its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MatchCertainty {
    Sure,
    Guess,
}

impl ManifestMatch {
    fn at_most(self, certainty: MatchCertainty) -> Self {
        if certainty == MatchCertainty::Sure || self.decision != Decision::Allow {
            return self;
        }
        let reason = "an option before the command may take a part of it for its value".to_owned();
        Self { decision: Decision::Ask, reason, pattern: None }
    }
}

impl Manifest {
    pub(super) fn check(&self) -> Result<(), ManifestError> {
        if self.cli.is_empty() || self.cli.starts_with('-') {
            return Err(ManifestError::NoTool);
        }
        if self.version != 2 {
            return Err(ManifestError::Version { cli: self.cli.clone(), version: self.version });
        }
        if self.commands.is_empty() {
            return Err(ManifestError::NoCommands(self.cli.clone()));
        }
        Ok(())
    }

    pub(super) fn is_about(&self, names: &[&[u8]]) -> bool {
        names.contains(&self.cli.as_bytes())
    }

    pub(super) fn judge(&self, args: &[Arg<'_>]) -> ManifestMatch {
        let mut path: Vec<&str> = Vec::new();
        let mut certainty = MatchCertainty::Sure;
        for arg in args {
            let word = arg.text().and_then(|text| std::str::from_utf8(text).ok());
            match word {
                Some(word) if self.leads_on(&path, word) => path.push(word),
                Some(word) if word.starts_with('-') && self.is_leaf(&path) => break,
                _ if self.is_leaf(&path) => break,
                Some(word) if word.starts_with("--") && word.contains('=') => {}
                Some(word) if word.starts_with('-') && word != "-" => certainty = MatchCertainty::Guess,
                _ => return denied(format!("`{}` has no command that could be `{}`", self.cli, shown(*arg))),
            }
        }
        match self.command(&path) {
            Some(command) => self.about(command).at_most(certainty),
            None if path.is_empty() => ManifestMatch {
                decision: Decision::Ask,
                reason: format!("no command of `{}` is named", self.cli),
                pattern: None,
            },
            None => denied(format!("`{} {}` is not in the manifest", self.cli, path.join(" "))),
        }
    }

    fn about(&self, command: &ManifestCommand) -> ManifestMatch {
        let said = command
            .reason
            .as_ref()
            .map(|reason| format!(": {}", shown(Arg::Text(reason.as_bytes()))))
            .unwrap_or_default();
        if !command.agent_allowed {
            return denied(format!("the manifest of `{}` keeps it from agents{said}", self.cli));
        }
        let decision = if command.interactive { Decision::Ask } else { Decision::Allow };
        let how = if command.interactive { "calls it interactive" } else { "allows it" };
        let words = std::iter::once(self.cli.clone()).chain(self.words(command).map(str::to_owned)).collect();
        ManifestMatch {
            decision,
            reason: format!("the manifest of `{}` {how}{said}", self.cli),
            pattern: Some(CommandPattern::Words(words)),
        }
    }

    fn words<'a>(&'a self, command: &'a ManifestCommand) -> impl Iterator<Item = &'a str> {
        let words = command.path.split_whitespace();
        let skipped = usize::from(words.clone().next() == Some(&self.cli));
        words.skip(skipped)
    }

    fn command(&self, path: &[&str]) -> Option<&ManifestCommand> {
        if path.is_empty() {
            return None;
        }
        self.commands.iter().find(|command| self.words(command).eq(path.iter().copied()))
    }

    /// Whether a command continues `path` with `word`.
    fn leads_on(&self, path: &[&str], word: &str) -> bool {
        let longer = path.iter().copied().chain([word]);
        self.commands.iter().any(|command| {
            let mut words = self.words(command);
            longer.clone().all(|wanted| words.next() == Some(wanted))
        })
    }

    /// A command without further ones below it: the next word is an argument.
    fn is_leaf(&self, path: &[&str]) -> bool {
        let below = |command: &ManifestCommand| {
            let mut words = self.words(command);
            path.iter().all(|wanted| words.next() == Some(*wanted)) && words.next().is_some()
        };
        !path.is_empty() && !self.commands.iter().any(below)
    }
}

fn denied(reason: String) -> ManifestMatch {
    ManifestMatch { decision: Decision::Deny, reason, pattern: None }
}

fn shown(arg: Arg<'_>) -> String {
    crate::command::arg::shown(&[arg])
}
