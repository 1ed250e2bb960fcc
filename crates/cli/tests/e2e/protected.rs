//! Paths that make the host do something later: they can be read, and nothing inside can change or create them.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;

use crate::testkit::{World, collect, eventually, finish, names, send};

const EXISTING: &[&str] = &[
    ".vscode/tasks.json",
    ".claude/settings.json",
    ".mcp.json",
    ".envrc",
    ".bashrc",
    "sub/.idea/x.xml",
    ".git/config",
    ".git/hooks/pre-commit",
];

const ABSENT: &[&str] = &[
    ".claude/settings.json",
    ".codex/config.toml",
    ".cursor/mcp.json",
    ".gemini/x",
    ".mcp.json",
    ".vscode/tasks.json",
    ".idea/x",
    ".envrc",
    ".bashrc",
    ".profile",
    ".zshrc",
    ".gitconfig",
    ".gitmodules",
    ".ripgreprc",
    ".ringfence/policy",
    ".agents/x",
    ".git/hooks/post-checkout",
    ".git/config.worktree",
    ".git/commondir",
];

fn listing(world: &World) -> String {
    finish(
        world.host("find").args([".", "-path", "./.git/objects", "-prune", "-o", "-printf", "%p %y %m %s\n"]),
        b"",
    )
    .expect(0)
    .text()
}

fn with_existing() -> World {
    let world = World::new();
    world.repository();
    for path in EXISTING.iter().filter(|path| !path.starts_with(".git/")) {
        world.write(path, "original\n");
    }
    fs::create_dir_all(world.workspace.join(".git/hooks")).unwrap();
    crate::testkit::script(&world.workspace.join(".git/hooks/pre-commit"), "#!/bin/sh\n");
    world
}

/// F4
#[test]
fn existing_protected_paths_cannot_be_changed() {
    let world = with_existing();
    let before: Vec<_> = EXISTING.iter().map(|path| world.read(path)).collect();
    let mut script = String::new();
    for path in EXISTING {
        let directory = path.rsplit_once('/').map_or(path.to_owned(), |(directory, _)| directory);
        script.push_str(&format!(
            "echo evil >{path}; echo evil >>{path}; rm -f {path}; mv {path} /tmp/x; mv -f readme {path}; ln -f readme {path}; \
             chmod 777 {path}; rm -rf {directory}; mv {directory} moved; true >{path}; sed -i s/o/e/ {path};\n"
        ));
    }
    script.push_str("git config core.fsmonitor /tmp/x; git config core.hooksPath /tmp; exit 0");
    for backend in ["native", "bubblewrap"] {
        world.sh_with(&["--backend", backend], &script).expect(0);
        let after: Vec<_> = EXISTING.iter().map(|path| world.read(path)).collect();
        assert_eq!(before, after, "{backend}");
    }
    let done = world.sh("cat .vscode/tasks.json .git/config").expect(0);
    assert!(done.text().starts_with("original\n[core]"), "they can be read: {}", done.text());
    let control = finish(world.host("sh").args(["-c", "echo evil >.vscode/tasks.json"]), b"");
    assert_eq!(control.code, Some(0));
    assert_eq!(world.read(".vscode/tasks.json").as_deref(), Some("evil\n"));
}

/// F5: not even what is not there yet; and nothing of the watch stays behind.
#[test]
fn absent_protected_paths_cannot_be_created_and_leave_no_ghosts() {
    let world = World::new();
    world.repository();
    let before = listing(&world);
    let mut script = String::new();
    for path in ABSENT {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        script.push_str(&format!(
            "mkdir -p {directory} 2>/dev/null; echo evil >{path}; rmdir {path}; echo evil >{path}; rm -rf {path}; \
             ln -s /tmp/x {path}; mkdir -p evil/{path}; mv -T evil/{path} {path}; \n"
        ));
    }
    script.push_str("rm -rf evil; exit 0");
    for backend in ["native", "bubblewrap"] {
        world.sh_with(&["--backend", backend], &script).expect(0);
        assert_eq!(listing(&world), before, "{backend}: the workspace is as it was");
    }
}

/// F11: the directories above a protected path are held too.
#[test]
fn ancestors_cannot_be_exchanged() {
    let world = World::new();
    world.repository();
    world.write("pkg/inner/.vscode/tasks.json", "original\n");
    world.write("fake/inner/.vscode/tasks.json.new", "evil\n");
    world.write(
        "exchange.py",
        "import ctypes, sys\nlibc = ctypes.CDLL(None, use_errno=True)\nr = libc.renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2)\nprint(r)\n",
    );
    let script = "mv pkg pkg2; mv pkg/inner pkg/inner2; python3 exchange.py pkg fake; python3 exchange.py pkg/inner fake/inner; \
                  python3 exchange.py .git fake; mv .git git2; rm -rf pkg .git/hooks; exit 0";
    world.sh(script).expect(0);
    assert_eq!(world.read("pkg/inner/.vscode/tasks.json").as_deref(), Some("original\n"));
    assert!(world.workspace.join("fake/inner/.vscode/tasks.json.new").exists());
    assert!(world.workspace.join(".git/HEAD").exists());
    let control = finish(world.host("python3").args(["exchange.py", "pkg", "fake"]), b"").expect(0);
    assert_eq!(control.text(), "0\n", "without ringfence the exchange succeeds");
}

fn sleeper(world: &World) -> std::process::Child {
    let _ = fs::remove_file(world.workspace.join("up"));
    let child = world
        .ringfence()
        .args(["run", "--", "sh", "-c", "echo up >up; while [ ! -e go ]; do sleep 0.02; done"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("it runs", || world.read("up").is_some());
    child
}

#[test]
fn ghosts_of_a_killed_run_are_gone_after_the_next() {
    let world = World::new();
    let child = sleeper(&world);
    send(&child, Signal::KILL);
    collect(child);
    world.sh("true").expect(0);
    assert_eq!(names(&world.workspace), ["up"]);
}

/// One of two runs is killed: the other keeps its protection, and the last one cleans up.
#[test]
fn concurrent_runs_share_the_protection() {
    let world = World::new();
    let first = sleeper(&world);
    let second = sleeper(&world);
    send(&first, Signal::KILL);
    collect(first);
    let done = world.sh("echo evil >.envrc; mkdir .vscode; echo evil >.vscode/tasks.json; exit 0").expect(0);
    assert!(!done.err.is_empty());
    for path in [".envrc", ".vscode/tasks.json"] {
        assert_eq!(world.read(path), None, "{path}");
    }
    world.write("go", "");
    collect(second).expect(0);
    world.sh("true").expect(0);
    assert_eq!(names(&world.workspace), ["go", "up"]);
}

/// What somebody makes on the host while a run is under way is theirs and stays.
#[test]
fn what_the_host_makes_meanwhile_stays() {
    let world = World::new();
    let child = sleeper(&world);
    let made = world.workspace.join(".vscode");
    fs::create_dir_all(&made).unwrap();
    fs::write(made.join("tasks.json"), "mine").unwrap();
    world.write("go", "");
    collect(child).expect(0);
    assert_eq!(world.read(".vscode/tasks.json").as_deref(), Some("mine"));
}
