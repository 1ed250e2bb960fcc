//! Word of a question to people who are not at the terminal. They answer with `ringfence approvals`, never through the
//! channel itself: whoever can read a message is not yet somebody who may answer.

mod desktop;
mod webhook;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use ringfence_authz::policy::{ApprovalSettings, Channel};
use ringfence_ledger::ApprovalRequest;

/// What takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What became of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delivered {
    pub(super) channel: Channel,
    pub(super) failure: Option<String>,
}

/// Sends word through every channel that is configured, each in a thread of its own, which nobody waits for.
pub(super) fn deliver(settings: &ApprovalSettings, request: &ApprovalRequest) -> Receiver<Delivered> {
    let (sender, receiver) = channel();
    for channel in &settings.notify {
        start(*channel, settings.clone(), request.clone(), sender.clone());
    }
    receiver
}

fn start(channel: Channel, settings: ApprovalSettings, request: ApprovalRequest, sender: Sender<Delivered>) {
    let failed = sender.clone();
    let started = thread::Builder::new().name(format!("notify-{}", channel.word())).spawn(move || {
        let failure = send(channel, &settings, &request).err().map(|error| crate::pipeline::chain(&error));
        // Nobody may be listening any more: the answer was faster.
        let _over = sender.send(Delivered { channel, failure });
    });
    if let Err(error) = started {
        let _over = failed.send(Delivered { channel, failure: Some(error.to_string()) });
    }
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error(transparent)]
    Desktop(#[from] desktop::DesktopError),
    #[error(transparent)]
    Webhook(#[from] webhook::WebhookError),
    #[error("no address is configured")]
    Unconfigured,
}

fn send(channel: Channel, settings: &ApprovalSettings, request: &ApprovalRequest) -> Result<(), SendError> {
    match (channel, &settings.webhook) {
        (Channel::Desktop, _) => Ok(desktop::notify(request)?),
        (Channel::Webhook, Some(webhook)) => Ok(webhook::post(webhook, request)?),
        (Channel::Webhook, None) => Err(SendError::Unconfigured),
    }
}
