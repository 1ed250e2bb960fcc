//! How much of the machine's memory somebody can take who sends long things and does not read: a part of it that is known.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ringfence_api::{CheckHealth, ReportActivity, Subscribe, WriteFile};
use serde_json::{Value, json};

use crate::daemon_fixture::{Served, stdout};
use crate::daemon_load::resident_kb;
use crate::test_timeouts::Patient;
use crate::testkit::eventually;

/// What `[daemon]` has for all who listen, and what comes of it in memory: as text, as it was read, and as it is sent.
const FOR_EVENTS_KB: u64 = 3 * (16 + 4 + 4) * 1024;
/// For long messages, and what is around them.
const FOR_MESSAGES_KB: u64 = (128 + 40) * 1024;

/// As many reports of 16 kB each, by several at once: they are written together.
fn report(served: &Served, count: usize) {
    let session = served.session().session;
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut client = served.client();
                while next.fetch_add(1, Ordering::SeqCst) < count {
                    let text = "word ".repeat(3200);
                    let report =
                        ReportActivity { session: session.clone(), activity: "step".to_owned(), claim: text };
                    client.call(&report).unwrap();
                }
            });
        }
    });
}

/// B-A13: events are as long as agents make them: what is under way to those who do not read is weighed, and those who read hear all.
#[test]
fn listeners_that_do_not_read_take_a_known_part_of_memory() {
    const REPORTS: usize = 600;
    const SILENT: usize = 100;
    let served = Served::new();
    report(&served, REPORTS);
    let before = resident_kb(&served);
    // Each from another place, so that they have nothing in common. Where they do not fit into what the kernel keeps, they are kept here.
    let silent: Vec<UnixStream> = (0..SILENT)
        .map(|number| {
            let mut stream = UnixStream::connect(&served.socket).unwrap();
            // Far enough from the end that the rest does not fit into a socket.
            let after = number * (REPORTS / SILENT / 2);
            write!(stream, "GET /v1/events?after={after} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            stream
        })
        .collect();
    let most = AtomicUsize::new(0);
    let heard = thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let mut client = served.client();
            let events = client.events(&Subscribe { after: Some(0), session: None }).unwrap();
            events.map(Result::unwrap).filter(|event| event.kind == "activity-reported").take(REPORTS).count()
        });
        let mut grown = 0;
        let is_heard = || {
            grown = resident_kb(&served).saturating_sub(before).max(grown);
            most.store(usize::try_from(grown).unwrap(), Ordering::SeqCst);
            reads.is_finished()
        };
        eventually("whoever reads has heard everything", is_heard);
        reads.join().unwrap()
    });
    assert_eq!(heard, REPORTS);
    let dropped = || {
        let text = served.client().call(&ringfence_api::ReadMetrics {}).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("ringfence_subscribers_dropped_total "));
        line.unwrap().parse::<usize>().unwrap()
    };
    eventually("those who do not read are let go", || dropped() >= SILENT);
    let most =
        u64::try_from(most.load(Ordering::SeqCst)).unwrap().max(resident_kb(&served).saturating_sub(before));
    assert!(most < FOR_EVENTS_KB, "{most} kB for {SILENT} that do not read");
    drop(silent);
}

/// A WebSocket on which a message was begun, of which so many bytes have been sent as the other side takes.
fn begun(path: &Path, bytes: usize) -> (UnixStream, thread::JoinHandle<()>) {
    let mut stream = UnixStream::connect(path).unwrap();
    let key = "AAAAAAAAAAAAAAAAAAAAAA==";
    let head = format!(
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: {key}"
    );
    write!(stream, "GET /v1/ws HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n").unwrap();
    let mut sender = stream.try_clone().unwrap();
    let sending = thread::spawn(move || {
        // Text of 30 MB, with a mask that changes nothing.
        let mut message = vec![0x81, 0xff];
        message.extend(30_000_000_u64.to_be_bytes());
        message.extend([0; 4]);
        message.resize(bytes, b' ');
        // It waits for its turn, and the test does not wait for it.
        let _gone = sender.write_all(&message);
    });
    (stream, sending)
}

/// B-A13: long messages of all connections together have a place each, or wait for one; nobody who sends short ones waits.
#[test]
fn long_messages_take_a_known_part_of_memory() {
    const MANY: usize = 48;
    const EACH: usize = 8_000_000;
    let served = Served::new();
    let session = served.session();
    let before = resident_kb(&served);
    let all: Vec<_> = (0..MANY).map(|_| begun(&served.socket, EACH)).collect();
    let (mut most, mut last) = (0, 0);
    // Until no more is taken in for a while.
    let mut still = 0;
    eventually("they take in what they take", || {
        thread::sleep(Duration::from_millis(50));
        let grown = resident_kb(&served).saturating_sub(before);
        still = if grown > last + 1024 { 0 } else { still + 1 };
        (most, last) = (grown.max(most), grown.max(last));
        assert!(served.client().call(&CheckHealth {}).is_ok());
        still > 20
    });
    assert!(most > 2 * 1024, "something was taken in");
    assert!(most < FOR_MESSAGES_KB, "{most} kB of {} kB", MANY * EACH / 1024);
    assert_eq!(stdout(&served.sh(&session, "echo on")), "on\n");
    for (stream, sending) in all {
        stream.shutdown(std::net::Shutdown::Both).unwrap();
        sending.join().unwrap();
    }
    // The control: alone a message of that size is taken.
    let content = "x".repeat(EACH).into_bytes();
    let write: Value =
        json!({ "session": session.session, "path": "long", "content": String::from_utf8(content).unwrap() });
    let write: WriteFile = serde_json::from_value(write).unwrap();
    eventually("there is a place again", || served.client().call(&write).is_ok());
    assert_eq!(served.world.read("long").unwrap().len(), EACH);
}

/// Asks for a long request at once what it says of itself, and is told no before it is sent.
#[test]
fn a_request_that_says_it_is_too_long_is_not_waited_for() {
    let served = Served::new();
    let mut stream = Patient(UnixStream::connect(&served.socket).unwrap());
    stream
        .write_all(b"POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000000\r\n\r\n{")
        .unwrap();
    let mut head = [0; 12];
    std::io::Read::read_exact(&mut stream, &mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
}
