//! Standard input of a call, before the call is decided.
//!
//! The prompt shows what the command would read, and the answer is bound to it. Before it asks, the pipeline
//! reads input that ends soon, and the command gets exactly the bytes that were shown. Longer input is a
//! stream: the prompt says that its content is unknown, and no grant covers it.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ringfence_sandbox::StdinSource;
use ringfence_types::{Call, ExecCall, StandardInput};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Limit of bytes read ahead.
const MOST: usize = 1 << 20;
/// How long to wait for the end of input before the prompt. A person takes longer to read it.
const PATIENCE: Duration = Duration::from_millis(300);
const CHUNK: usize = 64 << 10;

/// Standard input of one call, as far as it was read.
#[derive(Debug)]
pub(crate) struct Intake<'a> {
    source: StdinSource<'a>,
    ahead: Ahead,
}

#[derive(Debug)]
enum Ahead {
    Not,
    /// The complete input.
    Whole(Vec<u8>),
    /// The beginning; more may follow.
    Begun(Vec<u8>),
}

impl<'a> Intake<'a> {
    pub(crate) fn new(source: StdinSource<'a>) -> Self {
        Self { source, ahead: Ahead::Not }
    }

    /// Sets the known input in the call. The caller's own statement about it is ignored.
    pub(super) fn stated(&self, call: Call) -> Call {
        match call {
            Call::Exec(exec) => Call::Exec(ExecCall { stdin: self.kind(), ..exec }),
            other => other,
        }
    }

    /// Reads input that ends soon, so that the prompt can show it. Returns whether more is known than before.
    pub(super) fn read_ahead(&mut self, call: &Call) -> bool {
        let (Call::Exec(_), StdinSource::Fd(fd), Ahead::Not) = (call, self.source, &self.ahead) else {
            return false;
        };
        if rustix::termios::isatty(fd) {
            return false;
        }
        self.ahead = read(fd);
        matches!(self.ahead, Ahead::Whole(_))
    }

    /// Bytes that came with the call.
    pub(super) fn given(&self) -> Option<&[u8]> {
        match self.source {
            StdinSource::Bytes(bytes) => Some(bytes),
            StdinSource::Empty
            | StdinSource::Fd(_)
            | StdinSource::Terminal(_)
            | StdinSource::Begun { .. } => None,
        }
    }

    /// All known bytes, for the prompt and the scanner.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match (&self.ahead, self.source) {
            (Ahead::Whole(bytes), _) => Some(bytes),
            (_, StdinSource::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// The command's standard input, beginning with the bytes read for the prompt.
    pub(super) fn source(&self) -> StdinSource<'_> {
        match (&self.ahead, self.source) {
            (Ahead::Whole(bytes), _) => StdinSource::Bytes(bytes),
            (Ahead::Begun(first), StdinSource::Fd(rest)) => StdinSource::Begun { first, rest },
            (_, source) => source,
        }
    }

    fn kind(&self) -> StandardInput {
        match (&self.ahead, self.source) {
            (Ahead::Whole(bytes), _) => StandardInput::of_bytes(bytes),
            (_, StdinSource::Empty) => StandardInput::None,
            (_, StdinSource::Bytes(bytes)) => StandardInput::of_bytes(bytes),
            // Only the controlling terminal: a program may type into any other one.
            (_, StdinSource::Fd(fd) | StdinSource::Terminal(fd)) if rustix::termios::tcgetsid(fd).is_ok() => {
                StandardInput::Terminal
            }
            (_, StdinSource::Fd(_) | StdinSource::Terminal(_) | StdinSource::Begun { .. }) => {
                StandardInput::Stream
            }
        }
    }
}

fn read(fd: BorrowedFd<'_>) -> Ahead {
    let deadline = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let mut buffer = vec![0_u8; CHUNK];
    while bytes.len() <= MOST && is_readable(fd, deadline) {
        match rustix::io::read(fd, &mut buffer) {
            Ok(0) => return Ahead::Whole(bytes),
            Ok(length) => bytes.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // Closed or not readable: the command reads nothing either.
            Err(_) if bytes.is_empty() => return Ahead::Whole(bytes),
            Err(_) => return Ahead::Begun(bytes),
        }
    }
    Ahead::Begun(bytes)
}

fn is_readable(fd: BorrowedFd<'_>, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(timeout) = Timespec::try_from(left) else { return false };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Err(Errno::INTR) if !left.is_zero() => {}
            answer => return answer.is_ok_and(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use ringfence_types::{ByteString, NetMode};

    use super::*;

    fn call() -> Call {
        let argv = vec![ByteString::from("patch")];
        let stdin = StandardInput::of_bytes(b"what the caller says");
        Call::Exec(ExecCall {
            argv,
            cwd: ByteString::from("/w"),
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin,
        })
    }

    fn stdin(intake: &Intake<'_>) -> StandardInput {
        match intake.stated(call()) {
            Call::Exec(exec) => exec.stdin,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn input_that_ends_is_known_and_is_what_the_command_gets() {
        let (read, write) = std::io::pipe().unwrap();
        (&write).write_all(b"--- a\n+++ b\n").unwrap();
        let mut intake = Intake::new(StdinSource::Fd(read.as_fd()));
        assert_eq!(stdin(&intake), StandardInput::Stream);
        drop(write);
        assert!(intake.read_ahead(&call()));
        assert_eq!(stdin(&intake), StandardInput::of_bytes(b"--- a\n+++ b\n"));
        assert!(matches!(intake.source(), StdinSource::Bytes(b"--- a\n+++ b\n")));
        assert!(!intake.read_ahead(&call()), "once");
    }

    #[test]
    fn input_without_an_end_stays_a_stream_and_loses_nothing() {
        let (read, write) = std::io::pipe().unwrap();
        (&write).write_all(b"first").unwrap();
        let mut intake = Intake::new(StdinSource::Fd(read.as_fd()));
        assert!(!intake.read_ahead(&call()));
        assert_eq!(stdin(&intake), StandardInput::Stream);
        assert!(matches!(intake.source(), StdinSource::Begun { first: b"first", .. }));
        let zero = std::fs::File::open("/dev/zero").unwrap();
        let mut endless = Intake::new(StdinSource::Fd(zero.as_fd()));
        assert!(!endless.read_ahead(&call()));
        assert_eq!(stdin(&endless), StandardInput::Stream);
    }

    #[test]
    fn nothing_is_nothing_whatever_it_is_called() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let mut intake = Intake::new(StdinSource::Fd(null.as_fd()));
        assert!(intake.read_ahead(&call()));
        assert_eq!(stdin(&intake), StandardInput::None);
        assert_eq!(stdin(&Intake::new(StdinSource::Empty)), StandardInput::None);
        assert_eq!(stdin(&Intake::new(StdinSource::Bytes(b""))), StandardInput::None);
    }
}
