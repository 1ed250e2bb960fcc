//! The official clients of gRPC for Python (C-core) and JavaScript: every refusal has the status that the daemon gave it.

use std::process::Command;

use ringfence_grpc::v1;
use serde_json::{Value, json};

use crate::agents::{agents, source};
use crate::daemon_fixture::Served;
use crate::daemon_rights::token_of;
use crate::daemon_socket::token_with;
use crate::testkit::{World, finish};

struct Client {
    name: &'static str,
    /// Calls what the value names.
    command: fn(&World, &Value) -> Command,
}

const CLIENTS: [Client; 2] =
    [Client { name: "python", command: python }, Client { name: "javascript", command: javascript }];

fn python(world: &World, wanted: &Value) -> Command {
    let packages = agents().join("../grpc");
    assert!(packages.join("grpc").is_dir(), "no client of gRPC: run `cargo xtask agents`");
    let mut command = world.host("/usr/bin/python3");
    command.env("PYTHONPATH", packages).arg(source("grpc_client.py")).arg(wanted.to_string());
    command
}

fn javascript(world: &World, wanted: &Value) -> Command {
    let packages = agents().join("../node");
    let is_there = packages.join("node_modules/@grpc/grpc-js").is_dir();
    assert!(is_there, "no client of gRPC: run `cargo xtask agents`");
    let mut command = world.host("node");
    command.arg(source("grpc_client.mjs")).arg(packages).arg(wanted.to_string());
    command
}

/// A call, and the status that it ends with.
struct Case {
    call: Value,
    code: &'static str,
}

fn case(code: &'static str, method: &str, mut call: Value) -> Case {
    call["path"] = json!(format!("/ringfence.v1.{method}"));
    if call["flow"].is_null() {
        call["flow"] = json!("unary");
    }
    if call["message"].is_null() && call["length"].is_null() {
        call["message"] = json!("");
    }
    Case { call, code }
}

fn message(message: &impl prost::Message) -> String {
    message.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn expect(served: &Served, client: &Client, target: &str, cases: &[Case]) {
    let name = client.name;
    let calls: Vec<&Value> = cases.iter().map(|case| &case.call).collect();
    let wanted = json!({ "target": target, "calls": calls });
    let answers = finish(&mut (client.command)(&served.world, &wanted), b"").expect(0).json();
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), cases.len(), "{name}: {answers:?}");
    for (case, said) in cases.iter().zip(answers) {
        assert_eq!(said["code"], case.code, "{name}: {} was told {said}", case.call);
        let is_explained = !said["message"].as_str().unwrap().is_empty() && said["has_details"] == true;
        assert_eq!(is_explained, case.code != "OK", "{name}: {} was told {said}", case.call);
    }
}

/// Issue 17: who is not known, may not, asks for nothing that exists or sends nonsense, for every kind of method, with short and long
/// messages. The first case is the control.
#[test]
fn official_clients_are_told_why_they_are_refused() {
    // A daemon for each: who shows wrong tokens too often is refused for that.
    CLIENTS.iter().for_each(is_told_why);
}

fn is_told_why(client: &Client) {
    let served = Served::new();
    let session = served.session();
    let (_, reads) = token_with(&served, &["read"]);
    let agent = token_of(&served, &session);
    let (wrong, unknown) = ("rf_api_0_0", "ses_000000000000000000000000".to_owned());
    let get = message(&v1::GetSessionRequest { session: unknown.clone() });
    let argv = vec!["true".to_owned()];
    let command = Some(v1::Command { session: unknown.clone(), argv, ..Default::default() });
    let run = message(&v1::ExecStreamRequest { command });
    let report =
        v1::ReportActivityRequest { session: unknown, activity: "k".to_owned(), claim: "t".to_owned() };
    let report = message(&report);
    let cases = [
        case("OK", "SessionService/ListSessions", json!({})),
        case(
            "OK",
            "ActivityService/StreamAgentActivity",
            json!({
                "flow": "both", "token": agent,
                "message": message(&v1::ReportActivityRequest {
                    session: session.session.to_string(), activity: "k".to_owned(), claim: "t".to_owned()
                }),
            }),
        ),
        case("UNAUTHENTICATED", "SessionService/ListSessions", json!({ "token": wrong })),
        case("UNAUTHENTICATED", "ActivityService/WatchEvents", json!({ "token": wrong, "flow": "server" })),
        case(
            "UNAUTHENTICATED",
            "ActivityService/StreamAgentActivity",
            json!({ "token": wrong, "flow": "both" }),
        ),
        // Refused before the message is read.
        case("UNAUTHENTICATED", "FileService/WriteFile", json!({ "token": wrong, "length": 4 << 20 })),
        case("PERMISSION_DENIED", "SessionService/CreateSession", json!({ "token": reads })),
        case(
            "PERMISSION_DENIED",
            "SessionService/CreateSession",
            json!({ "token": reads, "length": 1 << 19 }),
        ),
        case("PERMISSION_DENIED", "ActivityService/WatchEvents", json!({ "token": agent, "flow": "server" })),
        case(
            "PERMISSION_DENIED",
            "ApprovalService/WatchApprovals",
            json!({ "token": agent, "flow": "server" }),
        ),
        case(
            "PERMISSION_DENIED",
            "ActivityService/StreamAgentActivity",
            json!({
                "token": agent, "flow": "both", "message": report,
            }),
        ),
        case("INVALID_ARGUMENT", "SessionService/CreateSession", json!({ "message": "ffffffff" })),
        case(
            "INVALID_ARGUMENT",
            "CallService/ExecStream",
            json!({ "message": "ffffffff", "flow": "server" }),
        ),
        case("RESOURCE_EXHAUSTED", "SessionService/CreateSession", json!({ "length": 3 << 20 })),
        case("UNIMPLEMENTED", "SessionService/Nothing", json!({})),
        case("UNIMPLEMENTED", "Nothing/Nothing", json!({ "flow": "server" })),
        case("NOT_FOUND", "SessionService/GetSession", json!({ "message": get })),
        case("NOT_FOUND", "CallService/ExecStream", json!({ "message": run, "flow": "server" })),
        // Last: what is refused for its number takes a while to be allowed again.
        case("RESOURCE_EXHAUSTED", "DaemonService/WhoAmI", json!({ "flood": served.socket })),
    ];
    expect(&served, client, &format!("unix:{}", served.socket.display()), &cases);
}

/// There is no gRPC on TCP, and a client of gRPC understands that it is told so.
#[test]
fn official_clients_are_refused_over_tcp_in_their_own_words() {
    let served = Served::listening(World::new(), "", "");
    let (_, token) = token_with(&served, &["read"]);
    let cases = [
        case("UNIMPLEMENTED", "SessionService/ListSessions", json!({ "token": token })),
        case("UNIMPLEMENTED", "ActivityService/WatchEvents", json!({ "token": token, "flow": "server" })),
        case(
            "PERMISSION_DENIED",
            "SessionService/ListSessions",
            json!({
                "token": token, "authority": "elsewhere.test"
            }),
        ),
    ];
    for client in &CLIENTS {
        expect(&served, client, &format!("127.0.0.1:{}", served.port()), &cases);
    }
}
