//! Tokens, operators and devices.

use jiff::SignedDuration;
use ringfence_api::{
    AddOperator, ApiError, AttenuateToken, CreateToken, DeviceChallenge, Empty, ErrorCode,
    LONGEST_LIFETIME_S, Method, MintedToken, OperatorInfo, OperatorList, PairingInfo, PairingList, Request,
    Response, TokenList,
};
use ringfence_types::RuleId;
use zeroize::Zeroizing;

use super::MethodError;
use crate::identity::{
    Authority, Challenge, CredentialId, DeviceSignature, Identities, KnownIdentity, LoginSource,
    MintedCredential, NewOperator, NewPairing, NewToken, PairingSummary, TokenLifetime,
};

/// Methods of authenticated callers.
pub fn perform(
    identities: &Identities,
    by: &Authority<'_>,
    known: Option<&KnownIdentity>,
    request: Request,
) -> Result<Response, MethodError> {
    let operator = |operator| OperatorInfo { operator, record_error: None };
    Ok(match request {
        Request::TokenList(_) => Response::TokenList(TokenList { tokens: identities.credentials()? }),
        Request::TokenCreate(new) => Response::TokenCreate(minted(identities.mint(by, wanted(new)?)?)),
        Request::TokenRotate(request) => {
            Response::TokenRotate(minted(identities.rotate(by, &id(&request.id)?)?))
        }
        Request::TokenRevoke(request) => {
            let _revoked = identities.revoke(by, &id(&request.id)?)?;
            Response::TokenRevoke(Empty::default())
        }
        Request::Logout(_) => {
            let why = "nothing was shown that could be ended";
            let known = known.ok_or_else(|| ApiError::new(ErrorCode::FailedPrecondition, why))?;
            let _revoked = identities.revoke(by, &known.id)?;
            Response::Logout(Empty::default())
        }
        Request::TokenAttenuate(request) => {
            Response::TokenAttenuate(minted(attenuated(identities, known, request)?))
        }
        Request::OperatorList(_) => {
            Response::OperatorList(OperatorList { operators: identities.operators()? })
        }
        Request::OperatorAdd(request) => {
            let AddOperator { name, rights, password } = request;
            let password = Zeroizing::new(password);
            let new = NewOperator { name, rights, password: password.as_bytes() };
            Response::OperatorAdd(operator(identities.add_operator(by, new)?))
        }
        Request::OperatorSetPassword(request) => {
            let password = Zeroizing::new(request.password);
            let changed = identities.set_password(by, &request.name, password.as_bytes())?;
            Response::OperatorSetPassword(operator(changed))
        }
        Request::OperatorRemove(request) => {
            Response::OperatorRemove(operator(identities.remove_operator(by, &request.name)?))
        }
        Request::PairingList(_) => Response::PairingList(PairingList { pairings: identities.pairings()? }),
        Request::PairingApprove(request) => {
            let pairing = waiting(identities, &request.code)?;
            let pairing = identities.approve_pairing(by, &pairing.id, request.rights)?;
            Response::PairingApprove(PairingInfo { pairing })
        }
        Request::PairingRefuse(request) => {
            let pairing = waiting(identities, &request.code)?;
            let pairing = identities.refuse_pairing(by, &pairing.id)?;
            Response::PairingRefuse(PairingInfo { pairing })
        }
        _ => return Err(ApiError::new(ErrorCode::Internal, "this is not about identities").into()),
    })
}

/// Methods that search the identity store without authentication.
pub fn is_of_device(method: Method) -> bool {
    matches!(
        method,
        Method::PairingRequest
            | Method::DeviceChallenge
            | Method::PairingProve
            | Method::PairingClaim
            | Method::DeviceRefresh
    )
}

/// Methods of devices before authentication.
pub fn of_device(
    identities: &Identities,
    source: &LoginSource,
    request: Request,
) -> Result<Response, MethodError> {
    Ok(match request {
        Request::PairingRequest(request) => {
            let new = NewPairing { label: request.label, key: request.key, wants: request.wants };
            Response::PairingRequest(challenge(identities.ask_to_pair(&new, source)?.challenge))
        }
        Request::DeviceChallenge(request) => {
            Response::DeviceChallenge(challenge(identities.challenge(&id(&request.subject)?, source)?))
        }
        Request::PairingProve(proof) => {
            let challenge = Challenge { subject: id(&proof.subject)?, nonce: proof.nonce };
            let pairing = identities.prove_pairing(&challenge, &DeviceSignature(proof.signature))?;
            Response::PairingProve(PairingInfo { pairing })
        }
        Request::PairingClaim(proof) => {
            let challenge = Challenge { subject: id(&proof.subject)?, nonce: proof.nonce };
            let token = identities.collect(&challenge, &DeviceSignature(proof.signature))?;
            Response::PairingClaim(minted(token))
        }
        Request::DeviceRefresh(proof) => {
            let challenge = Challenge { subject: id(&proof.subject)?, nonce: proof.nonce };
            let token = identities.refresh(&challenge, &DeviceSignature(proof.signature))?;
            Response::DeviceRefresh(minted(token))
        }
        _ => return Err(ApiError::new(ErrorCode::Internal, "this is not about devices").into()),
    })
}

fn attenuated(
    identities: &Identities,
    known: Option<&KnownIdentity>,
    request: AttenuateToken,
) -> Result<MintedCredential, MethodError> {
    let Some(known) = known.filter(|known| known.session() == Some(&request.session)) else {
        let why = "only an agent hands on what its own session has";
        return Err(ApiError::new(ErrorCode::Forbidden, why).with_rule(RuleId::IdentityKind).into());
    };
    let lifetime = lifetime(request.lifetime_s)?;
    Ok(identities.attenuate(known, &request.label, request.attenuation, lifetime)?)
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
        _ => {
            let why = format!("a lifetime has from 1 to {LONGEST_LIFETIME_S} seconds");
            Err(ApiError::new(ErrorCode::InvalidArgument, why))
        }
    }
}

/// The pairing request with `code`. The operator types the code that the device shows, so it is this device.
fn waiting(identities: &Identities, code: &str) -> Result<PairingSummary, MethodError> {
    let mut found = identities.pairings()?.into_iter().filter(|pairing| pairing.code == code);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(ApiError::new(ErrorCode::NotFound, "no device waits with this code")
            .with_hint("`ringfence device list` shows what waits; a request lives 10 minutes")
            .into()),
    }
}

fn id(text: &str) -> Result<CredentialId, ApiError> {
    CredentialId::parse(text)
        .ok_or_else(|| ApiError::new(ErrorCode::InvalidArgument, "an id is 16 hexadecimal digits"))
}

fn minted(minted: MintedCredential) -> MintedToken {
    MintedToken { token: minted.meta, secret: minted.text.reveal().to_string() }
}

fn challenge(challenge: Challenge) -> DeviceChallenge {
    DeviceChallenge { subject: challenge.subject.to_string(), nonce: challenge.nonce }
}
