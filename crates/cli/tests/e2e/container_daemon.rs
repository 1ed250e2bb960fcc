//! Sessions of the daemon in containers: their door, what waits for them, and how they end.

use std::fs;
use std::path::Path;

use ringfence_api::{CheckHealth, ExecRequest, SessionState, StopSession};
use rustix::process::Signal;

use crate::container_policy::configure;
use crate::daemon_fixture::{ASK, Served, exec, stdout};
use crate::podman::Podman;
use crate::testkit::{eventually, is_root, send};

const CONTAINER: &str = "backend = \"container\"";

fn serve(podman: &Podman, container: &str) -> Served {
    let (world, _) = podman.world();
    configure(&world, podman, CONTAINER, &format!("image = \"dev\"\n{container}"));
    Served::with(world, &[])
}

fn stop(served: &Served, session: &ringfence_api::SessionInfo) {
    let stop = StopSession { session: session.session.clone(), grace_ms: None };
    served.client().call(&stop).unwrap();
}

/// S000-53…56, S003-9, C-23: what runs in a container has the door of its own session, and no other; it goes with the session.
#[test]
fn a_session_in_a_container_has_its_door_and_no_other() {
    let podman = Podman::start();
    let (world, _) = podman.world();
    configure(&world, &podman, CONTAINER, "image = \"dev\"");
    // Where a daemon of a machine is: below /run, which an image does not bring and a container does not show.
    let run = is_root().then(|| tempfile::tempdir_in("/run").unwrap());
    let place = run.as_ref().map_or_else(|| world.beside("r"), |run| run.path().join("r"));
    let served = Served::at(world, place.join("daemon.sock"), &[]);
    let (session, other) = (served.session(), served.session());
    let inside = format!(
        r#"{ASK}
        test -e /.ringfence && echo contained
        ask GET $S
        ask POST $S/exec '{{"argv":["sh","-c","echo from inside > by-call"]}}'
        ask GET /v1/sessions/{other}
        ask POST /v1/sessions '{{"workspace":"/tmp"}}'
        own=${{RINGFENCE_SESSION_SOCKET%/*}}
        ls ${{own%/*}} | wc -l
        touch $own/made ${{own%/*}}/made
        test -e '{daemon}' && echo sees the daemon
        true"#,
        other = other.session,
        daemon = served.socket.display(),
    );
    let told = served.sh(&session, &inside);
    assert_eq!(stdout(&told), "contained\n200\n200\n403\n403\n1\n", "{told:?}");
    assert_eq!(served.world.read("by-call").as_deref(), Some("from inside\n"));
    // The control: there are two doors.
    let doors = fs::read_dir(served.socket.with_extension("sessions")).unwrap();
    let doors: Vec<_> = doors.map(|door| door.unwrap().path()).collect();
    assert_eq!(doors.len(), 2);
    assert!(doors.iter().all(|door| !door.join("made").exists()), "{doors:?}");
    assert_eq!(podman.containers().len(), 1, "the other one has not called yet");
    stop(&served, &session);
    podman.nothing_stays();
}

/// C-23, S004-10: containers wait for the sessions of a daemon, and end with them and with the daemon.
#[test]
fn containers_wait_for_sessions_of_the_daemon() {
    let podman = Podman::start();
    let served = serve(&podman, "warm_containers = 1");
    let session = served.session();
    eventually("one waits before anything is called", || podman.running().len() == 1);
    assert_eq!(stdout(&served.sh(&session, "echo kept >/tmp/f; cat /tmp/f")), "kept\n");
    assert_eq!(stdout(&served.sh(&session, "cat /tmp/f")), "kept\n");
    eventually("another waits", || podman.running().len() == 2);
    stop(&served, &session);
    podman.nothing_stays();

    let session = served.session();
    assert_eq!(stdout(&served.sh(&session, "test -e /tmp/f || echo fresh")), "fresh\n");
    send(&served.child, Signal::KILL);
    podman.nothing_stays();
}

/// C-23, S004-10: a container that nothing ran in is removed while its session goes on.
#[test]
fn a_container_of_the_daemon_rests() {
    let podman = Podman::start();
    let served = serve(&podman, "max_idle = \"1s\"");
    let session = served.session();
    assert_eq!(stdout(&served.sh(&session, "echo kept >/tmp/f; echo kept >f; echo done")), "done\n");
    podman.nothing_stays();
    assert_eq!(stdout(&served.sh(&session, "test -e /tmp/f || cat f")), "kept\n");
    stop(&served, &session);
    podman.nothing_stays();
}

/// C-23, S004-10: an engine that says nothing while it is to remove a container holds up neither the end of the session nor others.
#[test]
fn an_engine_that_says_nothing_does_not_stop_the_daemon() {
    let podman = Podman::start();
    let served = serve(&podman, "max_idle = \"1s\"");
    let session = served.session();
    let waits = "touch runs; while [ ! -e go ]; do sleep 0.02; done";
    let call = served.client().call(&ExecRequest { background: true, ..exec(&session, waits) }).unwrap();
    assert_eq!(call.failure, None);
    eventually("it runs", || served.world.read("runs").is_some());
    let told = podman.podman(&["inspect", "--format", "{{.State.Pid}}", &podman.containers()[0]]);
    let inside = Path::new("/proc").join(told.expect(0).text().trim());
    assert!(inside.exists());
    podman.fall_silent();
    served.world.write("go", "");
    eventually("the container rests", || !inside.exists());
    let stop = StopSession { session: session.session, grace_ms: None };
    assert_eq!(served.client().call(&stop).unwrap().state, SessionState::Ended);
    assert_eq!(served.records("session-ended").len(), 1);
    served.client().call(&CheckHealth {}).unwrap();
    podman.speak_again();
    podman.nothing_stays();
}
