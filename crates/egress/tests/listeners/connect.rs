//! `CONNECT`, and what looks like it.

use std::io::{Read, Write};

use ringfence_egress::{FlowEnd, FlowIngress};

use crate::clerk::{Clerk, only_end};
use crate::world::{World, echo, read_to_end};

#[test]
fn a_tunnel_to_an_allowed_host_passes_bytes_both_ways() {
    let server = echo();
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let mut tunnel = world.tunnel(&format!("allowed.test:{}", server.port()));
    tunnel.write_all(b"\x00ping").unwrap();
    let mut answer = [0; 5];
    tunnel.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"\x00ping");
    drop(tunnel);
    let book = world.clerk.after(1);
    assert_eq!(
        only_end(&book),
        (FlowIngress::Connect, format!("allowed.test:{}", server.port()), FlowEnd::Done)
    );
    assert_eq!((book.ended[0].1.up, book.ended[0].1.down), (5, 5));
    assert_eq!(book.opened, [(book.ended[0].0.id, server.ip())]);
}

#[test]
fn n2_another_host_is_refused_with_what_why_and_what_next() {
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let answer = world.exchange(b"CONNECT evil.test:443 HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    for part in [
        "x-ringfence-outcome: refused",
        "x-ringfence-rule: hosts.any",
        "x-ringfence-flow: 1",
        "\"target\":\"evil.test:443\"",
        "\"message\":\"the host is on no list\"",
        "\"hint\":\"ringfence run --allow-host\"",
    ] {
        assert!(answer.contains(part), "{part} in {answer}");
    }
    let book = world.clerk.after(1);
    assert!(matches!(only_end(&book).2, FlowEnd::Refused(_)));
    assert_eq!(book.opened, []);
}

#[test]
fn clients_of_http_1_0_are_served() {
    let server = echo();
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let mut client = world.client();
    write!(client, "CONNECT allowed.test:{} HTTP/1.0\r\n\r\nearly", server.port()).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let answer = read_to_end(&mut client);
    assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with("\r\n\r\nearly"), "{answer}");
}

#[test]
fn a_failure_outside_is_no_refusal() {
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let request = format!("CONNECT allowed.test:{} HTTP/1.1\r\nConnection: close\r\n\r\n", closed.port());
    let answer = world.exchange(request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(
        answer.contains("x-ringfence-outcome: failed") && answer.contains("\"outcome\":\"failed\""),
        "{answer}"
    );
    assert!(!answer.contains("x-ringfence-rule"), "{answer}");
    assert!(matches!(only_end(&world.clerk.after(1)).2, FlowEnd::Failed(_)));
}

/// B-S1, B-S17, B-S18, B-N8, B-O11, N4, N5, N6: whatever is written, it is one host or nobody's.
#[test]
fn n4_no_spelling_of_a_target_is_two_hosts() {
    let world = World::new(Clerk::allowing(&["allowed.test", "127.0.0.1"]));
    for target in [
        "evil.test\0.allowed.test:443",
        "evil.test%00.allowed.test:443",
        "evil.test%2eallowed.test:443",
        "evil.test/.allowed.test:443",
        "evil.test#.allowed.test:443",
        "evil.test?.allowed.test:443",
        "evil.test\\.allowed.test:443",
        "evil.test\t.allowed.test:443",
        "evil.test\x0b.allowed.test:443",
        "evil.test\x7f.allowed.test:443",
        "allowed.test@evil.test:443",
        "user:pass@allowed.test:443",
        "allowed.test:443@evil.test:443",
        "*.allowed.test:443",
        "allowed.test:0443",
        "allowed.test:+443",
        "allowed.test:65979",
        "allowed.test:",
        "allowed.test",
        ":443",
        "http://allowed.test:443",
        "http://allowed.test:443/",
        "/",
        "*",
        "127.1:443",
        "0x7f.0.0.1:443",
        "0x7f000001:443",
        "2130706433:443",
        "0177.0.0.1:443",
        "0177.1:443",
        "127.0.0.1.:443:443",
        "[::ffff:127.0.0.1]:443",
        "[::ffff:1.2.3.4%x.allowed.test]:443",
        "[fd00::1%25eth0]:443",
        "::1:443",
    ] {
        let answer =
            world.exchange(format!("CONNECT {target} HTTP/1.1\r\nConnection: close\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 4") || answer.is_empty(), "{target:?}: {answer}");
    }
    let book = world.clerk.book();
    assert_eq!(book.opened, [], "{book:?}");
    assert!(book.judged.iter().all(|flow| flow.target.host.to_string() != "allowed.test"), "{book:?}");
}

/// The control of the list above: these are the same host, and it is allowed.
#[test]
fn n5_spellings_of_one_host_are_that_host() {
    let server = echo();
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    for host in ["allowed.test", "ALLOWED.test", "allowed.test."] {
        drop(world.tunnel(&format!("{host}:{}", server.port())));
    }
    let book = world.clerk.after(3);
    assert!(book.judged.iter().all(|flow| flow.target.host.to_string() == "allowed.test"));
}

/// N10, B-O7: what two readers could read in two ways is read by nobody.
#[test]
fn n10_requests_that_could_be_two_are_none() {
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    for head in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 0\r\nContent-Length: 4\r\n",
        "Content-Length: +0\r\n",
        "Content-Length: 0, 4\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Host: evil.test\r\n",
        "Host: allowed.test:80\r\n",
        "Host: allowed.test:443\r\nHost: allowed.test:443\r\n",
        "Host: allowed.test:443\r\n Host: evil.test\r\n",
        "X: a\r\n b\r\n",
        "X: a\rY: b\r\n",
        "X: a\0b\r\n",
        "X\0: a\r\n",
        " X: a\r\n",
        ": a\r\n",
        "no colon\r\n",
    ] {
        let answer =
            world.exchange(format!("CONNECT allowed.test:443 HTTP/1.1\r\n{head}\r\nabcd").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400") || answer.is_empty(), "{head:?}: {answer}");
    }
    assert_eq!(world.clerk.book().judged, []);
}

#[test]
fn what_follows_a_refused_request_is_judged_alone() {
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let answer = world.exchange(
        b"CONNECT evil.test:443 HTTP/1.1\r\n\r\nCONNECT worse.test:443 HTTP/1.1\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(answer.matches("HTTP/1.1 403").count(), 2, "{answer}");
    assert_eq!(world.clerk.after(2).opened, []);
}

/// What is no flow is written down all the same: what was tried matters as much as what was refused.
#[test]
fn what_makes_no_sense_is_written_down() {
    for (bytes, way, why) in [
        (&b"CONNECT allowed.test HTTP/1.1\r\nConnection: close\r\n\r\n"[..], FlowIngress::Connect, "port"),
        (
            b"CONNECT allowed.test:443 HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n",
            FlowIngress::Connect,
            "evil.test",
        ),
        (b"GET ftp://allowed.test/ HTTP/1.1\r\nConnection: close\r\n\r\n", FlowIngress::Forward, "http://"),
        (b"GET / HTTP/1.1\r\nX A: b\r\n\r\n", FlowIngress::Forward, "cannot be read"),
        (b"\x04\x01\x01\xbb\x7f\x00\x00\x01\x00", FlowIngress::Socks, "version 4"),
        (b"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x01\xbb", FlowIngress::Socks, "CONNECT"),
        (b"\x05\x01\x02", FlowIngress::Socks, "log in"),
    ] {
        let world = World::new(Clerk::allowing(&["allowed.test"]));
        let mut client = world.client();
        client.write_all(bytes).unwrap();
        // Whoever hangs up before the answer is not listened to: the proxy is the one who ends this.
        crate::world::read_bytes(&mut client);
        let book = world.clerk.wait(|book| !book.malformed.is_empty());
        let [(by, text)] = book.malformed.as_slice() else { panic!("{book:?}") };
        assert!(*by == way && text.contains(why), "{text}");
        assert_eq!(book.opened, []);
    }
}

#[test]
fn what_makes_no_sense_fills_no_ledger() {
    let world = World::new(Clerk::allowing(&[]));
    for _ in 0..100 {
        world.exchange(b"CONNECT nonsense HTTP/1.1\r\nConnection: close\r\n\r\n");
    }
    let written = world.clerk.wait(|book| !book.malformed.is_empty()).malformed.len();
    assert!(written < 50, "{written}");
}
