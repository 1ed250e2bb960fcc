//! Signed statements about a run of records, and proofs that one record is among them.

use jiff::Timestamp;
use ringfence_types::ChainId;
use serde::{Deserialize, Serialize};

use crate::chain::{GENESIS, Hex, Row, unhex};
use crate::event::Checkpoint;
use crate::key::{self, Key};
use crate::merkle::{self, Hash};
use crate::store::{Rows, Select, StoreError, collect};

/// What a checkpoint is about.
#[derive(Debug)]
pub(crate) struct Covered<'a> {
    pub(crate) chain: &'a ChainId,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) head: &'a str,
    pub(crate) root: Hash,
}

impl Checkpoint {
    pub(crate) fn sign(covered: &Covered<'_>, key: &Key, time: Timestamp) -> Self {
        let mut checkpoint = Self {
            chain: covered.chain.clone(),
            first: covered.first,
            last: covered.last,
            head: covered.head.to_owned(),
            root: Hex::encode(covered.root).to_string(),
            time,
            key: key.public(),
            signature: String::new(),
        };
        checkpoint.signature = key.sign(&checkpoint.statement());
        checkpoint
    }

    /// Whether the key it names has signed it. Whose key that is, is another question.
    pub fn is_signed(&self) -> bool {
        key::is_signed(&self.key, &self.statement(), &self.signature)
    }

    /// The bytes that are signed; `docs/ledger.md` has them in words.
    fn statement(&self) -> Vec<u8> {
        let (first, last, time) = (self.first.to_string(), self.last.to_string(), self.time.to_string());
        let fields = [self.chain.as_str(), &first, &last, &self.head, &self.root, &time];
        key::statement(b"ringfence checkpoint v1\0", &fields)
    }
}

/// That one record is in a chain, for somebody who has the public key and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    pub schema: u32,
    pub seq: u64,
    pub time: String,
    pub kind: String,
    pub ids: String,
    pub digest: String,
    /// To the letter; `None`: it was pruned, and the proof is about its digest.
    pub body: Option<String>,
    /// The hash of the record before.
    pub previous: String,
    pub hash: String,
    /// From the record to the root of the checkpoint, lowest first.
    pub path: Vec<String>,
    pub checkpoint: Checkpoint,
}

/// Why a proof proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadProof {
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

impl Proof {
    /// Whether the record is among those that a checkpoint of `key` covers. Without `key`: of the key that it names.
    pub fn check(&self, key: Option<&str>) -> Result<(), BadProof> {
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
                crate::Flaw::BodyMismatch => BadProof::Body,
                _ => BadProof::Record,
            },
        )?;
        if self.root().is_none_or(|root| Hex::encode(root).to_string() != self.checkpoint.root) {
            return Err(BadProof::Path);
        }
        if !self.checkpoint.is_signed() {
            return Err(BadProof::Signature);
        }
        if key.is_some_and(|key| !key.eq_ignore_ascii_case(&self.checkpoint.key)) {
            return Err(BadProof::OtherKey);
        }
        Ok(())
    }

    fn root(&self) -> Option<Hash> {
        let path: Option<Vec<Hash>> = self.path.iter().map(|hash| unhex(hash)).collect();
        let at = self.seq.checked_sub(self.checkpoint.first)?;
        let count = self.checkpoint.last.checked_sub(self.checkpoint.first)?.checked_add(1)?;
        merkle::root_by_path(&unhex(&self.hash)?, (at, count), &path?)
    }
}

/// Proves that `row` is in the chain. `None`: what `checkpoint` covers is not what it says.
pub(crate) fn prove(rows: &dyn Rows, row: Row, checkpoint: Checkpoint) -> Result<Option<Proof>, StoreError> {
    let hashes = hashes(rows, checkpoint.first, checkpoint.last)?;
    let Some(hashes) = hashes else { return Ok(None) };
    let Some(at) = row.seq.checked_sub(checkpoint.first).and_then(|at| usize::try_from(at).ok()) else {
        return Ok(None);
    };
    let before = collect(rows, &Select::numbered(row.seq.saturating_sub(1), row.seq.saturating_sub(1)))?;
    let previous = before.last().filter(|_| row.seq > 1).map_or(GENESIS, |row| &row.hash).to_owned();
    let path = merkle::path(&hashes, at).into_iter().map(|hash| Hex::encode(hash).to_string()).collect();
    let Row { seq, time, kind, ids, digest, body, hash } = row;
    Ok(Some(Proof { schema: 1, seq, time, kind, ids, digest, body, previous, hash, path, checkpoint }))
}

/// The hashes of the records `first ..= last`; `None`: one is no hash.
pub(crate) fn hashes(rows: &dyn Rows, first: u64, last: u64) -> Result<Option<Vec<Hash>>, StoreError> {
    let mut hashes = Some(Vec::new());
    rows.scan(&Select::numbered(first, last), &mut |row| {
        match (unhex(row.hash), &mut hashes) {
            (Some(hash), Some(hashes)) => hashes.push(hash),
            _ => hashes = None,
        }
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(hashes)
}
