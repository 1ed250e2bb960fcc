//! Log lines on standard error, for whoever asks for them. By default nothing is logged, by the daemon what goes wrong.
//!
//! INVARIANT: a line is written in one place ([`Line`]), after everything secret was taken out of it and everything that a
//! terminal would act upon was escaped.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::str::FromStr;

use ringfence_types::Bytes;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::environment;
use crate::error;
use crate::output;
use crate::redactor::Redactor;

/// What is logged, and how: `debug`, `trace:json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Logs {
    level: LevelFilter,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    People,
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a log level is off, error, warn, info, debug or trace, and may end in `:json`")]
pub(crate) struct UnknownLevel;

impl Logs {
    /// Of what has nobody at its terminal to tell what goes wrong.
    pub(crate) const UNATTENDED: Self = Self { level: LevelFilter::WARN, form: Form::People };

    /// By the number of `-v`.
    pub(crate) fn counted(verbose: u8) -> Option<Self> {
        let level = match verbose {
            0 => return None,
            1 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        Some(Self { level, form: Form::People })
    }
}

impl FromStr for Logs {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        let (level, form) =
            text.strip_suffix(":json").map_or((text, Form::People), |level| (level, Form::Json));
        let level = match level {
            "off" => LevelFilter::OFF,
            "error" => LevelFilter::ERROR,
            "warn" => LevelFilter::WARN,
            "info" => LevelFilter::INFO,
            "debug" => LevelFilter::DEBUG,
            "trace" => LevelFilter::TRACE,
            _ => return Err(UnknownLevel),
        };
        Ok(Self { level, form })
    }
}

/// Begins to log as it was typed, or else as `RINGFENCE_LOG` says, or else as `usual`.
pub(crate) fn begin(typed: Option<Logs>, usual: Option<Logs>) -> Result<(), ExitCode> {
    let asked = typed.map_or_else(asked_for, |typed| Ok(Some(typed)))?;
    let Some(logs) = asked.or(usual) else { return Ok(()) };
    if logs.level == LevelFilter::OFF {
        return Ok(());
    }
    // Before the first line: making it may log.
    if let Some(error) = Redactor::own().unread() {
        let why = error::chain(error);
        output::written(&format!("ringfence: nothing is logged, for what is secret is not known: {why}\n"));
        return Ok(());
    }
    // What libraries log about the bytes that they carry is not for any log.
    let ours = Targets::new().with_target("ringfence", logs.level);
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(Lines(logs.form));
    let registry = tracing_subscriber::registry().with(ours);
    let begun = match logs.form {
        Form::People => tracing::subscriber::set_global_default(registry.with(layer)),
        Form::Json => tracing::subscriber::set_global_default(registry.with(layer.json())),
    };
    begun.map_err(|error| error::failed(&error, None))
}

fn asked_for() -> Result<Option<Logs>, ExitCode> {
    let Some(text) = environment::log() else { return Ok(None) };
    let logs = text.to_str().ok_or(UnknownLevel).and_then(Logs::from_str);
    logs.map(Some).map_err(|error| error::failed_text(&format!("RINGFENCE_LOG: {error}"), None))
}

struct Lines(Form);

impl MakeWriter<'_> for Lines {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line(self.0)
    }
}

/// One event: it comes whole, in one write.
struct Line(Form);

impl io::Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let safe = safe(Redactor::own(), self.0, &String::from_utf8_lossy(line));
        // A terminal that a command has made raw does not return the carriage by itself.
        let end = if io::stderr().is_terminal() { "\r\n" } else { "\n" };
        output::written(&format!("{safe}{end}"));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn safe(redactor: &Redactor, form: Form, line: &str) -> String {
    let clean = redactor.clean(line.trim_end_matches('\n'));
    match form {
        Form::People => Bytes::from(clean.as_str()).display(),
        Form::Json if serde_json::from_str::<serde_json::Value>(&clean).is_ok() => output::plain_json(&clean),
        // What was taken out went across the marks of the format.
        Form::Json => r#"{"fields":{"message":"[redacted]"}}"#.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words_and_nothing_else() {
        assert_eq!("debug".parse(), Ok(Logs { level: LevelFilter::DEBUG, form: Form::People }));
        assert_eq!("trace:json".parse(), Ok(Logs { level: LevelFilter::TRACE, form: Form::Json }));
        for wrong in ["", "DEBUG", "5", "debug:xml", ":json", "debug:json:json", "ringfence=debug"] {
            assert_eq!(wrong.parse::<Logs>(), Err(UnknownLevel), "{wrong}");
        }
        assert_eq!(Logs::counted(0), None);
        assert_eq!(Logs::counted(9).map(|logs| logs.level), Some(LevelFilter::TRACE));
    }

    #[test]
    fn a_line_has_no_secret_and_moves_no_cursor() {
        let value = ["correct", "horse", "battery"].join("-");
        let redactor = Redactor::of("DEPLOY", value.as_bytes());
        let line = format!("opened path=/w/{value}\u{1b}[2J\nfake line\n");
        assert_eq!(
            safe(&redactor, Form::People, &line),
            "opened path=/w/[redacted:secret/DEPLOY]\\u{1b}[2J\\nfake line"
        );
        let json = serde_json::json!({ "fields": { "path": format!("{value}\u{202e}") } }).to_string();
        let expected = r#"{"fields":{"path":"[redacted:secret/DEPLOY]\u202e"}}"#;
        assert_eq!(safe(&redactor, Form::Json, &format!("{json}\n")), expected);
    }

    /// A session id is no credential, and a log without it names nothing. Its token is one.
    #[test]
    fn a_line_names_sessions_and_shows_no_token() {
        let redactor = Redactor::of("DEPLOY", b"correct-horse-battery");
        let id = "ses_7f3a9c04be5182d6a0f19b3c".to_owned();
        let line = format!("a session ended session={id}\n");
        assert_eq!(safe(&redactor, Form::People, &line), line.trim_end());
        let json = serde_json::json!({ "fields": { "session": id } }).to_string();
        assert_eq!(safe(&redactor, Form::Json, &json), json);
        for other in [format!("{id}0"), format!("{id}.9d4e"), id.to_uppercase(), id.replace("ses_", "sid_")] {
            let clean = safe(&redactor, Form::People, &format!("session={other}\n"));
            assert!(!clean.contains(&other), "{clean}");
        }
    }

    /// A value that ends within an escape takes the mark behind it along.
    #[test]
    fn json_that_redaction_broke_is_left_out() {
        let redactor = Redactor::of("DEPLOY", b"hunter2-hunter3\\");
        let json = r#"{"fields":{"path":"hunter2-hunter3\"x"}}"#;
        let safe = safe(&redactor, Form::Json, json);
        assert!(serde_json::from_str::<serde_json::Value>(&safe).is_ok(), "{safe}");
        assert!(!safe.contains("hunter"), "{safe}");
    }
}
