//! A long ledger in which every edit is found, and where it is.

use std::fs;

use ringfence_ledger::{
    ApprovalAnswer, ChainBreak, ChainFlaw, Event, ExpectedHead, Ledger, VerifyError, verify, verify_with,
};
use rusqlite::{Connection, params};
use sha2::{Digest as _, Sha256};

use crate::support::{Home, answered, asked, battery, ids, intent, refused, settled};

const RECORDS: u64 = 50_000;

/// A ledger with transactions, questions and denials, and its database as one file.
fn long() -> (Home, Vec<u8>) {
    let home = Home::new();
    let ledger = home.open();
    let mut events: Vec<Event> = Vec::new();
    for number in 0..u32::try_from(RECORDS).unwrap() / 8 {
        let (one, two) = (ids(), ids());
        events.extend([intent(&one), battery(number), settled(&one)]);
        events.extend([asked(&two), answered(&two, ApprovalAnswer::Deny), refused(Some(&two.transaction))]);
        events.extend([battery(number), battery(number)]);
    }
    for part in events.chunks(2000) {
        drop(ledger.append_all(part).unwrap());
    }
    ledger.checkpoint().unwrap();
    drop(ledger);
    home.sql("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE");
    let bytes = fs::read(&home.path).unwrap();
    (home, bytes)
}

/// The number of the first record of this kind after `from`.
fn first_of(connection: &Connection, kind: &str, from: u64) -> u64 {
    let sql = "SELECT min(seq) FROM record WHERE kind = ?1 AND seq > ?2";
    let seq: i64 =
        connection.query_row(sql, params![kind, i64::try_from(from).unwrap()], |row| row.get(0)).unwrap();
    u64::try_from(seq).unwrap()
}

/// Makes every hash from `seq` on right again: what somebody can do who knows the format and has no key.
fn rehash(connection: &Connection, seq: u64) {
    connection.execute_batch("BEGIN").unwrap();
    let mut previous: String = connection
        .query_row("SELECT hash FROM record WHERE seq = ?1", [i64::try_from(seq - 1).unwrap()], |row| {
            row.get(0)
        })
        .unwrap();
    let mut statement = connection
        .prepare("SELECT seq, time, kind, ids, digest FROM record WHERE seq >= ?1 ORDER BY seq")
        .unwrap();
    let rows: Vec<(i64, [String; 4])> = statement
        .query_map([i64::try_from(seq).unwrap()], |row| {
            Ok((row.get(0)?, [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for (seq, fields) in rows {
        let mut hash = Sha256::new();
        hash.update(b"ringfence ledger v2\0");
        hash.update(&previous);
        for field in std::iter::once(&seq.to_string()).chain(&fields) {
            hash.update(format!("{}:{field}", field.len()));
        }
        previous = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        connection.execute("UPDATE record SET hash = ?1 WHERE seq = ?2", params![previous, seq]).unwrap();
    }
    connection.execute_batch("COMMIT").unwrap();
}

#[test]
fn every_edit_of_a_long_ledger_is_found_and_located() {
    let (home, whole) = long();
    let truth = verify(&home.path, None).unwrap();
    assert!(truth.records >= RECORDS && truth.checkpoints >= 20, "{truth:?}");
    let checkpoint = Ledger::open_read(&home.path).unwrap().newest_checkpoint().unwrap().unwrap().checkpoint;
    let head = truth.head.clone().unwrap();
    let connection = Connection::open(&home.path).unwrap();
    let battery = first_of(&connection, "battery-finished", 25_000);
    let denial = first_of(&connection, "approval-decided", 40_000);
    let end = truth.records;
    drop(connection);
    let edits = [
        (format!("UPDATE record SET body = replace(body, '60', '61') WHERE seq = {battery}"), battery, ChainFlaw::BodyMismatch),
        (format!("UPDATE record SET time = '2020-01-01T00:00:00.000000Z' WHERE seq = {battery}"), battery, ChainFlaw::HashMismatch),
        (format!("UPDATE record SET kind = 'call-settled' WHERE seq = {battery}"), battery, ChainFlaw::HashMismatch),
        (format!("DELETE FROM record WHERE seq = {denial}"), denial, ChainFlaw::Gap { found: denial + 1 }),
        (
            format!("DELETE FROM record WHERE seq = {denial}; UPDATE record SET seq = seq - 1 WHERE seq > {denial}"),
            denial,
            ChainFlaw::HashMismatch,
        ),
        (
            format!(
                "UPDATE record SET seq = -1 WHERE seq = {battery}; UPDATE record SET seq = {battery} WHERE seq = {denial};
                 UPDATE record SET seq = {denial} WHERE seq = -1"
            ),
            battery,
            ChainFlaw::HashMismatch,
        ),
        (format!("UPDATE record SET body = NULL WHERE seq = {denial}"), denial, ChainFlaw::BodyGone),
        (
            format!("INSERT INTO record SELECT {end} + 1, time, kind, ids, digest, hash, body FROM record WHERE seq = {end}"),
            end + 1,
            ChainFlaw::HashMismatch,
        ),
        ("DELETE FROM claim WHERE seq = 30005 OR seq = 30006 OR seq = 30007 OR seq = 30008".to_owned(), end, ChainFlaw::Index { table: "claim".to_owned() }),
        (format!("DELETE FROM mention WHERE seq = {denial}"), end, ChainFlaw::Index { table: "mention".to_owned() }),
        ("INSERT INTO open VALUES ('tx_x', 5)".to_owned(), end, ChainFlaw::Index { table: "open".to_owned() }),
    ];
    for (sql, seq, what) in edits {
        fs::write(&home.path, &whole).unwrap();
        home.sql(&sql);
        assert_eq!(home.broken(), ChainBreak { seq, what }, "{sql}");
    }
    // A denial is dropped and the chain made right again: the signature of the next checkpoint is not.
    fs::write(&home.path, &whole).unwrap();
    let connection = Connection::open(&home.path).unwrap();
    let next = first_of(&connection, "checkpoint-signed", denial);
    connection
        .execute_batch(&format!(
            "DELETE FROM record WHERE seq = {denial}; UPDATE record SET seq = seq - 1 WHERE seq > {denial}"
        ))
        .unwrap();
    rehash(&connection, denial);
    drop(connection);
    let broken = home.broken();
    // Either what the denial was about has no answer now, or the checkpoint does not hold.
    assert!(broken.seq >= denial && broken.seq < next, "{broken}");
    assert!(matches!(broken.what, ChainFlaw::Checkpoint { .. }), "{broken}");
    // Everything after some record is cut off: seen by who knows the head or a checkpoint.
    fs::write(&home.path, &whole).unwrap();
    home.sql(
        "DELETE FROM record WHERE seq > 40001; DELETE FROM mention WHERE seq > 40001; DELETE FROM claim WHERE seq > 40001;
         DELETE FROM open",
    );
    let cut = |expected| verify_with(&home.path, expected, &mut |_| {}).unwrap_err();
    let with_head = cut(ExpectedHead { head: Some(&head), ..ExpectedHead::default() });
    let with_checkpoint = cut(ExpectedHead { checkpoint: Some(&checkpoint), ..ExpectedHead::default() });
    for error in [with_head, with_checkpoint] {
        assert!(matches!(&error, VerifyError::Broken(_)), "{error}");
    }
    fs::write(&home.path, &whole).unwrap();
    assert_eq!(verify(&home.path, Some(&head)).unwrap(), truth, "control: untouched it still holds");
}
