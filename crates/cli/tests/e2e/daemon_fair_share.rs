//! What somebody takes of the daemon who may take something is a share: the others, and the owner first of all, go on.

use std::convert::Infallible;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ringfence_api::{CheckHealth, RevokeToken, SessionInfo, SessionState, StopSession, WhoAmI};
use ringfence_types::Scope;
use serde_json::json;
use tokio::time::Interval;

use crate::approvals::configure;
use crate::daemon_fixture::{Served, raw, stdout};
use crate::daemon_rights::{minted, token_of};
use crate::daemon_socket::Talk;
use crate::test_timeouts::{PATIENCE, Patient, ended, mortal};
use crate::testkit::{LANDLOCK, World, eventually, finish};

fn stop(served: &Served, session: &SessionInfo) -> SessionState {
    let stop = StopSession { session: session.session.clone(), grace_ms: Some(0) };
    served.client().call(&stop).unwrap().state
}

fn count(path: String) -> usize {
    fs::read_dir(path).unwrap().count()
}

/// Says that it is over when it is dropped: a scope waits for all its threads, also when one of them has failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// One request to prove a key, with a challenge that nobody was given. Empty: too many are there, and it was not heard.
fn made_up(port: u16, number: usize) -> String {
    let body =
        json!({ "subject": "0".repeat(16), "nonce": format!("{number:064x}"), "signature": "0".repeat(128) });
    let body = body.to_string();
    let mut stream = Patient(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let head = format!(
        "POST /v1/pairings/prove HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _closed = stream.write_all(format!("{head}{body}").as_bytes());
    let mut answer = String::new();
    let _reset = stream.read_to_string(&mut answer);
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// All that is in the store of identities, with what is not in its file yet.
fn identities(served: &Served) -> Vec<Vec<u8>> {
    let state = served.world.state.join("ringfence");
    let found = finish(served.world.host("find").arg(state).args(["-name", "identity.db*"]), b"").expect(0);
    let text = found.text();
    let mut files: Vec<&str> = text.lines().filter(|name| !name.ends_with("-shm")).collect();
    files.sort_unstable();
    assert!(!files.is_empty(), "there is one");
    files.into_iter().map(|file| fs::read(file).unwrap()).collect()
}

/// What needs no token is looked for in the same store as tokens.
#[test]
fn a_stranger_who_makes_challenges_up_writes_nothing_and_holds_nobody_up() {
    let world = World::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    configure(&world, &format!("[daemon]\nlisten = \"127.0.0.1:{port}\"\n"));
    let served = Served::with(world, &[]);
    eventually("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let (session, token) = (served.session(), minted(&served, Scope::Read));
    let before = identities(&served);
    let first: Vec<String> = (0..20).map(|number| made_up(port, number)).collect();
    assert!(first.iter().all(|status| status == "401" || status == "403"), "{first:?}");
    assert!(identities(&served) == before, "nothing of it was written");
    let (over, limited) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let end = Over(&over);
        for thread in 0..16 {
            let (over, limited) = (&over, &limited);
            scope.spawn(move || {
                let mut number = thread << 32;
                while !over.load(Ordering::SeqCst) {
                    number += 1;
                    limited.fetch_add(usize::from(made_up(port, number) == "429"), Ordering::SeqCst);
                }
            });
        }
        eventually("they are told that it is too much", || limited.load(Ordering::SeqCst) > 20);
        for _ in 0..20 {
            assert_eq!(served.client_with(&token).call(&WhoAmI {}).unwrap().kind, "api");
        }
        assert_eq!(stop(&served, &session), SessionState::Ended);
        drop(end);
    });
}

/// Opens as many connections as it is let, and holds them until it is told not to.
const HOLD: &str = r#"
import os, socket, sys, time
path, each, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(last):
    if os.fork() == 0:
        held = []
        for _ in range(each):
            try:
                one = socket.socket(socket.AF_UNIX)
                one.settimeout(20)
                one.connect(path)
                held.append(one)
            except OSError:
                pass
        open(f'held-{number}', 'w').close()
        while not os.path.exists('go'):
            time.sleep(0.02)
        os._exit(0)
for _ in range(last):
    os.wait()
"#;

/// Where the fence cannot hide the socket, whoever is inside has few of its places.
#[test]
fn somebody_in_a_fence_does_not_take_the_owners_places() {
    // More than there are for everybody, and few enough for one process to have open.
    const EACH: usize = 200;
    const PROCESSES: usize = 12;
    let served = Served::new();
    let session = served.session();
    let descriptors = || count(format!("/proc/{}/fd", served.child.id()));
    let before = descriptors();
    let socket = served.socket.display().to_string();
    let mut run = served.world.ringfence();
    run.arg("run").args(LANDLOCK).args(["--", "python3", "-c", HOLD, &socket]);
    run.args([EACH.to_string(), PROCESSES.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut fenced = run.spawn().unwrap();
    mortal(&fenced);
    let all = || (0..PROCESSES).all(|number| served.world.read(&format!("held-{number}")).is_some());
    eventually("it has all it can get", all);
    assert!(descriptors() < before + 300, "{} descriptors", descriptors());
    assert_eq!(stop(&served, &session), SessionState::Ended, "the owner goes on");
    // The control: the owner has more than that.
    let own: Vec<UnixStream> = (0..400).map(|_| UnixStream::connect(&served.socket).unwrap()).collect();
    eventually("the owner has all of them", || descriptors() > before + own.len());
    served.world.write("go", "");
    assert!(ended("who was in the fence", &mut fenced).success());
}

/// An agent asks what takes long to think about, on all the connections it can have, and does not wait for answers.
#[test]
fn an_agent_that_asks_much_takes_no_thread_that_an_operator_needs() {
    const SOCKETS: usize = 24;
    let served = Served::new();
    let session = served.session();
    let door = stdout(&served.sh(&session, "printf %s \"$RINGFENCE_SESSION_SOCKET\""));
    let agent = token_of(&served, &session);
    let threads = || count(format!("/proc/{}/task", served.child.id()));
    let before = threads();
    let shell = "echo a | grep b && ls c; ".repeat(500);
    let explain = json!({ "session": session.session, "subject": { "shell": shell } });
    let (over, most, asked) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let end = Over(&over);
        for _ in 0..SOCKETS {
            let mut talk = Talk::open(Path::new(&door), Some(&agent)).unwrap();
            let (explain, asked) = (&explain, &asked);
            scope.spawn(move || {
                for _ in 0..40 {
                    let _id = talk.send("explain", explain.clone());
                }
                asked.fetch_add(1, Ordering::SeqCst);
                // Until its session is over, and its socket with it.
                while talk.heard().is_some() {}
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                most.fetch_max(threads(), Ordering::SeqCst);
                thread::yield_now();
            }
        });
        eventually("all of it was asked", || asked.load(Ordering::SeqCst) == SOCKETS);
        assert!(served.client().call(&CheckHealth {}).is_ok());
        assert_eq!(stop(&served, &session), SessionState::Ended);
        drop(end);
    });
    let most = most.load(Ordering::SeqCst);
    assert!(most < before + 64, "{before} threads became {most}");
}

/// The head of an upload, and what it is sent on once the daemon wants the rest.
fn wanted(served: &Served, session: &SessionInfo, (token, path): (&str, &str)) -> Patient<UnixStream> {
    let mut stream = Patient(UnixStream::connect(&served.socket).unwrap());
    write!(
        stream,
        "POST /v1/sessions/{}/files/upload?path={path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         expect: 100-continue\r\nconnection: close\r\ncontent-length: 100\r\n\r\n",
        session.session
    )
    .unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        said.extend(byte);
    }
    assert!(said.starts_with(b"HTTP/1.1 100"), "{}", String::from_utf8_lossy(&said));
    stream
}

/// Who had the right when it began and not when it ended has written nothing.
#[test]
fn an_upload_whose_token_is_revoked_meanwhile_is_not_written() {
    let served = Served::new();
    let session = served.session();
    for round in 0..8 {
        let name = format!("round-{round}");
        let made =
            served.ringfence(&["token", "create", &name, "--scope", "read,run", "--json"]).expect(0).json();
        let mut stream = wanted(&served, &session, (made["secret"].as_str().unwrap(), &name));
        stream.write_all(&[b'x'; 50]).unwrap();
        let is_revoked = round > 0;
        if is_revoked {
            let id = made["secret"].as_str().unwrap().split('_').nth(2).unwrap().to_owned();
            served.client().call(&RevokeToken { id }).unwrap();
        }
        // Whoever has heard enough does not listen to the rest.
        let _heard_enough = stream.write_all(&[b'x'; 50]);
        let mut answer = String::new();
        let _reset = stream.read_to_string(&mut answer);
        // A connection of a revoked token is closed: where that comes first, there is no answer.
        let expected = if is_revoked { &["401", ""][..] } else { &["200"] };
        assert!(expected.contains(&answer.split(' ').nth(1).unwrap_or_default()), "{answer}");
        assert_eq!(served.world.read(&name).is_none(), is_revoked, "round {round}");
    }
}

/// Says something byte by byte until the other side says that it is enough.
fn dripped(socket: &Path, head: &[u8], enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(head).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut said = Vec::new();
    eventually("it is told that it is too slow", || {
        let _gone = stream.write(b"x");
        let mut part = [0; 4096];
        let length = stream.read(&mut part).unwrap_or(0);
        said.extend(&part[..length]);
        enough(&said)
    });
    said
}

/// A body of one byte after the other.
struct Drip {
    first: Option<Bytes>,
    next: Interval,
}

impl Body for Drip {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        match this.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => this.next.poll_tick(context).map(|_| Some(Ok(Frame::data(Bytes::from_static(b"x"))))),
        }
    }
}

/// The same over HTTP/2: the head of the answer.
fn dripped_over_http2(
    socket: &Path,
    request: http::request::Builder,
    first: &'static [u8],
) -> http::response::Parts {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answered = async {
        let stream = tokio::net::UnixStream::connect(socket).await.unwrap();
        let (mut sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let _driver = tokio::spawn(connection);
        let next = tokio::time::interval(Duration::from_millis(50));
        let request = request.body(Drip { first: Some(Bytes::from_static(first)), next }).unwrap();
        sender.send_request(request).await.unwrap().into_parts().0
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, answered).await }).expect("an answer in time")
}

/// S003-24: whoever sends byte by byte is told so on every transport, with or without a token, and the place is free again.
#[test]
fn slow_requests_are_ended_on_every_transport() {
    let served = Served::new();
    let (session, token) = (served.session(), minted(&served, Scope::Run));
    let bearer = format!("Bearer {token}");
    let show = format!("authorization: {bearer}\r\n");
    let (id, bearer) = (&session.session, bearer.as_str());
    let write = format!("/v1/sessions/{id}/files/write");
    let upload = format!("/v1/sessions/{id}/files/upload?path=slow");
    let is_late = |said: &[u8]| said.starts_with(b"HTTP/1.1 408");
    let closed = |said: &[u8]| said.windows(2).any(|two| two == 1008_u16.to_be_bytes());
    let long = |path: &str, more: &str| {
        format!("POST {path} HTTP/1.1\r\nhost: x\r\n{more}content-length: 26000000\r\n\r\n").into_bytes()
    };
    let short = |more: &str| {
        format!("POST /v1/sessions HTTP/1.1\r\nhost: x\r\n{more}content-length: 4000\r\n\r\n{{").into_bytes()
    };
    let socket = |more: &str| {
        let head = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                    sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
        let mut said = format!("GET /v1/ws HTTP/1.1\r\nhost: x\r\n{head}{more}\r\n").into_bytes();
        // Text of 30 MB, with a mask that changes nothing.
        said.extend([0x81, 0xff]);
        said.extend(30_000_000_u64.to_be_bytes());
        said.extend([0; 4]);
        said
    };
    thread::scope(|scope| {
        let at = served.socket.as_path();
        // Two long ones of the token: all that it has at once.
        for head in [long(&write, &show), long(&upload, &show), long(&write, ""), short(""), short(&show)] {
            scope.spawn(move || dripped(at, &head, is_late));
        }
        for head in [socket(""), socket(&show)] {
            scope.spawn(move || dripped(at, &head, closed));
        }
        for token in [None, Some(bearer)] {
            let post = move |path: &str| {
                let request = http::Request::post(format!("http://x{path}"));
                token.into_iter().fold(request, |request, token| request.header("authorization", token))
            };
            let write = &write;
            scope.spawn(move || {
                assert_eq!(dripped_over_http2(at, post(write), b"{").status, 408);
            });
            scope.spawn(move || {
                let path = "/ringfence.v1.FileService/WriteFile";
                let request = post(path).header("content-type", "application/grpc").header("te", "trailers");
                let said = dripped_over_http2(at, request, &[0, 0, 1, 0, 0]).headers;
                assert_eq!(said.get("grpc-status").unwrap(), "4", "{said:?}");
            });
        }
    });
    assert_eq!(served.world.read("slow"), None);
    let mut quick = format!(
        "POST {upload} HTTP/1.1\r\nhost: x\r\n{show}connection: close\r\ncontent-length: 100000\r\n\r\n"
    )
    .into_bytes();
    quick.resize(quick.len() + 100_000, b'x');
    // The places of the slow ones are free when their threads have ended, not when they hear of it.
    eventually("there is a place again", || raw(&served.socket, &quick).0 == 200);
    assert_eq!(served.world.read("slow").unwrap().len(), 100_000);
}
