//! What the kernel says about the process that connected, whatever the engine was asked for.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;

use super::unavailable;
use crate::sandbox::SandboxStartError;

/// The number of PID 1 of the container, once it is sure that it is the caller and shares nothing with the host.
pub(super) fn peer(socket: &OwnedFd) -> Result<u32, SandboxStartError> {
    let peer = rustix::net::sockopt::socket_peercred(socket)
        .map_err(|errno| SandboxStartError::Spawn(errno.into()))?;
    let caller = (rustix::process::geteuid(), rustix::process::getegid());
    if (peer.uid, peer.gid) != caller {
        return Err(unavailable(&format!(
            "the engine runs it as user {}, so that files would not be yours",
            peer.uid.as_raw()
        )));
    }
    let init = peer.pid.as_raw_nonzero().get().cast_unsigned();
    for namespace in ["pid", "net", "ipc", "mnt", "uts"] {
        let inode =
            |process: &str| std::fs::metadata(format!("/proc/{process}/ns/{namespace}")).map(|ns| ns.ino());
        let (inside, here) = (inode(&init.to_string()), inode("self"));
        let (inside, here) =
            (inside.map_err(SandboxStartError::Spawn)?, here.map_err(SandboxStartError::Spawn)?);
        if inside == here {
            return Err(unavailable(&format!("the engine gave it the host's {namespace} namespace")));
        }
    }
    Ok(init)
}

/// The engine's own word about the same process. A process that slipped in before PID 1 would have another number.
pub(super) fn started(told: Option<u32>, init: u32) -> Result<(), SandboxStartError> {
    if told == Some(init) {
        return Ok(());
    }
    let told = told.map_or_else(|| "gone".to_owned(), |pid| format!("process {pid}"));
    Err(unavailable(&format!("process {init} connected, but PID 1 of the container is {told}")))
}
