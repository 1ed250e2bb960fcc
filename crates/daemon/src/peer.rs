//! What the kernel says of whoever connects.

use std::os::fd::AsFd;

use ringfence_runtime::peer_pidfd;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;

/// Somebody at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    /// For saying at which terminal somebody sits, and for nothing that matters: another process may have it by now.
    pub(crate) pid: i32,
    is_owner: bool,
}

impl Peer {
    /// Decided once, when they connect: later the number of their process may be that of another.
    pub(crate) fn of(socket: &impl AsFd) -> std::io::Result<Self> {
        let credentials = socket_peercred(socket)?;
        let uid = credentials.uid.as_raw();
        let own = uid == rustix::process::geteuid().as_raw();
        let pid = credentials.pid.as_raw_nonzero().get();
        Ok(Self { uid, pid, is_owner: own && !is_fenced(socket, pid) })
    }

    /// The user that this process runs as. What is in a fence has the same number and is not the owner.
    pub(crate) fn is_owner(&self) -> bool {
        self.is_owner
    }
}

/// Whether a process cannot gain privileges and has a filter on its system calls: what the launcher gives to everything
/// inside, also where it cannot hide the socket from it. An owner who is confined like that by somebody else needs a token.
/// What cannot be looked at is fenced.
fn is_fenced(socket: &impl AsFd, pid: i32) -> bool {
    let looks_fenced = looks_fenced(pid);
    match peer_pidfd(socket.as_fd()) {
        // While it lives nobody else has its number, so that what was looked at was it.
        Ok(process) => {
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            looks_fenced || rustix::event::poll(&mut ended, Some(&Timespec::default())) != Ok(0)
        }
        // KERNEL: before 6.5 there is only the number.
        Err(Errno::NOPROTOOPT) => looks_fenced,
        Err(_gone) => true,
    }
}

fn looks_fenced(pid: i32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return true };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let (Some(privileges), Some(filter)) = (field("NoNewPrivs:"), field("Seccomp:")) else { return true };
    privileges == "1" && filter == "2"
}
