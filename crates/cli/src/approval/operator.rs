//! Who sits at this terminal, and whether they may act as an operator.
//!
//! What this cannot tell: a program of the same user, outside every fence, that opens a terminal of its own and types into
//! it. Such a program could do whatever the user can.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::ledger::Event;
use ringfence_runtime::{Runtime, operator_of};
use ringfence_types::{Layer, Principal, Refusal, RefusalCode};

use super::device;
use crate::commands::run;
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::note;

/// What an action takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A person who can be shown what they say yes to.
    Terminal,
    /// Anybody outside: a no gives nothing away.
    Nothing,
}

/// The person who runs this process.
pub(crate) fn here() -> Principal {
    operator_of(rustix::process::geteuid().as_raw(), "self")
}

/// The operator who runs this process, or why nobody here is one.
pub(crate) fn authenticate(environment: &Environment, need: Need) -> Result<Principal, Refusal> {
    let session = environment.all.iter().any(|(name, _)| name.as_slice().starts_with(b"RINGFENCE_SESSION"));
    if session || has_supervisor() {
        return Err(refusal(
            "approval.inside",
            "what runs in a session does not answer its questions or act as its operator",
            None,
        ));
    }
    if need == Need::Terminal && device::foreground().is_none() {
        let hint = "use a terminal, in its foreground; `ringfence approvals watch` waits there";
        return Err(refusal("approval.no-terminal", "a yes takes a person at a terminal", Some(hint)));
    }
    Ok(here())
}

/// Ends what only an operator does, where somebody else does it. It is written down where there is a ledger: what runs in
/// a session makes none of its own.
pub(crate) fn require(environment: &Environment, need: Need, purpose: &str) -> Result<Principal, ExitCode> {
    authenticate(environment, need).map_err(|refusal| {
        if has_ledger(environment)
            && let Ok(runtime) = run::runtime(environment, Attendance::Unattended)
        {
            record(&runtime, &refusal, purpose);
        }
        error::refused(&refusal)
    })
}

/// Somebody who may not is written down. A ledger that cannot be written makes nobody an operator.
pub(crate) fn record(runtime: &Runtime, refusal: &Refusal, purpose: &str) {
    let event = Event::Authenticated {
        principal: here(),
        purpose: purpose.to_owned(),
        refusal: Some(refusal.clone()),
    };
    if let Err(error) = runtime.ledger().append(&event) {
        note!("ringfence: this refusal is not in the ledger: {}", error::chain(&error));
    }
}

pub(crate) fn has_ledger(environment: &Environment) -> bool {
    let kept = |directory: PathBuf| ["ledger.db", "node"].iter().any(|name| directory.join(name).exists());
    host::state_dir(environment).is_ok_and(kept)
}

fn refusal(rule: &str, message: &str, hint: Option<&str>) -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: Layer::Floor,
        rule: rule.to_owned(),
        message: message.to_owned(),
        hint: hint.map(str::to_owned),
    }
}

/// Whether a process above this one is ringfence: then this one is what it runs.
fn has_supervisor() -> bool {
    /// More processes than are ever above one another.
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

/// The fields of `/proc/PID/stat` after the name, which may hold anything.
fn stat(process: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}
