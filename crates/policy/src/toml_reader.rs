//! From TOML values to typed ones. Goes on after a mistake, so that a person sees all of them at once.

use std::fmt::Display;

use ringfence_types::units::{self, ByteSize, CpuCount, HumanDuration};
use ringfence_types::{
    Access, ApprovalMode, Backend, ByteString, CommandMode, Control, LeakAction, NetMode, OciRuntime,
    Profile, UnknownKeyword, UnlistedHosts,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::FileProblems;
use super::source_text::{TextSpan, WithSpan};

pub(super) type TomlValue<'i> = Spanned<DeValue<'i>>;

/// A value of a key. `None`: there is a problem, and it was noted.
pub(super) trait ReadToml: Sized {
    fn read(key: &'static str, value: &TomlValue<'_>, problems: &mut FileProblems<'_>) -> Option<Self>;
}

/// A table with a closed set of keys.
pub(super) trait TomlTable: Sized {
    fn keys() -> Vec<&'static str>;
    fn take(fields: &mut TomlFields<'_, '_, '_>) -> Self;
}

/// A value without parts.
pub(super) trait TomlScalar: Sized {
    /// For "expected …".
    const EXPECTED: &'static str;
    fn parse(value: &DeValue<'_>) -> Result<Self, TomlMismatch>;

    #[cfg(test)]
    fn schema() -> schemars::Schema;
}

pub(super) enum TomlMismatch {
    Type,
    Value { message: String, fix: String },
}

impl TomlMismatch {
    /// For errors whose text says what to write instead.
    fn value(error: &impl Display) -> Self {
        let text = error.to_string();
        let (message, fix) = text.rsplit_once("; ").unwrap_or((&text, "write another value"));
        Self::Value { message: message.to_owned(), fix: fix.to_owned() }
    }

    pub(super) fn word(unknown: &UnknownKeyword) -> Self {
        let message = format!("unknown {} `{}`", unknown.what, shorten(&unknown.word));
        Self::Value { message, fix: suggestion(unknown) }
    }
}

/// The values of one table while it is read.
pub(super) struct TomlFields<'a, 'i, 'p> {
    table: &'a DeTable<'i>,
    head: TomlTableHead,
    problems: &'a mut FileProblems<'p>,
}

/// The place of a table, and whether all of it could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TomlTableHead {
    pub(super) span: TextSpan,
    pub(super) reading: ReadStatus,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReadStatus {
    #[default]
    Whole,
    /// What is missing from it was noted as a problem.
    Partial,
}

impl TomlFields<'_, '_, '_> {
    pub(super) fn take<T: ReadToml>(&mut self, key: &'static str) -> Option<T> {
        let value = self.table.get(key)?;
        let read = T::read(key, value, self.problems);
        if read.is_none() {
            self.head.reading = ReadStatus::Partial;
        }
        read
    }

    /// After everything was taken.
    pub(super) fn head(&self) -> TomlTableHead {
        self.head
    }
}

pub(super) fn read_table<T: TomlTable>(
    table: &DeTable<'_>,
    span: TextSpan,
    problems: &mut FileProblems<'_>,
) -> T {
    let known = T::keys();
    for key in table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
        unknown_key(key, &known, problems);
    }
    T::take(&mut TomlFields { table, head: TomlTableHead { span, ..TomlTableHead::default() }, problems })
}

fn unknown_key(
    key: &Spanned<std::borrow::Cow<'_, str>>,
    known: &[&'static str],
    problems: &mut FileProblems<'_>,
) {
    if let Some(flag) = startup_flag(key.get_ref()) {
        let message =
            format!("`{}` is a flag of the command line alone: no file turns it on", shorten(key.get_ref()));
        return problems.add(key.span().into(), message, format!("leave it out, and start with `{flag}`"));
    }
    let unknown = unknown("key", key.get_ref(), known);
    let message = format!("unknown key `{}`", shorten(&unknown.word));
    problems.add(key.span().into(), message, suggestion(&unknown));
}

/// The operator weakens a guarantee with a startup flag, each time, and never in a file that stays (C-31).
fn startup_flag(key: &str) -> Option<&'static str> {
    match key.replace('-', "_").as_str() {
        "danger" => Some("--danger"),
        "allow_sensitive_roots" => Some("--allow-sensitive-roots"),
        "allow_denylisted_commands" => Some("--allow-denylisted-commands"),
        _ => None,
    }
}

impl<T: TomlTable> ReadToml for T {
    fn read(key: &'static str, value: &TomlValue<'_>, problems: &mut FileProblems<'_>) -> Option<Self> {
        let span = value.span().into();
        let Some(table) = value.get_ref().as_table() else {
            let message = format!("`{key}` is a table, not {}", kind_of(value.get_ref()));
            problems.add(span, message, format!("write `[{key}]` and its keys below it"));
            return None;
        };
        Some(read_table(table, span, problems))
    }
}

/// `[[key]]`, any number of times.
impl<T: TomlTable> ReadToml for Vec<T> {
    fn read(key: &'static str, value: &TomlValue<'_>, problems: &mut FileProblems<'_>) -> Option<Self> {
        let entries = value
            .get_ref()
            .as_array()
            .filter(|entries| entries.iter().all(|entry| entry.get_ref().is_table()));
        let Some(entries) = entries else {
            let message = format!("`{key}` is a list of entries, not {}", kind_of(value.get_ref()));
            problems.add(value.span().into(), message, format!("write `[[{key}]]` before each entry"));
            return None;
        };
        Some(entries.iter().filter_map(|entry| T::read(key, entry, problems)).collect())
    }
}

/// `[key.NAME]`, one table per name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedTables<T>(pub(super) Vec<(WithSpan<String>, T)>);

impl<T: TomlTable> ReadToml for NamedTables<T> {
    fn read(key: &'static str, value: &TomlValue<'_>, problems: &mut FileProblems<'_>) -> Option<Self> {
        let Some(table) = value.get_ref().as_table() else {
            let message = format!("`{key}` holds tables by name, not {}", kind_of(value.get_ref()));
            problems.add(value.span().into(), message, format!("write `[{key}.NAME]`"));
            return None;
        };
        let mut named = Vec::new();
        for (name, value) in table {
            let at = WithSpan { value: name.get_ref().clone().into_owned(), span: name.span().into() };
            if check_text(key, &at.value, at.span, problems)
                && let Some(entry) = T::read(key, value, problems)
            {
                named.push((at, entry));
            }
        }
        Some(Self(named))
    }
}

impl<T: TomlScalar> ReadToml for WithSpan<T> {
    fn read(key: &'static str, value: &TomlValue<'_>, problems: &mut FileProblems<'_>) -> Option<Self> {
        let span: TextSpan = value.span().into();
        if let Some(text) = value.get_ref().as_str()
            && !check_text(key, text, span, problems)
        {
            return None;
        }
        match T::parse(value.get_ref()) {
            Ok(value) => return Some(Self { value, span }),
            Err(TomlMismatch::Type) => {
                let message = format!("`{key}` is {}, not {}", T::EXPECTED, kind_of(value.get_ref()));
                problems.add(span, message, rewrite(key, T::EXPECTED));
            }
            Err(TomlMismatch::Value { message, fix }) => problems.add(span, message, fix),
        }
        None
    }
}

/// One value, or a list that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OneOrMany<T> {
    pub(super) items: Vec<WithSpan<T>>,
    pub(super) span: TextSpan,
}

impl<T: TomlScalar> ReadToml for OneOrMany<T> {
    fn read(key: &'static str, value: &TomlValue<'_>, problems: &mut FileProblems<'_>) -> Option<Self> {
        let span = value.span().into();
        let Some(list) = value.get_ref().as_array() else {
            return WithSpan::read(key, value, problems).map(|item| Self { items: vec![item], span });
        };
        if list.is_empty() {
            empty_list(key, span, problems);
            return None;
        }
        let items: Vec<WithSpan<T>> =
            list.iter().filter_map(|item| WithSpan::read(key, item, problems)).collect();
        (items.len() == list.len()).then_some(Self { items, span })
    }
}

/// C-27: an empty list is "everything" to one reader and "nothing" to the next.
pub(super) fn empty_list(key: &'static str, span: TextSpan, problems: &mut FileProblems<'_>) {
    let (any, none) = match key {
        "allow_subcommands" => {
            ("leave `allow_subcommands` out for every subcommand", "write `deny` for none")
        }
        "deny_subcommands" => {
            ("leave `deny_subcommands` out to deny no subcommand", "write `deny` for all of them")
        }
        "methods" => ("leave `methods` out for every method", "write `deny` for none"),
        "required_controls" | "danger_required_controls" => {
            ("leave it out to require every control", "name the controls")
        }
        "extends" => ("leave `extends` out to extend nothing", "name the files"),
        "approved_digests" => ("leave `approved_digests` out to approve nothing", "name the digests"),
        _ => ("leave it out if nothing is meant", "name what is meant"),
    };
    problems.add(
        span,
        format!("`{key}` is an empty list, which could mean all or nothing"),
        format!("{any}, or {none}"),
    );
}

/// Nothing in a policy is empty or invisible.
pub(super) fn check_text(key: &str, text: &str, span: TextSpan, problems: &mut FileProblems<'_>) -> bool {
    const LONGEST: usize = 4096;
    if text.is_empty() {
        problems.add(span, format!("`{key}` is empty"), "write a value, or leave the key out");
        return false;
    }
    if text.len() > LONGEST {
        problems.add(span, format!("`{key}` has {} bytes", text.len()), format!("write at most {LONGEST}"));
        return false;
    }
    let shown = ByteString::from(text).display();
    if shown != text {
        let message = format!("`{}` contains a character that cannot be seen", shorten(&shown));
        problems.add(span, message, "write it without control, zero-width or bidirectional characters");
        return false;
    }
    true
}

macro_rules! word {
    ($($type:ty: $article:literal $what:literal),+ $(,)?) => { $(
        impl TomlScalar for $type {
            const EXPECTED: &'static str = concat!($article, " ", $what);

            fn parse(value: &DeValue<'_>) -> Result<Self, TomlMismatch> {
                let word = value.as_str().ok_or(TomlMismatch::Type)?;
                Self::WORDS.iter().zip(Self::ALL).find(|(known, _)| **known == word).map(|(_, found)| *found)
                    .ok_or_else(|| TomlMismatch::word(&unknown($what, word, Self::WORDS)))
            }

            #[cfg(test)]
            fn schema() -> schemars::Schema {
                schemars::json_schema!({ "enum": Self::WORDS })
            }
        }
    )+ };
}
pub(super) use word;

word! {
    Profile: "a" "profile",
    CommandMode: "a" "command mode",
    ApprovalMode: "an" "approval mode",
    UnlistedHosts: "an" "answer about unknown hosts",
    Access: "an" "access",
    NetMode: "a" "network mode",
    Backend: "a" "backend",
    OciRuntime: "a" "runtime",
    Control: "a" "control",
    LeakAction: "an" "action",
}

/// Text that is not empty and can be seen.
impl TomlScalar for String {
    const EXPECTED: &'static str = "a string";

    fn parse(value: &DeValue<'_>) -> Result<Self, TomlMismatch> {
        value.as_str().map(str::to_owned).ok_or(TomlMismatch::Type)
    }

    #[cfg(test)]
    fn schema() -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1 })
    }
}

impl TomlScalar for bool {
    const EXPECTED: &'static str = "`true` or `false`";

    fn parse(value: &DeValue<'_>) -> Result<Self, TomlMismatch> {
        value.as_bool().ok_or(TomlMismatch::Type)
    }

    #[cfg(test)]
    fn schema() -> schemars::Schema {
        schemars::json_schema!({ "type": "boolean" })
    }
}

/// Numbers with a unit, as a string or bare.
macro_rules! unit {
    ($($type:ty: $expected:literal, $json:tt, $parse:expr;)+) => { $(
        impl TomlScalar for $type {
            const EXPECTED: &'static str = $expected;

            fn parse(value: &DeValue<'_>) -> Result<Self, TomlMismatch> {
                let text = number_text(value).ok_or(TomlMismatch::Type)?;
                let parse: fn(&str) -> Result<Self, units::UnitError> = $parse;
                parse(text).map_err(|error| TomlMismatch::value(&error))
            }

            #[cfg(test)]
            fn schema() -> schemars::Schema {
                schemars::json_schema!($json)
            }
        }
    )+ };
}

unit! {
    MemorySize: "a size such as \"512m\"", { "type": ["string", "integer"], "pattern": "^[0-9]+([kKmMgG]([iI]?[bB])?|[bB])?$", "minimum": 8_388_608 }, |text| ByteSize::memory(text).map(MemorySize);
    ByteSize: "a size such as \"512m\"", { "type": ["string", "integer"], "pattern": "^[0-9]+([kKmMgG]([iI]?[bB])?|[bB])?$", "minimum": 1 }, str::parse;
    HumanDuration: "a time such as \"30s\"", { "type": ["string", "integer"], "pattern": "^[0-9]+(ms|s|m|h|d)?$", "minimum": 1 }, str::parse;
    CpuCount: "a number of cores such as 0.5", { "type": ["string", "number"], "pattern": "^[0-9]+([.][0-9]{1,3})?$", "minimum": 0.01, "maximum": 1024 }, str::parse;
}

/// A size that a program can start in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemorySize(pub(super) ByteSize);

fn number_text<'v>(value: &'v DeValue<'_>) -> Option<&'v str> {
    match value {
        DeValue::String(text) => Some(text),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str()),
        DeValue::Float(number) => Some(number.as_str()),
        _ => None,
    }
}

/// Whole numbers in a range.
macro_rules! count {
    ($($(#[$doc:meta])* $name:ident: $expected:literal, $range:expr;)+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct $name(pub(super) u64);

        impl TomlScalar for $name {
            const EXPECTED: &'static str = $expected;

            fn parse(value: &DeValue<'_>) -> Result<Self, TomlMismatch> {
                let number = value.as_integer().filter(|number| number.radix() == 10).ok_or(TomlMismatch::Type)?;
                let range = $range;
                number.as_str().parse().ok().filter(|count| range.contains(count)).map(Self).ok_or_else(|| TomlMismatch::Value {
                    message: format!("`{}` is not {}", shorten(number.as_str()), $expected),
                    fix: if range.start() == range.end() { format!("write {}", range.start()) }
                        else { format!("write a number from {} to {}", range.start(), range.end()) },
                })
            }

            #[cfg(test)]
            fn schema() -> schemars::Schema {
                let range = $range;
                schemars::json_schema!({ "type": "integer", "minimum": range.start(), "maximum": range.end() })
            }
        }
    )+ };
}

count! {
    Processes: "a number of processes", units::PROCESSES;
    OpenFiles: "a number of files", units::OPEN_FILES;
    /// Containers that wait.
    Pool: "a number of containers", 0..=16_u64;
    FlowCount: "a number of flows", units::FLOWS;
    /// What waits to be sent.
    Waiting: "a number of things that wait", 16..=65_536_u64;
    /// How many people it takes.
    People: "a number of people", 1..=100_u64;
    /// Of the format.
    Version: "a version of this format that is known", 1..=1_u64;
}

/// With the nearest word that is known, unless the text is too long to be a misspelling.
pub(super) fn unknown(what: &'static str, word: &str, known: &[&'static str]) -> UnknownKeyword {
    const LONGEST: usize = 64;
    if word.len() <= LONGEST {
        return UnknownKeyword::new(what, word, known);
    }
    UnknownKeyword { what, word: ByteString::from(word).display(), nearest: None, known: known.join(", ") }
}

fn suggestion(unknown: &UnknownKeyword) -> String {
    match unknown.nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("known: {}", unknown.known),
    }
}

/// Text of a person for a message: safe to show, and not longer than a line.
pub(super) fn shorten(text: &str) -> String {
    const LONGEST: usize = 80;
    let shown = ByteString::from(text).display();
    if shown.chars().count() <= LONGEST {
        return shown;
    }
    shown.chars().take(LONGEST).chain(['…']).collect()
}

/// A list where a rule was meant is the mistake that plural keys invite.
fn rewrite(key: &str, expected: &str) -> String {
    match key {
        "commands" => {
            "write one of `contained` and `listed`; rules about commands are written as `[[command]]`"
                .to_owned()
        }
        _ => format!("write {expected}"),
    }
}

pub(super) fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
