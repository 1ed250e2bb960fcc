//! Traces and logs of the daemon: what leaves, what never does, and that no call waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::Arc;

use ringfence_api::{
    AnswerApproval, ApprovalReply, CallState, CreateSession, ExecRequest, FetchUrl, ListApprovals, ReadFile,
    ReadMetrics, SessionInfo, ShowCall, WriteFile,
};
use ringfence_client::Client;
use ringfence_grpc::v1;
use ringfence_types::{NetMode, Profile};
use ringfence_web::Certificate;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::approvals::configure;
use crate::collector::{Collector, Manner, Span, said};
use crate::daemon_fixture::{Served, exec, raw, stdout};
use crate::grpc_client::Speaker;
use crate::internet::Internet;
use crate::test_timeouts::{ended, joined, mortal};
use crate::testkit::{World, eventually, finish, send, variable};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn telemetry(collector: &Collector, more: &str) -> String {
    format!("[telemetry]\nendpoint = \"{}\"\n{more}", collector.endpoint())
}

fn serving(collector: &Collector, more: &str) -> Served {
    let world = World::new();
    configure(&world, &telemetry(collector, more));
    Served::with(world, &[])
}

/// Ends it, so that everything that could be sent was.
fn end(served: &mut Served) {
    send(&served.child, Signal::TERM);
    assert!(ended("the daemon, told to end", &mut served.child).success());
}

fn metric(served: &Served, name: &str) -> u64 {
    let text = served.client().call(&ReadMetrics {}).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

fn sent(served: &Served, signal: &str) -> u64 {
    metric(served, &format!("ringfence_telemetry_sent_total{{signal=\"{signal}\"}}"))
}

fn dropped(served: &Served, signal: &str, why: &str) -> u64 {
    metric(served, &format!("ringfence_telemetry_dropped_total{{signal=\"{signal}\",reason=\"{why}\"}}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn argv(words: &[&str], session: &SessionInfo) -> ExecRequest {
    ExecRequest { argv: words.iter().map(|word| (*word).to_owned()).collect(), ..exec(session, "") }
}

/// A call that is asked about, and a yes.
fn asked_and_approved(served: &Served, session: &SessionInfo) {
    let exec = ExecRequest { background: true, ..argv(&["mkdir", "made"], session) };
    let call = served.client().call(&exec).unwrap().call;
    let mut found = None;
    eventually("somebody asks", || {
        found = served.client().call(&ListApprovals {}).unwrap().approvals.into_iter().next();
        found.is_some()
    });
    let answer = AnswerApproval {
        id: found.unwrap().id,
        answer: ApprovalReply::Once,
        reason: None,
        grant_terms: None,
        accept_orphaned: false,
    };
    served.client().call(&answer).unwrap();
    let wait = ShowCall { session: session.session.clone(), call, wait_ms: Some(60_000) };
    assert_eq!(served.client().call(&wait).unwrap().exit_code, Some(0));
}

/// Everything that an attribute was called in a table of the documentation.
fn documented() -> BTreeSet<String> {
    let root = variable("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), std::path::PathBuf::from);
    let text = fs::read_to_string(root.join("../../docs/telemetry.md")).unwrap();
    let (_, rest) = text.split_once("<!-- begin: names -->\n").unwrap();
    let (table, _) = rest.split_once("<!-- end: names -->").unwrap();
    let names = table.lines().skip(2).map(|line| line.split('`').nth(1).unwrap().to_owned());
    names.collect()
}

/// The span that is called so, and says this about itself.
fn find<'s>(spans: &'s [Span], name: &str, (key, value): (&str, &str)) -> &'s Span {
    let fits = |span: &&Span| span.name == name && said(&span.attributes, key).as_deref() == Some(value);
    let mut found = spans.iter().filter(fits);
    let first = found.next().unwrap_or_else(|| panic!("no {name} with {key}={value} in {spans:#?}"));
    assert!(found.next().is_none(), "two of {name} with {key}={value}");
    first
}

fn parent<'s>(spans: &'s [Span], span: &Span) -> &'s Span {
    let found = spans.iter().find(|other| other.span_id == span.parent_span_id);
    let found = found.unwrap_or_else(|| panic!("no parent of {span:?}"));
    assert_eq!(found.trace_id, span.trace_id);
    found
}

fn stages(spans: &[Span], of: &Span) -> Vec<String> {
    let mut below: Vec<&Span> = spans.iter().filter(|span| span.parent_span_id == of.span_id).collect();
    below.sort_by_key(|span| span.start);
    for stage in &below {
        assert!(stage.trace_id == of.trace_id && stage.start >= of.start && stage.end <= of.end, "{stage:?}");
    }
    below.into_iter().map(|span| span.name.clone()).collect()
}

#[test]
fn spans_and_records_of_real_sessions_reach_the_collector() {
    let collector = Collector::new(Manner::Takes);
    let mut served = serving(
        &collector,
        "detail = \"events\"\nresource_attributes = \"deployment.environment.name=test\"\n",
    );
    let session = served.session();
    let guarded = CreateSession { profile: Some(Profile::Guarded), ..served.wanted() };
    let guarded = served.client().call(&guarded).unwrap();
    // Allowed, refused, asked about, a file.
    let body = json!({ "argv": ["sh", "-c", "exit 7"] }).to_string();
    let path = format!("/v1/sessions/{}/exec", session.session);
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\ntraceparent: 00-{TRACE}-{SPAN}-00\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(raw(&served.socket, request.as_bytes()).0, 200);
    let refused = served.client().call(&ReadFile { session: session.session.clone(), path: ".env".into() });
    assert!(refused.is_err());
    asked_and_approved(&served, &guarded);
    let write =
        WriteFile { session: session.session.clone(), path: "file".into(), content: b"x".to_vec().into() };
    served.client().call(&write).unwrap();
    let speaker = Speaker::at(&served.socket, None);
    let command = v1::Command {
        session: session.session.to_string(),
        argv: vec!["true".to_owned()],
        ..v1::Command::default()
    };
    let mut over_grpc = tonic::Request::new(v1::ExecRequest { command: Some(command), background: false });
    let other = format!("00-{}-{SPAN}-01", "c".repeat(32));
    over_grpc.metadata_mut().insert("traceparent", other.parse().unwrap());
    speaker.wait(speaker.calls().exec(over_grpc)).unwrap();
    drop(speaker);
    end(&mut served);

    let spans = collector.spans();
    let allowed = find(&spans, "execute_tool exec", ("process.exit.code", "7"));
    assert_eq!(stages(&spans, allowed), ["authenticate", "decide", "admit", "run", "settle"]);
    assert_eq!(said(&allowed.attributes, "ringfence.decision").as_deref(), Some("allow"));
    assert_eq!(said(&allowed.attributes, "gen_ai.operation.name").as_deref(), Some("execute_tool"));
    assert_eq!(said(&allowed.attributes, "session.id"), Some(session.session.to_string()));
    let request = parent(&spans, allowed);
    assert_eq!((request.name.as_str(), hex(&request.trace_id).as_str()), ("call.exec", TRACE));
    assert_eq!(hex(&request.parent_span_id), SPAN, "under the span of whoever asked");
    let over_grpc =
        spans.iter().find(|span| hex(&span.trace_id) == "c".repeat(32) && span.name == "call.exec");
    assert_eq!(hex(&over_grpc.unwrap().parent_span_id), SPAN);
    assert_eq!(stages(&spans, over_grpc.unwrap()), ["execute_tool exec"]);
    let no = find(&spans, "execute_tool read_file", ("ringfence.decision", "deny"));
    assert_eq!(stages(&spans, no), ["authenticate", "decide", "settle"]);
    assert_eq!(said(&no.attributes, "error.type").as_deref(), Some("refused"));
    let asked = find(&spans, "execute_tool exec", ("ringfence.decision", "ask"));
    assert_eq!(stages(&spans, asked), ["authenticate", "decide", "ask", "admit", "run", "settle"]);
    assert_eq!(parent(&spans, asked).name, "call.exec");
    let written = find(&spans, "execute_tool write_file", ("ringfence.decision", "allow"));
    assert_eq!(parent(&spans, written).name, "file.write");

    // Each event once, with its hash; those of a call with its span.
    let records = collector.records();
    let numbers: Vec<u64> = records
        .iter()
        .map(|record| said(&record.attributes, "ringfence.event.sequence").unwrap().parse().unwrap())
        .collect();
    let ledger = served.world.all_records();
    let ledger: BTreeMap<u64, &Value> =
        ledger.iter().map(|record| (record["seq"].as_u64().unwrap(), record)).collect();
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    assert_eq!(numbers, (first..=last).collect::<Vec<u64>>(), "each once, in order");
    for (number, record) in numbers.iter().zip(&records) {
        let event = ledger[number];
        assert_eq!(record.event_name, format!("ringfence.{}", event["event"]["kind"].as_str().unwrap()));
        assert_eq!(said(&record.attributes, "ringfence.event.hash").as_deref(), event["hash"].as_str());
    }
    let kinds: BTreeSet<&str> = records.iter().map(|record| record.event_name.as_str()).collect();
    let expected = "session-started call-intended call-settled call-refused approval-requested approval-decided session-ended";
    for kind in expected.split(' ') {
        assert!(kinds.contains(format!("ringfence.{kind}").as_str()), "{kind} of {kinds:?}");
    }
    let id = said(&asked.attributes, "gen_ai.tool.call.id").unwrap();
    let of_asked: Vec<_> = records
        .iter()
        .filter(|record| said(&record.attributes, "gen_ai.tool.call.id").as_deref() == Some(&id))
        .collect();
    assert!(of_asked.len() >= 4, "{of_asked:?}");
    for record in of_asked {
        assert_eq!((&record.trace_id, &record.span_id), (&asked.trace_id, &asked.span_id), "{record:?}");
    }

    let resources = collector.resources();
    assert_eq!(said(&resources, "deployment.environment.name").as_deref(), Some("test"));
    assert_eq!(said(&resources, "service.name").as_deref(), Some("ringfence"));
    let mut names: BTreeSet<String> =
        spans.iter().flat_map(|span| &span.attributes).map(|said| said.key.clone()).collect();
    names.extend(records.iter().flat_map(|record| &record.attributes).map(|said| said.key.clone()));
    names.extend(
        resources.iter().map(|said| said.key.clone()).filter(|key| key != "deployment.environment.name"),
    );
    let documented = documented();
    let unknown: Vec<&String> = names.difference(&documented).collect();
    assert!(unknown.is_empty(), "not in docs/telemetry.md: {unknown:?}");
}

/// Over a socket, because the network of that daemon is not ours.
#[test]
fn a_page_that_is_fetched_has_a_span() {
    let internet = Internet::new();
    let (runtime, place) = (internet.world.beside("r"), internet.world.beside("collector"));
    let collector = Collector::at(&place.join("s"));
    internet.operator(&format!(
        "net = \"filtered\"\n[[host]]\nallow = [\"web.test\"]\n[telemetry]\nendpoint = \"unix:{}\"\n",
        place.join("s").display()
    ));
    let socket = runtime.join("ringfence/daemon.sock");
    let mut command = internet.ringfence();
    command.env("XDG_RUNTIME_DIR", &runtime).arg("serve").stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    mortal(&child);
    eventually("the daemon answers", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let mut client = Client::connect(&socket, None).unwrap();
    let wanted: CreateSession =
        serde_json::from_value(json!({ "workspace": internet.world.workspace })).unwrap();
    let session = client.call(&CreateSession { net: Some(NetMode::Filtered), ..wanted }).unwrap();
    let fetch = |url: &str| FetchUrl { session: session.session.clone(), url: url.to_owned() };
    assert_eq!(client.call(&fetch("https://web.test/")).unwrap().status, 200);
    assert!(client.call(&fetch("https://other.test/")).is_err());
    client.call(&ringfence_api::Shutdown {}).unwrap();
    assert!(ended("the daemon", &mut child).success());
    let spans = collector.spans();
    let refused = find(&spans, "execute_tool fetch", ("error.type", "refused"));
    let fetched =
        spans.iter().find(|span| span.name == "execute_tool fetch" && span.span_id != refused.span_id);
    let fetched = fetched.unwrap();
    assert_eq!(said(&fetched.attributes, "error.type"), None);
    assert_eq!(stages(&spans, fetched), ["authenticate", "decide", "admit", "run", "settle"]);
    assert_eq!(parent(&spans, fetched).name, "call.fetch");
    collector.gets("call-settled");
}

/// B-A23: what is stored is nowhere in what leaves, wherever it was put; what is not secret is, where the ledger holds it.
#[test]
fn a_secret_is_nowhere_in_what_leaves() {
    let collector = Collector::new(Manner::Takes);
    let world = World::new();
    let stored = ["nobody", "knows", "this", "shape"].join("~");
    let later = ["stored", "while", "it", "runs"].join("+");
    let header = ["proves", "who", "is", "sending"].join("=");
    let shaped = format!("AKIA{}", "QZ7XK4MWNP2RJTVB");
    let keep = |name: &str, value: &str| {
        finish(world.ringfence().args(["secret", "set", name]), value.as_bytes()).expect(0);
    };
    keep("stored", &stored);
    keep("collector", &header);
    let more = "detail = \"events\"\n[telemetry.headers.authorization]\nprefix = \"Bearer\"\nsecret = \"collector\"\n\
         [leaks.stored_secrets]\narguments = \"flag\"\nfiles = \"flag\"\n";
    configure(&world, &telemetry(&collector, more));
    let mut served = Served::with(world, &[]);
    let rotated = ["another", "value", "by", "now"].join("^");
    finish(served.world.ringfence().args(["secret", "set", "later"]), later.as_bytes()).expect(0);
    let session = served.session();
    for (at, secret) in [&stored, &later, &shaped, &header].into_iter().enumerate() {
        let marker = format!("plain-marker-{at}");
        let mut client = served.client();
        let in_argv = format!("echo {secret} {marker}-argv");
        client.call(&exec(&session, &in_argv)).unwrap();
        let environment = [("TOLD".to_owned(), format!("{secret}/{marker}-env"))].into();
        let reason = Some(format!("because of {secret}"));
        client.call(&ExecRequest { environment, reason, ..exec(&session, "echo $TOLD") }).unwrap();
        let path = format!("{marker}-path-{secret}");
        // Whether it is done does not matter here.
        let content = format!("{secret} {marker}-content").into_bytes().into();
        let _done =
            client.call(&WriteFile { session: session.session.clone(), path: path.clone().into(), content });
        let _done = client.call(&ReadFile { session: session.session.clone(), path: path.into() });
        let report = ringfence_api::ReportActivity {
            session: session.session.clone(),
            activity: "thought".to_owned(),
            claim: format!("{secret} {marker}-report"),
        };
        client.call(&report).unwrap();
        let named = CreateSession { agent_name: Some(format!("{marker}-agent-{secret}")), ..served.wanted() };
        let _done = client.call(&named);
    }
    collector.gets("activity-reported");
    finish(served.world.ringfence().args(["secret", "rotate", "collector"]), rotated.as_bytes()).expect(0);
    served.sh(&session, "true");
    end(&mut served);
    for at in 0..4 {
        for place in ["argv", "env", "report"] {
            let marker = format!("plain-marker-{at}-{place}");
            assert!(collector.has(marker.as_bytes()), "the control: {marker}");
        }
        assert!(
            !collector.has(format!("plain-marker-{at}-content").as_bytes()),
            "the ledger has no contents"
        );
    }
    for secret in [&stored, &later, &shaped, &header, &rotated] {
        assert!(!collector.has(secret.as_bytes()), "{secret}");
        let encoded: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!collector.has(encoded.as_bytes()), "{secret} as hexadecimal");
    }
    let heads = collector.heads();
    assert!(heads[0].contains(&format!("authorization: Bearer {header}\r\n")), "{}", heads[0]);
    let last = &heads[heads.len() - 1];
    assert!(last.contains(&format!("authorization: Bearer {rotated}\r\n")), "rotated at once: {last}");
    for head in heads {
        assert!(![&stored, &later, &shaped].iter().any(|secret| head.contains(secret.as_str())), "{head}");
    }
}

#[test]
fn without_content_no_argument_and_no_path_leaves() {
    let collector = Collector::new(Manner::Takes);
    let mut served = serving(&collector, "");
    let session = served.session();
    served.sh(&session, "echo plain-marker > plain-marker");
    let hidden = ReadFile { session: session.session.clone(), path: ".env.other-marker".into() };
    assert!(served.client().call(&hidden).is_err());
    end(&mut served);
    assert!(
        served.world.all_records().iter().any(|record| record.to_string().contains("plain-marker")),
        "control"
    );
    assert!(!collector.has(b"plain-marker") && !collector.has(b"other-marker"));
    assert!(!collector.has(served.world.workspace.to_str().unwrap().as_bytes()));
    let settled =
        collector.records().into_iter().find(|record| record.event_name == "ringfence.call-settled").unwrap();
    assert_eq!(said(&settled.attributes, "process.exit.code").as_deref(), Some("0"));
    let refused =
        collector.records().into_iter().find(|record| record.event_name == "ringfence.call-refused").unwrap();
    assert!(said(&refused.attributes, "ringfence.rule").is_some(), "{refused:?}");
}

/// What an agent or a stranger says goes to no collector, however they are refused.
#[test]
fn nothing_that_somebody_calls_a_session_leaves() {
    let collector = Collector::new(Manner::Takes);
    let mut served = serving(&collector, "");
    let session = served.session();
    let marker = "plain-marker".repeat(50);
    let read = |session: Value| -> ReadFile {
        serde_json::from_value(json!({ "session": session, "path": "x" })).unwrap()
    };
    assert!(served.client().call(&read(json!(marker))).is_err());
    let mut stranger = Client::connect(&served.socket, Some("rf_api_unknown".to_owned())).unwrap();
    assert!(stranger.call(&read(json!(session.session))).is_err());
    assert!(served.client().call(&read(json!(session.session))).is_err());
    end(&mut served);
    assert!(!collector.has(b"plain-marker"));
    let spans = collector.spans();
    let reads: Vec<_> = spans.iter().filter(|span| span.name == "file.read").collect();
    let sessions: Vec<_> = reads.iter().map(|span| said(&span.attributes, "session.id")).collect();
    assert_eq!(
        sessions,
        [None, Some(session.session.to_string())],
        "those who are known, the control included"
    );
}

/// So many calls that not everything has a place.
fn many(served: &Served) {
    let session = served.session();
    let makes = |maker: u32| {
        let (mut client, session) = (served.client(), session.clone());
        std::thread::spawn(move || {
            for number in 0..8 {
                // None like another: that would be a loop.
                let done = client.call(&exec(&session, &format!("echo {maker}.{number}"))).unwrap();
                assert_eq!((done.state, stdout(&done)), (CallState::Done, format!("{maker}.{number}\n")));
            }
        })
    };
    let makers: Vec<_> = (0..4).map(makes).collect();
    makers.into_iter().for_each(|maker| joined("calls", maker));
}

/// Nobody at the port, nobody who answers, answers and heads without end: calls go on, what has no place is counted, and the daemon ends.
#[test]
fn a_collector_that_is_away_or_hostile_changes_nothing_for_calls() {
    // Each waits for what is told now and then.
    std::thread::scope(|scope| {
        for manner in [None, Some(Manner::Silent), Some(Manner::EndlessHead)] {
            scope.spawn(move || changes_nothing(manner));
        }
    });
}

fn changes_nothing(manner: Option<Manner>) {
    const FEW: &str = "queue_size = 16\ntimeout = \"300ms\"\n";
    let collector = Collector::new(manner.unwrap_or(Manner::Takes));
    let world = World::new();
    let port = if manner.is_some() { collector.port } else { 1 };
    configure(&world, &format!("[telemetry]\nendpoint = \"http://127.0.0.1:{port}\"\n{FEW}"));
    let mut served = Served::with(world, &[]);
    many(&served);
    eventually("what has no place is counted", || dropped(&served, "traces", "queue") > 0);
    assert_eq!((sent(&served, "traces"), sent(&served, "logs")), (0, 0), "{manner:?}");
    assert!(collector.answered() < 16 << 20, "{manner:?}: {} bytes were read", collector.answered());
    end(&mut served);
}

#[test]
fn an_answer_without_an_end_is_not_read_to_its_end() {
    let collector = Collector::new(Manner::Endless);
    let mut served = serving(&collector, "timeout = \"2s\"\n");
    many(&served);
    eventually("it counts as sent", || sent(&served, "traces") > 0 && sent(&served, "logs") > 0);
    let most = collector.connections() * (8 << 20);
    assert!(collector.answered() < most, "{} bytes were taken", collector.answered());
    end(&mut served);
}

/// 503, and then it takes everything: nothing is lost, nothing comes twice. 400: it is dropped, and counted. A redirect leads nowhere.
#[test]
fn what_may_come_again_does_and_what_may_not_is_dropped() {
    let collector = Collector::new(Manner::Later(2));
    let mut served = serving(&collector, "");
    let session = served.session();
    served.sh(&session, "true");
    collector.gets("call-settled");
    eventually("it is counted", || sent(&served, "traces") > 0 && sent(&served, "logs") > 0);
    for signal in ["traces", "logs"] {
        for why in ["queue", "refused", "unreachable", "withheld"] {
            assert_eq!(dropped(&served, signal, why), 0, "{signal} {why}");
        }
    }
    let numbers: Vec<_> = collector
        .records()
        .iter()
        .map(|record| said(&record.attributes, "ringfence.event.sequence"))
        .collect();
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len(), "none twice: {numbers:?}");
    collector.behave(Manner::Refuses);
    served.sh(&session, "true");
    eventually("it is dropped", || {
        dropped(&served, "logs", "refused") > 0 && dropped(&served, "traces", "refused") > 0
    });
    let other = Collector::new(Manner::Takes);
    collector.behave(Manner::Elsewhere(other.port));
    let before = dropped(&served, "logs", "refused");
    served.sh(&session, "true");
    eventually("it is dropped", || dropped(&served, "logs", "refused") > before);
    assert_eq!(other.connections(), 0, "nothing is followed");
    collector.behave(Manner::TakesButOne);
    let before = dropped(&served, "logs", "refused");
    served.sh(&session, "true");
    eventually("what it did not take is counted", || dropped(&served, "logs", "refused") > before);
    end(&mut served);
}

/// No telemetry by default.
#[test]
fn nothing_is_sent_unless_the_operator_says_so() {
    let collector = Collector::new(Manner::Takes);
    let world = World::new();
    let mut command = world.ringfence();
    // What others take their collector from.
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint()).env("OTEL_TRACES_EXPORTER", "otlp");
    let socket = world.beside("r").join("ringfence/daemon.sock");
    command.arg("serve").arg("--socket").arg(&socket).stdin(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    mortal(&child);
    let mut served = Served { world, child, socket };
    eventually("the daemon answers", || std::os::unix::net::UnixStream::connect(&served.socket).is_ok());
    let session = served.session();
    served.sh(&session, "true");
    assert_eq!((sent(&served, "traces"), sent(&served, "logs")), (0, 0));
    end(&mut served);
    assert_eq!(collector.connections(), 0);
}

fn config(world: &World, arguments: &[&str]) -> crate::testkit::Done {
    finish(world.ringfence().arg("config").args(arguments), b"")
}

/// Nothing is sent here: what is refused is refused when the file is read.
#[test]
fn in_the_clear_to_others_is_refused_with_what_to_write_instead() {
    let world = World::new();
    for wrong in ["http://192.0.2.1:4318", "http://collector.example.test:4318", "http://0.0.0.0:4318"] {
        configure(&world, &format!("[telemetry]\nendpoint = \"{wrong}\"\n"));
        let done = config(&world, &["check"]).expect(125).says("config.toml:2:12: ");
        assert!(done.err.contains("in the clear") && done.err.contains("https://"), "{}", done.err);
        let serve = finish(world.ringfence().args(["serve", "--socket", "s"]), b"").expect(125);
        assert!(serve.err.contains("in the clear"), "{}", serve.err);
    }
    for (wrong, says) in [
        ("endpoint = \"https://me:pass@x.test\"", "belongs in a header"),
        ("endpoint = \"collector:4318\"", "write `https://HOST:PORT`"),
        ("signals = \"traces\"", "nothing is sent without `endpoint`"),
        ("endpoint = \"http://127.0.0.1:1\"\nsignals = \"trace\"", "did you mean `traces`"),
        ("endpoint = \"http://127.0.0.1:1\"\ntimeout = \"1h\"", "write at most"),
        ("endpoint = \"http://127.0.0.1:1\"\nqueue_size = 1", "from 16 to 65536"),
        ("endpoint = \"http://127.0.0.1:1\"\nresource_attributes = \"x\"", "not a name with a value"),
        ("endpoint = \"http://127.0.0.1:1\"\n[telemetry.headers.host]\nsecret = \"x\"", "not yours to set"),
        (
            "endpoint = \"http://127.0.0.1:1\"\n[telemetry.headers.x]\nprefix = \"a\"",
            "a header without a value",
        ),
    ] {
        configure(&world, &format!("[telemetry]\n{wrong}\n"));
        config(&world, &["check"]).expect(125).says(says);
    }
    world.write(".ringfence/policy.toml", "[telemetry]\nendpoint = \"http://127.0.0.1:1\"\n");
    configure(&world, "");
    world.run(&[], &["true"]).expect(125).says("says nothing about `telemetry`");
}

#[test]
fn the_value_of_a_header_is_looked_for_and_never_shown() {
    let world = World::new();
    let value = ["correct", "horse", "battery"].join("+");
    let file = world.home.join("value");
    fs::write(&file, &value).unwrap();
    let with = |header: &str| {
        configure(
            &world,
            &format!("[telemetry]\nendpoint = \"http://127.0.0.1:1\"\n[telemetry.headers.x-key]\n{header}\n"),
        );
    };
    with("secret = \"absent\"");
    config(&world, &["check"]).expect(125).says("there is no secret `absent`");
    finish(world.ringfence().args(["serve", "--socket", "s"]), b"")
        .expect(125)
        .says("there is no secret `absent`");
    with("file = \"~/value\"");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    config(&world, &["check"]).expect(125).says("chmod 600");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    config(&world, &["check"]).expect(0);
    finish(world.ringfence().args(["secret", "set", "key", "--host", "api.example.test"]), value.as_bytes())
        .expect(0);
    with("secret = \"key\"");
    config(&world, &["check"]).expect(125).says("is for api.example.test, and not for the collector");
    with("file = \"~/value\"");
    for flags in [&["show"][..], &["show", "--json"]] {
        let shown = config(&world, flags).expect(0).text();
        assert!(shown.contains("x-key from file") && !shown.contains(&value), "{shown}");
    }
}

/// Applied at once, or not at all, and that is said.
#[test]
fn a_change_counts_at_once_or_is_refused() {
    let collector = Collector::new(Manner::Takes);
    let world = World::new();
    configure(&world, "");
    let mut served = Served::with(world, &[]);
    let session = served.session();
    let change = |text: &str, says: &str| {
        let before = served.records("policy-changed").len();
        configure(&served.world, text);
        eventually("it is looked at", || served.records("policy-changed").len() > before);
        let records = served.records("policy-changed");
        let said = records[records.len() - 1]["event"]["change"].as_str().unwrap().to_owned();
        assert!(said.contains(says), "{said}");
    };
    served.sh(&session, "true");
    assert_eq!(collector.connections(), 0);
    change(&telemetry(&collector, ""), "`[telemetry]` counts from now on");
    served.sh(&session, "true");
    collector.gets("call-settled");
    let missing = "[telemetry.headers.x]\nsecret = \"absent\"\n";
    change(&telemetry(&collector, missing), "`[telemetry]` is not taken, and what held before holds");
    // The record of the change may be there already: the two of the call are what is waited for.
    let before = collector.records().len();
    served.sh(&session, "true");
    eventually("it is still sent", || collector.records().len() > before + 1);
    let other = Collector::new(Manner::Takes);
    change(&telemetry(&other, ""), "`[telemetry]` counts from now on");
    served.sh(&session, "true");
    other.gets("call-settled");
    change("", "nothing more is sent");
    let settled = |collector: &Collector| {
        collector.records().iter().filter(|record| record.event_name == "ringfence.call-settled").count()
    };
    let (first, second) = (settled(&collector), settled(&other));
    assert!(first > 0 && second > 0, "control");
    served.sh(&session, "true");
    end(&mut served);
    assert_eq!((settled(&collector), settled(&other)), (first, second), "off is off");
    let numbers = |collector: &Collector| -> Vec<Option<String>> {
        collector
            .records()
            .iter()
            .map(|record| said(&record.attributes, "ringfence.event.sequence"))
            .collect()
    };
    let both = [numbers(&collector), numbers(&other)].concat();
    assert_eq!(both.iter().collect::<BTreeSet<_>>().len(), both.len(), "no event twice");
}

/// TLS with whoever the operator's authority vouches for, and with nobody else.
#[test]
fn a_collector_behind_tls_has_to_be_vouched_for() {
    let made = || Certificate::make(&["127.0.0.1".to_owned()], std::time::SystemTime::now()).unwrap();
    let (own, foreign) = (made(), made());
    let certificate = Certificate::parse(own.certificate.as_bytes(), own.key.as_bytes()).unwrap();
    let collector = Collector::behind(Arc::clone(&certificate.config()));
    for (authority, arrives) in [(&own, true), (&foreign, false)] {
        let world = World::new();
        let file = world.home.join("authority.pem");
        fs::write(&file, &authority.certificate).unwrap();
        let endpoint = format!("https://127.0.0.1:{}", collector.port);
        configure(
            &world,
            &format!("[telemetry]\nendpoint = \"{endpoint}\"\nca_file = \"~/authority.pem\"\n"),
        );
        let before = (collector.records().len(), collector.connections());
        let mut served = Served::with(world, &[]);
        let session = served.session();
        served.sh(&session, "true");
        end(&mut served);
        assert!(collector.connections() > before.1, "somebody came");
        assert_eq!(collector.records().len() > before.0, arrives, "arrives: {arrives}");
    }
}

/// What an agent says about the trace that it belongs to does not keep it from being told of.
#[test]
fn an_agent_cannot_keep_itself_out_of_the_traces() {
    let collector = Collector::new(Manner::Takes);
    let mut served = serving(&collector, "");
    let script = format!(
        "{}\ncurl -s -o answer --unix-socket \"$RINGFENCE_SESSION_SOCKET\" -H \"Authorization: Bearer $RINGFENCE_SESSION_TOKEN\" \
         -H 'traceparent: 00-{TRACE}-{SPAN}-00' -d '{{\"argv\":[\"sh\",\"-c\",\"exit 9\"]}}' \"http://door$S/exec\"; sleep 600",
        crate::daemon_fixture::ASK
    );
    let session = served.provider(&script);
    eventually("the agent has its answer", || {
        served.world.read("answer").is_some_and(|text| text.contains("exit_code"))
    });
    end(&mut served);
    let spans = collector.spans();
    let call = find(&spans, "execute_tool exec", ("process.exit.code", "9"));
    assert_eq!(said(&call.attributes, "session.id"), Some(session.session.to_string()));
    assert_eq!(hex(&parent(&spans, call).parent_span_id), SPAN);
}
