//! Who may ask the daemon what, and what it makes of nonsense.

use std::collections::BTreeMap;

use ringfence_api::{Access, ErrorCode, Method, Reply, Verb};
use ringfence_client::ClientError;
use ringfence_types::Scope;
use serde_json::{Value, json};

use crate::served::{Served, raw};

/// A request of every method that makes sense, about this session.
pub(crate) fn sensible(method: Method, session: &str, workspace: &str) -> Value {
    let mut request = json!({});
    if method.route().path.contains("{session}") {
        request["session"] = json!(session);
    }
    if method.route().path.contains("{call}") {
        request["call"] = json!(999);
    }
    if method.route().path.contains("{id}") {
        request["id"] = json!("tx_0");
    }
    let more = match method {
        // Refused for what it wants, once whoever asks was let in.
        Method::SessionCreate => json!({ "workspace": workspace, "profile": "danger" }),
        Method::SessionReport => json!({ "kind": "k", "text": "t" }),
        Method::CallExec | Method::CallRun => json!({ "argv": ["true"] }),
        Method::CallInput => json!({ "data": "x" }),
        Method::CallSignal => json!({ "signal": "TERM" }),
        Method::CallResize => json!({ "size": { "rows": 1, "columns": 1 } }),
        Method::FileRead | Method::FileStat => json!({ "path": "f" }),
        Method::FileRemove | Method::FileUpload | Method::FileDownload | Method::FileSend => {
            json!({ "path": "none" })
        }
        Method::FileMove => json!({ "path": "none", "to": "nowhere" }),
        Method::FileWrite => json!({ "path": "f", "content": "c" }),
        Method::Fetch => json!({ "url": "http://localhost:1/" }),
        Method::Explain => json!({ "subject": { "tool": "x" } }),
        Method::ApprovalAnswer => json!({ "answer": "deny" }),
        _ => json!({}),
    };
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

/// What the daemon said to a request of somebody: whether it let them in.
fn let_in(served: &Served, token: Option<&str>, (method, request): (Method, Value)) -> Option<ErrorCode> {
    let mut client = token.map_or_else(|| served.client(), |token| served.client_with(token));
    let answer = if method.reply() == Reply::Stream && method == Method::Events {
        return client.events(&Default::default()).err().map(|error| code(&error));
    } else if method == Method::ApprovalWatch {
        return client.questions().err().map(|error| code(&error));
    } else if method == Method::CallRun {
        let request = serde_json::from_value(request).unwrap();
        return client.run(&request).err().map(|error| code(&error));
    } else {
        client.raw(method, request)
    };
    answer
        .err()
        .map(|error| code(&error))
        .filter(|code| matches!(code, ErrorCode::Forbidden | ErrorCode::Unauthenticated))
}

/// Whatever the daemon said no with.
fn refusal_of(served: &Served, token: &str, (method, request): (Method, Value)) -> Option<ErrorCode> {
    served.client_with(token).raw(method, request).err().map(|error| code(&error))
}

fn code(error: &ClientError) -> ErrorCode {
    match error {
        ClientError::Api(error) => error.code,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn minted(served: &Served, scope: Scope) -> String {
    let name = format!("only-{scope}");
    let done = served.ringfence(&["token", "create", &name, "--scope", scope.word(), "--json"]).expect(0);
    done.json()["secret"].as_str().unwrap().to_owned()
}

/// S003-17, S003-40, S003-44; D3: every method for the owner, for a token of each scope, for a session and for nobody. What is
/// expected comes from the table of methods; a method that is not in it cannot be called.
#[test]
fn every_method_is_open_to_whom_the_table_says_and_to_nobody_else() {
    let served = Served::new();
    let tokens: BTreeMap<Scope, String> =
        Scope::ALL.iter().map(|scope| (*scope, minted(&served, *scope))).collect();
    let own = served.session();
    let session_token = token_of(&served, &own);
    let workspace = served.world.workspace.to_str().unwrap().to_owned();
    // Last: they end what the others need.
    let ends = [Method::SessionStop, Method::Shutdown];
    // Whoever comes with a token ends it so.
    let rest = |method: &&Method| !ends.contains(method) && **method != Method::Logout;
    for method in Method::ALL.iter().filter(rest).chain(&ends) {
        let request = || (*method, sensible(*method, own.session.as_str(), &workspace));
        let expected = match method.access() {
            Access::Operator(_) => Some(ErrorCode::Forbidden),
            _ => None,
        };
        // The session is over by then, and its token with it.
        let expected = if *method == Method::Shutdown { Some(ErrorCode::Unauthenticated) } else { expected };
        assert_eq!(
            let_in(&served, Some(&session_token), request()),
            expected,
            "{} of a session",
            method.name()
        );
        for (scope, token) in &tokens {
            let expected = match method.access() {
                Access::Anyone | Access::Known => None,
                // It would be the end of the daemon.
                Access::Operator(needed) if needed == *scope && *method == Method::Shutdown => continue,
                Access::Operator(needed) | Access::Session(needed) if needed == *scope => None,
                Access::Operator(_) | Access::Session(_) => Some(ErrorCode::Forbidden),
            };
            assert_eq!(let_in(&served, Some(token), request()), expected, "{} with {scope}", method.name());
        }
    }
    // Last: who guesses tokens is looked at more and more slowly.
    for method in Method::ALL {
        let expected = (method.access() != Access::Anyone).then_some(ErrorCode::Unauthenticated);
        let request = (*method, sensible(*method, own.session.as_str(), &workspace));
        let nobody = refusal_of(&served, "rf_api_0000000000000000_0000", request);
        let locked = expected.is_some() && nobody == Some(ErrorCode::Exhausted);
        // Let in, and then told that the request lacks what it is about.
        let asked = expected.is_none() && nobody == Some(ErrorCode::Malformed);
        assert!(nobody == expected || locked || asked, "{}: {nobody:?}", method.name());
    }
    let refused = served.records("authenticated");
    let refused: Vec<&str> = refused
        .iter()
        .filter(|record| {
            record["event"]["principal"]["principal"] == "agent" && !record["event"]["refusal"].is_null()
        })
        .map(|record| record["event"]["purpose"].as_str().unwrap())
        .collect();
    for method in Method::ALL.iter().filter(|method| matches!(method.access(), Access::Operator(_))) {
        let written = refused.contains(&method.name());
        assert!(written || *method == Method::Shutdown, "{} of a session is written down", method.name());
    }
}

pub(crate) fn token_of(served: &Served, session: &ringfence_api::SessionInfo) -> String {
    // Not printed: what looks like a credential does not leave.
    served.sh(session, "printf %s \"$RINGFENCE_SESSION_TOKEN\" | rev > token");
    served.world.read("token").unwrap().chars().rev().filter(|c| !c.is_whitespace()).collect()
}

/// S003-23, S003-24: nonsense is refused as nonsense, for every method, and the daemon goes on.
#[test]
fn nonsense_is_refused_for_every_method() {
    let served = Served::new();
    let session = served.session();
    let bodies: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"{".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        b"{\"session\":7}".to_vec(),
        b"{\"no-such-field\":true}".to_vec(),
        b"\xff\xfe\x00".to_vec(),
        [b"{\"argv\":".as_slice(), &b"[".repeat(100_000)].concat(),
    ];
    for method in
        Method::ALL.iter().filter(|method| **method != Method::Shutdown && **method != Method::SessionStop)
    {
        let route = method.route();
        for path in [
            route.path.replace("{session}", session.session.as_str()),
            route.path.replace("{session}", "ses_x"),
        ] {
            let path = path.replace("{call}", "99999999999999999999").replace("{id}", "%00");
            for body in &bodies {
                let head = format!(
                    "{} {path}?bad=%ff HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    route.verb,
                    body.len()
                );
                let (status, answer) = raw(&served.socket, &[head.as_bytes(), body].concat());
                assert!((400..500).contains(&status), "{} {status} {answer}", method.name());
            }
        }
        if route.verb == Verb::Post {
            let path = route
                .path
                .replace("{session}", session.session.as_str())
                .replace("{call}", "1")
                .replace("{id}", "x");
            // Without a body it may be a request that makes sense.
            for body in bodies.iter().skip(1) {
                let head = format!(
                    "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let (status, answer) = raw(&served.socket, &[head.as_bytes(), body].concat());
                assert!((400..500).contains(&status), "{} {status} {answer}", method.name());
            }
        }
    }
    for request in [
        &b"\x00\x01\x02\x03"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxxx",
    ] {
        let (status, _) = raw(&served.socket, &[request, &[b'x'; 70_000]].concat());
        assert!(status == 0 || (400..500).contains(&status), "{status}");
    }
    let large = format!(
        "POST /v1/sessions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        2 << 20
    );
    let (status, answer) = raw(&served.socket, &[large.as_bytes(), &vec![b' '; 2 << 20]].concat());
    assert_eq!(status, 413, "{answer}");
    assert!(answer.contains("x-request-id: req_") && answer.contains("\"request_id\":\"req_"), "{answer}");
    assert_eq!(crate::served::stdout(&served.sh(&session, "echo on")), "on\n");
}
