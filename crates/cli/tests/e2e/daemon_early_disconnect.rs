//! Whoever goes away before they were let in.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use ringfence_api::{CallState, ListCalls, Method, ReadMetrics};
use ringfence_client::Client;
use serde_json::json;

use crate::daemon_fixture::Served;
use crate::test_timeouts::{Patient, ended};
use crate::testkit::{eventually, marker, processes_with};

pub(crate) const HOLD: &str = "import sqlite3, sys\nd = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)\n\
    d.execute('begin immediate')\nprint('held', flush=True)\nsys.stdin.read()\nd.execute('rollback')\n";

fn descriptors(served: &Served) -> usize {
    fs::read_dir(format!("/proc/{}/fd", served.child.id())).unwrap().count()
}

pub(crate) fn requests(served: &Served) -> u64 {
    let text = served.client().call(&ReadMetrics {}).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("ringfence_requests_total "));
    line.unwrap().parse().unwrap()
}

/// A request whose client is gone by the time that it is let in is given up: what it asked for does not go on for nobody. The
/// token of its client has a number of calls, so that the store of identities is written before it is let in, and that waits here.
#[test]
fn whoever_left_before_they_were_let_in_has_nothing_done_for_them() {
    let served = Served::new();
    let (session, marker) = (served.session(), marker(&served.world));
    served.sh(&session, "printf %s \"$RINGFENCE_SESSION_TOKEN\" | rev > token");
    let own: String = served.world.read("token").unwrap().trim().chars().rev().collect();
    let left = json!({ "paths": "any", "hosts": "any", "commands": "any", "calls": 5 });
    let hand = json!({ "session": session.session, "label": "few", "attenuation": left });
    let mut whole = Client::connect(&served.socket, Some(own)).unwrap();
    let minted = whole.raw(Method::TokenAttenuate, hand).unwrap();
    drop(whole);
    let ask = |script: &str| {
        let body = json!({ "argv": ["sh", "-c", script] }).to_string();
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        let (secret, length) = (minted["secret"].as_str().unwrap(), body.len());
        let head = format!("host: x\r\nauthorization: Bearer {secret}\r\ncontent-length: {length}");
        let path = format!("/v1/sessions/{}/exec", session.session);
        write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
        stream
    };
    // The control: whoever waits has it done.
    let mut answer = [0; 12];
    Patient(ask("touch before")).read_exact(&mut answer).unwrap();
    assert_eq!((&answer, served.world.read("before").is_some()), (b"HTTP/1.1 200", true));
    let mut python = served.world.host("python3");
    python.args(["-c", HOLD]).arg(served.world.state.join("ringfence/identity/identity.db"));
    let mut holder = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    Patient(holder.stdout.as_mut().unwrap()).read_exact(&mut [0; 5]).unwrap();
    let before = requests(&served);
    let asked = ask(&format!("sleep 1000 # {marker}"));
    // The question itself counts.
    let mut asked_myself = 0;
    eventually("it has come", || {
        asked_myself += 1;
        requests(&served) > before + asked_myself
    });
    let held = descriptors(&served);
    asked.shutdown(Shutdown::Both).unwrap();
    drop(asked);
    eventually("its connection is gone", || descriptors(&served) < held);
    assert!(processes_with(&marker).is_empty(), "it was let in too early");
    drop(holder.stdin.take());
    assert!(ended("who holds the store", &mut holder).success());
    let list = ListCalls { session: session.session.clone() };
    let calls = || served.client().call(&list).unwrap().calls;
    eventually("it was let in", || calls().len() == 3);
    eventually("nothing is done for nobody", || calls().iter().all(|call| call.state != CallState::Running));
    eventually("nothing of it is left", || processes_with(&marker).is_empty());
    served.world.ledger_tool(&["verify"]).expect(0);
}
