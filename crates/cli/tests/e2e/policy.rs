//! Policy files through the real binary: what they change, who may write them, what they may ask for.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use crate::approval::session;
use crate::approvals::alone;
use crate::terminal::Terminal;
use crate::testkit::{Done, World, collect, finish};

impl World {
    fn config(&self, text: &str) -> PathBuf {
        let directory = self.home.join(".config/ringfence");
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("config.toml");
        fs::write(&path, text).unwrap();
        path
    }

    fn workspace_policy(&self, text: &str) -> PathBuf {
        self.write(".ringfence/policy.toml", text)
    }

    fn policy(&self, arguments: &[&str]) -> Done {
        finish(self.ringfence().arg("policy").args(arguments), b"")
    }

    fn check(&self, arguments: &[&str]) -> Done {
        finish(self.ringfence().arg("check").args(arguments), b"")
    }
}

/// On standard output.
fn shows(done: &Done, part: &str) {
    assert!(done.text().contains(part), "`{part}` is missing in\n{}", done.text());
}

#[test]
fn check_answers_by_exit_code_and_json_and_does_nothing() {
    let world = World::new();
    world.write("README.md", "hello");
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--", "rm", "-rf", "/"], 0, "allow"),
        (&["--profile", "guarded", "--", "ls", "-la"], 0, "allow"),
        (&["--profile", "guarded", "--", "touch", "x"], 10, "ask"),
        (&["--profile", "guarded", "--shell", "ls; rm README.md"], 11, "deny"),
        (&["--read", "README.md"], 0, "allow"),
        (&["--read", ".env"], 11, "deny"),
        (&["--url", "https://example.test/"], 11, "deny"),
        (&["--tool", "nonesuch"], 11, "deny"),
    ];
    for (arguments, code, decision) in cases {
        shows(&world.check(arguments).expect(code), decision);
        let json = world.check(&[&["--json"], arguments].concat()).expect(code).json();
        assert_eq!((json["schema"].as_u64(), json["decision"].as_str()), (Some(1), Some(decision)));
        assert!(json["rule"].as_str().is_some_and(|rule| !rule.is_empty()), "{json}");
        assert!(decision == "allow" || json["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{json}");
    }
    assert_eq!(world.read("README.md").as_deref(), Some("hello"));
    assert!(!world.workspace.join("x").exists());
    assert!(!world.ledger_path().exists(), "a question about a question is nobody's business");
    for wrong in [&[][..], &["--read", "a", "--write", "b"], &["--method", "GET", "--read", "a"]] {
        world.check(wrong).expect(125);
    }
}

#[test]
fn explain_says_what_always_here_would_permit_and_never_for_what_is_risky() {
    let world = World::new();
    let explain =
        |arguments: &[&str]| world.policy(&[&["explain", "--profile", "guarded"], arguments].concat());
    let shown = explain(&["--", "mkdir", "made"]).expect(10);
    shows(&shown, "exactly `mkdir made`, in any directory of this workspace");
    shows(&shown, "allow = [[\"mkdir\", \"made\"]]");
    let json = explain(&["--json", "--", "mkdir", "made"]).expect(10).json();
    let scopes: Vec<&str> =
        json["candidates"].as_array().unwrap().iter().filter_map(|c| c["scope"].as_str()).collect();
    assert_eq!(scopes, ["exact", "prefix"]);
    for risky in
        [&["python3", "x.py"][..], &["npm", "test"], &["cargo", "test"], &["git", "fetch"], &["bash", "x.sh"]]
    {
        let json = finish(
            world.ringfence().args(["policy", "explain", "--profile", "guarded", "--json", "--"]).args(risky),
            b"",
        )
        .json();
        assert_eq!(json["candidates"], serde_json::json!([]), "{risky:?}");
    }
}

#[test]
fn s003_38_a_denied_tool_is_blocked_whoever_calls_it() {
    let world = World::new();
    world.write("README.md", "hello");
    let file = |arguments: &[&str]| finish(world.ringfence().arg("file").args(arguments), b"new");
    world.config("");
    file(&["write", "made"]).expect(0);
    fs::remove_file(world.workspace.join("made")).unwrap();
    world.config(
        "[[tool]]\ndeny = \"write_file\"\n\
         [[agents.reader.tool]]\nallow = [\"read_file\", \"write_file\"]\n",
    );
    file(&["write", "made"]).expect(126).says("tools.write_file");
    file(&["symlink", "made", "README.md"]).expect(126).says("tools.write_file");
    world.run(&[], &["touch", "made"]).expect(0);
    fs::remove_file(world.workspace.join("made")).unwrap();
    world.run(&["--agent", "reader"], &["touch", "made"]).expect(126).says("tools.not-chosen");
    file(&["list", "--agent", "reader", "."]).expect(126).says("tools.not-chosen");
    file(&["write", "--agent", "reader", "made"]).expect(126).says("tools.write_file");
    file(&["read", "--agent", "reader", "README.md"]).expect(0);
    assert!(!world.workspace.join("made").exists());

    for (tool, code) in [("read_file", 0), ("exec", 11), ("write_file", 11), ("nonesuch", 11)] {
        world.check(&["--agent", "reader", "--tool", tool]).expect(code);
    }
    let shown = world.policy(&["show", "--agent", "reader", "--json"]).expect(0).json();
    let decision = |tool: &str| {
        let tools = shown["tools"].as_array().unwrap();
        tools.iter().find(|row| row["tool"] == tool).map(|row| row["decision"].clone()).unwrap()
    };
    assert_eq!((decision("read_file"), decision("exec")), ("allow".into(), "deny".into()));
    shows(&world.policy(&["show", "--agent", "reader"]), "tools.not-chosen (operator, ");
}

#[test]
fn every_mistake_in_a_policy_file_is_shown_with_its_place_and_nothing_runs() {
    let world = World::new();
    world.config("profile = \"guraded\"\ncomands = \"listed\"\n[[command]]\nallow = []\n");
    for done in [world.run(&[], &["touch", "made"]), world.check(&["--", "ls"]), world.policy(&["show"])] {
        let done = done.expect(125);
        for part in
            ["config.toml:1:11", "did you mean `guarded`", "config.toml:2:1", "`commands`", "config.toml:4:9"]
        {
            assert!(done.err.contains(part), "`{part}` is missing in\n{}", done.err);
        }
    }
    let path = world.config("");
    for (text, parts) in [
        (&b"# \xff\n"[..], ["config.toml:1:3", "save it as UTF-8"]),
        (
            b"[[root]]\npath = \"~/.ssh\"\naccess = \"read\"\n",
            ["config.toml:2:8", "no file opens a credential store"],
        ),
        (b"profile = guarded\n", ["config.toml:1:11", "put it in double quotes"]),
    ] {
        fs::write(&path, text).unwrap();
        let done = world.run(&[], &["touch", "made"]).expect(125);
        parts
            .iter()
            .for_each(|part| assert!(done.err.contains(part), "`{part}` is missing in\n{}", done.err));
    }
    assert!(!world.workspace.join("made").exists());
}

#[test]
fn c12_a_policy_that_others_can_write_or_that_is_missing_is_no_policy() {
    let world = World::new();
    let path = world.config("profile = \"workspace\"\n");
    world.run(&[], &["true"]).expect(0);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    world.run(&[], &["true"]).expect(125).says("can be written by others");
    fs::remove_file(&path).unwrap();
    symlink("/nonexistent", &path).unwrap();
    world.run(&[], &["true"]).expect(125).says("cannot be read");
    fs::remove_file(&path).unwrap();
    world.run(&["--policy", "/nonexistent"], &["true"]).expect(125).says("cannot be read");
    let inside = world.write("mine.toml", "profile = \"danger\"\n");
    world.run(&["--policy", inside.to_str().unwrap()], &["true"]).expect(125).says("writable from inside");
}

#[test]
fn what_the_operator_says_is_a_ceiling_for_flags() {
    let world = World::new();
    world.config("minimum_profile = \"guarded\"\n[limits]\nmemory = \"1g\"\nprocesses = 20\n");
    world.run(&["--profile", "guarded"], &["pwd"]).expect(0);
    let done = world.run(&["--profile", "workspace"], &["touch", "made"]).expect(126);
    assert!(done.err.contains("minimum_profile") && done.err.contains("config.toml:1:19"), "{}", done.err);
    let done = world.run(&["--profile", "guarded", "--memory", "2g"], &["pwd"]).expect(126);
    assert!(done.err.contains("limits.memory") && done.err.contains("config.toml:3:10"), "{}", done.err);
    world.run(&["--profile", "guarded", "--memory", "512m"], &["pwd"]).expect(0);
    assert!(!world.workspace.join("made").exists());
    let refused =
        world.records().into_iter().filter(|record| record["event"]["kind"] == "call-refused").count();
    assert_eq!(refused, 2, "a no to a flag is written down like every other");
}

#[test]
fn rules_of_the_operator_allow_and_deny_commands() {
    let world = World::new();
    world.config(
        "profile = \"guarded\"\n[[command]]\nallow = \"touch\"\nmatch = \"touch made\"\n\
         [[command]]\ndeny = \"ls --all\"\nreason = \"no dot files\"\nmatch = [\"ls -a\", \"ls -la x\"]\n",
    );
    world.run(&[], &["touch", "made"]).expect(0);
    assert!(world.workspace.join("made").exists());
    let done = world.run(&[], &["ls", "-la"]).expect(126);
    assert!(done.err.contains("no dot files") && done.err.contains("config.toml:6:8"), "{}", done.err);
    world.run(&[], &["ls", "-l"]).expect(0);
    world.run(&[], &["mkdir", "d"]).expect(126).says("no approver is available");
}

#[test]
fn c10_a_workspace_tightens_and_asks_for_the_rest() {
    let world = World::new();
    world.write("open.txt", "open");
    world.write("closed.txt", "closed");
    world.workspace_policy(
        "net = \"full\"\n[[path]]\ndeny = \"closed.txt\"\n[limits]\nmemory = \"64g\"\nprocesses = 30\n",
    );
    let done = world.sh("cat open.txt; cat closed.txt; true").expect(0);
    assert_eq!(done.text(), "open", "the rule holds in the kernel");
    assert!(done.err.contains("requests more than it has"), "{}", done.err);
    shows(&world.check(&["--read", "closed.txt"]).expect(11), ".ringfence/policy.toml:3:8");
    let shown = world.policy(&["show", "--json"]).expect(0).json();
    let asked: Vec<&str> =
        shown["requests"].as_array().unwrap().iter().filter_map(|request| request["what"].as_str()).collect();
    assert!(
        asked.iter().any(|what| what.contains("net")) && asked.iter().any(|what| what.contains("memory"))
    );
    let value = |key: &str| {
        let found = shown["settings"].as_array().unwrap().iter().find(|setting| setting["key"] == key);
        found.and_then(|setting| setting["value"].as_str()).unwrap_or_default().to_owned()
    };
    assert_eq!((value("net").as_str(), value("limits.memory").as_str()), ("none", "4g"));
    assert_eq!(value("limits.processes"), "30");
    let inside = world.sh("echo 'net = \"none\"' > .ringfence/policy.toml; rm -rf .ringfence");
    assert!(world.read(".ringfence/policy.toml").unwrap().starts_with("net = \"full\""), "{}", inside.err);
}

/// By somebody at a terminal who types a word after everything was shown. The standard input says yes: it is not asked.
fn answered(world: &World, arguments: &str, keys: &[u8]) -> Done {
    // Wide, so that no path breaks the line of a word.
    let terminal = Terminal::new(60, 300);
    let script = format!("echo yes | \"$RINGFENCE\" policy approve {arguments}");
    let child = session(world, &terminal, &script);
    terminal.wait_for("as the file stays as it is");
    terminal.wait_for("anything else denies > ");
    assert!(terminal.seen().contains("allow"), "{}", terminal.seen());
    terminal.type_in(keys);
    collect(child)
}

fn approve(world: &World, arguments: &str) -> Done {
    answered(world, arguments, b"yes\r")
}

/// No record, no change.
#[test]
fn an_approval_is_written_down_before_the_file_changes() {
    let world = World::new();
    world.workspace_policy("[[command]]\nallow = \"touch\"\n");
    world.run(&[], &["true"]).expect(0);
    let shown = world.policy(&["show", "--json"]).expect(0).json();
    let named = format!("--sha256 {}", shown["files"][0]["seal"].as_str().unwrap());
    let (key, aside) = (world.state.join("ringfence/ledger.key"), world.state.join("aside"));
    let config = world.home.join(".config/ringfence/config.toml");
    fs::rename(&key, &aside).unwrap();
    approve(&world, &named).expect(125).says("ledger is broken");
    assert!(!config.exists());
    fs::rename(&aside, &key).unwrap();
    approve(&world, &named).expect(0);
    let records = world.records();
    let changed = records.iter().rfind(|record| record["event"]["kind"] == "policy-changed").unwrap();
    assert_eq!(changed["event"]["sha256"], ringfence_policy::sha256(&fs::read(&config).unwrap()));
}

#[test]
fn c10_an_approval_is_for_one_text() {
    let world = World::new();
    let path = world.workspace_policy("[[command]]\nallow = \"touch\"\n");
    let guarded = ["--profile", "guarded"];
    world.run(&guarded, &["touch", "made"]).expect(126);
    let other = format!("exec \"$RINGFENCE\" policy approve --sha256 {}", "0".repeat(64));
    collect(session(&world, &Terminal::new(60, 80), &other)).expect(125).says("not what was named");
    world.run(&guarded, &["touch", "made"]).expect(126);
    for keys in [&b"y\r"[..], b"\r", b"\x03", b"no\r"] {
        answered(&world, "", keys).expect(125).says("nothing was approved");
    }
    world.run(&guarded, &["touch", "made"]).expect(126);
    let shown = world.policy(&["show", "--json"]).expect(0).json();
    let digest = shown["files"][0]["seal"].as_str().unwrap().to_owned();
    let alone = collect(alone(&world, &format!("exec \"$RINGFENCE\" policy approve --sha256 {digest}")));
    alone.expect(126).says("a yes takes a person at a terminal");
    world.run(&guarded, &["touch", "made"]).expect(126);
    shows(&approve(&world, &format!("--sha256 {digest}")).expect(0), "approved");
    world.run(&guarded, &["touch", "made"]).expect(0);
    assert!(world.workspace.join("made").exists());
    assert!(world.records().iter().any(|record| record["event"]["kind"] == "policy-changed"));
    fs::write(&path, "[[command]]\nallow = \"touch\"\n# one more line\n").unwrap();
    world.run(&guarded, &["touch", "again"]).expect(126);
    assert!(!world.workspace.join("again").exists());
}

#[test]
fn c10_what_was_approved_together_is_not_approved_apart() {
    let world = World::new();
    world.workspace_policy("extends = [\"base.toml\"]\n[[command]]\ndeny = \"touch secret\"\n");
    let base = "[[command]]\nallow = \"touch\"\n";
    world.write(".ringfence/base.toml", base);
    let guarded = ["--profile", "guarded"];
    let shown = world.policy(&["show", "--json"]).expect(0).json();
    approve(&world, &format!("--sha256 {}", shown["files"][0]["seal"].as_str().unwrap())).expect(0);
    world.run(&guarded, &["touch", "made"]).expect(0);
    world.workspace_policy(base);
    world.run(&guarded, &["touch", "again"]).expect(126);
    world.workspace_policy("extends = [\"base.toml\"]\n[[command]]\ndeny = \"touch secret\"\n");
    world.run(&guarded, &["touch", "again"]).expect(0);
    world.write(".ringfence/base.toml", "[[command]]\nallow = \"touch\"\n[[command]]\nallow = \"make\"\n");
    world.run(&guarded, &["touch", "third"]).expect(126);
}

#[test]
fn policy_test_says_which_case_came_out_otherwise() {
    let world = World::new();
    let good = world.beside("cases").join("good.toml");
    fs::write(&good, "profile = \"guarded\"\n[[case]]\nshell = \"ls\"\nexpect = \"allow\"\n").unwrap();
    shows(&world.policy(&["test", good.to_str().unwrap()]).expect(0), "1 cases, all as expected");
    let bad = world.beside("cases").join("bad.toml");
    fs::write(&bad, "profile = \"guarded\"\n[[case]]\nshell = \"rm x\"\nexpect = \"allow\"\n").unwrap();
    let done = world.policy(&["test", good.to_str().unwrap(), bad.to_str().unwrap()]).expect(1);
    assert!(done.text().contains("bad.toml:2:") && done.text().contains("2 cases, 1 not"), "{}", done.text());
    fs::write(&bad, "[[case]]\nshel = \"rm x\"\nexpect = \"allow\"\n").unwrap();
    world.policy(&["test", bad.to_str().unwrap()]).expect(125).says("bad.toml:2:1");
}

#[test]
fn s004_strict_and_air_gapped_read_the_workspace_and_ask_nobody() {
    let world = World::new();
    world.repository();
    world.write("README.md", "hello");
    for profile in ["strict", "air-gapped"] {
        let flags = ["--profile", profile];
        world.run(&flags, &["cat", "README.md"]).expect(0);
        world.run(&flags, &["git", "status", "--short"]).expect(0);
        world.run(&flags, &["touch", "made"]).expect(126).says("approvals are off");
        world.run(&["--profile", profile, "--net", "full"], &["pwd"]).expect(126);
        world.run(&["--profile", profile, "--danger-required-controls", "env"], &["pwd"]).expect(126);
        world.run(&["--profile", profile, "--memory", "2g"], &["pwd"]).expect(126);
        world.file(&["write", "--profile", profile, "made"], b"x").expect(126);
    }
    world.run(&["--profile", "strict"], &["sh", "-c", "cat README.md"]).expect(0);
    world.run(&["--profile", "air-gapped"], &["sh", "-c", "cat README.md"]).expect(126);
    assert!(!world.workspace.join("made").exists());
}

#[test]
fn c39_a_read_only_workspace_still_runs_commands() {
    let world = World::new();
    world.config("workspace_access = \"read\"\n");
    world.write("kept.txt", "kept");
    world.sh("cat kept.txt && touch /tmp/x && touch ~/x && ! touch made && ! echo x > kept.txt").expect(0);
    assert_eq!(world.read("kept.txt").as_deref(), Some("kept"));
    world.file(&["write", "made"], b"x").expect(126);
    assert!(!world.workspace.join("made").exists());
}

#[test]
fn the_schema_is_json() {
    let world = World::new();
    let schema = world.policy(&["schema"]).expect(0).json();
    assert!(schema["properties"]["profile"].is_object(), "{schema}");
}
