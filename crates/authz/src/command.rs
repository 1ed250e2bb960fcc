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
mod builtins;
mod catalogue;
mod find;
mod git;
mod git_content;
mod identity;
mod names;
mod offline;
mod operands;
mod opinion;
mod options;
mod place;
mod plain;
mod programs;
mod rules;
mod script;
mod sed;
mod shells;
mod variables;
mod walk;
mod wildcard;
mod wrappers;

use std::collections::HashMap;
use std::path::PathBuf;

use ringfence_types::{CommandMode, Decision, Exec, Risk};

use crate::judgement::{Aspect, Part};
use crate::scene::Scene;
use crate::shell::Input;
use arg::{Arg, literal, shown};
use identity::{Identity, Trust, applet, identify};
use names::{Class, class_of};
use opinion::Opinion;
use place::Place;
use rules::{Found, Line, Standpoint};

#[cfg(test)]
pub(crate) use names::known as known_programs;
pub use rules::{
    CommandPattern, CommandRule, CommandRules, Given, Manifest, ManifestCommand, ManifestError, PatternError,
    Restriction,
};

/// How many wrappers and shell bodies are opened. What is wrapped deeper is not looked at, and so not allowed.
const MAX_WRAPS: u8 = 8;
/// How many commands of one call are judged.
const MAX_COMMANDS: u32 = 4_000;
/// How many arguments of one command are read as options and paths.
const MAX_ARGS: usize = 4_096;

/// Judges a command given as arguments, with everything it would run in turn and the variables that are set for it: one
/// that comes with the call counts as if a shell had set it before the command.
pub(crate) fn judge_exec(scene: &Scene<'_>, exec: &Exec) -> Vec<Part> {
    let args: Vec<Arg<'_>> = exec.argv.iter().map(Arg::from).collect();
    let mut judge = Judge::new(scene);
    let frame = Frame::new(scene);
    judge.command(&frame, &args, None);
    exec.env.iter().for_each(|(name, _)| judge.variable(&frame, name.as_slice()));
    judge.reopened();
    judge.parts
}

struct Judge<'a> {
    scene: &'a Scene<'a>,
    parts: Vec<Part>,
    /// How many more commands are judged.
    left: u32,
    /// Where the command that was judged last moved its shell to.
    moved: Option<Place>,
    opens: Opens,
    /// What a repository makes git run, by directory: a script may ask a thousand times.
    repositories: HashMap<PathBuf, Option<String>>,
    /// Tracked files that must not be read, by directory; `None`: it cannot be told.
    tracked: HashMap<PathBuf, Option<Vec<PathBuf>>>,
}

/// What redirections opened for reading so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opens {
    Nothing,
    File,
}

/// Where and how a command would run.
#[derive(Clone)]
struct Frame {
    /// How deep it is wrapped, for people.
    depth: u8,
    /// How many wrappers and shell bodies were opened on the way.
    wraps: u8,
    place: Place,
    voice: Voice,
    input: Input,
    surroundings: Surroundings,
}

/// Who finds the program: the kernel, or a shell that has commands of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Voice {
    Argv,
    Script,
}

/// Whether the variables that the runtime sets are still there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Surroundings {
    Kept,
    Cleared,
}

impl Frame {
    fn new(scene: &Scene<'_>) -> Self {
        let place = Place::at(scene.cwd);
        let (voice, input, surroundings) = (Voice::Argv, Input::Inherited, Surroundings::Kept);
        Self { depth: 0, wraps: 0, place, voice, input, surroundings }
    }

    /// What a wrapper runs: the kernel finds it.
    fn inside(&self) -> Self {
        Self {
            depth: self.depth.saturating_add(1),
            wraps: self.wraps.saturating_add(1),
            voice: Voice::Argv,
            ..self.clone()
        }
    }
}

impl<'a> Judge<'a> {
    fn new(scene: &'a Scene<'a>) -> Self {
        Self {
            scene,
            parts: Vec::new(),
            left: MAX_COMMANDS,
            moved: None,
            opens: Opens::Nothing,
            repositories: HashMap::new(),
            tracked: HashMap::new(),
        }
    }

    fn is_listed(&self) -> bool {
        self.scene.policy.commands == CommandMode::Listed
    }

    /// Judges one command line; `text` is how it was written, where it was.
    fn command(&mut self, frame: &Frame, args: &[Arg<'_>], text: Option<&str>) {
        let Some(first) = args.first() else { return };
        let cwd = frame.place.likely();
        let identity =
            first.text().filter(|name| !name.is_empty()).map(|name| identify(self.scene, cwd, name));
        self.line(frame, args, identity, text);
    }

    /// Judges `applet` of a program that is many: `busybox ls -l`.
    fn applet(&mut self, frame: &Frame, args: &[Arg<'_>]) {
        let identity = args.first().and_then(|first| first.text()).map(applet);
        self.line(frame, args, identity, None);
    }

    fn line(&mut self, frame: &Frame, args: &[Arg<'_>], identity: Option<Identity<'_>>, text: Option<&str>) {
        let Some((first, rest)) = args.split_first() else { return };
        let at = self.parts.len();
        let subject = text.map_or_else(|| shown(args), |text| arg::shorten(text.as_bytes()));
        let part = match (identity, self.left.checked_sub(1)) {
            (_, None) => self.limited("it contains more commands than are judged").part(subject),
            _ if frame.wraps > MAX_WRAPS => self.limited("it is wrapped deeper than is judged").part(subject),
            (None, _) => self.builtin_only(unknown_program(*first)).part(subject),
            (Some(identity), Some(left)) => {
                self.left = left;
                let line = Line { identity, called: first.text().unwrap_or_default(), args: rest };
                let opinion = self.opinion(frame, &line);
                let at = Standpoint {
                    place: &frame.place,
                    workspace: self.scene.workspace(),
                    exec: self.scene.exec,
                };
                let found = self.scene.policy.rules.commands.find(&line, &at);
                let part = self.decided(opinion, found).part(subject);
                Part { program: line.identity.file, ..part }
            }
        };
        self.parts.insert(at, Part { argv: literal(args), ..part }.at_depth(frame.depth));
    }

    fn limited(&self, why: &'static str) -> Opinion {
        self.builtin_only(Opinion::miss("guarded.too-much", why, Risk::High).never())
    }

    /// Outside the list the fence alone decides.
    fn builtin_only(&self, opinion: Opinion) -> Opinion {
        if self.is_listed() { opinion } else { self.contained() }
    }

    fn contained(&self) -> Opinion {
        let rule = format!("profile.{}", self.scene.policy.profile);
        Opinion::allow(rule, "whatever stays inside the fence may run")
    }

    /// The rules of policy files over the built-in opinion: deny before ask before allow.
    fn decided<'r>(&self, opinion: Opinion, mut found: Found<'r>) -> Decided<'r> {
        let opinion = self.builtin_only(opinion);
        if opinion.is_final() {
            return Decided::BuiltIn(opinion);
        }
        if let Some(ruling) = found.denied().or_else(|| found.asked()) {
            return Decided::Rule(ruling);
        }
        match found.allowed(|pattern| opinion.is_covered_by(pattern)) {
            Some(allowed) if opinion.decision > Decision::Allow => Decided::Rule(allowed),
            _ => Decided::BuiltIn(opinion),
        }
    }

    fn opinion(&mut self, frame: &Frame, line: &Line<'_>) -> Opinion {
        if line.args.len() > MAX_ARGS {
            return match class_of(line.identity.name) {
                Class::Network => offline::network_tool(self.scene.policy),
                Class::Deletion => self.deny_listed("deletion", "it deletes files", Risk::High),
                _ => Opinion::miss("guarded.too-much", "it has more arguments than are judged", Risk::High)
                    .never(),
            };
        }
        if frame.voice == Voice::Script
            && !line.called.contains(&b'/')
            && let Some(opinion) = self.builtin(frame, line)
        {
            return opinion;
        }
        if let Trust::Doubtful(why) = line.identity.trust {
            self.plain_paths(frame, line.args);
            return Opinion::miss("guarded.untrusted-program", why, Risk::High).by_path();
        }
        let own = self.by_name(frame, line, line.identity.name);
        match line.identity.other_name() {
            Some(other) if !is_same_kind(line.identity.name, other) => {
                own.and(self.by_name(frame, line, other))
            }
            _ => own,
        }
    }

    fn by_name(&mut self, frame: &Frame, line: &Line<'_>, name: &[u8]) -> Opinion {
        match class_of(name) {
            Class::Catalogued(program) => self.catalogued(frame, line, program),
            Class::Git => self.git(frame, line.args),
            Class::GitPart => self.git_part(frame, line, name),
            Class::Find => self.find(frame, line.args),
            Class::Test => self.tests(frame, line.args),
            Class::Shell(dialect) => self.shell(frame, line.args, dialect),
            Class::Wrapper(wrapper) => self.wrapper(frame, line, wrapper),
            Class::Network => offline::network_tool(self.scene.policy),
            Class::Deletion => self.deny_listed("deletion", "it deletes files", Risk::High),
            Class::Interpreter(code) => self.interpreter(frame, line, code),
            Class::Runner => self.runner(frame, line),
            Class::Rsync => self.rsync(frame, line),
            Class::Other(risk, what) => self.plain(frame, line, risk, what),
        }
    }

    /// The hard list of document 001, unless `--allow-denylisted-commands` lifts it (S001-9, S001-21).
    fn deny_listed(&self, name: &'static str, why: &'static str, risk: Risk) -> Opinion {
        if self.scene.policy.danger.allow_denylisted_commands {
            return Opinion::miss(format!("deny-list.{name}"), why, risk);
        }
        let fix = "nothing in a policy file: only `--danger --allow-denylisted-commands` at startup lifts the deny list";
        Opinion::deny(format!("deny-list.{name}"), why, risk).fix(fix)
    }

    fn push(&mut self, frame: &Frame, part: Part) {
        self.parts.push(part.at_depth(frame.depth));
    }
}

/// Who decided about one command.
enum Decided<'r> {
    BuiltIn(Opinion),
    Rule(rules::Ruling<'r>),
}

impl Decided<'_> {
    fn part(self, subject: String) -> Part {
        match self {
            Self::BuiltIn(opinion) => opinion.part(subject),
            Self::Rule(ruling) => ruling.part(Part::new(Aspect::Command, subject, "")),
        }
    }
}

fn unknown_program(first: Arg<'_>) -> Opinion {
    let why = match first {
        Arg::Unknown(why) => format!("which program runs is known only when it runs ({why})"),
        Arg::Text(_) => "the name of the program is empty".to_owned(),
        Arg::Glob { .. } => "which program runs depends on the names of files".to_owned(),
        Arg::Home(_) => "the program lies in the home directory".to_owned(),
    };
    Opinion::miss("guarded.dynamic", why, Risk::High).never()
}

/// `sh` that is `dash`, `python` that is `python3.11`: the same by another name.
fn is_same_kind(called: &[u8], real: &[u8]) -> bool {
    identity::family(called) == identity::family(real) || class_of(called).is_like(&class_of(real))
}

#[cfg(test)]
mod tests;
