//! What somebody with a token gets by naming it: a secret, an agent, a directory around or within the one that policy is about.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ringfence_api::{ApiError, CallInfo, CallState, CreateSession, ExecRequest, SessionInfo};
use ringfence_client::ClientError;
use ringfence_types::{Profile, Scope};

use crate::approvals::configure;
use crate::daemon_fixture::{Served, exec};
use crate::daemon_reload::change;
use crate::daemon_rights::minted;
use crate::testkit::{World, finish};

const DEPLOYER: &str = "deployer";

fn made(served: &Served, token: Option<&str>, wanted: &CreateSession) -> Result<SessionInfo, ApiError> {
    let mut client = token.map_or_else(|| served.client(), |token| served.client_with(token));
    match client.call(wanted) {
        Ok(session) => Ok(session),
        Err(ClientError::Api(error)) => Err(error),
        Err(other) => panic!("{wanted:?}: {other:?}"),
    }
}

fn refused(served: &Served, token: &str, wanted: &CreateSession) -> ApiError {
    let error = made(served, Some(token), wanted).unwrap_err();
    assert_eq!(error.rule.as_deref(), Some("session.ceiling"), "{wanted:?}: {error:?}");
    error
}

fn keep(served: &Served, name: &str, scope: &[&str], value: &str) {
    let mut set = served.world.ringfence();
    finish(set.args(["secret", "set", name]).args(scope), value.as_bytes()).expect(0);
}

fn with(served: &Served, secret: &str) -> CreateSession {
    CreateSession {
        agent_name: Some(DEPLOYER.to_owned()),
        secrets: vec![secret.to_owned()],
        ..served.wanted()
    }
}

/// What a session holds as this secret, by what it wrote of it. Backwards: what is found is not passed on.
fn taken(served: &Served, session: &SessionInfo, secret: &str) -> Option<String> {
    let _call = served.sh(session, &format!("rev /.ringfence/secrets/{secret} > taken"));
    let text = served.world.read("taken")?;
    fs::remove_file(served.world.workspace.join("taken")).unwrap();
    Some(text.trim_end().chars().rev().collect())
}

/// A secret that is for everywhere or for an agent is for whoever starts Ringfence: what an agent is called is what a token says.
#[test]
fn a_token_names_no_secret_but_those_of_its_workspace() {
    let served = Served::new();
    let here = served.world.workspace.to_str().unwrap();
    let other = served.world.beside("other");
    keep(&served, "ANYWHERE", &[], "value-for-anywhere-27182818");
    keep(&served, "PROD", &["--agent", DEPLOYER], "value-for-deployer-27182818");
    keep(&served, "BOTH", &["--workspace", here, "--agent", DEPLOYER], "value-for-both-27182818");
    keep(&served, "ELSEWHERE", &["--workspace", other.to_str().unwrap()], "value-for-elsewhere-27182818");
    keep(&served, "OWN", &["--workspace", here], "value-for-here-27182818");
    keep(&served, "OWN", &["--agent", DEPLOYER], "value-for-another-27182818");
    let provider = ["sh", "-c", "cat /.ringfence/secrets/* | rev > stolen"].map(str::to_owned).to_vec();
    for scope in [Scope::Run, Scope::Admin] {
        let scopes = format!("run,{scope}");
        let create = ["token", "create", scope.word(), "--scope", &scopes, "--json"];
        let token = served.ringfence(&create).expect(0).json()["secret"].as_str().unwrap().to_owned();
        for name in ["ANYWHERE", "PROD", "BOTH", "ELSEWHERE"] {
            let wanted = CreateSession { agent_argv: Some(provider.clone()), ..with(&served, name) };
            let error = refused(&served, &token, &wanted);
            let hint = error.hint.unwrap();
            assert!(error.message.contains(&format!("`{name}`")), "{}", error.message);
            assert!(hint.contains(&format!("ringfence secret set {name} --workspace {here}")), "{hint}");
            assert!(!error.message.contains(other.to_str().unwrap()), "{}", error.message);
        }
        let unknown = made(&served, Some(&token), &with(&served, "PRODD")).unwrap_err();
        assert_eq!(unknown.rule.as_deref(), Some("secret.unknown"));
        assert!(!format!("{unknown:?}").contains("PROD"), "{unknown:?}");
    }
    assert!(served.sessions().is_empty() && served.world.read("stolen").is_none());
    assert_eq!(served.records("secret-released").len(), 0);
    let token = minted(&served, Scope::Run);
    let own = made(&served, Some(&token), &with(&served, "OWN")).unwrap();
    assert_eq!(taken(&served, &own, "OWN").as_deref(), Some("value-for-here-27182818"));
    // The control: the owner says who the agent is.
    for (name, value) in [
        ("ANYWHERE", "value-for-anywhere-27182818"),
        ("PROD", "value-for-deployer-27182818"),
        ("BOTH", "value-for-both-27182818"),
    ] {
        let session = made(&served, None, &with(&served, name)).unwrap();
        assert_eq!(taken(&served, &session, name).as_deref(), Some(value));
    }
}

/// `prod`, what is below it, and what is apart from it.
fn places(world: &World) -> [PathBuf; 3] {
    let places = ["prod", "prod/src", "other"].map(|name| world.workspace.join(name));
    places.iter().for_each(|place| fs::create_dir_all(place).unwrap());
    places
}

/// Nobody makes anything in this one.
fn closed(place: &Path) -> String {
    format!("[[workspaces.\"{}\".command]]\ndeny = [[\"touch\"]]\n", place.display())
}

fn touch(served: &Served, session: &SessionInfo) -> CallInfo {
    let argv = ["touch", "made"].map(str::to_owned).to_vec();
    served.client().call(&ExecRequest { argv, ..exec(session, "") }).unwrap()
}

/// Whether something can be made in that session, by what is there then.
fn makes(served: &Served, session: &SessionInfo) -> bool {
    let _call = touch(served, session);
    fs::remove_file(session.workspace.join("made")).is_ok()
}

fn at(served: &Served, place: &Path) -> CreateSession {
    CreateSession { workspace: place.to_owned(), ..served.wanted() }
}

/// `prod` has a part of its own; what is below it and what is around it hold the same files.
#[test]
fn a_token_does_not_go_round_the_policy_of_a_workspace() {
    let world = World::new();
    let [prod, src, other] = places(&world);
    configure(&world, &closed(&prod));
    let served = Served::with(world, &[]);
    let token = minted(&served, Scope::Run);
    for place in [&src, &served.world.workspace] {
        let asked = at(&served, place);
        for wanted in [asked.clone(), CreateSession { profile: Some(Profile::Review), ..asked }] {
            let hint = refused(&served, &token, &wanted).hint.unwrap();
            assert!(hint.contains(&format!("`{}`", prod.display())), "{hint}");
        }
    }
    let flags =
        ["token", "create", "narrow", "--scope", "run", "--json", "--workspace", src.to_str().unwrap()];
    let narrow = served.ringfence(&flags).expect(0).json()["secret"].as_str().unwrap().to_owned();
    let told = format!("{:?}", refused(&served, &narrow, &at(&served, &src)));
    assert!(told.contains("name that workspace;") && !told.contains("prod"), "{told}");
    assert!(served.sessions().is_empty());
    // The controls: the workspace itself, its part, a place of its own, and the owner anywhere.
    let whole = made(&served, Some(&token), &at(&served, &prod)).unwrap();
    let part = CreateSession { parent: Some(whole.session.clone()), ..at(&served, &src) };
    let part = made(&served, Some(&token), &part).unwrap();
    assert!(!makes(&served, &whole) && !makes(&served, &part));
    let apart = made(&served, Some(&token), &at(&served, &other)).unwrap();
    assert!(makes(&served, &apart));
    // What is written for a directory holds below it, for the owner too.
    assert!(!makes(&served, &made(&served, None, &at(&served, &src)).unwrap()));
    let around = at(&served, &served.world.workspace);
    assert!(makes(&served, &made(&served, None, &around).unwrap()));
}

/// The nearest part of the operator counts, what was approved takes nothing away, and what is written later holds for what runs.
#[test]
fn parts_of_the_policy_around_and_within_a_workspace() {
    let world = World::new();
    let [prod, src, other] = places(&world);
    let approved = |place: &Path| {
        let digest = "0".repeat(64);
        format!("[workspaces.\"{}\"]\napproved_digests = [\"sha256:{digest}\"]\n", place.display())
    };
    configure(&world, &approved(&prod));
    let served = Served::with(world, &[]);
    let token = minted(&served, Scope::Run);
    let below = made(&served, Some(&token), &at(&served, &src)).unwrap();
    let owners = made(&served, None, &at(&served, &src)).unwrap();
    assert!(makes(&served, &below) && makes(&served, &owners));
    change(&served, &closed(&prod));
    let call = touch(&served, &below);
    assert_eq!(call.state, CallState::Refused, "{call:?}");
    assert_eq!(call.refusal.unwrap().rule, "session.ceiling");
    assert!(!src.join("made").exists());
    assert!(!makes(&served, &owners), "what is written for a directory holds below it, for the owner too");
    change(&served, &format!("{}{}", closed(&prod), approved(&src)));
    refused(&served, &token, &at(&served, &src));
    change(&served, &format!("{}[workspaces.\"{}\"]\nnet = \"none\"\n", closed(&prod), src.display()));
    let own_part = made(&served, Some(&token), &at(&served, &src)).unwrap();
    assert!(!makes(&served, &own_part), "a part of its own adds to the one around it");
    refused(&served, &token, &at(&served, &prod));
    assert!(makes(&served, &made(&served, Some(&token), &at(&served, &other)).unwrap()));
}

/// A session is held to the policy of the place where it is, and not of the one where a link leads by now.
#[test]
fn a_link_that_is_moved_does_not_move_a_session_to_another_policy() {
    let world = World::new();
    let [prod, _, other] = places(&world);
    configure(&world, &closed(&prod));
    world.write("other/.ringfence/policy.toml", "[limits]\nprocesses = 100\n");
    let served = Served::with(world, &[]);
    let link = served.world.beside("links").join("link");
    symlink(&prod, &link).unwrap();
    let token = minted(&served, Scope::Run);
    let sessions = [Some(&*token), None].map(|token| made(&served, token, &at(&served, &link)).unwrap());
    fs::remove_file(&link).unwrap();
    symlink(&other, &link).unwrap();
    for session in &sessions {
        assert_eq!(session.workspace, prod);
        assert!(!makes(&served, session));
    }
    let control = made(&served, Some(&token), &at(&served, &link)).unwrap();
    assert!(control.workspace == other && makes(&served, &control));
    // Nor does a link that takes the place of the directory itself.
    fs::rename(&prod, prod.with_extension("aside")).unwrap();
    symlink(&other, &prod).unwrap();
    for session in &sessions {
        let call = touch(&served, session);
        assert_ne!(call.exit_code, Some(0), "{call:?}");
    }
    assert!(!other.join("made").exists() && !prod.with_extension("aside").join("made").exists());
}
