//! JSON-RPC on a WebSocket: the same methods for the same people as over HTTP, and what happens is told.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ringfence_api::{ErrorCode, Method, MethodAccess, ReportActivity};
use ringfence_client::ClientError;
use ringfence_types::Scope;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::{IntoClientRequest as _, client};
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::{Error, Message, WebSocket};

use crate::approvals::configure;
use crate::daemon_fixture::{ASK, Served};
use crate::daemon_rights::{minted, sensible, token_of};
use crate::daemon_slow_readers::{ROUNDS, floods, rounds};
use crate::testkit::{World, eventually};

/// Longer than anything takes here, also on a machine that does something else.
const LONG: Duration = Duration::from_secs(120);

/// Bytes, and a protocol of its own, and so over HTTP alone; whoever asks for them here is told so.
const BYTES: &[Method] = &[Method::FileUpload, Method::FileDownload, Method::Mcp];

/// Whatever a WebSocket goes over.
pub(crate) trait Duplex: Read + Write + Send {}

impl<S: Read + Write + Send> Duplex for S {}

/// Somebody at a socket.
pub(crate) struct Talk {
    pub(crate) socket: WebSocket<Box<dyn Duplex>>,
    /// Notifications that came while an answer was waited for.
    told: VecDeque<Value>,
    last: u64,
}

impl Talk {
    pub(crate) fn open(path: &Path, token: Option<&str>) -> Result<Self, u16> {
        let mut request = "ws://ringfence/v1/ws".into_client_request().unwrap();
        if let Some(token) = token {
            let _new =
                request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Self::over(Box::new(stream), request)
    }

    /// Over whatever stream, with whatever is in the request; the status of a refusal.
    pub(crate) fn over(stream: Box<dyn Duplex>, request: Request) -> Result<Self, u16> {
        match client(request, stream) {
            Ok((socket, _)) => Ok(Self { socket, told: VecDeque::new(), last: 0 }),
            Err(tokio_tungstenite::tungstenite::HandshakeError::Failure(Error::Http(response))) => {
                Err(response.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let text = json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params });
        self.socket.send(Message::from(text.to_string())).unwrap();
        self.last
    }

    /// What is said to a message as it is.
    pub(crate) fn say(&mut self, text: String) -> Value {
        self.socket.send(Message::from(text)).unwrap();
        self.next()
    }

    /// The answer to a request of which the rest is this text; to one that cannot be read, whatever is said without a number.
    pub(crate) fn say_as(&mut self, rest: &str) -> Result<Value, Value> {
        self.last += 1;
        let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},{rest}}}", self.last);
        self.socket.send(Message::from(text)).unwrap();
        loop {
            let mut said = self.next();
            match said.get("id") {
                Some(id) if *id == json!(self.last) || id.is_null() => {
                    return said
                        .get("error")
                        .map_or_else(|| Ok(said["result"].clone()), |error| Err(error.clone()));
                }
                _ => self.told.push_back(said.take()),
            }
        }
    }

    fn next(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.socket.read().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    /// Whatever comes next, unless it is over.
    pub(crate) fn heard(&mut self) -> Option<Message> {
        self.socket.read().ok().filter(|message| !message.is_close())
    }

    fn answer(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            let mut said = self.next();
            if said.get("id") == Some(&json!(id)) {
                assert_eq!(said["jsonrpc"], "2.0");
                return match said.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(said["result"].take()),
                };
            }
            assert!(said.get("id").is_none(), "an answer to nothing: {said}");
            self.told.push_back(said);
        }
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// The next value of a stream that `wanted` likes.
    pub(crate) fn told(&mut self, subscription: &Value, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut said = self.told.pop_front().unwrap_or_else(|| self.next());
            let of = said["params"]["subscription"] == *subscription;
            if of && wanted(&said["params"]["item"]) {
                return said["params"]["item"].take();
            }
        }
    }

    /// With which number the other side closes.
    fn closed(&mut self) -> u16 {
        loop {
            match self.socket.read() {
                Ok(Message::Close(frame)) => return frame.map_or(0, |frame| frame.code.into()),
                Ok(_) => {}
                Err(error) => panic!("gone without a word: {error}"),
            }
        }
    }
}

pub(crate) fn code(error: &Value) -> ErrorCode {
    serde_json::from_value(error["data"]["code"].clone()).unwrap_or_else(|_| panic!("{error}"))
}

pub(crate) fn token_with(served: &Served, scopes: &[&str]) -> (String, String) {
    let mut arguments = vec!["token", "create", "somebody", "--json"];
    scopes.iter().for_each(|scope| arguments.extend(["--scope", scope]));
    let made = served.ringfence(&arguments).expect(0).json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&made["token"]["id"]), text(&made["secret"]))
}

/// Issue 7's flow, S003-9…13, S003-36: create, the provider runs, a call asks, an operator on the socket approves, the provider has
/// its result, and the ledger has it all.
#[test]
fn an_operator_on_a_websocket_creates_approves_and_sees_the_end() {
    let world = World::new();
    configure(&world, "[[command]]\nask = \"mkdir\"\nreason = \"directories are asked about\"\n");
    let served = Served::with(world, &[]);
    let (_, token) = token_with(&served, &["read", "run", "approve"]);
    let mut operator = Talk::open(&served.socket, Some(&token)).unwrap();
    let events = operator.call("events", json!({})).unwrap()["subscription"].clone();
    let questions = operator.call("approval.watch", json!({})).unwrap()["subscription"].clone();
    let script =
        format!("{ASK} ask POST $S/exec '{{\"argv\":[\"mkdir\",\"made\"]}}' > status; cp answer result");
    let wanted = json!({ "workspace": served.world.workspace, "agent_argv": ["sh", "-c", script] });
    let session = operator.call("session.create", wanted).unwrap();
    let question = operator.told(&questions, |question| question["decision"].is_null());
    assert_eq!(question["session"], session["session"]);
    assert!(!served.world.workspace.join("made").exists(), "nothing is done before the answer");
    let answer = json!({ "id": question["id"], "answer": "once" });
    let answered = operator.call("approval.answer", answer.clone()).unwrap();
    assert_eq!(answered["result"], "decided", "{answered}");
    let decided = operator.told(&questions, |told| told["id"] == question["id"]);
    assert!(!decided["decision"].is_null(), "{decided}");
    operator.told(&events, |event| event["kind"] == "session-ended");
    assert!(served.world.workspace.join("made").is_dir());
    assert_eq!(served.world.read("status").unwrap().trim(), "200");
    let result: Value = serde_json::from_str(&served.world.read("result").unwrap()).unwrap();
    assert_eq!((&result["state"], &result["exit_code"]), (&json!("done"), &json!(0)), "{result}");
    for kind in ["approval-requested", "approval-decided", "call-intended", "call-settled"] {
        let of = |record: &Value| {
            let event = &record["event"];
            event["transaction"] == question["id"]
        };
        assert_eq!(served.records(kind).iter().filter(|record| of(record)).count(), 1, "{kind}");
    }
    assert_eq!(code(&operator.call("approval.answer", answer).unwrap_err()), ErrorCode::FailedPrecondition);
    served.ringfence(&["ledger", "verify"]).expect(0);
}

/// What waits is told at once to whoever comes late, and to nobody who may not answer.
#[test]
fn whoever_comes_late_is_told_what_waits() {
    let served = Served::new();
    let mut owner = Talk::open(&served.socket, None).unwrap();
    let wanted = json!({ "workspace": served.world.workspace, "profile": "guarded" });
    let session = owner.call("session.create", wanted).unwrap()["session"].clone();
    let exec = json!({ "session": session, "argv": ["mkdir", "made"] });
    let under_way = owner.send("call.exec", exec);
    let mut late = Talk::open(&served.socket, None).unwrap();
    let watch = late.call("approval.watch", json!({})).unwrap()["subscription"].clone();
    let question = late.told(&watch, |_| true);
    let over_http = served.client().questions().unwrap().next().unwrap().unwrap();
    assert_eq!(question["id"], over_http.id);
    let mut reader = Talk::open(&served.socket, Some(&token_with(&served, &["read"]).1)).unwrap();
    assert_eq!(code(&reader.call("approval.watch", json!({})).unwrap_err()), ErrorCode::Forbidden);
    // On the socket on which the call waits.
    let answer =
        owner.send("approval.answer", json!({ "id": question["id"], "answer": "deny", "reason": "no" }));
    let (mut heard, mut done) = (false, None);
    while !heard || done.is_none() {
        let said = owner.next();
        heard |= said["id"] == answer;
        if said["id"] == under_way {
            done = Some(said["result"].clone());
        }
    }
    assert_eq!(done.unwrap()["state"], "refused");
    assert!(!served.world.workspace.join("made").exists());
}

/// S003-17, S000-50, S000-54: every method of the table, on both transports, with the same outcome; what an agent may not is
/// refused and written down.
#[test]
fn every_method_is_the_same_on_both_transports() {
    let served = Served::new();
    let session = served.session();
    let agent = token_of(&served, &session);
    let workspace = served.world.workspace.to_str().unwrap().to_owned();
    let ends = [Method::SessionStop, Method::Shutdown, Method::Logout];
    let people =
        [("the owner", None), ("an agent", Some(agent)), ("a reader", Some(minted(&served, Scope::Read)))];
    for (who, token) in &people {
        let mut talk = Talk::open(&served.socket, token.as_deref()).unwrap();
        for method in Method::ALL.iter().filter(|method| !ends.contains(method)) {
            let request = sensible(*method, session.session.as_str(), &workspace);
            let here = talk.call(method.name(), request.clone());
            if method.reply().is_stream() {
                let let_in = !here.is_err_and(|error| code(&error) == ErrorCode::Forbidden);
                let expected = match method.access() {
                    MethodAccess::Operator(scope) => {
                        *who == "the owner" || (*who == "a reader" && scope == Scope::Read)
                    }
                    MethodAccess::Session(scope) => *who != "a reader" || scope == Scope::Read,
                    MethodAccess::Anyone | MethodAccess::Known => true,
                };
                assert_eq!(let_in, expected, "{} of {who}", method.name());
                continue;
            }
            if BYTES.contains(method) {
                let may = *who != "a reader";
                let expected = if may { ErrorCode::InvalidArgument } else { ErrorCode::Forbidden };
                assert_eq!(here.map_err(|error| code(&error)), Err(expected), "{} of {who}", method.name());
                continue;
            }
            let mut client =
                token.as_ref().map_or_else(|| served.client(), |token| served.client_with(token));
            let there = client.raw(*method, request);
            let there = there.map_err(|error| match error {
                ClientError::Api(error) => error.code,
                other => panic!("{}: {other:?}", method.name()),
            });
            let same = match (&here, &there) {
                (Ok(_), Ok(_)) => true,
                (Err(here), Err(there)) => code(here) == *there && here["data"]["request_id"].is_string(),
                _ => false,
            };
            assert!(same, "{} of {who}: {here:?} {there:?}", method.name());
        }
    }
    let refused = served.records("authentication-attempted");
    for method in Method::ALL.iter().filter(|method| matches!(method.access(), MethodAccess::Operator(_))) {
        let of = |record: &&Value| {
            let event = &record["event"];
            event["principal"]["principal"] == "agent"
                && event["purpose"] == method.name()
                && !event["refusal"].is_null()
        };
        let expected = if ends.contains(method) {
            0
        } else if method.reply().is_stream() {
            1
        } else {
            2
        };
        assert_eq!(
            refused.iter().filter(of).count(),
            expected,
            "{} of an agent is written down",
            method.name()
        );
    }
    let (_, agent) = &people[1];
    let mut agent = Talk::open(&served.socket, agent.as_deref()).unwrap();
    for method in [Method::SessionStop, Method::Shutdown] {
        let request = sensible(method, session.session.as_str(), &workspace);
        assert_eq!(code(&agent.call(method.name(), request).unwrap_err()), ErrorCode::Forbidden);
    }
    let mut owner = Talk::open(&served.socket, None).unwrap();
    let over = owner.call("session.stop", json!({ "session": session.session })).unwrap();
    assert_eq!(over["state"], "ended");
    // Its token is worth nothing any more.
    assert_eq!(agent.closed(), 1008);
    owner.call("daemon.shutdown", json!({})).unwrap();
    let mut served = served;
    eventually("it ends", || served.child.try_wait().unwrap().is_some());
}

/// Who is not let in gets no socket; a token in an address is not looked at.
#[test]
fn nobody_gets_a_socket_without_being_known() {
    let served = Served::new();
    let session = served.session();
    let door = crate::daemon_fixture::stdout(&served.sh(&session, "printf %s \"$RINGFENCE_SESSION_SOCKET\""));
    assert_eq!(
        Talk::open(door.as_ref(), None).err(),
        Some(401),
        "the owner is nobody at the door of an agent"
    );
    let agent = token_of(&served, &session);
    let mut inside = Talk::open(door.as_ref(), Some(&agent)).unwrap();
    assert_eq!(inside.call("whoami", json!({})).unwrap()["kind"], "session");
    let (_, token) = token_with(&served, &["read"]);
    let ask = |line: &str, more: &str| {
        let key = "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n";
        let head = format!(
            "{line} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n{key}{more}\r\n"
        );
        handshake(&served.socket, &head).1
    };
    assert_eq!(ask("GET /v1/ws", ""), 101, "the control");
    assert_eq!(ask("GET /v1/ws", "origin: http://x\r\n"), 403);
    assert_eq!(ask(&format!("GET /v1/ws?token={token}"), ""), 400);
    assert_eq!(ask("POST /v1/ws", "content-length: 0\r\n"), 400);
    assert_eq!(ask("GET /v1/ws", "authorization: Basic eDp4\r\n"), 401);
    let plain = "GET /v1/ws HTTP/1.1\r\nhost: x\r\n\r\n";
    assert_eq!(handshake(&served.socket, plain).1, 400);
    let old = "GET /v1/ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 8\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    assert_eq!(handshake(&served.socket, old).1, 400);
    let keyless = "GET /v1/ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAA\r\n\r\n";
    assert_eq!(handshake(&served.socket, keyless).1, 400);
    // Last: who guesses tokens has to wait.
    assert_eq!(Talk::open(&served.socket, Some("rf_api_0000000000000000_0000")).err(), Some(401));
}

/// What is sent as it is, and the status that comes back.
fn handshake(socket: &Path, head: &str) -> (UnixStream, u16) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let status = String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap().parse().unwrap();
    (stream, status)
}

const UPGRADE: &str = "GET /v1/ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

/// A frame of a client whose mask is zero.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 126);
    [&[first, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}

/// S003-23, S003-24, D8: frames that make no sense end their own socket, with a number that says why, and no other.
#[test]
fn bad_frames_end_their_own_socket_and_disturb_nobody() {
    let served = Served::new();
    let mut other = Talk::open(&served.socket, None).unwrap();
    let huge = [&[0x81, 0xff][..], &(1_u64 << 40).to_be_bytes(), &[0; 4]].concat();
    let fragments = [frame(0x01, b"{"), frame(0x81, b"}")].concat();
    for (what, bytes, number) in [
        ("without a mask", vec![0x81, 2, b'{', b'}'], 1002),
        ("reserved bits", frame(0xf1, b"{}"), 1002),
        ("a kind that is none", frame(0x83, b"{}"), 1002),
        ("more of nothing", frame(0x80, b"{}"), 1002),
        ("a new message inside another", fragments, 1002),
        ("a ping in pieces", frame(0x09, b"x"), 1002),
        ("no UTF-8", frame(0x81, b"\xff\xfe"), 1007),
        ("bytes", frame(0x82, b"{}"), 1003),
        ("a terabyte", huge, 1009),
        ("noise", b"\x00\x01\x02\x03 no frame at all".to_vec(), 1002),
    ] {
        let (mut stream, status) = handshake(&served.socket, UPGRADE);
        assert_eq!(status, 101);
        // It may be heard enough before all of it is sent.
        let _heard = stream.write_all(&bytes);
        let mut answer = Vec::new();
        let _end = stream.read_to_end(&mut answer);
        assert_eq!(
            (answer.first(), answer.get(2..4)),
            (Some(&0x88), Some(&u16::to_be_bytes(number)[..])),
            "{what}"
        );
        assert_eq!(other.call("whoami", json!({})).unwrap()["kind"], "socket", "{what}");
    }
    // In the middle of a frame, and gone.
    let (mut stream, _) = handshake(&served.socket, UPGRADE);
    stream.write_all(&[0x81, 0xfe, 0x10]).unwrap();
    drop(stream);
    assert!(other.call("health", json!({})).is_ok());
}

/// S003-24: text that is no request is told so, until there is too much of it; for every method nonsense is nonsense.
#[test]
fn nonsense_is_refused_and_a_flood_of_it_ends() {
    let served = Served::new();
    let session = served.session();
    let mut other = Talk::open(&served.socket, None).unwrap();
    let mut talk = Talk::open(&served.socket, None).unwrap();
    for method in Method::ALL {
        for params in [json!([]), json!(7), json!({ "no-such-field": 1 }), json!({ "session": 7 })] {
            let refused = talk.call(method.name(), params.clone());
            let refused = refused.expect_err(&format!("{} {params}", method.name()));
            assert_eq!(code(&refused), ErrorCode::InvalidArgument, "{}: {refused}", method.name());
            assert!(refused["data"]["request_id"].as_str().unwrap().starts_with("req_"));
        }
    }
    assert_eq!(talk.call("no.such", json!({})).unwrap_err()["code"], -32601);
    let large = json!({ "session": session.session, "argv": ["x".repeat(2 << 20)] });
    assert_eq!(code(&talk.call("call.exec", large).unwrap_err()), ErrorCode::TooLarge);
    let content = "x".repeat(2 << 20);
    let file = json!({ "session": session.session, "path": "large", "content": content });
    talk.call("file.write", file).unwrap();
    assert_eq!(served.world.read("large").unwrap().len(), 2 << 20);
    for text in [
        "",
        "{",
        "[]",
        "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"health\"}]",
        "{\"jsonrpc\":\"2.0\",\"method\":\"health\"}",
    ] {
        talk.socket.send(Message::from(text)).unwrap();
        let said = talk.next();
        assert!(said["id"].is_null() && said["error"]["code"].as_i64().unwrap() <= -32600, "{said}");
    }
    // It may be closed before all of it is sent.
    while talk.socket.send(Message::from("nonsense")).is_ok() && talk.socket.can_write() {
        if matches!(talk.socket.read(), Ok(Message::Close(_)) | Err(_)) {
            break;
        }
    }
    assert!(!talk.socket.can_write(), "too much of it");
    assert!(other.call("health", json!({})).is_ok());
}

/// Nothing is missed and nothing comes twice to whoever goes on after a break; a stream ends when it is told to.
#[test]
fn events_on_a_socket_go_on_after_the_last_one() {
    let served = Served::new();
    let session = served.session();
    let mut client = served.client();
    let mut report = |number: u32| {
        let (kind, text) = ("step".to_owned(), number.to_string());
        client
            .call(&ReportActivity { session: session.session.clone(), activity: kind, claim: text })
            .unwrap()
            .seq
    };
    let seqs: Vec<u64> = (0..300).map(&mut report).collect();
    let activity = |event: &Value| event["kind"] == "activity-reported";
    let mut talk = Talk::open(&served.socket, None).unwrap();
    for start in [0, 150] {
        let after = if start == 0 { 0 } else { seqs[start - 1] };
        let wanted = json!({ "after": after, "session": session.session });
        let stream = talk.call("events", wanted).unwrap()["subscription"].clone();
        let told: Vec<u64> =
            (start..300).map(|_| talk.told(&stream, activity)["seq"].as_u64().unwrap()).collect();
        assert_eq!(told, seqs[start..]);
        talk.call("rpc.cancel", json!({ "subscription": stream })).unwrap();
        assert_eq!(
            code(&talk.call("rpc.cancel", json!({ "subscription": stream })).unwrap_err()),
            ErrorCode::NotFound
        );
    }
    let stream = talk.call("events", json!({ "session": session.session })).unwrap()["subscription"].clone();
    let next = report(300);
    assert_eq!(
        talk.told(&stream, activity)["seq"],
        next,
        "only what came after it, and of no stream that was ended"
    );
    let run = json!({ "session": session.session, "argv": ["sh", "-c", "echo one; echo two >&2"] });
    let output = talk.call("call.exec-stream", run).unwrap()["subscription"].clone();
    let ended = talk.told(&output, |chunk| chunk.to_string().contains("exit_code"));
    assert!(ended.to_string().contains("\"exit_code\":0"), "{ended}");
}

/// S003-39: a token that is revoked closes what was opened with it, at once, and nothing else.
#[test]
fn a_revoked_token_ends_its_sockets() {
    let served = Served::new();
    let (id, token) = token_with(&served, &["read"]);
    let (_, other) = token_with(&served, &["read"]);
    let mut cut = Talk::open(&served.socket, Some(&token)).unwrap();
    let mut stays = Talk::open(&served.socket, Some(&other)).unwrap();
    cut.call("events", json!({})).unwrap();
    served.ringfence(&["token", "revoke", &id]).expect(0);
    assert_eq!(cut.closed(), 1008);
    assert_eq!(stays.call("whoami", json!({})).unwrap()["kind"], "api");
    assert_eq!(Talk::open(&served.socket, Some(&token)).err(), Some(401));
}

/// Whoever does not read is let go; nothing is kept for them, and others do not wait for them.
#[test]
fn a_subscriber_that_does_not_read_is_dropped() {
    let served = Served::new();
    let session = served.session();
    let mut client = served.client();
    let text = "x".repeat(15_000);
    for _ in 0..200 {
        let (kind, text) = ("step".to_owned(), text.clone());
        client
            .call(&ReportActivity { session: session.session.clone(), activity: kind, claim: text })
            .unwrap();
    }
    let mut slow = Talk::open(&served.socket, None).unwrap();
    slow.send("events", json!({ "after": 0 }));
    // Whoever prints is held up, and ended with the socket.
    let mut prints = Talk::open(&served.socket, None).unwrap();
    prints.send("call.exec-stream", json!({ "session": session.session, "argv": floods("printed") }));
    let mut other = Talk::open(&served.socket, None).unwrap();
    let dropped = |other: &mut Talk| {
        let text = other.call("metrics", json!({})).unwrap();
        let mut lines = text.as_str().unwrap().lines();
        let number =
            lines.find_map(|line| line.strip_prefix("ringfence_subscribers_dropped_total ")).unwrap();
        number.parse::<u32>().unwrap()
    };
    assert_eq!(dropped(&mut other), 0, "not yet");
    eventually("both are let go", || dropped(&mut other) == 2);
    let under_way =
        |other: &mut Talk| other.call("session.show", json!({ "session": session.session })).unwrap();
    eventually("its command is ended", || under_way(&mut other)["running_calls"] == 0);
    assert!((1..ROUNDS).contains(&rounds(&served, "printed")), "{}", rounds(&served, "printed"));
    let end = std::iter::from_fn(|| slow.socket.read().err().map_or(Some(None), |error| Some(Some(error))));
    let end = end.flatten().next().unwrap();
    assert!(!matches!(&end, Error::Io(error) if error.kind() == std::io::ErrorKind::WouldBlock), "{end}");
}
