//! Writing to the terminal without dying of it: a closed pipe ends the output, a full disk is a failure.

use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::args::FAILED;

static LOST: AtomicBool = AtomicBool::new(false);
static CLOSED: AtomicBool = AtomicBool::new(false);

/// What takes less than this needs no word.
const BETWEEN: Duration = Duration::from_millis(500);

/// One line on standard output.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

/// One line on standard error.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::aside(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {note, say};

pub(crate) fn line(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        // Whoever read has had enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => CLOSED.store(true, Ordering::Relaxed),
        Err(_) => LOST.store(true, Ordering::Relaxed),
        Ok(()) => {}
    }
}

/// Whether nobody reads standard output any more.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// How far something long is, on standard error, if a person looks there.
pub(crate) struct Progress {
    verb: &'static str,
    shown: Option<Instant>,
    begun: Instant,
}

impl Progress {
    pub(crate) fn new(verb: &'static str) -> Self {
        Self { verb, shown: None, begun: Instant::now() }
    }

    pub(crate) fn at(&mut self, count: u64) {
        let last = self.shown.unwrap_or(self.begun);
        if last.elapsed() < BETWEEN || !std::io::stderr().is_terminal() {
            return;
        }
        self.shown = Some(Instant::now());
        aside(format_args!("\r{} {count} records", self.verb));
    }

    pub(crate) fn end(self) {
        if self.shown.is_some() {
            aside(format_args!("\r\x1b[K"));
        }
    }
}

pub(crate) fn aside(text: Arguments<'_>) {
    let mut out = std::io::stderr().lock();
    // There is nowhere left to complain.
    let _closed = out.write_fmt(text).and_then(|()| out.flush());
}

/// The exit code of the program: a success whose output was lost is none.
pub(crate) fn settle(code: ExitCode) -> ExitCode {
    if LOST.load(Ordering::Relaxed) && code == ExitCode::SUCCESS {
        aside(format_args!("ringfence: standard output could not be written\n"));
        return ExitCode::from(FAILED);
    }
    code
}
