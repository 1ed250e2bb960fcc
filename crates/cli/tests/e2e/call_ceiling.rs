//! A call that has less than its session: enforced for that call alone, over every transport, and never more than the session has.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfence_api::{CallInfo, CreateSession, ExecRequest, ListCalls, SessionInfo, StopSession};
use ringfence_grpc::v1;
use ringfence_types::NetMode;
use serde_json::{Value, json};

use crate::approvals::configure;
use crate::daemon_fixture::{Served, stdout};
use crate::daemon_socket::{Talk, token_with};
use crate::grpc_client::Speaker;
use crate::mcp::Client as McpClient;
use crate::testkit::{World, eventually, marker, processes_with};

/// A server of the host that counts who comes.
struct Counter {
    port: u16,
    came: Arc<AtomicUsize>,
}

impl Counter {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let came = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&came);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _before = count.fetch_add(1, Ordering::SeqCst);
                let _head = stream.read(&mut [0; 4096]);
                let _gone =
                    stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi");
            }
        });
        Self { port, came }
    }

    fn take(&self) -> usize {
        self.came.swap(0, Ordering::SeqCst)
    }
}

/// What came of a call, whatever it went over.
#[derive(Debug)]
struct Told {
    /// The rule of a refusal.
    refused: Option<String>,
    /// As the posture of the result has it.
    ceiling: Value,
}

fn told(info: &CallInfo) -> Told {
    let posture = serde_json::to_value(&info.posture).unwrap();
    Told {
        refused: info.refusal.as_ref().map(|refusal| refusal.rule.to_string()),
        ceiling: posture["ceiling"].clone(),
    }
}

/// Writes to the workspace, and connects to the host.
fn script(port: u16) -> String {
    format!("echo x > made; curl -s --noproxy '*' --max-time 5 http://127.0.0.1:{port}/ > /tmp/page")
}

/// A session with the network of the host: a call does both, and each ceiling takes one of them away.
fn attempts(world: &World, counter: &Counter, mut call: impl FnMut(Value) -> Told) {
    let state = |call: Told| {
        let made = world.workspace.join("made");
        let wrote = made.exists();
        let _gone = std::fs::remove_file(made);
        (wrote, counter.take() > 0, call)
    };
    let (wrote, came, plain) = state(call(Value::Null));
    assert!(wrote && came && plain.refused.is_none() && plain.ceiling.is_null(), "{plain:?}");
    let reads = json!({ "roots": [{ "path": ".", "access": "read" }] });
    let (wrote, came, reading) = state(call(reads));
    assert!(!wrote && came && reading.refused.is_none(), "{reading:?}");
    let workspace = world.workspace.to_str().unwrap();
    assert_eq!(reading.ceiling, json!({ "roots": [{ "path": workspace, "access": "read" }] }));
    let (wrote, came, offline) = state(call(json!({ "net": "none" })));
    assert!(wrote && !came && offline.refused.is_none(), "{offline:?}");
    assert_eq!(offline.ceiling, json!({ "net": "none" }));
    let both = json!({ "roots": [], "net": { "hosts": [] }, "limits": { "processes": 20 } });
    let (wrote, came, _) = state(call(both));
    assert!(!wrote && !came);
    for (wider, rule) in [
        (json!({ "roots": [{ "path": "/", "access": "read" }] }), "ceiling.roots"),
        (json!({ "net": { "hosts": ["169.254.169.254:80"] } }), "ceiling.hosts"),
        (json!({ "backend": "landlock" }), "ceiling.backend"),
        (json!({ "limits": { "processes": 1_000_000 } }), "ceiling.limits"),
    ] {
        let (wrote, came, refused) = state(call(wider));
        assert!(!wrote && !came);
        assert_eq!(refused.refused.as_deref(), Some(rule), "{refused:?}");
    }
    let (wrote, came, _) = state(call(Value::Null));
    assert!(wrote && came, "the session has what it had");
}

fn full(served: &Served) -> SessionInfo {
    let wanted = CreateSession { net: Some(NetMode::Full), ..served.wanted() };
    served.client().call(&wanted).unwrap()
}

fn narrowed(session: &SessionInfo, script: &str, ceiling: &Value) -> ExecRequest {
    let argv = ["sh", "-c", script];
    serde_json::from_value(json!({ "session": session.session, "argv": argv, "ceiling": ceiling })).unwrap()
}

/// S001-6.
#[test]
fn a_call_over_http_is_held_to_its_ceiling() {
    let (served, counter) = (Served::new(), Counter::new());
    let session = full(&served);
    let script = script(counter.port);
    attempts(&served.world, &counter, |ceiling| {
        told(&served.client().call(&narrowed(&session, &script, &ceiling)).unwrap())
    });
    let intents = served.records("call-intended");
    let recorded: Vec<&Value> = intents.iter().map(|record| &record["event"]["call"]["ceiling"]).collect();
    assert!(recorded.contains(&&json!({ "net": "none" })), "{recorded:?}");
    let reading = intents.iter().find(|record| {
        record["event"]["call"]["ceiling"]["net"].is_null() && !record["event"]["call"]["ceiling"].is_null()
    });
    assert_eq!(reading.unwrap()["event"]["roots"][0]["access"], "read");
    let launched = served.records("sandbox-started");
    assert!(launched.iter().any(|record| record["event"]["posture"]["ceiling"]["net"] == "none"));
}

#[test]
fn a_call_over_a_websocket_is_held_to_its_ceiling() {
    let (served, counter) = (Served::new(), Counter::new());
    let session = full(&served);
    let mut talk = Talk::open(&served.socket, None).unwrap();
    let argv = ["sh".to_owned(), "-c".to_owned(), script(counter.port)];
    attempts(&served.world, &counter, |ceiling| {
        let params = json!({ "session": session.session, "argv": argv, "ceiling": ceiling });
        let info: CallInfo = serde_json::from_value(talk.call("call.exec", params).unwrap()).unwrap();
        told(&info)
    });
}

/// The same ceiling as a message.
fn message(ceiling: &Value) -> Option<v1::CallCeiling> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = |value: &Value| value.as_array().cloned();
    let whole = ceiling.as_object()?;
    let roots = whole.get("roots").and_then(list).map(|roots| v1::RootCeilings {
        roots: roots
            .iter()
            .map(|root| v1::RootCeiling { path: text(&root["path"]), access: text(&root["access"]) })
            .collect(),
    });
    let net = whole.get("net").map(|net| v1::NetCeiling {
        mode: net.as_str().map(str::to_owned),
        hosts: list(&net["hosts"]).map(|hosts| v1::HostCeilings { hosts: hosts.iter().map(text).collect() }),
    });
    let limits = whole
        .get("limits")
        .map(|limits| v1::LimitCeilings { processes: limits["processes"].as_u64(), ..Default::default() });
    Some(v1::CallCeiling { roots, net, backend: whole.get("backend").map(text), limits })
}

#[test]
fn a_call_over_grpc_is_held_to_its_ceiling() {
    let (served, counter) = (Served::new(), Counter::new());
    let session = full(&served);
    let speaker = Speaker::at(&served.socket, None);
    let argv = vec!["sh".to_owned(), "-c".to_owned(), script(counter.port)];
    attempts(&served.world, &counter, |ceiling| {
        let session = session.session.to_string();
        let command =
            v1::Command { session, argv: argv.clone(), ceiling: message(&ceiling), ..Default::default() };
        let request = v1::ExecRequest { command: Some(command), background: false };
        let call = speaker.wait(speaker.calls().exec(request)).unwrap().into_inner();
        let posture = call.posture_json.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap());
        Told { refused: call.refusal.map(|refusal| refusal.rule), ceiling: posture["ceiling"].clone() }
    });
    let command = v1::Command {
        session: session.session.to_string(),
        argv: vec!["true".to_owned()],
        ceiling: Some(v1::CallCeiling { net: Some(v1::NetCeiling::default()), ..Default::default() }),
        ..Default::default()
    };
    let request = v1::ExecRequest { command: Some(command), background: false };
    let nothing_said = speaker.wait(speaker.calls().exec(request)).unwrap_err();
    assert_eq!(nothing_said.code(), tonic::Code::InvalidArgument);
}

fn of_tool(result: &Value) -> Told {
    let said = &result["structuredContent"];
    Told {
        refused: said["denial"]["rule"].as_str().map(str::to_owned),
        ceiling: said["posture"]["ceiling"].clone(),
    }
}

#[test]
fn a_call_over_mcp_is_held_to_its_ceiling() {
    let (world, counter) = (World::new(), Counter::new());
    let mut client = McpClient::new(&world, &["--net", "full"]);
    let command = script(counter.port);
    attempts(&world, &counter, |ceiling| {
        let mut arguments = json!({ "command": command });
        if !ceiling.is_null() {
            arguments["ceiling"] = ceiling;
        }
        of_tool(&client.call("exec", arguments))
    });
    let _kept = client.done("exec", json!({ "command": "echo kept > /tmp/kept" }));
    let apart = json!({ "command": "cat /tmp/kept", "ceiling": { "net": "none" } });
    assert_ne!(client.done("exec", apart)["exit_code"], 0, "a sandbox of its own has a /tmp of its own");
    assert_eq!(client.done("exec", json!({ "command": "cat /tmp/kept" }))["stdout"], "kept\n");
    client.end();
}

/// Of two hosts that the session reaches, the call keeps one.
#[test]
fn a_call_keeps_some_of_the_hosts_of_its_session() {
    let (kept, other) = (Counter::new(), Counter::new());
    let world = World::new();
    let host =
        |port: u16| format!("[[host]]\nallow = [\"localhost:{port}\"]\nallow_private_addresses = true\n");
    configure(&world, &format!("net = \"filtered\"\n{}{}", host(kept.port), host(other.port)));
    let served = Served::with(world, &[]);
    let session = served.session();
    let get = format!(
        "for p in {} {}; do curl -s --noproxy '' --max-time 5 http://localhost:$p/ >> page; done; true",
        kept.port, other.port
    );
    let control = served.sh(&session, &get);
    assert_eq!((kept.take(), other.take()), (1, 1), "{control:?}");
    let ceiling = json!({ "net": { "hosts": [format!("localhost:{}", kept.port)] } });
    let info = served.client().call(&narrowed(&session, &get, &ceiling)).unwrap();
    assert_eq!((kept.take(), other.take()), (1, 0), "{info:?}");
    let refused = served.records("call-refused");
    assert!(
        refused.iter().any(|record| record["event"]["refusal"]["rule"] == "ceiling.hosts"),
        "{refused:?}"
    );
    let unknown = json!({ "net": { "hosts": ["localhost:1"] } });
    let info = served.client().call(&narrowed(&session, &get, &unknown)).unwrap();
    assert_eq!((kept.take(), other.take()), (0, 0), "{info:?}");
}

/// Through the door of its session a command could ask for the same without a ceiling.
#[test]
fn a_call_with_a_ceiling_has_no_door_to_its_session() {
    let served = Served::new();
    let session = served.session();
    let look = "env | grep -c '^RINGFENCE_SESSION_\\(TOKEN\\|SOCKET\\)='; true";
    let control = served.sh(&session, &format!("{look}; printf %s \"$RINGFENCE_SESSION_SOCKET\" > door"));
    assert_eq!(stdout(&control), "2\n");
    let door = served.world.read("door").unwrap();
    let look = format!("{look}; [ -e '{door}' ] && echo seen; true");
    assert_eq!(stdout(&served.sh(&session, &look)), "2\nseen\n");
    let ceiling = json!({ "roots": [{ "path": ".", "access": "write" }] });
    let info = served.client().call(&narrowed(&session, &look, &ceiling)).unwrap();
    assert_eq!(stdout(&info), "0\n", "{info:?}");
}

#[test]
fn the_limits_of_a_call_are_smaller_for_that_call_alone() {
    let served = Served::new();
    let session = served.session();
    let write = "rm -f big; head -c 2000000 /dev/zero > big; true";
    let length = || served.world.workspace.join("big").metadata().unwrap().len();
    let ceiling = json!({ "limits": { "file_size_bytes": 1_000_000 } });
    let info = served.client().call(&narrowed(&session, write, &ceiling)).unwrap();
    assert_eq!(length(), 1_000_000, "{info:?}");
    let control = served.sh(&session, write);
    assert_eq!(length(), 2_000_000, "{control:?}");
}

#[test]
fn a_session_that_ends_ends_its_calls_with_a_ceiling() {
    let served = Served::new();
    let session = served.session();
    let mark = marker(&served.world);
    let ceiling = json!({ "net": "none", "roots": [] });
    let mut exec =
        narrowed(&session, &format!("trap '' TERM; : {mark}; while :; do sleep 1; done"), &ceiling);
    exec.background = true;
    let _started = served.client().call(&exec).unwrap();
    eventually("it runs", || !processes_with(&mark).is_empty());
    let stop = StopSession { session: session.session.clone(), grace_ms: Some(100) };
    served.client().call(&stop).unwrap();
    eventually("nothing of it runs", || processes_with(&mark).is_empty());
}

/// The operator sees what the call gives up; the answer is for that alone.
#[test]
fn an_approval_is_for_the_call_with_its_ceiling() {
    let world = World::new();
    configure(&world, "[[command]]\nask = \"mkdir\"\nreason = \"directories are asked about\"\n");
    let served = Served::with(world, &[]);
    let session = served.session();
    let (_, token) = token_with(&served, &["approve", "read"]);
    let mut operator = Talk::open(&served.socket, Some(&token)).unwrap();
    let mut ask = |ceiling: &Value, answer: &str| {
        let before = served.records("approval-requested").len();
        let argv = ["mkdir", "-p", "made"];
        let exec =
            json!({ "session": session.session, "argv": argv, "ceiling": ceiling, "background": true });
        let exec: ExecRequest = serde_json::from_value(exec).unwrap();
        let call = served.client().call(&exec).unwrap().call;
        let info = || {
            let calls = served.client().call(&ListCalls { session: session.session.clone() }).unwrap().calls;
            calls.into_iter().find(|info| info.call == call).unwrap()
        };
        let is_over = || info().exit_code.is_some() || info().refusal.is_some();
        eventually("it is asked or done", || {
            served.records("approval-requested").len() > before || is_over()
        });
        let requests = served.records("approval-requested");
        let Some(request) = requests.get(before) else { return Value::Null };
        let id = &request["event"]["transaction"];
        let _answered = operator.call("approval.answer", json!({ "id": id, "answer": answer })).unwrap();
        eventually("it is over", is_over);
        request["event"].clone()
    };
    let ceiling = json!({ "net": "none", "limits": { "processes": 7 } });
    let request = ask(&ceiling, "session");
    let shown = request.to_string();
    assert!(shown.contains("held to") && shown.contains("processes: at most 7"), "{shown}");
    assert!(served.world.workspace.join("made").is_dir());
    assert_eq!(ask(&ceiling, "deny"), Value::Null, "the answer was for the session");
    let plain = ask(&Value::Null, "deny");
    assert!(!plain.is_null(), "the same without its ceiling is another call");
    assert!(!plain.to_string().contains("held to"), "{plain}");
}
