//! Files by every tool there is, natively and in a container: the same answers, the same files of the same owners on the host, and
//! the same records.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::mcp::Client;
use crate::parity_fixture::{Answers, Twin, assert_alike};
use crate::podman::Podman;
use crate::testkit::World;

const RULES: &str = r#"
[[path]]
deny = "migrations/**"
operation = "write"

[[path]]
deny = "*.sqlite"

[[root]]
path = "vendor"
access = "read"

[[root]]
path = "customers"
access = "none"
"#;

/// What each of the rules of files is about.
fn prepare(world: &World) {
    world.repository();
    let outside = world.beside("outside");
    fs::write(outside.join("file"), "out").unwrap();
    for (path, content) in [
        ("plain", "one\ntwo\none\n"),
        (".env", "hidden"),
        ("keys/id_rsa", "hidden"),
        ("vendor/file", "vendored"),
        ("customers/file", "closed"),
        ("migrations/1", "first"),
        ("live.sqlite", "closed"),
        (".vscode/tasks.json", "{}"),
    ] {
        world.write(path, content);
    }
    fs::hard_link(world.workspace.join(".env"), world.workspace.join("alias")).unwrap();
    symlink("plain", world.workspace.join("good-link")).unwrap();
    symlink(".env", world.workspace.join("hidden-link")).unwrap();
    symlink(outside.join("file"), world.workspace.join("outside-link")).unwrap();
    symlink(&outside, world.workspace.join("way")).unwrap();
    symlink("not-there", world.workspace.join("dangling")).unwrap();
}

const PATHS: [&str; 22] = [
    "plain",
    "./plain",
    "new",
    "absent/new",
    ".env",
    "alias",
    "keys/id_rsa",
    "vendor/file",
    "vendor/new",
    "customers/file",
    "customers/new",
    "migrations/1",
    "live.sqlite",
    "new.sqlite",
    ".vscode/tasks.json",
    ".git/hooks/pre-commit",
    ".ringfence/policy.toml",
    "good-link",
    "hidden-link",
    "outside-link",
    "way/file",
    "dangling",
];
const OUTSIDE: [&str; 4] = ["../outside/file", "/etc/passwd", "/", ""];

/// `ringfence file`.
fn by_command(twin: &Twin, paths: &[&str]) -> Answers {
    let mut answers = Answers::new();
    for path in paths {
        for verb in ["read", "list", "write"] {
            answers.insert(format!("{verb} {path}"), twin.command(&["file", verb, path], b"written\n"));
        }
    }
    let link = |target| twin.command(&["file", "symlink", target, "made-link"], b"");
    for target in ["/etc/passwd", "../outside/file", ".env", "plain"] {
        answers.insert(format!("link {target}"), link(target));
    }
    answers
}

/// `ringfence mcp`, with commands between them that read what was written and write what is read.
fn by_mcp(twin: &Twin) -> Answers {
    let mut answers = Answers::new();
    let mut client = Client::new(twin.world(), &[]);
    let mut go = |name: String, tool: &str, arguments: Value| {
        answers.insert(name, client.call(tool, arguments));
    };
    go("exec".to_owned(), "exec", json!({ "command": "echo by-command >made; echo one >plain" }));
    for path in PATHS.into_iter().chain(OUTSIDE) {
        let edit = json!({ "path": path, "old_text": "one", "new_text": "1", "all": true });
        go(format!("read {path}"), "read_file", json!({ "path": path }));
        go(format!("edit {path}"), "edit_file", edit);
        go(format!("write {path}"), "write_file", json!({ "path": path, "content": "by-tool\n" }));
        go(format!("list {path}"), "list_dir", json!({ "path": path }));
        // What an image has in its own directories is its own.
        let cat = format!(
            "case '{path}' in /*) exit 0;; esac; cat '{path}' 2>/dev/null; test -e '{path}'; echo $?"
        );
        go(format!("cat {path}"), "exec", json!({ "command": cat }));
    }
    go("search".to_owned(), "search", json!({ "pattern": "hidden|closed|by-tool" }));
    go("read made".to_owned(), "read_file", json!({ "path": "made" }));
    go(
        "own".to_owned(),
        "exec",
        json!({ "command": "export LC_ALL=C; echo more >>new && mv new moved && rm made" }),
    );
    client.end();
    answers
}

/// The interface of the daemon.
fn by_daemon(twin: &Twin, session: &str) -> Answers {
    let mut answers = Answers::new();
    let mut go = |name: &str, path: &str, body: Value| {
        let answer = twin.post(session, path, &body);
        answers.insert(format!("{name} {body}"), answer);
    };
    go(
        "exec",
        "exec",
        json!({ "argv": ["sh", "-c", "export LC_ALL=C; echo by-command >made; mkdir -p d/e; ln -s made l"] }),
    );
    for path in PATHS.into_iter().chain(OUTSIDE) {
        for verb in ["read", "list", "stat", "send"] {
            go(verb, &format!("files/{verb}"), json!({ "path": path }));
        }
        go("upload", &format!("files/upload?path={}", escaped(path)), json!({ "sent": "up" }));
        go("write", "files/write", json!({ "path": path, "content": "by-daemon\n" }));
        go("move here", "files/move", json!({ "path": "made", "to": path }));
        go("move away", "files/move", json!({ "path": path, "to": "made" }));
    }
    for path in PATHS.into_iter().chain(OUTSIDE).chain(["d", "d/e", "l", "made"]) {
        go("remove", "files/remove", json!({ "path": path }));
    }
    go("exec", "exec", json!({ "argv": ["sh", "-c", "export LC_ALL=C; ls -A; cat new made plain"] }));
    for path in PATHS.into_iter().chain(OUTSIDE) {
        let answer = twin.download(session, &escaped(path));
        answers.insert(format!("download {path}"), answer);
    }
    answers
}

fn escaped(path: &str) -> String {
    path.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[track_caller]
fn alike(podman: &Podman, rules: &str, script: impl Fn(&Twin) -> Answers) -> Answers {
    let (world, _) = podman.world();
    let native = Twin::native(rules, prepare);
    let contained = Twin::contained(world, &podman.socket(), rules, prepare);
    let answers = [&native, &contained].map(script);
    assert_alike([&native, &contained], &answers);
    drop(contained);
    podman.nothing_stays();
    let [answers, _] = answers;
    answers
}

/// S004-10, S003-34, S002-39: each of them reads, writes and refuses the same. Not a single answer is the same for all paths, or
/// nothing would have been looked at.
#[test]
fn file_commands_are_alike() {
    let podman = Podman::start();
    let all = [&PATHS[..], &OUTSIDE].concat();
    let answers = alike(&podman, RULES, |twin| by_command(twin, &all));
    assert_eq!(answers["read plain"]["out"], "one\ntwo\none\n");
    assert_eq!(answers["write vendor/file"]["code"], 126);
    assert_eq!(answers["write new"]["code"], 0);
    assert_eq!(answers["read customers/file"]["code"], 126);
}

#[test]
fn file_tools_of_mcp_are_alike() {
    let podman = Podman::start();
    let answers = alike(&podman, RULES, by_mcp);
    let ended = |name: &str| answers[name]["structuredContent"]["ended"].as_str().unwrap().to_owned();
    assert_eq!((ended("write new"), ended("write vendor/new")), ("done".to_owned(), "refused".to_owned()));
    assert_eq!(answers["cat new"]["structuredContent"]["stdout"], "by-tool\n0\n");
    assert_eq!(answers["read made"]["structuredContent"]["content"], "by-command\n");
}

#[test]
fn files_of_the_daemon_are_alike() {
    let podman = Podman::start();
    let answers = alike(&podman, RULES, |twin| by_daemon(twin, &twin.session(json!({}))));
    let status = |name: &str| answers[name]["status"].as_u64().unwrap();
    assert_eq!(status(r#"write {"content":"by-daemon\n","path":"new"}"#), 200);
    assert_eq!(status(r#"write {"content":"by-daemon\n","path":"vendor/new"}"#), 422);
}

/// S003-5, S003-34: of a workspace that is only read, or not there at all.
#[test]
fn files_of_a_closed_workspace_are_alike() {
    let podman = Podman::start();
    for access in ["read", "none"] {
        let rules = format!("workspace_access = \"{access}\"\n");
        let answers = alike(&podman, &rules, |twin| {
            let mut answers = by_command(twin, &["plain", "new", ".env", "good-link", "way/file"]);
            answers.extend(by_mcp(twin).into_iter().map(|(name, answer)| (format!("mcp {name}"), answer)));
            let session = twin.session(json!({}));
            answers.extend(by_daemon(twin, &session));
            answers
        });
        assert_eq!(answers["write plain"]["code"], 126, "{access}");
        assert_eq!(answers["read plain"]["code"], if access == "read" { 0 } else { 126 });
    }
}
