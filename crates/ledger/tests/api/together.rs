//! Many at once: one commit for all who wait, and nobody suffers for another.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use ringfence_ledger::{AppendError, ApprovalAnswer, LifecycleError, verify};

use crate::support::{Home, answered, asked, battery, ids, intent, settled, voted};

#[test]
fn a_hundred_parallel_appends_are_all_there_and_in_order() {
    let home = Home::new();
    let ledger = home.open();
    let barrier = Barrier::new(100);
    let seqs: Vec<u64> = thread::scope(|scope| {
        let append = || {
            let ids = ids();
            barrier.wait();
            let first = ledger.append(&intent(&ids)).unwrap();
            let second = ledger.append(&settled(&ids)).unwrap();
            assert!(first.seq() < second.seq());
            [first.seq(), second.seq()]
        };
        let threads: Vec<_> = (0..100).map(|_| scope.spawn(append)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut sorted = seqs.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), 200, "no number twice");
    let verification = verify(&home.path, None).unwrap();
    assert_eq!((verification.records, verification.incomplete.len()), (201 + verification.checkpoints, 0));
}

#[test]
fn one_that_is_out_of_order_does_not_take_others_with_it() {
    let home = Home::new();
    let ledger = home.open();
    let barrier = Barrier::new(64);
    let refused = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..64 {
            let (barrier, ledger, refused) = (&barrier, &ledger, &refused);
            scope.spawn(move || {
                barrier.wait();
                for _ in 0..5 {
                    if number % 2 == 0 {
                        ledger.append(&battery(number)).unwrap().seq();
                        continue;
                    }
                    let error = ledger.append_all(&[battery(number), settled(&ids())]).unwrap_err();
                    assert!(matches!(error, AppendError::OutOfOrder { .. }), "{error}");
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(refused.into_inner(), 160);
    let verification = verify(&home.path, None).unwrap();
    assert_eq!(verification.records, 161 + verification.checkpoints);
}

/// The first answer wins, whoever gives it: threads of one process and several connections.
#[test]
fn of_many_answers_one_wins() {
    for _ in 0..5 {
        let home = Home::new();
        let shared = home.open();
        let question = ids();
        drop(shared.append(&asked(&question)).unwrap());
        let barrier = Barrier::new(16);
        let answers = [ApprovalAnswer::Once, ApprovalAnswer::Deny];
        let won = AtomicU32::new(0);
        thread::scope(|scope| {
            for number in 0..16_usize {
                let (shared, home, question, barrier, won) = (&shared, &home, &question, &barrier, &won);
                scope.spawn(move || {
                    let own = (number % 4 == 0).then(|| home.open());
                    let ledger = own.as_ref().unwrap_or(shared);
                    barrier.wait();
                    match ledger.append(&answered(question, answers[number % 2])) {
                        Ok(_) => drop(won.fetch_add(1, Ordering::Relaxed)),
                        Err(AppendError::OutOfOrder { why, .. }) => {
                            assert_eq!(why, LifecycleError::AnsweredTwice)
                        }
                        Err(other) => panic!("{other}"),
                    }
                });
            }
        });
        assert_eq!(won.into_inner(), 1);
        assert_eq!(verify(&home.path, None).unwrap().records, 3);
    }
}

#[test]
fn a_person_votes_once_wherever_they_sit() {
    let home = Home::new();
    let [here, there] = [home.open(), home.open()];
    let question = ids();
    drop(here.append(&asked(&question)).unwrap());
    drop(here.append(&voted(&question, 7)).unwrap());
    let again = there.append(&voted(&question, 7)).unwrap_err();
    assert!(matches!(again, AppendError::OutOfOrder { why: LifecycleError::VotedTwice, .. }), "{again}");
    drop(there.append(&voted(&question, 8)).unwrap());
}

/// What another process wrote about a transaction counts, also for who has it in memory.
#[test]
fn an_answer_from_elsewhere_is_seen_by_who_asked() {
    let home = Home::new();
    let [asking, answering] = [home.open(), home.open()];
    let question = ids();
    drop(asking.append(&asked(&question)).unwrap());
    assert!(asking.append(&intent(&question)).is_err(), "control: nobody has answered");
    drop(answering.append(&answered(&question, ApprovalAnswer::Once)).unwrap());
    drop(asking.append(&intent(&question)).unwrap());
    assert!(answering.append(&intent(&question)).is_err());
}
