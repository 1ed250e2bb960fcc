//! Operators: people with a name and a password.

use jiff::Timestamp;
use ringfence_types::{CredentialKind, IdentityChange, IdentityVerb, Rights, Scope};

use super::{Authority, Identities, LONGEST_NAME, lookup};
use crate::error::{Denied, IdentityError};
use crate::password;
use crate::record::{Credential, CredentialId, Operator, OperatorMeta, Owner};
use crate::store::{self, Rows, Table};

const MOST: usize = 1000;
/// What a password goes back to is kept with it, and grows with each who hands on what they were given.
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
    ) -> Result<OperatorMeta, IdentityError> {
        by.require(Scope::Admin)?;
        by.rights().may_give(&new.rights).map_err(Denied::from)?;
        let name = account_name(&new.name)?;
        self.read(|rows| is_free(rows, &name))?;
        // Before the store is held: it is slow on purpose.
        let hash = password::hashed(new.password)?;
        self.change(|rows, now| {
            is_free(rows, &name)?;
            let operator = Operator {
                name: name.clone(),
                password: hash.clone(),
                rights: new.rights.clone(),
                made: now,
                made_by: by.principal().to_string(),
                password_set: now,
                given_with: giver(rows, by)?,
            };
            store::put(rows, Table::Operator, &name, &operator)?;
            self.tell(rows, by.principal(), &change(IdentityVerb::OperatorAdded, &operator))?;
            Ok(operator.into())
        })
    }

    /// Another password. Whoever is in with the old one is out.
    pub fn set_password(
        &self,
        by: &Authority<'_>,
        name: &str,
        new: &[u8],
    ) -> Result<OperatorMeta, IdentityError> {
        // Before the work that is slow on purpose: nobody has it done who may not.
        self.read(|rows| may_set(rows, by, name))?;
        let hash = password::hashed(new)?;
        self.change(|rows, now| {
            let found = may_set(rows, by, name)?;
            // Who gives themselves another has come in with the one before, and is as much somebody else's as then.
            let given_with = if is_self(by, name) { found.given_with.clone() } else { giver(rows, by)? };
            let operator = Operator { password: hash.clone(), password_set: now, given_with, ..found };
            store::put(rows, Table::Operator, name, &operator)?;
            self.tell(rows, by.principal(), &change(IdentityVerb::PasswordSet, &operator))?;
            self.revoke_of(rows, by, (name, now), |kind| kind == CredentialKind::Web)?;
            Ok(operator.into())
        })
    }

    /// Removes an operator and everything that was theirs.
    pub fn remove_operator(&self, by: &Authority<'_>, name: &str) -> Result<OperatorMeta, IdentityError> {
        by.require(Scope::Admin)?;
        self.change(|rows, now| {
            let operator = wanted(rows, name)?;
            self.revoke_of(rows, by, (name, now), |_| true)?;
            rows.remove(Table::Operator, name)?;
            self.tell(rows, by.principal(), &change(IdentityVerb::OperatorRemoved, &operator))?;
            Ok(operator.into())
        })
    }

    fn revoke_of(
        &self,
        rows: &mut dyn Rows,
        by: &Authority<'_>,
        (name, now): (&str, Timestamp),
        is_meant: impl Fn(CredentialKind) -> bool,
    ) -> Result<(), IdentityError> {
        let all: Vec<Credential> = store::all(rows, Table::Credential)?;
        for credential in all {
            let theirs = matches!(&credential.owner, Owner::Account { name: owner } if owner == name);
            if theirs && is_meant(credential.kind) && credential.revoked.is_none() {
                self.revoke_row(rows, by, (credential, now))?;
            }
        }
        Ok(())
    }
}

fn is_free(rows: &(impl Rows + ?Sized), name: &str) -> Result<(), IdentityError> {
    if find(rows, name)?.is_some() {
        return Err(IdentityError::Exists { name: name.to_owned() });
    }
    let all: Vec<Operator> = store::all(rows, Table::Operator)?;
    if all.len() >= MOST { Err(IdentityError::Full("there are 1000 operators")) } else { Ok(()) }
}

/// The operator whose password this may set.
fn may_set(rows: &(impl Rows + ?Sized), by: &Authority<'_>, name: &str) -> Result<Operator, IdentityError> {
    if !is_self(by, name) {
        by.require(Scope::Admin)?;
    }
    let found = wanted(rows, name)?;
    // Whoever knows the password has what the operator has.
    by.rights().may_give(&found.rights).map_err(Denied::from)?;
    Ok(found)
}

/// Whoever gives somebody a password could come in as them: what they show then goes back to the same.
fn giver(rows: &(impl Rows + ?Sized), by: &Authority<'_>) -> Result<Vec<CredentialId>, IdentityError> {
    let Authority::Token(known) = by else { return Ok(Vec::new()) };
    let ids = lookup::origins(rows, &known.id)?.ok_or(Denied::Revoked)?;
    if ids.len() > MOST_GIVERS {
        return Err(IdentityError::Full(
            "passwords were handed on too often; the owner of the machine sets this one",
        ));
    }
    Ok(ids)
}

fn is_self(by: &Authority<'_>, name: &str) -> bool {
    let Authority::Token(known) = by else { return false };
    known.kind == CredentialKind::Web && known.owner == Owner::Account { name: name.to_owned() }
}

fn change(verb: IdentityVerb, operator: &Operator) -> IdentityChange {
    IdentityChange {
        verb,
        subject: operator.name.clone(),
        credential: None,
        owner: None,
        rights: Some(operator.rights.clone()),
        detail: None,
    }
}

pub(super) fn find(rows: &(impl Rows + ?Sized), name: &str) -> Result<Option<Operator>, IdentityError> {
    Ok(store::get(rows, Table::Operator, name)?)
}

pub(super) fn wanted(rows: &(impl Rows + ?Sized), name: &str) -> Result<Operator, IdentityError> {
    find(rows, name)?.ok_or_else(|| IdentityError::NoSuch { what: "operator", id: name.to_owned() })
}

/// A name that looks like no other and needs no quotes anywhere.
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
