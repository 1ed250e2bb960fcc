//! `ringfence policy approve`: grants what a workspace's policy file requests, in its current content.

use std::process::ExitCode;

use ringfence_authz::env::ApproverPresence;
use ringfence_policy::{PolicyFile, PolicyFileRole, StartupFlags, WideningRequest};
use ringfence_runtime::operator_file::prepare_approval;
use ringfence_types::ByteString;

use crate::approval::{self, ControllingTerminal, OperatorRequirement};
use crate::args::PolicyArgs;
use crate::commands::recorded_change::RecordedChange;
use crate::commands::run;
use crate::environment::Environment;
use crate::error;
use crate::output::say;
use crate::policy_resolution::{self, PolicyResolutionError};

pub(super) fn run(place: &PolicyArgs, named: Option<&str>) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    approval::require(&environment, OperatorRequirement::Terminal, "approve a policy file")?;
    let runtime = run::runtime(&environment, ApproverPresence::Unattended)?;
    let governed =
        match policy_resolution::resolve(place, &environment, runtime.setup(), StartupFlags::default()) {
            Ok(governed) => governed,
            Err(PolicyResolutionError::Failed(code)) => return Err(code),
            Err(PolicyResolutionError::Refused(refusal)) => return Err(error::refused(&refusal)),
        };
    let Some(file) = governed.files.iter().find(|file| file.role() == PolicyFileRole::Workspace) else {
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
    if !ControllingTerminal::new(&environment).permitted(&shown(file, &governed.effective.requests), meant) {
        return Err(error::failed_text("nothing was approved", None));
    }
    let operator = place.policy.clone().unwrap_or_else(|| runtime.setup().config_dir.join("config.toml"));
    let change = prepare_approval(&operator, &governed.flags.workspace, &file.seal())
        .map_err(|error| error::failed(&error, None))?;
    let words = vec![format!("approved {}", file.seal())];
    let recorded = RecordedChange { before: change.before(), after: change.after(), words };
    recorded.make(&runtime, || change.make()).map_err(|error| error.report(|_| None))?;
    say!("approved, in {}", ByteString::from(recorded.after.file.as_path()).display());
    Ok(ExitCode::SUCCESS)
}

/// The full text of what a yes would permit, with the requesting file.
fn shown(file: &PolicyFile, requests: &[WideningRequest]) -> String {
    let mut text = format!("{} ({}) asks for:\n", ByteString::from(file.path()).display(), file.seal());
    for request in requests {
        text.push_str(&format!(
            "  {}  {}\n",
            request.origin,
            ByteString::from(request.what.as_str()).display()
        ));
    }
    text
}

/// Checks that the file still has the digest that was named.
fn is_named(file: &PolicyFile, named: &str) -> Result<(), ExitCode> {
    let digest = file.seal();
    if digest.strip_prefix("sha256:") == Some(named.trim_start_matches("sha256:")) {
        return Ok(());
    }
    let hint = "read the file again, then give its digest";
    Err(error::failed_text(&format!("the file is `{digest}`, not what was named"), Some(hint)))
}
