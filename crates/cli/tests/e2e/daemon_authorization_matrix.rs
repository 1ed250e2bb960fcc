//! Who may ask the daemon what: every method, for every kind of token, with every scope, by every entrance.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_api::{
    ApiError, ApprovePairing, ClaimDeviceToken, CreateToken, DeviceChallenge, ErrorCode, HttpVerb, Method,
    MethodAccess, ProvePairing, RequestChallenge, RequestPairing, TokenKind,
};
use ringfence_runtime::identity::{Challenge, CredentialId, DeviceKey, ProofPurpose};
use ringfence_types::{AllOrOnly, Rights, Scope};
use serde_json::{Value, json};

use crate::approvals::configure;
use crate::daemon_fixture::Served;
use crate::daemon_rights::{sensible, token_of};
use crate::testkit::{World, finish};

/// Somebody with something to show, by an entrance.
#[derive(Clone)]
pub(crate) struct Visitor {
    pub(crate) kind: Option<TokenKind>,
    /// Of an operator.
    pub(crate) scopes: Vec<Scope>,
    pub(crate) entrance: Entrance,
    pub(crate) headers: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    Socket,
    Tcp,
    /// Of the session that [`Place::door`] leads to.
    Door,
}

/// What an operator of one scope can do for the tests.
pub(crate) struct Place {
    pub(crate) served: Served,
    pub(crate) port: u16,
    /// Of a session, for whoever comes by that.
    pub(crate) door: OnceCell<PathBuf>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// With more in the operator's file.
    pub(crate) fn with(more: &str) -> Self {
        Self::with_flags(more, &[])
    }

    pub(crate) fn with_flags(more: &str, flags: &[&str]) -> Self {
        let world = World::new();
        configure(&world, &format!("[daemon]\nlisten = \"127.0.0.1:0\"\n{more}"));
        let served = Served::with(world, flags);
        Self { port: served.port(), served, door: OnceCell::new() }
    }

    pub(crate) fn owner(&self) -> Visitor {
        let headers = String::new();
        Visitor {
            kind: Some(TokenKind::Socket),
            scopes: Scope::ALL.to_vec(),
            entrance: Entrance::Socket,
            headers,
        }
    }

    pub(crate) fn api(&self, scope: Scope) -> Visitor {
        let new =
            CreateToken { label: "t".to_owned(), rights: only(scope), lifetime_s: Some(600), operator: None };
        let made = self.served.client().call(&new).unwrap();
        bearer(TokenKind::Api, vec![scope], &made.secret)
    }

    pub(crate) fn device(&self, scope: Scope) -> Visitor {
        let (key, mut client) = (DeviceKey::random().unwrap(), self.served.client());
        let asked = RequestPairing { label: "phone".to_owned(), key: key.public(), wants: only(scope) };
        let (subject, nonce, signature) = signed(&key, ProofPurpose::Pair, client.call(&asked).unwrap());
        let pairing = subject.clone();
        let proven = client.call(&ProvePairing { subject, nonce, signature }).unwrap();
        let code = proven.pairing.code.clone();
        client.call(&ApprovePairing { code, rights: None }).unwrap();
        let challenge = client.call(&RequestChallenge { subject: pairing }).unwrap();
        let (subject, nonce, signature) = signed(&key, ProofPurpose::Claim, challenge);
        let minted = client.call(&ClaimDeviceToken { subject, nonce, signature }).unwrap();
        bearer(TokenKind::Device, vec![scope], &minted.secret)
    }

    /// Somebody at a browser.
    pub(crate) fn web(&self, scope: Scope) -> Visitor {
        let (name, password) = (scope.word(), ["correct", "horse", "battery"].join(" "));
        let mut add = self.served.world.ringfence();
        finish(add.args(["operator", "add", name, "--scope", scope.word()]), password.as_bytes()).expect(0);
        self.sign_in((name, &password), vec![scope])
    }

    pub(crate) fn sign_in(&self, (name, password): (&str, &str), scopes: Vec<Scope>) -> Visitor {
        let body = json!({ "name": name, "password": password }).to_string();
        let (status, head, body) = self.send(Entrance::Tcp, ("POST /v1/login", ""), &body);
        assert_eq!(status, 200, "{head}");
        let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        let cookie = cookie.split(';').next().unwrap();
        let csrf: Value = serde_json::from_str(&body).unwrap();
        let csrf = csrf["csrf"].as_str().unwrap();
        let headers = format!("Cookie: {cookie}\r\nX-Ringfence-Csrf: {csrf}\r\n");
        Visitor { kind: Some(TokenKind::Web), scopes, entrance: Entrance::Tcp, headers }
    }

    /// One of each kind with each scope there is for it.
    fn visitors(&self, session_token: &str) -> Vec<Visitor> {
        let each = |make: &dyn Fn(Scope) -> Visitor| Scope::ALL.iter().map(|scope| make(*scope)).collect();
        let mut all = Vec::new();
        for kind in TokenKind::ALL {
            let of_kind: Vec<Visitor> = match kind {
                TokenKind::Socket => vec![self.owner()],
                TokenKind::Api => each(&|scope| self.api(scope)),
                TokenKind::Device => each(&|scope| self.device(scope)),
                TokenKind::Web => each(&|scope| self.web(scope)),
                TokenKind::Session => vec![bearer(TokenKind::Session, Vec::new(), session_token)],
            };
            all.extend(of_kind);
        }
        let found = bearer(TokenKind::Session, Vec::new(), session_token);
        all.push(Visitor { entrance: Entrance::Tcp, ..found });
        all.push(Visitor { kind: None, scopes: Vec::new(), entrance: Entrance::Tcp, headers: String::new() });
        all
    }

    /// Where an entrance is, if that is a file.
    pub(crate) fn path(&self, entrance: Entrance) -> &Path {
        if entrance == Entrance::Door { self.door.get().unwrap() } else { &self.served.socket }
    }

    /// The status, the head and, where it is an error or a value, the body of the answer.
    pub(crate) fn send(
        &self,
        entrance: Entrance,
        (line, headers): (&str, &str),
        body: &str,
    ) -> (u16, String, String) {
        let length = body.len();
        let host = format!("127.0.0.1:{}", self.port);
        // The older version: what comes back is not cut into chunks, and ends with the connection.
        let head = format!("{line} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {length}\r\n{headers}\r\n");
        let patience = Some(Duration::from_secs(120));
        match entrance {
            Entrance::Socket | Entrance::Door => {
                let stream = UnixStream::connect(self.path(entrance)).unwrap();
                stream.set_read_timeout(patience).unwrap();
                exchange(stream, &(head + body))
            }
            Entrance::Tcp => {
                let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
                stream.set_read_timeout(patience).unwrap();
                exchange(stream, &(head + body))
            }
        }
    }

    /// What the daemon says to this request of somebody.
    pub(crate) fn ask(&self, visitor: &Visitor, method: Method, request: &Value) -> Said {
        let route = method.route();
        let mut path = route.path.to_owned();
        for field in ["session", "call", "id"] {
            let value = request[field].as_str().map_or_else(|| request[field].to_string(), str::to_owned);
            path = path.replace(&format!("{{{field}}}"), &value);
        }
        let in_address = route.verb == HttpVerb::Get || method == Method::FileUpload;
        if let (true, Some(file)) = (in_address, request["path"].as_str()) {
            path = format!("{path}?path={file}");
        }
        let body = if in_address { String::new() } else { request.to_string() };
        let line = format!("{} {path}", route.verb);
        let (status, _, body) = self.send(visitor.entrance, (&line, &visitor.headers), &body);
        match serde_json::from_str::<ApiError>(&body).map(|error| error.code) {
            Ok(ErrorCode::Forbidden) if status == 403 => Said::Forbidden,
            Ok(ErrorCode::Unauthenticated) if status == 401 => Said::Unknown,
            _ if status == 401 || status == 403 => panic!("{} {status} {body}", method.name()),
            _ => Said::LetIn,
        }
    }
}

fn exchange(mut stream: impl Read + Write, request: &str) -> (u16, String, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{request} {head}");
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut body = String::new();
    // A stream has no end.
    if head.contains("content-type: application/json\r\n") {
        reader.read_to_string(&mut body).unwrap();
    }
    (status, head, body)
}

fn only(scope: Scope) -> Rights {
    Rights { scopes: [scope].into_iter().collect(), workspaces: AllOrOnly::Any }
}

pub(crate) fn bearer(kind: TokenKind, scopes: Vec<Scope>, token: &str) -> Visitor {
    let headers = format!("Authorization: Bearer {token}\r\n");
    Visitor { kind: Some(kind), scopes, entrance: Entrance::Socket, headers }
}

pub(crate) fn signed(
    key: &DeviceKey,
    purpose: ProofPurpose,
    challenge: DeviceChallenge,
) -> (String, String, String) {
    let DeviceChallenge { subject, nonce } = challenge;
    let of = Challenge { subject: CredentialId::parse(&subject).unwrap(), nonce: nonce.clone() };
    (subject, nonce, key.sign(purpose, &of).0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Whatever came of it then.
    LetIn,
    Forbidden,
    Unknown,
}

/// What the table of methods says to it, and nothing but the table.
pub(crate) fn expected(visitor: &Visitor, method: Method) -> Said {
    let has = |scope: Scope| if visitor.scopes.contains(&scope) { Said::LetIn } else { Said::Forbidden };
    let at_a_door = visitor.entrance == Entrance::Door;
    match (method.access(), visitor.kind) {
        // What runs in a session is no device and no browser.
        (MethodAccess::Anyone, _) if at_a_door && !matches!(method, Method::Health | Method::Ready) => {
            Said::Forbidden
        }
        (MethodAccess::Anyone, _) => Said::LetIn,
        (_, None) => Said::Unknown,
        // Who shows the token of a session out there has found it.
        (_, Some(TokenKind::Session)) if visitor.entrance == Entrance::Tcp => Said::Forbidden,
        (_, Some(kind)) if at_a_door && kind != TokenKind::Session => Said::Forbidden,
        (MethodAccess::Known, Some(_)) => Said::LetIn,
        (MethodAccess::Operator(_), Some(TokenKind::Session)) => Said::Forbidden,
        (MethodAccess::Session(_), Some(TokenKind::Session)) => Said::LetIn,
        (MethodAccess::Operator(scope) | MethodAccess::Session(scope), Some(_)) => has(scope),
    }
}

/// A request of each method that makes sense. Two make none, as everybody else would be gone after them: who is let in is
/// told that, and who is not is not.
pub(crate) fn request(method: Method, session: &str, workspace: &str) -> Value {
    match method {
        Method::Shutdown | Method::Logout => json!({ "no-such-field": true }),
        method => sensible(method, session, workspace),
    }
}

/// S003-17, S003-40, S003-44; D3: each cell is what the table of methods says, and each refusal of somebody who is known is in
/// the ledger. A method that is not in the table cannot be called, and one that is has an access.
#[test]
fn every_method_is_open_to_whom_the_table_says_and_to_nobody_else() {
    let place = Place::new();
    let own = place.served.session();
    let visitors = place.visitors(&token_of(&place.served, &own));
    let workspace = place.served.world.workspace.to_str().unwrap().to_owned();
    let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
    // Last: its session is what the others are about.
    let last = [Method::SessionStop];
    let (first, _) = Method::ALL.iter().partition::<Vec<Method>, _>(|method| !last.contains(method));
    for method in first.into_iter().chain(last) {
        // The session is over after the first who may stop it, and its own token with it.
        for visitor in visitors.iter().rev() {
            let said = place.ask(visitor, method, &request(method, own.session.as_str(), &workspace));
            let cell = (method.name(), visitor.kind, &visitor.scopes, visitor.entrance);
            let expected = expected(visitor, method);
            assert_eq!(said, expected, "{cell:?}");
            *refused.entry(method.name()).or_default() += usize::from(said == Said::Forbidden);
        }
    }
    let written = place.served.records("authentication-attempted");
    let written = written.iter().map(|record| &record["event"]).filter(|event| !event["refusal"].is_null());
    let mut by_agents: Vec<&str> = Vec::new();
    let mut counted: BTreeMap<&str, usize> = refused.keys().map(|name| (*name, 0)).collect();
    for event in written.filter(|event| event["principal"]["principal"] != "stranger") {
        let purpose = event["purpose"].as_str().unwrap();
        assert_eq!(event["refusal"]["code"], "identity", "{event}");
        *counted.entry(purpose).or_default() += 1;
        if event["principal"]["principal"] == "agent" {
            by_agents.push(purpose);
        }
    }
    assert_eq!(counted, refused, "each refusal is written down, once");
    for method in Method::ALL.iter().filter(|method| matches!(method.access(), MethodAccess::Operator(_))) {
        let times = by_agents.iter().filter(|purpose| **purpose == method.name()).count();
        assert_eq!(times, 2, "{} of a session is written down", method.name());
    }
    ends_what_it_comes_with(&place, &visitors);
}

/// The two methods that were asked for without sense do what they are for.
fn ends_what_it_comes_with(place: &Place, visitors: &[Visitor]) {
    let operators = visitors.iter().filter(|visitor| !visitor.scopes.is_empty());
    for visitor in operators.filter(|visitor| visitor.kind != Some(TokenKind::Socket)) {
        assert_eq!(place.ask(visitor, Method::Logout, &json!({})), Said::LetIn);
        assert_eq!(place.ask(visitor, Method::WhoAmI, &json!({})), Said::Unknown, "{:?}", visitor.kind);
    }
    let owner = place.owner();
    assert_eq!(place.ask(&owner, Method::WhoAmI, &json!({})), Said::LetIn, "who owns the socket stays");
    assert_eq!(place.ask(&owner, Method::Shutdown, &json!({})), Said::LetIn);
    crate::testkit::eventually("the daemon ends", || UnixStream::connect(&place.served.socket).is_err());
}

/// Tokens that nobody has made open nothing, whatever they look like.
#[test]
fn a_token_that_nobody_made_opens_nothing() {
    let place = Place::new();
    let own = place.served.session();
    let workspace = place.served.world.workspace.to_str().unwrap().to_owned();
    let kinds = TokenKind::ALL.iter().filter(|kind| **kind != TokenKind::Socket);
    for (kind, method) in kinds.flat_map(|kind| Method::ALL.iter().map(move |method| (kind, method))) {
        let token = format!("rf_{}_0000000000000000_0000", kind.word());
        let mut client = place.served.client_with(&token);
        let request = request(*method, own.session.as_str(), &workspace);
        let refused = client.raw(*method, request).err().map(|error| match error {
            ringfence_client::ClientError::Api(error) => error.code,
            other => panic!("{other:?}"),
        });
        // Who guesses tokens is looked at more and more slowly.
        let (out, told) = match refused {
            Some(ErrorCode::Unauthenticated | ErrorCode::ResourceExhausted) => (true, true),
            other => (false, other.is_none() || other == Some(ErrorCode::InvalidArgument)),
        };
        assert!(told && out == (method.access() != MethodAccess::Anyone), "{} {refused:?}", method.name());
    }
}
