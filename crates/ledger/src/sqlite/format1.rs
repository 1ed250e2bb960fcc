//! The first format: one table, bodies in the chain. It is only read: to find its head when it is put aside, and to verify
//! what was put aside.

use rusqlite::Connection;
use sha2::{Digest as _, Sha256};

use crate::chain::{Break, Flaw, GENESIS, Head, Hex};
use crate::sqlite::rows::of_sqlite;
use crate::store::StoreError;

const DOMAIN: &[u8] = b"ringfence ledger v1\0";

/// Walks the whole chain; with `expected`, a head from earlier, that record must still be in it.
pub(crate) fn walk(
    connection: &Connection,
    expected: Option<&Head>,
) -> Result<Result<Option<Head>, Break>, StoreError> {
    let mut head: Option<Head> = None;
    let walked = || -> rusqlite::Result<Result<(), Break>> {
        let mut statement =
            connection.prepare("SELECT seq, time, kind, body, hash FROM record ORDER BY seq")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            match step(row, head.as_ref()) {
                Ok(next) if is_other(&next, expected) => {
                    return Ok(Err(Break { seq: next.seq, what: Flaw::Rewritten }));
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
        Some(expected) => Err(Break { seq: last + 1, what: Flaw::Truncated { expected: expected.seq } }),
        None => Ok(head),
    })
}

fn is_other(head: &Head, expected: Option<&Head>) -> bool {
    expected.is_some_and(|expected| expected.seq == head.seq && expected != head)
}

fn step(row: &rusqlite::Row<'_>, previous: Option<&Head>) -> Result<Head, Break> {
    let expected = previous.map_or(1, |head| head.seq + 1);
    let malformed =
        |error: rusqlite::Error| Break { seq: expected, what: Flaw::Malformed { reason: error.to_string() } };
    let seq: i64 = row.get(0).map_err(malformed)?;
    let hash: String = row.get(4).map_err(malformed)?;
    if u64::try_from(seq) != Ok(expected) {
        return Err(Break { seq: expected, what: Flaw::Gap { found: u64::try_from(seq).unwrap_or(0) } });
    }
    let mut digest = Sha256::new();
    digest.update(DOMAIN);
    digest.update(previous.map_or(GENESIS, |head| &head.hash));
    field(&mut digest, &seq.to_string());
    for at in 1..=3 {
        let text: String = row.get(at).map_err(malformed)?;
        field(&mut digest, &text);
    }
    if Hex::encode(digest.finalize().into()).to_string() != hash {
        return Err(Break { seq: expected, what: Flaw::HashMismatch });
    }
    Ok(Head { seq: expected, hash })
}

fn field(digest: &mut Sha256, text: &str) {
    digest.update(format!("{}:", text.len()));
    digest.update(text);
}
