//! Connections to addresses that stand for names, in a network namespace of the test's own.
//!
//! There the whole synthetic range is local, and the door listens on the port itself: a connection arrives with the
//! address it was made to, as where packets are led to the door unchanged.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::Command;
use std::sync::mpsc;

use hickory_proto::op::{Message, Query};
use hickory_proto::rr::{Name, RecordType};
use ringfence_egress::{FlowEnd, FlowIngress, FlowVerdict, NameServers, ProxySettings};

use crate::clerk::{Clerk, PASS, only_end};
use crate::world::{HERE, PATIENCE, Says, World, a, dialled, hello, names, read_bytes, serve};

/// Runs a test of this program again, in a namespace whose loopback has the synthetic addresses. True: this is that run.
fn inside(name: &str) -> bool {
    if UdpSocket::bind((Ipv4Addr::new(198, 18, 0, 1), 0)).is_ok() {
        return true;
    }
    let script = "ip link set lo up && ip route add local 198.18.0.0/15 dev lo && \
        ip -6 route add local fd52:494e:4746::/96 dev lo && exec \"$0\" \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

/// A world whose transparent door is at this port of every address but 127.0.0.1, where the server is.
struct Led {
    world: World,
    given: SocketAddr,
}

fn led(port: u16, clerk: Clerk) -> Led {
    let home = names(|_, _| Says::Data(vec![a("127.0.0.1")]));
    let settings = ProxySettings { names: NameServers::Only(vec![home]), ..ProxySettings::default() };
    // The first address that is given out.
    let door = TcpListener::bind(("198.18.0.1", port)).unwrap();
    let world = World::start(clerk, settings, Some(door));
    let address = ask(&world, "allowed.test.");
    Led { given: SocketAddr::new(address.into(), port), world }
}

fn ask(world: &World, name: &str) -> Ipv4Addr {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    let socket = UdpSocket::bind((HERE, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(&message.to_vec().unwrap(), world.dns).unwrap();
    let mut answer = [0; 4096];
    let count = socket.recv(&mut answer).unwrap();
    let answer = Message::from_vec(&answer[..count]).unwrap();
    match answer.answers[0].data.ip_addr().unwrap() {
        std::net::IpAddr::V4(address) => address,
        std::net::IpAddr::V6(address) => panic!("{address}"),
    }
}

fn heard_at(port: u16) -> mpsc::Receiver<Vec<u8>> {
    let (heard, all) = mpsc::channel();
    serve(TcpListener::bind((HERE, port)).unwrap(), move |mut stream| {
        heard.send(read_bytes(&mut stream)).unwrap();
    });
    all
}

#[test]
fn tls_to_an_address_is_tls_to_its_name() {
    if !inside("transparent::tls_to_an_address_is_tls_to_its_name") {
        return;
    }
    let heard = heard_at(443);
    let led = led(443, Clerk::allowing(&["allowed.test"]));
    let mut client = dialled(led.given);
    client.write_all(&hello(Some("allowed.test"))).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_bytes(&mut client), b"");
    assert!(heard.recv_timeout(PATIENCE).unwrap().starts_with(&[0x16, 3]));
    assert_eq!(
        only_end(&led.world.clerk.after(1)),
        (FlowIngress::Transparent, "allowed.test:443".to_owned(), FlowEnd::Done)
    );
    for name in [Some("evil.test"), None] {
        let mut client = dialled(led.given);
        client.write_all(&hello(name)).unwrap();
        assert_eq!(read_bytes(&mut client), [21, 3, 3, 0, 2, 2, 112], "{name:?}");
    }
    let book = led.world.clerk.after(3);
    assert_eq!((book.judged.len(), book.opened.len()), (1, 1), "{book:?}");
}

#[test]
fn tls_that_is_refused_hears_so() {
    if !inside("transparent::tls_that_is_refused_hears_so") {
        return;
    }
    let clerk = Clerk::allowing(&["allowed.test"]).judging(|_| crate::clerk::refuse());
    let led = led(443, clerk);
    let mut client = dialled(led.given);
    client.write_all(&hello(Some("allowed.test"))).unwrap();
    assert_eq!(read_bytes(&mut client), [21, 3, 3, 0, 2, 2, 49]);
    assert_eq!(led.world.clerk.after(1).opened, []);
}

#[test]
fn servers_that_speak_first_are_heard() {
    if !inside("transparent::servers_that_speak_first_are_heard") {
        return;
    }
    for port in [22, 9418] {
        serve(TcpListener::bind((HERE, port)).unwrap(), |mut stream| {
            stream.write_all(b"SSH-2.0-server\r\n").unwrap();
            crate::world::echoing(stream);
        });
        let led = led(port, Clerk::allowing(&["allowed.test"]));
        let mut client = dialled(led.given);
        let mut greeting = [0; 16];
        client.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"SSH-2.0-server\r\n");
        client.write_all(b"SSH-2.0-client\r\n").unwrap();
        client.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"SSH-2.0-client\r\n");
    }
}

#[test]
fn plain_http_is_judged_by_request() {
    if !inside("transparent::plain_http_is_judged_by_request") {
        return;
    }
    serve(TcpListener::bind((HERE, 80)).unwrap(), |mut stream| {
        let _ = crate::world::read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
    });
    let led = led(80, Clerk::allowing(&["allowed.test"]));
    for (host, expected) in [("allowed.test", " 200 "), ("evil.test", " 4")] {
        let mut client = dialled(led.given);
        write!(client, "GET /x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let answer = String::from_utf8(read_bytes(&mut client)).unwrap();
        assert!(answer.lines().next().unwrap().contains(expected), "{host}: {answer}");
    }
    let judged = led.world.clerk.book().judged;
    assert_eq!(judged[0].request.as_ref().unwrap().url, "http://allowed.test:80/x");
    assert_eq!((judged.len(), judged[0].way), (1, FlowIngress::Transparent));
}

/// A name in TLS is looked at however late it comes.
#[test]
fn tls_after_a_long_silence_is_looked_at_too() {
    if !inside("transparent::tls_after_a_long_silence_is_looked_at_too") {
        return;
    }
    let heard = heard_at(9999);
    let led = led(9999, Clerk::allowing(&["allowed.test"]));
    let mut client = dialled(led.given);
    // The far end is dialled once nobody waits for the client any more.
    led.world.clerk.wait(|book| book.opened.len() == 1);
    client.write_all(&hello(Some("evil.test"))).unwrap();
    assert_eq!(read_bytes(&mut client), [21, 3, 3, 0, 2, 2, 112]);
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), b"");
}

#[test]
fn addresses_that_stand_for_nobody_lead_nowhere() {
    if !inside("transparent::addresses_that_stand_for_nobody_lead_nowhere") {
        return;
    }
    let door = TcpListener::bind(("198.18.0.77", 443)).unwrap();
    let clerk = Clerk::allowing(&["allowed.test"]).judging(|_| FlowVerdict::Pass(PASS));
    let world = World::start(clerk, ProxySettings::default(), Some(door));
    assert_eq!(read_bytes(&mut dialled(([198, 18, 0, 77], 443).into())), b"");
    let book = world.clerk.after(1);
    assert!(
        matches!(only_end(&book).2, FlowEnd::Refused(refusal) if refusal.rule == "network.names"),
        "{book:?}"
    );
    assert_eq!((book.judged.len(), book.opened.len()), (0, 0));
}

/// A connection that nobody led here has no destination.
#[test]
fn the_door_itself_is_no_destination() {
    let door = TcpListener::bind((HERE, 0)).unwrap();
    let address = door.local_addr().unwrap();
    let clerk = Clerk::allowing(&["127.0.0.1"]);
    let world = World::start(clerk, ProxySettings::default(), Some(door));
    assert_eq!(read_bytes(&mut dialled(address)), b"");
    assert_eq!(world.clerk.book().judged, []);
}
