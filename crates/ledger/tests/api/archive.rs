//! Chains that cannot go on: of an older format, or broken.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use ringfence_ledger::{
    AppendError, ArchivedChain, ChainFlaw, ChainHead, CheckpointAnchor, Event, Ledger, LedgerOpenError,
    LedgerSettings, PreviousChain, restart, verify,
};
use rusqlite::Connection;
use sha2::{Digest as _, Sha256};

use crate::support::{Home, append_many, battery, person};

/// A ledger as the first version wrote it, and its head.
fn format_1(path: &Path, records: u32) -> ChainHead {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
    let connection = Connection::open(path).unwrap();
    connection
        .execute_batch(
            "PRAGMA application_id = 0x52464c31; PRAGMA journal_mode = WAL;
             CREATE TABLE schema (version INTEGER NOT NULL) STRICT; INSERT INTO schema VALUES (1);
             CREATE TABLE record (seq INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL,
                 body TEXT NOT NULL, hash TEXT NOT NULL) STRICT;
             CREATE INDEX record_seq ON record (seq);",
        )
        .unwrap();
    let mut head = ChainHead { seq: 0, hash: "0".repeat(64) };
    for seq in 1..=records {
        let (time, kind) = ("2026-01-02T03:04:05.000000Z", "session-ended");
        let body = format!(r#"{{"kind":"session-ended","session":"ses_{seq}"}}"#);
        let mut bytes = format!("ringfence ledger v1\0{}", head.hash).into_bytes();
        for field in [&seq.to_string(), time, kind, &body] {
            bytes.extend(format!("{}:{field}", field.len()).bytes());
        }
        let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let values = rusqlite::params![seq, time, kind, body, hash];
        connection.execute("INSERT INTO record VALUES (?1, ?2, ?3, ?4, ?5)", values).unwrap();
        head = ChainHead { seq: seq.into(), hash };
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    // Its log stays beside it, as after a crash.
    let file = Connection::open(path).unwrap();
    file.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    head
}

fn continues(home: &Home) -> PreviousChain {
    let first = Ledger::open_read(&home.path).unwrap().beginning().unwrap();
    let Event::ChainStarted { continues, .. } = first.event else { panic!() };
    continues.unwrap()
}

fn names(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.path.parent().unwrap()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_ledger_of_format_1_is_put_aside_whole_and_continued() {
    let home = Home::new();
    let head = format_1(&home.path, 7);
    let old = verify(&home.path, Some(&head)).unwrap();
    assert_eq!((old.format, old.records, old.head.as_ref()), (1, 7, Some(&head)));
    let error = Ledger::open_read(&home.path).unwrap_err();
    assert!(matches!(error, LedgerOpenError::Older { .. }) && error.hint().is_some(), "{error}");

    append_many(&home.open(), 2);
    let new = verify(&home.path, None).unwrap();
    assert_eq!((new.format, new.records), (2, 3));
    let aside = home.path.with_file_name("ledger.v1.db");
    let continued = continues(&home);
    assert_eq!((continued.head.as_ref(), continued.problem), (Some(&head), None));
    assert_eq!(continued.file.as_path(), aside.canonicalize().unwrap());
    assert_eq!(verify(&aside, Some(&head)).unwrap(), old, "nothing of it is lost");
    append_many(&home.open(), 1);
    assert_eq!(names(&home).iter().filter(|name| name.contains("v1") && name.ends_with("db")).count(), 1);
}

#[test]
fn a_broken_ledger_of_format_1_is_not_continued_without_a_word() {
    let home = Home::new();
    format_1(&home.path, 7);
    home.sql("UPDATE record SET body = replace(body, '3', '4') WHERE seq = 3");
    let error = Ledger::open(&home.path).unwrap_err();
    assert!(matches!(&error, LedgerOpenError::Broken { problem, .. } if problem.seq == 3), "{error}");
    assert!(error.hint().unwrap().contains("restart"));
    let done = restart(&home.path, &LedgerSettings::default(), "a test", person(1)).unwrap();
    assert!(done.problem.contains("record 3"), "{}", done.problem);
    append_many(&home.open(), 1);
    assert!(verify(&done.aside, None).is_err(), "it stays as it was");
}

/// Whoever had the file open that is put aside is told to start again.
fn append_once(home: &Home) {
    while let Err(error) = home.open().append(&battery(1)).map(|receipt| receipt.seq()) {
        assert!(matches!(error, AppendError::Moved), "{error}");
    }
}

#[test]
fn it_is_converted_once_by_however_many() {
    for _ in 0..5 {
        let home = Home::new();
        format_1(&home.path, 3);
        thread::scope(|scope| {
            (0..6).for_each(|_| drop(scope.spawn(|| append_once(&home))));
        });
        assert_eq!(verify(&home.path, None).unwrap().records, 7);
        assert_eq!(names(&home).iter().filter(|name| name.starts_with("ledger.v1")).count() % 3, 0);
        assert!(home.path.with_file_name("ledger.v1.db").exists());
    }
}

fn restarted(home: &Home, reason: &str) -> ArchivedChain {
    restart(&home.path, &LedgerSettings::default(), reason, person(4)).unwrap()
}

#[test]
fn a_broken_chain_goes_on_only_after_somebody_has_said_so() {
    let home = Home::with_records(6);
    home.sql("UPDATE record SET body = replace(body, '60', '61') WHERE seq = 6");
    let found = home.broken().to_string();
    assert!(matches!(home.open().append(&battery(1)), Err(AppendError::Broken(_))));
    let before = fs::read(&home.path).unwrap();
    let done = restarted(&home, "disk error");
    assert!(done.problem.contains(&found), "{}", done.problem);
    assert_eq!(fs::read(&done.aside).unwrap(), before, "put aside, not changed");
    assert!(verify(&done.aside, None).is_err());
    let continued = continues(&home);
    assert_eq!(continued.file.as_path(), done.aside);
    assert_eq!(continued.head.map(|head| head.seq), Some(5), "as far as it holds");
    assert_eq!((continued.reason.as_deref(), continued.actor), (Some("disk error"), person(4)));
    assert!(continued.problem.unwrap().contains("record 6"));
    append_many(&home.open(), 3);
    verify(&home.path, None).unwrap();
    assert!(!names(&home).iter().any(|name| name.ends_with(".aside")), "{:?}", names(&home));
}

#[test]
fn a_valid_chain_cannot_be_restarted() {
    let home = Home::with_records(6);
    let before = names(&home);
    let error = restart(&home.path, &LedgerSettings::default(), "I want to", person(4)).unwrap_err();
    assert!(matches!(error, LedgerOpenError::Whole { .. }), "{error}");
    assert_eq!(verify(&home.path, None).unwrap().records, 6);
    assert!(before.iter().all(|name| names(&home).contains(name)));
    let nothing = Home::new();
    let error = restart(&nothing.path, &LedgerSettings::default(), "why not", person(4)).unwrap_err();
    assert!(matches!(error, LedgerOpenError::Missing { .. }), "{error}");
}

#[test]
fn every_broken_chain_can_be_restarted() {
    let wrecks: [fn(&Home); 7] = [
        |home| fs::write(&home.path, "this is not a database").unwrap(),
        |home| fs::write(&home.path, "").unwrap(),
        |home| fs::remove_file(&home.path).unwrap(),
        |home| home.sql("DROP TABLE record"),
        |home| home.sql("DELETE FROM mention"),
        |home| fs::remove_file(home.path.with_extension("key")).unwrap(),
        |home| fs::write(home.path.with_extension("key"), "not a key").unwrap(),
    ];
    for (number, wreck) in wrecks.into_iter().enumerate() {
        let home = Home::new();
        let ledger = home.open();
        append_many(&ledger, 5);
        drop(ledger.append(&crate::support::intent(&crate::support::ids())).unwrap());
        drop(ledger);
        wreck(&home);
        if number == 6 {
            // A key that is none shows when something has to be signed; until then the chain goes on.
            assert!(home.open().checkpoint().is_err());
            fs::remove_file(home.path.with_extension("key")).unwrap();
        }
        restarted(&home, "it is a wreck");
        append_many(&home.open(), 2);
        verify(&home.path, None).unwrap_or_else(|error| panic!("wreck {number}: {error}"));
        // And once more: names do not clash.
        home.sql("UPDATE record SET kind = 'x' WHERE seq = 2");
        restarted(&home, "again");
        append_many(&home.open(), 1);
    }
}

/// Whoever had it open notices, and writes nothing to what was put aside.
#[test]
fn nobody_appends_to_what_was_put_aside() {
    let home = Home::with_records(4);
    let early = home.open();
    append_many(&early, 1);
    home.sql("UPDATE record SET kind = 'x' WHERE seq = 2");
    let done = restarted(&home, "a test");
    let before = fs::read(&done.aside).unwrap();
    let error = early.append(&battery(1)).unwrap_err();
    assert!(matches!(error, AppendError::Moved), "{error}");
    assert_eq!(fs::read(&done.aside).unwrap(), before);
}

fn note_down(home: &Home, marker: &serde_json::Value, mode: u32) {
    let path = home.path.with_extension("aside");
    fs::write(&path, marker.to_string()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_only_somebody_else_can_have_written_is_not_done() {
    let home = Home::with_records(4);
    let directory = home.path.canonicalize().unwrap().parent().unwrap().to_owned();
    let marker = |to: PathBuf| {
        let continued = serde_json::json!({
            "file": to, "head": null, "problem": "p", "actor": person(1), "reason": "r",
        });
        serde_json::json!({ "to": to, "continued": continued })
    };
    let good = directory.join("ledger.broken-2.db");
    let bad = ["sub/ledger.v1.db", "../ledger.v1.db", "./../x/ledger.v1.db", "ledger.key", "ledger.v1-01.db"];
    let mut cases: Vec<_> = bad.iter().map(|to| (directory.join(to), 0o600)).collect();
    cases.push((good.clone(), 0o644));
    let before = verify(&home.path, None).unwrap();
    for (to, mode) in cases {
        note_down(&home, &marker(to.clone()), mode);
        let error = Ledger::open(&home.path).unwrap_err();
        assert!(matches!(error, LedgerOpenError::StrangeMarker { .. }), "{to:?}: {error}");
        assert!(error.to_string().contains("ledger.aside"), "{error}");
        assert_eq!(verify(&home.path, None).unwrap(), before);
    }
    note_down(&home, &marker(good.clone()), 0o600);
    drop(home.open());
    assert!(good.exists(), "control: what we write is done");
}

/// Cut off after each of its steps, it is finished by whoever comes next.
#[test]
fn putting_aside_survives_a_crash_at_every_step() {
    for steps in 0..=4_usize {
        let home = Home::with_records(4);
        drop(home.open());
        home.sql("PRAGMA wal_autocheckpoint = 0; UPDATE record SET kind = 'x' WHERE seq = 4");
        let to = home.path.canonicalize().unwrap().with_file_name("ledger.broken.db");
        let head: Option<ChainHead> = None;
        let marker = serde_json::json!({
            "to": to,
            "continued": { "file": to, "head": head, "problem": "p", "actor": person(1), "reason": "r" },
        });
        if steps > 0 {
            note_down(&home, &marker, 0o600);
        }
        for part in ["", "-wal", "-shm"].into_iter().take(steps.saturating_sub(1)) {
            let with = |path: &Path| PathBuf::from(format!("{}{part}", path.display()));
            if with(&home.path).exists() {
                fs::rename(with(&home.path), with(&to)).unwrap();
            }
        }
        if steps == 0 {
            assert!(home.open().append(&battery(1)).is_err(), "control: nobody has said anything");
            continue;
        }
        append_many(&home.open(), 1);
        assert_eq!(verify(&home.path, None).unwrap().records, 2, "step {steps}");
        assert_eq!(continues(&home).problem.as_deref(), Some("p"));
        assert!(to.exists() && verify(&to, None).is_err());
        assert!(!home.path.with_extension("aside").exists());
        append_many(&home.open(), 1);
    }
}

#[test]
fn a_chain_that_was_begun_anew_is_anchored_at_once() {
    let home = Home::with_records(4);
    let file = home.directory.path().join("anchor");
    let settings =
        LedgerSettings { anchor: Some(CheckpointAnchor::File(file.clone())), ..LedgerSettings::default() };
    Ledger::open_with(&home.path, settings.clone()).unwrap().checkpoint().unwrap();
    home.sql("DELETE FROM record WHERE seq >= 3");
    let broken = Ledger::open_with(&home.path, settings.clone()).unwrap().broken().unwrap();
    assert!(matches!(broken.what, ChainFlaw::RolledBack { .. } | ChainFlaw::Index { .. }), "{broken}");
    restart(&home.path, &settings, "cut", person(1)).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2);
    append_many(&Ledger::open_with(&home.path, settings).unwrap(), 1);
}
