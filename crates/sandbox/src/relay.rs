//! Standard streams, signals and the clock of one foreground command: a single poll loop.
//!
//! No descriptor of the caller ever enters the sandbox: a standard input that is a directory or a socket would be a
//! way out. Bytes are copied, unchanged but for what a filter takes out, through pipes or a terminal of the sandbox's own.
//!
//! INVARIANT: the loop never blocks on the caller's descriptors, so a consumer that stops reading cannot hold up the
//! timeout. The kernel is told with each write not to wait; where it cannot be told, a pipe that is ready takes a small write whole.
//! For a terminal the caller passes a non-blocking description.

mod filter;
mod pause;
mod pump;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfence_launch::wire::ControlMessage;
use ringfence_types::{ExitReason, LimitName, StreamSummary};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::message_demux::CommandMessages;
use crate::mount_guard::ROUND;
use crate::sandbox::{CommandRunError, Sandbox, TerminalStreams};
use pause::AttachedRelay;
pub use pause::{PauseGuard, RelayPause};
use pump::{OutputPump, StdinPump};

pub use filter::{FilterAction, IdleSpan, StreamFilter, StreamFilters};

/// Where a command's standard input comes from.
#[derive(Clone, Copy, Debug)]
pub enum StdinSource<'a> {
    Empty,
    Fd(BorrowedFd<'a>),
    /// The command gets a terminal of its own; the caller has put this one into raw mode.
    Terminal(BorrowedFd<'a>),
    Bytes(&'a [u8]),
    /// What was read ahead, and then the rest.
    Begun {
        first: &'a [u8],
        rest: BorrowedFd<'a>,
    },
}

/// Where an output stream goes.
#[derive(Debug)]
pub enum OutputTarget<'a> {
    Discard,
    Fd(BorrowedFd<'a>),
    /// As `Fd`, and the command sees a terminal.
    Terminal(BorrowedFd<'a>),
    Buffer(&'a mut Vec<u8>),
}

/// A signal to the supervisor that is meant for the command: a byte on `fd` says that it came.
#[derive(Clone, Copy, Debug)]
pub struct SignalForward<'a> {
    pub signal: i32,
    pub fd: BorrowedFd<'a>,
}

/// How a command is connected and bounded.
#[derive(Debug)]
pub struct CommandIo<'a> {
    pub stdin: StdinSource<'a>,
    pub stdout: OutputTarget<'a>,
    pub stderr: OutputTarget<'a>,
    pub interrupts: &'a [SignalForward<'a>],
    pub timeout: Option<Duration>,
    /// Per stream; what goes beyond is read, dropped and counted.
    pub output_bytes: u64,
}

/// What became of a command.
#[derive(Clone, Debug)]
pub struct CommandExit {
    pub exit: ExitReason,
    pub limit_hit: Option<LimitName>,
    pub duration: Duration,
    pub stdout: StreamSummary,
    pub stderr: StreamSummary,
}

/// What a command can print before it waits for us. The kernel counts it against what a user may have in all pipes (64 MiB).
const ROOM: usize = 256 << 10;

/// Between the polite signal and the kill.
const GRACE: Duration = Duration::from_secs(2);

/// A command can stop its own leader, or fork faster than it is killed. Nothing inside outlives PID 1.
const LAST_RESORT: Duration = Duration::from_secs(1);

/// How long a consumer may hold up the last bytes of a command that was killed.
const FLUSH: Duration = Duration::from_secs(2);

/// The pipes of one command and what to ask of PID 1.
pub(crate) struct CommandPipes {
    pub(crate) ask: TerminalStreams,
    inside: Vec<OwnedFd>,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl CommandPipes {
    pub(crate) fn new(io: &CommandIo<'_>) -> io::Result<Self> {
        let mut wiring = Self {
            ask: terminal(io),
            inside: Vec::with_capacity(3),
            stdin: None,
            stdout: None,
            stderr: None,
        };
        if !matches!(io.stdin, StdinSource::Terminal(_)) {
            let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            wiring.inside.push(read);
            wiring.stdin = Some(nonblocking(write)?);
        }
        if !matches!(io.stdout, OutputTarget::Terminal(_)) {
            wiring.stdout = Some(wiring.output()?);
        }
        if !matches!(io.stderr, OutputTarget::Terminal(_)) {
            wiring.stderr = Some(wiring.output()?);
        }
        Ok(wiring)
    }

    fn output(&mut self) -> io::Result<OwnedFd> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // Fewer turns for much output. A user who has many pipes gets small ones, and they do as well.
        let _small = rustix::pipe::fcntl_setpipe_size(&read, ROOM);
        self.inside.push(write);
        nonblocking(read)
    }

    /// The ends for the command.
    pub(crate) fn inside(&self) -> Vec<BorrowedFd<'_>> {
        self.inside.iter().map(AsFd::as_fd).collect()
    }

    /// Once they are sent: our copies would keep the pipes open.
    pub(crate) fn close_inside(mut self) -> Self {
        self.inside.clear();
        self
    }
}

fn nonblocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(fd)
}

fn terminal(io: &CommandIo<'_>) -> TerminalStreams {
    let on = |is: bool| is.then_some(());
    let streams = [
        on(matches!(io.stdin, StdinSource::Terminal(_))),
        on(matches!(io.stdout, OutputTarget::Terminal(_))),
        on(matches!(io.stderr, OutputTarget::Terminal(_))),
    ];
    let size = caller_terminal(io).and_then(|fd| rustix::termios::tcgetwinsize(fd).ok());
    TerminalStreams { streams, rows: size.map_or(24, |s| s.ws_row), columns: size.map_or(80, |s| s.ws_col) }
}

fn caller_terminal<'a>(io: &CommandIo<'a>) -> Option<BorrowedFd<'a>> {
    match (&io.stdin, &io.stdout, &io.stderr) {
        (StdinSource::Terminal(fd), _, _) => Some(*fd),
        (_, OutputTarget::Terminal(fd), _) | (_, _, OutputTarget::Terminal(fd)) => Some(*fd),
        _ => None,
    }
}

/// Runs the loop until the command has ended and its output has been delivered.
pub(crate) fn relay_command(
    session: &Sandbox,
    messages: &CommandMessages<'_>,
    wiring: CommandPipes,
    io: CommandIo<'_>,
    filters: Option<StreamFilters<'_>>,
) -> Result<CommandExit, CommandRunError> {
    let attended = session.hold().attend().map_err(CommandRunError::Relay)?;
    let mut attendance = RelayLoop::new(messages, attended, wiring, io);
    if let Some(filters) = filters {
        attendance.stdout.filter_by(filters.stdout);
        attendance.stderr.filter_by(filters.stderr);
    }
    while !attendance.is_over() {
        attendance.turn(session)?;
    }
    match attendance.stdout.lost().or(attendance.stderr.lost()) {
        Some(errno) => Err(CommandRunError::Output(errno.into())),
        None => Ok(attendance.finish()),
    }
}

/// Whether something can be read without waiting.
pub(crate) fn readable(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    readable_within(fd, Duration::ZERO)
}

pub(crate) fn readable_within(fd: BorrowedFd<'_>, patience: Duration) -> Result<bool, Errno> {
    let deadline = Instant::now() + patience;
    loop {
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let left = timespec(deadline.saturating_duration_since(Instant::now()));
        match rustix::event::poll(&mut fds, Some(&left)) {
            Err(Errno::INTR) => {}
            answer => return answer.map(|ready| ready > 0),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: i64::from(duration.subsec_nanos()) }
}

struct RelayLoop<'a> {
    messages: &'a CommandMessages<'a>,
    attended: AttachedRelay,
    id: u64,
    started: Instant,
    stdin: StdinPump<'a>,
    stdout: OutputPump<'a>,
    stderr: OutputPump<'a>,
    caller_terminal: Option<BorrowedFd<'a>>,
    interrupts: &'a [SignalForward<'a>],
    ladder: KillSchedule,
    errno: Option<i32>,
    status: Option<i32>,
    tmp_full: Option<LimitName>,
    /// A person is asked something at the same terminal.
    held: bool,
    /// When to see whether the host has replaced something that is held.
    look_at: Instant,
}

/// What to do when, if the command does not end by itself.
#[derive(Default)]
struct KillSchedule {
    terminate_at: Option<Instant>,
    kill_at: Option<Instant>,
    first_kill: Option<Instant>,
    give_up_at: Option<Instant>,
    timed_out: bool,
    interrupted: bool,
}

impl<'a> RelayLoop<'a> {
    fn new(
        messages: &'a CommandMessages<'a>,
        attended: AttachedRelay,
        wiring: CommandPipes,
        io: CommandIo<'a>,
    ) -> Self {
        let started = Instant::now();
        let caller_terminal = caller_terminal(&io);
        Self {
            messages,
            attended,
            id: messages.id(),
            started,
            stdin: StdinPump::new(io.stdin, wiring.stdin),
            stdout: OutputPump::new("stdout", wiring.stdout, io.stdout, io.output_bytes),
            stderr: OutputPump::new("stderr", wiring.stderr, io.stderr, io.output_bytes),
            caller_terminal,
            interrupts: io.interrupts,
            ladder: KillSchedule {
                terminate_at: io.timeout.map(|timeout| started + timeout),
                ..KillSchedule::default()
            },
            errno: None,
            status: None,
            tmp_full: None,
            held: false,
            look_at: started + ROUND,
        }
    }

    fn is_over(&self) -> bool {
        let delivered = self.stdout.is_done() && self.stderr.is_done();
        let abandoned = self.ladder.give_up_at.is_some_and(|at| Instant::now() >= at);
        self.status.is_some() && (delivered || abandoned)
    }

    fn turn(&mut self, session: &Sandbox) -> Result<(), CommandRunError> {
        // What a command that has ended left is passed on whatever is asked.
        self.held = self.attended.holds() && self.status.is_none();
        let ready = self.wait(session)?;
        if ready.control {
            self.handle_message(session)?;
        }
        for signal in ready.signals {
            self.forward(session, signal)?;
        }
        if !self.held {
            self.stdin.turn();
            self.stdout.turn();
            self.stderr.turn();
        }
        if self.status.is_none() && (self.stdout.must_kill() || self.stderr.must_kill()) {
            self.ladder.kill_at.get_or_insert_with(Instant::now);
        }
        if let Some(guard) = session.guard().filter(|_| Instant::now() >= self.look_at) {
            guard.check();
            self.look_at = Instant::now() + ROUND;
        }
        self.escalate_kill(session)
    }

    fn wait(&self, session: &Sandbox) -> Result<PollReady, CommandRunError> {
        // After the command has ended nothing more is expected: the socket would only report its end again and again.
        let words: &[BorrowedFd<'_>] = &[session.control(), self.messages.wakeup()];
        let words = if self.status.is_none() { words } else { &[] };
        let mut fds: Vec<PollFd<'_>> =
            words.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        fds.extend(self.interrupts.iter().map(|i| PollFd::from_borrowed_fd(i.fd, PollFlags::IN)));
        let streams = [self.stdin.interest(), self.stdout.interest(), self.stderr.interest()];
        let streams = streams.into_iter().flatten().filter(|_| !self.held);
        fds.extend(streams.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        fds.push(PollFd::from_borrowed_fd(self.attended.wakeup(), PollFlags::IN));
        match rustix::event::poll(&mut fds, self.time_left(session).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(CommandRunError::Relay(errno.into())),
        }
        let mut answered = fds.iter().map(|fd| !fd.revents().is_empty());
        let control = answered.by_ref().take(words.len()).filter(|came| *came).count() > 0;
        let signals = self.interrupts.iter().zip(answered).filter(|(_, came)| *came).map(|(i, _)| *i);
        let signals =
            signals.filter(|interrupt| drain(interrupt.fd)).map(|interrupt| interrupt.signal).collect();
        Ok(PollReady { control, signals })
    }

    fn time_left(&self, session: &Sandbox) -> Option<Timespec> {
        let look_at = session.guard().map(|_| self.look_at);
        // Streams that stand still are not due: looking at the clock again and again would not move them.
        let streams = [self.stdout.due(), self.stderr.due()].map(|due| due.filter(|_| !self.held));
        let steps = [look_at, self.ladder.terminate_at, self.ladder.kill_at, self.ladder.give_up_at];
        let next = steps.into_iter().chain(streams).flatten().min()?;
        Some(timespec(next.saturating_duration_since(Instant::now())))
    }

    fn handle_message(&mut self, session: &Sandbox) -> Result<(), CommandRunError> {
        match session.next_event(self.messages)? {
            Some((ControlMessage::Terminal { id }, Some(master))) if id == self.id => self.adopt(&master),
            Some((ControlMessage::NotExecuted { id, errno }, _)) if id == self.id => {
                self.errno = i32::try_from(errno).ok();
                Ok(())
            }
            Some((ControlMessage::Exited { id, status, tmp_full, .. }, _)) if id == self.id => {
                self.tmp_full = (tmp_full == 1).then_some(LimitName::TmpSize);
                self.ended(i32::try_from(status).unwrap_or_default());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Every process of the call is dead and what it wrote is in the pipes. A process that still holds one is not part of
    /// the call.
    fn ended(&mut self, status: i32) {
        self.status = Some(status);
        self.stdin.close();
        self.stdout.expect_no_more();
        self.stderr.expect_no_more();
        if self.ladder.first_kill.is_some() || self.ladder.timed_out {
            self.ladder.give_up_at = Some(Instant::now() + FLUSH);
        }
        (self.ladder.terminate_at, self.ladder.kill_at) = (None, None);
    }

    /// The master end of the command's terminal.
    fn adopt(&mut self, master: &OwnedFd) -> Result<(), CommandRunError> {
        let copy = || -> Result<OwnedFd, CommandRunError> {
            nonblocking(master.try_clone().map_err(CommandRunError::Relay)?).map_err(CommandRunError::Relay)
        };
        self.stdin.adopt(copy()?);
        // One terminal carries both output streams; it is read once.
        if !self.stdout.adopt(copy()?) {
            self.stderr.adopt(copy()?);
        }
        // It was made with the size that was true when it was asked for.
        self.resize();
        Ok(())
    }

    fn forward(&mut self, session: &Sandbox, signal: i32) -> Result<(), CommandRunError> {
        if signal == libc::SIGWINCH {
            self.resize();
            return Ok(());
        }
        if matches!(signal, libc::SIGUSR1 | libc::SIGUSR2) {
            // A word to the command, not the wish that it ends.
            return session.signal(self.id, signal);
        }
        let again = std::mem::replace(&mut self.ladder.interrupted, true);
        if again {
            self.ladder.kill_at = Some(Instant::now());
            return Ok(());
        }
        if signal != libc::SIGINT {
            self.ladder.kill_at = Some(Instant::now() + GRACE);
        }
        session.signal(self.id, signal)
    }

    fn resize(&self) {
        if let (Some(caller), Some(master)) = (self.caller_terminal, self.stdin.terminal())
            && let Ok(size) = rustix::termios::tcgetwinsize(caller)
        {
            // A terminal that is gone does not need a size.
            let _gone = rustix::termios::tcsetwinsize(master, size);
        }
    }

    fn escalate_kill(&mut self, session: &Sandbox) -> Result<(), CommandRunError> {
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        if due(self.ladder.terminate_at) {
            self.ladder.timed_out = true;
            self.ladder.terminate_at = None;
            self.ladder.kill_at = Some(now + GRACE);
            session.signal(self.id, libc::SIGTERM)?;
        }
        if due(self.ladder.kill_at) {
            let first = *self.ladder.first_kill.get_or_insert(now);
            if now >= first + LAST_RESORT {
                session.end();
                self.ended(libc::SIGKILL);
                return Ok(());
            }
            self.ladder.kill_at = Some(now + Duration::from_millis(20));
            session.kill_call(self.id)?;
        }
        Ok(())
    }

    fn finish(self) -> CommandExit {
        let status = self.status.unwrap_or_default();
        let exit = match (self.ladder.timed_out, self.errno) {
            (true, _) => ExitReason::TimedOut,
            (_, Some(errno)) => ExitReason::NotExecuted { errno },
            _ => decode(status),
        };
        let (stdout, stderr) = (self.stdout.summary(), self.stderr.summary());
        let truncated = (stdout.dropped + stderr.dropped > 0).then_some(LimitName::Output);
        let limit_hit = limit_of(exit).or(self.tmp_full).or(truncated);
        CommandExit { exit, limit_hit, duration: self.started.elapsed(), stdout, stderr }
    }
}

struct PollReady {
    control: bool,
    signals: Vec<i32>,
}

fn drain(fd: BorrowedFd<'_>) -> bool {
    let mut bytes = [0_u8; 64];
    rustix::io::read(fd, &mut bytes).is_ok_and(|read| read > 0)
}

fn decode(status: i32) -> ExitReason {
    match status & 0x7f {
        0 => ExitReason::Code { code: (status >> 8) & 0xff },
        signal => ExitReason::Signal { signal },
    }
}

/// The limit that explains an exit. A shell reports the signal of its child as 128 + n.
fn limit_of(exit: ExitReason) -> Option<LimitName> {
    let signal = match exit {
        ExitReason::TimedOut => return Some(LimitName::WallClock),
        ExitReason::Signal { signal } => signal,
        ExitReason::Code { code } => code - 128,
        ExitReason::NotExecuted { .. } => 0,
    };
    match signal {
        libc::SIGXCPU => Some(LimitName::CpuTime),
        libc::SIGXFSZ => Some(LimitName::FileSize),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_status_decodes() {
        assert_eq!(decode(42 << 8), ExitReason::Code { code: 42 });
        assert_eq!(decode(9), ExitReason::Signal { signal: 9 });
        assert_eq!(decode(11 | 0x80), ExitReason::Signal { signal: 11 });
    }

    #[test]
    fn limits_are_read_off_the_exit() {
        assert_eq!(limit_of(ExitReason::Signal { signal: libc::SIGXCPU }), Some(LimitName::CpuTime));
        assert_eq!(limit_of(ExitReason::Code { code: 128 + libc::SIGXFSZ }), Some(LimitName::FileSize));
        assert_eq!(limit_of(ExitReason::Code { code: 1 }), None);
    }
}
