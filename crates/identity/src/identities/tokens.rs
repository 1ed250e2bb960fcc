//! API tokens: made, rotated, revoked.

use jiff::{SignedDuration, Timestamp};
use ringfence_types::{Attenuation, CredentialKind, IdentityVerb, Principal, Rights, Scope};

use super::{Authority, Identities, end, keep, label, lookup, noted};
use crate::error::{Denied, IdentityError};
use crate::record::{Credential, CredentialId, Meta, Operator, Owner};
use crate::store::{self, Rows, Table};
use crate::token::TokenText;

/// More tokens than anybody keeps apart. What has expired makes room.
const MOST: usize = 10_000;
/// What is kept beyond for the owner of the machine and for sessions that begin: whoever fills the store keeps neither out.
const RESERVE: usize = 1000;

/// A token that somebody wants.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub label: String,
    pub rights: Rights,
    pub lifetime: Lifetime,
    /// An operator that it is for; `None`: whoever makes it.
    pub operator: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until it is revoked, or as long as its maker.
    Unlimited,
    For(SignedDuration),
}

/// A credential with its secret, which nobody sees again.
#[derive(Clone, Debug)]
pub struct Minted {
    pub text: TokenText,
    pub meta: Meta,
}

impl Identities {
    /// A new API token. Never wider than whoever makes it (C-32).
    pub fn mint(&self, by: &Authority<'_>, new: NewToken) -> Result<Minted, IdentityError> {
        by.require(Scope::Admin)?;
        by.rights().may_give(&new.rights).map_err(Denied::from)?;
        let label = label(&new.label)?;
        self.change(|rows, now| {
            let owner = owner(rows, by, &new)?;
            let expires = expiry(by, new.lifetime, now)?;
            let fresh =
                Fresh { kind: CredentialKind::Api, label: label.clone(), owner, rights: new.rights.clone() };
            let (text, credential) = fresh.credential(by, now)?;
            let credential = Credential { expires, ..credential };
            self.add(rows, (by, IdentityVerb::Minted), credential, text)
        })
    }

    /// Another secret for the same token; the old one is worth nothing from now on. Nothing else about it changes.
    pub fn rotate(&self, by: &Authority<'_>, id: &CredentialId) -> Result<Minted, IdentityError> {
        self.change(|rows, now| {
            let found = lookup::wanted(rows, id)?;
            if found.kind != CredentialKind::Api {
                return Err(Denied::Kind.into());
            }
            may_touch(by, id)?;
            // Whoever gets the secret has what the token has.
            by.rights().may_give(&found.rights).map_err(Denied::from)?;
            let line = lookup::line(rows, found.clone())?;
            // And has it for as long as the token lasts: one that does not end with whoever rotates it is not theirs to take.
            if let Authority::Token(known) = by
                && line.iter().all(|one| one.id != known.id)
            {
                return Err(Denied::NotTheirs.into());
            }
            lookup::judge(rows, &line, now)?;
            let text = TokenText::random(found.kind, found.id.clone())?;
            let rotated = Credential { digest: text.digest(), renewed: Some(now), ..found };
            keep(rows, &rotated)?;
            self.tell(rows, by.principal(), &noted(IdentityVerb::Rotated, &rotated))?;
            Ok(Minted { text, meta: rotated.into() })
        })
    }

    /// Ends a credential of any kind, and with it all that stands on it.
    pub fn revoke(&self, by: &Authority<'_>, id: &CredentialId) -> Result<Meta, IdentityError> {
        self.change(|rows, now| {
            may_touch(by, id)?;
            let found = lookup::wanted(rows, id)?;
            if found.revoked.is_some() {
                return Ok(found.into());
            }
            self.revoke_row(rows, by, (found, now))
        })
    }

    pub(super) fn revoke_row(
        &self,
        rows: &mut dyn Rows,
        by: &Authority<'_>,
        (found, now): (Credential, Timestamp),
    ) -> Result<Meta, IdentityError> {
        let revoked = Credential { revoked: Some(now), ..found };
        keep(rows, &revoked)?;
        self.tell(rows, by.principal(), &noted(IdentityVerb::Revoked, &revoked))?;
        Ok(revoked.into())
    }

    /// Keeps a credential that is new, where there is room.
    pub(super) fn add(
        &self,
        rows: &mut dyn Rows,
        (by, verb): (&Authority<'_>, IdentityVerb),
        credential: Credential,
        text: TokenText,
    ) -> Result<Minted, IdentityError> {
        make_room(rows, (by, &credential))?;
        keep(rows, &credential)?;
        self.tell(rows, by.principal(), &noted(verb, &credential))?;
        Ok(Minted { text, meta: credential.into() })
    }
}

/// What every new credential has.
pub(super) struct Fresh {
    pub(super) kind: CredentialKind,
    pub(super) label: String,
    pub(super) owner: Owner,
    pub(super) rights: Rights,
}

impl Fresh {
    pub(super) fn credential(
        self,
        by: &Authority<'_>,
        now: Timestamp,
    ) -> Result<(TokenText, Credential), IdentityError> {
        let Self { kind, label, owner, rights } = self;
        let id = CredentialId::random()?;
        let text = TokenText::random(kind, id.clone())?;
        let credential = Credential {
            id,
            kind,
            digest: text.digest(),
            label,
            owner,
            rights,
            attenuation: Attenuation::none(),
            spent: 0,
            parent: by.parent().map(|parent| parent.id.clone()),
            given_with: Vec::new(),
            made: now,
            made_by: by.principal().to_string(),
            expires: None,
            renewed: None,
            revoked: None,
            key: None,
            ends: None,
            page: None,
        };
        Ok((text, credential))
    }
}

/// One's own, or with `admin` anybody's.
fn may_touch(by: &Authority<'_>, id: &CredentialId) -> Result<(), Denied> {
    if by.holds(id) { Ok(()) } else { by.require(Scope::Admin) }
}

fn owner(rows: &dyn Rows, by: &Authority<'_>, new: &NewToken) -> Result<Owner, IdentityError> {
    let Some(name) = &new.operator else { return Ok(by.owner()) };
    let operator: Option<Operator> = store::get(rows, Table::Operator, name)?;
    let operator = operator.ok_or_else(|| IdentityError::NoSuch { what: "operator", id: name.clone() })?;
    operator.rights.may_give(&new.rights).map_err(Denied::from)?;
    Ok(Owner::Account { name: operator.name })
}

pub(super) fn expiry(
    by: &Authority<'_>,
    lifetime: Lifetime,
    now: Timestamp,
) -> Result<Option<Timestamp>, IdentityError> {
    let most = by.parent().and_then(|parent| parent.expires);
    match (lifetime, most) {
        (Lifetime::Unlimited, most) => Ok(most),
        (Lifetime::For(lifetime), most) => {
            let end = end(now, lifetime)?;
            if most.is_some_and(|most| end > most) { Err(Denied::Lifetime.into()) } else { Ok(Some(end)) }
        }
    }
}

/// What is worth nothing is forgotten once there is no room. The ledger knows it.
fn make_room(rows: &mut dyn Rows, (by, new): (&Authority<'_>, &Credential)) -> Result<(), IdentityError> {
    let most = if may_use_reserve(by, new) { MOST + RESERVE } else { MOST };
    if rows.count(Table::Credential)? < most {
        return Ok(());
    }
    let all: Vec<Credential> = store::all(rows, Table::Credential)?;
    let dead = |one: &&Credential| one.revoked.is_some() || one.expires.is_some_and(|end| end <= new.made);
    let gone: Vec<CredentialId> = all.iter().filter(dead).map(|one| one.id.clone()).collect();
    for id in &gone {
        rows.remove(Table::Credential, id.as_str())?;
    }
    if all.len() - gone.len() < most {
        Ok(())
    } else {
        Err(IdentityError::Full("there are 10000 tokens; revoke some"))
    }
}

fn may_use_reserve(by: &Authority<'_>, new: &Credential) -> bool {
    let by_owner = matches!(by, Authority::Owner(Principal::Operator { .. }));
    by_owner || (new.kind == CredentialKind::Session && new.parent.is_none())
}
