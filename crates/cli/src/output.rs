//! Writing to the terminal without dying of it: a closed pipe ends the output, a full disk is a failure.

use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence_types::Bytes;
use serde_json::Value;

use crate::args::FAILED;
use crate::redactor::Redactor;

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

/// Standard output in as many steps as `write` takes.
pub(crate) fn stream(write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) {
    let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => CLOSED.store(true, Ordering::Relaxed),
        Err(_) => LOST.store(true, Ordering::Relaxed),
        Ok(()) => {}
    }
}

/// What a command printed, as it is.
pub(crate) fn bytes_out(out: &mut dyn std::io::Write, bytes: &[u8]) {
    match out.write_all(bytes).and_then(|()| out.flush()) {
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

/// On standard error, without anything secret that an error may have picked up on its way.
pub(crate) fn aside(text: Arguments<'_>) {
    written(&Redactor::own().clean(&text.to_string()));
}

/// On standard error, as it is.
pub(crate) fn written(text: &str) {
    let mut out = std::io::stderr().lock();
    // There is nowhere left to complain.
    let _closed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Without anything secret, for what repeats the words of whoever asked.
pub(crate) fn clean(text: &str) -> String {
    Redactor::own().clean(text)
}

/// The same for every string in `value`.
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

/// The same JSON, with what a terminal would act upon or hide as an escape. Outside of strings JSON is plain ASCII.
pub(crate) fn plain_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        let is_plain =
            matches!(c, ' '..='~') || Bytes::from(&*c.encode_utf8(&mut [0; 4])).display() == c.to_string();
        if is_plain {
            out.push(c);
        } else {
            out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out
}

/// The exit code of the program: a success whose output was lost is none.
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
