//! Programs whose options are described, and programs that carry code.

use ringfence_types::{Bytes, Risk};

use super::arg::Arg;
use super::catalogue::steered;
use super::names::{Class, class_of};
use super::opinion::Opinion;
use super::options::{Effect, Hit, Operand, Operands, Program, Reading, Side, Standing, read};
use super::plain::unknown_argument;
use super::rules::Line;
use super::{Frame, Judge, find, git, offline, sed};
use crate::paths::Intent;
use crate::shell::Input;

/// Document 001 allows exactly this (S001-20).
const LIST_SNIPPET: &[u8] = b"import os; print('\\n'.join(sorted(os.listdir('.'))))";

impl Judge<'_> {
    pub(super) fn catalogued(
        &mut self,
        frame: &Frame,
        line: &Line<'_>,
        program: &'static Program,
    ) -> Opinion {
        let reading = read(program, line.args);
        self.judge_reading(frame, program, &reading).and_if(steered(line))
    }

    /// The opinion about arguments that were read; the paths among them become parts.
    pub(super) fn judge_reading(
        &mut self,
        frame: &Frame,
        program: &Program,
        reading: &Reading<'_>,
    ) -> Opinion {
        self.option_paths(frame, reading);
        self.operand_paths(frame, program, reading);
        let standing = match program.standing {
            Standing::Listed => {
                Opinion::allow(format!("guarded.{}", program.name), "on the list, and nothing in it acts")
            }
            Standing::Unlisted => Opinion::miss("guarded.unlisted", "it is not on the list", program.risk),
        };
        standing.and_if(self.about_options(program, reading)).and_if(self.remote_words(program, reading))
    }

    pub(super) fn option_paths(&mut self, frame: &Frame, reading: &Reading<'_>) {
        for hit in &reading.hits {
            let Some(value) = hit.value else { continue };
            match hit.effect {
                Effect::Read | Effect::PatternFile => self.input_path(frame, value),
                Effect::ReadLines => self.path(frame, after_colon(value), Intent::Read),
                Effect::Enter => self.path(frame, value, Intent::List),
                Effect::Write => self.path(frame, value, Intent::Write),
                _ => {}
            }
        }
    }

    fn operand_paths(&mut self, frame: &Frame, program: &Program, reading: &Reading<'_>) {
        let written = reading.has(|effect| effect == Effect::WriteOperands);
        let patterned =
            reading.has(|effect| matches!(effect, Effect::Pattern | Effect::PatternFile | Effect::Sed));
        let last = reading.operands.len().saturating_sub(1);
        for (index, operand) in reading.operands.iter().enumerate() {
            let first = index == 0 && !patterned;
            match program.operands {
                // The shell lists a directory to expand it, whatever becomes of the names.
                Operands::Text => self.listed_by_shell(frame, operand.arg),
                Operands::PatternThenRead | Operands::PatternThenRevisions | Operands::SedThenRead
                    if first =>
                {
                    // The first name it expands to is the pattern; the others are read.
                    if matches!(operand.arg, Arg::Glob { .. }) {
                        self.path(frame, operand.arg, Intent::Read);
                    }
                }
                _ if written => self.path(frame, operand.arg, Intent::Write),
                Operands::Read | Operands::PatternThenRead | Operands::SedThenRead | Operands::Unclear => {
                    self.input_path(frame, operand.arg);
                }
                Operands::Plain => self.plain_paths(frame, &[operand.arg]),
                Operands::List => self.path(frame, operand.arg, Intent::List),
                Operands::Write => self.path(frame, operand.arg, Intent::Write),
                Operands::ReadOne if index == 0 => self.input_path(frame, operand.arg),
                Operands::ReadOne => self.path(frame, operand.arg, Intent::Write),
                Operands::ReadThenWrite if index == last => self.path(frame, operand.arg, Intent::Write),
                Operands::ReadThenWrite => self.input_path(frame, operand.arg),
                Operands::Revisions | Operands::PatternThenRevisions => {
                    self.revision(frame, *operand, Intent::Read)
                }
                Operands::Pathspecs => {
                    self.revision(frame, Operand { side: Side::AfterDashes, ..*operand }, Intent::List)
                }
                Operands::Pairs => self.pair(frame, operand.arg),
            }
        }
    }

    fn listed_by_shell(&mut self, frame: &Frame, arg: Arg<'_>) {
        if matches!(arg, Arg::Glob { .. }) {
            self.path(frame, arg, Intent::List);
        }
    }

    /// `if=FILE`, `of=FILE`.
    fn pair(&mut self, frame: &Frame, arg: Arg<'_>) {
        let Some(text) = arg.text() else { return };
        if let Some(file) = text.strip_prefix(b"of=") {
            self.path(frame, Arg::Text(file), Intent::Write);
        } else if let Some(file) = text.strip_prefix(b"if=") {
            self.path(frame, Arg::Text(file), Intent::Read);
        }
    }

    pub(super) fn about_options(&self, program: &Program, reading: &Reading<'_>) -> Option<Opinion> {
        let deletes = reading.has(|effect| effect == Effect::Delete);
        let denied =
            deletes.then(|| self.deny_listed("deletion", "an option of it deletes files", Risk::High));
        denied.into_iter().chain(about(program, reading)).reduce(Opinion::and)
    }

    /// URLs anywhere but in what is only text.
    fn remote_words(&self, program: &Program, reading: &Reading<'_>) -> Option<Opinion> {
        let text = matches!(program.operands, Operands::Text);
        let pattern = matches!(
            program.operands,
            Operands::PatternThenRead | Operands::PatternThenRevisions | Operands::SedThenRead
        );
        let given =
            reading.has(|effect| matches!(effect, Effect::Pattern | Effect::PatternFile | Effect::Sed));
        let skipped = if text { usize::MAX } else { usize::from(pattern && !given) };
        let operands = reading.operands.iter().skip(skipped).map(|operand| operand.arg);
        let values = reading
            .hits
            .iter()
            .filter(|hit| !matches!(hit.effect, Effect::Pattern | Effect::Format))
            .filter_map(|hit| hit.value);
        let unknown = reading.unknown.iter().copied().map(Arg::Text);
        let words: Vec<Arg<'_>> = operands.chain(values).chain(unknown).collect();
        offline::url(self.scene.policy, &words)
    }

    /// A language of its own: the code is not judged, so a rule about the bare name does not cover it (B-C29).
    pub(super) fn interpreter(&mut self, frame: &Frame, line: &Line<'_>, code: &'static str) -> Opinion {
        if is_list_snippet(line) {
            return Opinion::allow("guarded.python-list", "exactly the program that document 001 lists");
        }
        self.plain_paths(frame, line.args);
        let opinion = Opinion::miss("guarded.interpreter", "it runs code that is not judged", Risk::High);
        let opinion = with_code(opinion.clone(), &carried(frame.input, line.args, code)).unwrap_or(opinion);
        opinion.and_if(super::plain::dynamic(line.args)).and_if(offline::url(self.scene.policy, line.args))
    }

    /// `npx`, `uvx` …: which program runs is the first operand, so a rule must name it.
    pub(super) fn runner(&mut self, frame: &Frame, line: &Line<'_>) -> Opinion {
        self.plain(frame, line, Risk::High, "it fetches a program and runs it").named()
    }

    /// A remote place (`host:path`) makes it a network tool.
    pub(super) fn rsync(&mut self, frame: &Frame, line: &Line<'_>) -> Opinion {
        let remote = |text: &[u8]| {
            let slash = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
            !text.starts_with(b"-") && text.get(..slash).is_some_and(|host| host.contains(&b':'))
        };
        if line.args.iter().filter_map(|arg| arg.text()).any(remote) {
            return offline::network_tool(self.scene.policy);
        }
        let opinion = self.plain(frame, line, Risk::High, "it copies and deletes trees");
        let acts = |text: &&[u8]| {
            let long: &[&[u8]] = &[b"--rsh", b"--rsync-path", b"--del", b"--remove-source"];
            long.iter().any(|option| text.starts_with(option)) || text.starts_with(b"-e")
        };
        match line.args.iter().filter_map(|arg| arg.text()).find(acts) {
            Some(option) => opinion.for_option(option),
            None => opinion,
        }
    }
}

/// What in the arguments is more than its name says, wherever it runs.
pub(super) fn unusual(line: &Line<'_>) -> Option<Opinion> {
    let code = || Opinion::miss("guarded.interpreter", "it runs code that is not judged", Risk::High);
    match class_of(line.identity.name) {
        Class::Catalogued(program) => {
            about(program, &read(program, line.args)).into_iter().chain(steered(line)).reduce(Opinion::and)
        }
        Class::Git => git::unusual(line.args),
        Class::Interpreter(options) => with_code(code(), &carried(Input::Inherited, line.args, options)),
        Class::Shell(_) => Some(code().named()),
        Class::Runner => Some(code().named()),
        Class::Find => line
            .args
            .iter()
            .filter_map(|arg| arg.text())
            .find(|text| find::acts(text))
            .map(|text| code().for_option(text)),
        Class::Wrapper(_)
        | Class::GitPart
        | Class::Network
        | Class::Deletion
        | Class::Rsync
        | Class::Test => None,
        Class::Other(..) => steered(line),
    }
}

fn with_code(opinion: Opinion, carried: &Carried) -> Option<Opinion> {
    match carried {
        Carried::Option(option) => Some(opinion.for_option(option)),
        Carried::Operand | Carried::Input => Some(opinion.exact()),
        Carried::Script => None,
    }
}

/// What options and operands do beyond what the program is for.
pub(super) fn about(program: &Program, reading: &Reading<'_>) -> Option<Opinion> {
    let hits = reading.hits.iter().filter_map(|hit| about_hit(program, hit)).reduce(Opinion::and);
    let sed = (program.operands == Operands::SedThenRead).then(|| sed::judge(reading)).flatten();
    [hits, sed, unclear_operands(program, reading), unknown_option(program, reading), unknown_words(reading)]
        .into_iter()
        .flatten()
        .reduce(Opinion::and)
}

fn about_hit(program: &Program, hit: &Hit<'_>) -> Option<Opinion> {
    let says = hit.effect.says()?;
    let name = hit.name.bytes();
    let risk = if hit.effect == Effect::Execute { Risk::High } else { Risk::Medium };
    let reason = format!("option `{}` {says}", Bytes::from(name.as_slice()).display());
    Some(Opinion::miss(option_rule(program), reason, risk).for_option(&name))
}

enum Carried {
    /// In an option.
    Option(Vec<u8>),
    /// In the first operand.
    Operand,
    /// In its input.
    Input,
    /// In a file.
    Script,
}

fn carried(input: Input, args: &[Arg<'_>], code: &str) -> Carried {
    if code == "*" {
        return Carried::Operand;
    }
    for text in args.iter().filter_map(|arg| arg.text()) {
        if let Some(option) = code.split(' ').find(|option| carries(option.as_bytes(), text)) {
            return Carried::Option(option.as_bytes().to_vec());
        }
        if !text.starts_with(b"-") && !text.is_empty() {
            return Carried::Script;
        }
    }
    let script = args.iter().any(|arg| matches!(arg, Arg::Glob { .. } | Arg::Home(_)));
    if script && input == Input::Inherited { Carried::Script } else { Carried::Input }
}

/// `-c`, `-ccode`, `-Bc`; `--eval`, `--eval=code`, `--ev`; `+cmd`.
fn carries(option: &[u8], text: &[u8]) -> bool {
    match option {
        [b'+'] => text.starts_with(b"+"),
        [b'-', b'-', ..] => {
            let name = text.split(|byte| *byte == b'=').next().unwrap_or(text);
            name.len() > 3 && option.starts_with(name)
        }
        [b'-', letter] => {
            let cluster = text.starts_with(b"-") && !text.starts_with(b"--");
            cluster && text.get(1..).is_some_and(|letters| letters.contains(letter))
        }
        _ => option == text,
    }
}

fn is_list_snippet(line: &Line<'_>) -> bool {
    line.called == b"python"
        && matches!(line.args, [flag, code] if flag.is("-c") && code.text() == Some(LIST_SNIPPET))
}

fn unclear_operands(program: &Program, reading: &Reading<'_>) -> Option<Opinion> {
    let reason = match (program.operands, reading.operands.len()) {
        (Operands::Unclear, 1..) => "what its arguments do is not described",
        (Operands::ReadOne, 2..) => "its second operand is written",
        _ => return None,
    };
    Some(Opinion::miss(option_rule(program), reason, program.risk).exact())
}

fn after_colon(value: Arg<'_>) -> Arg<'_> {
    match value {
        Arg::Text(text) => Arg::Text(text.rsplit(|byte| *byte == b':').next().unwrap_or(text)),
        Arg::Glob { .. } | Arg::Home(_) | Arg::Unknown(_) => value,
    }
}

fn unknown_option(program: &Program, reading: &Reading<'_>) -> Option<Opinion> {
    let mut names = reading.unknown.iter().filter_map(|option| option.split(|byte| *byte == b'=').next());
    let first = names.next()?;
    let reason = format!("option `{}` is not known to be harmless", super::arg::shorten(first));
    let opinion = Opinion::miss(option_rule(program), reason, Risk::Medium).for_option(first);
    Some(names.fold(opinion, Opinion::for_option))
}

fn unknown_words(reading: &Reading<'_>) -> Option<Opinion> {
    if let Some(why) = reading.dynamic {
        return Some(unknown_argument(why));
    }
    reading.wild.map(could_be_option)
}

pub(super) fn could_be_option(pattern: &[u8]) -> Opinion {
    let reason = format!("`{}` could expand to an option", super::arg::shorten(pattern));
    let fix = "write `./*` or put `--` before it";
    Opinion::miss("guarded.wildcard", reason, Risk::Medium).never().fix(fix)
}

fn option_rule(program: &Program) -> String {
    format!("option.{}", program.name)
}
