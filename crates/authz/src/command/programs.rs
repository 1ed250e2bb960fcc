//! Programs whose options are described, and programs that carry code.

use ringfence_types::{ByteString, Risk, RuleFamily, RuleId, RuleName};

use super::arg::Arg;
use super::builtin_verdict::BuiltinVerdict;
use super::catalogue::steered;
use super::options::{
    ListMembership, Operand, OperandPosition, OperandSpec, OptionEffect, OptionMatch, ParsedArgs,
    ProgramSpec, read,
};
use super::program_class::{ProgramClass, class_of};
use super::rules::CommandLine;
use super::unknown_program::unknown_argument;
use super::{CommandContext, CommandEvaluator, find, git, network_tools, sed};
use crate::judgement::JudgementPart;
use crate::paths::PathIntent;
use ringfence_shell::CommandInput;

/// Document 001 allows exactly this (S001-20).
const LIST_SNIPPET: &[u8] = b"import os; print('\\n'.join(sorted(os.listdir('.'))))";

impl CommandEvaluator<'_> {
    pub(super) fn catalogued(
        &mut self,
        frame: &CommandContext,
        line: &CommandLine<'_>,
        program: &'static ProgramSpec,
    ) -> BuiltinVerdict {
        let reading = read(program, line.args);
        self.judge_reading(frame, program, &reading).and_if(steered(line))
    }

    /// The opinion about arguments that were read; the paths among them become parts.
    pub(super) fn judge_reading(
        &mut self,
        frame: &CommandContext,
        program: &ProgramSpec,
        reading: &ParsedArgs<'_>,
    ) -> BuiltinVerdict {
        self.option_paths(frame, reading);
        self.operand_paths(frame, program, reading);
        self.followed(frame, program, reading);
        let standing = match program.standing {
            ListMembership::Listed => BuiltinVerdict::allow(
                RuleFamily::Guarded.member(program.name),
                "on the list, and nothing in it acts",
            ),
            ListMembership::Unlisted => {
                BuiltinVerdict::miss(RuleId::GuardedUnlisted, "it is not on the list", program.risk)
            }
        };
        standing.and_if(self.about_options(program, reading)).and_if(self.remote_words(program, reading))
    }

    pub(super) fn option_paths(&mut self, frame: &CommandContext, reading: &ParsedArgs<'_>) {
        for hit in &reading.hits {
            let Some(value) = hit.value else { continue };
            match hit.effect {
                OptionEffect::Read | OptionEffect::PatternFile => self.input_path(frame, value),
                OptionEffect::ReadLines => self.path(frame, after_colon(value), PathIntent::Read),
                OptionEffect::Enter => self.path(frame, value, PathIntent::List),
                OptionEffect::Write => self.path(frame, value, PathIntent::Write),
                _ => {}
            }
        }
    }

    fn operand_paths(&mut self, frame: &CommandContext, program: &ProgramSpec, reading: &ParsedArgs<'_>) {
        let written = reading.has(|effect| effect == OptionEffect::WriteOperands);
        let patterned = reading.has(|effect| {
            matches!(effect, OptionEffect::Pattern | OptionEffect::PatternFile | OptionEffect::Sed)
        });
        let last = reading.operands.len().saturating_sub(1);
        for (index, operand) in reading.operands.iter().enumerate() {
            let first = index == 0 && !patterned;
            match program.operands {
                // The shell lists a directory to expand it, whatever becomes of the names.
                OperandSpec::Text => self.listed_by_shell(frame, operand.arg),
                OperandSpec::PatternThenRead
                | OperandSpec::PatternThenRevisions
                | OperandSpec::SedThenRead
                    if first =>
                {
                    // The first name it expands to is the pattern; the others are read.
                    if matches!(operand.arg, Arg::Glob { .. }) {
                        self.path(frame, operand.arg, PathIntent::Read);
                    }
                }
                _ if written => self.path(frame, operand.arg, PathIntent::Write),
                OperandSpec::Read
                | OperandSpec::PatternThenRead
                | OperandSpec::SedThenRead
                | OperandSpec::Unclear => {
                    self.input_path(frame, operand.arg);
                }
                OperandSpec::Plain => self.plain_paths(frame, &[operand.arg]),
                OperandSpec::List => self.listed(frame, operand.arg),
                OperandSpec::Write => self.path(frame, operand.arg, PathIntent::Write),
                OperandSpec::ReadOne if index == 0 => self.input_path(frame, operand.arg),
                OperandSpec::ReadOne => self.path(frame, operand.arg, PathIntent::Write),
                OperandSpec::ReadThenWrite if index == last => {
                    self.path(frame, operand.arg, PathIntent::Write)
                }
                OperandSpec::ReadThenWrite => self.input_path(frame, operand.arg),
                OperandSpec::Revisions | OperandSpec::PatternThenRevisions => {
                    self.revision(frame, *operand, PathIntent::Read)
                }
                OperandSpec::Pathspecs => self.revision(
                    frame,
                    Operand { side: OperandPosition::AfterDashes, ..*operand },
                    PathIntent::List,
                ),
                OperandSpec::Pairs => self.pair(frame, operand.arg),
            }
        }
    }

    fn listed_by_shell(&mut self, frame: &CommandContext, arg: Arg<'_>) {
        if let Arg::Glob { prefix, pattern } = arg
            && self.is_listed()
        {
            let part = self.pattern_part(frame, prefix, pattern, PathIntent::List);
            self.push(frame, part);
        }
    }

    /// A file of which names and metadata are shown, or a directory whose entries are.
    fn listed(&mut self, frame: &CommandContext, arg: Arg<'_>) {
        self.path(frame, arg, PathIntent::List);
        if let Arg::Glob { pattern, .. } = arg
            && self.is_listed()
            && let Some(part) = self.linked_part(frame, pattern, PathIntent::List)
        {
            self.push(frame, part);
        }
    }

    /// Everything that a search reads through links.
    fn followed(&mut self, frame: &CommandContext, program: &ProgramSpec, reading: &ParsedArgs<'_>) {
        if !self.is_listed() || !reading.has(|effect| effect == OptionEffect::Follow) {
            return;
        }
        let patterned =
            reading.has(|effect| matches!(effect, OptionEffect::Pattern | OptionEffect::PatternFile));
        let pattern = usize::from(program.operands == OperandSpec::PatternThenRead && !patterned);
        let named = reading.operands.get(pattern..).unwrap_or_default();
        let here = [Arg::Text(b".")];
        let places: Vec<Arg<'_>> = named.iter().map(|operand| operand.arg).collect();
        let places = if places.is_empty() { &here[..] } else { &places };
        let texts = places.iter().filter_map(|place| place.text());
        let parts: Vec<JudgementPart> = texts.filter_map(|dir| self.followed_part(frame, dir)).collect();
        parts.into_iter().for_each(|part| self.push(frame, part));
    }

    /// `if=FILE`, `of=FILE`.
    fn pair(&mut self, frame: &CommandContext, arg: Arg<'_>) {
        let Some(text) = arg.text() else { return };
        if let Some(file) = text.strip_prefix(b"of=") {
            self.path(frame, Arg::Text(file), PathIntent::Write);
        } else if let Some(file) = text.strip_prefix(b"if=") {
            self.path(frame, Arg::Text(file), PathIntent::Read);
        }
    }

    pub(super) fn about_options(
        &self,
        program: &ProgramSpec,
        reading: &ParsedArgs<'_>,
    ) -> Option<BuiltinVerdict> {
        let deletes = reading.has(|effect| effect == OptionEffect::Delete);
        let denied =
            deletes.then(|| self.deny_listed("deletion", "an option of it deletes files", Risk::High));
        denied.into_iter().chain(about(program, reading)).reduce(BuiltinVerdict::and)
    }

    /// URLs anywhere but in what is only text.
    fn remote_words(&self, program: &ProgramSpec, reading: &ParsedArgs<'_>) -> Option<BuiltinVerdict> {
        let text = matches!(program.operands, OperandSpec::Text);
        let pattern = matches!(
            program.operands,
            OperandSpec::PatternThenRead | OperandSpec::PatternThenRevisions | OperandSpec::SedThenRead
        );
        let given = reading.has(|effect| {
            matches!(effect, OptionEffect::Pattern | OptionEffect::PatternFile | OptionEffect::Sed)
        });
        let skipped = if text { usize::MAX } else { usize::from(pattern && !given) };
        let operands = reading.operands.iter().skip(skipped).map(|operand| operand.arg);
        let values = reading
            .hits
            .iter()
            .filter(|hit| !matches!(hit.effect, OptionEffect::Pattern | OptionEffect::Format))
            .filter_map(|hit| hit.value);
        let unknown = reading.unknown.iter().copied().map(Arg::Text);
        let words: Vec<Arg<'_>> = operands.chain(values).chain(unknown).collect();
        network_tools::url(self.scene.policy, &words)
    }

    /// A language of its own: the code is not judged, so a rule about the bare name does not cover it (B-C29).
    pub(super) fn interpreter(
        &mut self,
        frame: &CommandContext,
        line: &CommandLine<'_>,
        code: &'static str,
    ) -> BuiltinVerdict {
        if is_list_snippet(line) {
            let listed = BuiltinVerdict::allow(
                RuleId::GuardedPythonList,
                "exactly the program that document 001 lists",
            );
            return listed.and_if(self.python_start());
        }
        self.plain_paths(frame, line.args);
        let opinion =
            BuiltinVerdict::miss(RuleId::GuardedInterpreter, "it runs code that is not judged", Risk::High);
        let opinion = with_code(opinion.clone(), &carried(frame.input, line.args, code)).unwrap_or(opinion);
        opinion
            .and_if(steered(line))
            .and_if(super::unknown_program::dynamic(line.args))
            .and_if(network_tools::url(self.scene.policy, line.args))
    }

    /// Packages in the home begin with python: an earlier command can have put one there.
    fn python_start(&self) -> Option<BuiltinVerdict> {
        let directory = self.scene.facts.python_start().filter(|_| self.is_listed())?;
        let shown = ByteString::from(directory).display();
        let reason = format!("python runs what it finds in `{shown}`, which a command can have written");
        let fix = "say yes to this one, use `ls`, or remove the directory";
        Some(BuiltinVerdict::miss(RuleId::GuardedStartFile, reason, Risk::High).never().fix(fix))
    }

    /// `npx`, `uvx` …: which program runs is the first operand, so a rule must name it.
    pub(super) fn runner(&mut self, frame: &CommandContext, line: &CommandLine<'_>) -> BuiltinVerdict {
        self.plain(frame, line, Risk::High, "it fetches a program and runs it").named()
    }

    /// A remote place (`host:path`) makes it a network tool.
    pub(super) fn rsync(&mut self, frame: &CommandContext, line: &CommandLine<'_>) -> BuiltinVerdict {
        let remote = |text: &[u8]| {
            let slash = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
            !text.starts_with(b"-") && text.get(..slash).is_some_and(|host| host.contains(&b':'))
        };
        if line.args.iter().filter_map(|arg| arg.text()).any(remote) {
            return network_tools::network_tool(self.scene.policy);
        }
        let opinion = self.plain(frame, line, Risk::High, "it copies and deletes trees");
        match line.args.iter().filter_map(|arg| arg.text()).find(|text| rsync_acts(text)) {
            Some(option) => opinion.for_option(option),
            None => opinion,
        }
    }
}

/// Whether an option of rsync runs a program or deletes: any beginning of its name, and `-e` anywhere among letters.
fn rsync_acts(text: &[u8]) -> bool {
    const LONG: [&[u8]; 6] =
        [b"--rsh", b"--rsync-path", b"--del", b"--remove-source-files", b"--password-command", b"--daemon"];
    let name = text.split(|byte| *byte == b'=').next().unwrap_or(text);
    match text {
        [b'-', b'-', _, ..] => LONG.iter().any(|option| option.starts_with(name) || name.starts_with(option)),
        [b'-', letters @ ..] => letters.contains(&b'e'),
        _ => false,
    }
}

/// What in the arguments is more than its name says, wherever it runs.
pub(super) fn unusual(line: &CommandLine<'_>) -> Option<BuiltinVerdict> {
    let code =
        || BuiltinVerdict::miss(RuleId::GuardedInterpreter, "it runs code that is not judged", Risk::High);
    match class_of(line.identity.name) {
        ProgramClass::Catalogued(program) => about(program, &read(program, line.args))
            .into_iter()
            .chain(steered(line))
            .reduce(BuiltinVerdict::and),
        ProgramClass::Git => git::unusual(line.args),
        ProgramClass::Interpreter(options) => {
            let carried = with_code(code(), &carried(CommandInput::Inherited, line.args, options));
            carried.into_iter().chain(steered(line)).reduce(BuiltinVerdict::and)
        }
        ProgramClass::Shell(_) => Some(code().named()),
        ProgramClass::Runner => Some(code().named()),
        ProgramClass::Find => line
            .args
            .iter()
            .filter_map(|arg| arg.text())
            .find(|text| find::acts(text))
            .map(|text| code().for_option(text)),
        ProgramClass::Wrapper(_)
        | ProgramClass::GitPart
        | ProgramClass::Network
        | ProgramClass::Deletion
        | ProgramClass::Rsync
        | ProgramClass::Test => None,
        ProgramClass::Other(..) => steered(line),
    }
}

fn with_code(opinion: BuiltinVerdict, carried: &EmbeddedCode) -> Option<BuiltinVerdict> {
    match carried {
        EmbeddedCode::Option(option) => Some(opinion.for_option(option)),
        EmbeddedCode::Operand | EmbeddedCode::Input => Some(opinion.exact()),
        EmbeddedCode::Script => None,
    }
}

/// What options and operands do beyond what the program is for.
pub(super) fn about(program: &ProgramSpec, reading: &ParsedArgs<'_>) -> Option<BuiltinVerdict> {
    let hits = reading.hits.iter().filter_map(|hit| about_hit(program, hit)).reduce(BuiltinVerdict::and);
    let sed = (program.operands == OperandSpec::SedThenRead).then(|| sed::judge(reading)).flatten();
    [hits, sed, unclear_operands(program, reading), unknown_option(program, reading), unknown_words(reading)]
        .into_iter()
        .flatten()
        .reduce(BuiltinVerdict::and)
}

fn about_hit(program: &ProgramSpec, hit: &OptionMatch<'_>) -> Option<BuiltinVerdict> {
    let says = hit.effect.says()?;
    let name = hit.name.bytes();
    let risk = if hit.effect == OptionEffect::Execute { Risk::High } else { Risk::Medium };
    let reason = format!("option `{}` {says}", ByteString::from(name.as_slice()).display());
    Some(BuiltinVerdict::miss(option_rule(program), reason, risk).for_option(&name))
}

enum EmbeddedCode {
    /// In an option.
    Option(Vec<u8>),
    /// In the first operand.
    Operand,
    /// In its input.
    Input,
    /// In a file.
    Script,
}

fn carried(input: CommandInput, args: &[Arg<'_>], code: &str) -> EmbeddedCode {
    if code == "*" {
        return EmbeddedCode::Operand;
    }
    for text in args.iter().filter_map(|arg| arg.text()) {
        if let Some(option) = code.split(' ').find(|option| carries(option.as_bytes(), text)) {
            return EmbeddedCode::Option(option.as_bytes().to_vec());
        }
        if !text.starts_with(b"-") && !text.is_empty() {
            return EmbeddedCode::Script;
        }
    }
    let script = args.iter().any(|arg| matches!(arg, Arg::Glob { .. } | Arg::Home(_)));
    if script && input == CommandInput::Inherited { EmbeddedCode::Script } else { EmbeddedCode::Input }
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

fn is_list_snippet(line: &CommandLine<'_>) -> bool {
    line.called == b"python"
        && matches!(line.args, [flag, code] if flag.is("-c") && code.text() == Some(LIST_SNIPPET))
}

fn unclear_operands(program: &ProgramSpec, reading: &ParsedArgs<'_>) -> Option<BuiltinVerdict> {
    let reason = match (program.operands, reading.operands.len()) {
        (OperandSpec::Unclear, 1..) => "what its arguments do is not described",
        (OperandSpec::ReadOne, 2..) => "its second operand is written",
        _ => return None,
    };
    Some(BuiltinVerdict::miss(option_rule(program), reason, program.risk).exact())
}

fn after_colon(value: Arg<'_>) -> Arg<'_> {
    match value {
        Arg::Text(text) => Arg::Text(text.rsplit(|byte| *byte == b':').next().unwrap_or(text)),
        Arg::Glob { .. } | Arg::Home(_) | Arg::Unknown(_) => value,
    }
}

fn unknown_option(program: &ProgramSpec, reading: &ParsedArgs<'_>) -> Option<BuiltinVerdict> {
    let mut names = reading.unknown.iter().filter_map(|option| option.split(|byte| *byte == b'=').next());
    let first = names.next()?;
    let reason = format!("option `{}` is not known to be harmless", super::arg::shorten(first));
    let opinion = BuiltinVerdict::miss(option_rule(program), reason, Risk::Medium).for_option(first);
    Some(names.fold(opinion, BuiltinVerdict::for_option))
}

fn unknown_words(reading: &ParsedArgs<'_>) -> Option<BuiltinVerdict> {
    if let Some(why) = reading.dynamic {
        return Some(unknown_argument(why));
    }
    reading.wild.map(could_be_option)
}

pub(super) fn could_be_option(pattern: &[u8]) -> BuiltinVerdict {
    let reason = format!("`{}` could expand to an option", super::arg::shorten(pattern));
    let fix = "write `./*` or put `--` before it";
    BuiltinVerdict::miss(RuleId::GuardedWildcard, reason, Risk::Medium).never().fix(fix)
}

fn option_rule(program: &ProgramSpec) -> RuleName {
    RuleFamily::Option.member(program.name)
}
