//! `find`: an expression that can run, write and delete.

use ringfence_types::{Risk, RuleFamily, RuleId};

use super::arg::Arg;
use super::builtin_verdict::BuiltinVerdict;
use super::unknown_program::{dynamic, unknown_argument};
use super::{CommandContext, CommandEvaluator, network_tools};
use crate::paths::PathIntent;

const TEXT: &str = "-name -iname -path -ipath -wholename -iwholename -regex -iregex -type -xtype -size -perm -user -group \
    -uid -gid -mtime -atime -ctime -mmin -amin -cmin -links -inum -fstype -lname -ilname -used -regextype -maxdepth \
    -mindepth -printf -newermt -newerat -newerct -context";
const FILES: &str = "-newer -anewer -cnewer -samefile";
const FLAGS: &str = "-print -print0 -ls -prune -quit -empty -true -false -readable -writable -executable -nouser -nogroup \
    -depth -d -mount -xdev -daystart -follow -noleaf -nowarn -warn -ignore_readdir_race -noignore_readdir_race -not -and \
    -or -a -o ! ( ) , -H -L -P -O0 -O1 -O2 -O3 --help --version";

impl CommandEvaluator<'_> {
    pub(super) fn find(&mut self, frame: &CommandContext, args: &[Arg<'_>]) -> BuiltinVerdict {
        let unlisted = BuiltinVerdict::miss(RuleId::GuardedUnlisted, "it is not on the list", Risk::Medium);
        let paths = args.iter().take_while(|arg| !starts_expression(**arg));
        let mut at = paths.map(|arg| self.path(frame, *arg, PathIntent::List)).count();
        let mut opinion = unlisted.and_if(dynamic(args)).and_if(network_tools::url(self.scene.policy, args));
        while let Some(arg) = args.get(at) {
            let (found, taken) = self.primary(frame, *arg, args.get(at + 1..).unwrap_or_default());
            opinion = opinion.and_if(found);
            at += 1 + taken;
        }
        opinion
    }

    /// One element of the expression, and how many arguments it takes.
    fn primary(
        &mut self,
        frame: &CommandContext,
        arg: Arg<'_>,
        rest: &[Arg<'_>],
    ) -> (Option<BuiltinVerdict>, usize) {
        let Some(word) = arg.text() else {
            // After the first option every further word is a path or an error.
            self.path(frame, arg, PathIntent::List);
            return (Some(unclear(arg)), 0);
        };
        match word {
            b"-delete" => (Some(self.deny_listed("deletion", "`-delete` deletes files", Risk::Critical)), 0),
            b"-exec" | b"-execdir" | b"-ok" | b"-okdir" => self.find_exec(frame, word, rest),
            b"-fprint" | b"-fprint0" | b"-fls" => self.find_write(frame, word, rest, 1),
            b"-fprintf" => self.find_write(frame, word, rest, 2),
            _ if has(TEXT, word) => (None, 1),
            _ if has(FLAGS, word) => (None, 0),
            _ if has(FILES, word) => {
                if let Some(file) = rest.first() {
                    self.path(frame, *file, PathIntent::List);
                }
                (None, 1)
            }
            _ if starts_expression(arg) => (Some(unclear(arg)), 0),
            _ => {
                self.path(frame, arg, PathIntent::List);
                (Some(unclear(arg)), 0)
            }
        }
    }

    fn find_exec(
        &mut self,
        frame: &CommandContext,
        word: &[u8],
        rest: &[Arg<'_>],
    ) -> (Option<BuiltinVerdict>, usize) {
        const WHY: &str = "a file that find found";
        let end = rest.iter().position(|arg| arg.is(";") || arg.is("+")).unwrap_or(rest.len());
        let holds = |text: &[u8]| text.windows(2).any(|part| part == b"{}");
        let inner: Vec<Arg<'_>> = rest
            .iter()
            .take(end)
            .map(|arg| if arg.text().is_some_and(holds) { Arg::Unknown(WHY) } else { *arg })
            .collect();
        let mut inside = frame.inside();
        if word.ends_with(b"dir") {
            inside.place = super::working_dirs::WorkingDirs::unknown();
        }
        self.command(&inside, &inner, None);
        let opinion = BuiltinVerdict::miss(
            RuleFamily::Option.member("find"),
            format!("`{}` runs a command", shown(word)),
            Risk::High,
        );
        (Some(opinion.for_option(word)), (end + 1).min(rest.len()))
    }

    fn find_write(
        &mut self,
        frame: &CommandContext,
        word: &[u8],
        rest: &[Arg<'_>],
        taken: usize,
    ) -> (Option<BuiltinVerdict>, usize) {
        if let Some(file) = rest.first() {
            self.path(frame, *file, PathIntent::Write);
        }
        let opinion = BuiltinVerdict::miss(
            RuleFamily::Option.member("find"),
            format!("`{}` writes a file", shown(word)),
            Risk::Medium,
        );
        (Some(opinion.for_option(word)), taken)
    }
}

/// Whether an element of an expression runs, writes or deletes.
pub(super) fn acts(word: &[u8]) -> bool {
    has("-delete -exec -execdir -ok -okdir -fprint -fprint0 -fls -fprintf -files0-from", word)
}

fn starts_expression(arg: Arg<'_>) -> bool {
    match arg {
        Arg::Text(text) => matches!(text, [b'-', ..] | b"(" | b")" | b"!" | b","),
        Arg::Glob { prefix, .. } => prefix.is_empty() || prefix.starts_with(b"-"),
        Arg::Unknown(_) => true,
        Arg::Home(_) => false,
    }
}

fn unclear(arg: Arg<'_>) -> BuiltinVerdict {
    match arg {
        Arg::Unknown(why) => unknown_argument(why),
        Arg::Glob { pattern, .. } => {
            let reason = format!("`{}` could expand to a part of the expression", shown(pattern));
            BuiltinVerdict::miss(RuleId::GuardedWildcard, reason, Risk::Medium).never()
        }
        Arg::Text(text) | Arg::Home(text) => {
            let reason = format!("`{}` is not known to be harmless", shown(text));
            BuiltinVerdict::miss(RuleFamily::Option.member("find"), reason, Risk::Medium).for_option(text)
        }
    }
}

fn shown(text: &[u8]) -> String {
    super::arg::shorten(text)
}

fn has(list: &str, word: &[u8]) -> bool {
    list.split_ascii_whitespace().any(|known| known.as_bytes() == word)
}
