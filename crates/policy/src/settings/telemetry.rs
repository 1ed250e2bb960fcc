//! `[telemetry]`: where `ringfence serve` sends traces and logs.

use std::path::{Path, PathBuf};

use ringfence_types::Endpoint;
use ringfence_types::units::HumanDuration;

use super::super::file::PolicyDocument;
use super::super::format::{ContentWord, HeaderTable, SignalWord, TelemetryTable};
use super::super::problem::FileProblems;
use super::super::source_text::WithSpan;
use super::super::toml_reader::{ReadStatus, shorten};
use super::{check_place, expanded, first};

const TIMEOUT: HumanDuration = HumanDuration(10_000);
const LONGEST_TIMEOUT: HumanDuration = HumanDuration(60_000);
const QUEUE: u64 = 2048;
/// What is said with each request is short.
const MOST_HEADERS: usize = 16;
const MOST_RESOURCES: usize = 32;
/// Headers that say how the request itself is to be read.
const OURS: [&str; 10] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Where what is sent, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetrySettings {
    pub endpoint: Endpoint,
    pub signals: Vec<TelemetrySignal>,
    pub content: TelemetryDetail,
    pub timeout: HumanDuration,
    pub queue: u64,
    /// Who may vouch for the collector; `None`: the authorities that this machine trusts.
    pub authority: Option<PathBuf>,
    pub headers: Vec<ExportHeader>,
    pub resource: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TelemetrySignal {
    Traces,
    Logs,
}

impl TelemetrySignal {
    pub fn word(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Logs => "logs",
        }
    }
}

/// How much of what happened is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TelemetryDetail {
    /// Ids, decisions, rules, numbers.
    Metadata,
    /// Also what the ledger holds.
    Events,
}

impl TelemetryDetail {
    pub fn word(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Events => "events",
        }
    }
}

/// A header, and where its value is. The value is never here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportHeader {
    /// In lower case.
    pub name: String,
    pub scheme: Option<String>,
    pub source: HeaderSource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderSource {
    Secret(String),
    File(PathBuf),
}

pub(super) fn settings(documents: &[&PolicyDocument], home: Option<&Path>) -> Option<TelemetrySettings> {
    // What belongs together comes from one file: an address with the headers that were written beside it.
    let table =
        first(documents, |document| document.telemetry.endpoint.as_ref().map(|_| &document.telemetry))?;
    let authority = table.ca_file.as_ref().map(|path| expanded(&path.value, home));
    let headers: Option<Vec<ExportHeader>> = table
        .headers
        .iter()
        .flat_map(|named| &named.0)
        .map(|(name, table)| header(name, table, home))
        .collect();
    let signals: Vec<TelemetrySignal> =
        table.signals.iter().flat_map(|list| &list.items).map(|word| signal(word.value)).collect();
    Some(TelemetrySettings {
        endpoint: Endpoint::parse(&table.endpoint.as_ref()?.value).ok()?,
        signals: if signals.is_empty() {
            vec![TelemetrySignal::Traces, TelemetrySignal::Logs]
        } else {
            signals
        },
        content: match table.detail.as_ref().map(|word| word.value) {
            None | Some(ContentWord::Metadata) => TelemetryDetail::Metadata,
            Some(ContentWord::Events) => TelemetryDetail::Events,
        },
        timeout: table.timeout.as_ref().map_or(TIMEOUT, |given| given.value),
        queue: table.queue_size.as_ref().map_or(QUEUE, |given| given.value.0),
        // Without a home `~` leads nowhere, and then nothing is sent: not with less than was asked for.
        authority: match authority {
            Some(path) => Some(path?),
            None => None,
        },
        headers: headers?,
        resource: table
            .resource_attributes
            .iter()
            .flat_map(|list| &list.items)
            .filter_map(attribute)
            .collect(),
    })
}

fn signal(word: SignalWord) -> TelemetrySignal {
    match word {
        SignalWord::Traces => TelemetrySignal::Traces,
        SignalWord::Logs => TelemetrySignal::Logs,
    }
}

fn header(name: &WithSpan<String>, table: &HeaderTable, home: Option<&Path>) -> Option<ExportHeader> {
    let source = match (&table.secret, &table.file) {
        (Some(secret), _) => HeaderSource::Secret(secret.value.clone()),
        (None, Some(file)) => HeaderSource::File(expanded(&file.value, home)?),
        (None, None) => return None,
    };
    let scheme = table.prefix.as_ref().map(|scheme| scheme.value.clone());
    Some(ExportHeader { name: name.value.to_ascii_lowercase(), scheme, source })
}

fn attribute(text: &WithSpan<String>) -> Option<(String, String)> {
    let (name, value) = text.value.split_once('=')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let good = !name.is_empty() && name.bytes().all(plain) && !value.is_empty();
    good.then(|| (name.to_owned(), value.to_owned()))
}

pub(super) fn check(table: &TelemetryTable, problems: &mut FileProblems<'_>) {
    check_endpoint(table, problems);
    table.ca_file.iter().for_each(|file| check_place(file, problems));
    if let Some(timeout) = table.timeout.as_ref().filter(|timeout| timeout.value.0 > LONGEST_TIMEOUT.0) {
        let message = format!("`{}` is longer than the limit for a collector", timeout.value);
        problems.add(timeout.span, message, format!("write at most `{LONGEST_TIMEOUT}`"));
    }
    let headers = table.headers.as_ref().map(|named| named.0.as_slice()).unwrap_or_default();
    headers.iter().for_each(|(name, table)| check_header(name, table, problems));
    if headers.len() > MOST_HEADERS {
        problems.add(
            table.head.span,
            format!("there are {} headers", headers.len()),
            format!("write at most {MOST_HEADERS}"),
        );
    }
    if let Some(resource) = &table.resource_attributes {
        if resource.items.len() > MOST_RESOURCES {
            let message = format!("`resource_attributes` has {} entries", resource.items.len());
            problems.add(resource.span, message, format!("write at most {MOST_RESOURCES}"));
        }
        for text in resource.items.iter().filter(|text| attribute(text).is_none()) {
            let message = format!("`{}` is not a name with a value", shorten(&text.value));
            problems.add(text.span, message, "write `\"deployment.environment.name=production\"`");
        }
    }
}

fn check_endpoint(table: &TelemetryTable, problems: &mut FileProblems<'_>) {
    match &table.endpoint {
        Some(endpoint) => {
            if let Err(error) = Endpoint::parse(&endpoint.value) {
                problems.add(endpoint.span, error.to_string(), error.hint());
            }
        }
        None if table.head.reading == ReadStatus::Whole => problems.add(
            table.head.span,
            "nothing is sent without `endpoint`",
            "write `endpoint = \"http://127.0.0.1:4318\"`",
        ),
        None => {}
    }
}

fn check_header(name: &WithSpan<String>, table: &HeaderTable, problems: &mut FileProblems<'_>) {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let lower = name.value.to_ascii_lowercase();
    if !name.value.bytes().all(token) {
        let message = format!("`{}` is not the name of a header", shorten(&name.value));
        problems.add(name.span, message, "write letters, digits, `-` and `_`");
    } else if OURS.contains(&lower.as_str()) {
        let message = format!("`{lower}` says how the request is to be read, and is not yours to set");
        problems.add(name.span, message, "leave it out");
    }
    match (&table.secret, &table.file) {
        (Some(_), Some(file)) => {
            problems.add(file.span, "a header with two values", "write one of `secret` and `file`");
        }
        (None, None) if table.head.reading == ReadStatus::Whole => {
            let fix = "write `secret = \"NAME\"`, and keep the value with `ringfence secret set NAME`";
            problems.add(table.head.span, "a header without a value", fix);
        }
        _ => {}
    }
    table.file.iter().for_each(|file| check_place(file, problems));
    let scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    for given in table.prefix.iter().filter(|given| !given.value.bytes().all(scheme)) {
        // The value of the header may be here by mistake.
        let message =
            format!("`prefix` ({} bytes, not shown: it may be a value) is not a word", given.value.len());
        problems.add(given.span, message, "write `prefix = \"Bearer\"`");
    }
}
