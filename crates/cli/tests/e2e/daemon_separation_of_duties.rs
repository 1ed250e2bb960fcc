//! Nobody answers their own question, by whichever way it came about and whomever they make to answer it.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;

use ringfence_api::{
    ApiError, CallInput, CreateSession, CreateToken, ExecRequest, FetchUrl, ListApprovals, Method,
    SessionInfo,
};
use ringfence_client::{Client, ClientError};
use ringfence_types::{AllOrOnly, NetMode, Profile, Rights, Scope};
use serde_json::{Value, json};

use crate::daemon_authorization_matrix::{Place, Visitor, bearer};
use crate::daemon_fixture::{Served, exec};
use crate::daemon_watch::Killed;
use crate::internet::Internet;
use crate::test_timeouts::mortal;
use crate::testkit::eventually;

const OWN: Option<&str> = Some("approval.requester-cannot-answer");

fn rights(scopes: &[Scope]) -> Rights {
    Rights { scopes: scopes.iter().copied().collect(), workspaces: AllOrOnly::Any }
}

fn token(client: &mut Client, scopes: &[Scope], operator: Option<&str>) -> String {
    let (label, operator) = ("t".to_owned(), operator.map(str::to_owned));
    let new = CreateToken { label, rights: rights(scopes), lifetime_s: None, operator };
    client.call(&new).unwrap().secret
}

/// The answer `once` to the one question that waits.
fn once(client: &mut Client) -> Value {
    let mut waiting = || client.call(&ListApprovals {}).unwrap().approvals;
    eventually("a question waits", || waiting().len() == 1);
    json!({ "id": waiting().remove(0).id, "answer": "once" })
}

fn rule(answer: Result<Value, ClientError>) -> Option<String> {
    match answer {
        Err(ClientError::Api(error)) => error.rule.map(String::from),
        other => panic!("{other:?}"),
    }
}

/// A provider is a call, and so is its question.
#[test]
fn whoever_asks_for_a_provider_does_not_answer_for_it() {
    let served = Served::new();
    let asker = token(&mut served.client(), &[Scope::Run, Scope::Approve], None);
    let other = token(&mut served.client(), &[Scope::Approve], None);
    let made = |name: &str| served.world.workspace.join(name).exists();
    let provided = |client: &mut Client, name: &str| {
        let provider = Some(["mkdir", name].map(str::to_owned).to_vec());
        let guarded = Some(Profile::Guarded);
        client.call(&CreateSession { agent_argv: provider, profile: guarded, ..served.wanted() }).unwrap();
        once(&mut served.client())
    };
    let answer = provided(&mut served.client_with(&asker), "made");
    let refused = served.client_with(&asker).raw(Method::ApprovalAnswer, answer.clone());
    assert_eq!((rule(refused).as_deref(), made("made")), (OWN, false));
    // The control: somebody else may, and so may they where the owner asked.
    served.client_with(&other).raw(Method::ApprovalAnswer, answer).unwrap();
    eventually("it is made", || made("made"));
    let answer = provided(&mut served.client(), "owners");
    served.client_with(&asker).raw(Method::ApprovalAnswer, answer).unwrap();
    eventually("it is made", || made("owners"));
    let intents = served.records("call-intended");
    let ids: Vec<&Value> =
        intents.iter().map(|intent| &intent["event"]["call_origin"]["credential"]["id"]).collect();
    assert_eq!(ids, [&json!(asker.split('_').nth(2).unwrap()), &Value::Null]);
    assert!(
        intents.iter().all(|intent| intent["event"]["call_origin"]["principal"].is_object()),
        "{intents:?}"
    );
}

/// A daemon in an internet of its own, where nobody has said anything about hosts.
pub(crate) struct Online {
    _daemon: Killed,
    pub(crate) internet: Internet,
    socket: PathBuf,
}

impl Online {
    fn new() -> Self {
        Self::with("net = \"filtered\"\n")
    }

    /// Where the operator has said this.
    pub(crate) fn with(rules: &str) -> Self {
        let internet = Internet::new();
        internet.operator(rules);
        let runtime = internet.world.beside("r");
        let socket = runtime.join("ringfence/daemon.sock");
        let mut command = internet.ringfence();
        command.env("XDG_RUNTIME_DIR", &runtime).arg("serve").stdin(Stdio::null()).stderr(Stdio::null());
        let daemon = Killed(command.spawn().unwrap());
        mortal(&daemon.0);
        eventually("the daemon answers", || UnixStream::connect(&socket).is_ok());
        Self { _daemon: daemon, internet, socket }
    }

    pub(crate) fn client(&self, token: Option<&str>) -> Client {
        Client::connect(&self.socket, token.map(str::to_owned)).unwrap()
    }

    pub(crate) fn session(&self) -> SessionInfo {
        let wanted = json!({ "workspace": self.internet.world.workspace });
        let wanted: CreateSession = serde_json::from_value(wanted).unwrap();
        self.client(None).call(&CreateSession { net: Some(NetMode::Filtered), ..wanted }).unwrap()
    }

    /// Whether these are told that the question that waits is their own, and that nothing came of it; then `other` answers.
    fn answered(&self, (owns, other): (&[&str], &str)) {
        let answer = once(&mut self.client(None));
        let before = self.internet.came_to("30.0.0.20");
        for own in owns {
            let refused = self.client(Some(own)).raw(Method::ApprovalAnswer, answer.clone());
            assert_eq!(rule(refused).as_deref(), OWN);
        }
        assert_eq!(self.internet.came_to("30.0.0.20"), before, "nothing happens before the answer");
        self.client(Some(other)).raw(Method::ApprovalAnswer, answer).unwrap();
        eventually("it goes there", || self.internet.came_to("30.0.0.20") > before);
    }
}

/// Which call a connection from the fence belongs to nobody knows, so it is everybody's who has run something there.
#[test]
fn whoever_runs_something_does_not_answer_for_its_connections() {
    const CURL: &str = "curl -sS --max-time 60 https://other.test/";
    let online = Online::new();
    let scopes = [Scope::Run, Scope::Approve, Scope::Admin];
    let [runner, typist, bystander] = [(); 3].map(|()| token(&mut online.client(None), &scopes, None));
    let puppet = token(&mut online.client(Some(&runner)), &[Scope::Approve], None);
    let background =
        |session: &SessionInfo, script: &str| ExecRequest { background: true, ..exec(session, script) };
    let session = online.session();
    online.client(Some(&runner)).call(&background(&session, CURL)).unwrap();
    online.answered((&[&runner, &puppet], &bystander));
    // Also when that call is over, and another runs by then.
    online.client(None).call(&background(&session, CURL)).unwrap();
    online.answered((&[&runner], &typist));
    // A shell does what it is told, whoever has started it.
    let shell = ExecRequest {
        interactive: true,
        ..background(&session, "while read -r line; do eval \"$line\"; done")
    };
    let shell = online.client(None).call(&shell).unwrap();
    let input = CallInput {
        session: session.session.clone(),
        call: shell.call,
        data: format!("{CURL}\n").into_bytes().into(),
        close: true,
    };
    online.client(Some(&typist)).call(&input).unwrap();
    online.answered((&[&typist, &runner], &bystander));
    // A fetch is of one call. The control is also that where they have run nothing they answer.
    let elsewhere = online.session();
    let fetch = FetchUrl { session: elsewhere.session, url: "https://other.test/".to_owned() };
    let mut client = online.client(Some(&bystander));
    let page = thread::spawn(move || client.call(&fetch).unwrap().status);
    online.answered((&[&bystander], &runner));
    assert_eq!(page.join().unwrap(), 200);
}

/// What the daemon says to the answer of somebody.
fn answer(place: &Place, visitor: &Visitor, answer: &Value) -> (u16, Option<String>) {
    let path = Method::ApprovalAnswer.route().path.replace("{id}", answer["id"].as_str().unwrap());
    let body = json!({ "answer": answer["answer"] }).to_string();
    let line = format!("POST {path}");
    let (status, _, body) = place.send(visitor.entrance, (&line, &visitor.headers), &body);
    (status, serde_json::from_str::<ApiError>(&body).ok().and_then(|error| error.rule.map(String::from)))
}

fn no(rule: &str) -> (u16, Option<String>) {
    (403, Some(rule.to_owned()))
}

fn password(word: &str) -> String {
    ["correct", "horse", word].join(" ")
}

fn add(client: &mut Client, name: &str) {
    let new = json!({ "name": name, "rights": rights(&[Scope::Approve]), "password": password(name) });
    client.raw(Method::OperatorAdd, new).unwrap();
}

fn set(client: &mut Client, (name, word): (&str, &str)) {
    let new = json!({ "name": name, "password": password(word) });
    client.raw(Method::OperatorSetPassword, new).unwrap();
}

fn guarded(place: &Place) -> SessionInfo {
    let guarded = CreateSession { profile: Some(Profile::Guarded), ..place.served.wanted() };
    place.served.client().call(&guarded).unwrap()
}

/// A question of somebody, about a directory; what answers it.
fn ask(place: &Place, client: &mut Client, (session, name): (&SessionInfo, &str)) -> Value {
    let argv = ["mkdir", name].map(str::to_owned).to_vec();
    client.call(&ExecRequest { background: true, argv, ..exec(session, "") }).unwrap();
    once(&mut place.served.client())
}

/// Whoever gives somebody a password could come in as them.
#[test]
fn nobody_makes_an_operator_who_answers_for_them() {
    let place = Place::new();
    let (served, session) = (&place.served, guarded(&place));
    let asker = token(&mut served.client(), &[Scope::Run, Scope::Approve, Scope::Admin], None);
    let client = || served.client_with(&asker);
    let made = |name: &str| served.world.workspace.join(name).is_dir();
    let web = |name: &str, word: &str| place.sign_in((name, &password(word)), vec![Scope::Approve]);
    add(&mut served.client(), "bob");
    // The control: as long as nobody else knows his password he answers.
    let first = ask(&place, &mut client(), (&session, "first"));
    assert_eq!(answer(&place, &web("bob", "bob"), &first), (200, None));
    eventually("it is made", || made("first"));
    add(&mut client(), "eve");
    let hers = token(&mut client(), &[Scope::Approve], Some("eve"));
    let his = token(&mut client(), &[Scope::Approve], Some("bob"));
    set(&mut client(), ("bob", "taken"));
    let second = ask(&place, &mut client(), (&session, "second"));
    let api = |token: &str| bearer(ringfence_api::TokenKind::Api, vec![Scope::Approve], token);
    for puppet in [web("eve", "eve"), web("bob", "taken"), api(&hers), api(&his), api(&asker)] {
        assert_eq!(answer(&place, &puppet, &second), no("approval.requester-cannot-answer"));
    }
    assert!(!made("second"));
    // The control: with a password of the owner's they are people of their own.
    set(&mut served.client(), ("eve", "given"));
    assert_eq!(answer(&place, &web("eve", "given"), &second), (200, None));
    eventually("it is made", || made("second"));
}

/// Where it takes two, one credential is not two, whomever it makes.
#[test]
fn a_quorum_takes_people_who_go_back_to_different_credentials() {
    let place = Place::with("[approvals]\nquorum = { approve = 2, deny = 1 }\n");
    let (served, session) = (&place.served, guarded(&place));
    let made = |name: &str| served.world.workspace.join(name).is_dir();
    add(&mut served.client(), "ann");
    add(&mut served.client(), "bob");
    let maker = token(&mut served.client(), &[Scope::Approve, Scope::Admin], None);
    add(&mut served.client_with(&maker), "eve");
    let his = token(&mut served.client_with(&maker), &[Scope::Approve], Some("bob"));
    let api = |token: &str| bearer(ringfence_api::TokenKind::Api, vec![Scope::Approve], token);
    let web = |name: &str| place.sign_in((name, &password(name)), vec![Scope::Approve]);
    let kin = [api(&maker), web("eve"), api(&his)];
    for (number, first) in kin.iter().enumerate() {
        let name = format!("made-{number}");
        let asked = ask(&place, &mut served.client(), (&session, &name));
        assert_eq!(answer(&place, first, &asked), (200, None));
        for (other, again) in kin.iter().enumerate().filter(|(other, _)| *other != number) {
            let said = answer(&place, again, &asked);
            assert_eq!(said, no("approval.already-voted"), "{other} after {number}");
        }
        assert!(!made(&name), "one is not enough");
        // The control: somebody whom the owner has made is another.
        assert_eq!(answer(&place, &web("ann"), &asked), (200, None));
        eventually("it is made", || made(&name));
    }
    let votes = served.records("approval-voted");
    assert_eq!(votes.len(), 6);
    assert!(votes.iter().all(|vote| vote["event"]["credential"]["id"].is_string()), "{votes:?}");
}
