//! Granting what the policy file of a workspace asks for, as it is now.

use std::process::ExitCode;

use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::policy::{Flags, PolicyFile, Request, Role};
use ringfence_runtime::standing::prepare_approval;
use ringfence_types::Bytes;

use crate::approval::{self, Need, Terminal};
use crate::args::Place;
use crate::asked::{self, Ungoverned};
use crate::commands::run;
use crate::environment::Environment;
use crate::error;
use crate::output::say;

pub(super) fn run(place: &Place, named: Option<&str>) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    approval::require(&environment, Need::Terminal, "approve a policy file")?;
    let runtime = run::runtime(&environment, Attendance::Unattended)?;
    let governed = match asked::governed(place, &environment, runtime.setup(), Flags::default()) {
        Ok(governed) => governed,
        Err(Ungoverned::Failed(code)) => return Err(code),
        Err(Ungoverned::Refused(refusal)) => return Err(error::refused(&refusal)),
    };
    let Some(file) = governed.files.iter().find(|file| file.role() == Role::Workspace) else {
        say!("this workspace has no policy file");
        return Ok(ExitCode::SUCCESS);
    };
    if governed.effective.requests.is_empty() {
        say!("there is nothing to approve: the policy file asks for nothing, or is approved");
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(named) = named {
        is_named(file, named)?;
    }
    let meant = "grant this for as long as the file stays as it is";
    if !Terminal::new(&environment).permitted(&shown(file, &governed.effective.requests), meant) {
        return Err(error::failed_text("nothing was approved", None));
    }
    let operator = place.policy.clone().unwrap_or_else(|| runtime.setup().config_dir.join("config.toml"));
    let change = prepare_approval(&operator, &governed.flags.workspace, &file.seal())
        .map_err(|error| error::failed(&error, None))?;
    // Written before done: a file that permits more than the record says would be nobody's decision.
    let (before, after) = (change.before(), change.after());
    let word = format!("approved {}", file.seal());
    runtime.policy_changed(&after, &word).map_err(|error| error::failed(&error, None))?;
    if let Err(error) = change.make() {
        let undone = runtime.policy_changed(&before, &format!("not {word}: the file could not be written"));
        undone.map_err(|error| error::failed(&error, None))?;
        return Err(error::failed(&error, None));
    }
    say!("approved, in {}", Bytes::from(after.file.as_path()).display());
    Ok(ExitCode::SUCCESS)
}

/// What the yes would permit: who asks for it, and all of it.
fn shown(file: &PolicyFile, requests: &[Request]) -> String {
    let mut text = format!("{} ({}) asks for:\n", Bytes::from(file.path()).display(), file.seal());
    for request in requests {
        text.push_str(&format!("  {}  {}\n", request.origin, Bytes::from(request.what.as_str()).display()));
    }
    text
}

/// That the file is still the one whose digest somebody was given.
fn is_named(file: &PolicyFile, named: &str) -> Result<(), ExitCode> {
    let digest = file.seal();
    if digest.strip_prefix("sha256:") == Some(named.trim_start_matches("sha256:")) {
        return Ok(());
    }
    let hint = "read the file again, then give its digest";
    Err(error::failed_text(&format!("the file is `{digest}`, not what was named"), Some(hint)))
}
