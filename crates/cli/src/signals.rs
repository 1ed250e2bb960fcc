//! Signals for commands that run on other threads.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

pub(crate) use ringfence_mcp::input::JobSignal;
use ringfence_runtime::SignalForward;
use rustix::pipe::PipeFlags;

const ALL: [JobSignal; 4] = [JobSignal::Term, JobSignal::Int, JobSignal::Hup, JobSignal::Kill];

fn number(signal: JobSignal) -> i32 {
    use rustix::process::Signal;
    match signal {
        JobSignal::Term => Signal::TERM,
        JobSignal::Int => Signal::INT,
        JobSignal::Hup => Signal::HUP,
        JobSignal::Kill => Signal::KILL,
    }
    .as_raw()
}

/// One pipe per signal: a byte in it means that the signal arrived.
#[derive(Debug)]
pub(crate) struct SignalPipes(Vec<(JobSignal, OwnedFd, OwnedFd)>);

impl SignalPipes {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let pipe = |signal| rustix::pipe::pipe_with(flags).map(|(out, into)| (signal, out, into));
        Ok(Self(ALL.into_iter().map(pipe).collect::<Result<_, _>>()?))
    }

    pub(crate) fn send(&self, wanted: JobSignal) {
        for (_, _, into) in self.0.iter().filter(|(signal, ..)| *signal == wanted) {
            // An ended job does not read; a running one will read later.
            let _over = rustix::io::write(into, b"x");
        }
    }

    pub(crate) fn interrupts(&self) -> Vec<SignalForward<'_>> {
        self.0
            .iter()
            .map(|(signal, out, _)| SignalForward { signal: number(*signal), fd: out.as_fd() })
            .collect()
    }
}
