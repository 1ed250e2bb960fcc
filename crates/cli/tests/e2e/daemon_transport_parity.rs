//! Every method, by every way there is to ask for it: at the door of a session, on a WebSocket, over gRPC. What HTTP at the socket
//! and on TCP says is in `daemon_authorization_matrix.rs`; here the same table decides.

use std::collections::BTreeMap;
use std::net::TcpStream;

use ringfence_api::{ErrorCode, Method, MethodAccess, SessionInfo, TokenKind};
use ringfence_grpc::{Rpc, RpcStreaming};
use ringfence_types::Scope;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::daemon_authorization_matrix::{Entrance, Place, Said, Visitor, bearer, expected, request};
use crate::daemon_fixture::stdout;
use crate::daemon_rights::token_of;
use crate::daemon_socket::{Talk, code};
use crate::grpc_client::{Speaker, reason};
use crate::grpc_messages::About;
use crate::test_timeouts::PATIENCE;

/// What a token that was handed on is never left: what others have begun in the session.
const OF_OTHERS: [Method; 7] = [
    Method::CallInput,
    Method::CallSignal,
    Method::CallResize,
    Method::CallCancel,
    Method::CallOutput,
    Method::CallList,
    Method::CallShow,
];

/// The purpose of whoever is refused a WebSocket before a method is known.
const OPENING: &str = "open a websocket";

/// What somebody speaks, over one connection for all they ask.
enum Line {
    Http,
    WebSocket(Box<Talk>),
    Grpc(Box<Speaker>),
}

/// Whether a token is what its session has, or a part of it that was handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Whole,
    Part,
}

struct Asker {
    visitor: Visitor,
    left: Left,
    line: Line,
}

impl Asker {
    fn expected(&self, method: Method) -> Said {
        match self.left {
            Left::Part if OF_OTHERS.contains(&method) => Said::Forbidden,
            _ => expected(&self.visitor, method),
        }
    }

    /// One for each way in which the method can be asked for here.
    fn ask(&mut self, place: &Place, method: Method, about: &About<'_>) -> Vec<Said> {
        let expected = self.expected(method);
        let wanted = request(method, about.session, about.workspace);
        match &mut self.line {
            Line::Http => vec![place.ask(&self.visitor, method, &wanted)],
            Line::WebSocket(talk) => vec![said_on(talk, method, wanted)],
            Line::Grpc(speaker) => {
                let rpcs = Rpc::ALL.iter().filter(|rpc| rpc.method == method);
                let message = |rpc| message(rpc, about, self.visitor.entrance);
                rpcs.map(|rpc| said_over(speaker, rpc, message(rpc), expected)).collect()
            }
        }
    }

    fn shown(&self) -> String {
        let line = match self.line {
            Line::Http => "HTTP",
            Line::WebSocket(_) => "WebSocket",
            Line::Grpc(_) => "gRPC",
        };
        let Visitor { kind, scopes, entrance, .. } = &self.visitor;
        format!("{kind:?} {scopes:?} {:?} by {line} at {entrance:?}", self.left)
    }
}

fn of_code(code: ErrorCode) -> Said {
    match code {
        ErrorCode::Forbidden => Said::Forbidden,
        ErrorCode::Unauthenticated => Said::Unknown,
        _ => Said::LetIn,
    }
}

fn said_on(talk: &mut Talk, method: Method, wanted: Value) -> Said {
    match talk.call(method.name(), wanted) {
        Err(error) => of_code(code(&error)),
        Ok(begun) => {
            // What it would tell is not what is asked here.
            if method.reply().is_stream() {
                let _over = talk.call("rpc.cancel", json!({ "subscription": begun["subscription"] }));
            }
            Said::LetIn
        }
    }
}

fn said_over(speaker: &Speaker, rpc: &Rpc, message: Vec<u8>, expected: Said) -> Said {
    // A stream that begins does not end by itself. A refusal on a busy machine takes longer than 20 ms.
    let is_endless = rpc.flow == RpcStreaming::Watch && expected == Said::LetIn;
    let patience = if is_endless { "20m" } else { "2M" };
    match speaker.within(patience, rpc.path, message) {
        Ok(_) => Said::LetIn,
        Err(status) => of_code(reason(&status)),
    }
}

/// What cannot be read where whoever is let in would end what the others need, or is told that nobody knows what they show.
fn message(rpc: &Rpc, about: &About<'_>, entrance: Entrance) -> Vec<u8> {
    let ends = matches!(rpc.method, Method::Shutdown | Method::Logout);
    let is_anyones = rpc.method.access() == MethodAccess::Anyone && entrance != Entrance::Door;
    if ends || is_anyones { vec![0x07] } else { about.message(rpc) }
}

fn token(visitor: &Visitor) -> Option<&str> {
    visitor.headers.strip_prefix("Authorization: Bearer ").map(str::trim_end)
}

fn talk(place: &Place, visitor: &Visitor) -> Result<Talk, u16> {
    if visitor.entrance != Entrance::Tcp {
        return Talk::open(place.path(visitor.entrance), token(visitor));
    }
    let mut request = format!("ws://127.0.0.1:{}/v1/ws", place.port).into_client_request().unwrap();
    for (name, value) in visitor.headers.lines().filter_map(|line| line.split_once(": ")) {
        // A page cannot set headers of a WebSocket.
        let (name, value) = match name {
            "X-Ringfence-Csrf" => ("sec-websocket-protocol", format!("ringfence, ringfence.csrf.{value}")),
            "Cookie" => ("cookie", value.to_owned()),
            _ => ("authorization", value.to_owned()),
        };
        let _new = request.headers_mut().insert(name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Talk::over(Box::new(stream), request)
}

/// Tokens of one session: its own, and one that it has handed on.
struct Tokens {
    own: String,
    part: String,
}

impl Tokens {
    fn of(place: &Place, session: &SessionInfo) -> Self {
        let own = token_of(&place.served, session);
        let left = json!({ "paths": "any", "hosts": "any", "commands": "any", "calls": 100_000 });
        let hand = json!({ "session": session.session, "label": "sub", "attenuation": left });
        let made = place.served.client_with(&own).raw(Method::TokenAttenuate, hand).unwrap();
        Self { own, part: made["secret"].as_str().unwrap().to_owned() }
    }

    fn visitors(&self, entrance: Entrance) -> [(Visitor, Left); 2] {
        [(&self.own, Left::Whole), (&self.part, Left::Part)].map(|(token, left)| {
            let visitor = bearer(TokenKind::Session, Vec::new(), token);
            (Visitor { entrance, ..visitor }, left)
        })
    }
}

/// Everybody who has something to show, whose session is not at stake.
fn operators(place: &Place) -> Vec<Visitor> {
    let mut all = vec![place.owner(), place.device(Scope::Read)];
    all.extend(Scope::ALL.iter().map(|scope| place.api(*scope)));
    all
}

/// The others: a token and nobody at the door, and the tokens of the session. They come first where the session may end.
fn askers(place: &Place, tokens: &Tokens) -> Vec<Asker> {
    let talk = |visitor: &Visitor| Line::WebSocket(Box::new(talk(place, visitor).unwrap()));
    let speak =
        |visitor: &Visitor| Line::Grpc(Box::new(Speaker::at(place.path(visitor.entrance), token(visitor))));
    let whole = |visitor: Visitor, line: Line| Asker { visitor, left: Left::Whole, line };
    let mut all = Vec::new();
    for visitor in operators(place) {
        let line = talk(&visitor);
        all.push(whole(visitor.clone(), line));
        let line = speak(&visitor);
        all.push(whole(visitor, line));
    }
    for visitor in [place.web(Scope::Read), Visitor { entrance: Entrance::Tcp, ..place.api(Scope::Run) }] {
        let line = talk(&visitor);
        all.push(whole(visitor, line));
    }
    let stranger =
        Visitor { kind: None, scopes: Vec::new(), entrance: Entrance::Door, headers: String::new() };
    for visitor in [stranger, Visitor { entrance: Entrance::Door, ..place.api(Scope::Admin) }] {
        let line = speak(&visitor);
        all.push(whole(visitor.clone(), line));
        all.push(whole(visitor, Line::Http));
    }
    for (visitor, left) in [Entrance::Socket, Entrance::Door].iter().flat_map(|at| tokens.visitors(*at)) {
        for line in [talk(&visitor), speak(&visitor), Line::Http] {
            all.push(Asker { visitor: visitor.clone(), left, line });
        }
    }
    all
}

/// S000-50, S003-17, S003-40, S003-44; D3, D10: whichever way somebody comes, each cell is what the table of methods says, and each
/// refusal of somebody who is known is in the ledger, once.
#[test]
fn every_method_is_open_to_the_same_people_by_every_way_in() {
    let place = Place::new();
    let own = place.served.session();
    let tokens = Tokens::of(&place, &own);
    let door = stdout(&place.served.sh(&own, "printf %s \"$RINGFENCE_SESSION_SOCKET\""));
    place.door.set(door.into()).unwrap();
    let workspace = place.served.world.workspace.to_str().unwrap().to_owned();
    let about = About { session: own.session.as_str(), workspace: &workspace };
    let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
    // Who is nobody here, or somebody of elsewhere, gets no WebSocket to ask anything on.
    let elsewhere = Visitor { entrance: Entrance::Door, ..place.api(Scope::Admin) };
    assert_eq!(talk(&place, &elsewhere).err(), Some(403));
    let found = Visitor { entrance: Entrance::Tcp, ..bearer(TokenKind::Session, Vec::new(), &tokens.own) };
    assert_eq!(talk(&place, &found).err(), Some(403), "a token of a session on TCP was found");
    assert_eq!(talk(&place, &Visitor { entrance: Entrance::Door, ..place.owner() }).err(), Some(401));
    refused.insert(OPENING, 2);
    let mut askers = askers(&place, &tokens);
    let mut of_agents: BTreeMap<&str, usize> = BTreeMap::new();
    let (first, last) =
        Method::ALL.iter().partition::<Vec<Method>, _>(|method| **method != Method::SessionStop);
    for method in first.into_iter().chain(last) {
        // The session is over after the first who may stop it, and its tokens and its door with it.
        for asker in askers.iter_mut().rev() {
            let expected = asker.expected(method);
            for said in asker.ask(&place, method, &about) {
                assert_eq!(said, expected, "{} of {}", method.name(), asker.shown());
                *refused.entry(method.name()).or_default() += usize::from(said == Said::Forbidden);
                let is_agent = asker.visitor.kind == Some(TokenKind::Session);
                *of_agents.entry(method.name()).or_default() +=
                    usize::from(is_agent && said == Said::Forbidden);
            }
        }
    }
    let operators_own =
        Method::ALL.iter().filter(|method| matches!(method.access(), MethodAccess::Operator(_)));
    for method in operators_own {
        let ways = Rpc::ALL.iter().filter(|rpc| rpc.method == *method).count() + 2;
        assert_eq!(of_agents[method.name()], 4 * ways, "{} is refused to agents everywhere", method.name());
    }
    let written = place.served.records("authentication-attempted");
    let mut counted: BTreeMap<&str, usize> = refused.keys().map(|name| (*name, 0)).collect();
    let known = |event: &&Value| !event["refusal"].is_null() && event["principal"]["principal"] != "stranger";
    for event in written.iter().map(|record| &record["event"]).filter(known) {
        *counted.entry(event["purpose"].as_str().unwrap()).or_default() += 1;
    }
    assert_eq!(counted, refused, "each refusal is written down, once");
}
