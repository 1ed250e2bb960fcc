//! `ringfence check`: shows a decision without executing anything.

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_authz::env::ApproverPresence;
use ringfence_authz::{ActionLocation, GrantCandidate, Judgement, RuleConditions, candidates};
use ringfence_policy::StartupFlags;
use ringfence_runtime::{DryRunSubject, HostSetup, consider};
use ringfence_types::{ByteString, Decision, Refusal, Risk};

use crate::args::CheckArgs;
use crate::commands::run::print_clean_json;
use crate::environment::Environment;
use crate::error;
use crate::explain::{self, TextStyle};
use crate::host;
use crate::output::{clean, say};
use crate::policy_resolution::{self, PolicyResolutionError, ResolvedPolicy};

/// Exit codes of `check` (docs/errors.md).
const ASK: u8 = 10;
const DENY: u8 = 11;

/// Limit of listed fixes.
const MOST_FIXES: usize = 50;

pub(crate) fn run(check: CheckArgs) -> ExitCode {
    considered(&check, CheckDetail::Answer).unwrap_or_else(|code| code)
}

/// Like `check`, with the grants that could be stored.
pub(crate) fn explain(check: CheckArgs) -> ExitCode {
    considered(&check, CheckDetail::Everything).unwrap_or_else(|code| code)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckDetail {
    Answer,
    Everything,
}

fn considered(check: &CheckArgs, detail: CheckDetail) -> Result<ExitCode, ExitCode> {
    if check.method.is_some() && check.subject.url.is_none() {
        return Err(error::failed_text("`--method` is about a request", Some("name it with `--url`")));
    }
    let environment = Environment::read();
    let setup: HostSetup = host::setup(&environment, ApproverPresence::Unattended)
        .map_err(|error| error::failed(&error, None))?;
    let CheckResult { judged, candidates } = judge(check, &environment, &setup)?;
    if check.json {
        print_clean_json(&explain::json(judged.as_ref(), &candidates));
    } else {
        let style = TextStyle::of(&environment.all, &std::io::stdout());
        say!("{}", clean(explain::tree(judged.as_ref(), style).trim_end()));
    }
    if let (CheckDetail::Everything, false, Ok(judgement)) = (detail, check.json, &judged) {
        what_would_change(judgement);
        what_could_be_stored(&candidates);
    }
    Ok(exit_code(judged.as_ref()))
}

/// Lists the fix of every part that is not allowed; the tree shows only that of the decisive part.
fn what_would_change(judgement: &Judgement) {
    let open = judgement.parts().iter().filter(|part| part.decision != Decision::Allow);
    let fixes: Vec<(&str, &str)> = open
        .filter_map(|part| Some((part.subject.as_str(), part.fix.as_deref()?)))
        .take(MOST_FIXES)
        .collect();
    if fixes.len() > 1 {
        say!("\nwhat would change each part:");
    }
    for (subject, fix) in fixes.iter().filter(|_| fixes.len() > 1) {
        say!(
            "{}",
            clean(&format!(
                "  {}: {}",
                ByteString::from(*subject).display(),
                ByteString::from(*fix).display()
            ))
        );
    }
}

fn what_could_be_stored(candidates: &[GrantCandidate]) {
    if !candidates.is_empty() {
        say!("\nwhat the answer \"always here\" could store:");
    }
    for candidate in candidates {
        say!("  {}", clean(&ByteString::from(candidate.permits.as_str()).display()));
        for line in candidate.stored.lines() {
            say!("    {}", clean(&ByteString::from(line).display()));
        }
    }
}

pub(crate) fn exit_code(judged: Result<&Judgement, &Refusal>) -> ExitCode {
    match judged.map_or(Decision::Deny, Judgement::decision) {
        Decision::Allow => ExitCode::SUCCESS,
        Decision::Ask => ExitCode::from(ASK),
        Decision::Deny => ExitCode::from(DENY),
    }
}

struct CheckResult {
    judged: Result<Judgement, Refusal>,
    candidates: Vec<GrantCandidate>,
}

impl From<Refusal> for CheckResult {
    fn from(refusal: Refusal) -> Self {
        Self { judged: Err(refusal), candidates: Vec::new() }
    }
}

fn judge(check: &CheckArgs, environment: &Environment, setup: &HostSetup) -> Result<CheckResult, ExitCode> {
    let flags = StartupFlags {
        net: check.network.net,
        hosts: policy_resolution::hosts(&check.network)?,
        ..StartupFlags::default()
    };
    let governed = match policy_resolution::resolve(&check.place, environment, setup, flags) {
        Ok(governed) => governed,
        Err(PolicyResolutionError::Failed(code)) => return Err(code),
        Err(PolicyResolutionError::Refused(refusal)) => return Ok(refusal.into()),
    };
    let here = std::fs::canonicalize(&governed.cwd).ok();
    let judged = consider(setup, &governed.session_spec(), here.clone(), subject(check));
    let candidates =
        judged.as_ref().map_or_else(|_| Vec::new(), |judgement| offered(judgement, &governed, here));
    Ok(CheckResult { judged, candidates })
}

/// As in the prompt: a high risk offers no grant.
fn offered(judgement: &Judgement, governed: &ResolvedPolicy, here: Option<PathBuf>) -> Vec<GrantCandidate> {
    if judgement.risk() >= Risk::High {
        return Vec::new();
    }
    let workspace = governed.flags.workspace.as_path();
    let cwd = here.filter(|cwd| cwd.starts_with(workspace)).unwrap_or_else(|| workspace.to_owned());
    candidates(judgement, ActionLocation { workspace, cwd: &cwd }, &RuleConditions::default())
}

fn subject(check: &CheckArgs) -> DryRunSubject {
    let subject = &check.subject;
    if let Some(text) = &subject.shell {
        DryRunSubject::Shell(ByteString::from(text.as_os_str()))
    } else if let Some(path) = &subject.read {
        DryRunSubject::Read(ByteString::from(path.as_path()))
    } else if let Some(path) = &subject.write {
        DryRunSubject::Write(ByteString::from(path.as_path()))
    } else if let Some(url) = &subject.url {
        DryRunSubject::Url { url: ByteString::from(url.as_os_str()), method: check.method.clone() }
    } else if let Some(name) = &subject.tool {
        // A name that is not UTF-8 matches no tool, with or without replacement characters.
        DryRunSubject::Tool(name.to_string_lossy().into_owned())
    } else {
        DryRunSubject::Argv(subject.argv.iter().map(|word| ByteString::from(word.as_os_str())).collect())
    }
}
