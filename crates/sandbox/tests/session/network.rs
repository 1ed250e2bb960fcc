//! The filtered network, seen from inside and from the doors.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use ringfence_sandbox::{ProxySockets, UnsupportedFeature};
use ringfence_types::{Control, ControlLevel, PROXY_PORT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use super::*;

const BACKENDS: [Backend; 2] = [Backend::Native, Backend::Bubblewrap];

/// `tcp HOST PORT` prints what the other side says, `udp HOST PORT` what it answers, both the error if there is one.
const CLIENT: &str = r#"
use Socket qw(:all);
my ($kind, $host, $port) = @ARGV;
my $six = $host =~ /:/;
my $to = $six ? pack_sockaddr_in6($port, inet_pton(AF_INET6, $host)) : pack_sockaddr_in($port, inet_aton($host));
socket(my $s, $six ? AF_INET6 : AF_INET, $kind eq "tcp" ? SOCK_STREAM : SOCK_DGRAM, 0) or failed("socket");
connect($s, $to) or failed("connect");
if ($kind eq "tcp") { print while <$s>; exit }
defined send($s, "question", 0) or failed("send");
defined recv($s, my $answer, 99, 0) or failed("receive");
print $answer;
sub failed { my $number = $! + 0; print "$_[0] error $number"; exit }
"#;

const REFUSED: &str = "connect error 111";

struct Inside {
    world: World,
    session: Sandbox,
}

impl Inside {
    fn filtered(backend: Backend) -> (Self, ProxySockets) {
        let world = World::new();
        let spec = SandboxSpec { backend, net: NetMode::Filtered, ..world.spec() };
        let mut session = Sandbox::start(&spec, &NoRules).unwrap();
        let doors = session.take_doors().unwrap();
        assert!(session.take_doors().is_none(), "there is one set of doors");
        fs::write(world.path("workspace/client.pl"), CLIENT).unwrap();
        (Self { world, session }, doors)
    }

    fn sh(&mut self, script: &str) -> String {
        run(&mut self.session, &self.world.sh(script)).unwrap().1
    }

    fn client(&mut self, kind: &str, host: &str, port: u16) -> String {
        self.sh(&format!("perl client.pl {kind} {host} {port}"))
    }
}

/// Answers the next connection with who it was for.
fn answer_with_destination(listener: &TcpListener) {
    let Some(mut stream) = accept(listener) else { return };
    let meant = destination(&stream);
    write!(stream, "meant for {meant}").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    // What was sent early is read, or the end of the connection would be a reset.
    stream.read_to_end(&mut Vec::new()).unwrap();
}

/// The next connection, if there is one soon.
fn accept(listener: &TcpListener) -> Option<TcpStream> {
    arrives(listener.as_fd()).then(|| listener.accept().unwrap().0)
}

fn arrives(socket: BorrowedFd<'_>) -> bool {
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(&patience)).unwrap() > 0
}

fn destination(stream: &TcpStream) -> SocketAddr {
    let v4 =
        matches!(stream.peer_addr().unwrap(), SocketAddr::V6(peer) if peer.ip().to_ipv4_mapped().is_some());
    match v4 {
        true => SocketAddr::V4(sockopt::ip_original_dst(stream).unwrap()),
        false => SocketAddr::V6(sockopt::ipv6_original_dst(stream).unwrap()),
    }
}

#[test]
fn every_connection_arrives_with_the_address_it_was_meant_for() {
    for backend in BACKENDS {
        let (mut inside, doors) = Inside::filtered(backend);
        let transparent = doors.transparent.as_ref().unwrap();
        for (host, port, meant) in [
            ("203.0.113.9", 443, "203.0.113.9:443"),
            ("10.0.0.1", 22, "10.0.0.1:22"),
            ("169.254.169.254", 80, "169.254.169.254:80"),
            ("2001:db8::9", 443, "[2001:db8::9]:443"),
            ("fd00::1", 1, "[fd00::1]:1"),
            ("::ffff:203.0.113.9", 80, "203.0.113.9:80"),
            ("2001:db8::9", 53, "[2001:db8::9]:53"),
        ] {
            let said = thread::scope(|scope| {
                scope.spawn(|| answer_with_destination(transparent));
                inside.client("tcp", host, port)
            });
            assert_eq!(said, format!("meant for {meant}"), "{backend}");
        }
        let net = &inside.session.posture().controls[&Control::Net];
        assert!(matches!(net, ControlLevel::Enforced { by } if by.contains("nf_tables")), "{net:?}");
    }
}

/// Data in the first packet, and a source address that is not ours, change nothing.
#[test]
fn unusual_connections_arrive_or_fail() {
    const FAST_OPEN: &str = "perl -MSocket -e 'socket(my $s, AF_INET, SOCK_STREAM, 0); \
        send($s, \"early\", 0x20000000, pack_sockaddr_in(443, inet_aton(\"203.0.113.9\"))) or print $! + 0; print <$s>'";
    const OTHER_SOURCE: &str = "perl -MSocket -e 'socket(my $s, AF_INET, SOCK_DGRAM, 0); \
        setsockopt($s, 0, 15, 1); bind($s, pack_sockaddr_in(0, inet_aton(\"203.0.113.8\"))) or print \"bind \"; \
        defined send($s, \"x\", 0, pack_sockaddr_in(443, inet_aton(\"203.0.113.9\"))) or print $! + 0'";
    for backend in BACKENDS {
        let (mut inside, doors) = Inside::filtered(backend);
        let transparent = doors.transparent.as_ref().unwrap();
        let said = thread::scope(|scope| {
            scope.spawn(|| answer_with_destination(transparent));
            inside.sh(FAST_OPEN)
        });
        assert_eq!(said, "meant for 203.0.113.9:443", "{backend}");
        assert_eq!(inside.sh(OTHER_SOURCE), "101", "{backend}");
    }
}

/// N14, N15: who is not in the namespace has no door, and each session has its own.
#[test]
fn what_leaves_one_session_does_not_arrive_at_another() {
    for backend in BACKENDS {
        let (mut one, doors_of_one) = Inside::filtered(backend);
        let (_other, doors_of_other) = Inside::filtered(backend);
        for (host, port, door) in [
            ("203.0.113.9", 443, doors_of_one.transparent.as_ref().unwrap()),
            ("127.0.0.1", PROXY_PORT, &doors_of_one.proxy),
            ("127.0.0.1", 53, &doors_of_one.dns_stream),
        ] {
            let said = thread::scope(|scope| {
                scope.spawn(|| accept(door).map(|mut stream| write!(stream, "mine")));
                one.client("tcp", host, port)
            });
            assert_eq!(said, "mine", "{backend} {host} {port}");
        }
        assert!(nothing_arrived(&doors_of_other), "{backend}");
    }
}

/// The test runs itself again as a supervisor that is killed without warning.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test that starts itself again tells it so")]
fn nothing_is_left_of_a_killed_supervisor() {
    const PLACE: &str = "RINGFENCE_TEST_SUPERVISOR";
    if let Some(place) = std::env::var_os(PLACE) {
        return supervise(Path::new(&place));
    }
    for backend in BACKENDS {
        let world = World::new();
        fs::write(world.path("backend"), backend.to_string()).unwrap();
        let name = "network::nothing_is_left_of_a_killed_supervisor";
        let mut supervisor = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(PLACE, world.path(""))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        world.heartbeat().wait_for_life();
        let namespace = fs::read_to_string(world.path("workspace/namespace")).unwrap();
        assert!(in_namespace(namespace.trim()) > 0, "{backend}: nothing was there");
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
        let patience = Patience::new();
        while in_namespace(namespace.trim()) > 0 {
            patience.wait();
        }
        world.heartbeat().assert_dead();
    }
}

/// Until it is killed.
fn supervise(place: &Path) {
    let world = World::at(place);
    let named = fs::read_to_string(place.join("backend")).unwrap();
    let backend = BACKENDS.into_iter().find(|backend| backend.to_string() == named).unwrap();
    let spec = SandboxSpec { backend, net: NetMode::Filtered, ..world.spec() };
    let mut session = Sandbox::start(&spec, &NoRules).unwrap();
    let _doors = session.take_doors().unwrap();
    run(&mut session, &world.sh(&format!("readlink /proc/self/ns/net > namespace; {BEAT}"))).unwrap();
}

/// How many processes that we may look at are in a network namespace.
fn in_namespace(name: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let links = processes.filter_map(|process| fs::read_link(process.path().join("ns/net")).ok());
    links.filter(|link| link.as_os_str() == name).count()
}

#[test]
fn udp_elsewhere_is_refused_at_once() {
    for backend in BACKENDS {
        let (mut inside, doors) = Inside::filtered(backend);
        for (host, port) in [
            ("203.0.113.9", 443),
            ("203.0.113.9", 123),
            ("2001:db8::9", 443),
            ("2001:db8::9", 53),
            ("::ffff:203.0.113.9", 443),
            ("224.0.0.1", 5353),
        ] {
            assert_eq!(inside.client("udp", host, port), "send error 1", "{backend} {host} {port}");
        }
        assert!(nothing_arrived(&doors), "{backend}");
    }
}

/// Whatever server is asked, ours answers, and the answer comes from the one that was asked.
#[test]
fn every_question_for_a_name_arrives_at_the_dns_door() {
    for backend in BACKENDS {
        let (mut inside, doors) = Inside::filtered(backend);
        for server in ["127.0.0.1", "127.0.0.53", "203.0.113.53", "::ffff:203.0.113.53"] {
            let said = thread::scope(|scope| {
                scope.spawn(|| answer_datagram(&doors.dns));
                inside.client("udp", server, 53)
            });
            assert_eq!(said, "answer to question", "{backend} {server}");
            let said = thread::scope(|scope| {
                scope.spawn(|| accept(&doors.dns_stream).map(|mut stream| write!(stream, "a stream")));
                inside.client("tcp", server, 53)
            });
            assert_eq!(said, "a stream", "{backend} {server}");
        }
    }
}

fn answer_datagram(socket: &UdpSocket) {
    if arrives(socket.as_fd()) {
        let mut bytes = [0; 512];
        let (length, peer) = socket.recv_from(&mut bytes).unwrap();
        let question = bytes.get(..length).unwrap();
        socket.send_to(&[b"answer to ", question].concat(), peer).unwrap();
    }
}

/// The C library asks for both families only where the machine seems to have both.
#[test]
fn names_are_looked_up_in_both_families() {
    for backend in BACKENDS {
        let (mut inside, doors) = Inside::filtered(backend);
        let (found, asked) = thread::scope(|scope| {
            let asked = scope.spawn(|| [answer_name(&doors.dns), answer_name(&doors.dns)]);
            (inside.sh("getent ahosts host.test"), asked.join().unwrap())
        });
        assert!(found.contains("198.51.100.7") && found.contains("2001:db8::7"), "{backend}: {found}");
        let mut asked = asked.map(Option::unwrap);
        asked.sort_unstable();
        assert_eq!(asked, [A, AAAA], "{backend}");
    }
}

const A: u8 = 1;
const AAAA: u8 = 28;

/// Answers the next question with one address of the family that was asked for, and says which.
fn answer_name(socket: &UdpSocket) -> Option<u8> {
    if !arrives(socket.as_fd()) {
        return None;
    }
    let mut bytes = [0; 512];
    let (_, peer) = socket.recv_from(&mut bytes).unwrap();
    let (header, rest) = bytes.split_first_chunk::<12>().unwrap();
    let name = rest.split_inclusive(|byte| *byte == 0).next().unwrap();
    let question = rest.get(..name.len() + 4).unwrap();
    let kind = *question.get(name.len() + 1).unwrap();
    let address = match kind {
        A => Ipv4Addr::new(198, 51, 100, 7).octets().to_vec(),
        _ => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7).octets().to_vec(),
    };
    let header = [header[0], header[1], 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    let record = [0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, address.len() as u8];
    let answer = [&header[..], question, &record, &address].concat();
    socket.send_to(&answer, peer).unwrap();
    Some(kind)
}

#[test]
fn programs_inside_talk_to_each_other() {
    const SERVER: &str = r#"
use Socket qw(:all);
my $six = $ARGV[0] =~ /:/;
socket(my $s, $six ? AF_INET6 : AF_INET, SOCK_STREAM, 0) or die;
setsockopt($s, SOL_SOCKET, SO_REUSEADDR, 1) or die;
bind($s, $six ? pack_sockaddr_in6(8080, inet_pton(AF_INET6, $ARGV[0])) : pack_sockaddr_in(8080, inet_aton($ARGV[0]))) or die;
listen($s, 5) or die;
if (fork) { exit }
close STDOUT;
accept(my $c, $s) or die;
print $c "from inside";
"#;
    for backend in BACKENDS {
        let (mut inside, doors) = Inside::filtered(backend);
        fs::write(inside.world.path("workspace/server.pl"), SERVER).unwrap();
        for (bound, reached) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("0.0.0.0", "192.0.2.1"),
            ("0.0.0.0", "0.0.0.0"),
            ("::", "fd72:696e:6766::1"),
        ] {
            let said = inside.sh(&format!("perl server.pl {bound} && perl client.pl tcp {reached} 8080"));
            assert_eq!(said, "from inside", "{backend} {bound} {reached}");
        }
        assert!(nothing_arrived(&doors), "{backend}");
    }
}

#[test]
fn the_hosts_loopback_is_another_one() {
    let on_host = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = on_host.local_addr().unwrap().port();
    // Control: from here it can be reached.
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    accept(&on_host).unwrap();
    on_host.set_nonblocking(true).unwrap();
    for backend in BACKENDS {
        let (mut inside, doors) = Inside::filtered(backend);
        for host in ["127.0.0.1", "127.1.2.3", "0.0.0.0", "::ffff:127.0.0.1"] {
            assert_eq!(inside.client("tcp", host, port), REFUSED, "{backend} {host}");
        }
        assert!(on_host.accept().is_err(), "{backend}: somebody came through");
        assert!(nothing_arrived(&doors), "{backend}");
    }
}

/// The tables of the host do not list them; those inside do.
#[test]
fn the_doors_are_no_ports_of_the_host() {
    const TABLES: &str = "cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp";
    for backend in BACKENDS {
        let (mut inside, doors) = Inside::filtered(backend);
        let here: String = ["tcp", "tcp6", "udp", "udp6"]
            .map(|table| fs::read_to_string(format!("/proc/net/{table}")).unwrap())
            .concat();
        let there = inside.sh(TABLES);
        for door in all(&doors) {
            let inode = format!(" {} ", rustix::fs::fstat(door).unwrap().st_ino);
            assert!(!here.contains(&inode), "{backend}: a door is a port of the host");
            assert!(there.contains(&inode), "{backend}: a door is not inside");
        }
    }
}

fn all(doors: &ProxySockets) -> [BorrowedFd<'_>; 4] {
    let transparent = doors.transparent.as_ref().unwrap();
    [doors.proxy.as_fd(), doors.dns.as_fd(), doors.dns_stream.as_fd(), transparent.as_fd()]
}

/// Whatever was sent from inside has arrived by now: loopback does not wait.
fn nothing_arrived(doors: &ProxySockets) -> bool {
    let mut sockets = all(doors).map(|door| PollFd::from_borrowed_fd(door, PollFlags::IN));
    poll(&mut sockets, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 0
}

#[test]
fn closed_doors_refuse() {
    for backend in BACKENDS {
        let (mut inside, doors) = Inside::filtered(backend);
        let proxy = ["127.0.0.1", "::1"].map(|host| {
            thread::scope(|scope| {
                scope.spawn(|| accept(&doors.proxy).map(|mut stream| write!(stream, "open")));
                inside.client("tcp", host, PROXY_PORT)
            })
        });
        assert_eq!(proxy, ["open", "open"], "{backend}");
        drop(doors);
        for (host, port) in
            [("127.0.0.1", PROXY_PORT), ("203.0.113.9", 443), ("2001:db8::9", 443), ("127.0.0.1", 53)]
        {
            assert_eq!(inside.client("tcp", host, port), REFUSED, "{backend} {host} {port}");
        }
        // Asked by a connected socket, the refusal is an error of the answer.
        assert_eq!(inside.client("udp", "127.0.0.1", 53), "receive error 111", "{backend}");
    }
}

/// `perl ATTEMPT NAME` prints the error number of one attempt, 0 if it works.
const ATTEMPT: &str = r#"
use Socket;
my ($route, $netfilter) = (0, 12);
my %attempt = (
    packet => sub { open_socket(17, SOCK_RAW, 0x0300) },
    raw => sub { open_socket(AF_INET, SOCK_RAW, 1) },
    raw6 => sub { open_socket(10, SOCK_RAW, 58) },
    rules => sub { netlink($netfilter, delete_table()) },
    address => sub { netlink($route, new_address()) },
    route => sub { netlink($route, new_route()) },
    port => sub { my $s; socket($s, AF_INET, SOCK_STREAM, 0) and bind($s, pack_sockaddr_in(1022, INADDR_ANY)) },
    interface => sub { my $s; socket($s, AF_INET, SOCK_DGRAM, 0) and ioctl($s, 0x8914, my $down = pack("a16 s a22", "lo", 0, "")) },
);
$attempt{$ARGV[0]}->() or do { print $! + 0; exit };
print 0;
sub open_socket { socket(my $s, $_[0], $_[1], $_[2]) }
sub netlink {
    my ($protocol, $messages) = @_;
    socket(my $s, 16, SOCK_RAW, $protocol) or return 0;
    defined syswrite($s, $messages) or return 0;
    sysread($s, my $answer, 4096) or return 0;
    $! = -unpack("x16 l", $answer);
    return $! == 0;
}
sub request { my ($kind, $flags, $body) = @_; pack("L S S L L", 16 + length $body, $kind, 5 | $flags, 1, 0) . $body }
sub new_address { request(20, 0x400, pack("C C C C L", 2, 32, 0, 0, 1) . pack("S S C4", 8, 2, 198, 51, 100, 1)) }
sub new_route { request(24, 0x400, pack("C8 L", 2, 32, 0, 0, 254, 3, 0, 6, 0) . pack("S S C4", 8, 1, 198, 51, 100, 1)) }
sub delete_table {
    my $batch = pack("C C n", 0, 0, 10);
    request(16, 0, $batch) . request(10 << 8 | 2, 0, pack("C C n", 0, 0, 0)) . request(17, 0, $batch);
}
"#;

/// Each works for whoever has the rights over a network namespace, and for nobody inside.
#[test]
fn the_network_cannot_be_changed_from_inside() {
    let attempts = [
        ("packet", "97"),
        ("raw", "1"),
        ("raw6", "1"),
        ("rules", "93"),
        ("address", "1"),
        ("route", "1"),
        ("port", "13"),
        ("interface", "1"),
    ];
    for backend in BACKENDS {
        let (mut inside, mut doors) = Inside::filtered(backend);
        let script = inside.world.path("workspace/attempt.pl");
        fs::write(&script, ATTEMPT).unwrap();
        for (attempt, errno) in attempts {
            // Control: in a network namespace of its own, with rights over it.
            let free = std::process::Command::new("unshare")
                .args(["--user", "--map-root-user", "--net", "perl"])
                .arg(&script)
                .arg(attempt)
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&free.stdout), "0", "control of {attempt}: {free:?}");
            let said = inside.sh(&format!("perl attempt.pl {attempt}"));
            assert_eq!(said, errno, "{backend} {attempt}");
        }
        let said = thread::scope(|scope| {
            let transparent = doors.transparent.as_mut().unwrap();
            scope.spawn(|| answer_with_destination(transparent));
            inside.client("tcp", "203.0.113.9", 443)
        });
        assert_eq!(said, "meant for 203.0.113.9:443", "{backend}: still as it was");
    }
}

/// Protocols that redirection does not know are not there at all.
#[test]
fn only_tcp_and_udp_have_sockets() {
    const SOCKETS: &str =
        "perl -MSocket -e 'socket(my $s, $ARGV[0], $ARGV[1], $ARGV[2]) or print $! + 0; print \" \"'";
    let (stream, datagram) = (1, 2);
    let (mptcp, sctp, dccp, udplite, smc, icmp) = (262, 132, 33, 136, 256, 1);
    for backend in BACKENDS {
        let (mut inside, _doors) = Inside::filtered(backend);
        for (kind, protocol) in
            [(stream, mptcp), (stream, sctp), (6, dccp), (datagram, udplite), (stream, smc)]
        {
            for family in [2, 10] {
                let said = inside.sh(&format!("{SOCKETS} {family} {kind} {protocol}"));
                assert!(["93 ", "1 "].contains(&said.as_str()), "{backend} {family} {protocol}: {said}");
            }
        }
        // Ping without rights: the kernel asks which groups may, and in a new namespace none may.
        assert_eq!(inside.sh(&format!("{SOCKETS} 2 {datagram} {icmp}")), "13 ", "{backend}");
    }
}

/// Also where the files are the machine's own.
#[test]
fn the_whole_machine_can_have_a_filtered_network() {
    let world = World::new();
    fs::write(world.path("workspace/client.pl"), CLIENT).unwrap();
    let view = HostView::WholeMachine { hidden: Vec::new(), frozen: Vec::new() };
    let spec = SandboxSpec { view, net: NetMode::Filtered, ..world.spec() };
    let mut session = Sandbox::start(&spec, &NoRules).unwrap();
    let doors = session.take_doors().unwrap();
    let mut inside = Inside { world, session };
    let said = thread::scope(|scope| {
        scope.spawn(|| answer_with_destination(doors.transparent.as_ref().unwrap()));
        inside.client("tcp", "203.0.113.9", 443)
    });
    assert_eq!(said, "meant for 203.0.113.9:443");
}

/// Only a namespace of its own can have doors.
#[test]
fn other_backends_refuse_to_filter() {
    let world = World::new();
    for backend in [Backend::Landlock, Backend::External, Backend::None] {
        let spec = SandboxSpec { backend, net: NetMode::Filtered, ..world.spec() };
        match Sandbox::start(&spec, &NoRules) {
            Err(error @ SandboxStartError::Unsupported { what: UnsupportedFeature::FilteredNetwork, .. }) => {
                assert!(error.hint().unwrap().contains("--backend native"), "{backend}");
            }
            other => panic!("{backend}: {other:?}"),
        }
    }
    for net in [NetMode::None, NetMode::Full] {
        let mut session = Sandbox::start(&SandboxSpec { net, ..world.spec() }, &NoRules).unwrap();
        assert!(session.take_doors().is_none());
    }
}

/// A certificate store for one session: laid over the host's, which stays as it is.
#[test]
fn files_are_laid_over_those_of_the_host() {
    let host = Path::new("/usr/lib/os-release");
    let before = fs::read(host).unwrap();
    let neighbours = fs::read_dir("/usr/lib").unwrap().count();
    let laid = |path: &str, text: &str| SkeletonFile { path: path.into(), content: text.into() };
    for backend in BACKENDS {
        let world = World::new();
        let files = vec![laid("/usr/lib/os-release", "ours"), laid("/etc/ringfence/ca.pem", "new")];
        let mut session = Sandbox::start(&SandboxSpec { backend, files, ..world.spec() }, &NoRules).unwrap();
        let script = "cat /usr/lib/os-release; echo x > /usr/lib/os-release; cat /etc/ringfence/ca.pem; ls -A /usr/lib | wc -l";
        let (_, said) = run(&mut session, &world.sh(script)).unwrap();
        assert_eq!(said, format!("oursnew{neighbours}\n"), "{backend}");
        let files = vec![laid("/usr/lib/made-up.pem", "never")];
        let refused = Sandbox::start(&SandboxSpec { backend, files, ..world.spec() }, &NoRules);
        assert!(matches!(refused, Err(SandboxStartError::Compile(_))), "{backend}: {refused:?}");
    }
    assert_eq!(fs::read(host).unwrap(), before);
    assert_eq!(fs::read_dir("/usr/lib").unwrap().count(), neighbours);
}
