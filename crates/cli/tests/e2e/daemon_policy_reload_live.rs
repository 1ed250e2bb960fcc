//! What a change of the configuration does to a session that is at work.

use std::fs;

use ringfence_api::{CallInfo, CallState, ExecRequest, SessionState, ShowSession};

use crate::approvals::configure;
use crate::daemon_fixture::{Served, exec};
use crate::daemon_reload::change;
use crate::testkit::{World, eventually, marker, processes_with};

const WAITS: &str = "[approvals]\ntimeout = \"7m\"\n";

fn timed(served: &Served, session: &ringfence_api::SessionInfo) -> CallInfo {
    served.client().call(&ExecRequest { timeout_ms: Some(200), ..exec(session, "sleep 1000") }).unwrap()
}

/// A change that has nothing to do with the fence leaves what runs in it alone, and takes no limit from the next call.
#[test]
fn a_change_that_is_not_about_the_fence_ends_nothing_and_the_next_call_keeps_its_time() {
    let world = World::new();
    configure(&world, "");
    let served = Served::with(world, &[]);
    let marker = marker(&served.world);
    let session = served.provider(&format!("sleep 1000 # {marker}"));
    eventually("the provider runs", || !processes_with(&marker).is_empty());
    let provider = processes_with(&marker).remove(0);
    assert_eq!(timed(&served, &session).exit_code, Some(124), "control: before the change");
    change(&served, WAITS);
    assert_eq!(timed(&served, &session).exit_code, Some(124), "the first call after it");
    assert!(processes_with(&marker).contains(&provider), "nothing was ended");
    let show = ShowSession { session: session.session.clone() };
    assert_eq!(served.client().call(&show).unwrap().state, SessionState::Running);
    // The control: what the fence is made from does end what was made from the other.
    change(&served, "[[path]]\ndeny = \"hidden\"\n");
    let _first = served.client().call(&exec(&session, "true"));
    eventually("the fence is another", || processes_with(&marker).is_empty());
}

/// While the workspace's file is wrong, the operator's still takes away, and what the workspace's took away stays gone.
#[test]
fn a_broken_file_of_the_workspace_keeps_nothing_that_the_operator_takes_away() {
    let world = World::new();
    configure(&world, "");
    let narrow = "[[command]]\ndeny = [[\"nproc\"]]\n";
    fs::create_dir_all(world.workspace.join(".ringfence")).unwrap();
    let file = world.workspace.join(".ringfence/policy.toml");
    let served = Served::with(world, &[]);
    let session = served.session();
    let does = |argv: &[&str]| {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        let info = served.client().call(&ExecRequest { argv, ..exec(&session, "") }).unwrap();
        if info.state == CallState::Refused {
            return false;
        }
        assert_eq!(info.exit_code, Some(0), "{info:?}");
        true
    };
    assert!(does(&["touch", "a"]) && does(&["nproc"]), "control");
    fs::write(&file, narrow).unwrap();
    assert!(!does(&["nproc"]) && does(&["touch", "b"]));
    fs::write(&file, "[[command]\n").unwrap();
    assert!(!does(&["nproc"]) && does(&["touch", "c"]), "a file that is wrong changes nothing");
    change(&served, "[[command]]\ndeny = [[\"touch\"]]\n");
    assert!(!does(&["touch", "d"]), "and keeps nothing");
    assert!(!does(&["nproc"]) && does(&["mkdir", "e"]));
    assert!(served.world.read("c").is_some() && served.world.read("d").is_none());
}
