use std::fs;
use std::process::ExitCode;

use ringfence_ledger::{Event, Kind, LedgerLocation, RecordFilter};
use serde::Serialize;

use super::{LedgerCommandError, LedgerSource, OutputFormat};
use crate::commands::run::print_json;
use crate::output::say;

#[derive(Serialize)]
struct LedgerStatsJson {
    schema: u32,
    records: u64,
    chain: String,
    /// Times of the first and the last record.
    first: String,
    last: String,
    /// `None`: unknown for a database.
    bytes: Option<u64>,
    kinds: Vec<(String, u64)>,
    pruned: u64,
    checkpoints: u64,
    /// Records after the last checkpoint.
    unsigned: u64,
    open: Vec<String>,
}

pub(super) fn run(place: &LedgerSource, form: OutputFormat) -> Result<ExitCode, LedgerCommandError> {
    let stats = collect(place)?;
    match form {
        OutputFormat::Json => print_json(&stats),
        OutputFormat::Text => print(&stats),
    }
    Ok(ExitCode::SUCCESS)
}

fn collect(place: &LedgerSource) -> Result<LedgerStatsJson, LedgerCommandError> {
    let reader = place.reader()?;
    let beginning = reader.beginning()?;
    let chain = match &beginning.event {
        Event::ChainStarted { chain, .. } => chain.to_string(),
        _ => String::new(),
    };
    let newest = reader.list(&RecordFilter::default(), 1)?;
    let records = newest.first().map_or(0, ringfence_ledger::RecordOrPruned::seq);
    let last = reader.tail(1)?.pop().map_or_else(|| beginning.time.clone(), |record| record.time);
    let kinds = reader.counts()?;
    let prunings = reader.of_kinds(&[Kind::LedgerPruned], u32::MAX)?;
    let pruned = prunings.iter().map(|record| match &record.event {
        Event::LedgerPruned { records, .. } => *records,
        _ => 0,
    });
    let signed = reader.newest_checkpoint()?.map_or(0, |newest| newest.checkpoint.last);
    let checkpoints =
        kinds.iter().find(|(kind, _)| kind == Kind::CheckpointSigned.word()).map_or(0, |(_, count)| *count);
    let bytes = size(&place.location);
    Ok(LedgerStatsJson {
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

fn print(stats: &LedgerStatsJson) {
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

fn size(location: &LedgerLocation) -> Option<u64> {
    let LedgerLocation::File(path) = location else { return None };
    let length = |part: &str| fs::metadata(path.with_extension(part)).map_or(0, |file| file.len());
    Some(["db", "db-wal"].into_iter().map(length).sum())
}
