//! SOCKS 5, and 4 as far as saying no.

use std::io::{Read, Write};

use ringfence_egress::{FlowEnd, FlowIngress};

use crate::clerk::{Clerk, only_end};
use crate::world::{World, echo, read_bytes};

fn by_name(name: &[u8], port: u16) -> Vec<u8> {
    let mut request = vec![5, 1, 0, 3, u8::try_from(name.len()).unwrap()];
    request.extend(name);
    request.extend(port.to_be_bytes());
    request
}

fn by_v4(address: [u8; 4], port: u16) -> Vec<u8> {
    [&[5, 1, 0, 1][..], &address, &port.to_be_bytes()].concat()
}

/// The reply code to a request.
fn reply(world: &World, request: &[u8]) -> u8 {
    let mut client = world.client();
    client.write_all(&[5, 1, 0]).unwrap();
    client.write_all(request).unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!((answer[0], answer[1], answer[2]), (5, 0, 5));
    answer[3]
}

#[test]
fn names_and_addresses_are_reached() {
    let server = echo();
    let world = World::new(Clerk::allowing(&["allowed.test", "127.0.0.1"]));
    let mut mapped = vec![5, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];
    mapped.extend(server.port().to_be_bytes());
    for request in [by_name(b"allowed.test", server.port()), by_v4([127, 0, 0, 1], server.port()), mapped] {
        let mut client = world.client();
        client.write_all(&[5, 2, 0, 2]).unwrap();
        client.write_all(&request).unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        client.write_all(b"\x01ping").unwrap();
        let mut echoed = [0; 5];
        client.read_exact(&mut echoed).unwrap();
        assert_eq!(&echoed, b"\x01ping");
    }
    let book = world.clerk.after(3);
    assert!(book.ended.iter().all(|(flow, _, end)| flow.way == FlowIngress::Socks && *end == FlowEnd::Done));
}

#[test]
fn a_refused_host_is_not_allowed_by_the_ruleset() {
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    assert_eq!(reply(&world, &by_name(b"evil.test", 443)), 2);
    assert!(matches!(only_end(&world.clerk.after(1)).2, FlowEnd::Refused(_)));
    assert_eq!(reply(&world, &by_v4([192, 0, 2, 1], 443)), 2);
    assert_eq!(world.clerk.after(2).opened, []);
}

/// B-S1: a NUL hides nothing.
#[test]
fn n4_bytes_that_are_no_name_are_no_host() {
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    for name in [
        &b"evil.test\0.allowed.test"[..],
        b"allowed.test\0",
        b"evil.test\r\n.allowed.test",
        b"evil.test .allowed.test",
        b"evil.test%00.allowed.test",
        b"evil.test/.allowed.test",
        b"evil.test#.allowed.test",
        b"allowed.test@evil.test",
        b"allowed.test:443",
        b"\xff\xfe",
        b"",
        b"*.allowed.test",
        b"127.1",
        b"0x7f000001",
    ] {
        assert_eq!(reply(&world, &by_name(name, 443)), 2, "{name:?}");
    }
    assert_eq!(reply(&world, &by_name(b"allowed.test", 0)), 2);
    assert_eq!(world.clerk.book().judged, []);
}

#[test]
fn other_commands_and_kinds_are_told_so() {
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    for command in [0, 2, 3, 255] {
        let mut request = by_name(b"allowed.test", 443);
        request[1] = command;
        assert_eq!(reply(&world, &request), 7);
    }
    assert_eq!(reply(&world, &[5, 1, 0, 9, 0, 0, 0, 0, 0, 0]), 8);
    let mut other_version = by_name(b"allowed.test", 443);
    other_version[0] = 6;
    assert_eq!(reply(&world, &other_version), 1);
    assert_eq!(world.clerk.book().judged, []);
}

#[test]
fn failures_have_their_own_codes() {
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    assert_eq!(reply(&world, &by_name(b"allowed.test", closed.port())), 5);
}

#[test]
fn authentication_is_not_offered() {
    let world = World::new(Clerk::allowing(&[]));
    let mut client = world.client();
    client.write_all(&[5, 1, 2]).unwrap();
    assert_eq!(read_bytes(&mut client), [5, 0xff]);
}

#[test]
fn version_4_is_refused_in_its_own_words() {
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let mut client = world.client();
    client.write_all(b"\x04\x01\x01\xbb\x00\x00\x00\x01\x00allowed.test\x00").unwrap();
    assert_eq!(read_bytes(&mut client), [0, 0x5b, 0, 0, 0, 0, 0, 0]);
}
