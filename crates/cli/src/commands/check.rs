//! `ringfence check`: what would be decided, without doing anything.

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::policy::Flags;
use ringfence_runtime::authz::{Candidate, Given, Judgement, Place, candidates};
use ringfence_runtime::{Setup, Subject, consider};
use ringfence_types::{Bytes, Decision, Refusal, Risk};

use crate::args::Check;
use crate::asked::{self, Governed, Ungoverned};
use crate::commands::run::print_clean_json;
use crate::environment::Environment;
use crate::error;
use crate::explain::{self, Style};
use crate::host;
use crate::output::{clean, say};

/// Exit codes of `check` (docs/errors.md).
const ASK: u8 = 10;
const DENY: u8 = 11;

/// More would not be read.
const MOST_FIXES: usize = 50;

pub(crate) fn run(check: Check) -> ExitCode {
    considered(&check, Detail::Answer).unwrap_or_else(|code| code)
}

/// The same with what could be stored about it.
pub(crate) fn explain(check: Check) -> ExitCode {
    considered(&check, Detail::Everything).unwrap_or_else(|code| code)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Answer,
    Everything,
}

fn considered(check: &Check, detail: Detail) -> Result<ExitCode, ExitCode> {
    if check.method.is_some() && check.subject.url.is_none() {
        return Err(error::failed_text("`--method` is about a request", Some("name it with `--url`")));
    }
    let environment = Environment::read();
    let setup: Setup =
        host::setup(&environment, Attendance::Unattended).map_err(|error| error::failed(&error, None))?;
    let Considered { judged, candidates } = judge(check, &environment, &setup)?;
    if check.json {
        print_clean_json(&explain::json(judged.as_ref(), &candidates));
    } else {
        let style = Style::of(&environment.all, &std::io::stdout());
        say!("{}", clean(explain::tree(judged.as_ref(), style).trim_end()));
    }
    if let (Detail::Everything, false, Ok(judgement)) = (detail, check.json, &judged) {
        what_would_change(judgement);
        what_could_be_stored(&candidates);
    }
    Ok(exit_code(judged.as_ref()))
}

/// Every part that is not allowed has a fix of its own; the tree ends with that of the part that decides.
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
        say!("{}", clean(&format!("  {}: {}", Bytes::from(*subject).display(), Bytes::from(*fix).display())));
    }
}

fn what_could_be_stored(candidates: &[Candidate]) {
    if !candidates.is_empty() {
        say!("\nwhat the answer \"always here\" could store:");
    }
    for candidate in candidates {
        say!("  {}", clean(&Bytes::from(candidate.permits.as_str()).display()));
        for line in candidate.stored.lines() {
            say!("    {}", clean(&Bytes::from(line).display()));
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

struct Considered {
    judged: Result<Judgement, Refusal>,
    candidates: Vec<Candidate>,
}

impl From<Refusal> for Considered {
    fn from(refusal: Refusal) -> Self {
        Self { judged: Err(refusal), candidates: Vec::new() }
    }
}

fn judge(check: &Check, environment: &Environment, setup: &Setup) -> Result<Considered, ExitCode> {
    let flags = Flags { net: check.network.net, hosts: asked::hosts(&check.network)?, ..Flags::default() };
    let governed = match asked::governed(&check.place, environment, setup, flags) {
        Ok(governed) => governed,
        Err(Ungoverned::Failed(code)) => return Err(code),
        Err(Ungoverned::Refused(refusal)) => return Ok(refusal.into()),
    };
    let here = std::fs::canonicalize(&governed.cwd).ok();
    let judged = consider(setup, &governed.asked(), here.clone(), subject(check));
    let candidates =
        judged.as_ref().map_or_else(|_| Vec::new(), |judgement| offered(judgement, &governed, here));
    Ok(Considered { judged, candidates })
}

/// As at the terminal: what is risky is answered each time.
fn offered(judgement: &Judgement, governed: &Governed, here: Option<PathBuf>) -> Vec<Candidate> {
    if judgement.risk() >= Risk::High {
        return Vec::new();
    }
    let workspace = governed.flags.workspace.as_path();
    let cwd = here.filter(|cwd| cwd.starts_with(workspace)).unwrap_or_else(|| workspace.to_owned());
    candidates(judgement, Place { workspace, cwd: &cwd }, &Given::default())
}

fn subject(check: &Check) -> Subject {
    let subject = &check.subject;
    if let Some(text) = &subject.shell {
        Subject::Shell(Bytes::from(text.as_os_str()))
    } else if let Some(path) = &subject.read {
        Subject::Read(Bytes::from(path.as_path()))
    } else if let Some(path) = &subject.write {
        Subject::Write(Bytes::from(path.as_path()))
    } else if let Some(url) = &subject.url {
        Subject::Url { url: Bytes::from(url.as_os_str()), method: check.method.clone() }
    } else if let Some(name) = &subject.tool {
        // A name that is not text is no tool's name, and its replacement characters are not either.
        Subject::Tool(name.to_string_lossy().into_owned())
    } else {
        Subject::Argv(subject.argv.iter().map(|word| Bytes::from(word.as_os_str())).collect())
    }
}
