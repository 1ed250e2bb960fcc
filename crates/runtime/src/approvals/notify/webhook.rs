//! Webhook notification: sends an approval as JSON, with a signature over time and body for the receiver to
//! verify.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit as _, Mac as _};
use ringfence_ledger::{ApprovalRequest, Timestamp};
use ringfence_policy::WebhookSettings;
use ringfence_types::{ApprovalPrompt, ByteString, Principal, Quorum, Risk};
use serde::Serialize;
use sha2::Sha256;

use super::TIMEOUT;
use crate::approvals::render_prompt;

#[derive(Debug, thiserror::Error)]
pub(super) enum WebhookError {
    #[error("the secret `{}` cannot be read", ByteString::from(path.as_path()).display())]
    Secret { path: PathBuf, source: io::Error },
    #[error("the secret `{}` can be read by others", ByteString::from(path.as_path()).display())]
    Open { path: PathBuf },
    #[error("the secret `{}` is empty", ByteString::from(path.as_path()).display())]
    Empty { path: PathBuf },
    #[error("cannot encode the approval as JSON")]
    Encode(#[from] serde_json::Error),
    #[error("cannot sign the approval")]
    Sign,
    #[error("the server answered {0}")]
    Status(u16),
    #[error("the webhook could not be delivered")]
    Send(#[source] Box<ureq::Error>),
}

/// Body of the webhook, schema 1.
#[derive(Serialize)]
struct WebhookMessage<'a> {
    schema: u32,
    /// Id of the approval, as `ringfence approvals approve` takes it.
    id: &'a str,
    session: &'a str,
    workspace: &'a str,
    requester: &'a Principal,
    risk: Risk,
    expires_at: Timestamp,
    quorum: Quorum,
    prompt: &'a ApprovalPrompt,
    /// The approval prompt as plain text, the same as on every other channel.
    text: String,
}

pub(super) fn post(webhook: &WebhookSettings, request: &ApprovalRequest) -> Result<(), WebhookError> {
    let secret = secret(&webhook.secret_file)?;
    let body = serde_json::to_string(&message(request))?;
    let time = Timestamp::now().as_second().to_string();
    let signature = sign(&secret, &time, &body)?;
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        // Only the operator chooses the destination. A redirect or a proxy variable must not change it.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .proxy(None)
        .user_agent("ringfence")
        .build()
        .into();
    let sent = agent
        .post(&webhook.url)
        .header("Content-Type", "application/json")
        .header("Ringfence-Timestamp", &time)
        .header("Ringfence-Signature", &format!("sha256={signature}"))
        .send(&body);
    let answer = sent.map_err(|error| WebhookError::Send(Box::new(error)))?;
    if answer.status().is_success() { Ok(()) } else { Err(WebhookError::Status(answer.status().as_u16())) }
}

fn message(request: &ApprovalRequest) -> WebhookMessage<'_> {
    WebhookMessage {
        schema: 1,
        id: request.transaction.as_str(),
        session: request.session.as_str(),
        workspace: request.workspace.as_str(),
        requester: &request.requester,
        risk: request.risk,
        expires_at: request.expires_at,
        quorum: request.quorum,
        prompt: &request.prompt,
        text: render_prompt(&request.prompt),
    }
}

/// HMAC-SHA-256 over `TIME.BODY`, in hexadecimal.
fn sign(secret: &[u8], time: &str, body: &str) -> Result<String, WebhookError> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).map_err(|_length| WebhookError::Sign)?;
    mac.update(format!("{time}.{body}").as_bytes());
    Ok(ringfence_types::hex(mac.finalize().into_bytes()))
}

/// Strips the line break that editors append.
fn secret(path: &Path) -> Result<Vec<u8>, WebhookError> {
    const OTHERS: u32 = 0o077;
    let wrong = |source| WebhookError::Secret { path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(wrong)?;
    if metadata.mode() & OTHERS != 0 || !metadata.is_file() {
        return Err(WebhookError::Open { path: path.to_owned() });
    }
    let bytes = fs::read(path).map_err(wrong)?;
    let secret = bytes.trim_ascii_end();
    if secret.is_empty() {
        return Err(WebhookError::Empty { path: path.to_owned() });
    }
    Ok(secret.to_vec())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// RFC 4231, test case 2, with the text cut where the time ends.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let signed = sign(b"Jefe", "what do ya want for nothing?", "").unwrap();
        assert_ne!(
            signed, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            "the point counts"
        );
        let mut mac = Hmac::<Sha256>::new_from_slice(b"Jefe").unwrap();
        mac.update(b"what do ya want for nothing?");
        let plain = ringfence_types::hex(mac.finalize().into_bytes());
        assert_eq!(plain, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn a_secret_that_others_can_read_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        fs::write(&path, "abc\n").unwrap();
        for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(secret(&path).is_ok(), good, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(secret(&path).unwrap(), b"abc");
        fs::write(&path, "\n").unwrap();
        assert!(matches!(secret(&path), Err(WebhookError::Empty { .. })));
    }
}
