//! What is left when a session or the daemon ends.

use std::thread;

use ringfence_api::{
    AnswerApproval, ApiError, ApprovalReply, CallState, CreateSession, ExecRequest, ListApprovals,
    SessionInfo, SessionState, ShowCall, StopSession,
};
use ringfence_client::ClientError;
use ringfence_types::Profile;
use rustix::process::Signal;

use crate::daemon_fixture::{Served, exec};
use crate::test_timeouts::ended;
use crate::testkit::{World, eventually, send};

/// A part that is made while its whole is ended ends with it, whoever comes first.
#[test]
fn no_part_outlives_its_whole() {
    let served = Served::new();
    for _ in 0..3 {
        let whole = served.session();
        let part = CreateSession { parent: Some(whole.session.clone()), ..served.wanted() };
        thread::scope(|scope| {
            for _ in 0..4 {
                // It may come too late, and is refused then.
                scope.spawn(|| while served.client().call(&part).is_ok() {});
            }
            eventually("there is a part", || served.sessions().iter().any(|info| info.parent.is_some()));
            served.client().call(&StopSession { session: whole.session.clone(), grace_ms: None }).unwrap();
        });
        let left: Vec<_> =
            served.sessions().into_iter().filter(|info| info.state != SessionState::Ended).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// The daemon ends what somebody else is still waiting for, and does not end before that is written down.
#[test]
fn a_session_that_is_being_stopped_ends_with_the_daemon() {
    let mut served = Served::with(World::new(), &["--drain-timeout", "10ms"]);
    let session = served.session();
    let deaf = "trap '' TERM; touch runs; while :; do sleep 0.05; done";
    served.client().call(&ExecRequest { background: true, ..exec(&session, deaf) }).unwrap();
    eventually("the call runs", || served.world.read("runs").is_some());
    let stop = StopSession { session: session.session.clone(), grace_ms: Some(600_000) };
    let mut client = served.client();
    // Its answer goes down with the daemon.
    let stopping = thread::spawn(move || client.call(&stop).map(drop));
    eventually("it is being stopped", || served.sessions()[0].state == SessionState::Stopping);
    send(&served.child, Signal::TERM);
    let _status = ended("the daemon", &mut served.child);
    let _answer = stopping.join().unwrap();
    let ended = served.records("session-ended");
    assert_eq!(ended.len(), 1, "{ended:?}");
}

/// A call in the background that waits for an answer; the id of its question.
fn asks(served: &Served) -> (SessionInfo, u64, String) {
    let guarded = CreateSession { profile: Some(Profile::Guarded), ..served.wanted() };
    let session = served.client().call(&guarded).unwrap();
    let argv = ["mkdir", "made"].map(str::to_owned).to_vec();
    let call =
        served.client().call(&ExecRequest { background: true, argv, ..exec(&session, "") }).unwrap().call;
    let waiting = || served.client().call(&ListApprovals {}).unwrap().approvals;
    eventually("a question waits", || waiting().len() == 1);
    let id = waiting().remove(0).id;
    (session, call, id)
}

fn answered(served: &Served, id: &str, answer: ApprovalReply) -> Result<(), ApiError> {
    let answer =
        AnswerApproval { id: id.to_owned(), answer, grant_terms: None, reason: None, accept_orphaned: false };
    match served.client().call(&answer) {
        Ok(_) => Ok(()),
        Err(ClientError::Api(error)) => Err(error),
        Err(other) => panic!("{other:?}"),
    }
}

/// S003-13: whoever asked and whoever was told may go away; the question waits for its answer all the same.
#[test]
fn a_question_waits_also_when_its_clients_have_gone() {
    let served = Served::new();
    let mut told = served.client();
    let mut questions = told.questions().unwrap();
    let (session, call, id) = asks(&served);
    assert_eq!(questions.next().unwrap().unwrap().id, id);
    drop(questions);
    drop(told);
    let mut again = served.client();
    assert_eq!(again.questions().unwrap().next().unwrap().unwrap().id, id, "who comes back is told again");
    assert!(!served.world.workspace.join("made").exists());
    answered(&served, &id, ApprovalReply::Once).unwrap();
    let show = ShowCall { session: session.session, call, wait_ms: Some(60_000) };
    assert_eq!(served.client().call(&show).unwrap().state, CallState::Done);
    assert!(served.world.workspace.join("made").exists());
}

/// No time to drain is none: what runs is ended at once.
#[test]
fn a_daemon_without_time_to_drain_ends_what_runs_at_once() {
    let mut served = Served::with(World::new(), &["--drain-timeout", "0s"]);
    let session = served.session();
    let endless = "touch runs; while :; do sleep 0.05; done";
    served.client().call(&ExecRequest { background: true, ..exec(&session, endless) }).unwrap();
    eventually("the call runs", || served.world.read("runs").is_some());
    send(&served.child, Signal::TERM);
    assert!(ended("the daemon", &mut served.child).success());
    assert_eq!(served.records("session-ended").len(), 1);
    let wrong = served.ringfence(&["serve", "--check", "--drain-timeout", "0x"]);
    assert_eq!(wrong.code, Some(125), "{}", wrong.err);
}
