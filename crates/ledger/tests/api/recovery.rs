use std::process::Command;

use ringfence_ledger::{
    ApprovalAnswer, Event, Kind, Ledger, OrphanStage, ProcessId, TransactionStatus, orphans, verify,
};

use crate::bounded;
use crate::support::{Home, Ids, answered, asked, ids, intent, settled, started_by};

/// A process that is no more.
fn gone() -> ProcessId {
    let own = ProcessId::own().unwrap();
    let mut child = Command::new("/bin/true").spawn().unwrap();
    let pid = child.id();
    bounded::ended(&mut child);
    ProcessId { pid, start_time: own.start_time + 1, ..own }
}

fn begin(ledger: &Ledger, process: Option<ProcessId>, events: &[fn(&Ids) -> Event]) -> Ids {
    let ids = ids();
    ledger.append(&started_by(&ids.session, process)).unwrap().seq();
    events.iter().for_each(|event| drop(ledger.append(&event(&ids)).unwrap()));
    ids
}

fn end_of(ledger: &Ledger, ids: &Ids) -> Vec<&'static str> {
    let records = ledger.reader().unwrap().about(ids.transaction.as_str()).unwrap();
    records.iter().map(|record| record.event.kind().word()).collect()
}

#[test]
fn what_a_dead_process_left_is_closed_and_what_a_live_one_does_is_not() {
    let home = Home::new();
    let ledger = home.open();
    let (alive, dead) = (ProcessId::own(), Some(gone()));
    let yes: fn(&Ids) -> Event = |ids| answered(ids, ApprovalAnswer::Once);
    let running = begin(&ledger, alive.clone(), &[intent]);
    let crashed = begin(&ledger, dead.clone(), &[intent]);
    let asking = begin(&ledger, alive, &[asked]);
    let unanswered = begin(&ledger, dead.clone(), &[asked]);
    let unused = begin(&ledger, dead.clone(), &[asked, yes]);
    let no: fn(&Ids) -> Event = |ids| answered(ids, ApprovalAnswer::Deny);
    let denied = begin(&ledger, dead.clone(), &[asked, no]);
    let done = begin(&ledger, dead, &[intent, settled]);
    let unknown = begin(&ledger, None, &[intent]);

    let found = orphans(&ledger.reader().unwrap(), &ProcessId::is_alive).unwrap();
    let left: Vec<_> = found.iter().map(|orphan| (&orphan.transaction, &orphan.left)).collect();
    let question = crate::support::fingerprint();
    assert_eq!(
        left,
        [
            (&crashed.transaction, &OrphanStage::Begun),
            (&unanswered.transaction, &OrphanStage::Asked(question)),
            (&unused.transaction, &OrphanStage::Answered),
            (&denied.transaction, &OrphanStage::Answered),
        ]
    );
    assert_eq!(ledger.recover(&ProcessId::is_alive).unwrap(), found);
    assert_eq!(end_of(&ledger, &crashed), ["call-intended", "call-interrupted"]);
    assert_eq!(end_of(&ledger, &unanswered), ["approval-requested", "approval-decided", "call-refused"]);
    assert_eq!(end_of(&ledger, &unused), ["approval-requested", "approval-decided", "call-refused"]);
    assert_eq!(end_of(&ledger, &denied), ["approval-requested", "approval-decided", "call-refused"]);
    assert_eq!(end_of(&ledger, &running), ["call-intended"]);
    assert_eq!(end_of(&ledger, &asking), ["approval-requested"]);
    assert_eq!(end_of(&ledger, &done), ["call-intended", "call-settled"]);
    assert_eq!(end_of(&ledger, &unknown), ["call-intended"]);
    assert!(ledger.recover(&ProcessId::is_alive).unwrap().is_empty(), "there is nothing left to do");
    let verification = verify(&home.path, None).unwrap();
    assert_eq!(verification.incomplete, [running.transaction, unknown.transaction]);
}

/// Two that recover at once, and a process that was only slow: whoever writes the end first has written it.
#[test]
fn a_crash_is_closed_once() {
    let home = Home::new();
    let ledger = home.open();
    let dead = gone();
    let left: Vec<Ids> = (0..20).map(|_| begin(&ledger, Some(dead.clone()), &[intent])).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| home.open().recover(&ProcessId::is_alive).unwrap());
        }
    });
    assert!(left.iter().all(|ids| end_of(&ledger, ids) == ["call-intended", "call-interrupted"]));
    assert!(ledger.append(&settled(&left[0])).is_err(), "too late");
    verify(&home.path, None).unwrap();
}

#[test]
fn a_recovered_question_is_answered_no() {
    let home = Home::new();
    let ledger = home.open();
    let left = begin(&ledger, Some(gone()), &[asked]);
    ledger.recover(&ProcessId::is_alive).unwrap();
    let records = ledger.reader().unwrap().of_kinds(&[Kind::ApprovalDecided], 1).unwrap();
    let Event::ApprovalDecided(decision) = &records[0].event else { panic!() };
    assert_eq!((&decision.transaction, decision.answer), (&left.transaction, ApprovalAnswer::Expired));
    let records = ledger.reader().unwrap().about(left.transaction.as_str()).unwrap();
    let life = ringfence_ledger::Lifecycle::of(records.iter().map(|record| &record.event)).unwrap();
    assert_eq!(life.status(), TransactionStatus::Refused);
    assert!(
        ledger.append(&answered(&left, ApprovalAnswer::Once)).is_err(),
        "an answer after that changes nothing"
    );
}
