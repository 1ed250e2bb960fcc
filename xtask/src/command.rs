//! Starting cargo and other programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;

/// The cargo that started us, so that a toolchain override stays in force.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

pub(crate) fn must_succeed(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed: {status}").into()) }
}

/// Standard output of a command that must succeed; its standard error is shown.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(crate) fn metadata(root: &Path) -> Result<serde_json::Value> {
    let text = output_of(cargo(root).args(["metadata", "--format-version", "1"]))?;
    Ok(serde_json::from_str(&text)?)
}

pub(crate) fn target_directory(root: &Path) -> Result<PathBuf> {
    let metadata = metadata(root)?;
    let directory =
        metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?;
    Ok(PathBuf::from(directory))
}
