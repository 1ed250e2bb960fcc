//! A process that removes the placeholders of a supervisor that was killed.
//!
//! It runs outside every fence, started as `PROGRAM __sweep` with a socket as standard input and the registry as its
//! directory. The supervisor sends it descriptors of processes: its own, and PID 1 of every sandbox before anything runs in
//! it. When the supervisor's end of the socket closes, it waits until all of them are dead. By then the kernel has killed
//! everything inside, so that nothing can use a name that becomes free, and has released the supervisor's locks. Then it
//! removes what any next session would remove, by the same rules ([`crate::placeholders::sweep`]).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::PidfdFlags;

use crate::placeholders;

/// The argument that makes a program a sweeper.
pub const WORD: &str = "__sweep";

/// How long the end of a sandbox may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The supervisor's side. Dropping it ends the process: a supervisor that lives removes its placeholders itself.
#[derive(Debug)]
pub struct Sweeper {
    socket: OwnedFd,
    child: Child,
}

impl Sweeper {
    pub fn start(program: &Path, registry: &Path) -> io::Result<Self> {
        placeholders::make_registry(registry).map_err(io::Error::other)?;
        let (socket, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let child = Command::new(program)
            .arg(WORD)
            .env_clear()
            .current_dir(registry)
            // What a terminal sends to the supervisor is not for it.
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let sweeper = Self { socket, child };
        let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
        sweeper.send(own.as_fd())?;
        Ok(sweeper)
    }

    /// Has it wait for the end of this process as well. A sweeper that is gone removes nothing, so that is no error.
    pub(crate) fn wait_for(&self, process: BorrowedFd<'_>) {
        let _gone = self.send(process);
    }

    fn send(&self, process: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [process];
        if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(Errno::MSGSIZE);
        }
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(b"w")], &mut ancillary, SendFlags::NOSIGNAL)
            .map(drop)
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// The other side: returns when everything is removed, or when something cannot be known and nothing may be.
pub fn serve(socket: BorrowedFd<'_>, registry: &Path) -> io::Result<usize> {
    let mut processes: Vec<OwnedFd> = Vec::new();
    let mut told_any = false;
    while let Some(told) = next(socket, &mut processes)? {
        // A descriptor that did not arrive is a process that nothing is known of.
        processes.push(told.ok_or(Errno::MFILE)?);
        told_any = true;
    }
    if !told_any {
        return Ok(0);
    }
    let end = Instant::now() + PATIENCE;
    while !processes.is_empty() {
        if Instant::now() > end {
            return Err(Errno::TIMEDOUT.into());
        }
        drop_dead(&mut processes, None)?;
    }
    placeholders::sweep(registry).map_err(io::Error::other)
}

/// The next descriptor that the supervisor sends; `None` when it is gone. Forgets processes that have ended meanwhile.
fn next(socket: BorrowedFd<'_>, processes: &mut Vec<OwnedFd>) -> Result<Option<Option<OwnedFd>>, Errno> {
    while !drop_dead(processes, Some(socket))? {}
    let mut byte = [0_u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags);
    match received {
        Ok(received) if received.bytes > 0 => {}
        Ok(_) | Err(Errno::CONNRESET) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    Ok(Some(ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })))
}

/// Waits for something to happen, for a second where there is no socket, and forgets what has ended. Says whether the
/// socket has something.
fn drop_dead(processes: &mut Vec<OwnedFd>, socket: Option<BorrowedFd<'_>>) -> Result<bool, Errno> {
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let mut fds: Vec<PollFd<'_>> =
        processes.iter().map(|process| PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)).collect();
    fds.extend(socket.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)));
    match poll(&mut fds, if socket.is_some() { None } else { Some(&second) }) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno),
    }
    let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
    let mut dead = ready.iter();
    processes.retain(|_| !dead.next().copied().unwrap_or(false));
    Ok(socket.is_some() && ready.last().copied().unwrap_or(false))
}
