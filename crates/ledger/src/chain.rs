//! The hash chain: how a row follows another. Pure; no I/O.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const DOMAIN: &[u8] = b"ringfence ledger v2\0";

/// Predecessor hash of the first record.
pub(crate) const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A row as stored: exactly the hashed bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub seq: u64,
    /// RFC 3339, UTC, microseconds.
    pub time: String,
    pub kind: String,
    /// The output of [`crate::Event::ids`], separated by spaces.
    pub ids: String,
    /// SHA-256 of the body, 64 hexadecimal digits.
    pub digest: String,
    /// `None`: pruned.
    pub body: Option<String>,
    /// Hash of this row and, through its predecessor, of all earlier rows.
    pub hash: String,
}

/// A borrowed [`Row`].
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    pub seq: u64,
    pub time: &'a str,
    pub kind: &'a str,
    pub ids: &'a str,
    pub digest: &'a str,
    pub body: Option<&'a str>,
    pub hash: &'a str,
}

impl Row {
    /// Builds the row that follows `previous`, with its hash.
    pub(crate) fn after(previous: Option<&ChainHead>, draft: RowDraft) -> Self {
        let RowDraft { time, kind, ids, digest, body } = draft;
        let mut row =
            Self { seq: next_seq(previous), time, kind, ids, digest, body: Some(body), hash: String::new() };
        row.hash = row.borrowed().link(previous.map_or(GENESIS, |head| &head.hash)).to_string();
        row
    }

    pub fn borrowed(&self) -> RowRef<'_> {
        RowRef {
            seq: self.seq,
            time: &self.time,
            kind: &self.kind,
            ids: &self.ids,
            digest: &self.digest,
            body: self.body.as_deref(),
            hash: &self.hash,
        }
    }

    pub fn head(&self) -> ChainHead {
        ChainHead { seq: self.seq, hash: self.hash.clone() }
    }
}

/// A row without its position in the chain.
#[derive(Clone, Debug)]
pub(crate) struct RowDraft {
    pub(crate) time: String,
    pub(crate) kind: String,
    pub(crate) ids: String,
    pub(crate) digest: String,
    pub(crate) body: String,
}

impl RowRef<'_> {
    pub fn to_row(self) -> Row {
        Row {
            seq: self.seq,
            time: self.time.to_owned(),
            kind: self.kind.to_owned(),
            ids: self.ids.to_owned(),
            digest: self.digest.to_owned(),
            body: self.body.map(str::to_owned),
            hash: self.hash.to_owned(),
        }
    }

    /// Checks that this row directly follows the row with this number and hash.
    pub(crate) fn check_after(self, seq: u64, hash: &str) -> Result<(), ChainBreak> {
        let expected = seq.saturating_add(1);
        if self.seq != expected {
            return Err(ChainBreak { seq: expected, what: ChainFlaw::Gap { found: self.seq } });
        }
        if self.hash.as_bytes() != self.link(hash).0 {
            return Err(ChainBreak { seq: self.seq, what: ChainFlaw::HashMismatch });
        }
        match self.body {
            Some(body) if self.digest.as_bytes() != HexDigest::of(body.as_bytes()).0 => {
                Err(ChainBreak { seq: self.seq, what: ChainFlaw::BodyMismatch })
            }
            _ => Ok(()),
        }
    }

    fn link(self, previous: &str) -> HexDigest {
        // One allocation: verification does this for every record.
        let mut bytes = Vec::with_capacity(512);
        bytes.extend_from_slice(DOMAIN);
        bytes.extend_from_slice(previous.as_bytes());
        let mut digits = [0; 20];
        let seq = decimal(&mut digits, self.seq);
        for field in
            [seq, self.time.as_bytes(), self.kind.as_bytes(), self.ids.as_bytes(), self.digest.as_bytes()]
        {
            // Length prefixes make the encoding unambiguous. They are decimal, so that a shell script can produce them.
            bytes.extend_from_slice(decimal(&mut [0; 20], field.len() as u64));
            bytes.push(b':');
            bytes.extend_from_slice(field);
        }
        HexDigest::of(&bytes)
    }
}

fn decimal(digits: &mut [u8; 20], mut number: u64) -> &[u8] {
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        used += 1;
        if number == 0 {
            break;
        }
    }
    digits.get(20 - used..).unwrap_or_default()
}

/// A SHA-256 in hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct HexDigest(pub(crate) [u8; 64]);

impl HexDigest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::encode(Sha256::digest(bytes).into())
    }

    pub(crate) fn encode(bytes: [u8; 32]) -> Self {
        const fn digit(nibble: u8) -> u8 {
            if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 }
        }
        let mut digits = [0; 64];
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
            *pair = [digit(byte >> 4), digit(byte & 15)];
        }
        Self(digits)
    }
}

impl fmt::Display for HexDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.0).map_err(|_not_ascii| fmt::Error)?)
    }
}

/// Decodes `N` pairs of lowercase hexadecimal digits.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(bytes)
}

fn next_seq(previous: Option<&ChainHead>) -> u64 {
    previous.map_or(1, |head| head.seq.saturating_add(1))
}

/// The head of a chain. Kept elsewhere, it detects later truncation. Written `SEQ:HASH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainHead {
    pub seq: u64,
    pub hash: String,
}

impl fmt::Display for ChainHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a head is written `SEQ:HASH`, a number and 64 hexadecimal digits, as `ringfence ledger verify` prints it"
)]
pub struct ChainHeadSyntax;

impl FromStr for ChainHead {
    type Err = ChainHeadSyntax;

    fn from_str(text: &str) -> Result<Self, ChainHeadSyntax> {
        let (seq, hash) = text.split_once(':').ok_or(ChainHeadSyntax)?;
        let seq = seq.parse().ok().filter(|seq| *seq > 0).ok_or(ChainHeadSyntax)?;
        let is_digest = hash.len() == GENESIS.len() && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| Self { seq, hash: hash.to_ascii_lowercase() }).ok_or(ChainHeadSyntax)
    }
}

/// The first row at which the chain does not verify.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("record {seq} {what}")]
pub struct ChainBreak {
    pub seq: u64,
    pub what: ChainFlaw,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "flaw", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ChainFlaw {
    #[error("is missing; the next one found is {found}")]
    Gap { found: u64 },
    #[error("does not match its hash")]
    HashMismatch,
    #[error("has another body than the one that was written")]
    BodyMismatch,
    #[error("is not about what it is filed under")]
    IdsMismatch,
    #[error("has lost its body, and no record says that it was pruned")]
    BodyGone,
    #[error("cannot be read: {reason}")]
    Malformed { reason: String },
    #[error("and those after it are missing up to the expected head {expected}")]
    Truncated { expected: u64 },
    #[error("is not the expected head: the chain was rewritten")]
    Rewritten,
    #[error("is out of order: `{transaction}`: {why}")]
    OutOfOrder { transaction: String, why: String },
    #[error("is not the beginning of a chain")]
    NoBeginning,
    #[error("is a checkpoint that does not hold: {why}")]
    Checkpoint { why: String },
    #[error("is a hand-over of the key that does not hold: {why}")]
    KeyChange { why: String },
    #[error("is the end, and the key of the chain cannot sign it: {why}")]
    Key { why: String },
    #[error("is not what the anchor says: the ledger is an older copy, or another one ({anchored})")]
    RolledBack { anchored: String },
    #[error("is not what chain {by} has witnessed ({head}): this chain was cut back or rewritten")]
    Unwitnessed { by: String, head: String },
    #[error(
        "is the end, and the key of the node has not signed it: another writer added it, or moved the end"
    )]
    Unsealed,
    #[error("is the first, and names another chain or node than the table `head`")]
    OtherName,
    #[error("is the end by the table `head`, and not by the records")]
    OtherEnd,
    #[error(
        "is the end of a chain that was set aside, and neither has its key signed that nor has an operator acknowledged it here"
    )]
    SetAside,
    #[error("is the end of a chain that was changed after it was set aside")]
    ChangedAside,
    #[error("was signed by key {key} when chain {by} saw it, and this chain has another")]
    OtherKey { by: String, key: String },
    #[error("is the last one, and the table `{table}` does not say what the records say")]
    Index { table: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(previous: Option<&ChainHead>, body: &str) -> Row {
        let draft = RowDraft {
            time: "2026-01-02T03:04:05.000000Z".to_owned(),
            kind: "battery-finished".to_owned(),
            ids: "tx_1 ses_2".to_owned(),
            digest: HexDigest::of(body.as_bytes()).to_string(),
            body: body.to_owned(),
        };
        Row::after(previous, draft)
    }

    fn check(row: &Row, previous: Option<&ChainHead>) -> Result<(), ChainBreak> {
        let (seq, hash) = previous.map_or((0, GENESIS), |head| (head.seq, head.hash.as_str()));
        row.borrowed().check_after(seq, hash)
    }

    #[test]
    fn the_hash_is_pinned() {
        // digest=$(printf '{}' | sha256sum | cut -d ' ' -f 1)
        // printf 'ringfence ledger v2\0%064d1:127:2026-01-02T03:04:05.000000Z7:battery10:tx_1 ses_264:%s' 0 $digest | sha256sum
        let expected = "ade04c77ca892297e5708ddb63d8b11f24a6ada23a058680552bc4e886fd3a59";
        assert_eq!(row(None, "{}").hash, expected);
    }

    #[test]
    fn a_row_follows_only_its_predecessor() {
        let first = row(None, "a").head();
        let second = row(Some(&first), "b");
        assert_eq!(check(&second, Some(&first)), Ok(()));
        let gap = ChainBreak { seq: 1, what: ChainFlaw::Gap { found: 2 } };
        assert_eq!(check(&second, None), Err(gap));
        let other = row(None, "c").head();
        assert_eq!(check(&second, Some(&other)), Err(ChainBreak { seq: 2, what: ChainFlaw::HashMismatch }));
    }

    #[test]
    fn bytes_cannot_move_between_fields() {
        let mut moved = row(None, "body");
        moved.kind.push('t');
        moved.ids.remove(0);
        assert_eq!(check(&moved, None), Err(ChainBreak { seq: 1, what: ChainFlaw::HashMismatch }));
    }

    #[test]
    fn the_chain_holds_without_a_body_but_not_with_another() {
        let mut pruned = row(None, "body");
        pruned.body = None;
        assert_eq!(check(&pruned, None), Ok(()));
        pruned.body = Some("another".to_owned());
        assert_eq!(check(&pruned, None), Err(ChainBreak { seq: 1, what: ChainFlaw::BodyMismatch }));
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX] {
            assert_eq!(decimal(&mut [0; 20], number), number.to_string().as_bytes());
        }
    }

    #[test]
    fn digits_are_read_as_they_are_written() {
        let bytes: [u8; 32] = std::array::from_fn(|at| u8::try_from(at * 8).unwrap());
        assert_eq!(unhex(&HexDigest::encode(bytes).to_string()), Some(bytes));
        for bad in ["", "0", "0g", "AB", "abc", "é"] {
            assert_eq!(unhex::<1>(bad), None, "{bad}");
        }
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
            assert_eq!(bad.parse::<ChainHead>(), Err(ChainHeadSyntax), "{bad}");
        }
    }
}
