//! What begins and what ends when a daemon or a session ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;

use ringfence_api::{
    CreateSession, CreateToken, ErrorCode, ExecRequest, ListSessions, Method, MethodAccess, ReadFile,
    SessionInfo, SessionState, ShowSession, StopSession,
};
use ringfence_client::{Client, ClientError};
use ringfence_types::{AllOrOnly, Rights, Scope};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::daemon_authorization_matrix::Place;
use crate::daemon_fixture::{Served, exec};
use crate::test_timeouts::{Patient, ended};
use crate::testkit::{World, eventually, finish, marker, processes_with, send};

fn refused<T>(answer: Result<T, ClientError>) -> bool {
    match answer {
        Ok(_) => false,
        Err(ClientError::Api(error)) if error.code == ErrorCode::Unavailable => true,
        Err(other) => panic!("{other:?}"),
    }
}

/// Those that make something new.
const BEGIN: [Method; 25] = [
    Method::SessionCreate,
    Method::CallExec,
    Method::CallExecStream,
    Method::FileRead,
    Method::FileWrite,
    Method::FileList,
    Method::FileStat,
    Method::FileMove,
    Method::FileRemove,
    Method::FileUpload,
    Method::FileDownload,
    Method::FileSend,
    Method::CallFetch,
    Method::Mcp,
    Method::TokenCreate,
    Method::TokenRotate,
    Method::TokenAttenuate,
    Method::Login,
    Method::OperatorAdd,
    Method::PairingRequest,
    Method::DeviceChallenge,
    Method::PairingProve,
    Method::PairingClaim,
    Method::DeviceRefresh,
    Method::PairingApprove,
];

/// A request that says nothing but where it goes, about a call that there is not.
fn request(session: &SessionInfo, method: Method, host: &str) -> String {
    let route = method.route();
    let path = route.path.replace("{call}", "999").replace("{id}", "none");
    // Whoever ends it would end what the daemon waits for.
    let session = if method == Method::SessionStop { "none" } else { session.session.as_str() };
    let path = path.replace("{session}", session);
    let head = format!("{host}\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close");
    format!("{} {path} HTTP/1.1\r\n{head}\r\n\r\n{{}}", route.verb)
}

/// The status of the answer. The rest is not waited for: a stream does not end.
fn status<S>(stream: S, request: &str) -> String
where
    Patient<S>: Read + Write,
{
    let mut stream = Patient(stream);
    stream.write_all(request.as_bytes()).unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    String::from_utf8_lossy(&start[9..]).into_owned()
}

/// The status of a login over TCP, and whether it gave a cookie.
fn signs_in(port: u16, body: &str) -> (String, bool) {
    let mut stream = Patient(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let head = format!("host: 127.0.0.1:{port}\r\ncontent-length: {}\r\nconnection: close", body.len());
    stream.write_all(format!("POST /v1/login HTTP/1.1\r\n{head}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().to_owned(), answer.contains("set-cookie: "))
}

/// While the last calls end, nothing new begins by any method; looking, taking back and ending go on.
#[test]
fn a_daemon_that_is_about_to_end_begins_nothing() {
    let Place { mut served, port, .. } = Place::with_flags("", &["--drain-timeout", "1h"]);
    let password = ["correct", "horse", "battery"].join(" ");
    let mut add = served.world.ringfence();
    finish(add.args(["operator", "add", "ann", "--scope", "read"]), password.as_bytes()).expect(0);
    let session = served.session();
    served.world.write("file", "content");
    let read = ReadFile { session: session.session.clone(), path: "file".into() };
    let rights = Rights { scopes: [Scope::Read].into_iter().collect(), workspaces: AllOrOnly::Any };
    let mint = CreateToken { label: "late".to_owned(), rights, lifetime_s: None, operator: None };
    let mut client = served.client();
    assert!(!refused(client.call(&read)) && !refused(client.call(&mint)), "control");
    let login = json!({ "name": "ann", "password": password }).to_string();
    assert_eq!(signs_in(port, &login), ("200".to_owned(), true), "control");
    let slow =
        ExecRequest { background: true, ..exec(&session, "touch begun; while :; do sleep 0.05; done") };
    client.call(&slow).unwrap();
    eventually("it runs", || served.world.read("begun").is_some());
    send(&served.child, Signal::TERM);
    // Not by reading: the same call again and again is a loop.
    eventually("nothing begins", || refused(client.call(&mint)));
    assert!(refused(client.call(&read)) && refused(client.call(&served.wanted())));
    assert!(!refused(client.call(&ListSessions { include_ended: true })));
    for method in Method::ALL {
        let request = |more: &str| request(&session, *method, more);
        let status = status(UnixStream::connect(&served.socket).unwrap(), &request("host: x"));
        assert_eq!(status == "503", BEGIN.contains(method), "{}: {status}", method.name());
        // Out there nobody is let in without showing something, but for what anybody may.
        if method.access() == MethodAccess::Anyone {
            let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let status = self::status(stream, &request(&format!("host: 127.0.0.1:{port}")));
            assert_eq!(status == "503", BEGIN.contains(method), "TCP {}: {status}", method.name());
        }
    }
    assert_eq!(signs_in(port, &login), ("503".to_owned(), false), "not with the right password either");
    let stop = StopSession { session: session.session, grace_ms: Some(0) };
    assert!(!refused(client.call(&stop)));
    assert!(ended("the daemon, told to end", &mut served.child).success());
}

/// A session that is made while the daemon ends is ended with it, and both are written down.
#[test]
fn no_session_outlives_the_daemon_that_was_told_to_end() {
    let mut served = Served::with(World::new(), &["--drain-timeout", "10ms"]);
    let wanted = served.wanted();
    let mut clients: Vec<Client> = (0..4).map(|_| served.client()).collect();
    thread::scope(|scope| {
        for client in &mut clients {
            let wanted = &wanted;
            scope.spawn(move || while client.call(wanted).is_ok() {});
        }
        eventually("there are some", || served.sessions().len() > 8);
        send(&served.child, Signal::TERM);
    });
    assert!(ended("the daemon, told to end", &mut served.child).success());
    let ids = |kind: &str| -> Vec<Value> {
        let mut ids: Vec<Value> =
            served.records(kind).iter().map(|record| record["event"]["session"].clone()).collect();
        ids.sort_by_key(ToString::to_string);
        ids
    };
    assert_eq!(ids("session-started"), ids("session-ended"));
}

/// The whole and all its parts are told at once; none goes on while another takes its time.
#[test]
fn a_whole_and_its_parts_are_told_at_once() {
    let served = Served::with(World::new(), &["--drain-timeout", "10ms"]);
    let marker = marker(&served.world);
    let deaf = |name: &str| {
        let script = format!(
            "trap 'touch told-{name}' TERM; touch up-{name}; while :; do sleep 0.05; done # {marker}"
        );
        Some(["sh", "-c", &script].map(str::to_owned).to_vec())
    };
    let whole = CreateSession { agent_argv: deaf("whole"), ..served.wanted() };
    let whole = served.client().call(&whole).unwrap();
    for name in ["one", "two"] {
        let parent = Some(whole.session.clone());
        served.client().call(&CreateSession { parent, agent_argv: deaf(name), ..served.wanted() }).unwrap();
    }
    let all = |what: &str| {
        ["whole", "one", "two"].iter().all(|name| served.world.read(&format!("{what}-{name}")).is_some())
    };
    eventually("all run", || all("up"));
    let stop = StopSession { session: whole.session.clone(), grace_ms: Some(60_000) };
    let mut client = served.client();
    let stopping = thread::spawn(move || client.call(&stop).map(drop));
    eventually("all are told", || all("told"));
    let states: Vec<SessionState> = served.sessions().iter().map(|info| info.state).collect();
    assert_eq!(states, [SessionState::Stopping; 3], "none of them is over yet");
    assert!(!processes_with(&marker).is_empty());
    let show = ShowSession { session: whole.session };
    assert_eq!(served.client().call(&show).unwrap().state, SessionState::Stopping);
    drop(served);
    let _answer = stopping.join().unwrap();
    assert_eq!(processes_with(&marker), Vec::<String>::new());
}
