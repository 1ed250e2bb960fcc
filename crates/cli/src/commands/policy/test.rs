//! Policy against cases: does it do what its author meant?

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_runtime::authz::cases::{self, Case, CaseFile};
use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::policy::Flags;
use ringfence_runtime::authz::{Judgement, Part};
use ringfence_runtime::{Setup, Subject, consider};
use ringfence_types::{Bytes, Decision, Refusal};
use serde::Serialize;

use super::Form;
use crate::args::{Network, Place};
use crate::asked::{self, Ungoverned};
use crate::commands::run::print_json;
use crate::environment::Environment;
use crate::error;
use crate::explain::decision_word;
use crate::host;
use crate::output::say;

/// A case came out otherwise.
const FAILED_CASES: u8 = 1;

pub(super) fn run(place: &Place, form: Form, files: &[PathBuf]) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    let setup =
        host::setup(&environment, Attendance::Unattended).map_err(|error| error::failed(&error, None))?;
    let mut results = Vec::new();
    for path in files {
        for case in read(path)?.cases {
            results.push(result(path, &case, outcome(&case, place, (&environment, &setup))?));
        }
    }
    let failed = results.iter().filter(|result| !result.passed).count();
    match form {
        Form::Json => print_json(&Report { schema: 1, cases: results.len(), failed, results }),
        Form::People => print(&results, failed),
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILED_CASES) })
}

fn read(path: &Path) -> Result<CaseFile, ExitCode> {
    let shown = Bytes::from(path).display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| error::failed_text(&format!("cannot read `{shown}`: {error}"), None))?;
    cases::parse(&text).map_err(|error| error::failed_text(&format!("{shown}:{error}"), None))
}

type Judged = Result<Judgement, Refusal>;

fn outcome(
    case: &Case,
    place: &Place,
    (environment, setup): (&Environment, &Setup),
) -> Result<Judged, ExitCode> {
    let network = Network { net: None, allow_hosts: case.allow_hosts.clone() };
    let flags = Flags { hosts: asked::hosts(&network)?, ..Flags::default() };
    let place = Place { profile: case.profile.or(place.profile), ..place.clone() };
    let governed = match asked::governed(&place, environment, setup, flags) {
        Ok(governed) => governed,
        Err(Ungoverned::Failed(code)) => return Err(code),
        Err(Ungoverned::Refused(refusal)) => return Ok(Err(refusal)),
    };
    let cwd = case.cwd.as_ref().map(|cwd| governed.flags.workspace.join(cwd.as_path()));
    Ok(consider(setup, &governed.asked(), cwd, subject(&case.subject)))
}

fn subject(subject: &cases::Subject) -> Subject {
    match subject {
        cases::Subject::Shell(text) => Subject::Shell(Bytes::from(text.as_str())),
        cases::Subject::Argv(argv) => Subject::Argv(argv.clone()),
        cases::Subject::Read(path) => Subject::Read(path.clone()),
        cases::Subject::Write(path) => Subject::Write(path.clone()),
        cases::Subject::Url { url, method } => {
            Subject::Url { url: Bytes::from(url.as_str()), method: Some(method.clone()) }
        }
        cases::Subject::Tool(name) => Subject::Tool(name.clone()),
    }
}

/// What `policy test --json` prints, schema 1.
#[derive(Serialize)]
struct Report {
    schema: u32,
    cases: usize,
    failed: usize,
    results: Vec<CaseResult>,
}

#[derive(Serialize)]
struct CaseResult {
    /// `FILE:LINE:COLUMN`
    at: String,
    subject: String,
    expected: String,
    decision: Decision,
    rule: String,
    reason: String,
    passed: bool,
}

fn result(path: &Path, case: &Case, judged: Judged) -> CaseResult {
    let (decision, rule, reason) = match &judged {
        Ok(judgement) => {
            let text =
                |field: fn(&Part) -> &str| judgement.decisive().map(field).unwrap_or_default().to_owned();
            (judgement.decision(), text(|part| &part.rule), text(|part| &part.reason))
        }
        Err(refusal) => (Decision::Deny, refusal.rule.clone(), refusal.message.clone()),
    };
    let by_rule = case.rule.as_ref().is_none_or(|expected| rule.starts_with(expected.as_str()));
    let expected = match &case.rule {
        Some(rule) => format!("{} by `{rule}`", case.expect),
        None => case.expect.to_string(),
    };
    CaseResult {
        at: format!("{}:{}", Bytes::from(path).display(), case.at),
        subject: case.subject.to_string(),
        expected,
        decision,
        passed: case.expect.accepts(decision) && by_rule,
        rule,
        reason,
    }
}

fn print(results: &[CaseResult], failed: usize) {
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
