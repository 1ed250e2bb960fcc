//! Tokens of sessions, and what a session hands on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use ringfence_types::{
    Attenuation, CredentialKind, IdentityChange, IdentityVerb, Principal, Rights, ScopeSet, SessionId,
    Subtree, Within,
};

use super::tokens::{Fresh, Lifetime, expiry};
use super::{Authority, Identities, Known, end, label, lookup, noted};
use crate::Minted;
use crate::error::{Denied, IdentityError};
use crate::record::{Credential, Owner};
use crate::store::{self, Rows, Table};

/// Tokens that one session may have handed on, whichever of its tokens was handed on from.
const MOST_HANDED_ON: usize = 64;
/// A token takes its place for at least so long, so that short ones do not fill the ledger.
const PLACE: SignedDuration = SignedDuration::from_mins(1);

/// What a session token is for.
#[derive(Clone, Debug)]
pub struct Grantee<'a> {
    pub session: SessionId,
    pub agent: Option<String>,
    /// The real path of the root of its workspace.
    pub workspace: &'a Path,
    pub lifetime: SignedDuration,
}

impl Identities {
    /// The token of a session that begins. It has no scope: what it is good for is what is open to a session.
    pub fn session_token(&self, grantee: Grantee<'_>) -> Result<Minted, IdentityError> {
        let by = Authority::Owner(Principal::System);
        let root = Subtree::new(grantee.workspace)
            .map_err(|wrong| IdentityError::Name { text: wrong.to_string(), why: "it is no workspace" })?;
        let rights = Rights { scopes: ScopeSet::default(), workspaces: Within::of(Some([root])) };
        self.change(|rows, now| {
            let owner = Owner::Session { id: grantee.session.clone(), agent: grantee.agent.clone() };
            let fresh = Fresh {
                kind: CredentialKind::Session,
                label: grantee.session.to_string(),
                owner,
                rights: rights.clone(),
            };
            let (text, credential) = fresh.credential(&by, now)?;
            let credential = Credential { expires: Some(end(now, grantee.lifetime)?), ..credential };
            self.add(rows, (&by, IdentityVerb::Minted), credential, text)
        })
    }

    /// Ends every token of a session that is over. One record says so of all of them.
    pub fn end_session(&self, session: &SessionId) -> Result<(), IdentityError> {
        self.end_sessions(&BTreeSet::from([session.clone()]))
    }

    /// The same for many sessions, in one change of the store: a daemon that was killed may leave a thousand.
    pub fn end_sessions(&self, sessions: &BTreeSet<SessionId>) -> Result<(), IdentityError> {
        if sessions.is_empty() {
            return Ok(());
        }
        self.change(|rows, now| {
            let mut ended: BTreeMap<SessionId, Vec<Credential>> = BTreeMap::new();
            for one in store::all::<Credential>(rows, Table::Credential)? {
                let session = session_of(&one).filter(|id| one.revoked.is_none() && sessions.contains(*id));
                if let Some(session) = session.cloned() {
                    ended.entry(session).or_default().push(one);
                }
            }
            for one in ended.values().flatten() {
                super::keep(rows, &Credential { revoked: Some(now), ..one.clone() })?;
            }
            let changes: Vec<IdentityChange> = ended.values().filter_map(|all| revoked(all)).collect();
            if changes.is_empty() {
                return Ok(());
            }
            self.tell_all(rows, &Principal::System, &changes)
        })
    }

    /// The sessions that have a token which is not over.
    pub fn live_sessions(&self) -> Result<BTreeSet<SessionId>, IdentityError> {
        self.read(|rows| {
            let now = self.now(rows)?;
            let all: Vec<Credential> = store::all(rows, Table::Credential)?;
            let good = |one: &Credential| one.revoked.is_none() && one.expires.is_none_or(|end| end > now);
            let sessions = all.into_iter().filter(good).filter_map(|one| match one.owner {
                Owner::Session { id, .. } => Some(id),
                Owner::Local { .. } | Owner::Account { .. } => None,
            });
            Ok(sessions.collect())
        })
    }

    /// What a session hands to something that does a part of its work: a token of its own, only ever narrower, that dies
    /// with the one it came from.
    pub fn attenuate(
        &self,
        by: &Known,
        name: &str,
        (attenuation, lifetime): (Attenuation, Lifetime),
    ) -> Result<Minted, IdentityError> {
        if by.kind != CredentialKind::Session {
            return Err(Denied::Kind.into());
        }
        let label = label(name)?;
        let authority = Authority::Token(by);
        self.change(|rows, now| {
            let own = lookup::wanted(rows, &by.id)?;
            let line = lookup::line(rows, own)?;
            lookup::judge(rows, &line, now)?;
            // As it is in the store now: what was left when `by` was let in may be spent since.
            let current = lookup::known(&line, &self.node).ok_or(Denied::Revoked)?;
            current.attenuation.may_give(&attenuation).map_err(Denied::from)?;
            if line.len() >= lookup::DEEPEST || handed_on(rows, &current, now)? >= MOST_HANDED_ON {
                return Err(IdentityError::Full("the session has handed on too many tokens"));
            }
            let expires = expiry(&Authority::Token(&current), lifetime, now)?;
            let fresh = Fresh {
                kind: CredentialKind::Session,
                label: label.clone(),
                owner: current.owner.clone(),
                rights: current.rights.clone(),
            };
            let (text, credential) = fresh.credential(&authority, now)?;
            let credential = Credential { expires, attenuation: attenuation.clone(), ..credential };
            self.add(rows, (&authority, IdentityVerb::Attenuated), credential, text)
        })
    }

    /// One call of a session. Counted with every credential of its line that has a budget, or refused.
    pub fn spend(&self, by: &Known) -> Result<(), IdentityError> {
        if by.attenuation.calls.is_none() {
            return Ok(());
        }
        self.change(|rows, now| {
            let line = lookup::line(rows, lookup::wanted(rows, &by.id)?)?;
            lookup::judge(rows, &line, now)?;
            if lookup::calls_left(&line) == Some(0) {
                return Err(Denied::Spent.into());
            }
            for one in line.into_iter().filter(|one| one.attenuation.calls.is_some()) {
                super::keep(rows, &Credential { spent: one.spent.saturating_add(1), ..one })?;
            }
            Ok(())
        })
    }
}

/// The end of all tokens of one session, as it is written down.
fn revoked(all: &[Credential]) -> Option<IdentityChange> {
    // Its own, which the others stand on; where that was revoked before, any of them.
    let first = all.iter().find(|one| one.parent.is_none()).or(all.first())?;
    let mut change = noted(IdentityVerb::Revoked, first);
    if all.len() > 1 {
        let detail = change.detail.unwrap_or_default();
        change.detail = Some(format!("{detail}, and {} that were handed on", all.len() - 1));
    }
    Some(change)
}

fn session_of(credential: &Credential) -> Option<&SessionId> {
    match &credential.owner {
        Owner::Session { id, .. } => Some(id),
        Owner::Local { .. } | Owner::Account { .. } => None,
    }
}

fn is_of(credential: &Credential, session: &SessionId) -> bool {
    session_of(credential) == Some(session)
}

/// How many tokens of the session of `known` take a place. Counted by the session: each token that is handed on can hand on
/// others, and by its maker alone one agent would have the places of all.
fn handed_on(rows: &dyn Rows, known: &Known, now: Timestamp) -> Result<usize, IdentityError> {
    let Some(session) = known.session() else { return Ok(0) };
    let all: Vec<Credential> = store::all(rows, Table::Credential)?;
    let takes_place = |one: &&Credential| {
        let is_good = one.revoked.is_none() && one.expires.is_none_or(|end| end > now);
        is_good || now.duration_since(one.made) < PLACE
    };
    let handed_on = all.iter().filter(|one| one.parent.is_some() && is_of(one, session));
    Ok(handed_on.filter(takes_place).count())
}
