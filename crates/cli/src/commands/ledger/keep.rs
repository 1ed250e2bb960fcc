//! What changes the ledger on purpose: pruning, signing, keys, and going on after a break.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use ringfence_runtime::ledger::{
    self, Anchored, Class, Event, Ledger, Location, Node, OpenError, Pruning, prunable,
};
use ringfence_types::Bytes;
use serde_json::json;

use super::{Form, LedgerError, Place, noted};
use crate::args::Span;
use crate::commands::run::print_json;
use crate::error;
use crate::output::{note, say};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Tell,
    Do,
}

pub(super) fn prune(
    place: &Place,
    older_than: Span,
    (classes, effect): (Vec<Class>, Effect),
    form: Form,
) -> Result<ExitCode, LedgerError> {
    let classes = if classes.is_empty() { vec![Class::Activity, Class::Consent] } else { classes };
    let pruning = Pruning { before: older_than.ago(), classes };
    let records = match effect {
        Effect::Tell => prunable(&place.reader()?, &pruning)?.len() as u64,
        Effect::Do => {
            let ledger = place.ledger()?;
            let records = ledger.prune(&pruning, &noted::principal())?;
            tell_unanchored(&ledger);
            records
        }
    };
    match (form, effect) {
        (Form::Json, _) => {
            print_json(
                &json!({ "schema": 1, "records": records, "pruned": effect == Effect::Do, "before": pruning.before }),
            );
        }
        (Form::Text, Effect::Tell) => {
            say!("{records} records from before {} would be pruned", pruning.before)
        }
        (Form::Text, Effect::Do) => say!("{records} records from before {} were pruned", pruning.before),
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn checkpoint(place: &Place, out: Option<&Path>, form: Form) -> Result<ExitCode, LedgerError> {
    let ledger = place.ledger()?;
    let Some(made) = ledger.checkpoint()? else { return Ok(ExitCode::SUCCESS) };
    tell_unanchored(&ledger);
    if let Some(out) = out {
        write(out, &made).map_err(|source| LedgerError::Write { path: out.to_owned(), source })?;
    }
    match (form, out) {
        (Form::Json, _) => print_json(&made),
        (Form::Text, out) => {
            say!("records up to {} are signed", made.checkpoint.last);
            say!("key {}", made.checkpoint.key);
            match out {
                Some(out) => {
                    say!("written to {}; keep it where nobody who can write the ledger can write", shown(out))
                }
                None => say!("  `--out FILE` writes it to a file that you can keep elsewhere"),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write(out: &Path, made: &Anchored) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(out)?;
    let mut text = serde_json::to_vec(made)?;
    text.push(b'\n');
    file.write_all(&text)?;
    file.sync_all()
}

pub(super) fn rotate_key(place: &Place, form: Form) -> Result<ExitCode, LedgerError> {
    let ledger = place.ledger()?;
    let key = ledger.rotate_key()?;
    tell_unanchored(&ledger);
    match form {
        Form::Json => print_json(&json!({ "schema": 1, "key": key })),
        Form::Text => {
            say!("from here on this key vouches: {key}\n  the old one has signed the hand-over and is gone")
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn acknowledge(
    place: &Place,
    chain: Option<&str>,
    reason: &str,
    form: Form,
) -> Result<ExitCode, LedgerError> {
    if reason.trim().is_empty() {
        return Err(LedgerError::NoReason);
    }
    let path = match (&place.location, chain) {
        (Location::File(path), None) => path,
        (Location::File(_), Some(_)) => return Err(LedgerError::OneChain),
        (Location::Node(node), None) => return acknowledge_node(place, node, reason, form),
        (Location::Node(node), Some(chain)) => {
            let event = node.acknowledging(chain, reason, noted::principal()).map_err(OpenError::from)?;
            return accept(place, &event, form);
        }
    };
    let done = ledger::acknowledge(path, &place.settings, reason, noted::principal())?;
    match form {
        Form::Json => print_json(&json!({
            "schema": 1, "aside": Bytes::from(done.aside.as_path()), "problem": done.problem,
        })),
        Form::Text => {
            say!("the broken chain is kept in {}", shown(&done.aside));
            say!("  {}", super::shown(&done.problem));
            say!("a new chain has begun; it names the old one, you and your reason");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The chain of another node, as it is.
fn accept(place: &Place, event: &Event, form: Form) -> Result<ExitCode, LedgerError> {
    let ledger = place.ledger()?;
    let receipt = ledger.append(event)?;
    ledger.checkpoint()?;
    match form {
        Form::Json => print_json(&json!({ "schema": 1, "record": receipt.seq() })),
        Form::Text => say!("record {} accepts that chain as it is now; `verify` here says so", receipt.seq()),
    }
    Ok(ExitCode::SUCCESS)
}

fn acknowledge_node(place: &Place, node: &Node, reason: &str, form: Form) -> Result<ExitCode, LedgerError> {
    let chain = node.acknowledge(&place.settings, reason, noted::principal()).map_err(OpenError::from)?;
    // The anchor learns of the new chain at once; if that fails, the next checkpoint is another chance.
    let _checkpoint = place.ledger()?.checkpoint();
    match form {
        Form::Json => print_json(&json!({ "schema": 1, "chain": chain })),
        Form::Text => {
            say!("the chain of node {} is set aside in the database", super::shown(node.name()));
            say!("chain {chain} has begun; it names the old one, you and your reason");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A checkpoint that did not get to its anchor protects less than somebody thinks.
fn tell_unanchored(ledger: &Ledger) {
    let _unsigned = ledger.close();
    if let Some(error) = ledger.unanchored() {
        note!("ringfence: note: the checkpoint is not anchored: {}", error::chain(&error));
    }
}

fn shown(path: &Path) -> String {
    Bytes::from(path).display()
}
