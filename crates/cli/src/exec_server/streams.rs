//! What a process of Codex is connected by: pipes, or a terminal of its own.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use ringfence_runtime::{Interrupt, Io, Pty, Source, Target};
use rustix::pipe::PipeFlags;

/// How a process wants to be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    NoInput,
    Input,
    Terminal,
}

/// The ends that the fence gets.
#[derive(Debug)]
pub(super) enum Inner {
    Pipes { stdin: Option<OwnedFd>, stdout: OwnedFd, stderr: OwnedFd },
    Terminal(OwnedFd),
}

/// The ends that are read and written here.
#[derive(Debug)]
pub(super) struct Outer {
    pub(super) input: Option<Arc<OwnedFd>>,
    pub(super) outputs: Vec<(&'static str, OwnedFd)>,
}

impl Inner {
    pub(super) fn io<'a>(&'a self, interrupts: &'a [Interrupt<'a>]) -> Io<'a> {
        let (stdin, stdout, stderr) = match self {
            Self::Pipes { stdin, stdout, stderr } => {
                let stdin = stdin.as_ref().map_or(Source::Empty, |fd| Source::Fd(fd.as_fd()));
                (stdin, Target::Fd(stdout.as_fd()), Target::Fd(stderr.as_fd()))
            }
            Self::Terminal(fd) => {
                (Source::Terminal(fd.as_fd()), Target::Terminal(fd.as_fd()), Target::Terminal(fd.as_fd()))
            }
        };
        Io { stdin, stdout, stderr, interrupts, timeout: None, output_bytes: 0 }
    }

    /// Where something that did not run is explained.
    pub(super) fn errors(&self) -> &OwnedFd {
        match self {
            Self::Pipes { stderr, .. } => stderr,
            Self::Terminal(fd) => fd,
        }
    }
}

pub(super) fn connected(form: Form) -> rustix::io::Result<(Inner, Outer)> {
    if form == Form::Terminal {
        return terminal();
    }
    let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
    let ((out, stdout), (err, stderr)) = (pipe()?, pipe()?);
    let (stdin, input) = match form {
        Form::Input => pipe().map(|(read, write)| (Some(read), Some(Arc::new(write))))?,
        Form::NoInput | Form::Terminal => (None, None),
    };
    let outer = Outer { input, outputs: vec![("stdout", out), ("stderr", err)] };
    Ok((Inner::Pipes { stdin, stdout, stderr }, outer))
}

fn terminal() -> rustix::io::Result<(Inner, Outer)> {
    let Pty { master, slave } = Pty::open(24, 80)?;
    let input = rustix::io::fcntl_dupfd_cloexec(&master, 0)?;
    let outer = Outer { input: Some(Arc::new(input)), outputs: vec![("pty", master)] };
    Ok((Inner::Terminal(slave), outer))
}
