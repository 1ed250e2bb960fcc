//! Refusals over HTTP/1 arrive, whatever the client still sends when it is refused.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::daemon_fixture::Served;
use crate::test_timeouts::{PATIENCE, Patient};

/// The head of a request that is refused before its body is read: no web page has business at the socket.
fn head(length: usize, more: &str) -> String {
    format!(
        "POST /v1/sessions HTTP/1.1\r\nhost: x\r\norigin: http://page.test\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n{more}\r\n"
    )
}

struct Connection {
    writes: UnixStream,
    reads: BufReader<Patient<UnixStream>>,
}

impl Connection {
    fn new(served: &Served) -> Self {
        let writes = UnixStream::connect(&served.socket).unwrap();
        let reads = BufReader::new(Patient(writes.try_clone().unwrap()));
        Self { writes, reads }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.writes.write_all(bytes).expect("the daemon reads what is sent to it");
    }

    /// The head of the next answer, whose body is read as well.
    fn answer(&mut self) -> String {
        let head = self.until("\r\n\r\n").to_ascii_lowercase();
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
        let _body = self.until("\r\n0\r\n\r\n");
        head
    }

    fn until(&mut self, end: &str) -> String {
        let mut seen = String::new();
        while !seen.ends_with(end) {
            let read = self.reads.read_line(&mut seen).expect("an answer");
            assert!(read > 0, "the answer broke off: {seen}");
        }
        seen
    }

    /// Reads until the daemon has closed its side.
    fn is_closed(&mut self) -> bool {
        matches!(self.reads.read(&mut [0; 64]), Ok(0))
    }
}

/// Issue 18: clients that send everything before they listen, with bodies of every length that a request may have.
#[test]
fn a_refusal_arrives_before_the_connection_closes() {
    let served = Served::new();
    for length in [0, 2, 16 * 1024, 16 * 1024 + 1, 1 << 20, 8 << 20, 30 << 20] {
        for _ in 0..4 {
            let mut connection = Connection::new(&served);
            connection.send(head(length, "").as_bytes());
            // The daemon has refused by now.
            thread::sleep(Duration::from_millis(30));
            for piece in vec![b' '; length].chunks(64 * 1024) {
                connection.send(piece);
            }
            let answer = connection.answer();
            assert!(answer.starts_with("http/1.1 403"), "{length}: {answer}");
            let closes = answer.contains("connection: close\r\n");
            assert_eq!(
                closes,
                length > 16 * 1024,
                "{length}: the answer says what becomes of the connection: {answer}"
            );
            if closes {
                assert!(connection.is_closed());
            } else {
                connection.send(head(0, "").as_bytes());
                assert!(connection.answer().starts_with("http/1.1 403"), "{length}: it is used again");
            }
        }
    }
}

/// Issue 18: thousands of answers 429 on connections that are kept, and none of them is a broken pipe or a reset.
#[test]
fn every_request_too_many_is_answered() {
    const REQUESTS: usize = 1500;
    let served = Served::new();
    let refused = AtomicUsize::new(0);
    let work = || {
        let mut connection = Connection::new(&served);
        for _ in 0..REQUESTS {
            connection
                .send(b"POST /v1/sessions/ses_0/exec HTTP/1.1\r\nhost: x\r\ncontent-length: 13\r\n\r\n");
            // It may be refused by now.
            thread::sleep(Duration::from_millis(1));
            connection.send(b"{\"argv\":[\"x\"]");
            let answer = connection.answer();
            if answer.starts_with("http/1.1 429") {
                refused.fetch_add(1, Ordering::Relaxed);
            }
            if answer.contains("connection: close\r\n") {
                connection = Connection::new(&served);
            }
        }
    };
    let begun = Instant::now();
    while refused.load(Ordering::Relaxed) < 1000 {
        thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(work))));
        assert!(begun.elapsed() < 2 * PATIENCE, "only {} were refused", refused.load(Ordering::Relaxed));
    }
}

/// A client that asks before it sends is not asked for what nobody wants.
#[test]
fn a_refused_client_that_waits_for_100_continue_is_told_at_once() {
    let served = Served::new();
    for length in [10, 1 << 20] {
        let mut connection = Connection::new(&served);
        connection.send(head(length, "expect: 100-continue\r\n").as_bytes());
        let answer = connection.answer();
        assert!(answer.starts_with("http/1.1 403") && answer.contains("connection: close\r\n"), "{answer}");
        assert!(connection.is_closed());
    }
}

/// What a refused client goes on to send is read for a while and no longer.
#[test]
fn a_refused_client_that_sends_on_and_on_is_cut() {
    let served = Served::new();
    let mut connection = Connection::new(&served);
    connection.send(head(usize::MAX >> 8, "").as_bytes());
    assert!(connection.answer().starts_with("http/1.1 403"));
    let begun = Instant::now();
    let error = loop {
        if let Err(error) = connection.writes.write_all(&[b' '; 4096]) {
            break error;
        }
        assert!(begun.elapsed() < PATIENCE, "it is read on and on");
        thread::sleep(Duration::from_millis(20));
    };
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
    assert!(begun.elapsed() > Duration::from_secs(1), "it was not read at all");
}
