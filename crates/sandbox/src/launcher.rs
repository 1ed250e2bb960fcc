//! The launcher program: carried inside this binary, run from a sealed memfd.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::control_socket;

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

/// Starts the launcher with the control socket as its standard input and nothing else to go on.
///
/// It clones PID 1 as a sibling and ends, so the caller waits for it and later for PID 1.
pub(crate) fn spawn(control: OwnedFd) -> io::Result<std::process::Child> {
    let path = format!("/proc/self/fd/{}", image()?.as_raw_fd());
    Command::new(path).env_clear().stdin(Stdio::from(control)).spawn()
}
