use std::collections::BTreeSet;
use std::fs;

use ringfence_ledger::{AppendError, ChainBreak, ChainFlaw, ChainHead, VerifyError, verify};

use crate::support::{Home, append_many, battery, ids, intent, settled};

/// The control of every test here: five untouched records verify.
fn five() -> (Home, ChainHead) {
    let home = Home::with_records(5);
    let verification = verify(&home.path, None).unwrap();
    assert_eq!(verification.records, 5);
    (home, verification.head.unwrap())
}

/// D4: whatever is edited, taken out or put elsewhere.
#[test]
fn edits_are_found_where_they_are() {
    let mismatch = ChainFlaw::HashMismatch;
    let swap = "UPDATE record SET seq = -1 WHERE seq = 2; UPDATE record SET seq = 2 WHERE seq = 4;
                UPDATE record SET seq = 4 WHERE seq = -1";
    let insert = "UPDATE record SET seq = -seq WHERE seq >= 3; UPDATE record SET seq = 1 - seq WHERE seq < 0;
                  INSERT INTO record SELECT 3, time, kind, ids, digest, hash, body FROM record WHERE seq = 2";
    let edits = [
        ("UPDATE record SET body = replace(body, '60', '61') WHERE seq = 3", 3, ChainFlaw::BodyMismatch),
        ("UPDATE record SET body = NULL WHERE seq = 3", 3, ChainFlaw::BodyGone),
        ("UPDATE record SET body = NULL WHERE seq = 1", 1, ChainFlaw::BodyGone),
        ("UPDATE record SET digest = upper(digest) WHERE seq = 3", 3, mismatch.clone()),
        ("UPDATE record SET ids = 'tx_1' WHERE seq = 3", 3, mismatch.clone()),
        ("UPDATE record SET time = '2020-01-01T00:00:00.000000Z' WHERE seq = 1", 1, mismatch.clone()),
        ("UPDATE record SET kind = 'call-intended' WHERE seq = 2", 2, mismatch.clone()),
        (
            "UPDATE record SET hash = replace(hash, substr(hash, 1, 1), 'x') WHERE seq = 4",
            4,
            mismatch.clone(),
        ),
        ("UPDATE record SET hash = upper(hash) WHERE seq = 5", 5, mismatch.clone()),
        ("DELETE FROM record WHERE seq = 3", 3, ChainFlaw::Gap { found: 4 }),
        ("DELETE FROM record WHERE seq = 1", 1, ChainFlaw::Gap { found: 2 }),
        (swap, 2, mismatch.clone()),
        (insert, 3, mismatch.clone()),
        (
            "INSERT INTO record SELECT 6, time, kind, ids, digest, hash, body FROM record WHERE seq = 5",
            6,
            mismatch.clone(),
        ),
        (
            "INSERT INTO record SELECT 9, time, kind, ids, digest, hash, body FROM record WHERE seq = 5",
            6,
            ChainFlaw::Gap { found: 9 },
        ),
    ];
    for (sql, seq, what) in edits {
        let (home, _) = five();
        home.sql(sql);
        assert_eq!(home.broken(), ChainBreak { seq, what }, "{sql}");
    }
}

/// Every table and every column of the file. A column that is added without a mutation here makes this fail.
#[test]
fn every_column_is_held_by_the_chain() {
    let columns = [
        ("schema", "version", "UPDATE schema SET version = 99"),
        ("record", "seq", "UPDATE record SET seq = 99 WHERE seq = 3"),
        ("record", "time", "UPDATE record SET time = '2020-01-01T00:00:00.000000Z' WHERE seq = 3"),
        ("record", "kind", "UPDATE record SET kind = 'call-settled' WHERE seq = 3"),
        ("record", "ids", "UPDATE record SET ids = 'tx_1' WHERE seq = 3"),
        ("record", "digest", "UPDATE record SET digest = upper(digest) WHERE seq = 3"),
        ("record", "hash", "UPDATE record SET hash = upper(hash) WHERE seq = 3"),
        ("record", "body", "UPDATE record SET body = body || ' ' WHERE seq = 3"),
        ("record", "body", "UPDATE record SET body = NULL WHERE seq = 3"),
        ("mention", "id", "UPDATE mention SET id = id || 'x'"),
        ("mention", "seq", "UPDATE mention SET seq = seq + 100"),
        ("claim", "key", "UPDATE claim SET key = key || 'x'"),
        ("claim", "seq", "UPDATE claim SET seq = seq + 1"),
        ("open", "id", "UPDATE open SET id = id || 'x'"),
        ("open", "seq", "UPDATE open SET seq = seq + 1"),
    ];
    let rows = [
        ("record", "", "DELETE FROM record WHERE seq = 3"),
        ("mention", "", "DELETE FROM mention"),
        ("claim", "", "DELETE FROM claim"),
        ("open", "", "DELETE FROM open"),
        ("mention", "", "INSERT INTO mention VALUES ('tx_1', 3)"),
        ("claim", "", "INSERT INTO claim VALUES ('decided tx_1', 3)"),
        ("open", "", "INSERT INTO open VALUES ('tx_1', 3)"),
    ];
    for (table, column, sql) in columns.iter().chain(&rows) {
        let home = Home::with_records(2);
        let (ledger, over) = (home.open(), ids());
        for event in [intent(&over), settled(&over), intent(&ids())] {
            ledger.append(&event).map(drop).unwrap();
        }
        drop(ledger);
        verify(&home.path, None).unwrap();
        home.sql(sql);
        assert!(verify(&home.path, None).is_err(), "{table} {column}: {sql}");
    }
    let home = Home::with_records(1);
    let connection = rusqlite::Connection::open(&home.path).unwrap();
    let sql = "SELECT t.name || ' ' || c.name FROM sqlite_schema t, pragma_table_info(t.name) c
        WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'";
    let mut statement = connection.prepare(sql).unwrap();
    let found: rusqlite::Result<BTreeSet<String>> =
        statement.query_map([], |row| row.get(0)).unwrap().collect();
    let tried = columns.iter().map(|(table, column, _)| format!("{table} {column}")).collect();
    assert_eq!(found.unwrap(), tried);
}

#[test]
fn rows_of_other_types_are_malformed() {
    let (home, _) = five();
    home.sql(
        "CREATE TABLE loose (seq INTEGER PRIMARY KEY, time, kind, ids, digest, hash, body);
         INSERT INTO loose SELECT * FROM record; UPDATE loose SET body = 7 WHERE seq = 2;
         DROP TABLE record; ALTER TABLE loose RENAME TO record",
    );
    let broken = home.broken();
    assert!(broken.seq == 2 && matches!(broken.what, ChainFlaw::Malformed { .. }), "{broken}");
}

#[test]
fn a_negative_number_is_malformed() {
    let (home, _) = five();
    home.sql("INSERT INTO record SELECT -7, time, kind, ids, digest, hash, body FROM record WHERE seq = 5");
    let broken = home.broken();
    assert!(broken.seq == 1 && matches!(broken.what, ChainFlaw::Malformed { .. }), "{broken}");
}

#[test]
fn a_cut_end_is_seen_by_who_knows_the_head() {
    let (home, head) = five();
    home.sql("DELETE FROM record WHERE seq = 5");
    assert_eq!(verify(&home.path, None).unwrap().records, 4, "without an anchor nothing can be seen");
    let VerifyError::Broken(broken) = verify(&home.path, Some(&head)).unwrap_err() else { panic!() };
    assert_eq!(broken, ChainBreak { seq: 5, what: ChainFlaw::Truncated { expected: 5 } });
}

#[test]
fn a_chain_written_anew_is_seen_by_who_knows_the_head() {
    let (home, head) = five();
    home.sql("DELETE FROM record WHERE seq >= 4");
    append_many(&home.open(), 3);
    assert_eq!(verify(&home.path, None).unwrap().records, 6);
    let VerifyError::Broken(broken) = verify(&home.path, Some(&head)).unwrap_err() else { panic!() };
    assert_eq!(broken, ChainBreak { seq: 5, what: ChainFlaw::Rewritten });
}

#[test]
fn an_old_head_is_enough() {
    let (home, head) = five();
    append_many(&home.open(), 3);
    assert_eq!(verify(&home.path, Some(&head)).unwrap().records, 8);
}

/// C-29: a corrupt chain takes no further records, and so nothing may be done.
#[test]
fn nothing_is_appended_to_a_broken_end() {
    for sql in [
        "UPDATE record SET body = replace(body, '60', '61') WHERE seq = 5",
        "UPDATE record SET hash = 'x' WHERE seq = 5",
        "UPDATE record SET hash = 'x' WHERE seq = 4",
        "DELETE FROM record WHERE seq = 4",
        "DELETE FROM record WHERE seq = 2",
        "DELETE FROM record WHERE seq = 1",
        "INSERT INTO record SELECT 0, time, kind, ids, digest, hash, body FROM record WHERE seq = 5",
    ] {
        let (home, _) = five();
        home.sql(sql);
        let error = home.open().append(&battery(0)).unwrap_err();
        assert!(matches!(error, AppendError::Broken(_)), "{sql}: {error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn nothing_is_appended_after_the_end_changed_under_us() {
    for (sql, what) in [
        ("DELETE FROM record WHERE seq = 5", ChainFlaw::Truncated { expected: 5 }),
        ("DELETE FROM record", ChainFlaw::Truncated { expected: 5 }),
        ("UPDATE record SET body = '{}' WHERE seq = 5", ChainFlaw::BodyMismatch),
    ] {
        let (home, _) = five();
        let ledger = home.open();
        home.sql(sql);
        let AppendError::Broken(broken) = ledger.append(&battery(0)).unwrap_err() else { panic!("{sql}") };
        assert_eq!(broken.what, what, "{sql}");
        assert!(matches!(ledger.append(&battery(0)), Err(AppendError::Broken(_))), "{sql}: stays refused");
    }
}

#[test]
fn nothing_is_appended_after_the_end_was_rewritten_under_us() {
    let (home, _) = five();
    let ledger = home.open();
    home.sql("DELETE FROM record WHERE seq >= 4");
    append_many(&home.open(), 4);
    let AppendError::Broken(broken) = ledger.append(&battery(0)).unwrap_err() else { panic!() };
    assert_eq!(broken, ChainBreak { seq: 5, what: ChainFlaw::Rewritten });
}

#[test]
fn a_planted_trigger_does_nothing() {
    let (home, _) = five();
    home.sql("CREATE TRIGGER quiet AFTER INSERT ON record BEGIN DELETE FROM record WHERE seq = new.seq; END");
    home.sql("INSERT INTO record SELECT 6, time, kind, ids, digest, hash, body FROM record WHERE seq = 5");
    assert_eq!(verify(&home.path, None).unwrap().records, 5, "control: it works for others");
    append_many(&home.open(), 1);
    assert_eq!(verify(&home.path, None).unwrap().records, 6);
}

/// Any damage to the file's bytes is an answer, never a panic and never a different history.
#[test]
fn damaged_files_are_located_errors() {
    let home = Home::with_records(200);
    home.sql("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE");
    let whole = fs::read(&home.path).unwrap();
    let truth = verify(&home.path, None).unwrap();
    let copy = home.directory.path().join("copy.db");
    for length in (0..whole.len()).step_by(1777) {
        fs::write(&copy, &whole[..length]).unwrap();
        let error = verify(&copy, None).unwrap_err();
        assert!(!error.to_string().is_empty());
    }
    let mut found = 0;
    for at in (0..whole.len()).step_by(101) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(&copy, &bytes).unwrap();
        match verify(&copy, None) {
            Ok(verification) => assert_eq!(verification, truth, "byte {at}"),
            Err(_) => found += 1,
        }
    }
    assert!(found > whole.len() / 101 / 2, "most bytes are records: {found}");
}
