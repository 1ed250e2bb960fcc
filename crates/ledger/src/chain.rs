//! How one row follows another. Pure: no file is touched here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const DOMAIN: &[u8] = b"ringfence ledger v1\0";

/// What the first record has as its predecessor.
const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A row as it is stored: exactly the bytes that are hashed.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) seq: u64,
    pub(crate) time: String,
    pub(crate) kind: String,
    pub(crate) body: String,
    pub(crate) hash: String,
}

impl Row {
    /// A new row after `previous`, with its hash.
    pub(crate) fn after(previous: Option<&Head>, time: String, kind: &str, body: String) -> Self {
        let seq = next_seq(previous);
        let mut row = Self { seq, time, kind: kind.to_owned(), body, hash: String::new() };
        row.hash = row.digest(previous);
        row
    }

    /// Whether this row is what must come directly after `previous`.
    pub(crate) fn check_after(&self, previous: Option<&Head>) -> Result<(), Break> {
        let expected = next_seq(previous);
        if self.seq != expected {
            return Err(Break { seq: expected, what: Flaw::Gap { found: self.seq } });
        }
        if self.hash != self.digest(previous) {
            return Err(Break { seq: self.seq, what: Flaw::HashMismatch });
        }
        Ok(())
    }

    pub(crate) fn head(&self) -> Head {
        Head { seq: self.seq, hash: self.hash.clone() }
    }

    fn digest(&self, previous: Option<&Head>) -> String {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update(previous.map_or(GENESIS, |head| &head.hash));
        for field in [&self.seq.to_string(), &self.time, &self.kind, &self.body] {
            // Length first, so that no two rows have the same bytes. Decimal, so that a shell can write it.
            hash.update(format!("{}:", field.len()));
            hash.update(field);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn next_seq(previous: Option<&Head>) -> u64 {
    previous.map_or(1, |head| head.seq.saturating_add(1))
}

/// The end of a chain: as little as one has to remember elsewhere to notice later that records were cut off.
/// Written `SEQ:HASH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub seq: u64,
    pub hash: String,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a head is written `SEQ:HASH`, a number and 64 hexadecimal digits, as `ringfence ledger verify` prints it"
)]
pub struct HeadSyntax;

impl FromStr for Head {
    type Err = HeadSyntax;

    fn from_str(text: &str) -> Result<Self, HeadSyntax> {
        let (seq, hash) = text.split_once(':').ok_or(HeadSyntax)?;
        let seq = seq.parse().ok().filter(|seq| *seq > 0).ok_or(HeadSyntax)?;
        let is_digest = hash.len() == GENESIS.len() && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| Self { seq, hash: hash.to_ascii_lowercase() }).ok_or(HeadSyntax)
    }
}

/// The first place where the ledger is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("record {seq} {what}")]
pub struct Break {
    pub seq: u64,
    pub what: Flaw,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "flaw", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Flaw {
    #[error("is missing; the next one found is {found}")]
    Gap { found: u64 },
    #[error("does not match its hash")]
    HashMismatch,
    #[error("cannot be read: {reason}")]
    Malformed { reason: String },
    #[error("and those after it are missing up to the expected head {expected}")]
    Truncated { expected: u64 },
    #[error("is not the expected head: the chain was rewritten")]
    Rewritten,
    #[error("is out of order: `{transaction}`: {why}")]
    OutOfOrder { transaction: String, why: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(previous: Option<&Head>, body: &str) -> Row {
        Row::after(previous, "2026-01-02T03:04:05.000000Z".to_owned(), "battery", body.to_owned())
    }

    #[test]
    fn the_hash_is_pinned() {
        // printf 'ringfence ledger v1\0%064d1:127:2026-01-02T03:04:05.000000Z7:battery2:{}' 0 | sha256sum
        let expected = "1e15280ce6eaacd2e8a58c17cdf60f2184bf0c295a90ce4d24a60d890270fee9";
        assert_eq!(row(None, "{}").hash, expected);
    }

    #[test]
    fn a_row_follows_only_its_predecessor() {
        let first = row(None, "a").head();
        let second = row(Some(&first), "b");
        assert_eq!(second.check_after(Some(&first)), Ok(()));
        let gap = Break { seq: 1, what: Flaw::Gap { found: 2 } };
        assert_eq!(second.check_after(None), Err(gap));
        let other = row(None, "c").head();
        assert_eq!(second.check_after(Some(&other)), Err(Break { seq: 2, what: Flaw::HashMismatch }));
    }

    #[test]
    fn bytes_cannot_move_between_fields() {
        let mut moved = row(None, "xbody");
        moved.kind.push('x');
        moved.body.remove(0);
        assert_eq!(moved.check_after(None), Err(Break { seq: 1, what: Flaw::HashMismatch }));
    }

    #[test]
    fn heads_are_written_and_read() {
        let head = row(None, "a").head();
        assert_eq!(head.to_string().parse(), Ok(head));
        for bad in [
            "",
            "1",
            "1:abc",
            "0:",
            &format!("0:{GENESIS}"),
            &format!("x:{GENESIS}"),
            &format!("1:{GENESIS}0"),
        ] {
            assert_eq!(bad.parse::<Head>(), Err(HeadSyntax), "{bad}");
        }
    }
}
