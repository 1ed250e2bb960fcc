use std::fs;

use ringfence_ledger::{
    ApprovalAnswer, ChainFlaw, Event, Kind, Ledger, PruneRequest, RecordFilter, RecordOrPruned,
    RetentionClass, Timestamp, prunable, verify,
};

use crate::support::{
    Home, answered, append_many, asked, battery, granted, ids, intent, person, settled, started, voted,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn prune(ledger: &Ledger, before: i64, classes: &[RetentionClass]) -> u64 {
    ledger.prune(&PruneRequest { before: at(before), classes: classes.to_vec() }, &person(1)).unwrap()
}

/// Numbers of records without a body.
fn gone(home: &Home) -> Vec<u64> {
    let listed = Ledger::open_read(&home.path).unwrap().list(&RecordFilter::default(), 1000).unwrap();
    listed
        .iter()
        .filter(|listed| matches!(listed, RecordOrPruned::Pruned(_)))
        .map(RecordOrPruned::seq)
        .collect()
}

#[test]
fn old_bodies_go_and_the_chain_still_holds() {
    let home = Home::new();
    let ledger = home.open();
    let (old, new) = (ids(), ids());
    let secret = "a-word-that-must-not-stay";
    for (event, second) in [
        (intent(&old), 100),
        (settled(&old), 101),
        (
            Event::PolicyChanged {
                session: None,
                file: secret.into(),
                sha256: String::new(),
                change: String::new(),
            },
            102,
        ),
        (battery(1), 103),
        (intent(&new), 200),
        (settled(&new), 201),
    ] {
        drop(ledger.append_at(&event, at(second)).unwrap());
    }
    let classes = [RetentionClass::Activity, RetentionClass::Consent, RetentionClass::Ledger];
    let pruning = PruneRequest { before: at(150), classes: classes.to_vec() };
    assert_eq!(prunable(&ledger.reader().unwrap(), &pruning).unwrap(), [2, 3, 4, 5]);
    assert_eq!(gone(&home), [0_u64; 0], "asking changes nothing");
    assert_eq!(prune(&ledger, 150, &classes), 4);
    assert_eq!(gone(&home), [2, 3, 4, 5]);
    assert_eq!(prune(&ledger, 150, &classes), 0, "there is nothing more to forget");
    let verification = verify(&home.path, None).unwrap();
    assert_eq!((verification.pruned, verification.checkpoints), (4, 1));
    assert!(verification.signed >= 7, "what was pruned was signed before");
    let reader = ledger.reader().unwrap();
    assert_eq!(reader.find(old.transaction.as_str()).unwrap().len(), 2, "that it was there is still known");
    assert!(reader.about(old.transaction.as_str()).unwrap().is_empty());
    assert_eq!(reader.about(new.transaction.as_str()).unwrap().len(), 2);
    let said = reader.of_kinds(&[Kind::LedgerPruned], 1).unwrap().remove(0).event;
    assert!(matches!(said, Event::LedgerPruned { records: 4, before: 6, .. }), "{said:?}");
    assert_eq!(reader.prove("2").unwrap()[0].check(None), Ok(()), "and can be proved");
    drop((reader, ledger));
    home.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    let bytes = fs::read(&home.path).unwrap();
    assert!(
        !bytes.windows(secret.len()).any(|window| window == secret.as_bytes()),
        "not anywhere in the file"
    );
}

#[test]
fn what_is_not_over_stays() {
    let home = Home::new();
    let ledger = home.open();
    let (open, pending, question, revoked) = (ids(), ids(), ids(), ids());
    let (live, made) = granted(&question, None);
    let (dead, made_and_revoked) = granted(&revoked, None);
    let revocation = Event::GrantRevoked { grant: dead, actor: person(1), reason: None };
    let yes = |ids| answered(ids, ApprovalAnswer::Session);
    let events = [
        intent(&open),
        asked(&pending),
        voted(&pending, 3),
        asked(&question),
        yes(&question),
        made,
        intent(&question),
        settled(&question),
        asked(&revoked),
        yes(&revoked),
        made_and_revoked,
        intent(&revoked),
        settled(&revoked),
        revocation,
        started(&open.session),
    ];
    events.iter().for_each(|event| drop(ledger.append_at(event, at(100)).unwrap()));
    prune(&ledger, 1000, &[RetentionClass::Activity, RetentionClass::Consent]);
    let gone = gone(&home);
    for kept in [2, 3, 4, 7] {
        assert!(!gone.contains(&kept), "record {kept} is needed: {gone:?}");
    }
    for forgotten in [10, 11, 12, 13, 14, 15] {
        assert!(gone.contains(&forgotten), "record {forgotten} is over: {gone:?}");
    }
    verify(&home.path, None).unwrap();
    // Life goes on where it was.
    drop(ledger.append(&settled(&open)).unwrap());
    drop(ledger.append(&answered(&pending, ApprovalAnswer::Deny)).unwrap());
    let again = ledger.append(&settled(&revoked)).unwrap_err();
    assert!(again.to_string().contains("already ended"), "{again}");
    drop(ledger.append(&Event::GrantRevoked { grant: live, actor: person(1), reason: None }).unwrap());
    verify(&home.path, None).unwrap();
}

#[test]
fn classes_are_kept_apart() {
    let home = Home::new();
    let ledger = home.open();
    let ids = ids();
    let events =
        [asked(&ids), voted(&ids, 3), answered(&ids, ApprovalAnswer::Once), intent(&ids), settled(&ids)];
    events.iter().for_each(|event| drop(ledger.append_at(event, at(100)).unwrap()));
    assert_eq!(prune(&ledger, 1000, &[RetentionClass::Ledger]), 0);
    assert_eq!(prune(&ledger, 1000, &[RetentionClass::Consent]), 3);
    assert_eq!(gone(&home), [2, 3, 4]);
    verify(&home.path, None).unwrap();
    assert_eq!(prune(&ledger, 1000, &[RetentionClass::Activity]), 2);
    assert_eq!(verify(&home.path, None).unwrap().pruned, 5);
}

#[test]
fn a_body_that_goes_without_a_word_is_found() {
    let home = Home::with_records(6);
    let ledger = home.open();
    prune(&ledger, 1_767_323_047, &[RetentionClass::Activity]);
    assert_eq!(gone(&home), [2, 3], "control");
    verify(&home.path, None).unwrap();
    home.sql("UPDATE record SET body = NULL WHERE seq = 5");
    let broken = home.broken();
    assert_eq!((broken.seq, broken.what), (5, ChainFlaw::BodyGone));
}

#[test]
fn a_long_past_is_forgotten_in_steps() {
    let home = Home::new();
    let ledger = home.open();
    for _ in 0..3 {
        let events: Vec<Event> = (0..5000).map(battery).collect();
        drop(ledger.append_all(&events).unwrap());
    }
    append_many(&ledger, 1);
    let before = Timestamp::now().as_second() + 10;
    assert_eq!(prune(&ledger, before, &[RetentionClass::Activity]), 15_001);
    assert_eq!(ledger.reader().unwrap().of_kinds(&[Kind::LedgerPruned], 10).unwrap().len(), 2);
    assert_eq!(verify(&home.path, None).unwrap().pruned, 15_001);
}

#[test]
fn votes_that_are_forgotten_hide_no_other_claim() {
    let home = Home::new();
    let ledger = home.open();
    let ids = ids();
    let events =
        [asked(&ids), voted(&ids, 3), answered(&ids, ApprovalAnswer::Once), intent(&ids), settled(&ids)];
    events.iter().for_each(|event| drop(ledger.append_at(event, at(100)).unwrap()));
    assert_eq!(prune(&ledger, 1000, &[RetentionClass::Consent]), 3);
    verify(&home.path, None).unwrap();
    drop(ledger);
    home.sql("DELETE FROM claim WHERE key NOT LIKE 'voted %'");
    let broken = home.broken();
    assert!(matches!(&broken.what, ChainFlaw::Index { table } if table == "claim"), "{broken}");
}
