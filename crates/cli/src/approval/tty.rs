//! The controlling terminal during a prompt: its own mode, no type-ahead, and every wait bounded.

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

/// Keys typed before the prompt appeared are discarded during this time.
const SETTLE: Duration = Duration::from_millis(300);

/// Poll interval for decisions made elsewhere.
const LOOK: Duration = Duration::from_millis(100);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    TimedOut,
    /// A signal asked this process to end.
    Interrupted,
    /// The terminal is closed or unusable.
    Gone,
    /// Another approver has answered.
    Elsewhere,
}

impl From<Errno> for NoAnswer {
    fn from(_gone: Errno) -> Self {
        Self::Gone
    }
}

/// Size of a screen; zero if the terminal does not know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) rows: u16,
    pub(super) columns: u16,
}

/// Tells whether another approver has answered.
pub(super) type RemoteAnswerCheck<'a> = &'a dyn Fn() -> bool;

/// A terminal in prompt mode. Dropping it restores the previous mode.
pub(super) struct PromptTty<'a> {
    terminal: File,
    before: Termios,
    deadline: Instant,
    signals: UnixStream,
    registered: Vec<SigId>,
    elsewhere: RemoteAnswerCheck<'a>,
    screen: Screen,
    /// Whether the screen was cleared for a prompt.
    cleared: bool,
}

impl<'a> PromptTty<'a> {
    /// The controlling terminal, if this process is in its foreground. In the background every access would
    /// stop the process.
    pub(super) fn controlling(patience: Duration, elsewhere: RemoteAnswerCheck<'a>) -> Option<Self> {
        Self::on(foreground()?, patience, elsewhere).ok()
    }

    pub(super) fn on(
        terminal: File,
        patience: Duration,
        elsewhere: RemoteAnswerCheck<'a>,
    ) -> io::Result<Self> {
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

    /// Clears the screen and resets its state, whatever a command left there.
    pub(super) fn clear(&mut self) -> Result<(), NoAnswer> {
        let rows = self.size().rows;
        self.cleared = true;
        self.write(&self.screen.cleared(rows))
    }

    pub(super) fn terminal(&self) -> &File {
        &self.terminal
    }

    /// In columns, with a default for an unknown size.
    pub(super) fn width(&self) -> usize {
        match self.size().columns {
            0 => 80,
            columns => usize::from(columns),
        }
    }

    /// With a default for an unknown size.
    pub(super) fn rows(&self) -> usize {
        match self.size().rows {
            0 => 24,
            rows => usize::from(rows),
        }
    }

    /// The kernel's current size.
    pub(super) fn size(&self) -> Size {
        tcgetwinsize(&self.terminal)
            .map_or(Size::default(), |size| Size { rows: size.ws_row, columns: size.ws_col })
    }

    pub(super) fn write(&mut self, text: &str) -> Result<(), NoAnswer> {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match rustix::io::write(&self.terminal, rest) {
                Ok(0) => return Err(NoAnswer::Gone),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::AGAIN | Errno::INTR) => self.wait(PollFlags::OUT, self.left())?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for earlier keys to arrive, and discards them.
    pub(super) fn settle(&mut self) -> Result<(), NoAnswer> {
        let until = Instant::now() + SETTLE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.forget();
            }
            match self.wait(PollFlags::IN, left) {
                // A key arrived too early.
                Ok(()) => self.burst().map(drop)?,
                Err(NoAnswer::TimedOut) => return self.forget(),
                Err(silence) => return Err(silence),
            }
        }
    }

    /// Discards unread input.
    pub(super) fn forget(&mut self) -> Result<(), NoAnswer> {
        Ok(tcflush(&self.terminal, QueueSelector::IFlush)?)
    }

    /// The next input, as much as arrives at once: one key, or everything a key or a paste sends. Never
    /// empty.
    pub(super) fn burst(&mut self) -> Result<Vec<u8>, NoAnswer> {
        let mut buffer = [0; 1024];
        loop {
            self.wait(PollFlags::IN, self.left())?;
            match rustix::io::read(&self.terminal, &mut buffer) {
                Ok(0) => return Err(NoAnswer::Gone),
                Ok(length) => return Ok(buffer.get(..length).unwrap_or_default().to_vec()),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn wait(&self, events: PollFlags, time: Duration) -> Result<(), NoAnswer> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left.min(LOOK)).map_err(|_too_long| NoAnswer::TimedOut)?;
            let terminal = PollFd::from_borrowed_fd(self.terminal.as_fd(), events);
            let signals = PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN);
            let mut ready = [terminal, signals];
            match poll(&mut ready, Some(&timeout)) {
                Ok(0) if (self.elsewhere)() => return Err(NoAnswer::Elsewhere),
                Ok(0) if Instant::now() >= until => return Err(NoAnswer::TimedOut),
                Ok(0) => continue,
                // A resize interrupts too; it is no answer.
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            let [terminal, signals] = ready;
            if !signals.revents().is_empty() {
                return Err(NoAnswer::Interrupted);
            }
            if !terminal.revents().is_empty() {
                return Ok(());
            }
        }
    }
}

impl Drop for PromptTty<'_> {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
        if self.cleared {
            // Does not block: a terminal that accepts nothing keeps its state.
            let _gone = rustix::io::write(&self.terminal, self.screen.given_back().as_bytes());
        }
        // A closed terminal needs neither.
        let _flushed = tcflush(&self.terminal, QueueSelector::IFlush);
        let _restored = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

/// The controlling terminal, if this process is in its foreground.
pub(super) fn foreground() -> Option<File> {
    let terminal = open(Path::new("/dev/tty")).ok()?;
    let foreground = tcgetpgrp(&terminal).ok()?;
    (foreground == rustix::process::getpgrp()).then_some(terminal)
}

/// A separate open file description, so that non-blocking mode affects no other process.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Delivers keys one by one, without echo and signals; output lines end normally. Independent of the previous
/// mode.
fn asking(before: &Termios) -> Termios {
    let mut mode = before.clone();
    mode.local_modes -=
        LocalModes::ICANON | LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ISIG | LocalModes::IEXTEN;
    // Background processes that write are stopped, so they cannot draw over the prompt.
    mode.local_modes |= LocalModes::TOSTOP;
    mode.input_modes -= InputModes::IXON | InputModes::INLCR | InputModes::IGNCR | InputModes::ISTRIP;
    mode.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
    mode.special_codes[SpecialCodeIndex::VMIN] = 1;
    mode.special_codes[SpecialCodeIndex::VTIME] = 0;
    mode
}
