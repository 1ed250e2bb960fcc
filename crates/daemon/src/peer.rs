//! What the kernel says of whoever connects.

use std::os::fd::AsFd;

use rustix::net::sockopt::socket_peercred;

/// Somebody at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    pub(crate) pid: i32,
}

impl Peer {
    pub(crate) fn of(socket: &impl AsFd) -> std::io::Result<Self> {
        let credentials = socket_peercred(socket)?;
        Ok(Self { uid: credentials.uid.as_raw(), pid: credentials.pid.as_raw_nonzero().get() })
    }

    /// The user that this process runs as. What is in a fence has the same number and is not the owner.
    pub(crate) fn is_owner(&self) -> bool {
        self.uid == rustix::process::geteuid().as_raw() && !is_fenced(self.pid)
    }
}

/// Whether a process cannot gain privileges and has a filter on its system calls: what the launcher gives to everything
/// inside, also where it cannot hide the socket from it. An owner who is confined like that by somebody else needs a token.
/// What cannot be looked at is fenced.
fn is_fenced(pid: i32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return true };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let (Some(privileges), Some(filter)) = (field("NoNewPrivs:"), field("Seccomp:")) else { return true };
    privileges == "1" && filter == "2"
}
