//! What the daemon makes of requests, sensible and not.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ringfence_api::{DownloadFile, HttpVerb, Method, UploadFile};
use ringfence_client::ClientError;
use ringfence_types::Scope;
use serde_json::{Value, json};

use crate::daemon_fixture::{Served, raw};
use crate::testkit::{World, finish};

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
        Method::SessionReportActivity => json!({ "activity": "k", "claim": "t" }),
        Method::CallExec | Method::CallExecStream => json!({ "argv": ["true"] }),
        Method::CallInput => json!({ "data": "x" }),
        Method::CallSignal => json!({ "signal": "TERM" }),
        Method::CallResize => json!({ "size": { "rows": 1, "columns": 1 } }),
        Method::FileRead | Method::FileStat => json!({ "path": "f" }),
        Method::FileRemove | Method::FileUpload | Method::FileDownload | Method::FileSend => {
            json!({ "path": "none" })
        }
        Method::FileMove => json!({ "path": "none", "to": "nowhere" }),
        Method::FileWrite => json!({ "path": "f", "content": "c" }),
        Method::CallFetch => json!({ "url": "http://localhost:1/" }),
        Method::PolicyExplain => json!({ "subject": { "tool": "x" } }),
        Method::ApprovalAnswer => json!({ "answer": "deny" }),
        // Too short a password, and nobody of this name: who is let in is told that.
        Method::OperatorAdd => {
            json!({ "name": "new", "rights": { "scopes": ["admin"], "workspaces": "any" }, "password": "short" })
        }
        Method::OperatorSetPassword => json!({ "name": "nobody", "password": "short" }),
        Method::OperatorRemove => json!({ "name": "nobody" }),
        _ => json!({}),
    };
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

pub(crate) fn minted(served: &Served, scope: Scope) -> String {
    let name = format!("only-{scope}");
    let done = served.ringfence(&["token", "create", &name, "--scope", scope.word(), "--json"]).expect(0);
    done.json()["secret"].as_str().unwrap().to_owned()
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
        if route.verb == HttpVerb::Post {
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
    assert_eq!(crate::daemon_fixture::stdout(&served.sh(&session, "echo on")), "on\n");
}

/// C-38: a link inside a path that was left to a token does not lead it out, by any of the file tools.
#[test]
fn a_narrowed_token_does_not_follow_links_out_of_its_paths() {
    let served = Served::new();
    let world = &served.world;
    for (path, content) in [("src/a", "inside\n"), ("b", "beyond\n"), ("c", "beyond\n")] {
        world.write(path, content);
    }
    symlink("../b", world.workspace.join("src/link")).unwrap();
    symlink("..", world.workspace.join("src/up")).unwrap();
    symlink("a", world.workspace.join("src/near")).unwrap();
    let session = served.session();
    let own = token_of(&served, &session);
    let left = json!({ "paths": { "only": [world.workspace.join("src")] }, "hosts": "any", "commands": "any", "calls": null });
    let hand = json!({ "session": session.session, "label": "sub", "attenuation": left });
    let narrow = served.client_with(&own).raw(Method::TokenAttenuate, hand).unwrap();
    let narrow = narrow["secret"].as_str().unwrap();
    let ask = |token: &str, method: Method, more: Value| {
        let mut request = json!({ "session": session.session });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.client_with(token).raw(method, request)
    };
    let attacks = [
        (Method::FileRead, json!({ "path": "src/link" })),
        (Method::FileRead, json!({ "path": "src/up/b" })),
        (Method::FileStat, json!({ "path": "src/link" })),
        (Method::FileList, json!({ "path": "src/up" })),
        (Method::FileSend, json!({ "path": "src/link" })),
        (Method::FileWrite, json!({ "path": "src/link", "content": "changed" })),
        (Method::FileWrite, json!({ "path": "src/up/new", "content": "made" })),
        (Method::FileMove, json!({ "path": "src/up/b", "to": "src/taken" })),
        (Method::FileMove, json!({ "path": "src/a", "to": "src/up/moved" })),
        (Method::FileRemove, json!({ "path": "src/up/c" })),
    ];
    for (method, request) in &attacks {
        let ClientError::Api(error) = ask(narrow, *method, request.clone()).unwrap_err() else {
            panic!("{request}");
        };
        assert_eq!(error.rule.as_deref(), Some("path.not-left"), "{} {request}", method.name());
    }
    let download = DownloadFile { session: session.session.clone(), path: "src/link".into() };
    let upload = UploadFile { session: session.session.clone(), path: "src/up/sent".into() };
    served.client_with(narrow).download(&download).unwrap_err();
    served.client_with(narrow).upload(&upload, b"sent".to_vec()).unwrap_err();
    let there = |path: &str| world.read(path).is_some();
    assert_eq!((world.read("b").as_deref(), there("c"), there("src/a")), (Some("beyond\n"), true, true));
    assert!(["new", "moved", "sent", "src/taken"].iter().all(|path| !there(path)));
    let read = ask(narrow, Method::FileRead, json!({ "path": "src/near" })).unwrap();
    assert_eq!(read["content"], "inside\n", "a link that stays inside is followed");
    // The control: the session itself does all of it.
    served.client_with(&own).download(&download).unwrap();
    served.client_with(&own).upload(&upload, b"sent".to_vec()).unwrap();
    for (method, request) in &attacks {
        ask(&own, *method, request.clone()).unwrap();
    }
    assert!(["new", "moved", "sent", "src/taken"].iter().all(|path| there(path)) && !there("c"));
}

/// Whoever may not is told so by their head: nothing of a long request is waited for.
#[test]
fn a_long_request_is_not_read_before_it_is_known_who_sends_it() {
    let served = Served::new();
    let session = served.session();
    let reader = minted(&served, Scope::Read);
    let length = 4 << 20;
    let begin = |token: Option<&str>| {
        let bearer = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "POST /v1/sessions/{}/files/write HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{bearer}content-length: {length}\r\n\r\n",
            session.session
        );
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    // Nothing more is sent, and yet there is an answer; 408 would be that somebody has waited.
    for (token, status) in [("rf_api_0000000000000000_0000", "401"), (reader.as_str(), "403")] {
        let mut answer = String::new();
        begin(Some(token)).read_to_string(&mut answer).unwrap();
        assert_eq!(answer.split(' ').nth(1), Some(status), "{answer}");
    }
    let refused = served.records("authentication-attempted");
    let refused = refused.iter().filter(|record| !record["event"]["refusal"].is_null());
    assert_eq!(refused.filter(|record| record["event"]["purpose"] == "file.write").count(), 1);
    // The control: of somebody who may, all of it is read.
    let mut owner = begin(None);
    let content = "x".repeat(2 << 20);
    let body = json!({ "path": "long", "content": content }).to_string();
    owner.write_all(body.as_bytes()).unwrap();
    owner.write_all(&vec![b' '; length - body.len()]).unwrap();
    let mut answer = String::new();
    owner.read_to_string(&mut answer).unwrap();
    assert_eq!(answer.split(' ').nth(1), Some("200"), "{answer}");
    assert_eq!(served.world.read("long").unwrap().len(), 2 << 20);
}

/// Whoever is refused over HTTP/2 hears why, however much they were about to say, and whichever program they use.
#[test]
fn curl_over_http2_hears_why_it_is_refused() {
    let served = Served::listening(World::new(), "", "");
    let port = served.port();
    let reader = format!("authorization: Bearer {}", minted(&served, Scope::Read));
    let directory = served.world.beside("sent");
    let body = |name: &str, bytes: usize| {
        let path = directory.join(name);
        std::fs::write(&path, format!("{{{}}}", " ".repeat(bytes))).unwrap();
        format!("@{}", path.display())
    };
    let (short, long) = (body("short", 10), body("long", 5 << 20));
    let socket = served.socket.to_str().unwrap();
    let at = |path: &str, entrance: &[&str], body: &str| {
        let mut curl = served.world.host("curl");
        curl.args([
            "-sS",
            "--http2-prior-knowledge",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code} %{http_version}",
        ]);
        curl.args(["-H", &reader, "-H", "content-type: application/json", "--data-binary", body]);
        finish(curl.args(entrance).arg(format!("http://127.0.0.1:{port}{path}")), b"").expect(0).text()
    };
    let refused =
        ["/v1/sessions", "/v1/sessions/ses_1/files/write", "/v1/sessions/ses_1/files/upload?path=x"];
    for entrance in [&["--unix-socket", socket][..], &[]] {
        for body in [&short, &long] {
            for path in refused {
                assert_eq!(at(path, entrance, body), "403 2", "{path} {entrance:?} {body}");
            }
            // What is no place is told as that, and a body that is too long as that.
            for _ in 0..5 {
                assert_eq!(at("/v1/nothing", entrance, body), "404 2");
            }
        }
        assert_eq!(at("/v1/pairings", entrance, &long), "413 2");
    }
}
