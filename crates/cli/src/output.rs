//! Writes to standard output and error: a closed pipe ends the output, a full disk is a failure.

use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence_types::ByteString;
use serde_json::Value;

use crate::args::FAILED;
use crate::redactor::CliRedactor;

static LOST: AtomicBool = AtomicBool::new(false);
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Shorter work shows no progress.
const BETWEEN: Duration = Duration::from_millis(500);

/// Output for people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Text,
    Json,
}

impl From<bool> for OutputFormat {
    /// By the flag `--json`.
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

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
        // The reader closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => CLOSED.store(true, Ordering::Relaxed),
        Err(_) => LOST.store(true, Ordering::Relaxed),
        Ok(()) => {}
    }
}

/// Standard output in as many steps as `write` takes.
pub(crate) fn stream(write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) {
    let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => CLOSED.store(true, Ordering::Relaxed),
        Err(_) => LOST.store(true, Ordering::Relaxed),
        Ok(()) => {}
    }
}

/// Passes on the output of a command unchanged.
pub(crate) fn bytes_out(out: &mut dyn std::io::Write, bytes: &[u8]) {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => CLOSED.store(true, Ordering::Relaxed),
        Err(_) => LOST.store(true, Ordering::Relaxed),
        Ok(()) => {}
    }
}

/// Whether standard output has no reader any more.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Progress of long work, on standard error if that is a terminal.
pub(crate) struct ProgressLine {
    verb: &'static str,
    shown: Option<Instant>,
    begun: Instant,
}

impl ProgressLine {
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

/// Writes to standard error, redacted: an error may contain a secret.
pub(crate) fn aside(text: Arguments<'_>) {
    written(&CliRedactor::own().clean(&text.to_string()));
}

/// Writes to standard error unchanged.
pub(crate) fn written(text: &str) {
    let mut out = std::io::stderr().lock();
    // There is no stream left for an error.
    let _closed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Redacts a text that may repeat the caller's words.
pub(crate) fn clean(text: &str) -> String {
    CliRedactor::own().clean(text)
}

/// Redacts every string in `value`.
pub(crate) fn clean_json(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(clean(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(clean_json).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (clean(&name), clean_json(value))).collect())
        }
        other => other,
    }
}

/// Escapes characters that a terminal would interpret or hide. Outside strings JSON is plain ASCII.
pub(crate) fn plain_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        let is_plain = matches!(c, ' '..='~')
            || ByteString::from(&*c.encode_utf8(&mut [0; 4])).display() == c.to_string();
        if is_plain {
            out.push(c);
        } else {
            out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out
}

/// The exit code of the program: a success with lost output is a failure.
pub(crate) fn settle(code: ExitCode) -> ExitCode {
    if LOST.load(Ordering::Relaxed) && code == ExitCode::SUCCESS {
        aside(format_args!("ringfence: standard output could not be written\n"));
        return ExitCode::from(FAILED);
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_character_that_a_terminal_acts_upon() {
        let text = "é\u{1b}\u{7f}\u{9b}2J\u{202e}\u{200b}\u{e0041}";
        let json = plain_json(&serde_json::to_string(text).unwrap());
        assert_eq!(json, r#""é\u001b\u007f\u009b2J\u202e\u200b\udb40\udc41""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
