//! Credential lookup: whether a credential and all its ancestors are valid.

use jiff::Timestamp;
use ringfence_types::{Attenuation, CredentialKind};

use super::{Identities, KnownIdentity};
use crate::error::{AuthError, IdentityError};
use crate::record::{
    CredentialId, CredentialOwner, CredentialRecord, CredentialSummary, OperatorRecord, OperatorSummary,
};
use crate::store::{self, RecordRows, RecordTable};

/// Longest chain of parents.
pub(super) const DEEPEST: usize = 16;

pub(super) fn credential(
    rows: &(impl RecordRows + ?Sized),
    id: &CredentialId,
) -> Result<Option<CredentialRecord>, IdentityError> {
    Ok(store::get(rows, RecordTable::Credential, id.as_str())?)
}

pub(super) fn wanted(
    rows: &(impl RecordRows + ?Sized),
    id: &CredentialId,
) -> Result<CredentialRecord, IdentityError> {
    let found = credential(rows, id)?;
    found.ok_or_else(|| IdentityError::NoSuch { what: "token", id: id.to_string() })
}

/// The credential and its ancestors, nearest first.
pub(super) fn line(
    rows: &(impl RecordRows + ?Sized),
    credential: CredentialRecord,
) -> Result<Vec<CredentialRecord>, IdentityError> {
    let mut line = vec![credential];
    while let Some(parent) = line.last().and_then(|last| last.parent.clone()) {
        if line.len() > DEEPEST {
            return Err(AuthError::Revoked.into());
        }
        // A missing parent counts as revoked.
        line.push(self::credential(rows, &parent)?.ok_or(AuthError::Revoked)?);
    }
    Ok(line)
}

/// A credential and its origins: its ancestors, and the credentials that set its operator's password. `None`: part of
/// them is no longer stored.
pub(super) fn origins(
    rows: &(impl RecordRows + ?Sized),
    id: &CredentialId,
) -> Result<Option<Vec<CredentialId>>, IdentityError> {
    let mut ids = Vec::new();
    let mut next = Some(id.clone());
    for _ in 0..=DEEPEST + 1 {
        let Some(id) = next else { return Ok(Some(ids)) };
        let Some(found) = credential(rows, &id)? else { return Ok(None) };
        ids.push(id);
        ids.extend(found.given_with);
        next = found.parent;
    }
    Ok(None)
}

/// Whether all credentials of a line are valid now.
pub(super) fn judge(
    rows: &(impl RecordRows + ?Sized),
    line: &[CredentialRecord],
    now: Timestamp,
) -> Result<(), IdentityError> {
    for credential in line {
        if credential.revoked_at.is_some() {
            return Err(AuthError::Revoked.into());
        }
        if credential.expires_at.is_some_and(|end| end <= now) {
            return Err(AuthError::Expired.into());
        }
        if let CredentialOwner::Account { name } = &credential.owner {
            let owner: Option<OperatorRecord> = store::get(rows, RecordTable::Operator, name)?;
            owner.ok_or(AuthError::Revoked)?;
        }
    }
    Ok(())
}

/// The remaining calls: the minimum over the line.
pub(super) fn calls_left(line: &[CredentialRecord]) -> Option<u64> {
    let left = |one: &CredentialRecord| one.attenuation.calls.map(|most| most.saturating_sub(one.spent));
    line.iter().filter_map(left).min()
}

pub(super) fn known(line: &[CredentialRecord], node: &str) -> Option<KnownIdentity> {
    let (credential, oldest) = (line.first()?, line.last()?);
    Some(KnownIdentity {
        id: credential.id.clone(),
        family: oldest.id.clone(),
        kind: credential.kind,
        principal: credential.owner.principal(&credential.id, node),
        owner: credential.owner.clone(),
        rights: credential.rights.clone(),
        attenuation: Attenuation { calls: calls_left(line), ..credential.attenuation.clone() },
        expires_at: line.iter().filter_map(|one| one.expires_at).min(),
        shown: credential.digest.clone(),
    })
}

impl Identities {
    /// Why an authenticated identity is no longer valid, if so. A rotated secret invalidates identities of the old one.
    /// Devices are exempt, because their secret changes with each refresh and only their key can ask for it.
    pub fn standing(&self, known: &KnownIdentity) -> Result<Option<AuthError>, IdentityError> {
        let judged = self.read(|rows| {
            let found = credential(rows, &known.id)?.ok_or(AuthError::Revoked)?;
            if found.digest != known.shown && found.kind != CredentialKind::Device {
                return Err(AuthError::Revoked.into());
            }
            judge(rows, &line(rows, found)?, self.now(rows)?)
        });
        match judged {
            Ok(()) => Ok(None),
            Err(IdentityError::Denied(denied)) => Ok(Some(denied)),
            Err(error) => Err(error),
        }
    }

    /// Whether two credentials are the same or share an origin, also after they became invalid. If an origin is no
    /// longer stored, they count as related.
    pub fn are_kin(&self, one: &CredentialId, other: &CredentialId) -> Result<bool, IdentityError> {
        self.read(|rows| {
            let (Some(ids), Some(others)) = (origins(rows, one)?, origins(rows, other)?) else {
                return Ok(true);
            };
            Ok(others.iter().any(|id| ids.contains(id)))
        })
    }

    /// All stored credentials, including invalid ones.
    pub fn credentials(&self) -> Result<Vec<CredentialSummary>, IdentityError> {
        self.read(|rows| {
            let mut all: Vec<CredentialRecord> = store::all(rows, RecordTable::Credential)?;
            all.sort_by(|a, b| a.created_at.cmp(&b.created_at).then_with(|| a.id.cmp(&b.id)));
            Ok(all.into_iter().map(CredentialSummary::from).collect())
        })
    }

    pub fn credential(&self, id: &CredentialId) -> Result<CredentialSummary, IdentityError> {
        self.read(|rows| wanted(rows, id).map(CredentialSummary::from))
    }

    pub fn operators(&self) -> Result<Vec<OperatorSummary>, IdentityError> {
        self.read(|rows| {
            let all: Vec<OperatorRecord> = store::all(rows, RecordTable::Operator)?;
            Ok(all.into_iter().map(OperatorSummary::from).collect())
        })
    }
}
