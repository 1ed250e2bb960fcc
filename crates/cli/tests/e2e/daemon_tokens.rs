//! What becomes of rights that are handed on: by running something, by minting, by rotating, and when their maker is gone.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use ringfence_api::{
    ApiError, CallState, CreateSession, CreateToken, DownloadFile, ExecRequest, ExecStreamRequest,
    ListApprovals, Method, MethodAccess, MethodTarget, MintedToken, ReadFile, RequestPairing, RotateToken,
    SessionInfo, ShowCall, WhoAmI,
};
use ringfence_client::{Client, ClientError};
use ringfence_runtime::identity::DeviceKey;
use ringfence_types::{AllOrOnly, Profile, Rights, Scope};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::daemon_authorization_matrix::{Place, Said, Visitor, bearer, request};
use crate::daemon_fixture::{ASK, Served, exec, stdout};
use crate::daemon_rights::token_of;
use crate::testkit::{eventually, finish};

fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> ApiError {
    match answer {
        Err(ClientError::Api(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn handed_on(served: &Served, session: &SessionInfo, (own, left): (&str, Value)) -> String {
    let hand = json!({ "session": session.session, "label": "sub", "attenuation": left });
    let made = served.client_with(own).raw(Method::TokenAttenuate, hand).unwrap();
    made["secret"].as_str().unwrap().to_owned()
}

fn api(served: &Served, scopes: &[Scope]) -> MintedToken {
    let rights = Rights { scopes: scopes.iter().copied().collect(), workspaces: AllOrOnly::Any };
    let new = CreateToken { label: "t".to_owned(), rights, lifetime_s: Some(600), operator: None };
    served.client().call(&new).unwrap()
}

fn id_of(token: &str) -> &str {
    token.split('_').nth(2).unwrap()
}

/// C-38: what runs for a token that was handed on has that token, and so its budget, and not the session's.
#[test]
fn running_something_gives_a_narrowed_token_nothing_back() {
    let served = Served::new();
    let session = served.session();
    let own = token_of(&served, &session);
    let left = json!({ "paths": "any", "hosts": "any", "commands": { "only": [["sh"]] }, "calls": 6 });
    let narrow = handed_on(&served, &session, (&own, left));
    // Not printed: what looks like a credential does not leave.
    let script = format!(
        r#"{ASK} printf %s "$RINGFENCE_SESSION_TOKEN" | rev > token
        for n in 1 2 3 4 5; do ask POST $S/files/write "{{\"path\":\"$1-$n\",\"content\":\"x\"}}"; done
        ask POST $S/exec "{{\"argv\":[\"touch\",\"$1-touched\"]}}""#
    );
    let run = |token: &str, name: &str, method: Method| {
        let argv = ["sh", "-c", &script, "sh", name];
        let request = json!({ "session": session.session, "argv": argv });
        match method {
            Method::CallExecStream => {
                let exec: ExecRequest = serde_json::from_value(request).unwrap();
                let mut client = served.client_with(token);
                client.run(&ExecStreamRequest(exec)).unwrap().for_each(|chunk| drop(chunk.unwrap()));
            }
            method => drop(served.client_with(token).raw(method, request).unwrap()),
        }
        let seen: String = served.world.read("token").unwrap().trim().chars().rev().collect();
        let made = |n: &str| served.world.workspace.join(format!("{name}-{n}")).exists();
        (seen, ["1", "2", "3", "4", "5"].map(made), made("touched"))
    };
    let all = [true; 5];
    assert_eq!(
        run(&own, "control", Method::CallExec),
        (own.clone(), all, true),
        "the session itself does it all"
    );
    let (seen, made, touched) = run(&narrow, "handed", Method::CallExec);
    assert_eq!((id_of(&seen), made), (id_of(&narrow), all), "six calls: one ran this, five are left");
    assert!(!touched, "only `sh` was left to it");
    assert_eq!(
        refused(served.client_with(&narrow).call(&exec(&session, "true"))).rule.as_deref(),
        Some("identity.budget")
    );
    let left = json!({ "paths": "any", "hosts": "any", "commands": { "only": [["sh"]] }, "calls": 3 });
    let less = handed_on(&served, &session, (&own, left));
    let (seen, made, touched) = run(&less, "streamed", Method::CallExecStream);
    assert_eq!((id_of(&seen), made, touched), (id_of(&less), [true, true, false, false, false], false));
    // What an operator runs is the session's.
    served.sh(&session, "printf %s \"$RINGFENCE_SESSION_TOKEN\" | rev > token");
    assert_eq!(token_of(&served, &session), own);
}

/// C-38: every method that is open to an agent, for a token without some of its rights: each cell is what the table of methods says
/// it is held to, and nothing but the table.
#[test]
fn a_narrowed_token_is_held_to_its_limits_by_every_method() {
    let place = Place::new();
    let (served, session) = (&place.served, place.served.session());
    let workspace = served.world.workspace.to_str().unwrap().to_owned();
    let own = token_of(served, &session);
    let left = |part: &str, value: Value| {
        let mut left = json!({ "paths": "any", "hosts": "any", "commands": "any", "calls": null });
        left[part] = value;
        handed_on(served, &session, (&own, left))
    };
    let spent = left("calls", json!(1));
    let list = json!({ "session": session.session });
    served.client_with(&spent).raw(Method::FileList, list).unwrap();
    let (path, host, command, call) =
        (MethodTarget::Path, MethodTarget::Host, MethodTarget::Command, MethodTarget::Call);
    let tokens = [
        ("all of it", own.clone(), vec![]),
        ("some paths", left("paths", json!({ "only": ["/elsewhere"] })), vec![path, command, call]),
        ("some hosts", left("hosts", json!({ "only": ["a.example"] })), vec![host, command, call]),
        ("some commands", left("commands", json!({ "only": [["ls"]] })), vec![command, call]),
        ("no call", spent, vec![path, host, command, call]),
    ];
    let of_agents = |method: &&Method| matches!(method.access(), MethodAccess::Session(_));
    for method in Method::ALL.iter().filter(of_agents) {
        for (who, token, closed) in &tokens {
            let visitor = bearer(ringfence_api::TokenKind::Session, vec![], token);
            let said = place.ask(&visitor, *method, &request(*method, session.session.as_str(), &workspace));
            let expected = if closed.contains(&method.reach()) { Said::Forbidden } else { Said::LetIn };
            assert_eq!(said, expected, "{} with {who}", method.name());
        }
    }
}

/// Who asks whether they may is not told of what their token was handed on without.
#[test]
fn a_narrowed_token_hears_no_for_what_it_was_handed_on_without() {
    let served = Served::new();
    let session = served.session();
    for file in ["src/a", "b"] {
        served.world.write(file, "x");
    }
    let own = token_of(&served, &session);
    let src = served.world.workspace.join("src");
    let left = json!({ "paths": { "only": [src] }, "hosts": "any", "commands": "any", "calls": null });
    let narrow = handed_on(&served, &session, (&own, left));
    let explain = |token: &str, subject: Value| {
        let asked = json!({ "session": session.session, "subject": subject });
        let said = served.client_with(token).raw(Method::PolicyExplain, asked).unwrap();
        (said["decision"].as_str().unwrap().to_owned(), said["rule"].as_str().unwrap_or_default().to_owned())
    };
    let beyond = [json!({ "read": "b" }), json!({ "write": "b" })];
    for subject in beyond.into_iter().chain([json!({ "argv": ["ls"] }), json!({ "shell": "ls" })]) {
        let no = ("deny".to_owned(), "identity.attenuated".to_owned());
        assert_eq!(explain(&narrow, subject.clone()), no, "{subject}");
        assert_eq!(explain(&own, subject.clone()).0, "allow", "{subject}");
    }
    assert_eq!(explain(&narrow, json!({ "read": "src/a" })).0, "allow");
}

fn who(place: &Place, token: &str) -> Said {
    place.ask(&bearer(ringfence_api::TokenKind::Api, vec![], token), Method::WhoAmI, &json!({}))
}

fn minted_by(place: &Place, maker: &Visitor) -> String {
    let body = json!({ "label": "x", "rights": { "scopes": ["admin"], "workspaces": "any" } }).to_string();
    let (status, _, body) = place.send(maker.entrance, ("POST /v1/tokens", &maker.headers), &body);
    assert_eq!(status, 200, "{body}");
    let made: Value = serde_json::from_str(&body).unwrap();
    made["secret"].as_str().unwrap().to_owned()
}

/// C-32: what is made with a cookie, a token of a device or a token ends with it.
#[test]
fn what_is_made_with_a_credential_ends_with_it() {
    let place = Place::new();
    for maker in [place.web(Scope::Admin), place.device(Scope::Admin), place.api(Scope::Admin)] {
        let made = minted_by(&place, &maker);
        let more = minted_by(&place, &bearer(ringfence_api::TokenKind::Api, vec![], &made));
        assert_eq!((who(&place, &made), who(&place, &more)), (Said::LetIn, Said::LetIn), "{:?}", maker.kind);
        assert_eq!(place.ask(&maker, Method::Logout, &json!({})), Said::LetIn);
        assert_eq!(
            (who(&place, &made), who(&place, &more)),
            (Said::Unknown, Said::Unknown),
            "{:?}",
            maker.kind
        );
    }
    // The control: what the owner of the machine makes stands for itself.
    let made = minted_by(&place, &place.owner());
    assert_eq!(who(&place, &made), Said::LetIn);
}

/// A token takes over no other by rotating it.
#[test]
fn a_token_is_not_taken_over_by_rotating_it() {
    let served = Served::new();
    let [one, other] = [api(&served, &[Scope::Admin]), api(&served, &[Scope::Admin])];
    let rotate = RotateToken { id: id_of(&other.secret).to_owned() };
    let why = refused(served.client_with(&one.secret).call(&rotate));
    assert_eq!(why.rule.as_deref(), Some("identity.not-owner"), "{why:?}");
    served.client_with(&other.secret).call(&WhoAmI {}).unwrap();
    let refusals = served.records("authentication-attempted");
    let refusals =
        refusals.iter().filter(|record| record["event"]["refusal"]["rule"] == "identity.not-owner");
    assert_eq!(refusals.count(), 1, "it is written down as a no");
    // The control: itself, what it made, and the owner do.
    let fresh = served.client_with(&other.secret).call(&rotate).unwrap().secret;
    let rights = Rights { scopes: [Scope::Admin].into_iter().collect(), workspaces: AllOrOnly::Any };
    let new = CreateToken { label: "t".to_owned(), rights, lifetime_s: None, operator: None };
    let child = served.client_with(&fresh).call(&new).unwrap();
    served.client_with(&fresh).call(&RotateToken { id: id_of(&child.secret).to_owned() }).unwrap();
    let last = served.client().call(&rotate).unwrap().secret;
    assert!(served.client_with(&fresh).call(&WhoAmI {}).is_err());
    served.client_with(&last).call(&WhoAmI {}).unwrap();
}

/// Each call says who made it and by which credential, and never its secret.
#[test]
fn the_ledger_says_who_made_each_call() {
    let served = Served::new();
    served.world.write("f", "content\n");
    let session = served.session();
    let own = token_of(&served, &session);
    let left = json!({ "paths": "any", "hosts": "any", "commands": "any", "calls": 9 });
    let narrow = handed_on(&served, &session, (&own, left));
    let token = api(&served, &[Scope::Run]).secret;
    let callers = [
        (None, None),
        (Some(&own), Some("session")),
        (Some(&narrow), Some("session")),
        (Some(&token), Some("api")),
    ];
    for (token, kind) in callers {
        let mut client = token.map_or_else(|| served.client(), |token| served.client_with(token));
        let after = served.records("call-intended").len();
        client.call(&exec(&session, "true")).unwrap();
        client.call(&ReadFile { session: session.session.clone(), path: "f".into() }).unwrap();
        client.download(&DownloadFile { session: session.session.clone(), path: "f".into() }).unwrap();
        let intents = served.records("call-intended").split_off(after);
        assert_eq!(intents.len(), 3, "{intents:?}");
        for intent in &intents {
            let by = &intent["event"]["call_origin"];
            assert_eq!(by["credential"]["kind"].as_str(), kind, "{by}");
            assert_eq!(by["credential"]["id"].as_str(), token.map(|token| id_of(token)), "{by}");
            let principal = if kind == Some("session") { "agent" } else { "operator" };
            assert_eq!(by["principal"]["principal"], principal, "{by}");
        }
    }
    let all = Value::from(served.world.all_records()).to_string();
    for secret in [&own, &narrow, &token] {
        assert!(!all.contains(secret.rsplit('_').next().unwrap()));
    }
    let tail = served.world.ledger_tool(&["tail", "--kind", "call-intended"]).expect(0).text();
    assert!(tail.contains(&format!("with session token {}", id_of(&narrow))), "{tail}");
    served.world.ledger_tool(&["verify"]).expect(0);
}

/// C-32: whoever made a call does not answer for it, whatever scopes they have.
#[test]
fn c32_who_asked_does_not_answer() {
    let served = Served::new();
    let guarded = CreateSession { profile: Some(Profile::Guarded), ..served.wanted() };
    let session = served.client().call(&guarded).unwrap();
    let asker = api(&served, &[Scope::Run, Scope::Approve, Scope::Admin]).secret;
    let other = api(&served, &[Scope::Approve]).secret;
    let rights = Rights { scopes: [Scope::Approve].into_iter().collect(), workspaces: AllOrOnly::Any };
    let new = CreateToken { label: "t".to_owned(), rights, lifetime_s: None, operator: None };
    let puppet = served.client_with(&asker).call(&new).unwrap().secret;
    let ask = |name: &str| {
        let argv = vec!["mkdir".to_owned(), name.to_owned()];
        let exec = ExecRequest { background: true, argv, ..exec(&session, "") };
        let call = served.client_with(&asker).call(&exec).unwrap().call;
        let waiting = || served.client().call(&ListApprovals {}).unwrap().approvals;
        eventually("a question waits", || waiting().len() == 1);
        (call, json!({ "id": waiting().remove(0).id, "answer": "once" }))
    };
    let ended = |call: u64| {
        let show = ShowCall { session: session.session.clone(), call, wait_ms: Some(60_000) };
        served.client().call(&show).unwrap().state
    };
    let (call, answer) = ask("made");
    for token in [&asker, &puppet] {
        let why = refused(served.client_with(token).raw(Method::ApprovalAnswer, answer.clone()));
        assert_eq!(why.rule.as_deref(), Some("approval.requester-cannot-answer"), "{why:?}");
    }
    assert!(!served.world.workspace.join("made").exists());
    let refusals = served.records("authentication-attempted");
    let refusals = refusals
        .iter()
        .filter(|record| record["event"]["refusal"]["rule"] == "approval.requester-cannot-answer");
    assert_eq!(refusals.count(), 2, "each is written down");
    // The control: somebody else answers, and so does the owner.
    served.client_with(&other).raw(Method::ApprovalAnswer, answer).unwrap();
    assert_eq!((ended(call), served.world.workspace.join("made").is_dir()), (CallState::Done, true));
    let (call, answer) = ask("also");
    served.client().raw(Method::ApprovalAnswer, answer).unwrap();
    assert_eq!((ended(call), served.world.workspace.join("also").is_dir()), (CallState::Done, true));
}

/// What runs in a session is no device, and keeps none out.
#[test]
fn an_agent_asks_for_no_device_at_its_door() {
    let served = Served::new();
    let session = served.session();
    let door = stdout(&served.sh(&session, "printf %s \"$RINGFENCE_SESSION_SOCKET\""));
    let rights = Rights { scopes: [Scope::Approve].into_iter().collect(), workspaces: AllOrOnly::Any };
    let key = DeviceKey::random().unwrap().public();
    let ask = RequestPairing { label: "your phone".to_owned(), key, wants: rights };
    let mut inside = Client::connect(door.as_ref(), None).unwrap();
    for _ in 0..40 {
        let why = refused(inside.call(&ask));
        assert_eq!(why.rule.as_deref(), Some("method.operators-only"), "{why:?}");
        let challenge = json!({ "subject": "0000000000000000" });
        refused(inside.raw(Method::DeviceChallenge, challenge));
    }
    let recorded = served.records("authentication-attempted");
    let recorded = recorded.iter().filter(|record| record["event"]["purpose"] == "pairing.request");
    assert!(
        recorded.clone().all(|record| record["event"]["principal"]["session"] == session.session.as_str())
    );
    assert_eq!(recorded.count(), 40);
    inside.raw(Method::Health, json!({})).unwrap();
    // The control: where devices come, one is taken.
    served.client().call(&ask).unwrap();
}

/// Tokens of sessions that died with their daemon are revoked by the next.
#[test]
fn a_killed_daemon_leaves_no_token_of_a_session() {
    let served = Served::new();
    let session = served.session();
    let own = token_of(&served, &session);
    let api = api(&served, &[Scope::Read]).secret;
    let is_revoked = |served: &Served, token: &str| {
        let listed = served.client().raw(Method::TokenList, json!({})).unwrap();
        let found =
            listed["tokens"].as_array().unwrap().iter().find(|meta| meta["id"] == id_of(token)).cloned();
        found.unwrap()["revoked_at"].is_string()
    };
    assert!(!is_revoked(&served, &own), "while its session lasts");
    let served = served.again(Signal::KILL);
    assert!(is_revoked(&served, &own) && !is_revoked(&served, &api));
    let why = refused(served.client_with(&own).call(&WhoAmI {}));
    assert_eq!(why.rule.as_deref(), Some("identity.revoked"));
}

/// What somebody called a token is in the ledger without secrets; where nobody can tell what is one, without all of it.
#[test]
fn a_label_is_left_out_while_the_secrets_cannot_be_read() {
    let served = Served::new();
    let secret = ["not", "to", "be", "found", "anywhere", "4711"].join("-");
    let mut set = served.world.ringfence();
    finish(set.args(["secret", "set", "deploy"]), secret.as_bytes()).expect(0);
    let session = served.session();
    let mut agent = served.client_with(&token_of(&served, &session));
    let mut detail_of = |label: &str| {
        let left = json!({ "paths": "any", "hosts": "any", "commands": "any", "calls": null });
        let hand = json!({ "session": session.session, "label": label, "attenuation": left });
        agent.raw(Method::TokenAttenuate, hand).unwrap();
        let last = served.records("identity-changed").pop().unwrap();
        last["event"]["change"]["detail"].as_str().unwrap().to_owned()
    };
    assert!(detail_of("tests").contains("`tests`"), "control");
    let cleaned = detail_of(&format!("before {secret} after"));
    assert!(cleaned.contains("before") && cleaned.contains("after"), "control: {cleaned}");
    let store = served.world.state.join("ringfence/secrets/store");
    fs::set_permissions(&store, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(detail_of(&secret), "[left out: the store of secrets cannot be read]");
    fs::set_permissions(&store, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!Value::from(served.world.all_records()).to_string().contains(&secret));
}
