//! What operator files say that is about no action: how questions are asked, how the daemon is reached,
//! where it sends what it says about itself.

mod daemon;
mod telemetry;

use std::path::{Path, PathBuf};

use ringfence_types::Quorum;
use ringfence_types::units::Duration;

use super::file::{Document, PolicyFile, Role};
use super::format::{ApprovalsTable, ChannelWord, ReasonWord, Top, WebhookTable};
use super::problem::Problems;
use super::read::{Reading, shorten};
use super::text::At;

pub use daemon::{DaemonSettings, Tls};
pub use telemetry::{Content, Header, HeaderSource, Signal, TelemetrySettings};

/// What holds besides the policy itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub approvals: ApprovalSettings,
    pub daemon: DaemonSettings,
    /// `None`: nothing is sent anywhere.
    pub telemetry: Option<TelemetrySettings>,
}

/// How questions are asked and answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalSettings {
    /// `None`: by the risk of what is asked.
    pub timeout: Option<Duration>,
    pub quorum: Quorum,
    /// Whether an answer has to say why.
    pub reason_required: bool,
    /// `None`: the default of whoever makes a grant.
    pub grant_expiry: Option<Duration>,
    pub notify: Vec<Channel>,
    pub webhook: Option<Webhook>,
}

/// How people who are not at the terminal hear of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    Desktop,
    Webhook,
}

impl Channel {
    pub fn word(self) -> &'static str {
        match self {
            Self::Desktop => "desktop",
            Self::Webhook => "webhook",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub url: String,
    pub secret_file: PathBuf,
}

/// Of all operator files together: for each key the file that was heard last, and of one file its own text before what
/// it extends.
pub fn settings(files: &[PolicyFile], home: Option<&Path>) -> Settings {
    let operators = files.iter().rev().filter(|file| file.role() == Role::Operator);
    let documents: Vec<&Document> = operators.flat_map(PolicyFile::documents).collect();
    Settings {
        approvals: approvals(&documents, home),
        daemon: daemon::settings(&documents, home),
        telemetry: telemetry::settings(&documents, home),
    }
}

/// The first that says something.
fn first<'d, V>(documents: &[&'d Document], key: impl Fn(&'d Document) -> Option<&'d V>) -> Option<&'d V> {
    documents.iter().find_map(|document| key(document))
}

fn approvals(documents: &[&Document], home: Option<&Path>) -> ApprovalSettings {
    let quorum = first(documents, |document| document.approvals.quorum.as_ref());
    let people = |count: Option<u64>| count.and_then(|count| u8::try_from(count).ok()).unwrap_or(1);
    let notify = first(documents, |document| document.approvals.notify.as_ref());
    let reason = first(documents, |document| document.approvals.reason.as_ref());
    let expiry = first(documents, |document| document.approvals.grant_expiry.as_ref());
    let webhook_table = first(documents, |document| document.approvals.webhook.as_ref());
    ApprovalSettings {
        timeout: first(documents, |document| document.approvals.timeout.as_ref()).map(|given| given.value),
        quorum: Quorum {
            approve: people(quorum.and_then(|table| table.approve.as_ref()).map(|count| count.value.0)),
            deny: people(quorum.and_then(|table| table.deny.as_ref()).map(|count| count.value.0)),
        },
        reason_required: reason.is_some_and(|given| given.value == ReasonWord::Required),
        grant_expiry: expiry.map(|given| given.value),
        notify: notify.iter().flat_map(|list| &list.items).map(|word| channel(word.value)).collect(),
        webhook: webhook_table.and_then(|table| webhook(table, home)),
    }
}

fn channel(word: ChannelWord) -> Channel {
    match word {
        ChannelWord::Desktop => Channel::Desktop,
        ChannelWord::Webhook => Channel::Webhook,
    }
}

fn webhook(table: &WebhookTable, home: Option<&Path>) -> Option<Webhook> {
    let secret_file = expanded(&table.secret_file.as_ref()?.value, home)?;
    Some(Webhook { url: table.url.as_ref()?.value.clone(), secret_file })
}

fn expanded(path: &str, home: Option<&Path>) -> Option<PathBuf> {
    match path.strip_prefix("~/") {
        Some(rest) => home.map(|home| home.join(rest)),
        None => Some(PathBuf::from(path)),
    }
}

/// What makes no sense in the tables of this module.
pub(super) fn check(top: &Top, problems: &mut Problems<'_>) {
    if let Some(approvals) = &top.approvals {
        check_channels(approvals, problems);
        approvals.webhook.iter().for_each(|webhook| check_webhook(webhook, problems));
    }
    top.daemon.iter().for_each(|table| daemon::check(table, problems));
    top.telemetry.iter().for_each(|table| telemetry::check(table, problems));
}

/// A channel that leads nowhere would leave people waiting for a question that never comes.
fn check_channels(approvals: &ApprovalsTable, problems: &mut Problems<'_>) {
    let channels = approvals.notify.iter().flat_map(|list| &list.items);
    for channel in channels.filter(|channel| channel.value == ChannelWord::Webhook) {
        if approvals.webhook.is_none() && approvals.head.reading == Reading::Whole {
            let fix = "write `webhook = { url = \"https://…\", secret_file = \"~/…\" }` beside it";
            problems.add(channel.span, "`webhook` has nowhere to send a question", fix);
        }
    }
}

fn check_webhook(webhook: &WebhookTable, problems: &mut Problems<'_>) {
    let whole = webhook.head.reading == Reading::Whole;
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

fn check_place(path: &At<String>, problems: &mut Problems<'_>) {
    if !path.value.starts_with('/') && !path.value.starts_with("~/") {
        let message = format!("`{}` is not an absolute path", shorten(&path.value));
        problems.add(path.span, message, "write `/…`, or `~/…` for the home");
    }
}
