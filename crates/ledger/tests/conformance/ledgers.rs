//! What every store has to do. A store is added by a [`Place`] and one line at the end.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::thread;

use ringfence_ledger::{
    AppendError, ApprovalAnswer, Event, ExpectedHead, Kind, Ledger, LedgerReadError, LedgerReader,
    LifecycleError, PruneRequest, RecordFilter, RetentionClass, Timestamp, Verification, VerifyError,
    verify_with,
};
use tempfile::TempDir;

use crate::cluster::{Database, shared};
use crate::events::{Ids, answered, asked, battery, granted, ids, intent, intent_by, person, settled, voted};

/// Where a store is, for the length of a test.
pub(crate) trait Place: Sync {
    fn make() -> Self;
    fn open(&self) -> Ledger;
    fn reader(&self) -> LedgerReader;
    fn verify(&self) -> Result<Verification, VerifyError>;
    /// Changes behind the back of the ledger. Tables are called `record`, `claim`, `mention` and `open`.
    fn tamper(&self, sql: &str);
}

pub(crate) struct Sqlite {
    _directory: TempDir,
    path: PathBuf,
}

impl Place for Sqlite {
    fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.db");
        Self { _directory: directory, path }
    }

    fn open(&self) -> Ledger {
        Ledger::open(&self.path).unwrap()
    }

    fn reader(&self) -> LedgerReader {
        Ledger::open_read(&self.path).unwrap()
    }

    fn verify(&self) -> Result<Verification, VerifyError> {
        verify_with(&self.path, ExpectedHead::default(), &mut |_| {})
    }

    fn tamper(&self, sql: &str) {
        rusqlite::Connection::open(&self.path).unwrap().execute_batch(sql).unwrap();
    }
}

impl Place for Database<'static> {
    fn make() -> Self {
        shared().database()
    }

    fn open(&self) -> Ledger {
        Database::open(self, "one")
    }

    fn reader(&self) -> LedgerReader {
        Ledger::connect_read(&self.node("one")).unwrap()
    }

    /// A database that holds has chains that hold.
    fn verify(&self) -> Result<Verification, VerifyError> {
        let mut all =
            ringfence_ledger::verify_database(&self.node("one"), ringfence_ledger::ExpectedHead::default())
                .and_then(ringfence_ledger::DatabaseVerification::whole)?;
        let alone = self.reader().verify(ExpectedHead::default())?;
        assert_eq!(all.pop().unwrap(), alone);
        Ok(alone)
    }

    fn tamper(&self, sql: &str) {
        self.sql(&format!("SET search_path = ringfence; {sql}"));
    }
}

fn append_all(ledger: &Ledger, events: &[Event]) {
    for event in events {
        ledger.append(event).map(|receipt| receipt.seq()).unwrap();
    }
}

fn why(error: AppendError) -> LifecycleError {
    match error {
        AppendError::OutOfOrder { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

fn a_life(ids: &Ids) -> [Event; 4] {
    [asked(ids), answered(ids, ApprovalAnswer::Once), intent(ids), settled(ids)]
}

fn what_is_written_comes_back<P: Place>() {
    let place = P::make();
    let ids = ids();
    let events = a_life(&ids);
    append_all(&place.open(), &events);
    append_all(&place.open(), &[battery(7)]);
    let reader = place.reader();
    let records = reader.tail(5).unwrap();
    assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
    assert_eq!(records.iter().take(4).map(|record| record.event.clone()).collect::<Vec<_>>(), events);
    assert_eq!(records.last().unwrap().event, battery(7));
    assert_eq!(place.verify().unwrap().records, 6);
}

fn reading_finds_by_id_kind_number_and_time<P: Place>() {
    let place = P::make();
    let ledger = place.open();
    let (one, two) = (ids(), ids());
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    for (number, event) in
        [asked(&one), intent(&two), answered(&one, ApprovalAnswer::Once), settled(&two), battery(1)]
            .iter()
            .enumerate()
    {
        ledger.append_at(event, at(1_000 + number as i64)).map(|receipt| receipt.seq()).unwrap();
    }
    let reader = place.reader();
    let numbers =
        |records: Vec<ringfence_ledger::Record>| records.iter().map(|record| record.seq).collect::<Vec<_>>();
    assert_eq!(numbers(reader.about(one.transaction.as_str()).unwrap()), [2, 4]);
    assert_eq!(numbers(reader.show(two.session.as_str()).unwrap()), [3, 5]);
    assert_eq!(numbers(reader.show(one.transaction.as_str().get(..12).unwrap()).unwrap()), [2, 4]);
    assert_eq!(numbers(reader.of_kinds(&[Kind::CallSettled, Kind::ApprovalRequested], 9).unwrap()), [2, 5]);
    assert_eq!(numbers(reader.of_kinds(&[Kind::CallSettled, Kind::ApprovalRequested], 1).unwrap()), [5]);
    assert!(
        matches!(reader.show("tx_"), Err(LedgerReadError::Ambiguous { candidates, .. }) if candidates.len() == 2)
    );
    assert!(matches!(reader.show("nothing"), Err(LedgerReadError::Unknown { .. })));
    let listed = |filter: RecordFilter| {
        reader.list(&filter, 9).unwrap().iter().map(|listed| listed.seq()).collect::<Vec<_>>()
    };
    assert_eq!(
        listed(RecordFilter { since: Some(at(1_001)), until: Some(at(1_003)), ..RecordFilter::default() }),
        [3, 4]
    );
    assert_eq!(listed(RecordFilter { after: 4, ..RecordFilter::default() }), [5, 6]);
    assert_eq!(
        listed(RecordFilter {
            kinds: vec![Kind::CallIntended],
            about: Some(two.session.to_string()),
            ..RecordFilter::default()
        }),
        [3]
    );
}

fn a_long_chain_is_read_in_order_and_whole<P: Place>() {
    let place = P::make();
    let ledger = place.open();
    for part in 0..25 {
        let events: Vec<Event> = (0..100).map(|number| battery(part * 100 + number)).collect();
        assert_eq!(ledger.append_all(&events).unwrap().len(), 100);
    }
    let reader = place.reader();
    let mut seen = Vec::new();
    reader
        .each(&RecordFilter::default(), |listed| {
            seen.push(listed.seq());
            ControlFlow::Continue(())
        })
        .unwrap();
    let count = seen.len() as u64;
    assert!(count > 2_500, "checkpoints are among them: {count}");
    assert_eq!(seen, (1..=count).collect::<Vec<_>>());
    let mut few = 0;
    reader
        .each(&RecordFilter { after: 1_500, ..RecordFilter::default() }, |_| {
            few += 1;
            if few == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(few, 3);
    let tail = reader.tail(1_200).unwrap();
    assert_eq!((tail.len(), tail.last().unwrap().seq), (1_200, count));
    let verification = place.verify().unwrap();
    assert_eq!(verification.records, count);
    assert!(verification.checkpoints >= 2);
}

fn what_is_out_of_order_is_not_written<P: Place>() {
    let place = P::make();
    let ids = ids();
    let ledger = place.open();
    let [asked, once, intent, settled] = &a_life(&ids);
    for (event, expected) in [
        (settled, Err(LifecycleError::NotIntended)),
        (once, Err(LifecycleError::NotAsked)),
        (asked, Ok(())),
        (asked, Err(LifecycleError::AskedTwice)),
        (intent, Err(LifecycleError::NotPermitted)),
        (&voted(&ids, 7), Ok(())),
        (&voted(&ids, 7), Err(LifecycleError::VotedTwice)),
        (once, Ok(())),
        (once, Err(LifecycleError::AnsweredTwice)),
        (intent, Ok(())),
        (intent, Err(LifecycleError::IntendedTwice)),
        (settled, Ok(())),
        (settled, Err(LifecycleError::Closed)),
    ] {
        // By who began it, and by somebody who has to read it first.
        let by_other = place.open().append(event).map(drop).map_err(why);
        assert_eq!(by_other, expected, "{event:?}");
        if expected.is_err() {
            assert_eq!(ledger.append(event).map(drop).map_err(why), expected);
        }
    }
    assert_eq!(place.verify().unwrap().records, 6);
}

fn several_are_written_all_or_not_at_all<P: Place>() {
    let place = P::make();
    let ledger = place.open();
    let (one, two) = (ids(), ids());
    assert!(ledger.append_all(&[intent(&one), battery(1), settled(&two)]).is_err());
    assert_eq!(place.verify().unwrap().records, 1);
    assert_eq!(ledger.append_all(&[intent(&one), battery(1), settled(&one)]).unwrap().len(), 3);
    assert_eq!(place.verify().unwrap().records, 4);
    assert!(place.reader().open_transactions().unwrap().is_empty());
}

fn what_has_no_end_is_open<P: Place>() {
    let place = P::make();
    let ledger = place.open();
    let (left, done) = (ids(), ids());
    append_all(&ledger, &[intent(&left), intent(&done), settled(&done)]);
    assert_eq!(place.reader().open_transactions().unwrap(), [left.transaction.to_string()]);
    assert_eq!(place.verify().unwrap().incomplete, std::slice::from_ref(&left.transaction));
    append_all(&ledger, &[settled(&left)]);
    assert!(place.reader().open_transactions().unwrap().is_empty());
    assert!(place.verify().unwrap().incomplete.is_empty());
}

fn a_grant_is_used_as_often_as_it_says<P: Place>() {
    let place = P::make();
    let ledger = place.open();
    let asker = ids();
    let (grant, made) = granted(&asker, Some(2));
    assert_eq!(
        why(ledger.append(&intent_by(&ids(), Some(grant.clone()))).unwrap_err()),
        LifecycleError::NotGranted
    );
    append_all(&ledger, &[asked(&asker), answered(&asker, ApprovalAnswer::Session), made]);
    append_all(&ledger, &[intent_by(&ids(), Some(grant.clone())), intent_by(&ids(), Some(grant.clone()))]);
    assert_eq!(
        why(ledger.append(&intent_by(&ids(), Some(grant.clone()))).unwrap_err()),
        LifecycleError::UsedUp
    );
    let revoked = Event::GrantRevoked { grant: grant.clone(), actor: person(1), reason: None };
    append_all(&ledger, std::slice::from_ref(&revoked));
    assert_eq!(why(place.open().append(&revoked).unwrap_err()), LifecycleError::RevokedTwice);
    assert_eq!(place.verify().unwrap().records, 7);
}

fn threads_and_ledgers_make_one_chain<P: Place>() {
    let place = P::make();
    let together = place.open();
    thread::scope(|scope| {
        for number in 0..4 {
            let (together, place) = (&together, &place);
            scope.spawn(move || (0..25).for_each(|at| append_all(together, &[battery(number * 100 + at)])));
            scope.spawn(move || {
                let own = place.open();
                (0..25).for_each(|_| {
                    let ids = ids();
                    append_all(&own, &[intent(&ids), settled(&ids)]);
                });
            });
        }
    });
    drop(together);
    let found = place
        .reader()
        .of_kinds(&[Kind::BatteryFinished, Kind::CallIntended, Kind::CallSettled], 1_000)
        .unwrap();
    assert_eq!(found.len(), 4 * 25 + 4 * 50);
    let verification = place.verify().unwrap();
    assert_eq!(verification.head.unwrap().seq, verification.records);
}

fn the_first_answer_wins<P: Place>() {
    let place = P::make();
    for _ in 0..5 {
        let ids = ids();
        append_all(&place.open(), &[asked(&ids)]);
        let answers =
            [ApprovalAnswer::Once, ApprovalAnswer::Deny, ApprovalAnswer::Session, ApprovalAnswer::Expired];
        let given: Vec<bool> = thread::scope(|scope| {
            let threads: Vec<_> = answers
                .iter()
                .map(|answer| {
                    let (ledger, event) = (place.open(), answered(&ids, *answer));
                    scope.spawn(move || match ledger.append(&event) {
                        Ok(_) => true,
                        Err(error) => {
                            assert_eq!(why(error), LifecycleError::AnsweredTwice);
                            false
                        }
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(given.iter().filter(|won| **won).count(), 1);
        let about = place.reader().about(ids.transaction.as_str()).unwrap();
        assert_eq!(about.len(), 2);
    }
    assert!(place.verify().is_ok());
}

fn a_change_is_seen_by_who_waits<P: Place>() {
    let place = P::make();
    let ledger = place.open();
    let reader = ledger.reader().unwrap();
    let before = reader.version().unwrap();
    assert_eq!(reader.version().unwrap(), before);
    append_all(&place.open(), &[battery(1)]);
    assert_ne!(reader.version().unwrap(), before);
    assert_eq!(reader.tail(1).unwrap()[0].event, battery(1));
}

fn pruning_keeps_the_chain<P: Place>() {
    let place = P::make();
    let ledger = place.open();
    let (done, left) = (ids(), ids());
    append_all(&ledger, &[intent(&done), settled(&done), intent(&left)]);
    let before = Timestamp::now();
    let pruning = PruneRequest { before, classes: vec![RetentionClass::Activity] };
    assert_eq!(ledger.prune(&pruning, &person(0)).unwrap(), 2);
    let verification = place.verify().unwrap();
    assert_eq!(verification.pruned, 2);
    let reader = place.reader();
    assert_eq!(reader.find(done.transaction.as_str()).unwrap().len(), 2);
    assert_eq!(reader.show(done.transaction.as_str()).unwrap().len(), 0);
    assert_eq!(reader.show(left.transaction.as_str()).unwrap().len(), 1);
    assert_eq!(why(ledger.append(&settled(&done)).unwrap_err()), LifecycleError::Closed);
    append_all(&place.open(), &[settled(&left)]);
    place.tamper("UPDATE record SET body = NULL WHERE seq = 4");
    assert!(place.verify().is_err(), "a body that nobody said was pruned");
}

/// The claim of a vote leads to the record of a vote about the same question, also when its body is gone.
fn a_claim_to_a_vote_is_checked_after_pruning<P: Place>() {
    let place = P::make();
    let ledger = place.open();
    let ids = ids();
    append_all(&ledger, &[asked(&ids), voted(&ids, 7), answered(&ids, ApprovalAnswer::Once)]);
    append_all(&ledger, &[intent(&ids), settled(&ids)]);
    let classes = vec![RetentionClass::Consent];
    assert!(ledger.prune(&PruneRequest { before: Timestamp::now(), classes }, &person(0)).unwrap() > 0);
    place.verify().unwrap();
    place.tamper("UPDATE claim SET seq = 2 WHERE key LIKE 'voted %'");
    assert!(place.verify().is_err(), "it leads to another record");
    place.tamper("UPDATE claim SET seq = 3 WHERE key LIKE 'voted %'");
    place.verify().unwrap();
    place.tamper("UPDATE claim SET key = replace(key, 'tx_', 'tx_0') WHERE key LIKE 'voted %'");
    assert!(place.verify().is_err(), "it is about another question");
}

fn checkpoints_prove_records_and_keys_change<P: Place>() {
    let place = P::make();
    let ledger = place.open();
    let ids = ids();
    append_all(&ledger, &[intent(&ids), settled(&ids)]);
    let old = ledger.checkpoint().unwrap().unwrap().checkpoint.key;
    let proofs = place.reader().prove(ids.transaction.as_str()).unwrap();
    assert_eq!(proofs.len(), 2);
    assert!(proofs.iter().all(|proof| proof.check(Some(&old)).is_ok()));
    let new = ledger.rotate_key().unwrap();
    append_all(&ledger, &[battery(1)]);
    assert_eq!(ledger.checkpoint().unwrap().unwrap().checkpoint.key, new);
    drop(ledger);
    append_all(&place.open(), &[battery(2)]);
    let verification = place.verify().unwrap();
    assert_eq!(verification.keys, [old, new]);
}

/// The key that the chain names last is the one in the file, however many processes rotate at once. The control is one
/// rotation alone.
fn rotations_at_once_keep_the_key<P: Place>() {
    let place = P::make();
    let is_usable = |rotations: usize| {
        let ledger = place.open();
        assert_eq!(ledger.broken(), None, "after {rotations} rotations");
        append_all(&ledger, &[battery(1)]);
        ledger.checkpoint().unwrap();
    };
    place.open().rotate_key().unwrap();
    is_usable(1);
    for round in 1..=10 {
        let start = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let ledger = place.open();
                    start.wait();
                    ledger.rotate_key().unwrap();
                });
            }
        });
        is_usable(1 + 2 * round);
    }
    assert_eq!(place.verify().unwrap().keys.len(), 22);
}

/// The control is the chain before it is touched.
fn whatever_is_edited_is_found<P: Place>() {
    let edits = [
        "UPDATE record SET body = replace(body, '\"passed\":3', '\"passed\":4') WHERE seq = 4",
        "UPDATE record SET time = '2020-01-01T00:00:00.000000Z' WHERE seq = 4",
        "UPDATE record SET kind = 'call-settled' WHERE seq = 4",
        "UPDATE record SET hash = digest WHERE seq = 4",
        "DELETE FROM record WHERE seq = 4",
        "UPDATE record SET seq = -4 WHERE seq = 4",
        "DELETE FROM claim",
        "DELETE FROM mention",
        "DELETE FROM open",
    ];
    for edit in edits {
        let place = P::make();
        let ids = ids();
        let ledger = place.open();
        append_all(&ledger, &[battery(1), battery(2), battery(3), intent(&ids)]);
        assert_eq!(place.verify().unwrap().records, 5, "{edit}");
        place.tamper(edit);
        assert!(place.verify().is_err(), "{edit}");
    }
}

/// A program that has the ledger open does not go on behind an end that is not the one it saw.
fn an_end_that_changed_takes_no_more_records<P: Place>() {
    let cut = "DELETE FROM record WHERE seq > 3";
    let edited = "UPDATE record SET body = replace(body, '\"passed\":3', '\"passed\":4') WHERE seq = 4";
    for edit in [cut, edited] {
        let place = P::make();
        let ledger = place.open();
        append_all(&ledger, &[battery(1), battery(2), battery(3)]);
        place.tamper(edit);
        let fresh = place.open();
        let refused = fresh.append(&battery(9)).is_err() || edit == cut;
        assert!(refused, "{edit}");
        if edit == cut {
            assert!(matches!(ledger.append(&battery(9)), Err(AppendError::Broken(_))), "{edit}");
        }
    }
}

fn a_reader_does_not_stand_in_the_way<P: Place>() {
    let place = P::make();
    let ledger = place.open();
    append_all(&ledger, &[battery(1), battery(2), battery(3)]);
    let mut seen = 0;
    place
        .reader()
        .each(&RecordFilter::default(), |_| {
            seen += 1;
            append_all(&ledger, &[battery(9)]);
            if seen == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(seen, 4);
    assert_eq!(place.verify().unwrap().records, 8);
}

macro_rules! conformance {
    ($store:ident, $place:ty, [$($test:ident),* $(,)?]) => {
        mod $store {
            $(
                #[test]
                fn $test() {
                    super::$test::<$place>();
                }
            )*
        }
    };
}

macro_rules! for_every_store {
    ($tests:tt) => {
        conformance!(sqlite, super::Sqlite, $tests);
        conformance!(postgres, super::Database<'static>, $tests);
    };
}

for_every_store!([
    what_is_written_comes_back,
    reading_finds_by_id_kind_number_and_time,
    a_long_chain_is_read_in_order_and_whole,
    what_is_out_of_order_is_not_written,
    several_are_written_all_or_not_at_all,
    what_has_no_end_is_open,
    a_grant_is_used_as_often_as_it_says,
    threads_and_ledgers_make_one_chain,
    the_first_answer_wins,
    a_change_is_seen_by_who_waits,
    pruning_keeps_the_chain,
    a_claim_to_a_vote_is_checked_after_pruning,
    checkpoints_prove_records_and_keys_change,
    rotations_at_once_keep_the_key,
    whatever_is_edited_is_found,
    an_end_that_changed_takes_no_more_records,
    a_reader_does_not_stand_in_the_way,
]);
