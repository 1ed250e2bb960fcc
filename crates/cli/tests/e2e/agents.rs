//! The real agents, against a model that says what a script tells it to, in a network that has only loopback.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::approvals::events;
use crate::testkit::{Done, World, binary, finish, script, variable};

/// Where `cargo xtask agents` has put programs.
pub(crate) fn agents() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/agents/bin");
    variable("RINGFENCE_TEST_AGENTS").map_or_else(default, PathBuf::from)
}

/// A program beside the tests.
pub(crate) fn source(name: &str) -> PathBuf {
    let crate_directory = variable("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&crate_directory).join("tests/e2e").join(name)
}

#[track_caller]
pub(crate) fn agent(name: &str) -> PathBuf {
    let path = agents().join(name);
    assert!(path.exists(), "{} is not there: run `cargo xtask agents`", path.display());
    path
}

/// What an agent did with what it was told.
pub(crate) struct Ran {
    pub(crate) done: Done,
    pub(crate) outputs: Vec<String>,
    /// Who has come to the listener beside the model.
    pub(crate) visits: Vec<String>,
}

impl Ran {
    /// What the model was told about its calls, in order.
    #[track_caller]
    pub(crate) fn output(&self, number: usize) -> &str {
        self.outputs.get(number).unwrap_or_else(|| panic!("{:?}: {:?}", self.outputs, self.done))
    }
}

pub(crate) fn played(world: &World, steps: &Value, command: &mut Command) -> Ran {
    let [steps_file, log] = ["steps.json", "log.jsonl"].map(|name| world.home.join(name));
    fs::write(&steps_file, steps.to_string()).unwrap();
    let model = source("fake_model.py");
    let mut outer = world.host("unshare");
    // The same user as outside, with the right to bring loopback up, which ends before the agent begins.
    outer.args(["-Unc", "--keep-caps", "python3"]).arg(model).arg(&steps_file).arg(&log);
    outer.args(["setpriv", "--inh-caps", "-all", "--ambient-caps", "-all", "--"]);
    outer.arg(command.get_program()).args(command.get_args());
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = finish(&mut outer, b"");
    let log = fs::read_to_string(&log).unwrap_or_default();
    let line = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap();
        value["output"].as_str().map_or_else(|| value["output"].to_string(), str::to_owned)
    };
    let visits = fs::read_to_string(world.home.join("log.jsonl.visits")).unwrap_or_default();
    let visits = visits.lines().map(str::to_owned).collect();
    Ran { done, outputs: log.lines().map(line).collect(), visits }
}

pub(crate) fn claude(world: &World, more: &[&str], steps: &Value) -> Ran {
    claude_typed(world, "go", more, steps)
}

pub(crate) fn claude_typed(world: &World, typed: &str, more: &[&str], steps: &Value) -> Ran {
    let mut command = Command::new(agent("claude"));
    command.args(["-p", typed]).args(more);
    command
        .env("ANTHROPIC_BASE_URL", "http://127.0.0.1:{port}")
        .env("ANTHROPIC_API_KEY", "fake")
        // Its default is named after the user id, which is 0 for everybody in a namespace of their own.
        .env("CLAUDE_CODE_TMPDIR", world.beside("scratch"))
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .env("DISABLE_TELEMETRY", "1");
    played(world, steps, &mut command)
}

/// With every hook, trusted or not.
pub(crate) fn codex(world: &World, steps: &Value) -> Ran {
    codex_in(world, &world.workspace, &["--dangerously-bypass-hook-trust"], steps)
}

pub(crate) fn codex_in(world: &World, place: &Path, more: &[&str], steps: &Value) -> Ran {
    fs::create_dir_all(world.home.join(".codex")).unwrap();
    codex_by(world, Command::new(agent("codex")), (place, more), steps)
}

/// With these variables, which may name the port of the model.
pub(crate) fn codex_with(world: &World, variables: &[(&str, &str)], steps: &Value) -> Ran {
    let mut command = Command::new(agent("codex"));
    command.envs(variables.iter().copied());
    codex_by(world, command, (&world.workspace, &[]), steps)
}

fn codex_by(world: &World, mut command: Command, (place, more): (&Path, &[&str]), steps: &Value) -> Ran {
    command.args(["exec", "--skip-git-repo-check"]).args(more).arg("--cd").arg(place);
    for setting in [
        "sandbox_mode=\"danger-full-access\"",
        "model=\"fake\"",
        "model_provider=\"fake\"",
        "model_providers.fake={name=\"fake\",base_url=\"http://127.0.0.1:{port}/v1\",wire_api=\"responses\",env_key=\"FAKE\"}",
    ] {
        command.args(["-c", setting]);
    }
    command.arg("go").env("FAKE", "fake");
    played(world, steps, &mut command)
}

pub(crate) fn init(world: &World, name: &str) {
    finish(world.ringfence().args(["init", name, "--yes"]), b"").expect(0);
}

pub(crate) fn bash(command: &str) -> Value {
    json!({ "name": "Bash", "input": { "command": command, "description": "a step" } })
}

/// Everything that a person with an agent fears, and a normal step of work.
#[test]
fn claude_code_works_inside_the_fence_and_is_stopped_at_it() {
    let world = World::new();
    let outside = world.beside("outside");
    fs::create_dir(world.home.join(".ssh")).unwrap();
    fs::write(world.home.join(".ssh/id_ed25519"), "the key").unwrap();
    let settings = world.home.join(".claude/settings.json");
    let shell = format!(
        "echo in >in; echo out >{0}/out; cat {1}/.ssh/id_ed25519; echo end",
        outside.display(),
        world.home.display()
    );
    let steps = json!([
        bash(&shell),
        { "name": "Write", "input": { "file_path": outside.join("written"), "content": "x" } },
        { "name": "Read", "input": { "file_path": world.home.join(".ssh/id_ed25519") } },
        { "name": "Write", "input": { "file_path": world.workspace.join("a.txt"), "content": "x" } },
        { "name": "Write", "input": { "file_path": world.workspace.join(".claude/settings.json"), "content": "{}" } },
        bash("curl -s -m 5 http://127.0.0.1:{port}/reached"),
        bash(&format!("echo '{{}}' >{}", settings.display())),
        "finished",
    ]);

    // The control is a hook that says yes to everything: what is stopped below is stopped by ours alone.
    let yes =
        json!({ "hookSpecificOutput": { "hookEventName": "PreToolUse", "permissionDecision": "allow" } });
    let hook = json!({ "type": "command", "command": format!("echo '{yes}'") });
    let saying_yes = json!({ "hooks": { "PreToolUse": [{ "matcher": "*", "hooks": [hook] }] } });
    fs::create_dir(world.home.join(".claude")).unwrap();
    fs::write(&settings, saying_yes.to_string()).unwrap();
    let control = claude(&world, &[], &steps);
    assert!(control.output(0).contains("the key"), "{}", control.output(0));
    assert!(outside.join("out").exists() && outside.join("written").exists(), "without the fence it works");
    assert!(control.output(2).contains("the key"));
    assert!(control.output(5).contains("you reached it") && control.visits == ["/reached"]);
    // It keeps its model from its own settings by itself; nothing else on the machine does.
    let line = format!("echo '{{}}' >{}", settings.display());
    finish(world.host("sh").args(["-c", &line]), b"").expect(0);
    assert_eq!(fs::read_to_string(&settings).unwrap(), "{}\n");
    for file in ["out", "written"] {
        fs::remove_file(outside.join(file)).unwrap();
    }
    for file in ["in", "a.txt"] {
        fs::remove_file(world.workspace.join(file)).unwrap();
    }
    let _kept = fs::remove_file(world.workspace.join(".claude/settings.json"));
    fs::remove_file(&settings).unwrap();

    init(&world, "claude-code");
    let before = fs::read(&settings).unwrap();
    let ran = claude(&world, &[], &steps);
    assert_eq!(ran.done.text().trim(), "finished", "{}", ran.done.err);
    assert!(!ran.output(0).contains("the key") && ran.output(0).contains("end"), "{}", ran.output(0));
    assert!(world.read("in").is_some() && !outside.join("out").exists());
    assert!(
        ran.output(1).contains("path.boundary") && !outside.join("written").exists(),
        "{}",
        ran.output(1)
    );
    assert!(ran.output(2).contains("Ringfence stopped this"), "{}", ran.output(2));
    assert_eq!(world.read("a.txt").as_deref(), Some("x"), "ordinary work needs nobody: {}", ran.output(3));
    assert!(ran.output(4).contains("path.protected") && world.read(".claude/settings.json").is_none());
    assert!(!ran.output(5).contains("you reached it") && ran.visits.is_empty(), "{}", ran.output(5));
    assert_eq!(fs::read(&settings).unwrap(), before, "its own hooks are as they were");

    let records = world.records();
    assert_eq!(events(&records, "call-refused").len(), 3);
    assert_eq!(events(&records, "call-intended").len(), 4, "three commands and a file");
    world.ledger_tool(&["verify"]).expect(0);
}

#[test]
fn a_hook_that_dies_stops_the_agent() {
    let world = World::new();
    let moved = world.beside("moved").join("ringfence");
    crate::testkit::copy_binary(&moved);
    for name in ["claude-code", "codex"] {
        finish(world.host(moved.to_str().unwrap()).args(["init", name, "--yes"]), b"").expect(0);
    }
    script(&moved, "#!/bin/sh\nkill -SEGV $$\n");
    let ran = claude(&world, &["--allowedTools", "Bash"], &json!([bash("touch made"), "finished"]));
    assert!(ran.output(0).contains("Ringfence gave no answer"), "{}", ran.output(0));
    let step = json!({ "name": "exec_command", "input": { "cmd": "touch made" } });
    let ran = codex(&world, &json!([step, "finished"]));
    assert!(ran.output(0).contains("Ringfence gave no answer"), "{}", ran.output(0));
    assert!(world.read("made").is_none());
    // The control: without the hook both would have done it.
    fs::remove_file(world.home.join(".codex/hooks.json")).unwrap();
    codex(&world, &json!([step, "finished"]));
    assert!(world.read("made").is_some());
}

/// A call of Codex may name any directory, and Codex tells its hook that it works there.
#[test]
fn a_call_of_codex_does_not_choose_its_workspace() {
    let world = World::new();
    let outside = world.beside("outside");
    let patch = "apply_patch <<'E'\n*** Begin Patch\n*** Add File: planted\n+x\n*** End Patch\nE\n";
    let steps = |place: &Path| {
        let step =
            |command: &str| json!({ "name": "exec_command", "input": { "cmd": command, "workdir": place } });
        json!([step(patch), step("pwd; touch made"), "finished"])
    };
    let made = |place: &Path| ["planted", "made"].map(|name| fs::remove_file(place.join(name)).is_ok());
    let control = codex(&world, &steps(&outside));
    assert_eq!(made(&outside), [true, true], "without the fence it works: {:?}", control.outputs);

    init(&world, "codex");
    let ran = codex(&world, &steps(&outside));
    assert_eq!(made(&outside), [false, false], "{:?}", ran.outputs);
    assert!(ran.output(0).contains("path.boundary"), "{:?}", ran.outputs);
    let _inside = made(&world.workspace);
    let sub = world.workspace.join("sub");
    fs::create_dir(&sub).unwrap();
    let ran = codex(&world, &steps(&sub));
    assert_eq!(made(&sub), [true, true], "ordinary work: {:?}", ran.outputs);
    assert!(ran.output(1).contains("/sub"), "where the call says: {:?}", ran.outputs);
}

#[test]
fn codex_runs_its_commands_inside_the_fence() {
    let world = World::new();
    let outside = world.beside("outside");
    let command = format!("echo in >in; echo out >{}/out; echo end", outside.display());
    let steps = json!([{ "name": "exec_command", "input": { "cmd": command } }, "finished"]);
    let control = codex(&world, &steps);
    assert!(outside.join("out").exists(), "without the fence it works: {:?}", control.done);
    fs::remove_file(outside.join("out")).unwrap();
    fs::remove_file(world.workspace.join("in")).unwrap();

    init(&world, "codex");
    let ran = codex(&world, &steps);
    assert!(ran.output(0).contains("end"), "{}", ran.output(0));
    assert!(world.read("in").is_some() && !outside.join("out").exists(), "{:?}", ran.outputs);
    let records = world.records();
    assert_eq!(events(&records, "call-settled")[0]["delegated_to"], Value::Null, "it ran here");

    let step = json!({ "name": "exec_command", "input": { "cmd": "touch made" } });
    let ran = codex_in(&world, &world.home, &["--dangerously-bypass-hook-trust"], &json!([step, "finished"]));
    assert!(ran.output(0).contains("Ringfence stopped this"), "a home is no workspace: {}", ran.output(0));
    assert!(!world.home.join("made").exists());
}

#[test]
fn claude_code_uses_the_tools_of_ringfence_and_its_judgement() {
    let world = World::new();
    let outside = world.beside("outside");
    let servers =
        json!({ "mcpServers": { "ringfence": { "command": binary(), "args": ["mcp"] } } }).to_string();
    let steps = json!([
        { "name": "mcp__ringfence__exec", "input": { "command": format!("echo in >in; echo out >{}/out", outside.display()) } },
        { "name": "mcp__ringfence__write_file", "input": { "path": ".env", "content": "x" } },
        { "name": "Write", "input": { "file_path": outside.join("x"), "content": "x" } },
        bash("touch touched"),
        "finished",
    ]);
    let tools = [
        "--mcp-config",
        &servers,
        "--allowedTools",
        "mcp__ringfence__exec,mcp__ringfence__write_file",
        "--permission-prompt-tool",
        "mcp__ringfence__permission_prompt",
    ];
    let ran = claude(&world, &tools, &steps);
    assert!(world.read("in").is_some() && !outside.join("out").exists(), "{:?}", ran.outputs);
    assert!(ran.output(1).contains("path."), "{}", ran.output(1));
    assert!(ran.output(2).contains("path.boundary") && !outside.join("x").exists(), "{}", ran.output(2));
    assert!(world.read("touched").is_some(), "{}", ran.output(3));
}

/// What Codex keeps of a hook that its user has looked at.
fn trusted(world: &World) -> (String, String) {
    trusted_in(&world.home.join(".codex/hooks.json"))
}

fn trusted_in(path: &Path) -> (String, String) {
    let hooks: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let command = hooks["hooks"]["PreToolUse"][0]["hooks"][0]["command"].clone();
    let identity = format!(
        r#"{{"event_name":"pre_tool_use","hooks":[{{"async":false,"command":{command},"timeout":600,"type":"command"}}],"matcher":".*"}}"#
    );
    let digest: String = Sha256::digest(identity).iter().map(|byte| format!("{byte:02x}")).collect();
    (format!("{}:pre_tool_use:0:0", path.display()), format!("sha256:{digest}"))
}

/// `status` says "protected" exactly where the real program runs the hook.
#[test]
fn codex_runs_the_hook_where_status_says_so() {
    let world = World::new();
    let outside = world.beside("outside").join("out");
    init(&world, "codex");
    let (place, digest) = trusted(&world);
    let state = |line: &str| format!("[hooks.state.\"{place}\"]\n{line}\n");
    let step = json!({ "name": "exec_command", "input": { "cmd": format!("touch {}", outside.display()) } });
    for (config, said) in [
        (String::new(), "off"),
        (state(&format!("trusted_hash = \"{digest}\"")), "protected"),
        (state(&format!("trusted_hash = \"{digest}\"\nenabled = false")), "off"),
        (state(&format!("trusted_hash = \"sha256:{}\"", "0".repeat(64))), "unknown"),
        (format!("features.hooks = false\n{}", state(&format!("trusted_hash = \"{digest}\""))), "off"),
    ] {
        fs::write(world.home.join(".codex/config.toml"), &config).unwrap();
        let status = finish(world.ringfence().args(["status", "--json"]), b"").expect(0).json();
        let codex = status["agents"].as_array().unwrap().iter().find(|one| one["agent"] == "codex").unwrap();
        assert_eq!(codex["state"], said, "{config}: {codex}");
        let ran = codex_in(&world, &world.workspace, &[], &json!([step, "finished"]));
        assert_eq!(outside.exists(), said != "protected", "{config}: {:?} {:?}", ran.outputs, ran.done);
        let _none = fs::remove_file(&outside);
    }
}

/// Codex follows links in `CODEX_HOME`, and keeps what it trusts by the real place.
#[test]
fn a_home_of_codex_behind_a_link_is_found() {
    let world = World::new();
    let (real, link) = (world.beside("real"), world.home.join("link"));
    std::os::unix::fs::symlink(&real, &link).unwrap();
    finish(world.ringfence().env("CODEX_HOME", &link).args(["init", "codex", "--yes"]), b"").expect(0);
    let hooks = fs::canonicalize(real.join("hooks.json")).unwrap();
    let (place, digest) = trusted_in(&hooks);
    fs::write(real.join("config.toml"), format!("[hooks.state.\"{place}\"]\ntrusted_hash = \"{digest}\"\n"))
        .unwrap();
    let status = finish(world.ringfence().env("CODEX_HOME", &link).args(["status", "--json"]), b"").expect(0);
    let status = status.json();
    let codex = status["agents"].as_array().unwrap().iter().find(|one| one["agent"] == "codex").unwrap();
    assert_eq!(codex["state"], "protected", "{codex}");
    let outside = world.beside("outside").join("out");
    let step = json!({ "name": "exec_command", "input": { "cmd": format!("touch {}; touch in", outside.display()) } });
    let mut command = Command::new(agent("codex"));
    command.env("CODEX_HOME", &link);
    let ran = codex_by(&world, command, (&world.workspace, &[]), &json!([step, "finished"]));
    assert!(!outside.exists() && world.read("in").is_some(), "{:?} {:?}", ran.outputs, ran.done);
}
