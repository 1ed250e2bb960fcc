//! Many from one place on TCP: they have their part of what there is, and others have theirs.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::thread;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::daemon_grpc_fuzz::{PREFACE, frame};
use crate::mcp_http::listening;
use crate::test_timeouts::{Patient, eventually};

/// Both are this machine, and two addresses.
const ONE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A connection from an address of this machine.
fn from(source: Ipv4Addr, port: u16) -> TcpStream {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrV4::new(source, 0)).unwrap();
    rustix::net::connect(&socket, &SocketAddrV4::new(ONE, port)).unwrap();
    socket.into()
}

/// The status of one request on a connection of its own; 0: there was no answer.
fn health(source: Ipv4Addr, port: u16) -> u16 {
    let mut stream = Patient(from(source, port));
    let _closed =
        write!(stream, "GET /v1/health HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let _closed = stream.read_to_end(&mut answer);
    statuses(&answer).first().copied().unwrap_or(0)
}

fn statuses(answer: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(answer);
    text.split("HTTP/1.1 ").skip(1).map(|rest| rest.get(..3).unwrap().parse().unwrap()).collect()
}

/// Asks for `/v1/health` with HTTP/2, after which a connection may stay.
fn asks_once(port: u16) -> Vec<u8> {
    let host = format!("127.0.0.1:{port}");
    let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/v1/health"), (":authority", &host)];
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    let head = fields.map(|(name, value)| {
        [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
    });
    let head = head.concat();
    [PREFACE.to_vec(), frame(4, 0, (0, &[])), frame(1, 5, (1, &head))].concat()
}

/// As many connections as there are places, from one source, leave places for others.
#[test]
fn one_source_does_not_take_all_places() {
    const MANY: usize = 600;
    const EACH: usize = 256;
    let (_served, port) = listening();
    let asks = asks_once(port);
    let mut crowd: Vec<TcpStream> = (0..MANY)
        .map(|_| {
            let mut stream = from(ONE, port);
            // Whoever is one too many is told so by the end of the connection.
            let _closed = stream.write_all(&asks);
            stream
        })
        .collect();
    assert_eq!(health(OTHER, port), 200);
    crowd.retain(|stream| matches!(Patient(stream).read(&mut [0; 1]), Ok(1)));
    // Whoever looked whether anybody listens may have had a place as well.
    assert!(crowd.len() > EACH / 2 && crowd.len() <= EACH, "{} have a place", crowd.len());
    assert_eq!(health(ONE, port), 0, "those from there have what they may have");
    crowd.truncate(EACH / 2);
    eventually("there is a place again", || health(ONE, port) == 200);
    assert_eq!(health(OTHER, port), 200);
}

/// As many requests as one connection may send at once, on each of some: whoever comes again has not rested meanwhile.
#[test]
fn who_asks_too_often_does_so_on_every_connection() {
    const EACH: usize = 900;
    const CONNECTIONS: usize = 8;
    let (_served, port) = listening();
    let burst = format!("GET /v1/nothing HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n").repeat(EACH - 1)
        + &format!("GET /v1/nothing HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n");
    let mut told = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = from(ONE, port);
        let mut sender = Patient(stream.try_clone().unwrap());
        let bytes = burst.clone();
        let sending = thread::spawn(move || sender.write_all(bytes.as_bytes()));
        let mut answers = Vec::new();
        let _end = Patient(stream).read_to_end(&mut answers);
        sending.join().unwrap().unwrap();
        told.push(statuses(&answers));
    }
    assert!(told.iter().all(|told| told.len() == EACH), "each is answered");
    assert!(told[0].iter().all(|status| *status == 404), "the first connection is within its rate");
    let too_many = told.iter().flatten().filter(|status| **status == 429).count();
    assert!(too_many > 0, "7200 requests, and none too many");
    assert_eq!(health(OTHER, port), 200, "that is of no matter to others");
}
