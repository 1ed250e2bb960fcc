//! Devices: a client makes a key pair, shows that it has it, an operator lets it in, and from then on the key renews a
//! token that lives for an hour.

use jiff::{SignedDuration, Timestamp};
use ringfence_types::{CredentialKind, IdentityChange, IdentityVerb, Principal, Rights, Scope};

use super::tokens::{Fresh, Minted};
use super::{Authority, Identities, Source, end, keep, label, lookup, noted};
use crate::error::{Denied, IdentityError};
use crate::proof::{Challenge, Purpose, Signature, code_of, is_signed, key_of};
use crate::record::{Credential, CredentialId, Nonce, Owner, Pairing, PairingMeta, Stage};
use crate::store::{self, Rows, Table};
use crate::token::{TokenText, hex};

const REQUEST: SignedDuration = SignedDuration::from_mins(10);
const CHALLENGE: SignedDuration = SignedDuration::from_mins(2);
const TOKEN: SignedDuration = SignedDuration::from_hours(1);
/// After which a device has to be paired again.
const DEVICE: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Anybody may ask, so only so many wait.
const MOST_REQUESTS: usize = 32;
/// From one source, so that one does not keep out the others.
const MOST_OF_ONE: usize = 4;
const MOST_CHALLENGES: usize = 256;
const MOST_CHALLENGES_OF_ONE: usize = 16;

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct NewPairing {
    /// What it says of itself.
    pub label: String,
    /// Ed25519, 64 hexadecimal digits.
    pub key: String,
    pub wants: Rights,
}

/// A request that was taken, and what has to be signed to make it count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    pub pairing: PairingMeta,
    pub challenge: Challenge,
}

impl Identities {
    /// A client asks to be let in. Nobody is shown it before it has proven that it has the key.
    pub fn ask_to_pair(&self, new: &NewPairing, source: &Source) -> Result<Offered, IdentityError> {
        let name = label(&new.label)?;
        let key = key_of(&new.key).map(|_| new.key.clone()).ok_or(IdentityError::Key)?;
        self.change(|rows, now| {
            self.sweep(rows, now)?;
            let waiting: Vec<Pairing> = store::all(rows, Table::Pairing)?;
            let here = waiting.iter().filter(|one| one.source == source.network()).count();
            if waiting.len() >= MOST_REQUESTS || here >= MOST_OF_ONE {
                return Err(IdentityError::Full("too many devices wait for an operator"));
            }
            let pairing = Pairing {
                id: CredentialId::random()?,
                label: name.clone(),
                key: key.clone(),
                wants: new.wants.clone(),
                source: source.network(),
                asked: now,
                expires: end(now, REQUEST)?,
                stage: Stage::Asked,
            };
            keep_pairing(rows, &pairing)?;
            let challenge = self.challenge_row(rows, (&pairing.id, source), now)?;
            Ok(Offered { pairing: shown(pairing), challenge })
        })
    }

    /// From here on operators see the request.
    pub fn prove_pairing(
        &self,
        challenge: &Challenge,
        signature: &Signature,
    ) -> Result<PairingMeta, IdentityError> {
        self.take(challenge)?;
        self.change(|rows, now| {
            let pairing = pairing(rows, &challenge.subject, now)?;
            if pairing.stage != Stage::Asked || !is_signed(&pairing.key, Purpose::Pair, challenge, signature)
            {
                return Err(Denied::Proof.into());
            }
            let proven = Pairing { stage: Stage::Proven, ..pairing };
            keep_pairing(rows, &proven)?;
            self.tell(rows, &Principal::System, &asked(IdentityVerb::PairingAsked, &proven, None))?;
            Ok(shown(proven))
        })
    }

    /// What waits for an operator.
    pub fn pairings(&self) -> Result<Vec<PairingMeta>, IdentityError> {
        self.read(|rows| {
            let now = self.now(rows)?;
            let all: Vec<Pairing> = store::all(rows, Table::Pairing)?;
            let waits = |one: &Pairing| one.stage == Stage::Proven && one.expires > now;
            Ok(all.into_iter().filter(waits).map(shown).collect())
        })
    }

    /// An operator lets a device in, with no more than it wants and no more than they have.
    pub fn approve_pairing(
        &self,
        by: &Authority<'_>,
        id: &CredentialId,
        rights: Option<Rights>,
    ) -> Result<PairingMeta, IdentityError> {
        by.require(Scope::Pair)?;
        self.change(|rows, now| {
            let found = proven(rows, id, now)?;
            let rights = rights.clone().unwrap_or_else(|| found.wants.clone());
            by.rights().may_give(&rights).map_err(Denied::from)?;
            found.wants.may_give(&rights).map_err(Denied::from)?;
            let stage = Stage::Approved {
                rights: rights.clone(),
                owner: by.owner(),
                by: by.principal().to_string(),
                parent: by.parent().map(|parent| parent.id.clone()),
                until: by.parent().and_then(|parent| parent.expires),
            };
            let approved = Pairing { stage, ..found };
            keep_pairing(rows, &approved)?;
            self.tell(rows, by.principal(), &asked(IdentityVerb::PairingApproved, &approved, Some(rights)))?;
            Ok(shown(approved))
        })
    }

    pub fn refuse_pairing(
        &self,
        by: &Authority<'_>,
        id: &CredentialId,
    ) -> Result<PairingMeta, IdentityError> {
        by.require(Scope::Pair)?;
        self.change(|rows, now| {
            let refused = Pairing { stage: Stage::Refused, ..proven(rows, id, now)? };
            keep_pairing(rows, &refused)?;
            self.tell(rows, by.principal(), &asked(IdentityVerb::PairingRefused, &refused, None))?;
            Ok(shown(refused))
        })
    }

    /// Something to sign for a pairing or a device. Also for what there is not: that is not told.
    pub fn challenge(&self, subject: &CredentialId, source: &Source) -> Result<Challenge, IdentityError> {
        self.change(|rows, now| {
            self.sweep(rows, now)?;
            self.challenge_row(rows, (subject, source), now)
        })
    }

    /// The first token of a device that was let in. Once.
    pub fn collect(&self, challenge: &Challenge, signature: &Signature) -> Result<Minted, IdentityError> {
        self.take(challenge)?;
        self.change(|rows, now| {
            let found = pairing(rows, &challenge.subject, now)?;
            if !is_signed(&found.key, Purpose::Collect, challenge, signature) {
                return Err(Denied::Proof.into());
            }
            let Stage::Approved { rights, owner, by: approver, parent, until } = found.stage else {
                let refused = found.stage == Stage::Refused;
                return Err(if refused { Denied::PairingRefused } else { Denied::NotApproved }.into());
            };
            rows.remove(Table::Pairing, found.id.as_str())?;
            let by = Authority::Owner(Principal::System);
            let fresh = Fresh { kind: CredentialKind::Device, label: found.label, owner, rights };
            let (text, credential) = fresh.credential(&by, now)?;
            let within = |end: Timestamp| until.map_or(end, |until| end.min(until));
            let credential = Credential {
                made_by: approver,
                parent,
                key: Some(found.key),
                expires: Some(within(end(now, TOKEN)?)),
                ends: Some(within(end(now, DEVICE)?)),
                ..credential
            };
            // Whoever approved it may be nobody by now.
            lookup::judge(rows, &lookup::line(rows, credential.clone())?, now)?;
            self.add(rows, (&by, IdentityVerb::Minted), credential, text)
        })
    }

    /// The next token of a device, which shows that it has its key. The one before is worth nothing from now on.
    pub fn refresh(&self, challenge: &Challenge, signature: &Signature) -> Result<Minted, IdentityError> {
        self.take(challenge)?;
        self.change(|rows, now| {
            let found = lookup::credential(rows, &challenge.subject)?.ok_or(Denied::Proof)?;
            let key = found.key.clone().ok_or(Denied::Proof)?;
            if !is_signed(&key, Purpose::Refresh, challenge, signature) {
                return Err(Denied::Proof.into());
            }
            let ends = found.ends.filter(|ends| *ends > now).ok_or(Denied::Expired)?;
            // Its hour may be over; everything else that ends a credential ends a device.
            let within = Credential { expires: None, ..found };
            lookup::judge(rows, &lookup::line(rows, within.clone())?, now)?;
            let text = TokenText::random(within.kind, within.id.clone())?;
            let renewed = Credential {
                digest: text.digest(),
                expires: Some(end(now, TOKEN)?.min(ends)),
                renewed: Some(now),
                ..within
            };
            keep(rows, &renewed)?;
            let principal = renewed.owner.principal(&renewed.id, &self.node);
            self.tell(rows, &principal, &noted(IdentityVerb::Refreshed, &renewed))?;
            Ok(Minted { text, meta: renewed.into() })
        })
    }

    /// A challenge is used up, whatever comes of it: so in a transaction of its own.
    fn take(&self, challenge: &Challenge) -> Result<(), IdentityError> {
        // Anybody may show one. What was never given out is not worth a write, for which all others would wait.
        if !is_nonce(&challenge.nonce) || !self.is_given_out(&challenge.nonce)? {
            return Err(Denied::Proof.into());
        }
        let good = self.change(|rows, now| {
            let found: Option<Nonce> = store::get(rows, Table::Challenge, &challenge.nonce)?;
            rows.remove(Table::Challenge, &challenge.nonce)?;
            Ok(found.is_some_and(|nonce| nonce.subject == challenge.subject && nonce.expires > now))
        })?;
        if good { Ok(()) } else { Err(Denied::Proof.into()) }
    }

    fn is_given_out(&self, nonce: &str) -> Result<bool, IdentityError> {
        self.read(|rows| Ok(store::get::<Nonce>(rows, Table::Challenge, nonce)?.is_some()))
    }

    fn challenge_row(
        &self,
        rows: &mut dyn Rows,
        (subject, source): (&CredentialId, &Source),
        now: Timestamp,
    ) -> Result<Challenge, IdentityError> {
        let waiting: Vec<Nonce> = store::all(rows, Table::Challenge)?;
        let source = source.network();
        let here = waiting.iter().filter(|one| one.source == source).count();
        if waiting.len() >= MOST_CHALLENGES || here >= MOST_CHALLENGES_OF_ONE {
            return Err(IdentityError::Full("too many devices are about to sign; try again in two minutes"));
        }
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes)?;
        let nonce =
            Nonce { nonce: hex(bytes), subject: subject.clone(), expires: end(now, CHALLENGE)?, source };
        store::put(rows, Table::Challenge, &nonce.nonce, &nonce)?;
        Ok(Challenge { subject: subject.clone(), nonce: nonce.nonce })
    }

    /// What is over makes room.
    fn sweep(&self, rows: &mut dyn Rows, now: Timestamp) -> Result<(), IdentityError> {
        let pairings: Vec<Pairing> = store::all(rows, Table::Pairing)?;
        for one in pairings.iter().filter(|one| one.expires <= now) {
            rows.remove(Table::Pairing, one.id.as_str())?;
        }
        let nonces: Vec<Nonce> = store::all(rows, Table::Challenge)?;
        for one in nonces.iter().filter(|one| one.expires <= now) {
            rows.remove(Table::Challenge, &one.nonce)?;
        }
        Ok(())
    }
}

/// Whether it has the form of what is given out.
fn is_nonce(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn pairing(rows: &(impl Rows + ?Sized), id: &CredentialId, now: Timestamp) -> Result<Pairing, IdentityError> {
    let found: Option<Pairing> = store::get(rows, Table::Pairing, id.as_str())?;
    let found = found.filter(|one| one.expires > now);
    found.ok_or_else(|| IdentityError::NoSuch { what: "pairing", id: id.to_string() })
}

fn proven(rows: &(impl Rows + ?Sized), id: &CredentialId, now: Timestamp) -> Result<Pairing, IdentityError> {
    let found = pairing(rows, id, now)?;
    if found.stage == Stage::Proven {
        return Ok(found);
    }
    Err(IdentityError::NoSuch { what: "pairing", id: id.to_string() })
}

fn keep_pairing(rows: &mut dyn Rows, pairing: &Pairing) -> Result<(), IdentityError> {
    Ok(store::put(rows, Table::Pairing, pairing.id.as_str(), pairing)?)
}

fn shown(pairing: Pairing) -> PairingMeta {
    let Pairing { id, label, key, wants, source, asked, expires, .. } = pairing;
    PairingMeta { id, label, code: code_of(&key), wants, source, asked, expires }
}

fn asked(verb: IdentityVerb, pairing: &Pairing, rights: Option<Rights>) -> IdentityChange {
    let owner = match &pairing.stage {
        Stage::Approved { owner, .. } => Some(Owner::to_string(owner)),
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
