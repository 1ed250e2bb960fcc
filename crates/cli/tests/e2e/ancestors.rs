//! Nothing that is made inside a workspace changes which policy applies there: what was written for a directory holds in every
//! directory below it.

use std::fs;
use std::path::Path;

use ringfence_api::CreateSession;
use serde_json::{Value, json};

use crate::approvals::configure;
use crate::daemon_fixture::Served;
use crate::exec_server::place;
use crate::testkit::{Done, World, finish};

const DENIED: &str = "[[command]]\ndeny = [\"touch\"]\n[[path]]\ndeny = [\"src/closed\"]\n";

/// A workspace with a policy of its own, in which an agent has made its `src` look like a project: a repository, and a policy
/// file that opens everything.
fn world(policy: impl Fn(&World)) -> World {
    let world = World::new();
    world.repository();
    world.write("src/deep/x", "x");
    world.write("src/closed", "closed");
    let script = "mkdir src/.git src/.ringfence && cd src && git init -q . && \
                  printf '[[path]]\\nallow = [\"**\"]\\n' >.ringfence/policy.toml";
    let made = world.sh(script).expect(0);
    assert!(world.workspace.join("src/.git/HEAD").exists(), "{}", made.err);
    policy(&world);
    world
}

fn of_workspace(text: &str) -> impl Fn(&World) + '_ {
    move |world| {
        world.write(".ringfence/policy.toml", text);
    }
}

/// `HERE` stands for the part of the workspace.
fn of_operator(text: &str) -> impl Fn(&World) + '_ {
    move |world| {
        let here = format!("workspaces.{:?}", world.workspace.display().to_string());
        configure(world, &text.replace("HERE", &here));
    }
}

fn run_in(world: &World, directory: &Path, flags: &[&str], command: &[&str]) -> Done {
    let mut ringfence = world.ringfence();
    finish(ringfence.arg("run").args(flags).arg("--").args(command).current_dir(directory), b"")
}

fn check_in(world: &World, directory: &Path, arguments: &[&str]) -> Done {
    finish(world.ringfence().arg("check").args(arguments).current_dir(directory), b"")
}

fn hook(world: &World, cwd: &Path, project: Option<&Path>, command: &str) -> Value {
    let sent = json!({
        "session_id": "one", "cwd": cwd, "hook_event_name": "PreToolUse",
        "tool_name": "Bash", "tool_input": { "command": command },
    });
    let mut hook = world.ringfence();
    hook.args(["hook", "claude-code"]).envs(project.map(|project| ("CLAUDE_PROJECT_DIR", project)));
    finish(&mut hook, sent.to_string().as_bytes()).expect(0).json()["hookSpecificOutput"].clone()
}

fn made(world: &World) -> bool {
    ["made", "src/made", "src/deep/made"]
        .iter()
        .any(|name| fs::remove_file(world.workspace.join(name)).is_ok())
}

#[test]
fn a_repository_made_inside_drops_no_policy_of_the_workspace() {
    let world = world(of_workspace(DENIED));
    for directory in ["", "src", "src/deep"].map(|name| world.workspace.join(name)) {
        run_in(&world, &directory, &[], &["touch", "made"]).expect(126).says("policy.toml");
        let named = directory.to_str().unwrap();
        run_in(&world, &directory, &["--workspace", named], &["touch", "made"])
            .expect(126)
            .says("policy.toml");
        check_in(&world, &directory, &["--", "touch", "made"]).expect(11);
        assert!(!made(&world), "{named}");
        let answer = hook(&world, &directory, None, "touch made");
        assert_eq!(answer["permissionDecision"], "deny", "{answer}");
    }
    let src = world.workspace.join("src");
    for flags in [&[][..], &["--workspace", src.to_str().unwrap()]] {
        let read =
            run_in(&world, &src, flags, &["cat", world.workspace.join("src/closed").to_str().unwrap()]);
        assert!(!read.text().contains("closed"), "{flags:?}: what `src/closed` names stays hidden");
        run_in(&world, &src, flags, &["cat", "deep/x"]).expect(0);
    }
    // The control: without the policy of the workspace the same commands run.
    fs::remove_dir_all(world.workspace.join(".ringfence")).unwrap();
    run_in(&world, &src, &[], &["touch", "made"]).expect(0);
    assert!(made(&world));
    assert_eq!(run_in(&world, &src, &[], &["cat", "closed"]).expect(0).text(), "closed");
}

#[test]
fn a_repository_made_inside_drops_no_part_of_the_operator() {
    let world = world(of_operator("[HERE]\nminimum_profile = \"guarded\"\napproval = \"never\"\n"));
    for directory in ["", "src", "src/deep"].map(|name| world.workspace.join(name)) {
        let named = directory.to_str().unwrap().to_owned();
        for flags in [&[][..], &["--workspace", &named]] {
            run_in(&world, &directory, flags, &["touch", "made"]).expect(126);
            assert!(!made(&world), "{flags:?}");
            run_in(&world, &directory, flags, &["pwd"]).expect(0);
        }
        let loose = run_in(&world, &directory, &["--profile", "workspace"], &["touch", "made"]);
        assert_ne!(loose.code, Some(0));
        assert!(!made(&world) && loose.err.contains("minimum_profile"), "{}", loose.err);
    }
    let other = world.beside("other");
    run_in(&world, &other, &[], &["touch", "made"]).expect(0);
    assert!(other.join("made").exists(), "the control: another directory has another policy");
}

#[test]
fn a_hook_works_in_the_project_of_the_agent() {
    let world = world(of_operator("[[HERE.command]]\ndeny = [\"touch\"]\n"));
    let (src, other) = (world.workspace.join("src"), world.beside("other"));
    let denied = |cwd: &Path, project: Option<&Path>| {
        hook(&world, cwd, project, "touch made")["permissionDecision"] == "deny"
    };
    assert!(denied(&src, Some(&world.workspace)));
    assert!(denied(&src, None));
    assert!(denied(&other, Some(&world.workspace)), "the agent went elsewhere");
    assert!(denied(&src, Some(&other)), "a variable that says something else takes nothing away");
    assert!(!denied(&other, None), "the control: nothing is said about that directory");
}

#[test]
fn the_daemon_and_the_exec_server_hear_the_same_policies() {
    let world = world(of_workspace(DENIED));
    let served = Served::with(world, &[]);
    let src = served.world.workspace.join("src");
    let wanted = CreateSession { workspace: src.clone(), ..served.wanted() };
    let session = served.client().call(&wanted).unwrap();
    let call = served.sh(&session, "true; touch made");
    assert!(format!("{call:?}").contains("policy.toml"), "{call:?}");
    let (world, _socket) = served.over();
    assert!(!made(&world));

    let mut server = world.ringfence();
    let start = json!({
        "processId": "1", "argv": ["touch", "made"], "env": {}, "cwd": place(&src), "tty": false, "arg0": null,
        "sandbox": null,
    });
    let lines: Vec<String> = [
        json!({ "id": 1, "method": "initialize", "params": { "clientName": "test", "resumeSessionId": null } }),
        json!({ "method": "initialized", "params": {} }),
        json!({ "id": 2, "method": "process/start", "params": start }),
    ]
    .iter()
    .map(|line| format!("{line}\n"))
    .collect();
    finish(server.arg("exec-server").current_dir(&src), lines.concat().as_bytes());
    assert!(!made(&world));

    // The control.
    fs::remove_dir_all(world.workspace.join(".ringfence")).unwrap();
    run_in(&world, &src, &[], &["touch", "made"]).expect(0);
    assert!(made(&world));
}

#[test]
fn a_git_directory_anywhere_is_written_by_git_alone() {
    let world = World::new();
    world.repository();
    world.write("src/.git/HEAD", "ref: refs/heads/main\n");
    for profile in ["review", "guarded", "workspace", "strict", "air-gapped"] {
        for path in [".git", ".git/HEAD", "src/.git", "src/.git/HEAD", "src/.GIT/index", "a/.git/objects/x"] {
            let done = finish(world.ringfence().args(["check", "--profile", profile, "--write", path]), b"");
            done.expect(11);
        }
    }
    for path in ["src/.git/HEAD", ".git/index", "new/.git/HEAD"] {
        let before = world.read(path);
        world.file(&["write", path], b"changed").expect(126).says(".git");
        assert_eq!(world.read(path), before, "{path}");
    }
    // The control: the same tool writes beside it, and git itself writes in it.
    world.file(&["write", "src/HEAD"], b"changed").expect(0);
    assert_eq!(world.read("src/HEAD").as_deref(), Some("changed"));
    world.sh("git checkout -q -b other").expect(0);
    assert!(world.read(".git/HEAD").unwrap().contains("other"));
}
