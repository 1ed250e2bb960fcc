//! The ledger says why each session is over.

use std::thread;
use std::time::{Duration, Instant};

use ringfence_api::{
    CheckReady, CreateSession, ErrorCode, ExecRequest, RevokeToken, SessionInfo, SessionState, ShowSession,
    StopSession, WhoAmI,
};
use ringfence_client::ClientError;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::daemon_fixture::{Served, exec};
use crate::daemon_load::first_process;
use crate::daemon_rights::token_of;
use crate::testkit::{World, eventually, marker, processes_with};

fn reason(served: &Served, session: &SessionInfo) -> Option<Value> {
    let ended = served.records("session-ended");
    let own = ended.iter().find(|record| record["event"]["session"] == json!(session.session))?;
    Some(own["event"]["reason"].clone())
}

/// Stopped, out of time, idle, its provider, its whole, the daemon told to end and the daemon killed are told apart.
#[test]
fn the_ledger_says_why_a_session_ended() {
    let served = Served::new();
    let mut client = served.client();
    let make = |wanted: CreateSession| served.client().call(&wanted).unwrap();
    let stopped = make(served.wanted());
    let part = make(CreateSession { parent: Some(stopped.session.clone()), ..served.wanted() });
    client.call(&StopSession { session: stopped.session.clone(), grace_ms: None }).unwrap();
    let timed = make(CreateSession { timeout_s: Some(1), ..served.wanted() });
    let idle = make(CreateSession { idle_timeout_s: Some(1), ..served.wanted() });
    let done = served.provider("true");
    let absent = Some(vec!["/no/such/program".to_owned()]);
    let missing = make(CreateSession { agent_argv: absent, ..served.wanted() });
    for (session, why) in [
        (&stopped, "stopped"),
        (&part, "parent-ended"),
        (&timed, "timeout"),
        (&idle, "idle"),
        (&done, "agent-exited"),
    ] {
        eventually(why, || reason(&served, session).is_some());
        assert_eq!(reason(&served, session), Some(json!(why)));
    }
    // A program that is not there ends as any other: 127, in a fence that stands.
    let show = ShowSession { session: missing.session.clone() };
    eventually("it ended", || served.client().call(&show).unwrap().state == SessionState::Ended);
    assert_eq!(reason(&served, &missing), Some(json!("agent-exited")));
    let told = served.client().call(&show).unwrap().agent_process.unwrap();
    assert_eq!(told.exit_code, Some(127), "{told:?}");
    let before = served.session();
    let served = served.again(Signal::TERM);
    assert_eq!(reason(&served, &before), Some(json!("daemon-stopped")));
    let marker = marker(&served.world);
    let killed = served.provider(&format!("sleep 1000 # {marker}"));
    eventually("it runs", || !processes_with(&marker).is_empty());
    let served = served.again(Signal::KILL);
    assert!(served.sessions().is_empty(), "nothing is taken over");
    assert_eq!(reason(&served, &killed), Some(json!("daemon-lost")));
    eventually("nothing of it runs", || processes_with(&marker).is_empty());
    served.world.ledger_tool(&["verify"]).expect(0);
}

/// A fence that breaks under its provider is no end of the provider: the session has crashed, nothing of it runs, and others go on.
#[test]
fn a_session_whose_fence_breaks_under_its_provider_has_crashed() {
    let served = Served::new();
    let marker = marker(&served.world);
    let control = served.session();
    let session = served.provider(&format!("setsid sleep 1000 & sleep 1000; : {marker}"));
    eventually("it runs", || !processes_with(&marker).is_empty());
    rustix::process::kill_process(first_process(&marker), Signal::KILL).unwrap();
    let show = ShowSession { session: session.session.clone() };
    eventually("it ended", || served.client().call(&show).unwrap().state == SessionState::Ended);
    assert_eq!(reason(&served, &session), Some(json!("crashed")));
    assert!(served.client().call(&show).unwrap().agent_process.unwrap().failure.is_some());
    assert!(processes_with(&marker).is_empty(), "{:?}", processes_with(&marker));
    assert_eq!(served.sh(&control, "true").exit_code, Some(0), "others go on");
    served.world.ledger_tool(&["verify"]).expect(0);
}

/// Issue 17: a daemon that was killed with a thousand sessions is served again soon, and the log names each of them.
#[test]
fn a_thousand_sessions_of_a_killed_daemon_are_ended_within_seconds() {
    const SESSIONS: usize = 1000;
    let served = Served::with(World::new(), &["--max-sessions", "1000"]);
    let made: Vec<SessionInfo> = thread::scope(|scope| {
        let makes = || (0..SESSIONS / 8).map(|_| served.session()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(makes)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(served.sessions().len(), SESSIONS);
    let token = token_of(&served, &made[0]);
    let world = served.killed();
    let begun = Instant::now();
    let served = Served::with(world, &[]);
    assert!(served.client().call(&CheckReady {}).unwrap().ready);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(served.sessions().len(), 0);
    let ended = served.records("session-ended");
    assert_eq!(ended.iter().filter(|record| record["event"]["reason"] == "daemon-lost").count(), SESSIONS);
    let revoked = |record: &&Value| record["event"]["change"]["verb"] == "revoked";
    assert_eq!(served.records("identity-changed").iter().filter(revoked).count(), SESSIONS);
    let refused = served.client_with(&token).call(&WhoAmI {}).unwrap_err();
    assert!(
        matches!(&refused, ClientError::Api(error) if error.code == ErrorCode::Unauthenticated),
        "{refused:?}"
    );
    let said = served.said();
    let unnamed = made.iter().filter(|session| !said.contains(session.session.as_str())).count();
    assert!(unnamed == 0 && !said.contains(&token), "{unnamed} of them are not in the log");
    served.world.ledger_tool(&["verify"]).expect(0);
}

/// Whose token is revoked is told apart as well.
#[test]
fn a_session_that_lost_its_token_says_so() {
    let served = Served::new();
    let session = served.session();
    let token = token_of(&served, &session);
    let id = token.split('_').nth(2).unwrap().to_owned();
    served.client().call(&RevokeToken { id }).unwrap();
    eventually("it ended", || reason(&served, &session).is_some());
    assert_eq!(reason(&served, &session), Some(json!("revoked")));
}

/// A session that would end at once is refused as what it is.
#[test]
fn a_session_without_any_time_is_a_mistake() {
    let served = Served::with(World::new(), &[]);
    for wanted in [
        CreateSession { timeout_s: Some(0), ..served.wanted() },
        CreateSession { idle_timeout_s: Some(0), ..served.wanted() },
    ] {
        match served.client().call(&wanted) {
            Err(ClientError::Api(error)) => {
                assert_eq!(error.code, ErrorCode::InvalidArgument, "{error:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    let control = CreateSession { timeout_s: Some(600), ..served.wanted() };
    let session = served.client().call(&control).unwrap();
    let ran =
        served.client().call(&ExecRequest { timeout_ms: Some(60_000), ..exec(&session, "true") }).unwrap();
    assert_eq!(ran.exit_code, Some(0));
}
