//! Shows leaks in one line and in JSON, never with their values.

use std::collections::BTreeMap;

use ringfence_runtime::LeakSummary;
use ringfence_types::{ByteString, LeakAction};

use crate::output::note;

/// Prints the number, the kinds and the action.
pub(crate) fn tell(leaks: &[LeakSummary]) {
    for leaked in leaks {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        // Unscanned content is no secret; the ledger records it.
        for finding in leaked.findings.iter().filter(|finding| finding.rule != "scan.limit") {
            *kinds.entry(&finding.rule).or_default() += 1;
        }
        let count = kinds.values().sum::<usize>() as u64 + leaked.omitted;
        if count == 0 {
            continue;
        }
        let kinds: Vec<String> = kinds
            .iter()
            .map(|(rule, count)| format!("{count} {}", ByteString::from(*rule).display()))
            .collect();
        let noun = if count == 1 { "secret was" } else { "secrets were" };
        note!("ringfence: {count} {noun} {}: {}", became(leaked.action), kinds.join(", "));
    }
}

fn became(action: LeakAction) -> &'static str {
    match action {
        LeakAction::Flag => "found and left where policy lets them pass",
        LeakAction::Redact => "taken out of the output",
        LeakAction::Block => "found, and it was stopped there",
        LeakAction::Terminate => "found, and what had them was ended",
    }
}
