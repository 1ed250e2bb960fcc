use std::process::ExitCode;

use ringfence_runtime::ledger::Reading;

use super::{LedgerError, Place, noted};
use crate::commands::run::print_json;

pub(super) fn run(place: &Place, id: &str) -> Result<ExitCode, LedgerError> {
    let proofs = place.reader()?.prove(id)?;
    proofs.iter().for_each(print_json);
    noted::reading(place, Reading::Prove, proofs.len());
    Ok(ExitCode::SUCCESS)
}
