//! One call of a session while it lives, and what is known of it afterwards.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::{ApiError, CallInfo, CallSignal, CallState, ErrorCode, TerminalSize};
use ringfence_runtime::Interrupt;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::Signal;
use rustix::termios::Winsize;
use tokio::sync::Notify;

use crate::failure::exhausted;
use crate::output::Output;

/// Whether somebody wants a call to end, for those who wait in it.
#[derive(Debug, Default)]
pub(crate) struct Cancelled {
    why: Mutex<Option<Ending>>,
    changed: Condvar,
}

/// Why a call is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Somebody wants that, or its session is over.
    Cancelled,
    /// The daemon ends, and nobody has said that the call is not wanted.
    WithDaemon,
}

impl Cancelled {
    /// The first reason counts.
    fn set(&self, ending: Ending) {
        let _first = self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(ending);
        self.changed.notify_all();
    }

    /// Why, if that is so by now or becomes so within this time.
    pub(crate) fn within(&self, time: Duration) -> Option<Ending> {
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(why, time, |why| why.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The signals that a command can be sent, each with a pipe that says that it came. None when it is over.
#[derive(Debug, Default)]
pub(crate) struct Bells(Vec<(Signal, OwnedFd, OwnedFd)>);

const SIGNALS: [Signal; 7] =
    [Signal::TERM, Signal::KILL, Signal::INT, Signal::HUP, Signal::USR1, Signal::USR2, Signal::WINCH];

impl Bells {
    fn new() -> io::Result<Self> {
        let bell = |signal: &Signal| -> io::Result<_> {
            let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
            Ok((*signal, read, write))
        };
        SIGNALS.iter().map(bell).collect::<io::Result<_>>().map(Self)
    }

    pub(crate) fn interrupts(&self) -> Vec<Interrupt<'_>> {
        let bells = self.0.iter();
        bells.map(|(signal, bell, _)| Interrupt { signal: signal.as_raw(), fd: bell.as_fd() }).collect()
    }

    fn ring(&self, wanted: Signal) {
        for (_, _, bell) in self.0.iter().filter(|(signal, _, _)| *signal == wanted) {
            // One that rings already, or that nobody hears any more.
            let _full = rustix::io::write(bell, b"x");
        }
    }
}

/// A call.
#[derive(Debug)]
pub(crate) struct LiveCall {
    pub(crate) number: u64,
    pub(crate) cancelled: Arc<Cancelled>,
    pub(crate) output: Output,
    info: Mutex<CallInfo>,
    /// What is held open while it is under way, and no longer.
    ends: Mutex<Ends>,
    ended: Notify,
    is_over: AtomicBool,
    pub(crate) ended_at: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Ends {
    bells: Arc<Bells>,
    inlets: Inlets,
}

/// Where the rest of standard input and the size of the terminal go.
#[derive(Debug, Default)]
pub(crate) struct Inlets {
    pub(crate) input: Option<OwnedFd>,
    pub(crate) terminal: Option<OwnedFd>,
}

impl LiveCall {
    pub(crate) fn new(number: u64, what: String, inlets: Inlets) -> io::Result<Self> {
        let info = CallInfo {
            call: number,
            what,
            state: CallState::Running,
            transaction: None,
            exit_code: None,
            outcome: None,
            refusal: None,
            failure: None,
            hint: None,
            posture: None,
            stdout: None,
            stderr: None,
            note: None,
            leaks: 0,
            unrecorded: None,
        };
        Ok(Self {
            number,
            cancelled: Arc::default(),
            output: Output::default(),
            info: Mutex::new(info),
            ends: Mutex::new(Ends { bells: Arc::new(Bells::new()?), inlets }),
            ended: Notify::new(),
            is_over: AtomicBool::new(false),
            ended_at: Mutex::default(),
        })
    }

    pub(crate) fn bells(&self) -> Arc<Bells> {
        Arc::clone(&self.ends().bells)
    }

    pub(crate) fn info(&self) -> CallInfo {
        self.info_mut().clone()
    }

    /// What it printed as a whole goes. What is kept in pieces stays.
    pub(crate) fn forget_output(&self) {
        let mut info = self.info_mut();
        (info.stdout, info.stderr) = (None, None);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Nothing more becomes of it. What became of it is for whoever waited, with what it printed: as soon as it is over, that goes.
    pub(crate) fn end(&self, change: impl FnOnce(&mut CallInfo)) -> CallInfo {
        let info = {
            let mut info = self.info_mut();
            change(&mut info);
            info.clone()
        };
        *self.ends() = Ends { bells: Arc::default(), inlets: Inlets::default() };
        *self.ended_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.is_over.store(true, Ordering::SeqCst);
        self.output.close();
        self.ended.notify_waiters();
        info
    }

    pub(crate) async fn ended(&self, patience: Duration) {
        let waiting = self.ended.notified();
        tokio::pin!(waiting);
        // Registered before looking: an end in between is not missed.
        let _registered = waiting.as_mut().enable();
        if !self.is_over() {
            // What is told is how it stands, whether that is the end or not.
            let _patience = tokio::time::timeout(patience, waiting).await;
        }
    }

    /// Whoever waits in it goes, and says that it was the daemon that ended. What runs is not touched.
    pub(crate) fn leave(&self) {
        self.cancelled.set(Ending::WithDaemon);
    }

    /// First politely; what waits for a person does not wait any longer.
    pub(crate) fn cancel(&self) {
        self.cancelled.set(Ending::Cancelled);
        self.bells().ring(Signal::TERM);
    }

    pub(crate) fn kill(&self) {
        self.cancelled.set(Ending::Cancelled);
        self.bells().ring(Signal::TERM);
        self.bells().ring(Signal::KILL);
    }

    pub(crate) fn signal(&self, signal: CallSignal) {
        match signal {
            CallSignal::Kill => self.kill(),
            CallSignal::Int => self.bells().ring(Signal::INT),
            CallSignal::Term => self.bells().ring(Signal::TERM),
            CallSignal::Hup => self.bells().ring(Signal::HUP),
            CallSignal::Usr1 => self.bells().ring(Signal::USR1),
            CallSignal::Usr2 => self.bells().ring(Signal::USR2),
        }
    }

    pub(crate) fn resize(&self, size: TerminalSize) -> Result<(), ApiError> {
        let ends = self.ends();
        let terminal = ends.inlets.terminal.as_ref().ok_or_else(|| {
            ApiError::new(ErrorCode::Conflict, "the call has no terminal, or is over")
                .with_hint("start it with `terminal`")
        })?;
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(terminal, size).map_err(|error| {
            ApiError::new(ErrorCode::Internal, format!("the size cannot be set: {error}"))
        })?;
        ends.bells.ring(Signal::WINCH);
        Ok(())
    }

    /// A command that does not read holds nobody up.
    pub(crate) fn write(&self, mut bytes: &[u8], close: Closing) -> Result<(), ApiError> {
        let mut ends = self.ends();
        let Some(pipe) = ends.inlets.input.as_ref() else {
            return Err(ApiError::new(ErrorCode::Conflict, "the call takes no more input")
                .with_hint("start it with `interactive` or `terminal`"));
        };
        while !bytes.is_empty() {
            match rustix::io::write(pipe, bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    return Err(exhausted(format!(
                        "the command does not read: {} bytes were not taken",
                        bytes.len()
                    )));
                }
                Err(error) => {
                    return Err(ApiError::new(
                        ErrorCode::Conflict,
                        format!("the call takes no more input: {error}"),
                    ));
                }
            }
        }
        if close == Closing::Yes {
            ends.inlets.input = None;
        }
        Ok(())
    }

    fn info_mut(&self) -> MutexGuard<'_, CallInfo> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether anything comes after this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    Yes,
    No,
}
