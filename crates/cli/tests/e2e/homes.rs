//! The home inside: whose it is, what becomes of it, and that nothing a command leaves in it turns against its owner.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::approvals::configure;
use crate::testkit::{Done, LANDLOCK, World, contains, eventually, finish, send};

const VALUE: &str = "correct horse battery staple";

fn homes(world: &World) -> PathBuf {
    world.state.join("ringfence/homes")
}

/// The kept home of whoever starts Ringfence without an agent.
fn kept(world: &World) -> PathBuf {
    let entries = fs::read_dir(homes(world)).unwrap().flatten().map(|entry| entry.path());
    let plain = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("ws_") && !name.contains('.')
    };
    entries.into_iter().find(plain).unwrap()
}

fn files_with(directory: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(files_with(&path, text));
        } else if kind.is_file() && contains(&fs::read(&path).unwrap(), text.as_bytes()) {
            found.push(path);
        }
    }
    found
}

fn set_secret(world: &World, arguments: &[&str]) {
    configure(world, "[leaks.stored_secrets]\noutput = \"flag\"\narguments = \"flag\"\n");
    finish(world.ringfence().args(["secret", "set"]).args(arguments), VALUE.as_bytes()).expect(0);
}

fn notes(world: &World) -> Vec<String> {
    let records = world.records();
    let settled = records.iter().filter(|record| record["event"]["kind"] == "call-settled");
    let notes = settled.filter_map(|record| record["event"]["notes"].as_array().cloned()).flatten();
    notes.map(|note| note.as_str().unwrap().to_owned()).collect()
}

/// The start links packages of the host into the home. A link that a command made there must not lead that work elsewhere.
#[test]
fn a_link_in_the_home_does_not_lead_ringfence_outside() {
    let world = World::new();
    let outside = world.beside("outside");
    for packages in [".cargo/registry", ".cargo/git", "go/pkg/mod"] {
        fs::create_dir_all(world.home.join(packages)).unwrap();
    }
    world.sh("ls -d ~/.cargo/registry ~/go/pkg/mod").expect(0);
    let outside_name = outside.display();
    world
        .sh(&format!("rm -rf ~/.cargo ~/go; ln -s {outside_name} ~/.cargo; ln -s {outside_name} ~/go"))
        .expect(0);
    // Control: by path, whoever follows the links works outside.
    symlink("/packages", kept(&world).join(".cargo/control")).unwrap();
    assert!(fs::symlink_metadata(outside.join("control")).is_ok());
    fs::remove_file(outside.join("control")).unwrap();

    world.sh("ls -d ~/.cargo/registry ~/.cargo/git ~/go/pkg/mod").expect(0).says("was moved to");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(notes(&world).len(), 2, "{:?}", notes(&world));
    assert!(!world.sh("true").expect(0).err.contains("moved"), "told once");
}

#[test]
fn nothing_in_the_home_makes_a_later_start_fail() {
    for script in [
        "chmod 000 ~",
        "chmod 500 ~",
        "chmod 000 ~/.cargo",
        "rm -rf ~/.cargo; ln -s /usr ~/.cargo",
        "rm -rf ~/.cargo; ln -s .cargo ~/.cargo",
        "rm -rf ~/.cargo; ln -s /proc/self/root ~/.cargo",
        "rm -rf ~/.cargo; mkfifo ~/.cargo",
        "rm -rf ~/.cargo; echo x >~/.cargo",
        "rm -rf ~/.cargo/registry; mkfifo ~/.cargo/registry",
        "rm -rf ~/.cargo; ln -s \"$(printf 'a\\nb\\377')\" ~/.cargo",
    ] {
        let world = World::new();
        fs::create_dir_all(world.home.join(".cargo/registry")).unwrap();
        world.sh(script).expect(0);
        world.sh("test -d ~/.cargo/registry && echo x >~/new").expect(0);
        assert_eq!(notes(&world).len(), 1, "{script}: {:?}", notes(&world));
    }
}

#[test]
fn agents_do_not_share_a_home() {
    let world = World::new();
    let read = |flags: &[&str]| world.sh_with(flags, "cat ~/planted; true").expect(0).text();
    world.sh_with(&["--agent", "a"], "echo of-a >~/planted").expect(0);
    assert_eq!(read(&["--agent", "a"]), "of-a\n", "the control: its own home is kept");
    for other in [&["--agent", "b"][..], &["--agent", "A"], &["--agent", "a/../a"], &[]] {
        assert_eq!(read(other), "", "{other:?}");
    }
    let landlock = [LANDLOCK, &["--agent", "b"]].concat();
    let entered = world.sh_with(&landlock, "cat \"$HOME\"/../*/planted; cat ~/planted").text();
    assert_eq!(entered, "", "nor where the home is at its own path");
}

/// Poison in a home is obeyed by whatever runs there next. It must not meet a secret.
#[test]
fn a_session_with_a_secret_does_not_have_the_home_of_one_without() {
    let world = World::new();
    set_secret(&world, &["token"]);
    let poison = "printf 'test -n \"$TOKEN_FILE\" && cat \"$TOKEN_FILE\" >~/stolen\\necho obeyed >~/mark\\n' >~/.profile";
    world.sh(poison).expect(0);
    world.run(&[], &["sh", "-lc", "cat ~/mark"]).expect(0);
    assert!(kept(&world).join("mark").exists(), "the control: it is obeyed where it was planted");
    for agent in [&[][..], &["--agent", "a"]] {
        let flags = [&["--secret", "token"], agent].concat();
        let done = world.run(&flags, &["sh", "-lc", "cat \"$TOKEN_FILE\"; cat ~/mark"]);
        assert_eq!(done.text(), VALUE, "it has the secret, and nothing was obeyed");
    }
    assert_eq!(files_with(&homes(&world), VALUE), Vec::<PathBuf>::new());
}

#[test]
fn what_a_session_with_a_secret_leaves_in_its_home_is_thrown_away() {
    let world = World::new();
    set_secret(&world, &["token"]);
    let flags = ["--secret", "token"];
    let leave = "cp \"$TOKEN_FILE\" ~/copy; mkdir -p ~/a/b; cp ~/copy ~/a/b; chmod 000 ~/a/b ~/a; cat ~/copy";
    assert_eq!(world.sh_with(&flags, leave).expect(0).text(), VALUE, "the control: the home is writable");
    assert_eq!(fs::read_dir(homes(&world).join("fresh")).unwrap().count(), 0);
    assert_eq!(world.sh_with(&flags, "ls -A ~").expect(0).text(), "");
}

/// A process that is killed leaves its home; the next one that needs a new home removes it, but none that is in use.
#[test]
fn the_home_of_a_killed_session_is_removed_by_the_next() {
    let world = World::new();
    set_secret(&world, &["token"]);
    let fresh = homes(&world).join("fresh");
    let count = || fs::read_dir(&fresh).map_or(0, Iterator::count);
    let start = |mark: &str| {
        let script = format!("cp \"$TOKEN_FILE\" ~/copy; touch {mark}; exec sleep 600");
        let mut command = world.ringfence();
        command.args(["run", "--secret", "token", "--", "sh", "-c", &script]);
        let child = command.stdin(std::process::Stdio::null()).spawn().unwrap();
        let path = world.workspace.join(mark);
        eventually(mark, || path.exists());
        child
    };
    let mut killed = start("one");
    send(&killed, Signal::KILL);
    killed.wait().unwrap();
    assert_eq!(count(), 1, "the control: it is left behind");
    let mut running = start("two");
    assert_eq!(count(), 1, "the one that was left is gone, the one in use is not");
    world.sh_with(&["--secret", "token"], "true").expect(0);
    assert_eq!(count(), 1);
    send(&running, Signal::TERM);
    running.wait().unwrap();
    eventually("the home is thrown away with its session", || count() == 0);
}

/// What only the proxy knows is in no home, so that one can be kept: apart, for the same agent with the same secrets.
#[test]
fn secrets_of_the_proxy_have_a_kept_home_apart() {
    let world = World::new();
    for name in ["one", "two"] {
        set_secret(&world, &[name, "--class", "provider", "--host", "api.example.test"]);
    }
    let with = |names: &[&str], script: &str| {
        let secrets: Vec<&str> = names.iter().flat_map(|name| ["--secret", *name]).collect();
        let net: &[&str] = if names.is_empty() { &[] } else { &["--net", "filtered"] };
        world.sh_with(&[&secrets, net].concat(), script).expect(0).text()
    };
    with(&[], "echo poison >~/.profile");
    with(&["one"], "test ! -e ~/.profile && echo own >~/own");
    assert_eq!(with(&["one"], "cat ~/own"), "own\n");
    for others in [&["two"][..], &["one", "two"], &[]] {
        assert_eq!(with(others, "cat ~/own; true"), "", "{others:?}");
    }
}

/// In `guarded`, settings of a repository that name programs are asked about, also where they are in the home inside.
#[test]
fn the_judge_sees_the_home_that_the_command_sees() {
    let plant = "printf '[diff \"d\"]\\n\\ttextconv = touch /WORKSPACE/mark; cat\\n' >~/c; mkdir -p ~/h; \
                 printf '#!/bin/sh\\ntouch /WORKSPACE/mark\\n' >~/h/post-index-change; chmod 755 ~/h/post-index-change";
    for (setting, value) in [
        ("include.path", "/home/ringfence/c"),
        ("include.path", "/proc/self/root/home/ringfence/c"),
        ("core.hooksPath", "/home/ringfence/h"),
    ] {
        let world = World::new();
        let place = world.workspace.display().to_string();
        let here = |text: &str| text.replace("/WORKSPACE", &place);
        world.repository();
        world.write("sub/.gitattributes", "* diff=d\n");
        world.write("sub/file", "one\n");
        world.write("sub/other", "same\n");
        let sub = world.workspace.join("sub");
        world.git(&sub, &["init", "-q", "."]);
        world.git(&sub, &["add", "."]);
        world.git(&sub, &["commit", "-qm", "one"]);
        world.write("sub/file", "two\n");
        let git = ["git", "-C", "sub", "diff"];
        world.run(&["--profile", "guarded"], &git).expect(0);
        world.git(&sub, &["config", setting, &here(value)]);
        world.sh(&here(plant)).expect(0);

        let mark = world.workspace.join("mark");
        let asked = world.run(&["--profile", "guarded"], &git).expect(126);
        assert!(!mark.exists(), "{value}: {}", asked.err);
        let check = finish(world.ringfence().args(["check", "--profile", "guarded", "--"]).args(git), b"");
        assert_eq!(check.code, Some(10), "{value}");
        fs::write(sub.join("file"), "three\n").unwrap();
        // What only seems changed makes git refresh its index, which has a hook.
        finish(world.host("touch").args(["-d", "2001-01-01", "sub/other"]), b"").expect(0);
        world.run(&[], &git).expect(0);
        assert!(mark.exists(), "the control: git obeys it ({setting} = {value})");
    }
}

/// The same on every entrance: a session of MCP is another agent's than a `run`, and has that agent's home.
#[test]
fn the_hook_of_an_agent_has_the_home_of_that_agent() {
    let world = World::new();
    world.sh("echo poison >~/planted").expect(0);
    let request = serde_json::json!({
        "session_id": "s", "transcript_path": "/nonexistent", "cwd": world.workspace, "hook_event_name": "PreToolUse",
        "tool_name": "Bash", "tool_input": { "command": "cat ~/planted; echo own >~/own" },
    });
    let answer = finish(world.ringfence().args(["hook", "claude-code"]), request.to_string().as_bytes());
    let answer: Value = answer.expect(0).json();
    let command = answer["hookSpecificOutput"]["updatedInput"]["command"].as_str().unwrap().to_owned();
    let done: Done = finish(world.host("sh").args(["-c", &command]), b"");
    assert_eq!(done.expect(0).text(), "");
    assert_eq!(world.sh_with(&["--agent", "claude-code"], "cat ~/own").expect(0).text(), "own\n");
}

/// Its probes have workspaces of their own that are gone afterwards.
#[test]
fn an_examination_leaves_no_homes() {
    let world = World::new();
    world.sh("true").expect(0);
    let homes = world.state.join("ringfence/homes");
    let before = crate::testkit::names(&homes);
    assert_eq!(before.len(), 1, "a run keeps its own");
    finish(world.ringfence().args(["doctor", "--json"]), b"").expect(0);
    assert_eq!(crate::testkit::names(&homes), before);
}
