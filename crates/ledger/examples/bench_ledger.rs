//! Prints how long the ledger takes, one duration in nanoseconds per line. Called in small rounds by `cargo xtask bench`.
//!
//! - `bench_ledger bare DIR N`: N times 1 kB written to a file and made durable;
//! - `bench_ledger append DIR N`: N appends of an event of 1 kB; `scanned`: while a reader reads the whole ledger, again and again;
//! - `bench_ledger threads DIR T N`: T threads append N events each; one line, the time per event;
//! - `bench_ledger open DIR N`: the ledger opened N times;
//! - `bench_ledger fill DIR N`: prints nothing, makes a ledger of N events of 1 kB;
//! - `bench_ledger verify DIR`: one line;
//! - `bench_ledger tail|show|kind|session|since DIR N`: N queries;
//! - `bench_ledger today DIR N`: N times what `ringfence status` counts of a day.
#![expect(clippy::print_stdout, reason = "the numbers are the program's output")]

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_ledger::{Event, Kind, Ledger, LedgerReader, RecordFilter, Timestamp, verify};
use ringfence_types::{
    ActionFingerprint, ByteString, Call, Decision, ExecCall, Limits, NetMode, PolicyLayer, Profile, RuleId,
    SessionId, StandardInput, TransactionId,
};

const EVENT: usize = 1024;

/// How many events one commit of `fill` has.
const AT_ONCE: usize = 5000;

type Durations = Result<Vec<Duration>, Box<dyn Error>>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let durations = match arguments.as_slice() {
        ["bare", directory, rounds] => bare(Path::new(directory), rounds.parse()?)?,
        ["append", directory, rounds] => appends(&open(directory)?, rounds.parse()?)?,
        ["scanned", directory, rounds] => scanned(directory, rounds.parse()?)?,
        ["threads", directory, threads, rounds] => {
            together(&open(directory)?, threads.parse()?, rounds.parse()?)?
        }
        ["open", directory, rounds] => timed(rounds.parse()?, || open(directory).map(drop))?,
        ["fill", directory, count] => fill(&open(directory)?, count.parse()?)?,
        ["verify", directory] => timed(1, || Ok(verify(&path(directory), None).map(drop)?))?,
        ["today", directory, rounds] => today(&Ledger::open_read(&path(directory))?, rounds.parse()?)?,
        [question, directory, rounds] => {
            ask(question, &Ledger::open_read(&path(directory))?, rounds.parse()?)?
        }
        other => return Err(format!("not a benchmark: {other:?}").into()),
    };
    durations.iter().for_each(|duration| println!("{}", duration.as_nanos()));
    Ok(())
}

fn path(directory: &str) -> PathBuf {
    Path::new(directory).join("ledger.db")
}

fn open(directory: &str) -> Result<Ledger, Box<dyn Error>> {
    Ok(Ledger::open(&path(directory))?)
}

fn timed(rounds: usize, mut work: impl FnMut() -> Result<(), Box<dyn Error>>) -> Durations {
    let one = |_| {
        let start = Instant::now();
        work()?;
        Ok(start.elapsed())
    };
    (0..rounds).map(one).collect()
}

fn bare(directory: &Path, rounds: usize) -> Durations {
    let mut file = OpenOptions::new().create(true).append(true).open(directory.join("bare"))?;
    timed(rounds, || {
        file.write_all(&[b'x'; EVENT])?;
        Ok(file.sync_data()?)
    })
}

fn appends(ledger: &Ledger, rounds: usize) -> Durations {
    let session = SessionId::random()?;
    // Making an event is not what is measured.
    let events: Result<Vec<Event>, _> = (0..rounds).map(|_| intent(&session)).collect();
    let mut events = events?.into_iter();
    timed(rounds, || {
        let event = events.next().ok_or("no event is left")?;
        ledger.append(&event)?.seq();
        Ok(())
    })
}

fn scanned(directory: &str, rounds: usize) -> Durations {
    let ledger = open(directory)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // What a reader finds is not what is measured; that it reads is.
                let _read = Ledger::open_read(&path(directory))
                    .map(|reader| reader.tail(u32::MAX).map(|all| all.len()));
            }
        });
        let durations = appends(&ledger, rounds);
        is_over.store(true, Ordering::Relaxed);
        durations
    })
}

fn together(ledger: &Ledger, threads: usize, rounds: usize) -> Durations {
    let start = Instant::now();
    let failed = thread::scope(|scope| {
        let work = || appends(ledger, rounds).map_err(|error| error.to_string());
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().find_map(|thread| match thread.join() {
            Ok(result) => result.err(),
            Err(_) => Some("a thread panicked".to_owned()),
        })
    });
    if let Some(failed) = failed {
        return Err(failed.into());
    }
    let events = u32::try_from(threads * rounds)?;
    Ok(vec![start.elapsed() / events])
}

/// Sessions of 100 events, as they would be.
fn fill(ledger: &Ledger, count: usize) -> Durations {
    let mut left = count;
    while left > 0 {
        let now = left.min(AT_ONCE);
        let mut events = Vec::with_capacity(now);
        let mut session = SessionId::random()?;
        for number in 0..now / 2 {
            if number % 50 == 0 {
                session = SessionId::random()?;
            }
            let event = intent(&session)?;
            let transaction = event.transaction().cloned().ok_or("an intent has a transaction")?;
            events.push(event);
            events.push(settled(transaction, &session));
        }
        drop(ledger.append_all(&events)?);
        left -= now.max(2);
    }
    Ok(Vec::new())
}

fn today(reader: &LedgerReader, rounds: usize) -> Durations {
    let kinds = [Kind::CallIntended, Kind::ApprovalRequested, Kind::CallRefused];
    let midnight = Timestamp::from_second(0)?;
    timed(rounds, || Ok(reader.counts_since(midnight, &kinds).map(drop)?))
}

fn ask(question: &str, reader: &LedgerReader, rounds: usize) -> Durations {
    let end = reader.head()?.ok_or("an empty ledger")?.seq;
    let middle = reader.show(&(end / 2).to_string())?;
    let event = &middle.first().ok_or("nothing in the middle")?.event;
    let transaction = event.transaction().map(ToString::to_string).unwrap_or_default();
    let session = event.session().map(ToString::to_string).unwrap_or_default();
    let filter = match question {
        "tail" | "show" => RecordFilter::default(),
        "kind" => RecordFilter { kinds: vec![Kind::CheckpointSigned], ..RecordFilter::default() },
        "session" => RecordFilter { about: Some(session), ..RecordFilter::default() },
        "since" => RecordFilter { since: Some(Timestamp::now()), ..RecordFilter::default() },
        other => return Err(format!("not a question: {other}").into()),
    };
    timed(rounds, || {
        let _found =
            if question == "show" { reader.find(&transaction)? } else { reader.list(&filter, 100)? };
        Ok(())
    })
}

fn intent(session: &SessionId) -> Result<Event, getrandom::Error> {
    let call = Call::Exec(ExecCall {
        argv: vec![ByteString::from("echo"), ByteString::from("x".repeat(330).as_str())],
        cwd: ByteString::from("/w"),
        env: Vec::new(),
        ceiling: None,
        net: NetMode::None,
        stdin: StandardInput::None,
    });
    Ok(Event::CallIntended {
        transaction: TransactionId::random()?,
        session: session.clone(),
        fingerprint: ActionFingerprint::of(&call, &[]),
        call,
        decision: Decision::Allow,
        layer: PolicyLayer::Floor,
        rule: RuleId::ProfileWorkspace.into(),
        grant: None,
        profile: Profile::Workspace,
        policy_digest: "0".repeat(64),
        roots: Vec::new(),
        limits: Limits::default(),
        findings: Vec::new(),
        call_origin: None,
    })
}

fn settled(transaction: TransactionId, session: &SessionId) -> Event {
    Event::CallSettled {
        transaction,
        session: session.clone(),
        outcome: None,
        failure: Some("x".repeat(880)),
        delegated_to: None,
        notes: Vec::new(),
    }
}
