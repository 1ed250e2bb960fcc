//! What Codex says about its own sandbox: with each call, by kinds of places and of network.
//!
//! INVARIANT: it only narrows. A call gets what policy gives, or less; what is not understood is less, or refused.

use std::path::{Path, PathBuf};

use ringfence_types::{Access, NetMode};
use serde::Deserialize;
use serde_json::Value;

use super::path::Place;
use super::wire::{Fault, FaultKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Intent {
    pub(super) access: Access,
    pub(super) net: NetMode,
}

/// Nothing less than policy gives.
const WHOLE: Intent = Intent { access: Access::Write, net: NetMode::Full };

#[derive(Deserialize)]
struct Context {
    permissions: Option<Permissions>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Permissions {
    /// Codex has none of its own.
    Disabled,
    External {
        network: Option<Value>,
    },
    Managed {
        file_system: FileSystem,
        network: Option<Value>,
    },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum FileSystem {
    Unrestricted,
    Restricted { entries: Vec<Entry> },
}

#[derive(Deserialize)]
struct Entry {
    path: Value,
    access: EntryAccess,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EntryAccess {
    Read,
    Write,
    #[serde(alias = "none")]
    Deny,
}

impl Intent {
    pub(super) fn of(sandbox: &Value, workspace: &Path) -> Result<Self, Fault> {
        if sandbox.is_null() {
            return Ok(WHOLE);
        }
        let context = Context::deserialize(sandbox);
        let context = context.map_err(|error| unknown(&format!("the sandbox is not understood: {error}")))?;
        match context.permissions {
            None => Err(unknown("the sandbox says nothing about permissions")),
            Some(Permissions::Disabled) => Ok(WHOLE),
            Some(Permissions::External { network }) => Ok(Self { net: net(network.as_ref()), ..WHOLE }),
            Some(Permissions::Managed { file_system, network }) => {
                Ok(Self { access: access(&file_system, workspace)?, net: net(network.as_ref()) })
            }
        }
    }
}

fn net(network: Option<&Value>) -> NetMode {
    if network.and_then(Value::as_str) == Some("enabled") { NetMode::Full } else { NetMode::None }
}

fn access(file_system: &FileSystem, workspace: &Path) -> Result<Access, Fault> {
    let FileSystem::Restricted { entries } = file_system else { return Ok(Access::Write) };
    if entries.iter().any(|entry| entry.access == EntryAccess::Deny) {
        return Err(unknown(
            "Codex wants paths hidden; Ringfence hides what its own policy says: put a `[[path]]` entry with `deny` there",
        ));
    }
    let opens = |entry: &Entry| entry.access == EntryAccess::Write && covers(&entry.path, workspace);
    Ok(if entries.iter().any(opens) { Access::Write } else { Access::Read })
}

/// Whether a place that Codex names is the workspace, or around it.
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
            let path = named.and_then(|path| match Place::try_from(path.clone()) {
                Ok(place) => Some(place.path().to_owned()),
                Err(_) => Some(PathBuf::from(path)).filter(|path| path.is_absolute()),
            });
            path.is_some_and(|path| workspace.starts_with(path))
        }
        _ => false,
    }
}

fn unknown(why: &str) -> Fault {
    Fault::new(FaultKind::Params, why)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn managed(entries: Value, network: &str) -> Result<Intent, Fault> {
        let sandbox = json!({ "permissions": {
            "type": "managed", "network": network,
            "file_system": { "type": "restricted", "entries": entries },
        } });
        Intent::of(&sandbox, Path::new("/w/a"))
    }

    fn special(kind: &str, access: &str) -> Value {
        json!({ "path": { "type": "special", "value": { "kind": kind } }, "access": access })
    }

    #[test]
    fn the_modes_of_codex_narrow() {
        let read = special("root", "read");
        let reading = managed(json!([read]), "restricted").unwrap();
        assert_eq!(reading, Intent { access: Access::Read, net: NetMode::None });
        let writing = managed(json!([read, special("project_roots", "write")]), "restricted").unwrap();
        assert_eq!(writing, Intent { access: Access::Write, net: NetMode::None });
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
            assert_eq!(Intent::of(&whole, Path::new("/w")).unwrap(), WHOLE);
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
            assert!(Intent::of(&sandbox, Path::new("/w")).is_err(), "{sandbox}");
        }
        assert!(managed(json!([special("project_roots", "write"), special("home", "deny")]), "x").is_err());
    }
}
