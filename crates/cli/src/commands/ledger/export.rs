use std::ops::ControlFlow;
use std::process::ExitCode;

use ringfence_runtime::ledger::{Event, Listed, Ocsf, Reading, cef};

use super::tail::filter;
use super::{LedgerError, Place, noted};
use crate::args::{ExportFormat, Moment, Wanted};
use crate::commands::run::print_json;
use crate::output::{self, Progress, say};

pub(super) struct Asked {
    pub(super) wanted: Wanted,
    pub(super) since: Option<Moment>,
    pub(super) until: Option<Moment>,
}

pub(super) fn run(place: &Place, format: ExportFormat, asked: &Asked) -> Result<ExitCode, LedgerError> {
    let reader = place.reader()?;
    let mut filter = filter(&reader, &asked.wanted)?;
    filter.since = asked.since.map(|moment| moment.0);
    filter.until = asked.until.map(|moment| moment.0);
    let mut ocsf = match reader.beginning()?.event {
        Event::ChainStarted { chain, .. } => Some(Ocsf::new(chain)),
        _ => None,
    };
    let mut progress = Progress::new("exported");
    let mut count = 0;
    reader.each(&filter, |listed| {
        print(&listed, format, ocsf.as_mut());
        count += 1;
        progress.at(count);
        if output::is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    progress.end();
    noted::reading(place, Reading::Export, usize::try_from(count).unwrap_or(usize::MAX));
    Ok(ExitCode::SUCCESS)
}

fn print(listed: &Listed, format: ExportFormat, ocsf: Option<&mut Ocsf>) {
    match (format, ocsf) {
        (ExportFormat::Ocsf, Some(ocsf)) => ocsf.events(listed).iter().for_each(print_json),
        (ExportFormat::Cef, _) => say!("{}", cef(listed)),
        _ => print_json(listed),
    }
}
