//! Results of calls for a client.

use ringfence_runtime::{CallEnd, Settled};
use serde_json::{Map, Value, json};

use crate::leaks;
use ringfence_mcp::result;
use ringfence_types::RefusalNotice;

/// The common fields of every settled call.
pub(super) fn settled(
    settled: &Settled,
    denial: impl FnOnce(&ringfence_types::Refusal) -> RefusalNotice,
) -> Map<String, Value> {
    let mut said = Map::new();
    let mut say = |name: &str, value: Value| said.insert(name.to_owned(), value);
    match &settled.ended {
        CallEnd::Executed(_) | CallEnd::Touched(_) => say("ended", json!("done")),
        CallEnd::Refused(refusal) => {
            say("denial", json!(denial(refusal)));
            say("ended", json!("refused"))
        }
        CallEnd::Failed { what, hint } => {
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
    if let Some(posture) = settled.posture.as_ref().filter(|posture| posture.ceiling.is_some()) {
        say("posture", json!(posture));
    }
    if let Some(network) = &settled.network {
        say("network", json!(network));
    }
    let unrecorded = settled.record_error.as_deref().map(result::unrecorded);
    result::note(&mut said, settled.notice.clone().into_iter().chain(unrecorded));
    said
}
