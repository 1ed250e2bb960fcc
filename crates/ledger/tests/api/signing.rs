use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_ledger::{
    AnchorError, AnchorLine, AppendError, ChainFlaw, Checkpoint, CheckpointAnchor, Event, ExpectedHead,
    InclusionProof, Kind, Ledger, LedgerReadError, LedgerSettings, ProofError, VerifyError, verify,
    verify_key, verify_with,
};

use crate::support::{Home, append_many, battery, ids, intent, person, settled};

fn checkpoints(home: &Home) -> Vec<(u64, Checkpoint)> {
    let records = Ledger::open_read(&home.path).unwrap().of_kinds(&[Kind::CheckpointSigned], 1000).unwrap();
    let pair = |record: ringfence_ledger::Record| match record.event {
        Event::CheckpointSigned(checkpoint) => (record.seq, checkpoint),
        other => panic!("{other:?}"),
    };
    records.into_iter().map(pair).collect()
}

fn check(home: &Home, expected: ExpectedHead<'_>) -> Result<(), VerifyError> {
    verify_with(&home.path, expected, &mut |_| {}).map(drop)
}

#[test]
fn everything_is_covered_by_a_signed_checkpoint_once() {
    let home = Home::with_records(10);
    let ledger = home.open();
    let first = ledger.checkpoint().unwrap().unwrap();
    assert_eq!((first.seq, first.checkpoint.first, first.checkpoint.last), (11, 1, 10));
    assert_eq!(ledger.checkpoint().unwrap().unwrap(), first, "there is nothing new to sign");
    append_many(&ledger, 5);
    let second = ledger.checkpoint().unwrap().unwrap();
    assert_eq!((second.seq, second.checkpoint.first, second.checkpoint.last), (17, 11, 16));
    assert!(first.checkpoint.is_signed() && second.checkpoint.is_signed());
    let verification = verify(&home.path, None).unwrap();
    assert_eq!((verification.records, verification.checkpoints, verification.signed), (17, 2, 16));
    assert_eq!(verification.keys, [first.checkpoint.key]);
}

#[test]
fn many_records_are_signed_with_the_append_that_makes_it_due() {
    let home = Home::new();
    let ledger = home.open();
    let events: Vec<Event> = (0..700).map(battery).collect();
    drop(ledger.append_all(&events).unwrap());
    assert!(checkpoints(&home).is_empty());
    drop(ledger.append_all(&events).unwrap());
    let made = checkpoints(&home);
    assert_eq!(made.len(), 1);
    assert_eq!((made[0].0, made[0].1.last), (1402, 1401));
}

#[test]
fn what_a_process_leaves_is_signed_if_it_is_much() {
    let home = Home::new();
    append_many(&home.open(), 40);
    assert!(checkpoints(&home).is_empty());
    append_many(&home.open(), 40);
    assert_eq!(checkpoints(&home).iter().map(|(_, checkpoint)| checkpoint.last).collect::<Vec<_>>(), [81]);
    drop(home.open());
    assert_eq!(checkpoints(&home).len(), 1, "whoever writes nothing signs nothing");
}

#[test]
fn old_records_are_signed_with_the_next_append() {
    for time in ["2020-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"] {
        let home = Home::with_records(1);
        rewrite_at(&home, 1, Some(time), |body| body);
        append_many(&home.open(), 1);
        assert_eq!(checkpoints(&home).iter().map(|(_, made)| made.last).collect::<Vec<_>>(), [2], "{time}");
        append_many(&home.open(), 1);
        assert_eq!(checkpoints(&home).len(), 1, "and now it is not old any more");
        verify(&home.path, None).unwrap();
    }
}

#[test]
fn a_checkpoint_shows_a_cut_a_rewrite_and_another_chain() {
    let home = Home::with_records(8);
    let kept = home.open().checkpoint().unwrap().unwrap().checkpoint;
    append_many(&home.open(), 3);
    let expected = ExpectedHead { checkpoint: Some(&kept), ..ExpectedHead::default() };
    check(&home, expected).unwrap();

    let mut forged = kept.clone();
    forged.last = 4;
    let with_forged = ExpectedHead { checkpoint: Some(&forged), ..ExpectedHead::default() };
    assert!(check(&home, with_forged).is_err());
    let other = Home::with_records(20);
    assert!(check(&other, expected).is_err());

    home.sql("DELETE FROM record WHERE seq >= 6");
    let VerifyError::Broken(broken) = check(&home, expected).unwrap_err() else { panic!() };
    assert_eq!((broken.seq, broken.what), (6, ChainFlaw::Truncated { expected: 8 }));
}

#[test]
fn the_expected_key_must_have_signed() {
    let home = Home::with_records(3);
    let key = home.open().checkpoint().unwrap().unwrap().checkpoint.key;
    let expected = |key| ExpectedHead { key: Some(key), ..ExpectedHead::default() };
    check(&home, expected(&key)).unwrap();
    let upper = key.to_uppercase();
    check(&home, expected(&upper)).unwrap();
    let other = Home::with_records(3);
    assert!(matches!(check(&other, expected(&key)), Err(VerifyError::OtherKey)));
    let unsigned = verify(&other.path, None).unwrap().keys.remove(0);
    assert!(
        matches!(check(&other, expected(&unsigned)), Err(VerifyError::OtherKey)),
        "it has signed nothing yet"
    );
}

#[test]
fn a_checkpoint_that_does_not_hold_is_found() {
    // Whoever can compute hashes but has no key: rewrite the body of a checkpoint and the chain after it.
    for (from, to, part) in [
        ("\"first\":1", "\"first\":2", "cover"),
        ("\"root\":\"", "\"root\":\"0", "root"),
        ("\"signature\":\"", "\"signature\":\"0", "signature"),
        ("\"chain\":\"ch_", "\"chain\":\"ch_0", "another chain"),
        ("\"key\":\"", "\"key\":\"0", "another key"),
        ("\"head\":\"", "\"head\":\"0", "another hash"),
    ] {
        let home = Home::with_records(5);
        home.open().checkpoint().unwrap();
        rewrite(&home, 6, |body| body.replacen(from, to, 1));
        let broken = home.broken();
        let ChainFlaw::Checkpoint { why } = &broken.what else { panic!("{from}: {broken}") };
        assert!(broken.seq == 6 && why.contains(part), "{from}: {broken}");
    }
}

/// Changes one body and makes its row and the chain right again, as somebody without the key could.
fn rewrite(home: &Home, seq: u64, change: impl Fn(String) -> String) {
    rewrite_at(home, seq, None, change);
}

fn rewrite_at(home: &Home, seq: u64, time: Option<&str>, change: impl Fn(String) -> String) {
    use sha2::{Digest as _, Sha256};
    let hex =
        |bytes: &[u8]| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let connection = rusqlite::Connection::open(&home.path).unwrap();
    let get = |sql: &str, seq: u64| -> String {
        connection.query_row(sql, [i64::try_from(seq).unwrap()], |row| row.get(0)).unwrap()
    };
    let body = change(get("SELECT body FROM record WHERE seq = ?1", seq));
    let digest = hex(body.as_bytes());
    let [time_before, kind, ids] = ["time", "kind", "ids"]
        .map(|column| get(&format!("SELECT {column} FROM record WHERE seq = ?1"), seq));
    let time = time.map_or(time_before, str::to_owned);
    let previous =
        if seq == 1 { "0".repeat(64) } else { get("SELECT hash FROM record WHERE seq = ?1", seq - 1) };
    let mut bytes = b"ringfence ledger v2\0".to_vec();
    bytes.extend(previous.bytes());
    for field in [seq.to_string(), time.clone(), kind, ids, digest.clone()] {
        bytes.extend(format!("{}:{field}", field.len()).bytes());
    }
    let parameters = rusqlite::params![body, digest, hex(&bytes), time, i64::try_from(seq).unwrap()];
    let sql = "UPDATE record SET body = ?1, digest = ?2, hash = ?3, time = ?4 WHERE seq = ?5";
    connection.execute(sql, parameters).unwrap();
}

#[test]
fn a_key_hands_over_to_the_next_one() {
    let home = Home::with_records(5);
    let ledger = home.open();
    let old = verify(&home.path, None).unwrap().keys.remove(0);
    let before = fs::read(home.path.with_extension("key")).unwrap();
    let new = ledger.rotate_key().unwrap();
    assert_ne!(fs::read(home.path.with_extension("key")).unwrap(), before);
    assert!(!home.path.with_extension("key.next").exists(), "no other key is left");
    assert_eq!(fs::read_dir(home.path.parent().unwrap()).unwrap().count(), 5, "and beside it only the lock");
    append_many(&ledger, 3);
    ledger.checkpoint().unwrap();
    let verification = verify(&home.path, None).unwrap();
    assert_eq!(verification.keys, [old.clone(), new.clone()]);
    let made = checkpoints(&home);
    assert_eq!(made.iter().map(|(_, checkpoint)| &checkpoint.key).collect::<Vec<_>>(), [&old, &new]);
    for key in [&old, &new] {
        check(&home, ExpectedHead { key: Some(key), ..ExpectedHead::default() }).unwrap();
    }
    // Another process that had the ledger open with the old key goes on with the new one.
    let third = home.open();
    ledger.rotate_key().unwrap();
    append_many(&third, 1);
    third.checkpoint().unwrap();
    assert_eq!(verify(&home.path, None).unwrap().keys.len(), 3);
}

/// A rotation that was cut off has left the key that the chain names under its next name: the next rotation starts from it.
#[test]
fn a_rotation_does_not_overwrite_the_key_that_the_chain_names() {
    let home = Home::with_records(3);
    let (key, next) = (home.path.with_extension("key"), home.path.with_extension("key.next"));
    let before = fs::read(&key).unwrap();
    let ledger = home.open();
    ledger.rotate_key().unwrap();
    fs::rename(&key, &next).unwrap();
    fs::write(&key, &before).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    ledger.rotate_key().unwrap();
    append_many(&home.open(), 1);
    home.open().checkpoint().unwrap();
    assert_eq!(verify(&home.path, None).unwrap().keys.len(), 3);
    // What a rotation has left that never was written is no key of the chain, and does not become one.
    let stray = Home::with_records(1);
    fs::copy(stray.path.with_extension("key"), &next).unwrap();
    let held = fs::read(&key).unwrap();
    append_many(&home.open(), 1);
    home.open().checkpoint().unwrap();
    assert_eq!(fs::read(&key).unwrap(), held);
}

#[test]
fn a_hand_over_that_was_not_signed_is_found() {
    for field in ["by_old", "by_new"] {
        let home = Home::with_records(3);
        home.open().rotate_key().unwrap();
        let seq = verify(&home.path, None).unwrap().records;
        rewrite(&home, seq, |body| body.replacen(&format!("\"{field}\":\""), &format!("\"{field}\":\"0"), 1));
        let broken = home.broken();
        assert!(broken.seq == seq && matches!(broken.what, ChainFlaw::KeyChange { .. }), "{broken}");
    }
}

#[test]
fn without_its_key_a_chain_does_not_go_on() {
    let home = Home::with_records(3);
    let key = home.path.with_extension("key");
    let secret = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    let error = home.open().append(&battery(0)).unwrap_err();
    assert!(
        matches!(&error, AppendError::Broken(broken) if matches!(broken.what, ChainFlaw::Key { .. })),
        "{error}"
    );
    // The key of another chain, and what is no key, are noticed at the start.
    let other = Home::with_records(1);
    let others = fs::read(other.path.with_extension("key")).unwrap();
    for wrong in [others.as_slice(), b"not a key\n"] {
        fs::write(&key, wrong).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let broken = home.open().broken();
        assert!(
            matches!(&broken, Some(broken) if matches!(broken.what, ChainFlaw::Key { .. })),
            "{broken:?}"
        );
        assert!(matches!(home.open().append(&battery(0)), Err(AppendError::Broken(_))));
    }
    fs::write(&key, &secret).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(home.open().checkpoint(), Err(AppendError::Key(_))));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    home.open().checkpoint().unwrap();
    verify(&home.path, None).unwrap();
}

/// A process that has the ledger open reads the key again before it signs.
/// Every append is refused then, so `verify` must not say that all is well.
#[test]
fn a_lost_key_is_found_though_the_chain_is_whole() {
    let home = Home::with_records(3);
    home.open().checkpoint().unwrap();
    assert!(verify_key(&home.path).is_ok(), "control");
    let key = home.path.with_extension("key");
    let kept = fs::read(&key).unwrap();
    let is_lost = || {
        let found = verify_key(&home.path);
        matches!(found, Err(VerifyError::Broken(broken)) if matches!(broken.what, ChainFlaw::Key { .. }))
    };
    fs::remove_file(&key).unwrap();
    assert!(is_lost());
    let mut random = kept.clone();
    random[0] = if random[0] == b'0' { b'1' } else { b'0' };
    fs::write(&key, &random).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(is_lost(), "another key");
    fs::write(&key, "no key").unwrap();
    assert!(is_lost());
    verify(&home.path, None).unwrap();
    // An interrupted rotation: the chain names the next key, and it is beside the old one.
    fs::write(&key, &kept).unwrap();
    home.open().rotate_key().unwrap();
    assert!(verify_key(&home.path).is_ok());
    fs::rename(&key, key.with_added_extension("next")).unwrap();
    fs::write(&key, &kept).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(verify_key(&home.path).is_ok());
}

#[test]
fn a_key_that_was_replaced_signs_nothing_more() {
    let (home, other) = (Home::with_records(3), Home::with_records(1));
    let key = home.path.with_extension("key");
    let secret = fs::read(&key).unwrap();
    let ledger = home.open();
    ledger.checkpoint().unwrap();
    ledger.append(&battery(1)).map(drop).unwrap();
    let signed = || verify(&home.path, None).unwrap().checkpoints;
    let before = signed();
    fs::copy(other.path.with_extension("key"), &key).unwrap();
    assert!(matches!(ledger.checkpoint(), Err(AppendError::Key(_))), "another key");
    fs::remove_file(&key).unwrap();
    assert!(matches!(ledger.checkpoint(), Err(AppendError::Key(_))), "no key");
    assert!(matches!(ledger.rotate_key(), Err(AppendError::Key(_))), "it hands nothing over either");
    assert_eq!(signed(), before, "nothing was signed meanwhile");
    fs::write(&key, &secret).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    ledger.checkpoint().unwrap();
    assert_eq!(signed(), before + 1, "control: the key of the chain signs");
}

type Lie = (fn(&mut InclusionProof), ProofError);

#[test]
fn a_proof_needs_nothing_but_the_key() {
    let home = Home::new();
    let ledger = home.open();
    let ids = ids();
    drop(ledger.append_all(&[intent(&ids), battery(1), settled(&ids), battery(2)]).unwrap());
    let reader = ledger.reader().unwrap();
    let error = reader.prove(ids.transaction.as_str()).unwrap_err();
    assert!(matches!(error, LedgerReadError::Unsigned { seq: 2 }), "{error}");
    let key = ledger.checkpoint().unwrap().unwrap().checkpoint.key;
    append_many(&ledger, 3);
    let proofs = reader.prove(ids.transaction.as_str()).unwrap();
    assert_eq!(proofs.iter().map(|proof| proof.seq).collect::<Vec<_>>(), [2, 4]);
    for proof in &proofs {
        let text = serde_json::to_string(proof).unwrap();
        let proof: InclusionProof = serde_json::from_str(&text).unwrap();
        assert_eq!(proof.check(Some(&key)), Ok(()));
        assert_eq!(proof.check(None), Ok(()));
        let other = verify(&Home::with_records(1).path, None).unwrap().keys.remove(0);
        assert_eq!(proof.check(Some(&other)), Err(ProofError::OtherKey));
        let lies: [Lie; 7] = [
            (|proof| proof.body = Some("{}".to_owned()), ProofError::Body),
            (|proof| proof.kind = "battery-finished".to_owned(), ProofError::Record),
            (|proof| proof.time = "2020-01-01T00:00:00.000000Z".to_owned(), ProofError::Record),
            (|proof| proof.seq += 1, ProofError::Record),
            (|proof| drop(proof.path.pop()), ProofError::Path),
            (|proof| proof.checkpoint.root = "00".repeat(32), ProofError::Path),
            (|proof| proof.checkpoint.head = "00".repeat(32), ProofError::Signature),
        ];
        for (lie, expected) in lies {
            let mut lied = proof.clone();
            lie(&mut lied);
            assert_eq!(lied.check(Some(&key)), Err(expected));
        }
    }
    assert_eq!(reader.prove("1").unwrap()[0].check(Some(&key)), Ok(()), "the first record, too");
}

fn anchored(home: &Home) -> (PathBuf, LedgerSettings) {
    let file = home.directory.path().join("anchor");
    let settings =
        LedgerSettings { anchor: Some(CheckpointAnchor::File(file.clone())), ..LedgerSettings::default() };
    (file, settings)
}

/// A copy of all files of a ledger, and putting it back: what somebody with a backup could do.
fn snapshot(home: &Home) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(home.path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn put_back(home: &Home, files: Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(home.path.parent().unwrap()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for (path, bytes) in files {
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn an_older_copy_is_found_through_the_anchor() {
    let home = Home::with_records(4);
    let (file, settings) = anchored(&home);
    let open = || Ledger::open_with(&home.path, settings.clone()).unwrap();
    open().checkpoint().unwrap();
    let older = snapshot(&home);
    let ledger = open();
    append_many(&ledger, 5);
    let newest = ledger.checkpoint().unwrap().unwrap();
    assert!(ledger.unanchored().is_none());
    drop(ledger);
    let lines = fs::read_to_string(&file).unwrap();
    let kept: Vec<AnchorLine> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((kept.len(), &kept[1]), (2, &newest));
    append_many(&open(), 1);

    put_back(&home, older);
    assert!(verify(&home.path, None).is_ok(), "by itself the copy is whole");
    append_many(&home.open(), 1);
    let error = open().append(&battery(0)).unwrap_err();
    let AppendError::Broken(broken) = error else { panic!("{error}") };
    assert!(matches!(broken.what, ChainFlaw::RolledBack { .. }), "{broken}");
    let expected = ExpectedHead { checkpoint: Some(&newest.checkpoint), ..ExpectedHead::default() };
    assert!(check(&home, expected).is_err(), "and through the checkpoint");
}

#[test]
fn another_ledger_in_its_place_is_found_through_the_anchor() {
    let home = Home::with_records(4);
    let (_, settings) = anchored(&home);
    Ledger::open_with(&home.path, settings.clone()).unwrap().checkpoint().unwrap();
    for part in ["db", "db-wal", "db-shm"] {
        fs::remove_file(home.path.with_extension(part)).unwrap();
    }
    append_many(&home.open(), 1);
    let error = Ledger::open_with(&home.path, settings).unwrap().append(&battery(0)).unwrap_err();
    assert!(matches!(error, AppendError::Broken(_)), "{error}");
}

/// Breaks a ledger and puts it aside, as its operator would.
fn restarted(home: &Home, settings: &LedgerSettings) {
    home.sql("UPDATE record SET time = '2020-01-01T00:00:00.000000Z' WHERE seq = 3");
    ringfence_ledger::restart(&home.path, settings, "known", person(0)).unwrap();
}

fn rolled_back(home: &Home, settings: &LedgerSettings) -> bool {
    let broken = Ledger::open_with(&home.path, settings.clone()).unwrap().broken();
    broken.is_some_and(|broken| matches!(broken.what, ChainFlaw::RolledBack { .. }))
}

/// That a chain continues some other one is no excuse: it must be the one that the anchor knows.
#[test]
fn a_ledger_that_continues_another_chain_is_found_through_the_anchor() {
    let home = Home::with_records(4);
    let (_, settings) = anchored(&home);
    Ledger::open_with(&home.path, settings.clone()).unwrap().checkpoint().unwrap();
    let own = snapshot(&home);
    let other = Home::with_records(4);
    restarted(&other, &LedgerSettings::default());
    let files = snapshot(&other)
        .into_iter()
        .map(|(path, bytes)| (home.path.parent().unwrap().join(path.file_name().unwrap()), bytes));
    put_back(&home, files.collect());
    assert_eq!(home.open().broken(), None, "control: without the anchor nothing is wrong with it");
    assert!(rolled_back(&home, &settings));
    // Control: the ledger itself, and what continues it.
    put_back(&home, own);
    assert!(!rolled_back(&home, &settings));
    restarted(&home, &settings);
    assert!(!rolled_back(&home, &settings));
    append_many(&Ledger::open_with(&home.path, settings).unwrap(), 1);
}

/// The copy from before a chain was put aside is an older copy, too.
#[test]
fn a_chain_that_was_put_aside_does_not_come_back() {
    let home = Home::with_records(4);
    let (_, settings) = anchored(&home);
    let open = || Ledger::open_with(&home.path, settings.clone()).unwrap();
    open().checkpoint().unwrap();
    let older = snapshot(&home);
    restarted(&home, &settings);
    append_many(&open(), 1);
    open().checkpoint().unwrap();
    assert!(!rolled_back(&home, &settings), "control");
    put_back(&home, older);
    assert!(rolled_back(&home, &settings));
    // After `restart` the ledger takes records again.
    ringfence_ledger::restart(&home.path, &settings, "known", person(0)).unwrap();
    assert!(!rolled_back(&home, &settings));
}

#[test]
fn an_anchor_that_fails_is_told_and_costs_no_record() {
    let home = Home::with_records(4);
    let nowhere = home.directory.path().join("missing/anchor");
    let ledger = Ledger::open_with(
        &home.path,
        LedgerSettings { anchor: Some(CheckpointAnchor::File(nowhere)), ..LedgerSettings::default() },
    )
    .unwrap();
    ledger.checkpoint().unwrap();
    assert!(matches!(ledger.unanchored(), Some(AnchorError::File { .. })));
    append_many(&ledger, 1);
    assert_eq!(verify(&home.path, None).unwrap().checkpoints, 1);
}

#[test]
fn an_anchor_command_gets_the_checkpoint_and_a_limited_time() {
    let home = Home::with_records(4);
    let out = home.directory.path().join("out");
    let command = |script: &str, seconds| {
        let argv = ["/bin/sh", "-c", script, "sh"].map(Into::into).to_vec();
        let argv = [argv, vec![out.clone().into_os_string()]].concat();
        let anchor = CheckpointAnchor::Command { argv, timeout: Duration::from_secs(seconds) };
        Ledger::open_with(&home.path, LedgerSettings { anchor: Some(anchor), ..LedgerSettings::default() })
            .unwrap()
    };
    let ledger = command("cat >\"$1\"", 60);
    let made = ledger.checkpoint().unwrap().unwrap();
    ledger.close().unwrap();
    assert!(ledger.unanchored().is_none());
    let kept: AnchorLine = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    assert_eq!(kept, made);
    for (script, seconds, expected) in [("exit 3", 60, "failed"), ("sleep 600", 0, "longer")] {
        let ledger = command(script, seconds);
        append_many(&ledger, 1);
        ledger.checkpoint().unwrap();
        ledger.close().unwrap();
        let error = ledger.unanchored().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
