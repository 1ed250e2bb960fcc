//! Killed, cut off, full: what was acknowledged is there, or its absence can be seen; nothing happens twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use ringfence_ledger::{
    AppendError, ApprovalAnswer, Event, Kind, Ledger, LedgerOpenError, LifecycleError, ProcessId,
    VerifyError, verify,
};
use rustix::process::{Signal, getpid, kill_process};

use crate::bounded;
use crate::processes::{CHILD, assert_success, child, told};
use crate::support::{
    Home, Ids, answered, append_many, asked, battery, ids, intent, launched, settled, started_by,
};

/// Where a child ends itself: between each pair of steps, and between a step and its acknowledgement.
const POINTS: u32 = 12;

/// Kills in each of the two tests; together more than 200.
const ROUNDS: u32 = 10;
const RANDOM: u32 = 100;

/// A place in [`work`] where a child may be killed.
struct Fate {
    at: Option<u32>,
    passed: u32,
}

impl Fate {
    fn point(&mut self) {
        self.passed += 1;
        if self.at == Some(self.passed) {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    }
}

/// What is on disk for good, for whoever listens.
fn acknowledge(seq: u64, hash: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "receipt {seq}:{hash}").and_then(|()| out.flush()).unwrap();
}

fn write(ledger: &Ledger, events: &[Event]) {
    for receipt in ledger.append_all(events).unwrap() {
        acknowledge(receipt.seq(), receipt.hash());
    }
}

/// An effect that can be counted.
fn effect(path: &Path, ids: &Ids) {
    let mut file = OpenOptions::new().append(true).create(true).open(path.with_file_name("effects")).unwrap();
    // One write: a line that is half there would be taken for another transaction.
    file.write_all(format!("{}\n", ids.transaction).as_bytes()).unwrap();
}

/// One of everything, as the pipeline does it.
fn work(path: &Path, ledger: &Ledger, fate: &mut Fate) {
    let session = ids();
    fate.point();
    ledger.announce(&started_by(&session.session, ProcessId::own())).unwrap();
    let [plain, approved, denied] = [0; 3].map(|_| Ids { session: session.session.clone(), ..ids() });
    write(ledger, &[intent(&plain)]);
    fate.point();
    effect(path, &plain);
    fate.point();
    write(ledger, &[launched(&plain), settled(&plain)]);
    fate.point();
    write(ledger, &[asked(&approved)]);
    fate.point();
    write(ledger, &[answered(&approved, ApprovalAnswer::Once)]);
    fate.point();
    write(ledger, &[intent(&approved)]);
    fate.point();
    effect(path, &approved);
    write(ledger, &[settled(&approved)]);
    fate.point();
    write(ledger, &[asked(&denied)]);
    fate.point();
    write(ledger, &[answered(&denied, ApprovalAnswer::Deny)]);
    fate.point();
    let checkpoint = ledger.checkpoint().unwrap().unwrap();
    fate.point();
    ledger.rotate_key().unwrap();
    fate.point();
    assert!(checkpoint.seq > 1);
}

fn be_the_child(path: &Path) {
    let ledger = Ledger::open(path).unwrap();
    ledger.recover(&ProcessId::is_alive).unwrap();
    let at = fs::read_to_string(path.with_file_name("fate")).ok().and_then(|text| text.trim().parse().ok());
    let mut fate = Fate { at, passed: 0 };
    loop {
        work(path, &ledger, &mut fate);
    }
}

/// Reads receipts until the child is dead.
fn listen(mut process: Child, stop_after: Option<(usize, Duration)>) -> Vec<String> {
    let mut receipts = Vec::new();
    let lines = BufReader::new(bounded::Patient(process.stdout.take().unwrap())).lines();
    for line in lines {
        // The last line may be cut off.
        let Ok(line) = line else { break };
        if let Some(receipt) = line.strip_prefix("receipt ").filter(|receipt| receipt.len() > 64) {
            receipts.push(receipt.to_owned());
        }
        if let Some((count, wait)) = stop_after
            && receipts.len() == count
        {
            thread::sleep(wait);
            process.kill().unwrap();
        }
    }
    assert!(!bounded::ended(&mut process).success(), "it was killed");
    receipts
}

/// Everything that must hold after any crash.
fn check(home: &Home, acknowledged: &[String]) {
    let verification = verify(&home.path, None).unwrap();
    let reader = Ledger::open_read(&home.path).unwrap();
    let records = reader.tail(u32::MAX).unwrap();
    let heads: BTreeSet<String> =
        records.iter().map(|record| format!("{}:{}", record.seq, record.hash)).collect();
    for receipt in acknowledged {
        assert!(heads.contains(receipt), "{receipt} was acknowledged and is not there");
    }
    let mut lives: BTreeMap<String, Vec<Kind>> = BTreeMap::new();
    for record in &records {
        if let Some(transaction) = record.event.transaction() {
            lives.entry(transaction.to_string()).or_default().push(record.event.kind());
        }
    }
    let effects = fs::read_to_string(home.path.with_file_name("effects")).unwrap_or_default();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for transaction in effects.lines() {
        assert!(done.insert(transaction), "{transaction} was done twice");
        assert!(lives[transaction].contains(&Kind::CallIntended), "{transaction} was done without a record");
    }
    assert!(verification.incomplete.len() <= 1, "all but the last crash were cleaned up");
}

fn spawn(test: &str, home: &Home) -> Child {
    child(&format!("crashes::{test}"), &home.path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn kill_9_between_each_pair_of_steps_loses_nothing() {
    if let Some(path) = told() {
        be_the_child(&path);
    }
    let home = Home::with_records(1);
    let mut acknowledged = Vec::new();
    let mut kills = 0;
    for round in 0..ROUNDS {
        for point in 1..=POINTS {
            // The same point in the first and in later turns.
            let fate = point + (round % 2) * POINTS;
            fs::write(home.path.with_file_name("fate"), fate.to_string()).unwrap();
            acknowledged
                .extend(listen(spawn("kill_9_between_each_pair_of_steps_loses_nothing", &home), None));
            kills += 1;
            if point % 4 == 0 {
                check(&home, &acknowledged);
            }
        }
    }
    assert_eq!(kills, ROUNDS * POINTS);
    assert!(acknowledged.len() > 500, "{}", acknowledged.len());
    let ledger = home.open();
    ledger.recover(&ProcessId::is_alive).unwrap();
    assert!(verify(&home.path, None).unwrap().incomplete.is_empty());
    check(&home, &acknowledged);
}

#[test]
fn kill_9_at_any_moment_loses_nothing() {
    if let Some(path) = told() {
        be_the_child(&path);
    }
    let home = Home::with_records(1);
    let mut acknowledged = Vec::new();
    for round in 0..RANDOM {
        let count = 1 + usize::try_from(round % 13).unwrap();
        // Somewhere in the following append, of a few milliseconds.
        let wait = Duration::from_micros(u64::from(round) * 7919 % 9000);
        let process = spawn("kill_9_at_any_moment_loses_nothing", &home);
        acknowledged.extend(listen(process, Some((count, wait))));
        if round % 10 == 9 {
            check(&home, &acknowledged);
        }
    }
    // What was denied stays denied, whoever comes after a crash.
    let ledger = home.open();
    ledger.recover(&ProcessId::is_alive).unwrap();
    let reader = ledger.reader().unwrap();
    let denials = reader.of_kinds(&[Kind::ApprovalDecided], 1000).unwrap().into_iter().filter(
        |record| matches!(&record.event, Event::ApprovalDecided(decision) if !decision.answer.permits()),
    );
    let mut count = 0;
    for record in denials {
        let denied = Ids {
            session: record.event.session().unwrap().clone(),
            transaction: record.event.transaction().unwrap().clone(),
        };
        for event in [intent(&denied), answered(&denied, ApprovalAnswer::Once)] {
            let error = ledger.append(&event).unwrap_err();
            assert!(matches!(error, AppendError::OutOfOrder { .. }), "{error}");
        }
        count += 1;
    }
    assert!(count > 5, "{count}");
}

/// The last pages of the log and of the database are lost, at every page and in the middle of pages: a shorter chain that is
/// a beginning of the old one, or an error that says so. Never another history, and with the head always seen.
#[test]
fn lost_pages_are_a_shorter_chain_or_an_error_and_never_another_history() {
    let home = Home::with_records(60);
    let ledger = home.open();
    let kept = ledger.checkpoint().unwrap().unwrap().checkpoint;
    append_many(&ledger, 25);
    let records = ledger.reader().unwrap().tail(u32::MAX).unwrap();
    let head = verify(&home.path, None).unwrap().head.unwrap();
    drop(ledger);
    let log = |path: &Path| path.with_extension("db-wal");
    let (database, wal) = (fs::read(&home.path).unwrap(), fs::read(log(&home.path)).unwrap());
    assert!(wal.len() > 40_000 && database.len() > 40_000, "{} {}", wal.len(), database.len());
    let copy = Home::with_records(1);
    let cut = |database: &[u8], wal: &[u8]| {
        let _gone = fs::remove_file(copy.path.with_extension("db-shm"));
        fs::write(&copy.path, database).unwrap();
        fs::write(log(&copy.path), wal).unwrap();
        match verify(&copy.path, None) {
            Ok(found) => {
                let known = found.head.as_ref().map(|head| (head.seq, head.hash.as_str()));
                let at = usize::try_from(found.records).unwrap();
                assert_eq!(known, records.get(at - 1).map(|record| (record.seq, record.hash.as_str())));
                let seen = verify(&copy.path, Some(&head));
                assert_eq!(
                    seen.is_ok(),
                    found.records == head.seq,
                    "a missing end is seen by who knows the head"
                );
                let expected = ringfence_ledger::ExpectedHead {
                    checkpoint: Some(&kept),
                    ..ringfence_ledger::ExpectedHead::default()
                };
                let signed = ringfence_ledger::verify_with(&copy.path, expected, &mut |_| {});
                assert_eq!(signed.is_ok(), found.records >= kept.last, "or a checkpoint");
                Some(found.records)
            }
            Err(VerifyError::Open(_) | VerifyError::Broken(_) | VerifyError::Damaged { .. }) => None,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(cut(&database, &wal), Some(head.seq), "control");
    let mut shorter = BTreeSet::new();
    for length in (0..wal.len()).step_by(2063) {
        shorter.extend(cut(&database, &wal[..length]));
    }
    assert!(shorter.len() > 3, "{shorter:?}");
    for length in (0..database.len()).step_by(4096).chain((100..database.len()).step_by(9001)) {
        cut(&database[..length], &wal);
        cut(&database[..length], &[]);
    }
}

/// What comes after such a loss: whoever still has the ledger open, or knows the head, does not go on in silence.
#[test]
fn an_end_that_was_lost_under_us_stops_the_next_append() {
    let home = Home::with_records(20);
    let ledger = home.open();
    append_many(&ledger, 1);
    home.sql("DELETE FROM record WHERE seq > 18");
    assert!(matches!(ledger.append(&battery(1)), Err(AppendError::Broken(_))));
}

/// A file system of its own that is really full, and one that turns read-only.
#[test]
fn a_full_and_a_read_only_disk_are_errors_and_nothing_is_half_written() {
    if let Some(path) = told() {
        let filler = path.parent().unwrap().join("filler");
        let ledger = Ledger::open(&path).unwrap();
        fs::write(&filler, vec![0; 300_000]).unwrap();
        let mut written = 1_u64;
        let error = loop {
            match ledger.append(&battery(1)) {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, AppendError::Full(_) | AppendError::Storage(_)), "{error}");
        let verification = verify(&path, None).unwrap();
        assert_eq!(verification.records - verification.checkpoints, written);
        fs::remove_file(filler).unwrap();
        append_many(&ledger, 3);
        drop(ledger);
        append_many(&Ledger::open(&path).unwrap(), 1);
        let before = verify(&path, None).unwrap();
        let mount = path.parent().unwrap().parent().unwrap();
        let remounted = bounded::output(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(mount));
        assert!(remounted.status.success(), "{remounted:?}");
        match Ledger::open(&path) {
            Ok(again) => assert!(again.append(&battery(1)).is_err()),
            Err(error) => {
                assert!(
                    matches!(error, LedgerOpenError::Storage { .. } | LedgerOpenError::Place { .. }),
                    "{error}"
                );
            }
        }
        assert_eq!(verify(&path, None).unwrap(), before, "and it can still be read");
        return;
    }
    let home = Home::new();
    let mount = home.directory.path().join("small");
    fs::create_dir(&mount).unwrap();
    let path = mount.join("state/ledger.db");
    let inner = child("crashes::a_full_and_a_read_only_disk_are_errors_and_nothing_is_half_written", &path);
    let script = "mount -t tmpfs -o size=640k,mode=755 tmpfs \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).arg(&mount);
    command.arg(inner.get_program()).args(inner.get_args()).env(CHILD, &path).stdin(Stdio::null());
    assert_success(&bounded::output(&mut command));
}

#[test]
fn a_clock_that_goes_back_changes_times_and_no_order() {
    let home = Home::new();
    let ledger = home.open();
    let ids = ids();
    let at = |second| ringfence_ledger::Timestamp::from_second(second).unwrap();
    drop(ledger.append_at(&intent(&ids), at(2000)).unwrap());
    drop(ledger.append_at(&settled(&ids), at(1000)).unwrap());
    let error = ledger.append_at(&settled(&ids), at(3000)).unwrap_err();
    assert!(matches!(error, AppendError::OutOfOrder { why: LifecycleError::Closed, .. }), "{error}");
    let records = ledger.reader().unwrap().about(ids.transaction.as_str()).unwrap();
    let times: Vec<&str> = records.iter().map(|record| record.time.as_str()).collect();
    assert_eq!(times, ["1970-01-01T00:33:20.000000Z", "1970-01-01T00:16:40.000000Z"], "as the clock said");
    verify(&home.path, None).unwrap();
}
