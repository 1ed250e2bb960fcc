//! The one way to operators, credentials and devices.

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

use crate::clock::{Clock, Reached, SystemClock};
use crate::error::{Denied, IdentityError};
use crate::record::{Credential, CredentialId, Owner};
use crate::sqlite::Sqlite;
use crate::store::{self, End, Rows, Store, StoreError, Table};
use crate::throttle::{Familiar, Throttle};
use crate::witness::Witness;

pub use authenticate::{Source, WebSession};
pub use devices::{NewPairing, Offered};
pub use operators::NewOperator;
pub use sessions::Grantee;
pub use tokens::{Lifetime, Minted, NewToken};

/// How long a name or a label may be.
const LONGEST_NAME: usize = 64;
const GENERATION: &str = "generation";
const REACHED: &str = "reached";

/// Who has which rights, on one machine. Shared by threads; other processes may work on the same store.
#[derive(Debug)]
pub struct Identities {
    store: Box<dyn Store>,
    reached: Mutex<Reached>,
    throttle: Mutex<Throttle>,
    familiar: Mutex<Familiar>,
    seen: Mutex<authenticate::Seen>,
    clock: Arc<dyn Clock>,
    witness: Arc<dyn Witness>,
    node: String,
}

/// Somebody who was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub id: CredentialId,
    pub kind: CredentialKind,
    pub principal: Principal,
    pub owner: Owner,
    pub rights: Rights,
    /// What is left of the calls of its session.
    pub attenuation: Attenuation,
    pub expires: Option<Timestamp>,
    /// The digest of what they showed.
    shown: String,
}

/// How far the store has come, for whoever holds connections open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Another number after each change, by whichever process.
    pub generation: u64,
    /// What ends at or before this is over.
    pub now: Timestamp,
}

impl Known {
    /// Whether both came with the same secret of the same credential.
    pub fn is_same_visitor(&self, other: &Self) -> bool {
        self.id == other.id && self.shown == other.shown
    }

    pub fn session(&self) -> Option<&SessionId> {
        match &self.owner {
            Owner::Session { id, .. } => Some(id),
            Owner::Local { .. } | Owner::Account { .. } => None,
        }
    }
}

/// By whose right something is changed.
#[derive(Clone, Debug)]
pub enum Authority<'a> {
    /// Whoever can open the store, or owns the socket of the daemon: the way back in when every token is lost.
    Owner(Principal),
    Token(&'a Known),
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

    pub(crate) fn require(&self, scope: Scope) -> Result<(), Denied> {
        match self {
            Self::Owner(_) => Ok(()),
            Self::Token(known) if known.rights.scopes.contains(scope) => Ok(()),
            Self::Token(_) => Err(Denied::Scope(scope)),
        }
    }

    /// Whether this is the holder of credential `id`.
    fn holds(&self, id: &CredentialId) -> bool {
        matches!(self, Self::Token(known) if known.id == *id)
    }

    /// What a new credential is worth nothing without: whatever was shown when it was made. That the same person could come
    /// again with a password or a device key says nothing about whoever has the cookie or the token of this hour.
    fn parent(&self) -> Option<&Known> {
        match self {
            Self::Owner(_) => None,
            Self::Token(known) => Some(known),
        }
    }

    fn owner(&self) -> Owner {
        match self {
            Self::Owner(Principal::Operator { uid, .. }) => Owner::Local { uid: *uid },
            Self::Owner(_) => Owner::Local { uid: rustix::process::geteuid().as_raw() },
            Self::Token(known) => known.owner.clone(),
        }
    }
}

impl Identities {
    /// The store below `state_dir`, which exists. `node` is the name of this machine.
    pub fn open(state_dir: &Path, node: &str, witness: Arc<dyn Witness>) -> Result<Self, IdentityError> {
        let store = Sqlite::open(state_dir)?;
        Ok(Self::with(Box::new(store), node, witness, Arc::new(SystemClock)))
    }

    pub fn with(store: Box<dyn Store>, node: &str, witness: Arc<dyn Witness>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            reached: Mutex::new(Reached::new(clock.as_ref())),
            throttle: Mutex::default(),
            familiar: Mutex::default(),
            seen: Mutex::default(),
            clock,
            witness,
            node: node.to_owned(),
        }
    }

    /// Whoever holds connections open looks at it, and asks [`Identities::standing`] about each when the generation is
    /// another or its time is over.
    pub fn moment(&self) -> Result<Moment, IdentityError> {
        self.read(|rows| {
            let generation = store::get(rows, Table::Own, GENERATION)?.unwrap_or_default();
            Ok(Moment { generation, now: self.now(rows)? })
        })
    }

    /// Whether another process keeps everybody from making, ending and using up anything. Who is in stays in.
    pub fn is_held(&self) -> Result<bool, IdentityError> {
        Ok(self.store.is_held()?)
    }

    fn read<T>(
        &self,
        mut look: impl FnMut(&dyn Rows) -> Result<T, IdentityError>,
    ) -> Result<T, IdentityError> {
        let mut seen = None;
        self.store.read(&mut |rows| seen = Some(look(rows)))?;
        seen.unwrap_or(Err(StoreError::Poisoned.into()))
    }

    /// One change: read, judged and written in one transaction, and written down in it.
    fn change<T>(
        &self,
        mut edit: impl FnMut(&mut dyn Rows, Timestamp) -> Result<T, IdentityError>,
    ) -> Result<T, IdentityError> {
        let mut made = None;
        self.store.change(&mut |rows| {
            let edited = self.begin(rows).and_then(|now| edit(rows, now));
            let end = if edited.is_ok() { End::Keep } else { End::Undo };
            made = Some(edited);
            end
        })?;
        made.unwrap_or(Err(StoreError::Poisoned.into()))
    }

    fn begin(&self, rows: &mut dyn Rows) -> Result<Timestamp, IdentityError> {
        let now = self.now(rows)?;
        store::put(rows, Table::Own, REACHED, &now)?;
        Ok(now)
    }

    fn now(&self, rows: &(impl Rows + ?Sized)) -> Result<Timestamp, IdentityError> {
        let stored = store::get(rows, Table::Own, REACHED)?;
        Ok(locked(&self.reached)?.advance(self.clock.as_ref(), stored))
    }

    /// The last step of a change that matters to whoever is in.
    fn tell(
        &self,
        rows: &mut dyn Rows,
        by: &Principal,
        change: &IdentityChange,
    ) -> Result<(), IdentityError> {
        self.tell_all(rows, by, std::slice::from_ref(change))
    }

    /// The same for changes that are made together.
    fn tell_all(
        &self,
        rows: &mut dyn Rows,
        by: &Principal,
        changes: &[IdentityChange],
    ) -> Result<(), IdentityError> {
        let generation: u64 = store::get(rows, Table::Own, GENERATION)?.unwrap_or_default();
        store::put(rows, Table::Own, GENERATION, &generation.wrapping_add(1))?;
        Ok(self.witness.changed(by, changes)?)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>, StoreError> {
    mutex.lock().map_err(|_poisoned| StoreError::Poisoned)
}

fn keep(rows: &mut dyn Rows, credential: &Credential) -> Result<(), StoreError> {
    store::put(rows, Table::Credential, credential.id.as_str(), credential)
}

fn noted(verb: IdentityVerb, credential: &Credential) -> IdentityChange {
    let end = credential.expires.map_or("without end".to_owned(), |end| format!("until {end}"));
    IdentityChange {
        verb,
        subject: credential.id.to_string(),
        credential: Some(credential.kind),
        owner: Some(credential.owner.to_string()),
        rights: Some(credential.rights.clone()),
        detail: Some(format!("`{}`, {end}", credential.label)),
    }
}

/// What people call something: shown, never parsed.
fn label(text: &str) -> Result<String, IdentityError> {
    let wrong = |why| IdentityError::Name { text: text.chars().take(LONGEST_NAME).collect(), why };
    match text {
        "" => Err(wrong("it is empty")),
        text if text.chars().count() > LONGEST_NAME => Err(wrong("it is longer than 64 characters")),
        text if text.chars().any(char::is_control) => Err(wrong("it has a control character")),
        text => Ok(text.to_owned()),
    }
}

/// The end of something that begins now.
fn end(now: Timestamp, lifetime: SignedDuration) -> Result<Timestamp, IdentityError> {
    if lifetime <= SignedDuration::ZERO {
        return Err(IdentityError::End);
    }
    now.checked_add(lifetime).map_err(|_far| IdentityError::End)
}
