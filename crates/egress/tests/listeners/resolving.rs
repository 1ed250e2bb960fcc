//! Name servers that lie.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use ringfence_egress::{AddressScope, FlowEnd, NameServers};

use crate::clerk::{Clerk, only_end};
use crate::world::{Says, World, a, echo, names};

fn world(reach: AddressScope, server: SocketAddr) -> World {
    World::with(Clerk::reaching(&["allowed.test"], reach), |settings| {
        settings.names = NameServers::Only(vec![server]);
        settings.times.connect = Duration::from_millis(200);
    })
}

fn connect(world: &World, port: u16) -> String {
    world.exchange(format!("CONNECT allowed.test:{port} HTTP/1.1\r\nConnection: close\r\n\r\n").as_bytes())
}

/// N7, B-C15, B-S19. The control is the last line: the same answer, for a rule that means this machine.
#[test]
fn n7_a_name_on_the_internet_that_leads_home_is_refused() {
    let server = echo();
    for address in [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "172.16.0.1",
        "169.254.1.1",
        "100.64.0.1",
        "198.18.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "::1",
        "::",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fd00:ec2::254",
        "fe80::1",
        "fc00::1",
    ] {
        let liar = names(move |_, _| Says::Data(vec![a(address)]));
        let world = world(AddressScope::Internet, liar);
        let answer = connect(&world, server.port());
        assert!(answer.starts_with("HTTP/1.1 403"), "{address}: {answer}");
        assert!(answer.contains("network.addresses"), "{address}: {answer}");
        assert_eq!(world.clerk.after(1).opened, [], "{address}");
    }
    let world = world(AddressScope::Special, names(|_, _| Says::Data(vec![a("127.0.0.1")])));
    drop(world.tunnel(&format!("allowed.test:{}", server.port())));
}

/// Metadata services are nobody's to allow.
#[test]
fn n7_metadata_is_refused_even_where_this_machine_is_not() {
    for address in
        ["169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "64:ff9b::a9fe:a9fe"]
    {
        let world = world(AddressScope::Special, names(move |_, _| Says::Data(vec![a(address)])));
        assert!(connect(&world, 80).starts_with("HTTP/1.1 403"), "{address}");
        assert_eq!(world.clerk.after(1).opened, [], "{address}");
    }
}

#[test]
fn n6_literal_addresses_are_checked_the_same_way() {
    let addresses = [
        "127.0.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "10.0.0.1",
        "[::1]",
        "[::]",
        "[fd00:ec2::254]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ];
    let world = World::new(Clerk::reaching(&addresses, AddressScope::Internet));
    for address in addresses {
        let answer =
            world.exchange(format!("CONNECT {address}:80 HTTP/1.1\r\nConnection: close\r\n\r\n").as_bytes());
        assert!(
            answer.starts_with("HTTP/1.1 403") && answer.contains("network.addresses"),
            "{address}: {answer}"
        );
    }
    assert_eq!(world.clerk.after(addresses.len()).opened, []);
    // The control: a rule that means this machine.
    let (server, world) = (echo(), World::new(Clerk::allowing(&["127.0.0.1"])));
    drop(world.tunnel(&server.to_string()));
}

/// One bad address among good ones refuses all: somebody hopes that it is picked. Had the good ones been picked, the documentation
/// networks (which nobody has) would have been recorded as opened.
#[test]
fn n7_an_answer_with_one_bad_address_is_refused_whole() {
    for bad in ["127.0.0.1", "169.254.169.254", "10.0.0.1", "::1"] {
        let liar = names(move |query, _| {
            let good = if query.query_type() == RecordType::A { "1.2.3.4" } else { "2606:4700::1" };
            Says::Data(vec![a(good), a(bad), a(good)])
        });
        let world = world(AddressScope::Internet, liar);
        let answer = connect(&world, 80);
        assert!(answer.starts_with("HTTP/1.1 403"), "{bad}: {answer}");
        assert_eq!(world.clerk.after(1).opened, [], "{bad}");
    }
}

/// First good, then home: whoever looks twice is deceived. It is looked at once, so the second answer is refused as such and the
/// first is what was dialled. The gate refuses to open anything, so that no packet leaves.
#[test]
fn n7_rebinding_finds_nobody_who_looks_twice() {
    let liar = names(|_, count| Says::Data(vec![a(if count < 2 { "1.2.3.4" } else { "127.0.0.1" })]));
    let clerk = Clerk::reaching(&["allowed.test"], AddressScope::Internet)
        .opening(|_, _| Err(crate::clerk::refusal()));
    let world = World::with(clerk, |settings| settings.names = NameServers::Only(vec![liar]));
    assert!(connect(&world, 80).contains("the host is on no list"));
    assert_eq!(
        world.clerk.after(1).opened.iter().map(|(_, address)| address.to_string()).collect::<Vec<_>>(),
        ["1.2.3.4"]
    );
    assert!(connect(&world, 80).contains("network.addresses"));
    assert_eq!(world.clerk.after(2).opened.len(), 1);
}

#[test]
fn aliases_are_followed_and_where_they_lead_is_checked() {
    let server = echo();
    let chain = |_: &_, _| Says::Chain(vec!["a.test.", "b.test.", "c.test."], vec![a("127.0.0.1")]);
    drop(world(AddressScope::Special, names(chain)).tunnel(&format!("allowed.test:{}", server.port())));
    let world = world(AddressScope::Internet, names(chain));
    assert!(connect(&world, server.port()).contains("network.addresses"));
    assert_eq!(world.clerk.after(1).opened, []);
}

/// N8: no answer is no address.
#[test]
fn n8_a_name_server_that_fails_leads_nowhere() {
    type Rule = fn() -> Says;
    let failing: &[(&str, Rule)] = &[
        ("no such name", || Says::Code(ResponseCode::NXDomain)),
        ("failure", || Says::Code(ResponseCode::ServFail)),
        ("refused", || Says::Code(ResponseCode::Refused)),
        ("empty", || Says::Data(Vec::new())),
        ("garbage", || Says::Garbage(vec![0xff; 40])),
        ("short", || Says::Garbage(Vec::new())),
        ("silence", || Says::Silence),
        ("in circles", || Says::Chain(vec!["a.test.", "allowed.test.", "a.test."], Vec::new())),
    ];
    for (what, rule) in failing {
        let world = World::with(Clerk::allowing(&["allowed.test"]), |settings| {
            settings.names = NameServers::Only(vec![names(move |_, _| rule())]);
            settings.times.resolve = Duration::from_millis(300);
        });
        let answer = connect(&world, 80);
        assert!(answer.starts_with("HTTP/1.1 50"), "{what}: {answer}");
        let book = world.clerk.after(1);
        assert!(matches!(only_end(&book).2, FlowEnd::Failed(_)), "{what}");
        assert_eq!(book.opened, [], "{what}");
    }
}

#[test]
fn a_huge_answer_is_checked_whole_and_tried_in_part() {
    let many = |last: &'static str| {
        move |_: &_, _| Says::Data((0..2000).map(|_| a("127.0.0.1")).chain([a(last)]).collect())
    };
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let bad = world(AddressScope::Special, names(many("169.254.169.254")));
    let answer = connect(&bad, closed.port());
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert_eq!(bad.clerk.after(1).opened, []);
    let good = world(AddressScope::Special, names(many("127.0.0.1")));
    assert!(connect(&good, closed.port()).starts_with("HTTP/1.1 502"));
    assert!(good.clerk.after(1).opened.len() <= 8);
}

/// A host of two addresses, of which the first is dead.
#[test]
fn the_next_address_is_tried_when_one_fails() {
    let server = echo();
    let world = world(AddressScope::Special, names(|_, _| Says::Data(vec![a("::1"), a("127.0.0.1")])));
    drop(world.tunnel(&format!("allowed.test:{}", server.port())));
    let opened: Vec<String> =
        world.clerk.after(1).opened.iter().map(|(_, address)| address.to_string()).collect();
    assert_eq!(opened, ["::1", "127.0.0.1"]);
}

/// As the system does: who is in the file of hosts is not asked about, and files may change.
#[test]
fn listed_hosts_come_first_and_lists_change() {
    let server = echo();
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    let write = |text: &str, age: u64| {
        std::fs::write(&hosts, text).unwrap();
        let written = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(age);
        std::fs::File::options().append(true).open(&hosts).unwrap().set_modified(written).unwrap();
    };
    write("# nobody\n", 1_000);
    let world = World::with(Clerk::allowing(&["allowed.test"]), |settings| {
        // There is no such file, and so no name server: whom nobody lists nobody finds.
        let resolv_conf = directory.path().join("resolv.conf");
        settings.names = NameServers::Files { resolv_conf, hosts: hosts.clone() };
        settings.times.resolve = Duration::from_secs(2);
    });
    assert!(connect(&world, server.port()).starts_with("HTTP/1.1 50"));
    write("127.0.0.1 other.test Allowed.test # here\n", 2_000);
    drop(world.tunnel(&format!("allowed.test:{}", server.port())));
    write("169.254.169.254 allowed.test\n", 3_000);
    assert!(connect(&world, server.port()).starts_with("HTTP/1.1 403"));
}
