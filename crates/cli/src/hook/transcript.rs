//! Reads from Codex's conversation record where Codex works in a turn, and whether it sandboxes its commands.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::host;

/// What contains Codex's commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CodexContainment {
    /// Codex itself, in this mode. Inside it neither a sandbox can be made nor the ledger be written.
    ByCodex(String),
    /// No known sandbox.
    ByNobody,
}

/// More than a turn writes before its first tool call.
const LAST: u64 = 4 * 1024 * 1024;

pub(super) fn contained(transcript: Option<&Path>, turn: Option<&str>) -> CodexContainment {
    let (Some(transcript), Some(turn)) = (transcript, turn) else { return CodexContainment::ByNobody };
    let of_turn = turn_context(transcript, turn);
    let mode = of_turn.as_ref().and_then(|line| line.pointer("/payload/sandbox_policy/type")?.as_str());
    match mode {
        Some(mode @ ("read-only" | "workspace-write")) => CodexContainment::ByCodex(mode.to_owned()),
        _ => CodexContainment::ByNobody,
    }
}

/// The directory in which a person has Codex work: of the turn, or of the conversation if much was written since the turn began.
pub(super) fn project(transcript: Option<&Path>, turn: &str) -> Option<PathBuf> {
    let transcript = transcript?;
    let line = turn_context(transcript, turn).or_else(|| conversation(transcript))?;
    let directory = line.pointer("/payload/cwd")?.as_str()?;
    Some(PathBuf::from(directory)).filter(|directory| directory.is_absolute())
}

/// What Codex has written about a turn at its beginning.
fn turn_context(transcript: &Path, turn: &str) -> Option<Value> {
    let text = end_of(transcript)?;
    let contexts = text.lines().rev().filter(|line| line.contains("turn_context"));
    contexts.filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(|line| {
        line.get("type").and_then(Value::as_str) == Some("turn_context")
            && line.pointer("/payload/turn_id").and_then(Value::as_str) == Some(turn)
    })
}

/// The first line, about the conversation as a whole.
fn conversation(transcript: &Path) -> Option<Value> {
    let mut text = Vec::new();
    regular(transcript)?.take(LAST).read_to_end(&mut text).ok()?;
    let line = serde_json::from_slice::<Value>(text.split(|byte| *byte == b'\n').next()?).ok()?;
    (line.get("type").and_then(Value::as_str) == Some("session_meta")).then_some(line)
}

fn end_of(path: &Path) -> Option<String> {
    let mut file = regular(path)?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST))).ok()?;
    let mut bytes = Vec::new();
    file.take(LAST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn regular(path: &Path) -> Option<File> {
    host::open_regular(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(turn: &str, mode: &str) -> String {
        format!(
            r#"{{"type":"turn_context","payload":{{"turn_id":"{turn}","sandbox_policy":{{"type":"{mode}"}}}}}}"#
        )
    }

    #[test]
    fn only_what_codex_says_of_this_turn_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rollout.jsonl");
        let lines = [line("1", "workspace-write"), "garbage".to_owned(), line("2", "danger-full-access")];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let of = |turn| contained(Some(&path), turn);
        assert_eq!(of(Some("1")), CodexContainment::ByCodex("workspace-write".to_owned()));
        assert_eq!(of(Some("2")), CodexContainment::ByNobody);
        assert_eq!(of(Some("3")), CodexContainment::ByNobody);
        assert_eq!(of(None), CodexContainment::ByNobody);
        assert_eq!(contained(Some(Path::new("/nonexistent")), Some("1")), CodexContainment::ByNobody);
    }
    #[test]
    fn the_project_is_that_of_the_turn_and_never_that_of_a_call() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rollout.jsonl");
        let meta = r#"{"type":"session_meta","payload":{"cwd":"/project"}}"#;
        let call = r#"{"type":"response_item","payload":{"type":"function_call","cwd":"/elsewhere"}}"#;
        let turn = r#"{"type":"turn_context","payload":{"turn_id":"2","cwd":"/later"}}"#;
        std::fs::write(&path, [meta, call, turn, call].join("\n")).unwrap();
        let of = |turn| project(Some(&path), turn);
        assert_eq!((of("1"), of("2")), (Some("/project".into()), Some("/later".into())));
        std::fs::write(&path, call).unwrap();
        assert_eq!(of("1"), None);
        std::fs::write(&path, meta.replace("/project", "project")).unwrap();
        assert_eq!((of("1"), project(None, "1")), (None, None));
    }
}
