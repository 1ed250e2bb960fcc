//! Much at once, and what must not happen then: nothing is lost, mixed up or left over. `cargo xtask bench --only daemon` does the
//! same in larger numbers.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_api::{
    CallState, CheckHealth, CheckReady, ErrorCode, ListCalls, Method, SessionInfo, SessionState, ShowSession,
    StopSession,
};
use ringfence_client::ClientError;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process};
use serde_json::json;

use crate::daemon_fixture::{Served, exec, stdout};
use crate::test_timeouts::{PATIENCE, Patient, ended};
use crate::testkit::{eventually, marker, processes_with};

/// What a daemon holds of the machine.
#[derive(Debug, Clone, Copy)]
struct Held {
    descriptors: usize,
    children: usize,
    doors: usize,
    state: usize,
}

fn held(served: &Served) -> Held {
    let pid = served.child.id();
    let count = |path: &Path| fs::read_dir(path).map_or(0, Iterator::count);
    let state = served.world.state.join("ringfence");
    Held {
        descriptors: count(Path::new(&format!("/proc/{pid}/fd"))),
        children: children(pid),
        doors: count(&served.socket.with_extension("sessions")),
        state: entries(&state),
    }
}

fn entries(directory: &Path) -> usize {
    let Ok(found) = fs::read_dir(directory) else { return 0 };
    found.flatten().map(|entry| 1 + if entry.path().is_dir() { entries(&entry.path()) } else { 0 }).sum()
}

/// Of all threads of a process.
fn children(pid: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.map(|task| of(task).split_whitespace().count()).sum()
}

pub(crate) fn resident_kb(served: &Served) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", served.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

fn live_and_die(served: &Served, number: usize) {
    let session = served.session();
    let said = stdout(&served.sh(&session, &format!("echo {number}")));
    assert_eq!(said, format!("{number}\n"));
    let ended = served.client().call(&StopSession { session: session.session, grace_ms: None }).unwrap();
    assert_eq!(ended.state, SessionState::Ended);
}

/// The bench has a thousand. Here the first ones fill caches, and the rest must leave nothing.
#[test]
fn sessions_that_are_over_leave_nothing() {
    let served = Served::new();
    let round = |from: usize, count: usize| {
        let next = AtomicUsize::new(from);
        thread::scope(|scope| {
            let work = || {
                while let Some(number) =
                    Some(next.fetch_add(1, Ordering::SeqCst)).filter(|n| *n < from + count)
                {
                    live_and_die(&served, number);
                }
            };
            (0..4).for_each(|_| drop(scope.spawn(work)));
        });
    };
    round(0, 16);
    let before = held(&served);
    let resident = resident_kb(&served);
    round(16, 64);
    // Connections end a moment after their clients, and placeholders wait for the next session: some are there before and
    // some after, but not one for each of 64 sessions.
    eventually("nothing is left", || {
        let after = held(&served);
        let few = |now: usize, then: usize| now < then + 48;
        // The sweeper lives as long as the daemon.
        after.children <= 1
            && after.doors == 0
            && few(after.descriptors, before.descriptors)
            && few(after.state, before.state)
    });
    let grown = resident_kb(&served).saturating_sub(resident);
    assert!(grown < 32 * 1024, "{grown} kB for 64 sessions");
    assert_eq!(served.records("session-ended").len(), 80);
}

/// Each gets its own answer and nobody else's.
#[test]
fn two_hundred_calls_at_once_are_not_mixed_up() {
    let served = Served::new();
    let sessions: Vec<SessionInfo> = (0..20).map(|_| served.session()).collect();
    let gate = served.world.workspace.join("gate");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, &gate, FileType::Fifo, mode, 0).unwrap();
    let begun = || {
        let names = fs::read_dir(&served.world.workspace).unwrap().flatten();
        names.filter(|entry| entry.file_name().to_string_lossy().starts_with("begun-")).count()
    };
    // Opened in any case, and held until the last of them is through: nobody waits for a test that has failed.
    let mut open = None;
    thread::scope(|scope| {
        let calls: Vec<_> = (0..200)
            .map(|number| {
                let (served, session) = (&served, &sessions[number % 20]);
                // A pipe opens when somebody is at its other end: all of them wait for the last.
                let script = format!("touch begun-{number}; : < gate; echo {number}");
                scope.spawn(move || served.sh(session, &script))
            })
            .collect();
        let at_once = as_many_as_come(200, begun);
        open = Some(rustix::fs::open(&gate, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap());
        for (number, call) in calls.into_iter().enumerate() {
            let info = call.join().unwrap();
            assert_eq!(stdout(&info), format!("{number}\n"), "{info:?}");
        }
        assert_eq!(at_once, 200);
    });
    drop(open);
    assert_eq!(served.records("call-settled").len(), 200);
}

/// As long as more of them come, whoever counts them is patient.
fn as_many_as_come(wanted: usize, count: impl Fn() -> usize) -> usize {
    let (mut most, mut last) = (0, Instant::now());
    while most < wanted && last.elapsed() < Duration::from_secs(60) {
        let now = count();
        if now > most {
            (most, last) = (now, Instant::now());
        }
        thread::sleep(Duration::from_millis(20));
    }
    most
}

/// Eight connections of one process, on each of which requests that make no sense come one after the other without waiting. It says how
/// many were answered, and how many of them with "too many".
const NONSENSE: &str = r#"
import socket, sys, threading
frame = b'POST /v1/sessions HTTP/1.1\r\nhost: x\r\n' + sys.argv[2].encode() + b'content-length: 12\r\n\r\n{"workspace"'
over, told = threading.Event(), [0, 0]
def line():
    stream, tail = socket.socket(socket.AF_UNIX), b''
    stream.connect(sys.argv[1])
    while not over.is_set():
        stream.sendall(frame * 25)
        heard = 0
        while heard < 25:
            part = stream.recv(1 << 16)
            assert part, 'the daemon hung up'
            tail += part
            told[1] += tail.count(b'HTTP/1.1 429')
            heard += tail.count(b'HTTP/1.1 ')
            tail = tail[-8:]
        told[0] += 25
lines = [threading.Thread(target=line) for _ in range(8)]
[one.start() for one in lines]
sys.stdin.read()
over.set()
[one.join() for one in lines]
print(*told)
"#;

/// One client sends nonsense as fast as it can, with the owner's right or with a token; the others go on, and nobody's answer is touched.
#[test]
fn nonsense_of_one_client_holds_nobody_up() {
    let served = Served::new();
    let session = served.session();
    let token = |name: &str, scopes: &str| {
        let made = served.ringfence(&["token", "create", name, "--scope", scopes, "--json"]).expect(0);
        made.json()["secret"].as_str().unwrap().to_owned()
    };
    let (reader, runner) = (token("reader", "read"), token("runner", "read,run"));
    let spam = |header: &str| {
        let mut python = served.world.host("python3");
        python.args(["-c", NONSENSE]).arg(&served.socket).arg(header);
        python.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        python.spawn().unwrap()
    };
    let spammers = [spam(""), spam(&format!("authorization: Bearer {reader}\r\n"))];
    thread::scope(|scope| {
        for client in 0..4 {
            let (served, session, runner) = (&served, &session, &runner);
            scope.spawn(move || {
                let mut other = if client % 2 == 0 { served.client() } else { served.client_with(runner) };
                for number in 0..25 {
                    let info = other.call(&exec(session, &format!("echo {client} {number}"))).unwrap();
                    assert_eq!(stdout(&info), format!("{client} {number}\n"));
                }
            });
        }
    });
    let stopped = served.client().call(&StopSession { session: session.session.clone(), grace_ms: None });
    assert_eq!(
        stopped.unwrap().state,
        SessionState::Ended,
        "whoever sends nonsense keeps nobody from ending it"
    );
    for spammer in spammers {
        // It ends when nobody says anything more to it.
        let told = spammer.wait_with_output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let counts: Vec<usize> = told.split_whitespace().map(|word| word.parse().unwrap()).collect();
        assert!(counts[0] >= 1000, "it was there: {told}");
    }
    assert_eq!(served.records("call-settled").len(), 100);
    assert!(served.client().call(&CheckReady {}).unwrap().ready);
}

/// A process of the sandbox in which `marker` runs: the one that is number 1 there.
pub(crate) fn first_process(marker: &str) -> Pid {
    let found = processes_with(marker);
    let mut pid: u32 = found[0].split(':').next().unwrap().parse().unwrap();
    loop {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        let inside = field("NSpid:");
        if inside.split_whitespace().count() > 1 && inside.ends_with("\t1") {
            return Pid::from_raw(pid.cast_signed()).unwrap();
        }
        pid = field("PPid:").parse().unwrap();
    }
}

/// S000-39: whichever process of a session is killed, the call is over, the daemon and the others are not.
#[test]
fn a_killed_process_of_a_session_ends_what_it_held_and_no_more() {
    let served = Served::new();
    let other = served.session();
    let marker = marker(&served.world);
    let script = format!("sleep 1000 # {marker}");
    let session = served.session();
    thread::scope(|scope| {
        let call = scope.spawn(|| served.sh(&session, &script));
        eventually("it runs", || !processes_with(&marker).is_empty());
        kill_process(first_process(&marker), Signal::KILL).unwrap();
        let info = call.join().unwrap();
        assert!(info.state != CallState::Done || info.exit_code != Some(0), "{info:?}");
    });
    eventually("nothing of it is left", || processes_with(&marker).is_empty());
    assert_eq!(stdout(&served.sh(&session, "echo again")), "again\n", "the session has a new fence");
    let provided = served.provider(&script);
    eventually("the provider runs", || !processes_with(&marker).is_empty());
    for line in processes_with(&marker) {
        let pid: i32 = line.split(':').next().unwrap().parse().unwrap();
        // It may be gone with the one before.
        let _gone = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    let show = ShowSession { session: provided.session };
    eventually("its session is over", || served.client().call(&show).unwrap().state == SessionState::Ended);
    let ended = served.client().call(&show).unwrap();
    assert_eq!(ended.end_reason.as_deref(), Some("its provider ended"));
    assert_eq!(ended.agent_process.unwrap().exit_code, Some(137));
    assert_eq!(stdout(&served.sh(&other, "echo on")), "on\n");
}

/// C-29, D6: while nothing can be written down nothing is done, whoever asks is told why, and it goes on when that is over.
#[test]
fn a_store_without_space_closes_the_daemon_until_there_is_some() {
    let served = Served::new();
    let session = served.session();
    assert_eq!(served.sh(&session, "touch before").exit_code, Some(0));
    let token = crate::daemon_rights::token_of(&served, &session);
    let limit = |bytes: Option<u64>| {
        let pid = Pid::from_child(&served.child);
        let limit = Rlimit { current: bytes, maximum: None };
        rustix::process::prlimit(Some(pid), Resource::Fsize, limit).unwrap();
    };
    limit(Some(0));
    let why = refused_for_the_ledger(&served, &session);
    assert_eq!(served.world.read("never"), None, "{why}");
    unready(&served, "ledger");
    without_causes(&served, (&session, &token));
    let before = served.sessions().len();
    assert!(served.client().call(&served.wanted()).is_err(), "what is always written down does not begin");
    assert_eq!(served.sessions().len(), before);
    limit(None);
    eventually("it says that it takes work", || served.client().call(&CheckReady {}).unwrap().ready);
    assert_eq!(served.sh(&session, "touch after").exit_code, Some(0), "it goes on");
    assert!(served.world.read("after").is_some());
    served.world.ledger_tool(&["verify"]).expect(0);
}

/// The same while somebody else holds the store.
#[test]
fn a_store_that_is_locked_closes_the_daemon_until_it_is_free() {
    let served = Served::new();
    let session = served.session();
    assert_eq!(served.sh(&session, "touch before").exit_code, Some(0));
    let hold = "import sqlite3, sys\nd = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)\n\
        d.execute('begin immediate')\nprint('held', flush=True)\nsys.stdin.read()\nd.execute('rollback')\n";
    let mut python = served.world.host("python3");
    python.args(["-c", hold]).arg(served.world.ledger_path());
    python.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut holder = python.spawn().unwrap();
    let mut said = [0; 5];
    Patient(holder.stdout.as_mut().unwrap()).read_exact(&mut said).unwrap();
    let why = refused_for_the_ledger(&served, &session);
    assert_eq!(served.world.read("never"), None, "{why}");
    unready(&served, "in use by another process");
    drop(holder.stdin.take());
    assert!(ended("who holds the store", &mut holder).success());
    eventually("it says that it takes work", || served.client().call(&CheckReady {}).unwrap().ready);
    assert_eq!(served.sh(&session, "touch after").exit_code, Some(0), "it goes on");
    served.world.ledger_tool(&["verify"]).expect(0);
}

/// An agent hears that it cannot be written down, and nothing of what lies below: that is for the log.
fn without_causes(served: &Served, (session, token): (&SessionInfo, &str)) {
    let own = json!({ "session": session.session });
    let report = json!({ "session": session.session, "activity": "k", "claim": "t" });
    for (method, request) in [(Method::SessionReportActivity, report), (Method::SessionStop, own)] {
        match served.client_with(token).raw(method, request) {
            Err(ClientError::Api(error)) => {
                assert_eq!(error.code, ErrorCode::Unavailable, "{error:?}");
                let known = [
                    "cannot append to the ledger",
                    "the disk is full: cannot append to the ledger",
                    "it cannot be written down, so it is not done",
                ];
                assert!(known.contains(&error.message.as_str()), "{}: {error:?}", method.name());
            }
            other => panic!("{other:?}"),
        }
    }
}

/// It lives, takes no work, and says why.
fn unready(served: &Served, why: &str) {
    assert!(served.client().call(&CheckHealth {}).is_ok());
    let ready = served.client().call(&CheckReady {}).unwrap();
    assert!(!ready.ready && ready.reasons.iter().any(|said| said.contains(why)), "{ready:?}");
}

/// What somebody is told whose call cannot be written down.
fn refused_for_the_ledger(served: &Served, session: &SessionInfo) -> String {
    let why = match served.client().call(&exec(session, "touch never")) {
        Ok(info) => {
            assert_eq!(info.state, CallState::Refused, "{info:?}");
            info.refusal.unwrap().message
        }
        Err(ClientError::Api(error)) => error.message,
        Err(other) => panic!("{other:?}"),
    };
    assert!(why.contains("ledger"), "{why}");
    why
}

/// What a call printed is for whoever waited for it. Kept for all who may ask later, it would be as much as an agent likes.
#[test]
fn what_was_printed_as_a_whole_is_not_kept() {
    let served = Served::new();
    let session = served.session();
    let info = served.sh(&session, "head -c 100000 /dev/zero | tr '\\0' x");
    assert_eq!(stdout(&info).len(), 100_000);
    let calls = served.client().call(&ListCalls { session: session.session.clone() }).unwrap().calls;
    assert_eq!((calls.len(), calls[0].exit_code, calls[0].stdout.is_none()), (1, Some(0), true), "{calls:?}");
}

/// Places are for those who ask.
#[test]
fn a_connection_that_asks_nothing_is_closed() {
    let served = Served::new();
    let silent = |said: &[u8]| {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        stream.write_all(said).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let all = [silent(b""), silent(b"GET /v1"), silent(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")];
    for mut stream in all {
        let mut rest = Vec::new();
        // How it ends is no matter: it does.
        let ended = stream.read_to_end(&mut rest);
        assert!(!matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "{ended:?}");
    }
}
