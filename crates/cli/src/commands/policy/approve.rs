//! Granting what the policy file of a workspace asks for, as it is now.

use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;

use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::policy::{Flags, PolicyFile, Role};
use ringfence_runtime::standing::prepare_approval;
use ringfence_types::Bytes;

use crate::approval::{self, Need};
use crate::args::Place;
use crate::asked::{self, Governed, Ungoverned};
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
    confirmed(&governed, file, named)?;
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

/// By the digest that somebody read, or by a word on the terminal after everything was shown.
fn confirmed(governed: &Governed, file: &PolicyFile, named: Option<&str>) -> Result<(), ExitCode> {
    let digest = file.seal();
    if let Some(expected) = named {
        let same = digest.strip_prefix("sha256:") == Some(expected.trim_start_matches("sha256:"));
        let hint = "read the file again, then give its digest";
        return if same {
            Ok(())
        } else {
            Err(error::failed_text(&format!("the file is `{digest}`, not what was named"), Some(hint)))
        };
    }
    say!("{} ({digest}) asks for:", Bytes::from(file.path()).display());
    for request in &governed.effective.requests {
        say!("  {}  {}", request.origin, Bytes::from(request.what.as_str()).display());
    }
    let (stdin, mut stdout) = (std::io::stdin(), std::io::stdout());
    let _shown = write!(stdout, "Type `yes` to grant this for as long as the file stays as it is: ")
        .and_then(|()| stdout.flush());
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    if read.is_ok() && answer.trim_end() == "yes" {
        return Ok(());
    }
    Err(error::failed_text("nothing was approved", None))
}
