//! Programs about whose options nothing is known: they are asked about, and every argument that looks like a path is
//! judged as one (S000-13, S000-25).

use ringfence_types::{Decision, Risk, RuleId};

use super::arg::Arg;
use super::builtin_verdict::BuiltinVerdict;
use super::catalogue::steered;
use super::operands::likely_path;
use super::rules::CommandLine;
use super::{CommandContext, CommandEvaluator, network_tools};
use crate::host_facts::PathKind;
use crate::paths::PathIntent;

impl CommandEvaluator<'_> {
    pub(super) fn plain(
        &mut self,
        frame: &CommandContext,
        line: &CommandLine<'_>,
        risk: Risk,
        what: &'static str,
    ) -> BuiltinVerdict {
        self.plain_paths(frame, line.args);
        let reason = if what.is_empty() { "it is not on the list" } else { what };
        let opinion = BuiltinVerdict::miss(RuleId::GuardedUnlisted, reason, risk);
        let opinion =
            opinion.and_if(dynamic(line.args)).and_if(network_tools::url(self.scene.policy, line.args));
        opinion.and_if(steered(line))
    }

    /// Judges what looks like a path among arguments whose meaning is not known.
    pub(super) fn plain_paths(&mut self, frame: &CommandContext, args: &[Arg<'_>]) {
        for arg in args {
            match arg {
                Arg::Text(text) => self.plain_text(frame, text),
                Arg::Glob { .. } | Arg::Home(_) => self.path(frame, *arg, PathIntent::Read),
                Arg::Unknown(_) => {}
            }
        }
    }

    fn plain_text(&mut self, frame: &CommandContext, text: &[u8]) {
        let value = match text {
            [b'-', b'-', rest @ ..] => after_equals(rest),
            // A glued value (`-I/usr/include`) is not told from a cluster.
            [b'-', ..] => None,
            _ => after_assignment(text).or(Some(text)),
        };
        let Some(path) = value.filter(|path| !is_url(path)) else { return };
        if looks_like_path(path) {
            self.path(frame, Arg::Text(path), PathIntent::Read);
        } else if self.is_listed() {
            self.plain_word(frame, path);
        }
    }

    /// A bare word is a path only where there is such a file.
    fn plain_word(&mut self, frame: &CommandContext, word: &[u8]) {
        if word.is_empty() || word.len() > 255 {
            return;
        }
        let part = self.path_part(frame, word, PathIntent::Read);
        let there =
            || likely_path(frame, word).is_some_and(|path| self.scene.facts.kind(&path) == PathKind::File);
        if part.decision > Decision::Allow && there() {
            self.push(frame, part);
        }
    }
}

/// The opinion about arguments that are known only when it runs.
pub(super) fn dynamic(args: &[Arg<'_>]) -> Option<BuiltinVerdict> {
    args.iter().find_map(|arg| match arg {
        Arg::Unknown(why) => Some(unknown_argument(why)),
        Arg::Text(_) | Arg::Glob { .. } | Arg::Home(_) => None,
    })
}

pub(super) fn unknown_argument(why: &'static str) -> BuiltinVerdict {
    let reason = format!("an argument is known only when it runs ({why})");
    BuiltinVerdict::miss(RuleId::GuardedDynamic, reason, Risk::Medium).never()
}

fn looks_like_path(text: &[u8]) -> bool {
    let first = text.first().copied().unwrap_or_default();
    text.contains(&b'/') || matches!(first, b'.' | b'~') && text.len() > 1
}

fn after_equals(text: &[u8]) -> Option<&[u8]> {
    text.iter().position(|byte| *byte == b'=').and_then(|at| text.get(at + 1..))
}

/// `if=/etc/passwd`, `CC=/tmp/cc`; not a text that only contains an equals sign somewhere.
fn after_assignment(text: &[u8]) -> Option<&[u8]> {
    let at = text.iter().position(|byte| *byte == b'=')?;
    let name = text.get(..at)?;
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (!name.is_empty() && name.iter().all(word)).then(|| text.get(at + 1..)).flatten()
}

fn is_url(text: &[u8]) -> bool {
    text.windows(3).any(|part| part == b"://")
}
