//! Session tokens and their attenuation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use ringfence_types::{
    AllOrOnly, Attenuation, CredentialKind, IdentityChange, IdentityVerb, Principal, Rights, ScopeSet,
    SessionId, Subtree,
};

use super::tokens::{NewCredential, TokenLifetime, expiry};
use super::{Authority, Identities, KnownIdentity, end, label, lookup, noted};
use crate::MintedCredential;
use crate::error::{AuthError, IdentityError};
use crate::record::{CredentialOwner, CredentialRecord};
use crate::store::{self, RecordRows, RecordTable};

/// Attenuated tokens of one session, including those made from other attenuated tokens.
const MOST_HANDED_ON: usize = 64;
/// A token counts for at least this long, so that short-lived ones cannot fill the ledger.
const PLACE: SignedDuration = SignedDuration::from_mins(1);

#[derive(Clone, Debug)]
pub struct SessionTokenSpec<'a> {
    pub session: SessionId,
    pub agent: Option<String>,
    /// The canonical path of the workspace.
    pub workspace: &'a Path,
    pub lifetime: SignedDuration,
}

impl Identities {
    /// The token of a new session. It has no scopes: a session may only call session methods.
    pub fn session_token(&self, grantee: SessionTokenSpec<'_>) -> Result<MintedCredential, IdentityError> {
        let by = Authority::Owner(Principal::System);
        let root = Subtree::new(grantee.workspace)
            .map_err(|wrong| IdentityError::Name { text: wrong.to_string(), why: "it is no workspace" })?;
        let rights = Rights { scopes: ScopeSet::default(), workspaces: AllOrOnly::of(Some([root])) };
        self.change(|rows, now| {
            let owner =
                CredentialOwner::Session { id: grantee.session.clone(), agent: grantee.agent.clone() };
            let fresh = NewCredential {
                kind: CredentialKind::Session,
                label: grantee.session.to_string(),
                owner,
                rights: rights.clone(),
            };
            let mut draft = fresh.draft(&by, now)?;
            draft.record.expires_at = Some(end(now, grantee.lifetime)?);
            self.add(rows, &by, IdentityVerb::Minted, draft)
        })
    }

    /// Revokes all tokens of an ended session, with one record.
    pub fn end_session(&self, session: &SessionId) -> Result<(), IdentityError> {
        self.end_sessions(&BTreeSet::from([session.clone()]))
    }

    /// The same for many sessions in one change: a killed daemon may leave a thousand.
    pub fn end_sessions(&self, sessions: &BTreeSet<SessionId>) -> Result<(), IdentityError> {
        if sessions.is_empty() {
            return Ok(());
        }
        self.change(|rows, now| {
            let mut ended: BTreeMap<SessionId, Vec<CredentialRecord>> = BTreeMap::new();
            for one in store::all::<CredentialRecord>(rows, RecordTable::Credential)? {
                let session =
                    session_of(&one).filter(|id| one.revoked_at.is_none() && sessions.contains(*id));
                if let Some(session) = session.cloned() {
                    ended.entry(session).or_default().push(one);
                }
            }
            for one in ended.values().flatten() {
                super::keep(rows, &CredentialRecord { revoked_at: Some(now), ..one.clone() })?;
            }
            let changes: Vec<IdentityChange> = ended.values().filter_map(|all| revoked(all)).collect();
            if changes.is_empty() {
                return Ok(());
            }
            self.tell_taken_away(rows, &Principal::System, &changes)
        })
    }

    /// The sessions with a valid token.
    pub fn live_sessions(&self) -> Result<BTreeSet<SessionId>, IdentityError> {
        self.read(|rows| {
            let now = self.now(rows)?;
            let all: Vec<CredentialRecord> = store::all(rows, RecordTable::Credential)?;
            let good = |one: &CredentialRecord| {
                one.revoked_at.is_none() && one.expires_at.is_none_or(|end| end > now)
            };
            let sessions = all.into_iter().filter(good).filter_map(|one| match one.owner {
                CredentialOwner::Session { id, .. } => Some(id),
                CredentialOwner::Local { .. } | CredentialOwner::Account { .. } => None,
            });
            Ok(sessions.collect())
        })
    }

    /// Makes a narrower token from a session token. It becomes invalid with its parent.
    pub fn attenuate(
        &self,
        by: &KnownIdentity,
        name: &str,
        attenuation: Attenuation,
        lifetime: TokenLifetime,
    ) -> Result<MintedCredential, IdentityError> {
        if by.kind != CredentialKind::Session {
            return Err(AuthError::Kind.into());
        }
        let label = label(name)?;
        let authority = Authority::Token(by);
        self.change(|rows, now| {
            let own = lookup::wanted(rows, &by.id)?;
            let line = lookup::line(rows, own)?;
            lookup::judge(rows, &line, now)?;
            // As stored now: calls may have been spent since `by` was authenticated.
            let current = lookup::known(&line, &self.node).ok_or(AuthError::Revoked)?;
            current.attenuation.may_give(&attenuation).map_err(AuthError::from)?;
            if line.len() >= lookup::DEEPEST || handed_on(rows, &current, now)? >= MOST_HANDED_ON {
                return Err(IdentityError::Full("the session has handed on too many tokens"));
            }
            let expires = expiry(&Authority::Token(&current), lifetime, now)?;
            let fresh = NewCredential {
                kind: CredentialKind::Session,
                label: label.clone(),
                owner: current.owner.clone(),
                rights: current.rights.clone(),
            };
            let mut draft = fresh.draft(&authority, now)?;
            draft.record.expires_at = expires;
            draft.record.attenuation = attenuation.clone();
            self.add(rows, &authority, IdentityVerb::Attenuated, draft)
        })
    }

    /// Charges one call to every credential of the line that has a call budget, or refuses it.
    pub fn spend(&self, by: &KnownIdentity) -> Result<(), IdentityError> {
        if by.attenuation.calls.is_none() {
            return Ok(());
        }
        self.change(|rows, now| {
            let line = lookup::line(rows, lookup::wanted(rows, &by.id)?)?;
            lookup::judge(rows, &line, now)?;
            if lookup::calls_left(&line) == Some(0) {
                return Err(AuthError::Spent.into());
            }
            for one in line.into_iter().filter(|one| one.attenuation.calls.is_some()) {
                super::keep(rows, &CredentialRecord { spent: one.spent.saturating_add(1), ..one })?;
            }
            Ok(())
        })
    }
}

/// The record of the revocation of all tokens of a session.
fn revoked(all: &[CredentialRecord]) -> Option<IdentityChange> {
    // The session's own token, or any other if that one was revoked before.
    let first = all.iter().find(|one| one.parent.is_none()).or(all.first())?;
    let mut change = noted(IdentityVerb::Revoked, first);
    if all.len() > 1 {
        let detail = change.detail.unwrap_or_default();
        change.detail = Some(format!("{detail}, and {} that were handed on", all.len() - 1));
    }
    Some(change)
}

fn session_of(credential: &CredentialRecord) -> Option<&SessionId> {
    match &credential.owner {
        CredentialOwner::Session { id, .. } => Some(id),
        CredentialOwner::Local { .. } | CredentialOwner::Account { .. } => None,
    }
}

fn is_of(credential: &CredentialRecord, session: &SessionId) -> bool {
    session_of(credential) == Some(session)
}

/// Attenuated tokens that count for the session of `known`. Counted per session, because each token can make further
/// ones: per parent an agent could make any number.
fn handed_on(rows: &dyn RecordRows, known: &KnownIdentity, now: Timestamp) -> Result<usize, IdentityError> {
    let Some(session) = known.session() else { return Ok(0) };
    let all: Vec<CredentialRecord> = store::all(rows, RecordTable::Credential)?;
    let takes_place = |one: &&CredentialRecord| {
        let is_good = one.revoked_at.is_none() && one.expires_at.is_none_or(|end| end > now);
        is_good || now.duration_since(one.created_at) < PLACE
    };
    let handed_on = all.iter().filter(|one| one.parent.is_some() && is_of(one, session));
    Ok(handed_on.filter(takes_place).count())
}
