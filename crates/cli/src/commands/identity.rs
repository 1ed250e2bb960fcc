//! `ringfence token`, `device` and `operator`: manages credentials and operators.

mod device;
mod operator;
mod token;

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_api::{
    AddOperator, ApprovePairing, ClaimDeviceToken, CreateToken, DeviceChallenge, ListOperators, ListPairings,
    ListTokens, MintedToken, ProvePairing, RefreshDevice, RefusePairing, RemoveOperator, RequestChallenge,
    RequestPairing, RevokeToken, RotateToken, SetPassword,
};
use ringfence_authz::env::ApproverPresence;
use ringfence_ledger::Timestamp;
use ringfence_runtime::Runtime;
use ringfence_runtime::identity::{
    Authority, Challenge, CredentialId, CredentialSummary, DeviceSignature, Identities, IdentityError,
    LoginSource, MintedCredential, NewOperator, NewPairing, NewToken, OperatorSummary, PairingSummary,
    TokenLifetime, TokenText,
};
use ringfence_types::{AllOrOnly, ByteString, Rights, Subtree};
use serde::de::DeserializeOwned;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::approval::{self, OperatorRequirement};
use crate::args::{DeviceCommand, OperatorCommand, RightsArgs, TokenCommand};
use crate::commands::run;
use crate::daemon_client::DaemonClient;
use crate::environment::Environment;
use crate::error;
use crate::output::{note, say};

pub(crate) fn token(command: TokenCommand) -> ExitCode {
    IdentityBackend::open().and_then(|desk| token::run(&desk, command)).unwrap_or_else(|code| code)
}

pub(crate) fn device(command: DeviceCommand) -> ExitCode {
    IdentityBackend::open().and_then(|desk| device::run(&desk, command)).unwrap_or_else(|code| code)
}

pub(crate) fn operator(command: OperatorCommand) -> ExitCode {
    IdentityBackend::open().and_then(|desk| operator::run(&desk, command)).unwrap_or_else(|code| code)
}

/// Where identities are managed: at a running daemon, which closes connections of a revoked credential before
/// it answers; otherwise in the store itself.
enum IdentityBackend {
    Daemon(Box<DaemonClient>),
    Here(Box<LocalIdentityStore>),
}

/// The local store, for the owner of the state directory. It is the recovery path: it needs neither token nor
/// daemon.
struct LocalIdentityStore {
    identities: Identities,
    authority: Authority<'static>,
    /// Holds recovered state locked during a change.
    runtime: Runtime,
}

impl LocalIdentityStore {
    /// Writes the record of a revocation, which takes effect with or without it, and tells the operator if it is missing.
    fn write_late(&self) {
        if let Err(error) = self.runtime.ledger().write_late() {
            note!("ringfence: done, but it could not be recorded: {}", ringfence_types::chain(&error));
            if let Some(hint) = error.hint() {
                note!("  {hint}");
            }
        }
    }
}

impl LocalIdentityStore {
    fn open() -> Result<Self, ExitCode> {
        let environment = Environment::read();
        let operator = approval::require(&environment, OperatorRequirement::Nothing, "say who may do what")?;
        let runtime = run::runtime(&environment, ApproverPresence::Unattended)?;
        let identities = runtime.identities().map_err(|error| failed(&error))?;
        Ok(Self { identities, authority: Authority::Owner(operator), runtime })
    }
}

impl IdentityBackend {
    fn open() -> Result<Self, ExitCode> {
        let environment = Environment::read();
        approval::require(&environment, OperatorRequirement::Nothing, "say who may do what")?;
        match DaemonClient::find(&environment) {
            Some(daemon) => Ok(Self::Daemon(Box::new(daemon))),
            None => LocalIdentityStore::open().map(|here| Self::Here(Box::new(here))),
        }
    }

    fn credentials(&self) -> Result<Vec<CredentialSummary>, ExitCode> {
        match self {
            Self::Daemon(daemon) => daemon.ask(&ListTokens {})?.tokens.into_iter().map(understood).collect(),
            Self::Here(here) => here.identities.credentials().map_err(|error| failed(&error)),
        }
    }

    fn pairings(&self) -> Result<Vec<PairingSummary>, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                daemon.ask(&ListPairings {})?.pairings.into_iter().map(understood).collect()
            }
            Self::Here(here) => here.identities.pairings().map_err(|error| failed(&error)),
        }
    }

    fn mint(&self, new: NewToken) -> Result<MintedCredential, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                let lifetime_s = match new.lifetime {
                    TokenLifetime::Unlimited => None,
                    // Less than a second becomes zero, which the daemon refuses.
                    TokenLifetime::For(time) => Some(u64::try_from(time.as_secs()).unwrap_or_default()),
                };
                let NewToken { label, rights, operator, .. } = new;
                revealed(daemon.ask(&CreateToken { label, rights, lifetime_s, operator })?)
            }
            Self::Here(here) => here.identities.mint(&here.authority, new).map_err(|error| failed(&error)),
        }
    }

    fn rotate(&self, id: &CredentialId) -> Result<MintedCredential, ExitCode> {
        match self {
            Self::Daemon(daemon) => revealed(daemon.ask(&RotateToken { id: id.to_string() })?),
            Self::Here(here) => here.identities.rotate(&here.authority, id).map_err(|error| failed(&error)),
        }
    }

    /// Approves a device, with fewer rights than requested if given.
    fn approve(&self, pairing: &PairingSummary, rights: Option<Rights>) -> Result<PairingSummary, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                let code = pairing.code.clone();
                understood(daemon.ask(&ApprovePairing { code, rights })?.pairing)
            }
            Self::Here(here) => here
                .identities
                .approve_pairing(&here.authority, &pairing.id, rights)
                .map_err(|error| failed(&error)),
        }
    }

    fn refuse(&self, pairing: &PairingSummary) -> Result<PairingSummary, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                understood(daemon.ask(&RefusePairing { code: pairing.code.clone() })?.pairing)
            }
            Self::Here(here) => {
                here.identities.refuse_pairing(&here.authority, &pairing.id).map_err(|error| failed(&error))
            }
        }
    }

    fn operators(&self) -> Result<Vec<OperatorSummary>, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                daemon.ask(&ListOperators {})?.operators.into_iter().map(understood).collect()
            }
            Self::Here(here) => here.identities.operators().map_err(|error| failed(&error)),
        }
    }

    fn add_operator(
        &self,
        name: String,
        rights: Rights,
        password: &str,
    ) -> Result<OperatorSummary, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                let password = password.to_owned();
                understood(daemon.ask(&AddOperator { name, rights, password })?.operator)
            }
            Self::Here(here) => {
                let new = NewOperator { name, rights, password: password.as_bytes() };
                here.identities.add_operator(&here.authority, new).map_err(|error| failed(&error))
            }
        }
    }

    fn set_password(&self, name: String, password: &str) -> Result<OperatorSummary, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                let password = password.to_owned();
                understood(daemon.ask(&SetPassword { name, password })?.operator)
            }
            Self::Here(here) => here
                .identities
                .set_password(&here.authority, &name, password.as_bytes())
                .map_err(|error| failed(&error)),
        }
    }

    fn remove_operator(&self, name: String) -> Result<OperatorSummary, ExitCode> {
        match self {
            Self::Daemon(daemon) => understood(daemon.ask(&RemoveOperator { name })?.operator),
            Self::Here(here) => {
                let removed = here.identities.remove_operator(&here.authority, &name);
                here.write_late();
                removed.map_err(|error| failed(&error))
            }
        }
    }

    /// Requests a pairing; returns the challenge to sign.
    fn ask_to_pair(&self, new: NewPairing) -> Result<Challenge, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                let NewPairing { label, key, wants } = new;
                to_sign(daemon.ask(&RequestPairing { label, key, wants })?)
            }
            Self::Here(here) => {
                let offered =
                    here.identities.ask_to_pair(&new, &this_user()).map_err(|error| failed(&error))?;
                Ok(offered.challenge)
            }
        }
    }

    fn challenge(&self, subject: &CredentialId) -> Result<Challenge, ExitCode> {
        match self {
            Self::Daemon(daemon) => to_sign(daemon.ask(&RequestChallenge { subject: subject.to_string() })?),
            Self::Here(here) => {
                here.identities.challenge(subject, &this_user()).map_err(|error| failed(&error))
            }
        }
    }

    /// Proves the key. From now on operators see the request.
    fn prove(&self, challenge: &Challenge, signature: DeviceSignature) -> Result<(), ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                let (subject, nonce) = (challenge.subject.to_string(), challenge.nonce.clone());
                daemon.ask(&ProvePairing { subject, nonce, signature: signature.0 }).map(drop)
            }
            Self::Here(here) => {
                let proven = here.identities.prove_pairing(challenge, &signature);
                proven.map(drop).map_err(|error| failed(&error))
            }
        }
    }

    /// The first token of an approved device.
    fn collect(
        &self,
        challenge: &Challenge,
        signature: DeviceSignature,
    ) -> Result<MintedCredential, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                let (subject, nonce) = (challenge.subject.to_string(), challenge.nonce.clone());
                revealed(daemon.ask(&ClaimDeviceToken { subject, nonce, signature: signature.0 })?)
            }
            Self::Here(here) => {
                here.identities.collect(challenge, &signature).map_err(|error| failed(&error))
            }
        }
    }

    /// The next token of a device.
    fn refresh(
        &self,
        challenge: &Challenge,
        signature: DeviceSignature,
    ) -> Result<MintedCredential, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                let (subject, nonce) = (challenge.subject.to_string(), challenge.nonce.clone());
                revealed(daemon.ask(&RefreshDevice { subject, nonce, signature: signature.0 })?)
            }
            Self::Here(here) => {
                here.identities.refresh(challenge, &signature).map_err(|error| failed(&error))
            }
        }
    }

    /// The credential whose id begins with `text`.
    fn find(&self, text: &str) -> Result<CredentialSummary, ExitCode> {
        let all = self.credentials()?;
        let mut found = all.into_iter().filter(|meta| !text.is_empty() && meta.id.as_str().starts_with(text));
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => {
                let shown = ByteString::from(text).display();
                Err(error::failed_text(
                    &format!("`{shown}` begins more than one id"),
                    Some("write more of it"),
                ))
            }
            _ => Err(failed(&IdentityError::NoSuch { what: "token", id: text.to_owned() })),
        }
    }

    fn revoke(&self, id: &CredentialId) -> Result<ExitCode, ExitCode> {
        let meta = match self {
            Self::Daemon(daemon) => {
                let _done = daemon.ask(&RevokeToken { id: id.to_string() })?;
                self.find(id.as_str())?
            }
            Self::Here(here) => {
                let revoked = here.identities.revoke(&here.authority, id).map_err(|error| failed(&error))?;
                here.write_late();
                revoked
            }
        };
        say!("revoked {}: {}", meta.id, summary(&meta));
        Ok(ExitCode::SUCCESS)
    }
}

fn this_user() -> LoginSource {
    LoginSource::User(rustix::process::geteuid().as_raw())
}

fn to_sign(challenge: DeviceChallenge) -> Result<Challenge, ExitCode> {
    let DeviceChallenge { subject, nonce } = challenge;
    Ok(Challenge { subject: CredentialId::parse(&subject).ok_or_else(strange)?, nonce })
}

fn revealed(minted: MintedToken) -> Result<MintedCredential, ExitCode> {
    let secret = Zeroizing::new(minted.secret);
    let text = TokenText::parse(&secret).ok_or_else(strange)?;
    Ok(MintedCredential { text, meta: understood(minted.token)? })
}

fn understood<T: DeserializeOwned>(value: Value) -> Result<T, ExitCode> {
    serde_json::from_value(value).map_err(|_other| strange())
}

fn strange() -> ExitCode {
    error::failed_text(
        "unexpected response from the daemon",
        Some("the daemon has another version: restart it with this one"),
    )
}

fn failed(error: &IdentityError) -> ExitCode {
    error::failed(error, error.hint().as_deref())
}

/// Rights with workspaces by real path, so that a link equals its target.
fn rights(arguments: &RightsArgs) -> Result<Rights, ExitCode> {
    let real = |path: &PathBuf| {
        let wrong = |what: String| {
            error::failed_text(
                &format!("workspace `{}`: {what}", ByteString::from(path.as_path()).display()),
                None,
            )
        };
        let real = std::fs::canonicalize(path).map_err(|error| wrong(error.to_string()))?;
        Subtree::new(&real).map_err(|error| wrong(error.to_string()))
    };
    let workspaces: Vec<Subtree> = arguments.workspaces.iter().map(real).collect::<Result<_, _>>()?;
    let workspaces = if workspaces.is_empty() { AllOrOnly::Any } else { AllOrOnly::of(Some(workspaces)) };
    Ok(Rights { scopes: arguments.scopes.iter().copied().collect(), workspaces })
}

fn summary(meta: &CredentialSummary) -> String {
    let end = meta.expires_at.map_or("no end".to_owned(), |end| format!("until {end}"));
    let label = ByteString::from(meta.label.as_str()).display();
    format!(
        "{} `{label}` of {}, may {} in {}, {}",
        meta.kind,
        meta.owner,
        meta.rights.scopes,
        meta.rights.workspaces,
        meta.revoked_at.map_or(end, |when| format!("revoked {when}"))
    )
}

/// By the wall clock: only for display.
fn is_over(meta: &CredentialSummary) -> bool {
    meta.revoked_at.is_some() || meta.expires_at.is_some_and(|end| end <= Timestamp::now())
}
