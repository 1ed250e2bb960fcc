//! Peer credentials of Unix sockets, from the kernel.

use std::os::fd::AsFd;

use ringfence_runtime::peer_pidfd;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;

/// The process at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnixPeer {
    pub(crate) uid: u32,
    /// Only for showing the terminal of the peer, never for a decision: the PID may have been reused.
    pub(crate) pid: i32,
    is_owner: bool,
}

impl UnixPeer {
    /// Decides on ownership once, at connect time, because the PID may be reused later.
    pub(crate) fn of(socket: &impl AsFd) -> std::io::Result<Self> {
        let credentials = socket_peercred(socket)?;
        let uid = credentials.uid.as_raw();
        let own = uid == rustix::process::geteuid().as_raw();
        let pid = credentials.pid.as_raw_nonzero().get();
        Ok(Self { uid, pid, is_owner: own && !is_fenced(socket, pid) })
    }

    /// The user this process runs as. A fenced process has the same uid and is not the owner.
    pub(crate) fn is_owner(&self) -> bool {
        self.is_owner
    }
}

/// Whether the peer has `no_new_privs` and a seccomp filter. The launcher sets both for every process inside, also
/// where it cannot hide the socket. An owner confined by another tool needs a token. A process that cannot be examined
/// counts as fenced.
fn is_fenced(socket: &impl AsFd, pid: i32) -> bool {
    let looks_fenced = looks_fenced(pid);
    match peer_pidfd(socket.as_fd()) {
        // The PID cannot be reused while the process lives, so `/proc` described this process.
        Ok(process) => {
            let mut ended = [PollFd::new(&process, PollFlags::IN)];
            looks_fenced || rustix::event::poll(&mut ended, Some(&Timespec::default())) != Ok(0)
        }
        // KERNEL: before 6.5 there is no peer pidfd, only the PID.
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
