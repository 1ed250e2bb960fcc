//! Shell text: every simple command in it, with its redirections and assignments, and where each of them runs.

use ringfence_types::{Decision, Profile, Risk, RuleId};

use super::arg::{Arg, shorten};
use super::builtin_verdict::BuiltinVerdict;
use super::cd_tracking::CdTracker;
use super::variables::Change;
use super::working_dirs::WorkingDirs;
use super::{CommandContext, CommandEvaluator, MAX_ARGS, RedirectInput};
use crate::judgement::{JudgementPart, PartGiven, PartKind};
use crate::paths::PathIntent;
use ringfence_shell::{
    self as shell, Redirection, RedirectionMode, RedirectionTarget, ShellWord, SimpleCommand,
};

impl CommandEvaluator<'_> {
    /// Document 004: no shell at all.
    pub(super) fn no_shell(&self) -> Option<BuiltinVerdict> {
        (self.scene.policy.profile == Profile::AirGapped).then(|| {
            BuiltinVerdict::deny(RuleId::ProfileAirGapped, "profile `air-gapped` has no shell", Risk::High)
                .fix("give the command as arguments, without a shell")
        })
    }

    /// Judges text; the answer is where the shell would be after it.
    pub(super) fn script(&mut self, frame: &CommandContext, text: &[u8]) -> WorkingDirs {
        let script = shell::parse(text);
        // Before the first command: in a loop it runs again after the last.
        if script.commands.iter().any(changes_the_given) {
            self.given = PartGiven::Other;
        }
        let mut walk = CdTracker::new(&frame.place, text);
        for simple in &script.commands {
            let inside = CommandContext {
                depth: frame.depth.saturating_add(simple.depth),
                place: walk.place().clone(),
                input: match simple.input {
                    shell::CommandInput::Inherited => frame.input,
                    other => other,
                },
                ..frame.clone()
            };
            self.simple(&inside, simple);
            let moved = self.moved.take();
            walk.pass(simple, moved, self.scene.facts);
        }
        if let Some(gap) = script.gaps.first()
            && self.is_listed()
        {
            let reason = format!("the text cannot be read: {} (byte {})", gap.why, gap.at);
            let opinion = BuiltinVerdict::miss(RuleId::GuardedUnreadableText, reason, Risk::High).never();
            self.push(frame, opinion.part(shorten(text)));
        }
        walk.into_place()
    }

    fn simple(&mut self, frame: &CommandContext, simple: &SimpleCommand) {
        let many = simple.assignments.len() + simple.redirections.len() > MAX_ARGS;
        if many {
            let part =
                self.limited("it sets and opens more than is judged").part(shorten(simple.text.as_bytes()));
            self.push(frame, part);
        }
        for assignment in simple.assignments.iter().filter(|_| !many) {
            let value = match &assignment.value {
                ShellWord::Literal(value) => Some(value.as_slice()),
                _ => None,
            };
            let change = match simple.words.as_slice() {
                [] => Change::Own(&assignment.name),
                _ => Change::Given(&assignment.name, value),
            };
            self.variable(frame, change);
        }
        let args: Vec<Arg<'_>> = simple.words.iter().map(Arg::from).collect();
        self.command(frame, &args, Some(&simple.text));
        for redirection in simple.redirections.iter().filter(|_| !many) {
            self.redirection(frame, redirection);
        }
    }

    fn redirection(&mut self, frame: &CommandContext, redirection: &Redirection) {
        let RedirectionTarget::File(word) = &redirection.target else { return };
        if !self.is_listed() {
            return;
        }
        match (redirection.direction, Arg::from(word)) {
            (_, Arg::Unknown(why)) => {
                let reason = format!("which file it opens is known only when it runs ({why})");
                let opinion = BuiltinVerdict::miss(RuleId::GuardedRedirection, reason, Risk::Medium).never();
                self.push(frame, opinion.part("a redirection".to_owned()));
            }
            (RedirectionMode::Read, file) => {
                self.opens = RedirectInput::File;
                self.path(frame, file, PathIntent::Read);
            }
            (RedirectionMode::Write | RedirectionMode::ReadWrite, file) => self.written(frame, file),
        }
    }

    /// To open `/dev/stdout` is to open again what the descriptor stands for, and `1<file` makes that a file: it would
    /// be emptied and written although it was opened to be read.
    pub(super) fn reopened(&mut self) {
        let device =
            |part: &&mut JudgementPart| part.rule == RuleId::PathDevice && part.aspect == PartKind::Write;
        let null =
            |part: &JudgementPart| part.path.as_ref().is_some_and(|path| path.as_slice() == b"/dev/null");
        if self.opens == RedirectInput::Nothing {
            return;
        }
        for part in self.parts.iter_mut().filter(device).filter(|part| !null(part)) {
            *part = reopening(std::mem::take(&mut part.subject)).at_depth(part.depth);
        }
    }

    /// A file that a redirection writes: where it may be written, a person is asked.
    fn written(&mut self, frame: &CommandContext, file: Arg<'_>) {
        let at = self.parts.len();
        self.path(frame, file, PathIntent::Write);
        for part in self
            .parts
            .iter_mut()
            .skip(at)
            .filter(|part| part.decision == Decision::Allow && part.rule != RuleId::PathDevice)
        {
            let asked = JudgementPart::new(
                PartKind::Write,
                std::mem::take(&mut part.subject),
                RuleId::GuardedRedirection,
            )
            .because("a redirection writes it")
            .ask(Risk::Medium, "say yes to this one, or write it with a file tool");
            let path = part.path.take();
            *part = JudgementPart { path, ..asked.at_depth(part.depth) };
        }
    }
}

/// Builtins after which the commands of a shell get other variables, another input, or are others.
const CHANGING: &[&[u8]] = &[
    b".",
    b"source",
    b"eval",
    b"trap",
    b"export",
    b"readonly",
    b"declare",
    b"typeset",
    b"local",
    b"unset",
    b"read",
    b"let",
    b"mapfile",
    b"readarray",
    b"getopts",
    b"alias",
    b"unalias",
    b"hash",
    b"enable",
    b"autoload",
    b"zmodload",
    b"functions",
    b"emulate",
    b"setopt",
    b"unsetopt",
    b"vared",
    b"integer",
    b"float",
];

/// Whether what the commands of a script are given may differ because of this one. Errs on the side of yes: the word may
/// stand behind `command` or `builtin`.
fn changes_the_given(simple: &SimpleCommand) -> bool {
    let has = |wanted: &dyn Fn(&[u8]) -> bool| {
        simple.words.iter().any(|word| matches!(word, ShellWord::Literal(text) if wanted(text)))
    };
    let redirects = !simple.redirections.is_empty() && has(&|text| text == b"exec");
    let prints = has(&|text| text == b"printf") && has(&|text| text.starts_with(b"-v"));
    !simple.assignments.is_empty() || redirects || prints || has(&|text| CHANGING.contains(&text))
}

fn reopening(subject: String) -> JudgementPart {
    JudgementPart::new(PartKind::Write, subject, RuleId::GuardedRedirection)
        .because("it may stand for a file that another redirection opened")
        .ask(Risk::Medium, "say yes to this one, or write `>&1` or `>&2`")
}
