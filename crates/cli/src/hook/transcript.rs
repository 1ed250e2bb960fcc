//! Whose sandbox the commands of Codex run in: it says so for each turn in the record of its conversation.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use serde_json::Value;

/// Who contains what Codex runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Contained {
    /// Codex itself, in this mode. A sandbox inside of it could not be made, nor could the ledger be written.
    ByCodex(String),
    /// Nobody, as far as is known.
    ByNobody,
}

/// More than a turn writes before its first tool call.
const LAST: u64 = 4 * 1024 * 1024;

pub(super) fn contained(transcript: Option<&Path>, turn: Option<&str>) -> Contained {
    let (Some(transcript), Some(turn)) = (transcript, turn) else { return Contained::ByNobody };
    let Some(text) = end_of(transcript) else { return Contained::ByNobody };
    let contexts = text.lines().rev().filter(|line| line.contains("turn_context"));
    let of_turn = contexts.filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(|line| {
        line.get("type").and_then(Value::as_str) == Some("turn_context")
            && line.pointer("/payload/turn_id").and_then(Value::as_str) == Some(turn)
    });
    let mode = of_turn.as_ref().and_then(|line| line.pointer("/payload/sandbox_policy/type")?.as_str());
    match mode {
        Some(mode @ ("read-only" | "workspace-write")) => Contained::ByCodex(mode.to_owned()),
        _ => Contained::ByNobody,
    }
}

fn end_of(path: &Path) -> Option<String> {
    // Not a pipe: to open it would take as long as nobody writes.
    path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|file| file.is_file()))?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST))).ok()?;
    let mut bytes = Vec::new();
    file.take(LAST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
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
        assert_eq!(of(Some("1")), Contained::ByCodex("workspace-write".to_owned()));
        assert_eq!(of(Some("2")), Contained::ByNobody);
        assert_eq!(of(Some("3")), Contained::ByNobody);
        assert_eq!(of(None), Contained::ByNobody);
        assert_eq!(contained(Some(Path::new("/nonexistent")), Some("1")), Contained::ByNobody);
    }
}
