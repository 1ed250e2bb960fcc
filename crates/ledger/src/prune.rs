//! Forgetting on purpose: old bodies go, their digests stay, and the chain says so.

use std::collections::HashSet;
use std::ops::ControlFlow;

use jiff::Timestamp;
use ringfence_types::Principal;

use crate::event::{Class, Event, Kind};
use crate::ledger::{AppendError, Ledger};
use crate::reader::{LedgerReader, ReadError};
use crate::record::Record;
use crate::store::{Rows, Select, Side, StoreError, kinds_of};
use crate::writer::{Prepared, Request, Wanted};

/// How many bodies go in one step: the log has to hold every page that changes.
const AT_ONCE: usize = 10_000;

/// What is to be forgotten.
#[derive(Clone, Debug)]
pub struct Pruning {
    /// Records from before this.
    pub before: Timestamp,
    /// [`Class::Ledger`] is never pruned and makes no difference here.
    pub classes: Vec<Class>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PruneError {
    #[error(transparent)]
    Open(#[from] crate::OpenError),
    #[error("cannot find what may be pruned")]
    Read(#[from] ReadError),
    #[error("cannot find what may be pruned")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl Ledger {
    /// Removes the bodies that `pruning` means, and writes down that it did. What is open, pending or still in force
    /// stays. Everything is signed first. Gives how many went.
    pub fn prune(&self, pruning: &Pruning, by: &Principal) -> Result<u64, PruneError> {
        let numbers = prunable(&self.reader()?, pruning)?;
        let classes: Vec<Class> =
            pruning.classes.iter().copied().filter(|class| *class != Class::Ledger).collect();
        for part in numbers.chunks(AT_ONCE) {
            let event = Event::Pruned {
                by: by.clone(),
                before: part.last().map_or(0, |last| last.saturating_add(1)),
                records: part.len() as u64,
                classes: classes.clone(),
                runs: runs(part),
            };
            let prepared = Prepared::new(&event, Timestamp::now()).map_err(AppendError::encode)?;
            let forget = part.to_vec();
            self.submit(Request { events: vec![prepared], forget, checkpoint: Wanted::Before })?;
        }
        Ok(numbers.len() as u64)
    }
}

/// Numbers in order as runs without a gap.
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

/// The records that [`Ledger::prune`] would take, in order.
pub fn prunable(reader: &LedgerReader, pruning: &Pruning) -> Result<Vec<u64>, PruneError> {
    let rows = reader.rows();
    let kept = still_needed(reader)?;
    let classes: Vec<Class> =
        pruning.classes.iter().copied().filter(|class| *class != Class::Ledger).collect();
    if classes.is_empty() {
        return Ok(Vec::new());
    }
    let until = Some(format!("{:.6}", pruning.before));
    let select = Select { until, ..Select::default() }.kinds(&kinds_of(&classes));
    let mut numbers = Vec::new();
    rows.scan(&select, &mut |row| {
        if row.body.is_some() && !row.ids.split_ascii_whitespace().any(|id| kept.contains(id)) {
            numbers.push(row.seq);
        }
        ControlFlow::Continue(())
    })?;
    Ok(numbers)
}

/// Ids of what is not over: open transactions, grants in force, and sessions that can be gone on with.
fn still_needed(reader: &LedgerReader) -> Result<HashSet<String>, PruneError> {
    let rows: &dyn Rows = reader.rows();
    let mut needed = HashSet::new();
    rows.side(Side::Open, &mut |id, _| {
        needed.insert(id.to_owned());
    })?;
    let mut failed = None;
    let select = Select::default().kinds(&[Kind::GrantMade, Kind::SessionStarted]);
    rows.scan(&select, &mut |row| {
        if row.body.is_none() {
            return ControlFlow::Continue(());
        }
        match Record::of_row(row.to_row()) {
            Ok(record) => needed.extend(in_force(&record.event)),
            Err(broken) => failed = Some(ReadError::Broken(broken)),
        }
        ControlFlow::Continue(())
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
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
        Event::GrantMade(made) if made.expires.is_none_or(|expires| expires > Timestamp::now()) => {
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
