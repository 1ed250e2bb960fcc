use ringfence_ledger::{
    AppendError, ApprovalAnswer, Event, Flaw, Head, Ledger, Timestamp, incomplete, verify,
};
use ringfence_types::Bytes;

use crate::support::{Home, answered, append_many, asked, battery, ids, intent, refused, settled, started};

#[test]
fn every_event_comes_back_as_it_was() {
    let home = Home::new();
    let ids = ids();
    let events = [
        started(&ids.session),
        intent(&ids),
        settled(&ids.transaction),
        asked(&ids),
        answered(&ids, ApprovalAnswer::Once),
        refused(None),
        Event::SessionEnded { session: ids.session.clone() },
        battery(59),
        Event::PolicyChanged {
            session: None,
            file: Bytes::from("/c/config.toml"),
            sha256: "00".to_owned(),
            change: "allow `npm test`".to_owned(),
        },
    ];
    let ledger = home.open();
    let hashes: Vec<_> = events.iter().map(|event| ledger.append(event).unwrap().hash().to_owned()).collect();
    let records = Ledger::open_read(&home.path).unwrap().tail(100).unwrap();
    assert_eq!(records.iter().map(|record| record.event.clone()).collect::<Vec<_>>(), events);
    assert_eq!(records.iter().map(|record| record.hash.clone()).collect::<Vec<_>>(), hashes);
    assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), (1..=9).collect::<Vec<_>>());
    for record in &records {
        let json = serde_json::to_value(&record.event).unwrap();
        assert_eq!(json["kind"], record.event.kind());
    }
}

#[test]
fn the_same_events_at_the_same_times_make_the_same_chain() {
    let heads: Vec<_> =
        (0..2).map(|_| verify(&Home::with_records(5).path, None).unwrap().head.unwrap()).collect();
    assert_eq!(heads[0], heads[1]);
    assert_eq!(heads[0].seq, 5);
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
        Some(Head { seq: 7, hash: receipt.hash().to_owned() })
    );
    assert_eq!(
        Ledger::open_read(&home.path).unwrap().tail(1).unwrap()[0].time,
        "1970-01-01T00:00:00.000000Z"
    );
}

#[test]
fn an_empty_ledger_verifies() {
    let home = Home::with_records(0);
    let verification = verify(&home.path, None).unwrap();
    assert_eq!((verification.records, verification.head), (0, None));
}

#[test]
fn only_the_receipt_of_an_intent_names_a_transaction() {
    let home = Home::new();
    let ids = ids();
    let ledger = home.open();
    assert_eq!(ledger.append(&intent(&ids)).unwrap().intent(), Some(&ids.transaction));
    assert_eq!(ledger.append(&settled(&ids.transaction)).unwrap().intent(), None);
}

#[test]
fn an_intent_without_an_end_is_incomplete() {
    let home = Home::new();
    let ledger = home.open();
    let [crashed, done, turned_down] = [ids(), ids(), ids()];
    for event in [intent(&crashed), intent(&done), settled(&done.transaction), intent(&turned_down)] {
        ledger.append(&event).unwrap().seq();
    }
    ledger.append(&refused(Some(&turned_down.transaction))).unwrap().seq();
    assert_eq!(verify(&home.path, None).unwrap().incomplete, std::slice::from_ref(&crashed.transaction));
    let reader = Ledger::open_read(&home.path).unwrap();
    assert_eq!(incomplete(&reader.show(crashed.call.as_str()).unwrap()), [&crashed.transaction]);
    assert!(incomplete(&reader.show(done.call.as_str()).unwrap()).is_empty());
    assert!(incomplete(&reader.show("4").unwrap()).is_empty());
}

#[test]
fn a_transaction_is_intended_first_and_settled_once() {
    let ids = ids();
    let (intent, settled) = (intent(&ids), settled(&ids.transaction));
    let transaction = ids.transaction.to_string();
    let lives = [
        (vec![&settled], 1, Flaw::SettledWithoutIntent { transaction: transaction.clone() }),
        (vec![&settled, &intent], 1, Flaw::SettledWithoutIntent { transaction: transaction.clone() }),
        (vec![&intent, &settled, &settled], 3, Flaw::SettledTwice { transaction: transaction.clone() }),
        (vec![&intent, &intent], 2, Flaw::IntendedTwice { transaction: transaction.clone() }),
        (vec![&intent, &settled, &intent], 3, Flaw::IntendedTwice { transaction }),
    ];
    for (events, seq, what) in lives {
        let home = Home::new();
        let ledger = home.open();
        events.iter().for_each(|event| drop(ledger.append(event).unwrap()));
        let broken = home.broken();
        assert_eq!((broken.seq, broken.what), (seq, what));
    }
}

#[test]
fn an_effect_follows_a_question_only_after_one_permitting_answer() {
    let ids = ids();
    let (asked, intent, settled) = (asked(&ids), intent(&ids), settled(&ids.transaction));
    let answers = [ApprovalAnswer::Once, ApprovalAnswer::Denied, ApprovalAnswer::Unreachable];
    let [once, denied, unreachable] = answers.map(|answer| answered(&ids, answer));
    let transaction = ids.transaction.to_string();
    let unpermitted = || Flaw::IntendedUnpermitted { transaction: transaction.clone() };
    let lives = [
        (vec![&asked, &asked], 2, Flaw::AskedTwice { transaction: transaction.clone() }),
        (vec![&once], 1, Flaw::AnsweredWithoutQuestion { transaction: transaction.clone() }),
        (vec![&asked, &denied, &once], 3, Flaw::AnsweredTwice { transaction: transaction.clone() }),
        (vec![&asked, &intent], 2, unpermitted()),
        (vec![&asked, &denied, &intent], 3, unpermitted()),
        (vec![&asked, &unreachable, &intent], 3, unpermitted()),
    ];
    for (events, seq, what) in lives {
        let home = Home::new();
        let ledger = home.open();
        events.iter().for_each(|event| drop(ledger.append(event).unwrap()));
        let broken = home.broken();
        assert_eq!((broken.seq, broken.what), (seq, what));
    }
    let home = Home::new();
    let ledger = home.open();
    [&asked, &once, &intent, &settled].into_iter().for_each(|event| drop(ledger.append(event).unwrap()));
    assert_eq!(verify(&home.path, None).unwrap().records, 4);
}

#[test]
fn a_ledger_deleted_in_use_takes_no_more_records() {
    for doomed in ["ledger.db", "ledger.db-wal"] {
        let home = Home::new();
        let ledger = home.open();
        append_many(&ledger, 2);
        std::fs::remove_file(home.path.with_file_name(doomed)).unwrap();
        let error = ledger.append(&battery(0)).unwrap_err();
        assert!(matches!(error, AppendError::Moved { .. }), "{doomed}: {error}");
    }
}

#[test]
fn the_log_stays_short() {
    let home = Home::new();
    let length = || std::fs::metadata(home.path.with_file_name("ledger.db-wal")).unwrap().len();
    append_many(&home.open(), 600);
    assert!(length() < 2 * 1024 * 1024, "one process: {}", length());
    for _ in 0..400 {
        append_many(&home.open(), 1);
    }
    assert!(length() < 3 * 1024 * 1024, "many processes: {}", length());
    assert_eq!(verify(&home.path, None).unwrap().records, 1000);
}
