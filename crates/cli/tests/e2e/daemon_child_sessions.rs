//! Parts of sessions have at most what the whole has.

use std::fs;

use ringfence_api::{ApiError, CallInfo, CallState, CreateSession, ExecRequest, SessionInfo};
use ringfence_client::ClientError;

use crate::approvals::configure;
use crate::daemon_fixture::{Served, exec};
use crate::daemon_reload::change;
use crate::testkit::{World, finish};

/// An agent that may less than others, in each of the ways that a policy has.
const POLICY: &str = r#"
[agents.reviewer]
[[agents.reviewer.command]]
deny = [["git", "push"]]
[[agents.reviewer.path]]
deny = "hidden"
[[agents.reviewer.root]]
path = "fixed"
access = "read"
"#;

fn run(served: &Served, session: &SessionInfo, argv: &[&str]) -> CallInfo {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    served.client().call(&ExecRequest { argv, ..exec(session, "") }).unwrap()
}

fn made(served: &Served, wanted: CreateSession) -> SessionInfo {
    served.client().call(&wanted).unwrap()
}

fn part_of(served: &Served, whole: &SessionInfo) -> CreateSession {
    CreateSession { parent: Some(whole.session.clone()), ..served.wanted() }
}

fn refused(served: &Served, wanted: &CreateSession) -> ApiError {
    match served.client().call(wanted) {
        Err(ClientError::Api(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn is_refused(info: &CallInfo) -> bool {
    info.state == CallState::Refused
}

/// A part that names no agent, or another, is held to the rules, paths and roots of the whole.
#[test]
fn a_part_is_held_to_every_rule_of_its_whole() {
    let world = World::new();
    configure(&world, POLICY);
    world.write("hidden", "secret");
    world.write("fixed/x", "content");
    let served = Served::with(world, &[]);
    let reviewer = Some("reviewer".to_owned());
    let whole = made(&served, CreateSession { agent_name: reviewer, ..served.wanted() });
    let push = ["git", "push", "nowhere"];
    assert!(is_refused(&run(&served, &whole, &push)), "the whole may not");
    let free = served.session();
    let other =
        made(&served, CreateSession { agent_name: Some("other".to_owned()), ..part_of(&served, &whole) });
    let part = made(&served, part_of(&served, &whole));
    let inner = made(&served, part_of(&served, &part));
    assert!(!is_refused(&run(&served, &free, &push)), "control: who is no part may");
    assert_eq!(run(&served, &free, &["cat", "hidden"]).exit_code, Some(0), "control");
    for held in [&part, &other, &inner] {
        let info = run(&served, held, &push);
        assert!(is_refused(&info), "{info:?}");
        assert_ne!(run(&served, held, &["cat", "hidden"]).exit_code, Some(0));
        assert_eq!(run(&served, held, &["touch", "own"]).exit_code, Some(0), "what the whole may");
        let _written = run(&served, held, &["touch", "fixed/by-part"]);
        assert!(served.world.read("fixed/by-part").is_none(), "a root of the whole");
    }
    assert_eq!(run(&served, &free, &["touch", "fixed/by-other"]).exit_code, Some(0), "control");
    assert!(served.world.read("fixed/by-other").is_some());
}

/// What is taken away from the whole while it runs is taken away from its parts, also from those that began before.
#[test]
fn parts_follow_their_whole() {
    let world = World::new();
    configure(&world, POLICY);
    world.write("fixed/x", "content");
    let served = Served::with(world, &[]);
    let whole = made(&served, CreateSession { agent_name: Some("reviewer".to_owned()), ..served.wanted() });
    let part = made(&served, part_of(&served, &whole));
    let free = served.session();
    assert_eq!(run(&served, &part, &["touch", "a"]).exit_code, Some(0), "control");
    change(&served, &format!("{POLICY}[[agents.reviewer.command]]\ndeny = [[\"touch\"]]\n"));
    assert!(is_refused(&run(&served, &part, &["touch", "b"])));
    assert_eq!(run(&served, &free, &["touch", "c"]).exit_code, Some(0), "control: nobody else's");
    // Also where the whole has read it again before.
    let late = made(&served, part_of(&served, &whole));
    assert!(is_refused(&run(&served, &whole, &["touch", "d"])));
    assert!(is_refused(&run(&served, &late, &["touch", "d"])));
    assert!(served.world.read("b").is_none() && served.world.read("d").is_none());
}

/// What cannot be compared has to be the same.
#[test]
fn a_part_in_another_place_or_with_another_secret_is_refused() {
    let world = World::new();
    configure(&world, POLICY);
    fs::create_dir_all(world.workspace.join("sub")).unwrap();
    world.write("fixed/x", "content");
    let served = Served::with(world, &[]);
    let below = |whole: &SessionInfo| CreateSession {
        workspace: served.world.workspace.join("sub"),
        ..part_of(&served, whole)
    };
    let ruled = made(&served, CreateSession { agent_name: Some("reviewer".to_owned()), ..served.wanted() });
    let free = served.session();
    let error = refused(&served, &below(&ruled));
    assert_eq!(error.rule.as_deref(), Some("session.ceiling"), "{error:?}");
    let part = made(&served, below(&free));
    assert_eq!(run(&served, &part, &["touch", "x"]).exit_code, Some(0), "control: without rules about paths");
    assert!(served.world.read("sub/x").is_some() && served.world.read("x").is_none());
    let outside = CreateSession { workspace: served.world.beside("elsewhere"), ..part_of(&served, &free) };
    fs::create_dir_all(&outside.workspace).unwrap();
    assert_eq!(refused(&served, &outside).rule.as_deref(), Some("session.ceiling"));
    let key = ["secret", "set", "tool-key"];
    finish(served.world.ringfence().args(key), b"a-key-of-some-length-3141592653").expect(0);
    let secrets = vec!["tool-key".to_owned()];
    let with = CreateSession { secrets: secrets.clone(), ..part_of(&served, &free) };
    assert_eq!(refused(&served, &with).rule.as_deref(), Some("session.ceiling"));
    let whole = made(&served, CreateSession { secrets: secrets.clone(), ..served.wanted() });
    made(&served, CreateSession { secrets, ..part_of(&served, &whole) });
}
