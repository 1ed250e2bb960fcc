use std::ops::ControlFlow;

use ringfence_ledger::{
    Event, Kind, Ledger, LedgerReadError, Record, RecordFilter, RecordOrPruned, Timestamp,
};

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
        settled(&one),
        settled(&two),
        Event::SessionEnded { session: one.session.clone(), reason: None },
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
    assert_eq!(numbers(&reader.tail(3).unwrap()), [7, 8, 9]);
    assert_eq!(numbers(&reader.tail(0).unwrap()), [0_u64; 0]);
    assert_eq!(reader.tail(u32::MAX).unwrap().len(), 9);
}

#[test]
fn show_finds_by_every_id() {
    let (home, one, two) = two_sessions();
    let reader = Ledger::open_read(&home.path).unwrap();
    let show = |id: &str| numbers(&reader.show(id).unwrap());
    assert_eq!(show(one.session.as_str()), [2, 4, 7, 9]);
    assert_eq!(show(two.session.as_str()), [3, 6, 8]);
    assert_eq!(show(one.transaction.as_str()), [4, 7]);
    assert_eq!(show("5"), [5]);
    assert_eq!(show("7"), [4, 7]);
    assert_eq!(show(&two.transaction.as_str().chars().take(12).collect::<String>()), [6, 8]);
    assert_eq!(numbers(&reader.about(two.session.as_str()).unwrap()), [3, 6, 8]);
    assert!(reader.about("tx_").unwrap().is_empty(), "only in full");
}

#[test]
fn show_lists_what_a_prefix_could_mean() {
    let (home, one, two) = two_sessions();
    let reader = Ledger::open_read(&home.path).unwrap();
    let LedgerReadError::Ambiguous { mut candidates, .. } = reader.show("tx_").unwrap_err() else { panic!() };
    candidates.sort();
    let mut expected = [one.transaction.to_string(), two.transaction.to_string()];
    expected.sort();
    assert_eq!(candidates, expected);
    // `echo` is in every body, but it is no id.
    for unknown in ["tx_zz", "", "0", "10", "-1", "echo", "99999999999999999999", "%"] {
        let error = reader.show(unknown).unwrap_err();
        assert!(matches!(error, LedgerReadError::Unknown { .. }), "{unknown}: {error}");
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
    let LedgerReadError::Broken(broken) = error else { panic!("{error}") };
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

#[test]
fn filters_hold_all_at_once() {
    let home = Home::new();
    let ledger = home.open();
    let (one, two) = (ids(), ids());
    let at = |second| Timestamp::from_second(second).unwrap();
    let events = [
        (intent(&one), 100),
        (battery(1), 200),
        (intent(&two), 300),
        // A clock that went back.
        (settled(&one), 150),
        (battery(2), 400),
        (settled(&two), 500),
    ];
    events.iter().for_each(|(event, second)| drop(ledger.append_at(event, at(*second)).unwrap()));
    let reader = ledger.reader().unwrap();
    let list = |filter: RecordFilter, count| -> Vec<u64> {
        reader.list(&filter, count).unwrap().iter().map(RecordOrPruned::seq).collect()
    };
    let all = |filter: RecordFilter| {
        let mut found = Vec::new();
        let each = |listed: RecordOrPruned| {
            found.push(listed.seq());
            ControlFlow::Continue(())
        };
        reader.each(&filter, each).unwrap();
        found
    };
    let kinds = |kinds: &[Kind]| RecordFilter { kinds: kinds.to_vec(), ..RecordFilter::default() };
    assert_eq!(list(kinds(&[Kind::BatteryFinished]), 10), [3, 6]);
    assert_eq!(list(kinds(&[Kind::CallSettled, Kind::BatteryFinished]), 3), [5, 6, 7]);
    assert_eq!(list(kinds(&[Kind::CallSettled, Kind::BatteryFinished]), 1), [7]);
    let about = |id: &str| RecordFilter { about: Some(id.to_owned()), ..RecordFilter::default() };
    assert_eq!(list(about(one.session.as_str()), 10), [2, 5]);
    assert_eq!(list(RecordFilter { kinds: vec![Kind::CallSettled], ..about(one.session.as_str()) }, 10), [5]);
    let since = |since, until| RecordFilter {
        since: Some(at(since)),
        until: Some(at(until)),
        ..RecordFilter::default()
    };
    assert_eq!(list(since(150, 400), 10), [3, 4, 5]);
    assert_eq!(list(since(150, 400), 2), [4, 5]);
    assert_eq!(list(since(400, 401), 1), [6]);
    assert_eq!(list(since(600, 700), 10), [0_u64; 0]);
    assert_eq!(all(since(150, 400)), [3, 4, 5]);
    assert_eq!(all(RecordFilter { kinds: vec![Kind::CallIntended], ..since(0, 400) }), [2, 4]);
    assert_eq!(all(RecordFilter { after: 5, ..RecordFilter::default() }), [6, 7]);
}

#[test]
fn the_version_changes_with_every_append() {
    let home = Home::with_records(2);
    let (reader, ledger) = (Ledger::open_read(&home.path).unwrap(), home.open());
    let mut versions = std::collections::BTreeSet::new();
    for _ in 0..5 {
        assert_eq!(reader.version().unwrap(), reader.version().unwrap(), "control: nothing was appended");
        versions.insert(reader.version().unwrap());
        ledger.append(&battery(1)).unwrap().seq();
    }
    assert_eq!(versions.len(), 5);
}
