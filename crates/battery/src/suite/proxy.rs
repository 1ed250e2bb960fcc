//! Attempts to get forbidden connections from the proxy of a filtered network. With network `none` there is
//! no proxy to ask.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use ringfence_types::Control::Net;
use ringfence_types::PROXY_PORT;

use crate::arena::Arena;
use crate::attempt::{Attempt, AttemptBody, AttemptClass, BASE};
use crate::evidence::AttemptLog;
use crate::host::pid_namespace;
use crate::judge::{self, MARK};
use crate::world::HostListener;

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        id: "N6-proxy",
        title: "have the proxy connect to the host's loopback",
        from: "N6, N7, B-N3, B-S17",
        body: AttemptBody::Code(|arena, log| through(arena, log, &[connect, absolute])),
        ..DOORS
    },
    Attempt {
        id: "N4-socks",
        title: "have the proxy connect to the host's loopback by SOCKS",
        from: "N4, N6, B-S1",
        body: AttemptBody::Code(|arena, log| through(arena, log, &[socks_name, socks_address])),
        ..DOORS
    },
    Attempt {
        id: "N6-caught",
        title: "name the host's loopback on a connection that is led to the proxy",
        from: "N6, N9, B-S16",
        body: AttemptBody::Code(|arena, log| through(arena, log, &[caught, behind_the_rules])),
        ..DOORS
    },
];

const DOORS: Attempt = Attempt {
    class: AttemptClass::Network,
    controls: &[Net],
    judge: |world, _| judge::heard(world, &[HostListener::Tcp]),
    ..BASE
};

const SPELLINGS: [&str; 8] = [
    "127.0.0.1",
    "127.1",
    "0x7f.0.0.1",
    "2130706433",
    "localhost",
    "0.0.0.0",
    "[::ffff:127.0.0.1]",
    "127.0.0.1.",
];

type ConnectFn = fn(&str, u16) -> io::Result<()>;

/// Connects directly, which the control run shows, and inside by every available way.
fn through(arena: &Arena, log: &mut AttemptLog<'_>, ways: &[ConnectFn]) {
    log.step("direct", direct("127.0.0.1", arena.ports.tcp));
    // Outside a fence any proxy belongs to another program and must not be asked.
    if pid_namespace() == arena.host_pid_namespace {
        return;
    }
    for spelling in SPELLINGS {
        log.step(spelling, direct(spelling, arena.ports.tcp));
        for way in ways {
            log.step(spelling, way(spelling, arena.ports.tcp));
        }
    }
}

const PATIENCE: Duration = Duration::from_millis(300);

fn open(address: IpAddr, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::new(address, port), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn direct(host: &str, port: u16) -> io::Result<()> {
    let address = (host, port).to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    open(address.ip(), port)?.write_all(MARK.as_bytes())
}

fn proxy() -> io::Result<TcpStream> {
    open(Ipv4Addr::LOCALHOST.into(), PROXY_PORT)
}

/// Sends `words`, and the mark after any answer.
fn say(mut stream: TcpStream, words: &[u8]) -> io::Result<()> {
    stream.write_all(words)?;
    let answered = stream.read(&mut [0; 512])?;
    stream.write_all(MARK.as_bytes())?;
    if answered == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

fn connect(host: &str, port: u16) -> io::Result<()> {
    say(proxy()?, format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").as_bytes())
}

fn absolute(host: &str, port: u16) -> io::Result<()> {
    say(proxy()?, get(host, port).as_bytes())
}

fn get(host: &str, port: u16) -> String {
    format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")
}

const SOCKS_GREETING: [u8; 3] = [5, 1, 0];
const SOCKS_CONNECT: [u8; 3] = [5, 1, 0];

fn socks(request: &[&[u8]]) -> io::Result<()> {
    let mut stream = proxy()?;
    stream.write_all(&SOCKS_GREETING)?;
    stream.read_exact(&mut [0; 2])?;
    say(stream, &request.concat())
}

fn socks_name(host: &str, port: u16) -> io::Result<()> {
    const NAME: u8 = 3;
    let length = u8::try_from(host.len()).unwrap_or(u8::MAX);
    socks(&[&SOCKS_CONNECT, &[NAME, length], host.as_bytes(), &port.to_be_bytes()])
}

fn socks_address(_: &str, port: u16) -> io::Result<()> {
    const V4: u8 = 1;
    socks(&[&SOCKS_CONNECT, &[V4], &Ipv4Addr::LOCALHOST.octets(), &port.to_be_bytes()])
}

/// Connects to a documentation address, which is redirected to the transparent listener.
fn caught(host: &str, port: u16) -> io::Result<()> {
    say(open(Ipv4Addr::new(203, 0, 113, 9).into(), port)?, get(host, port).as_bytes())
}

/// Connects to the transparent listener itself, which is then the apparent destination.
fn behind_the_rules(host: &str, port: u16) -> io::Result<()> {
    const DOOR: u16 = 1023;
    say(open(Ipv4Addr::LOCALHOST.into(), DOOR)?, get(host, port).as_bytes())
}
