//! The identity API: the only access to operators, credentials and devices.

mod authenticate;
mod devices;
mod lookup;
mod operators;
mod sessions;
mod tokens;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::{SignedDuration, Timestamp};
use ringfence_types::{
    Attenuation, CredentialKind, IdentityChange, IdentityVerb, Principal, Rights, Scope, SessionId,
};

use crate::audit_sink::AuditSink;
use crate::clock::{Clock, LatestTime, SystemClock};
use crate::error::{AuthError, IdentityError};
use crate::record::{CredentialId, CredentialOwner, CredentialRecord};
use crate::sqlite::SqliteIdentityStore;
use crate::store::{self, IdentityStore, IdentityStoreError, RecordRows, RecordTable, TransactionEnd};
use crate::throttle::{KnownSources, Throttle};

pub use authenticate::{LoginSource, WebSession};
pub use devices::{NewPairing, PairingOffer};
pub use operators::NewOperator;
pub use sessions::SessionTokenSpec;
pub use tokens::{MintedCredential, NewToken, TokenLifetime};

/// Longest name or label, in characters.
const LONGEST_NAME: usize = 64;
const GENERATION: &str = "generation";
const REACHED: &str = "reached";

/// Operators and credentials of one machine. Shared by threads; other processes may use the same store.
#[derive(Debug)]
pub struct Identities {
    store: Box<dyn IdentityStore>,
    reached: Mutex<LatestTime>,
    throttle: Mutex<Throttle>,
    familiar: Mutex<KnownSources>,
    seen: Mutex<authenticate::RecentLogins>,
    clock: Arc<dyn Clock>,
    witness: Arc<dyn AuditSink>,
    node: String,
}

/// An authenticated identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownIdentity {
    pub id: CredentialId,
    /// The oldest ancestor. A credential that makes others shares with them what each client may use.
    pub family: CredentialId,
    pub kind: CredentialKind,
    pub principal: Principal,
    pub owner: CredentialOwner,
    pub rights: Rights,
    /// The attenuation, with the remaining calls.
    pub attenuation: Attenuation,
    pub expires_at: Option<Timestamp>,
    /// Digest of the presented secret.
    shown: String,
}

/// A state of the store, for callers with open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreMoment {
    /// Changes with each change of the store, by any process.
    pub generation: u64,
    /// Everything that expires at or before this time has expired.
    pub now: Timestamp,
}

impl KnownIdentity {
    /// Whether both were authenticated with the same secret of the same credential.
    pub fn is_same_visitor(&self, other: &Self) -> bool {
        self.id == other.id && self.shown == other.shown
    }

    pub fn session(&self) -> Option<&SessionId> {
        match &self.owner {
            CredentialOwner::Session { id, .. } => Some(id),
            CredentialOwner::Local { .. } | CredentialOwner::Account { .. } => None,
        }
    }
}

/// By whose rights a change is made.
#[derive(Clone, Debug)]
pub enum Authority<'a> {
    /// The user that can open the store or owns the daemon's socket: the way to recover when every token is lost.
    Owner(Principal),
    Token(&'a KnownIdentity),
}

impl Authority<'_> {
    fn principal(&self) -> &Principal {
        match self {
            Self::Owner(principal) => principal,
            Self::Token(known) => &known.principal,
        }
    }

    fn rights(&self) -> Rights {
        match self {
            Self::Owner(_) => Rights::all(),
            Self::Token(known) => known.rights.clone(),
        }
    }

    pub(crate) fn require(&self, scope: Scope) -> Result<(), AuthError> {
        match self {
            Self::Owner(_) => Ok(()),
            Self::Token(known) if known.rights.scopes.contains(scope) => Ok(()),
            Self::Token(_) => Err(AuthError::Scope(scope)),
        }
    }

    /// Whether this authority holds credential `id`.
    fn holds(&self, id: &CredentialId) -> bool {
        matches!(self, Self::Token(known) if known.id == *id)
    }

    /// The parent of a new credential: the credential presented for its creation. A password or a device key of the
    /// same person does not count, because a stolen cookie or token does not include them.
    fn parent(&self) -> Option<&KnownIdentity> {
        match self {
            Self::Owner(_) => None,
            Self::Token(known) => Some(known),
        }
    }

    fn owner(&self) -> CredentialOwner {
        match self {
            Self::Owner(Principal::Operator { uid, .. }) => CredentialOwner::Local { uid: *uid },
            Self::Owner(_) => CredentialOwner::Local { uid: rustix::process::geteuid().as_raw() },
            Self::Token(known) => known.owner.clone(),
        }
    }
}

impl Identities {
    /// Opens the store below `state_dir`, which exists. `node` is the name of this machine.
    pub fn open(state_dir: &Path, node: &str, witness: Arc<dyn AuditSink>) -> Result<Self, IdentityError> {
        let store = SqliteIdentityStore::open(state_dir)?;
        Ok(Self::with(Box::new(store), node, witness, Arc::new(SystemClock)))
    }

    pub fn with(
        store: Box<dyn IdentityStore>,
        node: &str,
        witness: Arc<dyn AuditSink>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            store,
            reached: Mutex::new(LatestTime::new(clock.as_ref())),
            throttle: Mutex::default(),
            familiar: Mutex::default(),
            seen: Mutex::default(),
            clock,
            witness,
            node: node.to_owned(),
        }
    }

    /// For callers with open connections: check each with [`Identities::standing`] when the generation changed or its
    /// expiry has passed.
    pub fn moment(&self) -> Result<StoreMoment, IdentityError> {
        self.read(|rows| {
            let generation = store::get(rows, RecordTable::Own, GENERATION)?.unwrap_or_default();
            Ok(StoreMoment { generation, now: self.now(rows)? })
        })
    }

    /// Whether another process blocks changes of the store. Authentication still works then.
    pub fn is_held(&self) -> Result<bool, IdentityError> {
        Ok(self.store.is_held()?)
    }

    fn read<T>(
        &self,
        mut look: impl FnMut(&dyn RecordRows) -> Result<T, IdentityError>,
    ) -> Result<T, IdentityError> {
        let mut seen = None;
        self.store.read(&mut |rows| seen = Some(look(rows)))?;
        seen.unwrap_or(Err(IdentityStoreError::Poisoned.into()))
    }

    /// One change: read, check, write and record in one transaction.
    fn change<T>(
        &self,
        mut edit: impl FnMut(&mut dyn RecordRows, Timestamp) -> Result<T, IdentityError>,
    ) -> Result<T, IdentityError> {
        let mut made = None;
        self.store.change(&mut |rows| {
            let edited = self.begin(rows).and_then(|now| edit(rows, now));
            let end = if edited.is_ok() { TransactionEnd::Keep } else { TransactionEnd::Undo };
            made = Some(edited);
            end
        })?;
        made.unwrap_or(Err(IdentityStoreError::Poisoned.into()))
    }

    fn begin(&self, rows: &mut dyn RecordRows) -> Result<Timestamp, IdentityError> {
        let now = self.now(rows)?;
        store::put(rows, RecordTable::Own, REACHED, &now)?;
        Ok(now)
    }

    fn now(&self, rows: &(impl RecordRows + ?Sized)) -> Result<Timestamp, IdentityError> {
        let stored = store::get(rows, RecordTable::Own, REACHED)?;
        Ok(locked(&self.reached)?.advance(self.clock.as_ref(), stored))
    }

    /// The last step of a change that may affect open connections: increments the generation and records the change.
    fn tell(
        &self,
        rows: &mut dyn RecordRows,
        by: &Principal,
        change: &IdentityChange,
    ) -> Result<(), IdentityError> {
        self.tell_all(rows, by, std::slice::from_ref(change))
    }

    /// The same for several changes.
    fn tell_all(
        &self,
        rows: &mut dyn RecordRows,
        by: &Principal,
        changes: &[IdentityChange],
    ) -> Result<(), IdentityError> {
        next_generation(rows)?;
        Ok(self.witness.changed(by, changes)?)
    }

    /// The last step of a change that only takes something away. A ledger that cannot be written does not keep a token valid.
    fn tell_taken_away(
        &self,
        rows: &mut dyn RecordRows,
        by: &Principal,
        changes: &[IdentityChange],
    ) -> Result<(), IdentityError> {
        next_generation(rows)?;
        self.witness.taken_away(by, changes);
        Ok(())
    }
}

fn next_generation(rows: &mut dyn RecordRows) -> Result<(), IdentityStoreError> {
    let generation: u64 = store::get(rows, RecordTable::Own, GENERATION)?.unwrap_or_default();
    store::put(rows, RecordTable::Own, GENERATION, &generation.wrapping_add(1))
}

fn locked<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>, IdentityStoreError> {
    mutex.lock().map_err(|_poisoned| IdentityStoreError::Poisoned)
}

fn keep(rows: &mut dyn RecordRows, credential: &CredentialRecord) -> Result<(), IdentityStoreError> {
    store::put(rows, RecordTable::Credential, credential.id.as_str(), credential)
}

fn noted(verb: IdentityVerb, credential: &CredentialRecord) -> IdentityChange {
    let end = credential.expires_at.map_or("without end".to_owned(), |end| format!("until {end}"));
    IdentityChange {
        verb,
        subject: credential.id.to_string(),
        credential: Some(credential.kind),
        owner: Some(credential.owner.to_string()),
        rights: Some(credential.rights.clone()),
        detail: Some(format!("`{}`, {end}", credential.label)),
    }
}

/// A label is shown, never parsed.
fn label(text: &str) -> Result<String, IdentityError> {
    let wrong = |why| IdentityError::Name { text: text.chars().take(LONGEST_NAME).collect(), why };
    match text {
        "" => Err(wrong("it is empty")),
        text if text.chars().count() > LONGEST_NAME => Err(wrong("it is longer than 64 characters")),
        text if text.chars().any(char::is_control) => Err(wrong("it has a control character")),
        text => Ok(text.to_owned()),
    }
}

/// The expiry of something that starts now.
fn end(now: Timestamp, lifetime: SignedDuration) -> Result<Timestamp, IdentityError> {
    if lifetime <= SignedDuration::ZERO {
        return Err(IdentityError::End);
    }
    now.checked_add(lifetime).map_err(|_far| IdentityError::End)
}
