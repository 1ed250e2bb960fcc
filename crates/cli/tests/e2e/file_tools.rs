//! `ringfence file`: the in-process tools, with the same answers as a shell inside.

use std::fs;
use std::os::unix::fs::symlink;

use crate::testkit::{World, quoted};

/// S000-3, S001-16
#[test]
fn file_operations_stay_beneath_the_root() {
    let world = World::new();
    let outside = world.beside("outside");
    fs::write(outside.join("file"), "out").unwrap();
    world.file(&["write", "a.txt"], b"content \xff\x00").expect(0);
    assert_eq!(fs::read(world.workspace.join("a.txt")).unwrap(), b"content \xff\x00");
    assert_eq!(world.file(&["read", "a.txt"], b"").expect(0).out, b"content \xff\x00");
    for path in [
        "../outside/file",
        "a/../../outside/file",
        outside.join("file").to_str().unwrap(),
        "/etc/passwd",
        "/proc/self/environ",
        "/",
    ] {
        for verb in ["read", "write", "list"] {
            let done = world.file(&[verb, path], b"evil").expect(126);
            assert!(done.err.contains("rule: path."), "{verb} {path}: {}", done.err);
        }
    }
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "out");
}

/// S000-4, S001-15, S002-8
#[test]
fn symlink_out_of_the_root_is_refused() {
    let world = World::new();
    let outside = world.beside("outside");
    fs::write(outside.join("file"), "out").unwrap();
    symlink(&outside, world.workspace.join("door")).unwrap();
    symlink(outside.join("file"), world.workspace.join("leaf")).unwrap();
    symlink(outside.join("new"), world.workspace.join("dangling")).unwrap();
    for path in ["door/file", "leaf", "door/new", "dangling"] {
        for verb in ["read", "write"] {
            let done = world.file(&[verb, path], b"evil");
            assert!(matches!(done.code, Some(125 | 126)), "{verb} {path}: {:?}", done.code);
            assert_eq!(done.text(), "", "{verb} {path}");
        }
    }
    world.file(&["list", "door"], b"").expect(126);
    assert_eq!(crate::testkit::names(&outside), ["file"]);
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "out");
    world.file(&["symlink", "/etc/passwd", "link"], b"").expect(126);
    world.file(&["symlink", "../outside/file", "link"], b"").expect(126);
    world.write("target", "in");
    world.file(&["symlink", "target", "link"], b"").expect(0);
    assert_eq!(world.file(&["read", "link"], b"").expect(0).text(), "in");
}

/// S000-6
#[test]
fn absolute_path_inside_a_root_is_accepted() {
    let world = World::new();
    let path = world.workspace.join("sub/file");
    fs::create_dir(world.workspace.join("sub")).unwrap();
    world.file(&["write", path.to_str().unwrap()], b"x").expect(0);
    assert_eq!(world.file(&["read", path.to_str().unwrap()], b"").expect(0).text(), "x");
}

/// S001-13
#[test]
fn absolute_path_outside_every_root_is_refused() {
    let world = World::new();
    for path in ["/etc/hostname", "/tmp/x", "/nonexistent"] {
        world.file(&["read", path], b"").expect(126);
        world.file(&["write", path], b"x").expect(126);
    }
}

/// S000-7, S002-8
#[test]
fn new_file_is_created_beneath_the_root() {
    let world = World::new();
    fs::create_dir(world.workspace.join("sub")).unwrap();
    world.file(&["write", "sub/new"], b"x").expect(0);
    assert_eq!(world.read("sub/new").as_deref(), Some("x"));
    world.file(&["write", "sub/new"], b"longer content").expect(0);
    world.file(&["write", "sub/new"], b"y").expect(0);
    assert_eq!(world.read("sub/new").as_deref(), Some("y"), "replaced, not overwritten in part");
}

/// S000-7
#[test]
fn dangling_symlink_is_not_followed() {
    let world = World::new();
    symlink("not-there-yet", world.workspace.join("dangling")).unwrap();
    let done = world.file(&["write", "dangling"], b"x");
    assert!(matches!(done.code, Some(125 | 126)), "{:?}", done.code);
    assert!(!world.workspace.join("not-there-yet").exists());
}

/// S000-9
#[test]
fn sibling_with_same_prefix_is_outside() {
    let world = World::new();
    let sibling = world.workspace.with_file_name("w-sibling");
    fs::create_dir(&sibling).unwrap();
    fs::write(sibling.join("file"), "x").unwrap();
    world.file(&["read", sibling.join("file").to_str().unwrap()], b"").expect(126);
    world.file(&["write", sibling.join("new").to_str().unwrap()], b"x").expect(126);
    assert!(!sibling.join("new").exists());
}

/// S000-9, S000-14
#[test]
fn root_itself_can_be_listed() {
    let world = World::new();
    world.write("b", "");
    world.write("a/inner", "");
    world.write(".env", "hidden");
    for arguments in [&["list"][..], &["list", "."], &["list", world.workspace.to_str().unwrap()]] {
        let listed = world.file(arguments, b"").expect(0).text();
        let mut lines: Vec<&str> = listed.lines().collect();
        lines.sort_unstable();
        assert!(lines.contains(&"a") && lines.contains(&"b"), "{arguments:?}: {lines:?}");
    }
    world.file(&["list", "b"], b"").expect(126);
}

/// S000-14
#[test]
fn list_above_the_root_is_refused() {
    let world = World::new();
    for path in ["..", "../..", "/", "a/../..", world.home.to_str().unwrap()] {
        world.file(&["list", path], b"").expect(126);
    }
}

/// S004-15: the guards of the file tools do not depend on how a command would be contained.
#[test]
fn file_guards_hold_in_every_profile() {
    let world = World::new();
    world.write(".env", "hidden-content");
    world.write("plain", "plain");
    for profile in ["review", "workspace"] {
        world.file(&["read", "--profile", profile, ".env"], b"").expect(126);
        world.file(&["read", "--profile", profile, "../x"], b"").expect(126);
        world.file(&["read", "--profile", profile, "plain"], b"").expect(0);
    }
    world.file(&["write", "--profile", "review", "plain"], b"x").expect(126);
    world.file(&["symlink", "--profile", "review", "plain", "l"], b"").expect(126);
    world.file(&["read", "--profile", "danger", "plain"], b"").expect(126);
    assert_eq!(world.read("plain").as_deref(), Some("plain"));
}

fn parity_world() -> World {
    let world = World::new();
    world.repository();
    let outside = world.beside("outside");
    fs::write(outside.join("file"), "out").unwrap();
    for (path, content) in [
        ("plain", "plain"),
        (".env", "hidden"),
        (".env.example", "example"),
        ("sub/.env.local", "hidden"),
        ("keys/id_rsa", "hidden"),
        ("keys/id_rsa.pub", "public"),
        ("certs/a.pem", "-----BEGIN PRIVATE KEY-----\nx\n"),
        (".vscode/tasks.json", "{}"),
        ("src/secret.rs", "code"),
        ("config/secrets.yaml", "hidden"),
        ("sub/plain", "sub"),
        ("name with space", "space"),
    ] {
        world.write(path, content);
    }
    symlink("plain", world.workspace.join("good-link")).unwrap();
    symlink(".env", world.workspace.join("hidden-link")).unwrap();
    symlink(outside.join("file"), world.workspace.join("outside-link")).unwrap();
    symlink("loop", world.workspace.join("loop")).unwrap();
    world
}

const PATHS: &[&str] = &[
    "plain",
    "./plain",
    ".env",
    ".env.example",
    "sub/.env.local",
    "keys/id_rsa",
    "keys/id_rsa.pub",
    "certs/a.pem",
    ".vscode/tasks.json",
    "src/secret.rs",
    "config/secrets.yaml",
    "sub/plain",
    "name with space",
    "good-link",
    "hidden-link",
    "outside-link",
    "loop",
    "../outside/file",
    "absent",
    "absent/below",
    "plain/below",
    "sub",
    "/etc/shadow",
    ".git/HEAD",
    ".git/config",
    "readme",
];

/// S002-39, C-8: reading by tool and by shell gives the same content, or neither gives any.
#[test]
fn file_tools_agree_with_the_shell() {
    let world = parity_world();
    for path in PATHS {
        let tool = world.file(&["read", path], b"");
        let shell = world.sh(&format!("cat {}", quoted(path)));
        let seen = |done: &crate::testkit::Done| (done.code == Some(0)).then(|| done.text());
        assert_eq!(
            seen(&tool),
            seen(&shell),
            "reading {path}: tool {:?} {} / shell {}",
            tool.code,
            tool.err,
            shell.err
        );
    }
}

/// The same for writing, judged by what the file on the host holds afterwards. A git directory is not among it: the tools leave it to git.
#[test]
fn file_tools_agree_with_the_shell_on_writing() {
    for path in [
        "plain",
        ".env",
        ".env.example",
        "sub/.env.local",
        "keys/id_rsa",
        ".vscode/tasks.json",
        ".vscode/new",
        "sub/new",
        ".mcp.json",
        "hidden-link",
        "outside-link",
        "../outside/file",
        "../outside/new",
        "absent/below",
        ".git/config",
        ".git/hooks/pre-commit",
        "src/secret.rs",
        "sub",
    ] {
        let by_tool = parity_world();
        let by_shell = parity_world();
        by_tool.file(&["write", path], b"written");
        by_shell.sh(&format!("printf written >{}", quoted(path)));
        let written = |world: &World| {
            fs::read_to_string(world.workspace.join(path)).is_ok_and(|text| text == "written")
        };
        assert_eq!(
            written(&by_tool),
            written(&by_shell),
            "writing {path}: tool {}, shell {}",
            written(&by_tool),
            written(&by_shell)
        );
    }
}

/// A link at the name of a directory is whatever lies behind it.
#[test]
fn a_link_does_not_put_files_where_writing_them_is_a_question() {
    let world = World::new();
    world.write("mine/pre-commit", "touch made\n");
    world.write("mine/workflows/ci.yml", "on: push\n");
    let link = |profile: &str, target: &str, path: &str| {
        world.file(&["symlink", "--profile", profile, target, path], b"")
    };
    for profile in ["guarded", "strict", "air-gapped"] {
        for (target, path) in [("mine", ".husky"), ("mine", ".github"), ("mine", ".HUSKY")] {
            link(profile, target, path).expect(126);
            assert!(world.workspace.join(path).symlink_metadata().is_err(), "{profile}: {path}");
        }
        world.file(&["write", "--profile", profile, ".husky/pre-commit"], b"x").expect(126);
    }
    link("guarded", "mine", "yours").expect(0);
    link("workspace", "mine", ".husky").expect(0);
    assert_eq!(world.read(".husky/pre-commit").as_deref(), Some("touch made\n"), "the control");
}
