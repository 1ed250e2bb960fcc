//! `ringfence check`: what would be decided, without doing anything.

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::{Setup, Subject, consider};
use ringfence_types::{Bytes, Decision};

use crate::args::Check;
use crate::asked;
use crate::commands::run::print_json;
use crate::environment::Environment;
use crate::error;
use crate::explain::{self, Style};
use crate::host;
use crate::output::say;

/// Exit codes of `check` (docs/errors.md).
const ASK: u8 = 10;
const DENY: u8 = 11;

pub(crate) fn run(check: Check) -> ExitCode {
    considered(check).unwrap_or_else(|code| code)
}

fn considered(check: Check) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    let setup: Setup =
        host::setup(&environment, Attendance::Unattended).map_err(|error| error::failed(&error, None))?;
    let cwd = asked::current_dir()?;
    let asked = asked::plain(&check.place, &environment, &cwd);
    let json = check.json;
    let here: Option<PathBuf> = std::fs::canonicalize(&cwd).ok();
    let judged = consider(&setup, &asked, here, subject(check));
    if json {
        print_json(&explain::json(judged.as_ref()));
    } else {
        let style = Style::of(&environment.all, &std::io::stdout());
        say!("{}", explain::tree(judged.as_ref(), style).trim_end());
    }
    Ok(match judged.map_or(Decision::Deny, |judgement| judgement.decision()) {
        Decision::Allow => ExitCode::SUCCESS,
        Decision::Ask => ExitCode::from(ASK),
        Decision::Deny => ExitCode::from(DENY),
    })
}

fn subject(check: Check) -> Subject {
    let subject = check.subject;
    if let Some(text) = subject.shell {
        Subject::Shell(Bytes::from(text))
    } else if let Some(path) = subject.read {
        Subject::Read(Bytes::from(path))
    } else if let Some(path) = subject.write {
        Subject::Write(Bytes::from(path))
    } else if let Some(url) = subject.url {
        Subject::Url { url: Bytes::from(url), method: check.method }
    } else if let Some(name) = subject.tool {
        // A name that is not text is no tool's name, and its replacement characters are not either.
        Subject::Tool(name.to_string_lossy().into_owned())
    } else {
        Subject::Argv(subject.argv.into_iter().map(Bytes::from).collect())
    }
}
