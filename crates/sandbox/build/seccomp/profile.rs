//! The profile file: its schema, and the checks that a schema cannot express.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use toml::Spanned;

#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) known: Known,
    pub(crate) groups: Vec<Group>,
    pub(crate) no_inet: Vec<Syscall>,
    pub(crate) left_open: Vec<LeftOpen>,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) title: String,
    pub(crate) syscalls: Vec<Syscall>,
}

#[derive(Debug)]
pub(crate) struct Syscall {
    pub(crate) name: String,
    pub(crate) numbers: Numbers,
    /// The first case that matches decides; none means allowed.
    pub(crate) cases: Vec<Case>,
}

#[derive(Debug)]
pub(crate) struct Case {
    /// All must hold; empty means always.
    pub(crate) when: Vec<Test>,
    pub(crate) action: Action,
    pub(crate) reason: String,
}

#[derive(Debug)]
pub(crate) struct Test {
    pub(crate) arg: u32,
    pub(crate) bits: Bits,
    pub(crate) check: Check,
    /// The test in words, for the documentation.
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) enum Check {
    Is { mask: u64, values: Vec<u64> },
    Not { mask: u64, values: Vec<u64> },
    AnyOf(u64),
    AnyBut(u64),
}

#[derive(Debug)]
pub(crate) struct LeftOpen {
    pub(crate) name: String,
    pub(crate) numbers: Numbers,
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) x86_64: Option<u32>,
    pub(crate) aarch64: Option<u32>,
}

/// Ranges of numbers that exist, both ends included, ascending.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    x86_64: Spanned<Vec<(u32, u32)>>,
    aarch64: Spanned<Vec<(u32, u32)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Arch {
    #[serde(rename = "x86_64")]
    X86_64,
    Aarch64,
}

/// How much of an argument the kernel looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u32")]
pub(crate) enum Bits {
    Low32,
    All64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Action {
    Allow,
    Eafnosupport,
    Enosys,
    Eperm,
    Eprotonosupport,
}

/// What is wrong with a profile, and where.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) line: usize,
    pub(crate) problem: Problem,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("{0}")]
    Syntax(String),
    #[error("`{0}` has a second line")]
    DuplicateName(String),
    #[error("`{first}` and `{second}` have the same number on {arch}")]
    DuplicateNumber { first: String, second: String, arch: Arch },
    #[error("number {number} is outside `known` on {arch}")]
    Unknown { number: u32, arch: Arch },
    #[error("a call needs both numbers, or one of them and `only`")]
    Numbers,
    #[error("a call needs either `action` and `reason`, or `cases`")]
    ActionOrCases,
    #[error("the reason is empty")]
    EmptyReason,
    #[error("a case needs at least one test in `when`")]
    EmptyWhen,
    #[error("`{0}` is not in `constants`")]
    UnknownConstant(String),
    #[error("constant `{0}` is not used")]
    UnusedConstant(String),
    #[error("a test needs exactly one of `is`, `not`, `any_of`, `any_but`, with at least one name")]
    TestForm,
    #[error("`mask` goes with `is` and `not` only")]
    Mask,
    #[error("a call has arguments 0 to 5, not {0}")]
    Argument(u32),
    #[error("ranges of `known` must ascend and not touch")]
    Ranges,
}

impl Profile {
    pub(crate) fn parse(text: &str) -> Result<Self, Mistake> {
        let raw: RawProfile = toml::from_str(text).map_err(|error| syntax(text, &error))?;
        let mut reader = Reader { text, constants: &raw.constants, used: BTreeSet::new() };
        reader.ranges(&raw.known)?;
        let profile = Self {
            groups: raw.group.iter().map(|group| reader.group(group)).collect::<Result<_, _>>()?,
            no_inet: reader.syscalls(&raw.no_inet)?,
            left_open: reader.left_open(&raw.left_open)?,
            known: raw.known,
        };
        reader.all_used()?;
        Checker { text, profile: &profile, raw_groups: &raw.group, raw_left_open: &raw.left_open }.check()?;
        Ok(profile)
    }

    pub(crate) fn syscalls(&self) -> impl Iterator<Item = &Syscall> {
        self.groups.iter().flat_map(|group| &group.syscalls)
    }
}

impl Numbers {
    pub(crate) fn on(self, arch: Arch) -> Option<u32> {
        match arch {
            Arch::X86_64 => self.x86_64,
            Arch::Aarch64 => self.aarch64,
        }
    }
}

impl Known {
    pub(crate) fn ranges(&self, arch: Arch) -> &[(u32, u32)] {
        self.spanned(arch).as_ref()
    }

    pub(crate) fn contains(&self, arch: Arch, number: u32) -> bool {
        self.ranges(arch).iter().any(|&(first, last)| (first..=last).contains(&number))
    }

    fn spanned(&self, arch: Arch) -> &Spanned<Vec<(u32, u32)>> {
        match arch {
            Arch::X86_64 => &self.x86_64,
            Arch::Aarch64 => &self.aarch64,
        }
    }
}

impl Arch {
    pub(crate) const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        })
    }
}

impl TryFrom<u32> for Bits {
    type Error = &'static str;

    fn try_from(bits: u32) -> Result<Self, Self::Error> {
        match bits {
            32 => Ok(Self::Low32),
            64 => Ok(Self::All64),
            _ => Err("`bits` is 32 or 64"),
        }
    }
}

impl Action {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Allow => "ALLOW",
            Self::Eafnosupport => "EAFNOSUPPORT",
            Self::Enosys => "ENOSYS",
            Self::Eperm => "EPERM",
            Self::Eprotonosupport => "EPROTONOSUPPORT",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProfile {
    known: Known,
    constants: BTreeMap<String, Spanned<u64>>,
    group: Vec<RawGroup>,
    no_inet: RawSyscalls,
    left_open: BTreeMap<String, Spanned<RawLeftOpen>>,
}

type RawSyscalls = BTreeMap<String, Spanned<RawSyscall>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGroup {
    title: String,
    syscalls: RawSyscalls,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSyscall {
    x86_64: Option<u32>,
    aarch64: Option<u32>,
    only: Option<Arch>,
    action: Option<Action>,
    reason: Option<String>,
    cases: Option<Vec<Spanned<RawCase>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    when: Vec<RawTest>,
    action: Action,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTest {
    arg: u32,
    bits: Bits,
    mask: Option<String>,
    is: Option<Vec<String>>,
    not: Option<Vec<String>>,
    any_of: Option<Vec<String>>,
    any_but: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLeftOpen {
    x86_64: Option<u32>,
    aarch64: Option<u32>,
    only: Option<Arch>,
    reason: String,
}

/// Turns raw lines into checked ones; each method checks one line alone.
struct Reader<'a> {
    text: &'a str,
    constants: &'a BTreeMap<String, Spanned<u64>>,
    used: BTreeSet<String>,
}

impl Reader<'_> {
    fn ranges(&self, known: &Known) -> Result<(), Mistake> {
        for arch in Arch::ALL {
            let ranges = known.ranges(arch);
            let ordered = ranges.iter().all(|(first, last)| first <= last);
            let apart =
                ranges.iter().zip(ranges.iter().skip(1)).all(|((_, last), (first, _))| last + 1 < *first);
            if ranges.is_empty() || !ordered || !apart {
                return Err(mistake(self.text, known.spanned(arch).span().start, Problem::Ranges));
            }
        }
        Ok(())
    }

    fn group(&mut self, raw: &RawGroup) -> Result<Group, Mistake> {
        Ok(Group { title: raw.title.clone(), syscalls: self.syscalls(&raw.syscalls)? })
    }

    fn syscalls(&mut self, raw: &RawSyscalls) -> Result<Vec<Syscall>, Mistake> {
        in_file_order(raw).into_iter().map(|(name, line)| self.syscall(name, line)).collect()
    }

    fn syscall(&mut self, name: &str, line: &Spanned<RawSyscall>) -> Result<Syscall, Mistake> {
        let at = line.span().start;
        let raw = line.as_ref();
        let numbers = self.numbers(at, [raw.x86_64, raw.aarch64], raw.only)?;
        let cases = match (raw.action, &raw.reason, &raw.cases) {
            (Some(action), Some(reason), None) => {
                vec![Case { when: Vec::new(), action, reason: self.reason(at, reason)? }]
            }
            (None, None, Some(cases)) if !cases.is_empty() => {
                cases.iter().map(|case| self.case(case)).collect::<Result<_, _>>()?
            }
            _ => return Err(mistake(self.text, at, Problem::ActionOrCases)),
        };
        Ok(Syscall { name: name.to_owned(), numbers, cases })
    }

    fn case(&mut self, line: &Spanned<RawCase>) -> Result<Case, Mistake> {
        let at = line.span().start;
        let raw = line.as_ref();
        if raw.when.is_empty() {
            return Err(mistake(self.text, at, Problem::EmptyWhen));
        }
        let when = raw
            .when
            .iter()
            .map(|test| self.test(test).map_err(|problem| mistake(self.text, at, problem)))
            .collect::<Result<_, _>>()?;
        Ok(Case { when, action: raw.action, reason: self.reason(at, &raw.reason)? })
    }

    fn test(&mut self, raw: &RawTest) -> Result<Test, Problem> {
        if raw.arg > 5 {
            return Err(Problem::Argument(raw.arg));
        }
        let forms = [("is", &raw.is), ("not", &raw.not), ("any_of", &raw.any_of), ("any_but", &raw.any_but)];
        let mut given = forms.iter().filter_map(|(form, names)| names.as_ref().map(|names| (*form, names)));
        let (Some((form, names)), None) = (given.next(), given.next()) else { return Err(Problem::TestForm) };
        if names.is_empty() {
            return Err(Problem::TestForm);
        }
        let values = names.iter().map(|name| self.constant(name)).collect::<Result<Vec<_>, _>>()?;
        let mask = raw.mask.as_ref().map(|name| self.constant(name)).transpose()?;
        let bits = values.iter().fold(0, |all, value| all | value);
        let check = match (form, mask) {
            ("is", _) => Check::Is { mask: mask.unwrap_or(u64::MAX), values },
            ("not", _) => Check::Not { mask: mask.unwrap_or(u64::MAX), values },
            (_, Some(_)) => return Err(Problem::Mask),
            ("any_of", None) => Check::AnyOf(bits),
            (_, None) => Check::AnyBut(bits),
        };
        Ok(Test { arg: raw.arg, bits: raw.bits, check, text: in_words(raw, form, names) })
    }

    fn constant(&mut self, name: &str) -> Result<u64, Problem> {
        self.used.insert(name.to_owned());
        let value = self.constants.get(name).ok_or_else(|| Problem::UnknownConstant(name.to_owned()))?;
        Ok(*value.as_ref())
    }

    fn all_used(&self) -> Result<(), Mistake> {
        match self.constants.iter().find(|(name, _)| !self.used.contains(*name)) {
            Some((name, value)) => {
                Err(mistake(self.text, value.span().start, Problem::UnusedConstant(name.clone())))
            }
            None => Ok(()),
        }
    }

    fn left_open(&self, raw: &BTreeMap<String, Spanned<RawLeftOpen>>) -> Result<Vec<LeftOpen>, Mistake> {
        let lines = in_file_order(raw).into_iter();
        lines
            .map(|(name, line)| {
                let at = line.span().start;
                let raw = line.as_ref();
                let numbers = self.numbers(at, [raw.x86_64, raw.aarch64], raw.only)?;
                Ok(LeftOpen { name: name.to_owned(), numbers, reason: self.reason(at, &raw.reason)? })
            })
            .collect()
    }

    fn numbers(
        &self,
        at: usize,
        [x86_64, aarch64]: [Option<u32>; 2],
        only: Option<Arch>,
    ) -> Result<Numbers, Mistake> {
        match (x86_64, aarch64, only) {
            (Some(_), Some(_), None)
            | (Some(_), None, Some(Arch::X86_64))
            | (None, Some(_), Some(Arch::Aarch64)) => Ok(Numbers { x86_64, aarch64 }),
            _ => Err(mistake(self.text, at, Problem::Numbers)),
        }
    }

    fn reason(&self, at: usize, reason: &str) -> Result<String, Mistake> {
        if reason.trim().is_empty() {
            return Err(mistake(self.text, at, Problem::EmptyReason));
        }
        Ok(reason.to_owned())
    }
}

/// Checks lines against each other.
struct Checker<'a> {
    text: &'a str,
    profile: &'a Profile,
    raw_groups: &'a [RawGroup],
    raw_left_open: &'a BTreeMap<String, Spanned<RawLeftOpen>>,
}

impl Checker<'_> {
    fn check(&self) -> Result<(), Mistake> {
        let governed = self.profile.syscalls().map(|call| (call.name.as_str(), call.numbers));
        let left_open = self.profile.left_open.iter().map(|call| (call.name.as_str(), call.numbers));
        self.distinct(governed.chain(left_open))?;
        self.distinct(self.profile.no_inet.iter().map(|call| (call.name.as_str(), call.numbers)))
    }

    fn distinct<'n>(&self, calls: impl Iterator<Item = (&'n str, Numbers)>) -> Result<(), Mistake> {
        let mut names = BTreeSet::new();
        let mut numbers: BTreeMap<(usize, u32), &str> = BTreeMap::new();
        for (name, on) in calls {
            if !names.insert(name) {
                return Err(self.mistake(name, Problem::DuplicateName(name.to_owned())));
            }
            for (index, arch) in Arch::ALL.into_iter().enumerate() {
                let Some(number) = on.on(arch) else { continue };
                if !self.profile.known.contains(arch, number) {
                    return Err(self.mistake(name, Problem::Unknown { number, arch }));
                }
                if let Some(first) = numbers.insert((index, number), name) {
                    let (first, second) = (first.to_owned(), name.to_owned());
                    return Err(self.mistake(name, Problem::DuplicateNumber { first, second, arch }));
                }
            }
        }
        Ok(())
    }

    /// A mistake at the last line that names the call.
    fn mistake(&self, name: &str, problem: Problem) -> Mistake {
        let in_groups =
            self.raw_groups.iter().filter_map(|group| group.syscalls.get(name)).map(|s| s.span().start);
        let left_open = self.raw_left_open.get(name).map(|line| line.span().start);
        mistake(self.text, in_groups.chain(left_open).max().unwrap_or(0), problem)
    }
}

fn in_file_order<T>(table: &BTreeMap<String, Spanned<T>>) -> Vec<(&str, &Spanned<T>)> {
    let mut lines: Vec<_> = table.iter().map(|(name, line)| (name.as_str(), line)).collect();
    lines.sort_by_key(|(_, line)| line.span().start);
    lines
}

fn in_words(raw: &RawTest, form: &str, names: &[String]) -> String {
    let value = match (&raw.mask, raw.bits) {
        (Some(mask), _) => format!("argument {} & {mask}", raw.arg),
        (None, Bits::Low32) => format!("argument {}", raw.arg),
        (None, Bits::All64) => format!("argument {} (64 bits)", raw.arg),
    };
    let list = names.join(", ");
    match form {
        "is" => format!("{value} is {list}"),
        "not" => format!("{value} is not {list}"),
        "any_of" => format!("{value} has any of {list}"),
        _ => format!("{value} has any bit but {list}"),
    }
}

fn syntax(text: &str, error: &toml::de::Error) -> Mistake {
    let at = error.span().map_or(0, |span| span.start);
    mistake(text, at, Problem::Syntax(error.message().to_owned()))
}

fn mistake(text: &str, at: usize, problem: Problem) -> Mistake {
    let line = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    Mistake { line, problem }
}
