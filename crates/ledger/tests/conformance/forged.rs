//! A chain as an attacker makes it by hand who has the rights of a node in the database, and an own key.

use ed25519_dalek::{Signer as _, SigningKey};
use ringfence_ledger::{AsideProof, Event, PreviousChain, Timestamp};
use ringfence_types::{ByteString, ChainId, hex};
use sha2::{Digest as _, Sha256};

use crate::events::person;

pub(crate) struct ForgedChain {
    pub(crate) key: SigningKey,
    pub(crate) chain: ChainId,
    node: String,
    rows: Vec<Row>,
}

struct Row {
    kind: String,
    ids: String,
    digest: String,
    hash: String,
    body: String,
}

const TIME: &str = "2026-01-02T03:04:05.000000Z";

/// What the first record says about the chain.
#[derive(Default)]
pub(crate) struct Beginning {
    pub(crate) continues: Option<PreviousChain>,
    /// `None`: the key that signs.
    pub(crate) named_key: Option<String>,
}

impl ForgedChain {
    /// A chain of `node` under a key that is made from `seed`.
    pub(crate) fn new(node: &str, seed: u8, begin: impl FnOnce(&ChainId) -> Beginning) -> Self {
        let key = SigningKey::from_bytes(&[seed; 32]);
        let chain = ChainId::random().unwrap();
        let Beginning { continues, named_key } = begin(&chain);
        let mut forged = Self { key, chain: chain.clone(), node: node.to_owned(), rows: Vec::new() };
        let key = named_key.unwrap_or_else(|| forged.public());
        let version = "0".to_owned();
        forged.add(&Event::ChainStarted { chain, node: node.to_owned(), key, version, continues });
        forged
    }

    pub(crate) fn public(&self) -> String {
        hex(self.key.verifying_key().to_bytes())
    }

    pub(crate) fn add(&mut self, event: &Event) {
        let body = serde_json::to_value(event).unwrap();
        let id = |name: &str| body.get(name).and_then(|id| id.as_str()).map(str::to_owned);
        let ids: Vec<String> = ["transaction", "session", "grant"].into_iter().filter_map(id).collect();
        let kind = id("kind").unwrap();
        self.add_raw(&kind, &ids.join(" "), serde_json::to_string(event).unwrap());
    }

    /// A record that needs not be one.
    pub(crate) fn add_raw(&mut self, kind: &str, ids: &str, body: String) {
        let digest = hex(Sha256::digest(&body));
        let before = self.rows.last().map_or_else(|| "0".repeat(64), |row| row.hash.clone());
        let mut bytes = b"ringfence ledger v2\0".to_vec();
        bytes.extend(before.bytes());
        let seq = (self.rows.len() + 1).to_string();
        for field in [seq.as_str(), TIME, kind, ids, &digest] {
            bytes.extend(format!("{}:{field}", field.len()).bytes());
        }
        let hash = hex(Sha256::digest(bytes));
        self.rows.push(Row { kind: kind.to_owned(), ids: ids.to_owned(), digest, hash, body });
    }

    pub(crate) fn sign(&self, domain: &str, fields: &[&str]) -> String {
        let mut bytes = domain.as_bytes().to_vec();
        bytes.push(0);
        for field in fields {
            bytes.extend(format!("{}:{field}", field.len()).bytes());
        }
        hex(self.key.sign(&bytes).to_bytes())
    }

    /// Writes the chain with its end signed.
    pub(crate) fn sql(&self) -> String {
        let last = self.rows.last().unwrap();
        let seal =
            self.sign("ringfence end v1", &[self.chain.as_str(), &self.rows.len().to_string(), &last.hash]);
        let rows: Vec<String> = (1..)
            .zip(&self.rows)
            .map(|(seq, row)| {
                let body = row.body.replace('\'', "''");
                format!("({seq}, '{}', '{}', '{}', '{}', '{body}')", row.kind, row.ids, row.digest, row.hash)
            })
            .collect();
        format!(
            "WITH begun AS (INSERT INTO ringfence.head (id, node, seq, hash, seal)
                VALUES ('{}', '{}', {}, '{}', '{seal}') RETURNING chain),
            written AS (INSERT INTO ringfence.record (chain, seq, time, kind, ids, digest, hash, body)
                SELECT chain, new.seq, '{TIME}', new.kind, new.ids, new.digest, new.hash, new.body FROM begun,
                    (VALUES {}) AS new (seq, kind, ids, digest, hash, body) ORDER BY new.seq
                RETURNING chain, seq, place, ids)
            INSERT INTO ringfence.mention (id, place, chain, seq)
                SELECT DISTINCT id, place, chain, seq FROM written, string_to_table(ids, ' ') AS id WHERE id <> ''",
            self.chain,
            self.node,
            self.rows.len(),
            last.hash,
            rows.join(", ")
        )
    }

    /// What the next chain says of this one, or of another, signed with this key.
    pub(crate) fn sets_aside(&self, old: &ChainId, digest: &str, new: &ChainId) -> PreviousChain {
        let signature = self.sign("ringfence set aside v1", &[old.as_str(), digest, new.as_str()]);
        continued(old, digest, Some(signature))
    }
}

pub(crate) fn continued(old: &ChainId, digest: &str, signature: Option<String>) -> PreviousChain {
    PreviousChain {
        file: ByteString::from(old.as_str()),
        head: None,
        problem: Some("none".to_owned()),
        actor: person(9),
        reason: Some("forged".to_owned()),
        chain: None,
        proof: Some(AsideProof { chain: old.clone(), digest: digest.to_owned(), signature }),
    }
}

/// The time in records is only text here.
#[test]
fn the_time_of_forged_records_is_one() {
    TIME.parse::<Timestamp>().unwrap();
}
