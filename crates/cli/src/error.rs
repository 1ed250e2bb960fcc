//! Shows failures and refusals: what, by which rule, and the next step.

use std::error::Error;
use std::process::ExitCode;

use ringfence_types::Refusal;
pub(crate) use ringfence_types::chain;

use crate::args::FAILED;
use crate::output::note;

pub(crate) const REFUSED: u8 = 126;

/// `ringfence: what: cause: cause` and a hint on its own line.
pub(crate) fn failed(error: &dyn Error, hint: Option<&str>) -> ExitCode {
    failed_text(&chain(error), hint)
}

pub(crate) fn failed_text(what: &str, hint: Option<&str>) -> ExitCode {
    note!("ringfence: {what}");
    if let Some(hint) = hint {
        note!("  hint: {hint}");
    }
    ExitCode::from(FAILED)
}

pub(crate) fn refused(refusal: &Refusal) -> ExitCode {
    note!("ringfence: refused: {}", refusal.message);
    note!("  rule: {}", refusal.rule);
    if let Some(hint) = &refusal.hint {
        note!("  hint: {hint}");
    }
    ExitCode::from(REFUSED)
}
