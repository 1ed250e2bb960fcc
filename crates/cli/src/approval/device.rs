//! The controlling terminal while it is asked something: a mode of its own, no type-ahead, never waiting for ever.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, OutputModes, QueueSelector, SpecialCodeIndex, Termios, tcflush,
    tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::screen::Screen;

/// Keys that were on their way when the question appeared are not the answer to it.
const SETTLE: Duration = Duration::from_millis(300);

/// How often somebody at a prompt looks whether the answer came from elsewhere.
const LOOK: Duration = Duration::from_millis(100);

/// Why there will be no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    TimedOut,
    /// A signal asked this process to end.
    Interrupted,
    /// The terminal went away or cannot be used.
    Gone,
    /// Somebody else has answered.
    Elsewhere,
}

impl From<Errno> for Silence {
    fn from(_gone: Errno) -> Self {
        Self::Gone
    }
}

/// Says whether somebody else has answered.
pub(super) type Elsewhere<'a> = &'a dyn Fn() -> bool;

/// A terminal in question mode. Dropping it restores the mode that it had.
pub(super) struct Device<'a> {
    terminal: File,
    before: Termios,
    deadline: Instant,
    signals: UnixStream,
    registered: Vec<SigId>,
    elsewhere: Elsewhere<'a>,
    screen: Screen,
    /// Whether the screen was cleared for a question.
    cleared: bool,
}

impl<'a> Device<'a> {
    /// The controlling terminal, where there is one and this process is in its foreground. From the background every
    /// access would stop the process, with nobody to wake it.
    pub(super) fn controlling(patience: Duration, elsewhere: Elsewhere<'a>) -> Option<Self> {
        Self::on(foreground()?, patience, elsewhere).ok()
    }

    pub(super) fn on(terminal: File, patience: Duration, elsewhere: Elsewhere<'a>) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let (signals, theirs) = UnixStream::pair()?;
        let mut registered = Vec::new();
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            registered.push(signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?);
        }
        let deadline = Instant::now() + patience;
        let device = Self {
            terminal,
            before,
            deadline,
            signals,
            registered,
            elsewhere,
            screen: Screen::Ansi,
            cleared: false,
        };
        tcsetattr(&device.terminal, OptionalActions::Now, &asking(&device.before))?;
        Ok(device)
    }

    pub(super) fn on_screen(mut self, screen: Screen) -> Self {
        self.screen = screen;
        self
    }

    /// An empty screen in a known state, whatever a command has left there.
    pub(super) fn clear(&mut self) -> Result<(), Silence> {
        let rows = tcgetwinsize(&self.terminal).map_or(0, |size| size.ws_row);
        self.cleared = true;
        self.write(&self.screen.cleared(rows))
    }

    pub(super) fn terminal(&self) -> &File {
        &self.terminal
    }

    /// In columns. A terminal that does not know is taken for an ordinary one.
    pub(super) fn width(&self) -> usize {
        let columns = tcgetwinsize(&self.terminal).map_or(0, |size| usize::from(size.ws_col));
        if columns == 0 { 80 } else { columns }
    }

    pub(super) fn write(&mut self, text: &str) -> Result<(), Silence> {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match rustix::io::write(&self.terminal, rest) {
                Ok(0) => return Err(Silence::Gone),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::AGAIN | Errno::INTR) => self.wait(PollFlags::OUT, self.left())?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Lets what was typed before arrive, and forgets it.
    pub(super) fn settle(&mut self) -> Result<(), Silence> {
        let until = Instant::now() + SETTLE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.forget();
            }
            match self.wait(PollFlags::IN, left) {
                // There is something: it is too early.
                Ok(()) => self.burst().map(drop)?,
                Err(Silence::TimedOut) => return self.forget(),
                Err(silence) => return Err(silence),
            }
        }
    }

    /// Drops what was typed and not read.
    pub(super) fn forget(&mut self) -> Result<(), Silence> {
        Ok(tcflush(&self.terminal, QueueSelector::IFlush)?)
    }

    /// What arrives next, as much as there is at once: one key, or all that a key or a paste sends. Never empty.
    pub(super) fn burst(&mut self) -> Result<Vec<u8>, Silence> {
        let mut buffer = [0; 1024];
        loop {
            self.wait(PollFlags::IN, self.left())?;
            match rustix::io::read(&self.terminal, &mut buffer) {
                Ok(0) => return Err(Silence::Gone),
                Ok(length) => return Ok(buffer.get(..length).unwrap_or_default().to_vec()),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn wait(&self, events: PollFlags, time: Duration) -> Result<(), Silence> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left.min(LOOK)).map_err(|_too_long| Silence::TimedOut)?;
            let terminal = PollFd::from_borrowed_fd(self.terminal.as_fd(), events);
            let signals = PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN);
            let mut ready = [terminal, signals];
            match poll(&mut ready, Some(&timeout)) {
                Ok(0) if (self.elsewhere)() => return Err(Silence::Elsewhere),
                Ok(0) if Instant::now() >= until => return Err(Silence::TimedOut),
                Ok(0) => continue,
                // A change of size interrupts as well; it is no answer.
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            let [terminal, signals] = ready;
            if !signals.revents().is_empty() {
                return Err(Silence::Interrupted);
            }
            if !terminal.revents().is_empty() {
                return Ok(());
            }
        }
    }
}

impl Drop for Device<'_> {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
        if self.cleared {
            // It does not wait: a terminal that takes nothing keeps what it has.
            let _gone = rustix::io::write(&self.terminal, self.screen.given_back().as_bytes());
        }
        // A terminal that is gone needs neither.
        let _flushed = tcflush(&self.terminal, QueueSelector::IFlush);
        let _restored = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

/// The controlling terminal, where this process is in its foreground.
pub(super) fn foreground() -> Option<File> {
    let terminal = open(Path::new("/dev/tty")).ok()?;
    let foreground = tcgetpgrp(&terminal).ok()?;
    (foreground == rustix::process::getpgrp()).then_some(terminal)
}

/// A description of its own: that it does not block is nobody else's business.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Keys arrive one by one, unseen, and none of them is a signal; lines end as lines. Whatever mode was set before.
fn asking(before: &Termios) -> Termios {
    let mut mode = before.clone();
    mode.local_modes -=
        LocalModes::ICANON | LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ISIG | LocalModes::IEXTEN;
    mode.input_modes -= InputModes::IXON | InputModes::INLCR | InputModes::IGNCR | InputModes::ISTRIP;
    mode.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
    mode.special_codes[SpecialCodeIndex::VMIN] = 1;
    mode.special_codes[SpecialCodeIndex::VTIME] = 0;
    mode
}
