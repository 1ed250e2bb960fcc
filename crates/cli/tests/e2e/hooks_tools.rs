//! Tools of agents that no path tells: skills, pages, patches, patterns, and names that look like ours.

use std::fs;

use serde_json::{Value, json};

use crate::approvals::events;
use crate::testkit::{World, finish};

fn answer(world: &World, agent: &str, tool: &str, input: &Value) -> Value {
    let event = if agent == "opencode" { "tool.execute.before" } else { "PreToolUse" };
    let sent = json!({
        "session_id": "one", "cwd": world.workspace, "hook_event_name": event,
        "tool_name": tool, "tool_input": input,
    });
    let done = finish(world.ringfence().args(["hook", agent]), sent.to_string().as_bytes()).expect(0);
    if done.out.is_empty() { Value::Null } else { done.json() }
}

/// The decision, and all that was said.
fn claude(world: &World, tool: &str, input: &Value) -> (String, String) {
    let answer = answer(world, "claude-code", tool, input);
    let decision = answer["hookSpecificOutput"]["permissionDecision"].as_str().unwrap_or("silence");
    (decision.to_owned(), answer.to_string())
}

fn policy(world: &World, text: &str) {
    let directory = world.home.join(".config/ringfence");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("config.toml"), format!("schema = 1\n{text}")).unwrap();
}

#[test]
fn a_skill_runs_only_where_a_rule_allows_it() {
    let world = World::new();
    let skill = json!({ "skill": "x" });
    assert_eq!(claude(&world, "Skill", &skill).0, "deny");
    assert_eq!(answer(&world, "opencode", "skill", &skill)["decision"], "deny");
    policy(&world, "[[tool]]\nallow = [\"Skill\"]\n");
    assert_eq!(claude(&world, "Skill", &skill).0, "allow");
}

#[test]
fn only_our_own_tools_have_our_names() {
    let world = World::new();
    for own in ["mcp__ringfence__exec", "mcp__ringfence__read_file", "mcp__ringfence__permission_prompt"] {
        assert_eq!(claude(&world, own, &json!({})).0, "silence", "{own}");
    }
    for other in
        ["mcp__ringfence__evil", "mcp__ringfence__exec2", "ringfence_evil", "mcp__ringfence__x__exec"]
    {
        assert_eq!(claude(&world, other, &json!({})).0, "ask", "{other}");
    }
}

#[test]
fn a_question_of_the_operators_is_not_put_by_the_agent() {
    let world = World::new();
    assert_eq!(claude(&world, "mcp__a__b", &json!({})).0, "ask", "no rule speaks of it");
    policy(&world, "[[tool]]\nask = [\"mcp__a__*\"]\n");
    assert_eq!(claude(&world, "mcp__a__b", &json!({})).0, "deny");
}

#[test]
fn a_page_is_written_down_and_searched_for_secrets() {
    let world = World::new();
    policy(&world, "net = \"filtered\"\n[[host]]\nallow = [\"web.test\"]\n");
    let value = ["value", "of", "a", "stored", "one", "4711"].join("-");
    finish(world.ringfence().args(["secret", "set", "KEY"]), value.as_bytes()).expect(0);
    let page =
        |url: String, prompt: &str| claude(&world, "WebFetch", &json!({ "url": url, "prompt": prompt }));
    let (decision, said) = page("https://web.test/a".to_owned(), "x");
    assert_eq!(decision, "allow", "{said}");
    let records = world.records();
    assert_eq!(events(&records, "intent")[0]["call"]["url"], "https://web.test/a");
    assert_eq!(events(&records, "settled")[0]["left_to"], "the tool `WebFetch` of claude-code");
    for (url, prompt) in
        [(format!("https://web.test/{value}"), "x"), ("https://web.test/b".to_owned(), value.as_str())]
    {
        let (decision, said) = page(url, prompt);
        assert_eq!(decision, "deny", "{said}");
        assert!(said.contains("leaks.arguments") && !said.contains(&value), "{said}");
    }
    assert_eq!(page("https://other.test/".to_owned(), "x").0, "deny");
}

#[test]
fn every_patch_that_is_given_is_judged() {
    let world = World::new();
    let patch = |path: &str| format!("*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch");
    let of = |input: Value| answer(&world, "opencode", "apply_patch", &input)["decision"].clone();
    assert_ne!(of(json!({ "patchText": patch("a") })), "deny");
    assert_eq!(of(json!({ "command": patch("a"), "patchText": patch("/etc/x") })), "deny");
    assert_eq!(of(json!({ "command": patch("a"), "patchText": [patch("/etc/x")] })), "deny");
}

#[test]
fn patterns_and_paths_are_judged_as_an_agent_may_read_them() {
    let world = World::new();
    world.write("src/a.rs", "x");
    let outside = world.beside("outside");
    fs::write(outside.join("x"), "x").unwrap();
    std::os::unix::fs::symlink(&outside, world.workspace.join("way-out")).unwrap();
    let glob = |input: Value| claude(&world, "Glob", &input);
    for pattern in ["**/*.rs", "src/*.rs", "src/a.rs", "{a,b}/*", "*"] {
        let (decision, said) = glob(json!({ "pattern": pattern }));
        assert_eq!(decision, "allow", "{pattern}: {said}");
    }
    for pattern in [
        "/etc/*",
        "/*",
        "../*",
        "src/../../*",
        "~/.ssh/*",
        "{/etc,src}/*",
        "{a,/etc}/*",
        "way-out/*",
        "way-out/x",
    ] {
        assert_eq!(glob(json!({ "pattern": pattern })).0, "deny", "{pattern}");
    }
    assert_eq!(glob(json!({ "pattern": 7 })).0, "deny");
    assert_eq!(glob(json!({ "pattern": "*", "path": ["/etc"] })).0, "deny");
    for path in ["~/.ssh/id_ed25519", "~root/x", " src/a.rs", "src/a.rs\n", "~"] {
        assert_eq!(claude(&world, "Read", &json!({ "file_path": path })).0, "deny", "{path:?}");
    }
}

#[test]
fn what_an_agent_says_about_a_command_is_no_flag() {
    let world = World::new();
    let input = json!({ "command": "touch made", "description": "--danger" });
    let answer = answer(&world, "claude-code", "Bash", &input);
    let line = answer["hookSpecificOutput"]["updatedInput"]["command"].as_str().unwrap().to_owned();
    finish(world.host("bash").args(["-c", &line]), b"").expect(0);
    assert!(world.read("made").is_some());
}
