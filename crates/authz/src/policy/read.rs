//! From TOML values to typed ones. Goes on after a mistake, so that a person sees all of them at once.

use std::fmt::Display;

use ringfence_types::units::{self, Cpus, Duration, Size};
use ringfence_types::{
    Access, ApprovalMode, Backend, Bytes, CommandMode, Control, LeakAction, NetMode, OciRuntime, Profile,
    UnknownHosts, UnknownWord,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::Problems;
use super::text::{At, Span};

pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// A value of a key. `None`: there is a problem, and it was noted.
pub(super) trait Read: Sized {
    fn read(key: &'static str, value: &Value<'_>, problems: &mut Problems<'_>) -> Option<Self>;
}

/// A table with a closed set of keys.
pub(super) trait Table: Sized {
    fn keys() -> Vec<&'static str>;
    fn take(fields: &mut Fields<'_, '_, '_>) -> Self;
}

/// A value without parts.
pub(super) trait Scalar: Sized {
    /// For "expected …".
    const EXPECTED: &'static str;
    fn parse(value: &DeValue<'_>) -> Result<Self, Wrong>;

    #[cfg(test)]
    fn schema() -> schemars::Schema;
}

pub(super) enum Wrong {
    Type,
    Value { message: String, fix: String },
}

impl Wrong {
    /// For errors whose text says what to write instead.
    fn value(error: &impl Display) -> Self {
        let text = error.to_string();
        let (message, fix) = text.rsplit_once("; ").unwrap_or((&text, "write another value"));
        Self::Value { message: message.to_owned(), fix: fix.to_owned() }
    }

    pub(super) fn word(unknown: &UnknownWord) -> Self {
        let message = format!("unknown {} `{}`", unknown.what, shorten(&unknown.word));
        Self::Value { message, fix: suggestion(unknown) }
    }
}

/// The values of one table while it is read.
pub(super) struct Fields<'a, 'i, 'p> {
    table: &'a DeTable<'i>,
    head: Head,
    problems: &'a mut Problems<'p>,
}

/// The place of a table, and whether all of it could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) span: Span,
    pub(super) reading: Reading,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reading {
    #[default]
    Whole,
    /// What is missing from it was noted as a problem.
    Partial,
}

impl Fields<'_, '_, '_> {
    pub(super) fn take<T: Read>(&mut self, key: &'static str) -> Option<T> {
        let value = self.table.get(key)?;
        let read = T::read(key, value, self.problems);
        if read.is_none() {
            self.head.reading = Reading::Partial;
        }
        read
    }

    /// After everything was taken.
    pub(super) fn head(&self) -> Head {
        self.head
    }
}

pub(super) fn read_table<T: Table>(table: &DeTable<'_>, span: Span, problems: &mut Problems<'_>) -> T {
    let known = T::keys();
    for key in table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
        unknown_key(key, &known, problems);
    }
    T::take(&mut Fields { table, head: Head { span, ..Head::default() }, problems })
}

fn unknown_key(
    key: &Spanned<std::borrow::Cow<'_, str>>,
    known: &[&'static str],
    problems: &mut Problems<'_>,
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

/// What weakens a guarantee is said by whoever starts something, each time, and never by a file that stays (C-31).
fn startup_flag(key: &str) -> Option<&'static str> {
    match key.replace('-', "_").as_str() {
        "danger" => Some("--danger"),
        "allow_sensitive_roots" => Some("--allow-sensitive-roots"),
        "allow_denylisted_commands" => Some("--allow-denylisted-commands"),
        _ => None,
    }
}

impl<T: Table> Read for T {
    fn read(key: &'static str, value: &Value<'_>, problems: &mut Problems<'_>) -> Option<Self> {
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
impl<T: Table> Read for Vec<T> {
    fn read(key: &'static str, value: &Value<'_>, problems: &mut Problems<'_>) -> Option<Self> {
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
pub(super) struct Named<T>(pub(super) Vec<(At<String>, T)>);

impl<T: Table> Read for Named<T> {
    fn read(key: &'static str, value: &Value<'_>, problems: &mut Problems<'_>) -> Option<Self> {
        let Some(table) = value.get_ref().as_table() else {
            let message = format!("`{key}` holds tables by name, not {}", kind_of(value.get_ref()));
            problems.add(value.span().into(), message, format!("write `[{key}.NAME]`"));
            return None;
        };
        let mut named = Vec::new();
        for (name, value) in table {
            let at = At { value: name.get_ref().clone().into_owned(), span: name.span().into() };
            if check_text(key, &at.value, at.span, problems)
                && let Some(entry) = T::read(key, value, problems)
            {
                named.push((at, entry));
            }
        }
        Some(Self(named))
    }
}

impl<T: Scalar> Read for At<T> {
    fn read(key: &'static str, value: &Value<'_>, problems: &mut Problems<'_>) -> Option<Self> {
        let span: Span = value.span().into();
        if let Some(text) = value.get_ref().as_str()
            && !check_text(key, text, span, problems)
        {
            return None;
        }
        match T::parse(value.get_ref()) {
            Ok(value) => return Some(Self { value, span }),
            Err(Wrong::Type) => {
                let message = format!("`{key}` is {}, not {}", T::EXPECTED, kind_of(value.get_ref()));
                problems.add(span, message, rewrite(key, T::EXPECTED));
            }
            Err(Wrong::Value { message, fix }) => problems.add(span, message, fix),
        }
        None
    }
}

/// One value, or a list that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Many<T> {
    pub(super) items: Vec<At<T>>,
    pub(super) span: Span,
}

impl<T: Scalar> Read for Many<T> {
    fn read(key: &'static str, value: &Value<'_>, problems: &mut Problems<'_>) -> Option<Self> {
        let span = value.span().into();
        let Some(list) = value.get_ref().as_array() else {
            return At::read(key, value, problems).map(|item| Self { items: vec![item], span });
        };
        if list.is_empty() {
            empty_list(key, span, problems);
            return None;
        }
        let items: Vec<At<T>> = list.iter().filter_map(|item| At::read(key, item, problems)).collect();
        (items.len() == list.len()).then_some(Self { items, span })
    }
}

/// C-27: an empty list is "everything" to one reader and "nothing" to the next.
pub(super) fn empty_list(key: &'static str, span: Span, problems: &mut Problems<'_>) {
    let (any, none) = match key {
        "allowed" => ("leave `allowed` out for every subcommand", "write `deny` for none"),
        "blocked" => ("leave `blocked` out to block no subcommand", "write `deny` for all of them"),
        "methods" => ("leave `methods` out for every method", "write `deny` for none"),
        "floor" | "danger_floor" => ("leave it out to require every control", "name the controls"),
        "extends" => ("leave `extends` out to extend nothing", "name the files"),
        "approved" => ("leave `approved` out to approve nothing", "name the digests"),
        _ => ("leave it out if nothing is meant", "name what is meant"),
    };
    problems.add(
        span,
        format!("`{key}` is an empty list, which could mean all or nothing"),
        format!("{any}, or {none}"),
    );
}

/// Nothing in a policy is empty or invisible.
pub(super) fn check_text(key: &str, text: &str, span: Span, problems: &mut Problems<'_>) -> bool {
    const LONGEST: usize = 4096;
    if text.is_empty() {
        problems.add(span, format!("`{key}` is empty"), "write a value, or leave the key out");
        return false;
    }
    if text.len() > LONGEST {
        problems.add(span, format!("`{key}` has {} bytes", text.len()), format!("write at most {LONGEST}"));
        return false;
    }
    let shown = Bytes::from(text).display();
    if shown != text {
        let message = format!("`{}` contains a character that cannot be seen", shorten(&shown));
        problems.add(span, message, "write it without control, zero-width or bidirectional characters");
        return false;
    }
    true
}

macro_rules! word {
    ($($type:ty: $article:literal $what:literal),+ $(,)?) => { $(
        impl Scalar for $type {
            const EXPECTED: &'static str = concat!($article, " ", $what);

            fn parse(value: &DeValue<'_>) -> Result<Self, Wrong> {
                let word = value.as_str().ok_or(Wrong::Type)?;
                Self::WORDS.iter().zip(Self::ALL).find(|(known, _)| **known == word).map(|(_, found)| *found)
                    .ok_or_else(|| Wrong::word(&unknown($what, word, Self::WORDS)))
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
    UnknownHosts: "an" "answer about unknown hosts",
    Access: "an" "access",
    NetMode: "a" "network mode",
    Backend: "a" "backend",
    OciRuntime: "a" "runtime",
    Control: "a" "control",
    LeakAction: "an" "action",
}

/// Text that is not empty and can be seen.
impl Scalar for String {
    const EXPECTED: &'static str = "a string";

    fn parse(value: &DeValue<'_>) -> Result<Self, Wrong> {
        value.as_str().map(str::to_owned).ok_or(Wrong::Type)
    }

    #[cfg(test)]
    fn schema() -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1 })
    }
}

impl Scalar for bool {
    const EXPECTED: &'static str = "`true` or `false`";

    fn parse(value: &DeValue<'_>) -> Result<Self, Wrong> {
        value.as_bool().ok_or(Wrong::Type)
    }

    #[cfg(test)]
    fn schema() -> schemars::Schema {
        schemars::json_schema!({ "type": "boolean" })
    }
}

/// Numbers with a unit, as a string or bare.
macro_rules! unit {
    ($($type:ty: $expected:literal, $json:tt, $parse:expr;)+) => { $(
        impl Scalar for $type {
            const EXPECTED: &'static str = $expected;

            fn parse(value: &DeValue<'_>) -> Result<Self, Wrong> {
                let text = number_text(value).ok_or(Wrong::Type)?;
                let parse: fn(&str) -> Result<Self, units::UnitError> = $parse;
                parse(text).map_err(|error| Wrong::value(&error))
            }

            #[cfg(test)]
            fn schema() -> schemars::Schema {
                schemars::json_schema!($json)
            }
        }
    )+ };
}

unit! {
    Memory: "a size such as \"512m\"", { "type": ["string", "integer"], "pattern": "^[0-9]+([kKmMgG]([iI]?[bB])?|[bB])?$", "minimum": 8_388_608 }, |text| Size::memory(text).map(Memory);
    Size: "a size such as \"512m\"", { "type": ["string", "integer"], "pattern": "^[0-9]+([kKmMgG]([iI]?[bB])?|[bB])?$", "minimum": 1 }, str::parse;
    Duration: "a time such as \"30s\"", { "type": ["string", "integer"], "pattern": "^[0-9]+(ms|s|m|h|d)?$", "minimum": 1 }, str::parse;
    Cpus: "a number of cores such as 0.5", { "type": ["string", "number"], "pattern": "^[0-9]+([.][0-9]{1,3})?$", "minimum": 0.01, "maximum": 1024 }, str::parse;
}

/// A size that a program can start in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory(pub(super) Size);

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

        impl Scalar for $name {
            const EXPECTED: &'static str = $expected;

            fn parse(value: &DeValue<'_>) -> Result<Self, Wrong> {
                let number = value.as_integer().filter(|number| number.radix() == 10).ok_or(Wrong::Type)?;
                let range = $range;
                number.as_str().parse().ok().filter(|count| range.contains(count)).map(Self).ok_or_else(|| Wrong::Value {
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
pub(super) fn unknown(what: &'static str, word: &str, known: &[&'static str]) -> UnknownWord {
    const LONGEST: usize = 64;
    if word.len() <= LONGEST {
        return UnknownWord::new(what, word, known);
    }
    UnknownWord { what, word: Bytes::from(word).display(), nearest: None, known: known.join(", ") }
}

fn suggestion(unknown: &UnknownWord) -> String {
    match unknown.nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("known: {}", unknown.known),
    }
}

/// Text of a person for a message: safe to show, and not longer than a line.
pub(super) fn shorten(text: &str) -> String {
    const LONGEST: usize = 80;
    let shown = Bytes::from(text).display();
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
