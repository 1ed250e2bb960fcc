//! Determines the user at this terminal, and whether they may act as an operator.
//!
//! Not covered: a program of the same user outside every fence that opens a terminal and types into it. Such
//! a program can do whatever the user can.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_authz::env::ApproverPresence;
use ringfence_ledger::Event;
use ringfence_runtime::{Runtime, operator_of};
use ringfence_types::{PolicyLayer, Principal, Refusal, RefusalCode, RuleId};

use super::tty;
use crate::commands::run;
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::note;
use crate::redactor::CliRedactor;

/// What an action requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperatorRequirement {
    /// A person at a terminal who sees what they approve.
    Terminal,
    /// Any process outside a session: a denial gives nothing away.
    Nothing,
}

/// The user of this process.
pub(crate) fn here() -> Principal {
    operator_of(rustix::process::geteuid().as_raw(), "self")
}

/// The operator who runs this process, or a refusal.
pub(crate) fn authenticate(
    environment: &Environment,
    need: OperatorRequirement,
) -> Result<Principal, Refusal> {
    let session = environment.all.iter().any(|(name, _)| name.as_slice().starts_with(b"RINGFENCE_SESSION"));
    if session || has_supervisor() {
        return Err(refusal(
            RuleId::ApprovalFromSession,
            "what runs in a session does not answer its questions or act as its operator",
            None,
        ));
    }
    if need == OperatorRequirement::Terminal && tty::foreground().is_none() {
        let hint = "use a terminal, in its foreground; `ringfence approvals watch` waits there";
        return Err(refusal(RuleId::ApprovalNoTerminal, "a yes takes a person at a terminal", Some(hint)));
    }
    Ok(here())
}

/// Refuses an operator's action by any other process. Recorded only in an existing ledger: a process in a
/// session must not create one.
pub(crate) fn require(
    environment: &Environment,
    need: OperatorRequirement,
    purpose: &str,
) -> Result<Principal, ExitCode> {
    authenticate(environment, need).map_err(|refusal| {
        if has_ledger(environment)
            && let Ok(runtime) = run::runtime(environment, ApproverPresence::Unattended)
        {
            record(&runtime, &refusal, purpose);
        }
        error::refused(&refusal)
    })
}

/// Records a refused operator action. A failed record does not change the refusal. The purpose repeats what was typed, which can be
/// a secret in the place of an id.
pub(crate) fn record(runtime: &Runtime, refusal: &Refusal, purpose: &str) {
    let event = Event::AuthenticationAttempted {
        principal: here(),
        purpose: CliRedactor::own().clean(purpose),
        refusal: Some(refusal.clone()),
    };
    if let Err(error) = runtime.ledger().append(&event) {
        note!("ringfence: cannot record this refusal: {}", error::chain(&error));
    }
}

fn has_ledger(environment: &Environment) -> bool {
    let kept = |directory: PathBuf| ["ledger.db", "node"].iter().any(|name| directory.join(name).exists());
    host::state_dir(environment).is_ok_and(kept)
}

fn refusal(rule: RuleId, message: &str, hint: Option<&str>) -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: PolicyLayer::Floor,
        rule: rule.into(),
        message: message.to_owned(),
        hint: hint.map(str::to_owned),
    }
}

/// Whether an ancestor of this process is Ringfence, which then runs this process.
fn has_supervisor() -> bool {
    /// Limit of ancestors.
    const DEEPEST: usize = 1000;
    let own = identity("/proc/self/exe");
    let mut process = parent("self");
    for _ in 0..DEEPEST {
        let Some(id) = process.filter(|id| *id > 1) else { return false };
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        let same = own.is_some() && identity(&format!("/proc/{id}/exe")) == own;
        if same || name.trim_end() == "ringfence" {
            return true;
        }
        process = parent(&id.to_string());
    }
    true
}

fn identity(path: &str) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

fn parent(process: &str) -> Option<u32> {
    stat(process)?.get(1)?.parse().ok()
}

/// The fields of `/proc/PID/stat` after the name, which may contain any byte.
fn stat(process: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}
