//! Settings of Claude Code that would take every hook out at its next look, ours among them: while there are any, nothing
//! goes on that has to be judged.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ringfence_types::{Bytes, Layer, Refusal, RefusalCode};
use serde_json::Value;

use super::request::Request;
use crate::args::Agent;
use crate::environment::Environment;

const SWITCH: &str = "disableAllHooks";
/// Longer than any settings that a person writes.
const LONGEST: u64 = 4 * 1024 * 1024;

pub(super) fn unplugged(request: &Request, environment: &Environment) -> Option<Refusal> {
    if request.agent != Agent::ClaudeCode {
        return None;
    }
    let file = switched_off(&request.cwd, environment)?;
    Some(Refusal {
        code: RefusalCode::Tool,
        layer: Layer::Floor,
        rule: "hook.unplugged".to_owned(),
        message: format!(
            "`{}` switches off the hooks of {}, Ringfence among them",
            Bytes::from(file.as_path()).display(),
            request.agent
        ),
        hint: Some(format!("look at who wrote it, and remove `{SWITCH}` from it")),
    })
}

/// A file by which Claude Code, at work in `cwd`, runs no hook.
pub(crate) fn switched_off(cwd: &Path, environment: &Environment) -> Option<PathBuf> {
    files(cwd, environment).into_iter().find(|file| switches_off(file))
}

/// All directories above count: which of them is the project is the agent's affair.
fn files(cwd: &Path, environment: &Environment) -> Vec<PathBuf> {
    let user = environment.agent_config.clone().or_else(|| Some(environment.home.as_ref()?.join(".claude")));
    let above = |place: &Path| place.ancestors().map(|above| above.join(".claude")).collect::<Vec<_>>();
    let mut directories = above(cwd);
    directories.extend(environment.agent_project.as_deref().map(above).unwrap_or_default());
    directories.extend(user);
    let named =
        |directory: &PathBuf| ["settings.json", "settings.local.json"].map(|name| directory.join(name));
    directories.iter().flat_map(named).collect()
}

/// What cannot be read to its end, or is no JSON, counts by the word alone.
fn switches_off(path: &Path) -> bool {
    let Some(text) = read(path) else { return false };
    if text.len() as u64 > LONGEST {
        return true;
    }
    match serde_json::from_slice::<Value>(&text) {
        Ok(settings) => !matches!(settings.get(SWITCH), None | Some(Value::Null | Value::Bool(false))),
        Err(_) => String::from_utf8_lossy(&text).contains(SWITCH),
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    // Not a pipe: it would never end.
    path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut text = Vec::new();
    File::open(path).ok()?.take(LONGEST + 1).read_to_end(&mut text).ok()?;
    Some(text)
}
