//! What every store has to do. A store is tested by a [`Place`] of its own and one call of [`run`].

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;

use ringfence_ledger::store::{
    self, Batch, BatchRow, ChainRows, ChainStore, ChainStoreError, ClaimKind, OpenTableChange, Row, RowOrder,
    RowQuery, collect,
};
use ringfence_ledger::{
    AppendError, AttemptRecord, AttemptVerdictWord, Event, ExpectedHead, Kind, Ledger, LedgerSettings,
    Timestamp, verify_rows,
};
use ringfence_types::{Backend, SessionId};

/// An empty place of its own for one store.
pub(crate) trait Place: Sync {
    /// Opens it; again and at the same time, it is the same store.
    fn open(&self) -> Box<dyn ChainStore>;

    /// Where the key of its chain may be.
    fn key(&self) -> PathBuf;
}

/// Everything below, each in a place of its own.
pub(crate) fn run<P: Place>(make: impl Fn() -> P) {
    for check in [
        what_is_appended_is_found,
        a_batch_is_whole_or_not_at_all,
        a_claim_is_given_away_once,
        open_transactions_are_known,
        ids_are_found_by_their_beginning,
        kinds_times_and_numbers_select,
        bodies_are_forgotten_and_nothing_else,
        an_error_of_the_maker_writes_nothing,
        writers_take_turns,
        a_reader_sees_one_moment,
        a_ledger_works_over_it,
    ] {
        check(&make());
    }
}

/// A row after the end of the chain that `rows` show. What the chain looks like is not the store's business.
fn entry(rows: &dyn ChainRows, ahead: u64, ids: &str) -> BatchRow {
    let seq = store::head(rows).unwrap().map_or(0, |head| head.seq) + 1 + ahead;
    let row = Row {
        seq,
        time: format!("2026-01-02T03:04:{:02}.000000Z", seq % 60),
        kind: "battery-finished".to_owned(),
        ids: ids.to_owned(),
        digest: format!("{seq:064x}"),
        body: Some(format!("{{\"é\":{seq}}}")),
        hash: format!("{:064x}", seq + 7),
    };
    BatchRow { row, claim: None, life: None }
}

fn append(
    store: &mut dyn ChainStore,
    change: impl Fn(BatchRow) -> BatchRow,
) -> Result<BatchRow, ChainStoreError> {
    let mut made = None;
    store.append(&mut |rows| {
        let entry = change(entry(rows, 0, ""));
        made = Some(entry.clone());
        Ok(Batch { entries: vec![entry], ..Batch::default() })
    })?;
    Ok(made.unwrap())
}

fn newest(rows: &dyn ChainRows) -> Row {
    collect(rows, &RowQuery::newest(1)).unwrap().pop().unwrap()
}

fn side(rows: &dyn ChainRows, table: ClaimKind) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    rows.side(table, &mut |key, seq| found.push((key.to_owned(), seq))).unwrap();
    found.sort();
    found
}

fn with_ids(ids: &'static str) -> impl Fn(BatchRow) -> BatchRow {
    move |mut entry| {
        entry.row.ids = ids.to_owned();
        entry
    }
}

fn what_is_appended_is_found(place: &dyn Place) {
    let mut store = place.open();
    let one = append(&mut *store, with_ids("tx_1 ses_1")).unwrap();
    let two = append(&mut *store, with_ids("tx_2 ses_1")).unwrap();
    for rows in [&*place.open() as &dyn ChainRows, &*store.reader().unwrap()] {
        assert_eq!(newest(rows), two.row);
        assert_eq!(collect(rows, &RowQuery::about("tx_1")).unwrap(), std::slice::from_ref(&one.row));
        assert_eq!(collect(rows, &RowQuery::about("ses_1")).unwrap(), [one.row.clone(), two.row.clone()]);
        assert!(collect(rows, &RowQuery::about("tx_")).unwrap().is_empty());
        assert_eq!(rows.count_above(one.row.seq).unwrap(), 1);
        assert_eq!(rows.count_above(0).unwrap(), two.row.seq);
    }
}

fn a_batch_is_whole_or_not_at_all(place: &dyn Place) {
    let mut store = place.open();
    let before = newest_seq(&*store);
    let result = store.append(&mut |rows| {
        let mut last = entry(rows, 1, "tx_1");
        // The number of the one before: no store can keep both.
        last.row.seq -= 1;
        Ok(Batch { entries: vec![entry(rows, 0, "tx_1"), last], ..Batch::default() })
    });
    assert!(result.is_err());
    assert_eq!(newest_seq(&*place.open()), before);
    assert!(side(&*store, ClaimKind::Mention).iter().all(|(id, _)| id != "tx_1"));
    let batch = |rows: &dyn ChainRows| (0..50).map(|ahead| entry(rows, ahead, "tx_9")).collect();
    store.append(&mut |rows| Ok(Batch { entries: batch(rows), ..Batch::default() })).unwrap();
    assert_eq!(newest_seq(&*place.open()), before + 50);
}

fn newest_seq(rows: &dyn ChainRows) -> u64 {
    store::head(rows).unwrap().map_or(0, |head| head.seq)
}

fn claiming(key: &str) -> impl Fn(BatchRow) -> BatchRow {
    let key = key.to_owned();
    move |mut entry| {
        entry.claim = Some(key.clone());
        entry
    }
}

fn a_claim_is_given_away_once(place: &dyn Place) {
    let (mut here, mut there) = (place.open(), place.open());
    let first = append(&mut *here, claiming("decided tx_1")).unwrap();
    for store in [&mut here, &mut there] {
        let error = append(&mut **store, claiming("decided tx_1")).unwrap_err();
        assert!(matches!(&error, ChainStoreError::Taken { key } if key == "decided tx_1"), "{error}");
        assert_eq!(store.claimed("decided tx_1").unwrap(), Some(first.row.seq));
        assert_eq!(store.claimed("decided tx_2").unwrap(), None);
    }
    assert_eq!(newest(&*here), first.row, "the row that came with it is not there");
    append(&mut *there, claiming("decided tx_2")).unwrap();
}

fn open_transactions_are_known(place: &dyn Place) {
    let mut store = place.open();
    let life = |life: OpenTableChange| {
        move |mut entry: BatchRow| {
            entry.life = Some(life.clone());
            entry
        }
    };
    let opened = append(&mut *store, life(OpenTableChange::Opens("tx_1".to_owned()))).unwrap().row.seq;
    append(&mut *store, life(OpenTableChange::Opens("tx_1".to_owned()))).unwrap();
    let other = append(&mut *store, life(OpenTableChange::Opens("tx_2".to_owned()))).unwrap().row.seq;
    let expected = [("tx_1".to_owned(), opened), ("tx_2".to_owned(), other)];
    assert_eq!(side(&*store, ClaimKind::Open), expected, "by their first record");
    append(&mut *store, life(OpenTableChange::Closes("tx_1".to_owned()))).unwrap();
    append(&mut *store, life(OpenTableChange::Closes("tx_3".to_owned()))).unwrap();
    assert_eq!(side(&*place.open(), ClaimKind::Open), expected[1..]);
}

fn ids_are_found_by_their_beginning(place: &dyn Place) {
    let mut store = place.open();
    for ids in ["tx_a1 ses_1", "tx_a2 ses_1", "tx_a2 ses_1", "tx_b ses_1", "tx_a% ses_1"] {
        append(&mut *store, with_ids(ids)).unwrap();
    }
    let ids = |prefix: &str, most| store.ids(prefix, most).unwrap();
    assert_eq!(ids("tx_a", 10), ["tx_a%", "tx_a1", "tx_a2"]);
    assert_eq!(ids("tx_a", 2).len(), 2);
    assert_eq!(ids("ses_1", 10), ["ses_1"]);
    for nothing in ["tx_c", "%", "tx_a3", "TX_"] {
        assert!(ids(nothing, 10).is_empty(), "{nothing}");
    }
}

fn kinds_times_and_numbers_select(place: &dyn Place) {
    let mut store = place.open();
    let start = newest_seq(&*store);
    // Times out of order, kinds in turn.
    for (kind, second) in [
        ("call-intended", 10),
        ("call-settled", 40),
        ("call-intended", 20),
        ("call-refused", 30),
        ("call-intended", 50),
    ] {
        append(&mut *store, |mut entry| {
            entry.row.kind = kind.to_owned();
            entry.row.time = format!("2020-01-01T00:00:{second}.000000Z");
            entry.row.ids = "ses_1".to_owned();
            entry
        })
        .unwrap();
    }
    let found = |select: RowQuery<'_>| -> Vec<u64> {
        collect(&*store, &select).unwrap().iter().map(|row| row.seq - start).collect()
    };
    let base = || RowQuery { id: Some("ses_1"), ..RowQuery::default() };
    let time = |second: u32| Some(format!("2020-01-01T00:00:{second}.000000Z"));
    assert_eq!(found(base()), [1, 2, 3, 4, 5]);
    assert_eq!(found(RowQuery { order: RowOrder::NewestFirst, most: Some(2), ..base() }), [5, 4]);
    assert_eq!(found(base().kinds(&[Kind::CallIntended])), [1, 3, 5]);
    assert_eq!(found(RowQuery { since: time(20), until: time(50), ..base() }), [2, 3, 4]);
    assert_eq!(found(RowQuery { numbers: (start + 2, start + 3), ..base() }), [2, 3]);
    let anywhere = RowQuery { order: RowOrder::NewestFirst, most: Some(2), ..RowQuery::default() };
    assert_eq!(
        found(anywhere.clone().kinds(&[Kind::CallSettled, Kind::CallRefused, Kind::CallIntended])),
        [5, 4]
    );
    assert_eq!(found(RowQuery { since: time(30), until: time(50), ..anywhere.clone() }), [4, 2]);
    assert_eq!(found(RowQuery { until: time(11), ..anywhere }.kinds(&[Kind::CallIntended])), [1]);
    let counted = |since: &str| store.kinds_since(since, &[Kind::CallSettled, Kind::CallIntended]).unwrap();
    let read = |kind| collect(&*store, &RowQuery::default().kinds(&[kind])).unwrap().len() as u64;
    assert_eq!(counted("2019-01-01T00:00:00.000000Z"), [read(Kind::CallSettled), read(Kind::CallIntended)]);
    assert_eq!(counted("2999-01-01T00:00:00.000000Z"), [0, 0]);
    let mut seen = 0;
    let mut first = |_: store::RowRef<'_>| {
        seen += 1;
        ControlFlow::Break(())
    };
    store.scan(&RowQuery::default(), &mut first).unwrap();
    assert_eq!(seen, 1, "who has enough gets no more");
}

fn bodies_are_forgotten_and_nothing_else(place: &dyn Place) {
    let mut store = place.open();
    let one = append(&mut *store, with_ids("tx_1")).unwrap().row;
    let two = append(&mut *store, with_ids("tx_2")).unwrap().row;
    store.append(&mut |_| Ok(Batch { forget: vec![one.seq], ..Batch::default() })).unwrap();
    let found = collect(&*place.open(), &RowQuery::numbered(one.seq, two.seq)).unwrap();
    assert_eq!(found, [Row { body: None, ..one }, two]);
}

fn an_error_of_the_maker_writes_nothing(place: &dyn Place) {
    let mut store = place.open();
    let before = newest_seq(&*store);
    let error = store.append(&mut |_| Err(ChainStoreError::Taken { key: "mine".to_owned() })).unwrap_err();
    assert!(matches!(&error, ChainStoreError::Taken { key } if key == "mine"), "{error}");
    store.append(&mut |_| Ok(Batch::default())).unwrap();
    assert_eq!(newest_seq(&*place.open()), before);
    append(&mut *store, |entry| entry).unwrap();
}

fn writers_take_turns(place: &dyn Place) {
    drop(place.open());
    let before = newest_seq(&*place.open());
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut store = place.open();
                barrier.wait();
                (0..10).for_each(|_| drop(append(&mut *store, |entry| entry).unwrap()));
            });
        }
    });
    let rows = collect(&*place.open(), &RowQuery::default()).unwrap();
    let numbers: Vec<u64> = rows.iter().map(|row| row.seq).collect();
    assert_eq!(numbers, (1..=before + 80).collect::<Vec<_>>());
}

fn a_reader_sees_one_moment(place: &dyn Place) {
    let mut store = place.open();
    append(&mut *store, |entry| entry).unwrap();
    let reader = store.reader().unwrap();
    let version = reader.version().unwrap();
    let mut seen = Vec::new();
    reader
        .at_once(&mut || {
            seen.push(newest_seq(&*reader));
            append(&mut *store, |entry| entry).unwrap();
            seen.push(newest_seq(&*reader));
        })
        .unwrap();
    assert_eq!(seen[0], seen[1], "and who reads never stands in the way of who writes");
    assert_eq!(newest_seq(&*reader), seen[0] + 1);
    assert_ne!(reader.version().unwrap(), version);
}

fn a_ledger_works_over_it(place: &dyn Place) {
    let open = || Ledger::with_store(place.open(), place.key(), LedgerSettings::default()).unwrap();
    let (here, there) = (open(), open());
    let entry =
        AttemptRecord { id: "F1".to_owned(), verdict: AttemptVerdictWord::Held, detail: "é".to_owned() };
    let battery =
        Event::BatteryFinished { passed: 1, total: 1, backend: Backend::Native, attempts: vec![entry] };
    let session = SessionId::random().unwrap();
    let ended = Event::SessionEnded { session, reason: None };
    thread::scope(|scope| {
        for ledger in [&here, &here, &there, &there] {
            scope.spawn(|| (0..20).for_each(|_| drop(ledger.append_at(&battery, Timestamp::now()).unwrap())));
        }
    });
    drop(here.append(&ended).unwrap());
    assert!(matches!(there.append(&ended), Err(AppendError::OutOfOrder { .. })));
    let signed = there.checkpoint().unwrap().unwrap();
    here.rotate_key().unwrap();
    drop((here, there));
    let rows = place.open();
    let expected = ExpectedHead { checkpoint: Some(&signed.checkpoint), ..ExpectedHead::default() };
    let verification = verify_rows(&*rows, expected).unwrap();
    assert_eq!(verification.records, 84 + verification.checkpoints - 1);
    assert_eq!(verification.keys.len(), 2);
}
