//! Servers that die, hang, fill up or lose an answer. Nothing that was acknowledged is lost, nothing is there twice.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_ledger::store::ChainStoreError;
use ringfence_ledger::{
    AppendError, DatabaseVerification, Event, ExpectedHead, Ledger, LedgerNode, LedgerSettings, RecordFilter,
    verify_database,
};
use rustix::process::Signal;

use crate::cluster::{Cluster, Database, OWNER, Victims, shared};
use crate::events::{battery, ids, intent, settled};

/// What was acknowledged: number in the event → number and hash of the record.
type Acknowledged = HashMap<u32, (u64, String)>;

fn write_until_told(ledger: &Ledger, node: u32, is_over: &AtomicBool) -> Acknowledged {
    let mut acknowledged = HashMap::new();
    for number in (node * 1_000_000..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
        // A number is used once, whatever came of it.
        if let Ok(receipt) = ledger.append(&battery(number)) {
            acknowledged.insert(number, (receipt.seq(), receipt.hash().to_owned()));
        }
    }
    acknowledged
}

fn check_numbers(ledger: &Ledger, acknowledged: &Acknowledged) {
    let mut found: HashMap<u32, (u64, String)> = HashMap::new();
    let reader = ledger.reader().unwrap();
    reader
        .each(&RecordFilter::default(), |listed| {
            let record = listed.whole().unwrap();
            if let Event::BatteryFinished { passed, .. } = record.event {
                assert!(found.insert(passed, (record.seq, record.hash)).is_none(), "{passed} is there twice");
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    for (number, receipt) in acknowledged {
        assert_eq!(found.get(number), Some(receipt), "{number} was acknowledged");
    }
}

#[test]
fn killing_the_server_loses_nothing_and_doubles_nothing() {
    const KILLS: u32 = 24;
    let cluster = Cluster::new("");
    let database = cluster.database();
    let ledgers = [database.open("alpha"), database.open("beta")];
    let is_over = AtomicBool::new(false);
    let acknowledged: Vec<Acknowledged> = thread::scope(|scope| {
        let writers: Vec<_> = ledgers
            .iter()
            .zip(1..)
            .map(|(ledger, node)| {
                let is_over = &is_over;
                scope.spawn(move || write_until_told(ledger, node, is_over))
            })
            .collect();
        for kill in 0..KILLS {
            thread::sleep(Duration::from_millis(60 + u64::from(kill) * 7 % 50));
            cluster.kill(if kill % 2 == 0 { Victims::Everything } else { Victims::Backends });
            cluster.start();
        }
        thread::sleep(Duration::from_millis(300));
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for (ledger, acknowledged) in ledgers.iter().zip(&acknowledged) {
        assert!(acknowledged.len() > 30, "only {} were acknowledged", acknowledged.len());
        check_numbers(ledger, acknowledged);
    }
    assert_eq!(database.verified().len(), 2);
}

/// Connections to the server with what was not sent on them yet.
type Held = Arc<Mutex<Vec<(UnixStream, Vec<u8>)>>>;

/// Stands between a ledger and its server, and takes something away when told to.
struct Between {
    directory: tempfile::TempDir,
    mischief: Arc<AtomicU8>,
    /// Requests that arrive at the server only after the client has given them up.
    held: Held,
    /// How often the server has said something.
    answers: Arc<AtomicU64>,
}

const NONE: u8 = 0;
/// The server does what it is asked to, and nobody hears of it.
const LOSE_ANSWER: u8 = 1;
/// The server is never asked.
const LOSE_REQUEST: u8 = 2;
/// The server is asked later.
const DELAY_REQUEST: u8 = 3;

impl Between {
    fn new(server: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join(".s.PGSQL.5432")).unwrap();
        let between =
            Self { directory, mischief: Arc::default(), held: Arc::default(), answers: Arc::default() };
        let told = between.told();
        let server = server.join(".s.PGSQL.5432");
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = UnixStream::connect(&server).unwrap();
                relay(client, server, &told);
            }
        });
        between
    }

    fn told(&self) -> Told {
        Told { mischief: self.mischief.clone(), held: self.held.clone(), answers: self.answers.clone() }
    }

    fn node(&self, database: &Database<'_>) -> LedgerNode {
        let url = format!("postgres://{OWNER}@/{}?host={}", database.name, self.directory.path().display());
        LedgerNode::in_directory(&url, &database.state("alpha"), "alpha").unwrap()
    }
}

/// What a relay shares with the test.
#[derive(Clone)]
struct Told {
    mischief: Arc<AtomicU8>,
    held: Held,
    answers: Arc<AtomicU64>,
}

fn relay(client: UnixStream, server: UnixStream, told: &Told) {
    let is_lost = Arc::new(AtomicBool::new(false));
    let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (requests, lost) = (told.clone(), is_lost.clone());
    thread::spawn(move || relay_requests(from_client, to_server, &requests, &lost));
    let answers = told.answers.clone();
    thread::spawn(move || relay_answers(server, client, &answers, &is_lost));
}

fn relay_requests(mut client: UnixStream, mut server: UnixStream, told: &Told, lost: &AtomicBool) {
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = client.read(&mut buffer) {
        match told.mischief.swap(NONE, Ordering::SeqCst) {
            LOSE_ANSWER => lost.store(true, Ordering::SeqCst),
            LOSE_REQUEST => {
                drop(client.shutdown(Shutdown::Both));
                break;
            }
            DELAY_REQUEST => {
                told.held.lock().unwrap().push((server.try_clone().unwrap(), buffer[..count].to_vec()));
                drop(client.shutdown(Shutdown::Both));
                return;
            }
            _ => {}
        }
        if server.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    drop(server.shutdown(Shutdown::Both));
}

fn relay_answers(mut server: UnixStream, mut client: UnixStream, answers: &AtomicU64, lost: &AtomicBool) {
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = server.read(&mut buffer) {
        answers.fetch_add(1, Ordering::SeqCst);
        if lost.load(Ordering::SeqCst) || client.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    drop(client.shutdown(Shutdown::Both));
}

fn count(database: &Database<'_>, kind: &str) -> String {
    database.sql(&format!("SELECT count(*) FROM ringfence.record WHERE kind = '{kind}'"))
}

#[test]
fn an_answer_that_was_lost_is_found_in_the_chain() {
    let database = shared().database();
    let between = Between::new(&database.cluster.directory);
    let ledger = Ledger::connect(&between.node(&database), LedgerSettings::default()).unwrap();
    let mut written = 0;
    for (mischief, fences) in [(LOSE_ANSWER, "1"), (LOSE_REQUEST, "2"), (LOSE_ANSWER, "3")] {
        // Twice, so that the statement is prepared and what is lost is the write itself.
        for _ in 0..2 {
            written += 1;
            drop(ledger.append(&battery(written)).unwrap());
        }
        between.mischief.store(mischief, Ordering::SeqCst);
        written += 1;
        let receipt = ledger.append(&battery(written)).unwrap();
        assert_eq!(between.mischief.load(Ordering::SeqCst), NONE, "it has happened");
        assert_eq!(receipt.seq(), u64::from(written) + 1);
        assert_eq!(count(&database, "battery-finished"), written.to_string());
        assert_eq!(database.sql("SELECT fence FROM ringfence.head"), fences, "somebody had to find out");
    }
    assert_eq!(database.verified()[0].records, 10);
}

#[test]
fn the_same_holds_where_a_lock_is_held() {
    let database = shared().database();
    let between = Between::new(&database.cluster.directory);
    let ledger = Ledger::connect(&between.node(&database), LedgerSettings::default()).unwrap();
    let warm = ids();
    drop(ledger.append(&intent(&warm)).unwrap());
    drop(ledger.append(&settled(&warm)).unwrap());
    for mischief in [LOSE_ANSWER, LOSE_REQUEST] {
        let ids = ids();
        between.mischief.store(mischief, Ordering::SeqCst);
        // The first thing that is lost is the question whether it may be written; the rest is as if nothing was.
        drop(ledger.append(&intent(&ids)).unwrap());
        drop(ledger.append(&settled(&ids)).unwrap());
    }
    assert_eq!(
        (count(&database, "call-intended"), count(&database, "call-settled")),
        ("3".to_owned(), "3".to_owned())
    );
    assert_eq!(database.verified()[0].incomplete, []);
}

#[test]
fn a_request_that_comes_late_does_nothing() {
    let database = shared().database();
    let between = Between::new(&database.cluster.directory);
    let ledger = Ledger::connect(&between.node(&database), LedgerSettings::default()).unwrap();
    drop(ledger.append(&battery(1)).unwrap());
    between.mischief.store(DELAY_REQUEST, Ordering::SeqCst);
    drop(ledger.append(&battery(2)).unwrap());
    let before = database.sql("SELECT seq, hash FROM ringfence.head");
    let late = std::mem::take(&mut *between.held.lock().unwrap());
    assert_eq!(late.len(), 1);
    let (answers, written) = (between.answers.load(Ordering::SeqCst), Instant::now());
    for (mut server, bytes) in late {
        server.write_all(&bytes).unwrap();
        // It has been executed when the server has answered.
        while between.answers.load(Ordering::SeqCst) == answers {
            assert!(written.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(database.sql("SELECT seq, hash FROM ringfence.head"), before);
    assert_eq!(count(&database, "battery-finished"), "2");
    drop(ledger.append(&battery(3)).unwrap());
    assert_eq!(database.verified()[0].records, 4);
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    let cluster = Cluster::new("");
    let database = cluster.database();
    let ledger = database.open("alpha");
    drop(ledger.append(&battery(1)).unwrap());
    let reader = ledger.reader().unwrap();
    cluster.kill(Victims::Everything);
    assert!(reader.tail(1).is_err());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| ledger.append(&battery(2)).map(drop));
        thread::sleep(Duration::from_millis(200));
        cluster.start();
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(reader.tail(1).unwrap()[0].event, battery(2));
    assert_eq!(database.verified()[0].records, 3);
}

#[test]
fn nobody_waits_without_end() {
    let cluster = Cluster::new("");
    let database = cluster.database();
    let ledger = database.open("alpha");
    drop(ledger.append(&battery(1)).unwrap());
    cluster.signal(Signal::STOP);
    let begun = Instant::now();
    let error = ledger.append(&battery(2)).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    assert!(matches!(&error, AppendError::Server(ChainStoreError::InDoubt(_))), "{error:?}");
    assert!(error.hint().is_some());
    cluster.signal(Signal::CONT);
    // Whatever became of it: it is there once or not at all, and the next one follows.
    drop(ledger.append(&battery(3)).unwrap());
    let second = database.sql("SELECT count(*) FROM ringfence.record WHERE body LIKE '%\"passed\":2,%'");
    assert!(["0", "1"].contains(&second.as_str()), "{second}");
    verify_database(&database.node("any"), ExpectedHead::default())
        .and_then(DatabaseVerification::whole)
        .unwrap();
}

#[test]
fn a_full_disk_is_an_error_and_no_record() {
    let cluster = Cluster::with_small_disk();
    cluster.make_small_tablespace();
    let database = cluster.database_in("small");
    let ledger = database.open("alpha");
    drop(ledger.append(&battery(0)).unwrap());
    // What the server still has in memory of the new database needs its room before the disk is full.
    database.sql("CHECKPOINT");
    database.sql(
        "CREATE TABLE filler AS SELECT repeat(md5(n::text), 30) AS text FROM generate_series(1, 4000) AS n",
    );
    let mut written = 1_u64;
    let error = loop {
        match ledger.append_all(&(0..500).map(battery).collect::<Vec<_>>()) {
            Ok(_) => written += 500,
            Err(error) => break error,
        }
        assert!(written < 100_000, "the disk has no end");
    };
    assert!(matches!(error, AppendError::Full(_)), "{error:?}");
    assert_eq!(count(&database, "battery-finished"), written.to_string());
    assert!(matches!(
        ledger.append_all(&(0..500).map(battery).collect::<Vec<_>>()),
        Err(AppendError::Full(_))
    ));
    // Control: with some room it goes on.
    database.sql("DROP TABLE filler");
    drop(ledger.append(&battery(1)).unwrap());
    assert_eq!(count(&database, "battery-finished"), (written + 1).to_string());
    database.verified();
}

/// Threads of one process share a connection and a commit; whoever comes while the server is away waits with them.
#[test]
fn threads_survive_the_death_of_their_connection_together() {
    let database = shared().database();
    let ledger = database.open("alpha");
    drop(ledger.append(&battery(0)).unwrap());
    let barrier = Barrier::new(9);
    thread::scope(|scope| {
        for number in 1..=8 {
            let (ledger, barrier) = (&ledger, &barrier);
            scope.spawn(move || {
                barrier.wait();
                (0..20).for_each(|at| drop(ledger.append(&battery(number * 100 + at)).unwrap()));
            });
        }
        barrier.wait();
        for _ in 0..10 {
            let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE application_name = 'ringfence' AND datname = current_database()";
            database.sql(end);
            thread::sleep(Duration::from_millis(15));
        }
    });
    assert_eq!(count(&database, "battery-finished"), "161");
    assert_eq!(
        database.sql("SELECT count(DISTINCT body) FROM ringfence.record WHERE kind = 'battery-finished'"),
        "161"
    );
    database.verified();
}
