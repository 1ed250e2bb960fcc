//! What a hook adds to a tool call: the whole command as an agent starts it, by a shell.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::arena::Arena;
use super::measure::{Contender, interleave, named};
use super::report::{Bound, Report};
use super::start::process;
use crate::Result;

/// Issue 8: an agent must not notice it.
const MOST_MS: f64 = 20.0;

pub(super) fn run(arena: &Arena, report: &mut Report) -> Result<()> {
    let ringfence = arena.ringfence()?;
    let workspace = arena.workspace("hook")?;
    fs::write(workspace.join("a.txt"), "text\n")?;
    let calls = [
        ("a command", "Bash", json!({ "command": "ls -l && cat a.txt", "description": "look" })),
        ("a file", "Read", json!({ "file_path": workspace.join("a.txt") })),
        ("a file that is denied", "Read", json!({ "file_path": "/etc/shadow" })),
        ("a tool of its own", "TodoWrite", json!({ "todos": [] })),
    ];
    let shell = |name: &str, line: &str| -> Contender {
        process(name, arena.invocation(Path::new("/bin/sh"), &["-c", line], &workspace))
    };
    let mut contenders = vec![shell("a shell that does nothing", ":")];
    for (index, (name, tool, input)) in calls.iter().enumerate() {
        let file = arena.path(&format!("call-{index}.json"));
        fs::write(&file, sent(&workspace, tool, input).to_string())?;
        let line = format!("{} hook claude-code <{}", ringfence.display(), file.display());
        contenders.push(shell(name, &line));
    }
    let times = interleave(&contenders, arena.effort.rounds(200))?;
    report.table("a hook of Claude Code", &times, &["a shell that does nothing"]);
    for (name, ..) in &calls {
        report.target(&format!("hook, {name}"), named(&times, name)?.median(), Bound::AtMost(MOST_MS), "ms");
    }
    Ok(())
}

/// As Claude Code 2.1.325 sends it. Each run is one conversation.
fn sent(workspace: &Path, tool: &str, input: &Value) -> Value {
    json!({
        "session_id": "bench", "cwd": workspace, "hook_event_name": "PreToolUse", "permission_mode": "default",
        "tool_name": tool, "tool_input": input, "tool_use_id": "toolu_1",
    })
}
