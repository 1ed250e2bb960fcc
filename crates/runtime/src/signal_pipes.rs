//! Signals for a command that runs on another thread.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use ringfence_api::CallSignal;
use ringfence_sandbox::SignalForward;
use rustix::pipe::PipeFlags;
use rustix::process::Signal;

const ALL: [Signal; 7] =
    [Signal::TERM, Signal::KILL, Signal::INT, Signal::HUP, Signal::USR1, Signal::USR2, Signal::WINCH];

/// One pipe per signal: a byte in it means that the signal arrived. The default has none, for a command that has ended.
#[derive(Debug, Default)]
pub struct SignalPipes(Vec<(Signal, OwnedFd, OwnedFd)>);

impl SignalPipes {
    pub fn new() -> io::Result<Self> {
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let pipe = |signal| rustix::pipe::pipe_with(flags).map(|(out, into)| (signal, out, into));
        Ok(Self(ALL.into_iter().map(pipe).collect::<Result<_, _>>()?))
    }

    pub fn send(&self, wanted: Signal) {
        for (_, _, into) in self.0.iter().filter(|(signal, ..)| *signal == wanted) {
            // Fails if the pipe is full or closed: the signal is pending, or the command has ended.
            let _over = rustix::io::write(into, b"x");
        }
    }

    pub fn interrupts(&self) -> Vec<SignalForward<'_>> {
        self.0
            .iter()
            .map(|(signal, out, _)| SignalForward { signal: signal.as_raw(), fd: out.as_fd() })
            .collect()
    }
}

/// The signal that a client asks for.
pub fn signal_of(signal: CallSignal) -> Signal {
    match signal {
        CallSignal::Int => Signal::INT,
        CallSignal::Term => Signal::TERM,
        CallSignal::Kill => Signal::KILL,
        CallSignal::Hup => Signal::HUP,
        CallSignal::Usr1 => Signal::USR1,
        CallSignal::Usr2 => Signal::USR2,
    }
}
