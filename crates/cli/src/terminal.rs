//! Raw mode for a command with its own terminal, and the signals to forward.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use ringfence_runtime::SignalForward;
use rustix::fs::{Mode, OFlags};
use rustix::termios::{OptionalActions, Termios};

/// Restores the terminal mode on drop.
pub(crate) struct RawMode<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> RawMode<'a> {
    pub(crate) fn enter(terminal: BorrowedFd<'a>) -> io::Result<Self> {
        let before = rustix::termios::tcgetattr(terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(terminal, OptionalActions::Drain, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for RawMode<'_> {
    fn drop(&mut self) {
        // A closed terminal needs no mode.
        let _gone = rustix::termios::tcsetattr(self.terminal, OptionalActions::Drain, &self.before);
    }
}

/// Reopens a terminal in non-blocking mode. The description behind standard output is shared with the parent
/// process and must not change.
pub(crate) fn reopened(terminal: BorrowedFd<'_>) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", terminal.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// Names this process, whatever its file is called: a Ringfence below it finds its supervisor by that name.
pub(crate) fn be_known_as_supervisor() {
    // On failure the name of the file stays.
    let _named = rustix::thread::set_name(c"ringfence");
}

/// Makes a write beyond the file size limit fail with an error; by default the signal would kill this process
/// silently.
pub(crate) fn survive_file_size_limit() {
    let unread = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    // On failure the signal kills this process as before.
    let _registered = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, unread);
}

/// Disables core dumps, because memory contains secrets.
pub(crate) fn leave_no_core() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Core).maximum;
    // One byte, not zero: with a limit of zero the kernel still starts a piped crash handler.
    let current = Some(maximum.map_or(1, |most| most.min(1)));
    // On failure the caller's limit stays.
    let _kept = setrlimit(Resource::Core, Rlimit { current, maximum });
}

/// Raises the descriptor limit: the proxy holds two for each flow. Commands inside the fence have their own
/// limits.
pub(crate) fn open_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // On failure the proxy accepts fewer connections.
    let _kept = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Signals to this process, each as a byte on a socket.
pub(crate) struct TerminalSignals {
    streams: Vec<(i32, UnixStream)>,
}

impl TerminalSignals {
    pub(crate) fn catch() -> io::Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
        let mut streams = Vec::new();
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH] {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, theirs)?;
            streams.push((signal, ours));
        }
        Ok(Self { streams })
    }

    pub(crate) fn interrupts(&self) -> Vec<SignalForward<'_>> {
        self.streams
            .iter()
            .map(|(signal, stream)| SignalForward { signal: *signal, fd: stream.as_fd() })
            .collect()
    }
}
