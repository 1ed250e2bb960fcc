//! Chains of a database that were set aside: their content, and the proof for it.
//!
//! A role that may append can also write the column `aside`, so the column alone proves nothing. A chain counts as set aside if its
//! own key has signed that, with a digest of its content, or if an operator of the verifying node has acknowledged it with that
//! digest.

use std::collections::HashSet;

use ringfence_types::{ChainId, Principal};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::chain::{HexDigest, RowRef};
use crate::event::{Event, PreviousChain};
use crate::postgres::rows::{PostgresRows, from_sql, get};
use crate::postgres::signed_part::{SignedPart, SignedParts};
use crate::seal::KeyLine;
use crate::store::{ChainRows as _, ChainStoreError, ClaimKind, WitnessedHead};

const PAGE: i64 = 1000;

/// A chain that was validly set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetAside {
    pub chain: String,
    pub node: String,
    pub records: u64,
    /// The chain that continues it; `None`: acknowledged by this node.
    pub continued_by: Option<String>,
    pub by: Option<Principal>,
    pub reason: Option<String>,
    /// What the node that continues it has found wrong with it.
    pub problem: Option<String>,
    /// The first record that does not verify, and why. `None`: its records verify.
    pub flaw: Option<String>,
    /// Whether its own key has signed that it was set aside.
    pub is_signed: bool,
}

/// The content of a chain, valid or not.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) digest: String,
    pub(crate) records: u64,
    /// Transactions that its records are about.
    pub(crate) transactions: HashSet<String>,
    /// `None` also where a record that names a key is not readable: the last key would be a guess.
    pub(crate) line: Option<KeyLine>,
    pub(crate) continues: Option<PreviousChain>,
    pub(crate) acknowledged: Vec<(ChainId, String)>,
    /// Every record that names a key, in order. A role that prunes can empty such a record, and so bring back the key
    /// before it: `None`.
    pub(crate) key_records: Vec<(u64, Option<Event>)>,
    pub(crate) signed: Vec<SignedPart>,
}

impl Content {
    /// Reads the chain that `rows` are of.
    ///
    /// WHY NOT `ChainRows::scan`: it stops at a row that is not one, and such rows are what a chain is set aside for.
    pub(crate) fn read(rows: &PostgresRows) -> Result<Self, ChainStoreError> {
        let sql = "SELECT seq, time, kind, ids, digest, hash, body FROM ringfence.record
            WHERE chain = $1 AND seq > $2 ORDER BY seq LIMIT $3";
        let mut content = Self::default();
        let mut hasher = Sha256::new_with_prefix(b"ringfence chain v1\0");
        let (mut after, mut parts) = (i64::MIN, SignedParts::default());
        loop {
            let page = rows.read(sql, &[&rows.chain, &after, &PAGE])?;
            for row in &page {
                after = get(row, 0)?;
                content.add(&mut hasher, after, row)?;
                add_part(&mut parts, after, row)?;
            }
            if i64::try_from(page.len()) != Ok(PAGE) {
                break;
            }
        }
        for side in [ClaimKind::Mention, ClaimKind::Claim] {
            rows.side(side, &mut |key, seq| {
                [side.word(), key, &seq.to_string()].iter().for_each(|text| field(&mut hasher, Some(text)));
            })?;
        }
        if content.key_records.iter().any(|(_, event)| event.is_none()) {
            content.line = None;
        }
        content.signed = parts.into_found();
        content.digest = HexDigest::encode(hasher.finalize().into()).to_string();
        Ok(content)
    }

    fn add(
        &mut self,
        hasher: &mut Sha256,
        seq: i64,
        row: &tokio_postgres::Row,
    ) -> Result<(), ChainStoreError> {
        self.records = self.records.saturating_add(1);
        field(hasher, Some(&seq.to_string()));
        let [time, kind, ids, digest, hash] =
            [get(row, 1)?, get(row, 2)?, get(row, 3)?, get(row, 4)?, get(row, 5)?];
        [time, kind, ids, digest, hash].iter().for_each(|text: &&str| field(hasher, Some(text)));
        let body: Option<&str> = get(row, 6)?;
        field(hasher, body);
        let transactions = ids.split_ascii_whitespace().filter(|id| id.starts_with("tx_"));
        self.transactions.extend(transactions.map(str::to_owned));
        if !matches!(kind, "chain-started" | "ledger-key-rotated" | "chain-acknowledged") {
            return Ok(());
        }
        let event = body.and_then(|body| said(body, digest));
        if kind != "chain-acknowledged" {
            self.key_records.push((from_sql(seq), event.clone()));
        }
        event.into_iter().for_each(|event| self.note(seq, event));
        Ok(())
    }

    /// The keys since `seen`, where the chain does not name all of them. `None`: a key that is not readable came after it.
    pub(crate) fn keys_since(&self, seen: &WitnessedHead) -> Option<KeyLine> {
        let mut line = KeyLine { chain: seen.chain.clone(), keys: vec![seen.key.clone()] };
        for (_, event) in self.key_records.iter().filter(|(seq, _)| *seq > seen.head.seq) {
            line.follow(event.as_ref()?);
        }
        Some(line)
    }

    fn note(&mut self, seq: i64, event: Event) {
        match (event, &mut self.line) {
            (Event::ChainStarted { chain, key, continues, .. }, line) if seq == 1 => {
                *line = Some(KeyLine { chain, keys: vec![key] });
                self.continues = continues;
            }
            (Event::ChainAcknowledged { chain, digest, .. }, _) => self.acknowledged.push((chain, digest)),
            (event, Some(line)) => line.follow(&event),
            _ => {}
        }
    }
}

fn add_part(parts: &mut SignedParts, seq: i64, row: &tokio_postgres::Row) -> Result<(), ChainStoreError> {
    // A record has no such number, so nothing leads from one to another.
    let Ok(seq) = u64::try_from(seq) else { return Ok(()) };
    let [time, kind, ids, digest, hash] =
        [get(row, 1)?, get(row, 2)?, get(row, 3)?, get(row, 4)?, get(row, 5)?];
    // Without the body: pruning removes it.
    let row_of = RowRef { seq, time, kind, ids, digest, body: None, hash };
    let body: Option<&str> = get(row, 6)?;
    let event = body.filter(|_| kind == "checkpoint-signed").and_then(|body| said(body, digest));
    let checkpoint = match &event {
        Some(Event::CheckpointSigned(checkpoint)) => Some(checkpoint),
        _ => None,
    };
    parts.add(row_of, checkpoint);
    Ok(())
}

/// What a body says. A node's role may write bodies, to prune them, and no digests: one that was exchanged says nothing.
pub(crate) fn said(body: &str, digest: &str) -> Option<Event> {
    (HexDigest::of(body.as_bytes()).to_string() == digest).then(|| serde_json::from_str(body).ok())?
}

/// The length first, so that no two contents have the same bytes.
fn field(hasher: &mut Sha256, text: Option<&str>) {
    match text {
        Some(text) => {
            hasher.update(format!("{}:", text.len()));
            hasher.update(text);
        }
        None => hasher.update("-"),
    }
}
