//! Shells. A body that can be read is judged command by command; everything else is on the hard list (S001-21).

use ringfence_types::Risk;

use super::arg::Arg;
use super::names::Dialect;
use super::opinion::Opinion;
use super::{Frame, Judge, Voice};
use crate::paths::Intent;
use crate::shell::Input;

/// Single-letter options that change neither what the text means nor what else is read. A login shell reads start-up files
/// of the home inside the fence, which nothing listed can write; agents ask for one all the time.
///
/// Not `r`: a restricted shell stays where it is at `cd`. Not `b`, which ends the options of zsh, so that a `-c` after it is
/// the name of a script. Not `B`, `H`, `P` and `T`, which mean something else in zsh (with `T`, `cd` takes the name of a
/// variable).
const LETTERS: &[u8] = b"aefhlmnpuvxCE";
const LONG: &[&str] =
    &["--norc", "--noprofile", "--login", "--posix", "--verbose", "--noediting", "--no-rcs", "--errexit"];
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
    "allexport",
    "monitor",
    "notify",
    "physical",
];

impl Judge<'_> {
    pub(super) fn shell(&mut self, frame: &Frame, args: &[Arg<'_>], dialect: Dialect) -> Opinion {
        if let Some(opinion) = self.no_shell() {
            return opinion;
        }
        let call = ShellCall::read(args);
        let unclear = call.unclear.map(|option| {
            let reason = format!("option `{}` is not known to be harmless", super::arg::shorten(option));
            Opinion::miss("option.shell", reason, Risk::High).exact()
        });
        let opinion = match (call.source, dialect) {
            (Source::Text(Arg::Text(text)), Dialect::Posix) => self.shell_text(frame, text),
            (Source::File(file), _) if !matches!(file, Arg::Unknown(_)) => self.shell_file(frame, file),
            (Source::Nothing, _) => Opinion::miss("guarded.unlisted", "it is not on the list", Risk::Medium),
            (Source::Input, _) => self.closed_shell(frame, "it runs whatever its input says"),
            (Source::Text(_) | Source::File(_), _) => {
                self.closed_shell(frame, "what it would run cannot be judged")
            }
        };
        opinion.and_if(unclear)
    }

    fn shell_text(&mut self, frame: &Frame, text: &[u8]) -> Opinion {
        let at = self.parts.len();
        self.script(&Frame { voice: Voice::Script, ..frame.inside() }, text);
        if self.parts.len() == at {
            return Opinion::miss("guarded.unlisted", "there is nothing to judge in its text", Risk::Low);
        }
        Opinion::allow("guarded.shell-body", "its text is judged command by command")
    }

    /// Only a rule that names the script opens it.
    fn shell_file(&mut self, frame: &Frame, file: Arg<'_>) -> Opinion {
        self.path(frame, file, Intent::Read);
        self.deny_listed("shell", "what the script does is not known", Risk::High)
            .coverable()
            .named()
            .fix("allow the shell with this script in a policy file of the operator (`[[command]]`, `allow`)")
    }

    fn closed_shell(&self, frame: &Frame, why: &'static str) -> Opinion {
        let risk = if frame.input == Input::Inherited { Risk::High } else { Risk::Critical };
        let opinion = self.deny_listed("shell", why, risk);
        if self.scene.policy.danger.allow_denylisted_commands { opinion.exact() } else { opinion }
    }
}

/// Where a shell takes its commands from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source<'a> {
    Text(Arg<'a>),
    File(Arg<'a>),
    Input,
    /// It only says something about itself.
    Nothing,
}

struct ShellCall<'a> {
    source: Source<'a>,
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
            (_, ShellOptions { tells: true, .. }) => Source::Nothing,
            (Some(text), ShellOptions { text: true, .. }) => Source::Text(text),
            (Some(file), ShellOptions { input: false, .. }) => Source::File(file),
            _ => Source::Input,
        };
        Self { source, unclear: options.unclear }
    }
}

#[derive(Clone, Copy, Default)]
struct ShellOptions<'a> {
    text: bool,
    input: bool,
    tells: bool,
    unclear: Option<&'a [u8]>,
}

impl<'a> ShellOptions<'a> {
    /// How many arguments more it takes.
    fn long(&mut self, text: &'a [u8]) -> usize {
        match text {
            b"--version" | b"--help" => self.tells = true,
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
