//! The parent's end of the control socket.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_launch::wire::{ControlMessage, MESSAGE_SIZE};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Talks to one launcher. Dropping it ends the sandbox.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    socket: OwnedFd,
}

/// Something arrived, or nothing ever will.
#[derive(Debug)]
pub(crate) enum ControlEvent {
    Message(ControlMessage, Option<OwnedFd>),
    End,
}

impl ControlSocket {
    /// The two ends: ours, and the one for the launcher's standard input.
    pub(crate) fn pair() -> Result<(Self, OwnedFd), Errno> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self { socket: ours }, theirs))
    }

    /// For a launcher that has connected by itself.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    pub(crate) fn send(&self, message: ControlMessage, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let bytes = message.encode();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::MSGSIZE);
        }
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)
            .map(drop)
    }

    /// Both directions, for every copy of this end.
    pub(crate) fn close(&self) {
        // A socket whose other end is gone is closed already.
        let _gone = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// `None`: no unread message has arrived.
    pub(crate) fn try_receive(&self) -> Result<Option<ControlEvent>, Errno> {
        match self.read(RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => Ok(None),
            received => received.map(Some),
        }
    }

    pub(crate) fn receive(&self) -> Result<ControlEvent, Errno> {
        self.read(RecvFlags::empty())
    }

    fn read(&self, flags: RecvFlags) -> Result<ControlEvent, Errno> {
        let mut bytes = [0_u8; MESSAGE_SIZE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let answer = rustix::net::recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC | flags,
        );
        let length = match answer {
            Ok(received) => received.bytes,
            Err(Errno::CONNRESET) => 0,
            Err(errno) => return Err(errno),
        };
        let fd = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        Ok(match bytes.get(..length).and_then(ControlMessage::decode) {
            Some(message) => ControlEvent::Message(message, fd),
            None => ControlEvent::End,
        })
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Bytes that neither side can change any more.
pub(crate) fn sealed(name: &str, bytes: &[u8]) -> Result<OwnedFd, Errno> {
    sealed_with(MemfdFlags::empty(), name, bytes)
}

pub(crate) fn sealed_with(flags: MemfdFlags, name: &str, bytes: &[u8]) -> Result<OwnedFd, Errno> {
    let fd = rustix::fs::memfd_create(name, flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::write(&fd, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    rustix::fs::fcntl_add_seals(
        &fd,
        SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
    )?;
    Ok(fd)
}
