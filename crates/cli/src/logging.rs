//! Log lines on standard error. By default commands log nothing and the daemon logs warnings.
//!
//! INVARIANT: all lines go through [`LogLine`], which redacts secrets and escapes what a terminal would
//! interpret.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::str::FromStr;

use ringfence_types::ByteString;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::environment;
use crate::error;
use crate::output;
use crate::redactor::CliRedactor;

/// Level and format: `debug`, `trace:json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogSettings {
    level: LevelFilter,
    form: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogFormat {
    People,
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a log level is off, error, warn, info, debug or trace, and may end in `:json`")]
pub(crate) struct UnknownLevel;

impl LogSettings {
    /// For processes without a user at the terminal.
    pub(crate) const UNATTENDED: Self = Self { level: LevelFilter::WARN, form: LogFormat::People };

    /// By the number of `-v`.
    pub(crate) fn counted(verbose: u8) -> Option<Self> {
        let level = match verbose {
            0 => return None,
            1 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        Some(Self { level, form: LogFormat::People })
    }
}

impl FromStr for LogSettings {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        let (level, form) =
            text.strip_suffix(":json").map_or((text, LogFormat::People), |level| (level, LogFormat::Json));
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

/// Starts logging as given by the flag, else by `RINGFENCE_LOG`, else by `usual`.
pub(crate) fn begin(typed: Option<LogSettings>, usual: Option<LogSettings>) -> Result<(), ExitCode> {
    let asked = typed.map_or_else(asked_for, |typed| Ok(Some(typed)))?;
    let Some(logs) = asked.or(usual) else { return Ok(()) };
    if logs.level == LevelFilter::OFF {
        return Ok(());
    }
    // Before the first line, because building the redactor may log.
    if let Some(error) = CliRedactor::own().unread() {
        let why = error::chain(error);
        output::written(&format!("ringfence: nothing is logged, for what is secret is not known: {why}\n"));
        return Ok(());
    }
    // Logs of libraries may contain the bytes they transfer, so only our own targets are enabled.
    let ours = Targets::new().with_target("ringfence", logs.level);
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(LogFormatter(logs.form));
    let registry = tracing_subscriber::registry().with(ours);
    let begun = match logs.form {
        LogFormat::People => tracing::subscriber::set_global_default(registry.with(layer)),
        LogFormat::Json => tracing::subscriber::set_global_default(registry.with(layer.json())),
    };
    begun.map_err(|error| error::failed(&error, None))
}

fn asked_for() -> Result<Option<LogSettings>, ExitCode> {
    let Some(text) = environment::log() else { return Ok(None) };
    let logs = text.to_str().ok_or(UnknownLevel).and_then(LogSettings::from_str);
    logs.map(Some).map_err(|error| error::failed_text(&format!("RINGFENCE_LOG: {error}"), None))
}

struct LogFormatter(LogFormat);

impl MakeWriter<'_> for LogFormatter {
    type Writer = LogLine;

    fn make_writer(&self) -> LogLine {
        LogLine(self.0)
    }
}

/// One event, written in a single write.
struct LogLine(LogFormat);

impl io::Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let safe = safe(CliRedactor::own(), self.0, &String::from_utf8_lossy(line));
        // A terminal in raw mode needs the carriage return.
        let end = if io::stderr().is_terminal() { "\r\n" } else { "\n" };
        output::written(&format!("{safe}{end}"));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn safe(redactor: &CliRedactor, form: LogFormat, line: &str) -> String {
    let clean = redactor.clean(line.trim_end_matches('\n'));
    match form {
        LogFormat::People => ByteString::from(clean.as_str()).display(),
        LogFormat::Json if serde_json::from_str::<serde_json::Value>(&clean).is_ok() => {
            output::plain_json(&clean)
        }
        // Redaction removed part of the JSON syntax.
        LogFormat::Json => r#"{"fields":{"message":"[redacted]"}}"#.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words_and_nothing_else() {
        assert_eq!("debug".parse(), Ok(LogSettings { level: LevelFilter::DEBUG, form: LogFormat::People }));
        assert_eq!(
            "trace:json".parse(),
            Ok(LogSettings { level: LevelFilter::TRACE, form: LogFormat::Json })
        );
        for wrong in ["", "DEBUG", "5", "debug:xml", ":json", "debug:json:json", "ringfence=debug"] {
            assert_eq!(wrong.parse::<LogSettings>(), Err(UnknownLevel), "{wrong}");
        }
        assert_eq!(LogSettings::counted(0), None);
        assert_eq!(LogSettings::counted(9).map(|logs| logs.level), Some(LevelFilter::TRACE));
    }

    #[test]
    fn a_line_has_no_secret_and_moves_no_cursor() {
        let value = ["correct", "horse", "battery"].join("-");
        let redactor = CliRedactor::of("DEPLOY", value.as_bytes());
        let line = format!("opened path=/w/{value}\u{1b}[2J\nfake line\n");
        assert_eq!(
            safe(&redactor, LogFormat::People, &line),
            "opened path=/w/[redacted:secret/DEPLOY]\\u{1b}[2J\\nfake line"
        );
        let json = serde_json::json!({ "fields": { "path": format!("{value}\u{202e}") } }).to_string();
        let expected = r#"{"fields":{"path":"[redacted:secret/DEPLOY]\u202e"}}"#;
        assert_eq!(safe(&redactor, LogFormat::Json, &format!("{json}\n")), expected);
    }

    /// A session id is no credential and identifies the log line. Its token is a credential.
    #[test]
    fn a_line_names_sessions_and_shows_no_token() {
        let redactor = CliRedactor::of("DEPLOY", b"correct-horse-battery");
        let id = "ses_7f3a9c04be5182d6a0f19b3c".to_owned();
        let line = format!("a session ended session={id}\n");
        assert_eq!(safe(&redactor, LogFormat::People, &line), line.trim_end());
        let json = serde_json::json!({ "fields": { "session": id } }).to_string();
        assert_eq!(safe(&redactor, LogFormat::Json, &json), json);
        for other in [format!("{id}0"), format!("{id}.9d4e"), id.to_uppercase(), id.replace("ses_", "sid_")] {
            let clean = safe(&redactor, LogFormat::People, &format!("session={other}\n"));
            assert!(!clean.contains(&other), "{clean}");
        }
    }

    /// A value that ends within an escape takes the following quote along.
    #[test]
    fn json_that_redaction_broke_is_left_out() {
        let redactor = CliRedactor::of("DEPLOY", b"hunter2-hunter3\\");
        let json = r#"{"fields":{"path":"hunter2-hunter3\"x"}}"#;
        let safe = safe(&redactor, LogFormat::Json, json);
        assert!(serde_json::from_str::<serde_json::Value>(&safe).is_ok(), "{safe}");
        assert!(!safe.contains("hunter"), "{safe}");
    }
}
