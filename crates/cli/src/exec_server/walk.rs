//! A tree of directories in one answer: how Codex looks for skills. Links are not followed.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::files::{Files, Kind};
use super::path::{Place, address};
use super::wire::Fault;

/// Each directory is a call on record; a place for skills has fewer.
const MOST_DIRECTORIES: usize = 200;

#[derive(Debug, Deserialize)]
pub(super) struct Walk {
    path: Place,
    options: Options,
    #[serde(default)]
    pub(super) sandbox: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Options {
    max_depth: usize,
    max_directories: usize,
    max_entries: usize,
    #[serde(default)]
    prune_hidden_directories: bool,
}

#[derive(Default, Serialize)]
struct Walked {
    entries: Vec<Value>,
    errors: Vec<Value>,
    /// There is more than is wanted.
    truncated: bool,
}

pub(super) fn walk(files: &Files<'_, '_>, Walk { path, options, .. }: &Walk) -> Result<Value, Fault> {
    let most = options.max_directories.min(MOST_DIRECTORIES);
    let mut waiting = VecDeque::from([(path.path().to_owned(), 1)]);
    let (mut walked, mut seen) = (Walked::default(), 0);
    while let Some((directory, depth)) = waiting.pop_front() {
        let listed = match files.entries(&directory) {
            Ok(_) if seen >= most => return Ok(json!(Walked { truncated: true, ..walked })),
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
                Kind::Directory => "directory",
                Kind::File => "file",
                Kind::Link | Kind::Other => continue,
            };
            if walked.entries.len() >= options.max_entries {
                return Ok(json!(Walked { truncated: true, ..walked }));
            }
            let place = directory.join(&entry.name);
            walked.entries.push(json!({ "path": address(&place), "kind": kind }));
            let pruned = options.prune_hidden_directories && entry.name.starts_with('.');
            if entry.kind == Kind::Directory && depth < options.max_depth && !pruned {
                waiting.push_back((place, depth + 1));
            }
        }
    }
    Ok(json!(walked))
}
