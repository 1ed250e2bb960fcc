//! The name server inside.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, UdpSocket};

use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use ringfence_egress::{NameServers, ProxySettings};

use crate::clerk::Clerk;
use crate::world::{HERE, PATIENCE, Says, World, dialled, echo, names};

fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

fn ask(world: &World, message: &Message) -> Message {
    Message::from_vec(&send(world, &message.to_vec().unwrap())).unwrap()
}

fn send(world: &World, bytes: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind((HERE, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(bytes, world.dns).unwrap();
    let mut answer = [0; 4096];
    let count = socket.recv(&mut answer).unwrap();
    answer[..count].to_vec()
}

fn code(world: &World, name: &str, kind: RecordType) -> (ResponseCode, usize) {
    let answer = ask(world, &query(name, kind));
    (answer.metadata.response_code, answer.answers.len())
}

fn address(world: &World, name: &str) -> IpAddr {
    let answer = ask(world, &query(name, RecordType::A));
    answer.answers[0].data.ip_addr().unwrap()
}

#[test]
fn an_allowed_name_has_a_stable_address_that_leads_nowhere_else() {
    let world = World::new(Clerk::allowing(&["allowed.test", "other.test"]));
    let first = address(&world, "allowed.test.");
    assert_eq!(address(&world, "ALLOWED.test."), first);
    assert_ne!(address(&world, "other.test."), first);
    assert!(matches!(first, IpAddr::V4(v4) if [18, 19].contains(&v4.octets()[1]) && v4.octets()[0] == 198));
}

/// Clients that resolve first and ask for a tunnel to the address are understood.
#[test]
fn the_address_of_a_name_is_that_name_at_the_other_doors() {
    let server = echo();
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let given = address(&world, "allowed.test.");
    drop(world.tunnel(&format!("{given}:{}", server.port())));
    let book = world.clerk.after(1);
    assert_eq!(book.judged[0].target.to_string(), format!("allowed.test:{}", server.port()));
    let answer = world.exchange(b"CONNECT 198.19.200.7:443 HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("stands for no name"), "{answer}");
}

#[test]
fn other_names_do_not_exist() {
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    for name in
        ["evil.test.", "x.allowed.test.", "test.", ".", "127.0.0.1.", "0x7f.1.", "metadata.google.internal."]
    {
        assert_eq!(code(&world, name, RecordType::A), (ResponseCode::NXDomain, 0), "{name}");
        assert_eq!(code(&world, name, RecordType::TXT), (ResponseCode::NXDomain, 0), "{name}");
    }
}

/// No other record: above all none that carries addresses or keys that hide the name in TLS.
#[test]
fn an_allowed_name_has_addresses_and_nothing_else() {
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    for kind in [
        RecordType::HTTPS,
        RecordType::SVCB,
        RecordType::AAAA,
        RecordType::TXT,
        RecordType::MX,
        RecordType::NS,
        RecordType::CNAME,
        RecordType::SRV,
        RecordType::NULL,
        RecordType::Unknown(65280),
    ] {
        assert_eq!(code(&world, "allowed.test.", kind), (ResponseCode::NoError, 0), "{kind}");
    }
    for kind in [RecordType::ANY, RecordType::AXFR, RecordType::IXFR] {
        assert_eq!(code(&world, "allowed.test.", kind), (ResponseCode::Refused, 0), "{kind}");
    }
}

#[test]
fn version_6_is_answered_where_it_can_be_connected_to() {
    let settings = ProxySettings { names: NameServers::Only(Vec::new()), ..ProxySettings::default() };
    let door = TcpListener::bind("[::]:0").unwrap();
    let world = World::start(Clerk::allowing(&["allowed.test"]), settings, Some(door));
    let answer = ask(&world, &query("allowed.test.", RecordType::AAAA));
    let IpAddr::V6(given) = answer.answers[0].data.ip_addr().unwrap() else { panic!("{answer:?}") };
    assert_eq!(given.segments()[..3], [0xfd52, 0x494e, 0x4746]);
}

#[test]
fn an_address_has_the_name_it_stands_for() {
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let IpAddr::V4(given) = address(&world, "allowed.test.") else { panic!() };
    let [a, b, c, d] = given.octets();
    let answer = ask(&world, &query(&format!("{d}.{c}.{b}.{a}.in-addr.arpa."), RecordType::PTR));
    assert!(matches!(&answer.answers[0].data, RData::PTR(name) if name.0.to_ascii() == "allowed.test."));
    for name in [
        "1.0.0.127.in-addr.arpa.",
        "9.9.19.198.in-addr.arpa.",
        "18.198.in-addr.arpa.",
        "x.in-addr.arpa.",
        "ip6.arpa.",
    ] {
        assert_eq!(code(&world, name, RecordType::PTR), (ResponseCode::NXDomain, 0), "{name}");
    }
}

#[test]
fn localhost_is_the_loopback_inside() {
    let world = World::new(Clerk::allowing(&[]));
    assert_eq!(address(&world, "localhost."), IpAddr::from([127, 0, 0, 1]));
    assert_eq!(address(&world, "a.localhost."), IpAddr::from([127, 0, 0, 1]));
}

#[test]
fn what_is_no_question_is_refused() {
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let mut chaos = query("allowed.test.", RecordType::TXT);
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(ask(&world, &chaos).metadata.response_code, ResponseCode::Refused);
    let mut two = query("allowed.test.", RecordType::A);
    two.add_query(two.queries[0].clone());
    assert_eq!(ask(&world, &two).metadata.response_code, ResponseCode::FormErr);
    let mut update = query("allowed.test.", RecordType::A);
    update.metadata.op_code = OpCode::Status;
    assert_eq!(ask(&world, &update).metadata.response_code, ResponseCode::NotImp);
    let broken =
        Message::from_vec(&send(&world, b"\x12\x34\x01\x00\xff\xff\x00\x00\x00\x00\x00\x00\xff")).unwrap();
    assert_eq!((broken.metadata.id, broken.metadata.response_code), (0x1234, ResponseCode::FormErr));
    let mut edns = query("allowed.test.", RecordType::A);
    edns.set_edns(Edns::new());
    let answer = ask(&world, &edns);
    assert!(answer.edns.is_some() && answer.answers.len() == 1 && answer.metadata.recursion_desired);
}

#[test]
fn names_are_answered_over_streams_too() {
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let mut stream = dialled(world.dns_stream);
    for _ in 0..2 {
        let bytes = query("allowed.test.", RecordType::A).to_vec().unwrap();
        stream.write_all(&u16::try_from(bytes.len()).unwrap().to_be_bytes()).unwrap();
        stream.write_all(&bytes).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(Message::from_vec(&answer).unwrap().answers.len(), 1);
    }
}

/// N21: the secret in the name reaches no server, whether the name is allowed or not.
#[test]
fn n21_no_query_ever_leaves() {
    let (asked, questions) = std::sync::mpsc::channel();
    let upstream = names(move |query, _| {
        asked.send(query.name().to_ascii()).unwrap();
        Says::Code(ResponseCode::NXDomain)
    });
    let clerk = Clerk::allowing(&["allowed.test", "secret.allowed.test"]);
    let world = World::with(clerk, |settings| settings.names = NameServers::Only(vec![upstream]));
    for name in ["secret.allowed.test.", "secret.evil.test.", "allowed.test."] {
        code(&world, name, RecordType::A);
        code(&world, name, RecordType::TXT);
    }
    assert!(questions.try_recv().is_err());
    // The control: the same server is asked once somebody connects.
    world.exchange(b"CONNECT allowed.test:443 HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!(questions.recv_timeout(PATIENCE).unwrap().to_lowercase(), "allowed.test.");
}

#[test]
fn questions_have_a_rate() {
    let world =
        World::with(Clerk::allowing(&["allowed.test"]), |settings| settings.limits.queries_per_second = 5);
    let refused =
        (0..100).filter(|_| code(&world, "allowed.test.", RecordType::A).0 == ResponseCode::Refused).count();
    assert!(refused > 50, "{refused}");
}
