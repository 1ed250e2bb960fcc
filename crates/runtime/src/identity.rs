//! Operators, tokens and devices of this machine, with the ledger as their witness.

use std::path::PathBuf;
use std::sync::Arc;

use ringfence_ledger::{Event, Ledger};
use ringfence_types::{IdentityChange, Principal, Refusal};

pub use ringfence_identity::*;

use crate::Runtime;
use crate::leaks::Cleaner;

/// Writes what becomes of identities to a ledger.
#[derive(Debug)]
struct LedgerWitness {
    ledger: Arc<Ledger>,
    state_dir: PathBuf,
}

impl LedgerWitness {
    fn append(&self, event: &Event) -> Result<(), Unwitnessed> {
        self.ledger.append(event).map(drop).map_err(|error| Unwitnessed(Box::new(error)))
    }
}

/// A label is what somebody typed.
fn cleaned(cleaner: &Cleaner, change: &IdentityChange) -> IdentityChange {
    let detail = change.detail.as_deref().map(|detail| cleaner.text(detail));
    IdentityChange { detail, ..change.clone() }
}

impl Witness for LedgerWitness {
    fn changed(&self, by: &Principal, changes: &[IdentityChange]) -> Result<(), Unwitnessed> {
        let cleaner = Cleaner::of(&self.state_dir);
        let event =
            |change| Event::IdentityChanged { by: by.clone(), change: Box::new(cleaned(&cleaner, change)) };
        let events: Vec<Event> = changes.iter().map(event).collect();
        self.ledger.append_all(&events).map(drop).map_err(|error| Unwitnessed(Box::new(error)))
    }

    fn authenticated(
        &self,
        who: &Principal,
        purpose: &str,
        refusal: Option<&Refusal>,
    ) -> Result<(), Unwitnessed> {
        let purpose = purpose.to_owned();
        self.append(&Event::Authenticated { principal: who.clone(), purpose, refusal: refusal.cloned() })
    }
}

impl Runtime {
    /// Who may do what here. Whoever can open this owns the state of this machine.
    pub fn identities(&self) -> Result<Identities, IdentityError> {
        let state_dir = self.setup().state_dir.clone();
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let witness = LedgerWitness { ledger: Arc::clone(&self.ledger), state_dir: state_dir.clone() };
        Identities::open(&state_dir, &node, Arc::new(witness))
    }
}
