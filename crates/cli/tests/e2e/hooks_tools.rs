//! Tools of agents that no path tells: skills, pages, patches, patterns, and names that look like ours.

use std::fs;

use serde_json::{Value, json};

use crate::approvals::{Watcher, events};
use crate::testkit::{World, finish};

fn sent(world: &World, agent: &str, tool: &str, input: &Value) -> Value {
    let event = if agent == "opencode" { "tool.execute.before" } else { "PreToolUse" };
    json!({
        "session_id": "one", "cwd": world.workspace, "hook_event_name": event,
        "tool_name": tool, "tool_input": input,
    })
}

fn answer(world: &World, agent: &str, tool: &str, input: &Value) -> Value {
    let sent = sent(world, agent, tool, input);
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

/// A question of the operator's is not the agent's to ask: it waits in the operator's own queue.
#[test]
fn a_question_about_a_tool_is_answered_in_the_queue() {
    let world = World::new();
    policy(&world, "[[tool]]\nask = [\"mcp__a__*\"]\n");
    let (decision, said) = claude(&world, "mcp__a__b", &json!({ "title": "x" }));
    assert_eq!(decision, "deny", "nobody is there: {said}");
    assert!(said.contains("approval.unreachable"), "{said}");

    let watcher = Watcher::new(&world);
    let hook = |key: &[u8], title: &str| {
        let input = sent(&world, "claude-code", "mcp__a__b", &json!({ "title": title })).to_string();
        let done = watcher.answer(key, world.ringfence().args(["hook", "claude-code"]), input.as_bytes());
        done.expect(0).json()["hookSpecificOutput"]["permissionDecision"].clone()
    };
    assert_eq!(hook(b"o", "once"), "allow");
    assert!(watcher.terminal.seen().contains("mcp__a__b"), "{}", watcher.terminal.seen());
    assert!(watcher.terminal.seen().contains("once"), "what it is called with is shown");
    assert_eq!(hook(b"d", "no"), "deny");
    // An answer counts for what it was given for, and for as long as it says.
    assert_eq!(hook(b"o", "once"), "allow", "once is over");
    assert_eq!(hook(b"s", "all along"), "allow");
    assert_eq!(claude(&world, "mcp__a__b", &json!({ "title": "all along" })).0, "allow", "nobody is asked");
    assert_eq!(hook(b"d", "another"), "deny", "another input is another question");
    assert_eq!(claude(&world, "mcp__a__b", &json!({ "title": "no" })).0, "deny", "a no is not asked again");

    let all = world.records();
    let asked = events(&all, "approval-requested");
    assert_eq!((&asked[0]["call"]["kind"], &asked[0]["call"]["name"]), (&json!("tool"), &json!("mcp__a__b")));
    let left = events(&all, "call-settled");
    assert!(
        left.iter().all(|event| event["delegated_to"] == "the tool `mcp__a__b` of claude-code"),
        "{left:?}"
    );
    assert_eq!(left.len(), 4);
}

#[test]
fn a_tool_of_another_program_is_written_down_and_searched_for_secrets() {
    let world = World::new();
    policy(&world, "[[tool]]\nallow = [\"mcp__a__*\"]\n");
    let value = ["value", "of", "a", "stored", "one", "4711"].join("-");
    finish(world.ringfence().args(["secret", "set", "KEY"]), value.as_bytes()).expect(0);
    // With a rule, and without one where the person at the agent is asked.
    for (tool, decision, to) in [
        ("mcp__a__b", "allow", "the tool `mcp__a__b` of claude-code"),
        ("mcp__c__d", "ask", "the person at claude-code, whom it asks"),
    ] {
        let (clean, said) = claude(&world, tool, &json!({ "body": { "text": "hello" } }));
        assert_eq!(clean, decision, "{said}");
        let records = world.records();
        let (intent, settled) = (events(&records, "call-intended"), events(&records, "call-settled"));
        let (intent, settled) = (intent.last().unwrap(), settled.last().unwrap());
        assert_eq!((&intent["call"]["name"], &intent["decision"]), (&json!(tool), &json!(decision)));
        assert_eq!(intent["call"]["input"], json!({ "body": { "text": "hello" } }).to_string());
        assert_eq!(intent["call"]["sha256"].as_str().unwrap().len(), 64);
        assert_eq!(settled["delegated_to"], to);
        let leak = json!({ "body": { "text": format!("a {value} b") } });
        let (decision, said) = claude(&world, tool, &leak);
        assert_eq!(decision, "deny", "{said}");
        assert!(said.contains("leaks.arguments") && !said.contains(&value), "{said}");
    }
    let ledger = format!("{:?}", world.all_records());
    assert!(!ledger.contains(&value));
    assert_eq!(events(&world.records(), "call-refused").len(), 2);
}

#[test]
fn a_name_of_ours_does_not_make_a_tool_ours() {
    let world = World::new();
    for (agent, tool) in [("codex", "exec"), ("opencode", "search")] {
        let said = answer(&world, agent, tool, &json!({})).to_string();
        assert!(said.contains("deny") && said.contains("tools.unknown"), "{agent} {tool}: {said}");
    }
    assert_eq!(claude(&world, "exec", &json!({})).0, "ask");
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
    assert_eq!(events(&records, "call-intended")[0]["call"]["url"], "https://web.test/a");
    assert_eq!(events(&records, "call-settled")[0]["delegated_to"], "the tool `WebFetch` of claude-code");
    for (url, prompt) in
        [(format!("https://web.test/{value}"), "x"), ("https://web.test/b".to_owned(), value.as_str())]
    {
        let (decision, said) = page(url, prompt);
        assert_eq!(decision, "deny", "{said}");
        assert!(said.contains("leaks.arguments") && !said.contains(&value), "{said}");
    }
    assert_eq!(page("https://other.test/".to_owned(), "x").0, "deny");
}

/// Like a tool: there is no flow of it to ask about later.
#[test]
fn a_question_about_a_page_is_answered_in_the_queue() {
    let world = World::new();
    policy(
        &world,
        "net = \"filtered\"\n[[host]]\nask = [\"wiki.test\"]\n[[host]]\ndeny = [\"never.test\"]\n",
    );
    let url = |host: &str, page: &str| json!({ "url": format!("https://{host}/{page}"), "prompt": "x" });
    let (decision, said) = claude(&world, "WebFetch", &url("wiki.test", "a"));
    assert_eq!(decision, "deny", "nobody is there: {said}");
    assert!(said.contains("approval.unreachable"), "{said}");

    let watcher = Watcher::new(&world);
    let hook = |key: &[u8], url: Value| {
        let input = sent(&world, "claude-code", "WebFetch", &url).to_string();
        let done = watcher.answer(key, world.ringfence().args(["hook", "claude-code"]), input.as_bytes());
        done.expect(0).json()["hookSpecificOutput"]["permissionDecision"].clone()
    };
    assert_eq!(hook(b"o", url("wiki.test", "once")), "allow");
    let seen = watcher.terminal.seen();
    assert!(seen.contains("https://wiki.test/once") && seen.contains("outside the fence"), "{seen}");
    assert_eq!(hook(b"d", url("wiki.test", "no")), "deny");
    assert_eq!(hook(b"s", url("wiki.test", "all-along")), "allow");
    let asked = |page: &str| claude(&world, "WebFetch", &url("wiki.test", page)).0;
    assert_eq!((asked("all-along"), asked("no")), ("allow".to_owned(), "deny".to_owned()), "nobody is asked");
    let (decision, said) = claude(&world, "WebFetch", &url("never.test", ""));
    assert_eq!(decision, "deny", "{said}");
    assert!(!said.contains("approval."), "a no is no question: {said}");

    let all = world.records();
    let asked = events(&all, "approval-requested");
    assert_eq!((&asked[0]["call"]["kind"], &asked[0]["call"]["by"]), (&json!("fetch"), &json!("agent")));
    let left = events(&all, "call-settled");
    assert!(
        left.iter().all(|event| event["delegated_to"] == "the tool `WebFetch` of claude-code"),
        "{left:?}"
    );
    assert_eq!(left.len(), 3);
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

/// As opencode reads a patch: with or without a space before the name, without what JavaScript calls a space around it, and in
/// older versions up to the next colon.
fn opencode_applies(world: &World, patch: &str) {
    for line in patch.split('\n').filter_map(|line| line.strip_prefix("*** Add File:")) {
        let space = |c: char| c == ' ' || c == '\u{feff}';
        let name = line.split(':').next().unwrap().trim_matches(space);
        fs::write(world.workspace.join(name), "x").unwrap();
    }
}

/// As Codex reads it: exactly one space, and what comes after it is the name.
fn codex_applies(world: &World, patch: &str) {
    for name in patch.split('\n').filter_map(|line| line.trim().strip_prefix("*** Add File: ")) {
        fs::write(world.workspace.join(name), "x").unwrap();
    }
}

#[test]
fn every_file_that_an_agent_reads_in_a_patch_is_judged() {
    let world = World::new();
    let outside = world.beside("outside").join("file");
    std::os::unix::fs::symlink(&outside, world.workspace.join(" a")).unwrap();
    std::os::unix::fs::symlink(&outside, world.workspace.join("b\u{85}")).unwrap();
    let there = outside.display().to_string();
    let patch = |line: &str| format!("*** Begin Patch\n*** Add File: fine\n+x\n{line}\n+x\n*** End Patch");
    let done = |agent: &str, line: &str| {
        let patch = patch(line);
        let (key, applies): (_, fn(&World, &str)) = match agent {
            "codex" => ("command", codex_applies),
            _ => ("patchText", opencode_applies),
        };
        applies(&world, &patch);
        assert!(fs::remove_file(&outside).is_ok(), "without the hook it is written: {agent} {line:?}");
        let said = answer(&world, agent, "apply_patch", &json!({ key: patch })).to_string();
        if !said.contains("deny") {
            applies(&world, &patch);
        }
        assert!(!outside.exists(), "{agent} {line:?}: {said}");
    };
    for line in [
        format!("*** Add File:{there}"),
        format!("*** Add File:\u{feff}{there}"),
        format!("*** Add File: {there}:x"),
        "*** Add File: b\u{85}".to_owned(),
    ] {
        done("opencode", &line);
    }
    done("codex", "*** Add File:  a");

    for agent in ["opencode", "codex"] {
        let key = if agent == "codex" { "command" } else { "patchText" };
        let of = |patch: String| answer(&world, agent, "apply_patch", &json!({ key: patch })).to_string();
        for unknown in ["*** Environment ID: other", "*** Copy File: a"] {
            assert!(of(patch(unknown)).contains("deny"), "{agent} {unknown}");
        }
        for known in [
            "*** Update File: a b \n@@ x\n *** Add File: text",
            "*** Update File: c\r\n@@\n-x\n*** End of File",
        ] {
            assert!(
                !of(patch(known)).contains("deny"),
                "ordinary work: {agent} {known}: {}",
                of(patch(known))
            );
        }
    }
}

/// Gemini CLI looks for a file of that name where there is none.
#[test]
fn a_name_that_gemini_looks_for_is_no_path() {
    let world = World::new();
    world.write("here.rs", "x");
    let edit = |path: &str| {
        let input = json!({ "file_path": path, "old_string": "x", "new_string": "y" });
        let mut sent = sent(&world, "gemini", "replace", &input);
        sent["hook_event_name"] = json!("BeforeTool");
        finish(world.ringfence().args(["hook", "gemini"]), sent.to_string().as_bytes()).expect(0).text()
    };
    assert!(edit("policy.toml").contains("hook.malformed"), "{}", edit("policy.toml"));
    for fine in ["here.rs", &world.workspace.join("new.rs").display().to_string()] {
        assert!(!edit(fine).contains("deny"), "{}", edit(fine));
    }
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
