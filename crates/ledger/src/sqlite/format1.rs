//! Format 1: one table, bodies in the chain. Read only: to find its head when it is archived, and to verify archives.

use rusqlite::Connection;
use sha2::{Digest as _, Sha256};

use crate::chain::{ChainBreak, ChainFlaw, ChainHead, GENESIS, HexDigest};
use crate::sqlite::rows::of_sqlite;
use crate::store::ChainStoreError;

const DOMAIN: &[u8] = b"ringfence ledger v1\0";

/// Verifies the whole chain. The head `expected`, if given, must be in it.
pub(crate) fn walk(
    connection: &Connection,
    expected: Option<&ChainHead>,
) -> Result<Result<Option<ChainHead>, ChainBreak>, ChainStoreError> {
    let mut head: Option<ChainHead> = None;
    let walked = || -> rusqlite::Result<Result<(), ChainBreak>> {
        let mut statement =
            connection.prepare("SELECT seq, time, kind, body, hash FROM record ORDER BY seq")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            match step(row, head.as_ref()) {
                Ok(next) if is_other(&next, expected) => {
                    return Ok(Err(ChainBreak { seq: next.seq, what: ChainFlaw::Rewritten }));
                }
                Ok(next) => head = Some(next),
                Err(broken) => return Ok(Err(broken)),
            }
        }
        Ok(Ok(()))
    };
    let mut walked = walked;
    if let Err(broken) = walked().map_err(of_sqlite)? {
        return Ok(Err(broken));
    }
    let last = head.as_ref().map_or(0, |head| head.seq);
    Ok(match expected.filter(|expected| expected.seq > last) {
        Some(expected) => {
            Err(ChainBreak { seq: last + 1, what: ChainFlaw::Truncated { expected: expected.seq } })
        }
        None => Ok(head),
    })
}

fn is_other(head: &ChainHead, expected: Option<&ChainHead>) -> bool {
    expected.is_some_and(|expected| expected.seq == head.seq && expected != head)
}

fn step(row: &rusqlite::Row<'_>, previous: Option<&ChainHead>) -> Result<ChainHead, ChainBreak> {
    let expected = previous.map_or(1, |head| head.seq + 1);
    let malformed = |error: rusqlite::Error| ChainBreak {
        seq: expected,
        what: ChainFlaw::Malformed { reason: error.to_string() },
    };
    let seq: i64 = row.get(0).map_err(malformed)?;
    let hash: String = row.get(4).map_err(malformed)?;
    if u64::try_from(seq) != Ok(expected) {
        return Err(ChainBreak {
            seq: expected,
            what: ChainFlaw::Gap { found: u64::try_from(seq).unwrap_or(0) },
        });
    }
    let mut digest = Sha256::new();
    digest.update(DOMAIN);
    digest.update(previous.map_or(GENESIS, |head| &head.hash));
    field(&mut digest, &seq.to_string());
    for at in 1..=3 {
        let text: String = row.get(at).map_err(malformed)?;
        field(&mut digest, &text);
    }
    if HexDigest::encode(digest.finalize().into()).to_string() != hash {
        return Err(ChainBreak { seq: expected, what: ChainFlaw::HashMismatch });
    }
    Ok(ChainHead { seq: expected, hash })
}

fn field(digest: &mut Sha256, text: &str) {
    digest.update(format!("{}:", text.len()));
    digest.update(text);
}
