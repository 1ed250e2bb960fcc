//! Commands that a shell has itself. They exist only in shell text: as an argument vector, `cd` is no program.

use ringfence_types::{Risk, RuleId};

use super::arg::Arg;
use super::builtin_verdict::BuiltinVerdict;
use super::programs::could_be_option;
use super::rules::CommandLine;
use super::unknown_program::{dynamic, unknown_argument};
use super::variables::Change;
use super::working_dirs::WorkingDirs;
use super::{CommandContext, CommandEvaluator, ProgramLookup, RuntimeVariables};
use crate::paths::PathIntent;

/// What the reader of shell text calls `$?`.
const STATUS: &str = "an exit status";

/// Not `T`: with it `cd` of zsh takes the name of a variable.
const LETTERS: &[u8] = b"euxvfnCEbhm";
const NAMED: &[&str] = &[
    "errexit",
    "nounset",
    "xtrace",
    "verbose",
    "noglob",
    "noexec",
    "noclobber",
    "pipefail",
    "errtrace",
    "functrace",
];
const SHOPTS: &[&str] = &["nullglob", "failglob", "globstar", "inherit_errexit"];

impl CommandEvaluator<'_> {
    /// The opinion about a builtin; `None` where a program of that name is meant.
    pub(super) fn builtin(
        &mut self,
        frame: &CommandContext,
        line: &CommandLine<'_>,
    ) -> Option<BuiltinVerdict> {
        let args = line.args;
        Some(match line.called {
            b":" => harmless(),
            b"wait" => wait(args),
            b"exit" | b"return" | b"break" | b"continue" | b"shift" | b"times" | b"true" | b"false" => {
                course(args)
            }
            b"cd" => self.cd(frame, args),
            b"chdir" | b"pushd" => self.maybe_cd(frame, args),
            b"popd" => {
                self.moved = Some(WorkingDirs::unknown());
                steering("where it leads is known only when it runs")
            }
            b"export" => self.settings(frame, args),
            b"readonly" | b"declare" | b"typeset" | b"local" => {
                self.settings(frame, args).and(steering("it changes how a variable behaves"))
            }
            b"unset" => self.names(frame, args, b"v"),
            b"read" => self.read_names(frame, args).and(steering("what it reads is known only when it runs")),
            b"set" => set_options(args),
            b"shopt" => shell_options(args),
            b"eval" => self.eval(frame, args),
            b"trap" => self.trap(frame, args),
            b"." | b"source" => self.source(frame, args),
            b"exec" => self.exec(frame, args),
            b"command" => self.command_builtin(frame, args),
            b"builtin" | b"time" | b"noglob" | b"nocorrect" | b"-" | b"!" => self.again(frame, args),
            b"coproc" => self.again(frame, args).and(steering("it runs in the background")),
            b"[[" => self.tests(frame, args),
            b"test" | b"[" => self.tests(frame, args).and_if(wild(args)),
            b"printf" if args.first().is_some_and(|first| first.known_start().starts_with(b"-v")) => {
                self.printf_variable(frame, args)
            }
            // They give names a new meaning, load code or change how text is read.
            b"alias" | b"unalias" | b"hash" | b"enable" | b"bind" | b"complete" | b"compgen" | b"compopt"
            | b"fc" | b"ulimit" | b"umask" | b"let" | b"mapfile" | b"readarray" | b"disown" | b"bg"
            | b"fg" | b"caller" | b"logout" | b"history" | b"jobs" | b"dirs" | b"suspend" | b"autoload"
            | b"zmodload" | b"functions" | b"zle" | b"emulate" | b"setopt" | b"unsetopt" | b"getopts" => {
                steering("it changes how the shell reads or runs commands")
            }
            _ => return None,
        })
    }

    fn cd(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        let Some(dir) = directory(args) else {
            self.moved = Some(WorkingDirs::unknown());
            let unknown = || {
                BuiltinVerdict::miss(
                    RuleId::GuardedCd,
                    "where it leads is known only when it runs",
                    Risk::Medium,
                )
            };
            return dynamic(args).unwrap_or_else(|| unknown().never());
        };
        self.path(frame, dir, PathIntent::List);
        self.moved = Some(match dir {
            Arg::Text(dir) => frame.place.entered(dir, self.scene.facts),
            Arg::Glob { .. } | Arg::Home(_) | Arg::Unknown(_) => WorkingDirs::unknown(),
        });
        BuiltinVerdict::allow(RuleId::GuardedCd, "where it leads is judged for itself")
    }

    /// Not in every shell, and not always to where it says.
    fn maybe_cd(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        let opinion = if args.is_empty() { harmless() } else { self.cd(frame, args) };
        self.moved = Some(WorkingDirs::unknown());
        opinion.and(steering("not every shell has it"))
    }

    /// `export A=1 B`, `declare -x A`.
    fn settings(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        let mut opinion = if args.is_empty() { steering("it shows every variable") } else { harmless() };
        for arg in args {
            if matches!(arg.known_start().first(), Some(b'-' | b'+')) {
                // Functions, names that stand for others, numbers that are computed.
                opinion = opinion.and(steering("an option of it makes more of a name than a variable"));
                continue;
            }
            match arg {
                Arg::Unknown(why) => opinion = opinion.and(unknown_argument(why)),
                // zsh evaluates an index in a name, and a file may be called `a[$(…)]`.
                Arg::Glob { prefix, .. } if !prefix.contains(&b'=') => {
                    opinion = opinion.and(unknown_argument("the name of a variable"));
                }
                Arg::Text(_) | Arg::Glob { .. } | Arg::Home(_) => self.setting(frame, *arg),
            }
        }
        opinion
    }

    /// Names of variables after single-letter options.
    fn names(&mut self, frame: &CommandContext, args: &[Arg<'_>], letters: &[u8]) -> BuiltinVerdict {
        let mut opinion = harmless();
        for arg in args {
            match arg.text() {
                Some([b'-', options @ ..]) if options.iter().all(|letter| letters.contains(letter)) => {}
                Some(name) => self.variable(frame, Change::Own(name)),
                None => opinion = opinion.and(unknown_argument("the name of a variable")),
            }
        }
        opinion
    }

    fn read_names(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        let mut rest = args;
        while let Some((first, after)) = rest.split_first() {
            let Some([b'-', letters @ ..]) = first.text() else { break };
            let takes = letters.iter().position(|letter| b"adinNptu".contains(letter));
            // `-a NAME` sets a variable, too.
            let named = takes.is_some_and(|at| letters.get(at) == Some(&b'a'));
            rest = match takes {
                Some(at) if at + 1 == letters.len() && !named => after.get(1..).unwrap_or_default(),
                _ => after,
            };
        }
        self.names(frame, rest, b"")
    }

    fn eval(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        let Some(words) = args.iter().map(|arg| arg.text()).collect::<Option<Vec<_>>>() else {
            self.moved = Some(WorkingDirs::unknown());
            return unknown_argument("the text that `eval` runs");
        };
        let place = self
            .script(&CommandContext { voice: ProgramLookup::Script, ..frame.inside() }, &words.join(&b' '));
        self.moved = (place != frame.place).then_some(place);
        steering("it runs a text that was read before")
    }

    fn trap(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        let rest = if args.first().is_some_and(|first| first.is("--")) { args.get(1..) } else { Some(args) };
        match rest.unwrap_or_default() {
            [] => harmless(),
            [first, ..] if first.is("-") || first.is("") || first.is("-l") || first.is("-p") => harmless(),
            // A lone signal sets its default.
            [Arg::Text(_)] => harmless(),
            [Arg::Text(text), ..] => {
                self.script(&CommandContext { voice: ProgramLookup::Script, ..frame.inside() }, text);
                steering("it runs a text later")
            }
            _ => unknown_argument("the text that `trap` runs"),
        }
    }

    fn source(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        self.moved = Some(WorkingDirs::unknown());
        if let Some(file) = args.first() {
            self.path(frame, *file, PathIntent::Read);
        }
        let opinion =
            BuiltinVerdict::miss(RuleId::GuardedShellFile, "what the script does is not known", Risk::High)
                .named();
        opinion.and_if(dynamic(args))
    }

    fn exec(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        let mut inside = frame.inside();
        let mut rest = args;
        let mut own = BuiltinVerdict::allow(
            RuleId::GuardedWrapper,
            "it only runs what follows, which is judged for itself",
        );
        while let Some((first, after)) = rest.split_first() {
            let Some([b'-', letters @ ..]) = first.text() else { break };
            rest = after;
            let name = letters.iter().position(|letter| *letter == b'a');
            if letters.contains(&b'c') {
                inside.surroundings = RuntimeVariables::Cleared;
            }
            if let Some(at) = name {
                // busybox is whatever it is called.
                own = own.and(steering("an option of it calls the program by another name"));
                let glued = at + 1 < letters.len();
                rest = after.get(usize::from(!glued)..).unwrap_or_default();
            }
        }
        if rest.is_empty() {
            return steering("it changes what the shell itself reads and writes");
        }
        self.command(&inside, rest, None);
        own
    }

    fn command_builtin(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        let looks =
            |arg: &Arg<'_>| arg.text().is_some_and(|text| matches!(text, b"-v" | b"-V" | b"-pv" | b"-pV"));
        let skipped = args.iter().take_while(|arg| arg.is("-p")).count();
        match args.get(skipped..).unwrap_or_default() {
            [first, rest @ ..] if looks(first) => harmless().and_if(dynamic(rest)),
            rest => self.again(frame, rest),
        }
    }

    /// What follows is a command of the same shell.
    fn again(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        let rest = match args.split_first() {
            Some((first, rest)) if first.is("-p") || first.is("--") => rest,
            _ => args,
        };
        if rest.is_empty() {
            return steering("it runs nothing that could be judged");
        }
        self.command(&CommandContext { voice: ProgramLookup::Script, ..frame.inside() }, rest, None);
        // dash has no `builtin`, and `command cd` is a program in zsh: there the shell stays where it is.
        self.moved = self.moved.take().map(|there| there.or(frame.place.clone()));
        BuiltinVerdict::allow(RuleId::GuardedWrapper, "it only runs what follows, which is judged for itself")
    }

    /// `[ -f x ]`: asks about files, opens none.
    pub(super) fn tests(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        const ABOUT_FILES: &[u8] = b"abcdefghkprsuwxGLNOS";
        for pair in args.windows(2) {
            let [test, operand] = pair else { continue };
            match test.text() {
                Some([b'-', letter]) if ABOUT_FILES.contains(letter) && !operand.is("]") => {
                    self.path(frame, *operand, PathIntent::List);
                }
                Some(b"-nt" | b"-ot" | b"-ef") => self.path(frame, *operand, PathIntent::List),
                _ if operand.is("-nt") || operand.is("-ot") || operand.is("-ef") => {
                    self.path(frame, *test, PathIntent::List);
                }
                _ => {}
            }
        }
        // bash evaluates a subscript, and what it computes with.
        let computes = |text: &[u8]| {
            text.iter().any(|byte| matches!(byte, b'$' | b'`')) || text.contains(&b'[') && text.len() > 2
        };
        let odd = args.iter().filter_map(|arg| arg.text()).any(computes);
        let base = BuiltinVerdict::allow(RuleId::GuardedTest, "it only asks about files and texts");
        base.and_if(dynamic(args)).and_if(odd.then(|| steering("an operand of it could be computed")))
    }

    fn printf_variable(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        let name = match args {
            [Arg::Text(b"-v"), name, ..] => name.text(),
            [Arg::Text(glued), ..] => glued.get(2..),
            _ => None,
        };
        match name {
            Some(name) => self.variable(frame, Change::Own(name)),
            None => return unknown_argument("the name of a variable"),
        }
        harmless().and_if(dynamic(args))
    }
}

/// The directory that `cd` is given, where it is given one: not home, not the last one, not what a variable says.
fn directory<'a>(args: &[Arg<'a>]) -> Option<Arg<'a>> {
    let flag = |arg: &&Arg<'_>| {
        arg.text().is_some_and(|text| matches!(text, b"-L" | b"-P" | b"--" | b"-LP" | b"-PL"))
    };
    let skipped = args.iter().take_while(flag).count();
    match args.get(skipped..).unwrap_or_default() {
        [] => Some(Arg::Home(b"")),
        [Arg::Text(text)] if text.starts_with(b"-") || text.starts_with(b"+") || text.is_empty() => None,
        [dir @ (Arg::Text(_) | Arg::Home(_))] => Some(*dir),
        _ => None,
    }
}

/// `wait`, `wait -n`, `wait %1`. With another option it sets a variable.
fn wait(args: &[Arg<'_>]) -> BuiltinVerdict {
    let plain = |arg: &Arg<'_>| match arg.text() {
        Some(b"-n" | b"-f") => true,
        Some([b'%', job @ ..] | job) => job.iter().all(u8::is_ascii_digit),
        None => false,
    };
    if args.iter().all(plain) { harmless() } else { steering("an option of it sets a variable") }
}

/// `exit 1`, `return $?`. zsh computes with what it is given.
fn course(args: &[Arg<'_>]) -> BuiltinVerdict {
    let plain = |arg: &Arg<'_>| match arg {
        Arg::Text(text) => text.iter().all(u8::is_ascii_alphanumeric),
        Arg::Unknown(why) => *why == STATUS,
        Arg::Glob { .. } | Arg::Home(_) => false,
    };
    if args.iter().all(plain) { harmless() } else { steering("what it is given could be computed") }
}

fn set_options(args: &[Arg<'_>]) -> BuiltinVerdict {
    if args.is_empty() {
        return steering("it shows every variable");
    }
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        at += 1;
        match arg.text() {
            Some(b"--") => return harmless(),
            Some([b'-' | b'+', letters @ ..]) => {
                let (plain, named) =
                    letters.split_at(letters.len() - usize::from(letters.last() == Some(&b'o')));
                let known = |name: &&Arg<'_>| NAMED.iter().any(|known| name.is(known));
                let fine = plain.iter().all(|letter| LETTERS.contains(letter));
                if !fine || !named.is_empty() && args.get(at).filter(known).is_none() {
                    return steering("an option of it changes how the shell reads commands");
                }
                at += usize::from(!named.is_empty());
            }
            _ => {
                let first = args.get(at - 1..at).and_then(wild);
                return dynamic(args).or(first).unwrap_or_else(harmless);
            }
        }
    }
    harmless()
}

/// A wildcard that could expand to an option or an operator: `[ * ]` with a file called `-v` evaluates the next name.
fn wild(args: &[Arg<'_>]) -> Option<BuiltinVerdict> {
    args.iter().find_map(|arg| match arg {
        Arg::Glob { prefix, pattern } if prefix.first().is_none_or(|first| matches!(first, b'-' | b'+')) => {
            Some(could_be_option(pattern))
        }
        _ => None,
    })
}

fn shell_options(args: &[Arg<'_>]) -> BuiltinVerdict {
    let known = |arg: &Arg<'_>| {
        arg.text().is_some_and(|text| {
            matches!(text, b"-s" | b"-u" | b"-q" | b"-p") || SHOPTS.iter().any(|name| name.as_bytes() == text)
        })
    };
    if args.iter().all(known) {
        harmless()
    } else {
        steering("an option of it changes how the shell reads commands")
    }
}

fn harmless() -> BuiltinVerdict {
    BuiltinVerdict::allow(RuleId::GuardedBuiltin, "it changes the shell's own course and nothing else")
}

fn steering(why: &'static str) -> BuiltinVerdict {
    BuiltinVerdict::miss(RuleId::GuardedBuiltin, why, Risk::Medium).exact()
}
