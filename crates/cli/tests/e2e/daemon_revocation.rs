//! Whoever was let in stays only as long as they would be let in again, and what is done for them ends with them.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;

use ringfence_api::{
    ApiError, CallState, CreateSession, CreateToken, ErrorCode, ExecRequest, ExecStreamRequest,
    ListApprovals, ListCalls, ListTokens, MintedToken, OutputChunk, ReportActivity, RevokeToken, RotateToken,
    SessionInfo, SessionState, ShowCall, ShowSession, Subscribe, WhoAmI,
};
use ringfence_client::{Client, ClientError};
use ringfence_types::{AllOrOnly, Profile, Rights, Scope};
use serde_json::json;

use crate::daemon_fixture::{Served, exec};
use crate::test_timeouts::received;
use crate::testkit::{eventually, marker, processes_with};

fn token(served: &Served, lifetime_s: Option<u64>) -> MintedToken {
    let rights =
        Rights { scopes: [Scope::Read, Scope::Run].into_iter().collect(), workspaces: AllOrOnly::Any };
    let new = CreateToken { label: "test".to_owned(), rights, lifetime_s, operator: None };
    served.client().call(&new).unwrap()
}

fn id(minted: &MintedToken) -> String {
    minted.token.id.to_string()
}

fn denied(error: ClientError) -> ApiError {
    match error {
        ClientError::Api(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Everything that a token can hold open, each on a thread of its own that tells how it ended.
struct Open {
    ends: mpsc::Receiver<(&'static str, ApiError)>,
}

const STUBBORN: &str = "trap '' TERM; touch";

impl Open {
    /// When this returns all of it is under way: `marker` is among the arguments of three commands.
    fn with(served: &Served, session: &SessionInfo, (token, marker): (&str, &str)) -> Self {
        let (sender, ends) = mpsc::channel();
        let client = || served.client_with(token);
        let slow = |name: &str| {
            let script = format!("{STUBBORN} {name}; while :; do sleep 0.05; done # {marker}");
            ExecRequest { background: name == "background", ..exec(session, &script) }
        };
        let call = served.client().call(&slow("background")).unwrap().call;
        let mut events = client();
        let told = sender.clone();
        let subscribed = Subscribe { after: Some(0), session: None };
        let (first, begun) = mpsc::channel();
        thread::spawn(move || {
            let error = events.events(&subscribed).unwrap().find_map(|event| {
                let _once = first.send(());
                event.err()
            });
            told.send(("events", denied(error.unwrap()))).unwrap();
        });
        received("the first event comes", &begun).unwrap();
        let (mut running, request, told) = (client(), ExecStreamRequest(slow("run")), sender.clone());
        thread::spawn(move || {
            let cut = running.run(&request).unwrap().find_map(|chunk| match chunk.unwrap() {
                OutputChunk::Closed { error } => Some(*error),
                OutputChunk::Ended { call, .. } => panic!("{call:?}"),
                _ => None,
            });
            told.send(("run", cut.unwrap())).unwrap();
        });
        let (mut waiting, request, told) = (client(), slow("exec"), sender.clone());
        thread::spawn(move || told.send(("exec", denied(waiting.call(&request).unwrap_err()))).unwrap());
        let show = ShowCall { session: session.session.clone(), call, wait_ms: Some(600_000) };
        let mut showing = client();
        thread::spawn(move || sender.send(("show", denied(showing.call(&show).unwrap_err()))).unwrap());
        for name in ["background", "run", "exec"] {
            eventually("it runs", || served.world.read(name).is_some());
        }
        Self { ends }
    }

    /// Every end, with why.
    fn ends(self) -> Vec<(&'static str, ApiError)> {
        let next = || received("everything open is ended", &self.ends);
        let mut ends: Vec<_> = std::iter::from_fn(next).collect();
        ends.sort_by_key(|(what, _)| *what);
        ends
    }
}

fn assert_cut(open: Open, rule: &str) {
    let ends = open.ends();
    let names: Vec<&str> = ends.iter().map(|(what, _)| *what).collect();
    assert_eq!(names, ["events", "exec", "run", "show"]);
    for (what, error) in ends {
        assert_eq!((error.code, error.rule.as_deref()), (ErrorCode::Unauthenticated, Some(rule)), "{what}");
    }
}

/// B-14: whatever a revoked token holds open is cut, by whichever process revoked it; what others hold goes on.
#[test]
fn a_revoked_token_holds_nothing_open() {
    let served = Served::new();
    let session = served.session();
    let word = marker(&served.world);
    for name in ["by-the-daemon", "by-another-process"] {
        let (ended, other) = (token(&served, None), token(&served, None));
        let word = format!("{word}-{name}");
        let open = Open::with(&served, &session, (&ended.secret, &word));
        let mut client = served.client_with(&other.secret);
        let mut beside = client.events(&Subscribe::default()).unwrap();
        let running = processes_with(&word).len();
        assert!(running >= 3, "{running}");
        if name == "by-the-daemon" {
            served.client().call(&RevokeToken { id: id(&ended) }).unwrap();
        } else {
            served.ringfence(&["token", "revoke", &id(&ended)]).expect(0);
        }
        assert_cut(open, "identity.revoked");
        eventually("what was done for them is over", || {
            let left = processes_with(&word);
            !left.is_empty() && left.iter().all(|process| process.contains("background"))
        });
        let report = ReportActivity {
            session: session.session.clone(),
            activity: "step".to_owned(),
            claim: "on".to_owned(),
        };
        served.client().call(&report).unwrap();
        let heard = beside.find(|event| event.as_ref().unwrap().kind == "activity-reported");
        assert!(heard.is_some(), "control: another token hears on");
        for name in ["background", "run", "exec"] {
            std::fs::remove_file(served.world.workspace.join(name)).unwrap();
        }
    }
}

/// Another secret ends what came with the old one.
#[test]
fn a_rotated_token_holds_nothing_open() {
    let served = Served::new();
    let session = served.session();
    let minted = token(&served, None);
    let open = Open::with(&served, &session, (&minted.secret, &marker(&served.world)));
    let rotated = served.client().call(&RotateToken { id: id(&minted) }).unwrap();
    assert_cut(open, "identity.revoked");
    served.client_with(&rotated.secret).call(&WhoAmI {}).unwrap();
}

/// A token that ends by itself ends what it holds.
#[test]
fn an_expired_token_holds_nothing_open() {
    let served = Served::new();
    // However slow the machine is, one of them lives long enough to open a stream.
    for lifetime in [2, 8, 32, 128] {
        let minted = token(&served, Some(lifetime));
        let mut client = served.client_with(&minted.secret);
        let Ok(mut events) = client.events(&Subscribe { after: Some(0), session: None }) else { continue };
        let error = denied(events.find_map(Result::err).expect("the stream ends with a word"));
        assert_eq!(error.rule.as_deref(), Some("identity.expired"));
        return;
    }
    panic!("no stream could be opened");
}

/// Whoever does not read is cut off as well, and holds no command.
#[test]
fn a_revoked_token_that_does_not_read_is_cut_off() {
    let served = Served::new();
    let session = served.session();
    let word = marker(&served.world);
    let minted = token(&served, None);
    let mut client = served.client_with(&minted.secret);
    let flood = ExecStreamRequest(exec(&session, &format!("touch begun; yes {word}")));
    let unread = client.run(&flood).unwrap();
    eventually("it runs", || served.world.read("begun").is_some());
    served.client().call(&RevokeToken { id: id(&minted) }).unwrap();
    eventually("it is over", || processes_with(&word).is_empty());
    drop(unread);
}

/// The token of a session is how its agent is known: without it the session has ended.
#[test]
fn a_session_ends_with_its_token() {
    let served = Served::new();
    let word = marker(&served.world);
    let session = served.provider(&format!("sleep 1000 # {word}"));
    eventually("it runs", || !processes_with(&word).is_empty());
    let tokens = served.client().call(&ListTokens {}).unwrap().tokens;
    let own = tokens.iter().find(|token| token.label == session.session.as_str()).unwrap();
    served.client().call(&RevokeToken { id: own.id.to_string() }).unwrap();
    let show = ShowSession { session: session.session };
    eventually("it is over", || {
        served.client().call(&show).is_ok_and(|info| info.state == SessionState::Ended)
    });
    let why = served.client().call(&show).unwrap().end_reason.unwrap();
    assert!(why.starts_with("its token: "), "{why}");
    assert_eq!(processes_with(&word), Vec::<String>::new());
}

/// A request as bytes, on a connection that is closed when it is dropped.
fn post(served: &Served, path: &str, body: &serde_json::Value) -> UnixStream {
    let mut stream = UnixStream::connect(&served.socket).unwrap();
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
    stream
}

/// Of a command that somebody waits for and one in the background, the second goes on when whoever asked has gone.
#[test]
fn a_command_that_nobody_waits_for_any_more_is_ended() {
    let served = Served::new();
    let session = served.session();
    let word = marker(&served.world);
    let path = format!("/v1/sessions/{}/exec", session.session);
    let ask = |name: &str, background: bool| {
        let script = format!("{STUBBORN} {name}; while :; do sleep 0.05; done # {word}-{name}");
        post(&served, &path, &json!({ "argv": ["sh", "-c", script], "background": background }))
    };
    let connections = [ask("waits", false), ask("stays", true)];
    for name in ["waits", "stays"] {
        eventually("it runs", || served.world.read(name).is_some());
    }
    drop(connections);
    eventually("it is ended", || processes_with(&format!("{word}-waits")).is_empty());
    eventually("its end is written down", || served.records("call-settled").len() == 1);
    assert!(!processes_with(&format!("{word}-stays")).is_empty(), "control");
}

/// A question of somebody who has gone is not answered into the void.
#[test]
fn a_question_of_somebody_who_has_gone_is_withdrawn() {
    let served = Served::new();
    let guarded = CreateSession { profile: Some(Profile::Guarded), ..served.wanted() };
    let session = served.client().call(&guarded).unwrap();
    let path = format!("/v1/sessions/{}/exec", session.session);
    let connection = post(&served, &path, &json!({ "argv": ["mkdir", "made"] }));
    let waiting = || served.client().call(&ListApprovals {}).unwrap().approvals.len();
    eventually("somebody asks", || waiting() == 1);
    drop(connection);
    eventually("nobody asks any more", || waiting() == 0);
    assert!(!served.world.workspace.join("made").exists());
    let list = ListCalls { session: session.session };
    eventually("it is refused", || {
        let calls = served.client().call(&list).unwrap().calls;
        calls.iter().all(|call| call.state == CallState::Refused)
    });
    assert!(!served.world.workspace.join("made").exists());
}

/// What one program of a user gets wrong keeps no other out.
#[test]
fn wrong_tokens_on_the_socket_keep_no_good_one_out() {
    let served = Served::new();
    let minted = token(&served, None);
    let wrong = format!("rf_api_{}_{}", "0".repeat(16), "0".repeat(64));
    let mut guesser: Client = served.client_with(&wrong);
    let mut codes: Vec<ErrorCode> = Vec::new();
    for _ in 0..30 {
        codes.push(denied(guesser.call(&WhoAmI {}).unwrap_err()).code);
    }
    assert_eq!(codes.first(), Some(&ErrorCode::Unauthenticated));
    assert_eq!(codes.last(), Some(&ErrorCode::ResourceExhausted), "who guesses waits");
    assert_eq!(served.client_with(&minted.secret).call(&WhoAmI {}).unwrap().kind, "api");
}
