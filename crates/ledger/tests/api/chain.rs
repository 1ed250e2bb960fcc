use ringfence_ledger::SessionEndReason;
use ringfence_ledger::{
    AppendError, ApprovalAnswer, ChainHead, Event, Ledger, LifecycleError, Timestamp, incomplete, verify,
};
use ringfence_types::ByteString;

use crate::support::{
    Home, answered, append_many, asked, battery, granted, ids, intent, intent_by, launched, person, refused,
    settled, started, voted,
};

#[test]
fn every_event_comes_back_as_it_was() {
    let home = Home::new();
    let ids = ids();
    let events = [
        started(&ids.session),
        asked(&ids),
        answered(&ids, ApprovalAnswer::Once),
        intent(&ids),
        launched(&ids),
        settled(&ids),
        refused(None),
        Event::SessionEnded { session: ids.session.clone(), reason: Some(SessionEndReason::Stopped) },
        battery(59),
        Event::PolicyChanged {
            session: None,
            file: ByteString::from("/c/config.toml"),
            sha256: "00".to_owned(),
            change: "allow `npm test`".to_owned(),
        },
    ];
    let ledger = home.open();
    let hashes: Vec<_> = events.iter().map(|event| ledger.append(event).unwrap().hash().to_owned()).collect();
    let records = Ledger::open_read(&home.path).unwrap().tail(10).unwrap();
    assert_eq!(records.iter().map(|record| record.event.clone()).collect::<Vec<_>>(), events);
    assert_eq!(records.iter().map(|record| record.hash.clone()).collect::<Vec<_>>(), hashes);
    assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), (2..=11).collect::<Vec<_>>());
    for record in &records {
        let json = serde_json::to_value(&record.event).unwrap();
        assert_eq!(json["kind"], record.event.kind().word());
    }
    assert_eq!(verify(&home.path, None).unwrap().records, 11);
}

#[test]
fn the_chain_goes_on_after_reopening() {
    let home = Home::with_records(3);
    append_many(&home.open(), 3);
    let verification = verify(&home.path, None).unwrap();
    assert_eq!(verification.records, 6);
    let time = Timestamp::UNIX_EPOCH;
    let receipt = home.open().append_at(&battery(0), time).unwrap();
    assert_eq!(
        verify(&home.path, None).unwrap().head,
        Some(ChainHead { seq: 7, hash: receipt.hash().to_owned() })
    );
    assert_eq!(
        Ledger::open_read(&home.path).unwrap().tail(1).unwrap()[0].time,
        "1970-01-01T00:00:00.000000Z"
    );
}

#[test]
fn a_chain_begins_with_its_name_and_its_key() {
    let home = Home::with_records(1);
    let verification = verify(&home.path, None).unwrap();
    assert_eq!((verification.records, verification.checkpoints), (1, 0));
    let first = Ledger::open_read(&home.path).unwrap().beginning().unwrap();
    let Event::ChainStarted { chain, key, continues, .. } = first.event else { panic!() };
    assert_eq!((verification.chain, verification.keys, continues), (Some(chain), vec![key], None));
}

#[test]
fn only_the_receipt_of_an_intent_names_a_transaction() {
    let home = Home::new();
    let ids = ids();
    let ledger = home.open();
    assert_eq!(ledger.append(&intent(&ids)).unwrap().intent(), Some(&ids.transaction));
    assert_eq!(ledger.append(&settled(&ids)).unwrap().intent(), None);
}

#[test]
fn an_intent_without_an_end_is_incomplete() {
    let home = Home::new();
    let ledger = home.open();
    let [crashed, done, turned_down] = [ids(), ids(), ids()];
    for event in [intent(&crashed), intent(&done), settled(&done), intent(&turned_down)] {
        ledger.append(&event).unwrap().seq();
    }
    ledger.append(&refused(Some(&turned_down.transaction))).unwrap().seq();
    assert_eq!(verify(&home.path, None).unwrap().incomplete, std::slice::from_ref(&crashed.transaction));
    let reader = Ledger::open_read(&home.path).unwrap();
    assert_eq!(reader.open_transactions().unwrap(), [crashed.transaction.to_string()]);
    assert_eq!(incomplete(&reader.show(crashed.session.as_str()).unwrap()), [&crashed.transaction]);
    assert!(incomplete(&reader.show(done.session.as_str()).unwrap()).is_empty());
    assert!(incomplete(&reader.show("5").unwrap()).is_empty());
}

/// What was refused leaves no trace, and what may follow still may.
#[test]
fn what_is_out_of_order_is_not_written() {
    let ids = ids();
    let events = [asked(&ids), intent(&ids), settled(&ids), voted(&ids, 7)];
    let [asked, intent, settled, vote] = &events;
    let answers = [ApprovalAnswer::Once, ApprovalAnswer::Deny, ApprovalAnswer::Unreachable];
    let [once, denied, unreachable] = &answers.map(|answer| answered(&ids, answer));
    let refused = &refused(Some(&ids.transaction));
    let lives = [
        (vec![], settled, LifecycleError::NotIntended),
        (vec![intent, settled], settled, LifecycleError::Closed),
        (vec![intent], intent, LifecycleError::IntendedTwice),
        (vec![intent, settled], intent, LifecycleError::Closed),
        (vec![refused], refused, LifecycleError::Closed),
        (vec![asked], asked, LifecycleError::AskedTwice),
        (vec![], once, LifecycleError::NotAsked),
        (vec![asked, denied], once, LifecycleError::AnsweredTwice),
        (vec![asked], intent, LifecycleError::NotPermitted),
        (vec![asked, denied], intent, LifecycleError::NotPermitted),
        (vec![asked, unreachable], intent, LifecycleError::NotPermitted),
        (vec![asked, vote], vote, LifecycleError::VotedTwice),
    ];
    for (events, last, expected) in lives {
        // By who began it, and by somebody who has to read it first.
        for reopen in [false, true] {
            let home = Home::new();
            let mut ledger = home.open();
            events.iter().for_each(|event| drop(ledger.append(event).unwrap()));
            if reopen {
                ledger = home.open();
            }
            let AppendError::OutOfOrder { id, why } = ledger.append(last).unwrap_err() else { panic!() };
            assert_eq!((id, why), (ids.transaction.to_string(), expected));
            assert_eq!(verify(&home.path, None).unwrap().records, 1 + events.len() as u64);
            ledger.append(&battery(1)).unwrap().seq();
        }
    }
    let home = Home::new();
    let ledger = home.open();
    [asked, vote, once, intent, settled].into_iter().for_each(|event| drop(ledger.append(event).unwrap()));
    assert_eq!(verify(&home.path, None).unwrap().records, 6);
}

#[test]
fn several_events_are_written_all_or_not_at_all() {
    let home = Home::new();
    let ledger = home.open();
    let (one, two) = (ids(), ids());
    let error = ledger.append_all(&[intent(&one), battery(1), settled(&two)]).unwrap_err();
    assert!(matches!(error, AppendError::OutOfOrder { why: LifecycleError::NotIntended, .. }), "{error}");
    assert_eq!(verify(&home.path, None).unwrap().records, 1);
    let receipts = ledger.append_all(&[intent(&one), intent(&two), settled(&one)]).unwrap();
    assert_eq!(receipts.iter().map(|receipt| receipt.seq()).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(receipts[1].intent(), Some(&two.transaction));
    assert!(ledger.append_all(&[]).unwrap().is_empty());
    assert_eq!(verify(&home.path, None).unwrap().records, 4);
}

#[test]
fn a_grant_is_used_as_often_as_it_says_and_not_after_it_was_revoked() {
    let home = Home::new();
    let ledger = home.open();
    let question = ids();
    let (grant, made) = granted(&question, Some(2));
    let why = |event: &Event| match ledger.append(event).unwrap_err() {
        AppendError::OutOfOrder { id, why } => (id, why),
        other => panic!("{other}"),
    };
    assert_eq!(why(&intent_by(&ids(), Some(grant.clone()))), (grant.to_string(), LifecycleError::NotGranted));
    ledger
        .append_all(&[asked(&question), answered(&question, ApprovalAnswer::Session), made.clone()])
        .unwrap();
    assert_eq!(why(&made).1, LifecycleError::GrantedTwice);
    for _ in 0..2 {
        ledger.append(&intent_by(&ids(), Some(grant.clone()))).unwrap().seq();
    }
    assert_eq!(why(&intent_by(&ids(), Some(grant.clone()))).1, LifecycleError::UsedUp);
    let revoked = Event::GrantRevoked { grant: grant.clone(), actor: person(1), reason: None };
    ledger.append(&revoked).unwrap().seq();
    assert_eq!(why(&revoked).1, LifecycleError::RevokedTwice);
    assert_eq!(why(&intent_by(&ids(), Some(grant.clone()))).1, LifecycleError::RevokedTwice);
    verify(&home.path, None).unwrap();
}

#[test]
fn what_is_announced_is_written_with_the_next_event_or_never() {
    let home = Home::new();
    let ledger = home.open();
    let ids = ids();
    ledger.announce(&started(&ids.session)).unwrap();
    drop(ledger);
    assert_eq!(verify(&home.path, None).unwrap().records, 1, "nothing else was written");
    let ledger = home.open();
    ledger.announce(&started(&ids.session)).unwrap();
    assert_eq!(ledger.append(&intent(&ids)).unwrap().seq(), 3);
    let records = ledger.reader().unwrap().about(ids.session.as_str()).unwrap();
    let kinds: Vec<&str> = records.iter().map(|record| record.event.kind().word()).collect();
    assert_eq!(kinds, ["session-started", "call-intended"]);
}

#[test]
fn a_ledger_deleted_in_use_takes_no_more_records() {
    for doomed in ["ledger.db", "ledger.db-wal"] {
        let home = Home::new();
        let ledger = home.open();
        append_many(&ledger, 2);
        std::fs::remove_file(home.path.with_file_name(doomed)).unwrap();
        let error = ledger.append(&battery(0)).unwrap_err();
        assert!(matches!(error, AppendError::Moved), "{doomed}: {error}");
    }
}

#[test]
fn the_log_stays_short() {
    let home = Home::new();
    let length = || std::fs::metadata(home.path.with_file_name("ledger.db-wal")).unwrap().len();
    append_many(&home.open(), 300);
    assert!(length() < 2 * 1024 * 1024, "one process: {}", length());
    for _ in 0..200 {
        append_many(&home.open(), 1);
    }
    assert!(length() < 3 * 1024 * 1024, "many processes: {}", length());
    let verification = verify(&home.path, None).unwrap();
    assert_eq!(verification.records, 501 + verification.checkpoints);
}
