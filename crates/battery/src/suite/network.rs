//! Attempts to reach the host's network. Every packet goes to loopback.

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use ringfence_types::Control::{Net, Syscalls};
use rustix::net::{AddressFamily, Protocol, SendFlags, SocketType, ipproto};

use crate::arena::Arena;
use crate::attempt::{Attempt, AttemptBody, AttemptClass, BASE, ControlRequirement};
use crate::evidence::AttemptLog;
use crate::host::{HostFeatures, interfaces};
use crate::judge::{self, MARK, ObservedEffect};
use crate::sys;
use crate::world::{AttackWorld, HostListener};

const NET: Attempt = Attempt { class: AttemptClass::Network, controls: &[Net], ..BASE };

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        id: "N1-tcp",
        title: "connect to a TCP service of the host on 127.0.0.1",
        from: "N1, N3",
        body: AttemptBody::Code(|arena, log| {
            log.step("tcp", tcp(Ipv4Addr::LOCALHOST.into(), arena.ports.tcp));
        }),
        judge: |world, _| judge::heard(world, &[HostListener::Tcp]),
        ..NET
    },
    Attempt {
        id: "N1-tcp6",
        title: "connect to a TCP service of the host on ::1",
        from: "N1, N6",
        unfit: no_ipv6,
        body: AttemptBody::Code(|arena, log| {
            log.step("tcp", tcp(Ipv6Addr::LOCALHOST.into(), arena.ports.tcp6.unwrap_or(0)));
        }),
        judge: |world, _| judge::heard(world, &[HostListener::Tcp6]),
        ..NET
    },
    Attempt {
        id: "N1-bash",
        title: "connect with bash's /dev/tcp",
        from: "N1, 5.3 codex",
        unfit: |host| host.lacks(&["sh", "bash"]),
        body: AttemptBody::Shell("bash -c \"echo evil > /dev/tcp/127.0.0.1/$4\""),
        judge: |world, _| judge::heard(world, &[HostListener::Tcp]),
        ..NET
    },
    Attempt {
        id: "N6-spellings",
        title: "connect to the host under other spellings of loopback",
        from: "N6, B-S17",
        body: AttemptBody::Code(spellings),
        judge: |world, _| judge::heard(world, &[HostListener::Tcp]),
        ..NET
    },
    Attempt {
        id: "N3-udp",
        title: "send a UDP datagram to a service of the host",
        from: "N3, B-N5",
        body: AttemptBody::Code(|arena, log| {
            log.step("udp", udp(Ipv4Addr::LOCALHOST.into(), arena.ports.udp));
        }),
        judge: |world, _| judge::heard(world, &[HostListener::Udp]),
        ..NET
    },
    Attempt {
        id: "N3-udp6",
        title: "send a UDP datagram to ::1",
        from: "N3, B-N5",
        unfit: no_ipv6,
        body: AttemptBody::Code(|arena, log| {
            log.step("udp", udp(Ipv6Addr::LOCALHOST.into(), arena.ports.udp6.unwrap_or(0)));
        }),
        judge: |world, _| judge::heard(world, &[HostListener::Udp6]),
        ..NET
    },
    Attempt {
        id: "N3-fast-open",
        title: "send data with the first packet, without connect",
        from: "N3, B-N6",
        body: AttemptBody::Code(|arena, log| {
            log.step("send", fast_open(arena.ports.tcp));
        }),
        judge: |world, _| judge::heard(world, &[HostListener::Tcp]),
        excuse: judge::not_in_kernel,
        ..NET
    },
    Attempt {
        id: "N3-multipath",
        title: "connect with multipath TCP, which port rules do not see",
        from: "N3, 5.3 landlock",
        body: AttemptBody::Code(|arena, log| {
            log.step("connect", multipath(arena.ports.tcp));
        }),
        judge: |world, _| judge::heard(world, &[HostListener::Tcp]),
        excuse: judge::not_in_kernel,
        ..NET
    },
    Attempt {
        id: "N3-raw",
        title: "open raw IP sockets",
        from: "N3, N18",
        controls: &[Net, Syscalls],
        unfit: judge::needs_root,
        body: AttemptBody::Code(|_, log| {
            for (name, protocol) in [("icmp", ipproto::ICMP), ("raw", ipproto::RAW), ("udp", ipproto::UDP)] {
                let socket = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(protocol));
                log.step(name, socket);
            }
        }),
        ..NET
    },
    Attempt {
        id: "N3-ping",
        title: "send an echo request",
        from: "N3, B-N5",
        body: AttemptBody::Code(|_, log| {
            log.step("ping", ping());
        }),
        excuse: judge::not_for_users,
        judge: |_, evidence| {
            vec![ObservedEffect {
                what: "an echo request got its answer".to_owned(),
                happened: evidence.shows("did ping"),
            }]
        },
        ..NET
    },
    Attempt {
        id: "N3-inbound",
        title: "open a port that the host can connect to",
        from: "N3",
        body: AttemptBody::Code(serve),
        meanwhile: Some(visit),
        judge: |_, evidence| {
            vec![ObservedEffect {
                what: "the host was a visitor".to_owned(),
                happened: evidence.shows("did accept"),
            }]
        },
        ..NET
    },
    Attempt {
        id: "N18-families",
        title: "make sockets of other address families",
        from: "N18, 2.6",
        controls: &[Syscalls],
        unfit: no_families,
        proof: ControlRequirement::Some,
        body: AttemptBody::Code(|arena, log| families(arena, log, 0)),
        judge: judge::reached,
        excuse: judge::not_for_users,
        ..NET
    },
    Attempt {
        id: "N18-high-bits",
        title: "make such sockets with the upper half of the register set",
        from: "N18, S4, B-S11",
        controls: &[Syscalls],
        unfit: no_families,
        proof: ControlRequirement::Some,
        body: AttemptBody::Code(|arena, log| families(arena, log, 1 << 32)),
        judge: judge::reached,
        excuse: judge::not_for_users,
        ..NET
    },
    Attempt {
        id: "N18-netlink",
        title: "talk to the kernel's audit, device event and packet filter channels",
        from: "N18, 2.6",
        controls: &[Syscalls],
        proof: ControlRequirement::Some,
        body: AttemptBody::Code(|_, log| {
            for (name, protocol) in
                [("uevent", 15), ("audit", 9), ("netfilter", 12), ("diag", 4), ("generic", 16)]
            {
                log.step(name, sys::socket(16, 3, protocol));
            }
        }),
        judge: judge::reached,
        excuse: judge::not_in_kernel,
        ..NET
    },
    Attempt {
        id: "N18-topology",
        title: "see the host's network interfaces and listening ports",
        from: "N18, 2.6",
        body: AttemptBody::Code(topology),
        unfit: |host| (!host.real_interface).then(|| "this machine has no interface but loopback".to_owned()),
        judge: |world, evidence| {
            let port = format!(":{:04X} ", world.arena.ports.tcp);
            vec![
                ObservedEffect {
                    what: "interfaces of the host are visible".to_owned(),
                    happened: evidence.shows("did interface"),
                },
                ObservedEffect {
                    what: "ports of the host are visible".to_owned(),
                    happened: evidence.shows(&port),
                },
            ]
        },
        ..NET
    },
];

const PATIENCE: Duration = Duration::from_millis(300);

fn no_ipv6(_: &HostFeatures) -> Option<String> {
    UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err().then(|| "this machine has no IPv6 loopback".to_owned())
}

fn no_families(host: &HostFeatures) -> Option<String> {
    host.families.is_empty().then(|| "this kernel has no other address family loaded".to_owned())
}

fn tcp(address: IpAddr, port: u16) -> io::Result<()> {
    TcpStream::connect_timeout(&SocketAddr::new(address, port), PATIENCE)?.write_all(MARK.as_bytes())
}

fn udp(address: IpAddr, port: u16) -> io::Result<()> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind((any, 0))?.send_to(MARK.as_bytes(), (address, port)).map(drop)
}

// KERNEL: connecting to the unspecified address means the loopback of the network namespace.
fn spellings(arena: &Arena, log: &mut AttemptLog<'_>) {
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    let spellings: [IpAddr; 3] = [Ipv4Addr::UNSPECIFIED.into(), mapped.into(), Ipv6Addr::UNSPECIFIED.into()];
    for address in spellings {
        log.step(&address.to_string(), tcp(address, arena.ports.tcp));
    }
}

fn host_address(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
}

fn fast_open(port: u16) -> rustix::io::Result<usize> {
    const MSG_FASTOPEN: u32 = 0x2000_0000;
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    let flags = SendFlags::from_bits_retain(MSG_FASTOPEN);
    rustix::net::sendto(socket, MARK.as_bytes(), flags, &host_address(port))
}

fn multipath(port: u16) -> rustix::io::Result<()> {
    let protocol = std::num::NonZeroU32::new(262).map(Protocol::from_raw);
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, protocol)?;
    rustix::net::connect(socket, &host_address(port))
}

/// Pings loopback. A fence with its own loopback would answer itself, so opening a raw or ping socket already
/// counts.
fn ping() -> io::Result<()> {
    const ECHO: [u8; 8] = [8, 0, 0xf7, 0xfd, 0, 1, 0, 1];
    let kinds = [SocketType::DGRAM, SocketType::RAW];
    let open = |kind| rustix::net::socket(AddressFamily::INET, kind, Some(ipproto::ICMP));
    let mut last = rustix::io::Errno::ACCESS;
    for kind in kinds {
        match open(kind) {
            Ok(socket) => {
                rustix::net::sendto(socket, &ECHO, SendFlags::empty(), &host_address(0))?;
                return Ok(());
            }
            Err(errno) => last = errno,
        }
    }
    Err(last.into())
}

fn serve(arena: &Arena, log: &mut AttemptLog<'_>) {
    let Some(listener) = log.step("listen", TcpListener::bind((Ipv4Addr::UNSPECIFIED, arena.ports.unused)))
    else {
        return;
    };
    log.step("announce", fs::write(arena.inside("listening"), ""));
    log.step("accept", listener.set_nonblocking(true).and_then(|()| accept_within(&listener, PATIENCE)));
}

fn accept_within(listener: &TcpListener, patience: Duration) -> io::Result<()> {
    let end = Instant::now() + patience;
    loop {
        match listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other.map(drop),
        }
    }
}

/// The host's part: connects as soon as the attempt announces that it listens.
fn visit(world: &AttackWorld) {
    let announced = world.workspace().join("listening");
    while !world.is_over() {
        if announced.exists() && TcpStream::connect(host_address(world.arena.ports.unused)).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn families(arena: &Arena, log: &mut AttemptLog<'_>, bits: u64) {
    const KINDS: [u64; 4] = [1, 2, 3, 5];
    for (name, family) in &arena.families {
        for kind in KINDS {
            log.step(&format!("{name} of type {kind}"), sys::socket(bits | family, kind, 0));
        }
    }
}

fn topology(_: &Arena, log: &mut AttemptLog<'_>) {
    for name in interfaces().iter().filter(|name| *name != "lo") {
        log.step("interface", Ok::<(), io::Error>(()));
        log.loot(name.as_bytes());
    }
    log.read("ports", fs::read("/proc/net/tcp"));
}
