//! Pruning: removes old bodies and records that. Their digests stay in the chain.

use std::collections::HashSet;
use std::ops::ControlFlow;

use jiff::Timestamp;
use ringfence_types::Principal;

use crate::event::{Event, Kind, RetentionClass};
use crate::ledger::{AppendError, Ledger};
use crate::reader::{LedgerReadError, LedgerReader};
use crate::record::Record;
use crate::store::{ChainRows, ChainStoreError, RowQuery, kinds_of};
use crate::writer::{AppendRequest, CheckpointTiming, PreparedEvent};

/// Bodies removed per step: SQLite's log must hold every changed page.
const AT_ONCE: usize = 10_000;

/// What to prune.
#[derive(Clone, Debug)]
pub struct PruneRequest {
    /// Records from before this.
    pub before: Timestamp,
    /// [`RetentionClass::Ledger`] is never pruned and is ignored here.
    pub classes: Vec<RetentionClass>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PruneError {
    #[error(transparent)]
    Open(#[from] crate::LedgerOpenError),
    #[error("cannot find what may be pruned")]
    Read(#[from] LedgerReadError),
    #[error("cannot find what may be pruned")]
    Store(#[from] ChainStoreError),
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl Ledger {
    /// Removes the selected bodies and records that. Keeps everything that is open, pending or in force. Signs all records first.
    /// Returns the number of removed bodies.
    pub fn prune(&self, pruning: &PruneRequest, by: &Principal) -> Result<u64, PruneError> {
        let numbers = prunable(&self.reader()?, pruning)?;
        let classes: Vec<RetentionClass> =
            pruning.classes.iter().copied().filter(|class| *class != RetentionClass::Ledger).collect();
        for part in numbers.chunks(AT_ONCE) {
            let event = Event::LedgerPruned {
                actor: by.clone(),
                before: part.last().map_or(0, |last| last.saturating_add(1)),
                records: part.len() as u64,
                classes: classes.clone(),
                ranges: runs(part),
            };
            let prepared = PreparedEvent::new(&event, Timestamp::now()).map_err(AppendError::encode)?;
            let forget = part.to_vec();
            self.submit(AppendRequest {
                events: vec![prepared],
                forget,
                checkpoint: CheckpointTiming::Before,
            })?;
        }
        Ok(numbers.len() as u64)
    }
}

/// Groups sorted numbers into ranges without gaps.
fn runs(numbers: &[u64]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    runs
}

/// The records that [`Ledger::prune`] would remove, in order.
pub fn prunable(reader: &LedgerReader, pruning: &PruneRequest) -> Result<Vec<u64>, PruneError> {
    let rows = reader.rows();
    let kept = still_needed(reader)?;
    let classes: Vec<RetentionClass> =
        pruning.classes.iter().copied().filter(|class| *class != RetentionClass::Ledger).collect();
    if classes.is_empty() {
        return Ok(Vec::new());
    }
    let until = Some(format!("{:.6}", pruning.before));
    let select = RowQuery { until, ..RowQuery::default() }.kinds(&kinds_of(&classes));
    let mut numbers = Vec::new();
    rows.scan(&select, &mut |row| {
        if row.body.is_some() && !row.ids.split_ascii_whitespace().any(|id| kept.contains(id)) {
            numbers.push(row.seq);
        }
        ControlFlow::Continue(())
    })?;
    Ok(numbers)
}

/// Ids that are still needed: open transactions, grants in force, and sessions that can be continued.
fn still_needed(reader: &LedgerReader) -> Result<HashSet<String>, PruneError> {
    let rows: &dyn ChainRows = reader.rows();
    let mut needed = HashSet::new();
    // Also for other chains: this chain may have the answer that their transaction waits for.
    rows.open_anywhere(&mut |id| {
        needed.insert(id.to_owned());
    })?;
    let select = RowQuery::default().everywhere().kinds(&[Kind::GrantCreated, Kind::SessionStarted]);
    rows.scan(&select, &mut |row| {
        if row.body.is_none() {
            return ControlFlow::Continue(());
        }
        match Record::of_row(row.to_row()) {
            Ok(record) => needed.extend(in_force(&record.event)),
            // Inconsistent records are kept for the verifier.
            Err(_) => needed.extend(row.ids.split_ascii_whitespace().map(str::to_owned)),
        }
        ControlFlow::Continue(())
    })?;
    let mut over = Vec::new();
    for id in &needed {
        let end = if id.starts_with("gr_") { "revoked" } else { "ended" };
        if !id.starts_with("tx_") && rows.claimed(&format!("{end} {id}"))?.is_some() {
            over.push(id.clone());
        }
    }
    for id in over {
        needed.remove(&id);
    }
    Ok(needed)
}

fn in_force(event: &Event) -> Option<String> {
    match event {
        Event::GrantCreated(made) if made.expires_at.is_none_or(|expires| expires > Timestamp::now()) => {
            Some(made.grant.to_string())
        }
        Event::SessionStarted { session, name: Some(_), .. } => Some(session.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_as_runs() {
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[2, 3, 4, 7, 9, 10]), [(2, 4), (7, 7), (9, 10)]);
    }
}
