use std::fs;
use std::process::ExitCode;

use ringfence_runtime::ledger::{Event, Filter, Kind, Location};
use serde::Serialize;

use super::{Form, LedgerError, Place};
use crate::commands::run::print_json;
use crate::output::say;

#[derive(Serialize)]
struct Stats {
    schema: u32,
    records: u64,
    chain: String,
    /// Of the first and of the last record.
    first: String,
    last: String,
    /// `None`: a database does not say.
    bytes: Option<u64>,
    kinds: Vec<(String, u64)>,
    pruned: u64,
    checkpoints: u64,
    /// Records after the last that a checkpoint covers.
    unsigned: u64,
    open: Vec<String>,
}

pub(super) fn run(place: &Place, form: Form) -> Result<ExitCode, LedgerError> {
    let stats = collect(place)?;
    match form {
        Form::Json => print_json(&stats),
        Form::Text => print(&stats),
    }
    Ok(ExitCode::SUCCESS)
}

fn collect(place: &Place) -> Result<Stats, LedgerError> {
    let reader = place.reader()?;
    let beginning = reader.beginning()?;
    let chain = match &beginning.event {
        Event::ChainStarted { chain, .. } => chain.to_string(),
        _ => String::new(),
    };
    let newest = reader.list(&Filter::default(), 1)?;
    let records = newest.first().map_or(0, ringfence_runtime::ledger::Listed::seq);
    let last = reader.tail(1)?.pop().map_or_else(|| beginning.time.clone(), |record| record.time);
    let kinds = reader.counts()?;
    let prunings = reader.of_kinds(&[Kind::Pruned], u32::MAX)?;
    let pruned = prunings.iter().map(|record| match &record.event {
        Event::Pruned { records, .. } => *records,
        _ => 0,
    });
    let signed = reader.newest_checkpoint()?.map_or(0, |newest| newest.checkpoint.last);
    let checkpoints =
        kinds.iter().find(|(kind, _)| kind == Kind::Checkpoint.word()).map_or(0, |(_, count)| *count);
    let bytes = size(&place.location);
    Ok(Stats {
        schema: 1,
        records,
        chain,
        first: beginning.time,
        last,
        bytes,
        pruned: pruned.sum(),
        checkpoints,
        unsigned: records.saturating_sub(signed),
        open: reader.open_transactions()?,
        kinds,
    })
}

fn print(stats: &Stats) {
    let bytes = stats.bytes.map(|bytes| format!(", {bytes} bytes")).unwrap_or_default();
    say!("{} records in chain {}{bytes}", stats.records, stats.chain);
    say!("from {} to {}", stats.first, stats.last);
    say!("{} checkpoints; {} records since the last one", stats.checkpoints, stats.unsigned);
    if stats.pruned > 0 {
        say!("{} records were pruned", stats.pruned);
    }
    for (kind, count) in &stats.kinds {
        say!("{count:>8}  {}", super::shown(kind));
    }
    for transaction in &stats.open {
        say!("open: {}", super::shown(transaction));
    }
}

fn size(location: &Location) -> Option<u64> {
    let Location::File(path) = location else { return None };
    let length = |part: &str| fs::metadata(path.with_extension(part)).map_or(0, |file| file.len());
    Some(["db", "db-wal"].into_iter().map(length).sum())
}
