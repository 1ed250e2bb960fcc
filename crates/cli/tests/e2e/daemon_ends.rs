//! What is left when a session or the daemon ends.

use std::thread;

use ringfence_api::{CreateSession, Exec, SessionState, StopSession};
use rustix::process::Signal;

use crate::patience::ended;
use crate::served::{Served, exec};
use crate::testkit::{World, eventually, send};

/// A part that is made while its whole is ended ends with it, whoever comes first.
#[test]
fn no_part_outlives_its_whole() {
    let served = Served::new();
    for _ in 0..3 {
        let whole = served.session();
        let part = CreateSession { parent: Some(whole.session.clone()), ..served.wanted() };
        thread::scope(|scope| {
            for _ in 0..4 {
                // It may come too late, and is refused then.
                scope.spawn(|| while served.client().call(&part).is_ok() {});
            }
            eventually("there is a part", || served.sessions().iter().any(|info| info.parent.is_some()));
            served.client().call(&StopSession { session: whole.session.clone(), grace_ms: None }).unwrap();
        });
        let left: Vec<_> =
            served.sessions().into_iter().filter(|info| info.state != SessionState::Ended).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// The daemon ends what somebody else is still waiting for, and does not end before that is written down.
#[test]
fn a_session_that_is_being_stopped_ends_with_the_daemon() {
    let mut served = Served::with(World::new(), &["--drain", "10ms"]);
    let session = served.session();
    let deaf = "trap '' TERM; touch runs; while :; do sleep 0.05; done";
    served.client().call(&Exec { background: true, ..exec(&session, deaf) }).unwrap();
    eventually("the call runs", || served.world.read("runs").is_some());
    let stop = StopSession { session: session.session.clone(), grace_ms: Some(600_000) };
    let mut client = served.client();
    // Its answer goes down with the daemon.
    let stopping = thread::spawn(move || client.call(&stop).map(drop));
    eventually("it is being stopped", || served.sessions()[0].state == SessionState::Stopping);
    send(&served.child, Signal::TERM);
    let _status = ended("the daemon", &mut served.child);
    let _answer = stopping.join().unwrap();
    let ended = served.records("session-ended");
    assert_eq!(ended.len(), 1, "{ended:?}");
}
