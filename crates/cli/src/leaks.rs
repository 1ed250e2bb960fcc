//! Secrets that were on their way out, in one line and in JSON. Never their values.

use std::collections::BTreeMap;

use ringfence_runtime::Leaked;
use ringfence_runtime::ledger::Finding;
use ringfence_types::{Bytes, LeakAction};
use serde::Serialize;

use crate::output::note;

/// As `--json` shows them.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    action: LeakAction,
    findings: &'a [Finding],
    more: u64,
}

pub(crate) fn reports(leaks: &[Leaked]) -> Vec<Report<'_>> {
    leaks
        .iter()
        .map(|leaked| Report { action: leaked.action, findings: &leaked.findings, more: leaked.more })
        .collect()
}

/// How many, which kinds, and what became of them.
pub(crate) fn tell(leaks: &[Leaked]) {
    for leaked in leaks {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        // What could not be searched is no secret; it is in the ledger.
        for finding in leaked.findings.iter().filter(|finding| finding.rule != "scan.limit") {
            *kinds.entry(&finding.rule).or_default() += 1;
        }
        let count = kinds.values().sum::<usize>() as u64 + leaked.more;
        if count == 0 {
            continue;
        }
        let kinds: Vec<String> =
            kinds.iter().map(|(rule, count)| format!("{count} {}", Bytes::from(*rule).display())).collect();
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
