//! Another process holds the store of identities for long.

use std::io::Read as _;
use std::process::Stdio;
use std::thread;

use ringfence_api::{CheckReady, CreateToken, WhoAmI};
use ringfence_types::{Rights, Scope, Within};

use crate::daemon_gone::{HOLD, requests};
use crate::patience::{Patient, ended};
use crate::served::Served;
use crate::testkit::eventually;

/// Who changes something waits; who shows a good token does not wait behind them; and whoever asks is told that not all is well.
#[test]
fn a_good_token_is_let_in_while_the_store_is_held() {
    let served = Served::new();
    let rights = Rights { scopes: [Scope::Read].into_iter().collect(), workspaces: Within::Any };
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
    assert!(!held.ready && held.because.iter().any(|why| why.contains("identities")), "{held:?}");
    drop(holder.stdin.take());
    assert!(ended("who holds the store", &mut holder).success());
    // Whether it was patient enough does not matter here.
    let _made = changing.join().unwrap();
    eventually("all is well", || ready().ready);
    served.client().call(&new).unwrap();
    served.client_with(&good).call(&WhoAmI {}).unwrap();
}
