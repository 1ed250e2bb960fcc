//! The profile file: its schema, and the checks that a schema cannot express.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use toml::Spanned;

#[derive(Debug)]
pub(crate) struct SeccompProfile {
    pub(crate) known: KnownNumbers,
    pub(crate) groups: Vec<SyscallGroup>,
    pub(crate) no_inet: Vec<Syscall>,
    pub(crate) counted: Vec<Syscall>,
    pub(crate) left_open: Vec<LeftOpen>,
}

#[derive(Debug)]
pub(crate) struct SyscallGroup {
    pub(crate) title: String,
    pub(crate) syscalls: Vec<Syscall>,
}

#[derive(Debug)]
pub(crate) struct Syscall {
    pub(crate) name: String,
    pub(crate) numbers: SyscallNumbers,
    /// The first case that matches decides; none means allowed.
    pub(crate) cases: Vec<SyscallCase>,
}

#[derive(Debug)]
pub(crate) struct SyscallCase {
    /// All must hold; empty means always.
    pub(crate) when: Vec<ArgTest>,
    pub(crate) action: SeccompAction,
    pub(crate) reason: String,
}

#[derive(Debug)]
pub(crate) struct ArgTest {
    pub(crate) arg: u32,
    pub(crate) bits: ArgWidth,
    pub(crate) check: ArgCheck,
    /// The test in words, for the documentation.
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) enum ArgCheck {
    Is { mask: u64, values: Vec<u64> },
    Not { mask: u64, values: Vec<u64> },
    AnyOf(u64),
    AnyBut(u64),
}

#[derive(Debug)]
pub(crate) struct LeftOpen {
    pub(crate) name: String,
    pub(crate) numbers: SyscallNumbers,
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct SyscallNumbers {
    pub(crate) x86_64: Option<u32>,
    pub(crate) aarch64: Option<u32>,
}

/// Ranges of numbers that exist, both ends included, ascending.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KnownNumbers {
    x86_64: Spanned<Vec<(u32, u32)>>,
    aarch64: Spanned<Vec<(u32, u32)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BuildArch {
    #[serde(rename = "x86_64")]
    X86_64,
    Aarch64,
}

/// How much of an argument the kernel looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u32")]
pub(crate) enum ArgWidth {
    Low32,
    All64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum SeccompAction {
    Allow,
    Eafnosupport,
    Einval,
    Enosys,
    Eperm,
    Eprotonosupport,
    /// The call succeeds and does nothing.
    Ignored,
}

/// What is wrong with a profile, and where.
#[derive(Debug)]
pub(crate) struct ProfileError {
    pub(crate) line: usize,
    pub(crate) problem: ProfileProblem,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProfileProblem {
    #[error("{0}")]
    Syntax(String),
    #[error("`{0}` has a second line")]
    DuplicateName(String),
    #[error("`{first}` and `{second}` have the same number on {arch}")]
    DuplicateNumber { first: String, second: String, arch: BuildArch },
    #[error("number {number} is outside `known` on {arch}")]
    Unknown { number: u32, arch: BuildArch },
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

impl SeccompProfile {
    pub(crate) fn parse(text: &str) -> Result<Self, ProfileError> {
        let raw: RawProfile = toml::from_str(text).map_err(|error| syntax(text, &error))?;
        let mut reader = ProfileReader { text, constants: &raw.constants, used: BTreeSet::new() };
        reader.ranges(&raw.known)?;
        let profile = Self {
            groups: raw.group.iter().map(|group| reader.group(group)).collect::<Result<_, _>>()?,
            no_inet: reader.syscalls(&raw.no_inet)?,
            counted: reader.syscalls(&raw.counted)?,
            left_open: reader.left_open(&raw.left_open)?,
            known: raw.known,
        };
        reader.all_used()?;
        ProfileChecker { text, profile: &profile, raw_groups: &raw.group, raw_left_open: &raw.left_open }
            .check()?;
        Ok(profile)
    }

    pub(crate) fn syscalls(&self) -> impl Iterator<Item = &Syscall> {
        self.groups.iter().flat_map(|group| &group.syscalls)
    }
}

impl SyscallNumbers {
    pub(crate) fn on(self, arch: BuildArch) -> Option<u32> {
        match arch {
            BuildArch::X86_64 => self.x86_64,
            BuildArch::Aarch64 => self.aarch64,
        }
    }
}

impl KnownNumbers {
    pub(crate) fn ranges(&self, arch: BuildArch) -> &[(u32, u32)] {
        self.spanned(arch).as_ref()
    }

    pub(crate) fn contains(&self, arch: BuildArch, number: u32) -> bool {
        self.ranges(arch).iter().any(|&(first, last)| (first..=last).contains(&number))
    }

    fn spanned(&self, arch: BuildArch) -> &Spanned<Vec<(u32, u32)>> {
        match arch {
            BuildArch::X86_64 => &self.x86_64,
            BuildArch::Aarch64 => &self.aarch64,
        }
    }
}

impl BuildArch {
    pub(crate) const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];
}

impl fmt::Display for BuildArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        })
    }
}

impl TryFrom<u32> for ArgWidth {
    type Error = &'static str;

    fn try_from(bits: u32) -> Result<Self, Self::Error> {
        match bits {
            32 => Ok(Self::Low32),
            64 => Ok(Self::All64),
            _ => Err("`bits` is 32 or 64"),
        }
    }
}

impl SeccompAction {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Allow => "ALLOW",
            Self::Eafnosupport => "EAFNOSUPPORT",
            Self::Einval => "EINVAL",
            Self::Enosys => "ENOSYS",
            Self::Eperm => "EPERM",
            Self::Eprotonosupport => "EPROTONOSUPPORT",
            Self::Ignored => "IGNORED",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProfile {
    known: KnownNumbers,
    constants: BTreeMap<String, Spanned<u64>>,
    group: Vec<RawGroup>,
    no_inet: RawSyscalls,
    counted: RawSyscalls,
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
    only: Option<BuildArch>,
    action: Option<SeccompAction>,
    reason: Option<String>,
    cases: Option<Vec<Spanned<RawCase>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    when: Vec<RawTest>,
    action: SeccompAction,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTest {
    arg: u32,
    bits: ArgWidth,
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
    only: Option<BuildArch>,
    reason: String,
}

/// Turns raw lines into checked ones; each method checks one line alone.
struct ProfileReader<'a> {
    text: &'a str,
    constants: &'a BTreeMap<String, Spanned<u64>>,
    used: BTreeSet<String>,
}

impl ProfileReader<'_> {
    fn ranges(&self, known: &KnownNumbers) -> Result<(), ProfileError> {
        for arch in BuildArch::ALL {
            let ranges = known.ranges(arch);
            let ordered = ranges.iter().all(|(first, last)| first <= last);
            let apart =
                ranges.iter().zip(ranges.iter().skip(1)).all(|((_, last), (first, _))| last + 1 < *first);
            if ranges.is_empty() || !ordered || !apart {
                return Err(mistake(self.text, known.spanned(arch).span().start, ProfileProblem::Ranges));
            }
        }
        Ok(())
    }

    fn group(&mut self, raw: &RawGroup) -> Result<SyscallGroup, ProfileError> {
        Ok(SyscallGroup { title: raw.title.clone(), syscalls: self.syscalls(&raw.syscalls)? })
    }

    fn syscalls(&mut self, raw: &RawSyscalls) -> Result<Vec<Syscall>, ProfileError> {
        in_file_order(raw).into_iter().map(|(name, line)| self.syscall(name, line)).collect()
    }

    fn syscall(&mut self, name: &str, line: &Spanned<RawSyscall>) -> Result<Syscall, ProfileError> {
        let at = line.span().start;
        let raw = line.as_ref();
        let numbers = self.numbers(at, [raw.x86_64, raw.aarch64], raw.only)?;
        let cases = match (raw.action, &raw.reason, &raw.cases) {
            (Some(action), Some(reason), None) => {
                vec![SyscallCase { when: Vec::new(), action, reason: self.reason(at, reason)? }]
            }
            (None, None, Some(cases)) if !cases.is_empty() => {
                cases.iter().map(|case| self.case(case)).collect::<Result<_, _>>()?
            }
            _ => return Err(mistake(self.text, at, ProfileProblem::ActionOrCases)),
        };
        Ok(Syscall { name: name.to_owned(), numbers, cases })
    }

    fn case(&mut self, line: &Spanned<RawCase>) -> Result<SyscallCase, ProfileError> {
        let at = line.span().start;
        let raw = line.as_ref();
        if raw.when.is_empty() {
            return Err(mistake(self.text, at, ProfileProblem::EmptyWhen));
        }
        let when = raw
            .when
            .iter()
            .map(|test| self.test(test).map_err(|problem| mistake(self.text, at, problem)))
            .collect::<Result<_, _>>()?;
        Ok(SyscallCase { when, action: raw.action, reason: self.reason(at, &raw.reason)? })
    }

    fn test(&mut self, raw: &RawTest) -> Result<ArgTest, ProfileProblem> {
        if raw.arg > 5 {
            return Err(ProfileProblem::Argument(raw.arg));
        }
        let forms = [("is", &raw.is), ("not", &raw.not), ("any_of", &raw.any_of), ("any_but", &raw.any_but)];
        let mut given = forms.iter().filter_map(|(form, names)| names.as_ref().map(|names| (*form, names)));
        let (Some((form, names)), None) = (given.next(), given.next()) else {
            return Err(ProfileProblem::TestForm);
        };
        if names.is_empty() {
            return Err(ProfileProblem::TestForm);
        }
        let values = names.iter().map(|name| self.constant(name)).collect::<Result<Vec<_>, _>>()?;
        let mask = raw.mask.as_ref().map(|name| self.constant(name)).transpose()?;
        let bits = values.iter().fold(0, |all, value| all | value);
        let check = match (form, mask) {
            ("is", _) => ArgCheck::Is { mask: mask.unwrap_or(u64::MAX), values },
            ("not", _) => ArgCheck::Not { mask: mask.unwrap_or(u64::MAX), values },
            (_, Some(_)) => return Err(ProfileProblem::Mask),
            ("any_of", None) => ArgCheck::AnyOf(bits),
            (_, None) => ArgCheck::AnyBut(bits),
        };
        Ok(ArgTest { arg: raw.arg, bits: raw.bits, check, text: in_words(raw, form, names) })
    }

    fn constant(&mut self, name: &str) -> Result<u64, ProfileProblem> {
        self.used.insert(name.to_owned());
        let value =
            self.constants.get(name).ok_or_else(|| ProfileProblem::UnknownConstant(name.to_owned()))?;
        Ok(*value.as_ref())
    }

    fn all_used(&self) -> Result<(), ProfileError> {
        match self.constants.iter().find(|(name, _)| !self.used.contains(*name)) {
            Some((name, value)) => {
                Err(mistake(self.text, value.span().start, ProfileProblem::UnusedConstant(name.clone())))
            }
            None => Ok(()),
        }
    }

    fn left_open(&self, raw: &BTreeMap<String, Spanned<RawLeftOpen>>) -> Result<Vec<LeftOpen>, ProfileError> {
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
        only: Option<BuildArch>,
    ) -> Result<SyscallNumbers, ProfileError> {
        match (x86_64, aarch64, only) {
            (Some(_), Some(_), None)
            | (Some(_), None, Some(BuildArch::X86_64))
            | (None, Some(_), Some(BuildArch::Aarch64)) => Ok(SyscallNumbers { x86_64, aarch64 }),
            _ => Err(mistake(self.text, at, ProfileProblem::Numbers)),
        }
    }

    fn reason(&self, at: usize, reason: &str) -> Result<String, ProfileError> {
        if reason.trim().is_empty() {
            return Err(mistake(self.text, at, ProfileProblem::EmptyReason));
        }
        Ok(reason.to_owned())
    }
}

/// Checks lines against each other.
struct ProfileChecker<'a> {
    text: &'a str,
    profile: &'a SeccompProfile,
    raw_groups: &'a [RawGroup],
    raw_left_open: &'a BTreeMap<String, Spanned<RawLeftOpen>>,
}

impl ProfileChecker<'_> {
    fn check(&self) -> Result<(), ProfileError> {
        let governed = self.profile.syscalls().map(|call| (call.name.as_str(), call.numbers));
        let left_open = self.profile.left_open.iter().map(|call| (call.name.as_str(), call.numbers));
        self.distinct(governed.chain(left_open))?;
        for more in [&self.profile.no_inet, &self.profile.counted] {
            self.distinct(more.iter().map(|call| (call.name.as_str(), call.numbers)))?;
        }
        Ok(())
    }

    fn distinct<'n>(
        &self,
        calls: impl Iterator<Item = (&'n str, SyscallNumbers)>,
    ) -> Result<(), ProfileError> {
        let mut names = BTreeSet::new();
        let mut numbers: BTreeMap<(usize, u32), &str> = BTreeMap::new();
        for (name, on) in calls {
            if !names.insert(name) {
                return Err(self.mistake(name, ProfileProblem::DuplicateName(name.to_owned())));
            }
            for (index, arch) in BuildArch::ALL.into_iter().enumerate() {
                let Some(number) = on.on(arch) else { continue };
                if !self.profile.known.contains(arch, number) {
                    return Err(self.mistake(name, ProfileProblem::Unknown { number, arch }));
                }
                if let Some(first) = numbers.insert((index, number), name) {
                    let (first, second) = (first.to_owned(), name.to_owned());
                    return Err(self.mistake(name, ProfileProblem::DuplicateNumber { first, second, arch }));
                }
            }
        }
        Ok(())
    }

    /// A mistake at the last line that names the call.
    fn mistake(&self, name: &str, problem: ProfileProblem) -> ProfileError {
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
        (None, ArgWidth::Low32) => format!("argument {}", raw.arg),
        (None, ArgWidth::All64) => format!("argument {} (64 bits)", raw.arg),
    };
    let list = names.join(", ");
    match form {
        "is" => format!("{value} is {list}"),
        "not" => format!("{value} is not {list}"),
        "any_of" => format!("{value} has any of {list}"),
        _ => format!("{value} has any bit but {list}"),
    }
}

fn syntax(text: &str, error: &toml::de::Error) -> ProfileError {
    let at = error.span().map_or(0, |span| span.start);
    mistake(text, at, ProfileProblem::Syntax(error.message().to_owned()))
}

fn mistake(text: &str, at: usize, problem: ProfileProblem) -> ProfileError {
    let line = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    ProfileError { line, problem }
}
