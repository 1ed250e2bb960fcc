//! Walks a directory tree in one answer: how Codex looks for skills. Links are not followed.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::file_uri::{FileUri, address};
use super::files::{CodexFileKind, CodexFiles};
use super::wire::RpcFault;

/// Each directory is a recorded call, so their number is limited; skill directories are smaller.
const MOST_DIRECTORIES: usize = 200;

#[derive(Debug, Deserialize)]
pub(super) struct WalkRequest {
    path: FileUri,
    options: WalkOptions,
    #[serde(default)]
    pub(super) sandbox: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WalkOptions {
    max_depth: usize,
    max_directories: usize,
    max_entries: usize,
    #[serde(default)]
    prune_hidden_directories: bool,
}

#[derive(Default, Serialize)]
struct WalkResult {
    entries: Vec<Value>,
    errors: Vec<Value>,
    /// The tree exceeds a limit.
    truncated: bool,
}

pub(super) fn walk(
    files: &CodexFiles<'_, '_>,
    WalkRequest { path, options, .. }: &WalkRequest,
) -> Result<Value, RpcFault> {
    let most = options.max_directories.min(MOST_DIRECTORIES);
    let mut waiting = VecDeque::from([(path.path().to_owned(), 1)]);
    let (mut walked, mut seen) = (WalkResult::default(), 0);
    while let Some((directory, depth)) = waiting.pop_front() {
        let listed = match files.entries(&directory) {
            Ok(_) if seen >= most => return Ok(json!(WalkResult { truncated: true, ..walked })),
            Ok(listed) => listed,
            Err(fault) if seen == 0 => return Err(fault),
            Err(fault) => {
                walked.errors.push(json!({ "path": address(&directory), "message": fault.message }));
                continue;
            }
        };
        seen += 1;
        for entry in listed {
            let kind = match entry.kind {
                CodexFileKind::Directory => "directory",
                CodexFileKind::File => "file",
                CodexFileKind::Link | CodexFileKind::Other => continue,
            };
            if walked.entries.len() >= options.max_entries {
                return Ok(json!(WalkResult { truncated: true, ..walked }));
            }
            let place = directory.join(&entry.name);
            walked.entries.push(json!({ "path": address(&place), "kind": kind }));
            let pruned = options.prune_hidden_directories && entry.name.starts_with('.');
            if entry.kind == CodexFileKind::Directory && depth < options.max_depth && !pruned {
                waiting.push_back((place, depth + 1));
            }
        }
    }
    Ok(json!(walked))
}
