//! `check`, the file tools and a shell inside give the same answer about files, for rules of real policy files. Generated
//! workspaces are in `crates/runtime/tests/session/parity.rs`; here are the doors as a person opens them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::testkit::{Done, World, finish, quoted};

const ALLOW: i32 = 0;
const ASK: i32 = 10;
const DENY: i32 = 11;

impl World {
    fn operator_rules(&self, text: &str) -> PathBuf {
        let file = self.home.join("policy.toml");
        fs::write(&file, text).unwrap();
        file
    }

    fn governed(&self, verb: &str, policy: &str, arguments: &[&str]) -> Done {
        let policy = self.operator_rules(policy);
        let mut command = self.ringfence();
        finish(command.args(verb.split(' ')).arg("--policy").arg(policy).args(arguments), b"written\n")
    }

    /// The exit code of `check`.
    fn checked(&self, policy: &str, flag: &str, path: &str) -> i32 {
        self.governed("check", policy, &[flag, path]).code.unwrap()
    }
}

/// Whether each path could be read and then written: inside, and by the file tools.
struct Doors {
    read: bool,
    write: bool,
}

fn shell(world: &World, policy: &str, path: &str) -> Doors {
    let before = world.read(path);
    let path_in_shell = quoted(path);
    let script =
        format!("cat {path_in_shell} 2>/dev/null; {{ echo more >> {path_in_shell}; }} 2>/dev/null; exit 0");
    let done = world.governed("run", policy, &["--", "sh", "-c", &script]).expect(0);
    let write = world.read(path) != before;
    if let Some(before) = &before {
        fs::write(world.workspace.join(path), before).unwrap();
    } else if write {
        fs::remove_file(world.workspace.join(path)).unwrap();
    }
    Doors { read: done.text().contains("TOKEN"), write }
}

fn tools(world: &World, policy: &str, path: &str) -> Doors {
    let read = world.governed("file read", policy, &[path]).text().contains("TOKEN");
    let before = world.read(path);
    world.governed("file write", policy, &[path]);
    let write = world.read(path).as_deref() == Some("written\n");
    if let Some(before) = before {
        fs::write(world.workspace.join(path), before).unwrap();
    }
    Doors { read, write }
}

/// One path through every door. `expected` is the exit code of `check` for reading and for writing.
#[track_caller]
fn agree(world: &World, policy: &str, path: &str, expected: (i32, i32)) {
    let checked = (world.checked(policy, "--read", path), world.checked(policy, "--write", path));
    assert_eq!(checked, expected, "check `{path}`");
    for (door, what) in
        [(shell(world, policy, path), "a shell inside"), (tools(world, policy, path), "the file tools")]
    {
        assert_eq!(door.read, checked.0 == ALLOW, "reading `{path}`: {what}");
        assert_eq!(door.write, checked.1 == ALLOW, "writing `{path}`: {what}");
    }
}

const POLICY: &str = r#"
[[path]]
allow = [".env.test", "deploy/notes.md"]

[[path]]
deny = ["deploy/", "./Cargo.lock"]
operation = "write"
except = ["deploy/free/"]

[[path]]
deny = ["data/", "*.sqlite"]

[[path]]
ask = ["drafts/"]
"#;

fn workspace() -> World {
    let world = World::new();
    for path in [
        ".env",
        ".env.test",
        "main.rs",
        "db_password.txt",
        "server.key",
        "Cargo.lock",
        "deploy/prod.toml",
        "deploy/notes.md",
        "deploy/free/x",
        "data/rows.csv",
        "x.sqlite",
        "drafts/one",
        ".ringfence/x",
    ] {
        world.write(path, "TOKEN\n");
    }
    world
}

/// C-12, S000-17
#[test]
fn every_door_gives_the_same_answer() {
    let world = workspace();
    for (path, expected) in [
        ("main.rs", (ALLOW, ALLOW)),
        (".env", (DENY, DENY)),
        (".env.test", (ALLOW, ALLOW)),
        ("server.key", (DENY, DENY)),
        ("db_password.txt", (ASK, ASK)),
        ("Cargo.lock", (ALLOW, DENY)),
        ("deploy/prod.toml", (ALLOW, DENY)),
        ("deploy/notes.md", (ALLOW, ALLOW)),
        ("deploy/free/x", (ALLOW, ALLOW)),
        ("data/rows.csv", (DENY, DENY)),
        ("x.sqlite", (DENY, DENY)),
        ("drafts/one", (ASK, ASK)),
        (".ringfence/x", (ALLOW, DENY)),
    ] {
        // Outside the fence all of it works.
        let done = finish(world.host("sh").args(["-c", "cat \"$0\" && : >> \"$0\"", path]), b"");
        assert_eq!(done.expect(0).text(), "TOKEN\n");
        agree(&world, POLICY, path, expected);
    }
}

#[test]
fn a_held_place_can_neither_be_made_nor_replaced_nor_moved() {
    let world = workspace();
    fs::remove_file(world.workspace.join("Cargo.lock")).unwrap();
    let attempts = "echo x > Cargo.lock; mkdir Cargo.lock; ln -s main.rs Cargo.lock; echo x > deploy/new; rm deploy/prod.toml; \
                    mv deploy away; mv main.rs deploy/prod.toml; ln -sf /etc deploy/notes.md; echo y > deploy/free/new; exit 0";
    let inside = world.governed("run", POLICY, &["--", "sh", "-c", attempts]).expect(0);
    assert!(!world.workspace.join("Cargo.lock").exists(), "{}", inside.err);
    assert!(!world.workspace.join("deploy/new").exists() && !world.workspace.join("away").exists());
    assert_eq!(world.read("deploy/prod.toml").as_deref(), Some("TOKEN\n"));
    assert_eq!(world.read("deploy/notes.md").as_deref(), Some("TOKEN\n"));
    assert_eq!(
        world.read("deploy/free/new").as_deref(),
        Some("y\n"),
        "what is open is open for new files, too"
    );
    finish(world.host("sh").args(["-c", attempts]), b"").expect(0);
    assert!(
        world.workspace.join("Cargo.lock").exists() && world.workspace.join("away").exists(),
        "the control"
    );
}

#[test]
fn a_held_link_still_leads_where_it_leads() {
    let world = World::new();
    world.write("v1/file", "TOKEN\n");
    world.write("v2/file", "TOKEN\n");
    symlink("v1", world.workspace.join("current")).unwrap();
    let policy = "[[path]]\ndeny = \"./current\"\noperation = \"write\"\n";
    let attempts =
        "cat current/file; rm -f current; ln -sfn v2 current; mv v2 current; echo x >> current/file; exit 0";
    let done = world.governed("run", policy, &["--", "sh", "-c", attempts]).expect(0);
    assert_eq!(done.text(), "TOKEN\n");
    assert_eq!(fs::read_link(world.workspace.join("current")).unwrap(), PathBuf::from("v1"));
    assert_eq!(world.read("v1/file").as_deref(), Some("TOKEN\n"), "what it leads to is held with it");
    agree(&world, policy, "current/file", (ALLOW, DENY));
    agree(&world, policy, "v1/file", (ALLOW, DENY));
    agree(&world, policy, "v2/file", (ALLOW, ALLOW));
    finish(world.host("sh").args(["-c", attempts]), b"").expect(0);
    assert_ne!(fs::read_link(world.workspace.join("current")).ok(), Some(PathBuf::from("v1")), "the control");
}

#[test]
fn only_one_directory_is_writable() {
    let world = World::new();
    for path in ["src/main.rs", "README.md", "src/.env", "src/.vscode/tasks.json", "lib/x"] {
        world.write(path, "TOKEN\n");
    }
    let policy =
        "[[path]]\nallow = \"src/\"\noperation = \"write\"\n[[path]]\ndeny = \"**\"\noperation = \"write\"\n";
    for (path, expected) in [
        ("src/main.rs", (ALLOW, ALLOW)),
        ("README.md", (ALLOW, DENY)),
        ("lib/x", (ALLOW, DENY)),
        ("src/.env", (DENY, DENY)),
        ("src/.vscode/tasks.json", (ALLOW, DENY)),
    ] {
        agree(&world, policy, path, expected);
    }
    let script = "echo new > src/new; echo new > new; mkdir lib/d; rm README.md; mv src gone; exit 0";
    world.governed("run", policy, &["--", "sh", "-c", script]).expect(0);
    assert_eq!(world.read("src/new").as_deref(), Some("new\n"));
    for path in ["new", "lib/d", "gone"] {
        assert!(!world.workspace.join(path).exists(), "{path}");
    }
    assert!(world.workspace.join("README.md").exists());
}

#[test]
fn a_closed_directory_is_closed_to_everybody() {
    let world = workspace();
    let policy = "[[path]]\ndeny = \"data/\"\n[[path]]\nask = \"drafts\"\n";
    let script = "ls data; ls drafts; ls deploy; exit 0";
    let listed = world.governed("run", policy, &["--", "sh", "-c", script]).expect(0);
    assert_eq!(listed.text(), "free\nnotes.md\nprod.toml\n");
    let outside = finish(world.host("sh").args(["-c", script]), b"").expect(0);
    assert!(outside.text().contains("rows.csv"), "the control");
    world.governed("file list", policy, &["data"]).expect(126).says("path.rule");
    world.governed("file list", policy, &["drafts"]).expect(126).says("path.rule");
    world.governed("file list", policy, &["deploy"]).expect(0);
}

/// D2: a file in the workspace weakens nothing.
#[test]
fn a_workspace_narrows_itself_and_opens_nothing() {
    let world = workspace();
    world.write(".ringfence/policy.toml", "[[path]]\ndeny = \"main.rs\"\n\n[[path]]\nallow = \".env\"\n");
    agree(&world, POLICY, "main.rs", (DENY, DENY));
    agree(&world, POLICY, ".env", (DENY, DENY));
    agree(&world, POLICY, ".env.test", (ALLOW, ALLOW));
    let told = world.governed("check", POLICY, &["--read", "main.rs"]);
    assert!(told.text().contains(".ringfence/policy.toml:2"), "the rule has a place: {}", told.text());
}

#[test]
fn bubblewrap_holds_the_same_or_does_not_start() {
    let world = workspace();
    let run =
        |script: &str| world.governed("run", POLICY, &["--backend", "bubblewrap", "--", "sh", "-c", script]);
    let script = "cat data/rows.csv x.sqlite .env; cat .env.test; echo x >> deploy/prod.toml; echo x >> deploy/notes.md; \
                  echo x > deploy/free/y; echo x > deploy/new; exit 0";
    assert_eq!(run(script).expect(0).text(), "TOKEN\n");
    assert_eq!(world.read("deploy/prod.toml").as_deref(), Some("TOKEN\n"));
    assert_eq!(world.read("deploy/notes.md").as_deref(), Some("TOKEN\nx\n"));
    assert_eq!(world.read("deploy/free/y").as_deref(), Some("x\n"));
    assert!(!world.workspace.join("deploy/new").exists());
    fs::remove_file(world.workspace.join("Cargo.lock")).unwrap();
    symlink("main.rs", world.workspace.join("Cargo.lock")).unwrap();
    run("true").expect(126).says("cannot hold the symbolic link");
}

#[test]
fn landlock_alone_cannot_hold_anything_and_is_refused() {
    let world = workspace();
    let done = world.governed("run", POLICY, &["--backend", "landlock", "--", "cat", "data/rows.csv"]);
    assert_eq!((done.code, done.text().as_str()), (Some(126), ""), "{}", done.err);
}
