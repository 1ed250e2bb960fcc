//! Hooks of agents: what they send comes in on standard input, and what the answer permits is then done on the host.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::approvals::{Watcher, events};
use crate::testkit::{Done, World, finish};

const AGENTS: [&str; 6] = ["claude-code", "codex", "gemini", "cursor", "goose", "opencode"];

fn event(agent: &str) -> &'static str {
    match agent {
        "gemini" => "BeforeTool",
        "cursor" => "preToolUse",
        "opencode" => "tool.execute.before",
        _ => "PreToolUse",
    }
}

fn sent(world: &World, agent: &str, tool: &str, input: &Value) -> Value {
    json!({
        "session_id": "one", "cwd": world.workspace, "hook_event_name": event(agent),
        "tool_name": tool, "tool_input": input,
    })
}

fn hook(world: &World, agent: &str, tool: &str, input: &Value) -> Done {
    raw(world, agent, sent(world, agent, tool, input).to_string().as_bytes())
}

fn raw(world: &World, agent: &str, bytes: &[u8]) -> Done {
    finish(world.ringfence().args(["hook", agent]), bytes)
}

/// What Claude Code is told.
#[track_caller]
fn claude(world: &World, tool: &str, input: &Value) -> Value {
    let answer = hook(world, "claude-code", tool, input).expect(0).json();
    answer["hookSpecificOutput"].clone()
}

#[track_caller]
fn denied(world: &World, tool: &str, input: &Value) -> String {
    let answer = claude(world, tool, input);
    assert_eq!(answer["permissionDecision"], "deny", "{answer}");
    answer["permissionDecisionReason"].as_str().unwrap().to_owned()
}

#[track_caller]
fn rewritten(world: &World, command: &str) -> String {
    let answer = claude(world, "Bash", &json!({ "command": command }));
    assert_eq!(answer["permissionDecision"], "allow", "{answer}");
    answer["updatedInput"]["command"].as_str().unwrap().to_owned()
}

/// As an agent would run it.
fn shell(world: &World, command: &str) -> Done {
    finish(world.host("bash").args(["-c", command]), b"")
}

pub(crate) fn guarded(world: &World) {
    let directory = world.home.join(".config/ringfence");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("config.toml"), "schema = 1\nprofile = \"guarded\"\n").unwrap();
}

#[test]
fn a_command_is_rewritten_to_run_inside_the_fence() {
    let world = World::new();
    let outside = world.beside("outside");
    let attempt = format!("echo in >in; echo out >{0}/out; cat {0}/secret", outside.display());
    fs::write(outside.join("secret"), "kept").unwrap();

    let control = shell(&world, &attempt).expect(0);
    assert_eq!(control.text(), "kept");
    fs::remove_file(outside.join("out")).unwrap();

    let done = shell(&world, &rewritten(&world, &attempt));
    assert_eq!(world.read("in").as_deref(), Some("in\n"));
    assert!(!outside.join("out").exists());
    assert_eq!(done.text(), "");
    let records = world.records();
    let intent = events(&records, "call-intended")[0];
    assert_eq!(intent["call"]["argv"], json!(["/bin/bash", "-c", attempt]));
    assert!(world.all_records().iter().any(|record| record["event"]["agent"] == "claude-code"));
}

#[test]
fn no_command_leaves_the_quotes_of_the_rewritten_one() {
    let world = World::new();
    let outside = world.beside("outside");
    let ends = ["'", "'; ", "\n", "\\'", "$(", "`", "\" ", "''' ", "-- ", "'\\''", "&& "];
    for end in ends {
        let command = format!("true {end}echo x >{}/escaped", outside.display());
        shell(&world, &rewritten(&world, &command));
        assert!(!outside.join("escaped").exists(), "{command:?}");
    }
    for command in ["printf %s \"it's $((1+1))\"", "printf '%s' 'a\nb'", "printf %s \\'\\\"", "printf %s é"]
    {
        let [inside, host] =
            [rewritten(&world, command), command.to_owned()].map(|line| shell(&world, &line));
        assert_eq!(inside.out, host.out, "{command}");
    }
    let reason = denied(&world, "Bash", &json!({ "command": "echo \0" }));
    assert!(reason.contains("hook.malformed"), "{reason}");
}

/// D2, B-A16.
#[test]
fn what_a_repository_puts_into_the_environment_changes_nothing() {
    let world = World::new();
    let line = rewritten(&world, "touch made");
    let other = world.beside("other");
    let mut command = world.host("bash");
    command
        .args(["-c", &line])
        .env("HOME", &other)
        .env("XDG_STATE_HOME", &other)
        .env("XDG_CONFIG_HOME", &other);
    finish(&mut command, b"").expect(0);
    assert!(world.read("made").is_some());
    assert_eq!(events(&world.records(), "call-intended").len(), 1, "it is in the ledger of the operator");
    assert!(fs::read_dir(&other).unwrap().next().is_none());
}

#[test]
fn a_file_tool_is_judged_by_its_path_and_written_down() {
    let world = World::new();
    let outside = world.beside("outside");
    symlink(&outside, world.workspace.join("way-out")).unwrap();
    world.write(".env", "KEY=1");
    let write = |path: &str| json!({ "file_path": world.workspace.join(path), "content": "x" });

    assert_eq!(claude(&world, "Write", &write("src/a.rs"))["permissionDecision"], "allow");
    assert_eq!(claude(&world, "Read", &json!({ "file_path": "src/a.rs" }))["permissionDecision"], "allow");
    let records = world.records();
    assert_eq!(events(&records, "call-intended").len(), 2);
    let left: Vec<&Value> =
        events(&records, "call-settled").iter().map(|event| &event["delegated_to"]).collect();
    assert_eq!(left, ["the tool `Write` of claude-code", "the tool `Read` of claude-code"]);

    for (tool, input, rule) in [
        ("Write", write(outside.join("x").to_str().unwrap()), "path.boundary"),
        ("Write", write("way-out/x"), "path.boundary"),
        ("Write", write("../x"), "path.form"),
        ("Edit", json!({ "file_path": world.home.join(".claude/settings.json") }), "path.boundary"),
        ("Edit", json!({ "file_path": ".claude/settings.json" }), "path.protected"),
        ("Write", write(".git/hooks/pre-commit"), "path.protected"),
        ("Read", json!({ "file_path": ".env" }), "path.environment"),
        ("Read", json!({ "file_path": "a", "path": ".env" }), "path.environment"),
        ("Read", json!({ "file_path": world.home.join(".ssh/id_ed25519") }), "path."),
        ("NotebookEdit", json!({ "notebook_path": "/etc/x.ipynb" }), "path.boundary"),
        ("Grep", json!({ "pattern": "KEY" }), "hook.search"),
        ("Grep", json!({ "pattern": "KEY", "path": ".env" }), "path.environment"),
        ("Write", json!({ "content": "x" }), "hook.malformed"),
        ("Write", json!({ "file_path": 7, "content": "x" }), "hook.malformed"),
        ("WebFetch", json!({ "url": "https://example.com/", "prompt": "x" }), "net."),
    ] {
        let reason = denied(&world, tool, &input);
        assert!(reason.contains(&format!("rule: {rule}")), "{tool} {input}: {reason}");
        assert!(reason.contains("instead: ") && reason.contains("nothing was done"), "{reason}");
    }
    assert_eq!(events(&world.records(), "call-refused").len(), 15);
    world.ledger_tool(&["verify"]).expect(0);
}

#[test]
fn whatever_is_no_judgement_blocks() {
    let world = World::new();
    let good = |agent: &str| sent(&world, agent, "Write", &json!({ "file_path": "a", "content": "x" }));
    for agent in AGENTS {
        let mut no_place = good(agent);
        no_place["cwd"] = Value::Null;
        let mut gone = good(agent);
        gone["cwd"] = json!("/nonexistent/directory");
        let mut relative = good(agent);
        relative["cwd"] = json!("w");
        let mut other_event = good(agent);
        other_event["hook_event_name"] = json!("SessionStart");
        let texts = [no_place, gone, relative, other_event].map(|value| value.to_string().into_bytes());
        let garbage = [&b""[..], b"{", b"null", b"[]", b"\xff\xfe", b"{\"tool_name\":\"Bash\"}"];
        let deep = "[".repeat(100_000).into_bytes();
        for bytes in texts.iter().map(Vec::as_slice).chain(garbage).chain([deep.as_slice()]) {
            let done = raw(&world, agent, bytes).expect(2);
            assert!(done.out.is_empty(), "{agent}: {}", done.text());
            assert!(done.err.contains("blocked"), "{agent}: {}", done.err);
        }
    }
    // Without a ledger nothing is let through, neither a file nor the command that would write to it.
    fs::write(world.state.join("ringfence"), "a file in the way").unwrap();
    raw(&world, "claude-code", good("claude-code").to_string().as_bytes()).expect(2).says("ledger");
    let no_policy = world.home.join(".config/ringfence");
    fs::create_dir_all(&no_policy).unwrap();
    fs::write(no_policy.join("config.toml"), "schema = 1\nprofil = \"guarded\"\n").unwrap();
    hook(&world, "claude-code", "Bash", &json!({ "command": "true" })).expect(2).says("policy");
}

#[test]
fn each_agent_is_answered_in_its_own_words() {
    let world = World::new();
    let answer = |agent: &str, tool: &str, input: Value| hook(&world, agent, tool, &input);
    let outside = json!({ "file_path": "/etc/x", "path": "/etc/x", "content": "x" });

    let codex = answer("codex", "Bash", json!({ "command": "true", "x": 1 })).expect(0).json();
    let codex = &codex["hookSpecificOutput"];
    assert_eq!(
        (&codex["permissionDecision"], &codex["hookEventName"]),
        (&json!("allow"), &json!("PreToolUse"))
    );
    assert_eq!(codex["updatedInput"].as_object().unwrap().len(), 1, "it takes the command alone");
    let patch =
        json!({ "command": "*** Begin Patch\n*** Update File: a\n*** Move to: /etc/x\n*** End Patch" });
    let codex = answer("codex", "apply_patch", patch).expect(0).json();
    assert_eq!(codex["hookSpecificOutput"]["permissionDecision"], "deny");
    let patch = json!({ "command": "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch" });
    assert!(
        answer("codex", "apply_patch", patch).expect(0).out.is_empty(),
        "an `allow` alone is an error there"
    );
    let codex = answer("codex", "mcp__other__tool", json!({})).expect(0).json();
    assert_eq!(codex["hookSpecificOutput"]["permissionDecision"], "deny", "to ask would be to go on");

    let gemini = answer("gemini", "run_shell_command", json!({ "command": "true" })).expect(0).json();
    let command = &gemini["hookSpecificOutput"]["tool_input"]["command"];
    assert!(command.as_str().unwrap().ends_with("'/bin/bash' '-c' 'true'"), "{gemini}");
    let gemini = answer("gemini", "write_file", outside.clone()).expect(0).json();
    assert_eq!(gemini["decision"], "deny");

    let cursor = answer("cursor", "Shell", json!({ "command": "true", "cwd": "" })).expect(0).json();
    assert_eq!((&cursor["permission"], &cursor["updated_input"]["cwd"]), (&json!("allow"), &json!("")));
    assert_eq!(answer("cursor", "Task", json!({})).expect(0).json(), json!({ "permission": "allow" }));
    let cursor = answer("cursor", "Write", outside.clone()).expect(0).json();
    assert_eq!(cursor["permission"], "deny");
    assert_eq!(cursor["user_message"], cursor["agent_message"]);

    answer("goose", "developer__shell", json!({ "command": "true" })).expect(2).says("ringfence mcp");
    answer("goose", "write", outside.clone()).expect(2).says("path.boundary");
    assert!(answer("goose", "write", json!({ "path": "a" })).expect(0).out.is_empty());

    let opencode = answer("opencode", "bash", json!({ "command": "true" })).expect(0).json();
    assert!(opencode["args"]["command"].as_str().unwrap().contains("'run'"), "{opencode}");
    assert_eq!(answer("opencode", "write", outside).expect(0).json()["decision"], "deny");

    let claude = claude(&world, "mcp__other__tool", &json!({}));
    assert_eq!(claude["permissionDecision"], "ask", "a person at the agent decides");
    assert!(hook(&world, "claude-code", "TodoWrite", &json!({})).expect(0).out.is_empty());
}

#[test]
fn while_claude_code_plans_its_own_rules_hold() {
    let world = World::new();
    let mut request = sent(&world, "claude-code", "Write", &json!({ "file_path": "a", "content": "x" }));
    request["permission_mode"] = json!("plan");
    assert!(raw(&world, "claude-code", request.to_string().as_bytes()).expect(0).out.is_empty());
    request["tool_name"] = json!("Bash");
    request["tool_input"] = json!({ "command": "ls" });
    let answer = raw(&world, "claude-code", request.to_string().as_bytes()).expect(0).json();
    assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "ask");
    assert!(answer["hookSpecificOutput"]["updatedInput"]["command"].as_str().unwrap().contains("'run'"));
}

#[test]
fn the_sandbox_of_codex_is_left_to_codex() {
    let world = World::new();
    let transcript = world.home.join("rollout.jsonl");
    let meta = json!({ "type": "session_meta", "payload": { "cwd": world.workspace } });
    let line = json!({
        "type": "turn_context",
        "payload": { "turn_id": "t", "cwd": world.workspace, "sandbox_policy": { "type": "workspace-write" } },
    });
    fs::write(&transcript, format!("{meta}\n{line}\n")).unwrap();
    let mut request = sent(&world, "codex", "Bash", &json!({ "command": "true" }));
    request["transcript_path"] = json!(transcript);
    request["turn_id"] = json!("t");
    assert!(raw(&world, "codex", request.to_string().as_bytes()).expect(0).out.is_empty());
    let records = world.records();
    assert_eq!(events(&records, "call-settled")[0]["delegated_to"], "the tool `Bash` of codex");
    request["turn_id"] = json!("another");
    let answer = raw(&world, "codex", request.to_string().as_bytes()).expect(0).json();
    assert!(
        answer["hookSpecificOutput"]["updatedInput"]["command"].is_string(),
        "not known: inside our fence"
    );
}

/// `codex exec --ephemeral`. What blocked, why, and what to do are said; the tools of Ringfence's own server judge by themselves.
#[test]
fn codex_without_a_record_is_told_what_to_do() {
    let world = World::new();
    let mut request = sent(&world, "codex", "Bash", &json!({ "command": "true" }));
    request["turn_id"] = json!("t");
    for record in [Value::Null, json!(world.home.join("absent.jsonl"))] {
        request["transcript_path"] = record;
        let answer = raw(&world, "codex", request.to_string().as_bytes()).expect(0).json();
        let said = &answer["hookSpecificOutput"];
        assert_eq!(said["permissionDecision"], "deny", "{answer}");
        for part in ["hook.unrecorded", "no record of this turn", "without `--ephemeral`", "`ringfence mcp`"]
        {
            assert!(said["permissionDecisionReason"].as_str().unwrap().contains(part), "{part}: {answer}");
        }
    }
    assert_eq!(events(&world.records(), "call-refused").len(), 2);
    request["tool_name"] = json!("mcp__ringfence__exec");
    assert!(raw(&world, "codex", request.to_string().as_bytes()).expect(0).out.is_empty());
}

/// A repository that makes git run a program, where the agent's own sandbox runs a listed command.
#[test]
fn a_listed_git_command_runs_no_program_in_the_sandbox_of_codex_either() {
    let world = World::new();
    guarded(&world);
    let sub = world.workspace.join("sub");
    fs::create_dir(&sub).unwrap();
    world.git(&sub, &["init", "-q"]);
    let ran = world.beside("outside").join("ran");
    world.git(&sub, &["config", "core.fsmonitor", &format!("touch {}; false", ran.display())]);
    let transcript = world.home.join("rollout.jsonl");
    let line = json!({
        "type": "turn_context",
        "payload": { "turn_id": "t", "cwd": world.workspace, "sandbox_policy": { "type": "workspace-write" } },
    });
    fs::write(&transcript, format!("{line}\n")).unwrap();
    let codex = |command: &str| {
        let mut request = sent(&world, "codex", "Bash", &json!({ "command": command }));
        request["transcript_path"] = json!(transcript);
        request["turn_id"] = json!("t");
        raw(&world, "codex", request.to_string().as_bytes()).expect(0)
    };
    let command = "git -C sub status --short && echo 'it'\"'s\" done";
    shell(&world, command).expect(0);
    assert!(fs::remove_file(&ran).is_ok(), "without the hook git runs the program");

    let answer = codex(command).json();
    let said = &answer["hookSpecificOutput"];
    assert_eq!(said["permissionDecision"], "allow", "{answer}");
    let done = shell(&world, said["updatedInput"]["command"].as_str().unwrap()).expect(0);
    assert!(done.text().ends_with("it's done\n"), "{}", done.text());
    assert!(!ran.exists());
    let records = world.records();
    assert_eq!(events(&records, "call-settled")[0]["delegated_to"], "the tool `Bash` of codex");
    let refused = codex("git -C sub -c core.fsmonitor=true status").json();
    assert_eq!(refused["hookSpecificOutput"]["permissionDecision"], "deny", "nobody is there: {refused}");
}

/// What a person approved for the sandbox of Codex is what runs, whatever the user's shell is.
#[test]
fn what_was_approved_for_the_sandbox_of_codex_is_the_argv_that_runs() {
    let world = World::new();
    guarded(&world);
    let transcript = world.home.join("rollout.jsonl");
    let line = json!({
        "type": "turn_context",
        "payload": { "turn_id": "t", "cwd": world.workspace, "sandbox_policy": { "type": "workspace-write" } },
    });
    fs::write(&transcript, format!("{line}\n")).unwrap();
    let mut request = sent(&world, "codex", "Bash", &json!({ "command": "touch made" }));
    request["transcript_path"] = json!(transcript);
    request["turn_id"] = json!("t");
    let watcher = Watcher::new(&world);
    let asked = request.to_string();
    let done = watcher.answer(b"o", world.ringfence().args(["hook", "codex"]), asked.as_bytes()).expect(0);
    let said = done.json()["hookSpecificOutput"]["updatedInput"]["command"].as_str().unwrap().to_owned();
    assert!(said.ends_with("'-c' 'touch made'") && !said.contains("GIT_"), "{said}");
    shell(&world, &said).expect(0);
    assert!(world.read("made").is_some());
}

/// A model names any directory with a call, also one with a policy of its own.
#[test]
fn the_directory_of_a_call_does_not_choose_the_workspace() {
    let world = World::new();
    let outside = world.beside("outside");
    fs::create_dir(outside.join(".ringfence")).unwrap();
    fs::write(outside.join(".ringfence/policy.toml"), "schema = 1\n").unwrap();
    let transcript = world.home.join("rollout.jsonl");
    let meta = json!({ "type": "session_meta", "payload": { "cwd": world.workspace } });
    fs::write(&transcript, meta.to_string()).unwrap();
    for (agent, tool) in [("codex", "Bash"), ("cursor", "Shell")] {
        let mut request = sent(&world, agent, tool, &json!({ "command": "true" }));
        request["cwd"] = json!(outside);
        let workspace = |request: &Value, expected: &Path| {
            let answer = raw(&world, agent, request.to_string().as_bytes()).expect(0).text();
            assert!(answer.contains(&format!("'--workspace={}'", expected.display())), "{agent}: {answer}");
        };
        workspace(&request, &outside);
        request["workspace_roots"] = json!([world.workspace]);
        request["transcript_path"] = json!(transcript);
        request["turn_id"] = json!("t");
        workspace(&request, &world.workspace);
    }
}

#[test]
fn what_needs_a_person_is_refused_where_nobody_is() {
    let world = World::new();
    guarded(&world);
    let reason = denied(&world, "Bash", &json!({ "command": "mkdir made" }));
    assert!(reason.contains("ringfence approvals watch"), "{reason}");
    let reason = denied(&world, "Write", &json!({ "file_path": "Makefile", "content": "x" }));
    assert!(reason.contains("rule: "), "{reason}");
    let records = world.records();
    let answers: Vec<&Value> =
        events(&records, "approval-decided").iter().map(|event| &event["answer"]).collect();
    assert_eq!(answers, ["unreachable", "unreachable"]);
    denied(&world, "Bash", &json!({ "command": "rm -rf ." }));
}

/// A text beside an edit, which the tool does not read, is not what the person reads instead of the edit.
#[test]
fn a_question_about_an_edit_shows_the_edit() {
    let world = World::new();
    guarded(&world);
    let write = json!({ "file_path": "Makefile", "content": "harmless" });
    let mut edit = write.clone();
    edit["old_string"] = json!("a");
    edit["new_string"] = json!("all: evil");
    for (tool, input) in [("Edit", &edit), ("Write", &write)] {
        denied(&world, tool, input);
    }
    let records = world.records();
    let asked = events(&records, "approval-requested");
    let prompts: Vec<String> = asked.iter().map(|event| event["prompt"].to_string()).collect();
    assert!(prompts[0].contains("all: evil"), "{}", prompts[0]);
    assert!(prompts[1].contains("[\"harmless\"]"), "the control: {}", prompts[1]);
    assert_ne!(asked[0]["call"]["sha256"], asked[1]["call"]["sha256"], "the answer is bound to the edit");
}

#[test]
fn somebody_who_watches_answers_for_every_tool() {
    let world = World::new();
    guarded(&world);
    let watcher = Watcher::new(&world);
    let answer = claude(&world, "Bash", &json!({ "command": "mkdir made" }));
    assert_eq!(answer["updatedInput"]["timeout"], 600_000, "the agent waits for a person: {answer}");
    let line = answer["updatedInput"]["command"].as_str().unwrap().to_owned();
    watcher.answer(b"o", world.host("setsid").args(["--wait", "bash", "-c", &line]), b"").expect(0);
    assert!(world.workspace.join("made").is_dir());

    let write = sent(&world, "claude-code", "Write", &json!({ "file_path": "Makefile", "content": "x" }));
    let ask = |key: &[u8]| {
        let mut hook = world.ringfence();
        let done = watcher.answer(key, hook.args(["hook", "claude-code"]), write.to_string().as_bytes());
        done.expect(0).json()["hookSpecificOutput"]["permissionDecision"].clone()
    };
    assert_eq!(ask(b"o"), "allow");
    assert_eq!(ask(b"d"), "deny");
}
