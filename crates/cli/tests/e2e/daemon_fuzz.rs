//! Requests that nobody would write, for every method of the table: each is answered, none is the daemon's fault, and it goes on.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ringfence_api::{ErrorCode, HttpVerb, Method};
use serde_json::{Value, json};

use crate::daemon_fixture::{Served, stdout};
use crate::daemon_rights::sensible;
use crate::daemon_socket::Talk;
use crate::malformed_requests::{self, Dice, bent, never_sound};
use crate::test_timeouts::Patient;
use crate::testkit::contains;

pub(crate) fn runner(cases: u32) -> TestRunner {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 64, ..Config::default() };
    TestRunner::new_with_rng(config, rng)
}

/// So many of each method, and by each way.
const EACH: usize = 16;

/// Those that end what the others need: nothing that is sent to them makes sense.
const ENDS: [Method; 3] = [Method::Shutdown, Method::SessionStop, Method::Logout];

/// The fields that a method has, by the daemon's own description.
fn fields(description: &Value, method: Method) -> Vec<String> {
    let route = method.route();
    let operation = &description["paths"][route.path][route.verb.to_string().to_lowercase()];
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let in_body = schema["properties"].as_object().into_iter().flat_map(|fields| fields.keys().cloned());
    let in_address = operation["parameters"].as_array().into_iter().flatten();
    let in_address = in_address.filter_map(|field| field["name"].as_str().map(str::to_owned));
    // Whoever waits for a call that nobody made has its answer at once; these say which session or call it is about.
    in_body.chain(in_address).filter(|name| !["session", "call", "id"].contains(&name.as_str())).collect()
}

/// Everything wrong that a method is asked here.
fn mutants(served: &Served, description: &Value, (method, session): (Method, &str)) -> Vec<String> {
    let mut dice = Dice::named(method.name());
    let sound = sensible(method, session, served.world.workspace.to_str().unwrap());
    let known = fields(description, method);
    let wrong = (0..EACH).map(|_| malformed_requests::wrong(&mut dice, &sound, &known));
    wrong.map(|text| if ENDS.contains(&method) { never_sound(&text) } else { text }).collect()
}

/// As HTTP: fields of the path are there, what cannot be read stays in the body as it is.
fn over_http(method: Method, text: &str, session: &str) -> Vec<u8> {
    let route = method.route();
    let mut value: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let named =
        ["session", "call", "id"].into_iter().filter(|name| route.path.contains(&format!("{{{name}}}")));
    let mut path = route.path.to_owned();
    for name in named {
        let said = value.as_object_mut().and_then(|fields| fields.remove(name));
        let text = match said {
            Some(Value::String(text)) => escaped(&text),
            Some(other) => escaped(&other.to_string()),
            None if name == "session" => session.to_owned(),
            None => "1".to_owned(),
        };
        path = path.replace(&format!("{{{name}}}"), &text);
    }
    if route.verb != HttpVerb::Post || method == Method::FileUpload {
        let pairs = value.as_object().into_iter().flatten();
        let pairs: Vec<String> =
            pairs.map(|(name, value)| format!("{name}={}", escaped(&value.to_string()))).collect();
        path = format!("{path}?{}", pairs.join("&"));
    }
    // What a value cannot hold (a key twice, half of a character) is sent as it was written.
    let body =
        if value.is_object() && !route.path.contains('{') { text.to_owned() } else { value.to_string() };
    let body = if value.is_null() { text.to_owned() } else { body };
    let head = format!("{} {path} HTTP/1.0\r\nhost: x\r\ncontent-length: {}\r\n\r\n", route.verb, body.len());
    [head.as_bytes(), body.as_bytes()].concat()
}

/// The head of an answer and, where that is JSON, its body. A stream is not read.
fn answered(socket: &Path, request: &[u8]) -> (String, Value) {
    let mut stream = UnixStream::connect(socket).unwrap();
    // Whoever has heard enough does not listen to the rest.
    let _heard_enough = stream.write_all(request);
    let mut reader = BufReader::new(Patient(stream));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let mut body = String::new();
    if head.contains("content-type: application/json\r\n") {
        reader.read_to_string(&mut body).unwrap();
    }
    (head, serde_json::from_str(&body).unwrap_or(Value::Null))
}

/// Whether an error is one that somebody can do something with, and none of the daemon's own.
fn is_told(error: &Value) -> bool {
    let code: Option<ErrorCode> = serde_json::from_value(error["code"].clone()).ok();
    let ours = [Some(ErrorCode::Internal), Some(ErrorCode::Unavailable), None];
    !ours.contains(&code)
        && error["message"].as_str().is_some_and(|message| !message.is_empty())
        && error["request_id"].as_str().is_some_and(|id| id.starts_with("req_"))
}

/// The daemon that was started is the one that is there, takes work, and did not break anywhere on the way.
fn is_well(mut served: Served) {
    let session = served.session();
    assert_eq!(stdout(&served.sh(&session, "echo on")), "on\n");
    assert!(served.child.try_wait().unwrap().is_none(), "it is the same");
    assert!(served.client().call(&ringfence_api::CheckReady {}).unwrap().ready);
    assert!(!served.said().contains("panicked"), "{}", served.said());
}

fn described(served: &Served) -> Value {
    served.client().raw(Method::OpenApi, json!({})).unwrap()
}

fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let one = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") };
    text.bytes().map(one).collect()
}

/// What somebody does who has sent a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Waits,
    /// They send nothing more, so that nobody waits for the rest of what is cut off. They may get no answer.
    Gone,
}

/// The status of the answer; 0 where there is none. A stream is not read to its end.
fn status(socket: &Path, request: &[u8], after: After) -> u16 {
    let mut stream = UnixStream::connect(socket).unwrap();
    // Whoever has heard enough does not listen to the rest.
    let _heard_enough = stream.write_all(request);
    if after == After::Gone {
        let _closed = stream.shutdown(Shutdown::Write);
    }
    let mut head = Vec::new();
    let _closed = Patient(stream).take(12).read_to_end(&mut head);
    String::from_utf8_lossy(&head).split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// S003-23, S003-24: whatever is in a request of whichever method, the answer is an answer.
#[test]
fn no_request_of_any_method_is_too_strange_to_be_answered() {
    let served = Served::new();
    let (session, description) = (served.session().session.to_string(), described(&served));
    let mut reached = BTreeSet::new();
    for method in Method::ALL {
        for text in mutants(&served, &description, (*method, &session)) {
            let (head, body) = answered(&served.socket, &over_http(*method, &text, &session));
            let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
            let cell = format!("{} {text} {head} {body}", method.name());
            assert!((200..500).contains(&status), "{cell}");
            // The Model Context Protocol has errors of its own.
            assert!(status < 400 || is_told(&body) || *method == Method::Mcp, "{cell}");
            let nowhere = [json!("there is nothing here"), json!("nothing is done here in this way")];
            if !nowhere.contains(&body["message"]) {
                let _first = reached.insert(method.name());
            }
        }
    }
    assert_eq!(reached, Method::ALL.iter().map(|method| method.name()).collect(), "each was asked for");
    is_well(served);
}

/// The same on a WebSocket.
#[test]
fn no_message_on_a_websocket_is_too_strange_to_be_answered() {
    let served = Served::new();
    let (session, description) = (served.session().session.to_string(), described(&served));
    let mut reached = BTreeSet::new();
    for method in Method::ALL {
        // Of what is no request a socket takes only so much.
        let mut talk = Talk::open(&served.socket, None).unwrap();
        for text in mutants(&served, &description, (*method, &session)) {
            let cell = format!("{} {text}", method.name());
            let said = talk.say_as(&format!("\"method\":\"{}\",\"params\":{text}", method.name()));
            match said {
                Ok(begun) if method.reply().is_stream() => {
                    let _over = talk.call("rpc.cancel", json!({ "subscription": begun["subscription"] }));
                }
                Ok(_) => {}
                Err(error) => assert!(is_told(&error["data"]), "{cell} {error}"),
            }
            let _first = reached.insert(method.name());
        }
    }
    assert_eq!(reached.len(), Method::ALL.len());
    is_well(served);
}

/// Below messages: frames of a WebSocket that nobody would send. Whoever sends them hears something or is hung up on.
#[test]
fn no_frames_of_a_websocket_bring_the_daemon_down() {
    let served = Served::new();
    let mut dice = Dice::new(0xf4a3e);
    let head = "GET /v1/ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    let sound = br#"{"jsonrpc":"2.0","id":1,"method":"health"}"#;
    let mut control = UnixStream::connect(&served.socket).unwrap();
    control.write_all(&[head.as_bytes(), &framed(0x81, sound)].concat()).unwrap();
    let mut answer = Vec::new();
    let mut control = BufReader::new(Patient(control)).bytes();
    while !contains(&answer, b"\"version\"") {
        answer.push(control.next().expect("an answer").unwrap());
    }
    for _ in 0..200 {
        let mut bytes = Vec::new();
        for _ in 0..=dice.below(3) {
            bytes.extend(match dice.below(4) {
                // Any kind of frame, with bits that mean nothing.
                0 => framed(dice.byte(), sound),
                1 => bent(&mut dice, &framed(0x81, sound)),
                2 => framed(0x80 | dice.byte() & 0x0f, &bent(&mut dice, sound)),
                _ => (0..dice.below(60)).map(|_| dice.byte()).collect(),
            });
        }
        let heard = heard(&served.socket, head, &bytes);
        assert!(heard.starts_with("HTTP/1.1 101"), "{bytes:?} {heard}");
    }
    is_well(served);
}

/// A frame of a client, with a mask that changes nothing.
fn framed(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len() % 126).unwrap();
    [&[first, 0x80 | length, 0, 0, 0, 0], payload].concat()
}

/// Everything that comes back before the other side hangs up.
fn heard(socket: &Path, head: &str, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let _heard_enough = stream.write_all(bytes);
    let _closed = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _closed = Patient(stream).read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The same below JSON: requests of every method with some of their bytes changed, taken away or put in.
#[test]
fn no_bytes_on_the_wire_bring_the_daemon_down() {
    let served = Served::new();
    let id = served.session().session.to_string();
    let workspace = served.world.workspace.to_str().unwrap().to_owned();
    let sound = |method: Method| {
        let text = sensible(method, &id, &workspace).to_string();
        over_http(method, &if ENDS.contains(&method) { never_sound(&text) } else { text }, &id)
    };
    assert_eq!(status(&served.socket, &sound(Method::CallExec), After::Waits), 200, "the control");
    let change = (any::<prop::sample::Index>(), 0..3_u8, vec(any::<u8>(), 0..12));
    // A change could make what ends everything out of what does not.
    for method in Method::ALL.iter().filter(|method| !ENDS.contains(method)) {
        let outcome = runner(6).run(&vec(change.clone(), 1..6), |changes| {
            let mut request = sound(*method);
            for (at, kind, bytes) in changes {
                let at = at.index(request.len() + 1);
                let end = (at + bytes.len()).min(request.len());
                match kind {
                    0 => drop(request.splice(at..at, bytes)),
                    1 => drop(request.splice(at..end, [])),
                    _ => drop(request.splice(at..end, bytes)),
                }
            }
            let status = status(&served.socket, &request, After::Gone);
            // One that cannot be read as HTTP has no answer but the end of the connection.
            prop_assert!(status == 0 || (200..500).contains(&status), "{} {status}", method.name());
            Ok(())
        });
        outcome.unwrap();
    }
    is_well(served);
}
