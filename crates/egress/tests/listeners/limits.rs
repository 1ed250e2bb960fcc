//! What is above a limit is refused, and says which.

use std::io::{Read, Write};
use std::time::Duration;

use ringfence_egress::{ByteBudget, FlowEnd};

use crate::clerk::{Clerk, only_end};
use crate::world::{World, echo, read_bytes, read_to_end, server};

fn connect(world: &World, target: &str) -> String {
    world.exchange(format!("CONNECT {target} HTTP/1.1\r\nConnection: close\r\n\r\n").as_bytes())
}

#[test]
fn flows_at_once() {
    let server = echo();
    let world = World::with(Clerk::allowing(&["allowed.test"]), |settings| settings.limits.flows = 2);
    let target = format!("allowed.test:{}", server.port());
    let open = [world.tunnel(&target), world.tunnel(&target)];
    let answer = connect(&world, &target);
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("limits.flows"), "{answer}");
    drop(open);
    world.clerk.after(3);
    drop(world.tunnel(&target));
}

#[test]
fn flows_a_second() {
    let world = World::with(Clerk::allowing(&[]), |settings| settings.limits.flows_per_second = 5);
    let answers: Vec<String> = (0..60).map(|_| connect(&world, "evil.test:80")).collect();
    let limited = answers.iter().filter(|answer| answer.contains("limits.flows-per-second")).count();
    assert!(limited > 20, "{limited}");
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 403")));
    // What is above the limit fills no ledger.
    let written = world.clerk.book().ended.len();
    assert!(written < 60 - limited / 2, "{written} of {limited}");
}

#[test]
fn connections_at_once() {
    let world = World::with(Clerk::allowing(&[]), |settings| settings.limits.connections = 2);
    let mut first = world.client();
    let mut second = world.client();
    // Both have been accepted once both are answered.
    for client in [&mut first, &mut second] {
        client.write_all(b"CONNECT evil.test:1 HTTP/1.1\r\n\r\n").unwrap();
        assert!(crate::world::read_head(client).starts_with("HTTP/1.1 403"));
    }
    assert_eq!(read_bytes(&mut world.client()), b"");
}

#[test]
fn bytes_of_a_flow() {
    let server = echo();
    let world = World::with(Clerk::allowing(&["allowed.test"]), |settings| {
        settings.limits.flow = ByteBudget { up: 1000, down: 100 };
    });
    let target = format!("allowed.test:{}", server.port());
    let mut tunnel = world.tunnel(&target);
    tunnel.write_all(&[0; 100]).unwrap();
    let mut answer = [0; 100];
    tunnel.read_exact(&mut answer).unwrap();
    tunnel.write_all(&[0; 1]).unwrap();
    assert_eq!(read_bytes(&mut tunnel), b"");
    let book = world.clerk.after(1);
    let FlowEnd::Refused(refusal) = only_end(&book).2 else { panic!("{book:?}") };
    assert_eq!(refusal.rule, "limits.flow-bytes");
    assert!(refusal.message.contains("received the 100 bytes"), "{}", refusal.message);
    // Another flow has a budget of its own.
    world.tunnel(&target).write_all(&[0; 100]).unwrap();
}

#[test]
fn bytes_of_a_session() {
    let server = server(|mut stream| {
        let _ = read_bytes(&mut stream);
    });
    let world = World::with(Clerk::allowing(&["allowed.test"]), |settings| {
        settings.limits.session = ByteBudget { up: 150, down: 100 };
    });
    let target = format!("allowed.test:{}", server.port());
    for sent in [100, 100] {
        let mut tunnel = world.tunnel(&target);
        tunnel.write_all(&vec![0; sent]).unwrap();
        let _ = tunnel.shutdown(std::net::Shutdown::Write);
        let _ = read_bytes(&mut tunnel);
    }
    let book = world.clerk.after(2);
    assert_eq!(book.ended[0].2, FlowEnd::Done);
    assert!(matches!(&book.ended[1].2, FlowEnd::Refused(refusal) if refusal.rule == "limits.session-bytes"));
}

/// N26: whoever says nothing, or says it byte by byte, is not waited for.
#[test]
fn n26_slow_clients_end() {
    let world = World::with(Clerk::allowing(&["allowed.test"]), |settings| {
        settings.times.head = Duration::from_millis(100);
        settings.times.silence = Duration::from_millis(100);
    });
    let beginnings: [&[u8]; 8] = [
        b"",
        b"C",
        b"CONNECT allowed.test:443 HTTP/1.1\r\n",
        b"CONNECT allowed.test:443 HTTP/1.1\r\nX: ",
        b"\x05",
        b"\x05\x02\x00",
        b"\x05\x01\x00\x05\x01\x00\x03\xffa",
        b"\x04\x01",
    ];
    for bytes in beginnings {
        let mut client = world.client();
        client.write_all(bytes).unwrap();
        let answer = read_to_end(&mut client);
        assert!(!answer.contains("200"), "{bytes:?}: {answer}");
    }
    assert_eq!(world.clerk.book().judged, []);
}

#[test]
fn heads_have_a_size() {
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let long = format!("CONNECT allowed.test:443 HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(100_000));
    let many = format!("CONNECT allowed.test:443 HTTP/1.1\r\n{}\r\n", "X: a\r\n".repeat(200));
    for request in [many, long] {
        let mut client = world.client();
        let _ = client.write_all(request.as_bytes());
        let answer = read_to_end(&mut client);
        assert!(answer.starts_with("HTTP/1.1 4") || answer.is_empty(), "{answer}");
    }
    assert_eq!(world.clerk.book().judged, []);
}

/// N26: what nobody takes waits at its sender, not here.
#[test]
fn n26_a_server_that_does_not_read_holds_up_its_client() {
    const MOST: usize = 64 * 1024 * 1024;
    let (held, holder) = std::sync::mpsc::channel();
    let server = server(move |stream| held.send(stream).unwrap());
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let mut tunnel = world.tunnel(&format!("allowed.test:{}", server.port()));
    tunnel.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let chunk = vec![0; 1 << 20];
    let mut sent = 0;
    while sent < MOST
        && let Ok(count) = tunnel.write(&chunk)
    {
        sent += count;
    }
    assert!(sent < MOST, "{sent}");
    drop(holder);
}

/// A request that is looked at takes memory for it: there are fewer of them than of flows, and tunnels are none.
#[test]
fn n26_requests_at_once() {
    let silent = server(|mut client| drop(read_bytes(&mut client)));
    let world = World::with(Clerk::allowing(&["allowed.test"]), |settings| settings.limits.requests = 2);
    let target = format!("allowed.test:{}", silent.port());
    let request = format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n");
    let ask = || {
        let mut client = world.client();
        client.write_all(request.as_bytes()).unwrap();
        client
    };
    let open = [ask(), ask()];
    world.clerk.wait(|book| book.opened.len() == 2);
    let answer = world.exchange(request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("limits.requests"), "{answer}");
    drop(world.tunnel(&target));
    drop(open);
    world.clerk.after(4);
    let _third = ask();
    world.clerk.wait(|book| book.opened.len() == 4);
}
