//! Questions of a daemon that has ended: they wait on for their time, and a yes is for the next call that is the same.

use std::fs;

use ringfence_api::{
    AnswerApproval, ApiError, Approval, ApprovalReply, CallInfo, CallState, CreateSession, ErrorCode,
    ExecRequest, ListApprovals, ReplyResult, SessionInfo, ShowApproval, ShowCall, TextOrBase64,
};
use ringfence_client::{Client, ClientError};
use ringfence_grpc::v1;
use ringfence_types::Profile;
use rustix::process::Signal;
use serde_json::json;

use crate::approvals::{approvals, approve, configure};
use crate::daemon_cli::posted;
use crate::daemon_fixture::{Served, exec};
use crate::daemon_socket::token_with;
use crate::grpc_client::{Speaker, reason};
use crate::test_timeouts::ended;
use crate::testkit::{World, eventually, finish, send};

const GONE: &str = "the requester is gone";
const MADE: &[&str] = &["mkdir", "made"];

/// A daemon whose operator says this, and that waits for nothing when it is told to end.
fn served(settings: &str) -> Served {
    let world = World::new();
    configure(&world, settings);
    posted(Served::with(world, &["--drain-timeout", "10ms"]))
}

fn guarded(client: &mut Client, wanted: CreateSession) -> SessionInfo {
    client.call(&CreateSession { profile: Some(Profile::Guarded), ..wanted }).unwrap()
}

fn command(session: &SessionInfo, argv: &[&str]) -> ExecRequest {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    ExecRequest { background: true, argv, ..exec(session, "") }
}

fn begin(client: &mut Client, session: &SessionInfo, argv: &[&str]) -> u64 {
    client.call(&command(session, argv)).unwrap().call
}

fn end(served: &Served, session: &SessionInfo, call: u64) -> CallInfo {
    let show = ShowCall { session: session.session.clone(), call, wait_ms: Some(60_000) };
    served.client().call(&show).unwrap()
}

fn questions(served: &Served) -> Vec<Approval> {
    served.client().call(&ListApprovals {}).unwrap().approvals
}

fn one(served: &Served) -> Approval {
    eventually("a question waits", || questions(served).len() == 1);
    questions(served).remove(0)
}

/// By somebody who knows who waits.
fn answer(client: &mut Client, id: &str, answer: ApprovalReply) -> Result<ReplyResult, ApiError> {
    let asker_gone = client.call(&ShowApproval { id: id.to_owned() }).is_ok_and(|shown| shown.orphaned);
    said(
        client,
        AnswerApproval {
            id: id.to_owned(),
            answer,
            grant_terms: None,
            reason: None,
            accept_orphaned: asker_gone,
        },
    )
}

fn said(client: &mut Client, answer: AnswerApproval) -> Result<ReplyResult, ApiError> {
    match client.call(&answer) {
        Ok(answered) => Ok(answered),
        Err(ClientError::Api(error)) => Err(error),
        Err(other) => panic!("{other:?}"),
    }
}

/// The call is asked about; nothing is done, and the answer is no.
fn is_asked(served: &Served, session: &SessionInfo, argv: &[&str]) {
    asks(served, &mut served.client(), session, command(session, argv));
}

/// The same of what somebody runs.
fn asks(served: &Served, client: &mut Client, session: &SessionInfo, exec: ExecRequest) {
    let call = client.call(&exec).unwrap().call;
    let question = one(served);
    assert!(!question.orphaned, "{exec:?}");
    answer(&mut served.client(), &question.id, ApprovalReply::Deny).unwrap();
    assert_eq!(end(served, session, call).state, CallState::Refused, "{exec:?}");
}

fn made(served: &Served) -> bool {
    served.world.workspace.join("made").exists()
}

/// A question that its daemon left; its id.
fn left(settings: &str, by: Signal) -> (Served, String) {
    let served = served(settings);
    let mut client = served.client();
    let session = guarded(&mut client, served.wanted());
    begin(&mut client, &session, &["mkdir", "made"]);
    let id = one(&served).id;
    (posted(served.again(by)), id)
}

/// S003-13, issue 7: the queue survives a daemon that is told to end and one that is killed. A yes is for the same call in the same
/// workspace, once; whatever differs is asked about.
#[test]
fn a_question_outlives_its_daemon_and_a_yes_is_for_the_same_call_once() {
    for by in [Signal::TERM, Signal::KILL] {
        let (served, id) = left("", by);
        let question = one(&served);
        assert!(question.id == id && question.orphaned && question.decision.is_none(), "{question:?}");
        let mut client = served.client();
        let pushed = client.questions().unwrap().next().unwrap().unwrap();
        assert!(pushed.id == id && pushed.orphaned, "who listens is told again");
        let speaker = Speaker::at(&served.socket, None);
        let list = speaker.wait(speaker.approvals().list_approvals(v1::ListApprovalsRequest {})).unwrap();
        assert!(list.into_inner().approvals[0].orphaned);
        assert!(approvals(&served.world, &["list"]).expect(0).text().contains(GONE));
        assert!(approvals(&served.world, &["show", &id]).expect(0).text().contains(GONE));
        let instead = ApprovalReply::Replace { argv: vec![b"true".to_vec().into()] };
        for nothing in [ApprovalReply::Session, instead] {
            let refused = answer(&mut served.client(), &id, nothing).unwrap_err();
            assert!(
                refused.code == ErrorCode::InvalidArgument && refused.message.contains("the requester"),
                "{refused:?}"
            );
        }
        let session = guarded(&mut served.client(), served.wanted());
        let said = answer(&mut served.client(), &id, ApprovalReply::Once).unwrap();
        let ReplyResult::Decided { grant: Some(stored), .. } = said else { panic!("{said:?}") };
        let record = json!(stored.record);
        assert_eq!((stored.uses_left, &record["covers"]["covers"]), (Some(1), &json!("next")));
        assert_eq!(record["expires_at"], json!(question.expires_at), "no longer than the question");
        assert!(!made(&served) && questions(&served).is_empty(), "nobody was there to do it");
        // What is not the same: another command, another agent, another workspace.
        is_asked(&served, &session, &["mkdir", "other"]);
        let agent = CreateSession { agent_name: Some("other".to_owned()), ..served.wanted() };
        is_asked(&served, &guarded(&mut served.client(), agent), &["mkdir", "made"]);
        let elsewhere = CreateSession { workspace: served.world.beside("elsewhere"), ..served.wanted() };
        is_asked(&served, &guarded(&mut served.client(), elsewhere), &["mkdir", "made"]);
        assert!(!made(&served));
        // The same, in a session that was there and asked nothing yet.
        let call = begin(&mut served.client(), &session, &["mkdir", "made"]);
        assert_eq!(end(&served, &session, call).state, CallState::Done);
        assert!(made(&served));
        let intents = served.records("call-intended");
        assert_eq!(intents.last().unwrap()["event"]["grant"], json!(stored.id));
        fs::remove_dir(served.world.workspace.join("made")).unwrap();
        is_asked(&served, &session, &["mkdir", "made"]);
        assert!(!made(&served), "once");
        for (kind, count) in [("approval-orphaned", 1), ("grant-created", 1), ("session-ended", 1)] {
            assert_eq!(served.records(kind).len(), count, "{kind}");
        }
        let closed = served.records("call-refused");
        let closed = closed.iter().find(|record| record["event"]["transaction"] == json!(id)).unwrap();
        assert_eq!(closed["event"]["refusal"]["rule"], "approval.requester-gone");
        served.world.ledger_tool(&["verify"]).expect(0);
    }
}

/// The usual rules: not by who asked, not by who may not, and a no is a no.
#[test]
fn a_question_that_was_left_is_answered_by_who_might_have() {
    let served = served("");
    let (_, own) = token_with(&served, &["run", "approve", "read"]);
    let (_, reads) = token_with(&served, &["read"]);
    let mut asker = served.client_with(&own);
    let session = guarded(&mut asker, served.wanted());
    begin(&mut asker, &session, &["mkdir", "made"]);
    let id = one(&served).id;
    let served = posted(served.again(Signal::KILL));
    let refused = answer(&mut served.client_with(&own), &id, ApprovalReply::Once).unwrap_err();
    assert_eq!(refused.rule.as_deref(), Some("approval.requester-cannot-answer"), "{refused:?}");
    let refused = answer(&mut served.client_with(&reads), &id, ApprovalReply::Once).unwrap_err();
    assert!(refused.code == ErrorCode::Forbidden && refused.message.contains("`approve`"), "{refused:?}");
    assert!(one(&served).orphaned && served.records("grant-created").is_empty());
    answer(&mut served.client(), &id, ApprovalReply::Deny).unwrap();
    assert!(questions(&served).is_empty() && served.records("grant-created").is_empty());
    assert_eq!(served.records("approval-decided")[0]["event"]["answer"], "deny");
    let session = guarded(&mut served.client(), served.wanted());
    is_asked(&served, &session, &["mkdir", "made"]);
    assert!(!made(&served));
}

/// Tokens without an account are all the owner's, and each is somebody else's: a yes is for the token that asked in a session that
/// it began, and not for the one that said it, whose own question it could not have answered.
#[test]
fn a_yes_to_a_question_that_was_left_is_for_the_token_that_asked() {
    let served = served("");
    let (_, asker) = token_with(&served, &["run", "read"]);
    let (_, other) = token_with(&served, &["run", "approve", "read"]);
    let mut client = served.client_with(&asker);
    let session = guarded(&mut client, served.wanted());
    begin(&mut client, &session, MADE);
    let id = one(&served).id;
    let served = posted(served.again(Signal::TERM));
    let (mut asker, mut other) = (served.client_with(&asker), served.client_with(&other));
    answer(&mut other, &id, ApprovalReply::Once).unwrap();
    assert_eq!(served.records("grant-created").len(), 1);
    let (own, others) =
        (guarded(&mut asker, served.wanted()), [(); 2].map(|()| guarded(&mut other, served.wanted())));
    asks(&served, &mut other, &others[0], command(&others[0], MADE));
    asks(&served, &mut asker, &others[1], command(&others[1], MADE));
    asks(&served, &mut other, &own, command(&own, MADE));
    is_asked(&served, &guarded(&mut served.client(), served.wanted()), MADE);
    assert!(!made(&served));
    let own = guarded(&mut asker, served.wanted());
    let call = begin(&mut asker, &own, MADE);
    assert_eq!(end(&served, &own, call).state, CallState::Done, "the control");
    assert!(made(&served));
}

/// Whoever said yes has seen a call without the key of another session, and with this input. What reads what comes later could
/// not be compared, and is not left.
#[test]
fn a_yes_to_a_question_that_was_left_is_for_the_same_secrets_and_the_same_input() {
    let served = served("");
    let set = ["secret", "set", "deploy-key"];
    finish(served.world.ringfence().args(set), b"a-key-of-some-length-3141592653").expect(0);
    let reads = |session: &SessionInfo, text: &str| ExecRequest {
        stdin: Some(TextOrBase64::Text(text.to_owned())),
        ..command(session, MADE)
    };
    let mut client = served.client();
    let session = guarded(&mut client, served.wanted());
    client.call(&ExecRequest { interactive: true, ..reads(&session, "one") }).unwrap();
    eventually("it asks", || questions(&served).len() == 1);
    client.call(&reads(&session, "one")).unwrap();
    eventually("both ask", || questions(&served).len() == 2);
    let served = posted(served.again(Signal::TERM));
    let mut client = served.client();
    answer(&mut client, &one(&served).id, ApprovalReply::Once).unwrap();
    let with = CreateSession { secrets: vec!["deploy-key".to_owned()], ..served.wanted() };
    let with = guarded(&mut client, with);
    asks(&served, &mut served.client(), &with, reads(&with, "one"));
    for other in ["two", ""] {
        let session = guarded(&mut client, served.wanted());
        asks(&served, &mut served.client(), &session, reads(&session, other));
    }
    assert!(!made(&served));
    let session = guarded(&mut client, served.wanted());
    let call = client.call(&reads(&session, "one")).unwrap().call;
    assert_eq!(end(&served, &session, call).state, CallState::Done, "the control");
    assert!(made(&served));
}

/// Whoever has read it as a question of somebody who waits says nothing about what comes later.
#[test]
fn a_yes_by_somebody_who_does_not_know_that_the_asker_is_gone_is_none() {
    let (served, id) = left("", Signal::KILL);
    let unaware = |answer| {
        let answer = AnswerApproval {
            id: id.clone(),
            answer,
            grant_terms: None,
            reason: None,
            accept_orphaned: false,
        };
        said(&mut served.client(), answer).unwrap_err()
    };
    for yes in [ApprovalReply::Once, ApprovalReply::AlwaysHere { offer: 0 }] {
        let refused = unaware(yes);
        assert!(
            refused.code == ErrorCode::FailedPrecondition && refused.message.contains(GONE),
            "{refused:?}"
        );
        assert!(refused.hint.unwrap().contains("accept_orphaned"));
    }
    let speaker = Speaker::at(&served.socket, None);
    let by_grpc = |asker_gone| {
        let answer = v1::Answer::Once.into();
        let answer = v1::AnswerApprovalRequest {
            id: id.clone(),
            answer,
            accept_orphaned: asker_gone,
            ..Default::default()
        };
        speaker.wait(speaker.approvals().answer_approval(answer))
    };
    assert_eq!(reason(&by_grpc(false).unwrap_err()), ErrorCode::FailedPrecondition);
    assert!(one(&served).orphaned && served.records("grant-created").is_empty());
    by_grpc(true).unwrap();
    assert_eq!(served.records("grant-created").len(), 1, "the control");
    // At a terminal the answer says what was shown there.
    let (served, id) = left("", Signal::KILL);
    let (terminal, done) = approve(&served.world, &id, "", b"y");
    assert!(
        done.expect(0).text().contains("stored as gr_") && terminal.seen().contains("the requester is gone")
    );
    assert_eq!(served.records("grant-created").len(), 1);
}

/// It has no more time than it had, and neither has a yes.
#[test]
fn a_question_that_was_left_ends_with_its_time() {
    let (served, id) = left("[approvals]\ntimeout = \"2s\"\n", Signal::TERM);
    eventually("its time is over", || questions(&served).is_empty());
    let shown = served.client().call(&ShowApproval { id: id.clone() }).unwrap();
    assert_eq!(shown.decision.unwrap().answer.word(), "expired");
    assert_eq!(
        answer(&mut served.client(), &id, ApprovalReply::Once).unwrap_err().code,
        ErrorCode::FailedPrecondition
    );
    let closed = served.records("call-refused");
    assert!(closed.iter().any(|record| record["event"]["transaction"] == json!(id)), "{closed:?}");
    assert!(!made(&served) && served.records("grant-created").is_empty());
}

/// Without any daemon it waits in the ledger, and is answered there. What a yes was for is looked at again.
#[test]
fn a_question_of_a_dead_daemon_is_shown_and_answered_without_one() {
    let mut served = served("");
    let mut client = served.client();
    let session = guarded(&mut client, served.wanted());
    begin(&mut client, &session, &["mkdir", "made"]);
    let id = one(&served).id;
    send(&served.child, Signal::KILL);
    let _status = ended("the daemon", &mut served.child);
    let list = approvals(&served.world, &["list", "--json"]).expect(0).json();
    assert_eq!((&list["approvals"][0]["id"], &list["approvals"][0]["orphaned"]), (&json!(id), &json!(true)));
    approvals(&served.world, &["deny", &id, "--reason", "not any more"]).expect(0);
    let decided = served.records("approval-decided");
    assert_eq!((decided.len(), &decided[0]["event"]["answer"]), (1, &json!("deny")));
    assert!(approvals(&served.world, &["list"]).expect(0).text().contains("no pending approvals"));
    served.world.ledger_tool(&["verify"]).expect(0);
}
