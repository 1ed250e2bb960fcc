//! gRPC at the daemon's socket: the same methods for the same people as over HTTP, in another form.

use std::time::Duration;

use prost::Message as _;
use ringfence_api::{ErrorCode, ListCalls, Method, MethodAccess, RevokeToken, ShowSession};
use ringfence_grpc::v1::{self, call_chunk::Chunk};
use ringfence_grpc::{Rpc, RpcStreaming};
use ringfence_types::{Scope, SessionId};
use serde_json::{Value, json};
use tonic::Code;
use tonic::codegen::tokio_stream;

use crate::approvals::configure;
use crate::daemon_fixture::Served;
use crate::daemon_rights::{minted, token_of};
use crate::daemon_socket::token_with;
use crate::grpc_client::{Speaker, info, reason};
use crate::testkit::{World, eventually, marker, processes_with};

fn command(session: &str, script: &str) -> Option<v1::Command> {
    let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
    Some(v1::Command { session: session.to_owned(), argv, ..Default::default() })
}

fn created(speaker: &Speaker, served: &Served) -> v1::Session {
    let workspace = served.world.workspace.to_str().unwrap().to_owned();
    let wanted = v1::CreateSessionRequest { workspace, ..Default::default() };
    speaker.wait(speaker.sessions().create_session(wanted)).unwrap().into_inner()
}

fn id(session: &str) -> SessionId {
    serde_json::from_value(json!(session)).unwrap()
}

fn report(session: &str, text: &str) -> v1::ReportActivityRequest {
    v1::ReportActivityRequest {
        session: session.to_owned(),
        activity: "tool".to_owned(),
        claim: text.to_owned(),
    }
}

/// Issue 7's flow, S000-53, S003-13, S003-36: create, run, a question that is approved, output as it comes, the result, the ledger.
#[test]
fn an_operator_over_grpc_creates_approves_and_sees_the_end() {
    let world = World::new();
    configure(&world, "[[command]]\nask = \"mkdir\"\nreason = \"directories are asked about\"\n");
    let served = Served::with(world, &[]);
    let (_, token) = token_with(&served, &["read", "run", "approve"]);
    let operator = Speaker::at(&served.socket, Some(&token));
    // Whoever makes a call does not answer for it.
    let (_, token) = token_with(&served, &["approve"]);
    let other = Speaker::at(&served.socket, Some(&token));
    let mut questions = operator
        .wait(operator.approvals().watch_approvals(v1::WatchApprovalsRequest {}))
        .unwrap()
        .into_inner();
    let watch = v1::WatchEventsRequest::default();
    let mut events = operator.wait(operator.activity().watch_events(watch)).unwrap().into_inner();
    let session = created(&operator, &served);
    assert_eq!(session.state(), v1::SessionState::Running);
    let script = "mkdir made && echo first; until [ -e go ]; do sleep 0.05; done; echo second >&2; exit 3";
    let run = v1::ExecStreamRequest { command: command(&session.session, script) };
    let mut output = operator.wait(operator.calls().exec_stream(run)).unwrap().into_inner();
    let question = operator.find(&mut questions, |question| question.decision_json.is_none());
    assert_eq!(question.session, session.session);
    assert!(question.request_json.contains("mkdir"), "{}", question.request_json);
    assert!(!served.world.workspace.join("made").exists(), "nothing is done before the answer");
    let answer = v1::AnswerApprovalRequest {
        id: question.id.clone(),
        answer: v1::Answer::Once.into(),
        ..Default::default()
    };
    let own = operator.wait(operator.approvals().answer_approval(answer.clone()));
    assert_eq!(own.unwrap_err().code(), Code::PermissionDenied);
    let answered = other.wait(other.approvals().answer_approval(answer.clone())).unwrap().into_inner();
    assert!(
        matches!(answered.result, Some(v1::approval_result::Result::Decided(ref decided)) if decided.answer == "once"),
        "{answered:?}"
    );
    let first = operator.next(&mut output).unwrap().unwrap();
    assert_eq!(first.chunk, Some(Chunk::Stdout(b"first\n".to_vec())), "told while it runs");
    served.world.write("go", "");
    let second = operator.next(&mut output).unwrap().unwrap();
    assert_eq!(second.chunk, Some(Chunk::Stderr(b"second\n".to_vec())));
    let Some(Chunk::Ended(call)) = operator.next(&mut output).unwrap().unwrap().chunk else {
        panic!("an end")
    };
    assert_eq!((call.state(), call.exit_code), (v1::CallState::Done, Some(3)));
    assert!(operator.next(&mut output).unwrap().is_none(), "a stream that came to its end ends well");
    assert!(served.world.workspace.join("made").is_dir());
    operator.find(&mut questions, |told| told.id == question.id && told.decision_json.is_some());
    let settled = operator.find(&mut events, |event| event.kind == "call-settled");
    assert_eq!(settled.session.as_ref(), Some(&session.session));
    for kind in ["approval-requested", "approval-decided", "call-intended", "call-settled"] {
        let of = |record: &Value| record["event"]["transaction"] == question.id;
        assert_eq!(served.records(kind).iter().filter(|record| of(record)).count(), 1, "{kind}");
    }
    let again = other.wait(other.approvals().answer_approval(answer)).unwrap_err();
    assert_eq!((again.code(), reason(&again)), (Code::FailedPrecondition, ErrorCode::FailedPrecondition));
    let stop = v1::StopSessionRequest { session: session.session.clone(), grace_ms: Some(0) };
    let stopped = operator.wait(operator.sessions().stop_session(stop)).unwrap().into_inner();
    assert_eq!(stopped.state(), v1::SessionState::Ended, "{stopped:?}");
    served.ringfence(&["ledger", "verify"]).expect(0);
}

/// A question that is answered with no refuses the call with the rule and the hint, and nothing is done.
#[test]
fn what_is_refused_over_grpc_says_why() {
    let world = World::new();
    configure(&world, "[[command]]\ndeny = \"mkdir\"\nreason = \"no directories\"\n");
    let served = Served::with(world, &[]);
    let speaker = Speaker::at(&served.socket, None);
    let session = created(&speaker, &served).session;
    let exec = |script| v1::ExecRequest { command: command(&session, script), background: false };
    let call = speaker.wait(speaker.calls().exec(exec("mkdir made"))).unwrap().into_inner();
    assert_eq!(call.state(), v1::CallState::Refused);
    let refusal = call.refusal.unwrap();
    assert!(refusal.message.contains("no directories"), "{refusal:?}");
    assert!(!refusal.rule.is_empty() && !served.world.workspace.join("made").exists());
    let fine = speaker.wait(speaker.calls().exec(exec("printf 'a\\377'"))).unwrap().into_inner();
    assert_eq!(fine.stdout, Some(b"a\xff".to_vec()), "bytes are bytes");
}

/// S000-50, S000-53, S000-54, S003-17: an agent with its own token against every method of operators; each refusal is written down once.
#[test]
fn an_agent_is_refused_every_management_method_over_grpc() {
    let served = Served::new();
    let session = served.session();
    let agent = Speaker::at(&served.socket, Some(&token_of(&served, &session)));
    for rpc in Rpc::ALL.iter().filter(|rpc| matches!(rpc.method.access(), MethodAccess::Operator(_))) {
        let written = || {
            let of = |record: &&Value| {
                record["event"]["purpose"] == rpc.method.name() && !record["event"]["refusal"].is_null()
            };
            served.records("authentication-attempted").iter().filter(of).count()
        };
        let before = written();
        let status = agent.refused(rpc, Vec::new());
        assert_eq!(
            (status.code(), reason(&status)),
            (Code::PermissionDenied, ErrorCode::Forbidden),
            "{}",
            rpc.path
        );
        assert_eq!(info(&status).metadata["rule"], "method.operators-only");
        assert_eq!(written(), before + 1, "{}", rpc.path);
    }
    // The control: the same bytes of the owner are not refused for who sends them. Who asks for nothing for a while is let go, so they come now.
    let owner = Speaker::at(&served.socket, None);
    let get = |id: &str| v1::GetApprovalRequest { id: id.to_owned() };
    let status = owner.wait(owner.approvals().get_approval(get("tx_0"))).unwrap_err();
    assert_ne!(status.code(), Code::PermissionDenied);
    assert!(
        owner.wait(owner.sessions().list_sessions(v1::ListSessionsRequest { include_ended: true })).is_ok()
    );
    // What is an agent's own is open to it, and nobody else's.
    let own = v1::GetSessionRequest { session: session.session.to_string() };
    let shown = agent.wait(agent.sessions().get_session(own)).unwrap().into_inner();
    assert_eq!(shown.session, session.session.to_string());
    let other = served.session().session.to_string();
    let status =
        agent.wait(agent.sessions().get_session(v1::GetSessionRequest { session: other })).unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
}

/// S003-17: every method over gRPC with a token of each scope, judged as the table says.
#[test]
fn every_scope_opens_over_grpc_what_the_table_says() {
    let served = Served::new();
    let session = served.session().session.to_string();
    for scope in Scope::ALL {
        let speaker = Speaker::at(&served.socket, Some(&minted(&served, *scope)));
        // What ends the daemon, or the token that it comes with, is tried apart.
        let ends = [Method::Shutdown, Method::Logout];
        let others = |rpc: &&Rpc| rpc.flow == RpcStreaming::Once && !ends.contains(&rpc.method);
        for rpc in Rpc::ALL.iter().filter(others) {
            let about = v1::GetSessionRequest { session: session.clone() }.encode_to_vec();
            let fits = rpc.read(&about).is_ok() && rpc.method != Method::SessionStop;
            let message = if fits { about } else { Vec::new() };
            let expected = match rpc.method.access() {
                MethodAccess::Operator(needs) | MethodAccess::Session(needs) => needs != *scope,
                MethodAccess::Anyone | MethodAccess::Known => false,
            };
            let answer = speaker.raw(rpc.path, message);
            let denied = answer.is_err_and(|status| reason(&status) == ErrorCode::Forbidden);
            assert_eq!(denied, expected, "{} with {scope}", rpc.path);
        }
    }
}

/// S003-15: who shows nothing or something wrong is nobody, also before anything they send is read.
#[test]
fn nobody_is_let_in_over_grpc_without_a_good_token() {
    let served = Served::new();
    let session = served.session();
    let stranger = Speaker::at(&served.socket, Some("rf_api_0_0"));
    for rpc in Rpc::ALL.iter().filter(|rpc| rpc.method.access() != MethodAccess::Anyone).take(3) {
        let status = stranger.refused(rpc, vec![0xff; 64 * 1024]);
        assert!(
            matches!(status.code(), Code::Unauthenticated | Code::ResourceExhausted),
            "{}: {status:?}",
            rpc.path
        );
    }
    // At the door of a session, from inside: without a token, and with it for its own and for a method of operators.
    let script = r#"
        call() { printf '\000\000\000\000\000' | curl -s --http2-prior-knowledge --unix-socket "$RINGFENCE_SESSION_SOCKET" \
          -H 'content-type: application/grpc' -H 'te: trailers' ${2:+-H "authorization: Bearer $2"} \
          --data-binary @- -D - -o answer "http://door/ringfence.v1.$1" | tr -d '\r' | sed -n 's/^grpc-status: //p'; }
        echo "nobody $(call DaemonService/WhoAmI)"
        echo "anyone $(call DaemonService/CheckHealth)"
        echo "agent $(call DaemonService/WhoAmI "$RINGFENCE_SESSION_TOKEN")"
        echo "manager $(call SessionService/ListSessions "$RINGFENCE_SESSION_TOKEN")"
    "#;
    let said = crate::daemon_fixture::stdout(&served.sh(&session, script));
    assert_eq!(said, "nobody 16\nanyone 0\nagent 0\nmanager 7\n");
}

/// S000-53: what an agent does comes as a stream; each report is let in by itself.
#[test]
fn an_agent_streams_its_activity_and_only_its_own() {
    let served = Served::new();
    let (session, other) = (served.session(), served.session());
    let token = token_of(&served, &session);
    let agent = Speaker::at(&served.socket, Some(&token));
    let own = session.session.to_string();
    let reports = vec![
        report(&own, "one"),
        report(&own, "two"),
        report(other.session.as_str(), "three"),
        report(&own, "four"),
    ];
    let stream = tokio_stream::iter(reports);
    let mut answers = agent.wait(agent.activity().stream_agent_activity(stream)).unwrap().into_inner();
    let first = agent.next(&mut answers).unwrap().unwrap().seq;
    let second = agent.next(&mut answers).unwrap().unwrap().seq;
    assert!(second > first);
    let status = agent.next(&mut answers).unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::PermissionDenied, ErrorCode::Forbidden));
    let said = served.records("activity-reported");
    assert_eq!(
        said.iter().map(|record| record["seq"].as_u64().unwrap()).collect::<Vec<_>>(),
        [first, second]
    );
    let third = agent.wait(agent.activity().report_activity(report(&own, "five"))).unwrap().into_inner();
    assert!(third.seq > second);
    // A stream in which nothing is said is cut when its token is.
    let mut silent =
        agent.wait(agent.activity().stream_agent_activity(tokio_stream::pending())).unwrap().into_inner();
    served
        .client()
        .call(&ringfence_api::StopSession { session: session.session, grace_ms: Some(0) })
        .unwrap();
    let status = agent.next(&mut silent).unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
}

/// S003-36: a stream of events goes on after the last one that was seen, and misses nothing.
#[test]
fn events_over_grpc_go_on_where_they_were() {
    let served = Served::new();
    let speaker = Speaker::at(&served.socket, None);
    let session = created(&speaker, &served).session;
    let numbers: Vec<u64> = (0..20)
        .map(|n| {
            speaker
                .wait(speaker.activity().report_activity(report(&session, &n.to_string())))
                .unwrap()
                .into_inner()
                .seq
        })
        .collect();
    let watch = |after: u64| {
        let another = Speaker::at(&served.socket, None);
        let watch = v1::WatchEventsRequest { after: Some(after), session: Some(session.clone()) };
        let mut events = another.wait(another.activity().watch_events(watch)).unwrap().into_inner();
        move || another.find(&mut events, |event| event.kind == "activity-reported")
    };
    let mut first = watch(numbers[0] - 1);
    let seen: Vec<u64> = (0..8).map(|_| first().seq).collect();
    assert_eq!(seen, numbers[..8]);
    drop(first);
    let mut second = watch(seen[7]);
    let event = second();
    assert_eq!(event.seq, numbers[8]);
    let whole: Value = serde_json::from_str(&event.event_json).unwrap();
    assert_eq!((&whole["kind"], &whole["claim"]), (&json!("activity-reported"), &json!("8")), "{whole}");
    assert_eq!((0..11).map(|_| second().seq).collect::<Vec<_>>(), numbers[9..]);
    let live =
        speaker.wait(speaker.activity().report_activity(report(&session, "live"))).unwrap().into_inner();
    assert_eq!(second().seq, live.seq);
}

/// S003-17: a token that is revoked is worth nothing at once, also for what it holds open.
#[test]
fn a_revoked_token_ends_its_streams_over_grpc() {
    let served = Served::new();
    let (id, token) = token_with(&served, &["read", "run"]);
    let speaker = Speaker::at(&served.socket, Some(&token));
    let session = created(&speaker, &served).session;
    let watch = v1::WatchEventsRequest { after: Some(0), session: None };
    let mut events = speaker.wait(speaker.activity().watch_events(watch)).unwrap().into_inner();
    let marker = marker(&served.world);
    let script = format!("echo on; while :; do sleep 0.05; done # {marker}");
    let run = v1::ExecStreamRequest { command: command(&session, &script) };
    let mut output = speaker.wait(speaker.calls().exec_stream(run)).unwrap().into_inner();
    assert!(speaker.next(&mut output).unwrap().is_some());
    assert!(!processes_with(&marker).is_empty(), "the control: it runs");
    served.client().call(&RevokeToken { id }).unwrap();
    for status in [
        loop {
            if let Err(status) = speaker.next(&mut events) {
                break status;
            }
        },
        speaker.next(&mut output).unwrap_err(),
        speaker.wait(speaker.daemon().who_am_i(v1::WhoAmIRequest {})).unwrap_err(),
    ] {
        assert_eq!((status.code(), reason(&status)), (Code::Unauthenticated, ErrorCode::Unauthenticated));
    }
    eventually("what it ran is ended", || processes_with(&marker).is_empty());
}

/// What a client waits for ends when its time is over, and when it goes away.
#[test]
fn what_nobody_waits_for_over_grpc_is_ended() {
    let served = Served::new();
    let speaker = Speaker::at(&served.socket, None);
    let session = created(&speaker, &served).session;
    let marker = marker(&served.world);
    let script = format!("echo on; while :; do sleep 0.05; done # {marker}");
    let mut exec =
        tonic::Request::new(v1::ExecRequest { command: command(&session, &script), background: false });
    exec.set_timeout(Duration::from_millis(400));
    let status = speaker.wait(speaker.calls().exec(exec)).unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::DeadlineExceeded, ErrorCode::DeadlineExceeded));
    eventually("what ran out of time is ended", || processes_with(&marker).is_empty());
    let mut run = tonic::Request::new(v1::ExecStreamRequest { command: command(&session, &script) });
    run.set_timeout(Duration::from_secs(100));
    let mut output = speaker.wait(speaker.calls().exec_stream(run)).unwrap().into_inner();
    assert!(speaker.next(&mut output).unwrap().is_some());
    assert!(!processes_with(&marker).is_empty(), "the control: it runs");
    drop((output, speaker));
    eventually("what was left is ended", || processes_with(&marker).is_empty());
}

/// A command that is given input, a signal and another size, and one that is ended.
#[test]
fn a_call_is_steered_over_grpc() {
    let served = Served::new();
    let speaker = Speaker::at(&served.socket, None);
    let session = created(&speaker, &served).session;
    let begin = |script: &str, terminal: Option<v1::TerminalSize>| {
        let command =
            command(&session, script).map(|command| v1::Command { interactive: true, terminal, ..command });
        let exec = v1::ExecRequest { command, background: true };
        speaker.wait(speaker.calls().exec(exec)).unwrap().into_inner().call
    };
    let ended = |call| {
        let wanted = v1::GetCallRequest { session: session.clone(), call, wait_ms: Some(100_000) };
        speaker.wait(speaker.calls().get_call(wanted)).unwrap().into_inner()
    };
    let text = |call| {
        let watch = v1::WatchOutputRequest { session: session.clone(), call, after: 0 };
        let mut output = speaker.wait(speaker.calls().watch_output(watch)).unwrap().into_inner();
        let mut text = Vec::new();
        while let Some(chunk) = speaker.next(&mut output).unwrap() {
            if let Some(Chunk::Stdout(bytes)) = chunk.chunk {
                text.extend(bytes);
            }
        }
        String::from_utf8(text).unwrap()
    };
    let reads = begin("cat", None);
    let input =
        v1::SendInputRequest { session: session.clone(), call: reads, data: b"said".to_vec(), close: true };
    speaker.wait(speaker.calls().send_input(input)).unwrap();
    assert_eq!((text(reads).as_str(), ended(reads).exit_code), ("said", Some(0)));
    let script = "trap 'echo heard; exit 7' USR1; touch ready; while :; do sleep 0.05; done";
    let waits = begin(script, None);
    eventually("it listens", || served.world.workspace.join("ready").exists());
    let signal = |signal| v1::SendSignalRequest { session: session.clone(), call: waits, signal };
    let status = speaker.wait(speaker.calls().send_signal(signal(0))).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "no signal is none");
    speaker.wait(speaker.calls().send_signal(signal(v1::Signal::Usr1.into()))).unwrap();
    assert_eq!((text(waits).as_str(), ended(waits).exit_code), ("heard\n", Some(7)));
    let script = "touch begun; until [ \"$(stty size)\" = '33 77' ]; do sleep 0.05; done";
    let sized = begin(script, Some(v1::TerminalSize { rows: 5, columns: 5 }));
    eventually("it has a terminal", || served.world.workspace.join("begun").exists());
    let size = Some(v1::TerminalSize { rows: 33, columns: 77 });
    let resize = v1::ResizeTerminalRequest { session: session.clone(), call: sized, size };
    speaker.wait(speaker.calls().resize_terminal(resize)).unwrap();
    assert_eq!(ended(sized).exit_code, Some(0));
    let endless = begin("while :; do sleep 0.05; done", None);
    let cancel = v1::CancelCallRequest { session: session.clone(), call: endless };
    speaker.wait(speaker.calls().cancel_call(cancel)).unwrap();
    assert_ne!(ended(endless).state(), v1::CallState::Running);
    let listed = speaker.wait(speaker.calls().list_calls(v1::ListCallsRequest { session: session.clone() }));
    let listed: Vec<(u64, String)> =
        listed.unwrap().into_inner().calls.into_iter().map(|call| (call.call, call.summary)).collect();
    let over_http = served.client().call(&ListCalls { session: id(&session) }).unwrap().calls;
    assert_eq!(listed, over_http.into_iter().map(|call| (call.call, call.summary)).collect::<Vec<_>>());
}

/// What is known of a session and of a caller is the same on both transports.
#[test]
fn what_is_told_over_grpc_is_what_is_told_over_http() {
    let served = Served::new();
    let speaker = Speaker::at(&served.socket, None);
    let told = created(&speaker, &served);
    let known = served.client().call(&ShowSession { session: id(&told.session) }).unwrap();
    let known = serde_json::to_value(known).unwrap();
    assert_eq!(json!(told.workspace), known["workspace"]);
    assert_eq!(json!(told.workspace_id), known["workspace_id"]);
    assert_eq!((json!(told.profile), json!(told.net)), (known["profile"].clone(), known["net"].clone()));
    assert_eq!(
        (json!(told.started_at), json!(told.created_by)),
        (known["started_at"].clone(), known["created_by"].clone())
    );
    assert_eq!(serde_json::from_str::<Value>(&told.limits_json).unwrap(), known["limits"]);
    let health = speaker.wait(speaker.daemon().check_health(v1::CheckHealthRequest {})).unwrap();
    assert!(health.metadata().get("x-request-id").is_some_and(|id| id.to_str().unwrap().starts_with("req_")));
    assert_eq!(health.into_inner().version, env!("CARGO_PKG_VERSION"));
    assert!(speaker.wait(speaker.daemon().check_ready(v1::CheckReadyRequest {})).unwrap().into_inner().ready);
    let own = speaker.wait(speaker.daemon().who_am_i(v1::WhoAmIRequest {})).unwrap().into_inner();
    let over_http = served.client().call(&ringfence_api::WhoAmI {}).unwrap();
    assert_eq!((own.name, own.kind), (over_http.name, over_http.kind));
    assert_eq!((own.scopes.len(), own.workspaces), (Scope::ALL.len(), None));
    let (_, few) = token_with(&served, &["read"]);
    let reader = Speaker::at(&served.socket, Some(&few));
    assert_eq!(
        reader.wait(reader.daemon().who_am_i(v1::WhoAmIRequest {})).unwrap().into_inner().scopes,
        ["read"]
    );
    speaker.wait(speaker.daemon().shutdown(v1::ShutdownRequest {})).unwrap();
    eventually("the daemon ends", || !served.socket.exists());
}
