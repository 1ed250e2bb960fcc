//! Answers of operators to questions of sessions, by the command line at the daemon's socket, by WebSocket and by gRPC: once, with
//! terms, something else instead, by several people, too late, and around the end of a daemon.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};

use ringfence_api::{CallState, CreateSession, ErrorCode, ExecRequest, Method, SessionInfo, ShowCall};
use ringfence_grpc::v1;
use ringfence_types::{NetMode, Profile};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::approvals::{approvals, approve, configure, grants, one_waiting, waiting};
use crate::daemon_cli::{asked, directly, posted};
use crate::daemon_fixture::{Served, exec};
use crate::daemon_rights::{minted, token_of};
use crate::daemon_socket::{Talk, code, token_with};
use crate::grpc_client::{Speaker, reason};
use crate::test_timeouts::mortal;
use crate::testkit::{Done, World, collect, eventually, finish};

/// A daemon whose sessions ask about `mkdir`, and what else its operator says.
fn served(more: &str) -> (Served, SessionInfo) {
    let world = World::new();
    configure(&world, more);
    let served = posted(Served::with(world, &["--drain-timeout", "10ms"]));
    let guarded = CreateSession { profile: Some(Profile::Guarded), ..served.wanted() };
    let session = served.client().call(&guarded).unwrap();
    (served, session)
}

/// A command in the background; its number.
fn begin(served: &Served, session: &SessionInfo, argv: &[&str]) -> u64 {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    served.client().call(&ExecRequest { background: true, argv, ..exec(session, "") }).unwrap().call
}

fn end(served: &Served, session: &SessionInfo, call: u64) -> ringfence_api::CallInfo {
    let show = ShowCall { session: session.session.clone(), call, wait_ms: Some(100_000) };
    served.client().call(&show).unwrap()
}

fn there(served: &Served, name: &str) -> bool {
    served.world.workspace.join(name).is_dir()
}

/// Without what is another number with every look.
fn timeless(done: Done) -> String {
    let text = done.expect(0).text();
    let words = |line: &str| {
        let numbers: Vec<String> = line
            .split(' ')
            .map(|word| {
                word.trim_end_matches(['s', ',']).parse::<u32>().map_or(word.to_owned(), |_| "N".to_owned())
            })
            .collect();
        numbers.join(" ")
    };
    match serde_json::from_str::<Value>(&text) {
        Ok(mut value) => {
            for question in value["approvals"].as_array_mut().into_iter().flatten() {
                question["seconds_left"] = Value::Null;
            }
            value["seconds_left"] = Value::Null;
            value.to_string()
        }
        Err(_) => text.lines().map(words).collect::<Vec<_>>().join("\n"),
    }
}

fn requests(served: &Served) -> u64 {
    let text = served.client().call(&ringfence_api::ReadMetrics {}).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("ringfence_requests_total "));
    line.unwrap().parse().unwrap()
}

/// S003-13: by the daemon the same words as without it, at the terminal and in the ledger.
#[test]
fn the_command_line_shows_and_answers_by_the_daemon_in_the_same_words() {
    let (served, session) = served("[approvals]\ngrant_lifetime = \"2d\"\n");
    let world = &served.world;
    let first = begin(&served, &session, &["mkdir", "made"]);
    let id = one_waiting(world);
    for arguments in [
        vec!["list"],
        vec!["list", "--json"],
        vec!["show", &id],
        vec!["show", &id, "--json"],
        vec!["show", id.get(..9).unwrap()],
    ] {
        let before = requests(&served);
        let by_daemon = timeless(approvals(world, &arguments));
        // One of them is the look itself.
        assert!(requests(&served) > before + 1, "{arguments:?} asks the daemon");
        let direct = directly(&served, || timeless(approvals(world, &arguments)));
        assert_eq!(by_daemon, direct, "{arguments:?}");
        assert!(by_daemon.contains("mkdir"), "{by_daemon}");
    }
    for nothing in ["tx_nothing", "a b/c", "", "99"] {
        let by_daemon = approvals(world, &["show", nothing]).expect(1).err;
        assert_eq!(by_daemon, directly(&served, || approvals(world, &["show", nothing]).expect(1).err));
        assert!(by_daemon.contains("no approval with id"), "{by_daemon}");
    }
    assert!(!there(&served, "made"), "nothing is done before the answer");
    let (terminal, done) = approve(world, &id, "--session --expires 1h --uses 5", b"y");
    let said = done.expect(0).text();
    assert!(said.contains(": allowed for this session\nstored as gr_"), "{said}");
    assert!(terminal.seen().contains("allow the same for the rest of the session"), "{}", terminal.seen());
    assert_eq!(end(&served, &session, first).state, CallState::Done);
    assert!(there(&served, "made"));
    assert_eq!(asked(&served, Method::ApprovalAnswer.name()), 1, "the daemon was asked");
    let decided = served.records("approval-decided");
    let by = &decided[0]["event"]["actor"];
    assert!(by["terminal"].as_str().unwrap().starts_with("/dev/pts/") && by["name"].is_string(), "{by}");
    let again = approvals(world, &["deny", &id]).expect(1);
    assert!(again.err.contains("it was answered before: session by"), "{}", again.err);
    for arguments in [&["list"][..], &["list", "--json"]] {
        let by_daemon = grants(world, arguments).expect(0).text();
        assert_eq!(by_daemon, directly(&served, || grants(world, arguments).expect(0).text()));
    }
    let listed = grants(world, &["list", "--json"]).expect(0).json();
    let grant = &listed["grants"][0];
    assert_eq!((&grant["max_uses"], &grant["uses_left"], &grant["uses"]), (&json!(5), &json!(4), &json!(1)));
    let ends: jiff::Timestamp = grant["expires_at"].as_str().unwrap().parse().unwrap();
    let left = ends.duration_since(jiff::Timestamp::now()).as_secs();
    assert!((3000..=3600).contains(&left), "{left}");
    grants(world, &["revoke", "gr_none"]).expect(125).says("no grant with id `gr_none`");
    let revoked = grants(world, &["revoke", grant["grant"].as_str().unwrap(), "--reason", "enough"]);
    assert!(revoked.expect(0).text().contains(": revoked"));
    assert_eq!(asked(&served, Method::GrantRevoke.name()), 2);
    assert_eq!(grants(world, &["revoke", "--all"]).expect(0).text(), "no active grants\n");
    assert_eq!(asked(&served, Method::GrantRevokeAll.name()), 1);
    assert_eq!(served.records("grant-revoked")[0]["event"]["reason"], "enough");
    // Always, for as long as the configuration says; and a no.
    let second = begin(&served, &session, &["mkdir", "more"]);
    let (_terminal, done) = approve(world, &one_waiting(world), "--always", b"y");
    let said = done.expect(0).text();
    assert!(said.contains("always allowed here") && said.contains("of the last"), "{said}");
    assert_eq!(end(&served, &session, second).state, CallState::Done);
    let made = served.records("grant-created");
    let ends: jiff::Timestamp =
        made.last().unwrap()["event"]["expires_at"].as_str().unwrap().parse().unwrap();
    let left = ends.duration_since(jiff::Timestamp::now()).as_hours();
    assert!((46..=48).contains(&left), "{left}");
    let third = begin(&served, &session, &["mkdir", "third"]);
    let denied = approvals(world, &["deny", &one_waiting(world), "--reason", "not today"]).expect(0).text();
    assert!(denied.contains(": denied"), "{denied}");
    let refused = end(&served, &session, third);
    assert!(refused.refusal.unwrap().message.contains("not today") && !there(&served, "third"));
    served.ringfence(&["ledger", "verify"]).expect(0);
}

/// What a session of the daemon can have more than a plain one.
fn sessions_with_more(served: &Served) -> [CreateSession; 4] {
    let wanted = || served.wanted();
    [
        CreateSession { secrets: vec!["tok".to_owned()], ..wanted() },
        CreateSession { agent_name: Some("other".to_owned()), ..wanted() },
        CreateSession { net: Some(NetMode::Filtered), ..wanted() },
        CreateSession { environment: BTreeMap::from([("TZ".to_owned(), "UTC".to_owned())]), ..wanted() },
    ]
}

/// An answer that the daemon stores is for a session like the one in which it was given.
#[test]
fn a_stored_answer_is_for_no_session_of_the_daemon_with_more() {
    let (served, plain) = served("");
    let world = &served.world;
    finish(world.ringfence().args(["secret", "set", "tok"]), b"a-value-of-some-letters-28x").expect(0);
    let asked = begin(&served, &plain, &["mkdir", "made"]);
    let (_terminal, done) = approve(world, &one_waiting(world), "--always", b"y");
    done.expect(0);
    assert_eq!(end(&served, &plain, asked).state, CallState::Done);
    let clear = || std::fs::remove_dir(world.workspace.join("made")).unwrap();
    let run = |wanted: CreateSession| {
        let session = served.client().call(&wanted).unwrap();
        let call = begin(&served, &session, &["mkdir", "made"]);
        eventually("it runs, or a question waits", || there(&served, "made") || !waiting(world).is_empty());
        for id in waiting(world) {
            approvals(world, &["deny", &id]).expect(0);
        }
        end(&served, &session, call);
        there(&served, "made")
    };
    clear();
    for wanted in sessions_with_more(&served) {
        let guarded = CreateSession { profile: Some(Profile::Guarded), ..wanted.clone() };
        assert!(!run(guarded), "without a question: {wanted:?}");
        assert!(run(wanted.clone()), "control: where nobody is asked about commands it runs: {wanted:?}");
        clear();
    }
    let like = CreateSession { profile: Some(Profile::Guarded), ..served.wanted() };
    assert!(run(like), "control: another session like the one of the answer");
}

/// Something else instead, on every transport; a no of the policy stays one.
#[test]
fn a_command_is_replaced_by_another_on_every_transport() {
    let (served, session) = served("");
    let world = &served.world;
    let (_, token) = token_with(&served, &["approve", "run"]);
    let mut talk = Talk::open(&served.socket, Some(&token)).unwrap();
    let speaker = Speaker::at(&served.socket, Some(&token));
    let replaced = |name: &str, answer: &mut dyn FnMut(&str)| {
        let call = begin(&served, &session, &["mkdir", &format!("not-{name}")]);
        answer(&one_waiting(world));
        let info = end(&served, &session, call);
        assert!(!there(&served, &format!("not-{name}")), "{name}");
        info
    };
    let info = replaced("cli", &mut |id| {
        let (terminal, done) = approve(world, id, "--replace -- mkdir -v cli", b"y");
        done.expect(0);
        assert!(terminal.seen().contains("run this instead, once: mkdir -v cli"), "{}", terminal.seen());
    });
    assert!(info.state == CallState::Done && there(&served, "cli"), "{info:?}");
    let info = replaced("ws", &mut |id| {
        let answer = |argv: Value| json!({ "id": id, "answer": { "replace": { "argv": argv } } });
        for nonsense in [json!([]), json!("mkdir"), Value::Null, json!([{ "base64": "%" }])] {
            let refused = talk.call("approval.answer", answer(nonsense)).unwrap_err();
            assert_eq!(code(&refused), ErrorCode::InvalidArgument, "{refused}");
        }
        let mut with_terms = answer(json!(["mkdir", "ws"]));
        with_terms["grant_terms"] = json!({ "max_uses": 1 });
        assert_eq!(code(&talk.call("approval.answer", with_terms).unwrap_err()), ErrorCode::InvalidArgument);
        let said = talk.call("approval.answer", answer(json!(["mkdir", { "base64": "d3M=" }]))).unwrap();
        assert_eq!(said, json!({ "result": "decided", "answer": "once" }));
    });
    assert!(info.state == CallState::Done && there(&served, "ws"), "{info:?}");
    let by_grpc = |id: &str, argv: &[&str]| {
        let answer = v1::AnswerApprovalRequest {
            id: id.to_owned(),
            answer: v1::Answer::Replace.into(),
            replacement: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
            ..Default::default()
        };
        speaker.wait(speaker.approvals().answer_approval(answer)).unwrap();
    };
    let info = replaced("grpc", &mut |id| by_grpc(id, &["mkdir", "grpc"]));
    assert!(info.state == CallState::Done && there(&served, "grpc"), "{info:?}");
    let info = replaced("deleted", &mut |id| by_grpc(id, &["rm", "-rf", "grpc"]));
    assert!(info.refusal.unwrap().rule.contains("deletion") && there(&served, "grpc"));
    let intents = served.records("call-intended");
    let argv: Vec<&Value> = intents.iter().map(|record| &record["event"]["call"]["argv"]).collect();
    assert_eq!(argv, [&json!(["mkdir", "-v", "cli"]), &json!(["mkdir", "ws"]), &json!(["mkdir", "grpc"])]);
}

/// Whoever may answer and run nothing does not say what runs instead: where policy asks about that they would say yes to
/// their own command. The control is the same answer with both scopes.
#[test]
fn what_runs_instead_takes_the_right_to_run() {
    let (served, session) = served("");
    let (_, answers) = token_with(&served, &["approve"]);
    let (_, both) = token_with(&served, &["approve", "run"]);
    let call = begin(&served, &session, &["mkdir", "asked"]);
    let id = one_waiting(&served.world);
    let answer = json!({ "id": id, "answer": { "replace": { "argv": ["sh", "-c", "mkdir own"] } } });
    let by_http = served.client_with(&answers).raw(Method::ApprovalAnswer, answer.clone());
    let Err(ringfence_client::ClientError::Api(refused)) = by_http else { panic!("{by_http:?}") };
    assert_eq!(refused.code, ErrorCode::Forbidden, "{refused:?}");
    assert!(refused.message.contains("`run`") && refused.hint.unwrap().contains("`run`"));
    let mut talk = Talk::open(&served.socket, Some(&answers)).unwrap();
    let refused = talk.call("approval.answer", answer.clone()).unwrap_err();
    assert!(code(&refused) == ErrorCode::Forbidden && refused.to_string().contains("`run`"), "{refused}");
    let speaker = Speaker::at(&served.socket, Some(&answers));
    let by_grpc = v1::AnswerApprovalRequest {
        id: id.clone(),
        answer: v1::Answer::Replace.into(),
        replacement: vec![b"mkdir".to_vec(), b"own".to_vec()],
        ..Default::default()
    };
    let refused = speaker.wait(speaker.approvals().answer_approval(by_grpc)).unwrap_err();
    assert!(reason(&refused) == ErrorCode::Forbidden && refused.message().contains("`run`"), "{refused}");
    assert!(served.records("approval-decided").is_empty() && served.records("call-intended").is_empty());
    let noted = served.records("authentication-attempted");
    let noes = noted.iter().filter(|record| record["event"]["refusal"]["message"].is_string());
    assert_eq!(noes.count(), 3, "each refusal is in the ledger");
    let said = served.client_with(&both).raw(Method::ApprovalAnswer, answer.clone()).unwrap();
    assert_eq!(said["answer"], "once");
    assert_eq!(end(&served, &session, call).state, CallState::Done);
    assert!(there(&served, "own") && !there(&served, "asked"));
}

/// Terms over WebSocket and gRPC: how long and how often an answer holds. What makes no sense gives nobody more.
#[test]
fn answers_with_terms_are_given_over_websocket_and_grpc() {
    let (served, session) = served("");
    let (_, token) = token_with(&served, &["approve"]);
    let mut talk = Talk::open(&served.socket, Some(&token)).unwrap();
    let speaker = Speaker::at(&served.socket, Some(&token));
    let first = begin(&served, &session, &["mkdir", "a"]);
    let id = one_waiting(&served.world);
    for terms in [
        json!({ "max_uses": 0 }),
        json!({ "expires_in_ms": 0 }),
        json!({ "expires_in_ms": u64::MAX }),
        json!({ "often": 1 }),
    ] {
        let answer = json!({ "id": id, "answer": "session", "grant_terms": terms });
        assert_eq!(
            code(&talk.call("approval.answer", answer).unwrap_err()),
            ErrorCode::InvalidArgument,
            "{terms}"
        );
    }
    assert!(served.records("approval-decided").is_empty());
    let answer =
        json!({ "id": id, "answer": "session", "grant_terms": { "max_uses": 2, "expires_in_ms": 600_000 } });
    let said = talk.call("approval.answer", answer).unwrap();
    assert_eq!((&said["grant"]["uses_left"], &said["grant"]["record"]["max_uses"]), (&json!(2), &json!(2)));
    assert_eq!(end(&served, &session, first).state, CallState::Done);
    std::fs::remove_dir(served.world.workspace.join("a")).unwrap();
    // The second use, without a question, and then it is asked about again.
    let second = begin(&served, &session, &["mkdir", "a"]);
    assert_eq!(end(&served, &session, second).state, CallState::Done);
    std::fs::remove_dir(served.world.workspace.join("a")).unwrap();
    let third = begin(&served, &session, &["mkdir", "a"]);
    let answer = v1::AnswerApprovalRequest {
        id: one_waiting(&served.world),
        answer: v1::Answer::AlwaysHere.into(),
        offer: Some(0),
        grant_terms: Some(v1::GrantTerms { expires_in_ms: Some(3_600_000), max_uses: Some(7) }),
        reason: Some("it may".to_owned()),
        ..Default::default()
    };
    let said = speaker.wait(speaker.approvals().answer_approval(answer)).unwrap().into_inner();
    let Some(v1::approval_result::Result::Decided(decided)) = said.result else { panic!("{said:?}") };
    let stored = decided.grant.unwrap();
    assert_eq!((decided.answer.as_str(), stored.uses_left), ("always-here", Some(7)));
    assert!(stored.would_have_matched.is_some_and(|matched| matched.total == 2), "{stored:?}");
    assert_eq!(end(&served, &session, third).state, CallState::Done);
    let listed =
        speaker.wait(speaker.approvals().list_grants(v1::ListGrantsRequest {})).unwrap().into_inner();
    assert_eq!(listed.grants.iter().map(|grant| &grant.id).collect::<Vec<_>>(), [&stored.id]);
    let over_socket = talk.call("grant.list", json!({})).unwrap();
    assert_eq!(over_socket["grants"][0]["record"]["max_uses"], 7);
    let revoke = v1::RevokeGrantRequest { id: stored.id.clone(), reason: None };
    let gone = speaker.wait(speaker.approvals().revoke_grant(revoke.clone())).unwrap().into_inner();
    assert_eq!(gone.grants, [stored.id]);
    let again = speaker.wait(speaker.approvals().revoke_grant(revoke)).unwrap_err();
    assert_eq!(reason(&again), ErrorCode::NotFound);
    let all = speaker.wait(speaker.approvals().revoke_all_grants(v1::RevokeAllGrantsRequest::default()));
    assert!(all.unwrap().into_inner().grants.is_empty());
}

/// Two people, by two transports. One person with two credentials is one.
#[test]
fn two_people_agree_by_different_transports() {
    let (served, session) = served("[approvals]\nquorum = { approve = 2, deny = 1 }\n");
    let world = &served.world;
    let mut add = world.ringfence();
    let password = ["correct", "horse", "battery"].join(" ");
    finish(add.args(["operator", "add", "ann", "--scope", "approve,run"]), password.as_bytes()).expect(0);
    let hers = served.ringfence(&["token", "create", "hers", "--scope", "approve,run", "--operator", "ann"]);
    let hers = hers.expect(0).text();
    let (_, own) = token_with(&served, &["approve"]);
    let call = begin(&served, &session, &["mkdir", "made"]);
    let id = one_waiting(world);
    let (_terminal, done) = approve(world, &id, "", b"y");
    assert_eq!(done.expect(0).text(), "vote counted: 1 of 2 approve, 0 of 1 deny\n");
    let mut same = Talk::open(&served.socket, Some(&own)).unwrap();
    let answer = json!({ "id": id, "answer": "once" });
    let refused = same.call("approval.answer", answer.clone()).unwrap_err();
    assert!(
        code(&refused) == ErrorCode::FailedPrecondition && refused.to_string().contains("another operator"),
        "{refused}"
    );
    let mut instead = answer.clone();
    instead["answer"] = json!({ "replace": { "argv": ["mkdir", "other"] } });
    let mut ann = Talk::open(&served.socket, Some(hers.trim_end())).unwrap();
    assert_eq!(code(&ann.call("approval.answer", instead).unwrap_err()), ErrorCode::InvalidArgument);
    assert!(!there(&served, "made"), "one is not enough");
    let shown = approvals(world, &["show", &id]).expect(0).text();
    assert!(shown.contains("voted        approve by ") && shown.contains("answered     not yet"), "{shown}");
    let speaker = Speaker::at(&served.socket, Some(&own));
    let get = v1::GetApprovalRequest { id: id.clone() };
    let question = speaker.wait(speaker.approvals().get_approval(get)).unwrap().into_inner();
    assert!(question.votes_json.len() == 1 && question.votes_json[0].contains("approve"), "{question:?}");
    assert_eq!(ann.call("approval.answer", answer).unwrap()["answer"], "once");
    assert_eq!(end(&served, &session, call).state, CallState::Done);
    assert!(there(&served, "made"));
    let votes = served.records("approval-voted");
    let voters: Vec<&Value> = votes.iter().map(|record| &record["event"]["actor"]["principal"]).collect();
    assert_eq!(voters, [&json!("operator"), &json!("account")]);
}

/// An answer after its time is none, on every transport.
#[test]
fn an_answer_that_comes_too_late_is_told_so_everywhere() {
    let (served, session) = served("[approvals]\ntimeout = \"1s\"\n");
    let call = begin(&served, &session, &["mkdir", "made"]);
    let refused = end(&served, &session, call).refusal.unwrap();
    assert!(refused.rule.starts_with("approval.expired"), "{refused:?}");
    let id = served.records("approval-requested")[0]["event"]["transaction"].as_str().unwrap().to_owned();
    let late = approvals(&served.world, &["deny", &id]).expect(1);
    assert!(late.err.contains("it was answered before: expired by ringfence"), "{}", late.err);
    let mut talk = Talk::open(&served.socket, None).unwrap();
    let late = talk.call("approval.answer", json!({ "id": id, "answer": "once" })).unwrap_err();
    assert!(code(&late) == ErrorCode::FailedPrecondition && late.to_string().contains("expired"), "{late}");
    let speaker = Speaker::at(&served.socket, None);
    let answer = v1::AnswerApprovalRequest { id, answer: v1::Answer::Once.into(), ..Default::default() };
    let late = speaker.wait(speaker.approvals().answer_approval(answer)).unwrap_err();
    assert_eq!(reason(&late), ErrorCode::FailedPrecondition);
    assert!(!there(&served, "made") && served.records("call-intended").is_empty());
}

/// `ringfence approvals watch --json`; ended with this.
struct Watch(Child);

impl Watch {
    fn new(world: &World) -> Self {
        let mut command = world.ringfence();
        command.args(["approvals", "watch", "--json"]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        mortal(&child);
        let directory = world.state.join("ringfence/approvals/watching");
        eventually("it watches", || std::fs::read_dir(&directory).is_ok_and(|mut all| all.next().is_some()));
        Self(child)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        crate::test_timeouts::end(&mut self.0);
    }
}

/// A question of somebody who lives on waits through the end of a daemon, of whoever watches over it, and of clients that go away.
#[test]
fn a_question_outlives_the_daemon_and_those_who_looked_at_it() {
    let (served, _session) = served("");
    let mut watch = Watch::new(&served.world);
    let mut command = served.world.ringfence();
    command.args(["run", "--json", "--profile", "guarded", "--", "mkdir", "made"]);
    let run = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = one_waiting(&served.world);
    let mut talk = Talk::open(&served.socket, None).unwrap();
    let questions = talk.call("approval.watch", json!({})).unwrap()["subscription"].clone();
    assert_eq!(talk.told(&questions, |question| question["id"] == id.as_str())["decision"], Value::Null);
    // Gone without a word, with the question on the screen.
    drop(talk);
    let served = posted(served.again(Signal::KILL));
    assert!(watch.0.try_wait().unwrap().is_none(), "who watches goes on without the daemon");
    assert_eq!(waiting(&served.world), [id.as_str()], "it still waits");
    let speaker = Speaker::at(&served.socket, None);
    let mut questions =
        speaker.wait(speaker.approvals().watch_approvals(v1::WatchApprovalsRequest {})).unwrap().into_inner();
    let question = speaker.find(&mut questions, |question| question.decision_json.is_none());
    assert_eq!(question.id, id);
    let answer = v1::AnswerApprovalRequest { id, answer: v1::Answer::Once.into(), ..Default::default() };
    speaker.wait(speaker.approvals().answer_approval(answer)).unwrap();
    collect(run).expect(0);
    assert!(there(&served, "made"));
}

/// Who may answer: scope `approve`, for this workspace, and never an agent. Nobody else learns that there is a question.
#[test]
fn only_who_may_answer_answers_or_knows_of_questions_and_stored_answers() {
    let (served, session) = served("");
    let here = served.world.workspace.to_str().unwrap();
    let elsewhere = served.world.beside("elsewhere");
    let limited = |directory: &str| {
        let made = ["token", "create", "t", "--scope", "approve", "--workspace", directory];
        served.ringfence(&made).expect(0).text().trim_end().to_owned()
    };
    let (inside, outside) = (limited(here), limited(elsewhere.to_str().unwrap()));
    let agent = token_of(&served, &served.session());
    let first = begin(&served, &session, &["mkdir", "made"]);
    let id = one_waiting(&served.world);
    let ask = |token: &str, method: Method, request: Value| {
        served.client_with(token).raw(method, request).map_err(|error| match error {
            ringfence_client::ClientError::Api(error) => error,
            other => panic!("{other:?}"),
        })
    };
    let answer = json!({ "id": id, "answer": "session", "grant_terms": { "max_uses": 3 } });
    let refused = ask(&outside, Method::ApprovalAnswer, answer.clone()).unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound, "{refused:?}");
    assert_eq!(ask(&outside, Method::ApprovalList, json!({})).unwrap()["approvals"], json!([]));
    let reader = minted(&served, ringfence_types::Scope::Run);
    let refused = ask(&reader, Method::ApprovalAnswer, answer.clone()).unwrap_err();
    assert!(refused.code == ErrorCode::Forbidden && refused.message.contains("`approve`"), "{refused:?}");
    for method in [Method::ApprovalAnswer, Method::GrantList, Method::GrantRevoke, Method::GrantRevokeAll] {
        let request = if method == Method::ApprovalAnswer { answer.clone() } else { json!({ "id": "gr_1" }) };
        let refused = ask(&agent, method, request).unwrap_err();
        assert_eq!(refused.rule.as_deref(), Some("method.operators-only"), "{}", method.name());
    }
    assert!(served.records("approval-decided").is_empty() && !there(&served, "made"));
    // The control: one for this workspace.
    let said = ask(&inside, Method::ApprovalAnswer, answer).unwrap();
    let grant = said["grant"]["id"].clone();
    assert_eq!(end(&served, &session, first).state, CallState::Done);
    assert_eq!(ask(&outside, Method::GrantList, json!({})).unwrap()["grants"], json!([]));
    let refused = ask(&outside, Method::GrantRevoke, json!({ "id": grant })).unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound);
    assert_eq!(ask(&outside, Method::GrantRevokeAll, json!({})).unwrap()["grants"], json!([]));
    assert!(served.records("grant-revoked").is_empty());
    assert_eq!(ask(&inside, Method::GrantRevokeAll, json!({})).unwrap()["grants"], json!([grant]));
}
