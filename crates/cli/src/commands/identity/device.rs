use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ringfence_api::{
    ApprovePairing, ClaimDeviceToken, DeviceChallenge, ListPairings, ListTokens, MintedToken, ProvePairing,
    RefreshDevice, RefusePairing, RequestChallenge, RequestPairing,
};
use ringfence_runtime::identity::{
    Challenge, CredentialId, CredentialSummary, DeviceKey, PairingSummary, ProofPurpose, code_of,
};
use ringfence_types::{ByteString, CredentialKind, Rights, Scope, ScopeSet};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::token::reveal;
use super::{IdentityClient, failed, is_over, rights, summary};
use crate::args::DeviceCommand;
use crate::commands::run::print_json;
use crate::error;
use crate::output::{OutputFormat, note, say};

const BETWEEN: Duration = Duration::from_millis(300);

pub(super) fn run(desk: &IdentityClient, command: DeviceCommand) -> Result<ExitCode, ExitCode> {
    match command {
        DeviceCommand::Pair { label, rights: given, out } => pair(desk, &label, rights(&given)?, &out),
        DeviceCommand::List { json } => list(desk, json.into()),
        DeviceCommand::Approve { code, scopes } => approve(desk, code, &scopes),
        DeviceCommand::Refuse { code } => {
            say!("refused {}", described(&desk.ask(RefusePairing { code })?.pairing));
            Ok(ExitCode::SUCCESS)
        }
        DeviceCommand::Refresh { file } => refresh(desk, &file),
        DeviceCommand::Revoke { id } => {
            let found = desk.find(&id)?;
            if found.kind != CredentialKind::Device {
                return Err(error::failed_text(
                    &format!("{} is no device", found.id),
                    Some("`ringfence token revoke` ends every kind"),
                ));
            }
            desk.revoke(&found.id)
        }
    }
}

/// The file that a device keeps.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceFile {
    schema: u32,
    id: CredentialId,
    key: String,
}

fn pair(desk: &IdentityClient, label: &str, wants: Rights, out: &Path) -> Result<ExitCode, ExitCode> {
    // Before the pairing request: an approved key must not be lost because the file cannot be made.
    let mut file = new_file(out)?;
    let paired = paired(desk, label, wants);
    let kept = paired.and_then(|(key, minted)| {
        let kept = DeviceFile { schema: 1, id: minted.token.id.clone(), key: key.secret().to_string() };
        let text = Zeroizing::new(serde_json::to_vec(&kept).map_err(|error| error::failed(&error, None))?);
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(|error| unwritable(out, &error))?;
        reveal(minted, OutputFormat::Text);
        Ok(ExitCode::SUCCESS)
    });
    if kept.is_err() {
        // An empty file would block the next attempt.
        let _gone = fs::remove_file(out);
    }
    kept
}

fn paired(desk: &IdentityClient, label: &str, wants: Rights) -> Result<(DeviceKey, MintedToken), ExitCode> {
    let key = DeviceKey::random().map_err(|error| failed(&error.into()))?;
    let offered = to_sign(desk.ask(RequestPairing { label: label.to_owned(), key: key.public(), wants })?)?;
    let (subject, nonce, signature) = proof(&key, ProofPurpose::Pair, &offered);
    let _seen = desk.ask(ProvePairing { subject, nonce, signature })?;
    note!("ringfence: code {}", code_of(&key.public()));
    note!("  hint: an operator types `ringfence device approve {}`", code_of(&key.public()));
    while desk.ask(ListPairings {})?.pairings.iter().any(|pairing| pairing.id == offered.subject) {
        std::thread::sleep(BETWEEN);
    }
    let challenge = challenge(desk, &offered.subject)?;
    let (subject, nonce, signature) = proof(&key, ProofPurpose::Claim, &challenge);
    let minted = desk.ask(ClaimDeviceToken { subject, nonce, signature })?;
    Ok((key, minted))
}

fn refresh(desk: &IdentityClient, path: &Path) -> Result<ExitCode, ExitCode> {
    let (id, key) = kept(path)?;
    let (subject, nonce, signature) = proof(&key, ProofPurpose::Refresh, &challenge(desk, &id)?);
    reveal(desk.ask(RefreshDevice { subject, nonce, signature })?, OutputFormat::Text);
    Ok(ExitCode::SUCCESS)
}

fn challenge(desk: &IdentityClient, subject: &CredentialId) -> Result<Challenge, ExitCode> {
    to_sign(desk.ask(RequestChallenge { subject: subject.to_string() })?)
}

fn to_sign(challenge: DeviceChallenge) -> Result<Challenge, ExitCode> {
    let DeviceChallenge { subject, nonce } = challenge;
    let strange = || error::failed_text("unexpected response from the daemon", None);
    Ok(Challenge { subject: CredentialId::parse(&subject).ok_or_else(strange)?, nonce })
}

/// Subject, nonce and signature.
fn proof(key: &DeviceKey, purpose: ProofPurpose, challenge: &Challenge) -> (String, String, String) {
    (challenge.subject.to_string(), challenge.nonce.clone(), key.sign(purpose, challenge).0)
}

fn kept(path: &Path) -> Result<(CredentialId, DeviceKey), ExitCode> {
    let shown = ByteString::from(path).display();
    let strange =
        || error::failed_text(&format!("`{shown}` is not what `ringfence device pair` wrote"), None);
    let text = fs::read(path).map(Zeroizing::new);
    let text = text.map_err(|error| error::failed_text(&format!("`{shown}`: {error}"), None))?;
    let open = fs::metadata(path).is_ok_and(|found| found.mode() & 0o077 != 0);
    if open {
        let hint =
            format!("`chmod 600 {shown}`; if others may have read it, revoke the device and pair it again");
        return Err(error::failed_text(&format!("`{shown}` is open to others"), Some(&hint)));
    }
    let kept: DeviceFile = serde_json::from_slice(&text).map_err(|_syntax| strange())?;
    let id = CredentialId::parse(kept.id.as_str()).ok_or_else(strange)?;
    Ok((id, DeviceKey::parse(&Zeroizing::new(kept.key)).ok_or_else(strange)?))
}

fn new_file(path: &Path) -> Result<File, ExitCode> {
    let made = File::options().write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> ExitCode {
    error::failed_text(&format!("`{}`: {error}", ByteString::from(path).display()), None)
}

/// Approves a device, with fewer scopes than requested if some are given.
fn approve(desk: &IdentityClient, code: String, scopes: &[Scope]) -> Result<ExitCode, ExitCode> {
    let mut rights = None;
    if !scopes.is_empty() {
        let pairings = desk.ask(ListPairings {})?.pairings;
        let Some(pairing) = pairings.into_iter().find(|pairing| pairing.code == code) else {
            return Err(error::failed_text("no device waits with this code", None));
        };
        let scopes = scopes.iter().copied().collect::<ScopeSet>();
        rights = Some(Rights { scopes, workspaces: pairing.wants.workspaces });
    }
    let paired = desk.ask(ApprovePairing { code, rights })?;
    say!("paired {}", described(&paired.pairing));
    Ok(ExitCode::SUCCESS)
}

fn described(pairing: &PairingSummary) -> String {
    let label = ByteString::from(pairing.label.as_str()).display();
    format!(
        "{}: `{label}` from {}, wants {} in {}",
        pairing.code, pairing.source, pairing.wants.scopes, pairing.wants.workspaces
    )
}

/// Schema 1.
#[derive(Serialize)]
struct DeviceListJson<'a> {
    schema: u32,
    devices: &'a [CredentialSummary],
    waiting: &'a [PairingSummary],
}

fn list(desk: &IdentityClient, form: OutputFormat) -> Result<ExitCode, ExitCode> {
    let all = desk.ask(ListTokens {})?.tokens;
    // A device whose token expired is still a device.
    let is_device =
        |meta: &CredentialSummary| meta.kind == CredentialKind::Device && meta.revoked_at.is_none();
    let devices: Vec<CredentialSummary> = all.into_iter().filter(is_device).collect();
    let waiting = desk.ask(ListPairings {})?.pairings;
    match form {
        OutputFormat::Json => print_json(&DeviceListJson { schema: 1, devices: &devices, waiting: &waiting }),
        OutputFormat::Text => {
            for meta in &devices {
                let note = if is_over(meta) { " (to be refreshed)" } else { "" };
                say!("{}: {}{note}", meta.id, summary(meta));
            }
            waiting.iter().for_each(|pairing| say!("waits {}", described(pairing)));
        }
    }
    Ok(ExitCode::SUCCESS)
}
