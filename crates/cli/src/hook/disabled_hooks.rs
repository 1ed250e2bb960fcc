//! Detects settings that make Claude Code ignore all hooks, including Ringfence's, at its next look. Until
//! they are gone, every evaluated call is refused.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use ringfence_types::{ByteString, PolicyLayer, Refusal, RefusalCode, RuleId};
use serde_json::Value;

use super::request::HookRequest;
use crate::args::AgentKind;
use crate::environment::Environment;
use crate::host;

const SWITCH: &str = "disableAllHooks";
/// Larger than any hand-written settings file.
const LONGEST: u64 = 4 * 1024 * 1024;

pub(super) fn unplugged(request: &HookRequest, environment: &Environment) -> Option<Refusal> {
    if request.agent != AgentKind::ClaudeCode {
        return None;
    }
    let file = switched_off(&request.cwd, environment)?;
    Some(Refusal {
        code: RefusalCode::Tool,
        layer: PolicyLayer::Floor,
        rule: RuleId::HookDisabled.into(),
        message: format!(
            "`{}` switches off the hooks of {}, Ringfence among them",
            ByteString::from(file.as_path()).display(),
            request.agent
        ),
        hint: Some(format!("look at who wrote it, and remove `{SWITCH}` from it")),
    })
}

/// A file because of which Claude Code in `cwd` runs no hook.
pub(crate) fn switched_off(cwd: &Path, environment: &Environment) -> Option<PathBuf> {
    files(cwd, environment).into_iter().find(|file| switches_off(file))
}

/// All directories above count, because only the agent knows which one is the project.
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

/// A file that is too long counts.
fn switches_off(path: &Path) -> bool {
    let Some(text) = read(path) else { return false };
    text.len() as u64 > LONGEST || says_so(&text)
}

/// What is no JSON here may be JSON to the agent, which reads past a byte order mark, other encodings and any depth. It counts
/// if it contains the word, or could have it escaped or encoded.
fn says_so(text: &[u8]) -> bool {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    match serde_json::from_slice::<Value>(text) {
        Ok(settings) => !matches!(settings.get(SWITCH), None | Some(Value::Null | Value::Bool(false))),
        Err(_) => {
            let is_encoded = text.contains(&0) || text.windows(2).any(|pair| pair == b"\\u");
            is_encoded || String::from_utf8_lossy(text).contains(SWITCH)
        }
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    host::open_regular(path).ok()?.take(LONGEST + 1).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::says_so;

    #[test]
    fn a_switch_is_found_however_the_file_is_written() {
        let deep = format!("{{\"x\":{}{},\"disable\\u0041llHooks\":true}}", "[".repeat(300), "]".repeat(300));
        let wide: Vec<u8> = "{\"disableAllHooks\":true}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for text in [
            b"{\"disableAllHooks\":true}".to_vec(),
            b"{\"disable\\u0041llHooks\":true}".to_vec(),
            b"\xef\xbb\xbf{\"disable\\u0041llHooks\":true}".to_vec(),
            b"{\"disableAllHooks\":true,}".to_vec(),
            deep.into_bytes(),
            [b"\xff\xfe".to_vec(), wide].concat(),
        ] {
            assert!(says_so(&text), "{}", String::from_utf8_lossy(&text));
        }
        for text in ["", "{}", "{\"disableAllHooks\":false}", "\u{feff}{}", "{\"a\":1,}", "no settings"] {
            assert!(!says_so(text.as_bytes()), "{text}");
        }
    }
}
