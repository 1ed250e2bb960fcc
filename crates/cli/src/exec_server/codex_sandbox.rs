//! The sandbox that Codex requests with each call, by kinds of paths and network.
//!
//! INVARIANT: it only narrows. A call gets what policy allows or less; an unknown value means less or a
//! refusal.

use std::path::{Path, PathBuf};

use ringfence_types::{Access, NetMode};
use serde::Deserialize;
use serde_json::Value;

use super::file_uri::FileUri;
use super::wire::{FaultKind, RpcFault};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestedSandbox {
    pub(super) access: Access,
    pub(super) net: NetMode,
}

/// No narrowing.
const WHOLE: RequestedSandbox = RequestedSandbox { access: Access::Write, net: NetMode::Full };

#[derive(Deserialize)]
struct SandboxContext {
    permissions: Option<CodexPermissions>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CodexPermissions {
    /// Codex does not use its own sandbox.
    Disabled,
    External {
        network: Option<Value>,
    },
    Managed {
        file_system: CodexFileSystem,
        network: Option<Value>,
    },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CodexFileSystem {
    Unrestricted,
    Restricted { entries: Vec<CodexFileRule> },
}

#[derive(Deserialize)]
struct CodexFileRule {
    path: Value,
    access: CodexFileAccess,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CodexFileAccess {
    Read,
    Write,
    #[serde(alias = "none")]
    Deny,
}

impl RequestedSandbox {
    pub(super) fn of(sandbox: &Value, workspace: &Path) -> Result<Self, RpcFault> {
        if sandbox.is_null() {
            return Ok(WHOLE);
        }
        let context = SandboxContext::deserialize(sandbox);
        let context = context.map_err(|error| unknown(&format!("the sandbox is not understood: {error}")))?;
        match context.permissions {
            None => Err(unknown("the sandbox says nothing about permissions")),
            Some(CodexPermissions::Disabled) => Ok(WHOLE),
            Some(CodexPermissions::External { network }) => Ok(Self { net: net(network.as_ref()), ..WHOLE }),
            Some(CodexPermissions::Managed { file_system, network }) => {
                Ok(Self { access: access(&file_system, workspace)?, net: net(network.as_ref()) })
            }
        }
    }
}

fn net(network: Option<&Value>) -> NetMode {
    if network.and_then(Value::as_str) == Some("enabled") { NetMode::Full } else { NetMode::None }
}

fn access(file_system: &CodexFileSystem, workspace: &Path) -> Result<Access, RpcFault> {
    let CodexFileSystem::Restricted { entries } = file_system else { return Ok(Access::Write) };
    if entries.iter().any(|entry| entry.access == CodexFileAccess::Deny) {
        return Err(unknown(
            "Codex wants paths hidden; Ringfence hides what its own policy says: put a `[[path]]` entry with `deny` there",
        ));
    }
    let opens =
        |entry: &CodexFileRule| entry.access == CodexFileAccess::Write && covers(&entry.path, workspace);
    Ok(if entries.iter().any(opens) { Access::Write } else { Access::Read })
}

/// Whether a path that Codex names is the workspace or contains it.
fn covers(place: &Value, workspace: &Path) -> bool {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    match text(place, "type").as_deref() {
        Some("special") => {
            let named = place.get("value").unwrap_or(&Value::Null);
            let whole = named.get("subpath").is_none_or(Value::is_null);
            whole && matches!(text(named, "kind").as_deref(), Some("project_roots" | "root"))
        }
        Some("path") => {
            let named = text(place, "path");
            let path = named.and_then(|path| match FileUri::try_from(path.clone()) {
                Ok(place) => Some(place.path().to_owned()),
                Err(_) => Some(PathBuf::from(path)).filter(|path| path.is_absolute()),
            });
            path.is_some_and(|path| workspace.starts_with(path))
        }
        _ => false,
    }
}

fn unknown(why: &str) -> RpcFault {
    RpcFault::new(FaultKind::Params, why)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn managed(entries: Value, network: &str) -> Result<RequestedSandbox, RpcFault> {
        let sandbox = json!({ "permissions": {
            "type": "managed", "network": network,
            "file_system": { "type": "restricted", "entries": entries },
        } });
        RequestedSandbox::of(&sandbox, Path::new("/w/a"))
    }

    fn special(kind: &str, access: &str) -> Value {
        json!({ "path": { "type": "special", "value": { "kind": kind } }, "access": access })
    }

    #[test]
    fn the_modes_of_codex_narrow() {
        let read = special("root", "read");
        let reading = managed(json!([read]), "restricted").unwrap();
        assert_eq!(reading, RequestedSandbox { access: Access::Read, net: NetMode::None });
        let writing = managed(json!([read, special("project_roots", "write")]), "restricted").unwrap();
        assert_eq!(writing, RequestedSandbox { access: Access::Write, net: NetMode::None });
        let online = managed(json!([special("project_roots", "write")]), "enabled").unwrap();
        assert_eq!(online, WHOLE);
        let elsewhere = managed(json!([read, special("slash_tmp", "write")]), "enabled").unwrap();
        assert_eq!(elsewhere.access, Access::Read);
        let part = json!({ "path": { "type": "special", "value": { "kind": "project_roots", "subpath": "x" } }, "access": "write" });
        assert_eq!(managed(json!([part]), "enabled").unwrap().access, Access::Read);
        for (path, access) in
            [("/w", Access::Write), ("file:///w/a", Access::Write), ("/w/a/b", Access::Read)]
        {
            let entry = json!({ "path": { "type": "path", "path": path }, "access": "write" });
            assert_eq!(managed(json!([entry]), "enabled").unwrap().access, access, "{path}");
        }
        for whole in [Value::Null, json!({ "permissions": { "type": "disabled" } })] {
            assert_eq!(RequestedSandbox::of(&whole, Path::new("/w")).unwrap(), WHOLE);
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for sandbox in [
            json!({}),
            json!([]),
            json!({ "permissions": { "type": "new" } }),
            json!({ "permissions": { "type": "managed", "file_system": { "type": "new" } } }),
        ] {
            assert!(RequestedSandbox::of(&sandbox, Path::new("/w")).is_err(), "{sandbox}");
        }
        assert!(managed(json!([special("project_roots", "write"), special("home", "deny")]), "x").is_err());
    }
}
