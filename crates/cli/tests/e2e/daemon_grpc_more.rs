//! gRPC: files, pages, identities and devices, and that it is on Unix sockets alone.

use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ringfence_api::{ErrorCode, Method};
use ringfence_grpc::{Rpc, v1};
use ringfence_runtime::identity::{Challenge, CredentialId, DeviceKey, ProofPurpose};
use ringfence_types::Scope;
use serde_json::{Value, json};
use tonic::Code;

use crate::daemon_fixture::Served;
use crate::daemon_rights::{minted, token_of};
use crate::grpc_client::{Speaker, info, reason};
use crate::testkit::World;

/// S003-17: the file tools over gRPC are those over HTTP: the same rules, the same records, bytes as they are.
#[test]
fn files_are_read_written_and_moved_over_grpc_by_the_rules_of_the_session() {
    let served = Served::new();
    let session = served.session();
    let agent = Speaker::at(&served.socket, Some(&token_of(&served, &session)));
    let session = session.session.to_string();
    let path = |path: &str| (session.clone(), path.to_owned());
    let content = [b"a\xffb".to_vec(), vec![7; 3 << 20]].concat();
    let (session_id, name) = path("new");
    let write = v1::WriteFileRequest { session: session_id, path: name, content: content.clone() };
    let written = agent.wait(agent.files().write_file(write)).unwrap().into_inner();
    assert_eq!(written.bytes, content.len() as u64);
    assert_eq!(std::fs::read(served.world.workspace.join("new")).unwrap(), content);
    let stat = |name: &str| {
        let (session, path) = path(name);
        agent.wait(agent.files().stat_file(v1::StatFileRequest { session, path }))
    };
    let found = stat("new").unwrap().into_inner();
    assert_eq!((found.kind.as_str(), found.bytes), ("file", content.len() as u64));
    let (session_id, from) = path("new");
    let moved = v1::MoveFileRequest { session: session_id, path: from, to: "moved".to_owned() };
    let moved = agent.wait(agent.files().move_file(moved)).unwrap().into_inner();
    let read = |name: &str| {
        let (session, path) = path(name);
        agent.wait(agent.files().read_file(v1::ReadFileRequest { session, path }))
    };
    assert_eq!(read("moved").unwrap().into_inner().content, content);
    let (session_id, sent) = path("moved");
    let sent = agent.wait(agent.files().send_file(v1::SendFileRequest { session: session_id, path: sent }));
    let sent = sent.unwrap().into_inner();
    assert_eq!(
        (sent.name.as_slice(), sent.content.len(), sent.sha256.len()),
        (&b"moved"[..], content.len(), 64)
    );
    let list = v1::ListDirectoryRequest { session: session.clone(), path: None };
    let listed = agent.wait(agent.files().list_directory(list)).unwrap().into_inner().entries;
    assert!(listed.iter().any(|entry| entry.name == b"moved" && entry.kind == "file"), "{listed:?}");
    let (session_id, gone) = path("moved");
    let remove = v1::RemoveFileRequest { session: session_id, path: gone };
    agent.wait(agent.files().remove_file(remove)).unwrap();
    assert!(!served.world.workspace.join("moved").exists());
    let missing = read("moved").unwrap_err();
    assert_eq!((missing.code(), reason(&missing)), (Code::FailedPrecondition, ErrorCode::FailedPrecondition));
    // What is closed is closed here as well, with the rule; and all of it is written down.
    served.world.write(".env", "TOKEN=1\n");
    let refused = read(".env").unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::PermissionDenied, ErrorCode::Refused));
    assert!(!info(&refused).metadata["rule"].is_empty());
    let settled = served.records("call-settled");
    let of = |id: &Option<String>| settled.iter().any(|record| record["event"]["transaction"] == json!(id));
    assert!(of(&written.transaction) && of(&moved.transaction));
    let explain = |subject| v1::ExplainRequest { session: session.clone(), subject: Some(subject) };
    use v1::explain_request::Subject;
    let argv = vec!["true".to_owned()];
    for (subject, decision) in [
        (Subject::Read(".env".to_owned()), "deny"),
        (Subject::Command(v1::ExplainCommand { argv }), "allow"),
        (Subject::Url("http://localhost:1/".to_owned()), "deny"),
    ] {
        let told = agent.wait(agent.calls().explain(explain(subject.clone()))).unwrap().into_inner();
        assert_eq!(told.decision, decision, "{subject:?} {told:?}");
    }
    let nothing = v1::ExplainRequest { session: session.clone(), subject: None };
    assert_eq!(agent.wait(agent.calls().explain(nothing)).unwrap_err().code(), Code::InvalidArgument);
    let fetch = v1::FetchRequest { session, url: "http://localhost:1/".to_owned() };
    let refused = agent.wait(agent.calls().fetch(fetch)).unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::PermissionDenied, ErrorCode::Refused));
}

fn rights(scopes: &[&str]) -> Option<v1::Rights> {
    Some(v1::Rights { scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(), workspaces: None })
}

/// S003-15, S003-17: tokens and operators over gRPC: never wider than their maker, cut off when they end.
#[test]
fn tokens_and_operators_are_made_and_ended_over_grpc() {
    let served = Served::new();
    let admin = Speaker::at(&served.socket, Some(&minted(&served, Scope::Admin)));
    let create = |scopes: &[&str]| v1::CreateTokenRequest {
        label: "t".to_owned(),
        rights: rights(scopes),
        lifetime_s: Some(60),
        operator: None,
    };
    let wider = admin.wait(admin.identities().create_token(create(&["admin", "run"]))).unwrap_err();
    assert_eq!(
        (reason(&wider), info(&wider).metadata["rule"].as_str()),
        (ErrorCode::Forbidden, "identity.wider-than-parent")
    );
    assert!(wider.message().contains("`run`"), "{wider:?}");
    let made = admin.wait(admin.identities().create_token(create(&["admin"]))).unwrap().into_inner();
    let meta: Value = serde_json::from_str(&made.token_json).unwrap();
    let id = meta["id"].as_str().unwrap().to_owned();
    let holder = Speaker::at(&served.socket, Some(&made.secret));
    let who = |speaker: &Speaker| speaker.wait(speaker.daemon().who_am_i(v1::WhoAmIRequest {}));
    assert_eq!(who(&holder).unwrap().into_inner().scopes, ["admin"]);
    let rotate = v1::RotateTokenRequest { id: id.clone() };
    let next = admin.wait(admin.identities().rotate_token(rotate)).unwrap().into_inner();
    assert_eq!(who(&holder).unwrap_err().code(), Code::Unauthenticated);
    let holder = Speaker::at(&served.socket, Some(&next.secret));
    holder.wait(holder.identities().logout(v1::LogoutRequest {})).unwrap();
    assert_eq!(who(&holder).unwrap_err().code(), Code::Unauthenticated);
    let listed = admin.wait(admin.identities().list_tokens(v1::ListTokensRequest {})).unwrap().into_inner();
    assert!(listed.tokens_json.iter().any(|token| token.contains(&id)));
    assert!(!listed.tokens_json.iter().any(|token| token.contains(&next.secret)));
    let password = ["correct", "horse", "battery"].join(" ");
    let add = v1::AddOperatorRequest { name: "ann".to_owned(), rights: rights(&["admin"]), password };
    let added = admin.wait(admin.identities().add_operator(add)).unwrap().into_inner();
    assert!(added.operator_json.contains("ann") && !added.operator_json.contains("argon2"), "{added:?}");
    let set = v1::SetPasswordRequest { name: "ann".to_owned(), password: "short".to_owned() };
    assert_eq!(admin.wait(admin.identities().set_password(set)).unwrap_err().code(), Code::InvalidArgument);
    let all =
        admin.wait(admin.identities().list_operators(v1::ListOperatorsRequest {})).unwrap().into_inner();
    assert_eq!(all.operators_json.len(), 1);
    let remove = v1::RemoveOperatorRequest { name: "ann".to_owned() };
    admin.wait(admin.identities().remove_operator(remove.clone())).unwrap();
    assert_eq!(admin.wait(admin.identities().remove_operator(remove)).unwrap_err().code(), Code::NotFound);
    // A session hands a part of what it has on, and no operator does it for it.
    let session = served.session();
    let agent = Speaker::at(&served.socket, Some(&token_of(&served, &session)));
    let left = json!({ "paths": "any", "hosts": "any", "commands": "any", "calls": 1 }).to_string();
    let hand = |left: &str| v1::AttenuateTokenRequest {
        session: session.session.to_string(),
        label: "part".to_owned(),
        attenuation_json: left.to_owned(),
        lifetime_s: None,
    };
    let part = agent.wait(agent.identities().attenuate_token(hand(&left))).unwrap().into_inner();
    let part = Speaker::at(&served.socket, Some(&part.secret));
    assert_eq!(who(&part).unwrap().into_inner().kind, "session");
    assert_eq!(
        agent.wait(agent.identities().attenuate_token(hand("{"))).unwrap_err().code(),
        Code::InvalidArgument
    );
}

/// S003-18 over gRPC: a key on one side, an operator with scope `pair` on the other.
#[test]
fn a_device_is_let_in_over_grpc() {
    let served = Served::new();
    let device = Speaker::at(&served.socket, Some(&minted(&served, Scope::Read)));
    let key = DeviceKey::random().unwrap();
    let ask =
        v1::RequestPairingRequest { label: "phone".to_owned(), key: key.public(), wants: rights(&["pair"]) };
    let signed = |purpose: ProofPurpose, challenge: v1::DeviceChallenge| {
        let v1::DeviceChallenge { subject, nonce } = challenge;
        let of = Challenge { subject: CredentialId::parse(&subject).unwrap(), nonce: nonce.clone() };
        Some(v1::DeviceProof { subject, nonce, signature: key.sign(purpose, &of).0 })
    };
    let asked = device.wait(device.devices().request_pairing(ask)).unwrap().into_inner();
    let subject = asked.subject.clone();
    let prove = v1::ProvePairingRequest { proof: signed(ProofPurpose::Pair, asked) };
    let proven = device.wait(device.devices().prove_pairing(prove)).unwrap().into_inner();
    let pairing: Value = serde_json::from_str(&proven.pairing_json).unwrap();
    let code = pairing["code"].as_str().unwrap().to_owned();
    let approve = v1::ApprovePairingRequest { code: code.clone(), rights: None };
    let reader = device.wait(device.devices().approve_pairing(approve.clone())).unwrap_err();
    assert_eq!(reason(&reader), ErrorCode::Forbidden);
    assert!(reader.message().contains("`pair`"), "{reader:?}");
    let pairer = Speaker::at(&served.socket, Some(&minted(&served, Scope::Pair)));
    let waiting =
        pairer.wait(pairer.devices().list_pairings(v1::ListPairingsRequest {})).unwrap().into_inner();
    assert!(waiting.pairings_json.len() == 1 && waiting.pairings_json[0].contains(&code));
    pairer.wait(pairer.devices().approve_pairing(approve)).unwrap();
    let challenge = |subject: &str| {
        let ask = v1::RequestChallengeRequest { subject: subject.to_owned() };
        device.wait(device.devices().request_challenge(ask)).unwrap().into_inner()
    };
    let collect = v1::ClaimDeviceTokenRequest { proof: signed(ProofPurpose::Claim, challenge(&subject)) };
    let minted = device.wait(device.devices().claim_device_token(collect)).unwrap().into_inner();
    assert!(minted.secret.starts_with("rf_device_"));
    let meta: Value = serde_json::from_str(&minted.token_json).unwrap();
    let refresh = v1::RefreshDeviceRequest {
        proof: signed(ProofPurpose::Refresh, challenge(meta["id"].as_str().unwrap())),
    };
    let next = device.wait(device.devices().refresh_device(refresh)).unwrap().into_inner();
    assert_ne!(next.secret, minted.secret);
    let none = v1::RefreshDeviceRequest { proof: None };
    assert_eq!(device.wait(device.devices().refresh_device(none)).unwrap_err().code(), Code::InvalidArgument);
    let refuse = v1::RefusePairingRequest { code };
    assert_eq!(pairer.wait(pairer.devices().refuse_pairing(refuse)).unwrap_err().code(), Code::NotFound);
}

/// Who may not call a method at all is told so before anything of a long message is taken in, and it is written down once.
#[test]
fn a_long_message_over_grpc_is_not_taken_in_before_it_is_known_who_sends_it() {
    let served = Served::new();
    let session = served.session().session.to_string();
    let reader = Speaker::at(&served.socket, Some(&minted(&served, Scope::Read)));
    let content = vec![b'x'; 24 << 20];
    let write = v1::WriteFileRequest { session, path: "long".to_owned(), content };
    let status = reader.wait(reader.files().write_file(write.clone())).unwrap_err();
    assert_eq!(
        (status.code(), reason(&status)),
        (Code::PermissionDenied, ErrorCode::Forbidden),
        "{status:?}"
    );
    let refused = served.records("authentication-attempted");
    let of =
        |record: &&Value| record["event"]["purpose"] == "file.write" && !record["event"]["refusal"].is_null();
    assert_eq!(refused.iter().filter(of).count(), 1);
    let owner = Speaker::at(&served.socket, None);
    assert_eq!(owner.wait(owner.files().write_file(write)).unwrap().into_inner().bytes, 24 << 20);
}

/// ADR 38: on TCP there is none of it. A real client is told so in words that it understands; at the socket the same works.
#[test]
fn grpc_is_on_unix_sockets_alone() {
    let served = Served::listening(World::new(), "", "");
    let port = served.port();
    let token = minted(&served, Scope::Read);
    let over_tcp = Speaker::over(&format!("http://127.0.0.1:{port}"), Some(&token), async {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let _driver = tokio::spawn(connection);
        sender
    });
    let before = served.records("authentication-attempted").len();
    for rpc in Rpc::ALL.iter().filter(|rpc| rpc.method != Method::Shutdown) {
        let status = over_tcp.refused(rpc, Vec::new());
        assert_eq!(status.code(), Code::Unimplemented, "{} {status:?}", rpc.path);
        assert!(status.message().contains("no gRPC here"), "{status:?}");
    }
    assert_eq!(served.records("authentication-attempted").len(), before, "nobody was asked anything");
    let at_socket = Speaker::at(&served.socket, Some(&token));
    let own = at_socket.wait(at_socket.daemon().who_am_i(v1::WhoAmIRequest {})).unwrap().into_inner();
    assert_eq!(own.scopes, ["read"], "the control");
}
