//! Standard input of a call: what is known of it before the call is decided.
//!
//! A question says what the command would read, and the answer is for that. So where a person has to be asked, input that
//! comes to an end soon is read first, and the command gets exactly the bytes that were shown. What has no end in sight is
//! called a stream: it is said that nobody knows what comes, and no stored answer covers it.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ringfence_sandbox::Source;
use ringfence_types::{Call, Exec, StandardInput};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Read ahead at most.
const MOST: usize = 1 << 20;
/// How long the end of input is waited for before the question. A person needs longer to read it.
const PATIENCE: Duration = Duration::from_millis(300);
const CHUNK: usize = 64 << 10;

/// Standard input of one call, as far as it was read.
#[derive(Debug)]
pub(super) struct Intake<'a> {
    source: Source<'a>,
    ahead: Ahead,
}

#[derive(Debug)]
enum Ahead {
    /// Nothing was read.
    Not,
    /// All of it was read.
    Whole(Vec<u8>),
    /// This was read, and more may come.
    Begun(Vec<u8>),
}

impl<'a> Intake<'a> {
    pub(super) fn new(source: Source<'a>) -> Self {
        Self { source, ahead: Ahead::Not }
    }

    /// The call with what it reads, as far as that is known. What a caller has said about it does not count.
    pub(super) fn stated(&self, call: Call) -> Call {
        match call {
            Call::Exec(exec) => Call::Exec(Exec { stdin: self.kind(), ..exec }),
            other => other,
        }
    }

    /// Reads input that ends soon, so that it can be shown. Whether more is known than before.
    pub(super) fn read_ahead(&mut self, call: &Call) -> bool {
        let (Call::Exec(_), Source::Fd(fd), Ahead::Not) = (call, self.source, &self.ahead) else {
            return false;
        };
        if rustix::termios::isatty(fd) {
            return false;
        }
        self.ahead = read(fd);
        matches!(self.ahead, Ahead::Whole(_))
    }

    /// All bytes that are known, for what is shown and searched.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match (&self.ahead, self.source) {
            (Ahead::Whole(bytes), _) => Some(bytes),
            (_, Source::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// What the command is connected to: first of all to what was read for the question.
    pub(super) fn source(&self) -> Source<'_> {
        match (&self.ahead, self.source) {
            (Ahead::Whole(bytes), _) => Source::Bytes(bytes),
            (Ahead::Begun(first), Source::Fd(rest)) => Source::Begun { first, rest },
            (_, source) => source,
        }
    }

    fn kind(&self) -> StandardInput {
        match (&self.ahead, self.source) {
            (Ahead::Whole(bytes), _) => StandardInput::of_bytes(bytes),
            (_, Source::Empty) => StandardInput::None,
            (_, Source::Bytes(bytes)) => StandardInput::of_bytes(bytes),
            // Another terminal is one that a program types into.
            (_, Source::Fd(fd) | Source::Terminal(fd)) if rustix::termios::tcgetsid(fd).is_ok() => {
                StandardInput::Terminal
            }
            (_, Source::Fd(_) | Source::Terminal(_) | Source::Begun { .. }) => StandardInput::Stream,
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
            // Closed, or not for reading: the command finds nothing either.
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

    use ringfence_types::{Bytes, NetMode};

    use super::*;

    fn call() -> Call {
        let argv = vec![Bytes::from("patch")];
        let stdin = StandardInput::of_bytes(b"what the caller says");
        Call::Exec(Exec { argv, cwd: Bytes::from("/w"), env: Vec::new(), net: NetMode::None, stdin })
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
        let mut intake = Intake::new(Source::Fd(read.as_fd()));
        assert_eq!(stdin(&intake), StandardInput::Stream);
        drop(write);
        assert!(intake.read_ahead(&call()));
        assert_eq!(stdin(&intake), StandardInput::of_bytes(b"--- a\n+++ b\n"));
        assert!(matches!(intake.source(), Source::Bytes(b"--- a\n+++ b\n")));
        assert!(!intake.read_ahead(&call()), "once");
    }

    #[test]
    fn input_without_an_end_stays_a_stream_and_loses_nothing() {
        let (read, write) = std::io::pipe().unwrap();
        (&write).write_all(b"first").unwrap();
        let mut intake = Intake::new(Source::Fd(read.as_fd()));
        assert!(!intake.read_ahead(&call()));
        assert_eq!(stdin(&intake), StandardInput::Stream);
        assert!(matches!(intake.source(), Source::Begun { first: b"first", .. }));
        let zero = std::fs::File::open("/dev/zero").unwrap();
        let mut endless = Intake::new(Source::Fd(zero.as_fd()));
        assert!(!endless.read_ahead(&call()));
        assert_eq!(stdin(&endless), StandardInput::Stream);
    }

    #[test]
    fn nothing_is_nothing_whatever_it_is_called() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let mut intake = Intake::new(Source::Fd(null.as_fd()));
        assert!(intake.read_ahead(&call()));
        assert_eq!(stdin(&intake), StandardInput::None);
        assert_eq!(stdin(&Intake::new(Source::Empty)), StandardInput::None);
        assert_eq!(stdin(&Intake::new(Source::Bytes(b""))), StandardInput::None);
    }
}
