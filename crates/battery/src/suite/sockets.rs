//! Attempts on Unix sockets of the host: by path and abstract name, stream and datagram, by every call that
//! can send.

use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_types::Control::{FsWrite, Ipc};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix,
};

use crate::arena::Arena;
use crate::attempt::{Attempt, AttemptBody, AttemptClass, BASE};
use crate::evidence::AttemptLog;
use crate::judge::{self, MARK};
use crate::sys;
use crate::world::{AttackWorld, HostListener, SocketLocation};

const UNIX: Attempt = Attempt { class: AttemptClass::Network, controls: &[Ipc], ..BASE };

pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        id: "N16-path-stream",
        title: "connect to a host's stream socket outside the workspace",
        from: "N16, B-N1, B-N2",
        body: AttemptBody::Code(|arena, log| {
            log.step("connect", stream(&arena.beyond("stream.sock")));
        }),
        judge: |world, _| judge::heard(world, &[HostListener::Stream(SocketLocation::Outside)]),
        ..UNIX
    },
    Attempt {
        id: "N17-path-datagram",
        title: "send to a host's datagram socket outside the workspace by sendto, sendmsg and sendmmsg",
        from: "N17, B-C37, B-N6",
        body: AttemptBody::Code(|arena, log| datagrams(log, &arena.beyond("datagram.sock"))),
        judge: |world, _| judge::heard(world, &[HostListener::Datagram(SocketLocation::Outside)]),
        ..UNIX
    },
    Attempt {
        id: "N16-workspace-stream",
        title: "connect to a host's stream socket that lies in the workspace",
        from: "N16, B-N2",
        body: AttemptBody::Code(|arena, log| {
            log.step("connect", stream(&arena.inside("stream.sock")));
        }),
        judge: |world, _| judge::heard(world, &[HostListener::Stream(SocketLocation::Workspace)]),
        ..UNIX
    },
    Attempt {
        id: "N17-workspace-datagram",
        title: "send to a host's datagram socket that lies in the workspace",
        from: "N17, B-C37, B-N6",
        body: AttemptBody::Code(|arena, log| datagrams(log, &arena.inside("datagram.sock"))),
        judge: |world, _| judge::heard(world, &[HostListener::Datagram(SocketLocation::Workspace)]),
        ..UNIX
    },
    Attempt {
        id: "N16-aliases",
        title: "connect to a host's socket in the workspace through a symlink, a hard link, a rename and /proc",
        from: "N16, 5.3 sandlock",
        body: AttemptBody::Code(aliases),
        judge: |world, _| judge::heard(world, &[HostListener::Stream(SocketLocation::Workspace)]),
        ..UNIX
    },
    Attempt {
        id: "N16-abstract-stream",
        title: "connect to a host's abstract stream socket",
        from: "N16",
        body: AttemptBody::Code(|arena, log| {
            log.step("connect", abstract_stream(arena));
        }),
        judge: |world, _| judge::heard(world, &[HostListener::Stream(SocketLocation::Abstract)]),
        ..UNIX
    },
    Attempt {
        id: "N17-abstract-datagram",
        title: "send to a host's abstract datagram socket by sendto, sendmsg, sendmmsg and connect",
        from: "N17, B-N6",
        body: AttemptBody::Code(abstract_datagrams),
        judge: |world, _| judge::heard(world, &[HostListener::Datagram(SocketLocation::Abstract)]),
        ..UNIX
    },
    Attempt {
        id: "N20-descriptor-in",
        title: "take a directory descriptor from a helper on the host and write through it",
        from: "N20",
        controls: &[Ipc, FsWrite],
        body: AttemptBody::Code(|arena, log| {
            log.step("receive", receive_and_write(arena));
        }),
        meanwhile: Some(hand_out_outside),
        judge: judge::outside_changed,
        ..UNIX
    },
    Attempt {
        id: "N20-descriptor-out",
        title: "hand a descriptor to a process on the host",
        from: "N20",
        body: AttemptBody::Code(|arena, log| {
            log.step("send", send_root(arena));
        }),
        judge: |world, _| judge::heard(world, &[HostListener::Stream(SocketLocation::Workspace)]),
        ..UNIX
    },
];

fn stream(path: &Path) -> io::Result<()> {
    UnixStream::connect(path)?.write_all(MARK.as_bytes())
}

fn datagrams(log: &mut AttemptLog<'_>, path: &Path) {
    let Some(socket) = log.step("socket", UnixDatagram::unbound()) else { return };
    log.step("sendto", socket.send_to(MARK.as_bytes(), path));
    log.step("sendmsg", sendmsg(&socket, SocketAddrUnix::new(path)));
    log.step("sendmmsg", sys::sendmmsg_unix(socket.as_fd(), path.as_os_str().as_bytes(), MARK.as_bytes()));
    log.step("connect", socket.connect(path).and_then(|()| socket.send(MARK.as_bytes())));
}

fn sendmsg(socket: &UnixDatagram, to: rustix::io::Result<SocketAddrUnix>) -> rustix::io::Result<usize> {
    let mut nothing = SendAncillaryBuffer::default();
    let part = [IoSlice::new(MARK.as_bytes())];
    rustix::net::sendmsg_addr(socket, &to?, &part, &mut nothing, SendFlags::empty())
}

fn aliases(arena: &Arena, log: &mut AttemptLog<'_>) {
    let socket = arena.inside("stream.sock");
    log.step("symlink", symlink(&socket, arena.inside("s")).and_then(|()| stream(&arena.inside("s"))));
    log.step(
        "hard link",
        fs::hard_link(&socket, arena.inside("h")).and_then(|()| stream(&arena.inside("h"))),
    );
    log.step("proc cwd", stream(Path::new("/proc/self/cwd/stream.sock")));
    log.step("path descriptor", by_descriptor(&socket));
    log.step("rename", fs::rename(&socket, arena.inside("r")).and_then(|()| stream(&arena.inside("r"))));
}

fn by_descriptor(path: &Path) -> io::Result<()> {
    let handle = rustix::fs::open(path, OFlags::PATH, Mode::empty())?;
    stream(&PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd())))
}

fn abstract_stream(arena: &Arena) -> io::Result<()> {
    let address = SocketAddr::from_abstract_name(arena.abstract_name("stream"))?;
    UnixStream::connect_addr(&address)?.write_all(MARK.as_bytes())
}

fn abstract_datagrams(arena: &Arena, log: &mut AttemptLog<'_>) {
    let name = arena.abstract_name("datagram");
    let Some(address) = log.step("address", SocketAddr::from_abstract_name(&name)) else { return };
    let Some(socket) = log.step("socket", UnixDatagram::unbound()) else { return };
    log.step("sendto", socket.send_to_addr(MARK.as_bytes(), &address));
    log.step("sendmsg", sendmsg(&socket, SocketAddrUnix::new_abstract_name(name.as_bytes())));
    let raw = [b"\0", name.as_bytes()].concat();
    log.step("sendmmsg", sys::sendmmsg_unix(socket.as_fd(), &raw, MARK.as_bytes()));
    log.step("connect", socket.connect_addr(&address).and_then(|()| socket.send(MARK.as_bytes())));
}

fn receive_and_write(arena: &Arena) -> io::Result<()> {
    let stream = UnixStream::connect(arena.inside("stream.sock"))?;
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    let directory = received(&stream)?;
    let flags = OFlags::CREATE | OFlags::WRONLY;
    rustix::fs::openat(directory, "received", flags, Mode::RWXU)?;
    Ok(())
}

fn received(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 8];
    rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty())?;
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fds.next().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The host's part: sends the directory outside to every client that connects.
fn hand_out_outside(world: &AttackWorld) {
    while !world.is_over() {
        if let Ok(stream) = world.listeners.accept(SocketLocation::Workspace) {
            let _ = File::open(world.arena.outside.as_path()).and_then(|directory| send(&stream, &directory));
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn send_root(arena: &Arena) -> io::Result<()> {
    let stream = UnixStream::connect(arena.inside("stream.sock"))?;
    send(&stream, &File::open(arena.workspace.as_path())?)
}

fn send(stream: &UnixStream, file: &File) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [file.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(stream, &[IoSlice::new(MARK.as_bytes())], &mut control, SendFlags::empty())?;
    Ok(())
}
