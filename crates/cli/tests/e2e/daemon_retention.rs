//! What the daemon keeps of calls and sessions: so much, no longer than it is needed, and nothing that is secret.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use ringfence_api::{
    CallState, CreateSession, CreateToken, ErrorCode, ExecRequest, ListCalls, ListDirectory, ListSessions,
    OutputChunk, SessionInfo, ShowCall, StreamCall, TerminalSize, TextOrBase64,
};
use ringfence_client::ClientError;
use ringfence_grpc::v1;
use ringfence_types::{AllOrOnly, Rights, Scope};
use serde_json::json;

use crate::daemon_fixture::{Served, exec, stdout};
use crate::daemon_load::resident_kb;
use crate::daemon_rights::minted;
use crate::daemon_socket::Talk;
use crate::grpc_client::Speaker;
use crate::mcp_http::{Tools, door};
use crate::test_timeouts::PATIENCE;
use crate::testkit::eventually;

const MIB: usize = 1024 * 1024;

fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> ringfence_api::ApiError {
    match answer {
        Err(ClientError::Api(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// A request for a file at the door of a session, of somebody who does not read the answer.
fn asked(door: &std::path::Path, token: &str, session: &SessionInfo) -> UnixStream {
    let mut stream = UnixStream::connect(door).unwrap();
    let (path, body) = (format!("/v1/sessions/{}/files/read", session.session), "{\"path\":\"long\"}");
    let head = format!("host: x\r\nauthorization: Bearer {token}\r\ncontent-length: {}", body.len());
    write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
    stream
}

/// The same on a WebSocket.
fn asked_on_a_socket(door: &std::path::Path, token: &str, session: &SessionInfo) -> Talk {
    let mut talk = Talk::open(door, Some(token)).unwrap();
    talk.send("file.read", json!({ "session": session.session, "path": "long" }));
    talk
}

/// S003-23: answers that nobody reads take a known part of memory; who asks for what is short does not wait for them.
#[test]
fn answers_that_nobody_reads_take_a_known_part_of_memory() {
    unread(asked);
}

/// S003-23: the same on WebSockets, where the room of an answer is not given back before it has gone.
#[test]
fn answers_on_sockets_that_nobody_reads_take_a_known_part_of_memory() {
    let (served, session) = unread(asked_on_a_socket);
    // The control: whoever reads gets it, in however many frames.
    let (door, token) = door(&served, &session);
    let mut talk = Talk::open(&door, Some(&token)).unwrap();
    let long = talk.call("file.read", json!({ "session": session.session, "path": "long" })).unwrap();
    assert_eq!(long["content"].as_str().map(str::len), Some(25 * MIB));
    assert!(talk.call("session.show", json!({ "session": session.session })).is_ok(), "it goes on");
}

fn unread<T>(asked: impl Fn(&std::path::Path, &str, &SessionInfo) -> T) -> (Served, SessionInfo) {
    const SILENT: usize = 24;
    let served = Served::new();
    served.world.write("long", "x".repeat(25 * MIB));
    served.world.write("short", "short");
    let session = served.session();
    let (door, token) = door(&served, &session);
    assert_eq!(stdout(&served.sh(&session, "cat short")), "short");
    let before = resident_kb(&served);
    let silent: Vec<T> = (0..SILENT).map(|_| asked(&door, &token, &session)).collect();
    let (mut most, mut last, mut still) = (0, 0, 0);
    // One answer has more, and while it is held the session's share has no room for the next.
    const ONE: u64 = 20 * 1024;
    eventually("they take up what they take up", || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let grown = resident_kb(&served).saturating_sub(before);
        still = if grown.abs_diff(last) > 1024 || grown < ONE { 0 } else { still + 1 };
        (most, last) = (grown.max(most), grown);
        still > 15
    });
    assert!(most < 320 * 1024, "{most} kB for {SILENT} that do not read");
    let read = json!({ "session": session.session, "path": "short" });
    let read: ringfence_api::ReadFile = serde_json::from_value(read).unwrap();
    let mut agent = ringfence_client::Client::connect(&door, Some(token)).unwrap();
    assert_eq!(agent.call(&read).unwrap().content, TextOrBase64::Text("short".to_owned()));
    drop(silent);
    // The control: alone it is read.
    let long = ringfence_api::ReadFile { path: "long".into(), ..read };
    eventually("there is room again", || agent.call(&long).is_ok_and(|file| file.bytes == 25 * MIB as u64));
    (served, session)
}

/// One token that reads nothing of what it asks for holds its own share; another token gets its answer meanwhile.
#[test]
fn a_token_that_reads_no_answer_leaves_memory_for_another() {
    // Without shares, those of the second wait behind all of the first, for longer than a request waits.
    const SILENT: usize = 48;
    let served = Served::new();
    served.world.write("long", "x".repeat(25 * MIB));
    let session = served.session();
    let greedy = minted(&served, Scope::Run);
    let other = minted(&served, Scope::Run);
    let read = json!({ "session": session.session, "path": "long" });
    let read: ringfence_api::ReadFile = serde_json::from_value(read).unwrap();
    let silent: Vec<UnixStream> = (0..SILENT).map(|_| asked(&served.socket, &greedy, &session)).collect();
    let before = resident_kb(&served);
    eventually("answers are made", || resident_kb(&served) > before.max(50 * 1024));
    for _ in 0..2 {
        let file = served.client_with(&other).call(&read).unwrap();
        assert_eq!(file.bytes, 25 * MIB as u64, "another token");
    }
    assert_eq!(served.client().call(&read).unwrap().bytes, 25 * MIB as u64, "the owner");
    drop(silent);
    // The control: the share of the first is given back.
    eventually("there is room again", || served.client_with(&greedy).call(&read).is_ok());
}

/// S003-23: a directory is listed as a whole or not at all, by whatever way.
#[test]
fn a_directory_with_too_much_in_it_is_not_listed() {
    const MOST: usize = 20_000;
    let served = Served::new();
    let directory = served.world.workspace.join("many");
    fs::create_dir(&directory).unwrap();
    (0..MOST).for_each(|number| drop(fs::File::create(directory.join(number.to_string())).unwrap()));
    let session = served.session();
    let list = ListDirectory { session: session.session.clone(), path: Some("many".into()) };
    assert_eq!(served.client().call(&list).unwrap().entries.len(), MOST, "the control");
    fs::File::create(directory.join("one-more")).unwrap();
    let told = refused(served.client().call(&list));
    assert_eq!((told.code, told.rule.as_deref()), (ErrorCode::TooLarge, Some("path.too-many")));
    assert!(told.hint.is_some_and(|hint| hint.contains("find")));
    let tools = Tools::at_the_door(&served, &session).greeted();
    let told = tools.call("list_dir", json!({ "path": "many" })).to_string();
    assert!(told.contains("path.too-many"), "{told:.500}");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), MOST + 1);
}

/// What a call printed can be read on after every number that was told.
#[test]
fn output_is_read_on_where_it_was_left() {
    let served = Served::new();
    let session = served.session();
    let script = "i=0; while [ $i -lt 20000 ]; do echo line-$i; i=$((i+1)); done; echo aside >&2; echo end";
    let background = ExecRequest { background: true, ..exec(&session, script) };
    let call = served.client().call(&background).unwrap().call;
    let wait = ShowCall { session: session.session.clone(), call, wait_ms: Some(60_000) };
    assert_eq!(served.client().call(&wait).unwrap().state, CallState::Done);
    let read = |after: u64| {
        let request = StreamCall { session: session.session.clone(), call, after };
        let mut client = served.client();
        client.output(&request).unwrap().map(Result::unwrap).collect::<Vec<OutputChunk>>()
    };
    let printed = |chunks: &[OutputChunk]| {
        let bytes = chunks.iter().filter_map(|chunk| match chunk {
            OutputChunk::Stdout { data, .. } => Some(data.clone().bytes().unwrap()),
            _ => None,
        });
        String::from_utf8(bytes.flatten().collect()).unwrap()
    };
    let all = read(0);
    let whole: String = (0..20_000).map(|number| format!("line-{number}\n")).collect();
    assert_eq!(printed(&all), format!("{whole}end\n"));
    assert!(matches!(all.last(), Some(OutputChunk::Ended { .. })));
    let Some(OutputChunk::Stdout { seq, data }) = all.first() else { panic!("{:?}", all.first()) };
    let first = String::from_utf8(data.clone().bytes().unwrap()).unwrap();
    assert!(first.len() <= 64 * 1024, "step by step");
    assert_eq!(first + &printed(&read(*seq)), printed(&all));
    assert!(matches!(read(u64::MAX).as_slice(), [OutputChunk::Ended { .. }]));
}

fn terminal(session: &SessionInfo, script: &str) -> ExecRequest {
    ExecRequest { terminal: Some(TerminalSize { rows: 24, columns: 80 }), ..exec(session, script) }
}

/// Calls that are over keep no descriptor and no terminal.
#[test]
fn calls_that_are_over_keep_nothing_open() {
    const CALLS: usize = 20;
    let served = Served::new();
    let session = served.session();
    let open = || fs::read_dir(format!("/proc/{}/fd", served.child.id())).unwrap().count();
    assert_eq!(served.client().call(&terminal(&session, "true")).unwrap().exit_code, Some(0));
    let before = open();
    for number in 0..CALLS {
        let call = terminal(&session, &format!(": {number}"));
        assert_eq!(served.client().call(&call).unwrap().exit_code, Some(0));
    }
    let calls = served.client().call(&ListCalls { session: session.session.clone() }).unwrap().calls;
    assert_eq!(calls.len(), CALLS + 1, "they are remembered");
    // Connections end a moment after their clients.
    eventually("nothing is left open", || open() < before + CALLS);
}

/// The output that is in the rest of an answer, if its end is.
fn output_of(answer: UnixStream) -> Option<String> {
    answer.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut printed = Vec::new();
    for line in BufReader::new(answer).lines().map_while(Result::ok).filter(|line| line.starts_with('{')) {
        match serde_json::from_str(&line).unwrap() {
            OutputChunk::Stdout { data, .. } => printed.extend(data.bytes().unwrap()),
            OutputChunk::Ended { .. } => return Some(String::from_utf8(printed).unwrap()),
            other => panic!("{other:?}"),
        }
    }
    None
}

/// Whoever does not read what a command prints does not keep its place when nothing runs any more, and has the rest of it when they do.
#[test]
fn a_command_that_nobody_listens_to_is_over_when_it_is() {
    let served = Served::new();
    let session = served.session();
    let mut stream = UnixStream::connect(&served.socket).unwrap();
    let body = json!({ "argv": ["seq", "100000000"], "timeout_ms": 500 }).to_string();
    let path = format!("/v1/sessions/{}/exec-stream", session.session);
    write!(stream, "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .unwrap();
    let calls = || served.client().call(&ListCalls { session: session.session.clone() }).unwrap().calls;
    eventually("it has begun", || calls().len() == 1);
    eventually("it is over", || calls().iter().all(|call| call.state == CallState::Done));
    assert_eq!(served.sessions()[0].running_calls, 0);
    let printed = output_of(stream).expect("the end is told");
    let lines: Vec<&str> = printed.split_inclusive('\n').filter(|line| line.ends_with('\n')).collect();
    let is_whole = lines.iter().zip(1..).all(|(line, number)| line.trim_end() == i32::to_string(&number));
    assert!(is_whole && printed.len() > 64 * 1024, "{} bytes", printed.len());
}

/// What is typed before a command reads is taken as a whole, or refused.
#[test]
fn the_beginning_of_what_a_terminal_reads_is_not_cut() {
    let served = Served::new();
    let session = served.session();
    let typed = |bytes: usize| Some(TextOrBase64::Text("x".repeat(bytes - 1) + "\n"));
    let long = ExecRequest { stdin: typed(200_000), ..terminal(&session, "wc -c") };
    assert_eq!(refused(served.client().call(&long)).code, ErrorCode::ResourceExhausted);
    let short =
        ExecRequest { stdin: typed(100), background: true, ..terminal(&session, "read line; echo ${#line}") };
    let call = served.client().call(&short).unwrap().call;
    let output = StreamCall { session: session.session.clone(), call, after: 0 };
    let mut client = served.client();
    let mut said = String::new();
    for chunk in client.output(&output).unwrap() {
        if let OutputChunk::Stdout { data, .. } = chunk.unwrap() {
            said.push_str(&String::from_utf8(data.bytes().unwrap()).unwrap());
        }
    }
    assert!(said.contains("99"), "{said:?}");
}

/// C-2: what the ledger does not keep is not shown to whoever may look either.
#[test]
fn a_secret_in_a_command_or_a_name_is_shown_to_nobody() {
    let served = Served::new();
    let secret = ["ghp", "_", "aB3dE5fG7hJ9kL2mN4", "pQ6rS8tU1vW0xY3zA5"].concat();
    let provider = ["sh", "-c", &format!(": {secret}; sleep 600")].map(str::to_owned).to_vec();
    let label = Some(format!("with {secret}"));
    let wanted = CreateSession { agent_argv: Some(provider), label, ..served.wanted() };
    served.client().call(&wanted).unwrap();
    let session = served.session();
    let call = served.client().call(&exec(&session, &format!("echo {secret}"))).unwrap().call;
    let rights = Rights { scopes: [Scope::Read].into_iter().collect(), workspaces: AllOrOnly::Any };
    let new = CreateToken { label: "t".to_owned(), rights, lifetime_s: Some(600), operator: None };
    let reader = served.client().call(&new).unwrap().secret;
    let mut reader = served.client_with(&reader);
    let id = || session.session.clone();
    let calls = json!(reader.call(&ListCalls { session: id() }).unwrap()).to_string();
    let shown = json!(reader.call(&ShowCall { session: id(), call, wait_ms: None }).unwrap()).to_string();
    let sessions = json!(reader.call(&ListSessions { include_ended: true }).unwrap()).to_string();
    let jobs = Tools::at_the_door(&served, &session).greeted().call("jobs", json!({ "action": "list" }));
    for told in [&calls, &shown, &sessions, &jobs.to_string()] {
        assert!(!told.contains(&secret) && told.contains("[redacted:"), "{told:.2000}");
    }
    let agent = CreateSession { agent_name: Some(secret.clone()), ..served.wanted() };
    assert_eq!(refused(served.client().call(&agent)).rule.as_deref(), Some("session.secret"));
    let ledger = json!(served.world.all_records()).to_string();
    assert!(!ledger.contains(&secret) && ledger.contains("session.secret"));
}

/// Names are short, and what is shown of a command is.
#[test]
fn what_is_kept_of_sessions_and_calls_for_lists_is_short() {
    let served = Served::new();
    let named = |length: usize| CreateSession { label: Some("ä".repeat(length)), ..served.wanted() };
    let told = refused(served.client().call(&named(257)));
    assert_eq!((told.code, told.hint.is_some()), (ErrorCode::InvalidArgument, true));
    let agent = CreateSession { agent_name: Some("a".repeat(257)), ..served.wanted() };
    assert_eq!(refused(served.client().call(&agent)).code, ErrorCode::InvalidArgument);
    let session = served.client().call(&named(256)).unwrap();
    let script = format!(": {}", "x".repeat(100_000));
    assert_eq!(served.sh(&session, &script).exit_code, Some(0));
    let calls = served.client().call(&ListCalls { session: session.session.clone() }).unwrap().calls;
    assert!(
        calls[0].summary.starts_with("sh -c : xxx") && calls[0].summary.len() < 1100,
        "{}",
        calls[0].summary.len()
    );
}

/// S003-23: a message of gRPC is weighed like JSON.
#[test]
fn half_a_million_words_are_no_message_of_grpc() {
    let served = Served::new();
    let session = served.session();
    let (door, token) = door(&served, &session);
    let speaker = Speaker::at(&door, Some(&token));
    let request = |words: usize| {
        let mut argv = vec!["touch".to_owned(), "touched".to_owned()];
        argv.resize(words, String::new());
        let command = v1::Command { session: session.session.to_string(), argv, ..v1::Command::default() };
        v1::ExecRequest { command: Some(command), background: false }
    };
    let before = resident_kb(&served);
    let told = speaker.wait(speaker.calls().exec(request(500_000)));
    assert!(told.unwrap_err().message().contains("values"));
    assert!(resident_kb(&served).saturating_sub(before) < 16 * 1024);
    assert!(served.world.read("touched").is_none());
    speaker.wait(speaker.calls().exec(request(2))).unwrap();
    assert!(served.world.read("touched").is_some(), "the control");
}
