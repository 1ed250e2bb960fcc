//! Operators, tokens and devices of this machine. The ledger records their changes.

use std::path::PathBuf;
use std::sync::Arc;

use ringfence_ledger::{Event, Ledger};
use ringfence_types::{IdentityChange, Principal, Refusal};

pub use ringfence_identity::*;

use crate::Runtime;
use crate::leaks::TextRedactor;

/// Writes identity changes to the ledger.
#[derive(Debug)]
struct LedgerWitness {
    ledger: Arc<Ledger>,
    state_dir: PathBuf,
}

impl LedgerWitness {
    fn events(&self, by: &Principal, changes: &[IdentityChange]) -> Vec<Event> {
        let cleaner = TextRedactor::of(&self.state_dir);
        let event = |change| Event::IdentityChanged {
            actor: by.clone(),
            change: Box::new(cleaned(&cleaner, change)),
        };
        changes.iter().map(event).collect()
    }

    fn append(&self, event: &Event) -> Result<(), AuditWriteError> {
        self.ledger.append(event).map(drop).map_err(|error| AuditWriteError(Box::new(error)))
    }
}

/// Redacts the label, which is free text.
fn cleaned(cleaner: &TextRedactor, change: &IdentityChange) -> IdentityChange {
    let detail = change.detail.as_deref().map(|detail| cleaner.text(detail));
    IdentityChange { detail, ..change.clone() }
}

impl AuditSink for LedgerWitness {
    fn changed(&self, by: &Principal, changes: &[IdentityChange]) -> Result<(), AuditWriteError> {
        let events = self.events(by, changes);
        self.ledger.append_all(&events).map(drop).map_err(|error| AuditWriteError(Box::new(error)))
    }

    fn taken_away(&self, by: &Principal, changes: &[IdentityChange]) {
        // Not tried here: the store of identities would wait with its change until the ledger has given up.
        if let Err(error) = self.ledger.keep_late(&self.events(by, changes)) {
            tracing::error!(error = %error, "cannot record the end of a credential");
        }
    }

    fn authenticated(
        &self,
        who: &Principal,
        purpose: &str,
        refusal: Option<&Refusal>,
    ) -> Result<(), AuditWriteError> {
        let purpose = purpose.to_owned();
        self.append(&Event::AuthenticationAttempted {
            principal: who.clone(),
            purpose,
            refusal: refusal.cloned(),
        })
    }
}

impl Runtime {
    /// The identities of this machine. A process that can open them owns the state directory.
    pub fn identities(&self) -> Result<Identities, IdentityError> {
        let state_dir = self.setup().state_dir.clone();
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let witness = LedgerWitness { ledger: Arc::clone(&self.ledger), state_dir: state_dir.clone() };
        Identities::open(&state_dir, &node, Arc::new(witness))
    }
}
