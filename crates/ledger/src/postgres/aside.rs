//! Chains of a database that were set aside: what is in them, and who vouches for that.
//!
//! Whoever may append may also write into the column `aside`. So the column alone says nothing: a chain counts as set aside
//! when its own key has signed that, with a digest of everything in it, or when an operator of the node that verifies has
//! acknowledged it with that digest.

use std::collections::HashSet;

use ringfence_types::{ChainId, Principal};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::chain::Hex;
use crate::event::{Continued, Event};
use crate::postgres::rows::{PostgresRows, get};
use crate::seal::KeyLine;
use crate::store::{Rows as _, Side, StoreError};

const PAGE: i64 = 1000;

/// A chain that was set aside in a way that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetAside {
    pub chain: String,
    pub node: String,
    pub records: u64,
    /// The chain that goes on; `None`: it was acknowledged here.
    pub continued_by: Option<String>,
    pub by: Option<Principal>,
    pub reason: Option<String>,
    /// Whether its own key has signed that it was set aside.
    pub is_signed: bool,
}

/// Everything in a chain, whether it holds or not.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) digest: String,
    pub(crate) records: u64,
    /// What its records are about.
    pub(crate) transactions: HashSet<String>,
    pub(crate) line: Option<KeyLine>,
    pub(crate) continues: Option<Continued>,
    pub(crate) acknowledged: Vec<(ChainId, String)>,
}

impl Content {
    /// Reads the chain that `rows` are of.
    ///
    /// WHY NOT `Rows::scan`: it stops at a row that is not one, and such rows are what a chain is set aside for.
    pub(crate) fn read(rows: &PostgresRows) -> Result<Self, StoreError> {
        let sql = "SELECT seq, time, kind, ids, digest, hash, body FROM ringfence.record
            WHERE chain = $1 AND seq > $2 ORDER BY seq LIMIT $3";
        let mut content = Self::default();
        let mut hasher = Sha256::new_with_prefix(b"ringfence chain v1\0");
        let mut after = i64::MIN;
        loop {
            let page = rows.read(sql, &[&rows.chain, &after, &PAGE])?;
            for row in &page {
                after = get(row, 0)?;
                content.add(&mut hasher, after, row)?;
            }
            if i64::try_from(page.len()) != Ok(PAGE) {
                break;
            }
        }
        for side in [Side::Mention, Side::Claim] {
            rows.side(side, &mut |key, seq| {
                [side.word(), key, &seq.to_string()].iter().for_each(|text| field(&mut hasher, Some(text)));
            })?;
        }
        content.digest = Hex::encode(hasher.finalize().into()).to_string();
        Ok(content)
    }

    fn add(&mut self, hasher: &mut Sha256, seq: i64, row: &tokio_postgres::Row) -> Result<(), StoreError> {
        self.records = self.records.saturating_add(1);
        field(hasher, Some(&seq.to_string()));
        let [time, kind, ids, digest, hash] =
            [get(row, 1)?, get(row, 2)?, get(row, 3)?, get(row, 4)?, get(row, 5)?];
        [time, kind, ids, digest, hash].iter().for_each(|text: &&str| field(hasher, Some(text)));
        let body: Option<&str> = get(row, 6)?;
        field(hasher, body);
        let transactions = ids.split_ascii_whitespace().filter(|id| id.starts_with("tx_"));
        self.transactions.extend(transactions.map(str::to_owned));
        // A node's role may write bodies, to prune them, and no digests: a body that was exchanged says nothing.
        if let (Some(body), "chain-started" | "key-rotated" | "chain-acknowledged") = (body, kind)
            && Hex::of(body.as_bytes()).to_string() == digest
            && let Ok(event) = serde_json::from_str(body)
        {
            self.note(seq, event);
        }
        Ok(())
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
