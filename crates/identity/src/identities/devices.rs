//! Device pairing: a client proves possession of a key, an operator approves it, and the key then refreshes a token
//! that lives for an hour.

use jiff::{SignedDuration, Timestamp};
use ringfence_types::{CredentialKind, IdentityChange, IdentityVerb, Principal, Rights, Scope};

use super::tokens::{MintedCredential, NewCredential};
use super::{Authority, Identities, LoginSource, end, keep, label, lookup, noted};
use crate::error::{AuthError, IdentityError};
use crate::proof::{Challenge, DeviceSignature, ProofPurpose, code_of, is_signed, key_of};
use crate::record::{
    CredentialId, CredentialOwner, CredentialRecord, Nonce, PairingRecord, PairingStage, PairingSummary,
};
use crate::store::{self, RecordRows, RecordTable};
use crate::token::{TokenText, hex};

const REQUEST: SignedDuration = SignedDuration::from_mins(10);
const CHALLENGE: SignedDuration = SignedDuration::from_mins(2);
const TOKEN: SignedDuration = SignedDuration::from_hours(1);
/// After this time a device must be paired again.
const DEVICE: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Requests need no authentication, so their number is bounded.
const MOST_REQUESTS: usize = 32;
/// Per source, so that one source cannot block the others.
const MOST_OF_ONE: usize = 4;
const MOST_CHALLENGES: usize = 256;
const MOST_CHALLENGES_OF_ONE: usize = 16;

/// A pairing request.
#[derive(Clone, Debug)]
pub struct NewPairing {
    /// The client's own claim.
    pub label: String,
    /// Ed25519, 64 hexadecimal digits.
    pub key: String,
    pub wants: Rights,
}

/// An accepted request, with the challenge that the client must sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairingOffer {
    pub pairing: PairingSummary,
    pub challenge: Challenge,
}

impl Identities {
    /// Accepts a pairing request. Operators do not see it before the client has proved possession of its key.
    pub fn ask_to_pair(&self, new: &NewPairing, source: &LoginSource) -> Result<PairingOffer, IdentityError> {
        let name = label(&new.label)?;
        let key = key_of(&new.key).map(|_| new.key.clone()).ok_or(IdentityError::Key)?;
        self.change(|rows, now| {
            self.sweep(rows, now)?;
            let waiting: Vec<PairingRecord> = store::all(rows, RecordTable::Pairing)?;
            let here = waiting.iter().filter(|one| one.source == source.network()).count();
            if waiting.len() >= MOST_REQUESTS || here >= MOST_OF_ONE {
                return Err(IdentityError::Full("too many devices wait for an operator"));
            }
            let pairing = PairingRecord {
                id: CredentialId::random()?,
                label: name.clone(),
                key: key.clone(),
                wants: new.wants.clone(),
                source: source.network(),
                requested_at: now,
                expires_at: end(now, REQUEST)?,
                stage: PairingStage::Asked,
            };
            keep_pairing(rows, &pairing)?;
            let challenge = self.challenge_row(rows, &pairing.id, source, now)?;
            Ok(PairingOffer { pairing: shown(pairing), challenge })
        })
    }

    /// Verifies the proof. From here on operators see the request.
    pub fn prove_pairing(
        &self,
        challenge: &Challenge,
        signature: &DeviceSignature,
    ) -> Result<PairingSummary, IdentityError> {
        self.take(challenge)?;
        self.change(|rows, now| {
            let pairing = pairing(rows, &challenge.subject, now)?;
            if pairing.stage != PairingStage::Asked
                || !is_signed(&pairing.key, ProofPurpose::Pair, challenge, signature)
            {
                return Err(AuthError::Proof.into());
            }
            let proven = PairingRecord { stage: PairingStage::Proven, ..pairing };
            keep_pairing(rows, &proven)?;
            self.tell(rows, &Principal::System, &asked(IdentityVerb::PairingAsked, &proven, None))?;
            Ok(shown(proven))
        })
    }

    /// The requests that wait for an operator.
    pub fn pairings(&self) -> Result<Vec<PairingSummary>, IdentityError> {
        self.read(|rows| {
            let now = self.now(rows)?;
            let all: Vec<PairingRecord> = store::all(rows, RecordTable::Pairing)?;
            let waits = |one: &PairingRecord| one.stage == PairingStage::Proven && one.expires_at > now;
            Ok(all.into_iter().filter(waits).map(shown).collect())
        })
    }

    /// Approves a device, with at most the rights it wants and the operator has.
    pub fn approve_pairing(
        &self,
        by: &Authority<'_>,
        id: &CredentialId,
        rights: Option<Rights>,
    ) -> Result<PairingSummary, IdentityError> {
        by.require(Scope::Pair)?;
        self.change(|rows, now| {
            let found = proven(rows, id, now)?;
            let rights = rights.clone().unwrap_or_else(|| found.wants.clone());
            by.rights().may_give(&rights).map_err(AuthError::from)?;
            found.wants.may_give(&rights).map_err(AuthError::from)?;
            let stage = PairingStage::Approved {
                rights: rights.clone(),
                owner: by.owner(),
                by: by.principal().to_string(),
                parent: by.parent().map(|parent| parent.id.clone()),
                until: by.parent().and_then(|parent| parent.expires_at),
            };
            let approved = PairingRecord { stage, ..found };
            keep_pairing(rows, &approved)?;
            self.tell(rows, by.principal(), &asked(IdentityVerb::PairingApproved, &approved, Some(rights)))?;
            Ok(shown(approved))
        })
    }

    pub fn refuse_pairing(
        &self,
        by: &Authority<'_>,
        id: &CredentialId,
    ) -> Result<PairingSummary, IdentityError> {
        by.require(Scope::Pair)?;
        self.change(|rows, now| {
            let refused = PairingRecord { stage: PairingStage::Refused, ..proven(rows, id, now)? };
            keep_pairing(rows, &refused)?;
            self.tell(rows, by.principal(), &asked(IdentityVerb::PairingRefused, &refused, None))?;
            Ok(shown(refused))
        })
    }

    /// A challenge for a pairing or a device. Also for unknown ids, so that it does not reveal which exist.
    pub fn challenge(
        &self,
        subject: &CredentialId,
        source: &LoginSource,
    ) -> Result<Challenge, IdentityError> {
        self.change(|rows, now| {
            self.sweep(rows, now)?;
            self.challenge_row(rows, subject, source, now)
        })
    }

    /// The first token of an approved device. Works once.
    pub fn collect(
        &self,
        challenge: &Challenge,
        signature: &DeviceSignature,
    ) -> Result<MintedCredential, IdentityError> {
        self.take(challenge)?;
        self.change(|rows, now| {
            let found = pairing(rows, &challenge.subject, now)?;
            if !is_signed(&found.key, ProofPurpose::Claim, challenge, signature) {
                return Err(AuthError::Proof.into());
            }
            let PairingStage::Approved { rights, owner, by: approver, parent, until } = found.stage else {
                let refused = found.stage == PairingStage::Refused;
                return Err(if refused { AuthError::PairingRefused } else { AuthError::NotApproved }.into());
            };
            rows.remove(RecordTable::Pairing, found.id.as_str())?;
            let by = Authority::Owner(Principal::System);
            let fresh = NewCredential { kind: CredentialKind::Device, label: found.label, owner, rights };
            let mut draft = fresh.draft(&by, now)?;
            let within = |end: Timestamp| until.map_or(end, |until| end.min(until));
            draft.record = CredentialRecord {
                created_by: approver,
                parent,
                key: Some(found.key),
                expires_at: Some(within(end(now, TOKEN)?)),
                ends: Some(within(end(now, DEVICE)?)),
                ..draft.record
            };
            // The approver's credential may have been revoked meanwhile.
            lookup::judge(rows, &lookup::line(rows, draft.record.clone())?, now)?;
            self.add(rows, &by, IdentityVerb::Minted, draft)
        })
    }

    /// The next token of a device that proves possession of its key. The previous token becomes invalid.
    pub fn refresh(
        &self,
        challenge: &Challenge,
        signature: &DeviceSignature,
    ) -> Result<MintedCredential, IdentityError> {
        self.take(challenge)?;
        self.change(|rows, now| {
            let found = lookup::credential(rows, &challenge.subject)?.ok_or(AuthError::Proof)?;
            let key = found.key.clone().ok_or(AuthError::Proof)?;
            if !is_signed(&key, ProofPurpose::Refresh, challenge, signature) {
                return Err(AuthError::Proof.into());
            }
            let ends = found.ends.filter(|ends| *ends > now).ok_or(AuthError::Expired)?;
            // The hour of its token may be over. Every other reason to reject a credential also rejects the device.
            let within = CredentialRecord { expires_at: None, ..found };
            lookup::judge(rows, &lookup::line(rows, within.clone())?, now)?;
            let text = TokenText::random(within.kind, within.id.clone())?;
            let renewed = CredentialRecord {
                digest: text.digest(),
                expires_at: Some(end(now, TOKEN)?.min(ends)),
                renewed_at: Some(now),
                ..within
            };
            keep(rows, &renewed)?;
            let principal = renewed.owner.principal(&renewed.id, &self.node);
            self.tell(rows, &principal, &noted(IdentityVerb::Refreshed, &renewed))?;
            Ok(MintedCredential { text, meta: renewed.into() })
        })
    }

    /// Consumes a challenge, in its own transaction, so that it is used up even if the next step fails.
    fn take(&self, challenge: &Challenge) -> Result<(), IdentityError> {
        // Unauthenticated clients reach this. An unknown nonce is rejected without a write, which would block other
        // changes.
        if !is_nonce(&challenge.nonce) || !self.is_given_out(&challenge.nonce)? {
            return Err(AuthError::Proof.into());
        }
        let good = self.change(|rows, now| {
            let found: Option<Nonce> = store::get(rows, RecordTable::Challenge, &challenge.nonce)?;
            rows.remove(RecordTable::Challenge, &challenge.nonce)?;
            Ok(found.is_some_and(|nonce| nonce.subject == challenge.subject && nonce.expires_at > now))
        })?;
        if good { Ok(()) } else { Err(AuthError::Proof.into()) }
    }

    fn is_given_out(&self, nonce: &str) -> Result<bool, IdentityError> {
        self.read(|rows| Ok(store::get::<Nonce>(rows, RecordTable::Challenge, nonce)?.is_some()))
    }

    fn challenge_row(
        &self,
        rows: &mut dyn RecordRows,
        subject: &CredentialId,
        source: &LoginSource,
        now: Timestamp,
    ) -> Result<Challenge, IdentityError> {
        let waiting: Vec<Nonce> = store::all(rows, RecordTable::Challenge)?;
        let source = source.network();
        let here = waiting.iter().filter(|one| one.source == source).count();
        if waiting.len() >= MOST_CHALLENGES || here >= MOST_CHALLENGES_OF_ONE {
            return Err(IdentityError::Full("too many devices are about to sign; try again in two minutes"));
        }
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes)?;
        let nonce =
            Nonce { nonce: hex(bytes), subject: subject.clone(), expires_at: end(now, CHALLENGE)?, source };
        store::put(rows, RecordTable::Challenge, &nonce.nonce, &nonce)?;
        Ok(Challenge { subject: subject.clone(), nonce: nonce.nonce })
    }

    /// Removes expired requests and challenges.
    fn sweep(&self, rows: &mut dyn RecordRows, now: Timestamp) -> Result<(), IdentityError> {
        let pairings: Vec<PairingRecord> = store::all(rows, RecordTable::Pairing)?;
        for one in pairings.iter().filter(|one| one.expires_at <= now) {
            rows.remove(RecordTable::Pairing, one.id.as_str())?;
        }
        let nonces: Vec<Nonce> = store::all(rows, RecordTable::Challenge)?;
        for one in nonces.iter().filter(|one| one.expires_at <= now) {
            rows.remove(RecordTable::Challenge, &one.nonce)?;
        }
        Ok(())
    }
}

/// Whether the text has the form of a nonce.
fn is_nonce(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn pairing(
    rows: &(impl RecordRows + ?Sized),
    id: &CredentialId,
    now: Timestamp,
) -> Result<PairingRecord, IdentityError> {
    let found: Option<PairingRecord> = store::get(rows, RecordTable::Pairing, id.as_str())?;
    let found = found.filter(|one| one.expires_at > now);
    found.ok_or_else(|| IdentityError::NoSuch { what: "pairing", id: id.to_string() })
}

fn proven(
    rows: &(impl RecordRows + ?Sized),
    id: &CredentialId,
    now: Timestamp,
) -> Result<PairingRecord, IdentityError> {
    let found = pairing(rows, id, now)?;
    if found.stage == PairingStage::Proven {
        return Ok(found);
    }
    Err(IdentityError::NoSuch { what: "pairing", id: id.to_string() })
}

fn keep_pairing(rows: &mut dyn RecordRows, pairing: &PairingRecord) -> Result<(), IdentityError> {
    Ok(store::put(rows, RecordTable::Pairing, pairing.id.as_str(), pairing)?)
}

fn shown(pairing: PairingRecord) -> PairingSummary {
    let PairingRecord { id, label, key, wants, source, requested_at, expires_at, .. } = pairing;
    PairingSummary { id, label, code: code_of(&key), wants, source, requested_at, expires_at }
}

fn asked(verb: IdentityVerb, pairing: &PairingRecord, rights: Option<Rights>) -> IdentityChange {
    let owner = match &pairing.stage {
        PairingStage::Approved { owner, .. } => Some(CredentialOwner::to_string(owner)),
        _ => None,
    };
    IdentityChange {
        verb,
        subject: pairing.id.to_string(),
        credential: Some(CredentialKind::Device),
        owner,
        rights: Some(rights.unwrap_or_else(|| pairing.wants.clone())),
        detail: Some(format!("`{}`, code {}, from {}", pairing.label, code_of(&pairing.key), pairing.source)),
    }
}
