//! The launcher program: carried inside this binary, run from a sealed memfd.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::control_socket::{self, ControlSocket};
use crate::launch_sequence::OuterProcess;

static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ringfence-launch"));

/// A descriptor of the launcher. The seals mean that what was embedded is what is executed.
pub(crate) fn image() -> io::Result<&'static OwnedFd> {
    static SEALED: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(fd) = SEALED.get() {
        return Ok(fd);
    }
    let fd = control_socket::sealed("ringfence-launch", IMAGE)?;
    Ok(SEALED.get_or_init(|| fd))
}

/// The content of the launcher, for a container: it gets a file, because no descriptor reaches it.
pub(crate) fn bytes() -> &'static [u8] {
    IMAGE
}

/// A launcher that waits for its first message. The control socket is its standard input.
///
/// Field order is drop order: the socket closes first, which ends the launcher.
pub(crate) struct LauncherProcess {
    pub(crate) control: ControlSocket,
    pub(crate) outer: OuterProcess,
}

/// Starts the launcher with the control socket and nothing else to go on.
///
/// It clones PID 1 as a sibling and ends, so the caller waits for it and later for PID 1.
pub(crate) fn spawn() -> io::Result<LauncherProcess> {
    let path = format!("/proc/self/fd/{}", image()?.as_raw_fd());
    let (control, theirs) = ControlSocket::pair()?;
    let child = Command::new(path).env_clear().stdin(Stdio::from(theirs)).spawn()?;
    Ok(LauncherProcess { control, outer: OuterProcess::new(child) })
}
