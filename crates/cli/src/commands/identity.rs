//! `ringfence token`, `device` and `operator`: who may do what.

mod device;
mod operator;
mod token;

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_api::{
    AddOperator, ApprovePairing, AskChallenge, AskToPair, CollectDevice, CreateToken, DeviceChallenge,
    ListOperators, ListPairings, ListTokens, MintedToken, ProvePairing, RefreshDevice, RefusePairing,
    RemoveOperator, RevokeToken, RotateToken, SetPassword,
};
use ringfence_runtime::Runtime;
use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::identity::{
    Authority, Challenge, CredentialId, Identities, IdentityError, Lifetime, Meta, Minted, NewOperator,
    NewPairing, NewToken, OperatorMeta, PairingMeta, Signature, Source, TokenText,
};
use ringfence_runtime::ledger::Timestamp;
use ringfence_types::{Bytes, Rights, Subtree, Within};
use serde::de::DeserializeOwned;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::approval::{self, Need};
use crate::args::{DeviceCommand, OperatorCommand, RightsArgs, TokenCommand};
use crate::commands::run;
use crate::daemon::Daemon;
use crate::environment::Environment;
use crate::error;
use crate::output::say;

pub(crate) fn token(command: TokenCommand) -> ExitCode {
    Desk::open().and_then(|desk| token::run(&desk, command)).unwrap_or_else(|code| code)
}

pub(crate) fn device(command: DeviceCommand) -> ExitCode {
    Desk::open().and_then(|desk| device::run(&desk, command)).unwrap_or_else(|code| code)
}

pub(crate) fn operator(command: OperatorCommand) -> ExitCode {
    Desk::open().and_then(|desk| operator::run(&desk, command)).unwrap_or_else(|code| code)
}

/// Where it is said who may do what: at the daemon where one runs, so that what is taken away is cut off before the answer; else
/// in the store itself.
enum Desk {
    Daemon(Box<Daemon>),
    Here(Box<Here>),
}

/// The store of the state directory, for its owner. The way back in: it needs neither token nor daemon.
struct Here {
    identities: Identities,
    authority: Authority<'static>,
    /// What was recovered on the way stays held while something is changed.
    _runtime: Runtime,
}

impl Here {
    fn open() -> Result<Self, ExitCode> {
        let environment = Environment::read();
        let operator = approval::require(&environment, Need::Nothing, "say who may do what")?;
        let runtime = run::runtime(&environment, Attendance::Unattended)?;
        let identities = runtime.identities().map_err(|error| failed(&error))?;
        Ok(Self { identities, authority: Authority::Owner(operator), _runtime: runtime })
    }
}

impl Desk {
    fn open() -> Result<Self, ExitCode> {
        let environment = Environment::read();
        approval::require(&environment, Need::Nothing, "say who may do what")?;
        match Daemon::find(&environment) {
            Some(daemon) => Ok(Self::Daemon(Box::new(daemon))),
            None => Here::open().map(|here| Self::Here(Box::new(here))),
        }
    }

    fn credentials(&self) -> Result<Vec<Meta>, ExitCode> {
        match self {
            Self::Daemon(daemon) => daemon.ask(&ListTokens {})?.tokens.into_iter().map(understood).collect(),
            Self::Here(here) => here.identities.credentials().map_err(|error| failed(&error)),
        }
    }

    fn pairings(&self) -> Result<Vec<PairingMeta>, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                daemon.ask(&ListPairings {})?.waiting.into_iter().map(understood).collect()
            }
            Self::Here(here) => here.identities.pairings().map_err(|error| failed(&error)),
        }
    }

    fn mint(&self, new: NewToken) -> Result<Minted, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                let lifetime_s = match new.lifetime {
                    Lifetime::Unlimited => None,
                    // Less than a second is none, and refused there.
                    Lifetime::For(time) => Some(u64::try_from(time.as_secs()).unwrap_or_default()),
                };
                let NewToken { label, rights, operator, .. } = new;
                revealed(daemon.ask(&CreateToken { label, rights, lifetime_s, operator })?)
            }
            Self::Here(here) => here.identities.mint(&here.authority, new).map_err(|error| failed(&error)),
        }
    }

    fn rotate(&self, id: &CredentialId) -> Result<Minted, ExitCode> {
        match self {
            Self::Daemon(daemon) => revealed(daemon.ask(&RotateToken { id: id.to_string() })?),
            Self::Here(here) => here.identities.rotate(&here.authority, id).map_err(|error| failed(&error)),
        }
    }

    /// Lets a device in, with less than it asks for where that is said.
    fn approve(&self, pairing: &PairingMeta, rights: Option<Rights>) -> Result<PairingMeta, ExitCode> {
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

    fn refuse(&self, pairing: &PairingMeta) -> Result<PairingMeta, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                understood(daemon.ask(&RefusePairing { code: pairing.code.clone() })?.pairing)
            }
            Self::Here(here) => {
                here.identities.refuse_pairing(&here.authority, &pairing.id).map_err(|error| failed(&error))
            }
        }
    }

    fn operators(&self) -> Result<Vec<OperatorMeta>, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                daemon.ask(&ListOperators {})?.operators.into_iter().map(understood).collect()
            }
            Self::Here(here) => here.identities.operators().map_err(|error| failed(&error)),
        }
    }

    fn add_operator(&self, name: String, rights: Rights, password: &str) -> Result<OperatorMeta, ExitCode> {
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

    fn set_password(&self, name: String, password: &str) -> Result<OperatorMeta, ExitCode> {
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

    fn remove_operator(&self, name: String) -> Result<OperatorMeta, ExitCode> {
        match self {
            Self::Daemon(daemon) => understood(daemon.ask(&RemoveOperator { name })?.operator),
            Self::Here(here) => {
                here.identities.remove_operator(&here.authority, &name).map_err(|error| failed(&error))
            }
        }
    }

    /// A device asks to be let in; what has to be signed to make that count.
    fn ask_to_pair(&self, new: NewPairing) -> Result<Challenge, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                let NewPairing { label, key, wants } = new;
                to_sign(daemon.ask(&AskToPair { label, key, wants })?)
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
            Self::Daemon(daemon) => to_sign(daemon.ask(&AskChallenge { subject: subject.to_string() })?),
            Self::Here(here) => {
                here.identities.challenge(subject, &this_user()).map_err(|error| failed(&error))
            }
        }
    }

    /// From here on operators see the request.
    fn prove(&self, challenge: &Challenge, signature: Signature) -> Result<(), ExitCode> {
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

    /// The first token of a device that was let in.
    fn collect(&self, challenge: &Challenge, signature: Signature) -> Result<Minted, ExitCode> {
        match self {
            Self::Daemon(daemon) => {
                let (subject, nonce) = (challenge.subject.to_string(), challenge.nonce.clone());
                revealed(daemon.ask(&CollectDevice { subject, nonce, signature: signature.0 })?)
            }
            Self::Here(here) => {
                here.identities.collect(challenge, &signature).map_err(|error| failed(&error))
            }
        }
    }

    /// The next token of a device.
    fn refresh(&self, challenge: &Challenge, signature: Signature) -> Result<Minted, ExitCode> {
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
    fn find(&self, text: &str) -> Result<Meta, ExitCode> {
        let all = self.credentials()?;
        let mut found = all.into_iter().filter(|meta| !text.is_empty() && meta.id.as_str().starts_with(text));
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => {
                let shown = Bytes::from(text).display();
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
                here.identities.revoke(&here.authority, id).map_err(|error| failed(&error))?
            }
        };
        say!("revoked {}: {}", meta.id, summary(&meta));
        Ok(ExitCode::SUCCESS)
    }
}

fn this_user() -> Source {
    Source::User(rustix::process::geteuid().as_raw())
}

fn to_sign(challenge: DeviceChallenge) -> Result<Challenge, ExitCode> {
    let DeviceChallenge { subject, nonce } = challenge;
    Ok(Challenge { subject: CredentialId::parse(&subject).ok_or_else(strange)?, nonce })
}

fn revealed(minted: MintedToken) -> Result<Minted, ExitCode> {
    let secret = Zeroizing::new(minted.secret);
    let text = TokenText::parse(&secret).ok_or_else(strange)?;
    Ok(Minted { text, meta: understood(minted.token)? })
}

fn understood<T: DeserializeOwned>(value: Value) -> Result<T, ExitCode> {
    serde_json::from_value(value).map_err(|_other| strange())
}

fn strange() -> ExitCode {
    error::failed_text(
        "the answer of the daemon makes no sense",
        Some("it is of another version: start it again with this one"),
    )
}

fn failed(error: &IdentityError) -> ExitCode {
    error::failed(error, error.hint().as_deref())
}

/// Workspaces by their real paths, so that a link is the same workspace as what it leads to.
fn rights(arguments: &RightsArgs) -> Result<Rights, ExitCode> {
    let real = |path: &PathBuf| {
        let wrong = |what: String| {
            error::failed_text(
                &format!("workspace `{}`: {what}", Bytes::from(path.as_path()).display()),
                None,
            )
        };
        let real = std::fs::canonicalize(path).map_err(|error| wrong(error.to_string()))?;
        Subtree::new(&real).map_err(|error| wrong(error.to_string()))
    };
    let workspaces: Vec<Subtree> = arguments.workspaces.iter().map(real).collect::<Result<_, _>>()?;
    let workspaces = if workspaces.is_empty() { Within::Any } else { Within::of(Some(workspaces)) };
    Ok(Rights { scopes: arguments.scopes.iter().copied().collect(), workspaces })
}

fn summary(meta: &Meta) -> String {
    let end = meta.expires.map_or("no end".to_owned(), |end| format!("until {end}"));
    let label = Bytes::from(meta.label.as_str()).display();
    format!(
        "{} `{label}` of {}, may {} in {}, {}",
        meta.kind,
        meta.owner,
        meta.rights.scopes,
        meta.rights.workspaces,
        meta.revoked.map_or(end, |when| format!("revoked {when}"))
    )
}

/// By the clock on the wall: only for a list.
fn is_over(meta: &Meta) -> bool {
    meta.revoked.is_some() || meta.expires.is_some_and(|end| end <= Timestamp::now())
}
