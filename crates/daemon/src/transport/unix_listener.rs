//! The operators' Unix socket.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// A bound socket, locked against other daemons.
#[derive(Debug)]
pub struct UnixListenerGuard {
    pub(crate) listener: UnixListener,
    /// The path to remove at the end. `None` for an inherited socket.
    pub(crate) path: Option<PathBuf>,
    /// Also covers the directory of the session sockets.
    _lock: File,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    #[error("cannot use `{}` for the socket", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("`{}` belongs to another user, or other users may write to it", path.display())]
    NotOurs { path: PathBuf },
    #[error("another daemon serves `{}`", path.display())]
    Taken { path: PathBuf },
    #[error("the path `{}` is too long for a socket and what is beside it", path.display())]
    TooLong { path: PathBuf },
    #[error("`{}` is there, and is no socket", path.display())]
    NotASocket { path: PathBuf },
    #[error("cannot listen at `{}`", path.display())]
    Bind {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("what was handed over is no listening socket")]
    Inherited(#[source] io::Error),
    #[error("the socket that was handed over has no place in the file system")]
    Nameless,
    #[error("others than its owner can use the socket `{}`", path.display())]
    Open { path: PathBuf },
}

impl ListenError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotOurs { .. } => Some("name another place with --socket, or `chmod 700` the directory"),
            Self::TooLong { .. } => {
                Some("the path of a socket has at most 107 bytes; choose a shorter one with --socket")
            }
            Self::NotASocket { .. } => Some("move it away, or name another place with --socket"),
            Self::Taken { .. } => {
                Some("`ringfence status` shows it; `ringfence serve --socket` serves another place")
            }
            Self::Nameless => Some("name one in `ListenStream=`"),
            Self::Open { .. } => Some("set `SocketMode=0600`"),
            _ => None,
        }
    }
}

/// Longest socket path, with its terminating zero byte.
const LONGEST: usize = 107;

/// Length of a session socket's path below its directory.
const DOOR: usize = "/0123456789ab/door".len();

/// The directory of the session sockets. It belongs to one daemon: the lock of the socket covers it, too.
pub fn doors_of(socket: &Path) -> PathBuf {
    socket.with_extension("sessions")
}

/// Checks that the paths of the socket and of the session sockets beside it can be addresses.
pub fn check_socket_path(socket: &Path) -> Result<(), ListenError> {
    let longest = socket.as_os_str().len().max(doors_of(socket).as_os_str().len() + DOOR);
    if longest > LONGEST { Err(ListenError::TooLong { path: socket.to_owned() }) } else { Ok(()) }
}

fn make_directory(directory: &Path) -> Result<(), ListenError> {
    let failed = |error| ListenError::Directory { path: directory.to_owned(), error };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    check_directory(directory)
}

/// Checks the directory of a socket.
pub fn check_directory(directory: &Path) -> Result<(), ListenError> {
    let failed = |error| ListenError::Directory { path: directory.to_owned(), error };
    let metadata = fs::symlink_metadata(directory).map_err(failed)?;
    let ours = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    if !ours || metadata.mode() & 0o022 != 0 {
        return Err(ListenError::NotOurs { path: directory.to_owned() });
    }
    Ok(())
}

impl UnixListenerGuard {
    /// Binds `path` for this user only. A socket left by a killed daemon is removed.
    pub fn at(path: &Path) -> Result<Self, ListenError> {
        check_socket_path(path)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        make_directory(directory)?;
        // Before the lock is taken: connecting may start a daemon by socket activation, which needs the lock.
        if is_served(path) {
            return Err(ListenError::Taken { path: path.to_owned() });
        }
        let lock = lock(path)?;
        let failed = |error| ListenError::Bind { path: path.to_owned(), error };
        remove_left(path)?;
        // Between `bind` and `chmod` only this user can connect, because only this user may enter the directory.
        let listener = UnixListener::bind(path).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self { listener, path: Some(path.to_owned()), _lock: lock })
    }

    /// The path of the socket, if it has one.
    pub fn address(&self) -> Option<PathBuf> {
        self.listener.local_addr().ok()?.as_pathname().map(Path::to_owned)
    }

    /// A socket passed by the service manager.
    pub fn inherited(listener: UnixListener) -> Result<Self, ListenError> {
        let address = listener.local_addr().map_err(ListenError::Inherited)?;
        let Some(path) = address.as_pathname() else { return Err(ListenError::Nameless) };
        check_socket_path(path)?;
        check_directory(path.parent().unwrap_or(Path::new("/")))?;
        let failed = |error| ListenError::Directory { path: path.to_owned(), error };
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        let ours = metadata.uid() == rustix::process::geteuid().as_raw();
        if !ours || metadata.mode() & 0o077 != 0 {
            return Err(ListenError::Open { path: path.to_owned() });
        }
        let lock = lock(path)?;
        Ok(Self { listener, path: None, _lock: lock })
    }
}

impl Drop for UnixListenerGuard {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // The next daemon removes what is left.
            let _gone = fs::remove_file(path);
        }
    }
}

/// Removes the socket of a killed daemon. Any other file is kept.
fn remove_left(path: &Path) -> Result<(), ListenError> {
    let failed = |error| ListenError::Bind { path: path.to_owned(), error };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map_err(failed),
        Ok(_) => Err(ListenError::NotASocket { path: path.to_owned() }),
    }
}

/// Whether a process listens there: a daemon, or a service manager with socket activation.
fn is_served(path: &Path) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let (Ok(socket), Ok(address)) = (socket, SocketAddrUnix::new(path)) else { return false };
    // A socket with a full queue is served, too.
    matches!(rustix::net::connect(&socket, &address), Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS))
}

/// Whether a daemon runs there. Has no side effect.
pub fn is_locked(socket: &Path) -> bool {
    let file = File::open(socket.with_extension("lock"));
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}

fn lock(socket: &Path) -> Result<File, ListenError> {
    let path = socket.with_extension("lock");
    let failed = |error| ListenError::Bind { path: path.clone(), error };
    let file =
        File::options().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(ListenError::Taken { path: socket.to_owned() }),
        Err(fs::TryLockError::Error(error)) => Err(failed(error)),
    }
}
