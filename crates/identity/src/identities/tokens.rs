//! API tokens: create, rotate, revoke.

use jiff::{SignedDuration, Timestamp};
use ringfence_types::{Attenuation, CredentialKind, IdentityVerb, Principal, Rights, Scope};

use super::{Authority, Identities, end, keep, label, lookup, noted};
use crate::error::{AuthError, IdentityError};
use crate::record::{CredentialId, CredentialOwner, CredentialRecord, CredentialSummary, OperatorRecord};
use crate::store::{self, RecordRows, RecordTable};
use crate::token::TokenText;

/// Stored credentials. Invalid ones are removed when the store is full.
const MOST: usize = 10_000;
/// Reserved for the owner of the machine and for new sessions, so that a full store locks out neither.
const RESERVE: usize = 1000;

/// A token to create.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub label: String,
    pub rights: Rights,
    pub lifetime: TokenLifetime,
    /// The operator it is for. `None`: the creator.
    pub operator: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenLifetime {
    /// Until it is revoked or its parent expires.
    Unlimited,
    For(SignedDuration),
}

/// A credential with its secret, which is shown only now.
#[derive(Clone, Debug)]
pub struct MintedCredential {
    pub text: TokenText,
    pub meta: CredentialSummary,
}

impl Identities {
    /// Creates an API token, never wider than its creator's rights (C-32).
    pub fn mint(&self, by: &Authority<'_>, new: NewToken) -> Result<MintedCredential, IdentityError> {
        by.require(Scope::Admin)?;
        by.rights().may_give(&new.rights).map_err(AuthError::from)?;
        let label = label(&new.label)?;
        self.change(|rows, now| {
            let owner = owner(rows, by, &new)?;
            let expires = expiry(by, new.lifetime, now)?;
            let fresh = NewCredential {
                kind: CredentialKind::Api,
                label: label.clone(),
                owner,
                rights: new.rights.clone(),
            };
            let mut draft = fresh.draft(by, now)?;
            draft.record.expires_at = expires;
            self.add(rows, by, IdentityVerb::Minted, draft)
        })
    }

    /// Replaces the secret of a token. The old secret becomes invalid; nothing else changes.
    pub fn rotate(&self, by: &Authority<'_>, id: &CredentialId) -> Result<MintedCredential, IdentityError> {
        self.change(|rows, now| {
            let found = lookup::wanted(rows, id)?;
            if found.kind != CredentialKind::Api {
                return Err(AuthError::Kind.into());
            }
            may_touch(by, id)?;
            // The new secret gives all rights of the token.
            by.rights().may_give(&found.rights).map_err(AuthError::from)?;
            let line = lookup::line(rows, found.clone())?;
            // It also lasts as long as the token. A caller must not take over a token that would outlive the caller's
            // own credential.
            if let Authority::Token(known) = by
                && line.iter().all(|one| one.id != known.id)
            {
                return Err(AuthError::NotTheirs.into());
            }
            lookup::judge(rows, &line, now)?;
            let text = TokenText::random(found.kind, found.id.clone())?;
            let rotated = CredentialRecord { digest: text.digest(), renewed_at: Some(now), ..found };
            keep(rows, &rotated)?;
            self.tell(rows, by.principal(), &noted(IdentityVerb::Rotated, &rotated))?;
            Ok(MintedCredential { text, meta: rotated.into() })
        })
    }

    /// Revokes a credential of any kind, and with it all its descendants.
    pub fn revoke(&self, by: &Authority<'_>, id: &CredentialId) -> Result<CredentialSummary, IdentityError> {
        self.change(|rows, now| {
            may_touch(by, id)?;
            let found = lookup::wanted(rows, id)?;
            if found.revoked_at.is_some() {
                return Ok(found.into());
            }
            self.revoke_row(rows, by, found, now)
        })
    }

    pub(super) fn revoke_row(
        &self,
        rows: &mut dyn RecordRows,
        by: &Authority<'_>,
        found: CredentialRecord,
        now: Timestamp,
    ) -> Result<CredentialSummary, IdentityError> {
        let revoked = CredentialRecord { revoked_at: Some(now), ..found };
        keep(rows, &revoked)?;
        self.tell_taken_away(rows, by.principal(), &[noted(IdentityVerb::Revoked, &revoked)])?;
        Ok(revoked.into())
    }

    /// Stores a new credential, if the store has space.
    pub(super) fn add(
        &self,
        rows: &mut dyn RecordRows,
        by: &Authority<'_>,
        verb: IdentityVerb,
        draft: CredentialDraft,
    ) -> Result<MintedCredential, IdentityError> {
        let CredentialDraft { text, record } = draft;
        make_room(rows, by, &record)?;
        keep(rows, &record)?;
        self.tell(rows, by.principal(), &noted(verb, &record))?;
        Ok(MintedCredential { text, meta: record.into() })
    }
}

/// A credential that is not stored yet.
pub(super) struct CredentialDraft {
    text: TokenText,
    pub(super) record: CredentialRecord,
}

/// The common fields of new credentials.
pub(super) struct NewCredential {
    pub(super) kind: CredentialKind,
    pub(super) label: String,
    pub(super) owner: CredentialOwner,
    pub(super) rights: Rights,
}

impl NewCredential {
    pub(super) fn draft(self, by: &Authority<'_>, now: Timestamp) -> Result<CredentialDraft, IdentityError> {
        let Self { kind, label, owner, rights } = self;
        let id = CredentialId::random()?;
        let text = TokenText::random(kind, id.clone())?;
        let record = CredentialRecord {
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
            created_at: now,
            created_by: by.principal().to_string(),
            expires_at: None,
            renewed_at: None,
            revoked_at: None,
            key: None,
            ends: None,
            page: None,
        };
        Ok(CredentialDraft { text, record })
    }
}

/// A caller may touch its own credential, or any with scope `admin`.
fn may_touch(by: &Authority<'_>, id: &CredentialId) -> Result<(), AuthError> {
    if by.holds(id) { Ok(()) } else { by.require(Scope::Admin) }
}

fn owner(
    rows: &dyn RecordRows,
    by: &Authority<'_>,
    new: &NewToken,
) -> Result<CredentialOwner, IdentityError> {
    let Some(name) = &new.operator else { return Ok(by.owner()) };
    let operator: Option<OperatorRecord> = store::get(rows, RecordTable::Operator, name)?;
    let operator = operator.ok_or_else(|| IdentityError::NoSuch { what: "operator", id: name.clone() })?;
    operator.rights.may_give(&new.rights).map_err(AuthError::from)?;
    Ok(CredentialOwner::Account { name: operator.name })
}

pub(super) fn expiry(
    by: &Authority<'_>,
    lifetime: TokenLifetime,
    now: Timestamp,
) -> Result<Option<Timestamp>, IdentityError> {
    let most = by.parent().and_then(|parent| parent.expires_at);
    match (lifetime, most) {
        (TokenLifetime::Unlimited, most) => Ok(most),
        (TokenLifetime::For(lifetime), most) => {
            let end = end(now, lifetime)?;
            if most.is_some_and(|most| end > most) { Err(AuthError::Lifetime.into()) } else { Ok(Some(end)) }
        }
    }
}

/// Removes invalid credentials when the store is full. The ledger still has their records.
fn make_room(
    rows: &mut dyn RecordRows,
    by: &Authority<'_>,
    new: &CredentialRecord,
) -> Result<(), IdentityError> {
    let most = if may_use_reserve(by, new) { MOST + RESERVE } else { MOST };
    if rows.count(RecordTable::Credential)? < most {
        return Ok(());
    }
    let all: Vec<CredentialRecord> = store::all(rows, RecordTable::Credential)?;
    let dead = |one: &&CredentialRecord| {
        one.revoked_at.is_some() || one.expires_at.is_some_and(|end| end <= new.created_at)
    };
    let gone: Vec<CredentialId> = all.iter().filter(dead).map(|one| one.id.clone()).collect();
    for id in &gone {
        rows.remove(RecordTable::Credential, id.as_str())?;
    }
    if all.len() - gone.len() < most {
        Ok(())
    } else {
        Err(IdentityError::Full("there are 10000 tokens; revoke some"))
    }
}

fn may_use_reserve(by: &Authority<'_>, new: &CredentialRecord) -> bool {
    let by_owner = matches!(by, Authority::Owner(Principal::Operator { .. }));
    by_owner || (new.kind == CredentialKind::Session && new.parent.is_none())
}
