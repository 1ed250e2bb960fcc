//! Shells. A body that can be read is judged command by command; everything else is on the hard list (S001-21).

use ringfence_types::{ByteString, Risk, RuleFamily, RuleId};

use super::arg::Arg;
use super::builtin_verdict::BuiltinVerdict;
use super::program_class::ShellSupport;
use super::program_origin::family;
use super::rules::CommandLine;
use super::{CommandContext, CommandEvaluator, ProgramLookup};
use crate::paths::PathIntent;
use ringfence_shell::CommandInput;

/// Single-letter options that change neither what the text means nor what else is read.
///
/// Not `a`: it gives to every program what the text sets for itself alone. Not `r`: a restricted shell stays where it is at `cd`. Not `b`, which ends the options of zsh, so that a `-c` after it is
/// the name of a script. Not `B`, `H`, `P` and `T`, which mean something else in zsh (with `T`, `cd` takes the name of a
/// variable).
const LETTERS: &[u8] = b"efhmnpuvxCE";
const LONG: &[&str] =
    &["--norc", "--noprofile", "--posix", "--verbose", "--noediting", "--no-rcs", "--errexit"];
const NAMED: &[&str] = &[
    "errexit",
    "nounset",
    "pipefail",
    "xtrace",
    "verbose",
    "noglob",
    "noexec",
    "noclobber",
    "errtrace",
    "functrace",
    "posix",
    "monitor",
    "notify",
    "physical",
];

impl CommandEvaluator<'_> {
    pub(super) fn shell(
        &mut self,
        frame: &CommandContext,
        line: &CommandLine<'_>,
        dialect: ShellSupport,
    ) -> BuiltinVerdict {
        let args = line.args;
        if let Some(opinion) = self.no_shell() {
            return opinion;
        }
        let call = ShellCall::read(args);
        let unclear = call.unclear.map(|option| {
            let reason = format!("option `{}` is not known to be harmless", super::arg::shorten(option));
            BuiltinVerdict::miss(RuleFamily::Option.member("shell"), reason, Risk::High).exact()
        });
        let starts = match (call.source, call.start) {
            (ScriptSource::Nothing, _) => None,
            (_, Start::Login) => self.start_files(),
            (_, Start::Plain) => reads_a_start_file(line).then(|| self.start_files()).flatten(),
        };
        let opinion = match (call.source, dialect) {
            (ScriptSource::Text(Arg::Text(text)), ShellSupport::Posix) => self.shell_text(frame, text),
            (ScriptSource::File(file), _) if !matches!(file, Arg::Unknown(_)) => self.shell_file(frame, file),
            (ScriptSource::Nothing, _) => {
                BuiltinVerdict::miss(RuleId::GuardedUnlisted, "it is not on the list", Risk::Medium)
            }
            (ScriptSource::Input, _) => self.closed_shell(frame, "it runs whatever its input says"),
            (ScriptSource::Text(_) | ScriptSource::File(_), _) => {
                self.closed_shell(frame, "what it would run cannot be judged")
            }
        };
        opinion.and_if(unclear).and_if(starts)
    }

    /// Agents ask for login shells all the time, so that one is a question only where its home has something to run: what an
    /// earlier command left there.
    fn start_files(&self) -> Option<BuiltinVerdict> {
        let file = self.scene.facts.start_file().filter(|_| self.is_listed())?;
        let reason = format!(
            "a shell that starts so runs `{}`, which a command can have written",
            ByteString::from(file).display()
        );
        let fix = "say yes to this one, leave the option out (`sh -c`), or remove the file";
        Some(BuiltinVerdict::miss(RuleId::GuardedStartFile, reason, Risk::High).never().fix(fix))
    }

    fn shell_text(&mut self, frame: &CommandContext, text: &[u8]) -> BuiltinVerdict {
        let at = self.parts.len();
        self.script(&CommandContext { voice: ProgramLookup::Script, ..frame.inside() }, text);
        if self.parts.len() == at {
            return BuiltinVerdict::miss(
                RuleId::GuardedUnlisted,
                "there is nothing to judge in its text",
                Risk::Low,
            );
        }
        BuiltinVerdict::allow(RuleId::GuardedShellBody, "its text is judged command by command")
    }

    /// Only a rule that names the script opens it.
    fn shell_file(&mut self, frame: &CommandContext, file: Arg<'_>) -> BuiltinVerdict {
        self.path(frame, file, PathIntent::Read);
        self.deny_listed("shell", "what the script does is not known", Risk::High)
            .coverable()
            .named()
            .fix("allow the shell with this script in a policy file of the operator (`[[command]]`, `allow`)")
    }

    fn closed_shell(&self, frame: &CommandContext, why: &'static str) -> BuiltinVerdict {
        let risk = if frame.input == CommandInput::Inherited { Risk::High } else { Risk::Critical };
        let opinion = self.deny_listed("shell", why, risk);
        if self.scene.policy.danger.allow_denylisted_commands { opinion.exact() } else { opinion }
    }
}

/// zsh reads `~/.zshenv` however it is started, and a shell whose name begins with `-` is one of a login.
fn reads_a_start_file(line: &CommandLine<'_>) -> bool {
    let zsh = |name: &[u8]| family(name).ends_with(b"zsh");
    zsh(line.identity.name)
        || line.identity.other_name().is_some_and(zsh)
        || line.identity.name.starts_with(b"-")
}

/// Where a shell takes its commands from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScriptSource<'a> {
    Text(Arg<'a>),
    File(Arg<'a>),
    Input,
    /// It only says something about itself.
    Nothing,
}

/// Whether a shell is told to read the files of a login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Start {
    #[default]
    Plain,
    Login,
}

struct ShellCall<'a> {
    source: ScriptSource<'a>,
    start: Start,
    unclear: Option<&'a [u8]>,
}

impl<'a> ShellCall<'a> {
    fn read(args: &[Arg<'a>]) -> Self {
        let mut options = ShellOptions::default();
        let mut at = 0;
        while let Some(Arg::Text(text)) = args.get(at).copied() {
            at += 1;
            match text {
                b"-" | b"--" => break,
                [b'-', b'-', ..] => at += options.long(text),
                [b'-' | b'+', letters @ ..] if !letters.is_empty() => {
                    at += options.letters(text, letters, args.get(at..).unwrap_or_default());
                }
                _ => {
                    at -= 1;
                    break;
                }
            }
        }
        let operand = args.get(at).copied();
        let source = match (operand, options) {
            (_, ShellOptions { tells: true, .. }) => ScriptSource::Nothing,
            // With both `-c` and `-s` dash runs the text, and then its input.
            (_, ShellOptions { text: true, input: true, .. }) => ScriptSource::Input,
            (Some(text), ShellOptions { text: true, .. }) => ScriptSource::Text(text),
            (Some(file), ShellOptions { input: false, .. }) => ScriptSource::File(file),
            _ => ScriptSource::Input,
        };
        Self { source, start: options.start, unclear: options.unclear }
    }
}

#[derive(Clone, Copy, Default)]
struct ShellOptions<'a> {
    text: bool,
    input: bool,
    tells: bool,
    start: Start,
    unclear: Option<&'a [u8]>,
}

impl<'a> ShellOptions<'a> {
    /// How many arguments more it takes.
    fn long(&mut self, text: &'a [u8]) -> usize {
        match text {
            b"--version" | b"--help" => self.tells = true,
            b"--login" => self.start = Start::Login,
            b"--rcfile" | b"--init-file" => {
                self.unclear.get_or_insert(text);
                return 1;
            }
            _ if LONG.iter().any(|known| known.as_bytes() == text) => {}
            _ => {
                self.unclear.get_or_insert(text);
            }
        }
        0
    }

    fn letters(&mut self, text: &'a [u8], letters: &'a [u8], rest: &[Arg<'a>]) -> usize {
        let mut taken = 0;
        for letter in letters {
            match letter {
                b'c' if text.starts_with(b"-") => self.text = true,
                b's' => self.input = true,
                b'l' => self.start = Start::Login,
                b'o' | b'O' => {
                    let name = rest.get(taken).and_then(|name| name.text());
                    taken += 1;
                    let known = *letter == b'o'
                        && name.is_some_and(|name| NAMED.iter().any(|k| k.as_bytes() == name));
                    if !known {
                        self.unclear.get_or_insert(text);
                    }
                }
                _ if LETTERS.contains(letter) => {}
                _ => {
                    self.unclear.get_or_insert(text);
                }
            }
        }
        taken
    }
}
