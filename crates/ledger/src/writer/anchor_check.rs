//! Compares the chain with its anchor, so that an older copy or another ledger is noticed at open.

use super::is_there;
use crate::anchor::CheckpointAnchor;
use crate::chain::{ChainBreak, ChainFlaw, ChainHead};
use crate::event::Event;
use crate::record::Record;
use crate::store::{ChainRows, ChainStoreError, RowQuery, collect};

/// The newest anchored checkpoint must be in the chain.
pub(super) fn check_anchor(
    rows: &dyn ChainRows,
    head: &ChainHead,
    anchor: &CheckpointAnchor,
) -> Result<Option<ChainBreak>, ChainStoreError> {
    let start = match collect(rows, &RowQuery::numbered(1, 1))?.pop().map(Record::of_row) {
        Some(Ok(Record { event: Event::ChainStarted { chain, continues, .. }, .. })) => (chain, continues),
        _ => return Ok(Some(ChainBreak { seq: 1, what: ChainFlaw::NoBeginning })),
    };
    let rolled_back = |seq, anchored| Ok(Some(ChainBreak { seq, what: ChainFlaw::RolledBack { anchored } }));
    let kept = match anchor.newest() {
        Err(error) => return rolled_back(head.seq, format!("it cannot be read: {error}")),
        Ok(None) => return Ok(None),
        Ok(Some(kept)) => kept.checkpoint,
    };
    let (chain, continues) = start;
    if kept.chain == chain {
        let covered = ChainHead { seq: kept.last, hash: kept.head };
        return if is_there(rows, &covered)? { Ok(None) } else { rolled_back(head.seq, covered.to_string()) };
    }
    if continues.is_some_and(|before| before.is_chain(&kept.chain)) {
        return Ok(None);
    }
    rolled_back(head.seq, format!("chain {}", kept.chain))
}
