//! What passes through a tunnel, and what does not.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc;
use std::thread;

use ringfence_egress::{FlowEnd, NameServers};

use crate::clerk::{Clerk, only_end};
use crate::world::{PATIENCE, World, echo, hello, read_bytes, server};

/// A server that tells what it was sent, whole.
fn listener() -> (std::net::SocketAddr, mpsc::Receiver<Vec<u8>>) {
    let (heard, all) = mpsc::channel();
    let address = server(move |mut stream| heard.send(read_bytes(&mut stream)).unwrap());
    (address, all)
}

/// N9, B-S16. The control is the first: the same bytes, for the host that was asked for.
#[test]
fn n9_tls_asks_for_the_host_that_was_judged() {
    let (server, heard) = listener();
    let world = World::new(Clerk::allowing(&["allowed.test", "127.0.0.1"]));
    for (host, name) in [("allowed.test", Some("allowed.test")), ("127.0.0.1", None)] {
        let mut tunnel = world.tunnel(&format!("{host}:{}", server.port()));
        tunnel.write_all(&hello(name)).unwrap();
        tunnel.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_bytes(&mut tunnel), b"", "{host}");
        assert!(heard.recv_timeout(PATIENCE).unwrap().starts_with(&[0x16, 3]), "{host}");
    }
    world.clerk.after(2);
    for (host, name) in [
        ("allowed.test", Some("evil.test")),
        ("allowed.test", Some("x.allowed.test")),
        ("allowed.test", None),
        ("127.0.0.1", Some("evil.test")),
    ] {
        let mut tunnel = world.tunnel(&format!("{host}:{}", server.port()));
        tunnel.write_all(&hello(name)).unwrap();
        assert_eq!(read_bytes(&mut tunnel), [21, 3, 3, 0, 2, 2, 112], "{host} {name:?}");
        assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), b"", "{host} {name:?}");
    }
    let book = world.clerk.after(6);
    assert!(book.ended[2..].iter().all(|(_, _, end)| matches!(end, FlowEnd::Refused(_))), "{book:?}");
}

/// A hello that comes byte by byte, or in records of one byte, says what it says.
#[test]
fn n9_a_hello_in_pieces_hides_no_name() {
    let (server, heard) = listener();
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    for name in ["allowed.test", "evil.test"] {
        let whole = hello(Some(name));
        let records: Vec<u8> = whole[5..].iter().flat_map(|byte| [0x16, 3, 1, 0, 1, *byte]).collect();
        let mut tunnel = world.tunnel(&format!("allowed.test:{}", server.port()));
        for byte in &whole {
            tunnel.write_all(&[*byte]).unwrap();
        }
        let _ = tunnel.shutdown(Shutdown::Write);
        let _ = read_bytes(&mut tunnel);
        let passed = heard.recv_timeout(PATIENCE).unwrap();
        assert_eq!(passed, if name == "allowed.test" { whole } else { Vec::new() }, "{name}");
        let mut tunnel = world.tunnel(&format!("allowed.test:{}", server.port()));
        let _ = tunnel.write_all(&records);
        let _ = tunnel.shutdown(Shutdown::Write);
        let _ = read_bytes(&mut tunnel);
        let passed = heard.recv_timeout(PATIENCE).unwrap();
        assert!(name == "allowed.test" || passed.is_empty(), "{name}");
    }
}

#[test]
fn what_only_begins_like_tls_does_not_pass() {
    let (server, heard) = listener();
    let world = World::with(Clerk::allowing(&["allowed.test"]), |settings| {
        settings.times.head = std::time::Duration::from_millis(100);
    });
    for bytes in [
        &b"\x16\x03\x01\xff\xff\x01\x02\x03"[..],
        b"\x16\x03\x01\x00\x05\x01\x00\xff\xff\xff",
        b"\x16",
        b"\x16\x03",
    ] {
        let mut tunnel = world.tunnel(&format!("allowed.test:{}", server.port()));
        tunnel.write_all(bytes).unwrap();
        let _ = read_bytes(&mut tunnel);
        assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), b"", "{bytes:?}");
    }
}

#[test]
fn either_side_may_end_first() {
    let (server, heard) = listener();
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let mut tunnel = world.tunnel(&format!("allowed.test:{}", server.port()));
    tunnel.write_all(b"\0last words").unwrap();
    tunnel.shutdown(Shutdown::Write).unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), b"\0last words");
    assert_eq!(read_bytes(&mut tunnel), b"");
    assert_eq!(only_end(&world.clerk.after(1)).2, FlowEnd::Done);

    let (proceed, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let (heard, all) = mpsc::channel();
    let server = crate::world::server(move |mut stream| {
        stream.write_all(b"server first").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        wait.lock().unwrap().recv().unwrap();
        heard.send(read_bytes(&mut stream)).unwrap();
    });
    let mut tunnel = world.tunnel(&format!("allowed.test:{}", server.port()));
    assert_eq!(read_bytes(&mut tunnel), b"server first");
    tunnel.write_all(b"\0answer").unwrap();
    tunnel.shutdown(Shutdown::Write).unwrap();
    proceed.send(()).unwrap();
    assert_eq!(all.recv_timeout(PATIENCE).unwrap(), b"\0answer");
}

/// Enough for both ways of moving bytes, in both directions at once, to a reader that is slow to begin.
#[test]
fn much_passes_unchanged() {
    const SIZE: usize = 24 * 1024 * 1024;
    let server = echo();
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let tunnel = world.tunnel(&format!("allowed.test:{}", server.port()));
    let sent: Vec<u8> = (0..SIZE).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 & 0x7f).collect();
    let mut writer = tunnel.try_clone().unwrap();
    let copy = sent.clone();
    let written = thread::spawn(move || {
        writer.write_all(&copy).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut reader = tunnel;
    assert!(read_bytes(&mut reader) == sent);
    written.join().unwrap();
    let book = world.clerk.after(1);
    assert_eq!((book.ended[0].1.up, book.ended[0].1.down), (SIZE as u64, SIZE as u64));
}

#[test]
fn a_hundred_flows_at_once() {
    let server = echo();
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let target = format!("allowed.test:{}", server.port());
    let mut tunnels: Vec<_> = (0..100).map(|_| world.tunnel(&target)).collect();
    for (n, tunnel) in tunnels.iter_mut().enumerate() {
        tunnel.write_all(&[0, n as u8]).unwrap();
    }
    for (n, tunnel) in tunnels.iter_mut().enumerate() {
        let mut answer = [0; 2];
        tunnel.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [0, n as u8]);
    }
    drop(tunnels);
    let book = world.clerk.after(100);
    let mut ids: Vec<u64> = book.ended.iter().map(|(flow, ..)| flow.id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=100).collect::<Vec<_>>());
}

#[test]
fn a_tunnel_through_which_nothing_passes_ends() {
    let server = echo();
    let world = World::with(Clerk::allowing(&["allowed.test"]), |settings| {
        settings.times.idle = std::time::Duration::from_millis(50);
    });
    let mut tunnel = world.tunnel(&format!("allowed.test:{}", server.port()));
    assert_eq!(read_bytes(&mut tunnel), b"");
    assert!(matches!(only_end(&world.clerk.after(1)).2, FlowEnd::Failed(_)));
}

#[test]
fn nothing_is_open_when_the_proxy_is_gone() {
    let server = echo();
    let mut world = World::new(Clerk::allowing(&["allowed.test"]));
    let mut tunnel = world.tunnel(&format!("allowed.test:{}", server.port()));
    let mut waiting = world.client();
    drop(world.proxy.take());
    assert_eq!(read_bytes(&mut tunnel), b"");
    assert_eq!(read_bytes(&mut waiting), b"");
    for door in [world.door, world.dns_stream] {
        assert!(std::net::TcpStream::connect(door).is_err());
    }
    // Dropping has told the gate of every end.
    assert_eq!(world.clerk.book().ended.len(), 1);
}

#[test]
fn a_machine_without_name_servers_still_has_addresses() {
    let server = echo();
    let world = World::with(Clerk::allowing(&["127.0.0.1", "allowed.test"]), |settings| {
        settings.names = NameServers::Only(Vec::new());
    });
    drop(world.tunnel(&server.to_string()));
    let answer = world.exchange(b"CONNECT allowed.test:80 HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
}
