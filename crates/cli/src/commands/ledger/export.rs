use std::ops::ControlFlow;
use std::process::ExitCode;

use ringfence_ledger::{Event, LedgerReadKind, OcsfExporter, RecordOrPruned, cef};

use super::tail::filter;
use super::{LedgerCommandError, LedgerSource, audit_read};
use crate::args::{ExportFormat, RecordFilterArgs, TimeArg};
use crate::commands::run::print_json;
use crate::output::{self, ProgressLine, say};

pub(super) struct ExportOptions {
    pub(super) wanted: RecordFilterArgs,
    pub(super) since: Option<TimeArg>,
    pub(super) until: Option<TimeArg>,
}

pub(super) fn run(
    place: &LedgerSource,
    format: ExportFormat,
    asked: &ExportOptions,
) -> Result<ExitCode, LedgerCommandError> {
    let reader = place.reader()?;
    let mut filter = filter(&reader, &asked.wanted)?;
    filter.since = asked.since.map(|moment| moment.0);
    filter.until = asked.until.map(|moment| moment.0);
    let mut ocsf = match reader.beginning()?.event {
        Event::ChainStarted { chain, .. } => Some(OcsfExporter::new(chain)),
        _ => None,
    };
    let mut progress = ProgressLine::new("exported");
    let mut count = 0;
    reader.each(&filter, |listed| {
        print(&listed, format, ocsf.as_mut());
        count += 1;
        progress.at(count);
        if output::is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    progress.end();
    audit_read::reading(place, LedgerReadKind::Export, usize::try_from(count).unwrap_or(usize::MAX));
    Ok(ExitCode::SUCCESS)
}

fn print(listed: &RecordOrPruned, format: ExportFormat, ocsf: Option<&mut OcsfExporter>) {
    match (format, ocsf) {
        (ExportFormat::Ocsf, Some(ocsf)) => ocsf.events(listed).iter().for_each(print_json),
        (ExportFormat::Cef, _) => say!("{}", cef(listed)),
        _ => print_json(listed),
    }
}
