//! The filtered network, seen from inside and from the doors.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use ringfence_sandbox::Doors;
use ringfence_types::{Control, Level};
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

struct Inside {
    world: World,
    session: Session,
}

impl Inside {
    fn filtered(backend: Backend) -> (Self, Doors) {
        let world = World::new();
        let spec = Spec { backend, net: NetMode::Filtered, ..world.spec() };
        let mut session = Session::start(&spec, &NoRules).unwrap();
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
        assert!(matches!(net, Level::Enforced { by } if by.contains("nf_tables")), "{net:?}");
    }
}
