//! Operations that change the ledger on purpose: pruning, signing, keys, and starting a new chain after
//! damage.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use ringfence_ledger::{
    AnchorLine, Event, Ledger, LedgerLocation, LedgerNode, LedgerOpenError, PruneRequest, RetentionClass,
    prunable,
};
use ringfence_types::ByteString;
use serde_json::json;

use super::{LedgerCommandError, LedgerSource, OutputFormat, audit_read};
use crate::args::AgeArg;
use crate::commands::run::print_json;
use crate::error;
use crate::output::{note, say};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ApplyMode {
    Tell,
    Do,
}

pub(super) fn prune(
    place: &LedgerSource,
    older_than: AgeArg,
    classes: Vec<RetentionClass>,
    effect: ApplyMode,
    form: OutputFormat,
) -> Result<ExitCode, LedgerCommandError> {
    let classes =
        if classes.is_empty() { vec![RetentionClass::Activity, RetentionClass::Consent] } else { classes };
    let pruning = PruneRequest { before: older_than.ago(), classes };
    let records = match effect {
        ApplyMode::Tell => prunable(&place.reader()?, &pruning)?.len() as u64,
        ApplyMode::Do => {
            let ledger = place.ledger()?;
            let records = ledger.prune(&pruning, &audit_read::principal())?;
            tell_unanchored(&ledger);
            records
        }
    };
    match (form, effect) {
        (OutputFormat::Json, _) => {
            print_json(
                &json!({ "schema": 1, "records": records, "pruned": effect == ApplyMode::Do, "before": pruning.before }),
            );
        }
        (OutputFormat::Text, ApplyMode::Tell) => {
            say!("{records} records from before {} would be pruned", pruning.before)
        }
        (OutputFormat::Text, ApplyMode::Do) => {
            say!("{records} records from before {} were pruned", pruning.before)
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn checkpoint(
    place: &LedgerSource,
    out: Option<&Path>,
    form: OutputFormat,
) -> Result<ExitCode, LedgerCommandError> {
    let ledger = place.ledger()?;
    let Some(made) = ledger.checkpoint()? else { return Ok(ExitCode::SUCCESS) };
    tell_unanchored(&ledger);
    if let Some(out) = out {
        write(out, &made).map_err(|source| LedgerCommandError::Write { path: out.to_owned(), source })?;
    }
    match (form, out) {
        (OutputFormat::Json, _) => print_json(&made),
        (OutputFormat::Text, out) => {
            say!("records up to {} are signed", made.checkpoint.last);
            say!("key {}", made.checkpoint.key);
            match out {
                Some(out) => {
                    say!(
                        "written to {}; keep it where the writers of the ledger cannot change it",
                        shown(out)
                    )
                }
                None => say!("  `--out FILE` writes it to a file that you can keep elsewhere"),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write(out: &Path, made: &AnchorLine) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(out)?;
    let mut text = serde_json::to_vec(made)?;
    text.push(b'\n');
    file.write_all(&text)?;
    file.sync_all()
}

pub(super) fn rotate_key(place: &LedgerSource, form: OutputFormat) -> Result<ExitCode, LedgerCommandError> {
    let ledger = place.ledger()?;
    let key = ledger.rotate_key()?;
    tell_unanchored(&ledger);
    match form {
        OutputFormat::Json => print_json(&json!({ "schema": 1, "key": key })),
        OutputFormat::Text => {
            say!("new signing key: {key}\n  the old key has signed the change and is deleted")
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Archives a broken chain and starts a new one.
pub(super) fn restart(
    place: &LedgerSource,
    reason: &str,
    form: OutputFormat,
) -> Result<ExitCode, LedgerCommandError> {
    check_reason(reason)?;
    let path = match &place.location {
        LedgerLocation::File(path) => path,
        LedgerLocation::Node(node) => return restart_node(place, node, reason, form),
    };
    let done = ringfence_ledger::restart(path, &place.settings, reason, audit_read::principal())?;
    match form {
        OutputFormat::Json => print_json(&json!({
            "schema": 1, "archive": ByteString::from(done.aside.as_path()), "problem": done.problem,
        })),
        OutputFormat::Text => {
            say!("the broken chain is archived in {}", shown(&done.aside));
            say!("  {}", super::shown(&done.problem));
            say!("a new chain has started; its first record names the archive, you and your reason");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn check_reason(reason: &str) -> Result<(), LedgerCommandError> {
    if reason.trim().is_empty() { Err(LedgerCommandError::NoReason) } else { Ok(()) }
}

/// Accepts the chain of another node as it was archived.
pub(super) fn acknowledge(
    place: &LedgerSource,
    chain: &str,
    reason: &str,
    form: OutputFormat,
) -> Result<ExitCode, LedgerCommandError> {
    check_reason(reason)?;
    let LedgerLocation::Node(node) = &place.location else { return Err(LedgerCommandError::OneChain) };
    let event = node.acknowledging(chain, reason, audit_read::principal()).map_err(LedgerOpenError::from)?;
    accept(place, &event, form)
}

fn accept(place: &LedgerSource, event: &Event, form: OutputFormat) -> Result<ExitCode, LedgerCommandError> {
    let ledger = place.ledger()?;
    let receipt = ledger.append(event)?;
    ledger.checkpoint()?;
    match form {
        OutputFormat::Json => print_json(&json!({ "schema": 1, "record": receipt.seq() })),
        OutputFormat::Text => {
            say!("record {} accepts that chain in its current state", receipt.seq())
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn restart_node(
    place: &LedgerSource,
    node: &LedgerNode,
    reason: &str,
    form: OutputFormat,
) -> Result<ExitCode, LedgerCommandError> {
    let chain =
        node.restart(&place.settings, reason, audit_read::principal()).map_err(LedgerOpenError::from)?;
    // Anchors the new chain at once; on failure the next checkpoint retries.
    let _checkpoint = place.ledger()?.checkpoint();
    match form {
        OutputFormat::Json => print_json(&json!({ "schema": 1, "chain": chain })),
        OutputFormat::Text => {
            say!("the chain of node {} is archived in the database", super::shown(node.name()));
            say!("chain {chain} has started; its first record names the old one, you and your reason");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Warns about a checkpoint without an anchor, which protects less than expected.
fn tell_unanchored(ledger: &Ledger) {
    let _unsigned = ledger.close();
    if let Some(error) = ledger.unanchored() {
        note!("ringfence: warning: the checkpoint is not anchored: {}", error::chain(&error));
    }
}

fn shown(path: &Path) -> String {
    ByteString::from(path).display()
}
