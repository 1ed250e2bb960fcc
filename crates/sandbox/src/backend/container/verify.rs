//! What the kernel says about the process that connected, whatever the engine was asked for.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;

use ringfence_types::{Backend, OciRuntime};

use crate::container::Inspected;
use crate::session::StartError;

/// The number of PID 1 of the container, once it is sure that it is the caller and shares nothing with the host.
pub(super) fn peer(socket: &OwnedFd) -> Result<u32, StartError> {
    let peer =
        rustix::net::sockopt::socket_peercred(socket).map_err(|errno| StartError::Spawn(errno.into()))?;
    let caller = (rustix::process::geteuid(), rustix::process::getegid());
    if (peer.uid, peer.gid) != caller {
        return Err(unsafe_engine(&format!(
            "the engine runs it as user {}, so that files would not be yours",
            peer.uid.as_raw()
        )));
    }
    let init = peer.pid.as_raw_nonzero().get().cast_unsigned();
    for namespace in ["pid", "net", "ipc", "mnt", "uts"] {
        let inode =
            |process: &str| std::fs::metadata(format!("/proc/{process}/ns/{namespace}")).map(|ns| ns.ino());
        let (inside, here) = (inode(&init.to_string()), inode("self"));
        let (inside, here) = (inside.map_err(StartError::Spawn)?, here.map_err(StartError::Spawn)?);
        if inside == here {
            return Err(unsafe_engine(&format!("the engine gave it the host's {namespace} namespace")));
        }
    }
    Ok(init)
}

/// The engine's own word about the same process. A process that slipped in before PID 1 would have another number.
pub(super) fn started(told: &Inspected, init: u32, wanted: Option<OciRuntime>) -> Result<(), StartError> {
    if told.pid != Some(init) {
        return Err(unsafe_engine(&format!(
            "process {init} connected, but PID 1 of the container is {}",
            told.pid.map_or_else(|| "gone".to_owned(), |pid| format!("process {pid}"))
        )));
    }
    match wanted {
        Some(wanted) if told.runtime.as_deref() != Some(wanted.word()) => Err(StartError::OtherRuntime {
            wanted,
            used: told.runtime.clone().unwrap_or_else(|| "one that it does not name".to_owned()),
        }),
        _ => Ok(()),
    }
}

fn unsafe_engine(reason: &str) -> StartError {
    StartError::Unavailable { backend: Backend::Container, reason: reason.to_owned() }
}
