//! The session socket: it lies in a directory that only the session's fence shows.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Removed when dropped.
#[derive(Debug)]
pub(crate) struct SessionSocket {
    directory: PathBuf,
}

const NAME: &str = "door";

impl SessionSocket {
    /// Creates a directory of its own below `doors`, and listens there.
    pub(crate) fn open(doors: &Path) -> io::Result<(Self, UnixListener)> {
        let mut random = [0_u8; 6];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let name: String = ringfence_types::hex(random);
        let directory = doors.join(name);
        DirBuilder::new().mode(0o700).create(&directory)?;
        let door = Self { directory };
        let listener = UnixListener::bind(door.socket())?;
        listener.set_nonblocking(true)?;
        Ok((door, listener))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join(NAME)
    }
}

impl Drop for SessionSocket {
    fn drop(&mut self) {
        // A failure leaves files that the next start removes.
        let _gone = fs::remove_file(self.socket()).and_then(|()| fs::remove_dir(&self.directory));
    }
}

/// Removes the sockets of a daemon that was killed. No other daemon uses this directory, because its own socket is
/// locked.
pub(crate) fn clear(doors: &Path) -> io::Result<()> {
    match fs::remove_dir_all(doors) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    DirBuilder::new().recursive(true).mode(0o700).create(doors)
}
