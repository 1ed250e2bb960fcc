//! Who sits at this terminal, and whether they may act as an operator.
//!
//! What this cannot tell: a program of the same user, outside every fence, that opens a terminal of its own and types into
//! it. Such a program could do whatever the user can.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::ExitCode;

use ringfence_runtime::local_operator;
use ringfence_types::{Layer, Principal, Refusal, RefusalCode};

use super::device;
use crate::environment::Environment;
use crate::error;

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
    match local_operator() {
        Principal::Operator { uid, node, .. } => {
            Principal::Operator { uid, name: name_of(uid), node, terminal: terminal() }
        }
        other => other,
    }
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

/// Ends what only an operator does, where what runs in a session does it. Scripts of an operator need no terminal.
pub(crate) fn outside(environment: &Environment) -> Result<(), ExitCode> {
    authenticate(environment, Need::Nothing).map(drop).map_err(|refusal| error::refused(&refusal))
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

/// `/dev/pts/3`: the controlling terminal by its own name.
fn terminal() -> Option<String> {
    const PSEUDO: u64 = 136;
    let number: u64 = stat("self")?.get(4)?.parse().ok()?;
    let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xfff00);
    match major {
        _ if number == 0 => None,
        4 => Some(format!("/dev/tty{minor}")),
        PSEUDO..=143 => Some(format!("/dev/pts/{}", (major - PSEUDO) * 256 + minor)),
        _ => Some(format!("terminal {major}:{minor}")),
    }
}

fn name_of(uid: u32) -> Option<String> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let own = users.lines().find(|line| line.split(':').nth(2) == Some(&uid.to_string()))?;
    own.split(':').next().map(str::to_owned)
}
