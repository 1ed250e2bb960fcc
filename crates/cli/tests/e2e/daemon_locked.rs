//! Another process holds the store of identities, or the ledger, for long.

use std::io::Read as _;
use std::process::Stdio;
use std::thread;

use ringfence_api::{CallInput, CheckReady, CreateToken, ExecRequest, RevokeToken, StopSession, WhoAmI};
use ringfence_types::{AllOrOnly, Rights, Scope};

use crate::daemon_early_disconnect::{HOLD, requests};
use crate::daemon_fixture::{Served, exec, raw};
use crate::test_timeouts::{Patient, ended};
use crate::testkit::eventually;

/// Who changes something waits; who shows a good token does not wait behind them; and whoever asks is told that not all is well.
#[test]
fn a_good_token_is_let_in_while_the_store_is_held() {
    let served = Served::new();
    let rights = Rights { scopes: [Scope::Read].into_iter().collect(), workspaces: AllOrOnly::Any };
    let new = CreateToken { label: "t".to_owned(), rights, lifetime_s: None, operator: None };
    let good = served.client().call(&new).unwrap().secret;
    let ready = || served.client().call(&CheckReady {}).unwrap();
    assert!(ready().ready, "control");
    let mut python = served.world.host("python3");
    python.args(["-c", HOLD]).arg(served.world.state.join("ringfence/identity/identity.db"));
    let mut holder = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    Patient(holder.stdout.as_mut().unwrap()).read_exact(&mut [0; 5]).unwrap();
    let before = requests(&served);
    let (mut client, wanted) = (served.client(), new.clone());
    let changing = thread::spawn(move || client.call(&wanted).map(drop));
    // The question itself counts.
    let mut asked_myself = 0;
    eventually("the change has come", || {
        asked_myself += 1;
        requests(&served) > before + asked_myself
    });
    for _ in 0..20 {
        served.client_with(&good).call(&WhoAmI {}).unwrap();
    }
    assert!(!changing.is_finished(), "nobody has waited for it");
    let held = ready();
    assert!(!held.ready && held.reasons.iter().any(|why| why.contains("identities")), "{held:?}");
    drop(holder.stdin.take());
    assert!(ended("who holds the store", &mut holder).success());
    // Whether it was patient enough does not matter here.
    let _made = changing.join().unwrap();
    eventually("all is well", || ready().ready);
    served.client().call(&new).unwrap();
    served.client_with(&good).call(&WhoAmI {}).unwrap();
}

/// While the ledger cannot be written, an operator ends sessions and revokes tokens, and every other request is refused. The records follow.
#[test]
fn what_only_takes_away_is_done_while_the_ledger_is_held() {
    let served = Served::new();
    let rights = Rights { scopes: [Scope::Run].into_iter().collect(), workspaces: AllOrOnly::Any };
    let new = CreateToken { label: "x".to_owned(), rights, lifetime_s: None, operator: None };
    let minted = served.client().call(&new).unwrap();
    let id = minted.token.id.to_string();
    let session = served.session();
    let shell = ExecRequest { interactive: true, background: true, ..exec(&session, "exec sh") };
    let call = served.client().call(&shell).unwrap().call;
    let typed = |text: &str| -> CallInput {
        serde_json::from_value(serde_json::json!({ "session": session.session, "call": call, "data": text }))
            .unwrap()
    };
    let workspace = served.world.workspace.clone();
    served.client_with(&minted.secret).call(&typed("touch by-x\n")).unwrap();
    eventually("control: what is typed is done", || workspace.join("by-x").exists());
    let names_x = |record: &serde_json::Value| {
        let purpose = record["event"]["purpose"].as_str().unwrap_or_default();
        purpose.starts_with("call.input") && purpose.contains(&id)
    };
    assert!(served.records("authentication-attempted").iter().any(names_x), "the record names who typed it");

    let mut python = served.world.host("python3");
    python.args(["-c", HOLD]).arg(served.world.state.join("ringfence/ledger.db"));
    let mut holder = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    Patient(holder.stdout.as_mut().unwrap()).read_exact(&mut [0; 5]).unwrap();
    let refused = served.client_with(&minted.secret).call(&typed("touch while-held\n"));
    assert!(refused.is_err(), "{refused:?}");
    served.client().call(&RevokeToken { id: id.clone() }).unwrap();
    assert!(served.client_with(&minted.secret).call(&WhoAmI {}).is_err(), "it is worth nothing any more");
    let stop = StopSession { session: session.session.clone(), grace_ms: Some(100) };
    let body = serde_json::to_string(&stop).unwrap();
    let (status, answer) = raw(
        &served.socket,
        format!(
            "POST /v1/sessions/{}/stop HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            session.session,
            body.len()
        )
        .as_bytes(),
    );
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("record_error"), "{answer}");
    assert!(!workspace.join("while-held").exists(), "what could not be written down was not done");
    assert!(served.sh_is_refused(&session), "nothing of the session is left");

    drop(holder.stdin.take());
    assert!(ended("who holds the ledger", &mut holder).success());
    let has =
        |kind: &str, text: &str| served.records(kind).iter().any(|record| record.to_string().contains(text));
    eventually("the end of the session is written", || has("session-ended", session.session.as_str()));
    eventually("the end of the token is written", || {
        served
            .records("identity-changed")
            .iter()
            .any(|record| record.to_string().contains(&id) && record.to_string().contains("revoked"))
    });
    eventually("who did it is written", || {
        has("authentication-attempted", "session.stop") && has("authentication-attempted", "token.revoke")
    });
}
