//! An agent that was started in a directory of a repository: its settings are looked for there, not at the top.

use std::fs;

use serde_json::json;

use crate::testkit::{Done, World, finish, names};

/// What agents, editors, git and Ringfence look for where they are started.
const STEERING: [&str; 13] = [
    ".agents",
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".git",
    ".goose",
    ".mcp.json",
    ".opencode",
    ".ringfence",
    ".vscode",
    "opencode.json",
    "opencode.jsonc",
];

fn world() -> World {
    let world = World::new();
    world.repository();
    world.write("sub/deep/kept", "x");
    world
}

fn hook(world: &World, place: &str, tool: &str, input: &serde_json::Value) -> Done {
    let sent = json!({
        "session_id": "one", "cwd": world.workspace.join(place), "hook_event_name": "PreToolUse",
        "tool_name": tool, "tool_input": input,
    });
    finish(world.ringfence().args(["hook", "claude-code"]), sent.to_string().as_bytes())
}

#[track_caller]
fn rewritten(world: &World, place: &str, command: &str) -> String {
    let answer = hook(world, place, "Bash", &json!({ "command": command })).expect(0).json();
    answer["hookSpecificOutput"]["updatedInput"]["command"].as_str().unwrap().to_owned()
}

fn listing(world: &World) -> Vec<Vec<std::ffi::OsString>> {
    ["", "sub", "sub/deep"].map(|place| names(&world.workspace.join(place))).into()
}

#[test]
fn what_steers_an_agent_cannot_come_to_be_where_it_works() {
    let world = world();
    let top = world.workspace.display();
    let mut attempt = String::new();
    for name in STEERING {
        for place in ["sub", "sub/deep"] {
            let path = format!("{top}/{place}/{name}");
            attempt.push_str(&format!("mkdir {path}; touch {path}/x; rm -rf {path}; echo evil >{path}; "));
        }
    }
    attempt.push_str(&format!("mv {top}/sub {top}/moved; mkdir {top}/sub; touch {top}/sub/deep/work; true"));
    let before = listing(&world);

    // A command may begin elsewhere than the agent: what counts is where the agent looks.
    for start in ["sub/deep", ""] {
        let line = rewritten(&world, "sub/deep", &attempt);
        let mut command = world.host("bash");
        finish(command.args(["-c", &line]).current_dir(world.workspace.join(start)), b"").expect(0);
        fs::remove_file(world.workspace.join("sub/deep/work")).unwrap();
        assert_eq!(listing(&world), before, "nothing is made, nothing is left over");
    }

    finish(world.host("bash").args(["-c", &attempt]), b"").expect(0);
    for name in STEERING {
        assert!(world.workspace.join("moved/deep").join(name).exists(), "without the fence it works: {name}");
    }
}

#[test]
fn a_run_in_a_directory_holds_the_names_there() {
    let world = world();
    let before = listing(&world);
    let script = "mkdir .claude && echo '{}' >.claude/settings.json; mkdir -p ../.codex/x; exit 0";
    let place = world.workspace.join("sub/deep");
    finish(world.ringfence().args(["run", "--", "sh", "-c", script]).current_dir(&place), b"").expect(0);
    assert_eq!(listing(&world), before);
    finish(world.host("sh").args(["-c", script]).current_dir(&place), b"").expect(0);
    assert!(place.join(".claude/settings.json").exists() && world.workspace.join("sub/.codex/x").exists());
}

#[test]
fn settings_that_switch_off_all_hooks_stop_everything() {
    let world = world();
    let todo = || hook(&world, "sub/deep", "TodoWrite", &json!({}));
    assert!(todo().expect(0).out.is_empty());
    let user = world.home.join(".claude/settings.json");
    let here = |path: &str| world.workspace.join(path);
    let files = [here("sub/.claude/settings.local.json"), here(".claude/settings.json"), user];
    for file in files {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        for text in ["{\"disableAllHooks\": true}", "{\"disableAllHooks\": true, // yes\n}"] {
            fs::write(&file, text).unwrap();
            for (tool, input) in [("TodoWrite", json!({})), ("Bash", json!({ "command": "true" }))] {
                let answer = hook(&world, "sub/deep", tool, &input).expect(0).json();
                let answer = &answer["hookSpecificOutput"];
                assert_eq!(answer["permissionDecision"], "deny", "{answer}");
                assert!(answer["permissionDecisionReason"].as_str().unwrap().contains("hook.disabled"));
            }
        }
        fs::write(&file, "{\"disableAllHooks\": false}").unwrap();
        assert!(todo().expect(0).out.is_empty());
    }
}
