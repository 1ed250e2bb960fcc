//! One command against the lists, the rules and what is known about its options.
//!
//! Every simple command gets a part: what it is called, what wraps it and what it would run in turn are judged one by
//! one, and the strictest part decides. "Allow" here means "no question"; the fence around it is the same (C-1).
//!
//! INVARIANT: what is not understood is never allowed where commands are `listed`: an option that no table describes, a
//! word that is known only when it runs, a program that lies where it could have been written, a wrapper too many.
//!
//! What the attacker controls here: every byte of the command and of the workspace. Recursion is bounded by
//! [`MAX_WRAPS`], work by [`MAX_COMMANDS`] and [`MAX_ARGS`].

mod arg;
mod builtin_verdict;
mod builtins;
mod catalogue;
mod cd_tracking;
mod find;
mod git;
mod git_content;
mod linked_names;
mod network_tools;
mod operands;
mod options;
mod program_class;
mod program_origin;
mod programs;
mod rules;
mod script;
mod sed;
mod shells;
mod unknown_program;
mod variables;
mod wildcard;
mod working_dirs;
mod wrappers;

use std::collections::HashMap;
use std::path::PathBuf;

use ringfence_types::{CommandMode, Decision, ExecCall, Risk, RuleFamily, RuleId};

use crate::eval_context::EvalContext;
use crate::judgement::{JudgementPart, PartGiven};
use arg::{Arg, literal, shown};
use builtin_verdict::BuiltinVerdict;
use program_class::{ProgramClass, class_of};
use program_origin::{ProgramOrigin, ProgramTrust, applet, identify};
use ringfence_shell::CommandInput;
use rules::{CommandLine, RuleMatches, Standpoint};
use variables::Change;
use working_dirs::WorkingDirs;

pub use program_class::known as known_programs;
pub use rules::{
    CommandPattern, CommandPatternError, CommandRule, CommandRules, Manifest, ManifestCommand, ManifestError,
    Restriction, RuleConditions, SessionTermError, SessionTerms,
};

/// How many wrappers and shell bodies are opened. What is wrapped deeper is not looked at, and so not allowed.
const MAX_WRAPS: u8 = 8;
/// How many commands of one call are judged.
const MAX_COMMANDS: u32 = 4_000;
/// How many arguments of one command are read as options and paths.
const MAX_ARGS: usize = 4_096;

/// Judges a command given as arguments, with everything it would run in turn and the variables that are set for it: one
/// that comes with the call counts as if a shell had set it before the command.
pub(crate) fn judge_exec(scene: &EvalContext<'_>, exec: &ExecCall) -> Vec<JudgementPart> {
    let args: Vec<Arg<'_>> = exec.argv.iter().map(Arg::from).collect();
    let mut judge = CommandEvaluator::new(scene);
    let frame = CommandContext::new(scene);
    judge.command(&frame, &args, None);
    for (name, value) in &exec.env {
        judge.variable(&frame, Change::Given(name.as_slice(), Some(value.as_slice())));
    }
    judge.reopened();
    judge.parts
}

struct CommandEvaluator<'a> {
    scene: &'a EvalContext<'a>,
    parts: Vec<JudgementPart>,
    /// How many more commands are judged.
    left: u32,
    /// Where the command that was judged last moved its shell to.
    moved: Option<WorkingDirs>,
    opens: RedirectInput,
    /// Whether a script or a wrapper has changed what the commands after it are given.
    given: PartGiven,
    /// What a repository makes git run, by directory: a script may ask a thousand times.
    repositories: HashMap<PathBuf, Option<String>>,
    /// Tracked files that must not be read, by directory; `None`: it cannot be told.
    tracked: HashMap<PathBuf, Option<Vec<PathBuf>>>,
}

/// What redirections opened for reading so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RedirectInput {
    Nothing,
    File,
}

/// Where and how a command would run.
#[derive(Clone)]
struct CommandContext {
    /// How deep it is wrapped, for people.
    depth: u8,
    /// How many wrappers and shell bodies were opened on the way.
    wraps: u8,
    place: WorkingDirs,
    voice: ProgramLookup,
    input: CommandInput,
    surroundings: RuntimeVariables,
}

/// Who finds the program: the kernel, or a shell that has commands of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramLookup {
    Argv,
    Script,
}

/// Whether the variables that the runtime sets are still there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RuntimeVariables {
    Kept,
    Cleared,
}

impl CommandContext {
    fn new(scene: &EvalContext<'_>) -> Self {
        let place = WorkingDirs::at(scene.cwd);
        let (voice, input, surroundings) =
            (ProgramLookup::Argv, CommandInput::Inherited, RuntimeVariables::Kept);
        Self { depth: 0, wraps: 0, place, voice, input, surroundings }
    }

    /// What a wrapper runs: the kernel finds it.
    fn inside(&self) -> Self {
        Self {
            depth: self.depth.saturating_add(1),
            wraps: self.wraps.saturating_add(1),
            voice: ProgramLookup::Argv,
            ..self.clone()
        }
    }
}

impl<'a> CommandEvaluator<'a> {
    fn new(scene: &'a EvalContext<'a>) -> Self {
        Self {
            scene,
            parts: Vec::new(),
            left: MAX_COMMANDS,
            moved: None,
            opens: RedirectInput::Nothing,
            given: PartGiven::OfCall,
            repositories: HashMap::new(),
            tracked: HashMap::new(),
        }
    }

    fn is_listed(&self) -> bool {
        self.scene.policy.commands == CommandMode::Listed
    }

    /// Judges one command line; `text` is how it was written, where it was.
    fn command(&mut self, frame: &CommandContext, args: &[Arg<'_>], text: Option<&str>) {
        let Some(first) = args.first() else { return };
        let name = first.text().filter(|name| !name.is_empty());
        let identity = name.map(|name| identify(self.scene, &frame.place, name));
        self.line(frame, args, identity, text);
    }

    /// Judges `applet` of a program that is many: `busybox ls -l`.
    fn applet(&mut self, frame: &CommandContext, args: &[Arg<'_>]) {
        let identity = args.first().and_then(|first| first.text()).map(applet);
        self.line(frame, args, identity, None);
    }

    fn line(
        &mut self,
        frame: &CommandContext,
        args: &[Arg<'_>],
        identity: Option<ProgramOrigin<'_>>,
        text: Option<&str>,
    ) {
        let Some((first, rest)) = args.split_first() else { return };
        let at = self.parts.len();
        let subject = text.map_or_else(|| shown(args), |text| arg::shorten(text.as_bytes()));
        let part = match (identity, self.left.checked_sub(1)) {
            (_, None) => self.limited("it contains more commands than are judged").part(subject),
            _ if frame.wraps > MAX_WRAPS => self.limited("it is wrapped deeper than is judged").part(subject),
            (None, _) => self.builtin_only(unknown_program(*first)).part(subject),
            (Some(identity), Some(left)) => {
                self.left = left;
                let line = CommandLine { identity, called: first.text().unwrap_or_default(), args: rest };
                let given = self.given_to(frame);
                let opinion = self.opinion(frame, &line);
                let exec = self.scene.exec.filter(|_| given == PartGiven::OfCall);
                let (workspace, scene) = (self.scene.workspace(), Some(self.scene));
                let at = Standpoint { place: &frame.place, workspace, exec, scene };
                let found = self.scene.policy.rules.commands.find(&line, &at);
                let part = self.decided(opinion, found).part(subject);
                JudgementPart { program: line.identity.file, given, ..part }
            }
        };
        self.parts.insert(at, JudgementPart { argv: literal(args), ..part }.at_depth(frame.depth));
    }

    fn given_to(&self, frame: &CommandContext) -> PartGiven {
        let is_same = frame.input == CommandInput::Inherited && frame.surroundings == RuntimeVariables::Kept;
        if is_same { self.given } else { PartGiven::Other }
    }

    fn limited(&self, why: &'static str) -> BuiltinVerdict {
        self.builtin_only(BuiltinVerdict::miss(RuleId::GuardedTooMuch, why, Risk::High).never())
    }

    /// Outside the list the fence alone decides.
    fn builtin_only(&self, opinion: BuiltinVerdict) -> BuiltinVerdict {
        if self.is_listed() { opinion } else { self.contained() }
    }

    fn contained(&self) -> BuiltinVerdict {
        let rule = RuleId::of_profile(self.scene.policy.profile);
        BuiltinVerdict::allow(rule, "whatever stays inside the fence may run")
    }

    /// The rules of policy files over the built-in opinion: deny before ask before allow.
    fn decided<'r>(&self, opinion: BuiltinVerdict, mut found: RuleMatches<'r>) -> CommandDecider<'r> {
        let opinion = self.builtin_only(opinion);
        if opinion.is_final() {
            return CommandDecider::BuiltIn(opinion);
        }
        if let Some(ruling) = found.denied().or_else(|| found.asked()) {
            return CommandDecider::Rule(ruling);
        }
        match found.allowed(|pattern| opinion.is_covered_by(pattern)) {
            Some(allowed) if opinion.decision > Decision::Allow => CommandDecider::Rule(allowed),
            _ => CommandDecider::BuiltIn(opinion),
        }
    }

    fn opinion(&mut self, frame: &CommandContext, line: &CommandLine<'_>) -> BuiltinVerdict {
        if line.args.len() > MAX_ARGS {
            return match class_of(line.identity.name) {
                ProgramClass::Network => network_tools::network_tool(self.scene.policy),
                ProgramClass::Deletion => self.deny_listed("deletion", "it deletes files", Risk::High),
                _ => BuiltinVerdict::miss(
                    RuleId::GuardedTooMuch,
                    "it has more arguments than are judged",
                    Risk::High,
                )
                .never(),
            };
        }
        if frame.voice == ProgramLookup::Script
            && !line.called.contains(&b'/')
            && let Some(opinion) = self.builtin(frame, line)
        {
            return opinion;
        }
        if let Some(opinion) = untrusted(line.identity.trust) {
            self.plain_paths(frame, line.args);
            return opinion;
        }
        let own = self.by_name(frame, line, line.identity.name);
        match line.identity.other_name() {
            Some(other) if !is_same_kind(line.identity.name, other) => {
                own.and(self.by_name(frame, line, other))
            }
            _ => own,
        }
    }

    fn by_name(&mut self, frame: &CommandContext, line: &CommandLine<'_>, name: &[u8]) -> BuiltinVerdict {
        match class_of(name) {
            ProgramClass::Catalogued(program) => self.catalogued(frame, line, program),
            ProgramClass::Git => self.git(frame, line.args),
            ProgramClass::GitPart => self.git_part(frame, line, name),
            ProgramClass::Find => self.find(frame, line.args),
            ProgramClass::Test => self.tests(frame, line.args),
            ProgramClass::Shell(dialect) => self.shell(frame, line, dialect),
            ProgramClass::Wrapper(wrapper) => self.wrapper(frame, line, wrapper),
            ProgramClass::Network => network_tools::network_tool(self.scene.policy),
            ProgramClass::Deletion => self.deny_listed("deletion", "it deletes files", Risk::High),
            ProgramClass::Interpreter(code) => self.interpreter(frame, line, code),
            ProgramClass::Runner => self.runner(frame, line),
            ProgramClass::Rsync => self.rsync(frame, line),
            ProgramClass::Other(risk, what) => self.plain(frame, line, risk, what),
        }
    }

    /// The hard list of document 001, unless `--allow-denylisted-commands` lifts it (S001-9, S001-21).
    fn deny_listed(&self, name: &'static str, why: &'static str, risk: Risk) -> BuiltinVerdict {
        if self.scene.policy.danger.allow_denylisted_commands {
            return BuiltinVerdict::miss(RuleFamily::DenyList.member(name), why, risk);
        }
        let fix = "nothing in a policy file: only `--danger --allow-denylisted-commands` at startup lifts the deny list";
        BuiltinVerdict::deny(RuleFamily::DenyList.member(name), why, risk).fix(fix)
    }

    fn push(&mut self, frame: &CommandContext, part: JudgementPart) {
        self.parts.push(part.at_depth(frame.depth));
    }
}

/// Who decided about one command.
enum CommandDecider<'r> {
    BuiltIn(BuiltinVerdict),
    Rule(rules::CommandRuling<'r>),
}

impl CommandDecider<'_> {
    fn part(self, subject: String) -> JudgementPart {
        match self {
            Self::BuiltIn(opinion) => opinion.part(subject),
            Self::Rule(ruling) => ruling.part(subject),
        }
    }
}

fn unknown_program(first: Arg<'_>) -> BuiltinVerdict {
    let why = match first {
        Arg::Unknown(why) => format!("which program runs is known only when it runs ({why})"),
        Arg::Text(_) => "the name of the program is empty".to_owned(),
        Arg::Glob { .. } => "which program runs depends on the names of files".to_owned(),
        Arg::Home(_) => "the program lies in the home directory".to_owned(),
    };
    BuiltinVerdict::miss(RuleId::GuardedDynamic, why, Risk::High).never()
}

fn untrusted(trust: ProgramTrust) -> Option<BuiltinVerdict> {
    let miss = |why| BuiltinVerdict::miss(RuleId::GuardedUntrustedProgram, why, Risk::High);
    match trust {
        ProgramTrust::System | ProgramTrust::Missing => None,
        ProgramTrust::Doubtful(why) => Some(miss(why).by_path()),
        ProgramTrust::Climbing => {
            let why = "its path has `..` in it, so it need not be what it is called";
            Some(miss(why).never().fix("name the program without `..`, or say yes to this one"))
        }
    }
}

/// `sh` that is `dash`, `python` that is `python3.11`: the same by another name.
fn is_same_kind(called: &[u8], real: &[u8]) -> bool {
    program_origin::family(called) == program_origin::family(real)
        || class_of(called).is_like(&class_of(real))
}

#[cfg(test)]
mod tests;
