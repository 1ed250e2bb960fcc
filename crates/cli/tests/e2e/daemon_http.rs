//! Below requests: bytes that are no HTTP, or more than one. Whoever sends them is told no or loses the connection, nothing of
//! what is hidden in them is done, and whoever comes beside them is served.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use ringfence_api::{CheckHealth, CheckReady};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use crate::daemon_fixture::Served;
use crate::daemon_grpc_fuzz::{PREFACE, frame};
use crate::daemon_load::resident_kb;
use crate::test_timeouts::{PATIENCE, Patient};

/// What comes back for these bytes, until nothing more does.
fn heard(served: &Served, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(&served.socket).unwrap();
    // Whoever has heard enough does not listen to the rest.
    let _heard_enough = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _reset = Patient(stream).read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn statuses(answer: &str) -> Vec<u16> {
    let lines = answer.split("HTTP/1.1 ").skip(1);
    lines.map(|line| line.get(..3).and_then(|word| word.parse().ok()).unwrap_or(0)).collect()
}

/// A request that makes a session.
fn makes(served: &Served) -> Vec<u8> {
    let body = json!({ "workspace": served.world.workspace }).to_string();
    let head = format!("POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: {}", body.len());
    format!("{head}\r\nconnection: close\r\n\r\n{body}").into_bytes()
}

const ASK: &[u8] = b"POST /v1/devices/challenge HTTP/1.1\r\nhost: x\r\n";

/// Requests whose end is not where everybody would see it.
fn ambiguous() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for lengths in [
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 5, 5",
        "content-length: +5",
        "content-length: -5",
        "content-length: 0x5",
        "content-length: 99999999999999999999",
        "transfer-encoding: xchunked",
        "transfer-encoding: identity",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: identity, chunked",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked, chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "transfer-encoding: \"chunked\"",
        "transfer-encoding: \x0bchunked",
        "transfer-encoding : chunked",
        "transfer-encoding:\r\n chunked",
        "x: a\r\n b\r\ncontent-length: 5",
        "x: a\0b\r\ncontent-length: 5",
        "x: a\rb\r\ncontent-length: 5",
    ] {
        all.push([ASK, lengths.as_bytes(), b"\r\n\r\n0\r\n\r\n"].concat());
    }
    let long = format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(70_000));
    let trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(20_000));
    for chunks in [
        "zz\r\n",
        "-1\r\n",
        "+1\r\n{\r\n0\r\n\r\n",
        "fffffffffffffffff\r\n",
        "2\r\n{}X\r\n0\r\n\r\n",
        "2\n{}\n0\n\n",
        "0x2\r\n{}\r\n0\r\n\r\n",
        " 2\r\n{}\r\n0\r\n\r\n",
        long.as_str(),
        trailers.as_str(),
    ] {
        all.push([ASK, b"transfer-encoding: chunked\r\n\r\n", chunks.as_bytes()].concat());
    }
    all
}

/// S003-23, S003-24: nothing is hidden in the body of another request, however its length is said.
#[test]
fn no_request_is_smuggled_in_another() {
    let served = Served::new();
    let hidden = makes(&served);
    for request in ambiguous() {
        let shown = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
        let answer = heard(&served, &[request, hidden.clone()].concat());
        let told = statuses(&answer);
        assert!(told.iter().all(|status| (400..500).contains(status)), "{told:?} to {shown:?}");
        assert_eq!(served.sessions().len(), 0, "{shown:?}");
    }
    // As the body of a request that has one, and of one that has none.
    for verb in ["POST /v1/devices/challenge", "GET /v1/health"] {
        let head =
            format!("{verb} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}", hidden.len());
        let head = format!("{head}\r\n\r\n");
        assert_eq!(statuses(&heard(&served, &[head.as_bytes(), &hidden].concat())).len(), 1);
        assert_eq!(served.sessions().len(), 0);
    }
    // The control: behind a request with a plain end it is the next one.
    let plain = [ASK, b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", &hidden].concat();
    assert_eq!(statuses(&heard(&served, &plain)), [400, 200]);
    assert_eq!(served.sessions().len(), 1);
}

/// S003-23: heads that are too long, too many, or none.
#[test]
fn heads_have_an_end() {
    let served = Served::new();
    let get: &[u8] = b"GET /v1/health HTTP/1.1\r\nhost: x\r\n";
    let many: String = (0..500).map(|number| format!("a{number}: b\r\n")).collect();
    let long = format!("a: {}\r\n", "b".repeat(100_000));
    for head in [
        [get, many.as_bytes(), b"\r\n"].concat(),
        [get, long.as_bytes(), b"\r\n"].concat(),
        [b"GET /v1/health?", "b".repeat(100_000).as_bytes(), b" HTTP/1.1\r\nhost: x\r\n\r\n"].concat(),
        [get, b"host: y\r\n\r\n"].concat(),
        b"GET /v1/health HTTP/9.9\r\nhost: x\r\n\r\n".to_vec(),
        b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_vec(),
    ] {
        let told = statuses(&heard(&served, &head));
        assert!(matches!(told.as_slice(), [400..500]), "{told:?} to {:?}", head.get(..60));
    }
    // The control, and requests that do not wait for each other: each is answered, in its order.
    let all: Vec<u8> = (0..100)
        .flat_map(|number| {
            let path = if number % 2 == 0 { "health" } else { "nothing" };
            let last = if number == 99 { "connection: close\r\n" } else { "" };
            format!("GET /v1/{path} HTTP/1.1\r\nhost: x\r\n{last}\r\n").into_bytes()
        })
        .collect();
    let told = statuses(&heard(&served, &all));
    let wanted: Vec<u16> = (0..100).map(|number| if number % 2 == 0 { 200 } else { 404 }).collect();
    assert_eq!(told, wanted);
}

/// Whether the other side has hung up.
fn is_over(stream: &UnixStream, patience: Duration) -> bool {
    let patience =
        Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: patience.subsec_nanos().into() };
    let mut wanted = [PollFd::new(stream, PollFlags::HUP)];
    let found = rustix::io::retry_on_intr(|| poll(&mut wanted, Some(&patience))).unwrap();
    found > 0 && wanted[0].revents().contains(PollFlags::HUP)
}

/// CVE-2007-6750: who sends a head byte by byte has as long for it as everybody else, and holds nobody up.
#[test]
fn a_head_that_trickles_in_is_not_waited_for() {
    let served = Served::new();
    let mut slow: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&served.socket).unwrap()).collect();
    let head = b"GET /v1/health HTTP/1.1\r\nhost: x\r\nx-slow: ".iter().chain(std::iter::repeat(&b'a'));
    let begun = std::time::Instant::now();
    for byte in head {
        slow.retain_mut(|stream| stream.write_all(&[*byte]).is_ok());
        slow.retain(|stream| !is_over(stream, Duration::ZERO));
        assert!(served.client().call(&CheckHealth {}).is_ok());
        if slow.is_empty() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{} are still waited for", slow.len());
        thread::sleep(Duration::from_millis(200));
    }
}

/// The head of a request for `/v1/health`, in HTTP/2 and without compression.
fn head_of_health() -> Vec<u8> {
    let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/v1/health"), (":authority", "x")];
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// What is sent until the other side hangs up, and how much of it there was.
fn sent_until_over(served: &Served, mut next: impl FnMut(u32) -> Vec<u8>, most: u32) -> Option<u32> {
    let mut stream = UnixStream::connect(&served.socket).unwrap();
    stream.write_all(&[PREFACE, &frame(4, 0, (0, &[]))].concat()).unwrap();
    let mut heard = stream.try_clone().unwrap();
    // What it says meanwhile is of no interest, and must not fill up.
    let reader = thread::spawn(move || {
        let mut answer = Vec::new();
        let _reset = heard.read_to_end(&mut answer);
    });
    let over = (0..most).find(|number| stream.write_all(&next(*number)).is_err());
    let over = over.or_else(|| is_over(&stream, Duration::from_secs(5)).then_some(most));
    let _closed = stream.shutdown(Shutdown::Both);
    reader.join().unwrap();
    over
}

/// CVE-2023-44487 and its like: requests that are taken back as soon as they are made, and heads without an end. Whoever sends
/// them loses the connection before it costs anything, and others are served meanwhile.
#[test]
fn floods_of_frames_end_their_connection() {
    let served = Served::new();
    assert!(served.client().call(&CheckReady {}).unwrap().ready);
    let before = resident_kb(&served);
    let head = head_of_health();
    let stream = |number: u32| 2 * number + 1;
    let reset = |number: u32| {
        let cancel = 8_u32.to_be_bytes();
        [frame(1, 5, (stream(number), &head)), frame(3, 0, (stream(number), &cancel))].concat()
    };
    let begun = |number: u32| match number {
        0 => frame(1, 0, (1, &head)),
        _ => frame(9, 0, (1, &[0, 1, b'x', 1, b'y'].repeat(1000))),
    };
    thread::scope(|scope| {
        let beside = scope.spawn(|| (0..200).all(|_| served.client().call(&CheckHealth {}).is_ok()));
        let flood = sent_until_over(&served, reset, 200_000);
        assert!(flood.is_some(), "it could go on");
        assert!(sent_until_over(&served, begun, 20_000).is_some(), "a head went on and on");
        assert!(beside.join().unwrap());
    });
    // The control: as many requests that are not taken back are answered, each on its stream.
    let plain = |number: u32| frame(1, 5, (stream(number), &head));
    assert_eq!(sent_until_over(&served, plain, 200), None);
    let grown = resident_kb(&served).saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} kB");
    assert!(served.client().call(&CheckReady {}).unwrap().ready);
}
