//! Requests that nobody would write, for every method of the table: each is answered, none is the daemon's fault, and it goes on.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ringfence_api::{Method, Verb};
use serde_json::{Map, Value, json};

use crate::patience::Patient;
use crate::served::{Served, stdout};

/// Fields of requests, and of none.
const FIELDS: &[&str] = &[
    "session",
    "call",
    "id",
    "path",
    "to",
    "content",
    "argv",
    "cwd",
    "environment",
    "stdin",
    "timeout_ms",
    "background",
    "interactive",
    "terminal",
    "reason",
    "workspace",
    "profile",
    "net",
    "limits",
    "provider",
    "agent",
    "parent",
    "secrets",
    "kind",
    "text",
    "data",
    "close",
    "signal",
    "size",
    "url",
    "subject",
    "answer",
    "label",
    "rights",
    "attenuation",
    "lifetime_s",
    "after",
    "wait_ms",
    "name",
    "password",
    "key",
    "code",
    "proof",
    "all",
    "grace_ms",
    "no-such-field",
];

pub(crate) fn runner(cases: u32) -> TestRunner {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 64, ..Config::default() };
    TestRunner::new_with_rng(config, rng)
}

fn word() -> impl Strategy<Value = String> {
    let known = select(vec![
        "",
        ".",
        "..",
        "../../etc/passwd",
        "/etc/shadow",
        ".env",
        "\0",
        "true",
        "-1",
        "18446744073709551616",
        "null",
        "ses_00000000000000000000000000",
        "rf_api_0_0",
        "%00",
        "\u{202e}txt",
        "http://[::1]:1/",
        "TERM",
        "once",
        "workspace",
    ]);
    prop_oneof![known.prop_map(str::to_owned), ".{0,40}", "[a-z]{3000}"]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            btree_map(word(), inner, 0..4)
                .prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

fn request() -> impl Strategy<Value = (Method, Value, bool)> {
    // Those that end what the others need.
    let ends = [Method::Shutdown, Method::SessionStop];
    let methods: Vec<Method> = Method::ALL.iter().copied().filter(|method| !ends.contains(method)).collect();
    let fields = btree_map(select(FIELDS), value(), 0..6);
    let fields = fields.prop_map(|fields| {
        let named = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
        Value::Object(named.collect())
    });
    (select(methods), prop_oneof![4 => fields, 1 => value()], any::<bool>())
}

/// As HTTP, with the session that there is or whatever the request says.
fn bytes((method, value, own): &(Method, Value, bool), session: &str) -> Vec<u8> {
    let route = method.route();
    let said = |name: &str| escaped(&value[name].to_string());
    let session = if *own { session.to_owned() } else { said("session") };
    let mut path = route.path.replace("{session}", &session);
    path = path.replace("{call}", &said("call")).replace("{id}", &said("id"));
    let mut value = value.clone();
    if let Some(fields) = value.as_object_mut() {
        // What the path says is not said again.
        for name in
            ["session", "call", "id"].iter().filter(|name| route.path.contains(&format!("{{{name}}}")))
        {
            let _said = fields.remove(*name);
        }
    }
    if route.verb != Verb::Post || *method == Method::FileUpload {
        let pairs = value.as_object().into_iter().flatten();
        let pairs: Vec<String> =
            pairs.map(|(name, value)| format!("{name}={}", escaped(&value.to_string()))).collect();
        path = format!("{path}?{}", pairs.join("&"));
    }
    let body = value.to_string();
    let head = format!(
        "{} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        route.verb,
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
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

/// S003-23, S003-24: whatever is in a request, the answer is an answer.
#[test]
fn no_request_of_any_method_is_too_strange_to_be_answered() {
    let served = Served::new();
    let session = served.session();
    let id = session.session.to_string();
    let outcome = runner(300).run(&request(), |request| {
        let status = status(&served.socket, &bytes(&request, &id), After::Waits);
        prop_assert!((200..500).contains(&status), "{status}");
        Ok(())
    });
    outcome.unwrap();
    assert_eq!(stdout(&served.sh(&session, "echo on")), "on\n");
}

/// The same below JSON: a request with some of its bytes changed, taken away or put in.
#[test]
fn no_bytes_on_the_wire_bring_the_daemon_down() {
    let served = Served::new();
    let session = served.session();
    let id = session.session.to_string();
    let argv = json!({ "argv": ["true"], "background": false });
    let sound = bytes(&(Method::CallExec, argv, true), &id);
    assert_eq!(status(&served.socket, &sound, After::Waits), 200, "the control");
    let change = (any::<prop::sample::Index>(), 0..3_u8, vec(any::<u8>(), 0..12));
    let outcome = runner(300).run(&vec(change, 1..6), |changes| {
        let mut request = sound.clone();
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
        prop_assert!(status == 0 || (200..500).contains(&status), "{status}");
        Ok(())
    });
    outcome.unwrap();
    assert_eq!(stdout(&served.sh(&session, "echo on")), "on\n");
}
