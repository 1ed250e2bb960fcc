//! `ringfence exec-server`: the real Codex, whose commands and file work all come to the fence, and its protocol on the wire.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::agents::{codex, codex_in};
use crate::approvals::{Watcher, configure, events};
use crate::test_timeouts::{Patient, end, ended, mortal};
use crate::testkit::{World, binary, eventually, finish, processes_with};

/// As the documentation says.
const PLUGGED: &str = "default = \"ringfence\"\ninclude_local = false\n\n[[environments]]\nid = \"ringfence\"\nprogram = PROGRAM\nargs = [\"exec-server\"]\n";

fn plug_in(world: &World) {
    let directory = world.home.join(".codex");
    fs::create_dir_all(&directory).unwrap();
    let text = PLUGGED.replace("PROGRAM", &json!(binary()).to_string());
    fs::write(directory.join("environments.toml"), text).unwrap();
}

fn patch(line: &str) -> Value {
    let command = format!("apply_patch <<'E'\n*** Begin Patch\n{line}*** End Patch\nE\n");
    json!({ "name": "exec_command", "input": { "cmd": command } })
}

fn exec(command: &str) -> Value {
    json!({ "name": "exec_command", "input": { "cmd": command } })
}

/// Everything that Codex does to the machine, with and without.
#[test]
fn codex_works_inside_the_fence_through_the_exec_server() {
    let world = World::new();
    let outside = world.beside("outside");
    fs::write(world.home.join("key"), "the key").unwrap();
    world.write("old.txt", "old\n");
    let steps = json!([
        exec(&format!(
            "echo in >in; echo out >{}/out; cat {}/key; echo end",
            outside.display(),
            world.home.display()
        )),
        patch("*** Add File: new/made.txt\n+x\n"),
        patch("*** Update File: old.txt\n@@\n-old\n+changed\n"),
        patch(&format!("*** Add File: {}/patched\n+x\n", outside.display())),
        patch("*** Delete File: in\n"),
        exec("curl -s -m 5 http://127.0.0.1:{port}/reached"),
        "finished",
    ]);
    let control = codex(&world, &steps);
    assert!(control.output(0).contains("the key"), "{:?}", control.outputs);
    assert!(outside.join("out").exists() && outside.join("patched").exists(), "{:?}", control.outputs);
    assert_eq!(control.visits, ["/reached"]);
    assert_eq!((world.read("new/made.txt").as_deref(), world.read("in")), (Some("x\n"), None));
    for file in ["out", "patched"] {
        fs::remove_file(outside.join(file)).unwrap();
    }
    fs::remove_dir_all(world.workspace.join("new")).unwrap();
    world.write("old.txt", "old\n");

    plug_in(&world);
    let status = finish(world.ringfence().args(["status", "--json"]), b"").expect(0).json();
    let found = status["agents"].as_array().unwrap().iter().find(|one| one["agent"] == "codex");
    assert_eq!(found.unwrap()["state"], "protected", "{status}");
    let ran = codex(&world, &steps);
    assert!(
        ran.output(0).contains("end") && !ran.output(0).contains("the key"),
        "{:?} {:?}",
        ran.outputs,
        ran.done
    );
    assert_eq!(world.read("new/made.txt").as_deref(), Some("x\n"), "{}", ran.output(1));
    assert_eq!(world.read("old.txt").as_deref(), Some("changed\n"), "{}", ran.output(2));
    // Codex keeps the reason to itself; it is on record.
    assert!(ran.output(3).contains("Failed to write file"), "{}", ran.output(3));
    assert!(!outside.join("out").exists() && !outside.join("patched").exists());
    assert!(world.read("in").is_none(), "{}", ran.output(4));
    assert!(!ran.output(5).contains("you reached it") && ran.visits.is_empty(), "{}", ran.output(5));

    let records = world.records();
    let commands: Vec<&Value> = events(&records, "call-intended")
        .into_iter()
        .filter(|event| event["call"]["kind"] == "exec")
        .collect();
    assert!(
        commands.iter().any(|event| event["call"]["argv"].to_string().contains("echo end")),
        "{commands:?}"
    );
    assert!(
        events(&records, "call-settled").iter().all(|event| event["delegated_to"].is_null()),
        "nothing is left to it"
    );
    let refused = events(&records, "call-refused");
    assert!(refused.iter().all(|event| event["refusal"]["rule"] == "path.boundary") && !refused.is_empty());
    world.ledger_tool(&["verify"]).expect(0);
}

/// The mode of Codex narrows what policy gives.
#[test]
fn codex_that_only_reads_writes_nothing() {
    let world = World::new();
    plug_in(&world);
    let steps =
        json!([exec("cat a.txt; touch made; echo end"), patch("*** Add File: patched\n+x\n"), "finished"]);
    world.write("a.txt", "content");
    let reading = ["--sandbox", "read-only"];
    let ran = codex_in(&world, &world.workspace, &reading, &steps);
    assert!(
        ran.output(0).contains("content") && ran.output(0).contains("end"),
        "{:?} {:?}",
        ran.outputs,
        ran.done
    );
    assert!(world.read("made").is_none() && world.read("patched").is_none(), "{:?}", ran.outputs);
    // The same with the mode that lets it write.
    let writing = ["--sandbox", "workspace-write"];
    let ran = codex_in(&world, &world.workspace, &writing, &steps);
    assert!(world.read("made").is_some() && world.read("patched").is_some(), "{:?}", ran.outputs);
}

#[test]
fn without_its_program_codex_does_nothing() {
    let world = World::new();
    plug_in(&world);
    let file = world.home.join(".codex/environments.toml");
    let text = fs::read_to_string(&file).unwrap().replace(&json!(binary()).to_string(), "\"/bin/false\"");
    fs::write(&file, text).unwrap();
    let steps = json!([exec("touch made"), patch("*** Add File: patched\n+x\n"), "finished"]);
    let ran = codex(&world, &steps);
    assert!(world.read("made").is_none() && world.read("patched").is_none(), "{:?}", ran.outputs);
    assert!(ran.output(0).contains("No usable execution environment"), "{:?}", ran.outputs);
    // The control: with the file away, Codex works by itself.
    fs::remove_file(&file).unwrap();
    codex(&world, &steps);
    assert!(world.read("made").is_some());
}

/// One command plugs Codex in, and one takes it out again.
#[test]
fn init_writes_what_codex_works_in_and_uninstall_takes_it_away() {
    let world = World::new();
    let file = world.home.join(".codex/environments.toml");
    let tool = |arguments: &[&str]| finish(world.ringfence().args(arguments), b"");
    tool(&["init", "claude-code", "--exec-server"]).expect(125).says("for codex");
    let shown = tool(&["init", "codex", "--exec-server", "--dry-run"]).expect(0).text();
    assert!(shown.contains("+include_local = false") && !file.exists(), "{shown}");
    tool(&["init", "codex", "--exec-server", "--yes"]).expect(0);
    let written = fs::read_to_string(&file).unwrap();
    assert_eq!(
        written.lines().skip(1).collect::<Vec<_>>(),
        PLUGGED.replace("PROGRAM", &json!(binary()).to_string()).lines().collect::<Vec<_>>()
    );
    assert!(tool(&["init", "codex", "--exec-server", "--yes"]).expect(0).text().contains("nothing to do"));
    let status = tool(&["status", "--json"]).expect(0).json();
    assert_eq!(status["agents"][0]["state"], "protected", "{status}");
    // Nobody has trusted the hook, so that this is all that stands between.
    let ran = codex_in(
        &world,
        &world.workspace,
        &[],
        &json!([exec("pwd; cat /proc/1/comm; touch made"), "finished"]),
    );
    assert!(world.read("made").is_some(), "{:?} {:?}", ran.outputs, ran.done);
    let records = world.records();
    let inside = events(&records, "call-intended");
    assert!(
        inside.iter().any(|event| event["call"]["argv"].to_string().contains("touch made")),
        "{inside:?}"
    );
    tool(&["uninstall", "--yes"]).expect(0);
    assert!(!file.exists() && !world.home.join(".codex/hooks.json").exists());

    // What somebody else works in is theirs, before us and after.
    let theirs = "default = \"mine\"\n[[environments]]\nid = \"mine\"\nurl = \"ws://127.0.0.1:1\"\n";
    fs::write(&file, theirs).unwrap();
    tool(&["init", "codex", "--exec-server", "--yes"]).expect(125).says("Ringfence did not write this file");
    tool(&["uninstall", "--yes"]).expect(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), theirs);
    fs::remove_file(&file).unwrap();
    tool(&["init", "codex", "--exec-server", "--yes"]).expect(0);
    fs::write(&file, theirs).unwrap();
    tool(&["uninstall", "--yes"]).expect(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), theirs, "it was taken over meanwhile");
}

/// The hook says no where the model can read it, the server contains; what both see is asked about and written down once.
#[test]
fn codex_has_the_hook_and_the_exec_server_together() {
    let world = World::new();
    let outside = world.beside("outside");
    // Of the workspace: in the network of the test the owner of the directories above the home is not known.
    world.write(".ringfence/policy.toml", "[[command]]\ndeny = \"chmod\"\n[[command]]\nask = \"mkdir\"\n");
    finish(world.ringfence().args(["init", "codex", "--exec-server", "--yes"]), b"").expect(0);
    let watcher = Watcher::new(&world);
    let steps = json!([
        exec(&format!("echo in >in; echo out >{}/out; cat /tmp/none; echo end", outside.display())),
        exec("chmod 700 in"),
        exec("mkdir made"),
        patch(&format!("*** Add File: {}/patched\n+x\n", outside.display())),
        patch("*** Add File: fine.txt\n+x\n"),
        "finished",
    ]);
    let ran = std::thread::scope(|scope| {
        let ran = scope.spawn(|| codex(&world, &steps));
        let asked = || watcher.terminal.seen().contains("[d]eny > ");
        eventually("it asks, or is over", || asked() || ran.is_finished());
        watcher.terminal.type_in(b"o");
        ran.join().unwrap()
    });
    assert!(
        ran.output(0).contains("end") && !outside.join("out").exists(),
        "{:?} {:?}",
        ran.outputs,
        ran.done
    );
    assert_eq!(world.read("in").as_deref(), Some("in\n"));
    for (number, rule) in [(1, "rule: command"), (3, "rule: path.boundary")] {
        let said = ran.output(number);
        for part in ["nothing was done", rule, "instead: "] {
            assert!(said.contains(part), "{said}");
        }
    }
    assert!(world.workspace.join("made").is_dir(), "{}", ran.output(2));
    assert!(!outside.join("patched").exists() && world.read("fine.txt").is_some(), "{:?}", ran.outputs);
    let records = world.records();
    let asked = events(&records, "approval-requested");
    assert_eq!(asked.len(), 1, "a person is asked once: {asked:?}");
    let intents = events(&records, "call-intended");
    let of =
        |word: &str| intents.iter().filter(|event| event["call"]["argv"].to_string().contains(word)).count();
    assert_eq!((of("echo end"), of("mkdir made")), (1, 1), "{intents:?}");
    assert!(intents.iter().all(|event| !event["call"]["argv"].to_string().contains("--agent=codex")));
    world.ledger_tool(&["verify"]).expect(0);
}

/// Why there is no port for Codex: by this variable it comes with nothing that would tell it from anybody else.
#[test]
fn codex_shows_no_token_at_an_address_from_the_environment() {
    let world = World::new();
    fs::create_dir_all(world.home.join(".codex")).unwrap();
    let address = [("CODEX_EXEC_SERVER_URL", "ws://127.0.0.1:{port}/reached")];
    let ran = crate::agents::codex_with(&world, &address, &json!([exec("touch made"), "finished"]));
    assert!(
        ran.visits.iter().any(|visit| visit == "/reached as websocket with None"),
        "{:?} {:?}",
        ran.visits,
        ran.done
    );
    assert!(world.read("made").is_none(), "it works there or nowhere");
}

/// A client of the exec-server.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: BufReader<Patient<ChildStdout>>,
    next: u64,
    heard: Vec<Value>,
}

impl Client {
    fn start(world: &World) -> Self {
        Self::started(world, &[])
    }

    fn started(world: &World, variables: &[(&str, &str)]) -> Self {
        let mut command = world.ringfence();
        command.envs(variables.iter().copied());
        let mut child =
            command.arg("exec-server").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        mortal(&child);
        let (stdin, lines) = (child.stdin.take(), BufReader::new(Patient(child.stdout.take().unwrap())));
        Self { child, stdin, lines, next: 1, heard: Vec::new() }
    }

    pub(crate) fn new(world: &World) -> Self {
        Self::greeted(world, &[])
    }

    /// With variables that Codex itself was started with.
    fn greeted(world: &World, variables: &[(&str, &str)]) -> Self {
        let mut client = Self::started(world, variables);
        let hello = client.request("initialize", json!({ "clientName": "test", "resumeSessionId": null }));
        let info = &hello["result"]["environmentInfo"];
        assert_eq!(info["cwd"], format!("file://{}", world.workspace.display()), "{hello}");
        client.send(&json!({ "method": "initialized", "params": {} }));
        client
    }

    fn send(&mut self, value: &Value) {
        self.stdin.as_mut().unwrap().write_all(format!("{value}\n").as_bytes()).unwrap();
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        self.send(&json!({ "id": id, "method": method, "params": params }));
        loop {
            let message = self.message();
            if message["id"] == id {
                return message;
            }
            self.heard.push(message);
        }
    }

    fn message(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "the server has ended");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    pub(crate) fn begin(&mut self, world: &World, id: &str, command: &str, more: &Value) {
        let mut params = json!({
            "processId": id, "argv": ["/bin/bash", "-c", command], "env": { "NO_COLOR": "1", "PAGER": "cat" },
            "cwd": place(&world.workspace), "tty": false, "arg0": null, "sandbox": null,
        });
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        let answer = self.request("process/start", params);
        assert_eq!(answer["result"]["processId"], id, "{answer}");
    }

    /// Everything that a process printed, and its exit code.
    pub(crate) fn finished(&mut self, id: &str) -> (String, i64) {
        let closed =
            |message: &Value| message["method"] == "process/closed" && message["params"]["processId"] == id;
        while !self.heard.iter().any(closed) {
            let message = self.message();
            self.heard.push(message);
        }
        let own: Vec<&Value> = self
            .heard
            .iter()
            .map(|message| &message["params"])
            .filter(|params| params["processId"] == id)
            .collect();
        let seqs: Vec<u64> = own.iter().map(|params| params["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "in order and without a gap");
        let text = own.iter().filter_map(|params| params["chunk"].as_str()).map(decoded).collect();
        let exit = own.iter().find_map(|params| params["exitCode"].as_i64()).unwrap();
        (text, exit)
    }

    fn file(&mut self, method: &str, path: &Path) -> Value {
        self.request(method, json!({ "path": place(path), "sandbox": null }))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

pub(crate) fn place(path: &Path) -> String {
    format!("file://{}", path.display())
}

fn decoded(text: &str) -> String {
    String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
}

#[test]
fn a_process_is_connected_as_it_asks() {
    let world = World::new();
    let mut client = Client::new(&world);
    client.begin(&world, "plain", "echo out; echo err >&2; echo ${NO_COLOR-none}; exit 3", &json!({}));
    let (text, exit) = client.finished("plain");
    assert!(text.contains("out\n") && text.contains("err\n") && text.contains("1\n"), "{text}");
    assert_eq!(exit, 3);

    client.begin(&world, "input", "read line; echo got $line", &json!({ "pipeStdin": true }));
    let wrote =
        client.request("process/write", json!({ "processId": "input", "chunk": "aGVsbG8K", "writeId": "1" }));
    assert_eq!(wrote["result"]["status"], "accepted", "{wrote}");
    assert_eq!(client.finished("input"), ("got hello\n".to_owned(), 0));
    let wrote = client.request("process/write", json!({ "processId": "input", "chunk": "aGVsbG8K" }));
    assert_eq!(wrote["result"]["status"], "stdinClosed", "{wrote}");

    client.begin(
        &world,
        "tty",
        "test -t 0 && test -t 1 && read line && echo got $line",
        &json!({ "tty": true }),
    );
    client.request("process/write", json!({ "processId": "tty", "chunk": "aGVsbG8K" }));
    let (text, exit) = client.finished("tty");
    assert!(text.contains("got hello") && exit == 0, "{text} {exit}");

    // What was printed can also be fetched.
    let read = client.request("process/read", json!({ "processId": "plain", "afterSeq": 0, "waitMs": 1000 }));
    let read = &read["result"];
    assert_eq!((&read["exitCode"], &read["closed"]), (&json!(3), &json!(true)), "{read}");
    assert!(read["chunks"].as_array().unwrap().len() >= 2, "{read}");
}

/// What is asked for with the last word of a client that goes is not begun for nobody.
#[test]
fn what_is_asked_for_last_does_not_outlive_the_connection() {
    let world = World::new();
    let start = |command: &str| {
        json!({ "id": 2, "method": "process/start", "params": {
            "processId": "last", "argv": ["/bin/bash", "-c", command], "env": {},
            "cwd": place(&world.workspace), "tty": false, "arg0": null, "sandbox": null,
        } })
    };
    let marker = crate::testkit::marker(&world);
    for round in 0..5 {
        let hello = json!({ "id": 1, "method": "initialize", "params": { "clientName": "test" } });
        let last = start(&format!("exec -a {marker} sleep 1000"));
        let said = format!("{hello}\n{}\n{last}\n", json!({ "method": "initialized", "params": {} }));
        let done = finish(world.ringfence().arg("exec-server"), said.as_bytes()).expect(0);
        assert!(done.text().contains("sessionId"), "round {round}: {}", done.text());
        assert_eq!(processes_with(&marker), Vec::<String>::new());
    }
}

#[test]
fn a_process_ends_when_it_is_told_to_and_with_the_connection() {
    let world = World::new();
    let mut client = Client::new(&world);
    let [one, two] = ["one", "two"].map(|name| format!("{}-{name}", crate::testkit::marker(&world)));
    for (id, marker) in [("a", &one), ("b", &two)] {
        client.begin(&world, id, &format!("exec -a {marker} sleep 1000"), &json!({}));
        eventually("it runs", || !processes_with(marker).is_empty());
    }
    let told = client.request("process/terminate", json!({ "processId": "a" }));
    assert_eq!(told["result"]["running"], true);
    assert_ne!(client.finished("a").1, 0);
    assert!(processes_with(&one).is_empty() && !processes_with(&two).is_empty());
    let told = client.request("process/terminate", json!({ "processId": "a" }));
    assert_eq!(told["result"]["running"], false);
    client.stdin = None;
    eventually("it ends with the connection", || processes_with(&two).is_empty());
    assert!(ended("the server, whose connection is closed", &mut client.child).success());
    assert_eq!(events(&world.all_records(), "session-ended").len(), 1);
}

#[test]
fn files_are_those_of_the_fence() {
    let world = World::new();
    let outside = world.beside("outside");
    fs::write(outside.join("secret"), "x").unwrap();
    world.write("a.txt", "content");
    world.write(".env", "KEY=1");
    let mut client = Client::new(&world);
    let there = client.file("fs/getMetadata", &world.workspace.join("a.txt"));
    assert_eq!((&there["result"]["isFile"], &there["result"]["size"]), (&json!(true), &json!(7)), "{there}");
    let read = client.file("fs/readFile", &world.workspace.join("a.txt"));
    assert_eq!(decoded(read["result"]["dataBase64"].as_str().unwrap()), "content");
    for missing in ["none", "none/below"] {
        for method in ["fs/getMetadata", "fs/readFile"] {
            let answer = client.file(method, &world.workspace.join(missing));
            assert_eq!(answer["error"]["code"], -32004, "{method} {missing}: {answer}");
        }
    }
    // Outside there is nothing to see, and reading it is refused.
    assert_eq!(client.file("fs/getMetadata", &outside.join("secret"))["error"]["code"], -32004);
    for path in [outside.join("secret"), world.workspace.join(".env")] {
        let answer = client.file("fs/readFile", &path);
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("Ringfence stopped this"), "{answer}");
    }
    let write = json!({ "path": place(&outside.join("made")), "dataBase64": "eA==", "sandbox": null });
    assert_eq!(client.request("fs/writeFile", write)["error"]["code"], -32600);
    assert!(!outside.join("made").exists());
    // A file is not emptied by whoever forgot to say what is in it.
    world.write("whole", "x");
    assert_eq!(client.file("fs/writeFile", &world.workspace.join("whole"))["error"]["code"], -32602);
    assert_eq!(world.read("whole").as_deref(), Some("x"));
    assert!(client.file("fs/remove", &outside.join("secret")).get("error").is_some());
    assert!(outside.join("secret").exists());
    world.write("skills/one/SKILL.md", "x");
    let options =
        json!({ "maxDepth": 6, "maxDirectories": 9, "maxEntries": 9, "pruneHiddenDirectories": true });
    let mut walk = |path: &Path, entries: u64| {
        let mut options = options.clone();
        options["maxEntries"] = json!(entries);
        client.request("fs/walk", json!({ "path": place(path), "options": options, "sandbox": null }))
    };
    let walked = walk(&world.workspace.join("skills"), 9);
    assert!(walked["result"]["entries"].to_string().contains("skills/one/SKILL.md"), "{walked}");
    assert_eq!(walk(&world.workspace.join("skills"), 1)["result"]["truncated"], true);
    assert_eq!(walk(&outside, 9)["error"]["code"], -32600);
    assert_eq!(client.file("fs/remove", &world.workspace.join("a.txt"))["result"], json!({}));
    assert!(world.read("a.txt").is_none());
    let listed = client.file("fs/readDirectory", &world.workspace);
    assert!(listed["result"]["entries"].to_string().contains(".env"), "{listed}");
}

#[test]
fn what_makes_no_sense_is_answered_and_does_nothing() {
    let world = World::new();
    let mut early = Client::start(&world);
    let start =
        json!({ "processId": "x", "argv": ["touch", "made"], "cwd": place(&world.workspace), "env": {} });
    assert_eq!(
        early.request("process/start", start.clone())["error"]["code"],
        -32600,
        "nobody has said hello"
    );
    let mut client = Client::new(&world);
    for (method, params, code) in [
        ("http/request", json!({ "url": "http://127.0.0.1/" }), -32601),
        ("fs/new", json!({ "path": "file:///" }), -32601),
        ("process/start", json!({}), -32602),
        ("fs/readFile", json!({ "path": "/etc/passwd" }), -32602),
        ("fs/readFile", json!({ "path": "file://host/etc/passwd" }), -32602),
    ] {
        assert_eq!(client.request(method, params.clone())["error"]["code"], code, "{method} {params}");
    }
    // A sandbox that is not understood could be narrower than what would be given.
    for sandbox in [json!({ "permissions": { "type": "new" } }), json!(7)] {
        let mut start = start.clone();
        start["sandbox"] = sandbox;
        assert_eq!(client.request("process/start", start)["error"]["code"], -32602);
    }
    let mut named = start.clone();
    named["arg0"] = json!("other");
    assert_eq!(client.request("process/start", named)["error"]["code"], -32602);
    let mut elsewhere = start;
    elsewhere["cwd"] = json!("file:///etc");
    assert_eq!(client.request("process/start", elsewhere)["result"]["processId"], "x");
    let (text, exit) = client.finished("x");
    assert!(text.contains("path.boundary") && exit == 126, "{text} {exit}");
    assert!(world.read("made").is_none());
    client.stdin.as_mut().unwrap().write_all(b"garbage\n").unwrap();
    let status = ended("the server, which does not guess", &mut client.child);
    assert_eq!(status.code(), Some(125));
}

/// A question waits in the queue; the process begins when it is answered.
#[test]
fn a_person_answers_for_codex() {
    let world = World::new();
    configure(&world, "schema = 1\n[[command]]\nask = [\"touch\"]\n");
    let watcher = Watcher::new(&world);
    let mut client = Client::new(&world);
    let mut touch = |id: &str, key: &[u8]| {
        watcher.answering(key, || {
            client.begin(&world, id, &format!("touch {id}"), &json!({}));
            client.finished(id)
        })
    };
    let (text, exit) = touch("yes", b"o");
    assert!(exit == 0 && world.read("yes").is_some(), "{text}");
    let (text, exit) = touch("no", b"d");
    assert!(exit == 126 && text.contains("Ringfence stopped this") && world.read("no").is_none(), "{text}");
}

/// Codex sends its whole environment with each call. What it was started with is not given by the call, so that a stored answer
/// holds; what differs from it is, and no call makes a variable part of what Codex was started with.
#[test]
fn a_stored_answer_holds_for_the_environment_that_codex_was_started_with_and_for_no_other() {
    let world = World::new();
    configure(&world, "schema = 1\n[[command]]\nask = [\"touch\"]\n");
    let watcher = Watcher::new(&world);
    let mut client = Client::greeted(&world, &[("PROJECT", "blue"), ("OWNER", "ann")]);
    let whole = json!({ "PROJECT": "blue", "OWNER": "ann" });
    let mut run = |id: &str, env: &Value| {
        let call = json!({ "argv": ["touch", "made"], "env": env });
        client.begin(&world, id, "", &call);
        client.finished(id)
    };
    let made = || std::fs::remove_file(world.workspace.join("made")).is_ok();
    let (text, exit) = watcher.answering(b"s", || run("first", &whole));
    assert!(exit == 0 && made(), "{text}");
    let seen = watcher.terminal.seen();
    assert!(!seen.contains("PROJECT=") && !seen.contains("variables:"), "not the call's: {seen}");
    let (text, exit) = run("second", &whole);
    assert!(exit == 0 && made(), "the answer holds: {text}");
    for (id, env) in [
        ("other", json!({ "PROJECT": "red", "OWNER": "ann" })),
        ("more", json!({ "PROJECT": "blue", "OWNER": "ann", "SMUGGLED": "x" })),
        ("again", json!({ "PROJECT": "blue", "OWNER": "ann", "SMUGGLED": "x" })),
    ] {
        let (text, exit) = watcher.answering(b"o", || run(id, &env));
        assert!(exit == 0 && made(), "asked anew, and yes: {id} {text}");
    }
    let seen = watcher.terminal.seen();
    assert!(seen.contains("PROJECT=red") && seen.matches("SMUGGLED=x").count() == 2, "{seen}");
}

/// What Codex was started with reaches its commands as before.
#[test]
fn commands_get_the_variables_that_codex_hands_on() {
    let world = World::new();
    let mut client = Client::greeted(&world, &[("PROJECT", "blue"), ("KEPT", "back")]);
    let env = json!({ "env": { "PROJECT": "blue", "GIVEN": "now" } });
    client.begin(&world, "x", "echo \"[$PROJECT] [$GIVEN] [$KEPT]\"", &env);
    assert_eq!(client.finished("x").0, "[blue] [now] []\n");
}

/// A call that Codex makes without the network has none, whatever calls ran before it, and takes none away from those after it.
#[test]
fn a_call_without_the_network_has_none_beside_calls_that_have_it() {
    let world = World::new();
    configure(&world, "net = \"full\"\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let connect = format!("echo x >/dev/tcp/127.0.0.1/{}; true", listener.local_addr().unwrap().port());
    for first_is_offline in [true, false] {
        let mut client = Client::new(&world);
        for call in 0..3 {
            let offline = first_is_offline == (call % 2 == 0);
            let id = format!("{call}");
            client.begin(&world, &id, &connect, &json!({ "enforceManagedNetwork": offline }));
            client.finished(&id);
            assert_eq!(listener.accept().is_ok(), !offline, "call {call}, offline: {offline}");
        }
    }
}
