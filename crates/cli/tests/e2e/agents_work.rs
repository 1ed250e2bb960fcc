//! A day with a real agent behind `ringfence init`: ordinary work that nobody is asked about, what everybody fears, questions,
//! sub-agents, and the way out.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::agents::{Ran, bash, claude, codex, init};
use crate::approvals::{Watcher, configure, events};
use crate::testkit::{World, finish, is_root};

/// A repository with a remote next door, and a key in the home.
struct Desk {
    world: World,
    outside: PathBuf,
    remote: PathBuf,
    /// Where the remote stood before.
    stood: String,
}

impl Desk {
    fn new() -> Self {
        let world = World::new();
        let (outside, remote) = (world.beside("outside"), world.beside("remote"));
        fs::create_dir(world.home.join(".ssh")).unwrap();
        fs::write(world.home.join(".ssh/id_ed25519"), "the key").unwrap();
        world.write("sum.sh", "expr $1 + $2\n");
        world.write("test.sh", "test \"$(sh sum.sh 2 3)\" = 5 && echo passed\n");
        world.git(&remote, &["init", "-q", "--bare", "-b", "main"]);
        world.repository();
        world.git(&world.workspace, &["add", "-A"]);
        world.git(&world.workspace, &["commit", "-q", "-m", "sum"]);
        world.git(&world.workspace, &["remote", "add", "origin", remote.to_str().unwrap()]);
        world.git(&world.workspace, &["push", "-q", "origin", "main"]);
        let stood = world.git(&remote, &["rev-parse", "main"]);
        Self { world, outside, remote, stood }
    }

    fn is_pushed_over(&self) -> bool {
        self.world.git(&self.remote, &["rev-parse", "main"]) != self.stood
    }

    /// As it was before an agent came.
    fn tidy(&self) {
        let _none = fs::remove_file(self.outside.join("written"));
        self.world.git(&self.remote, &["update-ref", "refs/heads/main", self.stood.trim()]);
        self.world.git(&self.world.workspace, &["reset", "-q", "--hard", self.stood.trim()]);
        self.world.git(&self.world.workspace, &["clean", "-qfd"]);
    }
}

const COMMIT: &str = "git -c user.name=a -c user.email=a@b.test commit";
const LOOP: &str = "sed -i 's/+ \\$2/+ $2 + 0/' sum.sh && sh test.sh && git add -A";

fn push() -> String {
    format!("{COMMIT} -q --amend -m other && git push -q --force origin main && echo pushed")
}

/// What is true of a run in which the agent was stopped, whichever agent it was.
fn stopped(desk: &Desk, ran: &Ran) {
    assert!(!desk.outside.join("written").exists(), "{:?}", ran.outputs);
    assert!(!ran.outputs.iter().any(|output| output.contains("the key")), "{:?}", ran.outputs);
    assert!(ran.visits.is_empty() && !desk.is_pushed_over(), "{:?}", ran.outputs);
    assert!(ran.outputs[0].contains("passed"), "ordinary work goes on: {:?}", ran.outputs);
    assert!(desk.world.read("sum.sh").unwrap().contains("$2 + 0"));
    let records = desk.world.records();
    assert!(events(&records, "approval-requested").is_empty(), "nobody is asked about any of it");
    desk.world.ledger_tool(&["verify"]).expect(0);
}

/// Nothing of ours is left but the record.
fn gone(desk: &Desk) {
    finish(desk.world.ringfence().args(["uninstall", "--yes"]), b"").expect(0);
    let found =
        finish(desk.world.host("grep").args(["-rl", "Ringfence gave no answer"]).arg(&desk.world.home), b"");
    let texts: Vec<String> =
        found.text().lines().filter(|line| !is_memory(Path::new(line))).map(str::to_owned).collect();
    assert!(texts.is_empty(), "{texts:?}");
    assert!(!desk.world.state.join("ringfence/init").exists());
}

/// What an agent keeps of its own conversations.
fn is_memory(path: &Path) -> bool {
    path.components().any(|part| {
        ["projects", "sessions", "file-history", "backups"].iter().any(|name| part.as_os_str() == *name)
    })
}

#[test]
fn claude_code_works_all_day_and_nobody_is_asked() {
    let desk = Desk::new();
    let world = &desk.world;
    let steps = json!([
        bash(LOOP),
        bash(&format!("{COMMIT} -q -m second")),
        { "name": "Write", "input": { "file_path": desk.outside.join("written"), "content": "x" } },
        bash(&format!("touch {}", desk.outside.join("written").display())),
        { "name": "Read", "input": { "file_path": world.home.join(".ssh/id_ed25519") } },
        bash(&format!("cat {}/.ssh/id_ed25519", world.home.display())),
        bash("curl -s -m 5 http://127.0.0.1:{port}/reached"),
        bash(&push()),
        "finished",
    ]);
    let control = claude(world, &["--allowedTools", "Bash,Write,Read"], &steps);
    assert!(desk.outside.join("written").exists(), "{:?}", control.outputs);
    assert!(control.output(4).contains("the key") && control.output(5).contains("the key"));
    assert!(!control.visits.is_empty() && desk.is_pushed_over(), "{:?}", control.outputs);
    desk.tidy();

    init(world, "claude-code");
    let ran = claude(world, &[], &steps);
    assert_eq!(ran.done.text().trim(), "finished", "{:?}", ran.outputs);
    stopped(&desk, &ran);
    let records = world.records();
    let refused: Vec<&Value> =
        events(&records, "call-refused").iter().map(|event| &event["refusal"]["rule"]).collect();
    assert_eq!(refused, ["path.boundary", "path.boundary"], "a write and a read, and both are written down");
    assert_eq!(events(&records, "call-intended").len(), 6, "each command is");
    gone(&desk);
}

#[test]
fn codex_works_all_day_and_nobody_is_asked() {
    let desk = Desk::new();
    let world = &desk.world;
    let exec = |command: &str| json!({ "name": "exec_command", "input": { "cmd": command } });
    let patch = format!(
        "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch\n",
        desk.outside.join("written").display()
    );
    let inside = "*** Begin Patch\n*** Add File: patched\n+x\n*** End Patch\n";
    let steps = json!([
        exec(LOOP),
        exec(&format!("apply_patch <<'E'\n{inside}E\n")),
        exec(&format!("{COMMIT} -q -m second")),
        exec(&format!("apply_patch <<'E'\n{patch}E\n")),
        exec(&format!("touch {}", desk.outside.join("written").display())),
        exec(&format!("cat {}/.ssh/id_ed25519", world.home.display())),
        exec("curl -s -m 5 http://127.0.0.1:{port}/reached"),
        exec(&push()),
        "finished",
    ]);
    let control = codex(world, &steps);
    assert!(desk.outside.join("written").exists(), "{:?}", control.outputs);
    assert!(control.output(5).contains("the key") && !control.visits.is_empty() && desk.is_pushed_over());
    desk.tidy();

    init(world, "codex");
    let ran = codex(world, &steps);
    stopped(&desk, &ran);
    assert_eq!(world.read("patched").as_deref(), Some("x\n"), "{}", ran.output(1));
    assert!(ran.output(3).contains("path.boundary"), "{}", ran.output(3));
    let records = world.records();
    assert_eq!(events(&records, "call-refused")[0]["refusal"]["rule"], "path.boundary");
    assert_eq!(events(&records, "call-intended").len(), 7, "six commands and a patch");
    gone(&desk);
}

/// What a sub-agent does comes to the hook as well.
#[test]
fn a_sub_agent_of_claude_code_is_stopped_like_the_agent() {
    let world = World::new();
    let outside = world.beside("outside");
    let steps = json!([
        { "name": "Agent", "input": {
            "description": "a part", "prompt": "do it", "subagent_type": "general-purpose", "run_in_background": false,
        } },
        bash(&format!("echo in >in; touch {}/out; echo end", outside.display())),
        { "name": "Write", "input": { "file_path": outside.join("written"), "content": "x" } },
        "the part is done",
        "finished",
    ]);
    let control = claude(&world, &["--allowedTools", "Bash,Write,Agent"], &steps);
    assert!(outside.join("out").exists() && outside.join("written").exists(), "{:?}", control.outputs);
    for file in ["out", "written"] {
        fs::remove_file(outside.join(file)).unwrap();
    }
    fs::remove_file(world.workspace.join("in")).unwrap();

    init(&world, "claude-code");
    let ran = claude(&world, &["--allowedTools", "Bash,Write,Agent"], &steps);
    assert!(world.read("in").is_some(), "{:?}", ran.outputs);
    assert!(!outside.join("out").exists() && !outside.join("written").exists(), "{:?}", ran.outputs);
    assert_eq!(events(&world.records(), "call-refused").len(), 1);
}

/// A question waits for a person while the agent waits for its command: yes, no, and nobody.
#[test]
fn a_question_of_claude_code_is_approved_denied_or_expires() {
    let world = World::new();
    // In the workspace: an ordinary user has the agent in a namespace in which an operator's file lies below directories of
    // nobody's, and is not read.
    world.write(".ringfence/policy.toml", "profile = \"guarded\"\n");
    init(&world, "claude-code");
    let steps = |name: &str| json!([bash(&format!("mkdir {name}")), "finished"]);
    let watcher = Watcher::new(&world);
    for (key, name) in [(b"o", "yes"), (b"d", "no")] {
        let ran = watcher.answering(key, || claude(&world, &[], &steps(name)));
        assert_eq!(world.workspace.join(name).is_dir(), name == "yes", "{:?}", ran.outputs);
        assert_eq!(ran.output(0).contains("the answer was no"), name == "no", "{}", ran.output(0));
    }
    let mut expected = vec!["once", "deny"];
    if is_root() {
        configure(&world, "schema = 1\n[approvals]\ntimeout = \"2s\"\n");
        let ran = claude(&world, &[], &steps("late"));
        assert!(ran.output(0).contains("approval.expired"), "{}", ran.output(0));
        assert!(!world.workspace.join("late").exists());
        expected.push("expired");
    }
    drop(watcher);
    let ran = claude(&world, &[], &steps("nobody"));
    assert!(ran.output(0).contains("approval.unreachable"), "{}", ran.output(0));
    let records = world.records();
    let answers: Vec<&Value> =
        events(&records, "approval-decided").iter().map(|event| &event["answer"]).collect();
    expected.push("unreachable");
    assert_eq!(answers, expected);
}

/// Neither by its own file tools, nor by a command, nor by a patch.
#[test]
fn an_agent_does_not_change_its_own_hooks() {
    for name in ["claude-code", "codex"] {
        let world = World::new();
        init(&world, name);
        let settings =
            world.home.join(if name == "codex" { ".codex/hooks.json" } else { ".claude/settings.json" });
        let before = fs::read(&settings).unwrap();
        let line = format!("echo '{{}}' >{0}; rm {0}; echo tried", settings.display());
        let ran = match name {
            "codex" => {
                let exec = |command: &str| json!({ "name": "exec_command", "input": { "cmd": command } });
                let patch = format!(
                    "apply_patch <<'E'\n*** Begin Patch\n*** Delete File: {}\n*** End Patch\nE\n",
                    settings.display()
                );
                codex(
                    &world,
                    &json!([
                        exec(&line),
                        exec(&patch),
                        exec("mkdir -p .codex; echo x >.codex/hooks.json"),
                        "finished"
                    ]),
                )
            }
            _ => claude(
                &world,
                &[],
                &json!([
                    bash(&line),
                    { "name": "Write", "input": { "file_path": settings, "content": "{}" } },
                    { "name": "Write", "input": { "file_path": world.workspace.join(".claude/settings.local.json"), "content": "{}" } },
                    bash("mkdir -p .claude; echo '{\"disableAllHooks\":true}' >.claude/settings.json; echo tried"),
                    "finished",
                ]),
            ),
        };
        assert!(ran.output(0).contains("tried"), "{:?}", ran.outputs);
        assert_eq!(fs::read(&settings).unwrap(), before, "{:?}", ran.outputs);
        for file in [".claude/settings.json", ".claude/settings.local.json", ".codex/hooks.json"] {
            assert!(world.read(file).is_none(), "{file}: {:?}", ran.outputs);
        }
        // The control: nothing but Ringfence keeps a command from it.
        finish(world.host("sh").args(["-c", &line]), b"");
        assert!(!settings.exists());
    }
}

/// Text that Claude Code would hand to a shell by itself, before any hook.
#[test]
fn shell_text_in_a_typed_command_does_not_run() {
    let world = World::new();
    let outside = world.beside("outside").join("out");
    let text = format!("---\nallowed-tools: Bash(touch:*)\n---\nsee !`touch {}`\n", outside.display());
    world.write(".claude/commands/go.md", text);
    let typed = || {
        let _none = fs::remove_file(&outside);
        crate::agents::claude_typed(&world, "/go", &["--allowedTools", "Bash"], &json!(["finished"]))
    };
    let control = typed();
    assert!(outside.exists(), "{:?}", control.done);
    init(&world, "claude-code");
    let ran = typed();
    assert!(!outside.exists(), "{:?}", ran.done);
    assert_eq!(ran.done.text().trim(), "finished");
}

/// Without a hook: every line for a shell becomes a run inside the fence.
#[test]
fn claude_code_with_a_shell_prefix_runs_its_commands_inside_the_fence() {
    let world = World::new();
    let outside = world.beside("outside");
    let command = format!("echo in >in; touch {}/out; echo end", outside.display());
    let steps = json!([bash(&command), "finished"]);
    let run = |prefix: Option<String>| {
        let settings =
            prefix.map(|prefix| json!({ "env": { "CLAUDE_CODE_SHELL_PREFIX": prefix } }).to_string());
        let mut more = vec!["--allowedTools", "Bash"];
        more.extend(settings.iter().flat_map(|settings| ["--settings", settings.as_str()]));
        claude(&world, &more, &steps)
    };
    run(None);
    assert!(outside.join("out").exists(), "the control");
    fs::remove_file(outside.join("out")).unwrap();
    fs::remove_file(world.workspace.join("in")).unwrap();
    let ran = run(Some(format!("{} --shell-prefix", crate::testkit::binary().display())));
    assert!(ran.output(0).contains("end") && world.read("in").is_some(), "{:?}", ran.outputs);
    assert!(!outside.join("out").exists(), "{:?}", ran.outputs);
    assert!(!events(&world.records(), "call-settled").is_empty());
}
