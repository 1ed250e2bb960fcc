mod containers;
mod docs;
mod errors;
mod layers;
mod properties;
mod reading;
mod settings;
mod shipped;
mod speed;
mod writing;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_authz::Policy;
use ringfence_types::{Access, ApprovalMode, Backend, ByteString, CommandMode, Control, NetMode, Profile};

use super::*;

pub(crate) const WORKSPACE: &str = "/home/ann/web";

/// An operator file called `config.toml`, or what is wrong with it.
pub(crate) fn operator(text: &str) -> Result<PolicyFile, PolicyError> {
    PolicyFile::parse(PolicyFileRole::Operator, Path::new("config.toml"), text.as_bytes())
}

pub(crate) fn workspace(text: &str) -> Result<PolicyFile, PolicyError> {
    PolicyFile::parse(PolicyFileRole::Workspace, Path::new(".ringfence/policy.toml"), text.as_bytes())
}

pub(crate) fn session(text: &str) -> Result<PolicyFile, PolicyError> {
    PolicyFile::parse(PolicyFileRole::Session, Path::new("session.toml"), text.as_bytes())
}

pub(crate) fn flags() -> StartupFlags {
    StartupFlags {
        workspace: PathBuf::from(WORKSPACE),
        home: Some(ByteString::from("/home/ann")),
        ..StartupFlags::default()
    }
}

/// On a machine without links.
pub(crate) fn merged(flags: &StartupFlags, files: &[PolicyFile]) -> Result<EffectivePolicy, PolicyError> {
    effective(flags, files, &Path::to_owned)
}

/// Files by name.
pub(crate) fn disk(files: &[(&str, &str)]) -> impl Fn(&Path) -> io::Result<Vec<u8>> + use<> {
    let files: HashMap<PathBuf, Vec<u8>> =
        files.iter().map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec())).collect();
    move |path| files.get(path).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// Each problem in one line: `line:column: message | fix`.
pub(crate) fn lines(error: &PolicyError) -> Vec<String> {
    let line = |problem: &PolicyProblem| {
        let place =
            problem.origin.as_ref().map(|at| format!("{}:{}: ", at.line, at.column)).unwrap_or_default();
        let fix = problem.fix.as_ref().map(|fix| format!(" | {fix}")).unwrap_or_default();
        format!("{place}{}{fix}", problem.message)
    };
    error.problems().iter().map(line).collect()
}
