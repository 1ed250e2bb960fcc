//! Whether a credential is good, with everything that it stands on.

use jiff::Timestamp;
use ringfence_types::{Attenuation, CredentialKind};

use super::{Identities, Known};
use crate::error::{Denied, IdentityError};
use crate::record::{Credential, CredentialId, Meta, Operator, OperatorMeta, Owner};
use crate::store::{self, Rows, Table};

/// More makers than any token has above it.
pub(super) const DEEPEST: usize = 16;

pub(super) fn credential(
    rows: &(impl Rows + ?Sized),
    id: &CredentialId,
) -> Result<Option<Credential>, IdentityError> {
    Ok(store::get(rows, Table::Credential, id.as_str())?)
}

pub(super) fn wanted(rows: &(impl Rows + ?Sized), id: &CredentialId) -> Result<Credential, IdentityError> {
    let found = credential(rows, id)?;
    found.ok_or_else(|| IdentityError::NoSuch { what: "token", id: id.to_string() })
}

/// The credential and what it stands on, nearest first.
pub(super) fn line(
    rows: &(impl Rows + ?Sized),
    credential: Credential,
) -> Result<Vec<Credential>, IdentityError> {
    let mut line = vec![credential];
    while let Some(parent) = line.last().and_then(|last| last.parent.clone()) {
        if line.len() > DEEPEST {
            return Err(Denied::Revoked.into());
        }
        // What is gone cannot carry anything.
        line.push(self::credential(rows, &parent)?.ok_or(Denied::Revoked)?);
    }
    Ok(line)
}

/// A credential and all that it goes back to: what it was made with, and what its operator's password was given with. `None`: not
/// all of it is remembered.
pub(super) fn origins(
    rows: &(impl Rows + ?Sized),
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

/// Whether all of a line are good now.
pub(super) fn judge(
    rows: &(impl Rows + ?Sized),
    line: &[Credential],
    now: Timestamp,
) -> Result<(), IdentityError> {
    for credential in line {
        if credential.revoked.is_some() {
            return Err(Denied::Revoked.into());
        }
        if credential.expires.is_some_and(|end| end <= now) {
            return Err(Denied::Expired.into());
        }
        if let Owner::Account { name } = &credential.owner {
            let owner: Option<Operator> = store::get(rows, Table::Operator, name)?;
            owner.ok_or(Denied::Revoked)?;
        }
    }
    Ok(())
}

/// How many calls are left: of each of the line, the least.
pub(super) fn calls_left(line: &[Credential]) -> Option<u64> {
    let left = |one: &Credential| one.attenuation.calls.map(|most| most.saturating_sub(one.spent));
    line.iter().filter_map(left).min()
}

pub(super) fn known(line: &[Credential], node: &str) -> Option<Known> {
    let credential = line.first()?;
    Some(Known {
        id: credential.id.clone(),
        kind: credential.kind,
        principal: credential.owner.principal(&credential.id, node),
        owner: credential.owner.clone(),
        rights: credential.rights.clone(),
        attenuation: Attenuation { calls: calls_left(line), ..credential.attenuation.clone() },
        expires: line.iter().filter_map(|one| one.expires).min(),
        shown: credential.digest.clone(),
    })
}

impl Identities {
    /// Why somebody who was let in would not be any more, if so. Another secret ends what came with the old one; that of a
    /// device changes with each renewal, which only its key can ask for.
    pub fn standing(&self, known: &Known) -> Result<Option<Denied>, IdentityError> {
        let judged = self.read(|rows| {
            let found = credential(rows, &known.id)?.ok_or(Denied::Revoked)?;
            if found.digest != known.shown && found.kind != CredentialKind::Device {
                return Err(Denied::Revoked.into());
            }
            judge(rows, &line(rows, found)?, self.now(rows)?)
        });
        match judged {
            Ok(()) => Ok(None),
            Err(IdentityError::Denied(denied)) => Ok(Some(denied)),
            Err(error) => Err(error),
        }
    }

    /// Whether two credentials are one, or one goes back to the other, or both to a third. Also when they are over; of what is
    /// forgotten that cannot be told, and then they are.
    pub fn are_kin(&self, one: &CredentialId, other: &CredentialId) -> Result<bool, IdentityError> {
        self.read(|rows| {
            let (Some(ids), Some(others)) = (origins(rows, one)?, origins(rows, other)?) else {
                return Ok(true);
            };
            Ok(others.iter().any(|id| ids.contains(id)))
        })
    }

    /// Every credential that is kept, also those that are worth nothing any more.
    pub fn credentials(&self) -> Result<Vec<Meta>, IdentityError> {
        self.read(|rows| {
            let mut all: Vec<Credential> = store::all(rows, Table::Credential)?;
            all.sort_by(|a, b| a.made.cmp(&b.made).then_with(|| a.id.cmp(&b.id)));
            Ok(all.into_iter().map(Meta::from).collect())
        })
    }

    pub fn credential(&self, id: &CredentialId) -> Result<Meta, IdentityError> {
        self.read(|rows| wanted(rows, id).map(Meta::from))
    }

    pub fn operators(&self) -> Result<Vec<OperatorMeta>, IdentityError> {
        self.read(|rows| {
            let all: Vec<Operator> = store::all(rows, Table::Operator)?;
            Ok(all.into_iter().map(OperatorMeta::from).collect())
        })
    }
}
