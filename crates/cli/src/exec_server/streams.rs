//! The streams of a Codex process: pipes, or a terminal of its own.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use ringfence_runtime::{CommandIo, OutputTarget, Pty, SignalForward, StdinSource};
use rustix::pipe::PipeFlags;

/// The streams a process requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    NoInput,
    Input,
    Terminal,
}

/// The ends for the sandbox.
#[derive(Debug)]
pub(super) enum SandboxEnds {
    Pipes { stdin: Option<OwnedFd>, stdout: OwnedFd, stderr: OwnedFd },
    Terminal(OwnedFd),
}

/// The ends for this server.
#[derive(Debug)]
pub(super) struct ServerEnds {
    pub(super) input: Option<Arc<OwnedFd>>,
    pub(super) outputs: Vec<(&'static str, OwnedFd)>,
}

/// Both ends of the streams of one process.
#[derive(Debug)]
pub(super) struct ProcessStreams {
    pub(super) inner: SandboxEnds,
    pub(super) outer: ServerEnds,
}

impl SandboxEnds {
    pub(super) fn io<'a>(&'a self, interrupts: &'a [SignalForward<'a>]) -> CommandIo<'a> {
        let (stdin, stdout, stderr) = match self {
            Self::Pipes { stdin, stdout, stderr } => {
                let stdin = stdin.as_ref().map_or(StdinSource::Empty, |fd| StdinSource::Fd(fd.as_fd()));
                (stdin, OutputTarget::Fd(stdout.as_fd()), OutputTarget::Fd(stderr.as_fd()))
            }
            Self::Terminal(fd) => (
                StdinSource::Terminal(fd.as_fd()),
                OutputTarget::Terminal(fd.as_fd()),
                OutputTarget::Terminal(fd.as_fd()),
            ),
        };
        CommandIo { stdin, stdout, stderr, interrupts, timeout: None, output_bytes: 0 }
    }

    /// Where the server explains why a command did not run.
    pub(super) fn errors(&self) -> &OwnedFd {
        match self {
            Self::Pipes { stderr, .. } => stderr,
            Self::Terminal(fd) => fd,
        }
    }
}

pub(super) fn connected(form: StreamKind) -> rustix::io::Result<ProcessStreams> {
    if form == StreamKind::Terminal {
        return terminal();
    }
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
    let ((out, stdout), (err, stderr)) = (pipe()?, pipe()?);
    let (stdin, input) = match form {
        StreamKind::Input => pipe().map(|(read, write)| (Some(read), Some(Arc::new(write))))?,
        StreamKind::NoInput | StreamKind::Terminal => (None, None),
    };
    let outer = ServerEnds { input, outputs: vec![("stdout", out), ("stderr", err)] };
    Ok(ProcessStreams { inner: SandboxEnds::Pipes { stdin, stdout, stderr }, outer })
}

fn terminal() -> rustix::io::Result<ProcessStreams> {
    let Pty { master, slave } = Pty::open(24, 80)?;
    let input = rustix::io::fcntl_dupfd_cloexec(&master, 0)?;
    let outer = ServerEnds { input: Some(Arc::new(input)), outputs: vec![("pty", master)] };
    Ok(ProcessStreams { inner: SandboxEnds::Terminal(slave), outer })
}
