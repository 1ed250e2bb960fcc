use std::fs;
use std::path::Path;
use std::process::ExitCode;

use ringfence_ledger::{
    AnchorLine, ChainHead, Checkpoint, DatabaseVerification, ExpectedHead, InclusionProof, LedgerLocation,
    SetAside, Verification, VerifyError, verify_database, verify_key, verify_with,
};
use serde::Serialize;

use super::{LedgerCommandError, LedgerSource, OutputFormat, shown};
use crate::args::VerifyArgs;
use crate::commands::run::print_json;
use crate::error;
use crate::output::{ProgressLine, note, say};

/// `verify` found a flaw.
const BROKEN: u8 = 1;

#[derive(Default, Serialize)]
struct VerifyJson {
    schema: u32,
    valid: bool,
    records: u64,
    head: Option<String>,
    format: i64,
    chain: Option<String>,
    keys: Vec<String>,
    checkpoints: u64,
    signed: u64,
    pruned: u64,
    incomplete: Vec<String>,
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aside: Option<SetAside>,
}

pub(super) fn run(place: &LedgerSource, asked: &VerifyArgs) -> Result<ExitCode, LedgerCommandError> {
    let form = OutputFormat::from(asked.json);
    if let Some(proof) = &asked.proof {
        return proofs(proof, asked.key.as_deref(), form);
    }
    let head = asked.head.as_deref().map(str::parse::<ChainHead>).transpose()?;
    let checkpoint = asked.checkpoint.as_deref().map(read_checkpoint).transpose()?;
    let expected =
        ExpectedHead { head: head.as_ref(), checkpoint: checkpoint.as_ref(), key: asked.key.as_deref() };
    let checked = match (&asked.file, &place.location) {
        // A copy can be verified without the key.
        (Some(path), _) => in_file(path, expected),
        (None, LedgerLocation::File(path)) => {
            in_file(path, expected).and_then(|found| verify_key(path).map(|()| found))
        }
        (None, LedgerLocation::Node(node)) => verify_database(node, expected),
    };
    match checked {
        Ok(found) if !found.problems.is_empty() => {
            report_chains(&found, form);
            found.problems.iter().for_each(|problem| report_problem(error::chain(problem), form));
            Ok(ExitCode::from(BROKEN))
        }
        Ok(found) => {
            let anchored = if asked.file.is_none() { check_anchor(place)? } else { None };
            Ok(report(&found, anchored, form))
        }
        Err(VerifyError::Open(error)) if !is_flaw(&error) => Err(error.into()),
        Err(error) => Ok(broken(error::chain(&error), form)),
    }
}

fn in_file(path: &Path, expected: ExpectedHead<'_>) -> Result<DatabaseVerification, VerifyError> {
    let mut progress = ProgressLine::new("checked");
    let checked = verify_with(path, expected, &mut |records| progress.at(records));
    progress.end();
    // With one chain the node's name tells nothing.
    checked.map(|found| DatabaseVerification {
        chains: vec![Verification { node: None, ..found }],
        ..DatabaseVerification::default()
    })
}

/// A file that is no ledger is a flaw; an unreachable one is not.
fn is_flaw(error: &ringfence_ledger::LedgerOpenError) -> bool {
    use ringfence_ledger::LedgerOpenError;
    matches!(error, LedgerOpenError::NotALedger { .. } | LedgerOpenError::Damaged { .. })
}

/// Compares with the anchored checkpoints, if an anchor is configured.
fn check_anchor(place: &LedgerSource) -> Result<Option<String>, LedgerCommandError> {
    if place.settings.anchor.is_none() {
        return Ok(None);
    }
    Ok(place.ledger()?.broken().map(|broken| broken.to_string()))
}

fn report(found: &DatabaseVerification, anchored: Option<String>, form: OutputFormat) -> ExitCode {
    if let Some(problem) = anchored {
        return broken(format!("the ledger is broken: {problem}"), form);
    }
    report_chains(found, form);
    ExitCode::SUCCESS
}

fn report_chains(found: &DatabaseVerification, form: OutputFormat) {
    found.chains.iter().for_each(|found| report_chain(found, form));
    found.aside.iter().for_each(|aside| report_aside(aside, form));
}

/// Always reports a chain that was set aside.
fn report_aside(aside: &SetAside, form: OutputFormat) {
    if let OutputFormat::Json = form {
        let checked = VerifyJson {
            schema: 1,
            valid: true,
            records: aside.records,
            chain: Some(aside.chain.clone()),
            node: Some(aside.node.clone()),
            aside: Some(aside.clone()),
            ..VerifyJson::default()
        };
        return print_json(&checked);
    }
    say!(
        "set aside: chain {} of node {}, {} records",
        shown(&aside.chain),
        shown(&aside.node),
        aside.records
    );
    match (&aside.by, &aside.continued_by) {
        (Some(by), Some(chain)) => {
            say!("  by {}; chain {} continues it", shown(&by.to_string()), shown(chain))
        }
        _ => say!("  acknowledged by this node"),
    }
    if let Some(reason) = &aside.reason {
        say!("  reason: {}", shown(reason));
    }
    if let Some(problem) = &aside.problem {
        say!("  problem: {}", shown(problem));
    }
    if let Some(flaw) = &aside.flaw {
        say!("  its records do not verify: {}", shown(flaw));
    }
    if !aside.is_signed {
        say!("  its key has not signed that; this node accepts it by its own records");
    }
}

fn report_chain(found: &Verification, form: OutputFormat) {
    let checked = VerifyJson {
        schema: 1,
        valid: true,
        records: found.records,
        head: found.head.as_ref().map(ToString::to_string),
        format: found.format,
        chain: found.chain.as_ref().map(ToString::to_string),
        keys: found.keys.clone(),
        checkpoints: found.checkpoints,
        signed: found.signed,
        pruned: found.pruned,
        incomplete: found.incomplete.iter().map(ToString::to_string).collect(),
        problem: None,
        node: found.node.clone(),
        aside: None,
    };
    match form {
        OutputFormat::Json => print_json(&checked),
        OutputFormat::Text => print(&checked),
    }
}

fn broken(problem: String, form: OutputFormat) -> ExitCode {
    report_problem(problem, form);
    ExitCode::from(BROKEN)
}

fn report_problem(problem: String, form: OutputFormat) {
    match form {
        OutputFormat::Json => {
            print_json(&VerifyJson { schema: 1, problem: Some(problem), ..VerifyJson::default() })
        }
        OutputFormat::Text => note!("ringfence: the ledger does not verify: {}", shown(&problem)),
    }
}

fn print(checked: &VerifyJson) {
    match &checked.node {
        None => say!("the chain is whole: {} records", checked.records),
        Some(node) => say!("node {}: the chain is whole: {} records", shown(node), checked.records),
    }
    if checked.pruned > 0 {
        say!("of {} of them what they said was pruned; their digests are in the chain", checked.pruned);
    }
    if checked.checkpoints > 0 {
        say!("{} checkpoints; signed up to record {}", checked.checkpoints, checked.signed);
    }
    if let Some(key) = checked.keys.last() {
        say!("key {}", shown(key));
    }
    if let Some(head) = &checked.head {
        say!("head {head}");
        say!(
            "  keep it elsewhere; `ringfence ledger verify --head {head}` then shows whether records were cut off"
        );
    }
    for transaction in &checked.incomplete {
        say!("incomplete {}: written before it happened, and no outcome was recorded", shown(transaction));
    }
}

/// A single checkpoint, or the last line of an anchor file.
fn read_checkpoint(path: &Path) -> Result<Checkpoint, LedgerCommandError> {
    let text = read(path)?;
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let parsed = serde_json::from_str::<AnchorLine>(last).map(|anchored| anchored.checkpoint);
    parsed.or_else(|_bare| serde_json::from_str(&text)).map_err(|source| LedgerCommandError::Content {
        path: path.to_owned(),
        what: "checkpoint",
        source,
    })
}

fn proofs(path: &Path, key: Option<&str>, form: OutputFormat) -> Result<ExitCode, LedgerCommandError> {
    let mut code = ExitCode::SUCCESS;
    let text = read(path)?;
    if text.trim().is_empty() {
        // What failed to be made would look as if it had been proved.
        return Err(LedgerCommandError::NoProof { path: path.to_owned() });
    }
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let proof: InclusionProof = serde_json::from_str(line)
            .map_err(|source| LedgerCommandError::Content { path: path.to_owned(), what: "proof", source })?;
        let problem = proof.check(key).err().map(|problem| problem.to_string());
        if problem.is_some() {
            code = ExitCode::from(BROKEN);
        }
        show_proof(&proof, problem, key, form);
    }
    Ok(code)
}

fn show_proof(proof: &InclusionProof, problem: Option<String>, key: Option<&str>, form: OutputFormat) {
    match (form, problem) {
        (OutputFormat::Json, problem) => print_json(&serde_json::json!({
            "schema": 1, "valid": problem.is_none(), "seq": proof.seq, "hash": proof.hash,
            "key": proof.checkpoint.key, "problem": problem,
        })),
        (OutputFormat::Text, Some(problem)) => {
            note!("ringfence: the proof of record {} is invalid: {problem}", proof.seq)
        }
        (OutputFormat::Text, None) => {
            say!("record {} of {} is proved: {}", proof.seq, shown(&proof.time), shown(&proof.kind));
            if key.is_none() {
                say!(
                    "  by the key {}; `--key` checks that it is the one you know",
                    shown(&proof.checkpoint.key)
                );
            }
        }
    }
}

fn read(path: &Path) -> Result<String, LedgerCommandError> {
    fs::read_to_string(path).map_err(|source| LedgerCommandError::File { path: path.to_owned(), source })
}
