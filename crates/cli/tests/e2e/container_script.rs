//! One long script of calls through every door, natively and in containers of each engine. Whatever can be told apart afterwards is in
//! the table of `docs/containers.md`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};

use crate::approvals::{Watcher, approve};
use crate::docker::Docker;
use crate::mcp::Client;
use crate::parity_fixture::{Answers, Twin, assert_alike, documented};
use crate::podman::Podman;
use crate::test_timeouts::{PATIENCE, Patient};
use crate::testkit::{World, eventually, finish, is_root};

const RULES: &str = r#"
net = "filtered"

[[command]]
deny = "git push"

[[command]]
ask = "tail"

[[path]]
deny = "closed/**"

[[path]]
deny = "frozen/**"
operation = "write"

[[path]]
ask = "asked/**"
"#;

const SECRET: &str = "value-of-a-key-that-nobody-prints";

fn prepare(world: &World) {
    world.repository();
    for (path, content) in [("closed/file", "closed"), ("frozen/file", "frozen"), ("asked/file", "asked")] {
        world.write(path, content);
    }
    finish(world.ringfence().args(["secret", "set", "tool-key"]), SECRET.as_bytes()).expect(0);
}

/// What a script has said so far.
struct Said<'t> {
    twin: &'t Twin,
    answers: Answers,
}

impl Said<'_> {
    fn keep(&mut self, what: &str, answer: Value) {
        let number = self.answers.len();
        self.answers.insert(format!("{number:03} {what}"), answer);
    }

    fn run(&mut self, words: &[&str], input: &[u8]) {
        let answer = self.twin.command(words, input);
        let name = self.twin.plain(&json!(words));
        self.keep(&name.to_string(), answer);
    }

    fn post(&mut self, session: &str, path: &str, body: &Value) -> Value {
        let answer = self.twin.post(session, path, body);
        self.keep(&format!("{path} {body}"), answer.clone());
        answer
    }

    fn sh(&mut self, session: &str, script: &str) -> Value {
        self.post(session, "exec", &shell(script, json!({})))
    }
}

fn shell(script: &str, more: Value) -> Value {
    let mut body = json!({ "argv": ["sh", "-c", format!("export LC_ALL=C; {script}")] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Streams, exits, signals, limits, terminals, files, leaks: calls that somebody waits for.
fn calls(said: &mut Said<'_>) {
    let session = said.twin.session(json!({ "secrets": ["tool-key"], "label": "calls" }));
    let s = session.as_str();
    said.sh(s, "echo out; echo err >&2; echo ${PWD##*/} $HOME; exit 3");
    said.sh(s, "kill -SEGV $$");
    said.post(s, "exec", &json!({ "argv": ["no-such-program"] }));
    said.post(s, "exec", &json!({ "argv": ["./readme"] }));
    said.post(s, "exec", &json!({ "argv": ["git", "push"] }));
    said.post(s, "exec", &shell("cat; echo over", json!({ "stdin": "in\u{0}put" })));
    said.post(s, "exec", &shell("ls", json!({ "cwd": "closed" })));
    said.post(s, "exec", &shell("pwd", json!({ "cwd": "/etc" })));
    said.post(s, "exec", &shell("echo $WORD", json!({ "environment": { "WORD": "of mine" } })));
    said.post(s, "exec", &shell("true", json!({ "environment": { "LD_PRELOAD": "x" } })));
    said.post(s, "exec", &shell("echo begun; sleep 1000 & sleep 1000", json!({ "timeout_ms": 3000 })));
    let size = json!({ "terminal": { "rows": 30, "columns": 90 } });
    said.post(s, "exec", &shell("stty size; test -t 0 && test -t 1 && echo terminal", size));
    said.sh(s, "cat closed/file; echo x >frozen/file; cat frozen/file; cat asked/file");
    said.sh(s, "echo x >.git/hooks/pre-commit; cat .git/hooks/pre-commit");
    said.sh(s, "stat -c %a $TOOL_KEY_FILE; cat $TOOL_KEY_FILE");
    said.post(s, "exec", &json!({ "argv": ["echo", SECRET] }));
    said.sh(s, "printf 'ghp_%s' aB3dE5fG7hJ9kL2mN4pQ6rS8tU1vW0xY3zA5");
    said.post(s, "activity", &json!({ "activity": "thinking", "claim": "about it" }));
    for (path, body) in [
        ("files/write", json!({ "path": "made", "content": "made\n" })),
        ("files/read", json!({ "path": "made" })),
        ("files/write", json!({ "path": "frozen/file", "content": "made\n" })),
        ("files/read", json!({ "path": "closed/file" })),
        ("explain", json!({ "command": "git push" })),
        ("explain", json!({ "command": "git status" })),
    ] {
        said.post(s, path, &body);
    }
    said.post(s, "stop", &json!({}));
    said.sh(s, "true");
}

/// What runs while something else is asked.
fn background(said: &mut Said<'_>) {
    let session = said.twin.session(json!({ "label": "background" }));
    let s = session.as_str();
    let more = json!({ "background": true, "interactive": true });
    let wait = "trap 'echo usr1; exit 9' USR1; touch up; while read word; do echo got-$word >>heard; done";
    let call = said.post(s, "exec", &shell(wait, more))["answer"]["call"].as_u64().unwrap();
    eventually("it runs", || said.twin.world().read("up").is_some());
    said.post(s, &format!("calls/{call}/input"), &json!({ "data": "one\ntwo\n" }));
    eventually("it has heard", || said.twin.world().read("heard").is_some_and(|text| text.contains("two")));
    said.post(s, &format!("calls/{call}/signal"), &json!({ "signal": "USR1" }));
    let show = |said: &mut Said<'_>, call: u64| {
        let line = format!("GET /v1/sessions/{s}/calls/{call}?wait_ms={}", PATIENCE.as_millis());
        let (status, answer) = said.twin.ask(&line, &Value::Null);
        said.keep("show", json!([status, answer]));
    };
    show(said, call);
    let long = shell("trap '' TERM; touch long; while :; do sleep 0.1; done", json!({ "background": true }));
    let call = said.post(s, "exec", &long)["answer"]["call"].as_u64().unwrap();
    eventually("it runs", || said.twin.world().read("long").is_some());
    said.post(s, &format!("calls/{call}/cancel"), &json!({}));
    show(said, call);
    said.post(s, "calls/99/signal", &json!({ "signal": "INT" }));
    let (_, list) = said.twin.ask(&format!("GET /v1/sessions/{s}/calls"), &Value::Null);
    said.keep("list", list);
    said.post(s, "stop", &json!({}));
}

/// Approved, for the session, always, denied, edited, withdrawn, expired.
fn questions(said: &mut Said<'_>) {
    let twin = said.twin;
    let session = twin.session(json!({ "profile": "guarded", "label": "questions" }));
    let s = session.as_str();
    let make = |name: &str| json!({ "argv": ["touch", name], "reason": "I need it" });
    let asked = |said: &mut Said<'_>, name: &str, answer: Value| {
        let both = twin.answering(|| twin.post(s, "exec", &make(name)), |id| twin.decide(id, &answer));
        said.keep(&format!("{name} {answer}"), both);
    };
    said.post(s, "exec", &json!({ "argv": ["ls"] }));
    asked(said, "once", json!("once"));
    asked(said, "session", json!("session"));
    said.post(s, "exec", &make("session"));
    asked(said, "always", json!({ "always-here": { "offer": 0 } }));
    said.post(s, "exec", &make("always"));
    asked(said, "no", json!("deny"));
    said.post(s, "exec", &make("no"));
    let edited = twin.answering(
        || twin.post(s, "exec", &make("edit")),
        |id| {
            let (_, done) = approve(twin.world(), id, "--replace -- touch edited", b"y");
            done.expect(0);
        },
    );
    said.keep("edited", edited);
    let waits = json!({ "argv": ["touch", "withdrawn"], "background": true });
    let call = said.post(s, "exec", &waits)["answer"]["call"].as_u64().unwrap();
    let _asked = twin.question();
    said.post(s, &format!("calls/{call}/cancel"), &json!({}));
    let line = format!("GET /v1/sessions/{s}/calls/{call}?wait_ms={}", PATIENCE.as_millis());
    said.keep("withdrawn", twin.ask(&line, &Value::Null).1);
    // A file, by a tool.
    let write = json!({ "path": "asked/file", "content": "x" });
    for answer in ["once", "deny"] {
        let asks = || twin.post(s, "files/write", &write);
        let both = twin.answering(asks, |id| twin.decide(id, &json!(answer)));
        said.keep(&format!("write {answer}"), both);
    }
    said.post(s, "stop", &json!({}));
}

/// Nobody answers in time.
fn expiry(said: &mut Said<'_>) {
    let world = said.twin.world();
    let file = world.home.join("short.toml");
    let text = fs::read_to_string(world.home.join(".config/ringfence/config.toml")).unwrap();
    fs::write(&file, format!("{text}\n[approvals]\ntimeout = \"1s\"\n")).unwrap();
    let watcher = Watcher::new(world);
    said.run(
        &["run", "--policy", file.to_str().unwrap(), "--profile", "guarded", "--", "touch", "late"],
        b"",
    );
    drop(watcher);
    for left in ["watcher", "up"] {
        let _removed = fs::remove_file(world.workspace.join(left));
    }
}

/// `ringfence run`, `file` and `tx`, as somebody types them.
fn commands(said: &mut Said<'_>) {
    said.run(&["run", "--", "sh", "-c", "export LC_ALL=C; cat closed/file; ls nowhere; exit 4"], b"");
    said.run(&["run", "--max-output", "1k", "--", "sh", "-c", "head -c 5000 /dev/zero | tr '\\0' x"], b"");
    said.run(&["run", "--timeout", "500ms", "--", "sleep", "1000"], b"");
    said.run(&["run", "--", "tail", "readme"], b"");
    said.run(&["run", "--profile", "strict", "--", "ls"], b"");
    said.run(&["run", "--profile", "strict", "--", "touch", "made-in-strict"], b"");
    said.run(&["run", "--profile", "air-gapped", "--", "sh", "-c", "ls"], b"");
    said.run(&["run", "--profile", "review", "--", "ls"], b"");
    said.run(&["run", "--", "sh", "-c", "cat"], SECRET.as_bytes());
    said.run(&["file", "write", "typed"], b"typed\n");
    said.run(&["file", "read", "closed/file"], b"");
    said.run(&["check", "--", "git", "push"], b"");
    let diff = b"--- a/readme\n+++ b/readme\n@@ -1 +1 @@\n-one\n+two\n";
    said.run(&["proposal", "create", "--profile", "review", "--title", "two"], diff);
    said.run(&["proposal", "list"], b"");
    let listed = said.twin.command(&["proposal", "list", "--json"], b"");
    let listed: Value = serde_json::from_str(listed["out"].as_str().unwrap()).unwrap();
    let id = listed["proposals"][0]["id"].as_str().unwrap();
    said.run(&["proposal", "apply", id], b"");
    said.run(&["proposal", "create"], b"--- a/frozen/file\n+++ b/frozen/file\n@@ -1 +1 @@\n-frozen\n+warm\n");
}

/// `ringfence mcp`: a connection is a session.
fn tools(said: &mut Said<'_>) {
    let world = said.twin.world();
    let mut client = Client::new(world, &["--agent", "tester"]);
    let mut go = |tool: &str, arguments: Value| {
        let answer = client.call(tool, arguments.clone());
        said.keep(&format!("{tool} {arguments}"), answer.clone());
        answer
    };
    go("exec", json!({ "command": "echo kept >/tmp/f; exit 3" }));
    go("exec", json!({ "command": "cat /tmp/f; echo ${PWD##*/}", "cwd": "frozen" }));
    go("exec", json!({ "command": "git push" }));
    go("read_file", json!({ "path": "frozen/file" }));
    go("write_file", json!({ "path": "frozen/file", "content": "x" }));
    go("edit_file", json!({ "path": "readme", "old_text": "two", "new_text": "three" }));
    go("search", json!({ "pattern": "three|closed" }));
    go("list_dir", json!({}));
    go("explain", json!({ "write": "closed/file" }));
    let job = "exec 2>/dev/null; touch job; trap 'echo told; exit 5' TERM; while :; do sleep 0.05; done";
    let started = go("jobs", json!({ "action": "start", "command": job }));
    let id = started["structuredContent"]["jobs"][0]["id"].clone();
    eventually("the job runs", || world.read("job").is_some());
    go("jobs", json!({ "action": "list" }));
    go("jobs", json!({ "action": "signal", "id": id, "signal": "TERM" }));
    eventually("the job has ended", || {
        let listed = client.call("jobs", json!({ "action": "list" }));
        !listed["structuredContent"]["jobs"][0].to_string().contains("running")
    });
    let logs = client.call("jobs", json!({ "action": "logs", "id": id }));
    said.keep("logs", logs);
    client.end();
}

/// Hosts that are allowed, denied and asked about.
fn hosts(said: &mut Said<'_>, ports: [u16; 3]) {
    let twin = said.twin;
    let session = twin.session(json!({ "net": "filtered", "label": "hosts" }));
    let get = |port: u16| {
        let url = format!("http://localhost:{port}/x");
        json!({ "argv": ["curl", "--noproxy", "", "-sS", "--max-time", "60", "--fail", url] })
    };
    let [allowed, denied, asked] = ports;
    said.post(&session, "exec", &get(allowed));
    said.post(&session, "exec", &get(denied));
    for answer in ["once", "deny"] {
        let both =
            twin.answering(|| twin.post(&session, "exec", &get(asked)), |id| twin.decide(id, &json!(answer)));
        said.keep(&format!("ask {answer}"), both);
    }
    // A no is for the session.
    said.post(&session, "exec", &get(asked));
    said.post(&session, "fetch", &json!({ "url": format!("http://localhost:{allowed}/x") }));
    said.post(&session, "fetch", &json!({ "url": format!("http://localhost:{denied}/x") }));
    said.post(&session, "stop", &json!({}));
}

/// Answers everybody who asks, until the test is over.
fn server() -> u16 {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = Patient(stream.unwrap());
            let _asked = stream.read(&mut [0; 2048]);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved";
            let _gone = stream.write_all(answer);
        }
    });
    port
}

fn script(twin: &Twin, ports: [u16; 3]) -> Answers {
    let mut said = Said { twin, answers: Answers::new() };
    calls(&mut said);
    background(&mut said);
    questions(&mut said);
    hosts(&mut said, ports);
    commands(&mut said);
    tools(&mut said);
    expiry(&mut said);
    said.answers
}

/// What was seen to differ.
#[track_caller]
fn compared(world: World, socket: &Path) -> BTreeSet<String> {
    let ports = [server(), server(), server()];
    let host = |word: &str, port: u16| {
        format!("[[host]]\n{word} = \"localhost:{port}\"\nallow_private_addresses = true\n")
    };
    let hosts = [host("allow", ports[0]), format!("[[host]]\ndeny = \"localhost:{}\"\n", ports[1])].concat();
    let rules = format!("{RULES}{hosts}{}", host("ask", ports[2]));
    let native = Twin::native(&rules, prepare);
    let contained = Twin::contained(world, socket, &rules, prepare);
    let answers = [&native, &contained].map(|twin| script(twin, ports));
    assert_alike([&native, &contained], &answers)
}

/// C-25, S003-43, S004-10: Podman, with root or without.
#[test]
fn the_same_script_is_the_same_story_in_podman() {
    let podman = Podman::start();
    let (world, _) = podman.world();
    let seen = compared(world, &podman.socket());
    assert_eq!(seen, documented(), "every line of the table is there for something");
    podman.nothing_stays();
}

/// C-25, S003-43, S004-1: Docker, whose daemon needs root.
#[test]
fn the_same_script_is_the_same_story_in_docker() {
    if !is_root() {
        return crate::container_engines::docker_needs_root();
    }
    let docker = Docker::start();
    let (world, _) = docker.world();
    assert_eq!(compared(world, &docker.socket()), documented());
    docker.nothing_stays();
}
