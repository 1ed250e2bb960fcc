use std::io::{self, Read};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;

use crate::arena::Ports;

/// Sockets of the host. They are read only after the run, when every message is still in their queues.
#[derive(Debug)]
pub(crate) struct Listeners {
    tcp: TcpListener,
    tcp6: Option<TcpListener>,
    udp: UdpSocket,
    udp6: Option<UdpSocket>,
    outside: ListenerPair,
    workspace: ListenerPair,
    abstracts: ListenerPair,
    unused: u16,
}

#[derive(Debug)]
struct ListenerPair {
    stream: UnixListener,
    datagram: UnixDatagram,
}

/// One socket of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostListener {
    Tcp,
    Tcp6,
    Udp,
    Udp6,
    Stream(SocketLocation),
    Datagram(SocketLocation),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketLocation {
    Outside,
    Workspace,
    Abstract,
}

impl Listeners {
    pub(super) fn open(workspace: &Path, outside: &Path, nonce: &str) -> io::Result<Self> {
        let unused = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let listeners = Self {
            tcp: TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
            tcp6: TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok(),
            udp: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?,
            udp6: UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).ok(),
            outside: ListenerPair::at(outside)?,
            workspace: ListenerPair::at(workspace)?,
            abstracts: ListenerPair::named(nonce)?,
            unused,
        };
        listeners.tcp.set_nonblocking(true)?;
        listeners.udp.set_nonblocking(true)?;
        listeners.tcp6.as_ref().map_or(Ok(()), |socket| socket.set_nonblocking(true))?;
        listeners.udp6.as_ref().map_or(Ok(()), |socket| socket.set_nonblocking(true))?;
        Ok(listeners)
    }

    pub(super) fn ports(&self) -> io::Result<Ports> {
        Ok(Ports {
            tcp: self.tcp.local_addr()?.port(),
            tcp6: self.tcp6.as_ref().map(|socket| socket.local_addr().map(|a| a.port())).transpose()?,
            udp: self.udp.local_addr()?.port(),
            udp6: self.udp6.as_ref().map(|socket| socket.local_addr().map(|a| a.port())).transpose()?,
            unused: self.unused,
        })
    }

    /// The messages that reached this socket, in order; a connection without bytes is an empty message.
    pub(crate) fn heard(&self, ear: HostListener) -> Vec<Vec<u8>> {
        match ear {
            HostListener::Tcp => accepted(|| self.tcp.accept().map(|(stream, _)| stream)),
            HostListener::Tcp6 => {
                accepted(|| self.tcp6.as_ref().ok_or(io::ErrorKind::Unsupported)?.accept().map(|(s, _)| s))
            }
            HostListener::Udp => received(|buffer| self.udp.recv(buffer)),
            HostListener::Udp6 => {
                received(|buffer| self.udp6.as_ref().ok_or(io::ErrorKind::Unsupported)?.recv(buffer))
            }
            HostListener::Stream(place) => accepted(|| self.accept(place)),
            HostListener::Datagram(place) => received(|buffer| self.pair(place).datagram.recv(buffer)),
        }
    }

    pub(crate) fn accept(&self, place: SocketLocation) -> io::Result<UnixStream> {
        self.pair(place).stream.accept().map(|(stream, _)| stream)
    }

    fn pair(&self, place: SocketLocation) -> &ListenerPair {
        match place {
            SocketLocation::Outside => &self.outside,
            SocketLocation::Workspace => &self.workspace,
            SocketLocation::Abstract => &self.abstracts,
        }
    }
}

impl ListenerPair {
    fn at(directory: &Path) -> io::Result<Self> {
        Self::ready(
            UnixListener::bind(directory.join("stream.sock"))?,
            UnixDatagram::bind(directory.join("datagram.sock"))?,
        )
    }

    fn named(nonce: &str) -> io::Result<Self> {
        let name = |what: &str| SocketAddr::from_abstract_name(format!("ringfence-{what}-{nonce}"));
        Self::ready(UnixListener::bind_addr(&name("stream")?)?, UnixDatagram::bind_addr(&name("datagram")?)?)
    }

    fn ready(stream: UnixListener, datagram: UnixDatagram) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        datagram.set_nonblocking(true)?;
        Ok(Self { stream, datagram })
    }
}

fn accepted<S: Read>(mut next: impl FnMut() -> io::Result<S>) -> Vec<Vec<u8>> {
    let read = |stream: &mut S| {
        let mut bytes = vec![0; 256];
        let len = stream.read(&mut bytes).unwrap_or(0);
        bytes.truncate(len);
        bytes
    };
    std::iter::from_fn(|| next().ok()).map(|mut stream| read(&mut stream)).collect()
}

fn received(mut next: impl FnMut(&mut [u8]) -> io::Result<usize>) -> Vec<Vec<u8>> {
    let mut one = || {
        let mut bytes = vec![0; 2048];
        let len = next(&mut bytes).ok()?;
        bytes.truncate(len);
        Some(bytes)
    };
    std::iter::from_fn(&mut one).collect()
}
