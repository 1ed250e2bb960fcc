//! `serve --danger` and the flags beside it: typed by whoever starts the daemon, and set by nobody else (C-31, S001-7…9).

use std::fs;

use ringfence_api::{
    ApiError, CancelCall, CreateSession, ExecRequest, ListApprovals, Method, ReadFile, SessionInfo, WriteFile,
};
use ringfence_client::ClientError;
use ringfence_types::{Profile, RefusalCode, Scope};
use serde_json::{Value, json};

use crate::approvals::configure;
use crate::daemon_fixture::{Served, exec};
use crate::daemon_reload::change;
use crate::daemon_rights::minted;
use crate::testkit::{World, eventually, finish};

const KEYS: [&str; 3] = ["danger", "allow_sensitive_roots", "allow_denylisted_commands"];

fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> ApiError {
    match answer {
        Err(ClientError::Api(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn in_danger(served: &Served) -> CreateSession {
    CreateSession { profile: Some(Profile::Danger), ..served.wanted() }
}

/// Whether a session writes outside its workspace, by what is there then.
fn writes_beyond(served: &Served, session: &SessionInfo) -> bool {
    let file = served.world.beside("beyond").join("made");
    let _call = served.sh(session, &format!("echo x > {}", file.display()));
    fs::remove_file(file).is_ok()
}

/// With a credential store in it from the beginning.
fn with_store() -> World {
    let world = World::new();
    fs::create_dir_all(world.home.join(".ssh")).unwrap();
    fs::write(world.home.join(".ssh/config"), "of the person\n").unwrap();
    world
}

/// Whether a session reads what is in the store, by what it copied of it.
fn reads_store(served: &Served, session: &SessionInfo) -> bool {
    let store = served.world.home.join(".ssh/config");
    let _call = served.sh(session, &format!("cat {} > copied", store.display()));
    let copied = served.world.read("copied").is_some_and(|text| text == "of the person\n");
    let _gone = fs::remove_file(served.world.workspace.join("copied"));
    copied
}

#[test]
fn danger_is_opened_by_the_flag_and_chosen_by_the_owner_alone() {
    let closed = Served::new();
    let error = refused(closed.client().call(&in_danger(&closed)));
    assert_eq!(error.rule.as_deref(), Some("profile.danger"), "{error:?}");
    assert!(error.message.contains("--danger"), "{error:?}");
    assert!(!writes_beyond(&closed, &closed.session()));
    assert_eq!(closed.records("policy-changed").len(), 0);
    drop(closed);
    let served = Served::with(with_store(), &["--danger"]);
    let token = minted(&served, Scope::Run);
    let by_token = refused(served.client_with(&token).call(&in_danger(&served)));
    assert_eq!(by_token.rule.as_deref(), Some("session.ceiling"));
    assert!(!writes_beyond(&served, &served.session()), "a session that does not ask has none of it");
    let danger = served.client().call(&in_danger(&served)).unwrap();
    assert_eq!(danger.profile, Profile::Danger);
    assert!(writes_beyond(&served, &danger));
    assert!(!reads_store(&served, &danger), "what has a flag of its own");
    let changed = served.records("policy-changed");
    assert_eq!(changed.len(), 1);
    assert!(changed[0]["event"]["change"].as_str().unwrap().contains("`--danger`"), "{changed:?}");
}

#[test]
fn credential_stores_are_opened_by_their_flag() {
    let served = Served::with(with_store(), &["--danger", "--allow-sensitive-roots"]);
    let danger = served.client().call(&in_danger(&served)).unwrap();
    assert!(reads_store(&served, &danger));
    assert!(!reads_store(&served, &served.session()), "in profile `danger` alone");
    let changed = served.records("policy-changed");
    assert!(changed[0]["event"]["change"].as_str().unwrap().contains("`--allow-sensitive-roots`"));
}

/// Also where a file of the operator names a store: in every other profile that is as if the flag were not there.
#[test]
fn credential_stores_are_closed_to_every_other_profile() {
    let world = with_store();
    configure(&world, "[[root]]\npath = \"~/.ssh\"\naccess = \"read\"\n");
    let served = Served::with(world, &["--danger", "--allow-sensitive-roots"]);
    let token = minted(&served, Scope::Run);
    let danger = served.client().call(&in_danger(&served)).unwrap();
    assert!(reads_store(&served, &danger), "the control");
    refused(served.client_with(&token).call(&served.wanted()));
    refused(served.client().call(&served.wanted()));
    change(&served, "");
    let session = served.client_with(&token).call(&served.wanted()).unwrap();
    assert!(!reads_store(&served, &session));
    let told = served.said();
    assert!(told.contains("`none`") && told.contains("`external`"), "{told}");
}

#[test]
fn the_deny_list_is_asked_about_by_its_flag() {
    let guarded = |served: &Served| {
        let wanted = CreateSession { profile: Some(Profile::Guarded), ..served.wanted() };
        served.client().call(&wanted).unwrap()
    };
    let remove = |session: &SessionInfo| {
        let argv = ["rm", "precious"].map(str::to_owned).to_vec();
        ExecRequest { argv, ..exec(session, "") }
    };
    let world = World::new();
    configure(&world, "[approvals]\ntimeout = \"1s\"\n");
    let closed = Served::with(world, &[]);
    closed.world.write("precious", "x");
    let call = closed.client().call(&remove(&guarded(&closed))).unwrap();
    let code = call.refusal.map(|refusal| refusal.code);
    assert!(code.is_some_and(|code| code != RefusalCode::Approval), "nobody is asked: {code:?}");
    drop(closed);
    let served = Served::with(World::new(), &["--danger", "--allow-denylisted-commands"]);
    served.world.write("precious", "x");
    let session = guarded(&served);
    let call = served.client().call(&ExecRequest { background: true, ..remove(&session) }).unwrap();
    eventually("it is asked about", || served.client().call(&ListApprovals {}).unwrap().approvals.len() == 1);
    assert!(served.world.read("precious").is_some());
    served.client().call(&CancelCall { session: session.session, call: call.call }).unwrap();
}

/// A file, one that is read again, and what is asked for over the interface: none of them sets any of the three.
#[test]
fn nothing_but_the_command_line_opens_danger() {
    let served = Served::new();
    let create = |more: Value| {
        let mut request = json!({ "workspace": served.world.workspace });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.client().raw(Method::SessionCreate, request)
    };
    for key in KEYS {
        let error = refused(create(json!({ key: true })));
        assert_eq!(error.code, ringfence_api::ErrorCode::InvalidArgument, "{key}: {error:?}");
    }
    fs::create_dir_all(served.world.home.join(".config/ringfence")).unwrap();
    for key in KEYS {
        let event = change(&served, &format!("{key} = true\n"));
        assert!(event["change"].as_str().unwrap().contains("not taken"), "{event}");
    }
    assert_eq!(refused(served.client().call(&in_danger(&served))).rule.as_deref(), Some("profile.danger"));
    assert_eq!(served.sessions().len(), 0);
    for key in KEYS {
        let world = World::new();
        configure(&world, &format!("{key} = true\n"));
        let flag = format!("--{}", key.replace('_', "-"));
        finish(world.ringfence().args(["serve", "--check"]), b"").expect(125).says(&flag);
    }
    for flag in ["--allow-sensitive-roots", "--allow-denylisted-commands"] {
        let world = World::new();
        finish(world.ringfence().args(["serve", flag]), b"").expect(126).says("add `--danger`");
        finish(world.ringfence().args(["serve", "--check", "--danger", flag]), b"").expect(0);
    }
}

/// Document 001: a file outside the workspace is read, written and removed there, and nowhere else.
#[test]
fn file_tools_reach_the_machine_in_danger_and_no_credential_store() {
    let served = Served::with(with_store(), &["--danger"]);
    let beyond = served.world.beside("beyond");
    fs::write(beyond.join("file"), "of the host").unwrap();
    fs::write(beyond.join(".env"), "of the host").unwrap();
    std::os::unix::fs::symlink(served.world.home.join(".ssh"), beyond.join("way")).unwrap();
    let danger = served.client().call(&in_danger(&served)).unwrap();
    let (plain, home, state) = (served.session(), &served.world.home, &served.world.state);
    let read = |session: &SessionInfo, path: &std::path::Path| {
        served.client().call(&ReadFile { session: session.session.clone(), path: path.to_owned() })
    };
    let write = |session: &SessionInfo, path: &std::path::Path| {
        let content = ringfence_api::TextOrBase64::Text("changed".to_owned());
        served.client().call(&WriteFile { session: session.session.clone(), path: path.to_owned(), content })
    };
    for path in [beyond.join("file"), beyond.join(".env"), beyond.join("new")] {
        assert_eq!(refused(write(&plain, &path)).rule.as_deref(), Some("path.boundary"), "the control");
        write(&danger, &path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "changed");
        read(&danger, &path).unwrap();
    }
    let shut = [
        home.join(".ssh/config"),
        home.join(".ssh/new"),
        beyond.join("way/config"),
        state.join("ringfence/ledger.db"),
        home.join(".config/ringfence/config.toml"),
    ];
    for path in shut {
        refused(read(&danger, &path));
        refused(write(&danger, &path));
    }
    assert_eq!(fs::read_to_string(home.join(".ssh/config")).unwrap(), "of the person\n");
    assert!(!home.join(".ssh/new").exists() && !home.join(".config/ringfence/config.toml").exists());
    served.world.ledger_tool(&["verify"]).expect(0);
}
