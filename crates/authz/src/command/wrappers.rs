//! Programs that run another command. The wrapper is judged for itself, the command inside for itself; the stricter
//! decides.

use ringfence_types::{ByteString, Risk, RuleFamily, RuleId};

use super::arg::Arg;
use super::builtin_verdict::BuiltinVerdict;
use super::options::{OperandSpec, OptionEffect, OptionMatch, ParsedArgs, ProgramSpec, read};
use super::rules::CommandLine;
use super::unknown_program::unknown_argument;
use super::variables::Change;
use super::working_dirs::WorkingDirs;
use super::{CommandContext, CommandEvaluator, ProgramLookup, RuntimeVariables};
use crate::env::family_of;
use crate::judgement::PartGiven;
use crate::paths::PathIntent;

#[derive(Debug)]
pub(super) struct Wrapper {
    /// Separated by blanks.
    pub(super) names: &'static str,
    pub(super) program: ProgramSpec,
    pub(super) inner: InnerCommandStart,
    pub(super) manner: WrapperEffect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrapperEffect {
    /// It only runs what follows.
    Transparent,
    Asks(Risk, &'static str),
}

/// Where the command inside begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InnerCommandStart {
    /// At the first operand.
    Rest,
    /// After this many operands.
    After(usize),
    /// After a number.
    Number,
    /// After settings of variables.
    Environment,
    /// After the name of an architecture, if there is one.
    Architecture,
    /// At the first operand; more arguments come from the input.
    Appended,
    /// The first operand is the name of a part of the program itself.
    Applet,
    /// After the lock file, or in `-c`.
    Locked,
    /// In `-c`, as shell text.
    Body,
    BodyOrRest,
    /// All operands together are shell text.
    Joined,
}

const ARCHITECTURES: &[&str] = &[
    "linux32", "linux64", "i386", "i486", "i586", "i686", "athlon", "x86_64", "uname26", "ppc", "ppc32",
    "ppc64", "ppc64le", "s390", "s390x", "arm", "armv6l", "armv7l", "armv8l", "arm64", "aarch64", "riscv64",
    "sparc", "mips64",
];

impl CommandEvaluator<'_> {
    pub(super) fn wrapper(
        &mut self,
        frame: &CommandContext,
        line: &CommandLine<'_>,
        wrapper: &'static Wrapper,
    ) -> BuiltinVerdict {
        self.wrapped(frame, line.args, wrapper, line.identity.name)
    }

    fn wrapped(
        &mut self,
        frame: &CommandContext,
        args: &[Arg<'_>],
        wrapper: &'static Wrapper,
        name: &[u8],
    ) -> BuiltinVerdict {
        let reading = read(&wrapper.program, args);
        let rest = args.get(reading.rest..).unwrap_or_default();
        self.option_paths(frame, &reading);
        let own = match wrapper.manner {
            WrapperEffect::Transparent => BuiltinVerdict::allow(
                RuleId::GuardedWrapper,
                "it only runs what follows, which is judged for itself",
            ),
            WrapperEffect::Asks(risk, why) => {
                BuiltinVerdict::miss(RuleFamily::Wrapper.member(ByteString::from(name).display()), why, risk)
            }
        };
        let own = own.and_if(self.about_wrapper(wrapper, &reading, name));
        let run = match wrapper.inner {
            InnerCommandStart::Environment => self.environment(frame, args, &reading, wrapper),
            InnerCommandStart::Rest => self.run(frame, rest),
            InnerCommandStart::After(count) => self.run(frame, rest.get(count..).unwrap_or_default()),
            InnerCommandStart::Number => self.after_number(frame, rest),
            InnerCommandStart::Architecture => self.architecture(frame, rest, wrapper),
            InnerCommandStart::Appended => self.appended(frame, &reading, rest),
            InnerCommandStart::Applet => self.run_applet(frame, &reading, rest),
            InnerCommandStart::Locked => self.locked(frame, wrapper, &reading, rest),
            InnerCommandStart::Body => self.body(frame, wrapper, &reading),
            InnerCommandStart::BodyOrRest if reading.has(|effect| effect == OptionEffect::Body) => {
                self.body(frame, wrapper, &reading)
            }
            InnerCommandStart::BodyOrRest => self.body_after(frame, rest),
            InnerCommandStart::Joined => self.joined(frame, rest),
        };
        own.and_if(run)
    }

    /// As [`CommandEvaluator::about_options`], under the name it was called by.
    fn about_wrapper(
        &self,
        wrapper: &Wrapper,
        reading: &ParsedArgs<'_>,
        name: &[u8],
    ) -> Option<BuiltinVerdict> {
        let opinion = self.about_options(&wrapper.program, reading)?;
        if wrapper.program.name.is_empty() {
            let rule = RuleFamily::Option.member(ByteString::from(name).display());
            return Some(BuiltinVerdict { rule, ..opinion });
        }
        Some(opinion)
    }

    fn run(&mut self, frame: &CommandContext, rest: &[Arg<'_>]) -> Option<BuiltinVerdict> {
        if rest.is_empty() {
            return Some(BuiltinVerdict::miss(
                RuleId::GuardedUnlisted,
                "it runs nothing that could be judged",
                Risk::Medium,
            ));
        }
        self.command(&frame.inside(), rest, None);
        None
    }

    /// `timeout 5 ls`, `taskset 0x3 ls`. A wildcard there could be the number and the program at once, and newer versions
    /// of `chrt` need no number for some policies.
    fn after_number(&mut self, frame: &CommandContext, rest: &[Arg<'_>]) -> Option<BuiltinVerdict> {
        let number =
            |arg: &Arg<'_>| arg.text().is_some_and(|text| text.first().is_some_and(u8::is_ascii_digit));
        let odd = rest.first().filter(|first| !number(first)).map(|_| {
            BuiltinVerdict::miss(
                RuleId::GuardedWrapper,
                "where a number is expected there is none",
                Risk::Medium,
            )
            .never()
        });
        let run = self.run(frame, rest.get(1..).unwrap_or_default());
        odd.into_iter().chain(run).reduce(BuiltinVerdict::and)
    }

    /// `env A=1 ls`, `sudo A=1 ls`.
    fn environment(
        &mut self,
        frame: &CommandContext,
        args: &[Arg<'_>],
        reading: &ParsedArgs<'_>,
        wrapper: &'static Wrapper,
    ) -> Option<BuiltinVerdict> {
        let split = reading.hits.iter().position(|hit| hit.effect == OptionEffect::Body);
        // What follows `-S` is read again, behind its words.
        let hits = reading.hits.get(..split.unwrap_or(reading.hits.len())).unwrap_or_default();
        let inside = self.surrounded(frame, hits);
        if hits.iter().any(|hit| hit.effect == OptionEffect::Unset) {
            self.given = PartGiven::Other;
        }
        let unset = unsets(hits);
        if let Some(hit) = split.and_then(|at| reading.hits.get(at)) {
            let after = args.get(hit.next..).unwrap_or_default();
            return unset
                .into_iter()
                .chain(self.split(&inside, hit.value, after, wrapper))
                .reduce(BuiltinVerdict::and);
        }
        let rest = args.get(reading.rest..).unwrap_or_default();
        let (inside, rest) = match rest.split_first() {
            Some((dash, rest)) if dash.is("-") => {
                (CommandContext { surroundings: RuntimeVariables::Cleared, ..inside }, rest)
            }
            _ => (inside, rest),
        };
        let settings = rest.iter().take_while(|arg| arg.known_start().contains(&b'=')).count();
        for arg in rest.get(..settings).unwrap_or_default() {
            self.setting(frame, *arg);
        }
        let run = self.run(&inside, rest.get(settings..).unwrap_or_default());
        unset.into_iter().chain(run).reduce(BuiltinVerdict::and)
    }

    /// `env -C dir`, `env -i`.
    fn surrounded(&self, frame: &CommandContext, hits: &[OptionMatch<'_>]) -> CommandContext {
        let mut inside = frame.clone();
        for hit in hits {
            match (hit.effect, hit.value) {
                (OptionEffect::Enter, Some(Arg::Text(dir))) => {
                    inside.place = inside.place.entered(dir, self.scene.facts)
                }
                (OptionEffect::Enter, _) => inside.place = WorkingDirs::unknown(),
                (OptionEffect::Clear, _) => inside.surroundings = RuntimeVariables::Cleared,
                _ => {}
            }
        }
        inside
    }

    /// `env -S 'ls -l'`, where the text needs no more than cutting at blanks (GHSA-796m-2973-wc5q).
    fn split(
        &mut self,
        frame: &CommandContext,
        text: Option<Arg<'_>>,
        rest: &[Arg<'_>],
        wrapper: &'static Wrapper,
    ) -> Option<BuiltinVerdict> {
        let unclear = || {
            BuiltinVerdict::miss(
                RuleFamily::Option.member("env"),
                "option `-S` makes words of a text in its own way",
                Risk::High,
            )
            .never()
        };
        let plain = |text: &&[u8]| text.iter().all(|byte| is_plain(*byte));
        let Some(text) = text.and_then(Arg::text).filter(plain) else {
            return Some(unclear());
        };
        let words =
            text.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty()).map(Arg::Text);
        let args: Vec<Arg<'_>> = words.chain(rest.iter().copied()).collect();
        let mut inside = frame.clone();
        inside.wraps = inside.wraps.saturating_add(1);
        if inside.wraps > super::MAX_WRAPS {
            return Some(unclear());
        }
        Some(self.wrapped(&inside, &args, wrapper, b"env"))
    }

    fn architecture(
        &mut self,
        frame: &CommandContext,
        rest: &[Arg<'_>],
        wrapper: &'static Wrapper,
    ) -> Option<BuiltinVerdict> {
        let Some((first, after)) = rest.split_first() else { return self.run(frame, rest) };
        if !ARCHITECTURES.iter().any(|known| first.is(known)) {
            return self.run(frame, rest);
        }
        let reading = read(&wrapper.program, after);
        self.run(frame, after.get(reading.rest..).unwrap_or_default())
            .or(self.about_wrapper(wrapper, &reading, b"setarch"))
    }

    /// `xargs`: its input becomes arguments, so they are not known.
    fn appended(
        &mut self,
        frame: &CommandContext,
        reading: &ParsedArgs<'_>,
        rest: &[Arg<'_>],
    ) -> Option<BuiltinVerdict> {
        const WHY: &str = "xargs reads them from its input";
        if rest.is_empty() {
            return Some(unknown_argument(WHY));
        }
        let replaced = reading.hits.iter().rev().find(|hit| hit.effect == OptionEffect::Body);
        let mark = replaced.map(|hit| hit.value.and_then(Arg::text).unwrap_or(b"{}"));
        let known = rest.iter().map(|arg| mark.map_or(*arg, |mark| without(*arg, mark, WHY)));
        // Also with a mark: a later `-n` or `-L` makes it append again.
        let args: Vec<Arg<'_>> = known.chain([Arg::Unknown(WHY)]).collect();
        self.run(frame, &args)
    }

    fn run_applet(
        &mut self,
        frame: &CommandContext,
        reading: &ParsedArgs<'_>,
        rest: &[Arg<'_>],
    ) -> Option<BuiltinVerdict> {
        let named =
            reading.hits.iter().find(|hit| hit.effect == OptionEffect::Body).and_then(|hit| hit.value);
        let args: Vec<Arg<'_>> = named.into_iter().chain(rest.iter().copied()).collect();
        match args.first() {
            Some(Arg::Text(name)) if !name.contains(&b'/') => self.applet(&frame.inside(), &args),
            Some(_) => return Some(unknown_argument("the name of an applet")),
            None => {
                return Some(BuiltinVerdict::miss(
                    RuleId::GuardedUnlisted,
                    "it runs nothing that could be judged",
                    Risk::Low,
                ));
            }
        }
        None
    }

    fn locked(
        &mut self,
        frame: &CommandContext,
        wrapper: &Wrapper,
        reading: &ParsedArgs<'_>,
        rest: &[Arg<'_>],
    ) -> Option<BuiltinVerdict> {
        let (file, after) = rest.split_first()?;
        self.path(frame, *file, PathIntent::Write);
        match after.split_first() {
            _ if reading.has(|effect| effect == OptionEffect::Body) => self.body(frame, wrapper, reading),
            Some((option, [text, ..])) if option.is("-c") || option.is("--command") => {
                self.text_body(frame, *text)
            }
            Some(_) => self.run(frame, after),
            None => None,
        }
    }

    /// `su -c TEXT`, `script -c TEXT FILE`.
    fn body(
        &mut self,
        frame: &CommandContext,
        wrapper: &Wrapper,
        reading: &ParsedArgs<'_>,
    ) -> Option<BuiltinVerdict> {
        for operand in reading.operands.iter().filter(|_| wrapper.program.operands == OperandSpec::Write) {
            self.path(frame, operand.arg, PathIntent::Write);
        }
        let bodies =
            reading.hits.iter().filter(|hit| hit.effect == OptionEffect::Body).filter_map(|hit| hit.value);
        bodies.fold(None, |opinion, text| {
            opinion.into_iter().chain(self.text_body(frame, text)).reduce(BuiltinVerdict::and)
        })
    }

    /// `runuser USER -c TEXT`, `runuser -u USER COMMAND`.
    fn body_after(&mut self, frame: &CommandContext, rest: &[Arg<'_>]) -> Option<BuiltinVerdict> {
        match rest {
            [_, option, text, ..] if option.is("-c") || option.is("--command") => {
                self.text_body(frame, *text)
            }
            _ => self.run(frame, rest),
        }
    }

    fn text_body(&mut self, frame: &CommandContext, text: Arg<'_>) -> Option<BuiltinVerdict> {
        match text {
            Arg::Text(text) => {
                self.script(&CommandContext { voice: ProgramLookup::Script, ..frame.inside() }, text)
            }
            Arg::Glob { .. } | Arg::Home(_) | Arg::Unknown(_) => {
                return Some(unknown_argument("the text that a shell runs"));
            }
        };
        None
    }

    fn joined(&mut self, frame: &CommandContext, rest: &[Arg<'_>]) -> Option<BuiltinVerdict> {
        let words: Option<Vec<&[u8]>> = rest
            .iter()
            .take_while(|arg| !arg.known_start().starts_with(b":::"))
            .map(|arg| arg.text())
            .collect();
        match words {
            Some(words) => self.text_body(frame, Arg::Text(&words.join(&b' '))),
            None => Some(unknown_argument("the text that a shell runs")),
        }
    }

    /// `NAME=VALUE` as an argument.
    pub(super) fn setting(&mut self, frame: &CommandContext, arg: Arg<'_>) {
        let start = arg.known_start();
        let at = start.iter().position(|byte| *byte == b'=');
        let name = start.get(..at.unwrap_or(start.len())).unwrap_or(start);
        let value = arg.text().and_then(|text| text.get(at?.saturating_add(1)..));
        self.variable(frame, Change::Given(name.strip_suffix(b"+").unwrap_or(name), value));
    }
}

/// `env -u NAME` of something that steers other programs.
fn unsets(hits: &[OptionMatch<'_>]) -> Option<BuiltinVerdict> {
    let steering = |name: &[u8]| family_of(&ByteString::from(name)).is_some();
    let unset = hits.iter().filter(|hit| hit.effect == OptionEffect::Unset);
    unset.filter_map(|hit| hit.value).find(|value| value.text().is_none_or(steering)).map(|_| {
        BuiltinVerdict::miss(
            RuleFamily::Option.member("env"),
            "option `-u` takes away a variable that steers other programs",
            Risk::Medium,
        )
        .exact()
    })
}

/// `{}` in an argument makes it unknown.
fn without<'a>(arg: Arg<'a>, mark: &[u8], why: &'static str) -> Arg<'a> {
    let holds = |text: &[u8]| mark.is_empty() || text.windows(mark.len()).any(|part| part == mark);
    match arg {
        Arg::Text(text) if !holds(text) => arg,
        Arg::Text(_) | Arg::Glob { .. } | Arg::Home(_) | Arg::Unknown(_) => Arg::Unknown(why),
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b' ' | b'\t' | b'_' | b'-' | b'.' | b'/' | b'=' | b':' | b',' | b'+')
}
