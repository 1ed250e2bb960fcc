//! What a client is told about a call.

use ringfence_runtime::{Ended, Settled};
use serde_json::{Map, Value, json};

use crate::leaks;
use ringfence_mcp::result;
use ringfence_types::Denial;

/// What every result of a settled call says.
pub(super) fn settled(
    settled: &Settled,
    denial: impl FnOnce(&ringfence_types::Refusal) -> Denial,
) -> Map<String, Value> {
    let mut said = Map::new();
    let mut say = |name: &str, value: Value| said.insert(name.to_owned(), value);
    match &settled.ended {
        Ended::Executed(_) | Ended::Touched(_) => say("ended", json!("done")),
        Ended::Refused(refusal) => {
            say("denial", json!(denial(refusal)));
            say("ended", json!("refused"))
        }
        Ended::Failed { what, hint } => {
            say("failure", json!(what));
            if let Some(hint) = hint {
                say("hint", json!(hint));
            }
            say("ended", json!("failed"))
        }
    };
    if let Some(transaction) = &settled.transaction {
        say("transaction", json!(transaction.as_str()));
    }
    if !settled.leaks.is_empty() {
        say("leaks", json!(leaks::reports(&settled.leaks)));
    }
    if !settled.held.is_empty() {
        say("held", json!(settled.held));
    }
    if let Some(network) = &settled.network {
        say("network", json!(network));
    }
    let unrecorded = settled.unrecorded.as_deref().map(result::unrecorded);
    result::note(&mut said, settled.note.clone().into_iter().chain(unrecorded));
    said
}
