//! Landings that were cut off: the layer has the journal, the ledger has the transaction.

use ringfence_layer::{LandingDirection, LandingRecovery, LandingRecoveryOutcome, LayerError, LayerStore};
use ringfence_ledger::{AppendError, Event, Ledger, LedgerOpenError, LedgerReadError};
use ringfence_types::{Call, LandingAction, SessionId, TransactionId};

use super::land::report_of_landing;
use super::{LandingOutcome, directory};

/// A landing that this start has ended.
#[derive(Debug)]
pub struct EndedLanding {
    pub layer: String,
    /// Whether it was a landing or an undo.
    pub action: LandingAction,
    /// `None`: the roots are as before.
    pub outcome: Option<LandingOutcome>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LandingRecoveryError {
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error("cannot write down what became of it")]
    Ledger(#[from] AppendError),
    #[error("the ledger cannot be read")]
    Open(#[from] LedgerOpenError),
    #[error(transparent)]
    Read(#[from] LedgerReadError),
}

/// Completes or takes back every landing whose process is gone, and records what came of it. The next start retries failures.
pub(crate) fn recover(
    ledger: &Ledger,
    state_dir: &std::path::Path,
) -> Vec<Result<EndedLanding, LandingRecoveryError>> {
    let path = directory(state_dir);
    if path.symlink_metadata().is_err() {
        return Vec::new();
    }
    let store = match LayerStore::open(&path) {
        Ok(store) => store,
        Err(error) => return vec![Err(error.into())],
    };
    let recovered = store.recover().into_iter();
    recovered.map(|recovered| recorded(ledger, &recovered?)).collect()
}

fn recorded(ledger: &Ledger, recovery: &LandingRecovery) -> Result<EndedLanding, LandingRecoveryError> {
    let outcome = match recovery.outcome {
        LandingRecoveryOutcome::Completed => Some(report_of_landing(&recovery.report)),
        LandingRecoveryOutcome::RolledBack => None,
    };
    let mut action = match recovery.direction {
        LandingDirection::Land => LandingAction::Commit,
        LandingDirection::Undo => LandingAction::Undo,
    };
    if let Some(open) = open_landing(ledger, &recovery.layer)? {
        action = open.action;
        match ledger.append_all(&events(&open, outcome.as_ref())) {
            // Another start was faster.
            Ok(_) | Err(AppendError::OutOfOrder { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(EndedLanding { layer: recovery.layer.clone(), action, outcome })
}

struct OpenLanding {
    transaction: TransactionId,
    session: SessionId,
    layer: TransactionId,
    action: LandingAction,
}

/// The transaction of a landing of the layer that has no end.
fn open_landing(ledger: &Ledger, layer: &str) -> Result<Option<OpenLanding>, LandingRecoveryError> {
    let reader = ledger.reader()?;
    for id in reader.open_transactions()? {
        let found = reader.about(&id)?.into_iter().find_map(|record| match record.event {
            Event::CallIntended { transaction, session, call: Call::Land(landing), .. }
                if landing.layer.as_str() == layer =>
            {
                Some(OpenLanding { transaction, session, layer: landing.layer, action: landing.action })
            }
            _ => None,
        });
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn events(open: &OpenLanding, outcome: Option<&LandingOutcome>) -> Vec<Event> {
    let OpenLanding { transaction, session, layer, action } = open;
    let Some(outcome) = outcome else {
        let reason = "cut off before anything landed; nothing was changed".to_owned();
        return vec![Event::CallInterrupted { transaction: transaction.clone(), reason }];
    };
    vec![
        Event::ChangesLanded {
            transaction: transaction.clone(),
            session: session.clone(),
            layer: layer.clone(),
            action: *action,
            landed: outcome.landed as u64,
            unlanded: outcome.unlanded().cloned().collect(),
        },
        Event::CallSettled {
            transaction: transaction.clone(),
            session: session.clone(),
            outcome: None,
            failure: None,
            delegated_to: None,
            notes: vec!["cut off, and completed by a later start".to_owned()],
        },
    ]
}
