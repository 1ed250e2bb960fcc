//! What a node has signed of a chain that does not verify as a whole.
//!
//! A chain that was set aside is a witness of other chains as well. A role that may append can have written to it before it was set
//! aside, so only the records below a checkpoint count, as far as their hashes lead to it without a gap.

use ringfence_types::ChainId;

use crate::chain::{GENESIS, RowRef};
use crate::event::Checkpoint;

/// Consecutive records that a key has signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignedPart {
    pub(crate) chain: ChainId,
    pub(crate) key: String,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Finds these parts, row by row.
#[derive(Debug)]
pub(crate) struct SignedParts {
    /// The first record whose hash leads to the row before without a gap.
    first: u64,
    seq: u64,
    hash: String,
    found: Vec<SignedPart>,
}

impl Default for SignedParts {
    fn default() -> Self {
        Self { first: 1, seq: 0, hash: GENESIS.to_owned(), found: Vec::new() }
    }
}

impl SignedParts {
    /// `checkpoint`: what the row says, if it is a checkpoint whose body has its digest.
    pub(crate) fn add(&mut self, row: RowRef<'_>, checkpoint: Option<&Checkpoint>) {
        if row.check_after(self.seq, &self.hash).is_err() {
            // Its own content is not known to be what its hash says.
            self.first = row.seq.saturating_add(1);
        } else if let Some(checkpoint) = checkpoint {
            self.sign(checkpoint);
        }
        self.seq = row.seq;
        self.hash.clear();
        self.hash.push_str(row.hash);
    }

    fn sign(&mut self, checkpoint: &Checkpoint) {
        let is_of_end = checkpoint.last == self.seq && checkpoint.head == self.hash;
        if self.first > self.seq || !is_of_end || !checkpoint.is_signed() {
            return;
        }
        let part = SignedPart {
            chain: checkpoint.chain.clone(),
            key: checkpoint.key.clone(),
            first: self.first,
            last: self.seq,
        };
        let is_longer = |known: &SignedPart| {
            known.chain == part.chain && known.key == part.key && known.first == part.first
        };
        match self.found.last_mut().filter(|known| is_longer(known)) {
            Some(known) => known.last = part.last,
            None => self.found.push(part),
        }
    }

    pub(crate) fn into_found(self) -> Vec<SignedPart> {
        self.found
    }
}
