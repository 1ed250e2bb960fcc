//! The door of one session: a socket in a directory that only its fence shows.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Gone when the session is.
#[derive(Debug)]
pub(crate) struct Door {
    directory: PathBuf,
}

const NAME: &str = "door";

impl Door {
    /// A directory of its own below `doors`, and who listens there.
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

impl Drop for Door {
    fn drop(&mut self) {
        // What is left is removed with the next start.
        let _gone = fs::remove_file(self.socket()).and_then(|()| fs::remove_dir(&self.directory));
    }
}

/// Removes what a daemon that was killed left. Nobody else has doors here: the socket beside them is locked.
pub(crate) fn clear(doors: &Path) -> io::Result<()> {
    match fs::remove_dir_all(doors) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    DirBuilder::new().recursive(true).mode(0o700).create(doors)
}
