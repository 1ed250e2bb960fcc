//! Writing to the terminal without dying of it: a closed pipe ends the output, a full disk is a failure.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::args::FAILED;

static LOST: AtomicBool = AtomicBool::new(false);

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
        Err(error) if error.kind() != ErrorKind::BrokenPipe => LOST.store(true, Ordering::Relaxed),
        _ => {}
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
