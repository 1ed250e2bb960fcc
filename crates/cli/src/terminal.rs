//! Raw mode while a command has a terminal of its own, and the signals that are meant for it.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use ringfence_runtime::Interrupt;
use rustix::fs::{Mode, OFlags};
use rustix::termios::{OptionalActions, Termios};

/// Puts the terminal back as it was.
pub(crate) struct Raw<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> Raw<'a> {
    pub(crate) fn enter(terminal: BorrowedFd<'a>) -> io::Result<Self> {
        let before = rustix::termios::tcgetattr(terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(terminal, OptionalActions::Drain, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        // A terminal that is gone needs no mode.
        let _gone = rustix::termios::tcsetattr(self.terminal, OptionalActions::Drain, &self.before);
    }
}

/// A terminal of its own description, on which a write that would wait says so instead: the description behind
/// standard output is shared with whoever started us, and must stay as it is.
pub(crate) fn reopened(terminal: BorrowedFd<'_>) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", terminal.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// A write beyond the caller's file size limit then fails, and says so, instead of killing us without a word.
pub(crate) fn survive_file_size_limit() {
    let unread = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    // Where it cannot be registered we die as before.
    let _registered = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, unread);
}

/// What is in our memory when we crash is nobody's business: secrets are in it.
pub(crate) fn leave_no_core() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Core).maximum;
    // One byte, not none: a crash handler that is a pipe is started for a limit of zero, and not for one.
    let current = Some(maximum.map_or(1, |most| most.min(1)));
    // A limit that cannot be lowered is what the caller wanted it to be.
    let _kept = setrlimit(Resource::Core, Rlimit { current, maximum });
}

/// A proxy holds two descriptors for each flow. What runs inside the fence has limits of its own.
pub(crate) fn open_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Where it stays as it was, fewer connections are taken.
    let _kept = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Signals to this process, each as a byte on a socket.
pub(crate) struct Signals {
    streams: Vec<(i32, UnixStream)>,
}

impl Signals {
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

    pub(crate) fn interrupts(&self) -> Vec<Interrupt<'_>> {
        self.streams
            .iter()
            .map(|(signal, stream)| Interrupt { signal: *signal, fd: stream.as_fd() })
            .collect()
    }
}
