//! What somebody holds open over TCP ends with what they showed: a cookie, the token of a device, a token that was handed on.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use ringfence_api::{
    ApprovePairing, ClaimDeviceToken, MintedToken, ProvePairing, RefreshDevice, RequestChallenge,
    RequestPairing,
};
use ringfence_api::{ExecStreamRequest, Method, OutputChunk, TokenKind};
use ringfence_runtime::identity::{DeviceKey, ProofPurpose};
use ringfence_types::{AllOrOnly, Rights, Scope};
use serde_json::json;

use crate::daemon_authorization_matrix::{Entrance, Place, Said, Visitor, bearer, signed};
use crate::daemon_fixture::{Served, exec};
use crate::daemon_rights::token_of;
use crate::test_timeouts::Patient;
use crate::testkit::{eventually, finish, marker, processes_with};

/// A connection over TCP that something comes from until it is cut.
struct Open(BufReader<Patient<TcpStream>>);

impl Open {
    fn with(place: &Place, head: &str) -> Self {
        let mut stream = Patient(TcpStream::connect(("127.0.0.1", place.port)).unwrap());
        let port = place.port;
        write!(stream, "{head}Host: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\n\r\n").unwrap();
        Self(BufReader::new(stream))
    }

    /// Events of everything that happens, when the first has come.
    fn events(place: &Place, headers: &str) -> Self {
        let mut open =
            Self::with(place, &format!("GET /v1/events?after=0 HTTP/1.1\r\nConnection: close\r\n{headers}"));
        assert!(open.line().starts_with("HTTP/1.1 200"));
        while !open.line().contains("id: 1") {}
        open
    }

    /// A WebSocket, when it is one.
    fn socket(place: &Place, headers: &str) -> Self {
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n";
        let mut open = Self::with(place, &format!("GET /v1/ws HTTP/1.1\r\n{upgrade}{headers}"));
        assert!(open.line().starts_with("HTTP/1.1 101"));
        while open.line() != "\r\n" {}
        open
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "it ended too early");
        line
    }

    /// All that comes until it is over.
    fn rest(mut self) -> String {
        let mut rest = Vec::new();
        let _cut = self.0.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Waits until a WebSocket is closed for what whoever opened it may not.
    fn closes(mut self) {
        let (mut said, mut byte) = (Vec::new(), [0]);
        while !said.ends_with(&1008_u16.to_be_bytes()) {
            assert_eq!(self.0.read(&mut byte).unwrap(), 1, "it ended without a word");
            said.push(byte[0]);
        }
    }

    /// Whether what happens next comes as well.
    fn goes_on(mut self, place: &Place) -> bool {
        let session = place.served.session();
        let report = json!({ "session": session.session, "activity": "k", "claim": "the last of all" });
        place.served.client().raw(Method::SessionReportActivity, report).unwrap();
        while !self.line().contains("the last of all") {}
        true
    }
}

/// What a page shows when it opens a WebSocket: it cannot set headers.
fn as_page(visitor: &Visitor) -> String {
    visitor.headers.replace("X-Ringfence-Csrf: ", "Sec-WebSocket-Protocol: ringfence, ringfence.csrf.")
}

fn password() -> String {
    ["correct", "horse", "battery"].join(" ")
}

#[track_caller]
fn assert_cut(open: Open, rule: &str) {
    let rest = open.rest();
    assert!(rest.contains(rule), "{rest}");
}

/// A logout and another password end what the cookie holds; what others hold goes on.
#[test]
fn a_cookie_that_is_over_holds_nothing_open() {
    let place = Place::new();
    let mut add = place.served.world.ringfence();
    finish(add.args(["operator", "add", "ann", "--scope", "read"]), password().as_bytes()).expect(0);
    place.served.session();
    let other = place.api(Scope::Read);
    let beside = Open::events(&place, &other.headers);
    let sign_in = || place.sign_in(("ann", &password()), vec![Scope::Read]);
    let leaves = |page: &Visitor| assert_eq!(place.ask(page, Method::Logout, &json!({})), Said::LetIn);
    let page = sign_in();
    let (events, socket) = (Open::events(&place, &page.headers), Open::socket(&place, &as_page(&page)));
    leaves(&page);
    assert_cut(events, "identity.revoked");
    socket.closes();
    let page = sign_in();
    let (events, socket) = (Open::events(&place, &page.headers), Open::socket(&place, &as_page(&page)));
    let another = ["another", "horse", "battery"].join(" ");
    let new = json!({ "name": "ann", "password": another });
    place.served.client().raw(Method::OperatorSetPassword, new).unwrap();
    assert_cut(events, "identity.revoked");
    socket.closes();
    assert!(beside.goes_on(&place), "control");
}

struct Device {
    key: DeviceKey,
    minted: MintedToken,
}

impl Device {
    fn paired(place: &Place) -> Self {
        let (key, mut client) = (DeviceKey::random().unwrap(), place.served.client());
        let wants = Rights { scopes: [Scope::Read].into_iter().collect(), workspaces: AllOrOnly::Any };
        let asked = RequestPairing { label: "phone".to_owned(), key: key.public(), wants };
        let (subject, nonce, signature) = signed(&key, ProofPurpose::Pair, client.call(&asked).unwrap());
        let pairing = subject.clone();
        let proven = client.call(&ProvePairing { subject, nonce, signature }).unwrap();
        let code = proven.pairing.code.clone();
        client.call(&ApprovePairing { code, rights: None }).unwrap();
        let challenge = client.call(&RequestChallenge { subject: pairing }).unwrap();
        let (subject, nonce, signature) = signed(&key, ProofPurpose::Claim, challenge);
        let minted = client.call(&ClaimDeviceToken { subject, nonce, signature }).unwrap();
        Self { key, minted }
    }

    fn id(&self) -> String {
        self.minted.token.id.to_string()
    }

    fn shows(&self) -> Visitor {
        Visitor {
            entrance: Entrance::Tcp,
            ..bearer(TokenKind::Device, vec![Scope::Read], &self.minted.secret)
        }
    }

    fn refreshed(self, place: &Place) -> Self {
        let mut client = place.served.client();
        let challenge = client.call(&RequestChallenge { subject: self.id() }).unwrap();
        let (subject, nonce, signature) = signed(&self.key, ProofPurpose::Refresh, challenge);
        let minted = client.call(&RefreshDevice { subject, nonce, signature }).unwrap();
        Self { minted, ..self }
    }
}

/// A device that renews its token keeps what it has open, which only its key could ask for; the old token opens nothing more. One
/// that is revoked loses all of it.
#[test]
fn a_device_that_is_revoked_holds_nothing_open() {
    let place = Place::new();
    place.served.session();
    let device = Device::paired(&place);
    let old = device.shows();
    let [kept, cut] = [0, 1].map(|_| Open::events(&place, &old.headers));
    let socket = Open::socket(&place, &old.headers);
    let device = device.refreshed(&place);
    assert_eq!(place.ask(&old, Method::WhoAmI, &json!({})), Said::Unknown, "the old one is worth nothing");
    assert!(kept.goes_on(&place), "a renewal cuts nothing");
    let fresh = Open::events(&place, &device.shows().headers);
    place.served.client().raw(Method::TokenRevoke, json!({ "id": device.id() })).unwrap();
    assert_cut(cut, "identity.revoked");
    assert_cut(fresh, "identity.revoked");
    socket.closes();
    assert_eq!(place.ask(&device.shows(), Method::WhoAmI, &json!({})), Said::Unknown);
}

/// A token that was handed on for a while ends with it, and what runs for it.
#[test]
fn a_narrowed_token_that_expires_holds_nothing_open() {
    let served = Served::new();
    let (session, marker) = (served.session(), marker(&served.world));
    let mut own = served.client_with(&token_of(&served, &session));
    let left = json!({ "paths": "any", "hosts": "any", "commands": "any", "calls": null });
    // However slow the machine is, one of them lives long enough to run something.
    for lifetime in [2, 8, 32] {
        let hand =
            json!({ "session": session.session, "label": "x", "attenuation": left, "lifetime_s": lifetime });
        let made = own.raw(Method::TokenAttenuate, hand).unwrap();
        let mut client = served.client_with(made["secret"].as_str().unwrap());
        let script = format!("echo begun; while :; do sleep 0.05; done # {marker}");
        let Ok(chunks) = client.run(&ExecStreamRequest(exec(&session, &script))) else { continue };
        let chunks: Vec<OutputChunk> = chunks.map(Result::unwrap).collect();
        let Some(OutputChunk::Closed { error }) = chunks.last() else { panic!("{chunks:?}") };
        assert_eq!(error.rule.as_deref(), Some("identity.expired"));
        eventually("what ran for it is over", || processes_with(&marker).is_empty());
        if chunks.len() == 1 {
            // It was over before anything had begun.
            continue;
        }
        assert!(served.client_with(made["secret"].as_str().unwrap()).raw(Method::WhoAmI, json!({})).is_err());
        own.raw(Method::WhoAmI, json!({})).expect("control: whoever handed it on goes on");
        return;
    }
    panic!("nothing could be run");
}
