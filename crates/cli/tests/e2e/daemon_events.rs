//! Events, questions and their answers through the daemon.

use ringfence_api::{
    AnswerApproval, ApprovalReply, CallState, CancelCall, CreateSession, ErrorCode, ExecRequest,
    ListApprovals, ReportActivity, SessionInfo, ShowCall, Subscribe,
};
use ringfence_client::ClientError;
use ringfence_types::Profile;
use rustix::process::Signal;

use crate::daemon_fixture::{ASK, Served, exec};
use crate::testkit::eventually;

fn guarded(served: &Served) -> SessionInfo {
    served.client().call(&CreateSession { profile: Some(Profile::Guarded), ..served.wanted() }).unwrap()
}

fn mkdir(served: &Served, session: &SessionInfo, name: &str) -> u64 {
    let argv = vec!["mkdir".to_owned(), name.to_owned()];
    served.client().call(&ExecRequest { background: true, argv, ..exec(session, "") }).unwrap().call
}

fn question(served: &Served) -> String {
    let mut found = None;
    eventually("somebody asks", || {
        found = served.client().call(&ListApprovals {}).unwrap().approvals.into_iter().next();
        found.is_some()
    });
    found.unwrap().id
}

/// Document 003's flow (S003-9…12, S003-36): a call asks, the question is pushed, an operator answers, the call goes on.
#[test]
fn a_question_is_pushed_answered_and_obeyed() {
    let served = Served::new();
    let session = guarded(&served);
    let mut listener = served.client();
    let mut events = listener.events(&Subscribe::default()).unwrap();
    let call = mkdir(&served, &session, "made");
    let asked = events.find(|event| event.as_ref().unwrap().kind == "approval-requested").unwrap().unwrap();
    let id = asked.event["transaction"].as_str().unwrap().to_owned();
    assert!(!served.world.workspace.join("made").exists());
    let answer = AnswerApproval {
        id,
        answer: ApprovalReply::Once,
        grant_terms: None,
        reason: None,
        accept_orphaned: false,
    };
    served.client().call(&answer).unwrap();
    let done = served
        .client()
        .call(&ShowCall { session: session.session.clone(), call, wait_ms: Some(60_000) })
        .unwrap();
    assert_eq!((done.state, done.exit_code), (CallState::Done, Some(0)), "{done:?}");
    assert!(served.world.workspace.join("made").is_dir());
    let kinds: Vec<String> =
        events.by_ref().map(|event| event.unwrap().kind).take_while(|kind| kind != "call-settled").collect();
    assert!(
        kinds.contains(&"approval-decided".to_owned()) && kinds.contains(&"call-intended".to_owned()),
        "{kinds:?}"
    );
    match served.client().call(&answer) {
        Err(ClientError::Api(error)) => assert_eq!(error.code, ErrorCode::FailedPrecondition),
        other => panic!("answered twice: {other:?}"),
    }
}

#[test]
fn a_no_and_a_cancelled_question_do_nothing() {
    let served = Served::new();
    let session = guarded(&served);
    let id = || session.session.clone();
    let call = mkdir(&served, &session, "denied");
    let answer = AnswerApproval {
        id: question(&served),
        answer: ApprovalReply::Deny,
        grant_terms: None,
        reason: Some("not now".to_owned()),
        accept_orphaned: false,
    };
    served.client().call(&answer).unwrap();
    let done = served.client().call(&ShowCall { session: id(), call, wait_ms: Some(60_000) }).unwrap();
    assert_eq!(done.state, CallState::Refused);
    assert!(done.refusal.unwrap().message.contains("not now"));
    let call = mkdir(&served, &session, "cancelled");
    question(&served);
    served.client().call(&CancelCall { session: id(), call }).unwrap();
    let done = served.client().call(&ShowCall { session: id(), call, wait_ms: Some(60_000) }).unwrap();
    assert_eq!(done.state, CallState::Refused);
    for name in ["denied", "cancelled"] {
        assert!(!served.world.workspace.join(name).exists());
    }
}

/// C-32, B-A19: whoever asks never answers, whatever they call.
#[test]
fn an_agent_does_not_answer_its_own_question() {
    let served = Served::new();
    // Its provider may run what it likes; a part of it asks.
    let outer = served.session();
    let session = guarded(&served);
    mkdir(&served, &session, "made");
    let id = question(&served);
    let script =
        format!("{ASK} ask GET /v1/approvals; ask POST /v1/approvals/{id}/answer '{{\"answer\":\"once\"}}'");
    let info = served.sh(&outer, &script);
    assert_eq!(crate::daemon_fixture::stdout(&info), "403\n403\n", "{info:?}");
    assert!(!served.world.workspace.join("made").exists());
    assert_eq!(served.client().call(&ListApprovals {}).unwrap().approvals.len(), 1, "it still waits");
}

/// Whoever lost the connection goes on where they were: nothing is missed and nothing comes twice.
#[test]
fn events_go_on_after_the_last_one_that_was_seen() {
    let served = Served::new();
    let session = served.session();
    let report = |number: u32| ReportActivity {
        session: session.session.clone(),
        activity: "step".to_owned(),
        claim: number.to_string(),
    };
    let mut client = served.client();
    let seqs: Vec<u64> = (0..600).map(|number| client.call(&report(number)).unwrap().seq).collect();
    let of_session = |after| Subscribe { after: Some(after), session: Some(session.session.clone()) };
    let told = |after: u64, count: usize| -> Vec<u64> {
        let mut client = served.client();
        let events = client.events(&of_session(after)).unwrap();
        events
            .map(|event| event.unwrap())
            .filter(|event| event.kind == "activity-reported")
            .map(|event| event.seq)
            .take(count)
            .collect()
    };
    assert_eq!(told(0, 600), seqs, "from the beginning");
    assert_eq!(told(seqs[299], 300), seqs[300..], "from the middle");
    let served = served.again(Signal::TERM);
    let mut client = served.client();
    let events = client.events(&of_session(seqs[598])).unwrap();
    let last: Vec<u64> = events.map(|event| event.unwrap()).map(|event| event.seq).take(1).collect();
    assert_eq!(last, seqs[599..], "with another daemon over the same ledger");
}

/// Reports of agents are allegations, and secrets in them stay out.
#[test]
fn a_report_with_a_secret_is_kept_without_it() {
    let served = Served::new();
    let session = served.session();
    let secret = ["ghp", "_", "aB3dE5fG7hJ9kL2mN4", "pQ6rS8tU1vW0xY3zA5"].concat();
    let report = ReportActivity {
        session: session.session.clone(),
        activity: "note".to_owned(),
        claim: format!("key {secret} end"),
    };
    served.client().call(&report).unwrap();
    let said = served.records("activity-reported");
    let text = said[0]["event"]["claim"].as_str().unwrap();
    assert!(!text.contains(&secret) && text.starts_with("key ") && text.ends_with(" end"), "{text}");
}
