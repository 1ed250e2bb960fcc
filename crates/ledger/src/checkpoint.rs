//! Checkpoints: signed statements about a range of records, and proofs that a record is covered by one.

use jiff::Timestamp;
use ringfence_types::ChainId;
use serde::{Deserialize, Serialize};

use crate::chain::{GENESIS, HexDigest, Row, unhex};
use crate::event::Checkpoint;
use crate::key::{self, LedgerKey};
use crate::merkle::{self, MerkleHash};
use crate::store::{ChainRows, ChainStoreError, RowQuery, collect};

/// The range that a checkpoint covers.
#[derive(Debug)]
pub(crate) struct CheckpointRange<'a> {
    pub(crate) chain: &'a ChainId,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) head: &'a str,
    pub(crate) root: MerkleHash,
}

impl Checkpoint {
    pub(crate) fn sign(covered: &CheckpointRange<'_>, key: &LedgerKey, time: Timestamp) -> Self {
        let mut checkpoint = Self {
            chain: covered.chain.clone(),
            first: covered.first,
            last: covered.last,
            head: covered.head.to_owned(),
            root: HexDigest::encode(covered.root).to_string(),
            time,
            key: key.public(),
            signature: String::new(),
        };
        checkpoint.signature = key.sign(&checkpoint.statement());
        checkpoint
    }

    /// Whether the named key has signed it. Does not say whether that key is trusted.
    pub fn is_signed(&self) -> bool {
        key::is_signed(&self.key, &self.statement(), &self.signature)
    }

    /// The signed bytes; `docs/ledger.md` describes them.
    fn statement(&self) -> Vec<u8> {
        let (first, last, time) = (self.first.to_string(), self.last.to_string(), self.time.to_string());
        let fields = [self.chain.as_str(), &first, &last, &self.head, &self.root, &time];
        key::statement(b"ringfence checkpoint v1\0", &fields)
    }
}

/// Proof that one record is in a chain. Checking it needs only the public key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InclusionProof {
    pub schema: u32,
    pub seq: u64,
    pub time: String,
    pub kind: String,
    pub ids: String,
    pub digest: String,
    /// The exact body; `None`: pruned, and the proof is about its digest.
    pub body: Option<String>,
    /// Hash of the previous record.
    pub previous: String,
    pub hash: String,
    /// Merkle path from the record to the root of the checkpoint, lowest first.
    pub path: Vec<String>,
    pub checkpoint: Checkpoint,
}

/// Reason why a proof is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    #[error("the body is not the one that was written")]
    Body,
    #[error("the record does not match its hash")]
    Record,
    #[error("the path does not lead from the record to the root")]
    Path,
    #[error("the checkpoint is not signed by the key it names")]
    Signature,
    #[error("the checkpoint is signed by another key than the expected one")]
    OtherKey,
}

impl InclusionProof {
    /// Checks that a checkpoint signed by `key` covers the record. Without `key`: by the key that the checkpoint names.
    pub fn check(&self, key: Option<&str>) -> Result<(), ProofError> {
        let row = Row {
            seq: self.seq,
            time: self.time.clone(),
            kind: self.kind.clone(),
            ids: self.ids.clone(),
            digest: self.digest.clone(),
            body: self.body.clone(),
            hash: self.hash.clone(),
        };
        row.borrowed().check_after(self.seq.wrapping_sub(1), &self.previous).map_err(
            |broken| match broken.what {
                crate::ChainFlaw::BodyMismatch => ProofError::Body,
                _ => ProofError::Record,
            },
        )?;
        if self.root().is_none_or(|root| HexDigest::encode(root).to_string() != self.checkpoint.root) {
            return Err(ProofError::Path);
        }
        if !self.checkpoint.is_signed() {
            return Err(ProofError::Signature);
        }
        if key.is_some_and(|key| !key.eq_ignore_ascii_case(&self.checkpoint.key)) {
            return Err(ProofError::OtherKey);
        }
        Ok(())
    }

    fn root(&self) -> Option<MerkleHash> {
        let path: Option<Vec<MerkleHash>> = self.path.iter().map(|hash| unhex(hash)).collect();
        let at = self.seq.checked_sub(self.checkpoint.first)?;
        let count = self.checkpoint.last.checked_sub(self.checkpoint.first)?.checked_add(1)?;
        merkle::root_by_path(&unhex(&self.hash)?, at, count, &path?)
    }
}

/// Proves that `row` is in the chain. `None`: the records do not match `checkpoint`.
pub(crate) fn prove(
    rows: &dyn ChainRows,
    row: Row,
    checkpoint: Checkpoint,
) -> Result<Option<InclusionProof>, ChainStoreError> {
    let hashes = hashes(rows, checkpoint.first, checkpoint.last)?;
    let Some(hashes) = hashes else { return Ok(None) };
    let Some(at) = row.seq.checked_sub(checkpoint.first).and_then(|at| usize::try_from(at).ok()) else {
        return Ok(None);
    };
    let before = collect(rows, &RowQuery::numbered(row.seq.saturating_sub(1), row.seq.saturating_sub(1)))?;
    let previous = before.last().filter(|_| row.seq > 1).map_or(GENESIS, |row| &row.hash).to_owned();
    let path =
        merkle::path(&hashes, at).into_iter().map(|hash| HexDigest::encode(hash).to_string()).collect();
    let Row { seq, time, kind, ids, digest, body, hash } = row;
    Ok(Some(InclusionProof {
        schema: 1,
        seq,
        time,
        kind,
        ids,
        digest,
        body,
        previous,
        hash,
        path,
        checkpoint,
    }))
}

/// Hashes of the records `first ..= last`; `None`: a hash is malformed.
pub(crate) fn hashes(
    rows: &dyn ChainRows,
    first: u64,
    last: u64,
) -> Result<Option<Vec<MerkleHash>>, ChainStoreError> {
    let mut hashes = Some(Vec::new());
    rows.scan(&RowQuery::numbered(first, last), &mut |row| {
        match (unhex(row.hash), &mut hashes) {
            (Some(hash), Some(hashes)) => hashes.push(hash),
            _ => hashes = None,
        }
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(hashes)
}
