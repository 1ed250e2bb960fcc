//! A running call of a session, and its result afterwards.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::{ApiError, CallInfo, CallSignal, ErrorCode, TerminalSize};
use ringfence_runtime::{SignalPipes, signal_of};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::termios::Winsize;
use tokio::sync::Notify;

use crate::calls::output_buffer::OutputBuffer;
use crate::errors::exhausted;

/// The request to end a call, for threads that wait inside the call.
#[derive(Debug, Default)]
pub(crate) struct CancelFlag {
    why: Mutex<Option<CallEndReason>>,
    changed: Condvar,
}

/// Why a call should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEndReason {
    /// A client cancelled it, or its session ended.
    Cancelled,
    /// The daemon is stopping; the call itself was not cancelled.
    WithDaemon,
}

impl CancelFlag {
    /// The first reason wins.
    fn set(&self, ending: CallEndReason) {
        let _first = self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(ending);
        self.changed.notify_all();
    }

    /// The reason, once set. Waits for at most `time`.
    pub(crate) fn within(&self, time: Duration) -> Option<CallEndReason> {
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(why, time, |why| why.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[derive(Debug)]
pub(crate) struct LiveCall {
    pub(crate) number: u64,
    pub(crate) cancelled: Arc<CancelFlag>,
    pub(crate) output: OutputBuffer,
    info: Mutex<CallInfo>,
    /// Descriptors that are open only while the call runs.
    ends: Mutex<CallHandles>,
    ended: Notify,
    is_over: AtomicBool,
    pub(crate) ended_at: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct CallHandles {
    bells: Arc<SignalPipes>,
    inlets: CallInputs,
}

/// Destinations of standard input and of the terminal size.
#[derive(Debug, Default)]
pub(crate) struct CallInputs {
    pub(crate) input: Option<OwnedFd>,
    pub(crate) terminal: Option<OwnedFd>,
}

impl LiveCall {
    pub(crate) fn new(number: u64, what: String, inlets: CallInputs) -> io::Result<Self> {
        let info = CallInfo::running(number, what);
        Ok(Self {
            number,
            cancelled: Arc::default(),
            output: OutputBuffer::default(),
            info: Mutex::new(info),
            ends: Mutex::new(CallHandles { bells: Arc::new(SignalPipes::new()?), inlets }),
            ended: Notify::new(),
            is_over: AtomicBool::new(false),
            ended_at: Mutex::default(),
        })
    }

    pub(crate) fn bells(&self) -> Arc<SignalPipes> {
        Arc::clone(&self.ends().bells)
    }

    pub(crate) fn info(&self) -> CallInfo {
        self.info_mut().clone()
    }

    /// Drops the captured output. Buffered output stays.
    pub(crate) fn forget_output(&self) {
        let mut info = self.info_mut();
        (info.stdout, info.stderr) = (None, None);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Ends the call. The returned copy has the captured output, because a sweep drops it as soon as the call has
    /// ended.
    pub(crate) fn end(&self, change: impl FnOnce(&mut CallInfo)) -> CallInfo {
        let info = {
            let mut info = self.info_mut();
            change(&mut info);
            info.clone()
        };
        *self.ends() = CallHandles { bells: Arc::default(), inlets: CallInputs::default() };
        *self.ended_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.is_over.store(true, Ordering::SeqCst);
        self.output.close();
        self.ended.notify_waiters();
        info
    }

    pub(crate) async fn ended(&self, patience: Duration) {
        let waiting = self.ended.notified();
        tokio::pin!(waiting);
        // Registered before the check, so that an end in between is not missed.
        let _registered = waiting.as_mut().enable();
        if !self.is_over() {
            // A timeout is no error: the caller reports the current state.
            let _patience = tokio::time::timeout(patience, waiting).await;
        }
    }

    /// Ends waits for an approval because the daemon is stopping. A running command is not touched.
    pub(crate) fn leave(&self) {
        self.cancelled.set(CallEndReason::WithDaemon);
    }

    /// Sends SIGTERM and ends waits for an approval.
    pub(crate) fn cancel(&self) {
        self.cancelled.set(CallEndReason::Cancelled);
        self.bells().send(Signal::TERM);
    }

    pub(crate) fn kill(&self) {
        self.cancelled.set(CallEndReason::Cancelled);
        self.bells().send(Signal::TERM);
        self.bells().send(Signal::KILL);
    }

    pub(crate) fn signal(&self, signal: CallSignal) {
        match signal {
            CallSignal::Kill => self.kill(),
            signal => self.bells().send(signal_of(signal)),
        }
    }

    pub(crate) fn resize(&self, size: TerminalSize) -> Result<(), ApiError> {
        let ends = self.ends();
        let terminal = ends.inlets.terminal.as_ref().ok_or_else(|| {
            ApiError::new(ErrorCode::FailedPrecondition, "the call has no terminal, or has ended")
                .with_hint("start it with `terminal`")
        })?;
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(terminal, size).map_err(|error| {
            ApiError::new(ErrorCode::Internal, format!("the size cannot be set: {error}"))
        })?;
        ends.bells.send(Signal::WINCH);
        Ok(())
    }

    /// Never blocks, also if the command does not read.
    pub(crate) fn write(&self, mut bytes: &[u8], close: InputClose) -> Result<(), ApiError> {
        let mut ends = self.ends();
        let Some(pipe) = ends.inlets.input.as_ref() else {
            return Err(ApiError::new(ErrorCode::FailedPrecondition, "the call takes no more input")
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
                        ErrorCode::FailedPrecondition,
                        format!("the call takes no more input: {error}"),
                    ));
                }
            }
        }
        if close == InputClose::Yes {
            ends.inlets.input = None;
        }
        Ok(())
    }

    fn info_mut(&self) -> MutexGuard<'_, CallInfo> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> MutexGuard<'_, CallHandles> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether standard input is closed after the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputClose {
    Yes,
    No,
}
