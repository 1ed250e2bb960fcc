//! API methods for tokens, operators and devices.

use std::sync::Arc;

use jiff::SignedDuration;
use ringfence_api::{
    AddOperator, ApiError, AttenuateToken, CreateToken, DeviceChallenge, Empty, ErrorCode,
    LONGEST_LIFETIME_S, MintedToken, OperatorInfo, OperatorList, PairingInfo, PairingList, Request,
    TokenList,
};
use ringfence_runtime::identity::{
    Authority, Challenge, CredentialId, DeviceSignature, Identities, IdentityError, KnownIdentity,
    LoginSource, MintedCredential, NewOperator, NewPairing, NewToken, OperatorSummary, PairingSummary,
    TokenLifetime,
};
use ringfence_types::{Principal, RuleId};
use serde::Serialize;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::admit::dispatch::{IncomingRequest, authorize_early};
use crate::calls::handle::blocking;
use crate::errors::{internal, malformed, unavailable};
use crate::limits::budget::Permit;
use crate::server::Daemon;
use crate::transport::http::{PATIENCE, too_many};

/// The caller as the identity store's authority.
pub(crate) fn authority<'a>(principal: &Principal, known: Option<&'a KnownIdentity>) -> Authority<'a> {
    match known {
        Some(known) => Authority::Token(known),
        None => Authority::Owner(principal.clone()),
    }
}

/// The queue for password hashing, which is slow on purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PasswordSlot {
    Stranger,
    Familiar,
}

/// Waits for a turn without holding a thread.
pub(crate) async fn turn(daemon: &Daemon, whose: PasswordSlot) -> Result<Permit, ApiError> {
    let queue = match whose {
        PasswordSlot::Stranger => &daemon.login,
        PasswordSlot::Familiar => &daemon.familiar,
    };
    Permit::acquire(vec![queue.claim(1)], PATIENCE).await.ok_or_else(too_many)
}

/// The turn of a caller that sets a password, after the caller is authorized.
pub(crate) async fn turn_to_make(
    daemon: &Arc<Daemon>,
    arrived: IncomingRequest,
) -> Result<(IncomingRequest, Permit), ApiError> {
    let shared = Arc::clone(daemon);
    let arrived = blocking(move || authorize_early(&shared, &arrived).map(|()| arrived)).await?;
    Ok((arrived, turn(daemon, PasswordSlot::Familiar).await?))
}

/// Methods of authenticated callers.
pub(crate) fn perform(
    identities: &Identities,
    by: &Authority<'_>,
    known: Option<&KnownIdentity>,
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
            None => {
                Err(ApiError::new(ErrorCode::FailedPrecondition, "nothing was shown that could be ended"))
            }
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
        Request::OperatorSetPassword(request) => {
            let password = Zeroizing::new(request.password);
            operator(identities.set_password(by, &request.name, password.as_bytes()))
        }
        Request::OperatorRemove(request) => operator(identities.remove_operator(by, &request.name)),
        Request::PairingList(_) => {
            let waiting = identities.pairings().map_err(failed)?;
            json(&PairingList { pairings: waiting.iter().map(json).collect::<Result<_, _>>()? })
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

/// Methods of devices before authentication.
pub(crate) fn of_device(
    identities: &Identities,
    source: &LoginSource,
    request: Request,
) -> Result<Value, ApiError> {
    match request {
        Request::PairingRequest(request) => {
            let new = NewPairing { label: request.label, key: request.key, wants: request.wants };
            challenge(identities.ask_to_pair(&new, source).map_err(failed)?.challenge)
        }
        Request::DeviceChallenge(request) => {
            challenge(identities.challenge(&id(&request.subject)?, source).map_err(failed)?)
        }
        Request::PairingProve(proof) => {
            let (challenge, signature) = signed(&proof.subject, proof.nonce, proof.signature)?;
            shown(&identities.prove_pairing(&challenge, &signature).map_err(failed)?)
        }
        Request::PairingClaim(proof) => {
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
    known: Option<&KnownIdentity>,
    request: AttenuateToken,
) -> Result<Value, ApiError> {
    let Some(known) = known.filter(|known| known.session() == Some(&request.session)) else {
        return Err(ApiError::new(ErrorCode::Forbidden, "only an agent hands on what its own session has")
            .with_rule(RuleId::IdentityKind));
    };
    let lifetime = lifetime(request.lifetime_s)?;
    let made = identities.attenuate(known, &request.label, request.attenuation, lifetime);
    minted(made.map_err(failed)?)
}

fn wanted(new: CreateToken) -> Result<NewToken, ApiError> {
    let CreateToken { label, rights, lifetime_s, operator } = new;
    Ok(NewToken { label, rights, lifetime: lifetime(lifetime_s)?, operator })
}

fn lifetime(seconds: Option<u64>) -> Result<TokenLifetime, ApiError> {
    let Some(seconds) = seconds else { return Ok(TokenLifetime::Unlimited) };
    match i64::try_from(seconds) {
        Ok(signed) if (1..=LONGEST_LIFETIME_S).contains(&seconds) => {
            Ok(TokenLifetime::For(SignedDuration::from_secs(signed)))
        }
        _ => Err(malformed(format!("a lifetime has from 1 to {LONGEST_LIFETIME_S} seconds"))),
    }
}

fn waiting(identities: &Identities, code: &str) -> Result<PairingSummary, ApiError> {
    let mut found = identities.pairings().map_err(failed)?.into_iter().filter(|pairing| pairing.code == code);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(ApiError::new(ErrorCode::NotFound, "no device waits with this code")),
    }
}

fn signed(subject: &str, nonce: String, signature: String) -> Result<(Challenge, DeviceSignature), ApiError> {
    Ok((Challenge { subject: id(subject)?, nonce }, DeviceSignature(signature)))
}

fn id(text: &str) -> Result<CredentialId, ApiError> {
    CredentialId::parse(text)
        .ok_or_else(|| ApiError::new(ErrorCode::InvalidArgument, "an id is 16 hexadecimal digits"))
}

fn minted(minted: MintedCredential) -> Result<Value, ApiError> {
    let secret = minted.text.reveal().to_string();
    json(&MintedToken { token: json(&minted.meta)?, secret })
}

fn operator(changed: Result<OperatorSummary, IdentityError>) -> Result<Value, ApiError> {
    json(&OperatorInfo { operator: json(&changed.map_err(failed)?)? })
}

fn shown(pairing: &PairingSummary) -> Result<Value, ApiError> {
    json(&PairingInfo { pairing: json(pairing)? })
}

fn challenge(challenge: Challenge) -> Result<Value, ApiError> {
    json(&DeviceChallenge { subject: challenge.subject.to_string(), nonce: challenge.nonce })
}

fn done<T>(result: Result<T, IdentityError>) -> Result<Value, ApiError> {
    result.map_err(failed).and_then(|_| json(&Empty {}))
}

fn json(value: &impl Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(value).map_err(|error| internal(&error))
}

/// Maps an identity error to the error for the client.
pub(crate) fn failed(error: IdentityError) -> ApiError {
    let code = match &error {
        IdentityError::Denied(_) => ErrorCode::Forbidden,
        IdentityError::NoSuch { .. } => ErrorCode::NotFound,
        IdentityError::Exists { .. } => ErrorCode::FailedPrecondition,
        IdentityError::Full(_) => ErrorCode::ResourceExhausted,
        IdentityError::Store(_) | IdentityError::Unwitnessed(_) | IdentityError::Random(_) => {
            return unavailable(&error);
        }
        _ => ErrorCode::InvalidArgument,
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
