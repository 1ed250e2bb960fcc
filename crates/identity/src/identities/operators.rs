//! Operators: people with a name and a password.

use jiff::Timestamp;
use ringfence_types::{CredentialKind, IdentityChange, IdentityVerb, Rights, Scope};

use super::{Authority, Identities, LONGEST_NAME, lookup};
use crate::error::{AuthError, IdentityError};
use crate::password;
use crate::record::{CredentialId, CredentialOwner, CredentialRecord, OperatorRecord, OperatorSummary};
use crate::store::{self, RecordRows, RecordTable};

const MOST: usize = 1000;
/// Bound on the origins of a password, which grow each time a password is set by an operator whose own password was set
/// by another.
const MOST_GIVERS: usize = 256;

#[derive(Clone, Debug)]
pub struct NewOperator<'a> {
    pub name: String,
    pub rights: Rights,
    pub password: &'a [u8],
}

impl Identities {
    pub fn add_operator(
        &self,
        by: &Authority<'_>,
        new: NewOperator<'_>,
    ) -> Result<OperatorSummary, IdentityError> {
        by.require(Scope::Admin)?;
        by.rights().may_give(&new.rights).map_err(AuthError::from)?;
        let name = account_name(&new.name)?;
        self.read(|rows| is_free(rows, &name))?;
        // Before the store is locked: hashing is slow on purpose.
        let hash = password::hashed(new.password)?;
        self.change(|rows, now| {
            is_free(rows, &name)?;
            let operator = OperatorRecord {
                name: name.clone(),
                password: hash.clone(),
                rights: new.rights.clone(),
                created_at: now,
                created_by: by.principal().to_string(),
                password_set_at: now,
                given_with: giver(rows, by)?,
            };
            store::put(rows, RecordTable::Operator, &name, &operator)?;
            self.tell(rows, by.principal(), &change(IdentityVerb::OperatorAdded, &operator))?;
            Ok(operator.into())
        })
    }

    /// Sets a password and revokes the web logins of the operator.
    pub fn set_password(
        &self,
        by: &Authority<'_>,
        name: &str,
        new: &[u8],
    ) -> Result<OperatorSummary, IdentityError> {
        // Checked before the slow hash, so that an unauthorized caller cannot cause the work.
        self.read(|rows| may_set(rows, by, name))?;
        let hash = password::hashed(new)?;
        self.change(|rows, now| {
            let found = may_set(rows, by, name)?;
            // An operator that changes its own password keeps the origins: it logged in with the previous one.
            let given_with = if is_self(by, name) { found.given_with.clone() } else { giver(rows, by)? };
            let operator =
                OperatorRecord { password: hash.clone(), password_set_at: now, given_with, ..found };
            store::put(rows, RecordTable::Operator, name, &operator)?;
            self.tell(rows, by.principal(), &change(IdentityVerb::PasswordSet, &operator))?;
            let web = credentials_of(rows, name)?.into_iter().filter(|one| one.kind == CredentialKind::Web);
            self.revoke_all(rows, by, now, web)?;
            Ok(operator.into())
        })
    }

    /// Removes an operator and revokes all its credentials.
    pub fn remove_operator(&self, by: &Authority<'_>, name: &str) -> Result<OperatorSummary, IdentityError> {
        by.require(Scope::Admin)?;
        self.change(|rows, now| {
            let operator = wanted(rows, name)?;
            let all = credentials_of(rows, name)?;
            self.revoke_all(rows, by, now, all)?;
            rows.remove(RecordTable::Operator, name)?;
            self.tell_taken_away(rows, by.principal(), &[change(IdentityVerb::OperatorRemoved, &operator)])?;
            Ok(operator.into())
        })
    }

    pub(super) fn revoke_all(
        &self,
        rows: &mut dyn RecordRows,
        by: &Authority<'_>,
        now: Timestamp,
        credentials: impl IntoIterator<Item = CredentialRecord>,
    ) -> Result<(), IdentityError> {
        for credential in credentials {
            self.revoke_row(rows, by, credential, now)?;
        }
        Ok(())
    }
}

/// The credentials of an operator that are not revoked, expired ones included.
pub(super) fn credentials_of(
    rows: &(impl RecordRows + ?Sized),
    name: &str,
) -> Result<Vec<CredentialRecord>, IdentityError> {
    let mut all: Vec<CredentialRecord> = store::all(rows, RecordTable::Credential)?;
    all.retain(|one| {
        let theirs = matches!(&one.owner, CredentialOwner::Account { name: owner } if owner == name);
        theirs && one.revoked_at.is_none()
    });
    Ok(all)
}

fn is_free(rows: &(impl RecordRows + ?Sized), name: &str) -> Result<(), IdentityError> {
    if find(rows, name)?.is_some() {
        return Err(IdentityError::Exists { name: name.to_owned() });
    }
    let all: Vec<OperatorRecord> = store::all(rows, RecordTable::Operator)?;
    if all.len() >= MOST { Err(IdentityError::Full("there are 1000 operators")) } else { Ok(()) }
}

/// The operator, if `by` may set its password.
fn may_set(
    rows: &(impl RecordRows + ?Sized),
    by: &Authority<'_>,
    name: &str,
) -> Result<OperatorRecord, IdentityError> {
    if !is_self(by, name) {
        by.require(Scope::Admin)?;
    }
    let found = wanted(rows, name)?;
    // The password gives all rights of the operator.
    by.rights().may_give(&found.rights).map_err(AuthError::from)?;
    Ok(found)
}

/// The origins of a new password. The credential that sets it knows the password and could log in with it, so the two
/// count as related.
fn giver(rows: &(impl RecordRows + ?Sized), by: &Authority<'_>) -> Result<Vec<CredentialId>, IdentityError> {
    let Authority::Token(known) = by else { return Ok(Vec::new()) };
    let ids = lookup::origins(rows, &known.id)?.ok_or(AuthError::Revoked)?;
    if ids.len() > MOST_GIVERS {
        return Err(IdentityError::Full(
            "passwords were handed on too often; the owner of the machine sets this one",
        ));
    }
    Ok(ids)
}

fn is_self(by: &Authority<'_>, name: &str) -> bool {
    let Authority::Token(known) = by else { return false };
    known.kind == CredentialKind::Web && known.owner == CredentialOwner::Account { name: name.to_owned() }
}

fn change(verb: IdentityVerb, operator: &OperatorRecord) -> IdentityChange {
    IdentityChange {
        verb,
        subject: operator.name.clone(),
        credential: None,
        owner: None,
        rights: Some(operator.rights.clone()),
        detail: None,
    }
}

pub(super) fn find(
    rows: &(impl RecordRows + ?Sized),
    name: &str,
) -> Result<Option<OperatorRecord>, IdentityError> {
    Ok(store::get(rows, RecordTable::Operator, name)?)
}

pub(super) fn wanted(rows: &(impl RecordRows + ?Sized), name: &str) -> Result<OperatorRecord, IdentityError> {
    find(rows, name)?.ok_or_else(|| IdentityError::NoSuch { what: "operator", id: name.to_owned() })
}

/// A name without lookalikes, which needs no quoting.
fn account_name(text: &str) -> Result<String, IdentityError> {
    let wrong = |why| IdentityError::Name { text: text.chars().take(LONGEST_NAME).collect(), why };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-@".contains(c);
    match text {
        "" => Err(wrong("it is empty")),
        text if text.len() > LONGEST_NAME => Err(wrong("it is longer than 64 characters")),
        text if !text.chars().all(plain) => Err(wrong("only a-z, 0-9 and . _ - @ are allowed")),
        text if !text.starts_with(|c: char| c.is_ascii_lowercase()) => Err(wrong("it begins with no letter")),
        text => Ok(text.to_owned()),
    }
}
