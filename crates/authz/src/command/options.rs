//! Arguments as options and operands, driven by a description of the program.
//!
//! One reader for every program: clusters (`-xvf`), glued and separate values (`-n5`, `-n 5`, `--lines=5`, `--lines 5`),
//! abbreviations (`--forc`), `--`. It errs on the side of the option: what is not described is unknown, and unknown is
//! for the caller a reason to ask.

use ringfence_types::Risk;

use super::arg::Arg;

/// What is known about a program: its options and what its operands are.
#[derive(Debug)]
pub(super) struct ProgramSpec {
    pub(super) name: &'static str,
    pub(super) operands: OperandSpec,
    pub(super) groups: &'static [OptionGroup],
    /// Options that it has in common with others.
    pub(super) shared: &'static [OptionGroup],
    pub(super) standing: ListMembership,
    pub(super) known: OptionCoverage,
    pub(super) order: OptionOrder,
    pub(super) wild: GlobRisk,
    pub(super) digits: NumericOption,
    pub(super) risk: Risk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListMembership {
    /// On the list of `guarded`.
    Listed,
    Unlisted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionCoverage {
    /// Every harmless option is described: one that is not is a reason to ask.
    Whole,
    /// Only options that do harm are described.
    Dangers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionOrder {
    /// Options may stand after operands.
    Mixed,
    /// The first operand ends the options: the program runs what follows.
    OptionsFirst,
}

/// Whether a file whose name looks like an option could do harm when a wildcard expands to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GlobRisk {
    Harmless,
    Steers,
}

/// Whether `-5` is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumericOption {
    Number,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandSpec {
    /// Only printed or compared, never opened.
    Text,
    Read,
    /// Only names and metadata are looked at.
    List,
    Write,
    /// The first is a pattern unless an option gave one; the others are read.
    PatternThenRead,
    /// The last is written, the others are read.
    ReadThenWrite,
    /// The first is read; a second one would be written.
    ReadOne,
    /// The first is a program of `sed` unless an option gave one; the others are read.
    SedThenRead,
    /// Revisions and paths of git.
    Revisions,
    /// The first is a pattern unless an option gave one; the others are revisions and paths of git.
    PatternThenRevisions,
    /// Paths of git of which only names are shown.
    Pathspecs,
    /// `if=FILE of=FILE`.
    Pairs,
    /// Anything: what looks like a path is judged as one.
    Plain,
    /// More words mean more than is described here.
    Unclear,
}

/// Options with one effect.
#[derive(Debug)]
pub(super) struct OptionGroup {
    pub(super) effect: OptionEffect,
    pub(super) value: OptionValue,
    /// One letter per option.
    pub(super) short: &'static str,
    /// Without the dashes, separated by blanks.
    pub(super) long: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionValue {
    None,
    Required,
    /// Only glued: `--color`, `--color=always`.
    Glued,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionEffect {
    Harmless,
    /// Gives the pattern, so that no operand is one.
    Pattern,
    /// Gives the pattern from a file.
    PatternFile,
    /// Gives a program of `sed`.
    Sed,
    Read,
    /// `1,9:FILE` or `:function:FILE`.
    ReadLines,
    /// Text with placeholders.
    Format,
    /// A directory that is entered first.
    Enter,
    /// Carries another command, or says how one is made.
    Body,
    /// All variables are taken away.
    Clear,
    /// A variable is taken away.
    Unset,
    Write,
    /// The operands are written, not read.
    WriteOperands,
    Execute,
    Delete,
    Network,
    /// It reads through every link that it finds.
    Follow,
    /// It does not end by itself.
    Endless,
    /// What it reads or does depends on more than the command line.
    Unclear,
}

impl OptionEffect {
    /// Completes "option `-x` …".
    pub(super) fn says(self) -> Option<&'static str> {
        match self {
            Self::Harmless
            | Self::Pattern
            | Self::PatternFile
            | Self::Sed
            | Self::Read
            | Self::ReadLines
            | Self::Format
            | Self::Body
            | Self::Clear
            | Self::Unset
            | Self::Follow
            | Self::Enter => None,
            Self::Write => Some("writes a file"),
            Self::WriteOperands => Some("writes the files it is given"),
            Self::Execute => Some("runs a program"),
            Self::Delete => Some("deletes files"),
            Self::Network => Some("reaches the network"),
            Self::Endless => Some("does not end by itself"),
            Self::Unclear => Some("does more than the command line shows"),
        }
    }
}

impl ProgramSpec {
    pub(super) const fn new(
        name: &'static str,
        operands: OperandSpec,
        groups: &'static [OptionGroup],
    ) -> Self {
        Self {
            name,
            operands,
            groups,
            shared: &[],
            standing: ListMembership::Unlisted,
            known: OptionCoverage::Whole,
            order: OptionOrder::Mixed,
            wild: GlobRisk::Steers,
            digits: NumericOption::Unknown,
            risk: Risk::Medium,
        }
    }

    pub(super) const fn sharing(mut self, groups: &'static [OptionGroup]) -> Self {
        self.shared = groups;
        self
    }

    pub(super) const fn listed(mut self) -> Self {
        self.standing = ListMembership::Listed;
        self
    }

    pub(super) const fn dangers_only(mut self) -> Self {
        self.known = OptionCoverage::Dangers;
        self
    }

    pub(super) const fn options_first(mut self) -> Self {
        self.order = OptionOrder::OptionsFirst;
        self
    }

    pub(super) const fn any_file_name(mut self) -> Self {
        self.wild = GlobRisk::Harmless;
        self
    }

    pub(super) const fn numbers(mut self) -> Self {
        self.digits = NumericOption::Number;
        self
    }

    pub(super) const fn risk(mut self, risk: Risk) -> Self {
        self.risk = risk;
        self
    }

    fn short(&self, letter: u8) -> Option<&'static OptionGroup> {
        self.all_groups().find(|group| group.short.as_bytes().contains(&letter))
    }

    pub(super) fn all_groups(&self) -> impl Iterator<Item = &'static OptionGroup> + use<> {
        self.groups.iter().chain(self.shared)
    }

    fn long(&self, name: &[u8]) -> LongOption {
        let mut found = LongOption::Unknown;
        if name.is_empty() {
            return found;
        }
        for group in self.all_groups() {
            for known in group.long.split(' ') {
                if known.as_bytes() == name {
                    return LongOption::Known(group);
                }
                if known.as_bytes().starts_with(name) {
                    found = LongOption::Abbreviated(found.harsher(group));
                }
            }
        }
        found
    }
}

enum LongOption {
    Known(&'static OptionGroup),
    Abbreviated(&'static OptionGroup),
    Unknown,
}

impl LongOption {
    /// Of several options that an abbreviation could mean the one that does something.
    fn harsher(&self, other: &'static OptionGroup) -> &'static OptionGroup {
        match self {
            Self::Abbreviated(group) | Self::Known(group) if group.effect != OptionEffect::Harmless => group,
            _ => other,
        }
    }
}

/// The arguments of one command, read.
#[derive(Debug, Default)]
pub(super) struct ParsedArgs<'a> {
    pub(super) operands: Vec<Operand<'a>>,
    /// Options that are more than a harmless switch, in order.
    pub(super) hits: Vec<OptionMatch<'a>>,
    /// Options that are not described.
    pub(super) unknown: Vec<&'a [u8]>,
    /// How many operands stand before an option that may take the next word: whether the others are operands is not known.
    certain: Option<usize>,
    /// The first argument that is known only when it runs.
    pub(super) dynamic: Option<&'static str>,
    /// A wildcard that could expand to an option.
    pub(super) wild: Option<&'a [u8]>,
    /// Where the options ended: the index of the first operand where options come first.
    pub(super) rest: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operand<'a> {
    pub(super) arg: Arg<'a>,
    pub(super) side: OperandPosition,
}

/// Where an operand stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandPosition {
    Before,
    AfterDashes,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OptionMatch<'a> {
    pub(super) effect: OptionEffect,
    /// As written, without its value: `-o`, `--output`.
    pub(super) name: OptionName<'a>,
    pub(super) value: Option<Arg<'a>>,
    /// The index of the argument after it.
    pub(super) next: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionName<'a> {
    Short(u8),
    Long(&'a [u8]),
}

impl OptionName<'_> {
    pub(super) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Short(letter) => vec![b'-', letter],
            Self::Long(name) => [b"--", name].concat(),
        }
    }
}

impl<'a> ParsedArgs<'a> {
    pub(super) fn has(&self, wanted: impl Fn(OptionEffect) -> bool) -> bool {
        self.hits.iter().any(|hit| wanted(hit.effect))
    }

    /// The operands that are operands under every reading.
    pub(super) fn certain_operands(&self) -> &[Operand<'a>] {
        let certain = self.certain.unwrap_or(self.operands.len());
        self.operands.get(..certain).unwrap_or(&self.operands)
    }
}

/// Reads `args`, which do not include the program.
pub(super) fn read<'a>(program: &ProgramSpec, args: &[Arg<'a>]) -> ParsedArgs<'a> {
    let mut reader =
        ArgParser { program, args, at: 0, side: OperandPosition::Before, reading: ParsedArgs::default() };
    while reader.step() {}
    reader.reading
}

struct ArgParser<'p, 'a> {
    program: &'p ProgramSpec,
    args: &'p [Arg<'a>],
    at: usize,
    side: OperandPosition,
    reading: ParsedArgs<'a>,
}

impl<'a> ArgParser<'_, 'a> {
    fn step(&mut self) -> bool {
        self.reading.rest = self.at;
        let Some(arg) = self.args.get(self.at).copied() else { return false };
        self.at += 1;
        if self.side == OperandPosition::AfterDashes {
            return self.operand(arg);
        }
        match arg {
            Arg::Text(b"--") => self.side = OperandPosition::AfterDashes,
            Arg::Text(text) => match text {
                [b'-', b'-', rest @ ..] => self.long(text, rest),
                [b'-', letters @ ..] if !letters.is_empty() => self.cluster(text, letters),
                _ => return self.operand(arg),
            },
            Arg::Glob { prefix, pattern } => return self.wildcard(arg, prefix, pattern),
            Arg::Home(_) | Arg::Unknown(_) => return self.operand(arg),
        }
        true
    }

    fn operand(&mut self, arg: Arg<'a>) -> bool {
        if let Arg::Unknown(why) = arg {
            self.reading.dynamic.get_or_insert(why);
        }
        if self.program.order == OptionOrder::OptionsFirst {
            return false;
        }
        self.reading.operands.push(Operand { arg, side: self.side });
        true
    }

    /// `--include=*.rs` without quotes is an option whatever it expands to; `*` could become one.
    fn wildcard(&mut self, arg: Arg<'a>, prefix: &'a [u8], pattern: &'a [u8]) -> bool {
        if let [b'-', b'-', rest @ ..] = prefix
            && let Some((name, value)) = split_value(rest)
        {
            let tail = pattern.get(prefix.len() - value.len()..).unwrap_or(pattern);
            self.named(pattern, name, Some(Arg::Glob { prefix: value, pattern: tail }));
            return true;
        }
        let steers = prefix.is_empty() && self.program.wild == GlobRisk::Steers;
        if steers || prefix.starts_with(b"-") {
            self.reading.wild.get_or_insert(pattern);
        }
        self.operand(arg)
    }

    fn long(&mut self, text: &'a [u8], rest: &'a [u8]) {
        match split_value(rest) {
            Some((name, value)) => self.named(text, name, Some(Arg::Text(value))),
            None => self.named(text, rest, None),
        }
    }

    fn named(&mut self, text: &'a [u8], name: &'a [u8], glued: Option<Arg<'a>>) {
        let group = match self.program.long(name) {
            LongOption::Known(group) => group,
            LongOption::Abbreviated(group) => {
                self.unknown(text);
                group
            }
            LongOption::Unknown => return self.unknown(text),
        };
        let value = match (group.value, glued) {
            (OptionValue::None, Some(_)) => return self.unknown(text),
            (OptionValue::Required, None) => self.next_value(),
            (_, glued) => glued,
        };
        self.hit(group, OptionName::Long(name), value);
    }

    fn cluster(&mut self, text: &'a [u8], letters: &'a [u8]) {
        if self.program.digits == NumericOption::Number && letters.iter().all(u8::is_ascii_digit) {
            return;
        }
        for (index, letter) in letters.iter().enumerate() {
            let Some(group) = self.program.short(*letter) else {
                self.unknown(text);
                match self.program.known {
                    OptionCoverage::Whole => return,
                    OptionCoverage::Dangers => continue,
                }
            };
            let rest = letters.get(index + 1..).unwrap_or_default();
            let glued = (!rest.is_empty()).then_some(Arg::Text(rest));
            let value = match group.value {
                OptionValue::None => {
                    self.hit(group, OptionName::Short(*letter), None);
                    continue;
                }
                OptionValue::Glued => glued,
                OptionValue::Required if glued.is_none() && index > 0 => self.doubtful_value(text),
                OptionValue::Required => glued.or_else(|| self.next_value()),
            };
            return self.hit(group, OptionName::Short(*letter), value);
        }
    }

    /// The value of a letter that others stand before. Not every program joins letters: `git log -iG --output=x` empties
    /// `x` before it says that it knows no `-iG`. So what looks like an option may be one.
    fn doubtful_value(&mut self, text: &'a [u8]) -> Option<Arg<'a>> {
        let value = self.next_value();
        if matches!(value, Some(Arg::Text([b'-', _, ..]))) {
            self.unknown(text);
        }
        value
    }

    fn next_value(&mut self) -> Option<Arg<'a>> {
        let value = self.args.get(self.at).copied()?;
        self.at += 1;
        self.reading.rest = self.at;
        match value {
            Arg::Unknown(why) => {
                self.reading.dynamic.get_or_insert(why);
            }
            // Several names: all but the first are operands or options.
            Arg::Glob { pattern, .. } => {
                self.reading.wild.get_or_insert(pattern);
            }
            Arg::Text(_) | Arg::Home(_) => {}
        }
        Some(value)
    }

    fn hit(&mut self, group: &OptionGroup, name: OptionName<'a>, value: Option<Arg<'a>>) {
        if group.effect != OptionEffect::Harmless {
            self.reading.hits.push(OptionMatch { effect: group.effect, name, value, next: self.at });
        }
    }

    fn unknown(&mut self, text: &'a [u8]) {
        // `--xx=1` and `-j4` have their value, if they take one.
        if !text.contains(&b'=') && !text.last().is_some_and(u8::is_ascii_digit) {
            self.reading.certain.get_or_insert(self.reading.operands.len());
        }
        if self.program.known == OptionCoverage::Whole {
            self.reading.unknown.push(text);
        }
    }
}

fn split_value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == b'=')?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

pub(super) const fn flags(short: &'static str, long: &'static str) -> OptionGroup {
    OptionGroup { effect: OptionEffect::Harmless, value: OptionValue::None, short, long }
}

/// Harmless, with a value that is only text or a number.
pub(super) const fn values(short: &'static str, long: &'static str) -> OptionGroup {
    OptionGroup { effect: OptionEffect::Harmless, value: OptionValue::Required, short, long }
}

/// Harmless, with a value that is glued or absent.
pub(super) const fn glued(short: &'static str, long: &'static str) -> OptionGroup {
    OptionGroup { effect: OptionEffect::Harmless, value: OptionValue::Glued, short, long }
}

pub(super) const fn with(
    effect: OptionEffect,
    value: OptionValue,
    short: &'static str,
    long: &'static str,
) -> OptionGroup {
    OptionGroup { effect, value, short, long }
}

pub(super) const fn reads(short: &'static str, long: &'static str) -> OptionGroup {
    with(OptionEffect::Read, OptionValue::Required, short, long)
}

pub(super) const fn writes(short: &'static str, long: &'static str) -> OptionGroup {
    with(OptionEffect::Write, OptionValue::Required, short, long)
}

pub(super) const fn executes(short: &'static str, long: &'static str) -> OptionGroup {
    with(OptionEffect::Execute, OptionValue::Required, short, long)
}

pub(super) const fn unclear(short: &'static str, long: &'static str) -> OptionGroup {
    with(OptionEffect::Unclear, OptionValue::None, short, long)
}
