//! Notifications about approvals. A person answers with `ringfence approvals`, never through the channel:
//! reading a message does not prove the right to answer.

mod desktop;
mod webhook;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use ringfence_ledger::ApprovalRequest;
use ringfence_policy::{ApprovalSettings, NotifyChannel};

/// A slower delivery counts as failed.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Delivery result of one notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeliveryResult {
    pub(super) channel: NotifyChannel,
    pub(super) failure: Option<String>,
}

/// Sends a notification on every configured channel, each in a detached thread.
pub(super) fn deliver(settings: &ApprovalSettings, request: &ApprovalRequest) -> Receiver<DeliveryResult> {
    let (sender, receiver) = channel();
    for channel in &settings.notify {
        start(*channel, settings.clone(), request.clone(), sender.clone());
    }
    receiver
}

fn start(
    channel: NotifyChannel,
    settings: ApprovalSettings,
    request: ApprovalRequest,
    sender: Sender<DeliveryResult>,
) {
    let failed = sender.clone();
    let started = thread::Builder::new().name(format!("notify-{}", channel.word())).spawn(move || {
        let failure = send(channel, &settings, &request).err().map(|error| crate::pipeline::chain(&error));
        // The receiver is gone if the approval was answered first.
        let _over = sender.send(DeliveryResult { channel, failure });
    });
    if let Err(error) = started {
        let _over = failed.send(DeliveryResult { channel, failure: Some(error.to_string()) });
    }
}

#[derive(Debug, thiserror::Error)]
enum NotifyError {
    #[error(transparent)]
    Desktop(#[from] desktop::DesktopError),
    #[error(transparent)]
    Webhook(#[from] webhook::WebhookError),
    #[error("no address is configured")]
    Unconfigured,
}

fn send(
    channel: NotifyChannel,
    settings: &ApprovalSettings,
    request: &ApprovalRequest,
) -> Result<(), NotifyError> {
    match (channel, &settings.webhook) {
        (NotifyChannel::Desktop, _) => Ok(desktop::notify(request)?),
        (NotifyChannel::Webhook, Some(webhook)) => Ok(webhook::post(webhook, request)?),
        (NotifyChannel::Webhook, None) => Err(NotifyError::Unconfigured),
    }
}
