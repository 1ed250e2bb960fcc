//! Whoever waits for people takes nothing from those who answer them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;

use ringfence_api::{
    AnswerApproval, ApprovalReply, CallState, CreateSession, ErrorCode, ExecRequest, ListApprovals,
    SessionInfo, SessionState, ShowCall, ShowSession, StopSession, WriteFile,
};
use ringfence_client::ClientError;
use ringfence_types::Profile;
use serde_json::json;

use crate::daemon_fixture::{Served, exec, raw};
use crate::test_timeouts::Patient;
use crate::testkit::{World, eventually, finish};

/// How many calls the daemon of the test does at once, and how many of them one session gets.
const CALLS: usize = 8;
const OF_ONE: usize = CALLS - CALLS / 8;

fn write(session: &SessionInfo, number: usize) -> WriteFile {
    let fields =
        json!({ "session": session.session, "path": format!("d{number}/AGENTS.md"), "content": "x" });
    serde_json::from_value(fields).unwrap()
}

/// Sends a request whose answer is not waited for here.
fn begun(served: &Served, session: &SessionInfo, number: usize) -> UnixStream {
    let body = serde_json::to_string(&write(session, number)).unwrap();
    let mut stream = UnixStream::connect(&served.socket).unwrap();
    let head = format!(
        "POST /v1/sessions/{}/files/write HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        session.session,
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    stream
}

/// Writes that wait for a person are calls like commands. When all places are taken the next is refused, and health,
/// answers and stops have their own threads. Another session has something left.
#[test]
fn writes_that_wait_for_people_have_a_bound_and_hold_up_nobody() {
    let served = Served::with(World::new(), &["--max-calls", &CALLS.to_string()]);
    for number in 0..=OF_ONE {
        std::fs::create_dir(served.world.workspace.join(format!("d{number}"))).unwrap();
    }
    let guarded = CreateSession { profile: Some(Profile::Guarded), ..served.wanted() };
    let session = served.client().call(&guarded).unwrap();
    let mut next = Vec::new();
    let waiting: Vec<UnixStream> = (0..OF_ONE).map(|number| begun(&served, &session, number)).collect();
    let questions = || served.client().call(&ListApprovals {}).unwrap().approvals;
    eventually("all of them ask", || questions().len() == OF_ONE);
    match served.client().call(&write(&session, OF_ONE)) {
        Err(ClientError::Api(error)) => assert_eq!(error.code, ErrorCode::ResourceExhausted, "{error:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(served.sh(&served.session(), "true").exit_code, Some(0), "another one runs what it wants");
    let health = b"GET /v1/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert_eq!(raw(&served.socket, health).0, 200);
    // The control: with an answer there is a place again, and what was answered is done.
    let id = questions().remove(0).id;
    served
        .client()
        .call(&AnswerApproval {
            id,
            answer: ApprovalReply::Once,
            reason: None,
            grant_terms: None,
            accept_orphaned: false,
        })
        .unwrap();
    let written = || (0..OF_ONE).filter(|n| served.world.read(&format!("d{n}/AGENTS.md")).is_some()).count();
    eventually("one is done", || written() == 1);
    // What was done gives its place back a moment later.
    eventually("the next asks", || {
        next.push(begun(&served, &session, OF_ONE));
        questions().len() == OF_ONE
    });
    let stop = StopSession { session: session.session.clone(), grace_ms: Some(0) };
    assert_eq!(served.client().call(&stop).unwrap().state, SessionState::Ended);
    assert_eq!((questions().len(), written()), (0, 1));
    drop(waiting);
}

/// A command for which there is no place, or whose input has none, is over at once: it takes no place of its session.
#[test]
fn commands_that_were_not_begun_are_over() {
    // More than a session has under way at once.
    const REFUSED: usize = 70;
    let served = Served::with(World::new(), &["--max-calls", "1"]);
    let (busy, session) = (served.session(), served.session());
    let script = "touch begun; while [ ! -e go ]; do sleep 0.02; done";
    let slow = served.client().call(&ExecRequest { background: true, ..exec(&busy, script) }).unwrap();
    eventually("it runs", || served.world.read("begun").is_some());
    let running = || {
        let show = ShowSession { session: session.session.clone() };
        served.client().call(&show).unwrap().running_calls
    };
    for number in 0..REFUSED {
        let background = number % 2 == 1;
        let wanted = ExecRequest { background, ..exec(&session, &format!("touch never-{number}")) };
        match served.client().call(&wanted) {
            Err(ClientError::Api(error)) => {
                assert_eq!(error.message, "1 calls are under way", "{number}");
                assert_eq!(error.code, ErrorCode::ResourceExhausted);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(running(), 0);
    served.world.write("go", "");
    let wait = ShowCall { session: busy.session, call: slow.call, wait_ms: Some(60_000) };
    eventually("the place is free", || served.client().call(&wait).unwrap().state == CallState::Done);
    eventually("the session takes calls", || {
        served.client().call(&exec(&session, "touch after")).is_ok_and(|info| info.exit_code == Some(0))
    });
    assert!(served.world.read("after").is_some() && served.world.read("never-0").is_none());
    // What is typed ahead has to fit where nobody reads yet.
    let typed = |bytes: usize| ExecRequest {
        stdin: Some(vec![b'x'; bytes].into()),
        interactive: true,
        background: true,
        ..exec(&session, "head -c 1 >typed")
    };
    assert!(served.client().call(&typed(500_000)).is_err());
    assert_eq!(running(), 0);
    assert_eq!(served.world.read("typed"), None);
    eventually("less of it fits", || served.client().call(&typed(10)).is_ok());
    eventually("it was read", || served.world.read("typed").as_deref() == Some("x"));
}

/// Guesses that come at once are counted like those that come one after the other.
#[test]
fn passwords_that_are_guessed_at_once_are_looked_at_in_turn() {
    const AT_ONCE: usize = 24;
    let world = World::new();
    let add = ["operator", "add", "ann", "--scope", "read"];
    finish(world.ringfence().args(add), b"correct horse battery").expect(0);
    let served = Served::listening(world, "", "");
    let port = served.port();
    let guess = |number: usize| {
        let body = json!({ "name": "ann", "password": format!("guess {number}") }).to_string();
        let mut stream = Patient(TcpStream::connect(("127.0.0.1", port)).unwrap());
        let head = format!(
            "POST /v1/login HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    let statuses: Vec<String> = thread::scope(|scope| {
        let guesses: Vec<_> = (0..AT_ONCE).map(|number| scope.spawn(move || guess(number))).collect();
        guesses.into_iter().map(|guess| guess.join().unwrap()).collect()
    });
    let looked_at = statuses.iter().filter(|status| *status == "401").count();
    assert!(statuses.iter().all(|status| status == "401" || status == "429"), "{statuses:?}");
    assert!((5..=12).contains(&looked_at), "{statuses:?}");
    drop(served);
}
