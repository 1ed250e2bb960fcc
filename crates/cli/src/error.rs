//! How failures and refusals are shown: what, by which rule, what to do.

use std::error::Error;
use std::process::ExitCode;

use ringfence_types::Refusal;

use crate::args::FAILED;

pub(crate) const REFUSED: u8 = 126;

/// `ringfence: what: cause: cause` and a hint on its own line.
pub(crate) fn failed(error: &dyn Error, hint: Option<&str>) -> ExitCode {
    failed_text(&chain(error), hint)
}

pub(crate) fn failed_text(what: &str, hint: Option<&str>) -> ExitCode {
    eprintln!("ringfence: {what}");
    if let Some(hint) = hint {
        eprintln!("  hint: {hint}");
    }
    ExitCode::from(FAILED)
}

pub(crate) fn refused(refusal: &Refusal) -> ExitCode {
    eprintln!("ringfence: refused: {}", refusal.message);
    eprintln!("  rule: {}", refusal.rule);
    if let Some(hint) = &refusal.hint {
        eprintln!("  hint: {hint}");
    }
    ExitCode::from(REFUSED)
}

pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
