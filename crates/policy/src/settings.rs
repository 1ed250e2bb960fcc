//! What operator files say that is about no action: how questions are asked, how the daemon is reached,
//! where it sends what it says about itself.

mod daemon;
mod telemetry;

use std::path::{Path, PathBuf};

use ringfence_types::Quorum;
use ringfence_types::units::HumanDuration;

use super::file::{PolicyDocument, PolicyFile, PolicyFileRole};
use super::format::{ApprovalsTable, ChannelWord, Top, WebhookTable};
use super::problem::FileProblems;
use super::source_text::WithSpan;
use super::toml_reader::{ReadStatus, shorten};

pub use daemon::{DaemonSettings, TlsSettings};
pub use telemetry::{ExportHeader, HeaderSource, TelemetryDetail, TelemetrySettings, TelemetrySignal};

/// What holds besides the policy itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorSettings {
    pub approvals: ApprovalSettings,
    pub daemon: DaemonSettings,
    /// `None`: nothing is sent anywhere.
    pub telemetry: Option<TelemetrySettings>,
}

/// How questions are asked and answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalSettings {
    /// `None`: by the risk of what is asked.
    pub timeout: Option<HumanDuration>,
    pub quorum: Quorum,
    /// Whether an answer has to say why.
    pub reason_required: bool,
    /// `None`: the default of the runtime.
    pub grant_lifetime: Option<HumanDuration>,
    pub notify: Vec<NotifyChannel>,
    pub webhook: Option<WebhookSettings>,
}

/// How people who are not at the terminal hear of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotifyChannel {
    Desktop,
    Webhook,
}

impl NotifyChannel {
    pub fn word(self) -> &'static str {
        match self {
            Self::Desktop => "desktop",
            Self::Webhook => "webhook",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    pub url: String,
    pub secret_file: PathBuf,
}

/// Of all operator files together: for each key the file that was heard last, and of one file its own text before what
/// it extends.
pub fn settings(files: &[PolicyFile], home: Option<&Path>) -> OperatorSettings {
    let operators = files.iter().rev().filter(|file| file.role() == PolicyFileRole::Operator);
    let documents: Vec<&PolicyDocument> = operators.flat_map(PolicyFile::documents).collect();
    OperatorSettings {
        approvals: approvals(&documents, home),
        daemon: daemon::settings(&documents, home),
        telemetry: telemetry::settings(&documents, home),
    }
}

/// The first that says something.
fn first<'d, V>(
    documents: &[&'d PolicyDocument],
    key: impl Fn(&'d PolicyDocument) -> Option<&'d V>,
) -> Option<&'d V> {
    documents.iter().find_map(|document| key(document))
}

fn approvals(documents: &[&PolicyDocument], home: Option<&Path>) -> ApprovalSettings {
    let quorum = first(documents, |document| document.approvals.quorum.as_ref());
    let people = |count: Option<u64>| count.and_then(|count| u8::try_from(count).ok()).unwrap_or(1);
    let notify = first(documents, |document| document.approvals.notify.as_ref());
    let reason = first(documents, |document| document.approvals.require_reason.as_ref());
    let expiry = first(documents, |document| document.approvals.grant_lifetime.as_ref());
    let webhook_table = first(documents, |document| document.approvals.webhook.as_ref());
    ApprovalSettings {
        timeout: first(documents, |document| document.approvals.timeout.as_ref()).map(|given| given.value),
        quorum: Quorum {
            approve: people(quorum.and_then(|table| table.approve.as_ref()).map(|count| count.value.0)),
            deny: people(quorum.and_then(|table| table.deny.as_ref()).map(|count| count.value.0)),
        },
        reason_required: reason.is_some_and(|given| given.value),
        grant_lifetime: expiry.map(|given| given.value),
        notify: notify.iter().flat_map(|list| &list.items).map(|word| channel(word.value)).collect(),
        webhook: webhook_table.and_then(|table| webhook(table, home)),
    }
}

fn channel(word: ChannelWord) -> NotifyChannel {
    match word {
        ChannelWord::Desktop => NotifyChannel::Desktop,
        ChannelWord::Webhook => NotifyChannel::Webhook,
    }
}

fn webhook(table: &WebhookTable, home: Option<&Path>) -> Option<WebhookSettings> {
    let secret_file = expanded(&table.secret_file.as_ref()?.value, home)?;
    Some(WebhookSettings { url: table.url.as_ref()?.value.clone(), secret_file })
}

fn expanded(path: &str, home: Option<&Path>) -> Option<PathBuf> {
    match path.strip_prefix("~/") {
        Some(rest) => home.map(|home| home.join(rest)),
        None => Some(PathBuf::from(path)),
    }
}

/// What makes no sense in the tables of this module.
pub(super) fn check(top: &Top, problems: &mut FileProblems<'_>) {
    if let Some(approvals) = &top.approvals {
        check_channels(approvals, problems);
        approvals.webhook.iter().for_each(|webhook| check_webhook(webhook, problems));
    }
    top.daemon.iter().for_each(|table| daemon::check(table, problems));
    top.telemetry.iter().for_each(|table| telemetry::check(table, problems));
}

/// A channel that leads nowhere would leave people waiting for a question that never comes.
fn check_channels(approvals: &ApprovalsTable, problems: &mut FileProblems<'_>) {
    let channels = approvals.notify.iter().flat_map(|list| &list.items);
    for channel in channels.filter(|channel| channel.value == ChannelWord::Webhook) {
        if approvals.webhook.is_none() && approvals.head.reading == ReadStatus::Whole {
            let fix = "write `webhook = { url = \"https://…\", secret_file = \"~/…\" }` beside it";
            problems.add(channel.span, "`webhook` has no `url`", fix);
        }
    }
}

fn check_webhook(webhook: &WebhookTable, problems: &mut FileProblems<'_>) {
    let whole = webhook.head.reading == ReadStatus::Whole;
    match &webhook.url {
        Some(url) if !is_safe_url(&url.value) => {
            let message =
                format!("`{}` would send questions in the clear, or is no address", shorten(&url.value));
            problems.add(url.span, message, "write `https://HOST/…`; `http://` only to this machine itself");
        }
        None if whole => {
            problems.add(webhook.head.span, "a webhook without a `url`", "write `url = \"https://…\"`")
        }
        _ => {}
    }
    match &webhook.secret_file {
        Some(file) => check_place(file, problems),
        None if whole => problems.add(
            webhook.head.span,
            "a webhook without a `secret_file`",
            "write `secret_file = \"~/…\"`, a file with the secret that signs what is sent",
        ),
        None => {}
    }
}

fn is_safe_url(url: &str) -> bool {
    let host = |rest: &str| rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned();
    if let Some(rest) = url.strip_prefix("https://") {
        return !host(rest).is_empty() && !host(rest).contains('@');
    }
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = host(rest);
    let name = match authority.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let local = name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    !authority.contains('@') && (local || name == "localhost")
}

fn check_place(path: &WithSpan<String>, problems: &mut FileProblems<'_>) {
    if !path.value.starts_with('/') && !path.value.starts_with("~/") {
        let message = format!("`{}` is not an absolute path", shorten(&path.value));
        problems.add(path.span, message, "write `/…`, or `~/…` for the home");
    }
}
