use ringfence_ledger::{Event, Ledger, ReadError, Record};

use crate::support::{Home, Ids, battery, ids, intent, settled, started};

/// Two sessions with a settled transaction each, between other records.
fn two_sessions() -> (Home, Ids, Ids) {
    let (home, one, two) = (Home::new(), ids(), ids());
    let ledger = home.open();
    let events = [
        started(&one.session),
        started(&two.session),
        intent(&one),
        battery(1),
        intent(&two),
        settled(&one.transaction),
        settled(&two.transaction),
        Event::SessionEnded { session: one.session.clone() },
    ];
    events.iter().for_each(|event| drop(ledger.append(event).unwrap()));
    (home, one, two)
}

fn numbers(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.seq).collect()
}

#[test]
fn tail_is_the_end_in_order() {
    let (home, ..) = two_sessions();
    let reader = Ledger::open_read(&home.path).unwrap();
    assert_eq!(numbers(&reader.tail(3).unwrap()), [6, 7, 8]);
    assert_eq!(numbers(&reader.tail(0).unwrap()), [0_u64; 0]);
    assert_eq!(reader.tail(u32::MAX).unwrap().len(), 8);
}

#[test]
fn show_finds_by_every_id() {
    let (home, one, two) = two_sessions();
    let reader = Ledger::open_read(&home.path).unwrap();
    let show = |id: &str| numbers(&reader.show(id).unwrap());
    assert_eq!(show(one.session.as_str()), [1, 3, 6, 8]);
    assert_eq!(show(two.session.as_str()), [2, 5, 7]);
    assert_eq!(show(one.transaction.as_str()), [3, 6]);
    assert_eq!(show(two.call.as_str()), [5, 7]);
    assert_eq!(show("4"), [4]);
    assert_eq!(show("6"), [3, 6]);
    assert_eq!(show(&two.call.as_str().chars().take(12).collect::<String>()), [5, 7]);
}

#[test]
fn show_lists_what_a_prefix_could_mean() {
    let (home, one, two) = two_sessions();
    let reader = Ledger::open_read(&home.path).unwrap();
    let ReadError::Ambiguous { mut candidates, .. } = reader.show("tx_").unwrap_err() else { panic!() };
    candidates.sort();
    let mut expected = [one.transaction.to_string(), two.transaction.to_string()];
    expected.sort();
    assert_eq!(candidates, expected);
    // `echo` is in every body, but it is no id.
    for unknown in ["tx_zz", "", "9", "-1", "echo", "99999999999999999999", "%"] {
        let error = reader.show(unknown).unwrap_err();
        assert!(matches!(error, ReadError::Unknown { .. }), "{unknown}: {error}");
    }
}

#[test]
fn a_reader_sees_what_a_writer_just_wrote() {
    let home = Home::with_records(1);
    let (reader, writer) = (Ledger::open_read(&home.path).unwrap(), home.open());
    for seq in 2..10 {
        assert_eq!(writer.append(&battery(0)).unwrap().seq(), seq);
        assert_eq!(reader.tail(1).unwrap()[0].seq, seq);
    }
}

#[test]
fn a_record_that_is_no_event_is_named() {
    let home = Home::with_records(3);
    home.sql("UPDATE record SET body = '{\"kind\":\"nonsense\"}' WHERE seq = 2");
    let error = Ledger::open_read(&home.path).unwrap().tail(3).unwrap_err();
    let ReadError::Broken(broken) = error else { panic!("{error}") };
    assert_eq!(broken.seq, 2);
}

#[test]
fn records_are_json_both_ways() {
    let (home, ..) = two_sessions();
    for record in Ledger::open_read(&home.path).unwrap().tail(10).unwrap() {
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), record);
    }
}
