//! Tokens, operators and devices for whoever asks over the interface.

use std::sync::Arc;

use jiff::SignedDuration;
use ringfence_api::{
    AddOperator, ApiError, AttenuateToken, CreateToken, DeviceChallenge, Done, ErrorCode, LONGEST_LIFETIME_S,
    MintedToken, OperatorList, OperatorShown, PairingList, PairingShown, Request, TokenList,
};
use ringfence_runtime::identity::{
    Authority, Challenge, CredentialId, Identities, IdentityError, Known, Lifetime, Minted, NewOperator,
    NewPairing, NewToken, OperatorMeta, PairingMeta, Signature, Source,
};
use ringfence_types::Principal;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use zeroize::Zeroizing;

use crate::ask::blocking;
use crate::dispatch::{Arrived, foretell};
use crate::failure::{internal, malformed, unavailable};
use crate::http::{PATIENCE, too_many};
use crate::server::Daemon;

/// Whoever asks, as the store of identities wants to know it.
pub(crate) fn authority<'a>(principal: &Principal, known: Option<&'a Known>) -> Authority<'a> {
    match known {
        Some(known) => Authority::Token(known),
        None => Authority::Owner(principal.clone()),
    }
}

/// Whose turn it is with a password: to look at one and to make one are both slow on purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    Stranger,
    Familiar,
}

/// Nobody has a thread while they wait for their turn.
pub(crate) async fn turn(daemon: &Daemon, whose: Turn) -> Result<OwnedSemaphorePermit, ApiError> {
    let queue = match whose {
        Turn::Stranger => &daemon.login,
        Turn::Familiar => &daemon.familiar,
    };
    let turn = Arc::clone(queue).acquire_owned();
    let Ok(Ok(turn)) = tokio::time::timeout(PATIENCE, turn).await else { return Err(too_many()) };
    Ok(turn)
}

/// The turn of whoever has a password made, once it is known that they may.
pub(crate) async fn turn_to_make(
    daemon: &Arc<Daemon>,
    arrived: Arrived,
) -> Result<(Arrived, OwnedSemaphorePermit), ApiError> {
    let shared = Arc::clone(daemon);
    let arrived = blocking(move || foretell(&shared, &arrived).map(|()| arrived)).await?;
    Ok((arrived, turn(daemon, Turn::Familiar).await?))
}

/// What somebody who is known asks.
pub(crate) fn perform(
    identities: &Identities,
    (by, known): (&Authority<'_>, Option<&Known>),
    request: Request,
) -> Result<Value, ApiError> {
    match request {
        Request::TokenList(_) => {
            let tokens = identities.credentials().map_err(failed)?;
            json(&TokenList { tokens: tokens.iter().map(json).collect::<Result<_, _>>()? })
        }
        Request::TokenCreate(new) => minted(identities.mint(by, wanted(new)?).map_err(failed)?),
        Request::TokenRotate(request) => minted(identities.rotate(by, &id(&request.id)?).map_err(failed)?),
        Request::TokenRevoke(request) => done(identities.revoke(by, &id(&request.id)?)),
        Request::Logout(_) => match known {
            Some(known) => done(identities.revoke(by, &known.id)),
            None => Err(ApiError::new(ErrorCode::Conflict, "nothing was shown that could be ended")),
        },
        Request::TokenAttenuate(request) => attenuated(identities, known, request),
        Request::OperatorList(_) => {
            let operators = identities.operators().map_err(failed)?;
            json(&OperatorList { operators: operators.iter().map(json).collect::<Result<_, _>>()? })
        }
        Request::OperatorAdd(request) => {
            let AddOperator { name, rights, password } = request;
            let password = Zeroizing::new(password);
            let new = NewOperator { name, rights, password: password.as_bytes() };
            operator(identities.add_operator(by, new))
        }
        Request::OperatorPassword(request) => {
            let password = Zeroizing::new(request.password);
            operator(identities.set_password(by, &request.name, password.as_bytes()))
        }
        Request::OperatorRemove(request) => operator(identities.remove_operator(by, &request.name)),
        Request::PairingList(_) => {
            let waiting = identities.pairings().map_err(failed)?;
            json(&PairingList { waiting: waiting.iter().map(json).collect::<Result<_, _>>()? })
        }
        Request::PairingApprove(request) => {
            let pairing = waiting(identities, &request.code)?;
            shown(&identities.approve_pairing(by, &pairing.id, request.rights).map_err(failed)?)
        }
        Request::PairingRefuse(request) => {
            let pairing = waiting(identities, &request.code)?;
            shown(&identities.refuse_pairing(by, &pairing.id).map_err(failed)?)
        }
        _ => Err(ApiError::new(ErrorCode::Internal, "this is not about identities")),
    }
}

/// What a device asks before anybody knows it.
pub(crate) fn of_device(
    identities: &Identities,
    source: &Source,
    request: Request,
) -> Result<Value, ApiError> {
    match request {
        Request::DeviceAsk(request) => {
            let new = NewPairing { label: request.label, key: request.key, wants: request.wants };
            challenge(identities.ask_to_pair(&new, source).map_err(failed)?.challenge)
        }
        Request::DeviceChallenge(request) => {
            challenge(identities.challenge(&id(&request.subject)?, source).map_err(failed)?)
        }
        Request::DeviceProve(proof) => {
            let (challenge, signature) = signed(&proof.subject, proof.nonce, proof.signature)?;
            shown(&identities.prove_pairing(&challenge, &signature).map_err(failed)?)
        }
        Request::DeviceCollect(proof) => {
            let (challenge, signature) = signed(&proof.subject, proof.nonce, proof.signature)?;
            minted(identities.collect(&challenge, &signature).map_err(failed)?)
        }
        Request::DeviceRefresh(proof) => {
            let (challenge, signature) = signed(&proof.subject, proof.nonce, proof.signature)?;
            minted(identities.refresh(&challenge, &signature).map_err(failed)?)
        }
        _ => Err(ApiError::new(ErrorCode::Internal, "this is not about devices")),
    }
}

fn attenuated(
    identities: &Identities,
    known: Option<&Known>,
    request: AttenuateToken,
) -> Result<Value, ApiError> {
    let Some(known) = known.filter(|known| known.session() == Some(&request.session)) else {
        return Err(ApiError::new(ErrorCode::Forbidden, "only an agent hands on what its own session has")
            .with_rule("identity.kind"));
    };
    let given = (request.attenuation, lifetime(request.lifetime_s)?);
    minted(identities.attenuate(known, &request.label, given).map_err(failed)?)
}

fn wanted(new: CreateToken) -> Result<NewToken, ApiError> {
    let CreateToken { label, rights, lifetime_s, operator } = new;
    Ok(NewToken { label, rights, lifetime: lifetime(lifetime_s)?, operator })
}

fn lifetime(seconds: Option<u64>) -> Result<Lifetime, ApiError> {
    let Some(seconds) = seconds else { return Ok(Lifetime::Unlimited) };
    match i64::try_from(seconds) {
        Ok(signed) if (1..=LONGEST_LIFETIME_S).contains(&seconds) => {
            Ok(Lifetime::For(SignedDuration::from_secs(signed)))
        }
        _ => Err(malformed(format!("a lifetime has from 1 to {LONGEST_LIFETIME_S} seconds"))),
    }
}

fn waiting(identities: &Identities, code: &str) -> Result<PairingMeta, ApiError> {
    let mut found = identities.pairings().map_err(failed)?.into_iter().filter(|pairing| pairing.code == code);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(ApiError::new(ErrorCode::NotFound, "no device waits with this code")),
    }
}

fn signed(subject: &str, nonce: String, signature: String) -> Result<(Challenge, Signature), ApiError> {
    Ok((Challenge { subject: id(subject)?, nonce }, Signature(signature)))
}

fn id(text: &str) -> Result<CredentialId, ApiError> {
    CredentialId::parse(text)
        .ok_or_else(|| ApiError::new(ErrorCode::Malformed, "an id is 16 hexadecimal digits"))
}

fn minted(minted: Minted) -> Result<Value, ApiError> {
    let secret = minted.text.reveal().to_string();
    json(&MintedToken { token: json(&minted.meta)?, secret })
}

fn operator(changed: Result<OperatorMeta, IdentityError>) -> Result<Value, ApiError> {
    json(&OperatorShown { operator: json(&changed.map_err(failed)?)? })
}

fn shown(pairing: &PairingMeta) -> Result<Value, ApiError> {
    json(&PairingShown { pairing: json(pairing)? })
}

fn challenge(challenge: Challenge) -> Result<Value, ApiError> {
    json(&DeviceChallenge { subject: challenge.subject.to_string(), nonce: challenge.nonce })
}

fn done<T>(result: Result<T, IdentityError>) -> Result<Value, ApiError> {
    result.map_err(failed).and_then(|_| json(&Done {}))
}

fn json(value: &impl Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(value).map_err(|error| internal(&error))
}

/// Somebody who may not, something that is not there, or a store that does not work.
pub(crate) fn failed(error: IdentityError) -> ApiError {
    let code = match &error {
        IdentityError::Denied(_) => ErrorCode::Forbidden,
        IdentityError::NoSuch { .. } => ErrorCode::NotFound,
        IdentityError::Exists { .. } => ErrorCode::Conflict,
        IdentityError::Full(_) => ErrorCode::Exhausted,
        IdentityError::Store(_) | IdentityError::Unwitnessed(_) | IdentityError::Random(_) => {
            return unavailable(&error);
        }
        _ => ErrorCode::Malformed,
    };
    let told = ApiError::new(code, error.to_string());
    let told = match &error {
        IdentityError::Denied(denied) => told.with_rule(denied.rule()),
        _ => told,
    };
    match error.hint() {
        Some(hint) => told.with_hint(hint),
        None => told,
    }
}
