//! `ringfence serve`: sessions, their doors, their calls and their ends.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Stdio;

use ringfence_api::{
    CallInput, CallSignal, CallState, CancelCall, CreateSession, ErrorCode, ExecRequest, ExecStreamRequest,
    ListCalls, Method, OutputChunk, ReadFile, ResizeCall, SessionState, ShowCall, ShowSession, SignalCall,
    StopSession, TerminalSize, TextOrBase64, WriteFile,
};
use ringfence_client::{Client, ClientError};
use ringfence_types::{NetMode, Profile};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::daemon_fixture::{ASK, Served, exec, raw, stdout};
use crate::test_timeouts::ended;
use crate::testkit::{World, collect, eventually, finish, is_root, marker, processes_with, send};

fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> ringfence_api::ApiError {
    match answer {
        Err(ClientError::Api(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// S000-29, S000-37, S000-53…56: the provider is inside, has its own door, and can do what a session can.
#[test]
fn a_provider_runs_inside_with_a_door_of_its_own() {
    let served = Served::new();
    let script = format!(
        r#"{ASK}
        pwd > where; env | grep ^RINGFENCE_ | sed 's/=.*//' | sort > variables
        ask POST $S/activity '{{"activity":"thinking","claim":"about it"}}' > reported
        ask POST $S/exec '{{"argv":["sh","-c","echo from inside > by-call"]}}' > called
        ask POST $S/files/write '{{"path":"by-tool","content":"written"}}' > wrote
        ask GET $S > shown
        "#
    );
    let session = served.provider(&script);
    eventually("the session ends with its provider", || {
        served.sessions().iter().all(|info| info.state == SessionState::Ended)
    });
    let info = served.client().call(&ShowSession { session: session.session.clone() }).unwrap();
    assert_eq!(info.agent_process.unwrap().exit_code, Some(0));
    assert_eq!(info.end_reason.as_deref(), Some("its provider ended"));
    let read = |name: &str| served.world.read(name).unwrap_or_default();
    assert_eq!(read("where").trim(), served.world.workspace.to_str().unwrap());
    for name in ["ID", "SOCKET", "TOKEN"] {
        assert!(read("variables").contains(&format!("RINGFENCE_SESSION_{name}\n")), "{}", read("variables"));
    }
    assert!(read("variables").contains("RINGFENCE_PROVIDER\n"));
    for name in ["reported", "called", "wrote", "shown"] {
        assert_eq!(read(name).trim(), "200", "{name}: {}", read("answer"));
    }
    assert_eq!((read("by-call").as_str(), read("by-tool").as_str()), ("from inside\n", "written"));
    let said = served.records("activity-reported");
    assert_eq!((said.len(), &said[0]["event"]["claim"]), (1, &json!("about it")));
    assert_eq!(served.records("session-ended").len(), 1);
}

/// S000-47, S000-50…52, S000-54, S000-56; D10: what an agent must not reach, with the same attempt from outside as control.
#[test]
fn an_agent_reaches_neither_the_daemon_nor_other_sessions() {
    let served = Served::new();
    let other = served.session();
    let state = served.world.state.join("ringfence");
    let inside = format!(
        r#"{ASK}
        for f in '{daemon}' '{ledger}' '{identity}'; do [ -e "$f" ] && echo "sees $f"; done
        curl -s --unix-socket '{daemon}' http://x/v1/sessions && echo reached
        ask POST /v1/sessions '{{"workspace":"/tmp"}}'
        ask POST $S/stop '{{}}'
        ask GET /v1/sessions
        ask GET /v1/sessions/{other}
        ask POST /v1/sessions/{other}/exec '{{"argv":["touch","crossed"]}}'
        ask GET /v1/approvals
        ask GET /v1/events
        ask POST /v1/shutdown '{{}}'
        true"#,
        daemon = served.socket.display(),
        ledger = state.join("ledger.db").display(),
        identity = state.join("identity").display(),
        other = other.session,
    );
    let own = served.session();
    let info = served.sh(&own, &inside);
    assert_eq!(stdout(&info), "403\n".repeat(8), "{info:?}");
    assert_eq!(served.world.read("crossed"), None);
    let refused = served.records("authentication-attempted");
    let refused: Vec<&Value> =
        refused.iter().filter(|record| !record["event"]["refusal"].is_null()).collect();
    assert_eq!(refused.len(), 8, "{refused:?}");
    // Control: the same from outside succeeds.
    let control = served
        .world
        .host("sh")
        .arg("-c")
        .arg(format!(
            "[ -e '{}' ] && curl -s -o /dev/null -w '%{{http_code}}' --unix-socket '{}' http://x/v1/sessions",
            state.join("ledger.db").display(),
            served.socket.display()
        ))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    assert_eq!(collect(control.unwrap()).text(), "200");
    assert_eq!(served.sessions().iter().filter(|info| info.state == SessionState::Running).count(), 2);
}

/// A session's token is worth nothing at another door, without one, or when its session is over.
#[test]
fn a_session_token_is_good_at_its_own_door_and_while_its_session_lasts() {
    let served = Served::new();
    let session = served.session();
    // Not printed: what looks like a credential does not leave.
    let info = served.sh(
        &session,
        "printf %s \"$RINGFENCE_SESSION_TOKEN\" | rev > token; printf %s \"$RINGFENCE_SESSION_SOCKET\"",
    );
    let door = stdout(&info);
    let token: String =
        served.world.read("token").unwrap().chars().rev().filter(|c| !c.is_whitespace()).collect();
    let show = ShowSession { session: session.session.clone() };
    let mut known = Client::connect(door.as_ref(), Some(token.clone())).unwrap();
    assert_eq!(known.call(&show).unwrap().session, session.session);
    let mut nobody = Client::connect(door.as_ref(), None).unwrap();
    assert_eq!(refused(nobody.call(&show)).code, ErrorCode::Unauthenticated);
    let other = served.session();
    let door_of_other = stdout(&served.sh(&other, "printf %s \"$RINGFENCE_SESSION_SOCKET\""));
    let mut stranger = Client::connect(door_of_other.as_ref(), Some(token.clone())).unwrap();
    assert_eq!(refused(stranger.call(&show)).code, ErrorCode::Forbidden);
    let mut at_management = served.client_with(&token);
    assert_eq!(refused(at_management.call(&served.wanted())).code, ErrorCode::Forbidden);
    served.client().call(&StopSession { session: session.session, grace_ms: None }).unwrap();
    let mut late = served.client_with(&token);
    assert_eq!(refused(late.call(&show)).code, ErrorCode::Unauthenticated);
    assert!(!std::path::Path::new(&door).exists(), "the door is gone with the session");
}

/// D1, B-A10: the socket is its owner's alone.
#[test]
fn the_socket_is_for_its_owner() {
    let served = Served::new();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&served.socket), 0o600);
    assert_eq!(mode(served.socket.parent().unwrap()), 0o700);
    let (status, _) = raw(&served.socket, b"GET /v1/whoami HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert_eq!(status, 200, "control");
    let (status, _) = raw(
        &served.socket,
        b"GET /v1/whoami HTTP/1.1\r\nhost: x\r\norigin: https://page\r\nconnection: close\r\n\r\n",
    );
    assert_eq!(status, 403, "of a web page");
    if is_root() {
        // What the test made is opened to everybody, so that only the kernel's word about the peer is left.
        let own = served.world.home.parent().unwrap();
        for path in served.socket.ancestors().take_while(|path| path.starts_with(own)) {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let mut other = served.world.host("setpriv");
        other.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "curl",
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
        ]);
        let done =
            finish(other.args(["--unix-socket", served.socket.to_str().unwrap(), "http://x/v1/whoami"]), b"");
        assert_eq!(done.text(), "401");
    }
}

/// S000-38, S000-46: everything of a session dies with it, also what does not want to.
#[test]
fn stopping_a_session_ends_everything_in_it() {
    let served = Served::new();
    let marker = marker(&served.world);
    let script = format!(
        "trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM; sleep 1000 # {marker}' & sleep 1000 # {marker}"
    );
    let session = served.provider(&script);
    eventually("it runs", || processes_with(&marker).len() >= 2);
    let info = served.client().call(&StopSession { session: session.session, grace_ms: Some(50) }).unwrap();
    assert_eq!(info.state, SessionState::Ended);
    assert_eq!(processes_with(&marker), Vec::<String>::new());
    assert_eq!(served.records("session-ended").len(), 1);
}

/// S000-39: what one session does to itself is nothing to another, nor to the daemon.
#[test]
fn a_crash_of_a_session_touches_no_other() {
    let served = Served::new();
    let (broken, sound) = (served.session(), served.session());
    // The leader of a command is killed by it, which ends the whole sandbox.
    let info = served.sh(&broken, "kill -9 $PPID; sleep 5");
    assert_ne!(info.state, CallState::Done, "{info:?}");
    assert_eq!(stdout(&served.sh(&sound, "echo sound")), "sound\n");
    assert_eq!(stdout(&served.sh(&broken, "echo again")), "again\n", "a new sandbox is made");
}

/// D5: a daemon that is killed takes its sessions along, and the next one writes down which.
#[test]
fn a_killed_daemon_takes_its_sessions_along() {
    let served = Served::new();
    let marker = marker(&served.world);
    let session = served.provider(&format!("sleep 1000 # {marker}"));
    let idle = served.session();
    eventually("it runs", || !processes_with(&marker).is_empty());
    let served = served.again(Signal::KILL);
    eventually("nothing of it is left", || processes_with(&marker).is_empty());
    // The socket is there before what was left is ended.
    for id in [&session.session, &idle.session] {
        let is_its = |record: &Value| record["event"]["session"] == json!(id);
        eventually("its end is written down", || served.records("session-ended").iter().any(is_its));
    }
    assert_eq!(served.records("call-interrupted").len(), 1, "the command of the provider");
    assert_eq!(served.sessions().len(), 0);
    served.world.ledger_tool(&["verify"]).expect(0);
    assert_eq!(stdout(&served.sh(&served.session(), "echo on")), "on\n");
}

/// Graceful: what runs may end, nothing new begins, and the sessions are over.
#[test]
fn sigterm_lets_calls_end_and_begins_none() {
    let mut served = Served::new();
    let session = served.session();
    let mut client = served.client();
    let slow = ExecRequest {
        background: true,
        ..exec(&session, "touch begun; while [ ! -e go ]; do sleep 0.02; done; touch done")
    };
    client.call(&slow).unwrap();
    eventually("it runs", || served.world.read("begun").is_some());
    let mut late = served.client();
    send(&served.child, Signal::TERM);
    eventually(
        "nothing new begins",
        || matches!(late.call(&served.wanted()), Err(ClientError::Api(error)) if error.code == ErrorCode::Unavailable),
    );
    served.world.write("go", "");
    assert!(ended("the daemon, told to end", &mut served.child).success());
    assert!(served.world.read("done").is_some());
    // One that was asked for just before has ended, too.
    assert_eq!(served.records("session-ended").len(), served.records("session-started").len());
    assert!(!served.socket.exists());
}

/// D9, B-A9: of many who come at once, exactly as many get in as there are places.
#[test]
fn quotas_hold_when_many_come_at_once() {
    let served = Served::with(World::new(), &["--max-sessions", "10"]);
    let made: usize = std::thread::scope(|scope| {
        let ask = || {
            let answer = served.client().call(&served.wanted());
            match answer {
                Ok(_) => 1,
                error => {
                    assert_eq!(refused(error).code, ErrorCode::ResourceExhausted);
                    0
                }
            }
        };
        let threads: Vec<_> = (0..100).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((made, served.sessions().len()), (10, 10));
}

/// S000-40: a session ends when its time is over, and when nothing is asked of it.
#[test]
fn sessions_end_with_their_time() {
    let served = Served::new();
    let timed = CreateSession { timeout_s: Some(1), ..served.wanted() };
    let idle = CreateSession { idle_timeout_s: Some(1), ..served.wanted() };
    for (wanted, why) in [(timed, "its time was over"), (idle, "nothing was asked of it for too long")] {
        let session = served.client().call(&wanted).unwrap();
        let show = ShowSession { session: session.session };
        eventually(why, || served.client().call(&show).unwrap().state == SessionState::Ended);
        assert_eq!(served.client().call(&show).unwrap().end_reason.as_deref(), Some(why));
    }
}

/// S000-40: when its time is over nothing of a session runs on, however it was started. The control is a session that does nothing
/// but run something in the background: that is no idleness.
#[test]
fn a_session_takes_what_runs_in_it_along_when_its_time_is_over() {
    let served = Served::new();
    let mark = marker(&served.world);
    let script = format!(
        "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.1; done # {mark}-kept' & wait # {mark}-own"
    );
    let provider = Some(["sh", "-c", &script].map(str::to_owned).to_vec());
    let busy = served.client().call(&CreateSession { idle_timeout_s: Some(1), ..served.wanted() }).unwrap();
    let job = ExecRequest { background: true, ..exec(&busy, &format!("sleep 600 # {mark}-job")) };
    served.client().call(&job).unwrap();
    let timed = CreateSession { agent_argv: provider, timeout_s: Some(1), ..served.wanted() };
    let timed = served.client().call(&timed).unwrap();
    let runs = |what: &str| !processes_with(&format!("{mark}-{what}")).is_empty();
    eventually("all of it runs", || runs("kept") && runs("own") && runs("job"));
    let show = ShowSession { session: timed.session };
    eventually("its time is over", || served.client().call(&show).unwrap().state == SessionState::Ended);
    assert!(!runs("kept") && !runs("own"), "{:?}", processes_with(&mark));
    assert_eq!(served.client().call(&show).unwrap().end_reason.as_deref(), Some("its time was over"));
    let show = ShowSession { session: busy.session };
    assert_eq!(served.client().call(&show).unwrap().state, SessionState::Running);
    assert!(runs("job"), "who works is not idle");
}

/// The ceiling of the operator and that of the parent; S000-31, S000-33.
#[test]
fn a_session_is_never_more_than_it_may_be() {
    let served = Served::new();
    let mut client = served.client();
    let danger = CreateSession { profile: Some(Profile::Danger), ..served.wanted() };
    assert_eq!(refused(client.call(&danger)).code, ErrorCode::Refused);
    let reserved = CreateSession {
        environment: [("RINGFENCE_SESSION_ID".to_owned(), "x".to_owned())].into(),
        ..served.wanted()
    };
    assert_eq!(refused(client.call(&reserved)).rule.as_deref(), Some("env.reserved"));
    let parent = client.call(&CreateSession { profile: Some(Profile::Guarded), ..served.wanted() }).unwrap();
    let wider = CreateSession {
        parent: Some(parent.session.clone()),
        profile: Some(Profile::Workspace),
        ..served.wanted()
    };
    assert_eq!(refused(client.call(&wider)).rule.as_deref(), Some("session.ceiling"));
    let open = CreateSession {
        parent: Some(parent.session.clone()),
        profile: Some(Profile::Guarded),
        net: Some(NetMode::Filtered),
        ..served.wanted()
    };
    assert_eq!(refused(client.call(&open)).rule.as_deref(), Some("session.ceiling"));
    let part = CreateSession {
        parent: Some(parent.session.clone()),
        profile: Some(Profile::Guarded),
        ..served.wanted()
    };
    let part = client.call(&part).unwrap();
    client.call(&StopSession { session: parent.session, grace_ms: None }).unwrap();
    let ended = client.call(&ShowSession { session: part.session }).unwrap();
    assert_eq!(
        (ended.state, ended.end_reason.as_deref()),
        (SessionState::Ended, Some("the parent session ended"))
    );
}

/// What a session was asked to have as variables, its commands have; what steers other programs is refused as ever.
#[test]
fn variables_of_a_session_are_judged() {
    let served = Served::new();
    let mut client = served.client();
    let with = |name: &str| CreateSession {
        environment: [(name.to_owned(), "there".to_owned())].into(),
        ..served.wanted()
    };
    let session = client.call(&with("COLOUR")).unwrap();
    assert_eq!(stdout(&served.sh(&session, "echo $COLOUR")), "there\n");
    let steered = client.call(&with("LD_PRELOAD")).unwrap();
    assert_eq!(served.sh(&steered, "echo $LD_PRELOAD").state, CallState::Refused);
}

#[test]
fn output_comes_as_it_is_printed_and_whole() {
    let served = Served::new();
    let session = served.session();
    let mut client = served.client();
    let script = "head -c 3000000 /dev/zero | tr '\\0' x; echo aside >&2; exit 5";
    let (mut bytes, mut aside, mut code) = (0, Vec::new(), None);
    for chunk in client.run(&ExecStreamRequest(exec(&session, script))).unwrap() {
        match chunk.unwrap() {
            OutputChunk::Stdout { data, .. } => bytes += data.bytes().unwrap().len(),
            OutputChunk::Stderr { data, .. } => aside.extend(data.bytes().unwrap()),
            OutputChunk::Ended { call, .. } => code = call.exit_code,
            OutputChunk::Dropped { .. } | OutputChunk::Closed { .. } => panic!("nothing is lost of a stream"),
        }
    }
    assert_eq!((bytes, aside.as_slice(), code), (3_000_000, &b"aside\n"[..], Some(5)));
}

/// Whoever does not read holds the command up, and whoever goes away ends it.
#[test]
fn a_stream_that_nobody_reads_stands_still_and_ends_with_its_reader() {
    let served = Served::new();
    let session = served.session();
    let marker = marker(&served.world);
    let script = format!("while :; do head -c 100000 /dev/zero; echo x >> rounds; done # {marker}");
    let mut client = served.client();
    let mut stream = client.run(&ExecStreamRequest(exec(&session, &script))).unwrap();
    stream.next().unwrap().unwrap();
    let rounds = || served.world.read("rounds").unwrap_or_default().len();
    let mut before = 0;
    eventually("it stands still", || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let still = rounds() == before && before > 0;
        before = rounds();
        still
    });
    assert!(before < 400, "{before} rounds are more than pipes and channels hold");
    drop(stream);
    drop(client);
    eventually("it ends", || processes_with(&marker).is_empty());
}

#[test]
fn calls_in_the_background_take_input_and_signals() {
    let served = Served::new();
    let session = served.session();
    let mut client = served.client();
    let id = || session.session.clone();
    let asked = ExecRequest {
        background: true,
        interactive: true,
        ..exec(&session, "read a; echo got $a; read b; echo end")
    };
    let call = client.call(&asked).unwrap().call;
    let data = TextOrBase64::Text("first\n".to_owned());
    client.call(&CallInput { session: id(), call, data, close: false }).unwrap();
    client.call(&CallInput { session: id(), call, data: TextOrBase64::default(), close: true }).unwrap();
    let done = client.call(&ShowCall { session: id(), call, wait_ms: Some(60_000) }).unwrap();
    assert_eq!((done.state, done.exit_code), (CallState::Done, Some(0)));
    let printed: Vec<u8> = client
        .output(&ringfence_api::StreamCall { session: id(), call, after: 0 })
        .unwrap()
        .filter_map(|chunk| match chunk.unwrap() {
            OutputChunk::Stdout { data, .. } => Some(data.bytes().unwrap()),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(String::from_utf8(printed).unwrap(), "got first\nend\n");
    let script = "trap 'echo usr >> signals' USR1; trap 'echo term >> signals; exit 9' TERM; touch ready; while :; do sleep 0.02; done";
    let call = client.call(&ExecRequest { background: true, ..exec(&session, script) }).unwrap().call;
    eventually("it runs", || served.world.read("ready").is_some());
    client.call(&SignalCall { session: id(), call, signal: CallSignal::Usr1 }).unwrap();
    eventually("the first signal", || served.world.read("signals").is_some());
    client.call(&CancelCall { session: id(), call }).unwrap();
    let done = client.call(&ShowCall { session: id(), call, wait_ms: Some(60_000) }).unwrap();
    assert_eq!((done.exit_code, served.world.read("signals").as_deref()), (Some(9), Some("usr\nterm\n")));
    assert_eq!(client.call(&ListCalls { session: id() }).unwrap().calls.len(), 2);
}

#[test]
fn a_call_can_have_a_terminal() {
    let served = Served::new();
    let session = served.session();
    let mut client = served.client();
    let id = || session.session.clone();
    let terminal = Some(TerminalSize { rows: 30, columns: 90 });
    let script = "trap 'stty size > resized' WINCH; test -t 0 && test -t 1 && stty size > size; \
                  while [ ! -e resized ]; do sleep 0.05; done; read line; echo \"<$line>\" > typed";
    let call =
        client.call(&ExecRequest { background: true, terminal, ..exec(&session, script) }).unwrap().call;
    eventually("it has a size", || served.world.read("size").as_deref() == Some("30 90\n"));
    let size = TerminalSize { rows: 40, columns: 100 };
    client.call(&ResizeCall { session: id(), call, size }).unwrap();
    eventually("it has another size", || served.world.read("resized").as_deref() == Some("40 100\n"));
    client
        .call(&CallInput {
            session: id(),
            call,
            data: TextOrBase64::Text("hello\r".to_owned()),
            close: false,
        })
        .unwrap();
    let done = client.call(&ShowCall { session: id(), call, wait_ms: Some(60_000) }).unwrap();
    assert_eq!(done.exit_code, Some(0), "{done:?}");
    assert_eq!(served.world.read("typed").as_deref(), Some("<hello>\n"));
}

#[test]
fn a_call_has_its_own_time() {
    let served = Served::new();
    let session = served.session();
    let info =
        served.client().call(&ExecRequest { timeout_ms: Some(200), ..exec(&session, "sleep 1000") }).unwrap();
    assert_eq!(info.exit_code, Some(124), "{info:?}");
    assert_eq!(stdout(&served.sh(&session, "echo on")), "on\n");
}

/// S000-44: the file methods are judged like everything else.
#[test]
fn files_are_read_and_written_by_the_rules() {
    let served = Served::new();
    served.world.write(".env", "KEY=value");
    let session = served.session();
    let mut client = served.client();
    let id = || session.session.clone();
    let content = TextOrBase64::Base64 { base64: "AP8B".to_owned() };
    client.call(&WriteFile { session: id(), path: "raw".into(), content }).unwrap();
    assert_eq!(fs::read(served.world.workspace.join("raw")).unwrap(), [0, 255, 1]);
    let read = client.call(&ReadFile { session: id(), path: "raw".into() }).unwrap();
    assert_eq!(read.content.bytes().unwrap(), [0, 255, 1]);
    let outside = served.world.beside("out").join("side");
    fs::write(&outside, "out").unwrap();
    for path in [".env".into(), outside.clone(), "../out/side".into()] {
        assert_eq!(refused(client.call(&ReadFile { session: id(), path })).code, ErrorCode::Refused);
    }
    let content = TextOrBase64::Text("changed".to_owned());
    assert_eq!(
        refused(client.call(&WriteFile { session: id(), path: outside.clone(), content })).code,
        ErrorCode::Refused
    );
    assert_eq!(fs::read_to_string(outside).unwrap(), "out");
    let large = TextOrBase64::Text("x".repeat(26 * 1024 * 1024));
    assert_eq!(
        refused(client.call(&WriteFile { session: id(), path: "large".into(), content: large })).code,
        ErrorCode::TooLarge
    );
    let list = client.call(&ringfence_api::ListDirectory { session: id(), path: None }).unwrap();
    assert!(list.entries.iter().any(|entry| entry.name == TextOrBase64::Text("raw".to_owned())), "{list:?}");
}

#[test]
fn what_would_happen_can_be_asked_without_doing_it() {
    let served = Served::new();
    let session =
        served.client().call(&CreateSession { profile: Some(Profile::Guarded), ..served.wanted() }).unwrap();
    let records = served.world.records().len();
    for (subject, decision) in [
        (json!({ "argv": ["git", "status"] }), "allow"),
        (json!({ "shell": "mkdir made" }), "ask"),
        (json!({ "read": ".env" }), "deny"),
    ] {
        let request = json!({ "session": session.session, "subject": subject });
        let told = served.client().raw(Method::PolicyExplain, request).unwrap();
        assert_eq!(told["decision"], decision, "{told}");
    }
    assert_eq!(served.world.records().len(), records);
}

/// Two calls of one session at once: one sandbox, one /tmp.
#[test]
fn calls_of_a_session_run_at_once_in_one_sandbox() {
    let served = Served::new();
    let session = served.session();
    let waits = ExecRequest {
        background: true,
        ..exec(&session, "while [ ! -e /tmp/bell ]; do sleep 0.02; done; cat /tmp/bell > heard")
    };
    let call = served.client().call(&waits).unwrap().call;
    served.sh(&session, "echo rung > /tmp/bell");
    let show = ShowCall { session: session.session, call, wait_ms: Some(60_000) };
    assert_eq!(served.client().call(&show).unwrap().exit_code, Some(0));
    assert_eq!(served.world.read("heard").as_deref(), Some("rung\n"));
}

#[test]
fn a_second_daemon_and_a_bad_place_are_refused() {
    let served = Served::new();
    served.ringfence(&["serve"]).expect(125).says("another daemon serves");
    served.ringfence(&["serve", "--check"]).expect(0);
    fs::set_permissions(served.socket.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
    served.ringfence(&["serve", "--check"]).expect(125).says("other users may write to it");
    served.world.write("config.toml", "nonsense = 1\n");
    let policy = served.world.workspace.join("config.toml");
    let place = served.world.beside("e").join("s");
    let flags =
        ["serve", "--check", "--socket", place.to_str().unwrap(), "--policy", policy.to_str().unwrap()];
    assert_ne!(served.ringfence(&flags).code, Some(0));
}

/// A socket that was handed over is served as it is.
#[test]
fn a_socket_that_was_handed_over_is_served() {
    let world = World::new();
    let socket = world.beside("h").join("s");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = world.host("sh");
    command.env("XDG_RUNTIME_DIR", world.beside("r"));
    // The shell puts the socket at descriptor 3 and keeps its number for what it becomes.
    command.args([
        "-c",
        "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$RINGFENCE\" serve 2>/dev/null",
    ]);
    let listener: std::os::fd::OwnedFd = listener.into();
    let mut child = command.stdin(Stdio::from(listener)).spawn().unwrap();
    // It holds the socket, too: whoever asks would wait for an answer when the daemon has ended.
    drop(command);
    let request = b"GET /v1/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert_eq!(raw(&socket, request).0, 200);
    send(&child, Signal::TERM);
    assert!(ended("the daemon, told to end", &mut child).success());
}

/// The command line is a client.
#[test]
fn the_command_line_talks_to_the_daemon() {
    let served = Served::new();
    let id = served.ringfence(&["session", "create", "--label", "mine"]).expect(0).text().trim().to_owned();
    let printed = |arguments: &[&str], code: i32| served.ringfence(arguments).expect(code).text();
    assert!(printed(&["session", "list"], 0).contains(&id));
    assert_eq!(printed(&["session", "run", &id, "--", "sh", "-c", "echo hello; exit 3"], 3), "hello\n");
    assert!(printed(&["session", "show", &id, "--json"], 0).contains("\"state\":\"running\""));
    assert!(printed(&["session", "stop", &id], 0).contains("an operator ended it"));
    served.ringfence(&["session", "run", &id, "--", "true"]).expect(125).says("there is no session");
}

/// A size that is said before the terminal inside is there counts as well.
#[test]
fn a_terminal_has_the_last_size_that_was_said_however_early() {
    let served = Served::new();
    let session = served.session();
    let mut client = served.client();
    for round in 0..20 {
        // Each another: the same again and again is a loop.
        let script = format!("until [ \"$(stty size)\" = '33 77' ]; do sleep 0.02; done; : {round}");
        let terminal = Some(TerminalSize { rows: 5, columns: 5 });
        let exec =
            ExecRequest { background: true, terminal, timeout_ms: Some(30_000), ..exec(&session, &script) };
        let call = client.call(&exec).unwrap().call;
        let size = TerminalSize { rows: 33, columns: 77 };
        client.call(&ResizeCall { session: session.session.clone(), call, size }).unwrap();
        let show = ShowCall { session: session.session.clone(), call, wait_ms: Some(60_000) };
        assert_eq!(client.call(&show).unwrap().exit_code, Some(0), "{round}");
    }
}
