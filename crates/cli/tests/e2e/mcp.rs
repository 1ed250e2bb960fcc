//! `ringfence mcp` on the wire, in both eras of the protocol.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::approvals::{Watcher, events};
use crate::hooks::guarded;
use crate::test_timeouts::{Patient, end, ended, mortal};
use crate::testkit::{World, eventually, finish, processes_with};

/// A client that writes lines and reads lines.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: BufReader<Patient<ChildStdout>>,
    next: u64,
    /// Requests and notifications of the server.
    heard: Vec<Value>,
    modern: bool,
}

impl Client {
    fn start(world: &World, flags: &[&str]) -> Self {
        Self::by(world.ringfence(), flags)
    }

    fn by(mut command: std::process::Command, flags: &[&str]) -> Self {
        command.arg("mcp").args(flags).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        mortal(&child);
        let (stdin, lines) = (child.stdin.take(), BufReader::new(Patient(child.stdout.take().unwrap())));
        Self { child, stdin, lines, next: 1, heard: Vec::new(), modern: false }
    }

    /// With the handshake of 2025-11-25.
    pub(crate) fn new(world: &World, flags: &[&str]) -> Self {
        Self::start(world, flags).greeted()
    }

    /// One that cannot put a question to its user: a person elsewhere answers.
    pub(crate) fn without_elicitation(command: std::process::Command) -> Self {
        Self::by(command, &[]).greeted_with(&json!({}))
    }

    fn greeted(self) -> Self {
        self.greeted_with(&json!({ "elicitation": {} }))
    }

    fn greeted_with(self, capabilities: &Value) -> Self {
        let mut client = self;
        let answer = client.request(
            "initialize",
            json!({
                "protocolVersion": "2025-11-25", "clientInfo": { "name": "test", "version": "1" },
                "capabilities": capabilities,
            }),
        );
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn send(&mut self, value: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{value}\n").as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    fn begin(&mut self, method: &str, mut params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        if self.modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
            });
        }
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    fn message(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "the server has ended");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.message();
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.heard.push(message);
        }
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({ "name": tool, "arguments": arguments }));
        answer.get("result").unwrap_or_else(|| panic!("{answer}")).clone()
    }

    #[track_caller]
    pub(crate) fn done(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["structuredContent"]["ended"], "done", "{result}");
        result["structuredContent"].clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Without a chance to clean up.
    pub(crate) fn kill(mut self) {
        end(&mut self.child);
    }

    /// Closes the connection and waits for the end.
    pub(crate) fn end(mut self) {
        self.stdin = None;
        assert!(ended("the server, whose connection is closed", &mut self.child).success());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

#[test]
fn the_tools_work_on_the_workspace_and_nowhere_else() {
    let world = World::new();
    let outside = world.beside("outside");
    world.write(".env", "KEY=1");
    let mut client = Client::new(&world, &["--agent", "tester"]);

    let listed = client.request("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let wanted = [
        "exec",
        "read_file",
        "write_file",
        "edit_file",
        "list_dir",
        "search",
        "fetch",
        "jobs",
        "explain",
        "permission_prompt",
    ];
    assert_eq!(names, wanted);
    for tool in tools {
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "no parameter besides: {tool}");
        assert!(tool["annotations"]["readOnlyHint"].is_boolean(), "{tool}");
    }

    client.done("exec", json!({ "command": "mkdir src" }));
    client.done("write_file", json!({ "path": "src/a.txt", "content": "one\ntwo\none\n" }));
    assert_eq!(world.read("src/a.txt").as_deref(), Some("one\ntwo\none\n"));
    let read = client.done("read_file", json!({ "path": "src/a.txt", "first_line": 2, "lines": 1 }));
    assert_eq!((&read["content"], &read["total_lines"]), (&json!("two\n"), &json!(3)));
    let twice = client.call("edit_file", json!({ "path": "src/a.txt", "old_text": "one", "new_text": "1" }));
    assert_eq!(twice["isError"], true);
    let edit = json!({ "path": "src/a.txt", "old_text": "one", "new_text": "1", "all": true });
    assert_eq!(client.done("edit_file", edit)["replaced"], 2);
    assert_eq!(world.read("src/a.txt").as_deref(), Some("1\ntwo\n1\n"));
    let listed = client.done("list_dir", json!({}));
    assert!(listed["entries"].as_array().unwrap().contains(&json!({ "name": "src", "kind": "directory" })));
    let found = client.done("search", json!({ "pattern": "^tw|KEY" }));
    assert_eq!(found["matches"], json!(["./src/a.txt:2:two"]), "what is hidden is not found");

    let run =
        client.done("exec", json!({ "command": "echo $$ >/tmp/pid; cat src/a.txt; echo e >&2; exit 3" }));
    assert_eq!(
        (&run["exit_code"], &run["stdout"], &run["stderr"]),
        (&json!(3), &json!("1\ntwo\n1\n"), &json!("e\n"))
    );
    let warm = client.done("exec", json!({ "command": "cat /tmp/pid", "cwd": "src" }));
    assert_ne!(warm["stdout"], "", "the same sandbox, with its /tmp");
    client.done("exec", json!({ "command": format!("echo x >{}/x || true", outside.display()) }));
    assert!(!outside.join("x").exists());

    let no = client.call("read_file", json!({ "path": ".env" }));
    let denial = &no["structuredContent"]["denial"];
    assert_eq!((&no["isError"], &denial["rule"]), (&json!(true), &json!("path.environment")), "{no}");
    assert!(denial["instead"].is_string() && denial["the_user_can"].is_string(), "{denial}");
    let no = client.call("write_file", json!({ "path": outside.join("x"), "content": "x" }));
    assert_eq!(no["structuredContent"]["ended"], "refused", "{no}");
    let explained = client.call("explain", json!({ "write": ".git/hooks/x" }));
    assert_eq!(explained["structuredContent"]["decision"], "deny", "{explained}");

    for (tool, arguments) in [
        ("exec", json!({})),
        ("exec", json!({ "command": 7 })),
        ("exec", json!({ "command": "true", "sandbox": false })),
        ("exec", json!({ "command": "a\0b" })),
        ("read_file", json!({ "path": "" })),
        ("edit_file", json!({ "path": "src/a.txt", "old_text": "", "new_text": "x" })),
        ("explain", json!({})),
        ("explain", json!({ "command": "a", "read": "b" })),
    ] {
        let result = client.call(tool, arguments.clone());
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
    }
    assert!(client.request("tools/call", json!({ "name": "sudo", "arguments": {} })).get("error").is_some());
    client.end();
    let all = world.all_records();
    let started: Vec<&Value> = events(&all, "session-started");
    assert_eq!((started.len(), &started[0]["agent"]), (1, &json!("tester")), "one session per connection");
    assert_eq!(events(&all, "session-ended").len(), 1);
    world.ledger_tool(&["verify"]).expect(0);
}

#[test]
fn a_rule_about_a_tool_holds_for_the_tools_of_the_server() {
    let world = World::new();
    world.write("a", "x");
    let directory = world.home.join(".config/ringfence");
    fs::create_dir_all(&directory).unwrap();
    let rules = "schema = 1\n[[tool]]\ndeny = [\"search\", \"edit_file\", \"exec\", \"list_dir\"]\n";
    fs::write(directory.join("config.toml"), rules).unwrap();
    let mut client = Client::new(&world, &[]);
    for (tool, arguments) in [
        ("search", json!({ "pattern": "x" })),
        ("edit_file", json!({ "path": "a", "old_text": "x", "new_text": "y" })),
        ("exec", json!({ "command": "true" })),
        ("list_dir", json!({})),
    ] {
        let no = client.call(tool, arguments);
        let rule = no["structuredContent"]["denial"]["rule"].as_str().unwrap_or_default().to_owned();
        assert!(rule.starts_with(&format!("tools.{tool}")), "{no}");
    }
    assert_eq!(client.done("read_file", json!({ "path": "a" }))["content"], "x");
    client.end();
    assert_eq!(events(&world.records(), "call-refused").len(), 4);
}

#[test]
fn the_stateless_era_needs_no_handshake() {
    let world = World::new();
    let mut client = Client::start(&world, &[]);
    client.modern = true;
    let discovered = client.request("server/discover", json!({}));
    assert!(discovered["result"]["supportedVersions"].to_string().contains("2026-07-28"), "{discovered}");
    let result = client.call("exec", json!({ "command": "echo hello" }));
    assert_eq!(result["resultType"], "complete", "{result}");
    assert_eq!(result["structuredContent"]["stdout"], "hello\n");
    client.end();
}

#[test]
fn a_call_that_is_cancelled_is_killed_and_the_next_one_works() {
    let world = World::new();
    let mut client = Client::new(&world, &[]);
    let marker = crate::testkit::marker(&world);
    let command = format!("trap '' TERM; while :; do sleep 1; : {marker}; done");
    let arguments = json!({ "name": "exec", "arguments": { "command": command } });
    let id = client.begin("tools/call", arguments);
    eventually("it runs", || !processes_with(&marker).is_empty());
    client.send(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id, "reason": "enough" },
    }));
    eventually("it is gone", || processes_with(&marker).is_empty());
    assert_eq!(client.done("exec", json!({ "command": "echo next" }))["stdout"], "next\n");
    client.end();
    assert_eq!(events(&world.records(), "call-settled").len(), 2);
}

/// Calls come one after the other; one that still waits when it is cancelled never begins.
#[test]
fn a_call_that_is_cancelled_before_it_begins_is_not_made() {
    let world = World::new();
    let mut client = Client::new(&world, &[]);
    let exec = |command: &str| json!({ "name": "exec", "arguments": { "command": command } });
    let first = client.begin("tools/call", exec("touch begun; while [ ! -e go ]; do sleep 0.05; done"));
    eventually("the first runs", || world.read("begun").is_some());
    let waiting = client.begin("tools/call", exec("touch cancelled"));
    let write = json!({ "name": "write_file", "arguments": { "path": "written", "content": "x" } });
    let also = client.begin("tools/call", write);
    let wanted = client.begin("tools/call", exec("touch wanted"));
    for id in [waiting, also] {
        client.send(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id },
        }));
    }
    // What is read after the cancellations comes after them: one connection is one order.
    assert!(client.request("ping", json!({})).get("result").is_some());
    world.write("go", "");
    client.answer(first);
    client.answer(wanted);
    assert!(world.read("wanted").is_some(), "the control: what was not cancelled is done");
    assert!(world.read("cancelled").is_none() && world.read("written").is_none());
    client.end();
    assert_eq!(events(&world.records(), "call-intended").len(), 2);
}

/// A session has a `commondir` in the repository of its workspace while it lasts.
#[test]
fn listed_git_needs_no_approval_in_any_call_of_a_session() {
    let world = World::new();
    world.repository();
    guarded(&world);
    let mut client = Client::new(&world, &[]);
    for command in ["git status", "git status", "git log -p", "cd .git && git rev-parse HEAD"] {
        let done = client.call("exec", json!({ "command": command }));
        assert_eq!(done["structuredContent"]["exit_code"], 0, "{command}: {done}");
    }
    assert!(world.workspace.join(".git/commondir").exists(), "the session is still there");
    client.end();
}

#[test]
fn what_needs_a_person_is_asked_in_the_queue_or_at_the_client() {
    let world = World::new();
    guarded(&world);
    let make = json!({ "command": "mkdir made", "description": "I need it" });

    // A client that could ask is not trusted to, unless the operator says so.
    let mut client = Client::new(&world, &[]);
    let no = client.call("exec", make.clone());
    assert_eq!(no["structuredContent"]["ended"], "refused", "{no}");
    assert!(client.heard.is_empty(), "{:?}", client.heard);
    client.end();

    let watcher = Watcher::new(&world);
    let mut client = Client::new(&world, &[]);
    let id = client.begin("tools/call", json!({ "name": "exec", "arguments": make }));
    watcher.terminal.wait_for("[d]eny > ");
    assert!(watcher.terminal.seen().contains("I need it"));
    watcher.terminal.type_in(b"o");
    let done = client.answer(id);
    assert_eq!(done["result"]["structuredContent"]["exit_code"], 0, "{done}");
    client.end();
    drop(watcher);
    fs::remove_dir(world.workspace.join("made")).unwrap();

    for (content, made) in [
        (json!({ "action": "decline" }), false),
        (json!({ "action": "accept", "content": { "answer": "deny" } }), false),
        (json!({ "action": "accept", "content": {} }), false),
        (json!({ "action": "accept", "content": { "answer": "allow once" } }), true),
    ] {
        let mut client = Client::new(&world, &["--elicit"]);
        let id = client.begin("tools/call", json!({ "name": "exec", "arguments": make }));
        let question = loop {
            let message = client.message();
            if message["method"] == "elicitation/create" {
                break message;
            }
        };
        assert!(question["params"]["message"].as_str().unwrap().contains("mkdir"), "{question}");
        client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": content }));
        let done = client.answer(id);
        assert_eq!(world.workspace.join("made").exists(), made, "{done}");
        client.end();
    }
}

/// In the era without requests of the server a call is answered with the question, and repeated with what the user said.
#[test]
fn a_question_is_carried_by_the_client_in_the_stateless_era() {
    let world = World::new();
    guarded(&world);
    let mut client = Client::start(&world, &["--elicit"]);
    client.modern = true;
    let exec = |command: &str| json!({ "name": "exec", "arguments": { "command": command } });
    let with = |mut call: Value, state: &Value, answer: &str| {
        call["requestState"] = state.clone();
        call["inputResponses"] =
            json!({ "approve": { "action": "accept", "content": { "answer": answer } } });
        call
    };
    let ask = |client: &mut Client, command: &str| {
        let answer = client.request("tools/call", exec(command));
        assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
        let question = &answer["result"]["inputRequests"]["approve"];
        assert_eq!(question["method"], "elicitation/create", "{answer}");
        assert!(question["params"]["message"].as_str().unwrap().contains(command.split(' ').next().unwrap()));
        answer["result"]["requestState"].clone()
    };

    let state = ask(&mut client, "mkdir made");
    // Another call, another state and a forged one lead nowhere, and use nothing up.
    let forged = json!(format!("{}x", state.as_str().unwrap()));
    for wrong in [
        with(exec("mkdir other"), &state, "allow once"),
        with(
            json!({ "name": "write_file", "arguments": { "path": "made", "content": "" } }),
            &state,
            "allow once",
        ),
        with(exec("mkdir made"), &forged, "allow once"),
        with(exec("mkdir made"), &json!(""), "allow once"),
    ] {
        assert!(client.request("tools/call", wrong.clone()).get("error").is_some(), "{wrong}");
    }
    assert!(!world.workspace.join("made").exists() && !world.workspace.join("other").exists());
    let done = client.request("tools/call", with(exec("mkdir made"), &state, "allow once"));
    assert_eq!(done["result"]["structuredContent"]["exit_code"], 0, "{done}");
    assert!(world.workspace.join("made").is_dir());
    fs::remove_dir(world.workspace.join("made")).unwrap();
    let again = client.request("tools/call", with(exec("mkdir made"), &state, "allow once"));
    assert!(
        again.get("error").is_some() && !world.workspace.join("made").exists(),
        "it counts once: {again}"
    );

    let state = ask(&mut client, "mkdir denied");
    let no = client.request("tools/call", with(exec("mkdir denied"), &state, "deny"));
    let rule = no["result"]["structuredContent"]["denial"]["rule"].as_str().unwrap().to_owned();
    assert!(rule.starts_with("approval.denied"), "{no}");
    let state = ask(&mut client, "mkdir silent");
    let mut silent = exec("mkdir silent");
    silent["requestState"] = state;
    let no = client.request("tools/call", silent);
    assert_eq!(no["result"]["structuredContent"]["ended"], "refused", "{no}");
    client.end();

    // Without the operator's word no client asks.
    let mut client = Client::start(&world, &[]);
    client.modern = true;
    let no = client.request("tools/call", exec("mkdir made"));
    assert_eq!(no["result"]["structuredContent"]["ended"], "refused", "{no}");
    assert!(world.workspace.read_dir().unwrap().flatten().all(|entry| !entry.path().is_dir()));
}

#[test]
fn jobs_run_in_the_background_inside_the_fence_and_end_with_the_connection() {
    let world = World::new();
    let outside = world.beside("outside");
    let marker = crate::testkit::marker(&world);
    let mut client = Client::new(&world, &[]);
    let command = format!(
        "trap 'echo bye; exit 7' TERM; echo begun; touch {0}/out; : {marker}; while :; do sleep 0.1; done",
        outside.display()
    );
    let started = client.done("jobs", json!({ "action": "start", "command": command }));
    let id = started["jobs"][0]["id"].clone();
    assert_eq!(started["jobs"][0]["state"], "running", "{started}");
    eventually("it prints", || {
        client.done("jobs", json!({ "action": "logs", "id": id }))["output"]
            .as_str()
            .unwrap()
            .contains("begun")
    });
    assert!(!outside.join("out").exists());
    assert_eq!(client.done("exec", json!({ "command": "echo meanwhile" }))["stdout"], "meanwhile\n");
    client.done("jobs", json!({ "action": "signal", "id": id, "signal": "TERM" }));
    let state = |client: &mut Client, id: &Value| {
        let listed = client.done("jobs", json!({ "action": "list" }));
        listed["jobs"].as_array().unwrap().iter().find(|job| job["id"] == *id).unwrap().clone()
    };
    eventually("it ends", || state(&mut client, &id)["state"] == "over");
    assert_eq!(state(&mut client, &id)["exit_code"], 7);
    let logs = client.done("jobs", json!({ "action": "logs", "id": id }));
    assert!(logs["output"].as_str().unwrap().contains("bye"), "{logs}");

    for wrong in [
        json!({ "action": "logs", "id": "job-99" }),
        json!({ "action": "signal", "id": id, "signal": "STOP" }),
        json!({ "action": "start" }),
        json!({ "action": "start", "command": "true", "sandbox": false }),
        json!({}),
    ] {
        assert_eq!(client.call("jobs", wrong.clone())["isError"], true, "{wrong}");
    }
    let forever = format!("while :; do sleep 1; : {marker}; done");
    client.done("jobs", json!({ "action": "start", "command": forever }));
    eventually("it runs", || !processes_with(&marker).is_empty());
    client.end();
    eventually("nothing is left of it", || processes_with(&marker).is_empty());
    let all = world.all_records();
    assert_eq!(events(&all, "call-intended").len(), 3);
    assert_eq!(events(&all, "call-settled").len(), 3, "all of them came to their end");
    world.ledger_tool(&["verify"]).expect(0);
}

/// A job for which somebody is still asked ends when it is killed, and with the connection: nobody says yes for a client that is
/// gone.
#[test]
fn a_job_that_waits_for_a_person_does_not_wait_for_one_any_more_when_it_is_ended() {
    let world = World::new();
    asking_about_mkdir(&world);
    let _watcher = Watcher::new(&world);
    let mut client = Client::new(&world, &[]);
    let start = |client: &mut Client, name: &str| {
        let before = events(&world.records(), "approval-requested").len();
        let started = client.done("jobs", json!({ "action": "start", "command": format!("mkdir {name}") }));
        eventually("it asks", || events(&world.records(), "approval-requested").len() > before);
        started["jobs"][0]["id"].clone()
    };
    let id = start(&mut client, "killed");
    client.done("jobs", json!({ "action": "signal", "id": id, "signal": "KILL" }));
    eventually("it is over", || {
        client.done("jobs", json!({ "action": "list" }))["jobs"][0]["state"] == "over"
    });
    start(&mut client, "left");
    client.end();
    let records = world.records();
    let answers: Vec<&Value> =
        events(&records, "approval-decided").iter().map(|event| &event["answer"]).collect();
    assert_eq!(answers, ["deny", "deny"], "neither is left open, and neither ran out of time");
    assert_eq!(events(&records, "call-intended").len(), 0);
    assert!(["killed", "left"].iter().all(|name| !world.workspace.join(name).exists()));
}

/// A background command has the memory of its connection: it is no way to be asked about again.
#[test]
fn a_denial_holds_for_background_commands_as_well() {
    let world = World::new();
    asking_about_mkdir(&world);
    let watcher = Watcher::new(&world);
    let mut client = Client::without_elicitation(world.ringfence());
    let asked = || events(&world.records(), "approval-requested").len();
    let job = |client: &mut Client, command: &str| {
        let started = client.done("jobs", json!({ "action": "start", "command": command }));
        let id = started["jobs"][0]["id"].clone();
        let mut job = Value::Null;
        eventually("it is over", || {
            let listed = client.done("jobs", json!({ "action": "list" }));
            job = listed["jobs"].as_array().unwrap().iter().find(|job| job["id"] == id).unwrap().clone();
            job["state"] == "over"
        });
        job
    };
    // The control: a background command is asked about, and a yes lets it happen.
    let made = watcher.answering(b"o", || job(&mut client, "mkdir three"));
    assert!(world.workspace.join("three").is_dir(), "{made}");
    let first = watcher.answering(b"d", || client.call("exec", json!({ "command": "mkdir one" })));
    assert_eq!(first["isError"], true, "{first}");
    let refused = job(&mut client, "mkdir one");
    let rule = refused["denial"]["rule"].as_str().unwrap();
    assert!(rule.starts_with("approval.already-denied"), "{refused}");
    assert_eq!(asked(), 2, "no person is asked about it again");
    // And the other way round.
    watcher.answering(b"d", || job(&mut client, "mkdir two"));
    let refused = client.call("exec", json!({ "command": "mkdir two" }));
    assert_eq!((&refused["isError"], asked()), (&json!(true), 3), "{refused}");
    assert!(["one", "two"].iter().all(|name| !world.workspace.join(name).exists()));
    client.end();
}

#[test]
fn a_job_is_judged_like_every_command() {
    let world = World::new();
    guarded(&world);
    let mut client = Client::new(&world, &[]);
    let started = client.done("jobs", json!({ "action": "start", "command": "rm -rf ." }));
    let id = started["jobs"][0]["id"].clone();
    let mut job = Value::Null;
    eventually("it is refused", || {
        let listed = client.done("jobs", json!({ "action": "list" }));
        job = listed["jobs"].as_array().unwrap().iter().find(|job| job["id"] == id).unwrap().clone();
        job["state"] == "over"
    });
    assert_eq!((&job["ended"], job["denial"]["rule"].is_string()), (&json!("refused"), true), "{job}");
    client.end();
    assert_eq!(events(&world.records(), "call-refused").len(), 1);
}

#[test]
fn a_page_is_fetched_through_the_filter() {
    let internet = crate::internet::Internet::new();
    let value = ["value", "of", "a", "stored", "one", "4711"].join("-");
    finish(internet.ringfence().args(["secret", "set", "KEY"]), value.as_bytes()).expect(0);
    internet.world.write(".ringfence/policy.toml", "[[host]]\ndeny = [\"other.test\"]\n");
    let mut client =
        Client::by(internet.ringfence(), &["--net", "filtered", "--allow-host", "web.test"]).greeted();
    let page = client.done("fetch", json!({ "url": "https://web.test/echo" }));
    assert_eq!((&page["status"], &page["url"]), (&json!(200), &json!("https://web.test/echo")), "{page}");
    for url in ["https://other.test/echo".to_owned(), format!("https://web.test/{value}")] {
        let no = client.call("fetch", json!({ "url": url }));
        assert_eq!(no["structuredContent"]["ended"], "refused", "{no}");
        assert!(!no.to_string().contains(&value));
    }
    client.end();
    let targets: Vec<Value> = internet
        .visits()
        .iter()
        .filter(|visit| visit["what"] == "http")
        .map(|visit| visit["target"].clone())
        .collect();
    assert_eq!(targets, ["/echo"], "nothing else was asked for");
    let mut bare = Client::new(&internet.world, &[]);
    let no = bare.call("fetch", json!({ "url": "https://web.test/echo" }));
    assert_eq!(no["structuredContent"]["ended"], "refused", "there is no network without the filter: {no}");
}

/// With the official client for Python, which checks every result against the schema of its tool.
#[test]
fn the_official_client_speaks_with_it_in_both_eras() {
    for (mode, version) in [("legacy", "2025-11-25"), ("auto", "2026-07-28")] {
        for (answer, ended) in [("allow once", "done"), ("deny", "refused")] {
            let world = World::new();
            asking_about_mkdir(&world);
            let client = crate::agents::source("mcp_client.py");
            let mut command = world.host("python3");
            command.env("PYTHONPATH", crate::agents::agents().join("../python"));
            command.arg(client).args([mode, answer]).arg(crate::testkit::binary()).args(["mcp", "--elicit"]);
            let said = finish(&mut command, b"").expect(0).json();
            assert_eq!(said["version"], version, "{said}");
            assert_eq!(said["tools"].as_array().unwrap().len(), 10, "{said}");
            assert_eq!((&said["exec"]["exit_code"], &said["exec"]["stdout"]), (&json!(3), &json!("out\n")));
            assert!(said["progress"].as_u64().unwrap() >= 1, "{said}");
            assert_eq!((&said["read"], &said["explain"]), (&json!("one\n"), &json!("allow")), "{said}");
            assert_eq!(said["outside"], json!([true, "path.boundary"]));
            assert_eq!(
                (&said["asked"], said["questions"].as_array().unwrap().len()),
                (&json!(ended), 1),
                "{said}"
            );
            assert_eq!(world.workspace.join("made").is_dir(), ended == "done");
        }
    }
}

/// Everything that the client does runs without a question, but for `mkdir`.
fn asking_about_mkdir(world: &World) {
    crate::approvals::configure(world, "schema = 1\n[[command]]\nask = \"mkdir\"\n");
}
