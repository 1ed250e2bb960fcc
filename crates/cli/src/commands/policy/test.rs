//! `ringfence policy test`: checks a policy against expected decisions.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_authz::env::ApproverPresence;
use ringfence_authz::{Judgement, JudgementPart};
use ringfence_policy::StartupFlags;
use ringfence_policy::test_cases::{self, CaseFile, PolicyCase};
use ringfence_runtime::{DryRunSubject, HostSetup, consider};
use ringfence_types::{ByteString, Decision, Refusal};
use serde::Serialize;

use super::OutputFormat;
use crate::args::{NetworkArgs, PolicyArgs};
use crate::commands::run::print_json;
use crate::environment::Environment;
use crate::error;
use crate::explain::decision_word;
use crate::host;
use crate::output::say;
use crate::policy_resolution::{self, PolicyResolutionError};

/// At least one case failed.
const FAILED_CASES: u8 = 1;

pub(super) fn run(place: &PolicyArgs, form: OutputFormat, files: &[PathBuf]) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    let setup = host::setup(&environment, ApproverPresence::Unattended)
        .map_err(|error| error::failed(&error, None))?;
    let mut results = Vec::new();
    for path in files {
        for case in read(path)?.cases {
            results.push(result(path, &case, outcome(&case, place, &environment, &setup)?));
        }
    }
    let failed = results.iter().filter(|result| !result.passed).count();
    match form {
        OutputFormat::Json => {
            print_json(&PolicyTestJson { schema: 1, cases: results.len(), failed, results })
        }
        OutputFormat::Text => print(&results, failed),
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILED_CASES) })
}

fn read(path: &Path) -> Result<CaseFile, ExitCode> {
    let shown = ByteString::from(path).display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| error::failed_text(&format!("cannot read `{shown}`: {error}"), None))?;
    test_cases::parse(&text).map_err(|error| error::failed_text(&format!("{shown}:{error}"), None))
}

type CaseDecision = Result<Judgement, Refusal>;

fn outcome(
    case: &PolicyCase,
    place: &PolicyArgs,
    environment: &Environment,
    setup: &HostSetup,
) -> Result<CaseDecision, ExitCode> {
    let network = NetworkArgs { net: None, allow_hosts: case.allow_hosts.clone() };
    let flags = StartupFlags { hosts: policy_resolution::hosts(&network)?, ..StartupFlags::default() };
    let place = PolicyArgs { profile: case.profile.or(place.profile), ..place.clone() };
    let governed = match policy_resolution::resolve(&place, environment, setup, flags) {
        Ok(governed) => governed,
        Err(PolicyResolutionError::Failed(code)) => return Err(code),
        Err(PolicyResolutionError::Refused(refusal)) => return Ok(Err(refusal)),
    };
    let cwd = case.cwd.as_ref().map(|cwd| governed.flags.workspace.join(cwd.as_path()));
    Ok(consider(setup, &governed.session_spec(), cwd, subject(&case.subject)))
}

fn subject(subject: &test_cases::CaseSubject) -> DryRunSubject {
    match subject {
        test_cases::CaseSubject::Shell(text) => DryRunSubject::Shell(ByteString::from(text.as_str())),
        test_cases::CaseSubject::Argv(argv) => DryRunSubject::Argv(argv.clone()),
        test_cases::CaseSubject::Read(path) => DryRunSubject::Read(path.clone()),
        test_cases::CaseSubject::Write(path) => DryRunSubject::Write(path.clone()),
        test_cases::CaseSubject::Url { url, method } => {
            DryRunSubject::Url { url: ByteString::from(url.as_str()), method: Some(method.clone()) }
        }
        test_cases::CaseSubject::Tool(name) => DryRunSubject::Tool(name.clone()),
    }
}

/// What `policy test --json` prints, schema 1.
#[derive(Serialize)]
struct PolicyTestJson {
    schema: u32,
    cases: usize,
    failed: usize,
    results: Vec<CaseResultJson>,
}

#[derive(Serialize)]
struct CaseResultJson {
    /// `FILE:LINE:COLUMN`
    at: String,
    subject: String,
    expected: String,
    decision: Decision,
    rule: String,
    reason: String,
    passed: bool,
}

fn result(path: &Path, case: &PolicyCase, judged: CaseDecision) -> CaseResultJson {
    let (decision, rule, reason) = match &judged {
        Ok(judgement) => {
            let text = |field: fn(&JudgementPart) -> &str| {
                judgement.decisive().map(field).unwrap_or_default().to_owned()
            };
            (judgement.decision(), text(|part| &part.rule), text(|part| &part.reason))
        }
        Err(refusal) => (Decision::Deny, refusal.rule.to_string(), refusal.message.clone()),
    };
    let by_rule = case.rule.as_ref().is_none_or(|expected| rule.starts_with(expected.as_str()));
    let expected = match &case.rule {
        Some(rule) => format!("{} by `{rule}`", case.expect),
        None => case.expect.to_string(),
    };
    CaseResultJson {
        at: format!("{}:{}", ByteString::from(path).display(), case.at),
        subject: case.subject.to_string(),
        expected,
        decision,
        passed: case.expect.accepts(decision) && by_rule,
        rule,
        reason,
    }
}

fn print(results: &[CaseResultJson], failed: usize) {
    for result in results.iter().filter(|result| !result.passed) {
        let decision = decision_word(result.decision);
        say!("{}: {}", result.at, result.subject);
        say!(
            "  expected {}, came out as {decision} by `{}`: {}",
            result.expected,
            result.rule,
            result.reason
        );
    }
    let cases = results.len();
    match failed {
        0 => say!("{cases} cases, all as expected"),
        _ => say!("{cases} cases, {failed} not as expected"),
    }
}
