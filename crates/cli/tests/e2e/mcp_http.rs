//! The Model Context Protocol from the daemon, over HTTP: the tools of a session, for whoever may use it, in both eras.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ringfence_api::{AnswerApproval, ListApprovals, ListCalls, SessionInfo, ShowSession, StopSession};
use serde_json::{Value, json};

use crate::approvals::configure;
use crate::daemon_fixture::{Served, stdout};
use crate::daemon_socket::token_with;
use crate::daemon_tcp::joined;
use crate::test_timeouts::{PATIENCE, eventually};
use crate::testkit::{World, binary, finish, marker, processes_with};

/// A client of one session that sends one request per connection.
#[derive(Clone)]
pub(crate) struct Tools {
    socket: PathBuf,
    path: String,
    headers: Vec<(String, String)>,
    modern: bool,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Tools {
    /// With the token of a session, at its door.
    pub(crate) fn at_the_door(served: &Served, session: &SessionInfo) -> Self {
        let (socket, token) = door(served, session);
        Self { socket, path: "/mcp".to_owned(), headers: Vec::new(), modern: false }.with_token(&token)
    }

    /// As the owner of the socket, or with a token there.
    fn of_operator(served: &Served, session: &SessionInfo) -> Self {
        let path = format!("/v1/sessions/{}/mcp", session.session);
        Self { socket: served.socket.clone(), path, headers: Vec::new(), modern: false }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn with_token(self, token: &str) -> Self {
        self.with("authorization", &format!("Bearer {token}"))
    }

    fn modern(mut self) -> Self {
        self.modern = true;
        self
    }

    /// With the handshake of 2025-11-25; from then on under the id that the server gave.
    pub(crate) fn greeted(self) -> Self {
        let answer = self.request(
            0,
            "initialize",
            json!({
                "protocolVersion": "2025-11-25", "clientInfo": { "name": "test", "version": "1" }, "capabilities": {},
            }),
        );
        assert_eq!(answer.body["result"]["protocolVersion"], "2025-11-25", "{answer:?}");
        let id =
            answer.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
        let greeted = self.with("mcp-session-id", &id).with("mcp-protocol-version", "2025-11-25");
        let accepted =
            greeted.send("POST", &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        assert_eq!(accepted.status, 202, "{accepted:?}");
        greeted
    }

    fn begin(&self, verb: &str, message: &Value) -> UnixStream {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = if message.is_null() { String::new() } else { message.to_string() };
        let mut text = format!(
            "{verb} {} HTTP/1.1\r\nhost: ringfence\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {}\r\n",
            self.path,
            body.len()
        );
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.modern {
            text.push_str("mcp-protocol-version: 2026-07-28\r\n");
            text.push_str(&format!("mcp-method: {}\r\n", message["method"].as_str().unwrap_or_default()));
            if let Some(name) = message["params"]["name"].as_str() {
                text.push_str(&format!("mcp-name: {name}\r\n"));
            }
        }
        // Whoever has heard enough does not listen to the rest.
        let _heard_enough = stream.write_all(format!("{text}\r\n{body}").as_bytes());
        stream
    }

    fn send(&self, verb: &str, message: &Value) -> Answer {
        read(self.begin(verb, message))
    }

    fn message(&self, id: u64, method: &str, mut params: Value) -> Value {
        if self.modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }

    fn request(&self, id: u64, method: &str, params: Value) -> Answer {
        self.send("POST", &self.message(id, method, params))
    }

    fn tool(&self, id: u64, name: &str, arguments: Value) -> Value {
        self.message(id, "tools/call", json!({ "name": name, "arguments": arguments }))
    }

    pub(crate) fn call(&self, name: &str, arguments: Value) -> Value {
        let answer = self.send("POST", &self.tool(1, name, arguments));
        answer.body.get("result").unwrap_or_else(|| panic!("{answer:?}")).clone()
    }

    #[track_caller]
    pub(crate) fn done(&self, name: &str, arguments: Value) -> Value {
        let result = self.call(name, arguments);
        assert_eq!(result["structuredContent"]["ended"], "done", "{result}");
        result["structuredContent"].clone()
    }
}

/// The door of a session and its token, by way of a file: what looks like a credential is not printed.
pub(crate) fn door(served: &Served, session: &SessionInfo) -> (PathBuf, String) {
    let said = served.sh(
        session,
        "printf %s \"$RINGFENCE_SESSION_TOKEN\" | rev > token; printf %s \"$RINGFENCE_SESSION_SOCKET\"",
    );
    let token = served.world.read("token").unwrap().trim().chars().rev().collect();
    (PathBuf::from(stdout(&said)), token)
}

/// All of an answer. Of a stream of events the last one, which is what was asked for.
fn read(mut stream: impl std::io::Read) -> Answer {
    let mut bytes = Vec::new();
    let _closed = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let head = head.to_ascii_lowercase().replace('\r', "");
    let body = if head.contains("transfer-encoding: chunked") { joined(body) } else { body.to_owned() };
    let last = body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
    let body = serde_json::from_str(last.unwrap_or(&body)).unwrap_or(Value::Null);
    Answer { status, head, body }
}

const NAMES: [&str; 9] =
    ["exec", "read_file", "write_file", "edit_file", "list_dir", "search", "fetch", "jobs", "explain"];

/// Everything that a client does runs without a question, but for this.
pub(crate) const ASK: &str = "[[command]]\nask = \"mkdir\"\n";

/// A daemon that also listens on loopback.
pub(crate) fn listening() -> (Served, u16) {
    let served = Served::listening(World::new(), &format!("schema = 1\n{ASK}"), "");
    let port = served.port();
    (served, port)
}

#[test]
fn the_tools_of_a_session_are_at_its_door_in_both_eras() {
    let served = Served::new();
    let outside = served.world.beside("outside");
    served.world.write(".env", "KEY=1");
    let session = served.session();
    let legacy = Tools::at_the_door(&served, &session);
    let modern = legacy.clone().modern();
    let discovered = modern.request(1, "server/discover", json!({}));
    assert!(
        discovered.body["result"]["supportedVersions"].to_string().contains("2026-07-28"),
        "{discovered:?}"
    );
    for client in [legacy.greeted(), modern] {
        let listed = client.request(1, "tools/list", json!({}));
        let tools = listed.body["result"]["tools"].as_array().unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, NAMES);
        client.done("exec", json!({ "command": "mkdir -p src" }));
        client.done("write_file", json!({ "path": "src/a.txt", "content": "one\ntwo\none\n" }));
        assert_eq!(served.world.read("src/a.txt").as_deref(), Some("one\ntwo\none\n"));
        let part = client.done("read_file", json!({ "path": "src/a.txt", "first_line": 2, "lines": 1 }));
        assert_eq!((&part["content"], &part["total_lines"]), (&json!("two\n"), &json!(3)));
        let edit = json!({ "path": "src/a.txt", "old_text": "one", "new_text": "1", "all": true });
        assert_eq!(client.done("edit_file", edit)["replaced"], 2);
        let listed = client.done("list_dir", json!({}));
        let entry = json!({ "name": "src", "kind": "directory" });
        assert!(listed["entries"].as_array().unwrap().contains(&entry), "{listed}");
        let found = client.done("search", json!({ "pattern": "^tw|KEY" }));
        assert_eq!(found["matches"], json!(["./src/a.txt:2:two"]), "what is hidden is not found");
        let run = client.done("exec", json!({ "command": "cat a.txt; echo e >&2; exit 3", "cwd": "src" }));
        assert_eq!(
            (&run["exit_code"], &run["stdout"], &run["stderr"]),
            (&json!(3), &json!("1\ntwo\n1\n"), &json!("e\n"))
        );
        client.done("exec", json!({ "command": format!("echo x >{}/x || true", outside.display()) }));
        assert!(!outside.join("x").exists());
        assert_eq!(
            client.call("explain", json!({ "write": ".git/hooks/x" }))["structuredContent"]["decision"],
            "deny"
        );
        let no = client.call("read_file", json!({ "path": ".env" }));
        let denial = &no["structuredContent"]["denial"];
        assert_eq!((&no["isError"], &denial["rule"]), (&json!(true), &json!("path.environment")), "{no}");
        for field in ["what", "why", "layer", "instead", "the_user_can"] {
            assert!(denial[field].is_string(), "{field}: {denial}");
        }
        assert!(no["content"][0]["text"].as_str().unwrap().contains("nothing was done"), "{no}");
        for (tool, arguments) in [
            ("exec", json!({ "command": "true", "sandbox": false })),
            ("exec", json!({ "command": "a\0b" })),
            ("read_file", json!({ "path": "nothing" })),
            ("fetch", json!({ "url": "http://127.0.0.1/", "method": "HEAD" })),
            ("jobs", json!({ "action": "logs", "id": "job-99999" })),
            ("explain", json!({})),
        ] {
            assert_eq!(client.call(tool, arguments.clone())["isError"], true, "{tool} {arguments}");
        }
        let unknown =
            client.request(1, "tools/call", json!({ "name": "permission_prompt", "arguments": {} }));
        assert!(unknown.body.get("error").is_some(), "{unknown:?}");
    }
    let calls = served.client().call(&ListCalls { session: session.session }).unwrap().calls;
    assert!(calls.len() > 10, "they are calls of the session");
    assert!(served.records("call-refused").len() >= 2);
    served.ringfence(&["ledger", "verify"]).expect(0);
}

/// The one door of the daemon: who is not known, not at their own door, without the scope or with a part of it alone.
#[test]
fn tools_are_for_whoever_may_use_the_session() {
    let served = Served::new();
    let (own, other) = (served.session(), served.session());
    let tools = Tools::at_the_door(&served, &own).greeted();
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    assert_eq!(tools.send("POST", &ping).status, 200, "control");
    let nobody = Tools { headers: Vec::new(), ..tools.clone() };
    assert_eq!(nobody.send("POST", &ping).status, 401);
    let stranger = Tools { headers: Tools::at_the_door(&served, &other).headers, ..tools.clone() };
    assert_eq!(stranger.send("POST", &ping).status, 403, "the token of another session");
    let path = format!("/v1/sessions/{}/mcp", other.session);
    assert_eq!(
        Tools { path, ..tools.clone() }.send("POST", &ping).status,
        403,
        "another session by its name"
    );
    assert_eq!(tools.clone().with("origin", "https://page").send("POST", &ping).status, 403, "a web page");
    let path = "/mcp?token=x".to_owned();
    assert_eq!(Tools { path, ..tools.clone() }.send("POST", &ping).status, 400, "a token in the address");
    for verb in ["GET", "DELETE"] {
        assert_eq!(tools.send(verb, &Value::Null).status, 405, "{verb}");
    }
    let nonsense = json!([ping, ping]);
    assert!(tools.send("POST", &nonsense).status >= 400, "no batches");

    let owner = Tools::of_operator(&served, &own);
    assert_eq!(owner.greeted().done("exec", json!({ "command": "echo hi" }))["stdout"], "hi\n");
    let lost = Tools { path: "/mcp".to_owned(), ..Tools::of_operator(&served, &own) }.send("POST", &ping);
    assert_eq!(lost.status, 404);
    assert!(lost.body["hint"].as_str().unwrap().contains("/v1/sessions/"), "{lost:?}");
    let token = |scope: &str| token_with(&served, &[scope]).1;
    let reader = Tools::of_operator(&served, &own).with_token(&token("read"));
    assert_eq!(reader.send("POST", &ping).status, 403);
    let runner = Tools::of_operator(&served, &own).with_token(&token("run")).greeted();
    assert_eq!(runner.done("exec", json!({ "command": "echo hi" }))["stdout"], "hi\n");
    let refused = served.records("authentication-attempted");
    let of_tools =
        |record: &&Value| record["event"]["purpose"] == "mcp" && !record["event"]["refusal"].is_null();
    assert_eq!(refused.iter().filter(of_tools).count(), 3, "{refused:?}");

    // A part of the rights of a session is a part of its tools.
    let src = served.world.workspace.join("src");
    let narrow = json!({ "paths": { "only": [src] }, "hosts": "any", "commands": "any", "calls": null });
    let (socket, whole) = door(&served, &own);
    let minted = attenuated(&socket, (&whole, &own), narrow);
    served.world.write("src/a", "in");
    served.world.write("b", "out");
    let part = Tools { headers: Vec::new(), ..tools.clone() }.with_token(&minted).greeted();
    assert_eq!(part.done("read_file", json!({ "path": "src/a" }))["content"], "in");
    for (tool, arguments) in [
        ("read_file", json!({ "path": "b" })),
        ("exec", json!({ "command": "cat b" })),
        ("search", json!({ "pattern": "out" })),
        ("jobs", json!({ "action": "list" })),
    ] {
        let no = part.call(tool, arguments.clone());
        assert_eq!(no["structuredContent"]["denial"]["rule"], "identity.attenuated", "{tool}: {no}");
        tools.done(tool, arguments);
    }

    served.client().call(&StopSession { session: own.session, grace_ms: None }).unwrap();
    assert_eq!(Tools::of_operator(&served, &other).send("POST", &ping).status, 200, "control");
    assert!(runner.send("POST", &ping).status >= 400, "nothing is left of the session");
}

/// A token with a part of the rights of another.
fn attenuated(socket: &Path, (token, session): (&str, &SessionInfo), attenuation: Value) -> String {
    let path = format!("/v1/sessions/{}/tokens", session.session);
    let tools = Tools { socket: socket.to_owned(), path, headers: Vec::new(), modern: false };
    let minted =
        tools.with_token(token).send("POST", &json!({ "label": "part", "attenuation": attenuation }));
    minted.body["secret"].as_str().unwrap_or_else(|| panic!("{minted:?}")).to_owned()
}

#[test]
fn a_rule_about_a_tool_holds_over_http() {
    let world = World::new();
    world.write("a", "x");
    configure(&world, "schema = 1\n[[tool]]\ndeny = [\"search\", \"edit_file\", \"exec\", \"list_dir\"]\n");
    let served = Served::with(world, &[]);
    let session = served.session();
    let tools = Tools::of_operator(&served, &session).modern();
    for (tool, arguments) in [
        ("search", json!({ "pattern": "x" })),
        ("edit_file", json!({ "path": "a", "old_text": "x", "new_text": "y" })),
        ("exec", json!({ "command": "true" })),
        ("list_dir", json!({})),
    ] {
        let no = tools.call(tool, arguments);
        let rule = no["structuredContent"]["denial"]["rule"].as_str().unwrap_or_default().to_owned();
        assert!(rule.starts_with(&format!("tools.{tool}")), "{no}");
    }
    assert_eq!(tools.done("read_file", json!({ "path": "a" }))["content"], "x", "control");
    let refused = served.records("call-refused");
    assert_eq!(refused.len(), 4);
    for record in refused {
        assert_eq!(record["event"]["session"], session.session.as_str(), "{record}");
    }
    // From the next call on.
    assert!(tools.done("jobs", json!({ "action": "list" }))["jobs"].is_array(), "control");
    configure(&served.world, "schema = 1\n[[tool]]\ndeny = [\"jobs\"]\n");
    eventually("the new rule holds", || tools.call("jobs", json!({ "action": "list" }))["isError"] == true);
}

/// What somebody waits for ends with them: by a word in the era with a handshake, by going away in both.
#[test]
fn a_tool_that_is_cancelled_or_left_is_ended() {
    let served = Served::new();
    let session = served.session();
    let (mine, others) =
        (Tools::of_operator(&served, &session).greeted(), Tools::of_operator(&served, &session).greeted());
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    for leaves in [false, true] {
        let marker = marker(&served.world);
        let command = format!("trap '' TERM; while :; do sleep 1; : {marker}; done");
        let waiting = mine.begin("POST", &mine.tool(7, "exec", json!({ "command": command })));
        eventually("it runs", || !processes_with(&marker).is_empty());
        assert_eq!(others.send("POST", &cancel).status, 202, "the same number of somebody else");
        assert_eq!(mine.done("exec", json!({ "command": "echo beside" }))["stdout"], "beside\n");
        assert!(!processes_with(&marker).is_empty());
        if leaves {
            drop(waiting);
        } else {
            assert_eq!(mine.send("POST", &cancel).status, 202);
            let told = read(waiting);
            assert_eq!(told.body["result"]["isError"], true, "{told:?}");
        }
        eventually("it is gone", || processes_with(&marker).is_empty());
    }
    assert_eq!(mine.done("exec", json!({ "command": "echo next" }))["stdout"], "next\n");
}

#[test]
fn a_question_of_a_tool_waits_in_the_queue_of_the_daemon() {
    let world = World::new();
    configure(&world, &format!("schema = 1\n{ASK}"));
    let served = Served::with(world, &[]);
    let session = served.session();
    for (tools, answer) in [
        (Tools::at_the_door(&served, &session).greeted(), "once"),
        (Tools::at_the_door(&served, &session).modern(), "deny"),
    ] {
        let made = json!({ "command": format!("mkdir made-{answer}"), "description": "I need it" });
        let waiting = tools.begin("POST", &tools.tool(1, "exec", made));
        let mut question = None;
        eventually("the question waits", || {
            question = served.client().call(&ListApprovals {}).unwrap().approvals.pop();
            question.is_some()
        });
        let question = question.unwrap();
        let reply = json!({ "id": question.id, "answer": answer });
        let reply: AnswerApproval = serde_json::from_value(reply).unwrap();
        served.client().call(&reply).unwrap();
        let told = read(waiting).body["result"]["structuredContent"].clone();
        let (ended, there) = if answer == "once" { ("done", true) } else { ("refused", false) };
        assert_eq!((told["ended"].as_str(), there), (Some(ended), answer == "once"), "{told}");
        assert_eq!(served.world.workspace.join(format!("made-{answer}")).exists(), there);
    }
}

#[test]
fn jobs_over_http_are_calls_of_the_session_in_the_background() {
    let world = World::new();
    configure(&world, "schema = 1\n[[command]]\ndeny = \"mkdir\"\n");
    let served = Served::with(world, &[]);
    let session = served.session();
    let tools = Tools::at_the_door(&served, &session).greeted();
    let marker = marker(&served.world);
    let command = format!("trap 'echo bye; exit 4' TERM; echo hi; while :; do sleep 0.05; : {marker}; done");
    let started = tools.done("jobs", json!({ "action": "start", "command": command }));
    let id = started["jobs"][0]["id"].clone();
    assert_eq!(started["jobs"][0]["state"], "running", "{started}");
    let logs = || tools.done("jobs", json!({ "action": "logs", "id": id }))["output"].to_string();
    eventually("it has said something", || logs().contains("hi"));
    tools.done("jobs", json!({ "action": "signal", "id": id, "signal": "TERM" }));
    let job = |id: &Value| {
        let listed = tools.done("jobs", json!({ "action": "list" }));
        listed["jobs"].as_array().unwrap().iter().find(|job| job["id"] == *id).unwrap().clone()
    };
    eventually("it is over", || job(&id)["state"] == "over");
    assert_eq!(job(&id)["exit_code"], 4);
    assert!(logs().contains("bye"));
    let no =
        tools.done("jobs", json!({ "action": "start", "command": "mkdir made" }))["jobs"][0]["id"].clone();
    eventually("it is refused", || job(&no)["state"] == "over");
    assert!(job(&no)["denial"]["rule"].is_string(), "{}", job(&no));
    assert!(!served.world.workspace.join("made").exists());
}

/// Whoever loses their right while they wait is told so, and what was done for them ends.
#[test]
fn a_tool_is_cut_off_with_its_token() {
    let served = Served::new();
    let session = served.session();
    let (id, token) = token_with(&served, &["run"]);
    let tools = Tools::of_operator(&served, &session).with_token(&token).greeted();
    let marker = marker(&served.world);
    let command = format!("while :; do sleep 1; : {marker}; done");
    let waiting = tools.begin("POST", &tools.tool(1, "exec", json!({ "command": command })));
    eventually("it runs", || !processes_with(&marker).is_empty());
    served.ringfence(&["token", "revoke", &id]).expect(0);
    let told = read(waiting);
    assert_eq!(told.body["result"]["isError"], true, "{told:?}");
    eventually("it is gone", || processes_with(&marker).is_empty());
    let show = ShowSession { session: session.session };
    assert!(served.client().call(&show).is_ok(), "the session itself goes on");
}

/// One script for both servers of tools: who speaks with `ringfence mcp` and who speaks with the daemon is told the same.
#[test]
fn both_transports_say_the_same_of_every_tool() {
    let served = Served::new();
    let session = served.session();
    let daemon = Tools::at_the_door(&served, &session).greeted();
    let world = World::new();
    let mut stdio = crate::mcp::Client::new(&world, &[]);
    let script = [
        ("exec", json!({ "command": "echo out; echo err >&2; exit 3" })),
        ("exec", json!({ "command": "head -c 300000 /dev/zero | tr '\\0' x" })),
        ("write_file", json!({ "path": "d/made", "content": "one\ntwo\nthree\n" })),
        ("read_file", json!({ "path": "d/made", "first_line": 2, "lines": 1 })),
        ("edit_file", json!({ "path": "d/made", "old_text": "one", "new_text": "1" })),
        ("edit_file", json!({ "path": "d/made", "old_text": "absent", "new_text": "1" })),
        ("list_dir", json!({ "path": "d" })),
        ("search", json!({ "pattern": "1|two", "path": "d" })),
        ("search", json!({ "pattern": "nothing of this", "path": "d" })),
        ("search", json!({ "pattern": "(", "path": "d" })),
        ("read_file", json!({ "path": ".env" })),
        ("fetch", json!({ "url": "http://a.example/" })),
        ("read_file", json!({ "path": "d/made", "unknown": 1 })),
    ];
    for place in [&world, &served.world] {
        place.write("d/other", "x\n");
        place.write(".env", "KEY=1\n");
        std::os::unix::fs::symlink("other", place.workspace.join("d/link")).unwrap();
    }
    for (tool, arguments) in script {
        let here = told_of(&stdio.call(tool, arguments.clone()), &world);
        let there = told_of(&daemon.call(tool, arguments.clone()), &served.world);
        assert_eq!(here, there, "{tool} {arguments}");
    }
}

/// A result without what is different each time.
fn told_of(result: &Value, world: &World) -> Value {
    let text = result.to_string().replace(world.workspace.to_str().unwrap(), "/workspace");
    let mut result: Value = serde_json::from_str(&text).unwrap();
    if let Some(said) = result["structuredContent"].as_object_mut() {
        for of_one_call in ["transaction", "duration_ms"] {
            let _there = said.remove(of_one_call);
        }
    }
    result
}

/// What every request on TCP is asked first is asked here, too; and nobody out there is an owner or a session.
#[test]
fn tools_on_tcp_are_behind_the_same_checks() {
    let (served, port) = listening();
    let session = served.session();
    let operator = format!("Bearer {}", token_with(&served, &["run"]).1);
    let inside = format!("Bearer {}", door(&served, &session).1);
    let host = format!("127.0.0.1:{port}");
    let path = format!("/v1/sessions/{}/mcp", session.session);
    let status = |path: &str, headers: &[(&str, &str)]| {
        let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
        let mut text = format!(
            "POST {path} HTTP/1.1\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {}\r\n",
            ping.len()
        );
        headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{text}\r\n{ping}").as_bytes()).unwrap();
        read(stream).status
    };
    let allowed = [("host", host.as_str()), ("authorization", operator.as_str())];
    assert_eq!(status(&path, &allowed), 200, "control");
    let with = |more: (&'static str, &'static str)| [&allowed[..], &[more]].concat();
    assert_eq!(status(&path, &with(("origin", "https://page.test"))), 403, "a web page");
    let elsewhere = [("host", "rebound.test"), ("authorization", operator.as_str())];
    assert!((400..500).contains(&status(&path, &elsewhere)), "a name that leads here");
    assert_eq!(status(&path, &allowed[..1]), 401, "nobody");
    assert_eq!(
        status(&path, &[allowed[0], ("authorization", inside.as_str())]),
        403,
        "the token of a session"
    );
    assert_eq!(status("/mcp", &allowed), 404, "an operator has no session");
    assert!(status(&format!("{path}?access_token=x"), &allowed) >= 400, "a token in the address");
}

/// What the documentation says is typed as it stands there, and its settings are used as they are.
#[test]
fn the_quickstart_of_tools_over_http_does_what_it_says() {
    let text = std::fs::read_to_string(crate::agents::source("../../../../docs/agents/mcp.md")).unwrap();
    let block =
        |begin: &str| text.split(begin).nth(1).and_then(|rest| rest.split("```").next()).unwrap().to_owned();
    let (served, port) = listening();
    let programs = served.world.beside("programs");
    std::os::unix::fs::symlink(binary(), programs.join("ringfence")).unwrap();
    let mut shell = served.world.host("sh");
    shell.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    shell.env("XDG_RUNTIME_DIR", served.world.beside("r"));
    shell.args(["-ec", &format!("{}printf '%s %s' \"$session\" \"$token\"", block("```sh daemon\n"))]);
    let made = finish(&mut shell, b"").expect(0).text();
    let (session, token) = made.split_once(' ').unwrap();
    let over_http = text.split("## Over HTTP").nth(1).unwrap();
    let settings = over_http.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let settings = settings.replace("SESSION", session).replace("TOKEN", token);
    let settings: Value = serde_json::from_str(&settings).unwrap();
    let settings = &settings["mcpServers"]["ringfence"];
    let path = settings["url"].as_str().unwrap().strip_prefix("http://127.0.0.1:7420").unwrap();
    let key = settings["headers"]["Authorization"].as_str().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nauthorization: {key}\r\ncontent-length: {}\r\n\r\n{call}",
        call.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let answer = read(stream);
    assert_eq!(answer.body["result"]["tools"].as_array().map(Vec::len), Some(NAMES.len()), "{answer:?}");
}
