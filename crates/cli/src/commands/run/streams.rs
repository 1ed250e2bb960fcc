//! Where the command of `ringfence run` reads and writes.

use std::io::{IsTerminal as _, Stderr, Stdin, Stdout};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use ringfence_runtime::{CommandIo, OutputTarget, SignalForward, StdinSource};

use crate::error;
use crate::spill::Spill;
use crate::terminal::{RawMode, reopened};

/// The streams of this process: the command's output is passed on as it comes.
pub(super) struct CallerStreams {
    stdin: Stdin,
    stdout: Stdout,
    stderr: Stderr,
    /// Non-blocking descriptions of the output streams that are terminals.
    out: Option<OwnedFd>,
    err: Option<OwnedFd>,
}

impl CallerStreams {
    pub(super) fn open() -> Self {
        let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let [out, err] =
            [stdout.as_fd(), stderr.as_fd()].map(|fd| fd.is_terminal().then(|| reopened(fd)).flatten());
        Self { stdin, stdout, stderr, out, err }
    }

    /// Until the result is dropped, if the command gets a terminal of its own. A terminal without modes stays as it is.
    pub(super) fn enter_raw_mode(&self) -> Option<RawMode<'_>> {
        self.stdin.is_terminal().then(|| RawMode::enter(self.stdin.as_fd()).ok()).flatten()
    }

    pub(super) fn io<'a>(&'a self, interrupts: &'a [SignalForward<'a>]) -> CommandIo<'a> {
        let stdout = self.out.as_ref().map_or(self.stdout.as_fd(), |fd| fd.as_fd());
        let stderr = self.err.as_ref().map_or(self.stderr.as_fd(), |fd| fd.as_fd());
        let stdin = self.stdin.as_fd();
        let (stdin, stdout, stderr) = if stdin.is_terminal() {
            (StdinSource::Terminal(stdin), target(stdout), target(stderr))
        } else {
            (StdinSource::Fd(stdin), OutputTarget::Fd(stdout), OutputTarget::Fd(stderr))
        };
        CommandIo { stdin, stdout, stderr, interrupts, timeout: None, output_bytes: 0 }
    }
}

/// A command with terminal input also writes to a terminal, unless the caller redirects its output.
fn target(fd: BorrowedFd<'_>) -> OutputTarget<'_> {
    if fd.is_terminal() { OutputTarget::Terminal(fd) } else { OutputTarget::Fd(fd) }
}

/// The streams of `--json`: the output is kept on disk until the command has ended.
pub(super) struct SpilledStreams {
    stdin: Stdin,
    pub(super) stdout: Spill,
    pub(super) stderr: Spill,
}

impl SpilledStreams {
    pub(super) fn create(state_dir: &Path) -> Result<Self, ExitCode> {
        let spill = || {
            Spill::create(state_dir).map_err(|error| {
                error::failed_text(&format!("there is no place for the output: {error}"), None)
            })
        };
        Ok(Self { stdin: std::io::stdin(), stdout: spill()?, stderr: spill()? })
    }

    pub(super) fn io<'a>(&'a self, interrupts: &'a [SignalForward<'a>]) -> CommandIo<'a> {
        CommandIo {
            stdin: StdinSource::Fd(self.stdin.as_fd()),
            stdout: OutputTarget::Fd(self.stdout.as_fd()),
            stderr: OutputTarget::Fd(self.stderr.as_fd()),
            interrupts,
            timeout: None,
            output_bytes: 0,
        }
    }
}
