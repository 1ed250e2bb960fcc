use std::process::ExitCode;

use ringfence_ledger::LedgerReadKind;

use super::{LedgerCommandError, LedgerSource, audit_read};
use crate::commands::run::print_json;

pub(super) fn run(place: &LedgerSource, id: &str) -> Result<ExitCode, LedgerCommandError> {
    let proofs = place.reader()?.prove(id)?;
    proofs.iter().for_each(print_json);
    audit_read::reading(place, LedgerReadKind::Prove, proofs.len());
    Ok(ExitCode::SUCCESS)
}
