//! Prints how long calls of a daemon take, one duration in nanoseconds per line, for `cargo xtask bench`:
//!
//! - `bench_daemon bare N`: N times fork and exec of `/bin/true` by this process;
//! - `bench_daemon calls SOCKET WORKSPACE N`: N calls of `/bin/true` in one session that is warm, over one connection;
//! - `bench_daemon many SOCKET WORKSPACE CLIENTS N`: each of CLIENTS makes N calls, all at once in one session: the time of
//!   all of them, divided by their number;
//! - `bench_daemon at-once SOCKET WORKSPACE N`: N calls that are all under way at the same time, in sessions of ten: the time until all
//!   of them have been answered;
//! - `bench_daemon nonsense SOCKET N`: one client sends N frames that make no sense, 10 000 in a second, and hears each answer: the
//!   time of all of it;
//! - `bench_daemon sessions SOCKET WORKSPACE N`: N sessions made, used once and stopped, one after the other;
//! - `bench_daemon subscribers SOCKET WORKSPACE N`: N streams of events of which every other is not read, until each of the rest
//!   has heard 64 reports: the time of all of it. Then how many were dropped for not reading, as the daemon counts them, once that is
//!   every other or a minute is over.
#![expect(clippy::print_stdout, reason = "the numbers are the program's output")]

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringfence_api::{
    CreateSession, ExecRequest, ReadMetrics, ReportActivity, SessionInfo, StopSession, Subscribe,
};
use ringfence_client::Client;
use serde_json::json;

type BenchResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TRUE: &str = "/bin/true";
const REPORTS: usize = 64;

fn main() -> BenchResult<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["bare", rounds] => (0..rounds.parse()?).try_for_each(|_: usize| report(bare)),
        ["calls", socket, workspace, rounds] => {
            let mut place = Place::new(socket, workspace)?;
            place.call()?;
            (0..rounds.parse()?).try_for_each(|_: usize| report(|| place.call()))
        }
        ["many", socket, workspace, clients, rounds] => {
            many(Place::new(socket, workspace)?, clients.parse()?, rounds.parse()?)
        }
        ["at-once", socket, workspace, count] => at_once(socket, workspace, count.parse()?),
        ["nonsense", socket, count] => nonsense(Path::new(socket), count.parse()?),
        ["sessions", socket, workspace, rounds] => {
            (0..rounds.parse()?).try_for_each(|_: usize| report(|| Place::new(socket, workspace)?.call()))
        }
        ["subscribers", socket, workspace, count] => {
            let place = Place::new(socket, workspace)?;
            let count = count.parse()?;
            subscribers(place, count)
        }
        _ => Err("usage: see the head of bench_daemon.rs".into()),
    }
}

fn report(work: impl FnOnce() -> BenchResult<()>) -> BenchResult<()> {
    let started = Instant::now();
    work()?;
    println!("{}", started.elapsed().as_nanos());
    Ok(())
}

fn bare() -> BenchResult<()> {
    let status = Command::new(TRUE).status()?;
    if status.success() { Ok(()) } else { Err(format!("{TRUE}: {status}").into()) }
}

/// A session, and a client that calls in it. It ends with this.
struct Place {
    client: Client,
    session: SessionInfo,
}

impl Place {
    fn new(socket: &str, workspace: &str) -> BenchResult<Self> {
        let mut client = Client::connect(Path::new(socket), None)?;
        let wanted: CreateSession = serde_json::from_value(json!({ "workspace": workspace }))?;
        let session = client.call(&wanted)?;
        Ok(Self { client, session })
    }

    fn call(&mut self) -> BenchResult<()> {
        call(&mut self.client, &self.session)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let stop = StopSession { session: self.session.session.clone(), grace_ms: None };
        // The daemon of a benchmark ends with it.
        let _stopped = self.client.call(&stop);
    }
}

fn call(client: &mut Client, session: &SessionInfo) -> BenchResult<()> {
    // The same call again and again is refused as a loop.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed).to_string();
    let exec: ExecRequest =
        serde_json::from_value(json!({ "session": session.session, "argv": [TRUE, number] }))?;
    let info = client.call(&exec)?;
    if info.exit_code == Some(0) { Ok(()) } else { Err(format!("{info:?}").into()) }
}

fn many(mut place: Place, clients: usize, rounds: usize) -> BenchResult<()> {
    let mut ready = Vec::new();
    for _ in 0..clients {
        ready.push(Client::connect(place.client.socket(), None)?);
    }
    place.call()?;
    let session = &place.session;
    let started = Instant::now();
    std::thread::scope(|scope| -> BenchResult<()> {
        let repeat = |client: &mut Client| (0..rounds).try_for_each(|_| call(client, session));
        let calls: Vec<_> = ready.iter_mut().map(|client| scope.spawn(move || repeat(client))).collect();
        for call in calls {
            call.join().map_err(|_panic| "a client panicked")??;
        }
        Ok(())
    })?;
    let per_call = started.elapsed() / u32::try_from(clients * rounds)?;
    println!("{}", per_call.as_nanos());
    Ok(())
}

/// Each waits for a file that is made when all of them have begun.
fn at_once(socket: &str, workspace: &str, count: usize) -> BenchResult<()> {
    const TOGETHER: usize = 10;
    let mut places = Vec::new();
    for _ in 0..count.div_ceil(TOGETHER) {
        places.push(Place::new(socket, workspace)?);
    }
    let [begun, go] = ["begun", "go"].map(|name| Path::new(workspace).join(name));
    std::fs::create_dir_all(&begun)?;
    let started = Instant::now();
    let done = std::thread::scope(|scope| -> BenchResult<()> {
        let mut calls = Vec::new();
        let seats = places.iter().flat_map(|place| std::iter::repeat_n(&place.session, TOGETHER));
        for (number, session) in seats.take(count).enumerate() {
            let script = format!(": > begun/{number}; while [ ! -e go ]; do sleep 0.1; done");
            calls.push(scope.spawn(move || -> BenchResult<()> {
                let argv = ["sh", "-c", &script];
                let exec = json!({ "session": session.session, "argv": argv });
                let info = Client::connect(Path::new(socket), None)?
                    .call(&serde_json::from_value::<ExecRequest>(exec)?)?;
                if info.exit_code == Some(0) { Ok(()) } else { Err(format!("{info:?}").into()) }
            }));
        }
        let all_began = await_entries(&begun, count);
        // In any case, so that the commands of a failed run end, too.
        std::fs::write(&go, "")?;
        for call in calls {
            call.join().map_err(|_panic| "a client panicked")??;
        }
        all_began
    });
    let took = started.elapsed();
    std::fs::remove_file(&go)?;
    std::fs::remove_dir_all(&begun)?;
    done?;
    println!("{}", took.as_nanos());
    Ok(())
}

fn await_entries(directory: &Path, count: usize) -> BenchResult<()> {
    let started = Instant::now();
    while std::fs::read_dir(directory)?.count() < count {
        if started.elapsed() > Duration::from_secs(60) {
            return Err("not all of them were under way at once".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// In batches, over connections that the daemon keeps open: what is measured is what nonsense costs others, not a handshake.
fn nonsense(socket: &Path, count: usize) -> BenchResult<()> {
    const LINES: usize = 8;
    const PER_SECOND: usize = 10_000;
    const BATCH: usize = 25;
    let frame = b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: 12\r\n\r\n{\"workspace\"";
    let batch = frame.repeat(BATCH);
    let pause = Duration::from_secs(1) * u32::try_from(BATCH * LINES)? / u32::try_from(PER_SECOND)?;
    let started = Instant::now();
    std::thread::scope(|scope| -> BenchResult<()> {
        let line = || -> BenchResult<()> {
            let mut stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(Duration::from_secs(60)))?;
            let mut due = Instant::now();
            for _ in 0..count.div_ceil(LINES * BATCH) {
                stream.write_all(&batch)?;
                hear(&mut stream, BATCH)?;
                due += pause;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            Ok(())
        };
        let lines: Vec<_> = (0..LINES).map(|_| scope.spawn(line)).collect();
        for line in lines {
            line.join().map_err(|_panic| "a line panicked")??;
        }
        Ok(())
    })?;
    println!("{}", started.elapsed().as_nanos());
    Ok(())
}

/// So many answers, each a no.
fn hear(stream: &mut UnixStream, count: usize) -> BenchResult<()> {
    let (mut heard, mut buffer, mut tail) = (0, vec![0_u8; 65536], Vec::<u8>::new());
    while heard < count {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Err("the daemon hung up".into());
        }
        tail.extend(buffer.iter().take(length));
        heard += tail.windows(9).filter(|part| *part == b"HTTP/1.1 ").count();
        // What may be the beginning of the next.
        tail.drain(..tail.len().saturating_sub(8));
    }
    Ok(())
}

fn subscribers(mut place: Place, count: usize) -> BenchResult<()> {
    let before = dropped(&mut place.client)?;
    let started = Instant::now();
    let silent = heard_by_half(&place, count)?;
    println!("{}", started.elapsed().as_nanos());
    // While the clients are there: the daemon drops none that has disconnected.
    let begun = Instant::now();
    let mut gone = dropped(&mut place.client)? - before;
    while gone < silent.len() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(100));
        gone = dropped(&mut place.client)? - before;
    }
    println!("{gone}");
    Ok(())
}

fn dropped(client: &mut Client) -> BenchResult<usize> {
    let text = client.call(&ReadMetrics {})?;
    let line = text.lines().find_map(|line| line.strip_prefix("ringfence_subscribers_dropped_total "));
    Ok(line.ok_or("the daemon does not count whom it dropped")?.trim().parse()?)
}

/// Those who do not read, when all others have heard everything.
fn heard_by_half(place: &Place, count: usize) -> BenchResult<Vec<UnixStream>> {
    let socket = place.client.socket();
    let mut silent = Vec::new();
    let mut listening = Vec::new();
    for number in 0..count {
        if number % 2 == 0 {
            let mut stream = UnixStream::connect(socket)?;
            stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n")?;
            silent.push(stream);
        } else {
            listening.push(Client::connect(socket, None)?);
        }
    }
    let id = &place.session.session;
    std::thread::scope(|scope| -> BenchResult<()> {
        let hear = |client: Client| scope.spawn(move || heard(client, &place.session));
        let hearing: Vec<_> = listening.into_iter().map(hear).collect();
        let mut client = Client::connect(socket, None)?;
        for number in 0..REPORTS {
            let text = format!("{number} {}", "word ".repeat(2000));
            let _seq = client.call(&ReportActivity {
                session: id.clone(),
                activity: "step".to_owned(),
                claim: text,
            })?;
        }
        for hears in hearing {
            hears.join().map_err(|_panic| "a subscriber panicked")??;
        }
        Ok(())
    })?;
    Ok(silent)
}

fn heard(mut client: Client, session: &SessionInfo) -> BenchResult<()> {
    let mine = Subscribe { after: Some(0), session: Some(session.session.clone()) };
    let events = client.events(&mine)?;
    let reports = events.filter(|event| event.as_ref().is_ok_and(|event| event.kind == "activity-reported"));
    let heard = reports.take(REPORTS).count();
    if heard == REPORTS { Ok(()) } else { Err(format!("{heard} of {REPORTS} events").into()) }
}
