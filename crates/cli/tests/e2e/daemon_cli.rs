//! Commands that ask the daemon where one runs, and do without where none does.

use ringfence_api::{CreateSession, Exec, Method};
use ringfence_types::Profile;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::patience::ended;
use crate::served::{Served, exec};
use crate::testkit::{LANDLOCK, World, binary, eventually, finish, send};

/// What the daemon was asked, by whom it was let in.
fn asked(served: &Served, purpose: &str) -> usize {
    let records = served.records("authenticated");
    records.iter().filter(|record| record["event"]["purpose"] == purpose).count()
}

/// A daemon that has said where it is.
fn posted(served: Served) -> Served {
    let file = served.world.state.join("ringfence/daemon.socket");
    eventually("it says where it is", || file.exists());
    served
}

/// S003-15: the same words, answered by the daemon: what is revoked is cut off before the command ends.
#[test]
fn tokens_are_made_and_ended_by_the_daemon_where_one_runs() {
    let served = posted(Served::new());
    let minted = |flags: &[&str]| {
        let done = served.ringfence(&[&["token", "create", "ci"], flags].concat()).expect(0);
        done.text().trim_end().to_owned()
    };
    let token = minted(&["--scope", "read", "--expires", "1h"]);
    let id = token.split('_').nth(2).unwrap();
    assert_eq!(asked(&served, Method::TokenCreate.name()), 1);
    let listed = served.ringfence(&["token", "list", "--json"]).expect(0).json();
    assert_eq!((&listed["tokens"][0]["id"], &listed["tokens"][0]["label"]), (&json!(id), &json!("ci")));
    let mut holder = served.client_with(&token);
    let mut events = holder.events(&Default::default()).unwrap();
    let second = served.ringfence(&["token", "rotate", id.get(..6).unwrap()]).expect(0).text();
    assert_ne!(second.trim_end(), token);
    let cut = events.find_map(Result::err);
    assert!(matches!(cut, Some(ringfence_client::ClientError::Api(_))), "{cut:?}");
    let revoked = served.ringfence(&["token", "revoke", id]).expect(0).text();
    assert!(revoked.contains("revoked"), "{revoked}");
    assert_eq!(asked(&served, Method::TokenRevoke.name()), 1);
    served.ringfence(&["token", "rotate", id]).expect(125).says("revoked");
    served
        .ringfence(&["token", "create", "x", "--scope", "read", "--operator", "ann"])
        .expect(125)
        .says("hint:");
    served.ringfence(&["device", "approve", "00000-00000"]).expect(125).says("no device waits");
    assert_eq!(asked(&served, Method::TokenRotate.name()), 2, "also what was refused was asked there");
}

/// The way back in: without a daemon, also after one that was killed, the same words work on the store itself.
#[test]
fn without_a_daemon_the_store_itself_is_used() {
    let mut served = posted(Served::new());
    served.ringfence(&["token", "create", "one", "--scope", "read"]).expect(0);
    send(&served.child, Signal::KILL);
    let _status = ended("the daemon", &mut served.child);
    assert!(served.world.state.join("ringfence/daemon.socket").exists(), "what it left leads nowhere");
    served.ringfence(&["token", "create", "two", "--scope", "read"]).expect(0);
    let tokens = served.ringfence(&["token", "list", "--json"]).expect(0).json();
    assert_eq!(tokens["tokens"].as_array().unwrap().len(), 2);
    assert_eq!(asked(&served, Method::TokenCreate.name()), 1);
    let status = served.ringfence(&["status", "--json"]).expect(0).json();
    assert_eq!(status["daemon"], Value::Null);
}

#[test]
fn status_shows_the_daemon_with_what_waits() {
    let world = World::new();
    let none = finish(world.ringfence().arg("status"), b"").expect(0).text();
    assert!(none.contains("ringfence serve"), "{none}");
    let served = posted(Served::with(world, &["--drain", "10ms"]));
    let guarded = CreateSession { profile: Some(Profile::Guarded), ..served.wanted() };
    let session = served.client().call(&guarded).unwrap();
    let argv = ["mkdir", "made"].map(str::to_owned).to_vec();
    served.client().call(&Exec { background: true, argv, ..exec(&session, "") }).unwrap();
    let status = || served.ringfence(&["status", "--json"]).expect(0).json()["daemon"].clone();
    eventually("a question waits", || status()["questions"] == 1);
    let seen = status();
    assert_eq!((&seen["sessions"], &seen["version"]), (&json!(1), &json!(env!("CARGO_PKG_VERSION"))));
    let text = served.ringfence(&["status"]).expect(0).text();
    assert!(text.contains("1 sessions, 1 questions wait"), "{text}");
    let mut served = served;
    send(&served.child, Signal::TERM);
    let _status = ended("the daemon", &mut served.child);
    assert!(!served.world.state.join("ringfence/daemon.socket").exists());
}

/// What is inside a fence is not asked for by the daemon either.
#[test]
fn a_command_inside_a_fence_makes_no_token_by_the_daemon() {
    let served = posted(Served::new());
    let make = format!("'{}' token create x --scope admin", binary().display());
    let inside = served.world.sh_with(LANDLOCK, &make);
    assert!(!inside.text().contains("rf_api_"), "{}", inside.text());
    assert_eq!(asked(&served, Method::TokenCreate.name()), 0);
    let mut control = served.world.host("sh");
    let made = finish(control.args(["-c", &make]), b"").expect(0);
    assert!(made.text().contains("rf_api_"));
    assert_eq!(asked(&served, Method::TokenCreate.name()), 1, "the control: outside the daemon makes one");
}

/// One that hangs keeps nobody from what is in the store.
#[test]
fn a_daemon_that_hangs_is_done_without() {
    let served = posted(Served::new());
    let minted = served.ringfence(&["token", "create", "ci", "--scope", "read"]).expect(0).text();
    let id = minted.split('_').nth(2).unwrap();
    send(&served.child, Signal::STOP);
    let revoked = served.ringfence(&["token", "revoke", id]);
    send(&served.child, Signal::CONT);
    revoked.expect(0).says("it is done without it");
    let mut late = served.client_with(minted.trim_end());
    let refused = late.raw(Method::WhoAmI, json!({}));
    assert!(matches!(refused, Err(ringfence_client::ClientError::Api(_))), "{refused:?}");
}
