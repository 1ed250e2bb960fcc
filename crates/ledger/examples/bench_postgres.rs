//! Durations for `cargo xtask bench --only postgres`, in nanoseconds, one per line:
//!
//! - `bench_postgres insert URL COUNT` inserts single rows of 1 kB, each committed by itself;
//! - `bench_postgres append URL DIRECTORY COUNT` appends events of 1 kB to the ledger of a node in DIRECTORY;
//! - `bench_postgres threads URL DIRECTORY COUNT THREADS` does the same from several threads and prints one duration for all.

use std::error::Error;
use std::io::{self, Write as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ringfence_ledger::{AttemptRecord, AttemptVerdictWord, Event, Ledger, LedgerNode, LedgerSettings};
use ringfence_types::Backend;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const BODY: usize = 1024;

/// Not measured: connections, plans and caches.
const WARM_UP: usize = 10;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let durations = match arguments.as_slice() {
        ["insert", url, count] => insert(url, count.parse()?)?,
        ["append", url, directory, count] => append(&open(url, directory)?, count.parse()?)?,
        ["threads", url, directory, count, threads] => {
            vec![together(&open(url, directory)?, count.parse()?, threads.parse()?)?]
        }
        _ => {
            return Err(
                "insert URL COUNT | append URL DIRECTORY COUNT | threads URL DIRECTORY COUNT THREADS".into(),
            );
        }
    };
    let mut out = io::stdout().lock();
    durations.iter().try_for_each(|duration| writeln!(out, "{}", duration.as_nanos()))?;
    Ok(())
}

fn open(url: &str, directory: &str) -> Result<Ledger> {
    let node = LedgerNode::in_directory(url, Path::new(directory), "bench")?;
    Ok(Ledger::connect(&node, LedgerSettings::default())?)
}

fn event() -> Event {
    let entry =
        AttemptRecord { id: "F1".to_owned(), verdict: AttemptVerdictWord::Held, detail: "x".repeat(BODY) };
    Event::BatteryFinished { passed: 1, total: 1, backend: Backend::Native, attempts: vec![entry] }
}

fn append(ledger: &Ledger, count: usize) -> Result<Vec<Duration>> {
    let event = event();
    let mut durations = Vec::with_capacity(count);
    for at in 0..count + WARM_UP {
        let begun = Instant::now();
        let receipt = ledger.append(&event)?;
        if at >= WARM_UP {
            durations.push(begun.elapsed());
        }
        drop(receipt);
    }
    Ok(durations)
}

fn together(ledger: &Ledger, count: usize, threads: usize) -> Result<Duration> {
    append(ledger, 1)?;
    let begun = Instant::now();
    let failed = thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || {
                    let event = event();
                    (0..count / threads).filter(|_| ledger.append(&event).map(drop).is_err()).count()
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap_or(count)).sum::<usize>()
    });
    if failed == 0 { Ok(begun.elapsed()) } else { Err(format!("{failed} appends failed").into()) }
}

/// The comparison: a plain insert with one commit for each row, without a chain.
fn insert(url: &str, count: usize) -> Result<Vec<Duration>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        drop(tokio::spawn(connection));
        let table = "CREATE TABLE IF NOT EXISTS plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL)";
        client.batch_execute(table).await?;
        let statement = client.prepare("INSERT INTO plain (body) VALUES ($1)").await?;
        let body = "x".repeat(BODY);
        let mut durations = Vec::with_capacity(count);
        for at in 0..count + WARM_UP {
            let begun = Instant::now();
            client.execute(&statement, &[&body]).await?;
            if at >= WARM_UP {
                durations.push(begun.elapsed());
            }
        }
        Ok(durations)
    })
}
